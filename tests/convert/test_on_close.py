"""A provenance file is left where a database is made, and nothing else changes.

Goal: ``lmdbio.open(path, provenance=True)`` is py-lmdb's environment in every call, and after
``close`` a provenance file describes the newest state. test_closing has whatever else closing
can meet.
Method: the same scripts of calls are run on both packages, outcomes and then the data files
compared byte by byte; what was left is proved by ``verify`` and read by ``Records`` on demand of a
provenance file.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import StaleError
from lmdbio.provenance import Provenance
from tests.dropin.test_differential import outcome, plain
from tests.support import databases
from tests.support.collecting import (
    assert_described,
    every_format,
    names_in,
    open_collecting,
    put,
    sidecar_of,
)

#: A warning is an error, except where a test expects it.
pytestmark = pytest.mark.filterwarnings("error")


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


def test_its_report_reads_as_a_sentence(tmp_path):
    with lmdbio.open(str(tmp_path / "set"), provenance=True) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    told = str(env.provenance_report)
    assert told.startswith(f"{tmp_path / 'set' / 'data.mdb.prov'}: 1 records of the main database")
