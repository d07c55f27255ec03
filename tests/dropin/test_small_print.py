"""The small print of py-lmdb's calls: what is left out, None, of the wrong kind or too large.

Goal: each call ends as py-lmdb's does: with the same value, or an exception of the same class.
Method: one table of calls, each made on both packages over copies of one environment.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio.dropin.arguments import LmdbKeywords

Call = Callable[[Any, Any, Path], Any]
OPTIONS: dict[str, Any] = {"readonly": True, "lock": False, "max_dbs": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small print")
    with lmdb.open(str(folder / "env"), map_size=1 << 24, max_dbs=4) as env:
        dup = env.open_db(b"dup", dupsort=True)
        with env.begin(write=True) as txn:
            for i in range(20):
                txn.put(b"k%02d" % i, b"v%02d" % i)
                txn.put(b"k%02d" % (i // 4), b"w%02d" % i, db=dup)
    shutil.copytree(folder / "env", folder / "other")
    (folder / "short.mdb").write_bytes(b"x" * 100)
    (folder / "text.mdb").write_bytes(b"x" * 9000)
    return folder


def plain(found: Any) -> Any:
    """Return what can be compared between the packages."""
    if isinstance(found, (lmdb.Environment, lmdbio.Environment)):
        found.close()
        return "an environment"
    if isinstance(found, Iterator):
        return list(found)
    if isinstance(found, (lmdb.Transaction, lmdbio.Transaction)):
        return "a transaction"
    if isinstance(found, (lmdb.Cursor, lmdbio.Cursor)):
        return "a cursor"
    return found


def ending(call: Call, package: Any, folder: Path) -> Any:
    """Return what a call returned, or the class of what it raised."""
    with package.open(str(folder / "env"), **OPTIONS) as env:
        try:
            return plain(call(package, env, folder))
        except Exception as error:
            return type(error)


def opened(**options: Any) -> Call:
    """Open the environment anew, and return what it says of its options."""

    def call(package: Any, env: Any, folder: Path) -> Any:
        env.close()
        with package.open(str(folder / "env"), **{**OPTIONS, **options}) as again:
            return again.flags(), again.info()["map_size"], again.max_readers()

    return call


def file(name: str) -> Call:
    def call(package: Any, env: Any, folder: Path) -> Any:
        return package.open(str(folder / name), subdir=False, readonly=True, lock=False)

    return call


def other(package: Any, folder: Path) -> Any:
    return package.open(str(folder / "other"), **OPTIONS)


def with_other(use: Callable[[Any, Any, Any], Any], *, closed: bool = False) -> Call:
    """Use a handle, and a transaction, of another environment, which may be closed."""

    def call(package: Any, env: Any, folder: Path) -> Any:
        foreign = other(package, folder)
        handle, txn = foreign.open_db(None), foreign.begin()
        if closed:
            foreign.close()
        try:
            return plain(use(env, handle, txn))
        finally:
            foreign.close()

    return call


def txn(use: Callable[[Any], Any]) -> Call:
    return lambda _, env, __: plain(use(env.begin()))


def cursor(use: Callable[[Any], Any], *, dup: bool = False) -> Call:
    def call(package: Any, env: Any, folder: Path) -> Any:
        txn = env.begin()
        return plain(use(txn.cursor(env.open_db(b"dup", txn=txn) if dup else None)))

    return call


def copied(compact: Any, which: str) -> Call:
    def call(package: Any, env: Any, folder: Path) -> Any:
        target = folder / "copy"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        with contextlib.closing(other(package, folder)) as foreign:
            given = {"own": env.begin(), "ended": env.begin(), "foreign": foreign.begin()}
            given["ended"].abort()
            txn = given.get(which, 5)
            with (folder / "descriptor").open("wb") as out:
                env.copyfd(out.fileno(), compact=compact, txn=txn)
            env.copy(str(target), compact=compact, txn=txn)
        with lmdb.open(str(target), readonly=True, lock=False) as copy:
            return copy.stat()["entries"], (folder / "descriptor").stat().st_size > 0

    return call


KEYS: dict[str, Any] = {
    "bytearray": bytearray(b"k01"),
    "view": memoryview(b"k01"),
    "view apart": memoryview(b"k0x1")[::2],
    "array": np.frombuffer(b"k01", np.uint8),
    "array apart": np.frombuffer(b"k0x1", np.uint8)[::2],
    "array by columns": np.asfortranarray(np.zeros((2, 3), np.uint8)),
}
NUMBERS = ("mode", "max_readers", "max_dbs", "max_spare_txns")

CALLS: dict[str, Call] = {
    **{f"open({name}=None)": opened(**{name: None}) for name in LmdbKeywords.__match_args__},
    "open(readonly=None)": lambda p, env, folder: (
        env.close(), p.open(str(folder / "env"), readonly=None, create=False, max_dbs=4)
    )[1],
    **{f"open(map_size={n})": opened(map_size=n) for n in (-1, 1 << 64, 1 << 70, "x", 1.5)},
    **{
        f"open({name}={n})": opened(**{name: n})
        for name in NUMBERS
        for n in (-1, 1 << 31, 1 << 32, 1 << 70, "1")
    },
    "open(max_readers=0)": opened(max_readers=0),
    "open(lock='x')": opened(lock="x"),
    "a file of 100 bytes": file("short.mdb"),
    "a file of text": file("text.mdb"),
    **{f"begin(parent={p!r})": lambda _, env, __, p=p: env.begin(parent=p) for p in (1, "x", [])},
    "begin(parent=txn)": lambda _, env, __: env.begin(parent=env.begin()),
    "begin(write, parent=5)": lambda _, env, __: env.begin(write=True, parent=5),
    "begin(write, parent=txn)": lambda _, env, __: env.begin(write=True, parent=env.begin()),
    "begin(db=5)": lambda _, env, __: env.begin(db=5),
    "begin(db=5) of a closed one": lambda _, env, __: (env.close(), env.begin(db=5)),
    "begin(parent=5) of a closed one": lambda _, env, __: (env.close(), env.begin(parent=5)),
    **{
        f"begin(db of another{', closed' * closed})": with_other(
            lambda env, db, _: env.begin(db=db), closed=closed
        )
        for closed in (False, True)
    },
    "begin(write, db of another)": with_other(lambda env, db, _: env.begin(write=True, db=db)),
    "begin(parent, db of another)": with_other(
        lambda env, db, _: env.begin(parent=env.begin(), db=db)
    ),
    "begin(parent of another)": with_other(lambda env, _, txn: env.begin(parent=txn)),
    "get(db of another)": with_other(lambda env, db, _: env.begin().get(b"k01", db=db)),
    "cursor(db of another)": with_other(lambda env, db, _: env.begin().cursor(db)),
    "stat(db of another)": with_other(lambda env, db, _: env.begin().stat(db)),
    "dbs(txn of another)": with_other(lambda env, _, txn: env.dbs(txn)),
    "dbs(txn=5)": lambda _, env, __: env.dbs(txn=5),
    **{
        f"{name}(db of another)": with_other(
            lambda env, db, _, name=name: getattr(env.begin(), name)(db=db)
        )
        for name in ("put", "delete", "replace", "pop", "drop")
    },
    **{f"{n}(db=5)": txn(lambda t, n=n: getattr(t, n)(db=5)) for n in ("put", "delete", "drop")},
    **{
        f"txn.{name}{given!r}": txn(lambda t, name=name, given=given: getattr(t, name)(*given))
        for name in ("put", "replace", "delete", "pop")
        for given in ((), (None,), (b"k01",), (b"",), ("x",), (5,))
    },
    **{
        f"{'dup' if dup else 'plain'} {name}{given!r}": cursor(
            lambda c, name=name, given=given: getattr(c, name)(*given), dup=dup
        )
        for dup in (False, True)
        for name in ("put", "replace", "pop", "set_key_dup", "set_range_dup")
        for given in ((), (None,), (b"k01",), (b"",), ("x",), (5,))
    },
    **{
        f"dup {name}{given!r}": cursor(
            lambda c, name=name, given=given: getattr(c, name)(*given), dup=True
        )
        for name in ("put", "replace", "set_key_dup", "set_range_dup")
        for given in ((b"k01", None), (None, b"w01"), (b"k01", b"w05"), (b"k01", 5), (b"", b"w"))
    },
    **{
        f"{name}({given})": cursor(
            lambda c, name=name, given=given: (c.first(), list(getattr(c, name)(**given)))[1],
            dup=True,
        )
        for name in ("iternext", "iterprev", "iternext_dup", "iternext_nodup", "iterprev_nodup")
        for given in (
            {"keys": None}, {"values": None}, {"keys": None, "values": None}, {"keys": 0},
            {"values": ""}, {"keys": False, "values": False},
        )
    },
    **{
        f"get(a key, {kind})": txn(lambda t, key=key: t.get(key))
        for kind, key in KEYS.items()
    },
    **{
        f"{name}(apart)": cursor(lambda c, name=name: getattr(c, name)(memoryview(b"k0x1")[::2]))
        for name in ("set_key", "set_range", "get")
    },
    # Behind the last key LMDB itself looks at what is no node, unless it was set_range that moved.
    **{
        f"{'dup' if dup else 'plain'} count() after {moves}": cursor(
            lambda c, moves=moves: ([getattr(c, to)(*of) for to, *of in moves], c.count()), dup=dup
        )
        for dup in (False, True)
        for moves in (
            [], [("first",)], [("last",)], [("last",), ("next",)], [("last",), ("next_nodup",)],
            [("first",), ("prev",)], [("set_key", b"k01")], [("set_key", b"k01"), ("next_dup",)],
            [("last",), ("next_dup",)], [("set_range", b"k")], [("set_range", b"z")],
            [("set_range", b"z"), ("prev",)], [("last",), ("set_range", b"z")], [("set_key", b"")],
            [("set_key_dup", b"k01", b"w05")], [("set_key_dup", b"k01", b"x")],
            [("set_range_dup", b"k01", b"w06")], [("set_range_dup", b"k01", b"x")],
        )
    },
    "getmulti(apart)": cursor(lambda c: c.getmulti([memoryview(b"k0x1")[::2]])),
    **{
        f"copy(compact={compact}, txn={which})": copied(compact, which)
        for compact in (True, False, None)
        for which in ("own", "ended", "foreign", "5")
    },
    **{
        f"set_mapsize({n})": lambda _, env, __, n=n: env.set_mapsize(n)
        for n in (None, 1 << 24, 1 << 70, -1, "x")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_ends_as_py_lmdb_s(name: str, folder: Path) -> None:
    call = CALLS[name]
    assert ending(call, lmdbio, folder) == ending(call, lmdb, folder)


@pytest.mark.parametrize("missing", ["set_key", "get", "pop"])
def test_values_of_no_key_are_not_counted(missing: str, folder: Path) -> None:
    with lmdbio.open(str(folder / "env"), **OPTIONS) as env, env.begin() as txn:
        cursor = txn.cursor(env.open_db(b"dup", txn))
        assert not getattr(cursor, missing)(b"z")
        with pytest.raises(lmdb.NotFoundError, match="mdb_cursor_count: MDB_NOTFOUND"):
            cursor.count()


def test_too_few_databases_are_told_with_advice(folder: Path) -> None:
    told = []
    for package in (lmdb, lmdbio):
        with package.open(str(folder / "env"), readonly=True, lock=False) as env:
            with pytest.raises(lmdb.DbsFullError) as caught:
                env.open_db(b"dup")
        told.append((str(caught.value), caught.value.reason, caught.value.code))
    assert told[0] == told[1]
    assert "max_dbs" in told[1][0]


def test_the_defaults_of_open_stand_in_one_place() -> None:
    import inspect

    shown = inspect.signature(lmdbio.Environment.__new__).parameters
    defaults = LmdbKeywords().named()
    assert {name: shown[name].default for name in defaults} == defaults


def test_an_older_snapshot_is_copied_where_a_slot_holds_it(tmp_path: Path) -> None:
    from tests.dropin.test_open_snapshot import COUNT, commit, write

    write(tmp_path / "env", b"old")
    with lmdbio.open(str(tmp_path / "env"), readonly=True) as env:
        held = env.begin()
        commit(tmp_path / "env", b"new")
        (tmp_path / "copy").mkdir()
        env.copy(str(tmp_path / "copy"), compact=True, txn=held)
    with lmdbio.open(str(tmp_path / "copy"), readonly=True, lock=False) as copy:
        with copy.begin() as txn:
            assert txn.get(b"0001") == b"old"
            assert txn.stat()["entries"] == COUNT
    with lmdbio.open(str(tmp_path / "env"), readonly=True, lock=False) as env:
        older = env.begin()
        commit(tmp_path / "env", b"later")
        shutil.rmtree(tmp_path / "copy")
        (tmp_path / "copy").mkdir()
        with pytest.raises(lmdb.Error, match="older state"):
            env.copy(str(tmp_path / "copy"), compact=True, txn=older)
