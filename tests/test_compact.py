"""Compacting copies: equal to their source, smaller, whole or not there at all.

Method: every shape of database is copied and compared with its source through py-lmdb; then what
can go wrong is made to: targets in the way, no room, damage, signals in the middle of a copy, a
process that dies. Ends by signal are tried on real processes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
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
from click.testing import CliRunner
from databases import CASES, FORMATS, Case, build, content, open_writable, records, value, write

import lmdbio
from lmdbio import _core, cli, compact
from lmdbio.compact import copier as copier_room
from lmdbio.compact.copier import Copier
from lmdbio.compact.copying import Copy
from lmdbio.convert import convert
from lmdbio.drafts import Draft
from lmdbio.errors import CorruptedError, Error, IncompatibleError
from lmdbio.verify import verify

ROOT = Path(__file__).resolve().parents[1]
MAIN = "from lmdbio.cli import main; main()"


def meta_of(path: Path) -> _core.Meta:
    with _core.Engine(path / "data.mdb" if path.is_dir() else path) as engine:
        return _core.read_meta(engine)


def everything(path: Path) -> dict[bytes | None, Any]:
    """All databases with their flags and records, as py-lmdb reads them."""
    options = {"subdir": path.is_dir(), "readonly": True, "lock": False, "max_dbs": 8}
    with lmdb.open(str(path), **options) as env:
        names: list[bytes | None] = [None, *env.dbs()]
        found: dict[bytes | None, Any] = {}
        for name in names:
            db = env.open_db(name, create=False)
            with env.begin(db=db) as txn:
                # The main database's values are roots of the others, which do move.
                values = [item for item in txn.cursor() if item[0].rstrip(b"\0") not in names]
                with_flags = {k: v for k, v in db.flags(txn).items() if k != "create"}
                found[name] = with_flags, values
        return found


def left_in(folder: Path) -> list[str]:
    """Drafts that somebody left."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".lmdbio")]


def state(path: Path) -> dict[str, tuple[int, int, int]]:
    """What changes when somebody writes to a folder or file; a lock file has readers' slots."""
    files = [path, *path.iterdir()] if path.is_dir() else [path]
    files = [each for each in files if each.name != "lock.mdb"]
    return {
        str(each): (each.lstat().st_mtime_ns, each.lstat().st_size, each.lstat().st_ino)
        for each in files
    }


def fragmented(path: Path, version: int = 1, count: int = 1200, **options: Any) -> Path:
    """Records put in random order, of which a third was deleted and others grew."""
    chance = random.Random(7)
    made = records(count, lambda i: 200 + i * 37 % 5000)
    chance.shuffle(made)
    with open_writable(path, version, **options) as env:
        write(env, made)
        for _ in range(4):
            with env.begin(write=True) as txn:
                for key, _data in chance.sample(made, count // 12):
                    txn.delete(key)
                for key, _data in chance.sample(made, count // 24):
                    txn.put(key, value(key, chance.randrange(9000)))
    return path


# --- copies ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_copies_equal_their_source_and_are_converted(
    case: Case, version: int, tmp_path: Path
) -> None:
    source, target = build(case, tmp_path, version), tmp_path / "target"
    before = state(source)
    report = compact.compact(source, target)
    assert state(source) == before
    assert everything(target) == everything(source)
    was, now = meta_of(source), meta_of(target)
    assert now.layout.version == was.layout.version == version
    assert now.layout.page_size == was.layout.page_size
    assert now.map_size == was.map_size
    assert report.sidecar == target / "data.mdb.prov"
    checked = verify(target)
    assert checked.sidecar == report.sidecar
    assert report.after.records == report.before.records
    assert report.after.record_bytes == report.before.record_bytes
    if case.name != "mixed":  # in order already, but for where leaves lie
        assert report.after.runs <= report.before.runs
    assert report.after.file_bytes <= report.before.file_bytes
    assert report.after.free_pages == 0
    assert report.after.file_bytes == report.after.used_bytes
    assert report.after.sidecar_bytes == report.sidecar.stat().st_size
    assert sorted(path.name for path in target.iterdir()) == ["data.mdb", "data.mdb.prov"]
    assert not left_in(tmp_path)


@pytest.mark.parametrize("version", FORMATS)
def test_fragments_come_together(version: int, tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source", version)
    report = compact.compact(source, tmp_path / "target")
    assert report.before.free_pages > 0
    assert report.after.used_bytes < report.before.used_bytes
    assert report.after.runs < report.before.runs / 2
    assert content(tmp_path / "target") == content(source)


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("name", ["fragmented", "named", "mixed"])
def test_numbers_are_those_of_convert_and_of_py_lmdb(
    name: str, version: int, tmp_path: Path
) -> None:
    if name == "fragmented":
        source = fragmented(tmp_path / name, version)
    else:
        source = build(next(case for case in CASES if case.name == name), tmp_path, version)
    report = compact.compact(source, tmp_path / "target")
    for path, sizes in ((source, report.before), (tmp_path / "target", report.after)):
        tables = convert(path, output=tmp_path / "tables.prov", databases="all", form="leaves")
        walked = verify(path, tmp_path / "tables.prov")
        assert sizes.runs == tables.runs
        assert sizes.record_bytes == tables.record_bytes
        assert sizes.records == tables.records
        pages = walked.tree_pages + walked.overflow_pages + 2
        meta = meta_of(path)
        lists = meta.free_db.overflow_pages
        assert sizes.used_bytes == (pages + lists) * meta.layout.page_size
        assert sizes.free_pages == meta.last_pgno + 1 - pages - lists


@pytest.mark.parametrize("version", FORMATS)
def test_databases_with_duplicates_are_copied_and_converted(version: int, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with open_writable(source, version) as env:
        varied = env.open_db(b"varied", dupsort=True)
        fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True)
        write(env, records(200, lambda i: i * 30), db=env.open_db(b"plain"))
        write(env, [(b"%d" % (i % 3), b"%09d" % i) for i in range(3000)], db=varied)
        write(env, [(b"%d" % (i % 99), b"%09d" % i) for i in range(990)], db=fixed)
    report = compact.compact(source, target)
    assert everything(target) == everything(source)
    assert report.before.records == report.after.records == 4190
    assert verify(target, report.sidecar).sidecar_records == 4190


@pytest.mark.parametrize("subdir", [True, False])
@pytest.mark.parametrize("version", FORMATS)
def test_many_duplicates_of_one_size_are_put_again(
    version: int, subdir: bool, tmp_path: Path
) -> None:
    """LMDB's own copy dies of these."""
    source, target = tmp_path / "source", tmp_path / "target"
    with open_writable(source, version, subdir=subdir) as env:
        fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True)
        numbers = env.open_db(
            b"numbers", dupsort=True, dupfixed=True, integerdup=True, integerkey=True
        )
        write(env, records(200, lambda i: i * 30))
        write(env, records(300, lambda i: i * 17), db=env.open_db(b"reverse", reverse_key=True))
        write(env, [(b"%d" % (i % 3), b"%09d" % i) for i in range(9000)], db=fixed)
        write(env, [(b"%08d" % (i % 3), b"%04d" % i) for i in range(9000)], db=numbers)
    seen: list[tuple[int, int]] = []
    report = compact.compact(
        source,
        target,
        progress=lambda done, total, stage: (
            seen.append((done, total)) if stage == "copy" else None
        ),
    )
    assert everything(target) == everything(source)
    assert meta_of(target).layout.version == version
    assert meta_of(target).map_size == meta_of(source).map_size
    assert report.before.records == report.after.records
    assert report.after.file_bytes < report.before.file_bytes
    assert seen[-1] == (18_500, 18_500)
    assert target.is_dir() is subdir
    assert not left_in(tmp_path)


@pytest.mark.parametrize("version", FORMATS)
def test_single_files_stay_single_files(version: int, tmp_path: Path) -> None:
    source, target = tmp_path / "source.mdb", tmp_path / "target.mdb"
    fragmented(source, version, subdir=False)
    before = state(source)
    report = compact.compact(source, target)
    assert state(source) == before
    assert everything(target) == everything(source)
    assert report.sidecar == tmp_path / "target.mdb.prov"
    assert verify(target).sidecar_records == report.after.records
    with lmdbio.Records(target, locate="provenance") as found:
        assert len(found) == report.after.records
    left = {"source.mdb", "source.mdb-lock", "target.mdb", "target.mdb.prov"}
    assert {path.name for path in tmp_path.iterdir()} == left


def test_the_map_size_goes_along(tmp_path: Path) -> None:
    with open_writable(tmp_path / "source", 1, map_size=123 << 20) as env:
        write(env, records(10, lambda i: i))
    compact.compact(tmp_path / "source", tmp_path / "target")
    with lmdb.open(str(tmp_path / "target"), map_size=1, readonly=True, lock=False) as env:
        assert meta_of(tmp_path / "target").map_size == 123 << 20
        assert env.stat()["entries"] == 10


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    source, target = fragmented(tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    compact.compact(source, target)
    assert content(target) == content(source)


def test_without_conversion_there_is_no_provenance_file(tmp_path: Path) -> None:
    report = compact.compact(fragmented(tmp_path / "source"), tmp_path / "target", convert=False)
    assert report.sidecar is None
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["data.mdb"]


def test_the_provenance_file_goes_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(tmp_path / "source")
    report = compact.compact(source, tmp_path / "one", output=tmp_path / "one.prov")
    assert report.sidecar == tmp_path / "one.prov"
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(tmp_path / "sidecars"))
    report = compact.compact(source, tmp_path / "two")
    assert report.sidecar is not None
    assert report.sidecar.parent == tmp_path / "sidecars"
    verify(tmp_path / "two", report.sidecar)


def test_an_environment_that_py_lmdb_has_open_here_is_copied(tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    with lmdb.open(str(source), map_size=1 << 28) as env:
        with env.begin() as txn:
            compact.compact(source, tmp_path / "target")
            assert content(tmp_path / "target") == list(txn.cursor())


def test_progress_ends_at_its_total(tmp_path: Path) -> None:
    seen: dict[str, tuple[int, int]] = {}

    def note(done: int, total: int, stage: str) -> None:
        assert done >= seen.get(stage, (0, 0))[0]
        seen[stage] = done, total

    source = fragmented(tmp_path / "source")
    report = compact.compact(source, tmp_path / "target", progress=note)
    assert list(seen)[:3] == ["look", "copy", "check"]
    assert all(done == total > 0 for done, total in seen.values())
    assert seen["copy"][1] * 4096 == report.after.file_bytes


# --- the source is left alone ------------------------------------------------------------


@pytest.fixture(params=["with lock file", "without lock file"])
def read_only(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An environment that can't be written to."""
    source = fragmented(tmp_path / "source")
    if request.param == "without lock file":
        (source / "lock.mdb").unlink()
    if os.geteuid():
        source.chmod(0o555)
        yield source
        source.chmod(0o755)
        return
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for command in (
        ["mount", "--bind", source, mounted],
        ["mount", "-o", "remount,bind,ro", mounted],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            subprocess.run(["umount", mounted], capture_output=True, check=False)
            pytest.skip(f"root here may not mount: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def test_a_source_that_cannot_be_written_to_is_copied(read_only: Path, tmp_path: Path) -> None:
    before = sorted(read_only.iterdir())
    compact.compact(read_only, tmp_path / "target")
    assert content(tmp_path / "target") == content(read_only)
    assert sorted(read_only.iterdir()) == before


def test_no_lock_file_is_made(tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    (source / "lock.mdb").unlink()
    compact.compact(source, tmp_path / "target")
    assert [path.name for path in source.iterdir()] == ["data.mdb"]


def committing(monkeypatch: pytest.MonkeyPatch, source: Path, commits: int) -> None:
    """Commits to the source after it was looked at, before the copy is taken."""
    fill = Copy._fill

    def late(self: Any, draft: Any, copier: Any) -> None:
        with lmdb.open(str(source), map_size=1 << 28, lock=False) as env:
            for turn in range(commits):
                with env.begin(write=True) as txn:
                    for key in (b"%08d" % i for i in range(turn, 600, 7)):
                        txn.put(key, b"new" * 1000)
        fill(self, draft, copier)

    monkeypatch.setattr(Copy, "_fill", late)


def test_too_many_commits_without_a_slot_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(tmp_path / "source")
    (source / "lock.mdb").unlink()
    committing(monkeypatch, source, commits=6)
    with pytest.raises(Error, match="was committed to while it was copied"):
        compact.compact(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not left_in(tmp_path)


def test_a_reader_slot_keeps_the_state_that_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(tmp_path / "source")
    before = content(source)
    writer = (
        "import lmdb, sys\n"
        "with lmdb.open(sys.argv[1], map_size=1 << 28) as env:\n"
        "    for turn in range(8):\n"
        "        with env.begin(write=True) as txn:\n"
        "            for i in range(turn, 600, 7):\n"
        "                txn.put(b'%08d' % i, b'new' * 1000)\n"
    )
    fill = Copy._fill

    def late(self: Any, draft: Any, copier: Any) -> None:
        subprocess.run([sys.executable, "-c", writer, str(source)], check=True)
        fill(self, draft, copier)

    monkeypatch.setattr(Copy, "_fill", late)
    compact.compact(source, tmp_path / "target")
    assert content(tmp_path / "target") == before
    assert content(source) != before
    with lmdb.open(str(source), map_size=1 << 28) as env:
        assert env.info()["num_readers"] <= 1  # the slot was given back
        assert env.readers().strip() == "(no active readers)"


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
        compact.compact(source, target)
    assert str(target.parent if kind == "no parent" else target) in str(caught.value)
    assert (state(source), state(tmp_path)) == before


def test_a_file_is_not_put_into_a_folder(tmp_path: Path) -> None:
    source = tmp_path / "source.mdb"
    fragmented(source, subdir=False, count=50)
    (tmp_path / "target").mkdir()
    with pytest.raises(FileExistsError, match="is a folder"):
        compact.compact(source, tmp_path / "target")


@pytest.mark.parametrize("subdir", [True, False])
def test_a_target_that_comes_to_be_meanwhile_is_not_replaced(
    subdir: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    fragmented(source, subdir=subdir, count=50)
    check = Copy.check

    def late(self: Any, *arguments: Any) -> None:
        check(self, *arguments)
        if subdir:
            target.mkdir()
            (target / "mine").write_text("mine")
        else:
            target.write_text("mine")

    monkeypatch.setattr(Copy, "check", late)
    with pytest.raises(FileExistsError, match="came to exist meanwhile"):
        compact.compact(source, target)
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
        compact.compact(source, tmp_path / "target")
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
        compact.compact(source, tmp_path / "target")
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
        compact.compact(source, tmp_path / "target")
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
    with pytest.raises(CorruptedError, match="has other records than"):
        compact.compact(source, tmp_path / "target")
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


def start(source: Path, target: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A copy that stands still in its middle: the process that copies is stopped."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "compact", str(source), str(target)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
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
    report = compact.compact(large, tmp_path / "target")
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
        compact.compact(source, tmp_path / "target")
    with pytest.raises(ProcessLookupError):
        os.kill(stopped[0], 0)
    assert not left_in(tmp_path)


# --- the command -------------------------------------------------------------------------


def call(*arguments: object) -> Any:
    return CliRunner().invoke(cli.cli, [str(one) for one in arguments], catch_exceptions=False)


def test_the_command_shows_what_was_before_and_after(tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    convert(source)
    done = call("compact", source, tmp_path / "target")
    assert done.exit_code == 0, done.output
    said = call("compact", source, tmp_path / "again", "--json")
    report = json.loads(said.stdout)
    rows = {line[2:17].strip(): line[17:].split() for line in done.stdout.splitlines()[1:]}
    assert str(tmp_path / "target" / "data.mdb") in done.stdout
    before, after = report["before"], report["after"]
    assert rows["runs"] == [f"{before['runs']:,}", f"{after['runs']:,}"]
    assert rows["free pages"] == [f"{before['free_pages']:,}", "0"]
    assert rows["provenance file"][0] == f"{before['sidecar_bytes']:,}"
    assert report["databases"] == [None]
    assert report["sidecar"] == str(tmp_path / "again" / "data.mdb.prov")


def test_a_copy_that_cannot_be_converted_stands(tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    with pytest.raises(Error, match="is whole, but has no provenance file"):
        compact.compact(source, tmp_path / "target", output=tmp_path / "no" / "where.prov")
    assert content(tmp_path / "target") == content(source)
