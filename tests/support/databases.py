"""Databases for the tests, all written by py-lmdb, each in a few milliseconds.

``CASES`` names every shape of database that the readers must get right; ``build`` writes one
of them in either data format. Content is a pure function of the case, so that a failure can
be repeated from the name of the test alone.

Lengths follow the format: a node of 8 + key + value bytes above ``node_bytes_max`` (2038 in
format v1, 2034 in v3, at 4 KiB pages) sends its value to overflow pages; ``n`` overflow
pages hold ``n * page - header`` bytes.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb

PAGE_BYTES = 4096
HEADER_BYTES = {1: 16, 3: 24}
FORMATS = (1, 3)

Record = tuple[bytes, bytes]


def node_bytes_max(version: int, page_bytes: int = PAGE_BYTES) -> int:
    """The largest node that stays in a leaf page (``me_nodemax``)."""
    return ((page_bytes - HEADER_BYTES[version]) // 2 & ~1) - 2


def value(seed: object, length: int) -> bytes:
    """``length`` bytes that depend on ``seed`` alone."""
    text = f"{seed}/{length}"
    if length > 1024:
        return random.Random(text).randbytes(length)
    # To seed a Random takes longer than to make so few bytes, and most of what many tests did.
    return hashlib.shake_128(text.encode()).digest(length)


def open_writable(path: Path, version: int, **kwargs: Any) -> lmdb.Environment:
    """Opens ``path`` with py-lmdb for writing, in data format ``version`` (1 or 3)."""
    kwargs.setdefault("map_size", 1 << 28)
    kwargs.setdefault("max_dbs", 8)
    kwargs.setdefault("sync", False)
    if version == 3:
        kwargs["lib_version"] = 1
    return lmdb.open(str(path), **kwargs)


def overwrite(file: Path, content: bytes | bytearray) -> None:
    """Writes as many bytes as there are in place: what is cut to nothing before it is written, as
    ``write_bytes`` does, ext4 brings to the disk when it is closed."""
    with file.open("r+b", buffering=0) as there:
        assert there.write(content) == os.fstat(there.fileno()).st_size


def write(
    env: lmdb.Environment,
    records: Iterable[Record],
    *,
    commit_every: int = 100,
    db: Any = None,
    **put: Any,
) -> None:
    """Puts ``records`` with a commit every ``commit_every`` puts, as Caffe's converter does."""
    txn = env.begin(write=True)
    try:
        for number, (key, data) in enumerate(records, 1):
            txn.put(key, data, db=db, **put)
            if number % commit_every == 0:
                txn.commit()
                txn = env.begin(write=True)
        txn.commit()
    except BaseException:
        txn.abort()
        raise


def keys(count: int, tail: str = "") -> Iterator[bytes]:
    """Caffe's keys: ``00000042`` and a tail."""
    return (b"%08d%s" % (i, tail.encode()) for i in range(count))


def records(count: int, lengths: Callable[[int], int], tail: str = "") -> list[Record]:
    return [(key, value(key, lengths(i))) for i, key in enumerate(keys(count, tail))]


def threshold_lengths(version: int, key_bytes: int = 8) -> list[int]:
    """Lengths on both sides of everything where LMDB changes its mind."""
    header = HEADER_BYTES[version]
    inline = node_bytes_max(version) - 8 - key_bytes
    around = [0, inline, PAGE_BYTES // 2, PAGE_BYTES]
    around += [n * PAGE_BYTES - header for n in (1, 2, 3, 4, 16, 17)]
    return sorted({n + d for n in around for d in (-2, -1, 0, 1, 2) if n + d >= 0})


# --- the cases ---------------------------------------------------------------------------


def _empty(env: lmdb.Environment, version: int) -> None:
    del env, version


def _one(env: lmdb.Environment, version: int) -> None:
    del version
    write(env, [(b"only", b"record")])


def _one_large(env: lmdb.Environment, version: int) -> None:
    del version
    write(env, [(b"only", value("large", 300_000))])


def _inline(env: lmdb.Environment, version: int) -> None:
    del version
    write(env, records(1500, lambda i: i % 200))


def _overflow(env: lmdb.Environment, version: int) -> None:
    del version
    write(env, records(400, lambda _: 3084, "_frog.jpg"))


def _mixed(env: lmdb.Environment, version: int) -> None:
    del version
    draw = random.Random(1)
    write(env, records(300, lambda _: draw.choice((0, 10, 1900, 2100, 9000, 20_000))))


def _thresholds(env: lmdb.Environment, version: int) -> None:
    lengths = threshold_lengths(version)
    write(env, records(len(lengths), lengths.__getitem__))


def _key_lengths(env: lmdb.Environment, version: int) -> None:
    """Keys of 1..511 bytes, odd and even (format v3 pads), inline and overflow values."""
    del version
    write(env, [(value(n, n), value(("v", n), n * 7 % 2600)) for n in range(1, 512)])


def _deep(env: lmdb.Environment, version: int) -> None:
    """511-byte keys leave seven to a page: a tree of five levels."""
    del version
    write(env, [(b"%0511d" % i, b"%d" % i) for i in range(3000)], commit_every=1000)


def _random_order(env: lmdb.Environment, version: int) -> None:
    del version
    content = records(600, lambda i: 50 if i % 3 else 3000)
    random.Random(2).shuffle(content)
    write(env, content)


def _updated(env: lmdb.Environment, version: int) -> None:
    _random_order(env, version)
    draw = random.Random(3)
    for turn in range(4):
        chosen = draw.sample(range(600), 150)
        write(env, [(b"%08d" % i, value((turn, i), draw.randrange(6000))) for i in chosen])


def _deleted(env: lmdb.Environment, version: int) -> None:
    _updated(env, version)
    draw = random.Random(4)
    for _ in range(3):
        with env.begin(write=True) as txn:
            for i in draw.sample(range(600), 120):
                txn.delete(b"%08d" % i)


def _emptied(env: lmdb.Environment, version: int) -> None:
    _inline(env, version)
    with env.begin(write=True) as txn:
        for key in keys(1500):
            txn.delete(key)


def _named(env: lmdb.Environment, version: int) -> None:
    """Named databases beside plain records of the main one."""
    del version
    write(env, records(50, lambda i: i * 60))
    for name, length in ((b"alpha", 40), (b"beta", 5000), (b"empty", 0)):
        db = env.open_db(name)
        if name != b"empty":
            write(env, records(300, lambda i, n=length: n + i % 50), db=db)


def _integer_keys(env: lmdb.Environment, version: int) -> None:
    del version
    db = env.open_db(b"integers", integerkey=True)
    order = list(range(0, 70_000, 97))
    random.Random(5).shuffle(order)
    write(env, [(i.to_bytes(8, "little"), value(i, i % 300)) for i in order], db=db)


def _reverse_keys(env: lmdb.Environment, version: int) -> None:
    del version
    db = env.open_db(b"reverse", reverse_key=True)
    write(env, records(500, lambda i: i % 90), db=db)


def _duplicates(env: lmdb.Environment, version: int) -> None:
    """Sub-pages, sub-databases, single values, and their fixed-size kinds."""
    del version
    plain = env.open_db(b"dup", dupsort=True)
    fixed = env.open_db(b"dupfixed", dupsort=True, dupfixed=True)
    integers = env.open_db(
        b"integerdup", dupsort=True, dupfixed=True, integerdup=True, integerkey=True
    )
    for k, count in enumerate((1, 2, 3, 40, 1, 900, 5, 1, 300)):
        key = b"key%02d" % k
        varied = [(key, b"%05d" % i + b"x" * (i % 40)) for i in range(count)]
        write(env, varied, db=plain)
        write(env, [(key, b"%08d" % (i * 3)) for i in range(count)], db=fixed)
        write(
            env,
            [(k.to_bytes(8, "little"), (i * 300).to_bytes(4, "little")) for i in range(count)],
            db=integers,
        )


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of database.

    Attributes:
        name: of the shape.
        fill: writes it into an open environment, given the data format.
        databases: named databases that ``fill`` leaves (the main one always exists).
        duplicates: some of those hold duplicate keys.
        compact: rewrite the file with ``copy(compact=True)`` afterwards.
    """

    name: str
    fill: Callable[[lmdb.Environment, int], None]
    databases: tuple[bytes, ...] = ()
    duplicates: bool = False
    compact: bool = False


CASES = (
    Case("empty", _empty),
    Case("one", _one),
    Case("one_large", _one_large),
    Case("inline", _inline),
    Case("overflow", _overflow),
    Case("mixed", _mixed),
    Case("thresholds", _thresholds),
    Case("key_lengths", _key_lengths),
    Case("deep", _deep),
    Case("random_order", _random_order),
    Case("updated", _updated),
    Case("deleted", _deleted),
    Case("emptied", _emptied),
    Case("compacted", _deleted, compact=True),
    Case("named", _named, (b"alpha", b"beta", b"empty")),
    Case("integer_keys", _integer_keys, (b"integers",)),
    Case("reverse_keys", _reverse_keys, (b"reverse",)),
    Case(
        "duplicates",
        _duplicates,
        (b"dup", b"dupfixed", b"integerdup"),
        duplicates=True,
    ),
)


def build(case: Case, folder: Path, version: int) -> Path:
    """Writes ``case`` in data format ``version`` below ``folder``; returns the environment."""
    path = folder / f"{case.name}-v{version}"
    env = open_writable(path, version)
    try:
        case.fill(env, version)
        if not case.compact:
            return path
        compacted = folder / f"{case.name}-v{version}-compact"
        compacted.mkdir()
        env.copy(str(compacted), compact=True)
        return compacted
    finally:
        env.close()


def content(path: Path, db: bytes | None = None) -> list[Record]:
    """Every record of a database, in key order, as py-lmdb reads it."""
    with lmdb.open(str(path), readonly=True, lock=False, max_dbs=8) as env:
        handle = None if db is None else env.open_db(db, create=False)
        with env.begin(db=handle) as txn:
            return list(txn.cursor())


def scanning(cursor: Any) -> Any:
    """Return a cursor's iterator that reads ahead as if it had had to wait for the storage."""
    iterator = iter(cursor)
    iterator._has_waited = True
    return iterator
