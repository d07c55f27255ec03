"""summary: sizes, kinds and keys of some records, summed up. Pure.

image-000000001, image-000000002, label-000000001  ->  image-%09d 67%, label-%09d 33%
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lmdbio.inside.keytext import show_key
from lmdbio.inside.kinds import Kind

__all__ = ["Bin", "count_kinds", "describe_keys", "key_forms", "size_bins"]

BINS_MAX = 28
#: Sizes that differ by more than this are binned by their logarithms.
WIDE = 12.0
FORMS_MAX = 6
#: A form that one key has alone is no form, but this key: it is shown where there are few.
_NUMBER = re.compile(r"\d+")
#: Bytes of keys that are a number, as struct.pack makes them.
_PACKED = {2: "16", 4: "32", 8: "64"}


@dataclass(frozen=True, slots=True)
class Bin:
    """The values of about one size.

    Attributes:
        low, high: smallest size, and the size that all are below, bytes.
        count: number of values.
    """

    low: float
    high: float
    count: int


def count_kinds(kinds: Iterable[Kind]) -> list[tuple[str, int]]:
    """Return the titles of kinds and how many have each, the most frequent first."""
    return Counter(kind.title for kind in kinds).most_common()


def size_bins(sizes: Sequence[int]) -> list[Bin]:
    """Return a histogram of sizes; one bin where all are alike, none where there are none."""
    if not sizes:
        return []
    low, high = min(sizes), max(sizes)
    if low == high:
        return [Bin(low, high + 1, len(sizes))]
    count = max(2, min(BINS_MAX, int(2 * math.sqrt(len(sizes))) + 2))
    edges = np.linspace(low, high + 1, count + 1)
    if (high + 1) / (low + 1) > WIDE:  # by logarithms of one byte more: there are values of none
        edges = np.geomspace(low + 1, high + 2, count + 1) - 1
    edges[0], edges[-1] = low, high + 1
    counts, _ = np.histogram(sizes, edges)
    return list(map(Bin, edges[:-1].tolist(), edges[1:].tolist(), counts.tolist()))


def key_forms(keys: Iterable[bytes], *, integers: bool = False) -> list[tuple[str, int]]:
    """Return the forms of keys and how many have each, the most frequent first.

    Runs of digits stand as ``%09d`` where they are of one length with leading zeros, else as
    ``%d``. A key without digits is a form of its own.

    Args:
        integers: keys of this database are numbers of 4 or 8 bytes.
    """
    keys = list(keys)
    if integers:
        return [("integers", len(keys))] if keys else []
    displayed = [show_key(key) for key in keys]
    if keys and all(text.startswith("0x") for text in displayed):
        sizes = Counter(len(key) for key in keys)
        return [(_binary(size), count) for size, count in sizes.most_common(FORMS_MAX)]
    stems: dict[tuple[str, ...], list[list[str]]] = {}
    for text in displayed:
        stems.setdefault(tuple(_NUMBER.split(text)), []).append(_NUMBER.findall(text))
    forms = {_form(stem, numbers): len(numbers) for stem, numbers in stems.items()}
    if len(forms) > max(FORMS_MAX, len(keys) // 4):  # names, which have no form in common
        return [("different texts", len(keys))]
    return Counter(forms).most_common(FORMS_MAX)


def _binary(size: int) -> str:
    return f"{_PACKED[size]}-bit numbers" if size in _PACKED else f"{size} bytes"


def _form(stem: tuple[str, ...], numbers: list[list[str]]) -> str:
    parts = [stem[0]]
    for place, after in enumerate(stem[1:]):
        column = [row[place] for row in numbers]
        sizes = {len(digits) for digits in column}
        if len(set(column)) == 1:
            parts.append(column[0])  # as in a name that ends in v2
        elif len(sizes) == 1 and (size := sizes.pop()) > 1 and any(d[0] == "0" for d in column):
            parts.append(f"%0{size}d")
        else:
            parts.append("%d")
        parts.append(after)
    return "".join(parts)


def describe_keys(forms: list[tuple[str, int]], displayed: int = FORMS_MAX) -> str:
    """Return forms in one line, with their shares.

    Args:
        forms: forms of keys, as ``key_forms`` gives them, with their counts.
        displayed: largest number of forms that are named.
    """
    count = sum(each for _, each in forms)
    if len(forms) == 1:
        return forms[0][0]
    named = ", ".join(f"{form} ({each / count:.0%})" for form, each in forms[:displayed])
    return named + " and others" * (len(forms) > displayed)
