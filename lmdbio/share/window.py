"""One rank's view of its node's window: how ranks allocate it, use it and give it back.

    part of node rank 0, a root                          part of the next root
    [pad][control][slot 0: table | data][slot 1: ...]    [pad][slot 0: table | data] ...

MPI chooses the address of each part; ``pad`` brings the first slot to the alignment of the
engine. csrc/window.h describes the control area: which rank has filled, released and left what.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from lmdbio import _core
from lmdbio.errors import Error, PeerError
from lmdbio.share.job import Job
from lmdbio.share.memory import SHM, Name, SharedMemory, hand_over_window, machine_name
from lmdbio.share.transport import describe, ranks_text
from lmdbio.system.frozen import dataclass
from lmdbio.system.log import log
from lmdbio.system.warn import warn

__all__ = [
    "SLOT_ALIGNMENT",
    "Layout",
    "NodeWindow",
    "attach_window",
    "control_bytes",
    "pages_of",
]

#: Address of the first byte, and of the one after the last.
Span = tuple[int, int]
#: Slots begin at multiples of this many bytes (or of the page, or of the engine's alignment).
SLOT_ALIGNMENT = 4096
#: Bytes of a slot that the root backs at once while it has nothing to read: 9 ms.
SPARE_TIME_BYTES = 16 * 2**20
#: Seconds for which ``close`` waits for ranks that have left their loop but do not close.
CLOSE_GRACE_S = 10.0
#: Numbers of this process's windows.
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Layout:
    """How a root's part is cut into slots.

    Attributes:
        slots: number of slots.
        table_bytes, data_bytes: size of each slot's parts, multiples of ``alignment``.
        alignment: bytes.
        is_bounded: whether no slot is larger than a block can be. Then the root backs whole slots
            with memory while it has nothing to read; else only as it fills them, for such slots
            may have to be large and hardly ever are.
    """

    slots: int
    table_bytes: int
    data_bytes: int
    alignment: int
    is_bounded: bool = True

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot, table and data."""
        return self.table_bytes + self.data_bytes

    def part_bytes(self, control: int) -> int:
        """Return the bytes to allocate so that slots can be aligned, whatever address MPI gives.

        Args:
            control: bytes of the control area; 0 for every part but the first.
        """
        return control + self.alignment + self.slots * self.slot_bytes


def control_bytes(ranks: int, roots: int, alignment: int) -> int:
    """Return the bytes of the control area, a multiple of ``alignment``."""
    return -(-_core.Window.bytes(ranks, roots) // alignment) * alignment


def check_shm(job: Job, sizes: Sequence[int], free: Sequence[int | None]) -> None:
    """Compare what the windows need with what each machine has, before any rank touches them.

    Args:
        sizes, free: size per job rank, and free space of its machine, bytes; the same lists on all
            ranks.

    Raises:
        MemoryError: a machine has too little; on all ranks alike.
    """
    for ranks in job.machines():
        needed = sum(sizes[rank] for rank in ranks)
        known = [have for rank in ranks if (have := free[rank]) is not None]
        if known and needed > min(known):
            raise MemoryError(
                f"the shared windows of {ranks_text(ranks)} need {needed} bytes of {SHM}, which "
                f"has {min(known)} free; take a smaller batch_size, fewer slots or a smaller "
                f"memory_bytes_max, or enlarge {SHM}"
            )


def pages_of(spans: Iterable[Span], page: int) -> list[Span]:
    """Return the whole pages under some bytes, as ordered runs that do not touch each other.

    Args:
        spans: the bytes, in any order; they may overlap.
        page: bytes of a page.
    """
    runs: list[Span] = []
    for first, end in sorted(spans):
        first, end = first // page * page, -(-end // page) * page
        if runs and first <= runs[-1][1]:
            first, last = runs.pop()
            end = max(end, last)
        runs.append((first, end))
    return runs


def attach_window(job: Job, node_teams: Sequence[range], layout: Layout | None) -> NodeWindow:
    """Allocate and format the window of each node, and map it. Collective over the job.

    All ranks meet three times: they compare what they need, they allocate (which is collective
    over each node besides) and format their parts, each rank maps its root's slots. The caller
    holds interrupts: no rank leaves between these.

    Args:
        node_teams: node ranks of each root's team on this node.
        layout: layout of this rank's slots; None when it is no root.

    Raises:
        MemoryError: a machine has too little shared memory; on all ranks.
    """
    ranks, roots = len(job.node), len(node_teams)

    def needs() -> tuple[Layout | None, int, int | None]:
        control = 0
        if layout is not None and job.node_rank == 0:
            control = control_bytes(ranks, roots, layout.alignment)
        size = 0 if layout is None else layout.part_bytes(control)
        return layout, size, job.memory_free()

    made: list[SharedMemory] = []

    def allocate_part() -> tuple[int, Name]:
        made.append(job.allocate(needed[job.rank][1], files[job.node[0]]))
        name = machine_name(), os.getpid(), next(_numbers)
        return 0 if layout is None else _format_part(job, roots, layout, made[0]), name

    try:
        needed = job.together(needs)
        sizes = [size for _, size, _ in needed]
        check_shm(job, sizes, [free for _, _, free in needed])
        files = job.create_memory(sizes)
        allocated = job.together(allocate_part)
        made[0].name = allocated[job.node[0]][1]
        starts = [start for start, _ in allocated]
        layouts = [each for each, _, _ in needed]
        return _map_window(job, node_teams, layouts, starts, made[0])
    except BaseException:
        # All ranks are here, for each of them was told what failed: they can free together. Where
        # the ranks of another node got no memory, there is none.
        for memory in made:
            memory.free()
        raise


def _format_part(job: Job, roots: int, layout: Layout, memory: SharedMemory) -> int:
    """Format the control area, if it lies in this rank's part; return the pad of that part.

    Memory backs the control area from now on, and a slot from when the root fills it: the pages of
    a window take longer to make than the bytes that come first take to read.
    """
    own = memory.parts[job.node_rank]
    start = -own % layout.alignment
    if job.node_rank == 0:
        ranks = len(job.node)
        memory.reserve(own + start, control_bytes(ranks, roots, layout.alignment))
        _core.Window(own + start, ranks=ranks, roots=roots, fresh=True)
    return int(start)


def _map_window(
    job: Job,
    node_teams: Sequence[range],
    layouts: Sequence[Layout | None],
    starts: Sequence[int],
    memory: SharedMemory,
) -> NodeWindow:
    """Map the slots of this rank's root, and the control area. Collective over the job.

    Args:
        layouts, starts: layout and pad of each rank's part, by job rank.
    """
    ranks, roots = len(job.node), len(node_teams)
    root = next(i for i, team in enumerate(node_teams) if job.node_rank in team)
    first_rank, root_rank = job.node[0], job.node[node_teams[root].start]
    layout, first_layout = layouts[root_rank], layouts[first_rank]
    assert layout is not None and first_layout is not None

    first = memory.parts[node_teams[root].start] + starts[root_rank]
    if root_rank == first_rank:
        first += control_bytes(ranks, roots, first_layout.alignment)

    def map_slots() -> tuple[_core.Window, _core.Mapping | None]:
        address = memory.parts[0] + starts[first_rank]
        control = _core.Window(address, ranks=ranks, roots=roots, fresh=False)
        if memory.private is not None:
            return control, None
        mapping = _core.map_again(first, layout.slots * layout.slot_bytes)
        if mapping is None:
            log(f"{SHM}: batches are copies, for these pages cannot be mapped a second time")
        return control, mapping

    control, mapping = job.together_local(map_slots)
    return NodeWindow(job, control, root, node_teams[root], layout, first, memory, mapping)


class NodeWindow:
    """One rank's view of its node's window: the slots of its root, and the control area.

    The root fills slots where MPI maps the window. Each rank looks at them where its process
    maps them a second time: that mapping lives as long as a view, which neither the end of the
    window nor that of MPI can take away.

    Attributes:
        control: says which rank has filled, released and left what.
        root: number of this rank's root on the node.
        team: node ranks of its team; the first is the root.
        rank: node rank of this process.
        layout: layout of the root's slots.
        addresses: addresses of the slots, where this process reads them.
        fill_addresses: addresses of the slots, where the root fills them.
        lender: keeps the memory under views alive. None: views must be of a copy, for the window
            cannot be mapped a second time.
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
        self.lender: object = mapping or memory.private
        self._mapping = mapping
        self._node, self._lost = job.node, job.lost
        self._memory = memory
        self._has_left = False
        self._pid = os.getpid()
        self._pinned: list[Span] = []  # pages of the mapping under views, when this rank left
        # A view may die at any moment of any thread, so also of one that is in ``release``.
        self._releasing = threading.RLock()
        self._reserved = [0] * layout.slots

    def _slots_from(self, first: int) -> list[int]:
        return [first + slot * self.layout.slot_bytes for slot in range(self.layout.slots)]

    @property
    def window_bytes(self) -> int:
        """Bytes of shared memory that this rank owns."""
        return self._memory.size

    # --- failures

    def check(self) -> None:
        """Raise what ended the reading on this node.

        Raises:
            PeerError: a rank aborted.
            Error: MPI was finalized.
        """
        if self._memory.is_gone:
            raise Error("the shared window is gone: MPI was finalized")
        failure = self.aborted()
        if failure is not None:
            raise PeerError(f"rank {failure[0]} failed: {failure[1]}")

    def abort(self, error: BaseException) -> None:
        """Make every rank of the node raise PeerError, naming this rank and its error."""
        self.abort_for(self._node[self.rank], describe(error))

    def abort_for(self, rank: int, cause: str) -> None:
        """Make every rank of the node raise PeerError for a job rank that failed elsewhere."""
        if not self._memory.is_gone:
            self.control.abort(rank, cause)

    def aborted(self) -> tuple[int, str] | None:
        """Return (job rank, cause) of the first rank that aborted, or is lost; None: no rank.

        A rank that is lost aborts no window: each rank that hears of its end does so for it.
        """
        if self._memory.is_gone:
            return None
        failure = self.control.aborted()
        if failure is None and (lost := self._lost()) is not None:
            self.control.abort(*lost)
            failure = self.control.aborted()
        return failure

    # --- slots

    def reserve(self, slot: int, data_bytes: int) -> None:
        """Back a slot with memory for its table and ``data_bytes`` of data. The root calls this.

        Raises:
            MemoryError: the machine has too little.
        """
        size, have = self.layout.table_bytes + data_bytes, self._reserved[slot]
        if size > have and not self._memory.is_gone:
            self._memory.reserve(self.fill_addresses[slot] + have, size - have)
            self._reserved[slot] = size

    def reserve_more(self) -> bool:
        """Back some more of a slot, before the root fills it; return whether there was any left.

        Raises:
            MemoryError: the machine has too little.
        """
        whole = self.layout.slot_bytes if self.layout.is_bounded else 0
        for slot, have in enumerate(self._reserved):
            if have < whole and not self._memory.is_gone:
                size = min(whole, have + SPARE_TIME_BYTES)
                self._memory.reserve(self.fill_addresses[slot] + have, size - have)
                self._reserved[slot] = size
                return True
        return False

    def release(self, blocks: int) -> None:
        """Let the root fill the slots of blocks [0, ``blocks``) anew: this rank is done with them.

        A forked child releases nothing: views that it drops say nothing of its parent's.
        """
        if self._pid != os.getpid():
            return
        with self._releasing:
            if not self._has_left and not self._memory.is_gone:
                self.control.release(self.root, self.rank, blocks)

    def leave(self, pinned: Iterable[Span], *, closes: bool) -> None:
        """Ask for no more blocks. Not collective; never blocks.

        Args:
            pinned: addresses that live views look at. The kernel swaps their pages for private
                copies: the root fills the window on, and its memory is given back.
            closes: whether the caller calls ``close`` next.

        Raises:
            MemoryError, OSError: there is no memory for the copies. Then all ranks of the node
                are told, and the root stops filling the window.
        """
        spans = list(pinned)
        if self._mapping is not None and spans:
            self._pinned = pages_of(spans, mmap.PAGESIZE)
            try:
                for first, end in self._pinned:
                    self._mapping.detach(first, end - first)
            except BaseException as error:
                # This rank has not left then: the root must not fill what its views look at.
                self.abort(error)
                raise
        with self._releasing:
            self._has_left = True
        if not self._memory.is_gone:
            state = _core.Window.CLOSES if closes else _core.Window.LEFT
            self.control.leave(self.root, self.rank, state)
        if spans and self._memory.is_of_job:  # last, for a filter may turn it into an error
            warn(
                "views of batches are alive while their Reader ends: they stay good, but keep "
                "their batch's memory until they are dropped; drop them before, or copy()",
                ResourceWarning,
            )

    # --- the end

    def _end_lending(self) -> None:
        """Keep of the mapping only the pages under views, until these are dropped."""
        mapping, self._mapping, self.lender = self._mapping, None, None
        if mapping is None or not self._pinned:
            return
        free = mapping.address
        for first, end in [*self._pinned, (free + mapping.size, 0)]:
            if first > free:
                mapping.vacate(free, first - free)
            free = end

    def abandon(self) -> None:
        """Free a window that no rank has used. Collective over the node."""
        self._memory.free()

    def keep(self) -> None:
        """Settle that no rank frees the window now, for this rank will not take part in it."""
        if not self._memory.is_gone:
            self.control.keep()

    def hand_over(self, is_unused: Callable[[], bool]) -> None:
        """Leave the window to be freed when its ranks make their next one. Follows ``leave``.

        Args:
            is_unused: returns whether this rank has stopped filling the window.
        """
        self._end_lending()
        if self._memory.is_of_job:
            hand_over_window(self._memory, is_unused)

    def close(self, finish: Callable[[], None], is_unused: Callable[[], bool]) -> None:
        """Wait for the ranks of the node, then free the window. Follows ``leave(closes=True)``.

        Args:
            finish: stops the filling. Called when all ranks have left, or one aborted.
            is_unused: function as in ``hand_over``, for the case that other ranks keep the window.
        """
        self._end_lending()
        if self._memory.is_gone:
            return
        while not self.control.wait_end(left=True):
            if self.aborted() is not None:
                break
        finish()
        deadline = time.monotonic() + CLOSE_GRACE_S
        while not self.control.wait_end(left=False):
            if self.aborted() is not None or time.monotonic() > deadline:
                break
        # Either all ranks of the node free the window here, or none does.
        if self.control.keep() == _core.Window.FREE:
            self._memory.free()
        else:
            self.hand_over(is_unused)
