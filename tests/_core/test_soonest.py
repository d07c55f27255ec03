"""Goal: what is held is what is used again soonest, and records come and go without a loss.

Method: random uses against Belady's rule as ``planning.placement`` has it, in parts of any length;
random records against a dict, in memory that is often full.
"""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lmdbio import _core
from lmdbio._core import NEVER, Cells, Soonest
from lmdbio.planning.placement import following, next_use

SIZE = 8


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=200),
    st.integers(0, 60),
    st.integers(1, 50),
    st.integers(0, 2**32),
)
def test_what_is_held_is_what_belady_s_rule_holds(
    access: list[int], capacity: int, part: int, seed: int
) -> None:
    sizes = np.random.default_rng(seed).integers(0, 6, 21).astype(np.uint64)
    records = np.array(access, np.int64)
    later = following(records.astype(np.uint32))
    later[later == len(records)] = NEVER
    soonest, found, held = Soonest(21, capacity), list[bool](), set[int]()
    for first in range(0, len(records), part):
        some = slice(first, first + part)
        used = soonest.use(records[some], later[some], sizes[records[some]])
        found += used.found.tolist()
        assert not set(used.dropped.tolist()) & set(records[some][used.kept].tolist())
        held = held.difference(used.dropped.tolist()) | set(records[some][used.kept].tolist())
        assert sum(int(sizes[record]) for record in held) <= capacity
        after = {r for r in held if r in access[first + part :]}
        assert after == held, "what is not used again is not held"
    wanted = next_use(records.astype(np.uint32), sizes.astype(np.float64), capacity)
    assert found == wanted.tolist()


def test_uses_that_make_no_sense_are_refused() -> None:
    soonest, ones = Soonest(3, 10), np.ones(1, np.uint64)
    for record in (-1, 3):
        with pytest.raises(ValueError, match="outside the 3"):
            soonest.use(np.array([record]), np.array([5]), ones)
    with pytest.raises(ValueError, match="2 next uses"):
        soonest.use(np.array([1]), np.array([5, 6]), ones)
    used = soonest.use(np.empty(0, np.int64), np.empty(0, np.int64), ones[:0])
    assert not len(used.found) and not len(used.dropped)


def u64(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint64)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40), st.booleans()), max_size=60),
    st.integers(1, 30),
)
def test_records_in_cells_are_those_that_were_put(
    steps: list[tuple[int, int, bool]], count: int
) -> None:
    memory, from_, to = _core.Memory(count * SIZE), _core.Memory(64), _core.Memory(64)
    cells = Cells(memory, SIZE, 10)
    there: dict[int, bytes] = {}
    for number, (record, length, is_put) in enumerate(steps):
        free = memory.size // SIZE - sum(-(-len(one) // SIZE) for one in there.values())
        if is_put:
            content = bytes([number]) * length
            _core.lend(from_.address, 64)[:length] = content
            if record not in there and -(-length // SIZE) > free:
                with pytest.raises(RuntimeError, match="no cells are free for record"):
                    cells.put(np.array([record]), u64([length]), u64([from_.address]))
                continue
            cells.put(np.array([record]), u64([length]), u64([from_.address]))
            if length and record not in there:
                there[record] = content
        else:
            cells.drop(np.array([record]))
            there.pop(record, None)
        for known, content in there.items():
            cells.get(np.array([known]), u64([len(content)]), u64([to.address]))
            assert bytes(_core.lend(to.address, len(content))) == content
    for gone in set(range(10)) - set(there):
        cells.get(np.array([gone]), u64([0]), u64([0]))
        with pytest.raises(RuntimeError, match=f"record {gone} is in no cells"):
            cells.get(np.array([gone]), u64([1]), u64([to.address]))


def test_cells_that_make_no_sense_are_refused() -> None:
    cells = Cells(_core.Memory(64), SIZE, 4)
    with pytest.raises(ValueError, match="outside the 4"):
        cells.drop(np.array([4]))
    with pytest.raises(ValueError, match="1 records, 2 lengths"):
        cells.put(np.array([1]), u64([1, 2]), u64([0]))
    with pytest.raises(ValueError, match="too many"):
        Cells(_core.Memory(64), SIZE, 2**32)
