"""Decoders of whole batches of numbers: arrays of one shape, Caffe's Datum, .npy files.

records in one memory -> lengths checked -> C copies the rows into the tensor
"""

from __future__ import annotations

import io
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from lmdbio import _core
from lmdbio.reading.batch import Batch
from lmdbio.records.routes import Field
from lmdbio.torch.samples import RecordErrors
from lmdbio.torch.whole import (
    BatchDecoder,
    FieldDecoder,
    TensorDecoder,
    TensorMemory,
    as_batch,
    as_decoder,
    decode_with,
)

__all__ = ["Array", "Datum", "Npy"]

U64 = npt.NDArray[np.uint64]

#: A header of a .npy file is a line of text: NumPy's own limit for files that nobody vouches for.
HEADER_BYTES_MAX = 10000


def _as_dtype(given: Any) -> tuple[torch.dtype, bool]:
    """Return torch's dtype of elements, and whether their bytes come in the other order.

    Raises:
        TypeError: torch has none.
    """
    if isinstance(given, torch.dtype):
        return given, False
    kind = np.dtype(given)
    native = kind.newbyteorder("=")
    try:
        found: torch.dtype = torch.from_numpy(np.empty(0, native)).dtype
    except TypeError:
        raise TypeError(f"torch has no dtype for elements of dtype {given!r}") from None
    return found, kind.itemsize > 1 and kind != native


def _mend(tensor: torch.Tensor, *, swapped: bool) -> torch.Tensor:
    """Return a tensor whose memory was filled with elements as they are in records."""
    if tensor.dtype == torch.bool:
        # A byte that is neither 0 nor 1 is no bool of torch's.
        raw = tensor.view(torch.uint8)
        raw.copy_(raw != 0)
    elif swapped:
        tensor.numpy().byteswap(inplace=True)
    return tensor


def _addresses(batch: Batch) -> U64:
    """Return where each record begins in memory."""
    addresses: U64 = batch.offsets + np.uint64(batch.buffer.ctypes.data)
    return addresses


def _fill(tensor: torch.Tensor, sources: U64) -> None:
    """Copy rows at these addresses into a tensor, a row for each of its first axis."""
    if tensor.numel():
        size = tensor.numel() // len(tensor) * tensor.element_size()
        _copy_to(tensor.data_ptr(), size, sources)


def _copy_to(address: int, size: int, sources: U64) -> None:
    """Copy rows of so many bytes, one behind the other."""
    targets = np.arange(len(sources), dtype=np.uint64) * np.uint64(size) + np.uint64(address)
    _core.copy_rows(sources, np.full(len(sources), size, np.uint64), targets)


def _number(index: Any) -> str:
    return f"record {int(index)}"


class Array(FieldDecoder):
    """The same field of every record as one tensor; all records have one layout.

        decode = Array("u1", (3, 32, 32))  # of 3,072 bytes each
        decode = {"label": Array("u1"), "image": Array("u1", (3, 32, 32), offset=1)}

    Bytes after the field are ignored. C copies each field of cached records straight into the
    tensor, without Python's lock.

    Args:
        dtype: type of the stored elements: NumPy's (also of the other byte order, such as ">f4")
            or torch's.
        shape: shape of one record's field; () for a single element.
        offset: number of bytes from the start of each record to the field.

    Raises:
        TypeError: torch has no such dtype.
        ValueError: shape or offset is negative.
    """

    def __init__(self, dtype: Any, shape: int | Sequence[int] = (), offset: int = 0) -> None:
        self._dtype, self._is_swapped = _as_dtype(dtype)
        self._shape = tuple(
            operator.index(n) for n in (shape if isinstance(shape, Sequence) else (shape,))
        )
        self._offset = operator.index(offset)
        if self._offset < 0 or any(n < 0 for n in self._shape):
            raise ValueError("offset and shape must not be negative")
        self._bytes: int = math.prod(self._shape) * self._dtype.itemsize

    def __repr__(self) -> str:
        return f"Array({self._dtype}, {self._shape}, offset={self._offset})"

    def request(self, count: int, memory: TensorMemory) -> tuple[torch.Tensor, list[Field]]:
        """Return a tensor for so many records, and the field of theirs that fills it."""
        tensor = self._empty(count, memory)
        size = count * self._bytes
        return tensor, [Field(self._offset, self._bytes, tensor.data_ptr(), size)]

    def finish(self, filled: torch.Tensor) -> torch.Tensor:
        """Return the tensor, its elements as torch has them."""
        return _mend(filled, swapped=self._is_swapped)

    @property
    def row_bytes(self) -> int:
        """Size of the field, bytes."""
        return self._bytes

    def decode(self, batch: Any, memory: TensorMemory) -> torch.Tensor:
        """Return a tensor of shape (n, *shape).

        Raises:
            RecordErrors: records are too short.
        """
        batch = as_batch(batch, "Array")
        lengths, needed = batch.lengths, self._offset + self._bytes
        short = np.flatnonzero(lengths < np.uint64(min(needed, 2**64 - 1)))
        if len(short):
            raise RecordErrors(
                {
                    row: ValueError(
                        f"{_number(batch.indices[row])} has {int(lengths[row])} bytes, and "
                        f"{self!r} needs {needed}"
                    )
                    for row in short.tolist()
                }
            )
        tensor = self._empty(len(batch), memory)
        _fill(tensor, _addresses(batch) + np.uint64(self._offset))
        return self.finish(tensor)

    def _empty(self, count: int, memory: TensorMemory) -> torch.Tensor:
        return memory.empty((count, *self._shape), self._dtype)


class Datum(TensorDecoder):
    """Caffe's Datum: an image and its label, as Caffe's ``convert_imageset`` writes them.

        for images, labels in Loader("ilsvrc12_train_lmdb", 256, shuffle=True, decode=Datum()):

    A batch is a pair: images, shape (n, channels, height, width), uint8 of ``data`` or float32 of
    ``float_data``, channels in the order of the file (Caffe's is BGR); labels, int64, shape (n,).

    Args:
        encoded: decoder of the images of an encoded Datum (``convert_imageset -encoded``), such as
            ``lmdbio.torch.Jpeg((224, 224))``; None: such a Datum is an error.
    """

    def __init__(self, encoded: BatchDecoder | None = None) -> None:
        self._encoded = None if encoded is None else as_decoder(encoded)

    def decode(self, batch: Any, memory: TensorMemory) -> tuple[Any, torch.Tensor]:
        """Return images and labels.

        Raises:
            RecordErrors: values are no Datum, are encoded or not against what was said, or have
                fewer or more numbers than their shape says.
            ValueError: images of a batch differ in shape or kind.
        """
        batch = as_batch(batch, "Datum")
        found = _core.parse_datums(batch.buffer, batch.offsets, batch.lengths)
        wrong = self._wrong(found)
        if wrong.any():
            rows = np.flatnonzero(wrong).tolist()
            raise RecordErrors({row: self._error(batch.indices[row], found[row]) for row in rows})
        labels = memory.empty((len(batch),), torch.int64)
        labels.numpy()[:] = found["label"]
        if self._encoded is not None:
            return decode_with(self._encoded, _inner(batch, found), memory), labels
        return self._images(batch, found, memory), labels

    def _wrong(self, found: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return whether each Datum cannot be decoded."""
        is_encoded = found["is_encoded"] != 0
        wrong: npt.NDArray[np.bool_] = found["is_whole"] == 0
        if self._encoded is not None:
            wrong |= ~is_encoded
            return wrong
        sides = np.stack([found[name] for name in ("channels", "height", "width")])
        # Exact below 2**53: a product above that is near enough to be more than memory has.
        pixels = np.prod(sides.astype(np.float64), axis=0)
        data, floats = found["data_bytes"], found["floats"]
        wrong |= is_encoded | (sides <= 0).any(axis=0) | (pixels != data + floats)
        wrong |= (data > 0) & (floats > 0)
        return wrong

    def _error(self, index: Any, one: Any) -> ValueError:
        name = _number(index)
        if not one["is_whole"]:
            return ValueError(f"{name} is no Datum, or one that is cut")
        if one["is_encoded"] and self._encoded is None:
            return ValueError(
                f"{name} is a Datum that holds an encoded image: write decode=Datum(encoded="
                "lmdbio.torch.Image((224, 224))), of the height and width that you want"
            )
        if self._encoded is not None:
            return ValueError(f"{name} is a Datum that is not encoded: write decode=Datum()")
        shape = tuple(int(one[side]) for side in ("channels", "height", "width"))
        return ValueError(
            f"{name} is a Datum of shape {shape} with {int(one['data_bytes'])} bytes and "
            f"{int(one['floats'])} floats"
        )

    @staticmethod
    def _images(batch: Batch, found: npt.NDArray[Any], memory: TensorMemory) -> torch.Tensor:
        if not len(found):
            return memory.empty((0, 0, 0, 0), torch.uint8)
        is_float = found["floats"] > 0
        repeats = np.stack([found["channels"], found["height"], found["width"], is_float], axis=1)
        other = np.flatnonzero((repeats != repeats[0]).any(axis=1))
        if len(other):
            first, second = (
                f"{_number(batch.indices[row])} {tuple(repeats[row, :3].tolist())} "
                f"{'float32' if is_float[row] else 'uint8'}"
                for row in (0, other[0])
            )
            raise ValueError(f"images of a batch differ, {first} and {second}: no one tensor")
        shape = (len(found), *repeats[0, :3].tolist())
        images = memory.empty(shape, torch.float32 if is_float[0] else torch.uint8)
        if not is_float[0]:
            _fill(images, _addresses(batch) + found["data"])
            return images
        each = images.numel() // len(found)
        places = batch.buffer, batch.offsets, batch.lengths
        copied = _core.copy_datum_floats(*places, each, images.data_ptr())
        assert copied == len(found), "they were counted"
        return images


def _inner(batch: Batch, found: npt.NDArray[Any]) -> Batch:
    """Return the data of Datums as a batch of its own, over the same memory."""
    memory = batch.buffer
    return Batch.over(
        memory.ctypes.data,
        len(memory),
        indices=batch.indices,
        offsets=batch.offsets + found["data"],
        lengths=found["data_bytes"].copy(),
        keep=memory,
    )


class Npy(TensorDecoder):
    """Values that are .npy files (``numpy.save``), as one tensor: all of one dtype and shape.

    Pickled objects are never loaded. The header is parsed once for all records that have the
    same one.
    """

    def decode(self, batch: Any, memory: TensorMemory) -> torch.Tensor:
        """Return a tensor of shape (n, *shape).

        Raises:
            RecordErrors: values are no .npy files, are cut, or hold objects.
            ValueError: arrays of a batch differ in dtype or shape.
        """
        batch = as_batch(batch, "Npy")
        heads, failed = self._heads(batch)
        if failed:
            raise RecordErrors(failed)
        if not heads:
            return memory.empty((0,), torch.uint8)
        first = heads[0]
        for row, head in enumerate(heads):
            if head is not first and head[1:] != first[1:]:
                raise ValueError(
                    f"arrays of a batch differ, {_number(batch.indices[0])} {first} and "
                    f"{_number(batch.indices[row])} {head}: no one tensor"
                )
        shape, in_columns = first.shape, first.in_columns
        kind, swapped = _as_dtype(first.dtype)
        stored = shape[::-1] if in_columns else shape
        tensor = memory.empty((len(heads), *stored), kind)
        begins = np.fromiter((head.size for head in heads), np.uint64, len(heads))
        _fill(tensor, _addresses(batch) + begins)
        _mend(tensor, swapped=swapped)
        if not in_columns or len(shape) < 2:
            return tensor
        turned = memory.empty((len(heads), *shape), kind)
        return turned.copy_(tensor.permute(0, *range(len(shape), 0, -1)))

    def _heads(self, batch: Batch) -> tuple[list[Any], dict[int, Exception]]:
        """Return the head of each record, or why it has none.

        Where all records have one header, and are as long, that is parsed once.
        """
        known: dict[bytes, _Head] = {}
        heads: list[_Head] = []
        failed: dict[int, Exception] = {}
        for row, value in enumerate(batch):
            try:
                text = _header(value)
                if text not in known:
                    known[text] = _parsed(text)
                head = known[text]
                if len(value) != head.file_bytes:
                    raise ValueError(
                        f"is a .npy file of {len(value)} bytes: {head} takes {head.file_bytes}"
                    )
            except ValueError as error:
                failed[row] = ValueError(f"{_number(batch.indices[row])} {error}")
                continue
            heads.append(head)
            if row == 0 and _all_have(batch, text):
                return [head] * len(batch), failed
        return heads, failed


class _Head(NamedTuple):
    """The header of a .npy file, read.

    Attributes:
        size: bytes before the elements.
        dtype, shape: type and shape of the array.
        in_columns: whether elements lie in Fortran's order.
    """

    size: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    in_columns: bool

    @property
    def file_bytes(self) -> int:
        """Bytes of the whole file."""
        return self.size + math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        order = ", in Fortran's order" if self.in_columns else ""
        return f"{self.dtype} of shape {self.shape}{order}"


def _all_have(batch: Batch, text: bytes) -> bool:
    """Return whether all records are as long as the first, which begins so, and begin alike."""
    if (batch.lengths != batch.lengths[0]).any():
        return False
    heads = np.empty((len(batch), len(text)), np.uint8)
    _copy_to(heads.ctypes.data, len(text), _addresses(batch))
    return bool((heads == np.frombuffer(text, np.uint8)).all())


def _header(value: memoryview) -> bytes:
    """Return all bytes of a .npy file before its elements.

    Raises:
        ValueError: it is none, or its header is cut or too long.
    """
    head = bytes(value[:12])
    if head[:6] != np.lib.format.MAGIC_PREFIX:
        raise ValueError("is no .npy file")
    size = {1: 2, 2: 4, 3: 4}.get(head[6] if len(head) > 6 else 0)
    if size is None or len(head) < 8 + size:
        raise ValueError("is a .npy file of a version that is not known")
    end = 8 + size + int.from_bytes(head[8 : 8 + size], "little")
    if end > HEADER_BYTES_MAX or end > len(value):
        raise ValueError(f"is a .npy file with a header of {end} bytes, and has {len(value)}")
    return bytes(value[:end])


def _parsed(text: bytes) -> _Head:
    """Return what a header says.

    Raises:
        ValueError: NumPy cannot read it, or torch has no such dtype.
    """
    file = io.BytesIO(text)
    version = np.lib.format.read_magic(file)
    try:
        # Headers of version 3 are those of 2, in UTF-8.
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, in_columns, dtype = read(file, max_header_size=HEADER_BYTES_MAX)
    except Exception as error:  # of a parser of Python's, which fails in many ways
        raise ValueError(f"is a .npy file whose header cannot be read: {error}") from None
    if dtype.hasobject:
        raise ValueError(
            "is a .npy file of Python objects, which are pickled: they are not loaded"
        )
    if any(n < 0 for n in shape):
        raise ValueError(f"is a .npy file of shape {shape}")
    try:
        _as_dtype(dtype)
    except TypeError as error:
        raise ValueError(f"is a .npy file, and {error}") from None
    return _Head(len(text), dtype, shape, in_columns)
