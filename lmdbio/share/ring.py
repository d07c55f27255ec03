"""Ring: the first rank of each node sends to the next node's, and all of them at once.

That is what roots do when they exchange rows: each sends and receives, through the same network.
Over sockets a message is copied at both ends, as rows are, and goes in pieces of their size.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.share.job import Job
from lmdbio.share.meeting import MEET

if TYPE_CHECKING:
    from lmdbio.share.sockets import SocketTransport

__all__ = ["Ring"]

#: No message takes as long; a rank that never answers would be waited for without an end.
LIMIT_SECONDS = 60.0
#: Tag of the messages over sockets, behind those of ``share.sockets``; and a piece of a message:
#: rows go in no larger ones.
RING, PIECE_BYTES = MEET + 4, _core.Exchange.MESSAGE_BYTES


class Ring:
    """Passes messages from node to node. Collective over the job, to make and to close.

    Args:
        job: job whose nodes are settled, two at least.
        flight_bytes: number of bytes that each rank sends at a time, and that it receives: as many
            messages as these hold.
    """

    def __init__(self, job: Job, flight_bytes: int) -> None:
        from lmdbio.share.mpi import MpiTransport

        firsts = [node[0] for node in job.nodes]
        transport: Any = job.transport
        self._link: _MpiLink | _SocketLink | None = None
        if isinstance(transport, MpiTransport):
            self._link = _MpiLink.over(transport, firsts, flight_bytes)
        elif job.rank in firsts:
            self._link = _SocketLink(transport, firsts)

    def run(self, message_bytes: int, messages: int, flight: int) -> float | None:
        """Send so many messages to the next node, and receive as many; return the seconds.

        To be called on all ranks; one that takes no part returns None at once.

        Args:
            message_bytes: size of each message, bytes.
            messages: number of messages.
            flight: number of messages in flight.

        Raises:
            Error: a neighbour has not answered, or is lost.
        """
        if self._link is None:
            return None
        self._link.meet()
        begun, left = time.perf_counter(), messages
        while left:
            number = min(left, flight)
            self._link.exchange(message_bytes, number)
            left -= number
        return time.perf_counter() - begun

    def close(self) -> None:
        """Give up what it took."""
        if self._link is not None:
            self._link.close()
            self._link = None


class _MpiLink:
    """The ways to the next node and from the one before, over a communicator of its own.

    Args:
        transport: transport of the job.
        comm: communicator of the first ranks of all nodes, in their order.
        flight_bytes: argument of ``Ring``.
    """

    def __init__(self, transport: Any, comm: Any, flight_bytes: int) -> None:
        self._mpi, self._comm = transport.mpi, comm
        # Touched, so that no page is made while time is taken.
        self._sent = np.ones(flight_bytes, np.uint8)
        self._received = np.zeros(flight_bytes, np.uint8)

    @classmethod
    def over(cls, transport: Any, firsts: Sequence[int], flight_bytes: int) -> _MpiLink | None:
        """Return the link of a first rank, None of any other. Collective over the job."""
        takes_part = transport.rank in firsts
        place = firsts.index(transport.rank) if takes_part else 0
        comm = transport.group.Split(0 if takes_part else transport.mpi.UNDEFINED, place)
        return cls(transport, comm, flight_bytes) if takes_part else None

    def meet(self) -> None:
        """Wait until all first ranks are here."""
        self._comm.Barrier()

    def exchange(self, size: int, number: int) -> None:
        """Exchange some messages at once.

        Raises:
            Error: a neighbour has not answered.
        """
        comm: Any = self._comm
        after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        places = [slice(i * size, (i + 1) * size) for i in range(number)]
        byte = self._mpi.BYTE
        requests = [comm.Irecv([self._received[place], byte], before) for place in places]
        requests += [comm.Isend([self._sent[place], byte], after) for place in places]
        until = time.monotonic() + LIMIT_SECONDS
        while not self._mpi.Request.Testall(requests):
            os.sched_yield()  # several of them may share a processor
            if time.monotonic() > until:
                for request in requests[:number]:
                    request.Cancel()  # nobody waits for these messages any more
                nodes = " or ".join(str(node) for node in sorted({before, after}))
                raise Error(
                    f"node {nodes} of {comm.size} has not passed on {number} messages of {size} "
                    f"bytes in {LIMIT_SECONDS:g} s"
                )

    def close(self) -> None:
        """Give the communicator back."""
        self._comm.Free()


class _SocketLink:
    """The ways to the next node and from the one before, over the mesh of a job without MPI.

    Args:
        transport: transport of the job.
        firsts: first ranks of all nodes, this one among them.
    """

    def __init__(self, transport: SocketTransport, firsts: Sequence[int]) -> None:
        place = firsts.index(transport.rank)
        self._transport = transport
        self._after, self._before = firsts[(place + 1) % len(firsts)], firsts[place - 1]

    def meet(self) -> None:
        """Wait until the neighbours are here."""
        self.exchange(0, 1)

    def exchange(self, size: int, number: int) -> None:
        """Exchange some messages at once.

        Raises:
            PeerError: a rank is lost.
        """
        mesh, content, seen = self._transport.mesh, bytes(min(size, PIECE_BYTES)), 0
        pieces = number * max(1, size // PIECE_BYTES)
        for _ in range(pieces):
            mesh.send(self._after, RING, content)
        for _ in range(pieces):
            while mesh.take(RING) is None:
                self._transport.check(self._before)
                seen = mesh.wait(seen)

    def close(self) -> None:
        """Give up nothing: the mesh is the job's."""
