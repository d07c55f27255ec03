"""Ways in which a rank reads: py-lmdb in Caffe's pattern, ``lmdbio.Reader``, plain readers.

    way = make(task)
    way.open()        everything that is done once
    way.read(look)    the reading phase; ``look`` gets each record's bytes in a run that verifies
    way.close()

``account`` tells where the time went, in seconds of this rank:

    seek    finding records: walking over those of others, or looking up places
    io      waiting for bytes of one's own: copying out of a mapping, or a root's reads
    turn    a root waited for its turn, or for the cursor
    wait    the rank waited for its root
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import lmdb
import numpy as np

from benchmarks.cluster.others import KINDS, ByLoader
from benchmarks.cluster.task import Account, Look, Task
from lmdbio.bench import plain
from lmdbio.bench.layout import Layout, lay_out
from lmdbio.planning.mode import Mode
from lmdbio.planning.order import split_share
from lmdbio.reader.reader import Reader


class Way(Protocol):
    """One way to read."""

    account: Account

    def open(self) -> None: ...
    def read(self, look: Look | None) -> None: ...
    def close(self) -> None: ...


#: The thread of a root that reads (lmdbio/reader/root_thread.py).
FILLER = "lmdbio-root"


def begun_since(name: str) -> float:
    """When this process's thread of that name was started, by ``time.monotonic`` and at most a
    tick (10 ms) too early; 0.0 without such a thread.

    Source: proc(5), the field starttime of /proc/PID/task/TID/stat.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    for thread in threading.enumerate():
        if thread.name == name:
            try:
                text = Path(f"/proc/self/task/{thread.native_id}/stat").read_text("ascii")
            except OSError:  # it has ended
                return 0.0
            started = int(text.rpartition(")")[2].split()[19]) / ticks
            return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    return 0.0


# --- records -------------------------------------------------------------------------------


class CaffePattern:
    """py-lmdb as Caffe uses LMDB: every rank walks every record from the first, over those of
    other ranks, and copies its own. Circular.

    Source: Caffe's data layer (``Skip`` and ``Next``); one cursor for the whole run.
    """

    def __init__(self, task: Task) -> None:
        self.task, self.account = task, Account()

    def open(self) -> None:
        self.env = lmdb.open(self.task.path, readonly=True, lock=False)
        self.txn = self.env.begin(buffers=True)
        self.cursor = self.txn.cursor()
        self.count = self.txn.stat()["entries"]
        self.copy = bytearray()  # grows to the largest record

    def read(self, look: Look | None) -> None:
        task, cursor, account = self.task, self.cursor, self.account
        size, count = task.cell["batch"], task.cell["count"] or self.count
        cursor.first()
        place = 0
        for begin in range(0, count, size):
            share = split_share(min(size, count - begin), task.size, task.rank)
            first = begin + share.start
            begun = perf_counter()
            for _ in range(first - place):
                self._next()
            found = perf_counter()
            for _ in share:
                self._take(cursor.value(), look)
                self._next()
            done = perf_counter()
            place = first + len(share)
            account.seek_s += found - begun
            account.io_s += done - found
            places = np.arange(first, place, dtype=np.uint64)
            account.indices.append(places % np.uint64(self.count))
            task.step()

    def _next(self) -> None:
        if not self.cursor.next():
            self.cursor.first()

    def _take(self, value: Any, look: Look | None) -> None:
        size = len(value)
        if len(self.copy) < size:
            self.copy = bytearray(size)
        self.copy[:size] = value
        self.account.records += 1
        self.account.bytes += size
        if look is not None:
            look(memoryview(self.copy)[:size])

    def close(self) -> None:
        self.cursor.close()
        self.txn.abort()
        self.env.close()


class ByReader:
    """``lmdbio.Reader`` in one of its modes."""

    def __init__(self, task: Task) -> None:
        self.task, self.account = task, Account()

    def open(self) -> None:
        task = self.task
        fields = ("tokens", "engine", "block_iterations", "phases")
        other = {name: task.lane[name] for name in fields if task.lane[name]}
        mode = task.lane["mode"]
        if other:
            mode = replace(Mode.named(mode), **other)
        self.reader = Reader(
            task.path,
            task.cell["batch"],
            comm=task.comm,
            mode=mode,
            assignment=task.lane["assignment"] or task.cell["assignment"],
            shuffle=task.lane["shuffle"] or None,
            seed=task.cell["seed"] + task.lane["seed"],
            cache=task.lane["cache"] or None,
            epochs=task.cell["epochs"],
            ranks_per_node=task.ranks_per_node,
            **task.options,
        )
        self.account.read_since = begun_since(FILLER)

    def read(self, look: Look | None) -> None:
        account, step, asked = self.account, self.task.step, perf_counter()
        begun, epoch, shown = asked, 0, 0.0
        for batch in self.reader:
            waited = perf_counter() - asked
            used = self.reader.schedule.place_after(self.reader.iteration)
            if used > (epoch + 1) * self.reader.count:
                account.epochs.append((asked - begun, shown))
                epoch += 1
            shown += waited
            account.waited(waited)
            account.records += len(batch)
            account.bytes += int(batch.lengths.sum())
            account.indices.append(batch.indices)
            if look is not None:
                for i in range(len(batch)):
                    look(batch[i])
            step()
            asked = perf_counter()
        account.epochs.append((asked - begun, shown))

    def close(self) -> None:
        self.reader.close()
        stats, account = self.reader.stats(), self.account
        account.reads = stats.window_bytes > 0 or stats.blocks > 0
        account.mode = asdict(self.reader.mode)
        account.kept = self.reader.caching.text
        account.stats = asdict(stats)
        account.sources = {str(epoch): by for epoch, by in self.reader.sources().items()}
        account.seek_s = stats.locate_seconds
        account.io_s = stats.fill_seconds
        account.turn_s = stats.turn_seconds
        account.wait_s = stats.wait_seconds


# --- bytes ---------------------------------------------------------------------------------


class Plain:
    """Bytes of the file as IOR reads them: by some processes of each node, each with one or
    several requests in flight."""

    def __init__(self, task: Task) -> None:
        self.task, self.account = task, Account()
        self.file = str(Path(task.path) / "data.mdb")

    def open(self) -> None:
        task, lane = self.task, self.task.lane
        each = lane["processes"] or task.ranks_per_node
        node, local = divmod(task.rank, task.ranks_per_node)
        self.account.reads = local < each
        layout = self.layout(each * (task.size // task.ranks_per_node))
        offsets = layout.offsets(node * each + local) if self.account.reads else ()
        self.run = self.prepare(offsets)

    def prepare(self, offsets: Iterable[int]) -> Callable[[], tuple[int, int]]:
        """Return what reads these requests, and gives their number and bytes."""
        lane = self.task.lane
        return plain.reading(
            offsets, lane["transfer"], self.file, direct=lane["direct"], depth=lane["depth"]
        )

    def layout(self, processes: int) -> Layout:
        """Return what all processes read."""
        lane, size = self.task.lane, Path(self.file).stat().st_size
        made = lay_out(
            lane["access"],
            lane["transfer"],
            wanted_bytes=min(self.task.bytes_max, size),
            file_bytes=size,
            share_bytes=lane["transfer"],
            processes=processes,
        )
        if made is None:
            raise ValueError(f"{processes} processes cannot share {self.task.bytes_max} bytes")
        return made

    def read(self, look: Look | None) -> None:
        if self.account.reads:
            begun = perf_counter()
            self.account.records, self.account.bytes = self.run()
            self.account.io_s = perf_counter() - begun

    def close(self) -> None:
        pass


class Mapped(Plain):
    """Bytes of the file, copied out of a mapping block by block."""

    def prepare(self, offsets: Iterable[int]) -> Callable[[], tuple[int, int]]:
        size = self.task.lane["transfer"]
        places, target = list(offsets), bytearray(size)

        def copy() -> tuple[int, int]:
            with Path(self.file).open("rb") as file:
                with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                    with memoryview(mapped) as source:
                        for place in places:
                            target[:] = source[place : place + size]
            return len(places), size * len(places)

        return copy


WAYS: dict[str, Callable[[Task], Way]] = {
    "py-lmdb": CaffePattern,
    "reader": ByReader,
    "plain": Plain,
    "mapped": Mapped,
    **dict.fromkeys(KINDS, ByLoader),
}


def make(task: Task) -> Way:
    """The way that a lane says."""
    return WAYS[task.lane["kind"]](task)
