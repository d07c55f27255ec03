"""The ranks of a job without MPI: over sockets of their own (csrc/mesh.h).

Ranks meet through a store of the job (torch.distributed's), where rank 0 leaves its address and a
secret; each sends rank 0 its own address, and gets those of all by a tree. From then on they need
no store and no process group, and all lasts until the process ends.

    steps    each rank sends what it knows to the one 1, 2, 4, ... before it: after log2(ranks)
             rounds all know all answers
    arrays   by a tree of those who take one
    memory   of a node: share.node_memory

Those that are connected to a rank notice when it is lost: its partners in the rounds, the first
rank of its node, and roots that send it letters. They tell all others, by way of their partners.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import secrets
import socket
import sys
import time
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from lmdbio import _core
from lmdbio.errors import PeerError
from lmdbio.share.memory import machine_name, wait_unused
from lmdbio.share.node_memory import SocketNodeGroup
from lmdbio.share.socket_channel import SocketChannel
from lmdbio.share.transport import end_messages

__all__ = ["SocketTransport", "Store", "is_process_group", "transport_of_group"]

#: Tags of what is no letter of a Reader's (``share.mail``).
GATHER, ARRAY, FAILED, MEET = range(1 << 20, (1 << 20) + 4)
#: The store's key of rank 0's address, and the variable that says where torchrun's store is.
KEY, MASTER = "lmdbio", "MASTER_ADDR"
#: Between two looks whether a rank that is waited for has ended; and how long what it sent before
#: may be on its way.
CHECK_SECONDS, LEFT_SECONDS = 0.05, 1.0
#: Bytes of an array that one message has at most.
ARRAY_BYTES = 64 * 2**20
#: A rank that a store, or rank 0, keeps waiting for so long gives up.
MEET_SECONDS_MAX = 300.0
#: The end of the process waits so long for messages under way.
LEAVE_SECONDS_MAX = 2.0


class Store(Protocol):
    """Where ranks meet: torch.distributed's ``Store``, as far as it matters."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""

    def get(self, key: str) -> bytes:
        """Return a value, once somebody has written it."""


class Home(NamedTuple):
    """Where a rank is.

    Attributes:
        host, port: numeric address and TCP port at which it listens.
        near: the same for ranks that can share memory.
    """

    host: str
    port: int
    near: str


def _near() -> str:
    """Return a name that ranks have alike that can open each other's files by way of /proc."""
    try:
        processes = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - no path, but a name
    except OSError as error:
        processes = f"{os.getpid()}: {error}"
    return f"{machine_name()}/{processes}/{os.getuid()}"


def host_towards(other: str) -> str:
    """Return this machine's numeric address on the way to another host.

    Raises:
        OSError: the host has no address, or no way leads there.
    """
    family, _, _, _, address = socket.getaddrinfo(other, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])


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
    """A step that all ranks take: each gives an answer, and gets all."""

    def __init__(self, transport: SocketTransport, own: bytes) -> None:
        self._transport, self._number = transport, transport.count_step()
        self._answers, self._distance = [own], 1
        self._send()

    def _send(self) -> None:
        transport, distance = self._transport, self._distance
        if distance < transport.size:
            known = self._answers[: transport.size - distance]
            to = (transport.rank - distance) % transport.size
            transport.send(to, GATHER, (self._number, distance, known))

    def has_ended(self) -> bool:
        """Carry it on; return whether it has ended."""
        transport = self._transport
        while self._distance < transport.size:
            sender = (transport.rank + self._distance) % transport.size
            answers = transport.take_step(self._number, sender)
            if answers is None:
                return False
            self._answers += answers
            self._distance *= 2
            self._send()
        return True

    def answers(self) -> list[bytes]:
        """Return what each rank gave."""
        first = self._transport.size - self._transport.rank
        return self._answers[first:] + self._answers[:first]


class SocketTransport:
    """The ranks of a job without MPI (``share.transport.Transport``). Collective to make.

    Args:
        rank, size: rank of this process, and number of ranks.
        store: store in which rank 0 leaves its address; of this job alone.

    Attributes:
        mesh: connections to other ranks.
        has_left: whether this rank sends and takes no more.

    Raises:
        PeerError: a rank is lost, or does not come.
        OSError: this process cannot listen.
    """

    is_threaded = True

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank, self.size = rank, size
        self.has_left = False
        self._failure: tuple[int, str] | None = None
        self._steps = 0
        self._early: dict[tuple[int, int, Any], Any] = {}  # what was sent to later steps
        self._checked_s = 0.0
        self._left_s: dict[int, float] = {}  # when ranks were first seen to have left
        self.mesh, self._homes = self._meet(store)
        self._channel = SocketChannel(self)
        for other in {*_partners(rank, size), self.near_ranks()[0]} - {rank}:
            self.mesh.connect(other)
        _alive.append(self)

    @property
    def group(self) -> SocketTransport:
        """The ``comm`` of a Reader of these ranks: this transport."""
        return self

    # --- meeting

    def _meet(self, store: Store) -> tuple[_core.Mesh, list[Home]]:
        if self.rank == 0:
            key = secrets.token_bytes(_core.Mesh.KEY_BYTES)
            self.mesh = _core.Mesh(0, self.size, key)
            own = Home(
                host_towards(os.environ.get(MASTER) or "localhost"), self.mesh.port, _near()
            )
            store.set(KEY, json.dumps([key.hex(), *own]))
            came = dict(self._await_home() for _ in range(self.size - 1))
            homes = [own, *(came[rank] for rank in range(1, self.size))]
        else:
            text, *first = json.loads(store.get(KEY))
            self.mesh = _core.Mesh(self.rank, self.size, bytes.fromhex(text))
            own = Home(host_towards(first[0]), self.mesh.port, _near())
            self._place(0, Home(*first), own)
            self.send(0, MEET, own)
            _, homes = self._await_home()
        for rank, home in enumerate(homes):
            self._place(rank, home, own)
        for rank in _children(self.rank, self.size):
            self.send(rank, MEET, homes)
        self.mesh.met()
        return self.mesh, homes

    def _place(self, rank: int, home: Home, own: Home) -> None:
        self.mesh.place(rank, home.host, home.port, is_near=home.near == own.near)

    def _await_home(self) -> tuple[int, Any]:
        deadline, seen = time.monotonic() + MEET_SECONDS_MAX, 0
        while True:
            message = self.mesh.take(MEET)
            if message is not None:
                return message.sender, pickle.loads(message.body)
            lost = self.mesh.lost()
            if lost is not None:
                raise PeerError(f"rank {lost[0]} is lost: {lost[1]}")
            if time.monotonic() > deadline:
                raise PeerError(f"a rank has not come within {MEET_SECONDS_MAX:g} s")
            seen = self.mesh.wait(seen)

    def near_ranks(self) -> list[int]:
        """Return the ranks that share memory with this one, itself among them."""
        near = self._homes[self.rank].near
        return [rank for rank, home in enumerate(self._homes) if home.near == near]

    # --- messages

    def send(self, to: int, tag: int, what: Any) -> None:
        """Send an object to a rank; return at once."""
        self.mesh.send(to, tag, pickle.dumps(what))

    def take_from(self, sender: int, tag: int, number: Any) -> Any:
        """Wait for what a rank sends to a numbered step; return what follows the number."""
        seen = 0
        while (found := self._take(sender, tag, number)) is None:
            self.check(sender)
            seen = self.mesh.wait(seen)
        return found

    def _take(self, sender: int, tag: int, number: Any) -> Any:
        wanted = sender, tag, number
        while wanted not in self._early:
            message = self.mesh.take(tag)
            if message is None:
                return None
            first, *rest = pickle.loads(message.body)
            self._early[message.sender, tag, first] = rest
        return self._early.pop(wanted)

    # --- steps

    def count_step(self) -> int:
        """Return the number of the next step, the same on all ranks."""
        self._steps += 1
        return self._steps

    def take_step(self, number: int, sender: int) -> list[bytes] | None:
        """Return the answers of a step that a rank has sent; None: they have not come.

        Raises:
            PeerError: they cannot come any more.
        """
        found = self._take(sender, GATHER, number)
        now_s = time.monotonic()
        if found is None and now_s > self._checked_s + CHECK_SECONDS:
            self._checked_s = now_s
            self.check(sender)
        return None if found is None else found[1]

    def begin_gather(self, own: bytes, sizes: Sequence[int] | None = None) -> _Gathering:
        """Begin to exchange answers."""
        if sizes is not None and sizes[self.rank] != len(own):
            raise ValueError(f"an answer of {len(own)} bytes, not {sizes[self.rank]}")
        return _Gathering(self, own)

    def begin_meeting(self) -> _Gathering:
        """Begin to wait until all ranks are here."""
        return _Gathering(self, b"")

    def node_group(self) -> SocketNodeGroup:
        """Return the ranks that share memory with this one."""
        return SocketNodeGroup(self)

    def send_array(self, array: Any, takes: Sequence[bool]) -> Any:
        """Send an array of rank 0 to some ranks."""
        number = self.count_step()
        takers = [rank for rank in range(self.size) if rank == 0 or takes[rank]]
        if self.rank not in takers:
            return None
        place = takers.index(self.rank)
        if array is None:
            parent = takers[_parent(place)]
            shape, dtype = self.take_from(parent, ARRAY, number)
            array = np.empty(shape, dtype)
        content = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        children = [takers[child] for child in _children(place, len(takers))]
        for child in children:
            self.send(child, ARRAY, (number, array.shape, array.dtype))
        for i, first in enumerate(range(0, len(content), ARRAY_BYTES)):
            piece = content[first : first + ARRAY_BYTES]
            if place > 0:
                (body,) = self.take_from(parent, ARRAY, (number, i))
                piece[:] = np.frombuffer(body, np.uint8)
            for child in children:
                self.send(child, ARRAY, ((number, i), piece.tobytes()))
        return array

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
        if self._failure is None:
            message = self.mesh.take(FAILED)
            found = self.mesh.lost() if message is None else pickle.loads(message.body)
            if found is not None:
                self._fail(*found)
        return self._failure

    def _fail(self, rank: int, cause: str) -> None:
        self._failure = rank, cause
        for other in _partners(self.rank, self.size):
            self.send(other, FAILED, self._failure)

    def check(self, sender: int) -> None:
        """Raise where what a rank is to send cannot come any more.

        Raises:
            PeerError: a rank is lost, or this one has ended.
        """
        now_s = time.monotonic()
        if self.mesh.states()[sender] is _core.PeerState.LEFT:
            # Its last messages may still be on their way, by another connection.
            since_s = self._left_s.setdefault(sender, now_s)
            if now_s > since_s + LEFT_SECONDS and self.lost() is None:
                self._fail(sender, "its process has ended")
        failure = self.lost()
        if failure is not None:
            raise PeerError(f"rank {failure[0]} is lost: {failure[1]}")

    def leave(self) -> None:
        """Send and take no more. May be called twice."""
        if not self.has_left:
            self.has_left = True
            self.mesh.leave(int(1000 * LEAVE_SECONDS_MAX))


# --- torch.distributed -------------------------------------------------------------------

#: The transports of this process, which leave when it ends.
_alive: list[SocketTransport] = []
os.register_at_fork(after_in_child=_alive.clear)  # they are the parent's
_of_groups: weakref.WeakKeyDictionary[Any, SocketTransport] = weakref.WeakKeyDictionary()


@atexit.register
def _leave_all() -> None:
    if _alive:
        end_messages()
        wait_unused()
    for transport in _alive:
        transport.leave()


def is_process_group(what: object) -> bool:
    """Return whether something is a process group of torch.distributed's. Loads nothing."""
    torch = sys.modules.get("torch.distributed")
    group: Any = getattr(torch, "ProcessGroup", None)
    return group is not None and isinstance(what, group)


def transport_of_group(group: Any) -> SocketTransport:
    """Return the transport of a process group's ranks. Collective over it the first time.

    It needs the group's store for as long as the ranks meet, and the group itself for nothing.
    """
    transport = _of_groups.get(group)
    if transport is None:
        transport = SocketTransport(group.rank(), group.size(), group.get_group_store())
        _of_groups[group] = transport
    return transport
