"""Compacting copies that cannot be, or are ended: nothing is left, or what was there.

Method: what can go wrong is made to: targets in the way, no room, damage, signals in the middle
of a copy, a process that dies. Ends by signal are tried on real processes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import pytest

from lmdbio.convert import copier as copier_room
from lmdbio.convert.compacting import compact
from lmdbio.convert.copier import Copier
from lmdbio.convert.copying import Copy
from lmdbio.errors import CorruptedError, Error, IncompatibleError
from lmdbio.system.publish import Draft
from tests.support import ROOT
from tests.support.compacting import MAIN, fragmented, left_in, state
from tests.support.databases import open_writable, records, write

# --- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full folder", "file", "link", "source", "no parent", "inside"])
def test_targets_that_are_not_free_are_left_alone(kind: str, tmp_path: Path) -> None:
    source, target = fragmented(tmp_path / "source", count=50), tmp_path / "target"
    if kind == "full folder":
        target.mkdir()
        (target / "mine").write_text("mine")
    elif kind == "file":
        target.write_text("mine")
    elif kind == "link":
        target.symlink_to(tmp_path / "nowhere")
    elif kind == "source":
        target = source
    elif kind == "no parent":
        target = tmp_path / "no" / "target"
    else:
        target = source / "target"
    before = state(source), state(tmp_path)
    with pytest.raises((OSError, ValueError)) as caught:
        compact(source, target)
    assert str(target.parent if kind == "no parent" else target) in str(caught.value)
    assert (state(source), state(tmp_path)) == before


def test_a_file_is_not_put_into_a_folder(tmp_path: Path) -> None:
    source = tmp_path / "source.mdb"
    fragmented(source, subdir=False, count=50)
    (tmp_path / "target").mkdir()
    with pytest.raises(FileExistsError, match="is a folder"):
        compact(source, tmp_path / "target")


@pytest.mark.parametrize("subdir", [True, False])
def test_a_target_that_comes_to_be_meanwhile_is_not_replaced(
    subdir: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    fragmented(source, subdir=subdir, count=50)
    check = Copy._check

    def late(self: Any, *arguments: Any) -> None:
        check(self, *arguments)
        if subdir:
            target.mkdir()
            (target / "mine").write_text("mine")
        else:
            target.write_text("mine")

    monkeypatch.setattr(Copy, "_check", late)
    with pytest.raises(FileExistsError, match="came to exist meanwhile"):
        compact(source, target)
    assert (target / "mine" if subdir else target).read_text() == "mine"
    assert not left_in(tmp_path)


def test_too_little_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(tmp_path / "source")
    room = SimpleNamespace(f_blocks=1 << 20, f_bavail=25, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    written: list[int] = []
    monkeypatch.setattr(Draft, "write", lambda _, piece, at: written.append(len(piece)))
    with pytest.raises(OSError, match="102,400 are free here") as caught:
        compact(source, tmp_path / "target")
    assert caught.value.errno == errno.ENOSPC
    assert not written
    assert not left_in(tmp_path)


def test_room_that_ends_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    """The limit of a process stands for a disk that others fill meanwhile."""
    source = fragmented(tmp_path / "source")
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20,) * 2); {MAIN}"
    done = subprocess.run(
        [sys.executable, "-c", limited, "compact", str(source), str(tmp_path / "target")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "cannot write the copy here: File too large" in done.stderr
    assert str(tmp_path / "target") in done.stderr
    assert not (tmp_path / "target").exists()
    assert not left_in(tmp_path)


@pytest.mark.parametrize("cut", [0, 100, 5000, 200_000])
def test_cut_sources_are_refused(cut: int, tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    os.truncate(source / "data.mdb", cut)
    with pytest.raises(Error, match=r"data\.mdb"):
        compact(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not left_in(tmp_path)


def test_a_copy_that_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fragmented(tmp_path / "source")
    begin = Copy._begin

    def killed(self: Any, copier: Any) -> None:
        begin(self, copier)
        copier._process.send_signal(signal.SIGSEGV)

    monkeypatch.setattr(Copy, "_begin", killed)
    with pytest.raises(IncompatibleError, match="died of SIGSEGV"):
        compact(source, tmp_path / "target")
    assert not left_in(tmp_path)


def test_a_copy_that_lacks_something_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, other = fragmented(tmp_path / "source"), tmp_path / "other"
    with open_writable(other, 1) as env:
        write(env, records(500, lambda i: i))
    pieces = iter([memoryview((other / "data.mdb").read_bytes())])

    def wrong(_: Any) -> Iterator[memoryview]:
        return pieces

    monkeypatch.setattr(Copier, "pieces", wrong)
    monkeypatch.setattr(Copier, "finish", lambda _self, _hint: None)
    with pytest.raises(CorruptedError, match=r"the copy differs from .*data\.mdb in key 19 "):
        compact(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not left_in(tmp_path)


# --- ends --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """96 MiB: time enough to end in the middle of a copy."""
    path = tmp_path_factory.mktemp("large") / "source"
    with lmdb.open(str(path), map_size=1 << 30, sync=False) as env:
        with env.begin(write=True) as txn:
            for number in range(3):
                txn.put(b"%d" % number, b"%d" % number * (32 << 20))
    return path


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in found.read_text().split()] if found.exists() else []


def wait_for(what: Any, seconds: float = 30) -> Any:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found = what()
        if found:
            return found
        time.sleep(0.002)
    raise AssertionError("waited in vain")


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def heed_signals() -> None:
    """Undo what ``nohup`` did to the tests: an ignored signal is inherited."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(source: Path, target: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A copy that stands still in its middle: the process that copies is stopped."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "compact", str(source), str(target)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_signals,
    )  # fmt: skip
    copiers = wait_for(lambda: children_of(process.pid))
    wait_for(
        lambda: [p for p in target.parent.glob(".lmdbio*/data.mdb") if p.stat().st_size > 4 << 20]
    )
    for pid in copiers:
        os.kill(pid, signal.SIGSTOP)
    return process, copiers


def go_on(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="there is no /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_leaves_nothing(
    number: signal.Signals, large: Path, tmp_path: Path
) -> None:
    process, copiers = start(large, tmp_path / "target")
    process.send_signal(number)
    go_on(copiers)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert said.strip() == "lmdbio: interrupted"
    assert list(tmp_path.iterdir()) == []
    assert gone(copiers)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="there is no /proc")
def test_what_a_killed_run_left_is_removed_by_the_next(large: Path, tmp_path: Path) -> None:
    process, copiers = start(large, tmp_path / "target")
    process.kill()
    process.wait(timeout=30)
    go_on(copiers)
    wait_for(lambda: gone(copiers))
    process.communicate(timeout=30)
    assert len(left_in(tmp_path)) == 1
    assert not (tmp_path / "target").exists()
    report = compact(large, tmp_path / "target")
    assert report.after.records == 3
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_copy_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[int] = []

    def stop(_: Any, copier: Any) -> None:
        copier.number()
        copier._process.send_signal(signal.SIGSTOP)
        stopped.append(copier._process.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(Copy, "_begin", stop)
    monkeypatch.setattr(copier_room, "SECONDS_TO_END", 0.1)
    source = fragmented(tmp_path / "source")
    with pytest.raises(KeyboardInterrupt):
        compact(source, tmp_path / "target")
    with pytest.raises(ProcessLookupError):
        os.kill(stopped[0], 0)
    assert not left_in(tmp_path)
