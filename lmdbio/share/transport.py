"""The seam between a job and what carries its messages: MPI, or sockets.

    Transport   the ranks of a job: steps that all take, the memory of a node, arrays
    Channel     letters and rows between two moments that all ranks share; from any thread

A rank that cannot go on makes no other one wait for ever: either the launcher ends them all (MPI),
or the transport raises ``PeerError``, which names the rank (sockets).
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from lmdbio import _core

__all__ = [
    "Channel",
    "Gathering",
    "NodeFile",
    "NodeGroup",
    "NodeMemory",
    "Transport",
    "before_finalize",
    "describe",
    "end_messages",
    "ranks_text",
]


def describe(error: BaseException) -> str:
    """Return an exception as one line for other ranks: its type and its message."""
    return f"{type(error).__name__}: {error}"


def ranks_text(ranks: Iterable[int]) -> str:
    """Return ranks as words: "rank 3" or "ranks 0-2, 5"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank {text}" if len(runs) == 1 and runs[0][0] == runs[0][1] else f"ranks {text}"


class Gathering(Protocol):
    """A collective call under way."""

    def has_ended(self) -> bool:
        """Carry it on; return whether it has ended. Never waits."""

    def answers(self) -> list[bytes]:
        """Return what each rank gave, by rank, once it has ended."""


class NodeMemory(Protocol):
    """Memory that the ranks of a node share.

    Attributes:
        parts: address of each node rank's part.
    """

    parts: list[int]

    def is_gone(self) -> bool:
        """Return whether it is unmapped: freed here, or by the end of what it belongs to."""

    def free(self) -> None:
        """Unmap and free it, and the group. Collective over the node."""


class NodeFile(NamedTuple):
    """A file that the first rank of a node has made for its memory.

    Attributes:
        process, descriptor: process that has it open, and its descriptor there.
        sizes: size of each node rank's part, bytes.
    """

    process: int
    descriptor: int
    sizes: list[int]


class NodeGroup(Protocol):
    """The ranks that share memory, for one Reader: this rank's node, once it is split.

    Attributes:
        shared: the lowest job rank of those that share memory.
        rank: index of this rank among them.
        size: number of them.
    """

    shared: int
    rank: int
    size: int

    def split(self, ranks_per_node: int) -> None:
        """Split it into nodes of so many neighbours. Collective over the group."""

    def create(self, sizes: Sequence[int]) -> NodeFile | None:
        """Make what ``allocate`` maps, where one rank makes it for all; else None.

        Args:
            sizes: size of each job rank's part, bytes.
        """

    def allocate(self, size: int, made: NodeFile | None) -> NodeMemory:
        """Allocate this rank's part of its memory, which owns the group. Collective over it.

        Args:
            size: size of this rank's part, bytes.
            made: return value of ``create`` on the first rank of the node.
        """

    def memory_free(self) -> int | None:
        """Return the bytes that this machine has for such memory, None if it does not say."""

    def free(self) -> None:
        """Free it. Collective over the group."""


class Channel(ABC):
    """Letters of all Readers of a job, and the rows that their roots exchange. Threads share it.

    Attributes:
        readers: number of Readers so far.
        exchanges: exchanges of Readers that have not ended.
    """

    def __init__(self) -> None:
        self.readers = 0
        self.exchanges: weakref.WeakSet[Any] = weakref.WeakSet()
        self._ended: list[_core.Exchange] = []  # exchanges that left something under way
        # The collector may close a Mail at any moment of any thread, so also of one that is here.
        self._lock = threading.RLock()

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether letters can be sent and taken."""

    @property
    @abstractmethod
    def communicator(self) -> int:
        """The handle that an exchange sends over, as an integer of its bytes."""

    @abstractmethod
    def leave(self) -> None:
        """Note that a Reader has ended."""

    @abstractmethod
    def send(self, to: int, tag: int, text: bytes) -> None:
        """Send a letter to a rank; return at once. Drop it where the channel is closed."""

    @abstractmethod
    def receive(self, tag: int) -> tuple[int, bytes] | None:
        """Return (sender, text) of a letter with this tag, None if none has come."""

    def take_over(
        self,
        exchange: _core.Exchange,
        ranks: Sequence[int],  # noqa: ARG002 (for those that count messages)
        step: Callable[[], bool],
    ) -> None:
        """Look after what an exchange has left under way.

        Args:
            exchange: exchange that ends.
            ranks: ranks of its roots.
            step: carries on what is under way; returns whether nothing is any more.
        """
        with self._lock:
            if not step():
                self._ended.append(exchange)

    def step(self) -> bool:
        """Carry on what exchanges have left under way; return whether there is none left."""
        with self._lock:
            self._ended = [each for each in self._ended if not each.step()]
            return not self._ended


class Transport(Protocol):
    """The ranks of a job.

    Attributes:
        rank, size: rank of this process, and number of ranks.
        is_threaded: whether this process may send and receive from several threads at once.
        makes_memory: whether one rank of a node makes its memory (``NodeGroup.create``).
    """

    rank: int
    size: int
    is_threaded: bool
    makes_memory: bool

    @property
    def group(self) -> Any:
        """The user's communicator, or what stands for it."""

    def begin_gather(self, own: bytes, sizes: Sequence[int] | None = None) -> Gathering:
        """Begin to exchange answers. Collective over the job.

        Args:
            own: this rank's answer.
            sizes: size of each rank's answer, bytes; None: all are as long as ``own``.
        """

    def begin_meeting(self) -> Gathering:
        """Begin to wait until all ranks are here. Collective over the job."""

    def node_group(self) -> NodeGroup:
        """Return the ranks that share memory with this one. Collective over the job.

        All ranks have met before.
        """

    def send_array(self, array: Any, takes: Sequence[bool]) -> Any:
        """Send an array of rank 0 to some ranks (``Job.share_array``)."""

    def begin_reader(self, number: int) -> Channel:
        """Begin a Reader; return the job's channel. Collective over the job the first time.

        Args:
            number: number of the Reader among those of the job.
        """

    def known_readers(self) -> int:
        """Return the number of Readers that this rank knows of. Not collective."""

    def lost(self) -> tuple[int, str] | None:
        """Return the first rank that ended unexpectedly, and why; None: none is known."""

    def find_library(self) -> tuple[_core.MpiLibrary | None, str]:
        """Return what an exchange calls; where there can be none: None, and why."""


#: Called before messages end: when MPI is finalized, or the process ends.
_before_end: list[Callable[[], None]] = []


def before_finalize(call: Callable[[], None]) -> Callable[[], None]:
    """Register a call for when messages end, before any part of MPI is gone; return it."""
    _before_end.append(call)
    return call


def end_messages() -> None:
    """Make the calls that were registered."""
    for call in _before_end:
        call()
