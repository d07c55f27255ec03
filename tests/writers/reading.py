"""The reads that are made beside the writer, and what becomes of each.

A *session* opens one snapshot by one surface and reads from it for a moment or for long. It learns
which transaction it sees (from the surface, or from the stamp, which is the first record), makes
sure that this is one that it may see, and holds every key, every value and every key that is
not there against ``world``. An error is documented, or a breach.
"""

from __future__ import annotations

import abc
import itertools
import random
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import world
from writer import Progress

import lmdbio
from lmdbio.convert.convert import convert
from lmdbio.locate.view import viewing

#: The exceptions that the documents name for reading without a reader slot beside a writer.
DOCUMENTED = (
    "is no longer protected: transaction",
    "changed while it was read (transaction",
    "was committed to while it was opened",
    "was committed to during each of",
    "does not describe this state of",
    "was written to since it was opened",
    "was committed to while it was verified",
)
OPEN_ENGINES = ("auto", "pread", "direct", "uring", "mmap")
RECORDS_ENGINES = (*OPEN_ENGINES, "staged")
FORMS = ("auto", "leaves", "explicit")
LOCATES = ("auto", "scan", "provenance")
SHOWN_BYTES = 60
BREACHES_MAX = 20


class Wrong(Exception):
    """Something other was read than the snapshot holds."""


def is_documented(error: BaseException) -> bool:
    return isinstance(error, lmdb.Error) and any(text in str(error) for text in DOCUMENTED)


def shape(error: BaseException) -> str:
    """An error's text without paths and numbers, to be counted by."""
    text = re.sub(r"\S*/\S*: ?", "", str(error))
    return f"{type(error).__name__}: {re.sub('[0-9]+', 'N', text)}"[:160]


@dataclass(slots=True)
class Count:
    """The outcomes of one surface's reads.

    Attributes:
        sessions: snapshots opened.
        unheld: of these, those with ``lock=True`` that got no reader slot.
        right, wrong: values that were held against the world.
        errors: documented ones, by their text.
    """

    sessions: int = 0
    unheld: int = 0
    right: int = 0
    wrong: int = 0
    errors: Counter[str] = field(default_factory=Counter)


def shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"{bytes(value[:SHOWN_BYTES])!r} ({len(value)} bytes)"


def compare(found: Any, wanted: bytes | None, what: str) -> None:
    if (None if found is None else bytes(found)) != wanted:
        raise Wrong(f"{what}: {shown(found)} instead of {shown(wanted)}")


def stamped(value: Any) -> int:
    """The transaction of a stamp."""
    found = re.fullmatch(rb"transaction (\d{12})", bytes(value))
    if found is None:
        raise Wrong(f"the stamp is {shown(value)}")
    return int(found[1])


class Bounds:
    """The transactions that a snapshot taken between two moments may be of."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self.low = progress, progress.committed

    def check(self, txnid: int, what: str) -> None:
        high = self._progress.begun
        if not self.low <= txnid <= high:
            raise Wrong(f"{what} sees transaction {txnid}, not one of {self.low} to {high}")

    def known(self) -> range:
        return range(self.low, self._progress.begun + 1)


def main_items(txnid: int, start: int) -> Iterator[tuple[bytes, bytes | None]]:
    """The main database from item ``start`` on; what stands for named ones has no value here."""
    there, touched = world.state(txnid)
    if start == 0:
        yield world.STAMP, world.stamp(txnid)
    for at in range(max(0, start - 1), len(there)):
        i = int(there[at])
        yield world.record_key(i), world.value(b"main", i, int(touched[at]))
    for k in world.extras_there(txnid):
        yield world.extra_name(k), None


class Session:
    """Counts reads of one surface, each held against the world."""

    def __init__(self, reading: Drawn, surface: str) -> None:
        self.rng, self.folder = reading.rng, reading.folder
        self.progress, self.count = reading.progress, reading.count_of(surface)
        self.surface = surface

    def took(self, found: Any, wanted: bytes | None, what: str) -> None:
        compare(found, wanted, f"{self.surface}: {what}")
        self.count.right += 1

    def lasting(self, longest: float) -> Iterator[None]:
        """Once, or again and again for some time."""
        rng = self.rng
        end = time.monotonic() + rng.choice((0.0, 0.0, 0.02, longest * rng.random()))
        while True:
            yield
            if time.monotonic() >= end:
                return
            time.sleep(rng.choice((0.0, 0.001, 0.01)))


# --- lmdbio.open -------------------------------------------------------------------------


class Transactions(Session):
    """``lmdbio.open``: gets, cursors both ways, getmulti, named databases."""

    def run(self, env: Any, *, lock: bool, lends: bool) -> None:
        bounds = Bounds(self.progress)
        with env.begin(buffers=lends) as txn:
            bounds.check(txn.id(), "a transaction")
            self.count.sessions += 1
            held = txn._slot is not None
            self.count.unheld += lock and not held
            try:
                ways = (self.gets, self.gets, self.forward, self.backward, self.many, self.extra)
                for _ in self.lasting(0.6 if lock else 0.15):
                    self.rng.choice(ways)(env, txn, txn.id())
            except Wrong:
                # A view of the mapping shows what a writer puts there, where no slot holds it.
                if held or not lends:
                    raise
                txn.get(world.STAMP)  # which then says so
                raise
            except lmdb.Error as error:
                if held:
                    raise Wrong(f"{self.surface}: refused with a slot held: {error}") from error
                raise

    def gets(self, env: Any, txn: Any, txnid: int) -> None:
        self.took(txn.get(world.STAMP), world.stamp(txnid), "the stamp")
        for _ in range(self.rng.choice((3, 30, 120))):
            i = self.rng.randrange(world.RECORDS_MAX)
            self.took(txn.get(world.record_key(i)), world.expected(txnid, i), f"get {i}")

    def some_items(self, txnid: int) -> tuple[int, int]:
        entries = world.entries(txnid)
        return self.rng.randrange(entries), self.rng.choice((1, 5, 60, 2000))

    def walk(self, items: Any, wanted: Any, what: str) -> None:
        for item, then in itertools.zip_longest(items, wanted):
            # Data format 3 keeps the NUL that ends a database's name; no other key has one.
            if item is None or then is None or bytes(item[0]).rstrip(b"\0") != then[0]:
                raise Wrong(f"{self.surface}: {what}: {item} where {then} is due")
            if then[1] is not None:
                self.took(item[1], then[1], f"{what}, {then[0]!r}")

    def forward(self, env: Any, txn: Any, txnid: int) -> None:
        start, length = self.some_items(txnid)
        wanted = list(itertools.islice(main_items(txnid, start), length))
        with txn.cursor() as cursor:
            if not cursor.set_range(wanted[0][0]):
                raise Wrong(f"{self.surface}: nothing from {wanted[0][0]!r} on")
            self.walk(itertools.islice(cursor.iternext(), length), wanted, "forwards")

    def backward(self, env: Any, txn: Any, txnid: int) -> None:
        start, length = self.some_items(txnid)
        wanted = list(main_items(txnid, 0))[: start + 1][::-1][:length]
        with txn.cursor() as cursor:
            if not cursor.set_range(wanted[0][0]):
                raise Wrong(f"{self.surface}: nothing from {wanted[0][0]!r} on")
            self.walk(itertools.islice(cursor.iterprev(), length), wanted, "backwards")

    def many(self, env: Any, txn: Any, txnid: int) -> None:
        chosen = [self.rng.randrange(world.RECORDS_MAX) for _ in range(40)]
        wanted = [(world.record_key(i), world.expected(txnid, i)) for i in chosen]
        with txn.cursor() as cursor:
            found = cursor.getmulti([key for key, _ in wanted])
        self.walk(found, [item for item in wanted if item[1] is not None], "getmulti")

    def extra(self, env: Any, txn: Any, txnid: int) -> None:
        k = self.rng.randrange(world.EXTRAS)
        try:
            db = env.open_db(world.extra_name(k), txn=txn, create=False)
        except lmdb.NotFoundError:
            if world.extra_since(k, txnid):
                raise Wrong(f"{self.surface}: no database {k} in {txnid}") from None
            return
        if not world.extra_since(k, txnid):
            raise Wrong(f"{self.surface}: a database {k} in {txnid}")
        wanted = [
            (world.record_key(j), world.extra_value(k, j, txnid))
            for j in range(world.EXTRA_RECORDS)
        ]
        self.walk(txn.cursor(db), wanted, f"database {k}")
        j = self.rng.randrange(world.EXTRA_RECORDS)
        self.took(txn.get(wanted[j][0], db=db), wanted[j][1], f"get in database {k}")


# --- Records and Reader ------------------------------------------------------------------


def indexed(txnid: int, index: int) -> bytes | None:
    """The value of a record of the main database by index; None: it is a named database."""
    there, touched = world.state(txnid)
    if index == 0:
        return world.stamp(txnid)
    if index > len(there):
        return None
    i = int(there[index - 1])
    return world.value(b"main", i, int(touched[index - 1]))


class Indexed(Session):
    """``lmdbio.Records``: single ones, slices, batches, iteration."""

    def run(self, **options: Any) -> None:
        bounds = Bounds(self.progress)
        with lmdbio.Records(self.folder, **options) as records:
            txnid = stamped(records[0])
            bounds.check(txnid, "Records")
            self.count.sessions += 1
            if len(records) != world.entries(txnid):
                raise Wrong(f"{self.surface}: {len(records)} records in {txnid}")
            ways = (
                *(self.singles, self.slices, self.batch, self.batch),
                *(self.ahead, self.whole, self.keys),
            )
            try:
                for _ in self.lasting(0.15):
                    self.rng.choice(ways)(records, txnid)
            except Wrong:
                # Batches may be lent from the mapping, where they show what a writer puts there.
                if options["engine"] == "mmap":
                    records[0]
                raise

    def one(self, value: Any, index: int, txnid: int, what: str) -> None:
        wanted = indexed(txnid, index)
        if wanted is not None:
            self.took(value, wanted, f"{what} {index} of {txnid}")

    def singles(self, records: Any, txnid: int) -> None:
        for _ in range(self.rng.choice((3, 30))):
            index = self.rng.randrange(len(records))
            self.one(records[index], index, txnid, "record")

    def keys(self, records: Any, txnid: int) -> None:
        """From records to keys and back, and from keys that are not there to none."""
        there, _ = world.state(txnid)
        for at in (self.rng.randrange(len(there)) for _ in range(5)):
            key = world.record_key(int(there[at]))
            self.took(records.key(at + 1), key, f"key {at + 1} of {txnid}")
            if (found := records.index_of(key)) != at + 1:
                raise Wrong(f"{self.surface}: {key!r} of {txnid} is {found}, not {at + 1}")
        i = self.rng.randrange(world.RECORDS_MAX)
        try:
            found = records.index_of(world.record_key(i))
        except KeyError:
            self.took(None, world.expected(txnid, i), f"no index of {i} in {txnid}")
            return
        if found == 0 or found > len(there) or there[found - 1] != i:
            raise Wrong(f"{self.surface}: {i} of {txnid} is record {found}")

    def slices(self, records: Any, txnid: int) -> None:
        at, step = self.rng.randrange(len(records)), self.rng.choice((1, 20, 200))
        for start in range(at, min(len(records), at + 3 * step), step):
            for index, value in enumerate(records[start : start + step], start):
                self.one(value, index, txnid, "slice")

    def some(self, records: Any) -> list[int]:
        return [self.rng.randrange(len(records)) for _ in range(self.rng.choice((1, 16, 300)))]

    def all_of(self, batch: Any, wanted: list[int], txnid: int, what: str) -> None:
        if len(batch) != len(wanted):
            raise Wrong(f"{self.surface}: a batch of {len(batch)} for {len(wanted)}")
        for index, view in zip(wanted, batch, strict=True):
            self.one(view, index, txnid, what)

    def batch(self, records: Any, txnid: int) -> None:
        wanted = self.some(records)
        self.all_of(records.read(np.array(wanted)), wanted, txnid, "read")

    def ahead(self, records: Any, txnid: int) -> None:
        wanted = [self.some(records) for _ in range(3)]
        for one, batch in zip(wanted, records.batches(wanted), strict=True):
            self.all_of(batch, one, txnid, "batches")

    def whole(self, records: Any, txnid: int) -> None:
        most = self.rng.choice((10, 400, 4000))
        for index, value in enumerate(itertools.islice(records, most)):
            self.one(value, index, txnid, "iteration")

    def extra(self, **options: Any) -> None:
        """A named database, which may come and go while it is opened."""
        k, bounds = self.rng.randrange(world.EXTRAS), Bounds(self.progress)
        try:
            records = lmdbio.Records(self.folder, db=world.extra_name(k), **options)
        except LookupError:
            if all(world.extra_since(k, txnid) for txnid in bounds.known()):
                raise Wrong(f"{self.surface}: no database {k}") from None
            return
        with records:
            txnid = records._source.meta.txnid
            bounds.check(txnid, "Records")
            self.count.sessions += 1
            if not world.extra_since(k, txnid) or len(records) != world.EXTRA_RECORDS:
                raise Wrong(f"{self.surface}: {len(records)} in database {k} of {txnid}")
            for j, value in enumerate(records[:]):
                self.took(value, world.extra_value(k, j, txnid), f"database {k}, {j} of {txnid}")


class Batched(Session):
    """``lmdbio.Reader`` without MPI: every record once, or some times round."""

    def run(self, **options: Any) -> None:
        bounds, size = Bounds(self.progress), self.rng.choice((7, 64, 500))
        iterations = self.rng.choice((1, 4, 40))
        pause = self.rng.choice((0.0, 0.0, 0.002))
        with lmdbio.Reader(self.folder, size, iterations=iterations, **options) as reader:
            txnid = 0
            for batch in reader:
                if not txnid:
                    txnid = stamped(batch[0])
                    bounds.check(txnid, "a Reader")
                    self.count.sessions += 1
                    if reader.count != world.entries(txnid):
                        raise Wrong(f"{self.surface}: {reader.count} records in {txnid}")
                for index, view in zip(batch.indices.tolist(), batch, strict=True):
                    wanted = indexed(txnid, index)
                    if wanted is not None:
                        self.took(view, wanted, f"{index} of {txnid}")
                    view.release()
                time.sleep(pause)


class Glanced(Session):
    """A look at a few records of the main database, as ``lmdbio ls`` and ``get`` take it."""

    def run(self) -> None:
        bounds = Bounds(self.progress)
        with viewing(self.folder) as opened_view:
            txnid = opened_view.meta.txnid
            bounds.check(txnid, "a glance")
            self.count.sessions += 1
            for _ in self.lasting(0.1):
                self.rng.choice((self.first, self.keys, self.spread, self.numbers))(
                    opened_view, txnid
                )

    def one(self, opened_view: Any, seen: Any, wanted: bytes | None, what: str) -> None:
        if wanted is not None:
            self.took(b"".join(opened_view.pieces(seen)), wanted, what)

    def first(self, opened_view: Any, txnid: int) -> None:
        wanted = itertools.islice(main_items(txnid, 0), self.rng.choice((1, 20, 400)))
        for seen, (key, value) in zip(opened_view.records(), wanted, strict=False):
            if seen.key.rstrip(b"\0") != key:
                raise Wrong(f"{self.surface}: {seen.key!r} where {key!r} is due")
            self.one(opened_view, seen, value, f"{key!r} of {txnid}")

    def keys(self, opened_view: Any, txnid: int) -> None:
        for _ in range(20):
            i = self.rng.randrange(world.RECORDS_MAX)
            wanted = world.expected(txnid, i)
            found = list(opened_view.find(world.record_key(i)))
            if (wanted is None) != (not found):
                raise Wrong(f"{self.surface}: {len(found)} records of {i} in {txnid}")
            for seen in found:
                self.one(opened_view, seen, wanted, f"{i} of {txnid}")

    def spread(self, opened_view: Any, txnid: int) -> None:
        known = dict(main_items(txnid, 0))
        for seen in opened_view.spread(sorted(self.rng.random() for _ in range(10))):
            if (key := seen.key.rstrip(b"\0")) not in known:
                raise Wrong(f"{self.surface}: {key!r} in {txnid}")
            self.one(opened_view, seen, known[key], f"{key!r} of {txnid}")

    def numbers(self, opened_view: Any, txnid: int) -> None:
        number = self.rng.randrange(world.entries(txnid))
        self.one(
            opened_view, opened_view.at(number), indexed(txnid, number), f"{number} of {txnid}"
        )


# --- all of them -------------------------------------------------------------------------


class Drawn(abc.ABC):
    """One thread's sessions, drawn by chance, and what became of them.

    Attributes:
        counts: of each surface.
        breaches: what was wrong, the first ones.
    """

    folder: Path
    rng: random.Random
    progress: Progress

    def __init__(self) -> None:
        self.counts: dict[str, Count] = {}
        self.breaches: list[str] = []

    def count_of(self, surface: str) -> Count:
        return self.counts.setdefault(surface, Count())

    @abc.abstractmethod
    def draw(self) -> tuple[str, Callable[[], None]]:
        """Return a session, and the surface that it is of."""

    def turn(self) -> None:
        """One session."""
        surface, work = self.draw()
        try:
            work()
        except Wrong as error:
            self.count_of(surface).wrong += 1
            self._breach(str(error))
        except Exception as error:
            if is_documented(error):
                self.count_of(surface).errors[shape(error)] += 1
            else:
                self._breach(f"{surface}: {''.join(traceback.format_exception(error)[-12:])}")

    def _breach(self, text: str) -> None:
        if len(self.breaches) < BREACHES_MAX:
            self.breaches.append(text)

    def close(self) -> None:
        """Close what is open."""
        return


class Reading(Drawn):
    """One thread's reads.

    Args:
        folder: of the environment.
        mine: a folder for this thread's provenance files.
        engines: those that this machine has.
    """

    def __init__(self, folder: Path, mine: Path, seed: int, engines: tuple[str, ...]) -> None:
        super().__init__()
        self.folder, self.rng, self.progress = folder, random.Random(seed), Progress(folder)
        self._sidecar, self._engines = mine / "data.prov", engines
        self._envs: dict[tuple[bool, str], Any] = {}

    def engine(self, known: tuple[str, ...]) -> str:
        return self.rng.choice([name for name in known if name in self._engines])

    def draw(self) -> tuple[str, Callable[[], None]]:
        draw = self.rng.random()
        ways = (
            *((0.52, self._transaction), (0.76, self._records), (0.88, self._reader)),
            (0.94, self._glance),
        )
        return next((way for below, way in ways if draw < below), self._convert)()

    def _transaction(self) -> tuple[str, Callable[[], None]]:
        lock, engine = self.rng.random() < 0.5, self.engine(OPEN_ENGINES)
        lends = self.rng.random() < 0.3
        surface = f"open {'lock' if lock else 'no lock'} {engine}{' lent' if lends else ''}"

        def work() -> None:
            env = self._envs.get((lock, engine))
            if env is None or self.rng.random() < 0.02:
                if env is not None:
                    env.close()
                options = {"readonly": True, "lock": lock, "engine": engine, "max_dbs": 8}
                env = self._envs[lock, engine] = lmdbio.open(str(self.folder), **options)
            Transactions(self, surface).run(env, lock=lock, lends=lends)

        return surface, work

    def _records(self) -> tuple[str, Callable[[], None]]:
        engine = self.engine(RECORDS_ENGINES)
        surface = f"Records {engine}"
        options: dict[str, Any] = {
            "engine": engine,
            "locate": self.rng.choice(LOCATES),
            "provenance": self._sidecar,
        }
        session = Indexed(self, surface)
        if self.rng.random() < 0.15:
            return surface, lambda: session.extra(engine=engine, locate="scan")
        if options["locate"] == "provenance":
            return surface, lambda: self._converted(session, options)
        options["readahead"] = self.rng.choice((None, True, False))
        return surface, lambda: session.run(**options)

    def _converted(self, session: Indexed, options: dict[str, Any]) -> None:
        convert(self.folder, output=self._sidecar, form=self.rng.choice(FORMS), databases=[None])
        session.run(**options)

    def _reader(self) -> tuple[str, Callable[[], None]]:
        engine = self.engine(RECORDS_ENGINES)
        mode: Any = "auto"
        if engine != "auto":
            mode = lmdbio.Mode(locate="scan", engine=engine, block_iterations=0)
        surface = f"Reader {engine}"
        session = Batched(self, surface)
        return surface, lambda: session.run(mode=mode, provenance=self._sidecar)

    def _glance(self) -> tuple[str, Callable[[], None]]:
        return "glance", Glanced(self, "glance").run

    def _convert(self) -> tuple[str, Callable[[], None]]:
        form = self.rng.choice(FORMS)

        def work() -> None:
            report = convert(self.folder, output=self._sidecar, form=form, databases=[None])
            self.count_of(surface).sessions += 1
            if report.records < world.RECORDS // 2:
                raise Wrong(f"{surface}: only {report.records} records")

        surface = f"convert {form}"
        return surface, work

    def close(self) -> None:
        for env in self._envs.values():
            env.close()
