"""wire: protobuf, Caffe's Datum and msgpack, walked by hand as far as the bytes at hand go. Pure.

No schema is needed, and nothing is made of what a value holds: only lengths are followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lmdbio.inside.excerpt import Excerpt

__all__ = ["Datum", "Field", "find_datum", "find_msgpack", "find_protobuf", "is_datum"]

#: Steps of a walk at most: the head of a value has no more single floats than that.
STEPS_MAX = 50_000
#: Tags of fixed fields that are compared at once.
RUN_PART = 256
#: Fields of a message are numbered from 1; people seldom come as far as this.
NUMBER_MAX = 2048
DEPTH_MAX = 32


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: its number and wire type, its number or the place of its bytes.

    Attributes:
        number, wire: number and wire type of its tag.
        value: value of a varint; number of fixed fields of 4 bytes that follow each other; else 0.
        start, stop: offsets of its bytes in the message, from the first of such a run to its last.
    """

    number: int
    wire: int
    value: int
    start: int
    stop: int


class _NotThisError(Exception):
    """The bytes are no message."""


def _varint(excerpt: Excerpt, at: int) -> tuple[int, int] | None:
    """Return a varint and where it ends; None: it is not at hand."""
    part = excerpt.part(at, at + 10)
    if part is None:
        part = excerpt.head[at : at + 10]
    value = 0
    for index, byte in enumerate(part):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & (1 << 64) - 1, at + index + 1
    if len(part) == 10 or (excerpt.length is not None and at + len(part) >= excerpt.length):
        raise _NotThisError
    return None


def _fields(excerpt: Excerpt) -> Iterator[Field | None]:
    """Yield the fields of a message; a last None says that the rest is not at hand."""
    at = 0
    while at != excerpt.length:
        tag = _varint(excerpt, at)
        if tag is None:
            yield None
            return
        number, wire, at = tag[0] >> 3, tag[0] & 7, tag[1]
        value, start = 0, at
        if wire == 0 or wire == 2:
            found = _varint(excerpt, at)
            if found is None:
                yield None
                return
            value, start = found if wire == 0 else (0, found[1])
            at = found[1] + (found[0] if wire == 2 else 0)
        elif wire == 5:
            value = _run(excerpt, start - 1, number)
            at += 5 * value - 1
        elif wire == 1:
            at += 8
        else:
            raise _NotThisError
        if not 1 <= number <= NUMBER_MAX or (excerpt.length is not None and at > excerpt.length):
            raise _NotThisError
        yield Field(number, wire, value, start, at)


def _run(excerpt: Excerpt, at: int, number: int) -> int:
    """Return how many fixed fields of one number follow each other: floats come so by thousands.

    Args:
        at: offset of the last byte of the first one's tag.
    """
    if number > 15:  # a tag of two bytes
        return 1
    # A part at a time: fields of two numbers in turn would have the rest copied for each of them.
    tag, count, last = bytes((number << 3 | 5,)), 1, len(excerpt.head) - 4
    while True:
        first = at + 5 * count
        tags = excerpt.head[first : min(first + 5 * RUN_PART, last) : 5]
        alike = len(tags) - len(tags.lstrip(tag))
        count += alike
        if alike < RUN_PART:
            return count


def find_protobuf(excerpt: Excerpt) -> list[int] | None:
    """Return the field numbers of a message in which they first come; None: it is none."""
    numbers: dict[int, int] = {}
    is_whole = False
    try:
        for step, each in enumerate(_fields(excerpt)):
            if each is None or step > STEPS_MAX:
                break
            # A number has one wire type, but for numbers that are packed or not.
            if numbers.setdefault(each.number, each.wire) != each.wire:
                return None
        else:
            is_whole = True
    except _NotThisError:
        return None
    enough = is_whole and (excerpt.length or 0) > 3
    return list(numbers) if numbers and (enough or len(numbers) > 2) else None


# --- Caffe's Datum ------------------------------------------------------------------------


@dataclass(slots=True)
class Datum:
    """A Datum of Caffe (caffe.proto): an image or a feature, and its label.

    Attributes:
        channels, height, width: dimensions of the data, 0: not told.
        label: label of the image, a number; None: not told, or not at hand.
        data: offsets of its bytes in the value (first, end); None: it has none.
        floats: number of values in its float_data; None: not all are at hand.
        is_encoded: the data are an image file.
    """

    channels: int = 0
    height: int = 0
    width: int = 0
    label: int | None = None
    data: tuple[int, int] | None = None
    floats: int | None = 0
    is_encoded: bool = False
    runs: list[Field] = field(default_factory=list)  # of float_data

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.channels, self.height, self.width


#: Wire types of Datum's fields; float_data may be packed or not.
_DATUM = {1: (0,), 2: (0,), 3: (0,), 4: (2,), 5: (0,), 6: (2, 5), 7: (0,)}


def find_datum(excerpt: Excerpt) -> Datum | None:
    """Return the Datum that a value is; None: it is none."""
    found = Datum()
    try:
        for step, each in enumerate(_fields(excerpt)):
            if each is None or step > STEPS_MAX:
                if found.floats:
                    found.floats = None
                break
            if each.wire not in _DATUM.get(each.number, ()):
                return None
            _take(found, each)
    except _NotThisError:
        return None
    product = found.channels * found.height * found.width
    if found.data is not None:
        size = found.data[1] - found.data[0]
        return found if found.is_encoded or (product and size == product) else None
    if found.floats is None:
        return found if product > 1 else None
    return found if found.floats and found.floats == product else None


def is_datum(value: bytes) -> bool:
    """Return whether a value has the fields of a Datum and no others, whatever these say."""
    try:
        return bool(value) and all(
            each is not None and each.wire in _DATUM.get(each.number, ())
            for each in _fields(Excerpt.whole_of(value))
        )
    except _NotThisError:
        return False


def _take(datum: Datum, each: Field) -> None:
    match each.number:
        case 1:
            datum.channels = each.value
        case 2:
            datum.height = each.value
        case 3:
            datum.width = each.value
        case 4:
            datum.data = each.start, each.stop
        case 5:
            # An int32 below zero is written as 64 bits.
            datum.label = each.value - (1 << 64) if each.value >> 63 else each.value
        case 6:
            more = each.value if each.wire == 5 else (each.stop - each.start) // 4
            datum.floats = (datum.floats or 0) + more
            datum.runs.append(each)
        case 7:
            datum.is_encoded = bool(each.value)


# --- msgpack ------------------------------------------------------------------------------

#: Bytes of a number that follows the first byte, by that byte.
_NUMBERS = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4}
_NUMBERS |= {0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
#: Bytes of a length that follows, and bytes besides: of texts, bytes, extensions.
_LENGTHS = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}
_LENGTHS |= {0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}
_NESTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def find_msgpack(excerpt: Excerpt) -> str | None:
    """Return what a msgpack value holds, in words; None: it is no map or array of msgpack.

    A map whose end is not at hand passes if the first of its keys is text.
    """
    head = excerpt.head
    first = head[:1]
    if not first or not (0x80 <= head[0] <= 0x9F or head[0] in _NESTS):
        return None
    walk = _Walk(head, excerpt.length)
    try:
        walk.run()
    except _NotThisError:
        return None
    except _EndError:
        if excerpt.is_whole or not walk.names:
            return None
    else:
        if walk.at != excerpt.length or walk.items < 2:
            return None
    if walk.is_map:
        displayed = ", ".join(walk.names[:6]) + ", ..." * (len(walk.names) > 6)
        return f"map of {walk.count}" + (f": {displayed}" if displayed else "")
    return f"array of {walk.count}"


class _EndError(Exception):
    """The bytes at hand end here."""


class _Walk:
    """A walk over one msgpack value."""

    def __init__(self, head: bytes, length: int | None) -> None:
        self.head, self.length = head, length
        self.at = self.items = 0
        self.names: list[str] = []
        self.is_map, self.count = False, 0

    def run(self) -> None:
        left: list[int] = [1]
        while left:
            if not left[-1]:
                left.pop()
                continue
            left[-1] -= 1
            self.items += 1
            if self.items > STEPS_MAX or len(left) > DEPTH_MAX:
                raise _EndError
            begun, is_key = self.at, self.is_map and len(left) == 2 and left[-1] % 2 == 1
            nested = self.step()
            if nested is not None:
                left.append(nested)
            if is_key and (name := self._text(begun)) is not None:
                self.names.append(name)

    def _text(self, begun: int) -> str | None:
        """Return the text that was just walked over, as far as it is one that people can read."""
        first = self.head[begun]
        skip = 1 if 0xA0 <= first <= 0xBF else {0xD9: 2, 0xDA: 3}.get(first, 0)
        try:
            text = self.head[begun + skip : self.at].decode() if skip else ""
        except UnicodeDecodeError:
            return None
        return text if text.isprintable() and 0 < len(text) <= 64 else None

    def step(self) -> int | None:
        """Go over one item; return how many it holds, of a map keys and values."""
        first = self._number(1)
        if first <= 0x7F or first >= 0xE0 or first in (0xC0, 0xC2, 0xC3):
            return None
        if first == 0xC1:
            raise _NotThisError
        if first <= 0x9F:
            return self._nest(first & 15, 2 if first <= 0x8F else 1)
        if first in _NESTS:
            size, each = _NESTS[first]
            return self._nest(self._number(size), each)
        if first <= 0xBF:
            self._skip(first & 31)
        elif first in _LENGTHS:
            size, more = _LENGTHS[first]
            self._skip(self._number(size) + more)
        else:
            self._skip(_NUMBERS[first])
        return None

    def _nest(self, count: int, each: int) -> int:
        if self.items == 1:
            self.is_map, self.count = each == 2, count
        if self.length is not None and count * each > self.length - self.at:
            raise _NotThisError
        return count * each

    def _number(self, size: int) -> int:
        if self.at + size > len(self.head):
            raise _EndError
        value = int.from_bytes(self.head[self.at : self.at + size], "big")
        self.at += size
        return value

    def _skip(self, size: int) -> None:
        self.at += size
        if self.length is not None and self.at > self.length:
            raise _NotThisError
        if self.at > len(self.head):
            raise _EndError
