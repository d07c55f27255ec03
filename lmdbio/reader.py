"""Reader: this rank's share of each global batch, read ahead by the roots of its node.

Each root has one filling thread. For every block of k iterations it plans the reads of its
team's records, waits for a free slot of the window, reads straight into the slot, writes the
table (offset and length per record) and publishes the block; the ranks of the team use it
and release it. Blocks are planned ahead, and read into every slot that is free, while the
ranks use those before. There is no barrier, and who waits sleeps.

A rank needs a slot until it asks for the first batch beyond the block in it, and longer only
where views made from an earlier batch are alive: with ``slots=2`` none may be when the next
batch is asked for, each further slot allows those of one batch more. Asking too early raises
BufferError and changes nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic_ns
from types import TracebackType
from typing import Any, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share, tracing
from lmdbio.assignment import ASSIGNMENTS, Schedule
from lmdbio.batch import Batch
from lmdbio.bypass import BATCH_BYTES_MIN, Bypass
from lmdbio.choice import Choice, Wish
from lmdbio.errors import Error, PeerError
from lmdbio.locate import Check, Locate, Source, open_source
from lmdbio.memory import FootprintBound, budget_bytes
from lmdbio.mode import AUTO, Mode
from lmdbio.plan import PAGE_BYTES
from lmdbio.stats import Stats, Tally

__all__ = ["Reader"]

#: What a block aims for where block_iterations is derived: several requests in flight, and a
#: window whose pages are not a large part of what is read through it.
BLOCK_BYTES_TARGET = 8 * 2**20
#: A slot may be so much larger than the bound, for gaps that are read over.
GAP_ALLOWANCE = 1.25
#: Extents asked of the source at once while the bound is computed.
EXTENTS_CHUNK = 2**18
#: Bytes of a table row: offset and length, uint64 each.
ROW_BYTES = 16
#: Address space that must be there before the filling thread is started: twice a usual stack.
LAUNCH_BYTES = 16 * 2**20


# --- the filling thread ------------------------------------------------------------------


class _Stopped(Exception):
    """The filling ends: nobody needs more, or somebody aborted."""


@dataclass(frozen=True, slots=True)
class _State:
    """What roots compare of what they opened."""

    path: str
    inode: int
    txnid: int
    count: int


@dataclass(slots=True)
class _Work:
    """What a root reads with, and from."""

    source: Source
    engine: _core.Engine
    bypass: Bypass
    mode: Mode
    choice: Choice

    def state(self) -> _State:
        inode = os.fstat(self.engine.fd).st_ino
        return _State(self.source.path, inode, self.source.meta.txnid, self.source.count)

    def stats(self) -> Stats:
        """What the engines counted; also after ``close``."""
        pages = self.source.tally()
        return replace(
            Stats.of(self.engine.tally() + self.bypass.tally()),
            page_requests=pages.requests,
            page_bytes=pages.bytes,
        )

    def stage_bytes(self) -> int:
        """What reads that pass by the page cache need of memory, beside the window."""
        engine = self.bypass.engine()
        return 0 if engine is None else engine.depth * _core.Memory.HUGE_PAGE

    def end_bypass(self) -> None:
        self.bypass.close()
        self.mode = replace(self.mode, engine=self.engine.kind)

    def close(self) -> None:
        self.bypass.close()
        self.engine.close()
        self.source.close()


def _grain(engine: _core.Engine) -> int:
    """What reads are aligned to: whole pages, whether the engine asks for it or not.

    The page cache reads nothing less, and values in pages of their own lie next to each other
    only if what follows them in their last page is read as well.
    """
    return max(PAGE_BYTES, engine.alignment)


@dataclass(frozen=True, slots=True)
class _Block:
    """One planned block: its reads, and the table of its rows."""

    plan: _core.Plan
    lengths: npt.NDArray[np.uint64]


class _Flight(NamedTuple):
    """A block whose reads are under way."""

    ticket: _core.Ticket
    address: int
    block: _Block
    past: bool


class _Filler(threading.Thread):
    """Fills the slots of one root, until its team has left.

    It refers to no Reader, so that a forgotten Reader can be collected; and it is no daemon,
    for other ranks may need it when this rank's main thread has ended. It owns ``work``.
    """

    def __init__(
        self,
        seat: share.Seat,
        schedule: Schedule,
        team: int,
        work: _Work,
        request_bytes_max: int,
        tally: Tally,
    ) -> None:
        super().__init__(name="lmdbio-filler", daemon=False)
        self._seat, self._schedule, self._team, self._work = seat, schedule, team, work
        self._gap, self._request = work.choice.gap_bytes_max, request_bytes_max
        self._quit = threading.Event()
        self._pid = os.getpid()
        self.error: BaseException | None = None
        self._blocks, self._tally = 0, tally

    def launch(self) -> None:
        """Starts the thread.

        Room for its stack and its first steps is looked for before: a thread that finds none
        ends without a word, and ``start`` would wait for it for ever.

        Raises:
            MemoryError, OSError: there is no room, or no thread to be had.
        """
        path = self._work.source.path
        try:
            with mmap.mmap(-1, LAUNCH_BYTES):
                pass
        except OSError as error:
            self._work.close()
            raise MemoryError(f"{path}: no memory for a thread that reads") from error
        try:
            self.start()
        except RuntimeError as error:
            self._work.close()
            raise OSError(errno.EAGAIN, "cannot start a thread that reads", path) from error

    def run(self) -> None:
        try:
            self._fill()
        except _Stopped:
            pass
        except BaseException as error:
            self.error = error
            self._seat.abort(error)
        finally:
            self._work.close()

    def engines(self) -> Stats:
        """What the engines counted; also after the end."""
        return self._work.stats()

    def stop(self) -> None:
        """Ends the filling soon, also when others would need more."""
        self._quit.set()

    def finish(self) -> None:
        """Waits for the end, which must be certain."""
        while self.is_alive():
            self.join(_core.SLICE_MS / 1000)

    def _alive(self) -> None:
        if self._quit.is_set():
            raise _Stopped
        if not threading.main_thread().is_alive():
            _retire(self._seat)
        try:
            self._seat.check()
        except Error as error:
            raise _Stopped from error

    def _plan(self, block: int) -> _Block | None:
        blocks = self._schedule.blocks
        if blocks is not None and block >= blocks:
            return None
        begun = monotonic_ns()
        extents = self._work.source.extents(self._schedule.team_records(block, self._team))
        begun = self._tally.located(begun, len(extents))
        room = self._seat.layout.data_bytes
        for gap in (self._gap, self._gap // 4, self._gap // 16, 0):
            plan = _core.make_plan(
                extents,
                gap_bytes_max=gap,
                request_bytes_max=self._request,
                alignment=_grain(self._work.engine),
            )
            if plan.totals.buffer_bytes <= room:
                self._tally.planned(begun, plan.totals)
                return _Block(plan, np.ascontiguousarray(extents["length"], np.uint64))
        raise RuntimeError(
            f"block {block} needs {plan.totals.buffer_bytes} bytes, more than the {room} that "
            "were proven to be enough"
        )

    def _slot_is_free(self, block: int, *, wait: bool) -> bool:
        """Whether the slot of ``block`` may be filled; with ``wait``, waits until it may."""
        released = max(0, block - self._seat.layout.slots + 1)
        begun = monotonic_ns()
        while True:
            ready = self._seat.control.wait_released(
                self._seat.root, self._seat.team, released, _core.SLICE_MS if wait else 0
            )
            if ready is None:
                raise _Stopped
            self._alive()
            if ready or not wait:
                if wait:
                    self._tally.idled(begun)
                return ready

    def _fill(self) -> None:
        """Keeps reads in flight for as many blocks as there are free slots."""
        planned, block = self._plan(0), 0
        flying: deque[_Flight] = deque()
        try:
            while planned is not None or flying:
                if planned is not None and self._slot_is_free(block, wait=not flying):
                    address = self._seat.fill_addresses[block % self._seat.layout.slots]
                    into = address + self._seat.layout.table_bytes
                    past = self._work.bypass.engine(planned.plan.totals.buffer_bytes)
                    engine = past or self._work.engine
                    begun = monotonic_ns()
                    ticket = engine.submit_plan(planned.plan, into, self._seat)
                    self._tally.submitted(begun)
                    flying.append(_Flight(ticket, address, planned, past is not None))
                    block += 1
                    planned = self._plan(block)
                else:
                    self._land(flying[0])
                    flying.popleft()
        finally:
            for flight in flying:
                flight.ticket.close()

    def _land(self, flight: _Flight) -> None:
        """Waits for the oldest block's reads and publishes it."""
        begun = monotonic_ns()
        flight.ticket.wait(self._alive)
        times = flight.ticket.times
        flight.ticket.close()
        self._work.source.guard()
        self._write_table(flight.address, flight.block)
        self._seat.control.publish(self._seat.root, self._blocks + 1)
        self._blocks += 1
        self._tally.filled(begun, times, flight.block.plan.totals.buffer_bytes)
        if flight.past:
            self._work.bypass.took(flight.block.plan.totals.buffer_bytes, times)

    def _write_table(self, address: int, planned: _Block) -> None:
        rows = len(planned.lengths)
        if not rows:
            return
        table = np.frombuffer(_core.lend(address, rows * ROW_BYTES), np.uint64).reshape(rows, 2)
        table[:, 0] = planned.plan.slices
        table[:, 1] = planned.lengths


# --- the end of a process ----------------------------------------------------------------

_readers: weakref.WeakSet[Reader] = weakref.WeakSet()


def _uncaught() -> BaseException | None:
    """The exception that ended the main thread, if one did."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def _retire(seat: share.Seat) -> None:
    """Says to the node that this rank's main thread has ended. Never blocks."""
    error = _uncaught()
    if error is not None:
        seat.abort(error)
    seat.leave((), closes=False)
    seat.keep()


def _at_exit() -> None:
    for reader in list(_readers):
        reader._forget(_uncaught())


atexit.register(_at_exit)


# --- views that are still alive ----------------------------------------------------------


class _Pins:
    """Which blocks this rank still needs: the current one, and those under live views."""

    def __init__(self, seat: share.Seat) -> None:
        self._seat = seat
        self._current = 0
        self._pins: list[tuple[int, int, weakref.ref[Any]]] = []

    def oldest(self) -> int | None:
        """The oldest iteration, before the current batch's, that a live view belongs to."""
        self._pins = [pin for pin in self._pins if pin[2]() is not None]
        return min((iteration for iteration, _, _ in self._pins), default=None)

    def blocks(self) -> set[int]:
        """Blocks under live views."""
        return {block for _, block, alive in self._pins if alive() is not None}

    def add(self, iteration: int, block: int, exporter: Any) -> None:
        """Remembers views, made from ``exporter``, that outlive their batch."""
        # The callback comes when the last view dies, at any moment: it only counts anew.
        reference = weakref.ref(exporter, lambda _dead: self.release())
        self._pins.append((iteration, block, reference))

    def advance(self, block: int) -> None:
        """The rank asks for a batch of ``block``."""
        self._current = max(self._current, block)
        self.release()

    def release(self) -> None:
        self._seat.release(min({self._current} | self.blocks()))


# --- the Reader --------------------------------------------------------------------------


def _integer(name: str, value: Any, lowest: int | None) -> int:
    """``value`` as an int; numpy's integers are welcome, booleans and floats are not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    number = int(value.__index__())
    if lowest is not None and number < lowest:
        raise ValueError(f"{name} must be at least {lowest}, not {number}")
    return number


def _optional(name: str, value: Any, lowest: int) -> int | None:
    return None if value is None else _integer(name, value, lowest)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A Reader's arguments, checked, in the form in which ranks compare them."""

    path: str
    batch_size: int
    mode: Mode | str
    assignment: str
    start: int
    iterations: int | None
    slots: int
    db: bytes | None
    provenance: str | None
    check: Check
    ranks_per_node: int | None
    memory_bytes_max: int
    memory_given: bool
    #: What these leave open, each root chooses for its own node's storage.
    depth: int | None
    gap_bytes_max: int | None
    request_bytes_max: int | None

    #: Copies of one data set may lie elsewhere on each node; memory is each machine's own.
    PER_NODE = ("path", "provenance")

    def compared(self) -> dict[str, Any]:
        told = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("memory_given", "PER_NODE")
        }
        told["mode"] = str(self.mode).casefold()
        if not self.memory_given:
            told["memory_bytes_max"] = None
        return told


class Reader:
    """Iterates over this rank's share of each global batch of a circular data set.

    ``for batch in reader`` gives a ``Batch`` per iteration, for ever unless ``iterations`` is
    given. In iteration t the job consumes records ``start + t*batch_size`` and so on, modulo
    the number of records; rank p of P has the share floor(p*B/P) .. floor((p+1)*B/P) of them,
    which may be empty.

    A batch is valid until this rank asks for the next one. With ``slots=2`` no view or array
    made from it may be alive then: the call raises BufferError and may be repeated when they
    are dropped. Every further slot lets the views of one batch more live on.

    With ``comm`` all ranks make the Reader together, with the same arguments, and close it
    together; between, nothing is collective, and a rank may leave its loop when it likes.

    Args:
        path: the environment's folder, or its file. May differ between nodes that have copies
            of the same data.
        batch_size: records per iteration, over all ranks. May exceed the number of records.
        comm: an mpi4py intracommunicator, or None: this process alone.
        mode: a ``Mode``, a mode's name, or "auto": by the provenance file where there is one,
            else by a scan; with coalescing; by an engine that is chosen (``lmdbio.choice``),
            past the page cache while that is as good (``lmdbio.bypass``).
        assignment: "strided", as Caffe does, or "blocked" (``lmdbio.assignment``).
        start: the first record; any integer.
        iterations: how many; None: endless.
        slots: of the window, per root; at least 2.
        db: name of a named database; None: the main one.
        provenance: the provenance file, or the folder it is in; None: the usual places.
        check: "fast", "deep" or "always": how the provenance file is checked.
        ranks_per_node: splits each node further, to play several nodes on one machine; None:
            as ``LMDBIO_RANKS_PER_NODE`` says, or not at all.
        memory_bytes_max: budget of a machine for windows, bytes; None: as
            ``LMDBIO_MEMORY_BYTES`` says, else the smaller of 2.5 GB and a quarter of the
            memory available to the process.
        depth: requests in flight per root.
        gap_bytes_max: unneeded bytes worth reading to save a request.
        request_bytes_max: bytes per request. None, for any of these three: chosen
            (``lmdbio.choice``).

    Raises:
        ValueError: an argument makes no sense, differs between ranks, the data set is empty,
            or one iteration does not fit the memory budget.
        IncompatibleError: the mode has a choice that this version lacks.
        MemoryError: too little shared memory.
        PeerError: another rank failed while the Reader was made.
        Error, OSError: the data set cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        batch_size: int,
        *,
        comm: Any = None,
        mode: Mode | str = "auto",
        assignment: str = "strided",
        start: int = 0,
        iterations: int | None = None,
        slots: int = 2,
        db: bytes | str | None = None,
        provenance: str | os.PathLike[str] | None = None,
        check: Check = "fast",
        ranks_per_node: int | None = None,
        memory_bytes_max: int | None = None,
        depth: int | None = None,
        gap_bytes_max: int | None = None,
        request_bytes_max: int | None = None,
    ) -> None:
        self._closed = True  # until it is open
        begun = monotonic_ns()
        self._pid = os.getpid()

        def ask() -> _Asked:
            if assignment not in ASSIGNMENTS:
                raise ValueError(
                    f"assignment must be one of {', '.join(ASSIGNMENTS)}, not {assignment!r}"
                )
            if check not in get_args(Check):
                raise ValueError(
                    f"check must be one of {', '.join(get_args(Check))}, not {check!r}"
                )
            Mode.resolve(mode, provenance=False).refuse_absent()
            emulated = share.ranks_per_node() if ranks_per_node is None else ranks_per_node
            return _Asked(
                path=os.fsdecode(path),
                batch_size=_integer("batch_size", batch_size, 1),
                mode=mode,
                assignment=assignment,
                start=_integer("start", start, None),
                iterations=_optional("iterations", iterations, 0),
                slots=_integer("slots", slots, 2),
                db=db.encode() if isinstance(db, str) else db,
                provenance=None if provenance is None else os.fsdecode(provenance),
                check=check,
                ranks_per_node=_optional("ranks_per_node", emulated, 1),
                memory_bytes_max=budget_bytes(memory_bytes_max),
                memory_given=memory_bytes_max is not None,
                depth=_optional("depth", depth, 1),
                gap_bytes_max=_optional("gap_bytes_max", gap_bytes_max, 0),
                request_bytes_max=_optional("request_bytes_max", request_bytes_max, 1),
            )

        job = share.connect(comm)
        try:
            all_asked = job.together(ask)
            asked = all_asked[job.rank]
            compared = [other.compared() for other in all_asked]
            job.compare([{"ranks_per_node": one["ranks_per_node"]} for one in compared])
            job.settle_nodes(asked.ranks_per_node)
            job.compare(compared, per_node=_Asked.PER_NODE)
            self._open(job, asked, [other.memory_bytes_max for other in all_asked])
        except Exception:
            job.free()  # all ranks are here: whatever failed was told to everybody
            raise
        tracing.note("open", begun, monotonic_ns(), {"file": asked.path})

    # --- making it ------------------------------------------------------------------------

    def _open(self, job: share.Job, asked: _Asked, budgets: Sequence[int]) -> None:
        self._asked, self.rank, self.size = asked, job.rank, job.size
        self._filler: _Filler | None = None
        self._tally = Tally(self._engines)
        if job.size > 1:
            tracing.name_rank(job.rank)
        roots_wanted = Mode.resolve(asked.mode, provenance=False)
        split = [share.teams(node, roots_wanted.roots(len(node))) for node in job.nodes]
        own_node = job.nodes.index(job.node)
        teams = sorted(
            tuple(sorted(node[i] for i in team))
            for node, node_teams in zip(job.nodes, split, strict=True)
            for team in node_teams
        )
        root = next(i for i, team in enumerate(split[own_node]) if job.node_rank in team)
        is_root = split[own_node][root].start == job.node_rank
        machine = job.same_machine()
        roots_here = sum(
            node[team.start] in machine
            for node, node_teams in zip(job.nodes, split, strict=True)
            for team in node_teams
        )
        # The control area and the alignment of the slots are part of the budget too.
        grain = max(share.SLOT_ALIGNMENT, os.sysconf("SC_PAGE_SIZE"))
        apart = share.control_bytes(len(job.node), len(split[own_node]), grain) + grain
        budget = min(budgets[rank] for rank in machine) // roots_here
        work: _Work | None = None
        filler: _Filler | None = None
        try:
            work = job.together_local(
                lambda: self._open_work(asked, len(teams)) if is_root else None
            )
            states = job.together(lambda: work.state() if work else None)
            count = self._agree_count(states)
            plain = Schedule(
                count=count,
                batch_size=asked.batch_size,
                teams=tuple(teams),
                assignment=asked.assignment,
                start=asked.start,
                iterations=asked.iterations,
            )
            room = _Room(plain, plain.team_of(job.rank), asked, budget, apart)

            def bound_and_propose() -> int | None:
                if work is None:
                    return None
                room.measure(work)
                return room.propose(work.mode.block_iterations)

            k = min(told for told in job.together(bound_and_propose) if told is not None)

            def settle() -> Mode | None:
                if work is None:
                    return None
                if room.block_bytes(k) < BATCH_BYTES_MIN:
                    work.end_bypass()  # no block would take it
                return work.mode

            modes = job.together(settle)
            schedule = replace(plain, block_iterations=k)
            server = job.node[split[own_node][root].start]
            served = modes[server]
            assert served is not None
            self.mode = replace(served, block_iterations=k, roots_per_node=len(split[own_node]))
            seat = share.take_seat(
                job, split[own_node], room.layout(k) if work is not None else None
            )
            self.count, self.schedule = count, schedule
            self._team = schedule.team_of(job.rank)
            if work is not None:
                filler = _Filler(
                    seat, schedule, self._team, work, room.request_bytes_max, self._tally
                )
                work = None
        finally:
            if work is not None:
                work.close()
        self._seat, self._filler, self._pins = seat, filler, _Pins(seat)
        self._next = 0
        self._batch: Batch | None = None
        self._rows = schedule.rows(0, job.rank)
        try:
            job.together_local(lambda: None if filler is None else filler.launch())
        except Exception:
            if filler is not None:
                filler.stop()
                filler.finish()
            seat.abandon()  # all ranks are here
            raise
        self._closed = False
        self._ended = False
        _readers.add(self)

    @staticmethod
    def _open_work(asked: _Asked, roots: int) -> _Work:
        auto = isinstance(asked.mode, str) and asked.mode.casefold() == "auto"
        asked_mode = Mode.resolve(asked.mode, provenance=False)
        wanted = "auto" if auto else cast(Locate, asked_mode.locate)
        source = open_source(
            asked.path,
            db=asked.db,
            locate=wanted,
            provenance=asked.provenance,
            check=asked.check,
        )
        try:
            mode = Mode.resolve(asked.mode, provenance=source.locate == "provenance")
            wish = Wish(
                None if auto else mode.engine,
                asked.depth,
                asked.request_bytes_max,
                asked.gap_bytes_max,
            )
            choice = source.choose_way("stream", wish)
            engine = source.open_engine(choice)
            bypass = Bypass(
                engine,
                source.used_bytes,
                depth=choice.depth,
                wanted=choice.past_cache,
                kind="staged",
                readers=roots,
            )
            mode = replace(mode, engine=(bypass.engine() or engine).kind)
        except BaseException:
            source.close()
            raise
        return _Work(source, engine, bypass, mode, choice)

    @staticmethod
    def _agree_count(states: Sequence[_State | None]) -> int:
        """The number of records, on which all roots must agree."""
        known = {rank: state for rank, state in enumerate(states) if state is not None}
        first_rank, first = next(iter(known.items()))
        for rank, state in known.items():
            if state.count != first.count:
                raise ValueError(
                    "the data set's number of records differs between roots: "
                    f"{first.count} in {first.path} by rank {first_rank}, "
                    f"{state.count} in {state.path} by rank {rank}"
                )
            if (state.path, state.inode) == (first.path, first.inode) and (
                state.txnid != first.txnid
            ):
                raise Error(
                    f"{state.path}: was written to while the Reader was made: rank {first_rank} "
                    f"saw transaction {first.txnid}, rank {rank} saw {state.txnid}"
                )
        return first.count

    # --- iterating ------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            StopIteration: after ``iterations``.
            BufferError: views of an earlier batch are alive; may be tried again.
            PeerError: another rank of the node failed.
            Error, OSError: this rank's filling thread failed.
        """
        self._usable()
        iteration = self._next
        if self._asked.iterations is not None and iteration >= self._asked.iterations:
            self._end()
            raise StopIteration
        self._let_go(iteration)
        block, step = self.schedule.block_of(iteration)
        self._pins.advance(block)
        begun = monotonic_ns()
        while not self._seat.control.wait_published(self._seat.root, block):
            self._check()
        self._check()
        self._tally.waited(begun, "wait for a block")
        batch = self._take(iteration, block, step)
        self._batch = batch
        self._next = iteration + 1
        self._tally.iterated(batch.lengths)
        return batch

    def _usable(self) -> None:
        if self._pid != os.getpid():
            raise Error("a Reader cannot be used in a forked child; make one there")
        if self._closed:
            raise Error("this Reader is closed")

    def _check(self) -> None:
        """Raises what ended the reading, here or on another rank of the node."""
        if self._filler is not None and self._filler.error is not None:
            raise self._filler.error
        self._seat.check()

    def _let_go(self, iteration: int) -> None:
        """Ends the last batch. BufferError when a view is alive that must not be."""
        bar = iteration + 2 - self._asked.slots
        oldest = self._pins.oldest()
        if oldest is not None and oldest < bar:
            self._refuse(oldest, iteration)
        batch = self._batch
        if batch is None:
            return
        if not batch._let_go():
            if iteration - 1 < bar:
                self._refuse(iteration - 1, iteration)
            self._pin(batch)
        self._batch = None

    def _pin(self, batch: Batch) -> None:
        """Ends a batch whose views live on."""
        exporter = batch._expire()
        if exporter is not None:
            last = self._next - 1
            self._pins.add(last, self.schedule.block_of(last)[0], exporter)

    def _refuse(self, held: int, iteration: int) -> None:
        raise BufferError(
            f"views of the batch of iteration {held} are alive while iteration {iteration} is "
            f"asked for, and slots={self._asked.slots} leaves no memory for that: drop them, "
            "copy() it, or raise slots="
        )

    def _take(self, iteration: int, block: int, step: int) -> Batch:
        seat = self._seat
        indices = self.schedule.records(iteration, self.rank)
        if not len(indices):
            none = np.empty(0, np.uint64)
            return Batch(None, indices=indices, offsets=none, lengths=none)
        first = self._rows.start + step * self.schedule.team_rows(self._team)
        slot = seat.addresses[block % seat.layout.slots]
        lent = _core.lend(slot + first * ROW_BYTES, len(indices) * ROW_BYTES)
        table = np.frombuffer(lent, np.uint64).reshape(-1, 2).copy()
        filled = table[:, 1] > 0
        low = int(table[filled, 0].min()) if filled.any() else 0
        high = int((table[filled, 0] + table[filled, 1]).max()) if filled.any() else 0
        if not 0 <= low <= high <= seat.layout.data_bytes:
            raise RuntimeError(f"the table of block {block} points outside its slot")
        exporter = None
        if filled.any():
            address = slot + seat.layout.table_bytes + low
            exporter = _core.lend(address, high - low, seat.memory)
        offsets = np.where(filled, table[:, 0] - np.uint64(low), np.uint64(0))
        return Batch(exporter, indices=indices, offsets=offsets, lengths=table[:, 1])

    # --- the end --------------------------------------------------------------------------

    def _end(self) -> None:
        """After the last iteration: this rank asks for nothing more.

        Live views need no care: no block comes that would be read over them.
        """
        if self._ended:
            return
        self._ended = True
        if self._batch is not None and not self._batch._let_go():
            self._pin(self._batch)
        self._batch = None
        self._seat.leave((), closes=False)

    def _pinned_slots(self) -> set[int]:
        """Ends the current batch; which slots live views look at."""
        if self._batch is not None and not self._batch._let_go():
            self._pin(self._batch)
        self._batch = None
        return {block % self._seat.layout.slots for block in self._pins.blocks()}

    def _forget(self, error: BaseException | None) -> None:
        """Leaves for good without waiting for anybody, after an error aborting the node."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if error is not None:
            self._seat.abort(error)
        pinned = self._pinned_slots()
        self._seat.leave(pinned, closes=False)
        self._seat.keep()
        self._seat.bequeath(self._is_unused())

    def _is_unused(self) -> Callable[[], bool]:
        """Says later, without this Reader, whether its window is used no more."""
        filler, pins = self._filler, self._pins

        def is_unused() -> bool:
            return (filler is None or not filler.is_alive()) and not pins.blocks()

        return is_unused

    def close(self) -> None:
        """Ends reading and frees the window. Collective over the node; may be repeated.

        Waits until all ranks of the node have left their loops, for a root reads for others.
        Batches end; views and arrays made from them stay good.
        """
        if self._closed or self._pid != os.getpid():
            self._closed = True
            return
        self._closed = True
        try:
            self._seat.leave(self._pinned_slots(), closes=True)
            self._seat.close(self._finish, self._is_unused())
        except BaseException as error:
            self._seat.abort(error)
            self._seat.keep()
            self._seat.bequeath(self._is_unused())
            raise

    def _finish(self) -> None:
        if self._filler is not None:
            self._filler.finish()

    def __enter__(self) -> Reader:
        self._usable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        quiet = isinstance(error, GeneratorExit) or (
            isinstance(error, SystemExit) and error.code in (None, 0)
        )
        self._forget(None if quiet or isinstance(error, PeerError) else error)
        if self._filler is not None and not quiet and self._pid == os.getpid():
            self._filler.stop()
            self._filler.finish()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it never was open
            self._forget(None)

    # --- what it did ----------------------------------------------------------------------

    def _engines(self) -> Stats:
        """What the engines counted that this rank reads with."""
        filler = self._filler
        return Stats() if filler is None else filler.engines()

    def stats(self) -> Stats:
        """What this rank has done so far; also after ``close``.

        A rank that reads for others has their records among those it located and planned, and
        only its own among those handed out.
        """
        return replace(self._tally.stats(), window_bytes=self._seat.window_bytes)

    def __repr__(self) -> str:
        if not hasattr(self, "_seat"):
            return "<Reader that was never open>"
        state = "closed" if self._closed else f"at iteration {self._next}"
        return f"<Reader of {self._asked.path}, rank {self.rank} of {self.size}, {state}>"


class _Room:
    """Sizes a root's slots: by a proven bound, within the budget."""

    def __init__(
        self, schedule: Schedule, team: int, asked: _Asked, budget: int, apart: int
    ) -> None:
        self._schedule, self._team, self._asked = schedule, team, asked
        self._budget, self._apart = budget, apart
        self._rows = schedule.team_rows(team)
        self._alignment = share.SLOT_ALIGNMENT
        self.request_bytes_max = 0  # until it is measured
        self._bound = FootprintBound(1, 1)

    def measure(self, work: _Work) -> None:
        """Goes through all extents once."""
        grain = _grain(work.engine)
        page = os.sysconf("SC_PAGE_SIZE")
        self._alignment = max(share.SLOT_ALIGNMENT, page, grain)
        self.request_bytes_max = -(-work.choice.request_bytes_max // grain) * grain
        count = self._schedule.count
        self._bound = FootprintBound(count, grain)
        for first in range(0, count, EXTENTS_CHUNK):
            last = min(count, first + EXTENTS_CHUNK)
            self._bound.add(work.source.extents(np.arange(first, last, dtype=np.uint64)))
        self._set_apart_stages(work)

    def _set_apart_stages(self, work: _Work) -> None:
        """They count too; where there is no room for them, the page cache serves."""
        stages = work.stage_bytes()
        self._apart += stages
        if stages and not self._fits(max(work.mode.block_iterations, 1)):
            self._apart -= stages
            work.end_bypass()

    def _rounded(self, size: int) -> int:
        return -(-max(size, 1) // self._alignment) * self._alignment

    def _table_bytes(self, k: int) -> int:
        return self._rounded(k * self._rows * ROW_BYTES)

    def _data_bytes(self, k: int) -> int:
        """What any block of ``k`` iterations needs at most, gaps excluded."""
        schedule, bound = self._schedule, self._bound
        if schedule.assignment == "blocked":
            return self._rounded(bound.run(k * self._rows))
        scattered = bound.runs(schedule.runs(self._team), k)
        return self._rounded(min(scattered, bound.run(k * schedule.batch_size)))

    def block_bytes(self, k: int) -> int:
        """What a block of ``k`` iterations needs on average."""
        return self._bound.total * self._rows * k // self._schedule.count

    def _fits(self, k: int) -> bool:
        slot = self._table_bytes(k) + self._data_bytes(k)
        return self._apart + self._asked.slots * slot <= self._budget

    def propose(self, k: int) -> int:
        """``k`` if it fits the budget; where it is to be derived, a good one that fits."""
        if not self._fits(max(k, 1)):
            slot = self._table_bytes(max(k, 1)) + self._data_bytes(max(k, 1))
            need = self._apart + self._asked.slots * slot
            what = "one iteration" if k <= 1 else f"a block of {k} iterations"
            raise ValueError(
                f"{what} needs {need} bytes of window on this root ({self._asked.slots} slots), "
                f"and its part of the memory budget is {self._budget} bytes: take a smaller "
                "batch_size, fewer slots, or a larger memory_bytes_max"
            )
        if k != AUTO:
            return k
        schedule = self._schedule
        each = max(1, self.block_bytes(1))
        best = min(BLOCK_BYTES_TARGET // each, schedule.count // schedule.batch_size)
        if schedule.iterations is not None:
            # Two blocks at least, or nothing is read ahead.
            best = min(best, -(-schedule.iterations // 2))
        best = max(1, best)
        low = 1
        while low < best:
            middle = (low + best + 1) // 2
            low, best = (middle, best) if self._fits(middle) else (low, middle - 1)
        return low

    def layout(self, k: int) -> share.Layout:
        """How the part is cut for blocks of ``k`` iterations."""
        table, data = self._table_bytes(k), self._data_bytes(k)
        spare = (self._budget - self._apart) // self._asked.slots - table - data
        allowance = min(int(data * (GAP_ALLOWANCE - 1)), spare)
        data += max(0, allowance) // self._alignment * self._alignment
        return share.Layout(self._asked.slots, table, data, self._alignment)
