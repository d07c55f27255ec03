"""The order in which records were put is written down where a database is made.

Goal: with ``lmdbio.open(path, provenance=True, order="insertion")`` records are numbered, where
that is asked for, as they were put since they were last deleted: by whichever call, transaction,
handle or session; and where that is not known, nothing is claimed.
Method: a model (Python's dicts keep this very order) is driven with the same random calls; what
another process puts, and databases of unknown order, are opened in between. That all calls end as
py-lmdb's do is shown in test_collect.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.convert.convert import convert
from lmdbio.convert.put_order import KeyLog
from lmdbio.convert.verify import verify
from lmdbio.errors import IncompatibleError
from tests.support import databases

NAMES = (None, b"one", b"two")
Model = dict[bytes | None, dict[bytes, bytes]]


@pytest.fixture(autouse=True)
def no_unexpected_warnings() -> Iterator[None]:
    """A warning is an error, except where a test expects it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def recording(path: Path, version: int = 1, **kwargs: Any) -> Any:
    return lmdbio.open(
        str(path),
        map_size=1 << 26,
        max_dbs=4,
        lib_version={1: 0, 3: 1}[version],
        provenance=True,
        order="insertion",
        **kwargs,
    )


def assert_known(path: Path, model: Model) -> None:
    for name, content in model.items():
        if not content:
            continue
        with lmdbio.Records(path, db=name, order="insertion", locate="provenance") as records:
            assert [records.key(i) for i in range(len(records))] == list(content)
            assert list(records) == list(content.values())
    verify(path)


class Writer:
    """Random calls, and what they should leave."""

    def __init__(self, rng: random.Random, env: Any, model: Model) -> None:
        self.rng, self.env, self.model = rng, env, model
        self.handles = {name: env.open_db(name) if name is not None else None for name in model}

    def key(self) -> bytes:
        return b"%06x" % self.rng.randrange(400) * self.rng.choice((1, 1, 2))

    def call(self, txn: Any, model: Model) -> None:
        name = self.rng.choice(list(model))
        key, value, db = self.key(), self.rng.randbytes(self.rng.randrange(40)), self.handles[name]
        content = model[name]
        kind = self.rng.choice(
            ("put", "put", "put", "keep", "replace", "delete", "pop", "many", "cursor", "drop")
        )
        if kind == "put":
            assert txn.put(key, value, db=db)
            content[key] = value
        elif kind == "keep":
            assert txn.put(key, value, overwrite=False, db=db) == (key not in content)
            content.setdefault(key, value)
        elif kind == "replace":
            assert txn.replace(key, value, db=db) == content.get(key)
            content[key] = value
        elif kind == "delete":
            assert txn.delete(key, db=db) == (content.pop(key, None) is not None)
        elif kind == "pop":
            assert txn.pop(key, db=db) == content.pop(key, None)
        elif kind == "many":
            items = [(self.key(), b"%d" % i) for i in range(self.rng.randrange(30))]
            with txn.cursor(db) as cursor:
                cursor.putmulti(iter(items), overwrite=bool(self.rng.randrange(2)))
            for key, _ in items:
                content[key] = txn.get(key, db=db)
        elif kind == "cursor":
            self.move(txn.cursor(db), content, key, value)
        elif self.rng.random() < 0.1 and name is not None:
            txn.drop(db, delete=False)
            content.clear()

    def move(self, cursor: Any, content: dict[bytes, bytes], key: bytes, value: bytes) -> None:
        if cursor.set_range(key):
            content.pop(bytes(cursor.key()))
            assert cursor.delete()
        assert cursor.put(key, value)
        content[key] = value
        other = self.key()
        assert cursor.pop(other) == content.pop(other, None)
        assert cursor.replace(other, value) is None
        content[other] = value

    def transaction(self, parent: Any, model: Model) -> Model:
        txn = self.env.begin(write=True, parent=parent)
        mine = {name: dict(content) for name, content in model.items()}
        for _ in range(self.rng.randrange(60)):
            self.call(txn, mine)
            if parent is None and self.rng.random() < 0.05:
                mine = self.transaction(txn, mine)
        if self.rng.random() < 0.3:
            txn.abort()
            return model
        txn.commit()
        return mine


@pytest.mark.parametrize("version", databases.FORMATS)
@pytest.mark.parametrize("seed", range(4))
def test_the_order_is_that_of_the_calls(tmp_path: Path, seed: int, version: int) -> None:
    rng = random.Random(seed)
    model: Model = {name: {} for name in NAMES[1:]} if seed % 2 else {None: {}}
    for _ in range(3):
        with recording(tmp_path / "env", version) as env:
            writer = Writer(rng, env, model)
            for _ in range(10):
                model = writer.transaction(None, model)
        assert sum(map(len, model.values())) > 20
        assert_known(tmp_path / "env", model)


def test_with_blocks_count_when_they_end_well(tmp_path: Path) -> None:
    with recording(tmp_path / "env") as env:
        with env.begin(write=True) as txn:
            txn.put(b"b", b"")
        with pytest.raises(KeyError), env.begin(write=True) as txn:
            txn.put(b"lost", b"")
            raise KeyError
        with env.begin(write=True) as txn:
            txn.put(b"left", b"")
            txn.abort()
        with env.begin(write=True) as txn, env.begin(write=True, parent=txn) as child:
            child.put(b"a", b"")
        with env.begin(write=True) as txn:
            txn.put(b"0", b"")
            never = env.begin(write=True, parent=txn)
            never.put(b"never", b"")
    assert_known(tmp_path / "env", {None: {b"b": b"", b"a": b"", b"0": b""}})


def test_a_putmulti_that_fails_in_the_middle(tmp_path: Path) -> None:
    with recording(tmp_path / "env") as env:
        with env.begin(write=True) as txn:
            with pytest.raises(lmdb.BadValsizeError):
                txn.cursor().putmulti(
                    [(b"b", b"1"), (b"a", b"2"), (b"k" * 600, b"3"), (b"c", b"")]
                )
            assert txn.cursor().putmulti([]) == (0, 0)
    assert_known(tmp_path / "env", {None: {b"b": b"1", b"a": b"2"}})


def test_a_database_that_was_dropped_and_made_again(tmp_path: Path) -> None:
    with recording(tmp_path / "env") as env:
        one = env.open_db(b"one")
        with env.begin(write=True) as txn:
            txn.put(b"z", b"1", db=one)
            txn.drop(one)
        again = env.open_db(b"one")
        with env.begin(write=True, db=again) as txn:
            txn.put(b"y", b"2")
            txn.put(b"x", b"3")
    assert_known(tmp_path / "env", {b"one": {b"y": b"2", b"x": b"3"}})


def test_threads_take_turns_and_so_do_their_keys(tmp_path: Path) -> None:
    """Their transactions end in the order in which they began; what notes them may not."""
    seen: list[bytes] = []

    def write(thread: int) -> None:
        for step in range(50):
            with env.begin(write=True) as txn:
                key = b"%d/%d" % (thread, step)
                txn.put(key, b"")
                seen.append(key)  # nobody else writes now

    with recording(tmp_path / "env") as env:
        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert_known(tmp_path / "env", {None: dict.fromkeys(seen, b"")})


def test_an_order_that_the_keys_imply_goes_on(tmp_path: Path) -> None:
    """A program put 0, 1, ..., 11 before, and then other keys."""
    with lmdb.open(str(tmp_path / "env"), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for i in range(12):
            txn.put(b"%d" % i, b"%d" % i)
    with recording(tmp_path / "env") as env, env.begin(write=True) as txn:
        txn.put(b"100", b"last")
        txn.put(b"012", b"very last")
    model = {b"%d" % i: b"%d" % i for i in range(12)} | {b"100": b"last", b"012": b"very last"}
    assert_known(tmp_path / "env", {None: model})


def test_an_unknown_order_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "env"
    with lmdb.open(str(path), map_size=1 << 24, max_dbs=2) as env, env.begin(write=True) as txn:
        txn.put(b"wolf", b"2", db=env.open_db(b"one", txn=txn))
        txn.put(b"hen", b"1", db=env.open_db(b"one", txn=txn))
        txn.put(b"many", b"1", db=env.open_db(b"dups", txn=txn, dupsort=True))
    with pytest.raises(IncompatibleError, match=r"database 'one'.*is not known"):
        recording(path)
    convert(path, databases=["one"], order=[b"wolf", b"hen"])
    with recording(path) as env, env.begin(write=True) as txn:
        txn.put(b"0", b"3", db=env.open_db(b"one", txn=txn))
        txn.put(b"many", b"0", db=env.open_db(b"dups", txn=txn, dupsort=True))
    assert_known(path, {b"one": {b"wolf": b"2", b"hen": b"1", b"0": b"3"}})
    with pytest.raises(IncompatibleError, match="keys may have many"):
        lmdbio.Records(path, db=b"dups", order="insertion")


def test_what_others_put_leaves_the_order_unknown(tmp_path: Path) -> None:
    path = tmp_path / "env"
    env = recording(path)
    with env.begin(write=True) as txn:
        for key in (b"one", b"more", b"and more"):
            txn.put(key, key)
    other = (
        "import lmdb, sys; e = lmdb.open(sys.argv[1], map_size=1 << 26)\n"
        "with e.begin(write=True) as t: t.put(b'nobody told', b'')"
    )
    subprocess.run([sys.executable, "-c", other, str(path)], check=True)
    with pytest.warns(UserWarning, match=r"order in which .* not known.*: other processes"):
        env.close()
    assert "other processes" in env.provenance_note and env.provenance_report is not None
    with lmdbio.Records(path, locate="provenance") as records:
        assert len(records) == 4
    with pytest.raises(IncompatibleError, match="is not known"):
        lmdbio.Records(path, order="insertion")


@pytest.mark.parametrize("idle", ["", "commit", "open_db", "putmulti", "put"])
def test_what_others_take_away_and_put_back_is_noticed(tmp_path: Path, idle: str) -> None:
    """The keys are the same, the order is not; what changes nothing leaves its number free."""
    path = tmp_path / "env"
    env = recording(path)
    with env.begin(write=True) as txn:
        for key in (b"one", b"more", b"and more"):
            txn.put(key, key)
    with env.begin(write=True) as txn:
        if idle == "open_db":
            env.open_db(None, txn=txn)
        elif idle == "putmulti":
            txn.cursor().putmulti([(b"one", b"")], overwrite=False)
        elif idle == "put":
            txn.put(b"one", b"", overwrite=False)
    assert env.info()["last_txnid"] == 1
    other = (
        "import lmdb, sys; e = lmdb.open(sys.argv[1], map_size=1 << 26)\n"
        "with e.begin(write=True) as t: t.delete(b'one'); t.put(b'one', b'one')"
    )
    subprocess.run([sys.executable, "-c", other, str(path)], check=True)
    with pytest.warns(UserWarning, match=r"order in which .* not known"):
        env.close()
    with pytest.raises(IncompatibleError, match="is not known"):
        lmdbio.Records(path, order="insertion")


def test_what_changes_pages_and_puts_nothing_is_ours(tmp_path: Path) -> None:
    with recording(tmp_path / "env") as env:
        one, many = env.open_db(b"one"), env.open_db(b"many", dupsort=True)
        for key in (b"b", b"a", b"b"):
            with env.begin(write=True) as txn:
                txn.put(b"k", b"1", dupdata=False, db=many)
            with env.begin(write=True) as txn:
                txn.put(key, b"", db=one)
    assert_known(tmp_path / "env", {b"one": {b"b": b"", b"a": b""}})


def test_others_alone_are_noticed(tmp_path: Path) -> None:
    with recording(tmp_path / "env") as env, env.begin(write=True) as txn:
        txn.put(b"b", b"")
        txn.put(b"a", b"")
    env = recording(tmp_path / "env")
    code = "import lmdb, sys; e = lmdb.open(sys.argv[1])\n"
    code += "with e.begin(write=True) as t: t.put(b'c', b'')"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "env")], check=True)
    with pytest.warns(UserWarning, match=r"order in which .* not known"):
        env.close()


def test_dropping_the_main_database_drops_all(tmp_path: Path) -> None:
    with recording(tmp_path / "env") as env, env.begin(write=True) as txn:
        for key in (b"q", b"a", b"m"):
            txn.put(key, b"", db=env.open_db(b"x", txn=txn))
    with recording(tmp_path / "env") as env:
        with env.begin(write=True) as txn:
            txn.drop(env.open_db(None, txn=txn), delete=False)
        again = env.open_db(b"x")
        with env.begin(write=True) as txn:
            for key in (b"a", b"m", b"q"):
                txn.put(key, b"", db=again)
    assert_known(tmp_path / "env", {b"x": dict.fromkeys((b"a", b"m", b"q"), b"")})


@pytest.mark.parametrize("by", [convert, "collect"])
def test_a_file_without_the_order_that_others_wrote_is_replaced(tmp_path: Path, by: Any) -> None:
    env = recording(tmp_path / "env")
    with env.begin(write=True) as txn:
        for key in (b"3", b"1", b"2"):
            txn.put(key, key)
    if by is convert:
        convert(tmp_path / "env")
    else:
        code = "import lmdbio, sys; lmdbio.open(sys.argv[1], provenance=True).close()"
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "env")], check=True)
    env.close()
    assert_known(tmp_path / "env", {None: {b"3": b"3", b"1": b"1", b"2": b"2"}})


def test_handles_of_transactions_that_failed_lead_nowhere_else(tmp_path: Path) -> None:
    """LMDB gives the number of such a handle to the next database."""
    with recording(tmp_path / "env") as env:
        with pytest.raises(KeyError), env.begin(write=True) as txn:
            env.open_db(b"images", txn=txn)
            raise KeyError
        labels, images = env.open_db(b"labels"), env.open_db(b"images")
        with env.begin(write=True) as txn:
            txn.put(b"1", b"image", db=images)
            txn.put(b"1", b"label", db=labels)
            txn.put(b"0", b"image", db=images)
    assert_known(
        tmp_path / "env",
        {b"images": {b"1": b"image", b"0": b"image"}, b"labels": {b"1": b"label"}},
    )


def test_handles_that_nobody_has_are_let_go(tmp_path: Path) -> None:
    with recording(tmp_path / "env") as env:
        kept = env.open_db(b"one")
        for number in range(1000):
            with env.begin(write=True) as txn:
                txn.put(b"%d" % (7 * number % 1000), b"", db=env.open_db(b"one", txn=txn))
                txn.put(b"kept %d" % number, b"", db=kept)
        assert len(env._recording._names) < 300 and len(env._recording._entries) < 100
    with lmdbio.Records(tmp_path / "env", db="one", order="insertion") as records:
        found = [records.key(i) for i in range(0, 2000, 2)]
    assert found == [b"%d" % (7 * number % 1000) for number in range(1000)]


def test_records_beside_named_databases(tmp_path: Path) -> None:
    """Their names are keys of the main database, put when these were made."""
    with recording(tmp_path / "env") as env:
        with env.begin(write=True) as txn:
            txn.put(b"zebra", b"1")
            env.open_db(b"named", txn=txn)
            txn.put(b"ant", b"2")
        gone = env.open_db(b"gone")
        with env.begin(write=True, db=gone) as txn:
            txn.drop(gone)
    with lmdbio.Records(tmp_path / "env", order="insertion") as records:
        assert [records.key(i) for i in range(3)] == [b"zebra", b"named", b"ant"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_append_passes_over_was_not_put(tmp_path: Path, overwrite: bool) -> None:
    items = [(b"b", b"1"), (b"c", b"2"), (b"a", b"3"), (b"c", b"4"), (b"d", b"5")]
    theirs = lmdb.open(str(tmp_path / "theirs"), map_size=1 << 24)
    with recording(tmp_path / "env") as env:
        seen = []
        for one in (theirs, env):
            with one.begin(write=True) as txn:
                seen.append(txn.cursor().putmulti(items, overwrite=overwrite, append=True))
                txn.put(b"a", b"6")
                seen.append(list(txn.cursor()))
        assert seen[:2] == seen[2:]
        content = dict(seen[1])
    theirs.close()
    order = [key for key in (b"b", b"c", b"d", b"a") if key in content]
    assert_known(tmp_path / "env", {None: {key: content[key] for key in order}})


def test_keys_that_are_views_of_the_database(tmp_path: Path) -> None:
    """They show another key when the call has ended."""
    with recording(tmp_path / "env") as env:
        with env.begin(write=True) as txn:
            for key in (b"b", b"a", b"c"):
                txn.put(key, b"")
        with env.begin(write=True, buffers=True) as txn:
            cursor = txn.cursor()
            cursor.first()
            txn.delete(cursor.key())
            mutable = bytearray(b"e")
            txn.put(mutable, b"")
            mutable[:] = b"f"
            txn.put(np.frombuffer(b"gg", np.uint8), b"")
    assert_known(tmp_path / "env", {None: dict.fromkeys((b"b", b"c", b"e", b"gg"), b"")})


def test_an_interrupt_as_soon_as_it_is_committed(tmp_path: Path) -> None:
    with recording(tmp_path / "env") as env:
        with env.begin(write=True) as txn:
            txn.put(b"b", b"")
            txn.put(b"a", b"")
        txn = env.begin(write=True)
        txn.delete(b"b")
        txn.put(b"b", b"")

        def commit() -> None:
            txn._transaction.commit()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            txn._commit(commit)
        never = env.begin(write=True)
        never.put(b"never", b"")

        def before() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            never._commit(before)
        never.abort()
    assert_known(tmp_path / "env", {None: {b"a": b"", b"b": b""}})


def test_an_order_that_was_lost_is_not_made_up(tmp_path: Path) -> None:
    """A stale file told it once: that keys count says nothing then."""
    path = tmp_path / "env"
    with recording(path) as env, env.begin(write=True) as txn:
        for key in (b"3", b"1", b"2"):
            txn.put(key, b"")
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        txn.put(b"0", b"")
    with pytest.warns(UserWarning, match="does not describe"):
        with pytest.raises(IncompatibleError, match="--order"):
            lmdbio.Records(path, order="insertion")
        with pytest.raises(IncompatibleError, match="--order"):
            recording(path)


#: Another process, which commits to an environment some times.
COMMITS = """
import lmdb, sys
with lmdb.open(sys.argv[1], map_size=1 << 26) as env:
    for turn in range(4):
        with env.begin(write=True) as txn:
            for key in b"123":
                txn.put(bytes([key]), b"%d" % turn)
"""


def test_keys_that_were_there_are_looked_at_again_where_a_writer_came_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looks, read_meta = tmp_path / "env", [], _core.read_meta
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for key in (b"1", b"2", b"3"):
            txn.put(key, b"")

    def read(*words: Any) -> Any:
        meta = read_meta(*words)
        looks.append(meta)
        if len(looks) == 1:
            subprocess.run([sys.executable, "-c", COMMITS, str(path)], check=True)
        return meta

    monkeypatch.setattr(_core, "read_meta", read)
    with recording(path) as env, env.begin(write=True) as txn:
        txn.put(b"0", b"new")
    assert looks[1].txnid == looks[0].txnid + 4
    assert_known(path, {None: {b"1": b"3", b"2": b"3", b"3": b"3", b"0": b"new"}})


def test_an_empty_database_has_an_order(tmp_path: Path) -> None:
    with recording(tmp_path / "env") as env, env.begin(write=True) as txn:
        txn.put(b"a", b"")
        txn.delete(b"a")
    for convert_ in (False, True):
        if convert_:
            convert(tmp_path / "env")
        with lmdbio.Records(tmp_path / "env", order="insertion") as records:
            assert list(records) == []


def test_orders_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="order must be one of key, insertion"):
        lmdbio.open(str(tmp_path), provenance=True, order="random")
    for readonly in (True, False):
        with pytest.raises(ValueError, match="provenance=True"):
            lmdbio.open(str(tmp_path), readonly=readonly, order="insertion")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flags", [0, 0x02, 0x08], ids=["plain", "reversed", "integers"])
def test_keys_come_in_the_order_of_their_database(flags: int) -> None:
    rng = random.Random(flags)
    size = 8 if flags == 0x08 else 0
    events = [rng.randbytes(size or rng.randrange(1, 4)) for _ in range(3000)]
    log, model = KeyLog(), dict[bytes, int]()
    for number, key in enumerate(events):
        if rng.random() < 0.3:
            log.delete(key)
            model.pop(key, None)
        else:
            log.put(key)
            model.setdefault(key, number)
    order = {
        0: lambda key: key,
        0x02: lambda key: key[::-1],
        0x08: lambda key: int.from_bytes(key, "little"),
    }[flags]
    settled = log.settle(flags)
    assert settled.keys(0, len(settled)) == sorted(model, key=order)
    assert settled.events.tolist() == [model[key] for key in sorted(model, key=order)]
    assert (settled.repeated is None) == (flags == 0x08)
