"""The ranks of an mpi4py communicator; with ``mpi_channel`` alone it speaks MPI.

A window (``MPI.Win.Allocate_shared``, locked for its whole life) is a node's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from lmdbio import _core
from lmdbio.errors import Error, MissingExtraError
from lmdbio.share.memory import shm_free
from lmdbio.share.mpi_channel import (
    MpiChannel,
    find_functions,
    free_closed,
    handle_of,
    register,
)
from lmdbio.share.transport import NodeFile

__all__ = ["MpiTransport", "mpi4py"]

#: Bytes sent per call: MPI counts in 32 bits.
SHARED_BYTES = 64 * 2**20


def mpi4py(what: str) -> Any:
    """Return the module ``mpi4py.MPI``.

    Args:
        what: subject of the error's sentence, which needs it.

    Raises:
        MissingExtraError: mpi4py is not installed.
        RuntimeError, ImportError: it is, and finds no library of MPI.
    """
    try:
        from mpi4py import MPI
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mpi4py":
            raise
        raise MissingExtraError(what, "mpi4py", "mpi4py", "mpi") from None
    return MPI


class _Gathering:
    """A collective call of MPI's.

    Args:
        request: its request.
        every: memory of all answers, one after the other.
        sizes: size of each, bytes.
    """

    def __init__(self, request: Any, every: bytearray, sizes: Sequence[int]) -> None:
        self._request, self._every, self._sizes = request, every, sizes

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        return bool(self._request.Test())

    def answers(self) -> list[bytes]:
        """Return what each rank gave."""
        pairs = zip(accumulate(self._sizes), self._sizes, strict=True)
        return [bytes(self._every[end - size : end]) for end, size in pairs]


class _NodeWindow:
    """Memory of a node: a window of MPI's, and the communicator of its ranks."""

    def __init__(self, mpi: Any, comm: Any, size: int) -> None:
        self._mpi, self._comm = mpi, comm
        self._window = mpi.Win.Allocate_shared(size, 1, comm=comm)
        self._window.Lock_all(mpi.MODE_NOCHECK)
        self.parts = [self._window.Shared_query(rank)[0].address for rank in range(comm.size)]

    def is_gone(self) -> bool:
        """Return whether it is unmapped."""
        return self._window is None or bool(self._mpi.Is_finalized())

    def free(self) -> None:
        """Unmap it."""
        window, comm = self._window, self._comm
        self._window = self._comm = None
        if window is not None:
            window.Unlock_all()
            window.Free()
        if comm is not None and not self._mpi.Is_finalized():
            comm.Free()


class _NodeGroup:
    """A communicator of the ranks that share memory."""

    def __init__(self, mpi: Any, comm: Any) -> None:
        self._mpi = mpi
        self._comm = shared = comm.Split_type(mpi.COMM_TYPE_SHARED, comm.rank)
        groups = shared.Get_group(), comm.Get_group()
        self.shared = int(groups[0].Translate_ranks([0], groups[1])[0])
        for group in groups:
            group.Free()
        self.rank, self.size = int(shared.rank), int(shared.size)

    def split(self, ranks_per_node: int) -> None:
        """Split it into nodes of so many neighbours."""
        shared = self._comm
        self._comm = shared.Split(shared.rank // ranks_per_node, shared.rank)
        shared.Free()

    def create(self, sizes: Sequence[int]) -> NodeFile | None:
        """Return None: MPI makes the window on all ranks together."""
        del sizes
        return None

    def allocate(self, size: int, made: NodeFile | None) -> _NodeWindow:
        """Allocate this rank's part of its memory."""
        del made
        return _NodeWindow(self._mpi, self._comm, size)

    def memory_free(self) -> int | None:
        """Return the bytes that the machine has free for windows."""
        return shm_free()

    def free(self) -> None:
        """Free it, unless its memory did."""
        if self._comm and not self._mpi.Is_finalized():  # the handle of a freed one is false
            self._comm.Free()


class MpiTransport:
    """The ranks of an mpi4py communicator (``share.transport.Transport``).

    Attributes:
        mpi: module ``mpi4py.MPI``.

    Args:
        mpi: module ``mpi4py.MPI``.
        comm: the user's intracommunicator.
    """

    makes_memory = False

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.mpi = mpi
        self.group = comm
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.is_threaded = mpi.Query_thread() == mpi.THREAD_MULTIPLE

    def begin_meeting(self) -> _Gathering:
        """Begin to wait until all ranks are here."""
        return _Gathering(self.group.Ibarrier(), bytearray(), [0] * self.size)

    def begin_gather(self, own: bytes, sizes: Sequence[int] | None = None) -> _Gathering:
        """Begin to exchange answers."""
        byte = self.mpi.BYTE
        if sizes is None:
            every = bytearray(self.size * len(own))
            request = self.group.Iallgather([own, byte], [every, byte])
            return _Gathering(request, every, [len(own)] * self.size)
        every = bytearray(sum(sizes))
        request = self.group.Iallgatherv([own, byte], [every, np.array(sizes, np.int64), byte])
        return _Gathering(request, every, sizes)

    def node_group(self) -> _NodeGroup:
        """Return the ranks that share memory with this one."""
        return _NodeGroup(self.mpi, self.group)

    def send_array(self, array: Any, takes: Sequence[bool]) -> Any:
        """Send an array of rank 0 to some ranks."""
        takes_part = self.rank == 0 or takes[self.rank]
        some = self.group.Split(0 if takes_part else self.mpi.UNDEFINED, self.rank)
        if not takes_part:
            return None
        shape = some.bcast(None if array is None else (array.shape, array.dtype), 0)
        if array is None:
            array = np.empty(*shape)
        content = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        for first in range(0, len(content), SHARED_BYTES):
            some.Bcast([content[first : first + SHARED_BYTES], self.mpi.BYTE], 0)
        some.Free()
        return array

    def begin_reader(self, number: int) -> MpiChannel:
        """Return the channel of the communicator; make it the first time."""
        key = register(self.mpi)
        channel: MpiChannel | None = self.group.Get_attr(key)
        if channel is None:
            channel = MpiChannel(self.group, self.mpi)
            self.group.Set_attr(key, channel)
        channel.begin(self.group, number)
        return channel

    def lost(self) -> tuple[int, str] | None:
        """Return None: a launcher of MPI ends a job of which a rank is lost."""
        return None

    def known_readers(self) -> int:
        """Return the number of Readers that this rank knows of."""
        free_closed()
        channel = self.group.Get_attr(register(self.mpi))
        return 0 if channel is None else int(channel.readers)

    def find_library(self) -> tuple[_core.MpiLibrary | None, str]:
        """Return the MPI library as an exchange calls it, after a message has come here."""
        mpi = self.mpi
        try:
            library = find_functions(mpi)
            alone = mpi.COMM_SELF.Dup()
            try:
                _core.probe_mpi(library, handle_of(mpi, alone))
            finally:
                alone.Free()
        except (AttributeError, Error, OSError, TypeError) as error:
            return None, f"{mpi.get_vendor()[0]} cannot be called by address: {error}"
        return library, ""
