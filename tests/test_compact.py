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
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner
from databases import CASES, FORMATS, Case, build, content, open_writable, records, value, write
from hypothesis import given
from hypothesis import strategies as st

import lmdbio
from lmdbio import _core, cli, compact, items
from lmdbio.compact import comparison
from lmdbio.compact import copier as copier_room
from lmdbio.compact.census import count
from lmdbio.compact.comparison import Side, difference
from lmdbio.compact.copier import Copier
from lmdbio.compact.copying import Copy
from lmdbio.convert import convert
from lmdbio.drafts import Draft
from lmdbio.errors import CorruptedError, Error, IncompatibleError
from lmdbio.items import Part
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


def test_an_order_that_was_told_goes_along(tmp_path: Path) -> None:
    keys = [b"%08d" % (index * 7 % 100) for index in range(100)]
    with lmdb.open(str(tmp_path / "source"), map_size=1 << 24) as env:
        with env.begin(write=True) as txn:
            for key in keys:
                txn.put(key, key * 9)
    convert(tmp_path / "source", order=keys)
    compact.compact(tmp_path / "source", tmp_path / "target")
    with lmdbio.Records(tmp_path / "target", order="insertion", locate="provenance") as records:
        assert [records.key(i) for i in range(100)] == keys


def test_an_order_of_another_state_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit between the look at the source's provenance file and the copy."""
    keys = [b"wolf", b"hen", b"fox"]
    env = lmdb.open(str(tmp_path / "source"), map_size=1 << 24)
    with env.begin(write=True) as txn:
        for key in keys:
            txn.put(key, key)
    env.close()
    convert(tmp_path / "source", order=keys)
    look = compact.compacting._told

    def told(data: Path) -> Any:
        found = look(data)
        with lmdb.open(str(tmp_path / "source"), map_size=1 << 24) as env:
            with env.begin(write=True) as txn:
                txn.delete(b"wolf")
                txn.put(b"wolf", b"")
        return found

    monkeypatch.setattr(compact.compacting, "_told", told)
    compact.compact(tmp_path / "source", tmp_path / "target")
    with pytest.raises(IncompatibleError, match="is not known"):
        lmdbio.Records(tmp_path / "target", order="insertion")


def test_databases_that_are_described_stay_so(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "source"), map_size=1 << 24, max_dbs=1) as env:
        with env.begin(write=True) as txn:
            txn.put(b"beside", b"")
            for key in (b"wolf", b"hen"):
                txn.put(key, key, db=env.open_db(b"named", txn=txn))
    convert(tmp_path / "source", databases=["named"], order=[b"wolf", b"hen"])
    compact.compact(tmp_path / "source", tmp_path / "target")
    with lmdbio.Records(tmp_path / "target", db="named", order="insertion") as records:
        assert list(records) == [b"wolf", b"hen"]


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
    assert list(seen)[:4] == ["look", "copy", "check", "contents"]
    assert all(done == total > 0 for done, total in seen.values())
    assert seen["copy"][1] * 4096 == report.after.file_bytes
    assert seen["contents"][1] == report.after.records


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


#: After the source was looked at, before the copy is taken; and after that, before it is compared.
STAGES = ["_fill", "_check"]


def committing(monkeypatch: pytest.MonkeyPatch, source: Path, commits: int, stage: str) -> None:
    """Commits to the source before a stage."""
    original = getattr(Copy, stage)

    def late(self: Any, *arguments: Any) -> None:
        with lmdb.open(str(source), map_size=1 << 28, lock=False) as env:
            for turn in range(commits):
                with env.begin(write=True) as txn:
                    for key in (b"%08d" % i for i in range(turn, 600, 7)):
                        txn.put(key, b"new" * 1000)
        original(self, *arguments)

    monkeypatch.setattr(Copy, stage, late)


@pytest.mark.parametrize("stage", STAGES)
def test_too_many_commits_without_a_slot_are_an_error(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(tmp_path / "source")
    (source / "lock.mdb").unlink()
    committing(monkeypatch, source, 6, stage)
    with pytest.raises(Error, match="was committed to while it was copied"):
        compact.compact(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not left_in(tmp_path)


@pytest.mark.parametrize("stage", STAGES)
def test_a_reader_slot_keeps_the_state_that_is_copied(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    original = getattr(Copy, stage)

    def late(self: Any, *arguments: Any) -> None:
        subprocess.run([sys.executable, "-c", writer, str(source)], check=True)
        original(self, *arguments)

    monkeypatch.setattr(Copy, stage, late)
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
    with pytest.raises(CorruptedError, match=r"the copy differs from .*data\.mdb in key 19 "):
        compact.compact(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not left_in(tmp_path)


# --- what is compared --------------------------------------------------------------------

LARGE = value(b"large", 3_000_000)  # is compared in pieces


def put_all_sorts(env: lmdb.Environment) -> None:
    """Every way in which LMDB keeps keys and values; there is room between them."""
    write(env, [(b"m%07d" % (2 * i), value(i, i * 40)) for i in range(200)])
    write(env, [(b"n", LARGE)])
    many = env.open_db(b"many", dupsort=True)
    write(env, [(b"k-few", b"few-%03d" % (2 * i)) for i in range(9)], db=many)
    write(env, [(b"k-lots", b"lots-%06d" % (2 * i)) for i in range(3000)], db=many)
    write(env, records(300, lambda i: i * 30, tail="p"), db=env.open_db(b"plain"))


def put_fixed(env: lmdb.Environment) -> None:
    """What is copied record by record."""
    fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True)
    pairs = [(b"key-%d" % i, b"%d-%08d" % (i, 2 * n)) for i in range(3) for n in range(3000)]
    write(env, pairs, db=fixed)
    write(env, [(b"m%07d" % (2 * i), value(i, i * 40)) for i in range(200)])


@pytest.fixture(scope="module", params=FORMATS)
def sorts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sorts")
    for name, put in (("all", put_all_sorts), ("fixed", put_fixed)):
        with open_writable(folder / name, request.param) as env:
            put(env)
    return {name: folder / name for name in ("all", "fixed")}


def flip_in_copies(monkeypatch: pytest.MonkeyPatch, what: bytes) -> None:
    """The last bit of something is another one in what was written, wherever it stands."""
    sync = Draft.sync

    def damaged(self: Draft) -> None:
        sync(self)
        content = self.path.read_bytes()
        places = [found.end() - 1 for found in re.finditer(re.escape(what), content)]
        assert places
        for at in places:
            self.write(bytes([content[at] ^ 1]), at)

    monkeypatch.setattr(Draft, "sync", damaged)


FLIPPED = {
    "a key": ("all", b"m0000020", "key 10 (from 0) of the main database"),
    "a value on a leaf": ("all", value(20, 800), "value 20 (from 0) of the main database"),
    "a value on pages": ("all", value(199, 7960), "value 199 (from 0) of the main database"),
    "a large value": ("all", LARGE[-20:], "value 201 (from 0) of the main database"),
    "a piece": ("all", LARGE[1_234_547:1_234_567], "value 201 (from 0) of the main database"),
    "one of few": ("all", b"few-008", "value 4 (from 0) of database 'many'"),
    "one of many": ("all", b"lots-000500", "value 259 (from 0) of database 'many'"),
    "their key": ("all", b"k-lots", "key 1 (from 0) of database 'many'"),
    "a key of another": ("all", b"00000123p", "key 123 (from 0) of database 'plain'"),
    "a value of another": ("all", value(b"00000123p", 3690), "value 123 (from 0) of database"),
    "one that was put": ("fixed", b"1-00000500", "value 3250 (from 0) of database 'fixed'"),
    "the key of one": ("fixed", b"key-2", "key 2 (from 0) of database 'fixed'"),
    "a value beside": ("fixed", value(20, 800), "value 21 (from 0) of the main database"),
}


@pytest.mark.parametrize("case", FLIPPED)
def test_a_copy_in_which_one_bit_is_another_is_not_published(
    case: str, sorts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page is damaged by it, so that only the source tells."""
    name, what, where = FLIPPED[case]
    flip_in_copies(monkeypatch, what)
    with pytest.raises(CorruptedError, match="the copy differs from") as caught:
        compact.compact(sorts[name], tmp_path / "target", convert=False)
    assert f" in {where}" in str(caught.value).replace(",", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", ["a key", "a value on a leaf", "a large value", "their key"])
def test_without_values_keys_alone_are_compared(
    case: str, sorts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, what, where = FLIPPED[case]
    flip_in_copies(monkeypatch, what)
    if where.startswith("value"):
        report = compact.compact(sorts[name], tmp_path / "target", convert=False, values=False)
        assert not report.values_compared
        return
    with pytest.raises(CorruptedError, match="the copy differs from"):
        compact.compact(sorts[name], tmp_path / "target", convert=False, values=False)
    assert list(tmp_path.iterdir()) == []


def differing(one: Path, other: Path, *, values: bool = True) -> str | None:
    """What ``compact`` would say if one were the copy of the other."""
    with _core.Engine(one / "data.mdb") as first, _core.Engine(other / "data.mdb") as second:
        sides = [
            Side(each, count(each, _core.read_meta(each), None, "")) for each in (first, second)
        ]
        return difference(*sides, values=values, progress=None, stage="")


def put_main(*pairs: tuple[bytes, bytes]) -> Callable[[lmdb.Environment], None]:
    return lambda env: write(env, pairs)


def put_named(
    name: bytes, *pairs: tuple[bytes, bytes], **flags: bool
) -> Callable[[lmdb.Environment], None]:
    return lambda env: write(env, pairs, db=env.open_db(name, **flags))


DIFFERENT = {
    "names": (put_named(b"a"), put_named(b"b"), "the names of databases"),
    "one more": (
        lambda env: (put_named(b"a")(env), put_named(b"b")(env)),
        put_named(b"a"),
        "the names of databases",
    ),
    "main": (
        lambda env: (put_named(b"a")(env), put_main((b"k", b""))(env)),
        put_named(b"a"),
        "whether the main database has records",
    ),
    "flags": (put_named(b"a"), put_named(b"a", reverse_key=True), "flags of database 'a'"),
    "more": (
        put_main((b"a", b""), (b"b", b"")),
        put_main((b"a", b"")),
        "the number of records of the main database",
    ),
    "none": (put_main(), put_main((b"a", b"")), "the number of records of the main database"),
    "lengths": (
        put_main((b"a", b"x"), (b"b", b"xy")),
        put_main((b"a", b"xy"), (b"b", b"x")),
        "the length of value 0 (from 0) of the main database",
    ),
    "a longer key": (
        put_main((b"a", b"bc"), (b"ab", b"")),
        put_main((b"a", b"bc"), (b"abc", b"")),
        "key 1 (from 0) of the main database",
    ),
    "another key's": (
        put_named(b"m", (b"a", b"1"), (b"a", b"2"), (b"b", b"3"), dupsort=True),
        put_named(b"m", (b"a", b"1"), (b"b", b"2"), (b"b", b"3"), dupsort=True),
        "the number of values of key 0 (from 0) of database 'm'",
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_is_told(case: str, tmp_path: Path) -> None:
    for name, put in zip(("one", "other"), DIFFERENT[case][:2], strict=True):
        with open_writable(tmp_path / name, 1) as env:
            put(env)
    told = DIFFERENT[case][2]
    one, other = tmp_path / "one", tmp_path / "other"
    assert [differing(*pair) for pair in ((one, other), (other, one))] == [told, told]
    assert differing(one, other, values=False) == told
    assert differing(one, one) is differing(other, other) is None


def test_data_formats_are_compared(tmp_path: Path) -> None:
    for version in FORMATS:
        open_writable(tmp_path / str(version), version).close()
    one, other = (tmp_path / str(version) for version in FORMATS)
    assert differing(one, other) == "data format or page size"


def duplicated(path: Path, version: int) -> Path:
    """Keys with few values, which lie on the keys' leaves, and with many, which do not."""
    with open_writable(path, version) as env:
        db = env.open_db(b"many", dupsort=True)
        for i in range(150):
            count = 60 if i % 7 == 3 else i % 4 + 1
            write(env, [(b"%08d" % i, b"%04d" % n * 25) for n in range(count)], db=db)
    return path


def walk_by(pages: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons walk files in folders of these names by so many pages at a time."""
    walk = comparison.walk

    def cut(engine: _core.Engine, meta: _core.Meta, db: _core.Database) -> Iterator[Part]:
        def short(*arguments: Any, **options: Any) -> _core.Walk:
            count = pages[Path(engine.path).parent.name]
            return _core.Walk(*arguments, **options, chunk_pages=count)

        parts = walk(engine, meta, db)
        while True:
            with monkeypatch.context() as patched:
                patched.setattr(items, "Walk", short)
                part = next(parts, None)
            if part is None:
                return
            yield part

    monkeypatch.setattr(comparison, "walk", cut)


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("kind", ["fragmented", "duplicated"])
def test_each_record_is_compared_however_they_are_read(
    kind: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks and pieces that are small, with walks that stop at other places on either side."""
    monkeypatch.setattr(comparison, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(comparison, "PIECE_BYTES", 700)
    source, other = tmp_path / "source", tmp_path / "other"
    name = None if kind == "fragmented" else b"many"
    if name is None:
        fragmented(source, version, count=300)
    else:
        duplicated(source, version)
    compact.compact(source, other, convert=False, values=False)
    with _core.Engine(other / "data.mdb") as engine:
        meta = _core.read_meta(engine)
        db = meta.main_db if name is None else _core.find_database(engine, meta, name)
        extents = np.concatenate([part.extents for part in items.walk(engine, meta, db)])
    walk_by({"source": 3, "other": 1}, monkeypatch)
    assert differing(source, other) is differing(other, source) is None
    chance = random.Random(11)
    with (other / "data.mdb").open("r+b", buffering=0) as file:
        for number in chance.sample(range(len(extents)), 8):
            offset, length = extents[number].tolist()
            at = offset + chance.randrange(length)
            before = os.pread(file.fileno(), 1, at)
            os.pwrite(file.fileno(), bytes([before[0] ^ 128]), at)
            told = differing(source, other)
            assert told is not None
            assert told.startswith(f"value {number:,} (from 0) of ")
            os.pwrite(file.fileno(), before, at)
    assert differing(source, other) is None


def parts_of(length: int, draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[tuple[int, int]]:
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=4)))
    return list(pairwise([0, *cuts, length]))


@given(st.lists(st.binary(max_size=3), max_size=12), st.data())
def test_keys_are_compared_whatever_comes_first(keys: list[bytes], data: st.DataObject) -> None:
    other = list(keys)
    if keys:
        at = data.draw(st.integers(0, len(keys) - 1))
        other[at] += data.draw(st.sampled_from([b"", b"x"]))
    expected = next((i for i in range(len(keys)) if keys[i] != other[i]), None)
    coming = [(0, keys, part) for part in parts_of(len(keys), data.draw)]
    coming += [(1, other, part) for part in parts_of(len(keys), data.draw)]
    together, numbers = comparison._Keys(), comparison._Together(np.int64)
    found, seen = None, [np.empty(0, np.int64)] * 2
    # In any order but that of a side's own parts.
    for side in data.draw(st.permutations([side for side, _, _ in coming])):
        _, every, (begin, end) = coming.pop([one[0] for one in coming].index(side))
        pages, places = bytearray(), []
        for key in reversed(every[begin:end]):  # as they lie on a page
            places.append((len(pages) + 1, len(key)))
            pages += b"-" + key
        table = np.array(places[::-1], _core.EXTENT)
        if found is None:
            found = together.add(side, np.frombuffer(bytes(pages), np.uint8), table)
        given_now = numbers.add(side, np.arange(begin, end))
        seen = [np.concatenate(pair) for pair in zip(seen, given_now, strict=True)]
    assert found == expected
    assert [one.tolist() for one in seen] == [list(range(len(keys)))] * 2
    assert numbers.done == len(keys)
    assert not numbers.left


def test_large_values_are_compared_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_writable(tmp_path / "source", 1) as env:
        write(env, [(b"large", LARGE)])
    taken: list[int] = []
    take = _core.MemoryPool.take

    def noting(self: _core.MemoryPool, size: int) -> _core.Memory:
        taken.append(size)
        return take(self, size)

    monkeypatch.setattr(comparison, "BLOCK_BYTES", 100_000)
    monkeypatch.setattr(comparison, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(_core.MemoryPool, "take", noting)
    assert differing(tmp_path / "source", tmp_path / "source") is None
    assert sum(taken) > 2 * len(LARGE)
    assert max(taken) < 120_000


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
    assert report["values_compared"]
    quick = call("compact", source, tmp_path / "quick", "--no-values", "--json")
    assert not json.loads(quick.stdout)["values_compared"]
    assert report["sidecar"] == str(tmp_path / "again" / "data.mdb.prov")


def test_a_copy_that_cannot_be_converted_stands(tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    with pytest.raises(Error, match="is whole, but has no provenance file"):
        compact.compact(source, tmp_path / "target", output=tmp_path / "no" / "where.prov")
    assert content(tmp_path / "target") == content(source)
