"""The writer of the soak: commits, updates, deletes, grows, aborts, makes and drops databases.

    python writer.py FOLDER FORMAT SEED [small]

Transaction T leaves what ``world`` says of it. Before each commit its number goes into the file
``progress`` as the one that may be seen from now on, and after it as the one that must be. Ends
when its standard input does, and then says how many it has committed. ``small``: it commits to the
environment of ``small.py`` instead, as fast as it can.
"""

from __future__ import annotations

import contextlib
import mmap
import random
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import small
import world

#: Of the address space, which is all that it costs.
MAP_BYTES = 8 << 30
#: Bytes of the file that end a run: readers that hold slots make it grow.
FILE_BYTES_MAX = 2 << 30
#: One transaction in so many is aborted first, after it has written nonsense.
ABORT_OF = 23
COUNTS = struct.Struct("<QQ")


class Progress:
    """The transactions so far: the last that has returned, the last that was begun."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        path = folder / "progress"
        if create:
            path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def begin(self, txnid: int) -> None:
        self._map[8:16] = txnid.to_bytes(8, "little")

    def end(self, txnid: int) -> None:
        self._map[:8] = txnid.to_bytes(8, "little")

    @property
    def committed(self) -> int:
        """The least that a snapshot taken from now on may be of."""
        return int(COUNTS.unpack_from(self._map)[0])

    @property
    def begun(self) -> int:
        """The most that a snapshot taken up to now may be of."""
        return int(COUNTS.unpack_from(self._map)[1])


def open_world(folder: Path, version: int) -> Any:
    more = {"lib_version": 1} if version == 3 else {}
    return lmdb.open(
        str(folder), map_size=MAP_BYTES, max_dbs=200, sync=False, metasync=False, **more
    )


def abort(env: Any, rng: random.Random) -> None:
    """A transaction of nonsense, large enough at times to be written early, that never was."""
    with contextlib.suppress(KeyError):
        with env.begin(write=True) as txn:
            for i in rng.sample(range(world.RECORDS_MAX), rng.choice((1, 20, 300))):
                txn.put(world.record_key(i), b"never committed " * rng.choice((2, 200, 2000)))
            raise KeyError


def change(env: Any, txn: Any, txnid: int) -> None:
    """Do what one transaction does."""
    touched = world.last_touch(txnid)
    there = world.is_there(touched)
    txn.put(world.STAMP, world.stamp(txnid))
    for i in np.flatnonzero(touched == txnid).tolist():
        key = world.record_key(i)
        if there[i]:
            txn.put(key, world.value(b"main", i, txnid))
        else:
            txn.delete(key)
    for k in range(world.EXTRAS):
        touch_extra(env, txn, k, txnid)


def commit(env: Any, txnid: int) -> None:
    with env.begin(write=True) as txn:
        assert txn.id() == txnid
        change(env, txn, txnid)


def touch_extra(env: Any, txn: Any, k: int, txnid: int) -> None:
    since, before = world.extra_since(k, txnid), world.extra_since(k, txnid - 1)
    if not since and not before:
        return
    db = env.open_db(world.extra_name(k), txn=txn, create=not before)
    if not since:
        txn.drop(db)
        return
    first = since == txnid
    for j in range(world.EXTRA_RECORDS) if first else [txnid % world.EXTRA_RECORDS]:
        txn.put(world.record_key(j), world.extra_value(k, j, txnid), db=db)


def read_whole(folder: Path, version: int, txnid: int) -> None:
    """Proves by py-lmdb that the database is what ``world`` says."""
    with open_world(folder, version) as env, env.begin() as txn:
        assert txn.id() == txnid
        items = dict(txn.cursor())
        assert len(items) == world.entries(txnid)
        assert items.pop(world.STAMP) == world.stamp(txnid)
        for i in range(world.RECORDS_MAX):
            assert items.pop(world.record_key(i), None) == world.expected(txnid, i), i
        extras = {world.extra_name(k) for k in world.extras_there(txnid)}
        assert {name.rstrip(b"\0") for name in items} == extras


def until_told() -> threading.Event:
    """Return an event that comes when standard input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    return ended


def refuse_growth(env: Any) -> None:
    if env.info()["last_pgno"] * 4096 > FILE_BYTES_MAX:
        raise SystemExit(f"the file has grown beyond {FILE_BYTES_MAX} bytes")


def run(folder: Path, version: int, seed: int) -> int:
    """Writes until standard input ends; how many were committed."""
    rng, progress, txnid = random.Random(seed), Progress(folder, create=True), 0
    ended = until_told()
    with open_world(folder, version) as env:
        while not ended.is_set():
            # Storms, in which nobody without a slot can read for long, and calmer times.
            pause = rng.choice((0.0, 0.0005, 0.003, 0.02, 0.1))
            for _ in range(rng.randrange(1, 60 if pause < 0.01 else 8)):
                if txnid % ABORT_OF == 0:
                    abort(env, rng)
                txnid += 1
                progress.begin(txnid)
                commit(env, txnid)
                progress.end(txnid)
                if txnid == 1:
                    print("ready", flush=True)
                if pause:
                    time.sleep(pause)
            refuse_growth(env)
    read_whole(folder, version, txnid)
    return txnid


def run_small(folder: Path, version: int) -> int:
    """Writes the small environment without a pause, until standard input ends."""
    progress, txnid, ended = Progress(folder, create=True), 0, until_told()
    with open_world(folder, version) as env:
        while not ended.is_set():
            txnid += 1
            progress.begin(txnid)
            small.commit(env, txnid)
            progress.end(txnid)
            if txnid % 1000 == 0:
                refuse_growth(env)
        for name in small.NAMES:
            with env.begin(db=env.open_db(name, create=False)) as txn:
                assert list(txn.cursor()) == small.items(name, txnid), name
    return txnid


if __name__ == "__main__":
    folder, version = Path(sys.argv[1]), int(sys.argv[2])
    is_small = sys.argv[4:] == ["small"]
    count = run_small(folder, version) if is_small else run(folder, version, int(sys.argv[3]))
    print(f"committed {count}", flush=True)
