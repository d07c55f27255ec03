"""Whole batches: made by one call of a decoder, of records that lie in one memory.

records -> Batch -> decoder -> tensors, filled in one pass    no Python object for a record
RecordErrors -> the records named, by their notes -> raised, or left out and decoded without them
a tuple of decoders -> one for each record of a sample        a dict -> parts of the same records
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from lmdbio import _core
from lmdbio.batch import Batch
from lmdbio.records.columns import ColumnBatch
from lmdbio.records.field import Field
from lmdbio.records.mix import MixedBatch
from lmdbio.torch.dataset import Dataset
from lmdbio.torch.draws import Source
from lmdbio.torch.samples import RecordErrors

__all__ = [
    "BatchDecoder",
    "Decode",
    "FieldDecoder",
    "TensorDecoder",
    "TensorMemory",
    "WholeBatches",
    "as_batch",
    "as_decoder",
    "as_whole",
    "decode_with",
]


class BatchDecoder(Protocol):
    """A decoder of whole batches: any function of an ``lmdbio.Batch``.

        def decode(batch):
            return torch.tensor([parse(value) for value in batch])

    ``batch[i]`` is the value of record i, a read-only memoryview. ``batch.buffer``, ``offsets``
    and ``lengths`` (bytes) locate all of them in one memory, and ``batch.indices`` are their
    numbers in the data set. Views of the batch are valid until the decoder returns.
    """

    def __call__(self, batch: Any, /) -> Any:
        """Return the batch: a tensor, or a tuple, list or dict of such, or anything else.

        Args:
            batch: ``lmdbio.Batch`` of the values; where samples are of several records, a
                ``ColumnBatch`` (``batch.columns``); of a ``Mix``, a ``MixedBatch``.

        Raises:
            RecordErrors: some records cannot be decoded; the others can.
            Exception: there is no batch; a note tells of which records.
        """
        ...


#: A decoder; or several, for each record of a sample, or for parts of a record: ``decode=``.
Decode = BatchDecoder | Sequence[Any] | Mapping[str, Any]


class TensorMemory:
    """Memory for the tensors of batches.

    Args:
        pins: whether it is page-locked, for transfers to a GPU; needs one.
    """

    __slots__ = ("_pins",)

    def __init__(self, *, pins: bool) -> None:
        self._pins = pins

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of this shape; what it holds is undefined."""
        # A program may have torch make tensors elsewhere by default.
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=self._pins)

    def place(self, made: Any) -> Any:
        """Return what a decoder made elsewhere, with its tensors in this memory."""
        return pin_memory(made) if self._pins else made


PAGEABLE = TensorMemory(pins=False)


class TensorDecoder(ABC):
    """A decoder that fills tensors in memory that the loader chooses."""

    def __call__(self, batch: Any) -> Any:
        """Return the batch (``BatchDecoder``)."""
        return self.decode(batch, PAGEABLE)

    @abstractmethod
    def decode(self, batch: Any, memory: TensorMemory) -> Any:
        """Return the batch.

        Raises:
            RecordErrors: some records cannot be decoded.
        """


class FieldDecoder(TensorDecoder):
    """A decoder whose tensors are fields of every record, which may be copied straight there."""

    @abstractmethod
    def wish(self, count: int, memory: TensorMemory) -> tuple[Any, list[Field]]:
        """Return tensors for so many records, and the fields of theirs that fill these."""

    @abstractmethod
    def finish(self, filled: Any) -> Any:
        """Return the batch, once the fields of ``wish`` have filled its tensors."""


def decode_with(decoder: BatchDecoder, batch: Any, memory: TensorMemory) -> Any:
    """Return what a decoder makes of a batch, with its tensors in some memory."""
    if isinstance(decoder, TensorDecoder):
        return decoder.decode(batch, memory)
    return memory.place(decoder(batch))


class _Columns(TensorDecoder):
    """Makes a tuple: of each record of a sample what its own decoder does."""

    def __init__(self, decoders: Sequence[BatchDecoder]) -> None:
        self._decoders = tuple(decoders)

    def decode(self, batch: Any, memory: TensorMemory) -> Any:
        columns = getattr(batch, "columns", None)
        found, wanted = len(columns or (batch,)), len(self._decoders)
        if columns is None or found != wanted:
            raise ValueError(
                f"decode= has {wanted} decoders, one for each record of a sample, and samples are "
                f"of {found}: a dict has several decoders for the same record"
            )
        pairs = zip(range(wanted), self._decoders, columns, strict=True)
        return tuple(_all_of(((n, one, column) for n, one, column in pairs), memory).values())


class _Parts(TensorDecoder):
    """Makes a dict: what several decoders make of the same records."""

    _decoders: Mapping[str, BatchDecoder]

    def __init__(self, decoders: Mapping[str, BatchDecoder]) -> None:
        self._decoders = dict(decoders)

    def decode(self, batch: Any, memory: TensorMemory) -> Any:
        parts = ((name, one, batch) for name, one in self._decoders.items())
        return _all_of(parts, memory)


class _Fields(_Parts, FieldDecoder):
    """Makes a dict of fields."""

    _decoders: Mapping[str, FieldDecoder]

    def wish(self, count: int, memory: TensorMemory) -> tuple[Any, list[Field]]:
        wishes = {name: one.wish(count, memory) for name, one in self._decoders.items()}
        fields = [field for _, some in wishes.values() for field in some]
        return {name: tensor for name, (tensor, _) in wishes.items()}, fields

    def finish(self, filled: Any) -> Any:
        return {name: one.finish(filled[name]) for name, one in self._decoders.items()}


def _all_of(parts: Any, memory: TensorMemory) -> dict[Any, Any]:
    """Return what decoders make of their batches, by name; RecordErrors of all of them."""
    made: dict[Any, Any] = {}
    failed: dict[int, Exception] = {}
    for name, decoder, batch in parts:
        try:
            made[name] = decode_with(decoder, batch, memory)
        except RecordErrors as error:
            failed = error.errors | failed
    if failed:
        raise RecordErrors(failed)
    return made


def as_decoder(given: object) -> BatchDecoder:
    """Return the decoder that a user means by ``decode=``.

    Raises:
        TypeError: it is none.
    """
    if isinstance(given, tuple | list) and given:
        return _Columns([as_decoder(one) for one in given])
    if isinstance(given, Mapping) and given:
        parts = {name: as_decoder(one) for name, one in given.items()}
        are_fields = all(isinstance(one, FieldDecoder) for one in parts.values())
        return (_Fields if are_fields else _Parts)(parts)
    if isinstance(given, type) or not callable(given):
        raise TypeError(
            "decode= takes a decoder of whole batches, such as lmdbio.torch.Array('u1', (3, 32, "
            "32)), a function of an lmdbio.Batch, a tuple of such, one for each record of a "
            f"sample, or a dict of such: not {given!r}"
        )
    return given


def as_batch(batch: Any, name: str) -> Batch:
    """Return the records of a batch in one memory, for a decoder of single records.

    Raises:
        ValueError: samples are of several records.
    """
    if isinstance(batch, MixedBatch):
        batch = batch.joined()
    if isinstance(batch, ColumnBatch):
        count = len(batch.columns)
        raise ValueError(
            f"samples are of {count} records each: decode= takes a tuple of {count} decoders, and "
            f"not {name} alone"
        )
    assert isinstance(batch, Batch)
    return batch


def as_whole(
    decode: Decode | None,
    each: Mapping[str, Any],
    collate_fn: object,
    *,
    pins: bool,
    keys: bool = False,
) -> WholeBatches | None:
    """Return what makes a loader's batches as a whole; None: samples are made one by one.

    Args:
        decode, collate_fn: arguments of ``Loader``.
        each: arguments of ``Dataset`` that say how samples are made.
        pins, keys: arguments of ``WholeBatches``.

    Raises:
        TypeError: ``decode`` is no decoder, or other words are given that it goes not with.
    """
    if decode is None:
        return None
    others = {
        "transform": each["transform"],
        "buffers": each["buffers"],
        "collate_fn": collate_fn,
    }
    for word, value in others.items():
        if value:
            raise TypeError(f"decode= makes whole batches, and {word}= is for single samples")
    return WholeBatches(decode, pins=pins, keys=keys)


def _batch_of(values: Sequence[Any]) -> Batch | ColumnBatch:
    """Return values as a batch in memory of their own, numbered from 0."""
    columns = len(values[0]) if values and isinstance(values[0], tuple) else 1
    each = [one for value in values for one in value] if columns > 1 else values
    lengths = np.array([len(one) for one in each], np.uint64)
    joined = bytearray(b"".join(each))
    batch = Batch(
        np.frombuffer(joined, np.uint8) if joined else None,
        indices=np.arange(len(each), dtype=np.uint64),
        offsets=np.cumsum(lengths, dtype=np.uint64) - lengths,
        lengths=lengths,
    )
    if columns == 1:
        return batch
    return ColumnBatch(batch, np.arange(len(values), dtype=np.uint64), columns)


class WholeBatches:
    """Makes a loader's batches, each by one call of its decoder.

    Args:
        decode: argument of ``Loader``.
        pins: whether tensors go to page-locked memory.
        keys: whether a batch is a pair: its keys, and what the decoder makes.

    Raises:
        TypeError: it is no decoder.
    """

    def __init__(self, decode: object, *, pins: bool, keys: bool = False) -> None:
        self._decoder, self._keys = as_decoder(decode), keys
        self._memory = TensorMemory(pins=pins and torch.cuda.is_available())
        _core.keep_heap()  # else faults of each new tensor take two fifths of the time

    def decode(self, batch: Any) -> Any:
        """Return what the decoder makes of a batch."""
        return decode_with(self._decoder, batch, self._memory)

    def collate(self, samples: list[Any]) -> Any:
        """Return the batch of single samples, for loaders that trainers make of a ``Loader``.

        Args:
            samples: values as ``Dataset`` has them, tuples where samples are of several records;
                with ``keys`` pairs of a key and such.

        Raises:
            Exception: a sample cannot be decoded.
        """
        values = [sample[1] for sample in samples] if self._keys else samples
        try:
            made = self.decode(_batch_of(values))
        except RecordErrors as failed:
            raise next(iter(failed.errors.values())) from None
        return ([sample[0] for sample in samples], made) if self._keys else made

    def make(
        self,
        dataset: Dataset,
        indices: Any,
        source: Source,
        is_wanted: Callable[[], bool],
    ) -> Any:
        """Read records of a data set, and return the batch.

        Args:
            dataset: Dataset that has the records; its transform is not asked.
            indices: indices of the records, shape (n,).
            source: Source of random draws.
            is_wanted: whether the caller still wants it.

        Raises:
            As ``SampleMaker.whole``, and as ``Records.read``.
        """
        records, decoder = dataset.records, self._decoder
        made, tensors = None, None
        if isinstance(decoder, FieldDecoder):
            tensors, fields = decoder.wish(len(indices), self._memory)
            begun = records.begin_fields(indices, fields)
            if begun.is_filled:
                made, kept = decoder.finish(tensors), begun
        else:
            begun = records.begin(indices)
        if made is None:
            del tensors  # records are there in part, or none: they all come another way
            made, kept = dataset.whole(begun.batch(), self.decode, source, is_wanted)
        return (list(map(records.key, kept.indices.tolist())), made) if self._keys else made
