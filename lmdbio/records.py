"""Records: the values of a database as a sequence, in key order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from lmdbio import _core, tracing
from lmdbio.batch import Batch
from lmdbio.bypass import BATCH_BYTES_MIN, Bypass
from lmdbio.choice import Wish
from lmdbio.image import Image
from lmdbio.locate import Check, Locate, open_source
from lmdbio.memory import budget_bytes
from lmdbio.plan import PlanOptions, plan_reads, spread
from lmdbio.stats import Stats, Tally

__all__ = ["Records"]

#: Bytes of records that iteration and slices read at a time; two such blocks are in memory.
BLOCK_BYTES = 8 << 20
#: Bytes and records made into objects at a time: few enough to stay in the processor's cache.
CUT_BYTES = 192 << 10
CUT = 256
#: What one thread asks the page cache for at once: a disk takes as much as it gets; other file
#: systems see single requests, which must come in order (csrc/stretch.h).
DISK_PIECE_BYTES = 2 << 20
PIECE_BYTES = 128 << 10


class Records(Sequence[bytes]):
    """Random and ordered access to the values of one database.

    ``recs[i]`` gives bytes, ``recs[a:b]`` a list of bytes, ``recs.read(indices)`` a ``Batch``
    whose reads are sorted, coalesced and all in flight at once. Iteration reads ahead.

    It can be pickled (the file is opened anew), used by many threads, and used after fork.
    Never takes a lock: when a writer has moved the file on too far, reading raises ``Error``.

    Args:
        path: an environment's folder or its one file.
        db: a named database, None for the main one.
        locate: "auto", "provenance" or "scan" (``locate.open_source``).
        provenance: the sidecar or the folder it is in.
        check: "fast", "deep" or "always".
        engine: "auto", "pread", "direct", "uring", "staged" or "mmap".
        depth: requests in flight.
        gap_bytes_max, request_bytes_max: see ``PlanOptions``.
            What is "auto" or None of these four is chosen (``lmdbio.choice``); ``choice`` says
            what, and why.
        readahead: bring the whole file to memory behind random reads (``lmdbio.image``), as
            far as the reads made so far are worth it. None: if there is room, once they have
            cost as much as that will; True: from the first read on; False: never.
        memory_bytes_max: what that may take in this process, bytes; None: as
            ``LMDBIO_MEMORY_BYTES`` says, else the smaller of 2.5 GB and a quarter of the
            memory available to the process. Batches come on top.
        subdir: as in ``lmdb.open``; None takes either.

    Raises:
        OSError, Error: the database cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        db: bytes | str | None = None,
        locate: Locate = "auto",
        provenance: str | os.PathLike[str] | None = None,
        check: Check = "fast",
        engine: str = "auto",
        depth: int | None = None,
        gap_bytes_max: int | None = None,
        request_bytes_max: int | None = None,
        readahead: bool | None = None,
        memory_bytes_max: int | None = None,
        subdir: bool | None = None,
    ) -> None:
        begun = monotonic_ns()
        self._state: dict[str, Any] = {
            "path": os.fspath(Path(path).absolute()),
            "db": db,
            "locate": locate,
            "provenance": provenance,
            "check": check,
            "engine": engine,
            "depth": depth,
            "gap_bytes_max": gap_bytes_max,
            "request_bytes_max": request_bytes_max,
            "readahead": readahead,
            "memory_bytes_max": memory_bytes_max,
            "subdir": subdir,
        }
        self._source = open_source(
            path, db=db, locate=locate, provenance=provenance, check=check, subdir=subdir
        )
        try:
            wish = Wish(engine, depth, request_bytes_max, gap_bytes_max)
            choice = self.choice = self._source.choose_way("batch", wish)
            self._options = PlanOptions(choice.gap_bytes_max, choice.request_bytes_max)
            self._engine = self._source.open_engine(choice)
            size = self._source.used_bytes
            self._bypass = Bypass(self._engine, size, depth=choice.depth, wanted=choice.past_cache)
            self._image = Image(
                self._engine,
                size,
                memory_bytes_max=budget_bytes(memory_bytes_max),
                wanted=readahead,
            )
        except BaseException:
            self._source.close()
            raise
        self._pool = _core.MemoryPool()
        self._tally = Tally(self._engines)
        tracing.note("open", begun, monotonic_ns(), {"file": self.path})
        self._fetch = self._source.fetcher(self._engine)

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def path(self) -> str:
        """The data file."""
        return self._source.path

    @property
    def located_by(self) -> str:
        """ "provenance" or "scan"."""
        return self._source.locate

    def __repr__(self) -> str:
        return f"<Records of {self.path!r}: {len(self)} by {self.located_by}>"

    def __len__(self) -> int:
        return self._source.count

    @overload
    def __getitem__(self, index: SupportsIndex) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            indices = np.arange(*index.indices(len(self)), dtype=np.int64).astype(np.uint64)
            return [value for block in self._blocks(indices) for value in block]
        at, count = index.__index__(), self._source.count
        at = at + count if at < 0 else at
        if not 0 <= at < count:
            raise IndexError(f"record {index} of {count}")
        begun = monotonic_ns()
        offset, length = self._source.extent(at)
        if self._fetch is not None:
            value = self._fetch(offset, length)
            self._tally.single(begun, length)
            return value
        value = self._engine.read(offset, length)
        self._source.guard()
        self._tally.single(begun, len(value))
        return value

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks(np.arange(len(self), dtype=np.uint64)):
            yield from block

    def read(self, indices: npt.ArrayLike) -> Batch:
        """Reads records, each byte of the file at most once, all requests in flight at once.

        Args:
            indices: integers, shape (n,), any order, repeats allowed; negative ones count
                from the end.

        Returns:
            A batch over memory of its own, in the order asked.

        Raises:
            IndexError: an index out of range.
            OSError, Error: the file cannot be read, or has moved on.
        """
        begun = monotonic_ns()
        wanted = self._normalise(indices)
        extents = self._source.extents(wanted)
        lengths = np.ascontiguousarray(extents["length"])
        image = self._image
        if image.complete():
            self._source.guard()
            address, size, keep = image.address, image.size, image.keep
            offsets = extents["offset"]
            self._tally.lent(lengths)
        else:
            located = monotonic_ns()
            plan = plan_reads(extents, self._options)
            planned = monotonic_ns()
            size = plan.totals.buffer_bytes
            spent = plan.totals.requests * self._options.gap_bytes_max
            anew = self._bypass.once_over
            image.earn(size if anew else spent - size, anew=anew)
            ahead = monotonic_ns()
            memory = self._pool.take(size)
            submitted = self._read_plan(plan, memory)
            # Also vouches for what the image received up to now.
            self._source.guard()
            moments = begun, located, planned, ahead, submitted
            self._tally.batch(moments, len(wanted), plan.totals)
            address, keep = memory.address, memory
            offsets = plan.slices
        return Batch.over(
            address, size, indices=wanted, offsets=offsets, lengths=lengths, keep=keep
        )

    def batches(self, wanted: Iterable[npt.ArrayLike], *, ahead: int = 1) -> Iterator[Batch]:
        """Reads one batch after another, the next ones while one is used.

        A batch read alone ends with a few requests in flight, and begins with none; where
        requests take long, or go to several servers, that is a good part of its time.

        Args:
            wanted: indices of each batch, as ``read`` takes them; asked for as they are needed.
            ahead: batches under way beside the one handed out.

        Yields:
            What ``read`` gives for each. A batch stays valid.

        Raises:
            ValueError: ``ahead`` is below 1. Else as ``read``, when the batch's turn has come,
                or, for its indices, when it is begun.
        """
        if ahead < 1:
            raise ValueError(f"ahead must be at least 1, not {ahead}")
        begun: deque[_Begun] = deque()
        try:
            for indices in wanted:
                begun.append(_Begun(self, self._normalise(indices)))
                if len(begun) > ahead:
                    yield begun.popleft().batch()
            while begun:
                yield begun.popleft().batch()
        finally:
            for one in begun:
                one.close()

    def _read_plan(self, plan: _core.Plan, memory: _core.Memory) -> int:
        """Reads a plan; the moment at which it was submitted."""
        size = plan.totals.buffer_bytes
        direct = self._bypass.engine(size)
        with (direct or self._engine).submit_plan(plan, memory.address, memory) as ticket:
            submitted = monotonic_ns()
            ticket.wait()
            if direct is not None:
                self._bypass.took(size, ticket.times)
        return submitted

    def _normalise(self, indices: npt.ArrayLike) -> npt.NDArray[np.uint64]:
        given = np.asarray(indices)
        if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
            raise TypeError(
                f"indices must be a one-dimensional array of integers, not {given.dtype} of "
                f"shape {given.shape}"
            )
        count = len(self)
        if given.dtype.kind == "i" and given.size and int(given.min()) < 0:
            given = np.where(given < 0, given + count, given)
        if given.size and (int(given.max()) >= count or int(given.min()) < 0):
            raise IndexError(f"an index lies outside the {count} records")
        return given.astype(np.uint64)

    def _blocks(self, indices: npt.NDArray[np.uint64]) -> Iterator[list[bytes]]:
        """Values of ``indices`` in order, a few at a time, the next block being read meanwhile."""
        started: list[_Block | _Direct] = []
        stretch = self._open_stretch()
        try:
            for part in self._cut(indices):
                started.append(self._begin(part, stretch))
                if len(started) == 2:
                    yield from self._hand_out(started.pop(0))
            while started:
                yield from self._hand_out(started.pop(0))
        finally:
            for block in started:
                block.close()
            stretch.close()

    def _open_stretch(self) -> _core.Stretch:
        piece = DISK_PIECE_BYTES if _core.look_at(self._engine.fd).disk else PIECE_BYTES
        return _core.Stretch(self._engine, self._source.used_bytes, piece=piece)

    def _begin(self, extents: _core.Extents, stretch: _core.Stretch) -> _Block | _Direct:
        """Past the page cache where that is as good; through it straight into the objects.

        Records that do not lie dense are read by a plan, into memory from which they are cut.
        """
        plan = None
        size = int(extents["length"].sum())
        if self._bypass.engine(max(size, BATCH_BYTES_MIN)) is not None:
            plan = self._plan(extents)
            if self._bypass.engine(plan.totals.buffer_bytes) is not None:
                return _Block(self, extents, plan)
        if stretch.cover(extents, block_bytes=max(size, 1), ahead=max(2 * size, BLOCK_BYTES)):
            return _Direct(self, extents)
        return _Block(self, extents, plan or self._plan(extents))

    def _plan(self, extents: _core.Extents) -> _core.Plan:
        begun = monotonic_ns()
        plan = plan_reads(extents, self._options)
        self._tally.planned(begun, plan.totals)
        return plan

    def _cut(self, indices: npt.NDArray[np.uint64]) -> Iterator[_core.Extents]:
        """Extents in pieces of about ``BLOCK_BYTES``, the first ones smaller.

        With what is read around them, they take about twice that at most.
        """
        at, step, target = 0, 64, BLOCK_BYTES // 16
        while at < len(indices):
            begun = monotonic_ns()
            extents = self._source.extents(indices[at : at + step])
            ends = np.cumsum(extents["length"], dtype=np.uint64)
            taken = np.cumsum(spread(extents, self._options.gap_bytes_max))
            take = min(
                int(np.searchsorted(ends, np.uint64(target), side="right")),
                int(np.searchsorted(taken, 2 * target, side="right")),
            )
            take = max(1, take)
            self._tally.located(begun, take)
            yield extents[:take]
            at += min(take, len(extents))
            mean = max(1, int(ends[-1]) // len(extents))
            target = min(2 * target, BLOCK_BYTES)
            step = max(1, min(target // mean + 1, 1 << 16))

    def _hand_out(self, block: _Block | _Direct) -> Iterator[list[bytes]]:
        with block:
            begun = monotonic_ns()
            block.wait()
            self._tally.waited(begun)
            step = min(CUT, max(1, CUT_BYTES // max(1, block.record_bytes // block.count)))
            for at in range(0, block.count, step):
                yield block.values(at, at + step)

    def _engines(self) -> Stats:
        """What the engines counted."""
        pages, ahead = self._source.tally(), self._image.tally()
        return replace(
            Stats.of(self._engine.tally() + self._bypass.tally()),
            page_requests=pages.requests,
            page_bytes=pages.bytes,
            ahead_requests=ahead.requests,
            ahead_bytes=ahead.bytes,
        )

    def stats(self) -> Stats:
        """What this process has read with this object so far; also after ``close``."""
        return self._tally.stats()

    def close(self) -> None:
        """Closes the file. May be called twice; batches stay valid."""
        self._fetch = None
        self._image.close()
        self._bypass.close()
        self._engine.close()
        self._source.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Begun:
    """A batch under way; ``read`` without the waiting."""

    def __init__(self, records: Records, wanted: npt.NDArray[np.uint64]) -> None:
        self._records, self._wanted = records, wanted
        self._block: _Block | None = None
        if records._image.complete():
            return  # nothing to wait for: it is lent from there
        begun = monotonic_ns()
        extents = records._source.extents(wanted)
        records._tally.located(begun, len(wanted))
        plan = records._plan(extents)
        self._block = _Block(records, extents, plan)
        begun, size = monotonic_ns(), plan.totals.buffer_bytes
        spent = plan.totals.requests * records._options.gap_bytes_max
        records._image.earn(size if records._bypass.once_over else spent - size)
        records._tally.waited(begun, "stream ahead")

    def batch(self) -> Batch:
        if self._block is None:
            return self._records.read(self._wanted)
        with self._block as block:
            begun = monotonic_ns()
            block.wait()
            self._records._tally.waited(begun)
            return block.batch(self._wanted)

    def close(self) -> None:
        if self._block is not None:
            self._block.close()


class _Block:
    """Records under way into memory of their own."""

    def __init__(self, records: Records, extents: _core.Extents, plan: _core.Plan) -> None:
        self._records, self._plan, self._tally = records, plan, records._tally
        begun = monotonic_ns()
        self._lengths = np.ascontiguousarray(extents["length"])
        self.count, self.record_bytes = len(extents), plan.totals.record_bytes
        self._memory = records._pool.take(plan.totals.buffer_bytes)
        past = records._bypass.engine(plan.totals.buffer_bytes)
        self._past = past is not None
        self._ticket = (past or records._engine).submit_plan(
            plan, self._memory.address, self._memory
        )
        self._tally.submitted(begun)

    def wait(self) -> None:
        self._ticket.wait()
        if self._past:
            self._records._bypass.took(self._plan.totals.buffer_bytes, self._ticket.times)
        self._records._source.guard()

    def values(self, start: int, stop: int) -> list[bytes]:
        begun, lengths = monotonic_ns(), self._lengths[start:stop]
        values = _core.bytes_list(
            self._memory.address, self._memory.size, self._plan.slices[start:stop], lengths
        )
        self._tally.copied(begun, lengths)
        return values

    def batch(self, wanted: npt.NDArray[np.uint64]) -> Batch:
        """The whole block as a batch, over its memory."""
        self._tally.copied(monotonic_ns(), self._lengths)
        return Batch.over(
            self._memory.address,
            self._plan.totals.buffer_bytes,
            indices=wanted,
            offsets=self._plan.slices,
            lengths=self._lengths,
            keep=self._memory,
        )

    def close(self) -> None:
        self._ticket.close()

    def __enter__(self) -> _Block:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Direct:
    """Records that are read where they are wanted; a stretch brings them to the page cache."""

    def __init__(self, records: Records, extents: _core.Extents) -> None:
        self._source, self._tally = records._source, records._tally
        begun = monotonic_ns()
        self._each = _core.EachRead(records._engine, extents)
        self._lengths = np.ascontiguousarray(extents["length"])
        self.count, self.record_bytes = len(extents), int(self._lengths.sum())
        size = self.record_bytes
        self._tally.planned(
            begun,
            _core.PlanTotals(
                buffer_bytes=size,
                record_bytes=size,
                needed_bytes=size,
                waste_bytes=0,
                regions=self.count,
                requests=self.count,
            ),
        )

    def wait(self) -> None:
        pass

    def values(self, start: int, stop: int) -> list[bytes]:
        begun = monotonic_ns()
        found = self._each.values(start, stop)
        self._source.guard()
        self._tally.copied(self._tally.waited(begun), self._lengths[start:stop])
        return found

    def close(self) -> None:
        pass

    def __enter__(self) -> _Direct:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
