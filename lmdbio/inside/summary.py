"""summary: sizes and kinds of some records, summed up. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lmdbio.inside.kinds import Kind

__all__ = ["Bin", "count_kinds", "size_bins", "size_text"]

BINS_MAX = 28
#: Sizes that differ by more than this are binned by their logarithms.
WIDE = 12.0


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


def size_bins(sizes: Sequence[int], bins_max: int = BINS_MAX) -> list[Bin]:
    """Return a histogram of sizes; one bin where all are alike, none where there are none."""
    if not sizes:
        return []
    low, high = min(sizes), max(sizes)
    if low == high:
        return [Bin(low, high + 1, len(sizes))]
    count = max(2, min(bins_max, int(2 * math.sqrt(len(sizes))) + 2))
    is_wide = (high + 1) / (low + 1) > WIDE
    # By logarithms of one byte more, since there are values of none.
    start, stop = (math.log(low + 1), math.log(high + 2)) if is_wide else (low, high + 1)
    step = (stop - start) / count
    edges = [start + step * index for index in range(count + 1)]
    if is_wide:
        edges = [math.exp(edge) - 1 for edge in edges]
    counts = [0] * count
    for each in sizes:
        place = ((math.log(each + 1) if is_wide else each) - start) / step
        counts[min(count - 1, max(0, int(place)))] += 1
    return [Bin(edges[i], edges[i + 1], counts[i]) for i in range(count)]


def size_text(count: float) -> str:
    """Return bytes in a unit that reads well."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            value = count / scale
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:,.1f} {unit}"
    return f"{count:,.0f} B"
