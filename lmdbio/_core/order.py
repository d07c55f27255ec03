"""Permutations (csrc/order.h)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import lib
from lmdbio._core.status import pointer_to

U64 = npt.NDArray[np.uint64]


def permute(numbers: U64, below: int, left: int, right: int, keys: U64) -> None:
    """Replaces numbers by what a permutation of those below ``below`` has in their places. Pure.

    Args:
        numbers: below ``below``, C-contiguous.
        below: at most ``left * right``.
        keys: of the rounds, an even number, C-contiguous.
    """
    if len(numbers) and int(numbers.max()) >= below:
        raise IndexError(f"a number is not below {below}")
    lib.lio_order_permute(
        pointer_to(numbers, "uint64_t *"),
        len(numbers),
        below,
        left,
        right,
        pointer_to(keys, "uint64_t *"),
        len(keys),
    )
