"""Rows of blocks, sent from root to root by a thread of C's (csrc/exchange.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import dtype_of, pointer_to
from lmdbio._core.brief import brief_up_to
from lmdbio._core.owner import cell_of, held
from lmdbio._core.rows import Loaded
from lmdbio._core.status import SLICE_MS, Status

__all__ = [
    "ASKING",
    "SERVING",
    "Arrival",
    "Exchange",
    "Exchanged",
    "MpiLibrary",
    "Shipment",
    "probe_mpi",
]

SERVING, ASKING = dtype_of("lio_serving"), dtype_of("lio_asking")


class Exchanged(NamedTuple):
    """Rows sent and received: their bytes, each rounded up, and the messages that held them."""

    sent_bytes: int
    received_bytes: int
    sent_messages: int
    received_messages: int


@dataclass(frozen=True, slots=True)
class MpiLibrary:
    """An MPI library, as far as it is called (``lio_mpi``).

    Attributes:
        functions: addresses of MPI_Isend, MPI_Improbe, MPI_Imrecv, MPI_Mrecv, MPI_Testsome and
            MPI_Get_count.
        byte: the handle of MPI_BYTE, as an integer of its bytes.
        handle_bytes, status_bytes: sizes of a handle and of an MPI_Status, bytes.
        source_offset: offset of MPI_SOURCE in an MPI_Status, bytes.
        any_source, undefined: MPI's constants.
        owner: object that the functions need; None: they need none.
    """

    functions: tuple[int, ...]
    byte: int
    handle_bytes: int
    status_bytes: int
    source_offset: int
    any_source: int
    undefined: int
    owner: Any = None

    #: The fields of ``lio_mpi`` are these names in small letters.
    NAMES: ClassVar = ("Isend", "Improbe", "Imrecv", "Mrecv", "Testsome", "Get_count")

    def of(self, communicator: int) -> Any:
        """Return the ``lio_mpi`` that sends over a communicator, given by its handle's bytes."""
        mpi = ffi.new("lio_mpi *")
        for name, address in zip(self.NAMES, self.functions, strict=True):
            setattr(mpi, name.casefold(), address)
        mpi.communicator, mpi.byte = communicator, self.byte
        mpi.handle_bytes, mpi.status_bytes = self.handle_bytes, self.status_bytes
        mpi.source_offset = self.source_offset
        mpi.any_source, mpi.undefined = self.any_source, self.undefined
        return mpi


def probe_mpi(mpi: MpiLibrary, communicator: int) -> None:
    """Send messages to this process itself, as an exchange sends them, and compare them.

    Args:
        mpi: MPI library that is called.
        communicator: handle for this process alone, with no other message in flight.

    Raises:
        Error: they do not come, or differ.
    """
    Status("messages between roots").call(lib.lio_exchange_probe, mpi.of(communicator))


class Exchange:
    """The thread that sends and receives rows for one root. Threads may share it.

    Args:
        mpi: MPI library that is called.
        communicator: the bytes of its handle, as an integer.
        ranks: ranks of its roots, ascending.
        own: index of this root among them.
        tags: tags of the messages between roots and of the rows; no other message has one of them.
        messages_max: number of messages that are packed at a time, ``MESSAGE_BYTES`` each.

    Raises:
        MemoryError, OSError: the thread cannot be started.
    """

    MESSAGE_BYTES = int(lib.LIO_MESSAGE_BYTES)
    MESSAGES_MAX = int(lib.LIO_MESSAGES_MAX)
    DONE, GONE, OWES = int(lib.LIO_PEER_DONE), int(lib.LIO_PEER_GONE), int(lib.LIO_PEER_OWES)

    def __init__(
        self,
        mpi: MpiLibrary,
        communicator: int,
        ranks: tuple[int, ...],
        own: int,
        tags: tuple[int, int],
        messages_max: int,
    ) -> None:
        self._status = Status("messages between roots")
        self._size = len(ranks)
        numbers = np.array(ranks, np.int32)
        cell = cell_of("lio_exchange", "exchange_close", mpi.owner)
        self._status.call(
            lib.lio_exchange_open,
            mpi.of(communicator),
            pointer_to(numbers, "int32_t *"),
            len(ranks),
            own,
            *tags,
            messages_max,
            cell,
        )
        self.pointer = held(cell)

    def serve(
        self, parts: npt.NDArray[Any], loaded: Loaded, order: npt.NDArray[np.int64]
    ) -> Shipment:
        """Hand over rows that other roots will ask for.

        Args:
            parts: rows for each root in the order of its blocks, dtype ``SERVING``.
            loaded: the rows are among these records. The caller owns their memory until
                ``Shipment.left`` is 0, or ``stop``.
            order: places of the rows among them, shape (n,).
        """
        order = np.ascontiguousarray(order, np.int64)
        cell = cell_of("lio_shipment", "shipment_close", self.pointer)
        self._status.call(
            brief_up_to("lio_exchange_serve", len(order)),
            self.pointer,
            pointer_to(np.ascontiguousarray(parts), "lio_serving *"),
            len(parts),
            loaded.pointer,
            pointer_to(loaded.extents, "lio_extent *"),
            pointer_to(order, "int64_t *"),
            len(order),
            cell,
        )
        return Shipment(cell)

    def ask(self, block: int, rooms: npt.NDArray[Any]) -> Arrival:
        """Ask for rows of a block.

        Args:
            block: number of the block; numbers ascend.
            rooms: destinations, dtype ``ASKING``; those of one root are filled in order. The
                caller owns them until the rows have arrived, or ``Arrival.close`` returns True.
        """
        cell = cell_of("lio_arrival", "arrival_drop", self.pointer)
        self._status.call(
            lib.lio_exchange_ask,
            self.pointer,
            block,
            pointer_to(np.ascontiguousarray(rooms), "lio_asking *"),
            len(rooms),
            cell,
        )
        return Arrival(cell, len(rooms))

    def skip(self, block: int, peers: npt.ArrayLike) -> None:
        """Let roots know that their rows of a block are not needed."""
        numbers = np.ascontiguousarray(peers, np.uint32)
        pointer = pointer_to(numbers, "uint32_t *")
        self._status.call(lib.lio_exchange_skip, self.pointer, block, pointer, len(numbers))

    def peers(self) -> npt.NDArray[np.uint8]:
        """Return what is known of each root: ``DONE``, ``GONE`` and ``OWES``, or'ed."""
        known = np.zeros(self._size, np.uint8)
        lib.lio_exchange_peers(self.pointer, pointer_to(known, "uint8_t *"))
        return known

    def signs(self) -> npt.NDArray[np.uint32]:
        """Return how often each root has told that it still reads what it was asked for."""
        signs = np.zeros(self._size, np.uint32)
        lib.lio_exchange_signs(self.pointer, pointer_to(signs, "uint32_t *"))
        return signs

    def reads_on(self) -> None:
        """Tell roots that have asked for rows, and have not got them, that these are read."""
        lib.lio_exchange_reads_on(self.pointer)

    def counts(self) -> Exchanged:
        """Return what was sent and received so far."""
        counts = ffi.new("lio_exchanged *")
        lib.lio_exchange_counts(self.pointer, counts)
        return Exchanged(*(int(getattr(counts, name)) for name in Exchanged._fields))

    def messages(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return how many messages of all kinds went to each root, and came from it."""
        sent, received = np.zeros(self._size, np.int64), np.zeros(self._size, np.int64)
        pointers = (pointer_to(one, "int64_t *") for one in (sent, received))
        lib.lio_exchange_messages(self.pointer, *pointers)
        return sent, received

    def done(self) -> None:
        """Take no more rows: what was asked for is dropped when it comes."""
        lib.lio_exchange_done(self.pointer)

    def end(self) -> None:
        """Send no more rows."""
        lib.lio_exchange_end(self.pointer)

    def wait_over(self, timeout_ms: int = SLICE_MS) -> bool:
        """Return whether no root takes or sends any more, after ``timeout_ms`` at most."""
        code = lib.lio_exchange_wait_over(self.pointer, timeout_ms, self._status.error)
        return self._status.is_over(code)

    def stop(self) -> None:
        """End the thread. May be called twice."""
        lib.lio_exchange_stop(self.pointer)

    def step(self) -> bool:
        """Carry on what was under way at the end; return whether all of it has ended."""
        return bool(lib.lio_exchange_step(self.pointer))


class Shipment:
    """Rows that were handed over to be sent."""

    __slots__ = ("_owner", "_status")

    def __init__(self, cell: Any) -> None:
        self._owner = held(cell)
        self._status = Status("messages between roots")

    @property
    def left(self) -> int:
        """Parts of them that are not packed yet."""
        return int(lib.lio_shipment_left(self._owner))

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether all are packed, after ``timeout_ms`` at most."""
        if not timeout_ms:
            return not self.left
        code = lib.lio_shipment_wait(self._owner, timeout_ms, self._status.error)
        return self._status.is_over(code)

    def expire(self) -> None:
        """Take back parts that nobody has asked for yet, of roots that are so far behind."""
        lib.lio_shipment_expire(self._owner)


class Arrival:
    """Rows of a block that other roots were asked for."""

    AWAITED, ARRIVED = int(lib.LIO_ANSWER_AWAITED), int(lib.LIO_ANSWER_ARRIVED)
    LATE, GONE = int(lib.LIO_ANSWER_LATE), int(lib.LIO_ANSWER_GONE)

    __slots__ = ("_cell", "_count", "_owner", "_status")

    def __init__(self, cell: Any, count: int) -> None:
        self._cell, self._owner = cell, held(cell)
        self._count, self._status = count, Status("messages between roots")

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether no answer is awaited, after ``timeout_ms`` at most."""
        wait = brief_up_to("lio_arrival_wait", timeout_ms, 0)
        code = wait(self._owner, timeout_ms, self._status.error)
        return self._status.is_over(code)

    def give_up(self) -> None:
        """Await no answer any more; messages that have begun to come still do (``poll``)."""
        lib.lio_arrival_give_up(self._owner)

    def answers(self) -> npt.NDArray[np.uint8]:
        """Return how each answer ended: ``ARRIVED``, ``LATE``, ``GONE``, or is ``AWAITED``."""
        answers = np.zeros(self._count, np.uint8)
        lib.lio_arrival_answers(self._owner, pointer_to(answers, "uint8_t *"))
        return answers

    def close(self, timeout_ms: int = 0) -> bool:
        """Give up what is awaited; return whether nothing comes into its rooms any more."""
        if timeout_ms:
            return bool(lib.lio_cell_arrival_end(self._cell, timeout_ms) == lib.LIO_OK)
        is_over = lib.lio_arrival_wait(self._owner, 0, self._status.error) == lib.LIO_OK
        lib.lio_cell_arrival_drop(self._cell)
        return bool(is_over)
