"""The ranks of a job without MPI: over sockets of their own (csrc/mesh.h).

Ranks meet through a store of the job (``share.meeting``). From then on they need no store and no
process group, and all lasts until nobody refers to it, or the process ends.

    steps    each rank sends what it knows to the one 1, 2, 4, ... before it: after log2(ranks)
             rounds all know all answers
    arrays   by a tree of those who take one
    memory   of a node: share.node_memory

Those that are connected to a rank notice when it is lost: its partners in the rounds, the first
rank of its node, and roots that send it letters. They tell their partners and rank 0, which tells
all ranks; so nobody waits for one that ends while others still meet.
"""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmdbio import _core
from lmdbio.errors import Error, PeerError
from lmdbio.share import meeting
from lmdbio.share.meeting import MEET, Home, Store, connect, meet, own_host, own_near
from lmdbio.share.memory import wait_unused
from lmdbio.share.node_memory import SocketNodeGroup
from lmdbio.share.transport import Channel, describe, end_messages

__all__ = [
    "SocketTransport",
    "is_inherited",
    "is_process_group",
    "store_of",
    "transport_of_group",
]

#: Tags of what is no letter of a Reader's (``share.mail``).
GATHER, ARRAY, FAILED = range(MEET + 1, MEET + 4)
#: Between two looks whether a rank that is waited for has ended; and how long what it sent before
#: may be on its way.
CHECK_SECONDS, LEFT_SECONDS = 0.05, 1.0
#: Bytes of an array that one message has at most.
ARRAY_BYTES = 64 * 2**20
#: The end of the process waits so long for messages under way.
LEAVE_SECONDS_MAX = 2.0


def _partners(rank: int, size: int) -> list[int]:
    """Return the ranks 1, 2, 4, ... before and behind one: those that it has steps with."""
    distances = [1 << k for k in range((size - 1).bit_length())]
    return sorted({(rank + sign * d) % size for d in distances for sign in (1, -1)} - {rank})


def _children(place: int, size: int) -> list[int]:
    """Return whom a place of a binomial tree sends to; place 0 is its root."""
    first = place.bit_length()
    steps = (1 << k for k in range(first, size.bit_length()))
    return [place + step for step in steps if place + step < size]


def _parent(place: int) -> int:
    return place - (1 << (place.bit_length() - 1))


class _Gathering:
    """A step that all ranks take: each gives an answer, and gets all.

    Ctrl-C may come between any two lines of Python here, and the caller goes on all the same. So
    what is known changes in one assignment, and each line may run twice: a message that is sent or
    found again is the same one.
    """

    def __init__(self, transport: SocketTransport, own: bytes) -> None:
        self._transport, self._number = transport, transport.steps
        self._known, self._sent = ([own], 1), 0

    def has_ended(self) -> bool:
        """Carry it on; return whether it has ended."""
        transport, size = self._transport, self._transport.size
        while True:
            answers, distance = self._known
            if distance >= size:
                transport.steps = self._number + 1
                return True
            if self._sent < distance:
                to = (transport.rank - distance) % size
                transport.send(to, GATHER, (self._number, answers[: size - distance]))
                self._sent = distance
            sender = self.sender
            found = transport.find_step(self._number, sender)
            if found is None:
                return False
            self._known = answers + found, 2 * distance
            transport.forget(sender, GATHER, self._number)

    @property
    def sender(self) -> int:
        """The rank whose message comes next; it may wait for a rank behind it in turn."""
        return (self._transport.rank + self._known[1]) % self._transport.size

    def answers(self) -> list[bytes]:
        """Return what each rank gave."""
        answers, first = self._known[0], self._transport.size - self._transport.rank
        return answers[first:] + answers[:first]


class SocketChannel(Channel):
    """Letters and rows of a job's Readers, over its mesh (csrc/mesh.h)."""

    def __init__(self, transport: SocketTransport) -> None:
        super().__init__()
        self._transport, self._mesh = transport, transport.mesh

    @property
    def is_open(self) -> bool:
        """Whether letters can be sent and taken."""
        return self._transport.is_open

    @property
    def communicator(self) -> int:
        """The handle that an exchange sends over."""
        return self._mesh.library()[1]

    def begin(self, number: int) -> None:
        """Begin a Reader of that number."""
        with self._lock:
            self.step()
            self.readers = number + 1

    def leave(self) -> None:
        """Do nothing: a letter that comes too late names its Reader, and is dropped."""

    def send(self, to: int, tag: int, text: bytes) -> None:
        """Send a letter to a rank; return at once."""
        if self.is_open:
            self._mesh.send(to, tag, text)

    def receive(self, tag: int) -> tuple[int, bytes] | None:
        """Return (sender, text) of a letter with this tag, None if none has come."""
        return self._mesh.take(tag)


class SocketTransport:
    """The ranks of a job without MPI (``share.transport.Transport``). Collective to make.

    Args:
        rank, size: rank of this process, and number of ranks.
        store: store in which rank 0 leaves its address; of this job alone.

    Attributes:
        mesh: connections to other ranks.
        homes: addresses of those ranks that this one knows.
        steps: number of steps that have ended here.
        has_left: whether this rank sends and takes no more.

    It leaves when nothing refers to it any more, if not before.

    Raises:
        PeerError: a rank is lost, or does not come.
        OSError: this process cannot listen.
        ValueError: ``LMDBIO_HOST`` names no address.
    """

    is_threaded = makes_memory = True
    has_left = True  # until it begins to meet the others

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank, self.size = rank, size
        self._failure: tuple[int, str] | None = None
        self.steps = 0
        self._arrays = 0
        self._early: dict[tuple[int, int, Any], Any] = {}  # what was sent to steps, until they end
        self._pid = os.getpid()
        self._checked_s = 0.0
        self._left_s: dict[int, float] = {}  # when ranks were first seen to have left
        self.homes: dict[int, Home] = {}
        try:
            meet(self, store, _children(rank, size))
            connect(self, {*_partners(rank, size), self.near_ranks()[0]} - {rank})
        except BaseException as error:
            self._give_up(error)
            raise
        self._channel = SocketChannel(self)
        _alive.add(self)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.leave()

    @property
    def group(self) -> SocketTransport:
        """The ``comm`` of a Reader of these ranks: this transport."""
        return self

    # --- who is where

    def listen(self, key: bytes, other: str) -> Home:
        """Begin to listen, or begin anew; return where others find this rank.

        Args:
            key: the job's secret.
            other: name or address of a machine that is to reach this one; "": none is known.
        """
        host = own_host(other)
        self.leave()
        self._failure = None
        self._left_s.clear()
        self.mesh = _core.Mesh(self.rank, self.size, key)
        self.has_left = False
        self.homes[self.rank] = home = Home(host, self.mesh.port, own_near())
        return home

    def place(self, rank: int, home: Home) -> None:
        """Note where a rank listens."""
        self.homes[rank] = home
        is_near = home.near == self.homes[self.rank].near
        self.mesh.place(rank, home.host, home.port, is_near=is_near)

    def _give_up(self, error: BaseException) -> None:
        """Leave before all have met, and tell the others why."""
        if not self.has_left:
            if self._failure is None:
                self.fail(self.rank, f"it gave up: {describe(error)}")
            self.leave()

    def near_ranks(self) -> list[int]:
        """Return the ranks that share memory with this one, itself among them."""
        near = self.homes[self.rank].near
        return [rank for rank in range(self.size) if self.homes[rank].near == near]

    # --- messages

    def send(self, to: int, tag: int, what: Any) -> None:
        """Send an object to a rank; return at once."""
        self.mesh.send(to, tag, pickle.dumps(what))

    def take_from(self, sender: int, tag: int, number: Any) -> Any:
        """Wait for what a rank sends to a numbered step; return it."""
        seen = 0
        while (found := self._find(sender, tag, number)) is None:
            self.check(sender)
            seen = self.mesh.wait(seen)
        self.forget(sender, tag, number)
        return found

    def _find(self, sender: int, tag: int, number: Any) -> Any:
        """Return what a rank has sent to a step, until it is forgotten; None: nothing yet."""
        wanted = sender, tag, number
        while wanted not in self._early and (found := self.mesh.first(tag)) is not None:
            message, which = found
            step, what = pickle.loads(message.body)
            self._early[message.sender, tag, step] = what
            self.mesh.drop(which)
        return self._early.get(wanted)

    def forget(self, sender: int, tag: int, number: Any) -> None:
        """Forget what a rank has sent to a step."""
        self._early.pop((sender, tag, number), None)

    # --- steps

    def find_step(self, number: int, sender: int) -> list[bytes] | None:
        """Return the answers of a step that a rank has sent; None: they have not come.

        Raises:
            PeerError: they cannot come any more.
            Error: this process has left the job, or is a forked child.
        """
        found: list[bytes] | None = self._find(sender, GATHER, number)
        now_s = time.monotonic()
        if found is None and now_s > self._checked_s + CHECK_SECONDS:
            self._checked_s = now_s
            self.check(sender)
        return found

    def begin_gather(self, own: bytes, sizes: Sequence[int] | None = None) -> _Gathering:
        """Begin to exchange answers."""
        if sizes is not None and sizes[self.rank] != len(own):
            raise ValueError(f"an answer of {len(own)} bytes, not {sizes[self.rank]}")
        return _Gathering(self, own)

    def begin_meeting(self) -> _Gathering:
        """Begin to wait until all ranks are here."""
        return _Gathering(self, b"")

    def barrier(self) -> None:
        """Wait until all ranks are here: one that does not come in time is lost to all of them.

        Raises:
            PeerError: a rank does not come, or is lost.
        """
        self.check(self.rank)
        gathering, seen, seconds_max = self.begin_meeting(), 0, meeting.MEET_SECONDS_MAX
        began_s = time.monotonic()
        while not gathering.has_ended():
            # The first message waits for nobody but its sender: this rank alone knows that the
            # sender is absent, and others give it the time to tell.
            is_first = gathering.sender == (self.rank + 1) % self.size
            word_s = 0.0 if is_first else meeting.WORD_SECONDS
            if time.monotonic() > began_s + seconds_max + word_s:
                late = f"rank {self.rank} has waited {seconds_max:g} s for it"
                self.fail(gathering.sender, late)
                self.check(gathering.sender)
            seen = self.mesh.wait(seen)

    def node_group(self) -> SocketNodeGroup:
        """Return the ranks that share memory with this one."""
        return SocketNodeGroup(self.near_ranks(), self.rank)

    def send_array(self, array: Any, takes: Sequence[bool]) -> Any:
        """Send an array of rank 0 to some ranks."""
        number = self._arrays = self._arrays + 1
        takers = [rank for rank in range(self.size) if rank == 0 or takes[rank]]
        if self.rank not in takers:
            return None
        place = takers.index(self.rank)
        children = [takers[child] for child in _children(place, len(takers))]
        if array is None:
            parent = takers[_parent(place)]
            shape, dtype = self.take_from(parent, ARRAY, (number, -1))
            array = np.empty(shape, dtype)
        for child in children:
            self.send(child, ARRAY, ((number, -1), (array.shape, array.dtype)))
        content = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        for first in range(0, len(content), ARRAY_BYTES):
            piece = content[first : first + ARRAY_BYTES]
            if place > 0:
                piece[:] = np.frombuffer(self.take_from(parent, ARRAY, (number, first)), np.uint8)
            for child in children:
                self._await_room(child)
                self.send(child, ARRAY, ((number, first), piece.tobytes()))
        return array

    def _await_room(self, child: int) -> None:
        """Wait while much is still to be sent: each piece is a copy in memory."""
        seen = 0
        while self.mesh.unsent > ARRAY_BYTES:
            self.check(child)
            seen = self.mesh.wait(seen)

    def begin_reader(self, number: int) -> SocketChannel:
        """Begin a Reader; return the job's channel."""
        self._channel.begin(number)
        return self._channel

    def known_readers(self) -> int:
        """Return the number of Readers that this rank knows of."""
        return self._channel.readers

    def find_library(self) -> tuple[_core.MpiLibrary | None, str]:
        """Return the mesh as a library of MPI."""
        return self.mesh.library()[0], ""

    # --- failures

    def lost(self) -> tuple[int, str] | None:
        """Return a rank that is lost, and why; None: none is known. Tells all others."""
        if self._failure is not None or not self.is_open:
            return self._failure
        # The message stays where it is, since several threads may read it here at once, and Ctrl-C
        # may come between any two lines: nobody asks again.
        found = self.mesh.first(FAILED)
        failure = self.mesh.lost() if found is None else pickle.loads(found[0].body)
        if failure is not None and self._failure is None:
            self.fail(*failure)
        return self._failure

    def fail(self, rank: int, cause: str) -> None:
        """Note that a rank is lost, and tell others: rank 0 tells all."""
        self._failure = rank, cause
        others = self.homes.keys() - {self.rank}
        for other in others if self.rank == 0 else others & {0, *_partners(self.rank, self.size)}:
            self.send(other, FAILED, self._failure)

    def check(self, sender: int | None = None) -> None:
        """Raise where a rank is lost, or what one is to send cannot come any more.

        Raises:
            PeerError: a rank is lost, or this one has ended.
            Error: this process has left the job, or is a forked child.
        """
        if not self.is_open:
            raise Error(
                "the ranks of this job cannot be reached: it has ended, or this process "
                "was forked from one of them"
            )
        now_s = time.monotonic()
        if sender is not None and self.mesh.states()[sender] is _core.PeerState.LEFT:
            # Its last messages may still be on their way, by another connection.
            since_s = self._left_s.setdefault(sender, now_s)
            if now_s > since_s + LEFT_SECONDS and self.lost() is None:
                self.fail(sender, "its process has ended")
        failure = self.lost()
        if failure is not None:
            raise PeerError(f"rank {failure[0]} is lost: {failure[1]}")

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent and taken: not at the end, nor in a forked child."""
        return not self.has_left and self._pid == os.getpid()

    def leave(self) -> None:
        """Send and take no more. May be called twice."""
        if not self.has_left:
            self.has_left = True
            self.mesh.leave(int(1000 * LEAVE_SECONDS_MAX))


# --- torch.distributed -------------------------------------------------------------------

#: The transports of this process, which leave when it ends.
_alive: weakref.WeakSet[SocketTransport] = weakref.WeakSet()
_of_groups: weakref.WeakKeyDictionary[Any, SocketTransport] = weakref.WeakKeyDictionary()
#: Process groups that this process was forked with: a parent speaks for their ranks.
_inherited: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork() -> None:
    _alive.clear()
    _inherited.update(_of_groups)
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        _inherited.add(torch.group.WORLD)


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _leave_all() -> None:
    if _alive:
        end_messages()
        wait_unused()
    for transport in list(_alive):
        transport.leave()


def is_process_group(what: object) -> bool:
    """Return whether something is a process group of torch.distributed's. Loads nothing."""
    torch = sys.modules.get("torch.distributed")
    group: Any = getattr(torch, "ProcessGroup", None)
    return group is not None and isinstance(what, group)


def is_inherited(group: object) -> bool:
    """Return whether a process group is a parent's, from which this process was forked."""
    return group in _inherited


def transport_of_group(group: Any) -> SocketTransport:
    """Return the transport of a process group's ranks. Collective over it the first time.

    It needs the group's store for as long as the ranks meet, and the group itself for nothing.

    Raises:
        As ``SocketTransport``.
        Error: a parent of this process is one of the ranks.
    """
    if is_inherited(group):
        raise Error("this process was forked from a rank of the process group, and is none itself")
    transport = _of_groups.get(group)
    if transport is None or transport.has_left:
        transport = SocketTransport(group.rank(), group.size(), store_of(group))
        _of_groups[group] = transport
    return transport


def store_of(group: Any) -> Store:
    """Return the store in which the ranks of a process group have met."""
    if hasattr(group, "get_group_store"):
        store: Store = group.get_group_store()
        return store
    from torch.distributed import distributed_c10d  # before torch 2.6 it has no public name

    found: Store = distributed_c10d._world.pg_map[group][1]
    return found
