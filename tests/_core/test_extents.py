"""Tables of extents: found by number, packed, split, summed up.

Goal: what a few lines of Python have, for any table. Method: such models, and hypothesis.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lmdbio import _core

U64 = st.integers(0, 2**64 - 1)


def table_of(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array(pairs, _core.EXTENT)


@given(st.lists(st.tuples(U64, U64), max_size=9), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_numbers_count_from_either_end(pairs, numbers):
    wanted = numbers + [n % 9 - 4 for n in numbers]
    found = _core.find_extents(table_of(pairs), np.array(wanted, np.int64))
    if any(not -len(pairs) <= n < len(pairs) for n in wanted):
        assert found is None
    else:
        places, extents = found
        assert places.tolist() == [n % len(pairs) for n in wanted]
        assert extents.tolist() == [pairs[n] for n in wanted]


@given(
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(-n, n - 1))))
)
def test_numbers_in_range_are_found(drawn):
    count, wanted = drawn
    pairs = [(i * 10, i) for i in range(count)]
    places, extents = _core.find_extents(table_of(pairs), np.array(wanted, np.int64))
    assert places.tolist() == [n % count for n in wanted]
    assert extents.tolist() == [pairs[n] for n in wanted]


@given(st.lists(st.tuples(U64, st.integers(0, 5000))))
def test_packed_records_lie_one_after_another(pairs):
    packed = _core.pack_extents(table_of(pairs))
    end, expected = 0, []
    for _, length in pairs:
        expected.append(-(-end // 16) * 16)
        end = expected[-1] + length
    assert packed.lengths.tolist() == [length for _, length in pairs]
    assert packed.offsets.tolist() == expected
    assert (packed.size, packed.room) == (sum(length for _, length in pairs), end)


def test_impossible_lengths_need_impossible_room():
    packed = _core.pack_extents(table_of([(0, 2**64 - 1), (0, 2**64 - 1), (0, 7)]))
    assert packed.size == packed.room == 2**64 - 1


SMALL = st.tuples(st.integers(0, 99), st.integers(0, 9))


@given(st.lists(SMALL | st.tuples(U64, U64)), st.integers(0, 120) | U64)
def test_a_table_of_rows_is_split_into_a_span_and_places_in_it(pairs, room):
    table = np.ascontiguousarray(table_of(pairs))
    rows = _core.split_rows(table.ctypes.data, len(pairs), room)
    if any(offset + length > room for offset, length in pairs):
        assert rows is None
        return
    assert rows is not None
    offsets, lengths, low, size = rows
    used = [(offset, length) for offset, length in pairs if length]
    begin = min((offset for offset, _ in used), default=0)
    assert (low, size) == (begin, max((o + n for o, n in used), default=begin) - begin)
    assert lengths.tolist() == [length for _, length in pairs]
    assert offsets.tolist() == [offset - low if length else 0 for offset, length in pairs]


@given(
    st.lists(SMALL, min_size=1), st.sampled_from([1, 4, 16]), st.integers(0, 50), st.integers(0, 9)
)
def test_what_each_extent_needs_beyond_the_one_before(pairs, alignment, low, size):
    def pieces(offset: int, length: int) -> set[int]:
        first, last = offset // alignment, -(-(offset + length) // alignment)
        return set(range(first, last)) if length else set()

    last = (low * alignment, (low + size) * alignment)
    needed = np.full(len(pairs), -1, np.int64)
    ends, shared_max, total = _core.footprint(table_of(pairs), alignment, last, needed)
    before = set(range(low, low + size))
    expected, shared = [], [0]
    for offset, length in pairs:
        own = pieces(offset, length)
        expected.append(len(own - before) * alignment)
        shared.append(len(own & before) * alignment)
        before = own
    assert needed.tolist() == expected
    assert (shared_max, total) == (max(shared), sum(expected))
    if pairs[-1][1]:
        assert ends == (min(before) * alignment, (max(before) + 1) * alignment)
    with pytest.raises(ValueError, match="room for"):
        _core.footprint(table_of(pairs), alignment, last, needed[1:])


@given(st.lists(st.tuples(U64, U64) | st.tuples(st.integers(0, 9), st.integers(0, 9))), U64)
def test_what_lies_inside_is_counted(pairs, room):
    offsets = np.array([offset for offset, _ in pairs], np.uint64)
    lengths = np.array([length for _, length in pairs], np.uint64)
    outside = [i for i, (offset, length) in enumerate(pairs) if offset + length > room]
    assert _core.count_inside(offsets, lengths, room) == min(outside, default=len(pairs))


@given(st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=3))), st.data())
def test_bytes_are_the_same_as_far_as_they_are(pairs, data):
    """Records with gaps before them, in another order in the other memory; one byte is changed."""
    sides = []
    for order in (range(len(pairs)), data.draw(st.permutations(range(len(pairs))))):
        content, places = bytearray(), [(0, 0)] * len(pairs)
        for number in order:
            gap, record = pairs[number]
            content += gap + record
            places[number] = (len(content) - len(record), len(record))
        sides.append((content, table_of(places)))
    (one, places), (other, others) = sides
    if other:
        at = data.draw(st.integers(0, len(other) - 1))
        other[at] ^= data.draw(st.sampled_from([0, 1, 128]))
    model = 0
    while model < len(pairs) and pairs[model][1] == other[others[model][0] :][: others[model][1]]:
        model += 1
    memories = [np.frombuffer(each, np.uint8) for each in (one, other)]
    assert _core.count_same(memories[0], places, memories[1], others) == model
    assert _core.count_same(memories[1], others, memories[0], places) == model


def test_shorter_bytes_are_not_the_same():
    content = np.frombuffer(b"abab", np.uint8)
    places, others = table_of([(0, 2), (0, 2)]), table_of([(2, 2), (2, 1)])
    assert _core.count_same(content, places, content, others) == 1
    assert _core.count_same(content, others, content, places) == 1


@pytest.mark.parametrize("outside", [(0, 5), (4, 1), (5, 0), (2**64 - 1, 2)])
def test_bytes_outside_of_their_memory_are_never_compared(outside):
    content, inside = np.zeros(4, np.uint8), table_of([(0, 1)])
    for tables in ((inside, table_of([outside])), (table_of([outside]), inside)):
        with pytest.raises(ValueError, match="ends beyond its memory of 4 bytes"):
            _core.count_same(content, tables[0], content, tables[1])
    with pytest.raises(ValueError, match="1 extents against 0"):
        _core.count_same(content, inside, content, inside[:0])
