"""Drafts become their goal whole, or vanish, whoever else is at it.

Method: both kinds, a file and a folder with a file, go through every end: published, left,
refused, killed. Events that can only happen between two calls (a sweeper, a goal that comes to
be) are put there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmdbio.system.publish import Draft

GOAL = "goal.mdb"
CONTENT = os.urandom(10_000)


@pytest.fixture(params=[None, "data.mdb"], ids=["file", "folder"])
def inside(request: pytest.FixtureRequest) -> str | None:
    """The name of the file in the folder, if there is one."""
    name: str | None = request.param
    return name


def filled(draft: Draft) -> Draft:
    draft.write(CONTENT[:7000], 0)
    draft.write(memoryview(CONTENT)[7000:], 7000)
    draft.sync()
    return draft


def read(goal: Path, inside: str | None) -> bytes:
    return (goal if inside is None else goal / inside).read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def killed_in(work: Callable[[], None]) -> None:
    """Runs ``work`` in a child, which dies where it ends."""
    child = os.fork()
    if child == 0:
        work()
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def test_what_is_published_is_whole_and_alone(inside: str | None, tmp_path: Path) -> None:
    with Draft(tmp_path / GOAL, inside=inside) as draft:
        filled(draft)
        assert not (tmp_path / GOAL).exists()
        draft.publish()
        assert read(tmp_path / GOAL, inside) == CONTENT
    assert names(tmp_path) == [GOAL]
    assert read(tmp_path / GOAL, inside) == CONTENT


def test_what_is_left_vanishes(inside: str | None, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        with Draft(tmp_path / GOAL, inside=inside) as draft:
            filled(draft)
            assert len(names(tmp_path)) == 1
            raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_no_descriptor_is_left(inside: str | None, tmp_path: Path) -> None:
    before = len(names(Path("/proc/self/fd")))
    for publishes in (False, True):
        with Draft(tmp_path / GOAL, inside=inside) as draft:
            if publishes:
                draft.publish()
    assert len(names(Path("/proc/self/fd"))) == before


def test_what_is_cut_is_shorter(inside: str | None, tmp_path: Path) -> None:
    with Draft(tmp_path / GOAL, inside=inside) as draft:
        filled(draft).cut(123)
        draft.publish()
    assert read(tmp_path / GOAL, inside) == CONTENT[:123]


def test_a_draft_in_use_is_left_alone(inside: str | None, tmp_path: Path) -> None:
    with Draft(tmp_path / GOAL, inside=inside) as living:
        with Draft(tmp_path / GOAL, inside=inside) as draft:
            filled(draft).publish()
        assert living.path.exists()
        assert len(names(tmp_path)) == 2
    assert names(tmp_path) == [GOAL]


def test_what_a_dead_run_left_is_removed_by_the_next_for_the_same_goal(
    inside: str | None, tmp_path: Path
) -> None:
    killed_in(lambda: filled(Draft(tmp_path / GOAL, inside=inside)) and None)
    assert len(names(tmp_path)) == 1
    with Draft(tmp_path / "other"):
        assert len(names(tmp_path)) == 2
    with Draft(tmp_path / GOAL, inside=inside):
        assert len(names(tmp_path)) == 1
    assert names(tmp_path) == []


@pytest.mark.parametrize("other", ["file", "folder"])
def test_a_goal_that_came_to_be_meanwhile_is_left_alone(
    other: str, inside: str | None, tmp_path: Path
) -> None:
    mine = tmp_path / GOAL if other == "file" else tmp_path / GOAL / "mine"
    with Draft(tmp_path / GOAL, inside=inside) as draft:
        filled(draft)
        mine.parent.mkdir(exist_ok=True)
        mine.write_text("mine")
        with pytest.raises(FileExistsError, match="came to exist meanwhile") as caught:
            draft.publish()
    assert caught.value.filename == str(tmp_path / GOAL)
    assert mine.read_text() == "mine"
    assert names(tmp_path) == [GOAL]


def test_a_folder_takes_the_place_of_an_empty_one(tmp_path: Path) -> None:
    with Draft(tmp_path / GOAL, inside="data.mdb") as draft:
        (tmp_path / GOAL).mkdir()
        filled(draft).publish()
    assert read(tmp_path / GOAL, "data.mdb") == CONTENT


def test_a_file_takes_the_place_of_another_only_if_it_may(tmp_path: Path) -> None:
    (tmp_path / GOAL).write_text("old")
    with Draft(tmp_path / GOAL) as draft:
        filled(draft)
        with pytest.raises(FileExistsError):
            draft.publish()
        assert (tmp_path / GOAL).read_text() == "old"
        draft.publish(overwrite=True)
    assert names(tmp_path) == [GOAL]
    assert read(tmp_path / GOAL, None) == CONTENT


def test_without_hard_links_nothing_is_replaced_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unable)
    with Draft(tmp_path / GOAL) as draft:
        filled(draft)
        (tmp_path / GOAL).symlink_to(tmp_path / "nowhere")
        with pytest.raises(FileExistsError, match="came to exist meanwhile"):
            draft.publish()
        (tmp_path / GOAL).unlink()
        draft.publish()
    assert names(tmp_path) == [GOAL]
    assert read(tmp_path / GOAL, None) == CONTENT


def test_a_sweeper_between_making_and_locking_is_outrun(
    inside: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes what is not yet locked for a dead run's; once also what is not yet open."""
    opened, swept = os.open, []

    def sweep(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        made = Path(path)
        draft = made.name.endswith(".tmp") and len(swept) < 2
        if draft and made.is_dir() and not swept:
            swept.append(made)
            made.rmdir()
        fd = opened(path, flags, *rest, **options)
        if draft and made.exists():
            swept.append(made)
            made.rmdir() if made.is_dir() else made.unlink()
        return fd

    monkeypatch.setattr(os, "open", sweep)
    with Draft(tmp_path / GOAL, inside=inside) as draft:
        assert len(swept) == 2
        filled(draft).publish()
    assert names(tmp_path) == [GOAL]
    assert read(tmp_path / GOAL, inside) == CONTENT


def test_where_there_are_no_locks_drafts_are_made_and_never_swept(
    inside: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unable)
    with Draft(tmp_path / GOAL, inside=inside) as living:
        with Draft(tmp_path / GOAL, inside=inside) as draft:
            filled(draft).publish()
        assert living.path.exists()
    assert names(tmp_path) == [GOAL]


FILE = ["open", "pwrite", "ftruncate", "fsync", "link"]
FOLDER = ["mkdir", "open", "pwrite", "ftruncate", "fsync", "rename"]


@pytest.mark.parametrize(
    ("inside", "call"),
    [(None, call) for call in FILE] + [("data.mdb", call) for call in FOLDER],
    indirect=["inside"],
)
def test_what_cannot_be_written_is_told_with_the_goal_and_a_hint(
    call: str, inside: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    if call == "link":  # or it is tried without
        monkeypatch.setattr(os, "rename", full)
    said = r"cannot write the set here: No space left .*; go away"
    with pytest.raises(OSError, match=said) as caught:
        with Draft(tmp_path / GOAL, "the set", inside=inside, hint="; go away") as draft:
            filled(draft).cut(5)
            draft.publish()
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / GOAL)
    assert names(tmp_path) == []
