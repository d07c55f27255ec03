"""embedded: pictures in other values: in pickles, msgpack, protobuf, behind a small header. Pure.

    pickle         the opcodes that carry bytes or text, walked over: (image, 7), {"image": image}
    anything else  the first bytes of image files, searched for, and a sound header

Nothing is unpickled or decoded: opcodes are stepped over by their lengths, each checked against
the length of the value.

Source: the opcodes are those of ``pickletools``.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lmdbio.inside.excerpt import HEAD_BYTES, Excerpt
from lmdbio.inside.images import Size, find_image, is_sound, search_image

__all__ = ["Embedded", "find_embedded"]

#: Opcodes of a pickle that are walked over, and bytes of a line of one.
STEPS_MAX, LINE_MAX = 512, 1024
#: Of an image that is text in a pickle, so much is turned into bytes to look at its header.
TEXT_BYTES_MAX = 64 << 10
#: Fewer bytes are no image that is worth a look: a name, as a rule.
IMAGE_BYTES_MIN = 32
#: Arrays, and numbers that may be their shapes or a label, that are noted.
ARRAYS_MAX, NUMBERS_MAX = 8, 64
#: Bytes at most from a shape to the order that is said behind it, and from an order to the bytes
#: of an array: opcodes that remember an object, and lengths.
TO_ORDER_MAX, TO_ARRAY_MAX = 8, 9
#: Before any of these.
_FAR = -16
#: Formats that need no second look: their first bytes are many, or tell the size of the file.
_SURE = ("BMP", "TIFF", "AVIF", "HEIF", "JPEG 2000")
_BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "BINSTRING", "SHORT_BINSTRING"}
_TEXT = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_NUMBERS = {"BININT", "BININT1", "BININT2", "TUPLE3"}
#: Widths of the lengths that stand before an argument, by what ``pickletools`` calls them.
_WIDTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
#: By opcode: its name, "" where nothing is to be known of it, and the length of its argument as
#: ``pickletools`` has it.
_NOTED = _BYTES | _TEXT | _NUMBERS | {"NEWTRUE"}
_CODES: dict[int, tuple[str, int]] = {
    ord(code.code): (
        code.name if code.name in _NOTED else "",
        0 if code.arg is None else code.arg.n,
    )
    for code in pickletools.opcodes
}
#: Opcodes with two lines, which name a class; and the last one of a pickle.
_TWO_LINES, _STOP = b"ci", ord(".")


@dataclass(frozen=True, slots=True)
class Embedded:
    """A picture within a value.

    Attributes:
        start, stop: offsets of its bytes in the value; no stop: it goes on to the value's end.
        is_text: whether Python 3 wrote the bytes as text, as it does in pickles of protocol 2.
        pixels: (width, height) of plain pixels, 3 bytes each; None: it is an image file.
        label: the number beside it; None: there is none, or there are several.
    """

    start: int
    stop: int | None = None
    is_text: bool = False
    pixels: Size | None = None
    label: int | None = None

    def content(self, value: bytes) -> bytes:
        """Return the bytes of the picture, or of its part that is there.

        Args:
            value: value, or its first bytes.
        """
        part = value[self.start : self.stop]
        return part.decode("utf-8", "ignore").encode("latin-1", "ignore") if self.is_text else part


def find_embedded(excerpt: Excerpt, name: str) -> Embedded | None:
    """Return the first picture that a value holds; None: none was found.

    Args:
        excerpt: Excerpt of the value.
        name: name of the value's kind.
    """
    if name == "pickle" and (found := _in_pickle(excerpt)) is not None:
        return found
    head = Excerpt(excerpt.head[:HEAD_BYTES], excerpt.length)
    start = search_image(head)
    if start is None:
        return None
    label = excerpt.head[0] if start == 1 else None
    return Embedded(start, label=label)


# --- pickles ------------------------------------------------------------------------------


def _steps(excerpt: Excerpt) -> Iterator[tuple[str, int, int]]:
    """Yield the opcodes of a pickle that count, as far as they are at hand.

    Each is its name, and where its argument begins and ends.
    """
    head, at = excerpt.head, 0
    size = len(head)
    for _ in range(STEPS_MAX):
        byte = head[at] if at < size else (excerpt.part(at, at + 1) or b".")[0]
        name, length = _CODES.get(byte, ("", 0))
        start = at + 1
        if length in _WIDTHS:
            width = _WIDTHS[length]
            raw = excerpt.part(start, start + width) or b""
            if len(raw) < width:
                return
            start += width
            stop = start + int.from_bytes(raw, "little")
        elif length < 0:
            lines = head[start : start + LINE_MAX].split(b"\n", 2)
            count = 2 if byte in _TWO_LINES else 1
            if len(lines) <= count:
                return
            stop = start + sum(len(line) + 1 for line in lines[:count])
        else:
            stop = start + length
        if byte == _STOP or byte not in _CODES:
            return
        if excerpt.length is not None and stop > excerpt.length:
            return
        if name:
            yield name, start, stop
        at = stop


class _Numbers:
    """The numbers of a pickle, and the shapes among them: three that follow one another, a tuple.

    Attributes:
        all: the numbers, as many as may be noted.
        shapes: shapes; and where the last one ends.
    """

    def __init__(self) -> None:
        self.all: list[int] = []
        self.shapes: list[list[int]] = []
        self.shape_stop = _FAR
        self._run: list[int] = []  # the last ones that follow one another
        self._stop = _FAR

    def take(self, name: str, start: int, stop: int, raw: bytes) -> None:
        """Take notice of a number, or of the end of a tuple of three."""
        follows = start - 1 == self._stop
        if name == "TUPLE3":
            if follows and len(self._run) == 3:
                self.shapes.append(self._run)
                self.shape_stop = stop
        elif len(self.all) < NUMBERS_MAX:
            self.all.append(int.from_bytes(raw, "little", signed=name == "BININT"))
            self._run = [*(self._run[-2:] if follows else ()), self.all[-1]]
            self._stop = stop


def _in_pickle(excerpt: Excerpt) -> Embedded | None:
    numbers, arrays = _Numbers(), list[Embedded]()
    found: Embedded | None = None
    has_bytes, turned_stop = False, _FAR
    for name, start, stop in _steps(excerpt):
        if name in _NUMBERS:
            numbers.take(name, start, stop, excerpt.part(start, stop) or b"")
        elif name == "NEWTRUE":  # right before an array's bytes: they are in Fortran's order
            turned_stop = stop
        elif name in _TEXT and stop - start < 4:
            text = excerpt.part(start, stop)
            has_bytes |= text in (b"u1", b"|u1")
            if text == b"F" and start - numbers.shape_stop <= TO_ORDER_MAX:  # of protocol 5
                arrays.clear()
        elif found is None and stop - start >= IMAGE_BYTES_MIN:
            picture = Embedded(start, stop, is_text=name in _TEXT)
            if _is_image(excerpt, picture):
                found = picture
            elif name in _BYTES and start - turned_stop > TO_ARRAY_MAX:
                arrays += [picture] * (len(arrays) < ARRAYS_MAX)
    if found is not None:
        return replace(found, label=numbers.all[0] if len(numbers.all) == 1 else None)
    return _pixels(arrays, numbers.shapes) if has_bytes else None


def _is_image(excerpt: Excerpt, picture: Embedded) -> bool:
    """Say whether bytes, or a text, of a pickle are an image file."""
    assert picture.stop is not None
    if picture.is_text:
        part = replace(picture, stop=min(picture.stop, picture.start + TEXT_BYTES_MAX))
        return is_sound(Excerpt(part.content(excerpt.head), None))
    image = Excerpt(picture.content(excerpt.head), picture.stop - picture.start)
    found = find_image(image)
    return found is not None and (found[0] in _SURE or is_sound(image))


def _pixels(arrays: list[Embedded], shapes: list[list[int]]) -> Embedded | None:
    """Return the array of shape (height, width, 3), as NumPy pickles it; None: there is none."""
    for array in arrays:
        assert array.stop is not None
        length = array.stop - array.start
        for height, width, channels in shapes:
            if channels == 3 and min(height, width) > 1 and 3 * height * width == length:
                return replace(array, pixels=(width, height))
    return None
