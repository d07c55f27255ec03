"""Planning, as properties over arbitrary extents.

Goal: a plan reads every needed byte once, within its limits, and says truly where each record
will lie. Method: perform the plan on a file in memory by plain slicing and compare.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from lmdbio import _core
from lmdbio.planning.reads import PAGE_BYTES, PlanOptions, plan_reads, spread
from tests.support import long_run

FILE = np.random.default_rng(0).integers(0, 256, 1 << 17, dtype=np.uint8).tobytes()

extents_lists = st.lists(
    st.tuples(st.integers(0, (1 << 17) - 1), st.integers(0, 9000)).map(
        lambda pair: (pair[0], min(pair[1], (1 << 17) - pair[0]))
    ),
    max_size=60,
)


def array(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array(pairs, _core.EXTENT) if pairs else np.empty(0, _core.EXTENT)


def perform(plan: _core.Plan) -> bytes:
    buffer = bytearray(plan.totals.buffer_bytes)
    for request in plan.requests:
        at, offset = int(request["buffer_offset"]), int(request["offset"])
        piece = FILE[offset : offset + int(request["length"])]
        assert len(piece) >= int(request["needed"])
        buffer[at : at + len(piece)] = piece
    return bytes(buffer)


@settings(max_examples=long_run.cases(300), deadline=None)
@given(
    extents_lists,
    st.integers(0, 20000),
    st.sampled_from([1, 2, 512, 4096]),
    st.integers(1, 5),
)
def test_a_plan_reads_what_is_needed_once_and_tells_where_it_lies(pairs, gap, alignment, blocks):
    request_max = 4096 * blocks
    plan = _core.make_plan(
        array(pairs), gap_bytes_max=gap, request_bytes_max=request_max, alignment=alignment
    )
    buffer = perform(plan)
    for (offset, length), at in zip(pairs, plan.slices.tolist(), strict=True):
        assert buffer[at : at + length] == FILE[offset : offset + length]
    starts = plan.requests["offset"].astype(np.int64)
    lengths = plan.requests["length"].astype(np.int64)
    assert (starts % alignment == 0).all()
    assert (lengths % alignment == 0).all()
    assert (plan.requests["buffer_offset"] % alignment == 0).all()
    assert (lengths <= request_max).all()
    assert (starts[1:] >= starts[:-1] + lengths[:-1]).all(), "requests overlap or are unsorted"
    needed = np.zeros(1 << 17, bool)
    for offset, length in pairs:
        needed[offset : offset + length] = True
    totals = plan.totals
    assert totals.needed_bytes == int(needed.sum())
    assert totals.record_bytes == sum(length for _, length in pairs)
    assert totals.buffer_bytes == int(lengths.sum()) == totals.needed_bytes + totals.waste_bytes
    assert totals.requests == len(plan.requests)


@settings(max_examples=long_run.cases(100), deadline=None)
@given(extents_lists)
def test_without_gap_or_alignment_nothing_is_wasted(pairs):
    totals = plan_reads(array(pairs), PlanOptions(gap_bytes_max=0), alignment=1).totals
    assert totals.waste_bytes == 0


def test_gaps_up_to_the_limit_are_read_over_and_larger_ones_are_not():
    pairs = array([(0, 100), (200, 100)])
    assert plan_reads(pairs, PlanOptions(gap_bytes_max=100), alignment=1).totals.requests == 1
    assert plan_reads(pairs, PlanOptions(gap_bytes_max=99), alignment=1).totals.requests == 2


def test_the_bytes_that_must_exist_end_with_the_last_record():
    plan = plan_reads(array([(5000, 10)]))
    assert plan.requests[0].tolist() == (4096, 4096, 914, 0)


def test_an_empty_plan_reads_nothing():
    plan = plan_reads(array([]))
    assert plan.totals.requests == plan.totals.buffer_bytes == len(plan.slices) == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"alignment": 3},
        {"alignment": 0},
        {"request_bytes_max": 0},
        {"request_bytes_max": 100, "alignment": 64},
        {"extents": [(2**63, 1)]},
        {"extents": [(1, 2**64 - 1)]},
        {"extents": [(0, 2**62 - 1), (2**61, 2**61)]},
    ],
)
def test_impossible_plans_are_refused(bad):
    arguments = {"gap_bytes_max": 0, "request_bytes_max": 4096, "alignment": 1, **bad}
    with pytest.raises(ValueError, match=r"\w"):
        _core.make_plan(array(arguments.pop("extents", [])), **arguments)


@pytest.mark.parametrize("bad", [{"gap_bytes_max": -1}, {"request_bytes_max": 1000}])
def test_impossible_options_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        PlanOptions(**bad)


@settings(deadline=None, max_examples=long_run.cases(500))
@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 40_000), st.integers(0, 20_000), st.integers(1, 2)), min_size=1
    ),
    gap=st.sampled_from([0, 5000, 1 << 16]),
    backwards=st.booleans(),
)
@example(pairs=[(0, 19576, 1), (1, 0, 1), (4999, 1, 1)], gap=5000, backwards=False)
@example(pairs=[(0, 0, 1), (4000, 200, 2), (5000, 0, 2), (0, 1, 1)], gap=0, backwards=True)
def test_the_spread_of_extents_in_the_order_of_the_file_bounds_their_buffer(pairs, gap, backwards):
    """After so many bytes of others, a record so long, asked for once or twice."""
    places, at = [], 0
    for before, length, times in pairs:
        places += [(at + before, length)] * times
        at += before + length
    extents = np.array(places[::-1] if backwards else places, _core.EXTENT)
    plan = plan_reads(extents, PlanOptions(gap), alignment=PAGE_BYTES)
    assert int(spread(extents, gap).sum()) >= plan.totals.buffer_bytes


def test_the_spread_counts_a_page_that_neighbours_share_once():
    extents = np.array([(5000, 100), (4500, 100), (4200, 100), (9000, 100)], _core.EXTENT)
    assert spread(extents, 0).tolist() == [4096, 0, 0, 4096]
    extents = np.array([(0, 100), (8192, 100), (65536, 0)], _core.EXTENT)
    assert spread(extents, 5000).tolist() == [4096, 4096 + 4096, 0]


@settings(max_examples=long_run.cases(200), deadline=None)
@given(extents_lists, st.integers(0, 20000), st.integers(0, 1 << 18))
def test_a_plan_gives_up_gaps_until_it_fits_its_room(pairs, gap, room):
    options = PlanOptions(gap_bytes_max=gap)
    plan = plan_reads(array(pairs), options, room_bytes=room)
    buffer = perform(plan)
    for (offset, length), at in zip(pairs, plan.slices.tolist(), strict=True):
        assert buffer[at : at + length] == FILE[offset : offset + length]
    usual = plan_reads(array(pairs), options)
    least = plan_reads(array(pairs), PlanOptions(gap_bytes_max=0))
    if usual.totals.buffer_bytes <= room:
        assert plan.totals == usual.totals
    if plan.totals.buffer_bytes > room:
        assert plan.totals == least.totals and least.totals.buffer_bytes > room
