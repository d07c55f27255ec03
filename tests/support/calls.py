"""A machine that makes the same calls on py-lmdb and on lmdbio, over databases that it draws.

Each example draws a database (both data formats; plain, duplicates of any and of one size, integer
and reversed keys; the main one or a named one; updated, thinned out, compacted), opens it with
both packages, ours in a way that it draws, and then makes calls: transactions, cursors and
iterators by the several, all of them used in turns. The result or exception of a call, and where
its cursor stands then, must be equal.

``ColdMachine`` puts our file, a copy of theirs, out of the page cache between the calls that it
draws, between the steps of an iteration, too: wholly, by every other page, or by one page.

Not drawn, for LMDB leaves it undefined, and py-lmdb reads what is not there: in a database with
duplicates, after a search that failed, all but moves that place the cursor anew.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import lmdb
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import lmdbio
from tests.support import cold, databases

KINDS: dict[str, dict[str, bool]] = {
    "plain": {},
    "dupsort": {"dupsort": True},
    "dupfixed": {"dupsort": True, "dupfixed": True},
    "integerkey": {"integerkey": True},
    "reverse_key": {"reverse_key": True},
    "integerdup": {"dupsort": True, "dupfixed": True, "integerdup": True, "integerkey": True},
    "reverse_dup": {"dupsort": True, "reverse_key": True},
}
MOVES = ("first", "last", "next", "prev", "next_nodup", "prev_nodup")
DUP_MOVES = ("next_dup", "prev_dup", "first_dup", "last_dup")
ITERATORS = tuple(
    f"iter{way}{kind}" for way in ("next", "prev") for kind in ("", "_dup", "_nodup")
)
#: Counted over all examples: calls; how often a file was put out, and of these how often a page
#: was there afterwards; steps of our iterators, waits of one that had not waited, steps of a scan.
OPERATIONS = {"calls": 0, "put out": 0, "left in": 0, "steps": 0, "waits": 0, "scanned": 0}

_folder: Path | None = None


def folder() -> Path:
    """Of this process's databases; ends with it."""
    global _folder
    if _folder is None:
        _folder = Path(tempfile.mkdtemp(prefix="lmdbio-machine-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    return _folder


@dataclass(frozen=True)
class Shape:
    """A database, by all that it is made from."""

    kind: str
    version: int
    named: bool
    count: int
    churn: int  # commits that change it
    compact: bool
    seed: int

    @property
    def has_dups(self) -> bool:
        return KINDS[self.kind].get("dupsort", False)

    def key(self, draw: random.Random) -> bytes:
        if KINDS[self.kind].get("integerkey"):
            return draw.randrange(4 * self.count + 4).to_bytes(8, "little")
        kind = draw.randrange(4)
        if kind == 0:
            return b"%06d" % draw.randrange(4 * self.count + 4)
        if kind == 1:
            return draw.randbytes(draw.randint(1, 4))
        if kind == 2:
            return b"k" * draw.randint(1, 60)
        return draw.randbytes(draw.choice([1, 8, 200, 511]))

    def value(self, draw: random.Random) -> bytes:
        if KINDS[self.kind].get("integerdup"):
            return draw.randrange(1 << 20).to_bytes(4, "little")
        if KINDS[self.kind].get("dupfixed"):
            return draw.randbytes(9)
        if self.has_dups:
            return draw.randbytes(draw.choice([1, 7, 40, 500]))
        return draw.randbytes(draw.choice([0, 1, 60, 600, 2020, 2040, 5000, 40_000]))

    def write(self) -> Path:
        """Writes it, unless it is there."""
        path = folder() / f"{abs(hash(self)):x}"
        if path.exists():
            return path
        draw = random.Random(repr(self))
        work = path.with_suffix(".work")
        with databases.open_writable(work, self.version) as env:
            db = env.open_db(b"named", **KINDS[self.kind]) if self.named else None
            for turn in range(1 + self.churn):
                with env.begin(write=True, db=db) as txn:
                    self.change(txn, draw, first=turn == 0)
            if self.compact:
                path.mkdir()
                env.copy(str(path), compact=True)
        if self.compact:
            shutil.rmtree(work)
        else:
            work.rename(path)
        return path

    def copy(self) -> Path:
        """Writes another copy, unless it is there, which the kernel may forget."""
        path = self.write()
        copy = path.with_suffix(".copy")
        if not copy.exists():
            shutil.copytree(path, copy)
            with (copy / "data.mdb").open("rb") as file:
                os.fsync(file.fileno())
        return copy

    def change(self, txn: Any, draw: random.Random, *, first: bool) -> None:
        for _ in range(self.count if first else self.count // 3):
            key = self.key(draw)
            if not first and draw.random() < 0.5:
                cursor = txn.cursor()
                if cursor.set_range(key):
                    cursor.delete(dupdata=draw.random() < 0.3)
                continue
            values = 1
            if self.has_dups:
                values = draw.choice([1, 1, 2, 5, 60])
            for _ in range(values):
                txn.put(key, self.value(draw))


shapes = st.builds(
    Shape,
    kind=st.sampled_from(list(KINDS)),
    version=st.sampled_from(databases.FORMATS),
    named=st.booleans(),
    count=st.sampled_from([0, 1, 2, 5, 30, 200]),
    churn=st.sampled_from([0, 0, 1, 3]),
    compact=st.booleans(),
    seed=st.integers(0, 3),
).map(lambda one: one if not KINDS[one.kind] or one.named else Shape(
    one.kind, one.version, True, one.count, one.churn, one.compact, one.seed))  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How our side reads, and before every so manieth call its file is put out (0: never)."""

    engine: str
    cache_bytes: int
    block_bytes_max: int
    chilled: int

    @property
    def keywords(self) -> dict[str, Any]:
        """Of ``lmdbio.open``."""
        how = asdict(self)
        del how["chilled"]
        return how


ways = st.builds(
    Way,
    engine=st.sampled_from(["auto", "auto", "pread", "mmap", "direct", "uring"]),
    cache_bytes=st.sampled_from([1, 1 << 26]),
    block_bytes_max=st.sampled_from([1, 1 << 16, 8 << 20]),
    chilled=st.sampled_from([0, 1, 1, 3]),
)


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call did, in a form that can be compared across the two packages."""
    try:
        return plain(call())
    except lmdb.Error as error:
        return type(error), getattr(error, "code", None)
    except StopIteration:
        return StopIteration
    except (TypeError, ValueError, OverflowError) as error:
        return type(error)


def plain(result: Any) -> Any:
    if isinstance(result, memoryview):
        return "view", result.readonly, result.format, bytes(result)
    if isinstance(result, (tuple, list)):
        return type(result), [plain(part) for part in result]
    return result


@dataclass
class Both:
    """The same object on either side."""

    theirs: Any
    ours: Any
    of: Both | None = None  # what it belongs to
    lost: bool = False  # a cursor after a search that failed
    parts: list[Both] = field(default_factory=list)

    def same(self, call: Callable[[Any], Any]) -> Any:
        OPERATIONS["calls"] += 1
        Machine.before_call()
        theirs, ours = (outcome(lambda one=one: call(one)) for one in (self.theirs, self.ours))
        assert ours == theirs, (theirs, ours)
        return theirs

    def made(self, call: Callable[[Any], Any]) -> Both:
        OPERATIONS["calls"] += 1
        one = Both(call(self.theirs), call(self.ours), self)
        self.parts.append(one)
        return one


class Machine(RuleBasedStateMachine):
    """See the module."""

    #: Called before each call that both sides make.
    before_call: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    @initialize(shape=shapes, way=ways)
    def open(self, shape: Shape, way: Way) -> None:
        self.shape = shape
        how: dict[str, Any] = {"readonly": True, "lock": False, "max_dbs": 3}
        self.env = Both(
            lmdb.open(str(shape.write()), **how),
            lmdbio.open(str(self.ours(shape, way)), **how, **way.keywords),
        )
        self.db = self.env.made(lambda env: env.open_db(b"named", create=False)
                                if shape.named else env.open_db())  # fmt: skip
        with self.env.theirs.begin(db=self.db.theirs) as txn:
            self.known = [(bytes(key), bytes(value)) for key, value in txn.cursor()]
        self.txns: list[Both] = []
        self.cursors: list[Both] = []
        self.iterators: list[Both] = []
        self.begin(False, True)
        self.cursor(0)

    def ours(self, shape: Shape, way: Way) -> Path:
        """Return what our side opens."""
        del way
        return shape.write()

    def teardown(self) -> None:
        if hasattr(self, "env"):
            self.env.theirs.close()
            self.env.ours.close()

    # --- environment and transactions

    @rule(buffers=st.booleans(), with_db=st.booleans())
    def begin(self, buffers: bool, with_db: bool) -> None:
        Machine.before_call()
        db = self.db if with_db else Both(None, None)
        self.txns = self.txns[-3:]
        self.txns.append(
            Both(
                self.env.theirs.begin(db=db.theirs, buffers=buffers),
                self.env.ours.begin(db=db.ours, buffers=buffers),
            )
        )

    @rule(what=st.sampled_from(["stat", "flags", "max_key_size", "path", "dbs", "lib_version"]))
    def ask_env(self, what: str) -> None:
        self.env.same(lambda env: self.told(getattr(env, what)()))

    def told(self, what: Any) -> Any:
        """Return what an environment told, as it is to be the same on either side."""
        return what

    @rule()
    def info(self) -> None:
        def told(env: Any) -> Any:
            info = env.info()
            return [info[name] for name in ("last_pgno", "last_txnid", "max_readers")]

        self.env.same(told)

    @rule(name=st.sampled_from([None, b"named", b"missing", b"\0", b"x" * 600]))
    def open_db(self, name: bytes | None) -> None:
        self.env.same(lambda env: env.open_db(name, create=False).flags())

    @rule(at=st.integers(0), how=st.sampled_from(["abort", "commit", "id", "stat"]))
    def ask_txn(self, at: int, how: str) -> None:
        txn = self.txns[at % len(self.txns)]
        if how in ("abort", "commit") and len(self.txns) < 2:
            return
        txn.same(lambda one: getattr(one, how)())

    @rule(at=st.integers(0), key=st.integers(0), tail=st.sampled_from([b"", b"", b"x", None]),
          default=st.sampled_from([None, b"d"]), with_db=st.booleans())  # fmt: skip
    def get(
        self, at: int, key: int, tail: bytes | None, default: bytes | None, with_db: bool
    ) -> None:
        wanted = self.some(key, tail)[0]
        theirs, ours = self.db.theirs, self.db.ours
        txn = self.txns[at % len(self.txns)]
        if not with_db:
            txn.same(lambda one: one.get(wanted, default))
            return
        txn.same(lambda one: one.get(wanted, default, theirs if one is txn.theirs else ours))

    @rule(at=st.integers(0), how=st.sampled_from(["put", "delete", "pop", "replace"]),
          key=st.integers(0))  # fmt: skip
    def refuse(self, at: int, how: str, key: int) -> None:
        wanted, value = self.some(key, b"")
        arguments = (wanted, value) if how in ("put", "replace") else (wanted,)
        self.txns[at % len(self.txns)].same(lambda one: getattr(one, how)(*arguments))

    def some(self, number: int, tail: bytes | None) -> tuple[bytes, bytes]:
        """A key and value, which may be there."""
        if not self.known:
            return b"missing!", b"v"
        key, value = self.known[number % len(self.known)]
        if tail is None:
            return b"", value
        if not tail:
            return key, value
        if KINDS[self.shape.kind].get("integerkey"):  # of one size, or LMDB reads past them
            return (int.from_bytes(key, "little") + 1).to_bytes(8, "little"), value
        return (key + tail)[:511], value[:-1] if len(value) > 9 else value

    # --- cursors

    @rule(at=st.integers(0))
    def cursor(self, at: int) -> None:
        txn = self.txns[at % len(self.txns)]
        theirs, ours = outcome(lambda: txn.theirs.id()), outcome(lambda: txn.ours.id())
        assert theirs == ours
        if isinstance(theirs, tuple):  # it has ended
            txn.same(lambda one: one.cursor())
            return
        self.cursors = self.cursors[-3:]
        self.cursors.append(
            Both(txn.theirs.cursor(self.db.theirs), txn.ours.cursor(self.db.ours), txn)
        )

    def place(self, cursor: Both) -> None:
        for what in ("key", "value", "item"):
            cursor.same(lambda one, what=what: getattr(one, what)())

    @rule(at=st.integers(0), how=st.sampled_from(MOVES))
    def move(self, at: int, how: str) -> None:
        cursor = self.cursors[at % len(self.cursors)]
        if cursor.lost and self.shape.has_dups and how not in ("first", "last"):
            return
        cursor.same(lambda one: getattr(one, how)())
        if how in ("first", "last"):
            cursor.lost = False
        self.place(cursor)

    @rule(at=st.integers(0), how=st.sampled_from((*DUP_MOVES, "count")))
    def move_dup(self, at: int, how: str) -> None:
        cursor = self.cursors[at % len(self.cursors)]
        if cursor.lost:
            return
        cursor.same(lambda one: getattr(one, how)())
        self.place(cursor)

    @rule(
        at=st.integers(0),
        how=st.sampled_from(
            ["set_key", "set_range", "get", "set_key_dup", "set_range_dup", "pop"]
        ),
        key=st.integers(0),
        tail=st.sampled_from([b"", b"", b"x", None]),
    )
    def search(self, at: int, how: str, key: int, tail: bytes | None) -> None:
        cursor = self.cursors[at % len(self.cursors)]
        wanted, value = self.some(key, tail)
        arguments = (wanted, value) if how.endswith("_dup") else (wanted,)
        found = cursor.same(lambda one: getattr(one, how)(*arguments))
        cursor.lost = not found or isinstance(found, tuple)
        self.place(cursor)

    @rule(
        at=st.integers(0),
        numbers=st.lists(st.integers(0), max_size=5),
        tail=st.sampled_from([b"", b"x"]),
        how=st.sampled_from([{}, {"values": False}, {"dupdata": True},
                             {"dupdata": True, "dupfixed_bytes": 9},
                             {"dupdata": True, "dupfixed_bytes": 9, "keyfixed": True}]),
    )  # fmt: skip
    def getmulti(self, at: int, numbers: list[int], tail: bytes, how: dict[str, Any]) -> None:
        if "dupfixed_bytes" in how:
            if not KINDS[self.shape.kind].get("dupfixed"):
                return
            size = 4 if KINDS[self.shape.kind].get("integerdup") else 9
            how = {**how, "dupfixed_bytes": size}
        cursor = self.cursors[at % len(self.cursors)]
        keys = [self.some(number, tail if i % 2 else b"")[0] for i, number in enumerate(numbers)]
        cursor.same(lambda one: one.getmulti(keys, **how))
        cursor.lost = True
        if self.shape.has_dups:
            cursor.same(lambda one: one.first())
            cursor.lost = False
        self.place(cursor)

    @precondition(lambda self: len(self.cursors) > 1)
    @rule(at=st.integers(0))
    def close(self, at: int) -> None:
        cursor = self.cursors[at % len(self.cursors)]
        cursor.same(lambda one: one.close())
        cursor.same(lambda one: one.key())

    # --- iterators

    @rule(
        at=st.integers(0),
        how=st.sampled_from(ITERATORS),
        keys=st.sampled_from([None, True, False]),
        values=st.sampled_from([None, True, False]),
        steps=st.sampled_from([0, 1, 2, 5, 300]),
        scans=st.booleans(),
    )
    def iterate(
        self, at: int, how: str, keys: bool | None, values: bool | None, steps: int, scans: bool
    ) -> None:
        cursor = self.cursors[at % len(self.cursors)]
        if cursor.lost and (self.shape.has_dups or how.endswith("dup")):
            return
        wanted = {
            name: one for name, one in (("keys", keys), ("values", values)) if one is not None
        }
        begun = cursor.same(lambda one: bool(getattr(one, how)(**wanted)))
        if isinstance(begun, tuple):  # it was closed
            return
        Machine.before_call()
        iterator = Both(
            getattr(cursor.theirs, how)(**wanted), getattr(cursor.ours, how)(**wanted), cursor
        )
        iterator.ours._has_waited = scans  # as if the storage had been slow: ours reads ahead
        self.iterators = [*self.iterators[-3:], iterator]
        self.step(iterator, steps)

    @precondition(lambda self: self.iterators)
    @rule(at=st.integers(0), steps=st.sampled_from([1, 3, 40]))
    def resume(self, at: int, steps: int) -> None:
        iterator = self.iterators[at % len(self.iterators)]
        assert iterator.of is not None
        if not iterator.of.lost:
            self.step(iterator, steps)

    def step(self, iterator: Both, steps: int) -> None:
        assert iterator.of is not None
        for _ in range(steps):
            had_waited = iterator.ours._has_waited
            if iterator.same(next) is StopIteration:
                break
            OPERATIONS["steps"] += 1
            OPERATIONS["waits"] += iterator.ours._has_waited and not had_waited
            OPERATIONS["scanned"] += iterator.of.ours._run is not None
        self.place(iterator.of)


#: Pages of a file that are put out: every one, every other one, one that is drawn.
PARTS = ("all", "odd", "one")


class ColdMachine(Machine):
    """See the module. Iterators wait for the storage, or are told that they did."""

    def ours(self, shape: Shape, way: Way) -> Path:
        copy = shape.copy()
        self.file = copy / "data.mdb"
        self.every, self.part, self.page, self.calls = way.chilled, "all", 0, 0
        self.put_out()
        Machine.before_call = self.tick  # type: ignore[method-assign]
        return copy

    def teardown(self) -> None:
        Machine.before_call = staticmethod(lambda: None)  # type: ignore[method-assign]
        super().teardown()

    def told(self, what: Any) -> Any:
        return what.removesuffix(".copy") if isinstance(what, str) else what

    @rule(every=st.sampled_from([0, 1, 1, 2, 5, 30]), part=st.sampled_from(PARTS),
          page=st.integers(2, 300))  # fmt: skip
    def chill(self, every: int, part: str, page: int) -> None:
        """Put the file out now, and before every so manieth call from now on (0: none)."""
        self.every, self.part, self.page = every, part, page
        self.put_out()

    @rule(
        way=ways,
        how=st.sampled_from(ITERATORS),
        key=st.integers(0),
        steps=st.sampled_from([3, 20, 300]),
        values=st.sampled_from([None, True, False]),
    )
    def walk(self, way: Way, how: str, key: int, steps: int, values: bool | None) -> None:
        """Open the file once more, of which nothing is known then, and iterate there."""
        before, self.every, self.part = (self.every, self.part), way.chilled, "all"
        self.put_out()
        theirs = self.env.theirs.begin(db=self.db.theirs)
        with lmdbio.open(str(self.file.parent), readonly=True, lock=False, max_dbs=3,
                         **way.keywords) as env:  # fmt: skip
            db = env.open_db(b"named", create=False) if self.shape.named else None
            cursor = Both(theirs.cursor(), env.begin(db=db).cursor())
            if cursor.same(lambda one: one.set_key(self.some(key, b"")[0])):
                self.step(cursor.made(lambda one: getattr(one, how)(values=values)), steps)
                if not how.endswith("_dup"):
                    cursor.same(lambda one: (one.prev(), one.item()))
        theirs.abort()
        self.every, self.part = before

    @precondition(lambda self: self.iterators)
    @rule(at=st.integers(0), steps=st.sampled_from([0, 2, 5000]))
    def slow(self, at: int, steps: int) -> None:
        """Have an iterator believe that one of so many steps had to wait."""
        iterator = self.iterators[at % len(self.iterators)].ours
        iterator._has_waited, iterator._steps = True, steps

    def tick(self) -> None:
        self.calls += 1
        if self.every and self.calls % self.every == 0:
            self.put_out()

    def put_out(self) -> None:
        pages = self.file.stat().st_size // cold.PAGE_BYTES
        if self.part == "all":
            cold.put_out(self.file)
            OPERATIONS["put out"] += 1
            OPERATIONS["left in"] += cold.cached_bytes(self.file) > 0
            return
        first, step = (self.page % pages, pages) if self.part == "one" else (1, 2)
        cold.put_out(self.file, range(first, pages, step))
