"""This rank's place at the window of its node: how it is allocated, used and given back."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lmdbio import _core
from lmdbio.errors import Error, PeerError
from lmdbio.share.job import Job, describe, machine_name, ranks_text
from lmdbio.share.memory import SHM, Name, SharedMemory, leave_window

#: First byte, and the one after the last.
Span = tuple[int, int]
#: Slots begin at multiples of this many bytes (or of the page, or of the engine's alignment).
SLOT_ALIGNMENT = 4096
#: How long close() waits for ranks that have left but do not close, seconds.
CLOSE_GRACE_S = 10.0
#: Numbers of this process's windows.
_numbers = itertools.count()


def shm_free() -> int | None:
    """Bytes free for shared windows on this machine; None when nobody can tell."""
    try:
        stat = os.statvfs(SHM)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize


@dataclass(frozen=True, slots=True)
class Layout:
    """How a root's part is cut.

    Attributes:
        slots: how many.
        table_bytes, data_bytes: of each slot, multiples of ``alignment``.
        alignment: bytes.
        is_reserved: all of it is backed with memory at once; else as much as is filled
            (``Seat.back``), for slots that may have to be large and hardly ever are.
    """

    slots: int
    table_bytes: int
    data_bytes: int
    alignment: int
    is_reserved: bool = True

    @property
    def slot_bytes(self) -> int:
        return self.table_bytes + self.data_bytes

    def part_bytes(self, control: int) -> int:
        """Size of the part to allocate: whatever address it gets, it can be aligned."""
        return control + self.alignment + self.slots * self.slot_bytes


def control_bytes(ranks: int, roots: int, alignment: int) -> int:
    return -(-_core.Window.bytes(ranks, roots) // alignment) * alignment


def check_shm(job: Job, sizes: Sequence[int], free: Sequence[int | None]) -> None:
    """Compares what the windows need with what each machine has, before any touch.

    Args:
        sizes, free: per job rank, bytes; the same lists on all ranks.

    Raises:
        MemoryError: on all ranks alike.
    """
    machines: dict[str, list[int]] = {}
    for rank, place in enumerate(job._places):
        machines.setdefault(place.machine, []).append(rank)
    for ranks in machines.values():
        needed = sum(sizes[rank] for rank in ranks)
        known = [have for rank in ranks if (have := free[rank]) is not None]
        if known and needed > min(known):
            raise MemoryError(
                f"the shared windows of {ranks_text(ranks)} need {needed} bytes of {SHM}, which "
                f"has {min(known)} free; take a smaller batch_size, fewer slots or a smaller "
                f"memory_bytes_max, or enlarge {SHM}"
            )


def pages_of(spans: Iterable[Span], page: int) -> list[Span]:
    """The whole pages that some bytes lie in, as runs that do not touch, in order."""
    runs: list[Span] = []
    for first, end in sorted(spans):
        first, end = first // page * page, -(-end // page) * page
        if runs and first <= runs[-1][1]:
            first, last = runs.pop()
            end = max(end, last)
        runs.append((first, end))
    return runs


def take_seat(job: Job, node_teams: Sequence[range], layout: Layout | None) -> Seat:
    """Allocates, reserves and formats the window. Collective over the job.

    Args:
        node_teams: node ranks of each root on this node.
        layout: of this rank's slots; None when it is no root.

    Raises:
        MemoryError: too little shared memory; on all ranks.
    """
    root = next(i for i, team in enumerate(node_teams) if job.node_rank in team)
    ranks, roots = len(job.node), len(node_teams)

    def wants() -> tuple[Layout | None, int, int | None]:
        control = 0
        if layout is not None and job.node_rank == 0:
            control = control_bytes(ranks, roots, layout.alignment)
        size = 0 if layout is None else layout.part_bytes(control)
        return layout, size, None if job.alone else shm_free()

    wanted = job.together(wants)
    check_shm(job, [size for _, size, _ in wanted], [free for _, _, free in wanted])
    made: list[SharedMemory] = []
    try:
        job.together(lambda: made.append(job.allocate(wanted[job.rank][1])))
    except BaseException:
        for memory in made:  # another node had none
            memory.free()
        raise
    memory = made[0]
    try:
        return _furnish(job, node_teams, root, wanted, memory)
    except BaseException:
        # All ranks are here: whatever failed was told to everybody.
        memory.free()
        raise


def _furnish(
    job: Job,
    node_teams: Sequence[range],
    root: int,
    wanted: Sequence[tuple[Layout | None, int, int | None]],
    memory: SharedMemory,
) -> Seat:
    ranks, roots = len(job.node), len(node_teams)

    def furnish() -> tuple[int, Name]:
        name = machine_name(), os.getpid(), next(_numbers)
        layout = wanted[job.rank][0]
        if layout is None:
            return 0, name
        own = memory.parts[job.node_rank]
        start = -own % layout.alignment
        memory.reserve(own, memory.size if layout.is_reserved else layout.alignment)
        if job.node_rank == 0:
            _core.Window(own + start, ranks=ranks, roots=roots, fresh=True)
        return int(start), name

    told = job.together(furnish)
    starts = [start for start, _ in told]
    memory.name = told[job.node[0]][1]
    chief, server = job.node[0], job.node[node_teams[root].start]
    layout, chief_layout = wanted[server][0], wanted[chief][0]
    assert layout is not None and chief_layout is not None

    first = memory.parts[node_teams[root].start] + starts[server]
    if server == chief:
        first += control_bytes(ranks, roots, chief_layout.alignment)

    def attach() -> tuple[_core.Window, _core.Mapping | None]:
        address = memory.parts[0] + starts[chief]
        control = _core.Window(address, ranks=ranks, roots=roots, fresh=False)
        if memory.keep is not None:
            return control, None
        return control, _core.map_again(first, layout.slots * layout.slot_bytes)

    control, mapping = job.together_local(attach)
    return Seat(job, control, root, node_teams[root], layout, first, memory, mapping)


class Seat:
    """This rank's place at its node's window.

    Slots are filled where MPI maps the window, and looked at where this process maps them a
    second time: that mapping lives as long as a view, which neither the end of the window nor
    that of MPI can take away.

    Attributes:
        control: who has filled, released, left.
        root: number of its root on the node.
        team: node ranks of its team; the first is the root.
        rank: its node rank.
        layout: of the root's slots.
        addresses: of the slots, where this process reads them.
        fill_addresses: of the slots, where the root fills them.
        lender: what must be kept alive while views are. None: they must be views of a copy,
            for the window cannot be mapped a second time.
    """

    def __init__(
        self,
        job: Job,
        control: _core.Window,
        root: int,
        team: range,
        layout: Layout,
        first: int,
        memory: SharedMemory,
        mapping: _core.Mapping | None,
    ) -> None:
        self.control, self.root, self.team = control, root, team
        self.rank, self.layout = job.node_rank, layout
        self.fill_addresses = self._slots_from(first)
        self.addresses = self._slots_from(first if mapping is None else mapping.address)
        self.lender: object = mapping or memory.keep
        self._mapping = mapping
        self._node = job.node
        self._memory = memory
        self._left = False
        self._pid = os.getpid()
        self._pinned: list[Span] = []  # pages of the mapping under views, when it left
        # A view may die at any moment of any thread, and so of one that is here.
        self._releasing = threading.RLock()
        whole = layout.slot_bytes if layout.is_reserved else 0
        self._backed = [whole] * layout.slots

    def _slots_from(self, first: int) -> list[int]:
        return [first + slot * self.layout.slot_bytes for slot in range(self.layout.slots)]

    @property
    def window_bytes(self) -> int:
        """Bytes of shared memory that this rank owns."""
        return self._memory.size

    def check(self) -> None:
        """Raises PeerError when somebody aborted."""
        if self._memory.gone:
            raise Error("the shared window is gone: MPI was finalized")
        told = self.control.aborted()
        if told is not None:
            raise PeerError(f"rank {told[0]} failed: {told[1]}")

    def abort(self, error: BaseException) -> None:
        """Makes every rank of the node raise PeerError."""
        self.abort_for(self._node[self.rank], describe(error))

    def abort_for(self, rank: int, cause: str) -> None:
        """The same, for a rank of the job that failed elsewhere."""
        if not self._memory.gone:
            self.control.abort(rank, cause)

    def aborted(self) -> tuple[int, str] | None:
        """(job rank, cause) of whoever aborted."""
        return None if self._memory.gone else self.control.aborted()

    def back(self, slot: int, data_bytes: int) -> None:
        """Root: makes sure that a slot has memory for its table and so many bytes of data.

        Raises:
            MemoryError: there is not enough.
        """
        size, have = self.layout.table_bytes + data_bytes, self._backed[slot]
        if size > have and not self._memory.gone:
            self._memory.reserve(self.fill_addresses[slot] + have, size - have)
            self._backed[slot] = size

    def release(self, blocks: int) -> None:
        """Blocks [0, ``blocks``) are needed here no more.

        Views that a forked child drops say nothing of its parent's.
        """
        if self._pid != os.getpid():
            return
        with self._releasing:
            if not self._left and not self._memory.gone:
                self.control.release(self.root, self.rank, blocks)

    def leave(self, pinned: Iterable[Span], *, closes: bool) -> None:
        """Asks for no more blocks. Not collective; never blocks.

        Args:
            pinned: addresses that live views look at. Their pages are swapped for private copies:
                the window is filled on, and its memory given back.
            closes: ``close`` follows.

        Raises:
            MemoryError, OSError: there is no memory for the copies; then all are told, and the
                window is filled no more.
        """
        spans = list(pinned)
        if self._mapping is not None and spans:
            self._pinned = pages_of(spans, mmap.PAGESIZE)
            try:
                for first, end in self._pinned:
                    self._mapping.detach(first, end - first)
            except BaseException as error:
                self.abort(error)  # and not left: what views look at is not to be filled anew
                raise
        with self._releasing:
            self._left = True
        if not self._memory.gone:
            state = _core.Window.CLOSES if closes else _core.Window.LEFT
            self.control.leave(self.root, self.rank, state)
        if spans and self._memory.is_of_job:  # last, for a filter may make it an error
            warnings.warn(
                "views of batches are alive while their Reader ends: they stay good, but keep "
                "their batch's memory until they are dropped; drop them before, or copy()",
                ResourceWarning,
                stacklevel=4,
            )

    def _end_lending(self) -> None:
        """Keeps of the mapping what views look at, and nothing once they are dropped."""
        mapping, self._mapping, self.lender = self._mapping, None, None
        if mapping is None or not self._pinned:
            return
        free = mapping.address
        for first, end in [*self._pinned, (free + mapping.size, 0)]:
            if first > free:
                mapping.vacate(free, first - free)
            free = end

    def abandon(self) -> None:
        """Frees a window that nobody has used. Collective over the node."""
        self._memory.free()

    def keep(self) -> None:
        """Settles that the window is never freed, for this rank will not take part."""
        if not self._memory.gone:
            self.control.keep()

    def bequeath(self, is_unused: Callable[[], bool]) -> None:
        """After ``leave``: leaves the window to whoever makes the next one with its ranks.

        Args:
            is_unused: says whether this rank fills it no more.
        """
        self._end_lending()
        if self._memory.is_of_job:
            leave_window(self._memory, is_unused)

    def close(self, finish: Callable[[], None], is_unused: Callable[[], bool]) -> None:
        """After ``leave(closes=True)``: waits for the node, then frees the window.

        Args:
            finish: called when all have left, or somebody aborted: stops the filling.
            is_unused: as for ``bequeath``, for when others keep the window.
        """
        self._end_lending()
        if self._memory.gone:
            return
        while not self.control.wait_end(left=True):
            if self.control.aborted() is not None:
                break
        finish()
        deadline = time.monotonic() + CLOSE_GRACE_S
        while not self.control.wait_end(left=False):
            if self.control.aborted() is not None or time.monotonic() > deadline:
                break
        if self.control.keep() == _core.Window.FREE:
            self._memory.free()
        else:
            self.bequeath(is_unused)
