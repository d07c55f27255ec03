"""How the ranks of a job without MPI find each other: through a store that all of them can reach.

    rank 0      its address and the job's secret -> the store
    others      the store -> their own addresses to rank 0
    rank 0      the addresses of all -> others, by a tree (``sockets``)

No rank waits longer than ``SECONDS_MAX`` for others to come, and none is misled by an address that
an earlier job has left in the store.
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
from collections.abc import Collection
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from lmdbio import _core
from lmdbio.errors import Error, PeerError
from lmdbio.share.memory import machine_name

__all__ = [
    "MEET",
    "SECONDS_MAX",
    "Home",
    "Place",
    "Store",
    "meet",
    "own_host",
    "place_of_torchrun",
]

#: Tag of messages by which ranks say where they are.
MEET = 1 << 20
#: The store's key of rank 0's address, and the variable that says where torchrun's store is.
KEY, MASTER = "lmdbio", "MASTER_ADDR"
#: Variables beside it: torchrun's ranks of the job, and of this machine, and this one's number.
BY_TORCHRUN = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK")
#: Environment variable: name or address by which other machines reach this one.
HOST = "LMDBIO_HOST"
#: An address that no machine has (RFC 5737): the way to it leads out.
OUTSIDE = "192.0.2.1"
#: A rank that others keep waiting for so long gives up; between two attempts to reach rank 0.
SECONDS_MAX, RETRY_SECONDS = 300.0, 0.05


class Store(Protocol):
    """Where ranks meet: torch.distributed's ``Store``, as far as it matters."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""

    def get(self, key: str) -> bytes:
        """Return a value, once somebody has written it."""

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        """Wait until somebody has written some values; RuntimeError: not in time."""

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


def _near() -> str:
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
        Error: ``LMDBIO_HOST`` names no host.
    """
    given = os.environ.get(HOST, "").strip()
    if given:
        try:
            return str(socket.getaddrinfo(given, 1)[0][4][0])
        except OSError as error:
            raise Error(f"{HOST}={given}: {error.strerror}: give this machine's address") from None
    for host in (other, OUTSIDE):
        with contextlib.suppress(OSError):
            found = _host_towards(host) if host else ""
            if found and not ipaddress.ip_address(found).is_loopback:
                return found
    return "127.0.0.1"


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
    except Error as error:
        return place._replace(problem=str(error))
    if place.machines > 1 and ipaddress.ip_address(place.address).is_loopback:
        own = f"{place.address} is the address of every machine to itself"
        return place._replace(problem=f"{own}: set {HOST} to the one in the job's network")
    return place


def _host_towards(other: str) -> str:
    family, _, _, _, address = socket.getaddrinfo(other, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0]).partition("%")[0]


def meet(rank: int, size: int, store: Store) -> tuple[_core.Mesh, list[Home]]:
    """Return connections to all ranks, and where each of them is. Collective.

    Args:
        rank, size: rank of this process, and number of ranks.
        store: store of this job alone.

    Raises:
        PeerError: a rank is lost, or does not come.
        OSError: this process cannot listen.
    """
    deadline_s = time.monotonic() + SECONDS_MAX
    if rank == 0:
        mesh, own, homes = _await_all(size, store, deadline_s)
    else:
        mesh, own, homes = _find_first(rank, size, store, deadline_s)
    for other, home in enumerate(homes):
        _place(mesh, other, home, own)
    return mesh, homes


def _await_all(size: int, store: Store, deadline_s: float) -> tuple[_core.Mesh, Home, list[Home]]:
    """Return where rank 0, this one, is, and where all are that come to it."""
    key = secrets.token_bytes(_core.Mesh.KEY_BYTES)
    mesh = _core.Mesh(0, size, key)
    own = Home(own_host(os.environ.get(MASTER, "")), mesh.port, _near())
    store.set(KEY, json.dumps([key.hex(), *own]))
    came = {0: own}
    while len(came) < size:
        rank, home = _await_home(mesh, deadline_s, set(range(size)) - set(came))
        came[rank] = home
    store.delete_key(KEY)  # others may meet here later
    return mesh, own, [came[rank] for rank in range(size)]


def _find_first(
    rank: int, size: int, store: Store, deadline_s: float
) -> tuple[_core.Mesh, Home, list[Home]]:
    """Return where this rank is, and where all are, by way of rank 0.

    The store may hold the address of a job that was killed while its ranks met, for torchrun
    starts the next one over the same store. Nobody listens there: rank 0 is still to come.
    """
    while True:
        try:
            store.wait([KEY], timedelta(seconds=max(1.0, deadline_s - time.monotonic())))
        except RuntimeError as error:
            raise PeerError(f"rank 0 did not come within {SECONDS_MAX:g} s: {error}") from error
        text, *first = json.loads(store.get(KEY))
        mesh = _core.Mesh(rank, size, bytes.fromhex(text))
        own = Home(own_host(first[0]), mesh.port, _near())
        _place(mesh, 0, Home(*first), own)
        mesh.send(0, MEET, pickle.dumps(own))
        try:
            return mesh, own, _await_home(mesh, deadline_s, range(size))[1]
        except PeerError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(RETRY_SECONDS)


def _place(mesh: _core.Mesh, rank: int, home: Home, own: Home) -> None:
    mesh.place(rank, home.host, home.port, is_near=home.near == own.near)


def _await_home(mesh: _core.Mesh, deadline_s: float, missing: Collection[int]) -> tuple[int, Any]:
    """Wait for where a rank is, or all are; return which one says it, and that.

    Args:
        mesh: connections of this rank.
        deadline_s: end of the wait, by ``time.monotonic``.
        missing: ranks that may not have come yet.
    """
    seen = 0
    while True:
        message = mesh.take(MEET)
        if message is not None:
            return message.sender, pickle.loads(message.body)
        lost = mesh.lost()
        if lost is not None:
            raise PeerError(f"rank {lost[0]} is lost: {lost[1]}")
        if time.monotonic() > deadline_s:
            ranks = ", ".join(map(str, sorted(missing)))
            raise PeerError(f"not all of ranks {ranks} came within {SECONDS_MAX:g} s")
        seen = mesh.wait(seen)
