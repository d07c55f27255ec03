"""The ranks of a job: on which nodes they are, and steps that they take together."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import IncompatibleError, PeerError
from lmdbio.planning.order import split_share
from lmdbio.share.memory import SharedMemory, free_unfreed, machine_name, unfreed_windows
from lmdbio.share.transport import (
    Gathering,
    NodeFile,
    NodeGroup,
    Transport,
    describe,
    ranks_text,
)
from lmdbio.system.frozen import dataclass
from lmdbio.system.log import WARNING, log
from lmdbio.system.signals import ending_later

if TYPE_CHECKING:
    from lmdbio.share.sockets import SocketTransport

T = TypeVar("T")

#: Environment variable: splits each node's ranks further, to play several nodes on one.
RANKS_PER_NODE = "LMDBIO_RANKS_PER_NODE"
#: Environment variables by which launchers say how many ranks they started: MPICH and its kin,
#: Open MPI, MVAPICH2, Slurm's srun.
LAUNCHED = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
#: Between two looks whether all ranks have come, a rank sleeps this part of the time that it has
#: waited so far: at least as long as a quick step takes, at most as long as no user notices. (A
#: barrier takes several looks of every rank, one after the other.)
NAP_PART, NAP_SECONDS_MIN, NAP_SECONDS_MAX = 1 / 32, 50e-6, 2e-3
#: A rank that waits so long for others to make a Reader logs it.
LATE_SECONDS = 30.0
#: So many bytes of a rank's answer go with its length. A longer answer costs a second exchange.
HEAD_BYTES = 504


class DifferenceError(ValueError):
    """Ranks gave different arguments."""


def _wait(gathering: Gathering, interrupts: list[BaseException], late: str = "") -> None:
    """Wait for a collective call, asleep: one that blocks burns a core, which others may need.

    Args:
        gathering: the call.
        interrupts: list to which exceptions that strike meanwhile are appended, also those that
            one thread raises in another; the wait goes on.
        late: text that is logged after ``LATE_SECONDS``; "": none is.

    Raises:
        PeerError: a rank has ended.
    """
    began = time.monotonic()
    has_ended = False
    while not has_ended:
        try:
            has_ended = gathering.has_ended()
            if not has_ended:
                if late and time.monotonic() > began + LATE_SECONDS:
                    log(late, WARNING)
                nap = NAP_PART * (time.monotonic() - began)
                time.sleep(min(max(nap, NAP_SECONDS_MIN), NAP_SECONDS_MAX))
        except (RuntimeError, PeerError):  # MPI's own exception is a RuntimeError
            raise
        except BaseException as error:
            interrupts.append(error)


# --- the job -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeRank:
    """Where one rank of the job runs.

    Attributes:
        machine: ``machine_name``.
        shared: the lowest job rank that it shares memory with.
        shared_rank: its rank among the ranks that share memory.
        is_threaded: whether its MPI serves several threads at once.
    """

    machine: str
    shared: int
    shared_rank: int
    is_threaded: bool


class Job:
    """All ranks that make a Reader together.

    Attributes:
        transport: transport of its messages; None: this is one process alone.
        rank, size: rank of this process, and number of ranks in the job.
        node: job ranks of this rank's node, by node rank.
        node_rank: index of this rank in ``node``.
        nodes: job ranks of all nodes, each as ``node``, by lowest rank.
        is_known_failed: whether all ranks know that one of them has failed.
    """

    def __init__(self, transport: Transport | None = None) -> None:
        self.transport = transport
        self._group: NodeGroup | None = None
        self.rank = transport.rank if transport is not None else 0
        self.size = transport.size if transport is not None else 1
        self.node: tuple[int, ...] = (self.rank,)
        self.nodes: tuple[tuple[int, ...], ...] = (self.node,)
        self.node_rank = 0
        self._node_ranks: list[NodeRank] = []  # by job rank; of one process without MPI: none
        self.is_known_failed = False
        #: Interrupts of this rank while it could not leave the others: one fails the next step.
        self._interrupts: list[BaseException] = []
        self._held = contextlib.ExitStack()

    @property
    def alone(self) -> bool:
        """Whether this is one process alone."""
        return self.transport is None

    @property
    def is_threaded(self) -> bool:
        """Whether every rank may send and receive from several threads at once."""
        return all(one.is_threaded for one in self._node_ranks)

    def together(self, step: Callable[[], T]) -> list[T]:
        """Run a step on every rank and return the results of all ranks, by rank. Collective.

        The ranks wait for each other after the step, so the step itself may take long.

        Raises:
            The step's own exception on ranks where it failed; ``PeerError`` on all others, naming
            the ranks that failed, and why. No rank goes on.
        """
        if self.transport is None:
            return [step()]
        own = self._interrupts[0] if self._interrupts else None
        result: Any = None
        try:
            result = step()  # after an interrupt too: others may wait for this rank inside
        except BaseException as error:
            own = error if own is None else own
        if own is None and self._interrupts:  # while they were held
            own = self._interrupts[0]
        answers = self._exchange(result, own)
        if own in self._interrupts:  # it is raised, and others are told
            self._interrupts.remove(own)
        failed = [(rank, text) for rank, (_, text) in enumerate(answers) if text is not None]
        self.is_known_failed = bool(failed)
        if own is not None:
            raise own
        if failed:
            rank, text = failed[0]
            more = f" (and {ranks_text(r for r, _ in failed[1:])})" if len(failed) > 1 else ""
            raise PeerError(f"rank {rank} failed: {text}{more}")
        return [value for value, _ in answers]

    def _exchange(self, result: Any, own: BaseException | None) -> list[tuple[Any, str | None]]:
        """Wait until all ranks are here, and exchange their answers. Collective.

        Returns:
            Of each rank its result, and why it cannot go on.
        """
        assert self.transport is not None
        answer = pickle.dumps((result, None) if own is None else (None, describe(own)))
        head = len(answer).to_bytes(8, "little") + answer[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0")
        # A rank that left here would begin its next step where others end this. An interrupt comes
        # too late for this answer: the next one tells of it.
        with self.uninterrupted():
            heads = self._gather(head)
            rests = [max(0, int.from_bytes(text[:8], "little") - HEAD_BYTES) for text in heads]
            tails = self._gather(answer[HEAD_BYTES:], rests) if any(rests) else [b""] * self.size
        # Nothing that follows an object is read.
        return [pickle.loads(text[8:] + tail) for text, tail in zip(heads, tails, strict=True)]

    def _gather(self, own: bytes, sizes: Sequence[int] | None = None) -> list[bytes]:
        """Exchange bytes, as ``Transport.begin_gather``. Collective."""
        assert self.transport is not None
        gathering = self.transport.begin_gather(own, sizes)
        _wait(gathering, self._interrupts)
        return gathering.answers()

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Keep interrupts of this rank until its next step, or ``end``: others need it here."""
        return ending_later(self._interrupts)

    def fail(self, error: BaseException) -> None:
        """Fail in the next step that the other ranks take together, unless they know already."""
        if self.transport is None or self.is_known_failed:
            return

        def step() -> None:
            raise error

        interrupts = self._interrupts[:]
        self._interrupts.clear()
        with contextlib.suppress(BaseException):
            self.together(step)
        self._interrupts[:0] = interrupts  # for ``end``

    def together_local(self, step: Callable[[], T]) -> T:
        """Run a step on every rank as ``together``, and return this rank's own result."""
        results: list[T] = []
        self.together(lambda: results.append(step()))
        return results[0]

    def share_array(self, array: npt.NDArray[Any] | None, takes: Sequence[bool]) -> Any:
        """Send an array of rank 0 to some ranks. Collective over the job.

        Args:
            array: array of rank 0; other ranks' is ignored.
            takes: flag per rank, whether it takes the array; the same list on all ranks.

        Returns:
            The array, on those ranks and on rank 0; None elsewhere.
        """
        if self.transport is None or not any(takes):
            return array if self.rank == 0 else None
        with self.uninterrupted():
            return self.transport.send_array(array, takes)

    def compare(self, asked: Sequence[dict[str, Any]], *, per_node: Sequence[str] = ()) -> None:
        """Check that all ranks gave the same arguments. Not collective.

        Args:
            asked: arguments by name, per rank; the same list on all ranks.
            per_node: names whose values need to agree within each node only.

        Raises:
            DifferenceError: on all ranks alike, naming the argument, the ranks and their values.
        """
        for name in asked[0]:
            groups = self.nodes if name in per_node else (tuple(range(self.size)),)
            for group in groups:
                by_value: dict[str, list[int]] = {}
                for rank in group:
                    by_value.setdefault(repr(asked[rank].get(name)), []).append(rank)
                if len(by_value) > 1:
                    values = "; ".join(f"{v} on {ranks_text(r)}" for v, r in by_value.items())
                    raise DifferenceError(f"{name} differs between ranks: {values}")

    def settle_nodes(self, ranks_per_node: int | None) -> None:
        """Form the nodes. Collective over the ranks that share memory.

        Args:
            ranks_per_node: splits each node further; None: not. The same on all ranks.
        """
        if self._group is None:
            return
        split = self._group.size if ranks_per_node is None else ranks_per_node
        with self.uninterrupted():
            if split < self._group.size:
                self._group.split(split)
        members: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for rank, one in enumerate(self._node_ranks):
            key = (one.shared, one.shared_rank // split if ranks_per_node else 0)
            members.setdefault(key, []).append((one.shared_rank, rank))
        nodes = [tuple(rank for _, rank in sorted(node)) for node in members.values()]
        self.nodes = tuple(sorted(nodes, key=min))
        self.node = next(node for node in nodes if self.rank in node)
        self.node_rank = self.node.index(self.rank)

    def shared_nodes(self) -> int:
        """Return how many groups of ranks share memory, however nodes were split."""
        return len({one.shared for one in self._node_ranks}) or 1

    def free(self) -> None:
        """Free the group that ``connect`` made, unless a window has it. Collective.

        Raises:
            As ``end``.
        """
        group, self._group = self._group, None
        try:
            if group is not None:
                group.free()
        finally:
            self.end()

    def hold(self) -> None:
        """Keep interrupts until ``end``: the next step fails by one, or ``end`` raises it."""
        self._held.enter_context(self.uninterrupted())

    def end(self) -> None:
        """Raise what interrupted this rank after it had answered in the last step."""
        self._held.close()
        interrupts = self._interrupts[:]
        self._interrupts.clear()
        if interrupts:
            raise interrupts[0]

    def same_machine(self) -> list[int]:
        """Return the job ranks on this rank's machine."""
        return next((ranks for ranks in self.machines() if self.rank in ranks), [0])

    def machines(self) -> list[list[int]]:
        """Return the job ranks of each machine; of one process without MPI, no machine."""
        machines: dict[str, list[int]] = {}
        for rank, one in enumerate(self._node_ranks):
            machines.setdefault(one.machine, []).append(rank)
        return list(machines.values())

    def create_memory(self, sizes: Sequence[int]) -> list[NodeFile | None]:
        """Make the memory of each node, where its first rank does so. Collective over the job.

        Args:
            sizes: size of each rank's part, bytes, by job rank.

        Returns:
            The files, by job rank; where all ranks of a node make its memory together, nothing.

        Raises:
            MemoryError: a machine has too little.
        """
        group = self._group
        if self.transport is None or group is None or not self.transport.makes_memory:
            return [None] * self.size
        return self.together(lambda: group.create(sizes) if len(self.node) > 1 else None)

    def allocate(self, size: int, made: NodeFile | None) -> SharedMemory:
        """Allocate this rank's part of the node's window. Collective over the node.

        A rank alone on its node gets private memory: no other rank needs to know when it ends.
        """
        group = self._group
        if len(self.node) == 1 or group is None:
            memory = SharedMemory(size, group=group, private=_core.Memory(size))
        else:
            memory = SharedMemory(size, shared=group.allocate(size, made))
        self._group = None
        return memory

    def lost(self) -> tuple[int, str] | None:
        """Return a rank of the job that ended unexpectedly, and why; None: none is known."""
        return None if self.transport is None else self.transport.lost()

    def memory_free(self) -> int | None:
        """Return the bytes that this machine has free for windows, None if it does not say."""
        return None if self._group is None else self._group.memory_free()


def transport_of(comm: Any) -> Transport | None:
    """Return what carries the messages of a communicator's ranks; None: of this process alone.

    Raises:
        TypeError: neither an mpi4py intracommunicator nor a process group of torch.distributed.
        MissingExtraError: the same, and mpi4py is not installed.
    """
    if comm is None:
        return None
    # A program that has a communicator, or a group, has loaded its modules; others need none.
    MPI = sys.modules.get("mpi4py.MPI")  # noqa: N806
    sockets = sys.modules.get("lmdbio.share.sockets")
    if sockets is not None and isinstance(comm, sockets.SocketTransport):
        return cast("SocketTransport", comm)
    if MPI is not None and isinstance(comm, MPI.Intracomm) and comm != MPI.COMM_NULL:
        from lmdbio.share.mpi import MpiTransport

        return MpiTransport(MPI, comm)
    if "torch.distributed" in sys.modules:
        from lmdbio.share.sockets import is_process_group, transport_of_group

        if is_process_group(comm):
            return transport_of_group(comm)
    from lmdbio.share.mpi import mpi4py

    mpi4py("a communicator (comm=)")
    raise TypeError(
        "comm must be an mpi4py intracommunicator, a process group of torch.distributed, or "
        f"None, not {comm!r}"
    )


def connect(comm: Any) -> Job:
    """Return the job of a communicator, or of this process alone (None).

    Collective over the communicator. Frees the windows that these ranks have handed over.

    Raises:
        TypeError: see ``transport_of``.
        PeerError: a rank has ended.
    """
    transport = transport_of(comm)
    if transport is None:
        return Job()
    job = Job(transport)
    # The collective calls below keep Python's lock until all ranks are there. Some may still read
    # with an earlier Reader, for which a thread of this process needs the lock.
    waits = f"rank {transport.rank} waits for others to make a Reader, which all ranks do together"
    try:
        with job.uninterrupted():
            _wait(transport.begin_meeting(), job._interrupts, waits)
            group = job._group = transport.node_group()
            unfreed = unfreed_windows()
            own = NodeRank(machine_name(), group.shared, group.rank, transport.is_threaded)
            gathered = job.together(lambda: (own, sorted(unfreed)))
            job._node_ranks = [one for one, _ in gathered]
            free_unfreed(unfreed, [names for _, names in gathered])
    except BaseException:
        job.free()  # all ranks are here: each was told what failed
        raise
    return job


def world() -> Any:
    """Return the ``comm`` of the ranks that a launcher started; None: just one.

    For programs that run with or without ``mpiexec`` or ``torchrun``. Where both have, as in a job
    of Slurm's that starts a torchrun on each node, torchrun has started this process. MPI, or
    torch, is loaded only where several ranks run.

    Raises:
        IncompatibleError: several ranks run, and this Python cannot speak to them.
        PeerError: a rank of torchrun's does not come.
    """
    from lmdbio.share.meeting import place_of_torchrun

    place = place_of_torchrun()
    if place is not None:
        return None if place.ranks < 2 else _world_of_torchrun()
    sizes = [os.environ.get(name, "").strip() for name in LAUNCHED]
    started = max((int(text) for text in sizes if text.isdecimal()), default=1)
    if started < 2:
        return None
    from lmdbio.share.mpi import mpi4py

    try:
        MPI = mpi4py("a job of several ranks")  # noqa: N806
    except (ImportError, RuntimeError) as error:  # without a library of MPI: RuntimeError
        raise IncompatibleError(f"{started} ranks were started: {error}") from error
    if MPI.COMM_WORLD.size < 2:
        raise IncompatibleError(
            f"{started} ranks were started, and by mpi4py's MPI each of them is alone: it is "
            "another one than the launcher's"
        )
    return MPI.COMM_WORLD


def _world_of_torchrun() -> SocketTransport:
    """Return the transport of torchrun's ranks. Collective over them."""
    from torch.distributed.rendezvous import rendezvous

    from lmdbio.share.sockets import SocketTransport

    store, rank, size = next(rendezvous("env://"))
    return SocketTransport(rank, size, store)


def count_nodes(comm: Any) -> int:
    """Return on how many nodes the ranks of a communicator run. Collective over it."""
    job = connect(comm)
    try:
        return job.shared_nodes()
    finally:
        job.free()


def ranks_per_node() -> int | None:
    """Return the number that ``LMDBIO_RANKS_PER_NODE`` holds; None where it is not set.

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
    """Split a node's ranks (by node rank) into the contiguous teams of its roots."""
    return [split_share(len(node), roots, root) for root in range(roots)]
