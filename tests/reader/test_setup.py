"""Goal: ranks make a Reader by the steps that ``reader.setup`` lists, in that order.

Method: a Reader of one process, whose meetings are noted with the step that they belong to.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import lmdb
import pytest

from lmdbio import share
from lmdbio.errors import Error
from lmdbio.planning.mode import Mode
from lmdbio.reader import setup
from lmdbio.reader.reader import Reader
from lmdbio.reader.root_thread import RootThread

#: Steps of the table that have meetings, and how many.
LISTED = {
    step: int(count)
    for step, count in re.findall(
        r"^    (\w+) .*?(\d) MEETINGs?\b", setup.__doc__ or "", re.MULTILINE
    )
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for i in range(50):
            txn.put(b"%04d" % i, bytes(100))
    return tmp_path / "db"


def meetings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that receives the step of each meeting from now on."""
    noted: list[str] = []
    together = share.Job.together

    def note(job: share.Job, step: Callable[[], Any]) -> list[Any]:
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_name.lstrip("_")
            if name in LISTED:
                noted.append(name)
                break
            assert frame.f_back is not None, "a meeting of a step that the table does not list"
            frame = frame.f_back
        return together(job, step)

    monkeypatch.setattr(share.Job, "together", note)
    return noted


def test_the_table_lists_the_steps_that_have_meetings() -> None:
    assert list(LISTED) == [
        "agree_options", "open_roots", "agree_cache", "agree_windows", "agree_block",
        "open_root_mail", "attach_window", "launch", "wait_warm",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "shuffle", "cache"),
    [
        ("auto", None, None),
        ("dio", None, None),
        ("lmm", None, None),
        ("dm", None, None),
        ("auto", "groups:16", None),
        ("auto", "global", "memory=1M"),
        ("auto", None, "memory=1M,warm=preload"),
    ],
)
def test_ranks_meet_as_often_and_in_the_order_that_the_table_says(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, shuffle: str | None, cache: str | None
) -> None:
    noted = meetings(monkeypatch)
    with Reader(path, 5, mode=mode, iterations=2, shuffle=shuffle, cache=cache) as reader:
        assert len(list(reader)) == 2
    left_out = set() if cache else {"agree_cache"}
    if cache or not shuffle:
        left_out.add("agree_windows")
    if not cache or "preload" not in cache:
        left_out.add("wait_warm")
    listed = {step: n for step, n in LISTED.items() if step not in left_out}
    assert [(step, len(list(each))) for step, each in groupby(noted)] == list(listed.items())


@pytest.mark.parametrize(
    "cache", [None, "memory=1M", "memory=1M,warm=preload", "memory=1M,placement=first"]
)
def test_ctrl_c_while_a_thread_begins_is_what_the_caller_gets(
    path: Path, monkeypatch: pytest.MonkeyPatch, cache: str | None
) -> None:
    class Begun(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if sys._getframe(1).f_code is threading.Thread.start.__code__:
                raise KeyboardInterrupt
            return super().wait(timeout)

    make = RootThread.__init__

    def made(self: RootThread, *words: Any) -> None:
        make(self, *words)
        self._started = Begun()  # type: ignore[attr-defined]

    told: list[object] = []
    monkeypatch.setattr(RootThread, "__init__", made)
    monkeypatch.setattr(threading, "excepthook", told.append)
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            Reader(path, 5, cache=cache, shuffle="global")
    assert not told


def test_no_step_follows_one_that_failed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = meetings(monkeypatch)
    with pytest.raises((Error, OSError, ValueError)):
        Reader(path, 5, mode=Mode(block_iterations=1), memory_bytes_max=4096)
    assert noted[-1] == "agree_block"
