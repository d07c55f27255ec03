"""Batch: some records in memory, lent without copying.

Two kinds of memory lie under a batch. A Reader's is a slot of a window that will be filled
again: such a batch is valid until its rank asks for the next one, and views made from it pin
the slot. ``Records.read`` and ``copy()`` give private memory that is never used again: such
a batch lives as long as anybody holds it or a view of it.

Nobody counts by hand which views are alive. All are made from one exporter object per
batch, which the batch holds and each view keeps alive; once the batch has let go, a weak
reference to the exporter is alive exactly as long as a view is.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from lmdbio import _core

__all__ = ["Batch", "packed_batch", "packed_copy"]

Rows = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


class Batch:
    """Records of one iteration, or of one ``Records.read``.

    ``len(batch)`` is the number of records, which may be 0. ``batch[i]`` is a read-only
    memoryview (format "B") of record i; iterating gives them all.

    Args:
        exporter: buffer of bytes that all views are made from, and that can be weakly referenced
            (``_core.lend``), or None when there are no bytes.
        indices: record indices, uint64, shape (n,).
        offsets: first byte of each record in the exporter, uint64, shape (n,).
        lengths: bytes of each record, uint64, shape (n,).

    Raises:
        ValueError: shapes differ, or a record does not lie inside the exporter.
    """

    __slots__ = (
        "__weakref__",
        "_exporter",
        "_indices",
        "_lengths",
        "_offsets",
        "_private",
        "_valid",
    )

    def __init__(self, exporter: Any, *, indices: U64, offsets: U64, lengths: U64) -> None:
        numbers = np.array(indices, np.uint64)
        self._indices: U64 | Callable[[], U64] = numbers
        self._offsets = np.array(offsets, np.uint64)
        self._lengths = np.array(lengths, np.uint64)
        if numbers.ndim != 1 or not numbers.shape == self._offsets.shape == self._lengths.shape:
            raise ValueError("indices, offsets and lengths must be one-dimensional and alike")
        self._check_places(0 if exporter is None else len(exporter))
        self._exporter = exporter
        self._valid = True
        self._private = False  # the memory is never used again: views may be held on to

    @classmethod
    def over(
        cls, address: int, size: int, *, indices: U64, offsets: U64, lengths: U64, keep: object
    ) -> Batch:
        """A batch over memory that is not filled again: private, or the file's own mapping.

        Args:
            address, size: the memory, bytes.
            indices, offsets, lengths: arguments of the class; offsets count from ``address``. The
                batch owns them from now on.
            keep: owner of the memory; lives as long as the batch or a view of it.
        """
        exporter = _core.lend(address, size, keep) if size else None
        batch = cls._of(exporter, indices, offsets, lengths)
        batch._check_places(size)
        batch._private = True
        return batch

    @classmethod
    def of_slot(
        cls,
        address: int,
        size: int,
        *,
        indices: Callable[[], U64],
        offsets: U64,
        lengths: U64,
        keep: object,
    ) -> Batch:
        """A batch over memory that will be filled again. Arguments as for ``over``.

        Args:
            indices: function that returns them when they are asked for: to shuffle takes time.
        """
        exporter = _core.lend(address, size, keep) if size else None
        return cls._of(exporter, indices, offsets, lengths)

    @classmethod
    def _of(
        cls, exporter: Any, indices: U64 | Callable[[], U64], offsets: U64, lengths: U64
    ) -> Batch:
        batch = cls.__new__(cls)
        batch._exporter = exporter
        batch._indices, batch._offsets, batch._lengths = indices, offsets, lengths
        batch._valid, batch._private = True, False
        return batch

    def _check_places(self, size: int) -> None:
        bad = _core.count_inside(self._offsets, self._lengths, size)
        if bad < len(self._offsets):
            raise ValueError(
                f"record {int(self._numbers()[bad])}: {int(self._lengths[bad])} bytes at "
                f"{int(self._offsets[bad])} do not lie in a buffer of {size} bytes"
            )

    def _find_stride(self) -> int | None:
        """The step between records that follow one another; None when there is not just one."""
        if len(self._offsets) < 2:
            return int(self._lengths[0]) if len(self._lengths) else 0
        steps = np.diff(self._offsets.astype(np.int64))
        return int(steps[0]) if (steps == steps[0]).all() else None

    # --- validity, for the Reader ---------------------------------------------------------

    def _check(self) -> None:
        if not self._valid:
            raise BufferError(
                "this batch is no longer valid: its Reader was asked for the next one or was "
                "closed, and its memory is filled anew; copy() it before, or use it in time"
            )

    def _try_end(self) -> bool:
        """End the batch unless a view or array made from it is alive; return whether it ended."""
        exporter = self._exporter
        if exporter is not None:
            reference = weakref.ref(exporter)
            self._exporter = None
            del exporter
            self._exporter = reference()
        if self._exporter is not None:
            return False
        self._valid = False
        return True

    def _expire(self) -> Any:
        """End the batch; its views live on. Return their exporter, None when there is none."""
        self._valid = False
        exporter, self._exporter = self._exporter, None
        return exporter

    # --- what users see -------------------------------------------------------------------

    @property
    def valid(self) -> bool:
        """False once the Reader has been asked for the next batch, or closed."""
        return self._valid

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def indices(self) -> U64:
        """Record indices in the data set: uint64, shape (len,). Stays valid."""
        return _frozen(self._numbers())

    def _numbers(self) -> U64:
        if callable(self._indices):
            self._indices = self._indices()
        return self._indices

    @property
    def offsets(self) -> U64:
        """First byte of each record in ``buffer``: uint64, shape (len,). Stays valid."""
        return _frozen(self._offsets)

    @property
    def lengths(self) -> U64:
        """Bytes of each record: uint64, shape (len,). Stays valid."""
        return _frozen(self._lengths)

    @property
    def contiguous(self) -> bool:
        """True when the records lie at one stride, so that ``array`` copies nothing."""
        return self._find_stride() is not None

    @property
    def buffer(self) -> npt.NDArray[np.uint8]:
        """The memory in which the records lie, read-only uint8; ``offsets`` point into it.

        Between two records there may be bytes of other records, and bytes that nobody asked for.
        """
        return np.frombuffer(self._view(), np.uint8)

    def _view(self) -> memoryview:
        self._check()
        if self._exporter is None:
            return memoryview(b"")
        return memoryview(self._exporter).toreadonly().cast("B")

    def __getitem__(self, index: SupportsIndex) -> memoryview:
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"record {i} of a batch of {len(self)}")
        start = int(self._offsets[i])
        return self._view()[start : start + int(self._lengths[i])]

    def __iter__(self) -> Iterator[memoryview]:
        places = zip(self._offsets.tolist(), self._lengths.tolist(), strict=True)
        if not self._private:
            # A view that the loop held between two records would pin the slot.
            for start, length in places:
                yield self._view()[start : start + length]
            return
        view = self._view()
        for start, length in places:
            yield view[start : start + length]

    def array(
        self, dtype: npt.DTypeLike, shape: int | Sequence[int] = (), offset: int = 0
    ) -> npt.NDArray[Any]:
        """The same field of every record, as one read-only array.

        Args:
            dtype: type of the elements; no Python objects.
            shape: shape of one record's field; () for a single element.
            offset: bytes from the start of each record to the field.

        Returns:
            Shape (len, *shape). A view, which pins the batch's memory, where the records lie
            at one stride (``contiguous``); else a copy, which does not.

        Raises:
            ValueError: a record is too short, or the arguments make no sense.
            BufferError: the batch is no longer valid.
        """
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise ValueError("records hold bytes: a dtype with Python objects cannot be used")
        inner = tuple(
            operator.index(n) for n in (shape if isinstance(shape, Sequence) else (shape,))
        )
        if offset < 0 or any(n < 0 for n in inner):
            raise ValueError("offset and shape must not be negative")
        wanted = offset + kind.itemsize * math.prod(inner)
        view = self._view()
        short = np.flatnonzero(self._lengths < np.uint64(min(wanted, 2**64 - 1)))
        if len(short):
            bad = int(short[0])
            raise ValueError(
                f"record {int(self._numbers()[bad])} has {int(self._lengths[bad])} bytes; "
                f"{kind} of shape {inner} at offset {offset} needs {wanted}"
            )
        if not len(self) or wanted == offset:
            return _frozen(np.empty((len(self), *inner), kind))
        stride = self._find_stride()
        if stride is not None:
            return self._strided(view, kind, inner, offset, stride)
        out = np.empty((len(self), wanted - offset), np.uint8)
        for i, start in enumerate(self._offsets.tolist()):
            out[i] = view[start + offset : start + wanted]
        return _frozen(out.view(kind).reshape(len(self), *inner))

    def _strided(
        self,
        view: memoryview,
        kind: np.dtype[Any],
        inner: tuple[int, ...],
        offset: int,
        stride: int,
    ) -> npt.NDArray[Any]:
        """One array over all records. The stride may be negative, or 0 for repeats."""
        field: tuple[int, ...] = ()
        step = kind.itemsize
        for n in reversed(inner):
            field = (step, *field)
            step *= n
        array: npt.NDArray[Any] = np.ndarray(
            (len(self), *inner),
            kind,
            buffer=view,
            offset=int(self._offsets[0]) + offset,
            strides=(stride, *field),
        )
        return array

    def copy(self) -> Batch:
        """The same records in private memory, one after another; always valid."""
        places = np.empty(len(self), _core.EXTENT)
        buffer = self.buffer  # which another thread may just be ending
        if _core.count_inside(self._offsets, self._lengths, len(buffer)) < len(self):
            raise BufferError("this batch is no longer valid: its Reader was closed meanwhile")
        places["offset"] = self._offsets + np.uint64(buffer.ctypes.data)
        places["length"] = self._lengths
        return packed_copy(places, self._numbers())

    def part(self, rows: slice | Rows, indices: U64) -> Batch:
        """Some of its records under other numbers, over the same memory; a Reader's, over a copy.

        Args:
            rows, indices: places of the records in this batch, and their numbers.
        """
        whole = self if self._private else self.copy()
        part = Batch._of(whole._exporter, indices, whole._offsets[rows], whole._lengths[rows])
        part._private = self._private
        return part

    def __repr__(self) -> str:
        state = "" if self._valid else ", no longer valid"
        return f"<Batch of {len(self)} records, {int(self._lengths.sum())} bytes{state}>"


def packed_batch(memory: _core.Memory, packed: _core.Packed, indices: U64) -> Batch:
    """Return a batch of records that were copied to memory of their own, one after another.

    Args:
        memory: memory of the records; lives as long as the batch or a view of it.
        packed: offsets and lengths of the records in it.
        indices: numbers of the records.
    """
    return Batch.over(
        memory.address,
        packed.room,
        indices=indices,
        offsets=packed.offsets,
        lengths=packed.lengths,
        keep=memory,
    )


def packed_copy(places: _core.Extents, indices: U64) -> Batch:
    """Return a batch of records in private memory, copied there without Python's lock.

    Args:
        places: address and length of each record, bytes; dtype ``EXTENT``.
        indices: numbers of the records.
    """
    packed = _core.pack_extents(places)
    memory = _core.Memory(packed.room)
    sources = np.ascontiguousarray(places["offset"])
    _core.copy_rows(sources, packed.lengths, packed.offsets + np.uint64(memory.address))
    return packed_batch(memory, packed, indices)
