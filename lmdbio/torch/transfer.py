"""Transfer: values to a worker process, and batches back, in memory that both have mapped.

    Values -> Segment of the parent's, mapped by the worker -> samples, collated
    batch -> pack: pickled without its arrays, which are copied to a Segment of the worker's
          -> unpack, in the parent: the same batch, whose arrays lie in that Segment

A segment has no name: nothing is left in /dev/shm, however a process ends.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from lmdbio import _core
from lmdbio.batch import Batch
from lmdbio.records.mix import MixedBatch

__all__ = ["FLAG_BYTES", "Places", "Segment", "Values", "pack", "unpack"]

#: At the begin of a segment of values: one byte says that the batch is given up.
FLAG_BYTES = 64
#: A segment is made this much larger than what was asked for, in whole parts of so many bytes.
SPARE, PART_BYTES = 1.25, 1 << 20
#: Values that take up so much of the memory around them, at least, are copied with it.
DENSE = 0.8

#: Offset and length of each array in a segment, bytes.
Places = list[tuple[int, int]]
#: A smaller array travels with the pickle.
APART_BYTES = 1024
#: Of each array in a segment.
ALIGNMENT = 64


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
        pending: batch under way, of any samples.

    Attributes:
        indices: index of each sample.
        offsets, lengths: place of each, in the memory that they are copied to; None: ``values``.
        values: the values, where samples are of several records; else None.
        size: bytes that are copied.

    Raises:
        OSError, Error: a value cannot be read.
    """

    def __init__(self, pending: Any) -> None:
        self.indices = np.asarray(pending.indices, np.uint64)
        self.offsets: Any = None
        self.lengths: Any = None
        self.values: list[Any] | None = None
        self._batch: Batch | None = None
        self._rows: Any = None
        self.size = 0
        batch = pending.batch()
        if isinstance(batch, MixedBatch) and batch.columns is None:
            batch = batch.joined()
        if not isinstance(batch, Batch):
            self.values = [tuple(map(bytes, one)) for one in batch]
            return
        self._batch, self.lengths = batch, batch.lengths
        starts, bytes_all = batch.offsets, int(self.lengths.sum())
        first = int(starts.min()) if len(starts) else 0
        span = int((starts + self.lengths).max()) - first if len(starts) else 0
        if span * DENSE <= bytes_all:
            self._rows = [(first, first + span, 0)]
            self.size, self.offsets = span, starts - np.uint64(first) + np.uint64(FLAG_BYTES)
            return
        ends = np.cumsum(self.lengths, dtype=np.uint64)
        places = ends - self.lengths
        self.size, self.offsets = bytes_all, places + np.uint64(FLAG_BYTES)
        stops = (starts + self.lengths).tolist()
        self._rows = list(zip(starts.tolist(), stops, places.tolist(), strict=True))

    def copy_to(self, view: memoryview, offset: int) -> None:
        """Copy the values to memory, from an offset on."""
        if self._batch is None:
            return
        buffer = self._batch.buffer
        into = np.frombuffer(view, np.uint8)
        for begin, end, at in self._rows:
            into[offset + at : offset + at + end - begin] = buffer[begin:end]
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
