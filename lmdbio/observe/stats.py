"""Stats: what reading has come to so far, stage by stage.

    located -> planned -> submitted -> waited for -> copied or lent

One value serves all surfaces; a field that a surface has no part in is 0. The thread that
does the work adds to the counts: under a lock of this object here, as atomic numbers in csrc. So
a value taken while others read may be a few records old, but no count is lost.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields
from time import monotonic_ns
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.observe import active, tracing
from lmdbio.system import fork
from lmdbio.system.frozen import dataclass

__all__ = ["Source", "Stage", "StageCounter", "Stats"]

#: Stages, each by the name that a trace has for it. The last three are a root's rests: reads are
#: under way; no slot is free; it is another root's turn to read, or to seek.
Stage: TypeAlias = Literal[
    "locate", "plan", "submit", "stream ahead", "wait", "wait for a block", "copy", "publish",
    "wait for reads", "idle, no free slot", "wait for turn",
]  # fmt: skip
#: Where rows of a block came from: the root's own memory, its disk, another root, or the file.
Source: TypeAlias = Literal["own", "disk", "peer", "file"]
#: The field of ``Stats`` that each stage's time is added to.
_SECONDS: dict[Stage, str] = {
    "locate": "locate_seconds",
    "plan": "plan_seconds",
    "submit": "submit_seconds",
    "stream ahead": "wait_seconds",
    "wait": "wait_seconds",
    "wait for a block": "wait_seconds",
    "copy": "copy_seconds",
    "publish": "fill_seconds",
    "wait for reads": "fill_seconds",
    "idle, no free slot": "idle_seconds",
    "wait for turn": "turn_seconds",
}
#: Amounts that a trace has, and what they are called there.
_TRACED = {
    "records": "records",
    "record_bytes": "bytes",
    "located_records": "records",
    "planned_requests": "requests",
    "planned_bytes": "bytes",
    "gap_bytes": "gap_bytes",
    "block_bytes": "bytes",
}


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of what was read, and of where the time went.

    Values can be added (over ranks: ``comm.allreduce(reader.stats())``; over workers) and
    subtracted (what one epoch took); ``str`` is a table. A process counts from 0 after fork, and
    so does a pickled copy, so that the sum over all is what was done. Seconds are summed over
    threads.

    Attributes:
        records, record_bytes: number and bytes of the records handed out, repeats counted.
        located_records, locate_seconds: records whose place in the file was looked up, or found
            by walking ahead of an iteration. Not timed: single records, all of whose time is
            ``wait_seconds``; records lent from memory; single gets.
        plan_seconds: time for making requests of places.
        planned_bytes: bytes of the file that were to be read for records.
        gap_bytes: planned bytes under no record: gaps that were read over to save a request, and
            the rest of the pages at both ends; a byte under two records, or under one asked for
            twice, counts as used once.
        submit_seconds: time for handing requests over, which includes the reading of what the page
            cache gave at once.
        requests, read_bytes: reads for records, and what they brought.
        page_requests, page_bytes: reads for the tree's pages and the metas: locating, and making
            sure that no writer came between.
        ahead_requests, ahead_bytes: reads of the stream behind random ones (``lmdbio.image``).
        queued_requests: requests, of all kinds, that threads carried out; the others were
            served by the page cache at once, or read by who asked.
        queue_seconds, service_seconds: time for which requests waited for threads, and were in
            flight; by ``queued_requests`` that is the mean, by the wall clock the mean depth.
        wait_seconds: time in which somebody waited for bytes: the caller, or a rank for its batch.
        copy_seconds: time for making objects of what was read; not those that an iterator makes
            one by one, as they are asked for.
        iterations, blocks: iterations handed out by a Reader; blocks published by this rank's root
            thread.
        fill_seconds, idle_seconds, turn_seconds: time in which the root waited for reads, and
            published them; waited for a slot to fill; for its turn to read (``Mode.tokens``), or
            for the cursor ("speculate").
        guessed_bytes, guessed_records: bytes read before it was known where records lie, and
            records found there, of those located ("speculate").
        own_records, own_bytes: rows of this root's blocks out of its own memory: windows of a
            shuffled order, or its home (``Cache``). Each row's bytes are rounded up to a multiple
            of 8.
        disk_records, disk_bytes: the same out of its cache file.
        peer_records, peer_bytes: rows that other roots have sent; bytes that came too late count.
        file_records, file_bytes: rows of blocks that were read for these alone; with a cache that
            fills as it is used, all of the first epoch.
        late_records, gone_records: file rows for which other roots were late, or had ended.
        served_bytes: rows that were sent to other roots.
        warm_bytes, cache_bytes: bytes read to be kept; memory of this root for what is kept.
        cache_disk_bytes, damaged_pages: size of what its cache file keeps; pages that were not as
            they had been written, and were read from the data file again.
        window_bytes: shared memory that this rank owns now.
        skipped_records: samples that a loader left out, for their transform failed (``errors``).
    """

    records: int = 0
    record_bytes: int = 0
    located_records: int = 0
    locate_seconds: float = 0.0
    plan_seconds: float = 0.0
    planned_bytes: int = 0
    gap_bytes: int = 0
    submit_seconds: float = 0.0
    requests: int = 0
    read_bytes: int = 0
    page_requests: int = 0
    page_bytes: int = 0
    ahead_requests: int = 0
    ahead_bytes: int = 0
    queued_requests: int = 0
    queue_seconds: float = 0.0
    service_seconds: float = 0.0
    wait_seconds: float = 0.0
    copy_seconds: float = 0.0
    iterations: int = 0
    blocks: int = 0
    fill_seconds: float = 0.0
    idle_seconds: float = 0.0
    turn_seconds: float = 0.0
    guessed_bytes: int = 0
    guessed_records: int = 0
    own_records: int = 0
    own_bytes: int = 0
    disk_records: int = 0
    disk_bytes: int = 0
    peer_records: int = 0
    peer_bytes: int = 0
    file_records: int = 0
    file_bytes: int = 0
    late_records: int = 0
    gone_records: int = 0
    served_bytes: int = 0
    warm_bytes: int = 0
    cache_bytes: int = 0
    cache_disk_bytes: int = 0
    damaged_pages: int = 0
    window_bytes: int = 0
    skipped_records: int = 0

    @classmethod
    def of(cls, counts: _core.EngineCounts) -> Stats:
        """Return the statistics of an engine's counts."""
        return cls(
            records=counts.records,
            record_bytes=counts.record_bytes,
            located_records=counts.located_records,
            locate_seconds=counts.locate_ns / 1e9,
            plan_seconds=counts.plan_ns / 1e9,
            planned_bytes=counts.planned_bytes,
            gap_bytes=counts.gap_bytes,
            requests=counts.requests - counts.page_requests,
            read_bytes=counts.bytes - counts.page_bytes,
            page_requests=counts.page_requests,
            page_bytes=counts.page_bytes,
            queued_requests=counts.queued_requests,
            queue_seconds=counts.queue_ns / 1e9,
            service_seconds=counts.service_ns / 1e9,
            wait_seconds=counts.wait_ns / 1e9,
            copy_seconds=counts.copy_ns / 1e9,
        )

    def _with(self, other: Stats, sign: int) -> Stats:
        return Stats(
            *(getattr(self, f.name) + sign * getattr(other, f.name) for f in fields(self))
        )

    def __add__(self, other: Stats) -> Stats:
        return self._with(other, 1) if isinstance(other, Stats) else NotImplemented

    def __sub__(self, other: Stats) -> Stats:
        return self._with(other, -1) if isinstance(other, Stats) else NotImplemented

    def __str__(self) -> str:
        """Return the fields that are not 0, a line each."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}
        lines = [
            f"{name:<16} {_number(value):>16}{self._remark(name)}"
            for name, value in values.items()
        ]
        return "\n".join(lines) or "nothing was read"

    def _remark(self, name: str) -> str:
        if name == "gap_bytes" and self.planned_bytes:
            return f"  {100 * self.gap_bytes / self.planned_bytes:.1f} % of planned"
        if name == "read_bytes" and self.requests:
            return f"  {_number(self.read_bytes // self.requests)} a request"
        if name in ("queue_seconds", "service_seconds") and self.queued_requests:
            return f"  {1e3 * getattr(self, name) / self.queued_requests:.3f} ms each"
        return ""


_NOTHING = Stats()
_FIELDS = tuple(each.name for each in fields(Stats))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6f}"


class StageCounter:
    """Adds up the stages of one surface, and notes them where a trace is taken.

    Threads may share it.

    Args:
        engines: a method of the owner: what its engines counted so far, also after they were
            closed. It is not held, so that the owner can end.
    """

    #: Arrays of lengths that wait to be added up, and items of the largest that may: no more than
    #: stay in the processor's cache.
    LENT_MAX = 8
    LENGTHS_MAX = 4096

    def __init__(self, engines: Callable[[], Stats]) -> None:
        bound: Any = engines
        self._owner, self._engine_counts = weakref.ref(bound.__self__), bound.__func__
        self._before = _NOTHING  # the engines' counts that were the parent process's
        self._begin()
        fork.register(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._lent: deque[npt.NDArray[np.uint64]] = deque()
        #: By the field of ``Stats``; seconds as nanoseconds.
        self._counts = dict.fromkeys((*_FIELDS, *_TRACED), 0)
        self._singles = self._single_bytes = self._single_ns = 0
        self._by_epoch: dict[int, dict[str, tuple[int, int]]] = {}

    def _engines(self) -> Stats:
        owner = self._owner()
        return Stats() if owner is None else self._engine_counts(owner)

    def _after_fork(self) -> None:
        self._begin()
        self._before = self._engines()

    def span(self, stage: Stage, begun: int, *, block: int | None = None, **amounts: int) -> int:
        """Count a stage, and note it in a trace.

        Args:
            stage: name of the stage.
            begun: moment of ``monotonic_ns`` at which it began; it ends now.
            block: number of its block, for a trace alone.
            amounts: counts of what it did, by the field of ``Stats``; a trace has ``_TRACED``.

        Returns:
            The moment now, for the stage after it.
        """
        now, counts = monotonic_ns(), self._counts
        with self._lock:
            counts[_SECONDS[stage]] += now - begun
            for name, amount in amounts.items():
                counts[name] += amount
        if active.trace is not None:
            traced = {_TRACED[name]: amount for name, amount in amounts.items() if name in _TRACED}
            if block is not None:
                traced["block"] = block
            tracing.note(stage, begun, now, traced)
        return now

    def count(self, **amounts: int) -> None:
        """Count what takes no time of its own, by the field of ``Stats``."""
        counts = self._counts
        with self._lock:
            for name, amount in amounts.items():
                counts[name] += amount

    def planned(self, begun: int, totals: _core.PlanTotals) -> int:
        """Count a plan, as ``span`` does."""
        return self.span(
            "plan",
            begun,
            planned_requests=totals.requests,
            planned_bytes=totals.buffer_bytes,
            gap_bytes=totals.waste_bytes,
        )

    def gathered(self, begun: int, located: int, records: int, size: int) -> None:
        """Count records that were copied from the page cache as they lie.

        Args:
            begun, located: moments: when it began, and where they lie was known.
            records: number of records.
            size: their bytes.
        """
        now, counts = monotonic_ns(), self._counts
        with self._lock:
            counts["records"] += records
            counts["record_bytes"] += size
            counts["located_records"] += records
            counts["planned_bytes"] += size
            counts["locate_seconds"] += located - begun
            counts["wait_seconds"] += now - located
        if active.trace is not None:
            tracing.note("locate", begun, located, {"records": records})
            tracing.note("wait", located, now, {"bytes": size})

    def single(self, begun: int, length: int) -> None:
        """Count a record that was located, read and handed out, all of which was waiting.

        Programs do so record by record, so this takes three sums and no names.
        """
        now = monotonic_ns()
        with self._lock:
            self._singles += 1
            self._single_bytes += length
            self._single_ns += now - begun
        if active.trace is not None:
            tracing.note("wait", begun, now, {"bytes": length})

    def lent(self, lengths: npt.NDArray[np.uint64]) -> None:
        """Count records of these lengths, which nobody changes, that were lent from memory.

        That takes a few microseconds in all, so they are not timed, and added up later.
        """
        self._lent.append(lengths)
        if len(self._lent) >= self.LENT_MAX or len(lengths) > self.LENGTHS_MAX:
            with self._lock:
                self._add_lent()

    def _add_lent(self) -> None:
        while self._lent:
            with contextlib.suppress(IndexError):  # another thread took the last one
                lengths = self._lent.popleft()
                self._counts["records"] += len(lengths)
                self._counts["located_records"] += len(lengths)
                self._counts["record_bytes"] += int(lengths.sum())

    def sourced(self, source: Source, records: int, size: int, epoch: int) -> None:
        """Count rows of a block by where they came from, and the bytes that they take there.

        Args:
            epoch: epoch of the rows.
        """
        with self._lock:
            self._counts[f"{source}_records"] += records
            if source != "peer":  # of which the exchange counts what came
                self._counts[f"{source}_bytes"] += size
            of_epoch = self._by_epoch.setdefault(epoch, {})
            before = of_epoch.get(source, (0, 0))
            of_epoch[source] = before[0] + records, before[1] + size

    def sources(self) -> dict[int, dict[str, tuple[int, int]]]:
        """Return rows, and the bytes that they take, by epoch and source."""
        with self._lock:
            counted = sorted(self._by_epoch.items())
            return {epoch: dict(sorted(sources.items())) for epoch, sources in counted}

    def stats(self) -> Stats:
        """Return the counts of this process."""
        return self.total(self._engines())

    def total(self, engines: Stats) -> Stats:
        """Return the counts of this process, its engines having counted these."""
        with self._lock:
            self._add_lent()
            counts = self._counts.copy()
            for name in ("records", "located_records"):
                counts[name] += self._singles
            for name in ("record_bytes", "planned_bytes"):
                counts[name] += self._single_bytes
            counts["wait_seconds"] += self._single_ns
        own: Iterator[Any] = (
            counts[n] / 1e9 if n.endswith("_seconds") else counts[n] for n in _FIELDS
        )
        return engines - self._before + Stats(*own)
