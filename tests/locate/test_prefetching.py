"""Files that are prefetched ahead: nothing fails, stays open or goes on because of it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lmdbio.locate import file_set
from lmdbio.locate.file_set import FILES_TRIED, WAIT_S, prefetching


def state() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    made = [tmp_path / f"{number}" for number in range(200)]
    for path in made[::2]:
        path.write_bytes(bytes(70_000))
    (tmp_path / "folder").mkdir()
    return [str(path) for path in [*made, tmp_path / "folder"]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are prefetched."""
    found: list[str] = []
    touch = file_set._prefetch

    def noted(path: str, beside: Any) -> None:
        found.append(path)
        touch(path, beside)

    monkeypatch.setattr(file_set, "_prefetch", noted)
    return found


def open_all(paths: list[str], wait_s: float) -> None:
    """Open files, each of which waits so long."""
    with prefetching(paths, lambda path: f"{path}.prov") as opened:
        for _ in paths:
            time.sleep(wait_s)
            opened()


def test_files_that_wait_are_prefetched_after_the_first_ones(
    paths: list[str], asked: list[str]
) -> None:
    before = state()
    open_all(paths, 4 * WAIT_S)
    assert asked == paths[FILES_TRIED : FILES_TRIED + len(asked)] and len(asked) > 20
    assert state() == before


def test_few_files_and_those_of_servers_are_not(paths: list[str], asked: list[str]) -> None:
    for some in (paths[: FILES_TRIED - 1], [], ["http://nowhere/a"] * 20):
        open_all(some, 4 * WAIT_S)
    assert not asked


def test_files_that_do_not_wait_are_not(
    paths: list[str], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", time.thread_time)  # no other thread has the processor
    open_all(paths, 0)
    assert not asked


def test_a_body_that_fails_leaves_nothing_behind(paths: list[str], asked: list[str]) -> None:
    before = state()
    with pytest.raises(KeyError), prefetching(paths) as opened:
        for _ in range(FILES_TRIED):
            time.sleep(4 * WAIT_S)
            opened()
        raise KeyError
    assert state() == before
    assert set(asked) <= set(paths)


def test_without_threads_the_body_goes_on(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    open_all(paths[:20], 4 * WAIT_S)
