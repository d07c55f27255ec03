"""Whole batches, made by one call of a decoder, and batches of samples: what a loader makes.

records -> Batch -> decoder -> tensors, filled in one pass    no Python object for a record
samples -> Collate -> batch
RecordErrors -> the records named, by their notes -> raised, or left out and decoded without them
a tuple of decoders -> one for each record of a sample        a dict -> parts of the same records
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from lmdbio import _core
from lmdbio.reading.batch import Batch
from lmdbio.records.mix import MixedBatch
from lmdbio.records.records import ColumnBatch
from lmdbio.records.routes import Field
from lmdbio.system.amounts import refuse_no_flag, whole as number
from lmdbio.system.warn import warn
from lmdbio.torch.samples import Errors, RecordErrors, as_errors, refuse_no_function

__all__ = [
    "BatchDecoder",
    "Collate",
    "Decode",
    "FieldDecoder",
    "Recipe",
    "TensorDecoder",
    "TensorMemory",
    "WholeBatches",
    "as_batch",
    "as_decoder",
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
    def request(self, count: int, memory: TensorMemory) -> tuple[Any, list[Field]]:
        """Return tensors for so many records, and the fields of theirs that fill these."""

    @abstractmethod
    def finish(self, filled: Any) -> Any:
        """Return the batch, once the fields of ``request`` have filled its tensors."""

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Size of the fields of one record, bytes."""


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

    def request(self, count: int, memory: TensorMemory) -> tuple[Any, list[Field]]:
        wishes = {name: one.request(count, memory) for name, one in self._decoders.items()}
        fields = [field for _, some in wishes.values() for field in some]
        return {name: tensor for name, (tensor, _) in wishes.items()}, fields

    def finish(self, filled: Any) -> Any:
        return {name: one.finish(filled[name]) for name, one in self._decoders.items()}

    @property
    def row_bytes(self) -> int:
        return sum(one.row_bytes for one in self._decoders.values())


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

    Attributes:
        decoder: decoder of the batches.
        memory: memory for their tensors.

    Raises:
        TypeError: it is no decoder.
    """

    def __init__(self, decode: object, *, pins: bool, keys: bool = False) -> None:
        self.decoder, self._keys = as_decoder(decode), keys
        self.memory = TensorMemory(pins=pins and torch.cuda.is_available())
        _core.keep_heap()  # else faults of each new tensor take two fifths of the time

    def decode(self, batch: Any) -> Any:
        """Return what the decoder makes of a batch."""
        return decode_with(self.decoder, batch, self.memory)

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


class Collate:
    """Makes a batch of samples.

    Args:
        function: function from a list of samples to a batch; None: torch's ``default_collate``.
        pins: whether tensors go to page-locked memory.

    Attributes:
        function: function that the caller gave, or torch's own.
    """

    def __init__(self, function: Callable[[list[Any]], Any] | None, *, pins: bool) -> None:
        self.function = default_collate if function is None else function
        self._pins = pins and torch.cuda.is_available()
        if pins and not self._pins:
            warn("pin_memory: there is no GPU, so nothing is pinned")

    def __call__(self, samples: list[Any]) -> Any:
        """Return a batch of samples."""
        return self.pinned(self.function(samples))

    def pinned(self, batch: Any) -> Any:
        """Return a batch whose tensors are in page-locked memory, if that was asked for."""
        return pin_memory(batch) if self._pins else batch


@dataclass(frozen=True, slots=True)
class Recipe:
    """Instructions for a loader: the samples of values, and the batches of samples, that it makes.

    Attributes:
        transform, keys, buffers, errors: arguments of ``Dataset``.
        collate: maker of a batch of samples.
        whole: maker of whole batches, instead of samples; None: samples are made one by one.
        ahead: number of batches that wait to be asked for.
        begin: function of a worker process's number, called once in each; None: nothing.
    """

    transform: Callable[..., Any] | None
    keys: bool
    buffers: bool
    errors: Errors
    collate: Collate
    whole: WholeBatches | None
    ahead: int
    begin: Callable[[int], object] | None = None

    @property
    def is_light(self) -> bool:
        """Whether nothing is made of values but a batch of them."""
        return self.transform is None and self.collate.function is default_collate

    @classmethod
    def checked(
        cls,
        transform: Callable[..., Any] | None,
        collate_fn: Callable[[list[Any]], Any] | None,
        decode: Decode | None,
        *,
        keys: bool = False,
        buffers: bool,
        errors: Errors,
        pins: bool,
        ahead: int,
        begin: Callable[[int], object] | None = None,
    ) -> Recipe:
        """Return what a user asks for.

        Args:
            transform, collate_fn, decode, keys, buffers, errors, ahead: arguments of ``Loader``.
            pins: whether tensors go to page-locked memory.
            begin: argument ``worker_init_fn`` of ``Loader``.

        Raises:
            TypeError: ``decode`` is no decoder, or other words are given that it goes not with; or
                a function or a flag is none.
            ValueError, TypeError: as ``as_errors``.
        """
        whole = None
        refuse_no_function(transform=transform, collate_fn=collate_fn, worker_init_fn=begin)
        refuse_no_flag(keys=keys, buffers=buffers, pin_memory=pins)
        if decode is not None:
            single = {"transform": transform, "buffers": buffers, "collate_fn": collate_fn}
            for word in (word for word, value in single.items() if value):
                raise TypeError(f"decode= makes whole batches, and {word}= is for single samples")
            whole = WholeBatches(decode, pins=pins, keys=keys)
        collate = Collate(whole.collate if whole else collate_fn, pins=pins)
        ahead = number("ahead", ahead, 0)
        return cls(transform, keys, buffers, as_errors(errors), collate, whole, ahead, begin)
