"""A worker process: makes batches of values that the loader's process reads.

Order -> values in the loader's segment -> samples -> collate -> Reply, arrays in a segment of its
own, which it uses again once the loader's process has let go of them

    Values -> Segment of the parent's, mapped by the worker -> samples, collated
    batch -> pack: pickled without its arrays, which are copied to a Segment of the worker's
          -> unpack, in the parent: the same batch, whose arrays lie in that Segment

It opens no file, and has no thread but one that ends it when the loader's process is gone. Random
draws follow from the sample, as in threads (``draws``). A segment has no name: nothing is left in
/dev/shm, however a process ends.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import _utils

from lmdbio import _core
from lmdbio.reading.batch import Batch
from lmdbio.records.mix import MixedBatch
from lmdbio.torch.dataset import lent
from lmdbio.torch.draws import Source
from lmdbio.torch.samples import CalledOffError, Numbered, SampleMaker
from lmdbio.torch.whole import Recipe

__all__ = ["FLAG_BYTES", "Order", "Reply", "Segment", "Values", "pack", "serve", "unpack"]

U64 = npt.NDArray[np.uint64]
#: Offset and length of each array in a segment, bytes.
Places = list[tuple[int, int]]

#: At the begin of a segment of values: one byte says that the batch is given up.
FLAG_BYTES = 64
#: A segment is made this much larger than what was asked for, in whole parts of so many bytes.
SPARE, PART_BYTES = 1.25, 1 << 20
#: Values that take up so much of the memory around them, at least, are copied with it.
DENSE = 0.8

#: A smaller array travels with the pickle.
APART_BYTES = 1024
#: Of each array in a segment.
ALIGNMENT = 64
#: Seconds between two looks at whether the parent is there.
POLL_SECONDS = 0.5


class Segment:
    """Memory without a name, which several processes map.

    Args:
        fd: descriptor of it, which this owns.
        size: number of its bytes.

    Attributes:
        view: the bytes.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        try:
            self._map = mmap.mmap(fd, size)
        except BaseException:
            os.close(fd)
            raise
        self.view = memoryview(self._map)
        self.address = _core.address_of(self._map)

    @classmethod
    def make(cls, needed: int) -> Segment:
        """Make one with room for so many bytes, and for somewhat more.

        Raises:
            OSError: there is no memory for it, or no descriptor.
        """
        size = -(-int(needed * SPARE) // PART_BYTES) * PART_BYTES
        fd = os.memfd_create("lmdbio-batch", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, size)

    def close_fd(self) -> None:
        """Close the descriptor; what is mapped stays. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.close_fd()


class Values:
    """The values of a batch, read.

    Args:
        batch: batch of any samples, with their indices.

    Attributes:
        indices: index of each sample.
        offsets, lengths: place of each, in the memory that they are copied to; None: ``values``.
        values: the values, where samples are of several records; else None.
        size: bytes that are copied.
    """

    def __init__(self, batch: Any) -> None:
        self.indices = np.asarray(batch.indices, np.uint64)
        self.offsets: Any = None
        self.lengths: Any = None
        self.values: list[Any] | None = None
        self._batch: Batch | None = None
        #: Rows of memory that are copied: where each begins, its length, and where it comes.
        self._rows: tuple[U64, U64, U64] | None = None
        self.size = 0
        if isinstance(batch, MixedBatch) and all(
            isinstance(p, Batch) for p in batch.parts.values()
        ):
            batch = batch.joined()
        if not isinstance(batch, Batch):
            self.values = [
                tuple(map(bytes, one)) if isinstance(one, tuple) else bytes(one) for one in batch
            ]
            return
        self._batch, self.lengths = batch, batch.lengths
        starts, bytes_all = batch.offsets, int(self.lengths.sum())
        first = int(starts.min()) if len(starts) else 0
        span = int((starts + self.lengths).max()) - first if len(starts) else 0
        if span * DENSE <= bytes_all:
            whole = np.array([first, span, 0], np.uint64)
            self._rows = whole[:1], whole[1:2], whole[2:]
            self.size, self.offsets = span, starts - np.uint64(first) + np.uint64(FLAG_BYTES)
            return
        places = np.cumsum(self.lengths, dtype=np.uint64) - self.lengths
        self._rows = starts, self.lengths, places
        self.size, self.offsets = bytes_all, places + np.uint64(FLAG_BYTES)

    def copy_to(self, address: int) -> None:
        """Copy the values to memory."""
        if self._batch is None or self._rows is None:
            return
        starts, lengths, places = self._rows
        base = np.uint64(self._batch.buffer.ctypes.data)
        _core.copy_rows(starts + base, lengths, places + np.uint64(address))
        self._batch = None  # its memory is needed no longer


class _Pickler(pickle.Pickler):
    """Has tensors leave the pickle as NumPy's arrays do."""

    def reducer_override(self, given: Any) -> Any:
        if type(given) is not torch.Tensor or not _is_plain(given):
            return NotImplemented
        is_last = given.dim() == 4 and not given.is_contiguous()
        is_last = is_last and given.is_contiguous(memory_format=torch.channels_last)
        dense = (given.permute(0, 2, 3, 1) if is_last else given).contiguous()
        raw = dense.reshape(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(raw), given.dtype, tuple(dense.shape), is_last)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is its bytes, type and shape, and nothing else."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.numel() > 0
        and not vars(tensor)
    )


def _tensor(
    raw: Any, dtype: torch.dtype, shape: Sequence[int], is_channels_last: bool
) -> torch.Tensor:
    made = torch.frombuffer(raw, dtype=dtype).reshape(shape)
    return made.permute(0, 3, 1, 2) if is_channels_last else made


def pack(batch: Any, allocate: Callable[[int], memoryview]) -> tuple[bytes, Places]:
    """Pickle a batch without its larger arrays and tensors, which are copied.

    Args:
        batch: batch, any picklable object.
        allocate: function from a number of bytes to memory for the arrays; called at most once.

    Returns:
        The pickle, and where the arrays lie in the memory.

    Raises:
        As pickle: the batch has something that cannot be pickled. As ``allocate``.
    """
    apart: list[memoryview] = []

    def leaves(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < APART_BYTES:
            return True  # stays
        apart.append(raw)
        return False

    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=leaves).dump(batch)
    places, end = [], 0
    for raw in apart:
        places.append((end, raw.nbytes))
        end += -(-raw.nbytes // ALIGNMENT) * ALIGNMENT
    if apart:
        memory = allocate(end)
        for raw, (offset, length) in zip(apart, places, strict=True):
            memory[offset : offset + length] = raw
    return stream.getvalue(), places


def unpack(pickled: bytes, places: Places, memory: memoryview) -> Any:
    """Return the batch that was packed; its arrays are views of the memory.

    Args:
        pickled, places: result of ``pack``.
        memory: the memory that ``allocate`` gave.
    """
    arrays = [memory[offset : offset + length] for offset, length in places]
    return pickle.loads(pickled, buffers=arrays)


@dataclass(frozen=True, slots=True)
class Order:
    """One batch to make.

    Attributes:
        indices: index of each sample.
        source: Source of random draws.
        offsets, lengths: place of each value in the loader's segment; None: ``values`` has them.
        values: the values, where samples are of several records.
        keys: key of each sample; None: they are not asked for.
        size: bytes of a segment whose descriptor comes next; 0: the one of before.
        freed: numbers of the worker's segments that nobody looks at any more.
        retired: numbers of those that a process looks at which this one does not know of.
    """

    indices: U64
    source: Source | None
    offsets: U64 | None
    lengths: U64 | None
    values: list[Any] | None
    keys: list[Any] | None
    size: int
    freed: list[int]
    retired: list[int]


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of an order.

    Attributes:
        pickled, places: the batch, as ``pack`` returns it; or an exception, without places.
        segment: number of the worker's segment that its arrays lie in; None: there are none.
        size: bytes of that segment, if it is new: its descriptor comes next; else 0.
        dropped: numbers of segments that the worker no longer has.
        left_out: number of samples that were left out.
        is_error: an exception was raised, and ``trace`` says where.
        is_unsendable: whether it was the batch that could not be pickled.
        is_begun: the worker has begun; False: ``Recipe.begin`` raised the exception.
    """

    pickled: bytes
    places: Places
    segment: int | None
    size: int
    dropped: list[int]
    left_out: int
    is_error: bool = False
    trace: str = ""
    is_unsendable: bool = False
    is_begun: bool = True


class _Segments:
    """The segments of a worker, into which it packs batches."""

    def __init__(self) -> None:
        self._all: dict[int, Segment] = {}
        self._free: set[int] = set()
        self._made = 0
        self.used: int | None = None
        self.fresh: Segment | None = None
        self.dropped: list[int] = []

    def begin(self, freed: list[int], retired: list[int]) -> None:
        """Begin a batch; the loader's process has let go of some segments, or will never."""
        for number in retired:
            self._all.pop(number, None)
        self._free.update(number for number in freed if number in self._all)
        self.used, self.fresh, self.dropped = None, None, []

    def allocate(self, size: int) -> memoryview:
        """Return memory of a free segment, or of a new one in place of those too small."""
        fits = [number for number in self._free if self._all[number].size >= size]
        if fits:
            self.used = min(fits, key=lambda number: self._all[number].size)
            self._free.discard(self.used)
            return self._all[self.used].view
        self.dropped = sorted(self._free)
        for number in self.dropped:
            self._all.pop(number).close_fd()
        self._free.clear()
        self.fresh = Segment.make(size)
        self.used, self._made = self._made, self._made + 1
        self._all[self.used] = self.fresh
        return self.fresh.view

    def give_back(self) -> None:
        """Take back the segment of a batch that failed: nobody will look at it."""
        if self.used is None:
            return
        if self.fresh is None:
            self._free.add(self.used)
        else:
            self._all.pop(self.used)  # nobody else knows of it


class _Worker:
    """Makes batches for one connection.

    Args:
        connection: connection to the loader's process.
        recipe: Recipe of the batches.
    """

    def __init__(self, connection: Connection, recipe: Recipe) -> None:
        self._connection, self._recipe = connection, recipe
        self._input: Segment | None = None
        self._segments = _Segments()
        self._maker = SampleMaker(
            self._describe, recipe.transform, keys=recipe.keys, errors=recipe.errors
        )

    def _describe(self, index: int) -> str:
        """Ask the loader's process, which has the file, for a sample's origin in words."""
        self._connection.send(index)
        return str(self._connection.recv())

    def run(self, unbegun: BaseException | None = None) -> None:
        """Make batches until the loader's process asks for no more.

        Args:
            unbegun: exception with which each order is answered; None: it is done.
        """
        while (order := self._connection.recv()) is not None:
            if order.size:
                self._input = Segment(recv_handle(self._connection), order.size)
                self._input.close_fd()
            if unbegun is not None:
                self._connection.send(replace(self._failure(unbegun, 0), is_begun=False))
                continue
            self._segments.begin(order.freed, order.retired)
            before, is_made = self._maker.left_out, False
            try:
                batch = self._batch(order)
                is_made = True
                pickled, places = pack(batch, self._segments.allocate)
                del batch
                reply = self._reply(pickled, places, before)
            except BaseException as error:
                self._segments.give_back()
                self._connection.send(self._failure(error, before, is_unsendable=is_made))
                del error
                continue
            self._connection.send(reply)
            if self._segments.fresh is not None:
                send_handle(self._connection, self._segments.fresh.fd, os.getppid())
                self._segments.fresh.close_fd()

    def _reply(self, pickled: bytes, places: Places, before: int) -> Reply:
        own = self._segments
        return Reply(
            pickled=pickled,
            places=places,
            segment=own.used,
            size=0 if own.fresh is None else own.fresh.size,
            dropped=own.dropped,
            left_out=self._maker.left_out - before,
        )

    def _failure(self, error: BaseException, before: int, *, is_unsendable: bool = False) -> Reply:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:
            pickled = b""
        left_out = self._maker.left_out - before
        dropped = self._segments.dropped
        return Reply(pickled, [], None, 0, dropped, left_out, True, trace, is_unsendable)

    def _batch(self, order: Order) -> Any:
        values: Iterator[Any] | list[Any] = self._values(order)
        if order.keys is not None:
            values = zip(order.keys, values, strict=True)
        elif self._recipe.transform is None:
            values = list(values)
        batch, collate = Numbered(order.indices), self._recipe.collate.function
        return self._maker.samples(values, batch, order.source, self._is_wanted, collate)

    def _is_wanted(self) -> bool:
        return self._input is None or not self._input.view[0]

    def _values(self, order: Order) -> Iterator[Any]:
        buffers = self._recipe.buffers
        if order.offsets is None or order.lengths is None:
            return map(lent, order.values or []) if buffers else iter(order.values or [])
        assert self._input is not None
        view = self._input.view if not buffers else self._input.view.toreadonly()
        kind = memoryview if buffers else bytes
        places = zip(order.offsets.tolist(), order.lengths.tolist(), strict=True)
        return (kind(view[at : at + length]) for at, length in places)


def serve(
    connection: Connection, others: list[Connection], number: int, count: int, recipe: Recipe
) -> None:
    """Be the worker process of a number, until its loader's process asks for no more.

    Args:
        connection: connection to the loader's process.
        others: the loader's ends of connections that a fork has copied; they are closed.
        number, count: number of this worker, and of all.
        recipe: Recipe of the batches.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader's process decides what Ctrl-C ends
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for other in others:
        other.close()
    threading.Thread(target=_end_with_parent, name="lmdbio-parent", daemon=True).start()
    torch.set_num_threads(1)
    info = _utils.worker.WorkerInfo(
        id=number, num_workers=count, seed=torch.initial_seed() + number, dataset=None
    )
    _utils.worker._worker_info = info
    unbegun: BaseException | None = None
    try:
        if recipe.begin is not None:
            recipe.begin(number)
    except BaseException as error:
        unbegun = error
    # The loader's process may close this, or go.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError, CalledOffError):
        _Worker(connection, recipe).run(unbegun)


def _end_with_parent() -> None:
    """End this process when its parent is gone, whatever a transform does meanwhile.

    Other children of the parent may have copied what says so at once, so it is looked as well.
    """
    parent, began_under = parent_process(), os.getppid()
    sentinels = [] if parent is None else [parent.sentinel]
    while os.getppid() == began_under and not wait(sentinels, POLL_SECONDS):
        pass
    os._exit(1)
