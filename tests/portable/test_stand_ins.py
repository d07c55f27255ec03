"""NumPy's stand-ins for names of the C core give what these give.

Goal: orders are the core's to the last record, whatever count, chunk, window and keys; memory and
extents, too. Method: both are asked the same, of drawn values.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from lmdbio import _core
from lmdbio._core import portable

U64 = st.integers(0, 2**64 - 1)
KEYS = st.lists(U64, min_size=8, max_size=8).map(lambda keys: np.array(keys, np.uint64))
COUNTS = st.one_of(st.integers(1, 70), st.integers(1, 5000), st.integers(1, 2**62))
SIZES = st.one_of(st.integers(1, 9), st.integers(1, 300), st.integers(1, 2**62))


@given(st.data(), COUNTS, SIZES, SIZES, KEYS, KEYS, st.booleans(), st.booleans())
def test_orders_are_the_same_in_both_directions(
    data: st.DataObject,
    count: int,
    chunk: int,
    window: int,
    chunk_keys: np.ndarray,
    inner_keys: np.ndarray,
    keeps_inner: bool,
    keeps_chunks: bool,
) -> None:
    options = {"chunk_keys": chunk_keys, "inner_keys": inner_keys}
    flags = {"keeps_inner": keeps_inner, "keeps_chunks": keeps_chunks}
    ours = portable.Shuffling(count, chunk, window, **options, **flags)
    theirs = _core.Shuffling(count, chunk, window, **options, **flags)
    some = data.draw(st.lists(st.integers(0, count - 1), max_size=40))
    every = list(range(count)) if count <= 70 else [*some, 0, count - 1]
    for way in ("records", "places"):
        found, wanted = np.array(every, np.uint64), np.array(every, np.uint64)
        getattr(ours, way)(found)
        getattr(theirs, way)(wanted)
        assert found.tolist() == wanted.tolist(), way


def test_a_number_beyond_the_count_is_refused_alike() -> None:
    keys = np.arange(8, dtype=np.uint64)
    for kind in (portable.Shuffling, _core.Shuffling):
        made = kind(10, 1, 1, chunk_keys=keys, inner_keys=keys, keeps_inner=False)
        with pytest.raises(IndexError, match="a number is not below 10"):
            made.records(np.array([10], np.uint64))


EXTENTS = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**20)), max_size=20)


@given(EXTENTS, st.integers(0, 2**63))
@example([(5, 5)], 10)
@example([(2**64 - 1, 2)], 2**63)
def test_extents_lie_inside_alike(extents: list[tuple[int, int]], size: int) -> None:
    offsets, lengths = np.array(extents, np.uint64).reshape(-1, 2).T.copy()
    wanted = _core.count_inside(offsets, lengths, size)
    assert portable.count_inside(offsets, lengths, size) == wanted
    table = np.array(extents, portable.EXTENT)
    ours, theirs = portable.pack_extents(table), _core.pack_extents(table)
    assert ours.lengths.tolist() == theirs.lengths.tolist() and ours.size == theirs.size


def test_memory_is_lent_as_long_as_a_view_of_it_lives() -> None:
    source, target = portable.Memory(6), portable.Memory(6)
    np.frombuffer(portable.lend(source.address, 6, source), np.uint8)[:] = list(b"abcdef")
    rows = [np.array(some, np.uint64) for some in ([source.address + 2], [3], [target.address])]
    portable.copy_rows(*rows)
    address, view = target.address, memoryview(portable.lend(target.address, 3, target))
    del source, target
    assert bytes(view) == b"cde" and address


def test_numbers_are_those_of_the_core() -> None:
    assert portable.EXTENT == _core.EXTENT
    for name in ("BLOCK_LEAVES_MAX", "CHECKED_PAGE_BYTES"):
        assert getattr(portable, name) == getattr(_core, name)
    assert set(portable.__all__) <= {*_core.__all__, "Packed"}
