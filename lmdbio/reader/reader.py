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
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic_ns
from types import TracebackType
from typing import Any, get_args

from lmdbio import _core, share
from lmdbio.batch import Batch
from lmdbio.errors import Error, IncompatibleError, PeerError
from lmdbio.locate.source import Check, Order
from lmdbio.machine.budget import budget_bytes
from lmdbio.machine.overrides import Overrides
from lmdbio.observe import tracing
from lmdbio.observe.stats import Stats, Tally
from lmdbio.planning.mode import AHEAD, USUAL_TOKENS, Mode
from lmdbio.planning.schedule import ASSIGNMENTS, Schedule
from lmdbio.reader.block_size import Sizing
from lmdbio.reader.root_mail import Links, count_tokens, link
from lmdbio.reader.root_thread import ROW_BYTES, Filler, uncaught
from lmdbio.reader.roots import DataSet, Work, open_roots
from lmdbio.reading.direct_path import BATCH_BYTES_MIN

__all__ = ["Reader"]


_readers: weakref.WeakSet[Reader] = weakref.WeakSet()


def _at_exit() -> None:
    for reader in list(_readers):
        reader._forget(uncaught())


atexit.register(_at_exit)
share.before_finalize(_at_exit)


# --- views that are still alive ----------------------------------------------------------


class _Pins:
    """Which blocks this rank still needs: the current one, and those under live views."""

    def __init__(self, window: share.NodeWindow) -> None:
        self._window = window
        self._current = self._told = 0
        self._pins: list[tuple[int, int, weakref.ref[Any]]] = []

    def oldest(self) -> int | None:
        """The oldest iteration, before the current batch's, that a live view belongs to."""
        self._pins = [pin for pin in self._pins if pin[2]() is not None]
        return min((iteration for iteration, _, _ in self._pins), default=None)

    def blocks(self) -> set[int]:
        """Blocks under live views."""
        return {block for _, block, alive in self._pins if alive() is not None}

    def spans(self) -> list[tuple[int, int]]:
        """Addresses that live views look at: of the first byte, and after the last."""
        spans = []
        for _, _, alive in self._pins:
            exporter = alive()
            if exporter is not None:
                first = _core.address_of(exporter)
                spans.append((first, first + len(exporter)))
        return spans

    def add(self, iteration: int, block: int, exporter: Any) -> None:
        """Remembers views, made from ``exporter``, that outlive their batch."""
        # The callback comes when the last view dies, at any moment: it only counts anew.
        reference = weakref.ref(exporter, lambda _dead: self.release())
        self._pins.append((iteration, block, reference))

    def advance(self, block: int) -> None:
        """The rank asks for a batch of ``block``."""
        self._current = max(self._current, block)
        if self._told < self._current:  # also when an exception (Ctrl-C) came between
            self.release()
            self._told = self._current

    def release(self) -> None:
        self._window.release(min({self._current} | self.blocks()))


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
    order: Order
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
        told["mode"] = self.mode.casefold() if isinstance(self.mode, str) else str(self.mode)
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

    ``mode`` is what came of the mode asked for, and ``turns.text`` why it has so many tokens.

    Args:
        path: the environment's folder, or its file. May differ between nodes that have copies
            of the same data.
        batch_size: records per iteration, over all ranks. May exceed the number of records.
        comm: an mpi4py intracommunicator, or None: this process alone. Freed before the Reader
            is closed, it takes the letters with it: a failure is not told on other nodes.
        mode: a ``Mode``, a mode's name, or "auto": by the provenance file where there is one,
            else by a scan; with coalescing; by an engine that is chosen (``lmdbio.choice``),
            past the page cache while that is as good (``lmdbio.bypass``); in turn where several
            nodes read one file.
        assignment: "strided", as Caffe does, or "blocked" (``lmdbio.assignment``).
        start: the first record; any integer.
        iterations: how many; None: endless.
        slots: of the window, per root; at least 2. With 3 a loop's variables may hold on to one
            batch while the next is asked for. There are more of them where blocks are small.
        db: name of a named database; None: the main one.
        provenance: the provenance file, or the folder it is in; None: the usual places.
        check: "fast", "deep" or "always": how the provenance file is checked.
        order: of the records: "key", or "insertion": as they were put, where their keys tell
            (``locate.open_source``).
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
        IncompatibleError: the order in which records were put is not known, or not to be had
            in this mode; the mode needs letters between roots, and MPI serves one thread alone.
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
        slots: int = 3,
        db: bytes | str | None = None,
        provenance: str | os.PathLike[str] | None = None,
        check: Check = "fast",
        order: Order = "key",
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
            for name, value, kind in (("check", check, Check), ("order", order, Order)):
                if value not in get_args(kind):
                    raise ValueError(
                        f"{name} must be one of {', '.join(get_args(kind))}, not {value!r}"
                    )
            resolved = Mode.resolve(mode, provenance=False)
            if order == "insertion" and resolved.locate not in AHEAD:
                raise IncompatibleError(
                    f"mode {resolved} seeks records in the order of their keys: "
                    "order='insertion' needs locate='scan' or a provenance file"
                )
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
                order=order,
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
        except BaseException as error:
            job.fail(error)
            job.free()  # all ranks are here: whatever failed was told to everybody
            raise
        tracing.note("open", begun, monotonic_ns(), {"file": asked.path})

    # --- making it ------------------------------------------------------------------------

    def _open(self, job: share.Job, asked: _Asked, budgets: Sequence[int]) -> None:
        self._asked, self.rank, self.size = asked, job.rank, job.size
        self._filler: Filler | None = None
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
        work: Work | None = None
        filler: Filler | None = None
        links: Links | None = None
        try:
            data = DataSet(
                asked.path,
                asked.db,
                asked.mode,
                asked.provenance,
                asked.check,
                asked.order,
                Overrides(None, asked.depth, asked.request_bytes_max, asked.gap_bytes_max),
            )
            work, seen, is_shared = open_roots(job, data, is_root=is_root, roots=len(teams))
            plain = Schedule(
                count=seen.count,
                batch_size=asked.batch_size,
                teams=tuple(teams),
                assignment=asked.assignment,
                start=asked.start,
                iterations=asked.iterations,
            )
            is_auto = Mode.is_auto(asked.mode)
            if is_auto and is_shared and len(job.nodes) > 1:
                # Storage that is far likes to be read in order; a disk here needs no turns.
                roots_wanted = replace(roots_wanted, tokens=USUAL_TOKENS)
            tokens, self.turns = count_tokens(
                job, plain, roots_wanted, seen.staggerings, suggested=is_auto
            )
            room = Sizing(
                plain,
                plain.team_of(job.rank),
                asked.slots,
                budget,
                apart,
                takes_turns=tokens > 0,
            )

            def bound_and_propose() -> int | None:
                if work is None:
                    return None
                free = None if job.alone else share.shm_free()
                room.measure(work, None if free is None else free // roots_here)
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
            links = link(job, schedule, modes[0], tokens, work)
            server = job.node[split[own_node][root].start]
            served = modes[server]
            assert served is not None
            self.mode = replace(
                served,
                block_iterations=k,
                roots_per_node=len(split[own_node]),
                tokens=tokens,
            )
            window = share.attach_window(
                job, split[own_node], room.layout(k) if work is not None else None
            )
            self.count, self.schedule = seen.count, schedule
            self._team = schedule.team_of(job.rank)
            if work is not None:
                filler = Filler(
                    window, schedule, self._team, work, room.request_bytes_max, self._tally, links
                )
                work = None
        finally:
            if work is not None:
                work.close()
            if filler is None and links is not None:
                links.close()
        self._window, self._filler, self._pins = window, filler, _Pins(window)
        self._next = 0
        self._batch: Batch | None = None
        self._rows = schedule.rows(0, job.rank)
        try:
            job.together_local(lambda: None if filler is None else filler.launch())
        except BaseException:
            if filler is not None:
                filler.stop()
                filler.finish()
            window.abandon()  # all ranks are here
            raise
        self._closed = False
        self._ended = False
        _readers.add(self)

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
        while not self._window.control.wait_published(self._window.root, block):
            self._check()
            self._check_filler(block)
        self._check()
        self._tally.waited(begun, "wait for a block")
        batch = self._take(iteration, block, step)
        self._batch = batch
        self._next = iteration + 1
        self._tally.iterated(len(batch), int(batch.lengths.sum()))
        return batch

    def _usable(self) -> None:
        if self._pid != os.getpid():
            raise Error("a Reader cannot be used in a forked child; make one there")
        if self._closed:
            raise Error("this Reader is closed")

    def _check(self) -> None:
        """Raises what ended the reading, here or on another rank of the node."""
        ended: Error | None = None
        try:
            self._window.check()
        except Error as error:
            ended = error
        # After that, for the thread notes its own error first and then tells everybody of it.
        if self._filler is not None and self._filler.error is not None:
            raise self._filler.error
        if ended is not None:
            raise ended

    def _check_filler(self, block: int) -> None:
        """Raises when nobody reads a block that this rank waits for: the main thread, which
        another one outlives here, has ended, and the filling thread with it."""
        filler = self._filler
        if filler is None or filler.is_filling:
            return
        if not self._window.control.wait_published(self._window.root, block):
            self._check()
            raise Error(f"{self._asked.path}: is read no more, for the main thread has ended")

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
        window = self._window
        lender = window.lender  # first: what is looked at below must not end meanwhile
        indices = self.schedule.records(iteration, self.rank)
        first = self._rows.start + step * self.schedule.team_rows(self._team)
        slot = window.addresses[block % window.layout.slots]
        rows = _core.split_rows(slot + first * ROW_BYTES, len(indices), window.layout.data_bytes)
        if rows is None:
            raise RuntimeError(f"the table of block {block} points outside its slot")
        offsets, lengths, low, size = rows
        address = slot + window.layout.table_bytes + low
        if lender is None and size:
            lender = _core.Memory(size)
            _core.lend(lender.address, size)[:] = _core.lend(address, size)[:]
            address = lender.address
        return Batch.of_slot(
            address, size, indices=indices, offsets=offsets, lengths=lengths, keep=lender
        )

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
        self._window.leave((), closes=False)

    def _pinned(self) -> list[tuple[int, int]]:
        """Ends the current batch; which addresses live views look at."""
        if self._batch is not None and not self._batch._let_go():
            self._pin(self._batch)
        self._batch = None
        return self._pins.spans()

    def _forget(self, error: BaseException | None) -> None:
        """Leaves for good without waiting for anybody, after an error aborting the node."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if error is not None:
            self._window.abort(error)
        try:
            self._window.leave(self._pinned(), closes=False)
        finally:
            self._window.keep()
            self._window.hand_over(self._is_unused())

    def _is_unused(self) -> Callable[[], bool]:
        """Says later, without this Reader, whether this rank fills its window no more."""
        filler = self._filler
        return lambda: filler is None or not filler.is_filling

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
            self._window.leave(self._pinned(), closes=True)
            self._window.close(self._finish, self._is_unused())
        except BaseException as error:
            self._window.abort(error)
            self._window.keep()
            self._window.hand_over(self._is_unused())
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

    @property
    def iteration(self) -> int:
        """Batches that this rank has been given: the number of the next one."""
        return self._next

    @property
    def launched_s(self) -> float | None:
        """When this rank began to read for its team, by ``time.monotonic``; None: another does.

        Roots read as soon as they can, before all ranks have opened.
        """
        return None if self._filler is None else self._filler.launched_s

    def _engines(self) -> Stats:
        """What the engines counted that this rank reads with."""
        filler = self._filler
        return Stats() if filler is None else filler.engines()

    def stats(self) -> Stats:
        """What this rank has done so far; also after ``close``.

        A rank that reads for others has their records among those it located and planned, and
        only its own among those handed out.
        """
        return replace(self._tally.stats(), window_bytes=self._window.window_bytes)

    def __repr__(self) -> str:
        if not hasattr(self, "_window"):
            return "<Reader that was never open>"
        state = "closed" if self._closed else f"at iteration {self._next}"
        return f"<Reader of {self._asked.path}, rank {self.rank} of {self.size}, {state}>"
