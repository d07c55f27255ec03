"""Files that are touched ahead: nothing fails, stays open or goes on because of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lmdbio.locate.touched import FILES_MIN, touching


def state() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    made = [tmp_path / f"{number}" for number in range(200)]
    for path in made[::2]:
        path.write_bytes(bytes(70_000))
    (tmp_path / "folder").mkdir()
    return [*made, tmp_path / "folder"]


def test_what_cannot_be_read_fails_nothing_and_nothing_stays_open(paths: list[Path]) -> None:
    before = state()
    for some in (paths, paths[: FILES_MIN - 1], []):
        with touching(some):
            pass
        assert state() == before
    with pytest.raises(KeyError), touching(paths):
        raise KeyError
    assert state() == before


def test_without_threads_the_body_goes_on(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    with touching(paths):
        done = True
    assert done
