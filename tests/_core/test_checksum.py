"""Goal: a page that is not as it was is found by its sum, and no other.

Method: the published check value of CRC32C, tables against the processor, and plans over pages of
which some are changed.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from lmdbio._core._lmdbio import ffi, lib

from lmdbio import _core
from tests.support import long_run

PAGE = _core.CHECKED_PAGE_BYTES


def test_the_sum_is_that_of_the_standard() -> None:
    assert _core.crc32c(b"123456789") == 0xE3069283
    assert _core.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert _core.crc32c(b"56789", _core.crc32c(b"1234")) == 0xE3069283


@settings(max_examples=long_run.cases(200), deadline=None)
@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_tables_give_what_the_processor_gives(data: bytes, crc: int) -> None:
    assert lib.lio_crc32c_by_tables(crc, data, len(data)) == _core.crc32c(data, crc)


def memory_of(data: bytes) -> _core.Memory:
    memory = _core.Memory(len(data))
    ffi.memmove(ffi.cast("char *", memory.address), data, len(data))
    return memory


@settings(max_examples=long_run.cases(200), deadline=None)
@given(st.data())
def test_records_on_changed_pages_are_found(data: st.DataObject) -> None:
    chance = np.random.default_rng(data.draw(st.integers(0, 1000)))
    pages, first = 40, data.draw(st.integers(0, 3))
    file = chance.integers(0, 256, pages * PAGE, dtype=np.uint8)
    whole = memory_of(file.tobytes())
    sums = _core.sum_pages(7, whole.address, 0, pages)[first:]
    without = set(data.draw(st.lists(st.integers(0, len(sums) - 1), max_size=5)))
    sums[list(without)] = 0
    changed = set(data.draw(st.lists(st.integers(0, pages - 1), max_size=5)))
    for page in changed:
        file[page * PAGE + int(chance.integers(PAGE))] ^= 1 << int(chance.integers(8))
    extents = np.zeros(8, _core.EXTENT)
    extents["offset"] = np.sort(chance.integers(0, (pages - 2) * PAGE, 8))
    extents["length"] = chance.choice([0, 1, 100, PAGE, 2 * PAGE], 8)
    plan = _core.make_plan(extents, gap_bytes_max=PAGE, request_bytes_max=PAGE, alignment=PAGE)
    read = np.zeros(max(1, plan.totals.buffer_bytes), np.uint8)
    for offset, length, _, at in plan.requests.tolist():
        read[at : at + length] = file[offset : offset + length]
    memory = memory_of(read.tobytes())
    bad = changed | set(range(first)) | {first + page for page in without}
    under = [
        set(range(offset // PAGE, -(-(offset + length) // PAGE))) if length else set()
        for offset, length in extents.tolist()
    ]
    wrong, count, numbers = _core.compare_sums(
        7, extents, plan.slices, memory.address, sums, first
    )
    assert wrong.tolist() == [bool(some & bad) for some in under]
    assert set(numbers.tolist()) == set().union(*under) & bad and count >= len(set(numbers))
    # Of another state of the file no page is as it was.
    wrong = _core.compare_sums(8, extents, plan.slices, memory.address, sums, first)[0]
    assert wrong.tolist() == [bool(some) for some in under]


def test_a_page_at_another_place_differs() -> None:
    whole = memory_of(bytes(2 * PAGE))
    one, two = _core.sum_pages(1, whole.address, 0, 2)
    assert one != two and one and two


def test_extents_beyond_a_limit_are_told() -> None:
    extents = np.array([(0, 5), (0, 6), (0, 0), (0, 2**63)], _core.EXTENT)
    places = np.array([5, 5, 99, 2], np.uint64)
    assert _core.extents_beyond(extents, places, 10).tolist() == [1, 3]
    with pytest.raises(TypeError):
        _core.extents_beyond(extents, places, None)  # type: ignore[arg-type]
