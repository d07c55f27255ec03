"""Databases of which each record is a sample, in key order; known by how their keys look."""

from __future__ import annotations

import re
from collections.abc import Callable

from lmdbio.layouts.layout import Keys, Selection
from lmdbio.system.frozen import dataclass

__all__ = ["Whole", "is_datum"]


@dataclass(frozen=True, slots=True)
class Whole:
    """A layout without metadata.

    Attributes:
        name: name of the layout.
        wants: words for how the first and the last key look.
        key: regular expression for the first and the last key.
        value: whether the first value is one of this layout; None: any is.
    """

    name: str
    wants: str = "which takes any keys"
    key: bytes = b".*"
    value: Callable[[bytes], bool] | None = None

    def find(self, keys: Keys) -> Selection | None:
        """Return the samples of a database; None: it has another layout."""
        looks = re.compile(self.key, re.DOTALL)
        if not keys.count or not (looks.fullmatch(keys.first) and looks.fullmatch(keys.last)):
            return None
        if self.value is not None and not self.value(keys.value(keys.first) or b""):
            return None
        return Selection(self.name, keys.count)


#: Fields of Caffe's Datum, and how each is written: channels, height, width, data, label,
#: float_data (one by one, or all together) and encoded.
_VARINT, _BYTES, _FLOAT = 0, 2, 5
_DATUM: dict[int, tuple[int, ...]] = dict.fromkeys((1, 2, 3, 5, 7), (_VARINT,))
_DATUM |= {4: (_BYTES,), 6: (_FLOAT, _BYTES)}


def is_datum(value: bytes) -> bool:
    """Return whether a value is a Datum of Caffe's: it has fields of these kinds, and no others.

    Source: caffe.proto, and the wire format of protocol buffers.
    """
    at = 0
    while at < len(value):
        tag, at = _varint(value, at)
        if tag & 7 not in _DATUM.get(tag >> 3, ()):
            return False
        if tag & 7 == _FLOAT:
            at += 4
        else:
            number, at = _varint(value, at)
            at += number if tag & 7 == _BYTES else 0
    return at == len(value) > 0


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends: past the end of the value, where it is cut."""
    number = 0
    for i, byte in enumerate(value[at : at + 10]):
        number |= (byte & 127) << 7 * i
        if byte < 128:
            return number, at + i + 1
    return number, len(value) + 1
