"""Transfer: values to a worker process, and batches back, in memory that both have mapped.

    values -> Segment of the parent's, mapped by the worker -> samples, collated
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

import torch

from lmdbio import _core

__all__ = ["Places", "Segment", "pack", "unpack"]

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
    def make(cls, size: int) -> Segment:
        """Make one.

        Raises:
            OSError: there is no memory for it, or no descriptor.
        """
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
