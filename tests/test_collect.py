"""A provenance file is left where a database is made, and nothing else changes.

Goal: ``lmdbio.open(path, provenance=True)`` is py-lmdb's environment in every call, and after
``close`` a provenance file describes the newest state, or there is none that passes its check, or
a warning says why.
Method: the same scripts of calls are run on both packages, outcomes and then the data files
compared byte by byte; what was left is proved by ``verify`` and read by ``Records`` on demand of a
provenance file; closing is disturbed in every way that was thought of: open transactions,
exceptions, forks, threads, other writers, folders that moved or can't be written to, and processes
killed at any moment.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import databases
import lmdb
import pytest
from test_differential import outcome, plain

import lmdbio
from lmdbio import collect
from lmdbio.convert import convert
from lmdbio.errors import Error, ProvenanceError, StaleError
from lmdbio.provenance import Provenance
from lmdbio.verify import verify

every_format = pytest.mark.parametrize("version", databases.FORMATS)

LIMIT_SECONDS = 60


@pytest.fixture(autouse=True)
def no_unexpected_warnings() -> Iterator[None]:
    """A warning is an error, except where a test expects it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def open_collecting(path: Path, version: int = 1, **kwargs: Any) -> Any:
    kwargs.setdefault("provenance", True)
    kwargs.setdefault("map_size", 1 << 26)
    kwargs.setdefault("max_dbs", 8)
    kwargs.setdefault("lib_version", {1: 0, 3: 1}[version])
    return lmdbio.open(str(path), **kwargs)


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def put(env: Any, start: int, stop: int, length: int = 3000, db: Any = None) -> None:
    """Commits records ``start`` to ``stop``."""
    with env.begin(write=True) as txn:
        for i in range(start, stop):
            txn.put(b"%08d" % i, databases.value(i, length), db=db)


def sidecar_of(path: Path) -> Path:
    return path / "data.mdb.prov"


def assert_described(path: Path, sidecar: Path | None = None, db: bytes | None = None) -> None:
    """The provenance file is sound, of this state, used, and leads to the right bytes."""
    found = sidecar or sidecar_of(path)
    assert verify(path, found).sidecar_records > 0
    with lmdbio.Records(path, db=db, locate="provenance", provenance=found) as records:
        assert list(records) == [value for _, value in databases.content(path, db)]


# --- as py-lmdb ----------------------------------------------------------------------------


def _records(env: Any) -> list[Any]:
    seen: list[Any] = []
    with env.begin(write=True) as txn:
        for i in range(300):
            seen.append(txn.put(b"%05d" % (i * 7 % 300), databases.value(i, i * 31 % 5000)))
        seen.append(txn.put(b"00003", b"other", overwrite=False))
        seen.append(txn.replace(b"00004", b"replaced"))
        seen.append(txn.pop(b"00005"))
        seen.append(txn.delete(b"missing"))
        seen.append(txn.stat())
    with env.begin(buffers=True) as txn:
        seen.append([plain(item) for item in txn.cursor()])
        seen.append(plain(txn.get(b"00004")))
    return seen


def _cursors(env: Any) -> list[Any]:
    seen: list[Any] = []
    with env.begin(write=True) as txn, txn.cursor() as cursor:
        seen.append(cursor.putmulti([(b"k%03d" % i, b"v" * i) for i in range(200)], append=True))
        seen.append(cursor.set_range(b"k0500"))
        seen.append(cursor.delete())
        seen.append(cursor.item())
        seen.append(list(cursor.iterprev()))
        seen.append(cursor.getmulti([b"k001", b"none", b"k002"]))
        seen.append(cursor.pop(b"k100"))
    return seen


def _databases(env: Any) -> list[Any]:
    seen: list[Any] = []
    one = env.open_db(b"one")
    dups = env.open_db(b"dups", dupsort=True)
    fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True, integerdup=True)
    with env.begin(db=one, write=True) as txn:
        for i in range(200):
            txn.put(b"%d" % i, b"x" * i)
            txn.put(b"%d" % (i % 7), b"%d" % i, db=dups)
            txn.put(b"%d" % (i % 7), i.to_bytes(4, "little"), db=fixed)
        seen += [txn.stat(), txn.stat(dups), list(txn.cursor(dups).iternext_dup())]
    seen += [one.flags(), dups.flags(), fixed.flags(), env.dbs()]
    with env.begin(write=True) as txn:
        txn.drop(one, delete=False)
        seen.append(txn.stat(one))
    seen.append(outcome(lambda: [env.open_db(b"%d" % i) for i in range(20)]))
    return seen


def _transactions(env: Any) -> list[Any]:
    seen: list[Any] = []
    parent = env.begin(write=True)
    parent.put(b"a", b"1")
    child = env.begin(write=True, parent=parent)
    child.put(b"b", b"2")
    seen.append(outcome(lambda: parent.put(b"c", b"3")))
    child.abort()
    seen += [parent.get(b"b"), outcome(child.commit), parent.commit(), outcome(parent.commit)]
    with contextlib.suppress(KeyError), env.begin(write=True) as txn:
        txn.put(b"lost", b"1")
        raise KeyError
    seen.append(env.begin().get(b"lost"))
    reader = env.begin()
    seen += [reader.id(), outcome(lambda: reader.put(b"d", b"4")), len(env.readers())]
    reader.abort()
    return seen


def _full(env: Any) -> list[Any]:
    seen: list[Any] = [env.set_mapsize(1 << 20), env.info()["map_size"]]
    seen.append(outcome(lambda: put(env, 0, 500)))
    seen.append(env.set_mapsize(1 << 26))
    seen.append(outcome(lambda: put(env, 0, 500)))
    return [*seen, env.stat()]


def _bad_arguments(env: Any) -> list[Any]:
    return [
        outcome(call)
        for call in (
            lambda: env.begin(5),
            lambda: env.begin(nothing=1),
            lambda: env.begin(write=True, parent=4),
            lambda: env.open_db("text"),
            lambda: env.open_db(b"new", create=False),
            lambda: env.open_db(None, dupsort=True),
            lambda: env.copy("/proc/nowhere"),
            lambda: env.copyfd(-1),
            lambda: env.sync(1, 2, 3),
            lambda: env.set_mapsize(-1),
            lambda: env.close(1),
            lambda: env.begin(write=True).put(b"", b""),
            lambda: env.begin(write=True).put(b"k" * 600, b""),
        )
    ]


def _facts(env: Any) -> list[Any]:
    put(env, 0, 10)
    return [
        env.stat(),
        {k: v for k, v in env.info().items() if k != "map_addr"},
        env.flags(),
        Path(env.path()).name,
        env.max_key_size(),
        env.max_readers(),
        outcome(env.readers),
        env.reader_check(),
        env.lib_version(),
        env.sync(True),
        env.dbs(),
    ]


def _copies(env: Any) -> list[Any]:
    put(env, 0, 50)
    folder = Path(env.path()).parent / "copy"
    folder.mkdir()
    seen: list[Any] = [env.copy(str(folder), compact=True), names_in(folder)]
    with (folder / "fd").open("wb") as file:
        seen.append(env.copyfd(file.fileno()))
    return [*seen, (folder / "fd").read_bytes() == (folder / "data.mdb").read_bytes()]


def _ended(env: Any) -> list[Any]:
    db, txn, reader = env.open_db(b"one"), env.begin(write=True), None
    cursor = txn.cursor()
    cursor.put(b"a", b"b")
    seen: list[Any] = [reader, outcome(env.close)]
    calls: list[Callable[[], Any]] = [
        env.close, env.stat, env.info, env.flags, env.path, env.begin, env.max_key_size,
        env.readers, env.sync, env.dbs, env.open_db, env.lib_version, db.flags, txn.commit,
        txn.abort, cursor.item, lambda: txn.get(b"a"), lambda: env.copyfd(1), env.reader_check,
    ]  # fmt: skip
    seen += [outcome(call) for call in calls]
    with env as again:
        seen.append(again is env)
    return seen


SCRIPTS = (
    _records,
    _cursors,
    _databases,
    _transactions,
    _full,
    _bad_arguments,
    _facts,
    _copies,
    _ended,
)


@every_format
@pytest.mark.parametrize("order", ["key", "insertion"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__[1:])
def test_the_same_calls_end_alike_and_leave_the_same_file(tmp_path, version, script, order):
    kwargs = {"map_size": 1 << 26, "max_dbs": 8, "lib_version": {1: 0, 3: 1}[version]}
    paths = tmp_path / "theirs" / "env", tmp_path / "ours" / "env"
    seen = []
    ours = partial(open_collecting, order=order)
    for path, open_ in zip(paths, (lmdb.open, ours), strict=True):
        path.parent.mkdir()
        with open_(str(path), **kwargs) as env:
            seen.append(script(env))
    assert seen[1] == seen[0]
    assert paths[1].joinpath("data.mdb").read_bytes() == paths[0].joinpath("data.mdb").read_bytes()
    assert verify(paths[1]).sidecar == sidecar_of(paths[1])


def test_every_method_but_closing_is_py_lmdbs_own(tmp_path):
    with open_collecting(tmp_path / "env") as env:
        names = [name for name in dir(lmdb.Environment) if not name.startswith("_")]
        assert {"begin", "close", "stat"} < set(names) <= set(dir(env))
        owners = {getattr(env, name).__self__ for name in names if name != "close"}
        assert [type(owner) for owner in owners] == [lmdb.Environment]
        assert type(env.begin()) is lmdb.Transaction
        for never in (lambda: env.anything, lambda: setattr(env, "anything", 1)):
            with pytest.raises(AttributeError, match="anything"):
                never()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"sync": False},
        {"metasync": False},
        {"writemap": True},
        {"writemap": True, "map_async": True},
        {"lock": False},
        {"subdir": False},
        {"meminit": False, "readahead": False, "max_spare_txns": 3},
    ],
    ids=str,
)
@every_format
def test_every_way_of_opening_leaves_a_good_file(tmp_path, version, kwargs):
    path = tmp_path / "env"
    for turn in range(3):
        with open_collecting(path, version, **kwargs) as env:
            put(env, turn * 100, turn * 100 + 100, 2000 + turn)
    sidecar = path.with_name("env.prov") if kwargs.get("subdir") is False else sidecar_of(path)
    assert verify(path, sidecar).sidecar_records == 300
    with lmdbio.Records(path, locate="provenance") as records:
        lengths = [2000 + i // 100 for i in range(300)]
        assert list(records) == [databases.value(i, n) for i, n in enumerate(lengths)]


def test_positional_arguments_mean_the_same(tmp_path):
    path = str(tmp_path / "env")
    lmdbio.open(path, 1 << 22, False, False, provenance=True).close()
    assert names_in(tmp_path) == ["env", "env-lock", "env.prov"]


# --- what is left --------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize("case", databases.CASES, ids=lambda case: case.name)
def test_every_database_is_described(tmp_path, version, case):
    path = tmp_path / "env"
    with open_collecting(path, version, map_size=1 << 28, sync=False) as env:
        case.fill(env, version)
    verify(path, sidecar_of(path))
    # The main database is a section of its own unless it holds nothing but named ones.
    main = [None] if case.name == "named" or not case.databases else []
    with Provenance.open(sidecar_of(path)) as found:
        assert list(found.databases) == [*main, *case.databases]
    for name in case.databases or main:
        with lmdbio.Records(path, db=name, locate="provenance") as records:
            assert list(records) == [value for _, value in databases.content(path, name)]


@every_format
def test_opened_again_and_appended_to_the_file_is_replaced(tmp_path, version):
    path = tmp_path / "env"
    for turn in range(3):
        with open_collecting(path, version) as env:
            put(env, turn * 200, turn * 200 + 200)
            if turn:  # what is there meanwhile describes an older state
                with pytest.raises(StaleError):
                    lmdbio.Records(path, locate="provenance")
        assert env.provenance_report.records == (turn + 1) * 200
        assert env.provenance_report.sidecar == sidecar_of(path)
        assert_described(path)
    assert names_in(path) == ["data.mdb", "data.mdb.prov", "lock.mdb"]


def test_what_was_updated_and_deleted_is_described(tmp_path):
    path = tmp_path / "env"
    draw = random.Random(8)
    with open_collecting(path, sync=False) as env:
        put(env, 0, 400)
        for turn in range(6):
            with env.begin(write=True) as txn:
                for i in draw.sample(range(400), 60):
                    txn.put(b"%08d" % i, databases.value((turn, i), draw.randrange(6000)))
                for i in draw.sample(range(400), 20):
                    txn.delete(b"%08d" % i)
    assert_described(path)


@pytest.mark.parametrize("kwargs", [{}, {"writemap": True}, {"sync": False}], ids=str)
def test_nothing_is_written_when_nothing_was_committed(tmp_path, kwargs):
    path = tmp_path / "env"
    with open_collecting(path, **kwargs) as env:
        put(env, 0, 100)
    before = sidecar_of(path).stat()
    with open_collecting(path, **kwargs) as env:
        with env.begin() as txn:
            assert txn.get(b"%08d" % 7) == databases.value(7, 3000)
        env.begin(write=True).abort()
        with env.begin(write=True) as txn:
            txn.get(b"nothing")  # a commit without a change is none
    after = sidecar_of(path).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert env.provenance_report is None and env.provenance_note == ""
    assert_described(path)


def test_databases_that_were_chosen_stay_so_while_nothing_is_committed(tmp_path):
    path = tmp_path / "env"
    with lmdb.open(str(path), max_dbs=2) as env:
        for name in (b"one", b"two"):
            put(env, 0, 50, db=env.open_db(name))
    convert(path, databases=["two"])
    open_collecting(path).close()
    with Provenance.open(sidecar_of(path)) as found:
        assert list(found.databases) == [b"two"]
    with open_collecting(path) as env:
        put(env, 50, 60, db=env.open_db(b"one"))
    with Provenance.open(sidecar_of(path)) as found:
        assert list(found.databases) == [b"one", b"two"]


@pytest.mark.parametrize("spoil", ["missing", "damaged", "foreign"])
def test_a_file_that_does_not_hold_is_made_anew_without_a_commit(tmp_path, spoil):
    path, other = tmp_path / "env", tmp_path / "other"
    for folder, count in ((path, 100), (other, 70)):
        with lmdb.open(str(folder), map_size=1 << 26) as env:
            put(env, 0, count)
        convert(folder)
    sidecar = sidecar_of(path)
    if spoil == "missing":
        sidecar.unlink()
    elif spoil == "damaged":
        sidecar.write_bytes(sidecar.read_bytes()[:-7])
    else:
        sidecar.write_bytes(sidecar_of(other).read_bytes())
    open_collecting(path).close()
    assert_described(path)


def test_an_empty_database_is_described(tmp_path):
    env = open_collecting(tmp_path / "env")
    env.close()
    assert env.provenance_report.records == 0
    assert len(lmdbio.Records(tmp_path / "env", locate="provenance")) == 0


# --- where it goes -------------------------------------------------------------------------


def test_the_file_goes_where_provenance_says(tmp_path):
    path, folder = tmp_path / "env", tmp_path / "sidecars"
    folder.mkdir()
    with open_collecting(path, provenance=tmp_path / "named.prov") as env:
        put(env, 0, 50)
    assert_described(path, tmp_path / "named.prov")
    with open_collecting(path, provenance=str(folder)) as env:
        put(env, 50, 60)
    assert_described(path, env.provenance_report.sidecar)
    assert env.provenance_report.sidecar.parent == folder
    assert not sidecar_of(path).exists()


def test_the_file_goes_to_the_folder_of_the_environment_variable(tmp_path, monkeypatch):
    path, folder = tmp_path / "env", tmp_path / "made" / "later"
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(folder))
    with open_collecting(path) as env:
        put(env, 0, 50)
    assert [folder / name for name in names_in(folder)] == [env.provenance_report.sidecar]
    assert_described(path, env.provenance_report.sidecar)


def test_relative_paths_mean_what_they_meant_when_it_was_opened(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with open_collecting(Path("env"), provenance="env.prov") as env:
        put(env, 0, 50)
        monkeypatch.chdir(tmp_path / "there")
    assert_described(tmp_path / "here" / "env", tmp_path / "here" / "env.prov")
    assert names_in(tmp_path / "there") == []


def test_a_path_of_bytes_is_taken(tmp_path):
    with lmdbio.open(os.fsencode(tmp_path / "env"), provenance=True) as env:
        put(env, 0, 20)
    assert_described(tmp_path / "env")


def test_a_place_that_cannot_be_is_refused_when_it_is_opened(tmp_path):
    for bad in (5, 0, b"bytes", 1.5, ["list"]):
        with pytest.raises(TypeError, match="provenance must be"):
            open_collecting(tmp_path / "env", provenance=bad)
    assert names_in(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="no such folder for the provenance file"):
        open_collecting(tmp_path / "env", provenance=tmp_path / "gone" / "x.prov")
    with open_collecting(tmp_path / "env") as env:  # which that refusal left closed
        put(env, 0, 20)


def test_reading_has_nothing_to_collect(tmp_path):
    path = str(tmp_path / "env")
    lmdb.open(path).close()
    for wanted in (True, tmp_path / "x.prov"):
        with pytest.raises(ValueError, match=r"readonly=True writes nothing.*lmdbio convert"):
            lmdbio.open(path, readonly=True, provenance=wanted)
    for none in (None, False):
        assert type(lmdbio.open(path, readonly=True, provenance=none)) is lmdbio.Environment
        env = lmdbio.open(path, provenance=none)
        assert type(env) is lmdb.Environment
        env.close()
    assert names_in(tmp_path / "env") == ["data.mdb", "lock.mdb"]


# --- closing in bad circumstances ----------------------------------------------------------


def assert_kept(path: Path, count: int) -> None:
    """All records are there, for py-lmdb and for us, whatever became of the provenance file."""
    assert [key for key, _ in databases.content(path)] == [b"%08d" % i for i in range(count)]
    with lmdbio.Records(path, locate="scan") as records:
        assert list(records) == [databases.value(i, 3000) for i in range(count)]


def test_a_folder_that_cannot_be_written_to_is_a_warning(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path, provenance="/proc/self/x.prov")  # not even for root
    put(env, 0, 50)
    with pytest.warns(UserWarning, match=r"env/data\.mdb.*/proc/self.*lmdbio convert") as caught:
        env.close()
    assert caught[0].filename == __file__
    assert env.provenance_report is None
    assert env.provenance_note == str(caught[0].message)
    assert_kept(path, 50)


def test_a_file_that_is_no_provenance_file_stays_as_it_is(tmp_path):
    path, precious = tmp_path / "env", tmp_path / "precious"
    precious.write_bytes(b"a thesis")
    env = open_collecting(path, provenance=precious)
    put(env, 0, 50)
    with pytest.warns(UserWarning, match="is no provenance file"):
        env.close()
    assert precious.read_bytes() == b"a thesis"
    assert_kept(path, 50)


def test_the_database_is_not_taken_for_its_provenance_file(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path)
    env.close()
    sidecar_of(path).unlink()
    env = open_collecting(path, provenance=path / "data.mdb")
    put(env, 0, 50)
    with pytest.warns(UserWarning, match="this is the database itself"):
        env.close()
    assert_kept(path, 50)


def test_warnings_made_errors_come_after_closing(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path, provenance="/proc/self/x.prov")
    put(env, 0, 50)
    with pytest.raises(UserWarning, match="no provenance file describes"):
        env.close()
    env.close()
    assert_kept(path, 50)  # which opens it: py-lmdb would not, twice in one process


def test_the_data_are_on_the_disk_before_a_file_describes_them(tmp_path, monkeypatch):
    synced: list[str] = []
    fsync = os.fsync

    def watched(fd: int) -> None:
        fsync(fd)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    env = open_collecting(tmp_path / "env", sync=False)
    put(env, 0, 50)
    monkeypatch.setattr(os, "fsync", watched)
    env.close()
    assert synced[0] == "data.mdb" and synced[1].startswith(".lmdbio-")


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_disk_that_fails_is_a_warning(tmp_path, monkeypatch, call):
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "env"
    env = open_collecting(path)
    put(env, 0, 50)
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), fail)
        with pytest.warns(UserWarning, match="Input/output error"):
            env.close()
    assert names_in(path) == ["data.mdb", "lock.mdb"]
    assert_kept(path, 50)


def test_an_exception_within_the_block_passes_and_what_was_committed_is_described(tmp_path):
    for error in (KeyError("mine"), SystemExit(3), KeyboardInterrupt()):
        path = tmp_path / type(error).__name__
        with pytest.raises(type(error)) as caught:
            with open_collecting(path) as env:
                put(env, 0, 50)
                txn = env.begin(write=True)
                txn.put(b"zzz", b"not committed")
                raise error
        assert caught.value is error and error.__context__ is None
        assert_described(path)
        assert_kept(path, 50)


def test_an_exception_within_the_block_is_not_replaced_by_a_warning(tmp_path):
    with pytest.raises(KeyError, match="mine"), pytest.warns(UserWarning, match="/proc/self"):
        with open_collecting(tmp_path / "env", provenance="/proc/self/x.prov") as env:
            put(env, 0, 50)
            raise KeyError("mine")


def test_an_interrupt_while_collecting_leaves_a_closed_environment(tmp_path, monkeypatch):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "env"
    env = open_collecting(path)
    put(env, 0, 50)
    monkeypatch.setattr(collect, "convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.close()
    env.close()
    assert names_in(path) == ["data.mdb", "lock.mdb"]
    assert_kept(path, 50)


@every_format
def test_what_is_open_at_close_is_ended_and_not_described(tmp_path, version):
    path = tmp_path / "env"
    env = open_collecting(path, version)
    put(env, 0, 50)
    txn, reader = env.begin(write=True), env.begin()
    txn.put(b"zzz", b"not committed")
    cursor = txn.cursor()
    next(iter(cursor))
    env.close()
    for call in (txn.commit, cursor.item, reader.id, lambda: txn.get(b"zzz")):
        with pytest.raises(lmdb.Error):
            call()
    assert_described(path)
    assert_kept(path, 50)


def test_closing_twice_collects_once(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path)
    put(env, 0, 50)
    env.close()
    report = env.provenance_report
    sidecar_of(path).unlink()
    env.close()
    assert env.provenance_report is report and not sidecar_of(path).exists()


def test_threads_that_write_and_close_together_leave_one_good_file(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path, sync=False)
    failed: list[BaseException] = []
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            for turn in range(10):
                start = number * 100 + turn * 10
                put(env, start, start + 10)
            barrier.wait(LIMIT_SECONDS)
            env.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert failed == []
    assert_described(path)
    assert_kept(path, 400)


def test_a_database_that_was_moved_or_replaced_is_not_described(tmp_path):
    path, moved = tmp_path / "env", tmp_path / "moved"
    env = open_collecting(path)
    put(env, 0, 50)
    path.rename(moved)
    with pytest.warns(UserWarning, match="env/data.mdb.*No such file"):
        env.close()
    assert_kept(moved, 50)
    env = open_collecting(path)
    path.rename(tmp_path / "old")
    with lmdb.open(str(path)) as other:
        put(other, 0, 20)
    with pytest.warns(UserWarning, match="moved or replaced"):
        env.close()
    assert not sidecar_of(path).exists()


def test_a_damaged_database_is_closed_with_a_warning(tmp_path):
    path = tmp_path / "env"
    with lmdb.open(str(path), map_size=1 << 26) as env:
        put(env, 0, 300)
    env = open_collecting(path)
    file = path / "data.mdb"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.warns(UserWarning, match=r"data\.mdb.*lmdbio convert"):
        env.close()
    assert not sidecar_of(path).exists()


# --- other writers -------------------------------------------------------------------------


def test_a_commit_between_walk_and_name_starts_again(tmp_path, monkeypatch):
    path = tmp_path / "env"
    commits = iter(range(50, 52))

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        report = convert(*args, **kwargs)
        with contextlib.suppress(StopIteration), lmdb.open(str(path), map_size=1 << 26) as other:
            put(other, number := next(commits), number + 1)
        return report

    monkeypatch.setattr(collect, "convert", overtaken)
    with open_collecting(path) as env:
        put(env, 0, 50)
    assert env.provenance_report.records == 52
    assert_described(path)


def test_a_writer_that_never_rests_gets_a_warning_and_keeps_its_records(tmp_path, monkeypatch):
    path = tmp_path / "env"
    commits = iter(range(50, 1000))

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        report = convert(*args, **kwargs)
        with lmdb.open(str(path), map_size=1 << 26) as other:
            put(other, number := next(commits), number + 1)
        return report

    monkeypatch.setattr(collect, "convert", overtaken)
    env = open_collecting(path)
    put(env, 0, 50)
    with pytest.warns(UserWarning, match="convert it when its writer rests"):
        env.close()
    assert env.provenance_report is None
    with pytest.raises(StaleError):
        lmdbio.Records(path, locate="provenance")
    assert_kept(path, next(commits))


def in_child(work: Callable[[], None]) -> int:
    """Forks a child that does ``work`` and ends without cleaning up; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait(child: int) -> int:
    """The child's exit status, within the limit."""
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"child {child} did not end in {LIMIT_SECONDS} s")


def test_two_processes_that_write_and_close_leave_a_good_file(tmp_path):
    path = tmp_path / "env"
    open_collecting(path).close()

    def work(number: int) -> None:
        warnings.simplefilter("ignore")
        for turn in range(12):
            with open_collecting(path, sync=False) as env:
                start = number * 1000 + turn * 10
                put(env, start, start + 10)

    children = [in_child(partial(work, number)) for number in range(3)]
    assert [wait(child) for child in children] == [0, 0, 0]
    assert len(databases.content(path)) == 360
    with contextlib.suppress(StaleError), lmdbio.Records(path, locate="provenance") as records:
        assert list(records) == [value for _, value in databases.content(path)]
    open_collecting(path).close()  # makes up for what the last ones may have missed
    assert_described(path)


# --- ends without close --------------------------------------------------------------------


def test_a_forked_child_collects_nothing_and_the_parent_goes_on(tmp_path):
    path = tmp_path / "env"
    held = [open_collecting(path)]
    put(held[0], 0, 50)

    def close() -> None:
        held[0].close()
        held[0].close()
        assert held[0].provenance_report is None

    def let_go() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            held.clear()
            gc.collect()
        told = [str(one.message) for one in caught]  # of whatever else was garbage, too
        assert not [text for text in told if str(path) in text]  # it is the parent's to close

    for work in (close, let_go):
        assert wait(in_child(work)) == 0
    assert names_in(path) == ["data.mdb", "lock.mdb"]
    put(held[0], 50, 80)
    held[0].close()
    assert_described(path)
    assert_kept(path, 80)


def test_a_child_collects_for_what_it_opened_itself(tmp_path):
    path = tmp_path / "env"

    def work() -> None:
        with open_collecting(path) as env:
            put(env, 0, 50)

    assert wait(in_child(work)) == 0
    assert_described(path)


def test_without_close_there_is_no_file_and_a_resource_warning(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path)
    put(env, 0, 50)
    with pytest.warns(ResourceWarning, match=r"data\.mdb: was never closed"):
        del env
        gc.collect()
    assert not sidecar_of(path).exists()
    assert_kept(path, 50)


def test_transactions_outlive_an_environment_that_was_let_go(tmp_path):
    path = tmp_path / "env"
    with pytest.warns(ResourceWarning):
        txn = open_collecting(path).begin(write=True)
        gc.collect()
    txn.put(b"%08d" % 0, databases.value(0, 3000))
    txn.commit()
    del txn
    assert_kept(path, 1)


def test_an_interpreter_that_ends_first_ends_quietly(tmp_path):
    code = (
        "import sys, lmdbio\n"
        "env = lmdbio.open(sys.argv[1], provenance=True)\n"
        "with env.begin(write=True) as txn: txn.put(b'key', b'value')\n"
        "held = [env]; held.append(held)\n"
    )
    for flags in ((), ("-W", "error"), ("-X", "dev")):
        done = subprocess.run(
            [sys.executable, *flags, "-c", code, str(tmp_path / "env")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if not flags:
            assert done.stderr == ""
        if "dev" in flags:
            assert "ResourceWarning" in done.stderr and "Traceback" not in done.stderr
    assert not sidecar_of(tmp_path / "env").exists()


def test_it_can_be_neither_pickled_nor_copied(tmp_path):
    with open_collecting(tmp_path / "env") as env:
        for call in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot pickle"):
                call(env)


KILLS = 30


@every_format
def test_killed_at_any_moment_it_leaves_no_file_or_one_that_is_refused(tmp_path, version, request):
    """The child commits, closes and opens again without end; each time it is killed somewhere."""
    path = tmp_path / "env"
    draw = random.Random(request.node.name)

    def work(turn: int) -> None:
        while True:
            with open_collecting(path, version, sync=False, map_size=1 << 28) as env:
                for _ in range(draw.randrange(1, 8)):
                    put(env, turn, turn + 5, 2500)
                    turn += 5

    seen = {"none": 0, "stale": 0, "good": 0}
    wanted: list[bytes] = []
    for _ in range(KILLS):
        child = in_child(partial(work, len(wanted)))
        time.sleep(draw.uniform(0.0, 0.04))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        if not (path / "data.mdb").exists() or (path / "data.mdb").stat().st_size < 8192:
            continue
        wanted = [value for _, value in databases.content(path)]
        try:
            with lmdbio.Records(path, locate="provenance") as records:
                assert list(records) == wanted
            seen["good"] += 1
        except StaleError:
            seen["stale"] += 1
        except ProvenanceError as error:
            assert "has no provenance file" in str(error)
            seen["none"] += 1
    print(seen)
    assert seen["stale"] >= 3, seen
    with open_collecting(path, version, map_size=1 << 28) as env:
        put(env, 10**6, 10**6 + 1)
    assert_described(path)
    # What the killed ones were writing is swept up.
    assert names_in(path) == ["data.mdb", "data.mdb.prov", "lock.mdb"]


def test_collecting_itself_raises_what_closing_warns_of(tmp_path):
    with pytest.raises(Error):
        (tmp_path / "data.mdb").write_bytes(b"no database" * 1000)
        collect.collect(tmp_path / "data.mdb")
    with pytest.raises(FileNotFoundError):
        collect.collect(tmp_path / "nothing")
