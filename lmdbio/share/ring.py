"""Ring: the first rank of each node sends to the next node's, and all of them at once.

That is what roots do when they exchange rows: each sends and receives, through the same link.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from lmdbio.errors import Error
from lmdbio.share.job import Job

__all__ = ["Ring"]

#: No message takes as long; a rank that never answers would be waited for without an end.
LIMIT_SECONDS = 60.0


class Ring:
    """Passes messages from node to node. Collective over the job, to make and to close.

    Args:
        job: job whose nodes are settled, two at least.
        flight_bytes: number of bytes that each rank sends at a time, and that it receives: as many
            messages as these hold.
    """

    def __init__(self, job: Job, flight_bytes: int) -> None:
        firsts = [node[0] for node in job.nodes]
        takes_part = job.rank in firsts
        place = firsts.index(job.rank) if takes_part else 0
        from lmdbio.share.mpi import MpiTransport

        if not isinstance(job.transport, MpiTransport):
            raise Error("messages between nodes are timed under MPI alone")
        mpi = job.transport.mpi
        comm = job.transport.group.Split(0 if takes_part else mpi.UNDEFINED, place)
        self._mpi, self._comm = mpi, comm if takes_part else None
        if takes_part:
            # Touched, so that no page is made while time is taken.
            self._sent = np.ones(flight_bytes, np.uint8)
            self._received = np.zeros(flight_bytes, np.uint8)

    def run(self, message_bytes: int, messages: int, flight: int) -> float | None:
        """Send so many messages to the next node, and receive as many; return the seconds.

        To be called on all ranks; one that takes no part returns None at once.

        Args:
            message_bytes: size of each message, bytes.
            messages: number of messages.
            flight: number of messages in flight.

        Raises:
            Error: a neighbour has not answered.
        """
        if self._comm is None:
            return None
        self._comm.Barrier()
        begun, left = time.perf_counter(), messages
        while left:
            left -= self._pass(message_bytes, min(left, flight))
        return time.perf_counter() - begun

    def _pass(self, size: int, number: int) -> int:
        """Exchange some messages at once."""
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
        return number

    def close(self) -> None:
        """Give the communicator back."""
        if self._comm is not None:
            self._comm.Free()
            self._comm = None
