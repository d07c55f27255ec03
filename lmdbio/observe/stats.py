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
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from time import monotonic_ns
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.observe import tracing
from lmdbio.system import fork

__all__ = ["Rest", "Stats", "StageCounter"]

#: Why a root's thread rests: reads are under way; no slot is free; it is another root's turn to
#: read, or to seek.
Rest: TypeAlias = Literal["reads", "idle", "turn"]
#: Where rows of a block came from: the root's own memory, its disk, another root, or the file.
Source: TypeAlias = Literal["own", "disk", "peer", "file"]
#: Why another root has not sent a row: it came too late, or that root has ended.
Missed: TypeAlias = Literal["late", "gone"]
_RESTS: dict[Rest, str] = {
    "reads": "wait for reads",
    "idle": "idle, no free slot",
    "turn": "wait for turn",
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
        told = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}
        lines = [
            f"{name:<16} {_number(value):>16}{self._remark(name)}" for name, value in told.items()
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


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6f}"


def _told(totals: _core.PlanTotals) -> dict[str, int]:
    """A plan, for a trace."""
    return {
        "requests": totals.requests,
        "bytes": totals.buffer_bytes,
        "gap_bytes": totals.waste_bytes,
    }


class StageCounter:
    """Adds up the stages of one surface, and notes them where a trace is taken.

    Each method ends a stage that began at a moment of ``monotonic_ns`` and returns now, for the
    stage after it. Threads may share it.

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
        self._owner, self._counts = weakref.ref(bound.__self__), bound.__func__
        self._before = _NOTHING  # the engines' counts that were the parent process's
        self._begin()
        fork.register(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._lent: deque[npt.NDArray[np.uint64]] = deque()
        self.records = self.record_bytes = self.located_records = 0
        self.planned_bytes = self.gap_bytes = self.singles = self.single_bytes = 0
        self.locate_ns = self.plan_ns = self.submit_ns = self.wait_ns = self.copy_ns = 0
        self.iterations = self.blocks = self.fill_ns = self.idle_ns = self.turn_ns = 0
        self.guessed_bytes = self.guessed_records = 0
        self.source_records: Counter[str] = Counter()
        self.source_bytes: Counter[str] = Counter()
        self.by_epoch: dict[tuple[int, Source], tuple[int, int]] = {}
        self.warm_bytes = 0

    def _engines(self) -> Stats:
        owner = self._owner()
        return Stats() if owner is None else self._counts(owner)

    def _after_fork(self) -> None:
        self._begin()
        self._before = self._engines()

    def located(self, begun: int, records: int) -> int:
        """Count the locating of records that began at ``begun``, and return the time now."""
        now = monotonic_ns()
        with self._lock:
            self.located_records += records
            self.locate_ns += now - begun
        if tracing.is_on():
            tracing.note("locate", begun, now, {"records": records})
        return now

    def planned(self, begun: int, totals: _core.PlanTotals) -> int:
        """A plan was made (``_core.PlanTotals``)."""
        now = monotonic_ns()
        with self._lock:
            self.planned_bytes += totals.buffer_bytes
            self.gap_bytes += totals.waste_bytes
            self.plan_ns += now - begun
        if tracing.is_on():
            tracing.note("plan", begun, now, _told(totals))
        return now

    def submitted(self, begun: int) -> int:
        """Count a submission that began at ``begun``, and return the time now."""
        now = monotonic_ns()
        with self._lock:
            self.submit_ns += now - begun
        if tracing.is_on():
            tracing.note("submit", begun, now)
        return now

    def waited(self, begun: int, what: str = "wait") -> int:
        """Somebody was held up."""
        now = monotonic_ns()
        with self._lock:
            self.wait_ns += now - begun
        if tracing.is_on():
            tracing.note(what, begun, now)
        return now

    def copied(self, begun: int, lengths: npt.NDArray[np.uint64]) -> int:
        """Records of these lengths were made into objects, and handed out."""
        now = monotonic_ns()
        size = int(lengths.sum())
        with self._lock:
            self.copy_ns += now - begun
            self.records += len(lengths)
            self.record_bytes += size
        if tracing.is_on():
            tracing.note("copy", begun, now, {"records": len(lengths), "bytes": size})
        return now

    def batch(self, moments: tuple[int, ...], records: int, totals: _core.PlanTotals) -> None:
        """Records were read as they lie, in one go: one call costs less than five.

        Args:
            moments: moments when it began, and was located, planned, had let the stream behind
                random reads go on, and was submitted.
            records: number of records.
            totals: totals of the plan.
        """
        now = monotonic_ns()
        begun, located, planned, ahead, submitted = moments
        with self._lock:
            self.records += records
            self.record_bytes += totals.record_bytes
            self.located_records += records
            self.planned_bytes += totals.buffer_bytes
            self.gap_bytes += totals.waste_bytes
            self.locate_ns += located - begun
            self.plan_ns += planned - located
            self.submit_ns += submitted - ahead
            self.wait_ns += now - submitted + ahead - planned
        if tracing.is_on():
            tracing.note("locate", begun, located, {"records": records})
            tracing.note("plan", located, planned, _told(totals))
            tracing.note("stream ahead", planned, ahead)
            tracing.note("submit", ahead, submitted)
            tracing.note("wait", submitted, now, {"bytes": totals.buffer_bytes})

    def gathered(self, begun: int, located: int, records: int, size: int) -> None:
        """Records were copied from the page cache as they lie.

        Args:
            begun, located: moments: when it began, and where they lie was known.
            records: number of records.
            size: their bytes.
        """
        now = monotonic_ns()
        with self._lock:
            self.records += records
            self.record_bytes += size
            self.located_records += records
            self.planned_bytes += size
            self.locate_ns += located - begun
            self.wait_ns += now - located
        if tracing.is_on():
            tracing.note("locate", begun, located, {"records": records})
            tracing.note("wait", located, now, {"bytes": size})

    def lent(self, lengths: npt.NDArray[np.uint64]) -> None:
        """Records of these lengths, which nobody changes, were handed out of memory.

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
                self.records += len(lengths)
                self.located_records += len(lengths)
                self.record_bytes += int(lengths.sum())

    def single(self, begun: int, length: int) -> None:
        """One record was located, read and handed out; all of that counts as waiting."""
        now = monotonic_ns()
        with self._lock:
            self.singles += 1
            self.single_bytes += length
            self.wait_ns += now - begun
        if tracing.is_on():
            tracing.note("wait", begun, now, {"bytes": length})

    def filled(self, begun: int, times: tuple[float, float], size: int) -> None:
        """A block, whose reads had these times, was published."""
        now = monotonic_ns()
        with self._lock:
            self.blocks += 1
            self.fill_ns += now - begun
            block = self.blocks - 1
        if tracing.is_on():
            tracing.note("publish", begun, now, {"block": block, "bytes": size})
            tracing.note_flight("block", times, {"block": block, "bytes": size})

    def rested(self, why: Rest, begun: int) -> None:
        """A root's thread had nothing to do."""
        now = monotonic_ns()
        with self._lock:
            if why == "reads":
                self.fill_ns += now - begun
            elif why == "idle":
                self.idle_ns += now - begun
            else:
                self.turn_ns += now - begun
        if tracing.is_on():
            tracing.note(_RESTS[why], begun, now)

    def guessed(self, size: int, hits: int) -> None:
        """So many bytes were read on a guess, and so many records found among them."""
        with self._lock:
            self.guessed_bytes += size
            self.guessed_records += hits

    def sourced(self, source: Source, records: int, size: int, epoch: int) -> None:
        """Count rows of a block by where they came from, and the bytes that they take there.

        Args:
            epoch: epoch of the rows.
        """
        with self._lock:
            self.source_records[source] += records
            self.source_bytes[source] += size
            before = self.by_epoch.get((epoch, source), (0, 0))
            self.by_epoch[epoch, source] = before[0] + records, before[1] + size

    def warmed(self, size: int) -> None:
        """Count bytes that were read to be kept."""
        with self._lock:
            self.warm_bytes += size

    def came(self, begun: int, records: int) -> None:
        """Note in a trace that rows have come that other roots were asked for at ``begun``."""
        if tracing.is_on():
            now = monotonic_ns()
            tracing.note_flight("rows of others", (begun / 1e9, now / 1e9), {"records": records})

    def missed(self, why: Missed, records: int) -> None:
        """Count rows that another root should have sent."""
        with self._lock:
            self.source_records[why] += records

    def iterated(self, records: int, size: int) -> None:
        """A batch of so many records and bytes was handed out."""
        with self._lock:
            self.iterations += 1
            self.records += records
            self.record_bytes += size

    def sources(self) -> dict[int, dict[str, tuple[int, int]]]:
        """Return rows, and the bytes that they take, by epoch and source."""
        with self._lock:
            counted = sorted(self.by_epoch.items())
        told: dict[int, dict[str, tuple[int, int]]] = {}
        for (epoch, source), counts in counted:
            told.setdefault(epoch, {})[source] = counts
        return told

    def stats(self) -> Stats:
        """Return the counts of this process."""
        return self.total(self._engines())

    def total(self, engines: Stats) -> Stats:
        """Return the counts of this process, its engines having counted these."""
        with self._lock:
            self._add_lent()
            own = Stats(
                records=self.records + self.singles,
                record_bytes=self.record_bytes + self.single_bytes,
                located_records=self.located_records + self.singles,
                locate_seconds=self.locate_ns / 1e9,
                plan_seconds=self.plan_ns / 1e9,
                planned_bytes=self.planned_bytes + self.single_bytes,
                gap_bytes=self.gap_bytes,
                submit_seconds=self.submit_ns / 1e9,
                wait_seconds=self.wait_ns / 1e9,
                copy_seconds=self.copy_ns / 1e9,
                iterations=self.iterations,
                blocks=self.blocks,
                fill_seconds=self.fill_ns / 1e9,
                idle_seconds=self.idle_ns / 1e9,
                turn_seconds=self.turn_ns / 1e9,
                guessed_bytes=self.guessed_bytes,
                guessed_records=self.guessed_records,
                own_records=self.source_records["own"],
                own_bytes=self.source_bytes["own"],
                disk_records=self.source_records["disk"],
                disk_bytes=self.source_bytes["disk"],
                peer_records=self.source_records["peer"],
                file_records=self.source_records["file"],
                file_bytes=self.source_bytes["file"],
                late_records=self.source_records["late"],
                gone_records=self.source_records["gone"],
                warm_bytes=self.warm_bytes,
            )
        return engines - self._before + own
