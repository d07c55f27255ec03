"""The ranks of a job, and the memory that those of one node share. All the MPI is here.

    job       all ranks of the communicator
    machine   ranks that share memory and its budget (one kernel)
    node      ranks that share a window: what MPI's shared split gives, split further by
              ``ranks_per_node`` to play several nodes on one machine
    team      the ranks of a node that one root serves; the root is its first

One window per node (``MPI.Win.Allocate_shared``, locked for its whole life), in which each
root owns a part, and the part of node rank 0 begins with the control area (csrc/window.h):

    [control][slot 0: table | data][slot 1: table | data] ...   [slot 0 ...]   ...
     part of node rank 0, a root                                 next root's part

MPI is called when a Reader is made and when it is closed, never between, and only by main
threads. Whatever can fail while it is made fails on all ranks together (``Job.together``).
Nothing collective spans nodes after that, so that a rank that failed on another node hangs
nobody. Without a communicator one process does all and mpi4py is not imported.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lmdbio import _core
from lmdbio.assignment import split_share
from lmdbio.errors import Error, PeerError

__all__ = [
    "Job",
    "Layout",
    "Seat",
    "SharedMemory",
    "connect",
    "describe",
    "ranks_per_node",
    "take_seat",
]

T = TypeVar("T")

#: Environment variable: splits each node's ranks further, to play several nodes on one.
RANKS_PER_NODE = "LMDBIO_RANKS_PER_NODE"
#: Where MPI libraries keep shared windows on Linux.
SHM = "/dev/shm"
#: Slots begin at multiples of this many bytes (or of the page, or of the engine's alignment).
SLOT_ALIGNMENT = 4096
#: How long close() waits for ranks that have left but do not close, seconds.
CLOSE_GRACE_S = 10.0
#: Populated per call, bytes: so that signals are seen between.
POPULATE_BYTES = 256 * 2**20
#: Between two looks whether all ranks have come: what a quick step takes, what nobody minds.
NAP_SECONDS_MIN, NAP_SECONDS_MAX = 50e-6, 2e-3
#: Numbers of this process's windows.
_numbers = itertools.count()


def describe(error: BaseException) -> str:
    """An exception as other ranks are told about it."""
    return f"{type(error).__name__}: {error}"


def _ranks(ranks: Iterable[int]) -> str:
    """ "rank 3" or "ranks 0-2, 5"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank {text}" if len(runs) == 1 and runs[0][0] == runs[0][1] else f"ranks {text}"


def _machine() -> str:
    """The same on all ranks that share /dev/shm, and on no others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path(SHM).stat().st_dev}"
    except OSError:
        return os.uname().nodename


def _shm_free() -> int | None:
    """Bytes free for shared windows on this machine; None when nobody can tell."""
    try:
        stat = os.statvfs(SHM)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize


# --- the job -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where one rank of the job runs."""

    machine: str
    shared: int  # the lowest job rank that it shares memory with
    shared_rank: int


class Job:
    """All ranks that make a Reader together.

    Attributes:
        rank, size: of the job.
        node: job ranks of this rank's node, by node rank.
        node_rank: this rank's place in ``node``.
        machines: per job rank, which machine it is on.
        nodes: all nodes, as ``node``, by lowest rank.
    """

    def __init__(self, comm: Any = None) -> None:
        self._comm = comm
        self._mpi: Any = None
        self._node_comm: Any = None
        self.rank: int = comm.rank if comm is not None else 0
        self.size: int = comm.size if comm is not None else 1
        self.node: tuple[int, ...] = (self.rank,)
        self.nodes: tuple[tuple[int, ...], ...] = (self.node,)
        self.node_rank = 0
        self._places: list[Place] = []

    @property
    def alone(self) -> bool:
        """One process without MPI."""
        return self._comm is None

    def together(self, step: Callable[[], T]) -> list[T]:
        """Runs a step on every rank and gives all ranks the results of all, by rank.

        Raises:
            The step's own exception where it failed; ``PeerError`` naming the ranks that
            failed, and why, where it did not. Nobody goes on.
        """
        if self._comm is None:
            return [step()]
        own: Exception | None = None
        result: Any = None
        try:
            result = step()
        except Exception as error:
            own = error
        told = (result, None) if own is None else (None, describe(own))
        self._meet()
        answers = self._comm.allgather(told)
        if own is not None:
            raise own
        failed = [(rank, text) for rank, (_, text) in enumerate(answers) if text is not None]
        if failed:
            rank, text = failed[0]
            more = f" (and {_ranks(r for r, _ in failed[1:])})" if len(failed) > 1 else ""
            raise PeerError(f"rank {rank} failed: {text}{more}")
        return [value for value, _ in answers]

    def _meet(self) -> None:
        """Waits until all ranks are here, without the core that a collective call would burn."""
        everybody = self._comm.Ibarrier()
        nap = NAP_SECONDS_MIN
        while not everybody.Test():
            time.sleep(nap)
            nap = min(2 * nap, NAP_SECONDS_MAX)

    def together_local(self, step: Callable[[], T]) -> T:
        """As ``together``, for results that stay on their rank."""
        kept: list[T] = []
        self.together(lambda: kept.append(step()))
        return kept[0]

    def compare(self, asked: Sequence[dict[str, Any]], *, per_node: Sequence[str] = ()) -> None:
        """Checks that all ranks asked for the same.

        Args:
            asked: arguments by name, per rank; the same list on all ranks.
            per_node: names that need only agree within each node.

        Raises:
            ValueError: on all ranks alike, naming the argument, the ranks and their values.
        """
        for name in asked[0]:
            groups = self.nodes if name in per_node else (tuple(range(self.size)),)
            for group in groups:
                by_value: dict[str, list[int]] = {}
                for rank in group:
                    by_value.setdefault(repr(asked[rank].get(name)), []).append(rank)
                if len(by_value) > 1:
                    told = "; ".join(f"{v} on {_ranks(r)}" for v, r in by_value.items())
                    raise ValueError(f"{name} differs between ranks: {told}")

    def settle_nodes(self, ranks_per_node: int | None) -> None:
        """Forms the nodes. Collective; ``ranks_per_node`` is the same on all ranks."""
        if self._comm is None:
            return
        shared = self._node_comm
        split = shared.size if ranks_per_node is None else ranks_per_node
        if split < shared.size:
            self._node_comm = shared.Split(shared.rank // split, shared.rank)
            shared.Free()
        members: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for rank, place in enumerate(self._places):
            key = (place.shared, place.shared_rank // split if ranks_per_node else 0)
            members.setdefault(key, []).append((place.shared_rank, rank))
        nodes = [tuple(rank for _, rank in sorted(node)) for node in members.values()]
        self.nodes = tuple(sorted(nodes, key=min))
        self.node = next(node for node in nodes if self.rank in node)
        self.node_rank = self.node.index(self.rank)

    def free(self) -> None:
        """Gives back what ``connect`` took, where no window came of it. Collective."""
        if self._node_comm:
            self._node_comm.Free()

    def same_machine(self) -> list[int]:
        """Job ranks on this rank's machine."""
        if self._comm is None:
            return [0]
        here = self._places[self.rank].machine
        return [rank for rank, place in enumerate(self._places) if place.machine == here]

    def allocate(self, size: int) -> SharedMemory:
        """This rank's part of the node's window. Collective over the node."""
        if self._comm is None:
            memory = _core.Memory(size)
            return SharedMemory([memory.address], size, keep=memory)
        window = self._mpi.Win.Allocate_shared(size, 1, comm=self._node_comm)
        window.Lock_all(self._mpi.MODE_NOCHECK)
        parts = [window.Shared_query(rank)[0].address for rank in range(len(self.node))]
        return SharedMemory(
            parts,
            size,
            window=window,
            comm=self._node_comm,
            finalized=self._mpi.Is_finalized,
        )


def connect(comm: Any) -> Job:
    """The job of an mpi4py communicator, or of this process alone (None). Collective.

    Raises:
        TypeError: not an mpi4py intracommunicator.
    """
    if comm is None:
        return Job()
    from mpi4py import MPI

    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an mpi4py intracommunicator or None, not {comm!r}")
    job = Job(comm)
    job._mpi = MPI
    shared = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    job._node_comm = shared
    lowest = shared.allgather(comm.rank)[0]
    left = _left_windows()
    told = comm.allgather((Place(_machine(), lowest, shared.rank), sorted(left)))
    job._places = [place for place, _ in told]
    _free_left(left, [names for _, names in told])
    return job


def ranks_per_node() -> int | None:
    """What ``LMDBIO_RANKS_PER_NODE`` says, None when it says nothing.

    Raises:
        ValueError: not a positive whole number.
    """
    text = os.environ.get(RANKS_PER_NODE, "").strip()
    if not text:
        return None
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{RANKS_PER_NODE} must be a positive whole number, not {text!r}")
    return int(text)


def teams(node: Sequence[int], roots: int) -> list[range]:
    """Splits a node's ranks (by node rank) into the contiguous teams of its roots."""
    return [split_share(len(node), roots, root) for root in range(roots)]


# --- windows that nobody freed -----------------------------------------------------------

#: Windows of Readers that ended without being closed, after an error say, and when their memory
#: is used no more. To free one is collective, so it waits for the next collective moment.
_left: list[tuple[SharedMemory, Callable[[], bool]]] = []


def _left_windows() -> dict[tuple[int, int], SharedMemory]:
    """Those that this rank uses no more, by name."""
    _left[:] = [one for one in _left if not one[0].gone]
    return {memory.name: memory for memory, is_unused in _left if is_unused()}


def _free_left(own: dict[tuple[int, int], SharedMemory], told: Sequence[Sequence[Any]]) -> None:
    """Frees the windows that all their ranks are here for. Collective.

    Args:
        told: names of the windows that each rank uses no more.
    """
    ranks = Counter(name for names in told for name in names)
    for name in sorted(own):
        if ranks[name] == own[name].ranks:
            own[name].free()


# --- the window --------------------------------------------------------------------------


class SharedMemory:
    """This node's memory: the parts of its ranks, as this process sees them.

    Attributes:
        parts: address of each node rank's part.
        size: bytes of this rank's part.
        ranks: how many share it.
        name: the same on all of them, and no other window's there; set by ``take_seat``.
    """

    def __init__(
        self,
        parts: list[int],
        size: int,
        *,
        window: Any = None,
        comm: Any = None,
        finalized: Callable[[], bool] = lambda: False,
        keep: object = None,
    ) -> None:
        self.parts, self.size, self.ranks = parts, size, len(parts)
        self.name = 0, 0
        self._finalized = finalized
        self._window, self._comm = window, comm
        self.keep = keep

    @property
    def shared(self) -> bool:
        return self._window is not None

    @property
    def gone(self) -> bool:
        """True once the window is unmapped: freed here, or MPI was finalized."""
        if self.keep is not None:
            return False
        return self._window is None or self._finalized()

    def reserve(self, address: int) -> None:
        """Backs this rank's part with memory, so that no touch can fail.

        Raises:
            MemoryError: there is not enough.
        """
        if not self.shared or not self.size:
            return
        done = 0
        while done < self.size:
            step = min(POPULATE_BYTES, self.size - done)
            try:
                if not _core.populate(address + done, step):
                    return  # an old kernel; the free space was compared before
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                    raise
                raise MemoryError(
                    f"shared memory ran out while reserving {self.size} bytes for the window "
                    f"of this rank ({os.strerror(error.errno)}); take a smaller batch_size, "
                    f"fewer slots or a smaller memory_bytes_max, or enlarge {SHM}"
                ) from error
            done += step

    def free(self) -> None:
        """Unmaps the window. Collective over the node."""
        if self._window is not None:
            window, self._window = self._window, None
            window.Unlock_all()
            window.Free()
            self._comm.Free()


@dataclass(frozen=True, slots=True)
class Layout:
    """How a root's part is cut.

    Attributes:
        slots: how many.
        table_bytes, data_bytes: of each slot, multiples of ``alignment``.
        alignment: bytes.
    """

    slots: int
    table_bytes: int
    data_bytes: int
    alignment: int

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
                f"the shared windows of {_ranks(ranks)} need {needed} bytes of {SHM}, which has "
                f"{min(known)} free; take a smaller batch_size, fewer slots or a smaller "
                f"memory_bytes_max, or enlarge {SHM}"
            )


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
        return layout, size, None if job.alone else _shm_free()

    wanted = job.together(wants)
    check_shm(job, [size for _, size, _ in wanted], [free for _, _, free in wanted])
    memory = job.together_local(lambda: job.allocate(wanted[job.rank][1]))
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

    def furnish() -> tuple[int, tuple[int, int]]:
        name = os.getpid(), next(_numbers)
        layout = wanted[job.rank][0]
        if layout is None:
            return 0, name
        own = memory.parts[job.node_rank]
        start = -own % layout.alignment
        memory.reserve(own)
        if job.node_rank == 0:
            _core.Window(own + start, ranks=ranks, roots=roots, fresh=True)
        return int(start), name

    told = job.together(furnish)
    starts = [start for start, _ in told]
    memory.name = told[job.node[0]][1]
    chief, server = job.node[0], job.node[node_teams[root].start]
    layout, chief_layout = wanted[server][0], wanted[chief][0]
    assert layout is not None and chief_layout is not None

    def attach() -> _core.Window:
        address = memory.parts[0] + starts[chief]
        return _core.Window(address, ranks=ranks, roots=roots, fresh=False)

    control = job.together_local(attach)
    first = memory.parts[node_teams[root].start] + starts[server]
    if server == chief:
        first += control_bytes(ranks, roots, chief_layout.alignment)
    addresses = [first + slot * layout.slot_bytes for slot in range(layout.slots)]
    return Seat(job, control, root, node_teams[root], layout, addresses, memory)


class Seat:
    """This rank's place at its node's window.

    Attributes:
        control: who has filled, released, left.
        root: number of its root on the node.
        team: node ranks of its team; the first is the root.
        rank: its node rank.
        layout: of the root's slots.
        addresses: of the slots, where this process reads them.
    """

    def __init__(
        self,
        job: Job,
        control: _core.Window,
        root: int,
        team: range,
        layout: Layout,
        addresses: list[int],
        memory: SharedMemory,
    ) -> None:
        self.control, self.root, self.team = control, root, team
        self.rank, self.layout, self.addresses = job.node_rank, layout, addresses
        self.fill_addresses = list(addresses)
        self._node = job.node
        self._memory = memory
        self._left = False

    @property
    def is_root(self) -> bool:
        return self.rank == self.team.start

    @property
    def memory(self) -> object:
        """What must be kept alive while views are, besides the window; None: nothing."""
        return self._memory.keep

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
            raise PeerError(f"rank {self._node[told[0]]} failed: {told[1]}")

    def abort(self, error: BaseException) -> None:
        """Makes every rank of the node raise PeerError."""
        if not self._memory.gone:
            self.control.abort(self.rank, describe(error))

    def release(self, blocks: int) -> None:
        """Blocks [0, ``blocks``) are needed here no more."""
        if not self._memory.gone:
            self.control.release(self.root, self.rank, blocks)

    def leave(self, pinned: Iterable[int], *, closes: bool) -> None:
        """Asks for no more blocks. Not collective; never blocks.

        Args:
            pinned: slots that live views look at. They are swapped for private copies.
            closes: ``close`` follows.
        """
        if self._memory.gone:
            return
        slots = set(pinned)
        if slots and self._memory.shared:
            warnings.warn(
                f"views of batches are alive while their Reader ends: they stay good, but "
                f"{self._memory.size or 'the'} bytes of shared window stay mapped until the "
                "process ends; drop the views before, or copy()",
                ResourceWarning,
                stacklevel=4,
            )
            self.control.keep()
            # Alone on its node nothing is filled any more (and MPI gives memory of its own).
            if not self._left and len(self._node) > 1:
                for slot in slots:
                    alias = _core.detach(
                        self.addresses[slot], self.layout.slot_bytes, alias=self.is_root
                    )
                    if self.is_root:
                        self.fill_addresses[slot] = alias
        self._left = True
        state = _core.Window.CLOSES if closes else _core.Window.LEFT
        self.control.leave(self.root, self.rank, state)

    def abandon(self) -> None:
        """Frees a window that nobody has used. Collective over the node."""
        self._memory.free()

    def keep(self) -> None:
        """Settles that the window is never freed, for this rank will not take part."""
        if not self._memory.gone:
            self.control.keep()

    def bequeath(self, is_unused: Callable[[], bool]) -> None:
        """Leaves the window to whoever makes the next one with the ranks of this node.

        Args:
            is_unused: says whether this rank looks at the memory, and fills it, no more.
        """
        if self._memory.shared:
            _left.append((self._memory, is_unused))

    def close(self, finish: Callable[[], None], is_unused: Callable[[], bool]) -> None:
        """After ``leave(closes=True)``: waits for the node, then frees the window.

        Args:
            finish: called when all have left, or somebody aborted: stops the filling.
            is_unused: as for ``bequeath``, for when others keep the window.
        """
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
