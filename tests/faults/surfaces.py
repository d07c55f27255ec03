"""The ways in which users read, each as one use of some milliseconds.

A use opens, reads, compares and closes; where objects outlive a failure it goes on with them.
"""

from __future__ import annotations

import contextlib
import os
import random
import warnings
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from cell import Cell
from oracle import Oracle

import lmdbio
from lmdbio.convert.convert import convert
from lmdbio.convert.on_close import collect
from lmdbio.convert.verify import verify
from lmdbio.dropin import iterator
from lmdbio.locate.view import Seen, viewing

Use = Callable[[Cell, Oracle, random.Random], None]

ENGINES = ("auto", "auto", "direct", "mmap", "pread", "uring", "uring")


def _engine(cell: Cell, rng: random.Random) -> str:
    """A way of reading: not mmap, which dies of a cut file; not O_DIRECT where it is refused."""
    if cell.kind.name.startswith(("O_DIRECT", "file cut")):
        return "auto"
    return rng.choice(ENGINES)


@contextlib.contextmanager
def _environment(cell: Cell, oracle: Oracle, rng: random.Random, engine: str) -> Any:
    def begin() -> Any:
        env = lmdbio.open(str(oracle.path), readonly=True, lock=lock, engine=engine)
        return env, env.begin(buffers=buffers)

    lock, buffers = rng.random() < 0.5, rng.random() < 0.3
    env, txn = cell.attempt(begin)
    with env, txn:
        yield txn


def gets(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """Single gets, of keys that are there and of some that are not."""
    with _environment(cell, oracle, rng, _engine(cell, rng)) as txn:
        for key, value in rng.choices(oracle.items, k=30):
            cell.equal(cell.attempt(lambda key=key: txn.get(key)), value, f"get {key!r}")
            missing = key + b"!"
            found = cell.attempt(lambda missing=missing: txn.get(missing))
            cell.equal(found, None, f"get {missing!r}")


def cursors(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """A cursor that is moved about, step by step in both directions."""
    items = oracle.items
    with _environment(cell, oracle, rng, _engine(cell, rng)) as txn:
        with cell.attempt(txn.cursor) as cursor:
            for _ in range(4):
                at = rng.randrange(80, len(items) - 40)
                key = items[at][0]
                cell.equal(cell.attempt(lambda key=key: cursor.set_range(key)), True, "set_range")
                for step in range(rng.randrange(30)):
                    cell.attempt(cursor.next)
                    at += 1
                    if step % 5 == 0:
                        cell.equal(cell.attempt(cursor.item), items[at], f"next to {at}")
                for _ in range(rng.randrange(60)):
                    cell.attempt(cursor.prev)
                    at -= 1
                cell.equal(cell.attempt(cursor.item), items[at], f"prev to {at}")
            cell.equal(cell.attempt(cursor.last), True, "last")
            cell.equal(cell.attempt(cursor.item), items[-1], "the last item")


def _iterate(cell: Cell, oracle: Oracle, rng: random.Random, engine: str, start: int) -> None:
    """Iterate over all records from ``start`` on; those before a failure count."""
    keys = rng.random() < 0.8
    with _environment(cell, oracle, rng, engine) as txn:
        with cell.attempt(txn.cursor) as cursor:
            if start:
                cell.attempt(lambda: cursor.set_key(oracle.items[start][0]))
            records = cell.attempt(lambda: cursor.iternext(keys=keys))
            at = start
            for key, value in oracle.items[start:]:
                got = cell.attempt(lambda: next(records))
                cell.equal(got, (key, value) if keys else value, f"iteration, record {at}")
                at += 1
            cell.equal(cell.attempt(lambda: next(records, None)), None, "the end")


def iterates(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """Cursor iteration, short and long."""
    start = rng.choice((0, rng.randrange(len(oracle.items)), len(oracle.items) - 12))
    _iterate(cell, oracle, rng, _engine(cell, rng), start)


def iterates_past(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """Cursor iteration past the page cache, from which the file is put out: else it is copied.

    Nor has that room for it: else it would be swept there, for it is small.
    """
    armed = cell.armed
    cell.disarm()  # these calls are ours, and nothing is to strike them
    with (Path(oracle.path) / "data.mdb").open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if armed:
        cell.arm()
    with mock.patch.object(iterator, "cached_bytes_max", lambda: 0):
        _iterate(cell, oracle, rng, "auto", 0)


def _records(cell: Cell, oracle: Oracle, **options: Any) -> lmdbio.Records:
    return cell.attempt(lambda: lmdbio.Records(oracle.path, **options))


def indexes(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """``Records``: single records, slices, small batches."""
    values = [value for _, value in oracle.items]
    locate = rng.choice(("auto", "scan"))
    with _records(cell, oracle, engine=_engine(cell, rng), locate=locate) as records:
        for _ in range(8):
            i = rng.randrange(-len(values), len(values))
            cell.equal(cell.attempt(lambda i=i: records[i]), values[i], f"record {i}")
            a, b = sorted(rng.choices(range(len(values)), k=2))
            step = rng.choice((1, 1, 3, -1))
            cut = slice(a, min(b, a + 60), step)
            cell.equal(cell.attempt(lambda cut=cut: records[cut]), values[cut], f"{cut}")
            wanted = rng.choices(range(len(values)), k=20)
            batch = cell.attempt(lambda wanted=wanted: records.read(wanted))
            cell.equal([bytes(v) for v in batch], [values[w] for w in wanted], "a small batch")


def samples(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """``Records`` that look keys up, or read them all, to leave some out."""
    skip = [oracle.items[rng.randrange(len(oracle.items))][0], rng.choice((b"*7k*", b"none"))]
    left = [item for item in oracle.items if item[0] != skip[0] and b"7k" not in item[0]]
    if skip[1] == b"none":
        left = [item for item in oracle.items if item[0] != skip[0]]
    locate, layout = rng.choice(("auto", "scan")), rng.choice((None, "auto", "names"))
    with _records(cell, oracle, locate=locate, layout=layout, skip=skip) as records:
        cell.equal(len(records), len(left), "the number of samples")
        for at in rng.choices(range(len(left)), k=10):
            cell.equal(cell.attempt(lambda at=at: records[at]), left[at][1], f"sample {at}")
            cell.equal(cell.attempt(lambda at=at: records.key(at)), left[at][0], f"key {at}")


def records_iterates(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """``Records``: iteration, past the page cache too."""
    values = [value for _, value in oracle.items]

    def all_of() -> int:
        at = 0
        for value in records:
            cell.equal(value, values[at], f"iteration, record {at}")
            at += 1
        return at

    engine = "auto" if rng.random() < 0.7 else _engine(cell, rng)
    with _records(cell, oracle, engine=engine, readahead=False) as records:
        for _ in range(2):
            cell.equal(cell.attempt(all_of), len(values), "the number of records")


def batches(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """``Records.read`` of large batches, with the image behind it."""
    values = [value for _, value in oracle.items]
    room = rng.choice((1 << 28, 1 << 20))  # the image goes to memory, or to the page cache
    with _records(cell, oracle, memory_bytes_max=room) as records:
        for _ in range(8):
            wanted = rng.choices(range(len(values)), k=128)
            batch = cell.attempt(lambda wanted=wanted: records.read(wanted))
            cell.equal([bytes(v) for v in batch], [values[w] for w in wanted], "a batch")


def readers(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """``Reader``: one that failed says so again; a new one works."""
    values = [value for _, value in oracle.items]
    size, start = rng.choice((5, 32, 200)), rng.randrange(len(values))
    mode = "auto" if rng.random() < 0.7 else lmdbio.Mode(engine=rng.choice(("pread", "direct")))
    if cell.kind.name.startswith("O_DIRECT"):
        mode = "auto"
    reader = cell.attempt(
        lambda: lmdbio.Reader(
            oracle.path,
            size,
            start=start,
            iterations=10,
            mode=mode,
            assignment=rng.choice(("strided", "blocked")),
            slots=rng.choice((2, 3)),
            memory_bytes_max=1 << 28,
        )
    )
    try:
        seen = 0
        for t, batch in enumerate(reader):
            wanted = [(start + t * size + i) % len(values) for i in range(size)]
            seen += 1
            try:
                found = [bytes(v) for v in batch]
            except MemoryError as error:  # of this loop's own: the Reader goes on
                cell.note(error)
                cell.recovered += 1
                del batch
                continue
            cell.equal(found, [values[w] for w in wanted], f"iteration {t}")
            del batch, found
        cell.equal(seen, 10, "the number of iterations")
    except Exception as error:
        cell.note(error)
        del error
        try:
            next(reader)
            cell.breach("a Reader that failed gives a batch")
        except StopIteration:
            cell.breach("a Reader that failed ends in silence")
        except Exception as again:
            cell.note(again)
        cell.recovered += 1
    finally:
        reader.close()


def converts(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """``convert``: the same sidecar as without faults, or none, and no part of one."""
    del rng
    target = oracle.path / "new.prov"
    report = cell.attempt(lambda: convert(oracle.path, output=target))
    cell.equal(report.records, len(oracle.items), "the number of records")
    values = [value for _, value in oracle.items]
    with _records(cell, oracle, provenance=target, locate="provenance") as records:
        cell.equal(cell.attempt(lambda: records.read(range(40)))[7], values[7], "a record")
    target.unlink()
    left = [path.name for path in oracle.path.iterdir() if path.name.startswith(".lmdbio")]
    cell.equal(left, [], "drafts are left")


def collects(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """py-lmdb's closing leaves a provenance file of this state, and no part of one."""
    del rng
    target = oracle.path / "collected.prov"
    cell.attempt(lambda: collect(oracle.file, target))
    kept = target.stat().st_ino
    again = cell.attempt(lambda: collect(oracle.file, target))
    if again is None:  # faults may have hidden that it is sound
        cell.equal(target.stat().st_ino, kept, "the file, which was not to be written again")
    values = [value for _, value in oracle.items]
    with _records(cell, oracle, provenance=target, locate="provenance") as records:
        cell.equal(cell.attempt(lambda: records.read(range(40)))[7], values[7], "a record")
    target.unlink()
    left = [path.name for path in oracle.path.iterdir() if path.name.startswith(".lmdbio")]
    cell.equal(left, [], "drafts are left")


def verifies(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """``verify``, with and without the sidecar."""
    del rng
    report = cell.attempt(lambda: verify(oracle.path))
    cell.equal(report.records, len(oracle.items), "the number of records")
    size = sum(len(value) for _, value in oracle.items)
    cell.equal(report.record_bytes, size, "the bytes of records")


def views(cell: Cell, oracle: Oracle, rng: random.Random) -> None:
    """A look at a few records, as ``lmdbio ls`` and ``get`` take it: first, by key, spread."""
    with contextlib.ExitStack() as stack:
        view = cell.attempt(lambda: stack.enter_context(viewing(oracle.path)))

        def items(found: Iterable[Seen]) -> list[tuple[bytes, bytes]]:
            return [(seen.key, b"".join(view.pieces(seen))) for seen in found]

        first = cell.attempt(lambda: items(islice(view.records(), 10)))
        cell.equal(first, oracle.items[:10], "the first records")
        for key, value in rng.choices(oracle.items, k=5):
            found = cell.attempt(lambda key=key: items(view.find(key)))
            cell.equal(found, [(key, value)], f"find {key!r}")
        known = dict(oracle.items)
        spread = cell.attempt(lambda: items(view.spread([0.1, 0.5, 0.9])))
        cell.equal(spread, [(key, known[key]) for key, _ in spread], "spread records")
        number = rng.randrange(len(oracle.items))
        found = cell.attempt(lambda: items([view.at(number)]))
        cell.equal(found, [oracle.items[number]], f"record {number}")


#: name -> use, database, whether nothing shall look cached (so that reads may go past it).
SURFACES: dict[str, tuple[Use, str, bool]] = {
    "get": (gets, "small", False),
    "cursor": (cursors, "small", False),
    "iterate": (iterates, "small", False),
    "iterate past": (iterates_past, "big", True),
    "records": (indexes, "small", False),
    "samples": (samples, "small", False),
    "records iterate": (records_iterates, "big", True),
    "read": (batches, "big", True),
    "reader": (readers, "small", True),
    "reader past": (readers, "big", True),
    "convert": (converts, "small", False),
    "collect": (collects, "small", False),
    "verify": (verifies, "small", False),
    "glance": (views, "small", False),
}


def prepare(oracle: Oracle) -> list[Path]:
    """Makes the sidecar; the files that faults shall strike."""
    warnings.simplefilter("ignore")
    convert(oracle.path)
    assert np.array_equal(len(lmdbio.Records(oracle.path)), len(oracle.items))
    return [oracle.file, oracle.sidecar]
