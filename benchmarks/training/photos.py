"""JPEG files of one shape and about one size, as training programs store them."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from itertools import count

import numpy as np

from lmdbio.bench.datasets import Recipe, encoded, picture, with_comment

__all__ = ["NUMBER", "records"]

#: ImageNet's usual shape, and about the mean size of its files.
SHAPE, BYTES, BASES = (500, 375), 98_000, 64
#: Where a file has its record's number, in eight digits: in a comment, behind two markers and a
#: length.
NUMBER = slice(6, 14)


def bases() -> list[bytes]:
    """Distinct JPEG files of one shape and of about one size, which the quality sets."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(BASES):
        drawn = picture(rng, *SHAPE)
        quality = bisect_left(range(30, 96), BYTES, key=lambda q: len(encoded(drawn, q)))
        found.append(encoded(drawn, 30 + quality))
    return found


def records(recipe: Recipe) -> Iterator[tuple[bytes, bytes]]:
    """JPEG files, endless, each with its number in a comment."""
    drawn = bases()
    rng = random.Random(recipe.seed)
    for index in count():
        number = b"%08d" % index
        yield number, with_comment(rng.choice(drawn), number)
