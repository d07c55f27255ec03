"""Messages between the processes of a job, over sockets that C carries (csrc/mesh.h)."""

from __future__ import annotations

import ipaddress
import os
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import pointer_to
from lmdbio._core.exchange import MpiLibrary
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import SLICE_MS, Status
from lmdbio.system import fork

__all__ = ["Mesh", "MeshMessage", "PeerState"]


class PeerState(IntEnum):
    """Another rank, as far as this one knows."""

    AWAY = int(lib.LIO_MESH_AWAY)  # nothing yet
    HERE = int(lib.LIO_MESH_HERE)  # it has welcomed this one
    LEFT = int(lib.LIO_MESH_LEFT)  # it has said farewell
    LOST = int(lib.LIO_MESH_LOST)  # it ended without, or cannot be reached


class MeshMessage(NamedTuple):
    """A message that has arrived: the rank that sent it, and its bytes."""

    sender: int
    body: bytes


class Mesh:
    """This process's place among the processes of a job. Threads may share it.

    It leaves when nothing refers to it any more, if not before.

    Args:
        rank: rank of this process.
        ranks: number of ranks.
        key: the job's secret, ``KEY_BYTES``; nobody is heard without.

    Attributes:
        port: TCP port at which this process listens.

    Raises:
        OSError: it cannot listen, or the thread cannot be started.
    """

    KEY_BYTES = int(lib.LIO_MESH_KEY_BYTES)
    BYTES_MAX = int(lib.LIO_MESH_BYTES_MAX)
    ANY_TAG = int(lib.LIO_MESH_ANY_TAG)

    def __init__(self, rank: int, ranks: int, key: bytes) -> None:
        if len(key) != self.KEY_BYTES:
            raise ValueError(f"a key of {len(key)} bytes; it has {self.KEY_BYTES}")
        self._status = Status("messages between ranks")
        self._ranks = ranks
        self._cell = cell_of("lio_mesh", "mesh_close")
        self._status.call(lib.lio_mesh_open, rank, ranks, key, self._cell)
        self.pointer = held(self._cell)
        self.port = int(lib.lio_mesh_port(self.pointer))
        self._is_forked = False
        fork.register(self)

    def _after_fork(self) -> None:
        # The parent's descriptors must not stay open in the child: others wait for their end.
        self._is_forked = True
        lib.lio_mesh_close(self.pointer)

    def place(self, rank: int, host: str, port: int, *, is_near: bool) -> None:
        """Say where a rank listens, before the first message to it.

        Args:
            rank: rank that listens.
            host: its numeric address, of IPv4 or IPv6.
            port: its TCP port.
            is_near: whether it runs on this machine.
        """
        address = ipaddress.ip_address(host)
        if address.version == 4:
            packed = b"\0" * 10 + b"\xff" * 2 + address.packed
        else:
            packed = address.packed
        lib.lio_mesh_place(self.pointer, rank, packed, port, is_near)

    def met(self) -> None:
        """Say that all ranks listen, and that those that ``connect`` named have welcomed this one.

        One that it cannot reach from now on has left.
        """
        if not self._is_forked:
            lib.lio_mesh_met(self.pointer)

    def connect(self, rank: int) -> None:
        """Connect to a rank, so that each of the two hears when the other one ends."""
        if not self._is_forked:
            self._status.call(lib.lio_mesh_connect, self.pointer, rank)

    def send(self, to: int, tag: int, body: bytes) -> None:
        """Send a copy of some bytes; return at once. Drop it where the rank has ended."""
        if not self._is_forked:
            self._status.call(lib.lio_mesh_send, self.pointer, to, tag, body, len(body))

    def first(self, tag: int) -> tuple[MeshMessage, Any] | None:
        """Return the oldest message with a tag, and what ``drop`` takes; None: none has arrived.

        It stays until it is dropped. One thread at a time reads those of a tag that are dropped.
        """
        found = ffi.NULL if self._is_forked else lib.lio_mesh_first(self.pointer, tag)
        if found == ffi.NULL:
            return None
        body = ffi.buffer(found.content, found.count)[:]
        return MeshMessage(int(found.sender), body), found

    def drop(self, found: Any) -> None:
        """Drop a message that ``first`` has found."""
        lib.lio_mesh_drop(self.pointer, found)

    def take(self, tag: int) -> MeshMessage | None:
        """Take the oldest message with a tag; None: none has arrived."""
        found = self.first(tag)
        if found is None:
            return None
        self.drop(found[1])
        return found[0]

    def wait(self, seen: int, timeout_ms: int = SLICE_MS) -> int:
        """Wait until anything has happened since ``seen``; return how much has happened.

        Args:
            seen: count that an earlier call returned; 0 at first.
            timeout_ms: longest time to wait.
        """
        cell = ffi.new("uint64_t *", seen)
        lib.lio_mesh_wait(self.pointer, cell, timeout_ms)
        return int(cell[0])

    def states(self) -> list[PeerState]:
        """Return what is known of each rank."""
        states = np.zeros(self._ranks, np.uint8)
        lib.lio_mesh_states(self.pointer, pointer_to(states, "uint8_t *"))
        return [PeerState(state) for state in states.tolist()]

    def lost(self) -> tuple[int, str] | None:
        """Return the first rank that was lost, and why; None: none is."""
        rank = ffi.new("uint32_t *")
        if not lib.lio_mesh_lost(self.pointer, rank, self._status.error):
            return None
        error = self._status.error
        reason = ffi.string(error.reason).decode("utf-8", "replace")
        if error.sys_errno:
            reason += f": {os.strerror(error.sys_errno)}"
        return int(rank[0]), reason

    @property
    def unsent(self) -> int:
        """Bytes that are still to be sent to ranks that are there."""
        return int(lib.lio_mesh_unsent(self.pointer))

    def library(self) -> tuple[MpiLibrary, int]:
        """Return the mesh as an MPI library, and as its communicator (``Exchange``)."""
        mpi = ffi.new("lio_mpi *")
        lib.lio_mesh_functions(self.pointer, mpi)
        library = MpiLibrary(
            functions=tuple(int(getattr(mpi, name.casefold())) for name in MpiLibrary.NAMES),
            byte=0,
            handle_bytes=int(mpi.handle_bytes),
            status_bytes=int(mpi.status_bytes),
            source_offset=int(mpi.source_offset),
            any_source=int(mpi.any_source),
            undefined=int(mpi.undefined),
            owner=self.pointer,
        )
        return library, int(mpi.communicator)

    def leave(self, timeout_ms: int = 1000) -> None:
        """Send what is still to be sent, then farewells; end the thread. May be called twice."""
        if not self._is_forked:
            lib.lio_mesh_leave(self.pointer, timeout_ms)
