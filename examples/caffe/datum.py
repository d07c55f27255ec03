"""Caffe's Datum messages as NumPy arrays; a whole batch at once where all have one layout.

    message Datum {                  first byte
      optional int32 channels = 1;   08  varint
      optional int32 height = 2;     10  varint
      optional int32 width = 3;      18  varint
      optional bytes data = 4;       22  varint: how many, then so many bytes
      optional int32 label = 5;      28  varint
      repeated float float_data = 6; 35  refused here, and so is
      optional bool encoded = 7;     38  varint: 1 where data is an image file
    }

A field begins with a varint: its number * 8 + its wire type. Fields may come in any order, may be
missing, and of one that comes twice the last counts. Nothing that a message says is believed
before it is compared with the bytes that are there.

Source: caffe.proto; Protocol Buffers, encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import lmdbio

__all__ = ["Datum", "decode", "parse"]

#: A record as it is handed out: bytes by py-lmdb, a memoryview by lmdbio.
Message: TypeAlias = "bytes | memoryview"
U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]

VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
CHANNELS, HEIGHT, WIDTH, DATA, LABEL, FLOATS, ENCODED = range(1, 8)
WIRE_TYPES = {
    CHANNELS: VARINT, HEIGHT: VARINT, WIDTH: VARINT, DATA: BYTES, LABEL: VARINT, ENCODED: VARINT,
}  # fmt: skip
VARINT_BYTES_MAX = 10
#: Protocol Buffers numbers fields from 1 to below this.
FIELDS = 2**29


@dataclass(frozen=True, slots=True)
class Datum:
    """Where the parts of a message lie.

    Attributes:
        shape: channels, height, width.
        pixels: the bytes of the image in the message.
        label: the class; 0 where the message has none, as in Caffe.
        label_bytes: the label's varint in the message; empty where there is none.
    """

    shape: tuple[int, int, int]
    pixels: slice
    label: int
    label_bytes: slice


def varint(message: Message, at: int) -> tuple[int, int]:
    """The number of base 128, lowest digits first, at byte ``at``, and where it ends."""
    value = 0
    for digit in range(VARINT_BYTES_MAX):
        if at + digit >= len(message):
            raise ValueError(f"the message ends inside the number at byte {at}")
        byte = message[at + digit]
        value |= (byte & 0x7F) << 7 * digit
        if byte < 0x80:
            return value % 2**64, at + digit + 1
    raise ValueError(f"the number at byte {at} has more than {VARINT_BYTES_MAX} bytes")


def signed(value: int) -> int:
    """An int32, of which a message has the 64-bit two's complement."""
    return (value + 2**31) % 2**32 - 2**31


def fields(message: Message) -> Iterator[tuple[int, int, slice]]:
    """Number, value and bytes of each field; the value is 0 where it is not a varint.

    Raises:
        ValueError: the message is no Protocol Buffers message, or a field of a Datum is not of
            the type that it has there.
    """
    at = 0
    while at < len(message):
        tag, start = varint(message, at)
        number, wire_type = divmod(tag, 8)
        value = 0
        if not 0 < number < FIELDS:
            raise ValueError(f"there is a field {number} at byte {at}: no Datum")
        if wire_type != WIRE_TYPES.get(number, wire_type):
            raise ValueError(
                f"field {number} at byte {at} has wire type {wire_type}, "
                f"in a Datum it has {WIRE_TYPES[number]}"
            )
        if wire_type == VARINT:
            value, end = varint(message, start)
        elif wire_type == BYTES:
            size, start = varint(message, start)
            end = start + size
        elif wire_type in (FOUR_BYTES, EIGHT_BYTES):
            end = start + (4 if wire_type == FOUR_BYTES else 8)
        else:
            raise ValueError(f"field {number} at byte {at} has wire type {wire_type}: no Datum")
        if end > len(message):
            raise ValueError(
                f"field {number} at byte {at} has {end - start} bytes, "
                f"of which the message holds {len(message) - start}"
            )
        yield number, value, slice(start, end)
        at = end


def parse(message: Message) -> Datum:
    """Finds the parts of a message that holds raw pixels.

    Raises:
        ValueError: it is damaged, or holds something else.
    """
    shape = {CHANNELS: 0, HEIGHT: 0, WIDTH: 0}
    pixels = label_bytes = slice(0, 0)
    label = 0
    for number, value, place in fields(message):
        if number in shape:
            shape[number] = signed(value)
        elif number == DATA:
            pixels = place
        elif number == LABEL:
            label, label_bytes = signed(value), place
        elif number == ENCODED and value:
            raise ValueError("is an image file (encoded=true): convert without --encoded")
        elif number == FLOATS:
            raise ValueError("holds float_data, this example reads images of bytes")
    channels, height, width = shape.values()
    size = pixels.stop - pixels.start
    if min(channels, height, width) < 1 or channels * height * width != size:
        raise ValueError(f"says {channels} x {height} x {width} pixels and holds {size} bytes")
    return Datum((channels, height, width), pixels, label, label_bytes)


def decode(batch: lmdbio.Batch | Sequence[Message]) -> tuple[U8, I32]:
    """Images and labels of a batch.

    Returns:
        uint8 of shape (len, channels, height, width), read-only and of the memory of the batch
        itself where its messages have one layout and lie at one stride; int32 of shape (len,).

    Raises:
        ValueError: there is no record, one is no Datum of raw pixels, or shapes differ.
    """
    if not len(batch):
        raise ValueError("a batch without records has no shape")
    first = _parsed(batch, 0)
    table = _table(batch)
    if table is not None and _alike(table, first):
        return table[:, first.pixels].reshape(-1, *first.shape), _labels(table, first)
    images = np.empty((len(batch), *first.shape), np.uint8)
    labels = np.empty(len(batch), np.int32)
    for i in range(len(batch)):
        one = _parsed(batch, i)
        if one.shape != first.shape:
            raise ValueError(f"record {i} of the batch is {one.shape}, the first is {first.shape}")
        images[i] = np.frombuffer(batch[i][one.pixels], np.uint8).reshape(one.shape)
        labels[i] = one.label
    return images, labels


def _parsed(batch: Any, i: int) -> Datum:
    try:
        return parse(batch[i])
    except ValueError as error:
        raise ValueError(f"record {i} of the batch: {error}") from None


def _table(batch: lmdbio.Batch | Sequence[Message]) -> U8 | None:
    """The messages as rows, uint8 of shape (len, length); None where lengths differ."""
    if isinstance(batch, lmdbio.Batch):
        length = int(batch.lengths[0])
        return batch.array(np.uint8, length) if (batch.lengths == length).all() else None
    if any(len(message) != len(batch[0]) for message in batch):
        return None
    return np.frombuffer(b"".join(batch), np.uint8).reshape(len(batch), -1)


def _alike(table: U8, first: Datum) -> bool:
    """All messages would be parsed as the first was.

    They would if they differ in nothing but pixels and digits of the label: the top bit of such
    a digit says whether another follows, the other seven may be any.
    """
    layout = np.full(table.shape[1], 0xFF, np.uint8)
    layout[first.label_bytes] = 0x80
    layout[first.pixels] = 0
    columns = np.flatnonzero(layout)
    differs = (table[:, columns] ^ table[0, columns]) & layout[columns]
    return not differs.any()


def _labels(table: U8, first: Datum) -> I32:
    digits = table[:, first.label_bytes].astype(np.uint64) & np.uint64(0x7F)
    shifts = 7 * np.arange(digits.shape[1], dtype=np.uint64)
    values: npt.NDArray[np.uint64] = np.bitwise_or.reduce(digits << shifts, axis=1)
    return values.astype(np.uint32).view(np.int32)
