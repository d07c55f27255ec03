"""lio_copy (csrc/buffer.h) copies as memcpy does, wherever the two places lie.

Method: both places at all distances, within a page, at which it goes another way, and around them.
"""

from __future__ import annotations

import numpy as np
import pytest
from lmdbio._core._lmdbio import ffi, lib

from lmdbio import _core

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


def test_rows_of_memory_are_copied_to_their_places() -> None:
    chance = np.random.default_rng(2)
    source, target = _core.Memory(1 << 20), _core.Memory(1 << 20)
    given = np.frombuffer(_core.lend(source.address, 1 << 20), np.uint8)
    found = np.frombuffer(_core.lend(target.address, 1 << 20), np.uint8)
    given[:], found[:] = chance.integers(0, 256, 1 << 20), 0
    lengths = chance.integers(0, 9_000, 100).astype(np.uint64)
    begins = chance.integers(0, (1 << 20) - 9_000, 100).astype(np.uint64)
    offsets = np.concatenate(([0], np.cumsum(lengths + np.uint64(1))))[:100].astype(np.uint64)
    _core.copy_rows(
        begins + np.uint64(source.address), lengths, offsets + np.uint64(target.address)
    )
    expected = np.zeros_like(found)
    rows = zip(begins.tolist(), lengths.tolist(), offsets.tolist(), strict=True)
    for begin, length, offset in rows:
        expected[offset : offset + length] = given[begin : begin + length]
    assert np.array_equal(found, expected)
    _core.copy_rows(begins[:0], lengths[:0], offsets[:0])
    with pytest.raises(ValueError, match="100 sources, 3 lengths, 100 targets"):
        _core.copy_rows(begins, lengths[:3], offsets)
