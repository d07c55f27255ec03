"""preview: a few lines that show a value. Pure.

Lines hold printable characters alone: what a value holds cannot make a terminal do anything.
"""

from __future__ import annotations

import json

import numpy as np

from lmdbio.inside.arrays import find_npy
from lmdbio.inside.excerpt import Excerpt
from lmdbio.inside.kinds import UNPACKED_BYTES_MAX, Kind, text_of
from lmdbio.inside.packed import unpack

__all__ = ["LINES_MAX", "WIDTH", "hex_lines", "preview_lines", "printable"]

LINES_MAX, WIDTH = 6, 88
HEX_BYTES = 16
NUMBERS_DISPLAYED = 8
_ITEM_BYTES = {"float32?": "<f4", "float64?": "<f8", "int32?": "<i4", "int64?": "<i8"}


def preview_lines(
    excerpt: Excerpt, kind: Kind, lines_max: int = LINES_MAX, width: int = WIDTH
) -> list[str]:
    """Return lines that show a value; none where its kind says all that can be said."""
    if kind.group == "empty" or lines_max < 1:
        return []
    if kind.group == "packed" and kind.inner is not None:
        unpacked = unpack(kind.name, excerpt.head, UNPACKED_BYTES_MAX)
        if unpacked is not None:
            return preview_lines(unpacked, kind.inner, lines_max, width)
    if kind.name == "JSON" and excerpt.is_whole:
        return _cut(_json_lines(excerpt.head), lines_max, width)
    if kind.group == "text":
        text = text_of(excerpt) or ""
        return _cut(text[: 4 * lines_max * width].splitlines(), lines_max, width)
    if kind.group in ("image", "sound") or kind.picture is not None:
        return []
    if kind.group == "array":
        return _number_lines(excerpt, kind, width)
    is_more = excerpt.length != len(excerpt.head)
    return hex_lines(excerpt.head, lines_max, more=is_more, width=width)


def printable(text: str) -> str:
    """Return text without anything that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _cut(lines: list[str], lines_max: int, width: int) -> list[str]:
    displayed = [printable(line.expandtabs(4)) for line in lines[:lines_max]]
    displayed = [line if len(line) <= width else f"{line[: width - 3]}..." for line in displayed]
    if len(lines) > lines_max:
        displayed[-1] = f"{displayed[-1][: width - 4]} ..."
    return displayed


def _json_lines(head: bytes) -> list[str]:
    value = json.loads(head)
    short = json.dumps(value, ensure_ascii=False)
    if len(short) <= WIDTH:
        return [short]
    return json.dumps(value, ensure_ascii=False, indent=2).splitlines()


def _number_lines(excerpt: Excerpt, kind: Kind, width: int) -> list[str]:
    """Return the first numbers of an array that is not packed."""
    start, dtype = 0, _ITEM_BYTES.get(kind.name)
    if kind.name == "npy":
        header = find_npy(excerpt.head)
        if header is None or header.dtype is None:
            return []
        start, dtype = header.data, header.dtype.str
    if dtype is None:
        return []
    size = np.dtype(dtype).itemsize
    count = min(NUMBERS_DISPLAYED, (len(excerpt.head) - start) // size)
    if count < 1:
        return []
    numbers = np.frombuffer(excerpt.head, dtype, count, start)
    text = " ".join(f"{number:.6g}" if dtype[1] == "f" else str(number) for number in numbers)
    total = -1 if excerpt.length is None else (excerpt.length - start) // size
    return _cut([text + " ..." * (total != count)], 1, width)


def hex_lines(
    head: bytes, lines_max: int = LINES_MAX, *, more: bool = False, width: int = WIDTH
) -> list[str]:
    """Return bytes in hexadecimal; where there is room, with their places and as ASCII."""
    is_wide = width >= 4 + 2 + 4 * HEX_BYTES + 1
    row = HEX_BYTES if is_wide else max(1, (width + 1) // 3)
    lines = []
    for at in range(0, min(len(head), lines_max * row), row):
        part = head[at : at + row]
        displayed = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        text = part.hex(" ", 1)
        lines.append(f"{at:04x}  {text:<47}  {displayed}" if is_wide else text)
    if lines and (more or len(head) > lines_max * row):
        lines[-1] += " ..." if is_wide else ""
    return lines
