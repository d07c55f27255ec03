"""mixing: two sequences as one, each coming evenly. Pure, without tables.

Of ``count`` places, ``held`` are of the first sequence and the rest of the second; of any run of
places each has its proportion, to within one:

    count 7, held 3      place     0  1  2  3  4  5  6
                         first           0     1     2
                         second    0  1     2     3
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["COUNT_MAX", "apart", "first_places", "second_places"]

I64 = npt.NDArray[np.int64]

#: Products of two numbers have to fit 64 bits.
COUNT_MAX = 2**31


def apart(places: I64, held: int, count: int) -> tuple[npt.NDArray[np.bool_], I64]:
    """Return of each place whether it is of the first sequence, and its number in its own."""
    before = places * held // count
    is_first = (places + 1) * held // count > before
    return is_first, np.where(is_first, before, places - before)


def first_places(numbers: I64, held: int, count: int) -> I64:
    """Return the place of each number of the first sequence."""
    return -((numbers + 1) * -count // held) - 1


def second_places(numbers: I64, held: int, count: int) -> I64:
    """Return the place of each number of the second sequence."""
    return numbers * count // (count - held)
