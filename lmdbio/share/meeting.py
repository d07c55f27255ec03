"""How the ranks of a job without MPI meet: through a store of the job, once.

    rank 0         its address and a secret   -> the store -> all others
    all others     their own addresses        -> rank 0
    rank 0         the addresses of all       -> by a tree -> all others

Then each connects to those whose end it is to hear of, and waits until they hear it: from then on
a rank that ends without a farewell is lost. Every wait is bounded, and ends with an error that
names the ranks that have not come. No rank is misled by an address that a dead job has left in the
store.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import pickle
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from lmdbio import _core
from lmdbio.errors import PeerError
from lmdbio.share.memory import machine_name
from lmdbio.share.transport import ranks_text

__all__ = [
    "MEET",
    "Home",
    "Place",
    "Store",
    "connect",
    "meet",
    "own_host",
    "own_near",
    "place_of_torchrun",
]

T = TypeVar("T")

#: Tag of what ranks send while they meet.
MEET = 1 << 20
#: The store's key of rank 0's address, and the variable that says where torchrun's store is.
KEY, MASTER = "lmdbio", "MASTER_ADDR"
#: Variables beside it: torchrun's ranks of the job, and of this machine, and this one's number.
BY_TORCHRUN = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK")
#: Environment variable: name or address by which other machines reach this one.
HOST = "LMDBIO_HOST"
#: Addresses that no machine has (RFC 5737, RFC 3849): the way to them leads out.
OUTSIDE = "192.0.2.1", "2001:db8::1"
#: Rank 0 waits so long for all others, and these for it; and they a little longer, for it says who
#: has not come.
MEET_SECONDS_MAX, WORD_SECONDS = 300.0, 10.0
#: Between two looks for another address of rank 0; and how long one that reaches nobody may stand.
RETRY_SECONDS, UNREACHED_SECONDS_MAX = 0.05, 30.0
#: A store waits in C++, where Ctrl-C is not heard, so it is asked instead: after such pauses.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.01, 0.5


class Store(Protocol):
    """Where ranks meet: torch.distributed's ``Store``, as far as it matters."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""

    def get(self, key: str) -> bytes:
        """Return a value, once somebody has written it."""

    def check(self, keys: list[str]) -> bool:
        """Return whether somebody has written the values; raise RuntimeError without a store."""

    def delete_key(self, key: str) -> object:
        """Remove a value."""


class Home(NamedTuple):
    """Where a rank is.

    Attributes:
        host, port: numeric address and TCP port at which it listens.
        near: the same for ranks that can share memory.
    """

    host: str
    port: int
    near: str


class Rank(Protocol):
    """This rank, while it meets the others (``share.sockets``).

    Attributes:
        rank, size: rank of this process, and number of ranks.
        mesh: connections to other ranks, once it listens.
        homes: addresses of those ranks that this one knows.
    """

    rank: int
    size: int
    mesh: _core.Mesh
    homes: dict[int, Home]

    def listen(self, key: bytes, other: str) -> Home:
        """Begin to listen, or begin anew; return where others find this rank."""

    def place(self, rank: int, home: Home) -> None:
        """Note where a rank listens."""

    def send(self, to: int, tag: int, what: Any) -> None:
        """Send an object to a rank; return at once."""

    def leave(self) -> None:
        """Listen no more."""

    def check(self, sender: int | None = None) -> None:
        """Raise PeerError where a rank is lost, or one that is to send something has left."""

    def fail(self, rank: int, cause: str) -> None:
        """Note that a rank is lost, and tell others."""


# --- this machine -------------------------------------------------------------------------


def own_near() -> str:
    """Return a name that ranks have alike that can open each other's files by way of /proc."""
    try:
        processes = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - no path, but a name
    except OSError as error:
        processes = f"{os.getpid()}: {error}"
    return f"{machine_name()}/{processes}/{os.getuid()}"


def own_host(other: str) -> str:
    """Return the numeric address of this machine that others reach.

    It is what ``LMDBIO_HOST`` says; else the address on the way to another host, or, where that
    is this machine by its own name, on the way out of it.

    Args:
        other: name or address of the other host; "": none is known.

    Raises:
        ValueError: this machine does not know what ``LMDBIO_HOST`` names.
    """
    given = os.environ.get(HOST, "").strip()
    if given:
        try:
            return str(socket.getaddrinfo(given, 1)[0][4][0])
        except OSError as error:
            raise ValueError(f"{HOST}={given}: neither an address nor a known name") from error
    for host in (other, *OUTSIDE):
        for found in _hosts_towards(host) if host else ():
            address = ipaddress.ip_address(found)
            # An address of IPv6 that is valid on one link means another one on each machine.
            if not address.is_loopback and not (address.version == 6 and address.is_link_local):
                return found
    return "127.0.0.1"


def _hosts_towards(other: str) -> Iterator[str]:
    """Return the addresses of this machine on the ways to another one."""
    with contextlib.suppress(OSError):
        for family, _, _, _, address in socket.getaddrinfo(other, 1, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)  # sends nothing
                yield str(probe.getsockname()[0]).partition("%")[0]


class Place(NamedTuple):
    """Where this process is in a job of torchrun's.

    Attributes:
        ranks, machines: number of ranks, and of machines that they run on.
        address: address by which other machines' ranks would ask for this one; "": there is none.
        problem: reason why they would not reach it, in words; "": they would.
    """

    ranks: int
    machines: int
    address: str = ""
    problem: str = ""


def place_of_torchrun() -> Place | None:
    """Return where torchrun's variables say that this process is; None: they are not all set."""
    texts = [os.environ.get(name, "").strip() for name in BY_TORCHRUN]
    if not all(text.isdecimal() for text in texts) or not os.environ.get(MASTER):
        return None
    ranks, here = int(texts[0]), max(1, int(texts[1]))
    place = Place(ranks, -(-ranks // here))
    try:
        place = place._replace(address=own_host(os.environ[MASTER]))
    except ValueError as error:
        return place._replace(problem=str(error))
    if place.machines > 1 and ipaddress.ip_address(place.address).is_loopback:
        own = f"{place.address} is the address of every machine to itself"
        return place._replace(problem=f"{own}: set {HOST} to the one in the job's network")
    return place


# --- meeting ------------------------------------------------------------------------------


def meet(own: Rank, store: Store, children: Sequence[int]) -> None:
    """Listen, and learn where all ranks do. Collective over the job.

    Args:
        own: this rank.
        store: store in which rank 0 leaves its address.
        children: ranks to which this one hands on where all are.
    """
    if own.rank == 0:
        key = secrets.token_bytes(_core.Mesh.KEY_BYTES)
        store.set(KEY, json.dumps([key.hex(), *own.listen(key, os.environ.get(MASTER, ""))]))
        try:
            _await(own, lambda: _have_come(own), lambda: _absent(own), MEET_SECONDS_MAX)
        finally:
            store.delete_key(KEY)  # others may meet here later
            _have_come(own)  # those hear of a failure, too, that have just come
        homes = [own.homes[rank] for rank in range(own.size)]
    else:
        homes = _ask_first(own, store)
        for rank, home in enumerate(homes):
            own.place(rank, home)
    for rank in children:
        own.send(rank, MEET, homes)


def connect(own: Rank, others: Collection[int]) -> None:
    """Connect this rank to others, and wait until they have welcomed it."""
    for other in others:
        own.mesh.connect(other)

    def not_here() -> list[int]:
        states = own.mesh.states()
        return [other for other in others if states[other] is _core.PeerState.AWAY]

    _await(own, lambda: not not_here(), not_here, MEET_SECONDS_MAX)
    own.check()
    own.mesh.met()


def _ask_first(own: Rank, store: Store) -> list[Home]:
    """Return where all ranks are, by way of rank 0.

    The store may hold the address of a job that was killed while its ranks met, for torchrun
    starts the next one over the same store. Nobody welcomes this rank there: rank 0 is still to
    come. Meanwhile this rank does not listen: others that try the dead address must not find it.
    """
    deadline, is_welcome = time.monotonic() + MEET_SECONDS_MAX, False
    tried, why, until = b"", PeerError(""), deadline

    def word() -> _core.MeshMessage | None:
        nonlocal is_welcome
        is_welcome |= own.mesh.states()[0] in (_core.PeerState.HERE, _core.PeerState.LEFT)
        found = own.mesh.take(MEET)
        if found is None:
            own.check(0)
        return found

    while True:
        text = _read_key(store, deadline)
        if text == tried:
            if time.monotonic() > until:
                raise why
            time.sleep(RETRY_SECONDS)
            continue
        key, *first = json.loads(text)
        home = own.listen(bytes.fromhex(key), first[0])
        own.place(0, Home(*first))
        own.send(0, MEET, home)
        try:
            found = _await(own, word, lambda: [0], MEET_SECONDS_MAX + WORD_SECONDS)
        except PeerError as error:
            if is_welcome:
                raise
            own.leave()
            tried, why = text, error
            until = min(deadline, time.monotonic() + UNREACHED_SECONDS_MAX)
        else:
            homes: list[Home] = pickle.loads(found.body)
            return homes


def _read_key(store: Store, deadline: float) -> bytes:
    """Return where rank 0 listens, once it has written that.

    Raises:
        PeerError: it does not.
    """
    absence, pause = _absence([0], MEET_SECONDS_MAX), PAUSE_SECONDS
    try:
        while not store.check([KEY]):
            if time.monotonic() > deadline:
                raise PeerError(f"rank 0 is lost: {absence}")
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
        return store.get(KEY)
    except RuntimeError as error:
        raise PeerError(f"rank 0 is lost: {absence} ({error})") from error


def _have_come(own: Rank) -> bool:
    """Take what ranks have sent to rank 0; return whether all have."""
    while (message := own.mesh.take(MEET)) is not None:
        own.place(message.sender, pickle.loads(message.body))
    return len(own.homes) == own.size


def _absent(own: Rank) -> list[int]:
    return sorted(set(range(own.size)) - own.homes.keys())


def _await(
    own: Rank,
    come: Callable[[], T | None],
    absent: Callable[[], Sequence[int]],
    seconds_max: float,
) -> T:
    """Wait until there is what others are to give, and return it.

    Args:
        own: this rank.
        come: returns it; false: it is not there yet.
        absent: returns the ranks that have not given it.
        seconds_max: longest time to wait.

    Raises:
        PeerError: a rank is lost, or time is up.
    """
    deadline, seen = time.monotonic() + seconds_max, 0
    while not (found := come()):
        own.check()
        if time.monotonic() > deadline and (ranks := absent()):
            own.fail(ranks[0], _absence(ranks, seconds_max))
        seen = own.mesh.wait(seen)
    return found


def _absence(ranks: Sequence[int], seconds: float) -> str:
    return (
        f"{ranks_text(ranks)} {'has' if len(ranks) == 1 else 'have'} not come within "
        f"{seconds:g} s: all ranks of a group make a Reader together, or none"
    )
