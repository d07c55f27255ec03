"""Programs that use lmdbio, for a type checker: checked by ``make lint``, never run."""

from __future__ import annotations

from collections.abc import Iterator

import lmdb
from typing_extensions import assert_type

import lmdbio
import lmdbio.torch

env = lmdbio.open("folder", readonly=True, lock=False, max_dbs=2, engine="pread")
named = env.open_db(b"name", create=False)
assert_type(env.stat()["entries"], int)
assert_type(named.flags()["dupsort"], bool)

with env.begin(db=named) as txn, txn.cursor() as cursor:
    assert_type(txn.get(b"key"), bytes | None)
    assert_type(txn.get(b"key", b""), bytes)
    assert_type(cursor.item(), tuple[bytes, bytes])
    assert_type(next(iter(cursor)), tuple[bytes, bytes])
    assert_type(cursor.iternext(), Iterator[tuple[bytes, bytes]])
    assert_type(cursor.iternext(values=False), Iterator[bytes])
    assert_type(cursor.iterprev(False), Iterator[bytes])
    assert_type(cursor.iternext_dup(), Iterator[bytes])
    assert_type(cursor.iterprev_dup(True), Iterator[tuple[bytes, bytes]])
    assert_type(cursor.iternext_nodup(), Iterator[bytes])
    assert_type(cursor.iterprev_nodup(values=True), Iterator[tuple[bytes, bytes]])
    assert_type(cursor.getmulti([b"a", b"b"]), list[tuple[bytes, bytes]])
    assert_type(cursor.getmulti([b"a"], values=False), list[bytes])
    assert_type(cursor.getmulti([b"a"], dupdata=True, dupfixed_bytes=8, keyfixed=True), memoryview)

with env.begin(buffers=True) as lent:
    assert_type(lent.get(b"key"), memoryview | None)
    assert_type(lent.cursor().value(), memoryview)

with lmdbio.open("folder", map_size=1 << 30) as writable, writable.begin(write=True) as writing:
    assert_type(writing.put(b"key", b"value"), bool)
    assert_type(writing.pop(b"key"), bytes | None)

try:
    env.begin(write=True)
except lmdb.ReadonlyError as error:
    refused: lmdbio.Error = error

records = lmdbio.Records("folder")
assert_type(records[0], bytes)
assert_type(records[0:2], list[bytes])
assert_type(records.read([0, 1]), lmdbio.Batch)
assert_type(next(records.batches([[0, 1]])), lmdbio.Batch)
assert_type(next(records.values([0, 1])), bytes)
train, val = records[[0, 1, 2]].split([0.5, 0.5])
assert_type(len(lmdbio.Mix({"train": train, "val": val}, weights={"train": 3, "val": 1})), int)

lmdbio.torch.Loader("folder", 32, shuffle=True, db="train", readahead=False, memory_bytes_max="1G")
lmdbio.torch.Loader("folder", comm=False, slots=4, cache="memory=1G")
lmdbio.torch.Dataset("folder", readahed=False)  # type: ignore[call-arg]
lmdbio.torch.IterableDataset("folder", 32, depth="8")  # type: ignore[arg-type]
