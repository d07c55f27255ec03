"""The trials of ``lmdbio bench``: which records, read by whom, in which order. Pure.

Everybody reads the same records of the same file, or as many bytes of it. ``sequential`` gives
each process one contiguous part; ``strided`` is Caffe's order, in which process p takes its
share of each global batch; ``random`` takes batches of records from all over the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio.bench.layout import Layout, lay_out
from lmdbio.planning.order import split_share

__all__ = [
    "ACCESSES",
    "CONTESTANTS",
    "GROUPS",
    "Contestant",
    "Trial",
    "Workload",
    "choose",
    "make_trials",
    "page_bytes",
    "records_wanted",
]

ACCESSES = ("sequential", "strided", "random")
IN_ORDER = ("sequential", "strided")
#: Pages of memory and of the page cache; nothing less is read.
PAGE_BYTES = 4096

Indices = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Workload:
    """The records that everybody reads.

    Attributes:
        path: path of the environment, as given, or of a folder or a pattern of several.
        data_file: data file of the environment; of several the first one's.
        access: order of the reads: one of ACCESSES (see the module).
        processes: number of processes that read at the same time.
        batch: records of a batch, over all processes.
        count: records read, over all processes; whole batches.
        total: records of the data set.
        value_bytes: size of the records read, bytes.
        page_bytes: size of the pages that hold them, bytes: what the storage has to deliver.
        file_bytes: size of what the data set uses of its file, bytes.
        located_by: "provenance" or "scan".
        seed: seed of the random choice.
        db: a named database, "" for the main one.
        files: number of the data set's files.
    """

    path: str
    data_file: str
    access: str
    processes: int
    batch: int
    count: int
    total: int
    value_bytes: int = 0
    page_bytes: int = 0
    file_bytes: int = 0
    located_by: str = "scan"
    seed: int = 1
    db: str = ""
    files: int = 1

    @property
    def iterations(self) -> int:
        return self.count // self.batch

    @property
    def label(self) -> str:
        """The file in words, or the files."""
        return self.data_file if self.files == 1 else f"{self.path}: {self.files:,} files"

    @property
    def whole(self) -> bool:
        """No further batch is left."""
        return self.count + self.batch > self.total

    @property
    def batch_bytes(self) -> int:
        """Of the pages of one batch, on average."""
        return self.page_bytes * self.batch // self.count

    @property
    def record_bytes(self) -> int:
        """Whole pages for a record, on average: the request that fetches one."""
        return max(1, round(self.page_bytes / self.count / PAGE_BYTES)) * PAGE_BYTES

    def indices(self) -> Indices:
        """The records of all processes, batch after batch."""
        if self.access != "random":
            return np.arange(self.count, dtype=np.uint64)
        chosen = np.random.default_rng(self.seed).choice(self.total, self.count, replace=False)
        return chosen.astype(np.uint64)

    def batches(self, rank: int) -> list[Indices]:
        """Return what process ``rank`` reads, a batch at a time."""
        every = self.indices()
        if self.access == "sequential":
            own = split_share(self.count, self.processes, rank)
            every, share = every[own.start : own.stop], range(self.batch)
        else:
            share = split_share(self.batch, self.processes, rank)
        cut = (
            every[start + share.start : start + share.stop]
            for start in range(0, len(every), self.batch)
        )
        return [part for part in cut if len(part)]

    def runs(self, rank: int) -> list[range]:
        """The same as ranges of neighbouring records, for accesses in order."""
        joined: list[range] = []
        for part in self.batches(rank):
            start, stop = int(part[0]), int(part[-1]) + 1
            if joined and joined[-1].stop == start:
                joined[-1] = range(joined[-1].start, stop)
            else:
                joined.append(range(start, stop))
        return joined

    def layout(self, transfer: int) -> Layout | None:
        """Plain reads of as many bytes, None if such transfers are too large."""
        return lay_out(
            self.access,
            transfer,
            wanted_bytes=self.page_bytes,
            file_bytes=self.file_bytes,
            share_bytes=self.batch_bytes // self.processes,
            processes=self.processes,
            seed=self.seed,
        )


def records_wanted(total: int, file_bytes: int, batch: int, bytes_max: int) -> int:
    """How many records take about ``bytes_max`` bytes of the file; whole batches."""
    wanted = total * min(bytes_max, file_bytes) // file_bytes
    return min(max(1, -(-wanted // batch)), total // batch) * batch


def page_bytes(offsets: Indices, lengths: Indices) -> int:
    """Bytes of the file's pages that hold at least one byte of these extents."""
    held = lengths > 0
    first = (offsets[held] // PAGE_BYTES).astype(np.int64)
    last = ((offsets[held] + lengths[held] - np.uint64(1)) // PAGE_BYTES).astype(np.int64)
    order = np.argsort(first)
    first, last = first[order], last[order]
    before = np.concatenate(([-1], np.maximum.accumulate(last)[:-1])) if len(last) else last
    return int(np.maximum(last - np.maximum(first, before + 1) + 1, 0).sum()) * PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to read.

    Attributes:
        title: name in tables.
        kind: kind of loop: "lmdb", "open", "records", "slices", "read", "arrays", "batches",
            "reader"; or "plain", "fio", "ior", which read bytes rather than records.
        accesses: orders of reads that it can do.
        engine: engine of lmdbio; of the others "pread" or "direct".
        readahead: py-lmdb's keyword.
        buffers: argument of ``begin``: values are memoryviews. Then every byte is always looked
            at, since some views fetch nothing by themselves.
        depth: fio's requests in flight.
        queue: fio's engine for more than one of them.
    """

    title: str
    kind: str
    accesses: tuple[str, ...] = ACCESSES
    engine: str = "auto"
    readahead: bool = True
    buffers: bool = False
    depth: int = 1
    queue: str = "libaio"

    @property
    def family(self) -> str:
        """The family it stands for: "py-lmdb", "lmdbio", "plain", "fio" or "ior"."""
        return {"lmdb": "py-lmdb"}.get(self.kind, self.kind if self.raw else "lmdbio")

    @property
    def shade(self) -> str:
        """Its colour's name."""
        if self.depth == 1:
            return self.family
        deep = "" if self.depth == 8 else f"-{self.depth}"
        return f"{self.family}-{'uring' if self.queue == 'io_uring' else 'queue'}{deep}"

    @property
    def raw(self) -> bool:
        """Reads the file's bytes, with transfers of a given size; knows nothing of records."""
        return self.kind in ("plain", "fio", "ior")

    @property
    def arrays(self) -> bool:
        """Adds up the words of a batch, not the checksums of values: another sum."""
        return self.kind == "arrays"

    @property
    def direct(self) -> bool:
        return self.engine == "direct"


def _surfaces() -> dict[str, Contestant]:
    """Every surface of lmdbio with every engine that it takes."""
    surfaces = (
        ("open", "lmdbio.open", ACCESSES, ("pread", "direct", "mmap")),
        ("records", "Records, in order", IN_ORDER, ("pread", "direct", "staged", "mmap")),
        ("slices", "Records, slices", IN_ORDER, ("pread", "direct", "staged", "mmap")),
        ("read", "Records.read", ACCESSES, ("pread", "direct", "staged", "mmap")),
        ("arrays", "Records.read, as arrays", ACCESSES, ("pread", "mmap")),
        ("batches", "Records.batches", ACCESSES, ("pread", "direct", "staged")),
        ("reader", "Reader", IN_ORDER, ("pread", "direct", "staged")),
    )
    made = {}
    for name, title, accesses, engines in surfaces:
        made[name] = Contestant(title, name, accesses)
        for engine in engines:
            made[f"{name}-{engine}"] = Contestant(f"{title}, {engine}", name, accesses, engine)
    return made


CONTESTANTS: dict[str, Contestant] = {
    "lmdb": Contestant("py-lmdb", "lmdb"),
    "lmdb-noreadahead": Contestant("py-lmdb, no readahead", "lmdb", readahead=False),
    "lmdb-buffers": Contestant("py-lmdb, buffers", "lmdb", buffers=True),
    **_surfaces(),
    "open-noreadahead": Contestant("lmdbio.open, no readahead", "open", readahead=False),
    "open-buffers": Contestant("lmdbio.open, buffers", "open", buffers=True),
    "open-mmap-buffers": Contestant(
        "lmdbio.open, mmap, buffers", "open", engine="mmap", buffers=True
    ),
    "plain-pread": Contestant("plain pread", "plain", engine="pread"),
    "plain-direct": Contestant("plain O_DIRECT", "plain", engine="direct"),
    "fio-pread": Contestant("fio pread", "fio", engine="pread"),
    "fio-direct": Contestant("fio O_DIRECT", "fio", engine="direct"),
    "fio-queue": Contestant("fio O_DIRECT, 8 in flight", "fio", engine="direct", depth=8),
    "fio-queue-32": Contestant("fio O_DIRECT, 32 in flight", "fio", engine="direct", depth=32),
    "fio-queue-128": Contestant("fio O_DIRECT, 128 in flight", "fio", engine="direct", depth=128),
    "fio-uring-32": Contestant(
        "fio O_DIRECT, io_uring, 32 in flight", "fio", engine="direct", depth=32, queue="io_uring"
    ),
    # A part of a file in random order is more than IOR can be asked for: -z takes a whole one.
    "ior-pread": Contestant("ior pread", "ior", IN_ORDER, "pread"),
    "ior-direct": Contestant("ior O_DIRECT", "ior", IN_ORDER, "direct"),
}
DEFAULT = ("lmdb", "lmdb-noreadahead", "open", "records", "read", "reader")
RAW = tuple(name for name, one in CONTESTANTS.items() if one.raw)
GROUPS = {
    "default": (*DEFAULT, "plain-pread", "plain-direct", "fio-direct", "fio-queue", "ior-direct"),
    "lmdbio": ("open", "records", "read", "reader"),
    "engines": tuple(name for name, one in CONTESTANTS.items() if one.family == "lmdbio"),
    "raw": RAW,
    "all": tuple(CONTESTANTS),
}


def choose(words: Iterable[str]) -> list[str]:
    """Names of contestants from names, groups and patterns such as "read-*".

    Raises:
        ValueError: a word that means nobody.
    """
    chosen: set[str] = set()
    for word in words:
        found = GROUPS.get(word) or [name for name in CONTESTANTS if fnmatchcase(name, word)]
        if not found:
            known = ", ".join([*GROUPS, *CONTESTANTS])
            raise ValueError(f"no contestant is called {word!r}; known: {known}")
        chosen.update(found)
    return [name for name in CONTESTANTS if name in chosen]


@dataclass(frozen=True, slots=True)
class Trial:
    """One contestant, and for those that read bytes one size of transfer.

    Attributes:
        name: name in CONTESTANTS.
        transfer: bytes of a request; 0 where it is the contestant's own business.
        bytes: size of what a run has to read of the file, bytes; rates are made of it.
        skipped: reason why it does not run; "": it runs.
    """

    name: str
    transfer: int = 0
    bytes: int = 0
    skipped: str = ""

    @property
    def contestant(self) -> Contestant:
        return CONTESTANTS[self.name]


def make_trials(
    workload: Workload,
    names: Sequence[str],
    transfers: Sequence[int],
    missing: dict[str, str] | None = None,
) -> list[Trial]:
    """Return the trials to run, and those left out, with the reason.

    Args:
        workload: the records to read.
        names: contestants.
        transfers: sizes for those that read bytes.
        missing: reason why a contestant cannot run on this machine, by its name.
    """
    made = []
    for name in names:
        one = CONTESTANTS[name]
        why = (missing or {}).get(name, "")
        if workload.access not in one.accesses:
            why = why or ("takes a whole file at random" if one.raw else "reads in order only")
        if not one.raw or why:
            made.append(Trial(name, bytes=workload.page_bytes, skipped=why))
            continue
        for transfer in transfers:
            layout = workload.layout(transfer)
            why = "" if layout else "each process reads less than one transfer"
            made.append(Trial(name, transfer, layout.bytes if layout else 0, why))
    return made


def as_json(workload: Workload) -> dict[str, Any]:
    """The workload's fields, with what follows from them."""
    return asdict(workload) | {
        "iterations": workload.iterations,
        "whole": workload.whole,
        "record_bytes": workload.record_bytes,
    }
