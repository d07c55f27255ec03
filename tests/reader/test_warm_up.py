"""Goal: a warm-up that takes long shows how far it is; nothing else is written.

Method: a terminal that is none, and a logger; a Reader that waits for all of its home.
"""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

import pytest

from lmdbio.reader import warm_up
from lmdbio.reader.reader import Reader
from lmdbio.reader.root_thread import RootThread
from lmdbio.reader.warm_up import reporting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Part:
    """The part of a root, as a supply tells of it."""

    path, warmth = "some.mdb", (0, 10**7)


def show(part: Part, *warmths: tuple[int, int], is_displayed: bool = True) -> None:
    with reporting(part, is_displayed=is_displayed) as report:  # type: ignore[arg-type]
        for part.warmth in warmths:
            report()


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal that is the standard error of the test."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    return made


def test_a_short_one_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    show(Part(), (1, 2))
    assert not shown.getvalue()


def test_a_long_one_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    monkeypatch.setattr(warm_up, "SILENT_SECONDS", 0.0)
    show(Part(), (1, 2), is_displayed=False)
    assert not shown.getvalue()
    show(Part(), (3 * 10**6, 10**7), (4 * 10**6, 10**7))
    assert "some.mdb" in shown.getvalue() and "4.0/10.0 MB" in shown.getvalue()


def test_without_a_terminal_the_logger_hears_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warm_up, "SILENT_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, "lmdbio"):
        show(Part(), (1 << 20, 4 << 20), (2 << 20, 4 << 20))
    assert [record.message for record in caplog.records] == [
        "some.mdb: the first root keeps 1 of 4 MiB by now"
    ]


@pytest.mark.parametrize("placement", ["home", "mixed", "first"])
def test_a_reader_shows_its_part(
    path: Path, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    shown = terminal(monkeypatch)
    told: list[tuple[int, int]] = []
    wait = warm_up.wait_warm

    def waits(thread: RootThread, *, is_displayed: bool) -> None:
        wait(thread, is_displayed=is_displayed)
        told.append(thread._supply.warmth)

    monkeypatch.setattr(warm_up, "wait_warm", waits)
    cache = f"memory=1G,warm=preload,placement={placement}"
    with Reader(path, 7, shuffle="window", cache=cache, epochs=1) as reader:
        ((there, whole),) = told
        assert there == whole > 0 and reader.stats().cache_bytes in (0, whole)
        assert sum(len(batch) for batch in reader) == reader.count
    assert not shown.getvalue()
