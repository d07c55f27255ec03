"""Databases that were only put to, made by py-lmdb in random ways, and how each was made."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Extents, Meta
from lmdbio.locate.open import open_record_index
from tests.support import databases

#: Value sizes around every limit: inline, the largest inline, one overflow page, several.
SIZES = (0, 1, 10, 100, 700, 1900, 2030, 2040, 3000, 9000, 20_000)
COUNTS = (1, 3, 10, 100, 500, 2000, 5000)
COMMITS = (1, 3, 10, 100, 1000, 10**6)
PAGE_BYTES = 4096  # py-lmdb's own, which it takes from the system
#: What is written at most, so that a thousand of them take minutes.
BYTES_MAX = 24 << 20


@dataclass(frozen=True, slots=True)
class Made:
    """A database as it was made, and as it is.

    Attributes:
        history: commits, sizes and names; the arrays are those of ``_core.replay``.
        expected: where its records are.
        meta, db: its meta page, and the record of the database with the records.
        told: how it was made, for messages.
    """

    history: _core.History
    key_sizes: npt.NDArray[np.uint16]
    lengths: npt.NDArray[np.uint64]
    order: npt.NDArray[np.uint32]
    expected: Extents
    meta: Meta
    db: _core.Database
    told: str

    def replay(self, history: _core.History | None = None, **more: object) -> _core.Replayed:
        arrays = {"key_sizes": self.key_sizes, "lengths": self.lengths, "order": self.order}
        return _core.replay(history or self.history, **(arrays | more))  # type: ignore[arg-type]


def keys_of(rng: random.Random, count: int) -> tuple[str, list[bytes]]:
    """Keys in the order in which a program would make them."""
    kind = rng.choice(("decimal", "str", "varying"))
    if kind == "decimal":
        width = rng.choice((4, 8, 9, 20, 100))
        return f"{width} digits", [b"%0*d" % (width, i) for i in range(count)]
    if kind == "str":
        return "str(i)", [b"%d" % i for i in range(count)]
    return kind, [b"%06d" % i + b"x" * rng.randint(0, 60) for i in range(count)]


def lengths_of(rng: random.Random, count: int) -> npt.NDArray[np.uint64]:
    size = rng.choice(SIZES)
    if rng.random() < 0.4:
        return np.full(count, size, np.uint64)
    draws = (lambda: size, lambda: rng.randint(0, 2 * size + 1), lambda: rng.randint(0, 5000))
    return np.array([rng.choice(draws)() for _ in range(count)], np.uint64)


def make(rng: random.Random, folder: Path, version: int) -> Made:
    """Writes a database into ``folder``, which does not exist yet."""
    lengths = lengths_of(rng, rng.randint(1, rng.choice(COUNTS)))
    total = np.cumsum(lengths)
    lengths = lengths[: max(1, int(np.searchsorted(total, BYTES_MAX)))]
    count, commit_every = len(lengths), rng.choice(COMMITS)
    kind, keys = keys_of(rng, count)
    ranks = {key: rank for rank, key in enumerate(sorted(keys))}
    way = rng.choice(("sorted", "sorted", "append", "as made", "shuffled", "falling"))
    if way == "shuffled":
        rng.shuffle(keys)
    elif way != "as made":
        keys.sort(reverse=way == "falling")
    name = rng.choice((None, None, b"db", b"a-much-longer-name"))
    apart = name is not None and rng.random() < 0.5
    env = databases.open_writable(folder, version, max_dbs=2 if name or rng.random() < 0.3 else 0)
    db = env.open_db(name) if apart else None
    for first in range(0, count, commit_every):
        with env.begin(write=True) as txn:
            if name is not None and db is None:
                db = env.open_db(name, txn=txn)
            part = [(k, bytes(int(lengths[ranks[k]]))) for k in keys[first : first + commit_every]]
            txn.cursor(db).putmulti(part, append=way == "append")
    env.close()
    with open_record_index(folder, db=name, locate="scan") as source:
        expected, meta = source.run(0, count).copy(), source.meta
        found = meta.main_db
        if name is not None:
            with _core.Engine(source.path) as engine:
                found = _core.find_database(engine, meta, name)
    return Made(
        history=_core.History(
            version=version,
            page_size=meta.layout.page_size,
            count=count,
            commit_every=commit_every,
            append=way == "append",
            named=name is not None,
            apart=apart,
        ),
        key_sizes=np.array([len(key) for key in sorted(keys)], np.uint16),
        lengths=lengths,
        order=np.array([ranks[key] for key in keys], np.uint32),
        expected=expected,
        meta=meta,
        db=found,
        told=f"{count} records, {kind}, {way}, commits of {commit_every}, name {name!r}"
        f"{' apart' if apart else ''}, format {version}",
    )


def shape(db: _core.Database) -> tuple[int, ...]:
    """Return what a replay tells of a database."""
    return db.depth, db.branch_pages, db.leaf_pages, db.overflow_pages, db.entries, db.root


def differences(made: Made) -> list[str]:
    """Return what a replay of its history has otherwise than the file; it should be nothing."""
    replayed = made.replay()
    assert replayed.extents is not None
    found = []
    wrong = np.flatnonzero(replayed.extents != made.expected)
    if len(wrong):
        at = wrong[0]
        here, there = replayed.extents[at], made.expected[at]
        found.append(f"{len(wrong)} records, the first {at}: {here}, not {there}")
    main, wanted = shape(replayed.main_db), shape(made.meta.main_db)
    for what, now, then in (
        ("database", shape(replayed.db), shape(made.db)),
        ("main database", main, wanted),
        ("free list", shape(replayed.free_db), shape(made.meta.free_db)),
        ("transaction", replayed.txnid, made.meta.txnid),
        ("last page", replayed.last_pgno, made.meta.last_pgno),
    ):
        if now != then:
            found.append(f"{what}: {now}, not {then}")
    return found
