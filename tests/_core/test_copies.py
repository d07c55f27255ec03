"""lio_copy (csrc/buffer.h) copies as memcpy does, wherever the two places lie.

Method: both places at all distances, within a page, at which it goes another way, and around them.
"""

from __future__ import annotations

import numpy as np
import pytest
from lmdbio._core._lmdbio import ffi, lib

PAGE = 4096
SIZES = (0, 1, 63, 64, 65, 2047, 2048, 2049, 2111, 2112, 5000, 119_003)


@pytest.mark.parametrize("behind", [*range(34), PAGE - 31, PAGE - 1])
def test_copies_are_whole_and_nothing_else(behind: int) -> None:
    largest = max(SIZES)
    source = np.random.default_rng(behind).integers(0, 256, largest + PAGE, np.uint8)
    target = np.empty(largest + 3 * PAGE, np.uint8)
    first = (source.ctypes.data + behind - target.ctypes.data) % PAGE + PAGE
    place = target.ctypes.data + first
    assert (place - source.ctypes.data) % PAGE == behind
    for size in SIZES:
        target[:] = 7
        lib.lio_copy(ffi.cast("void *", place), ffi.cast("void *", source.ctypes.data), size)
        assert np.array_equal(target[first : first + size], source[:size])
        assert (target[:first] == 7).all() and (target[first + size :] == 7).all()
