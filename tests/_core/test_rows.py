"""Rows of a block: laid out in a slot, copied there, and written down in its table.

Goal: each row lies where the table says, run by run, and a copy is whole when it says so. Method:
hypothesis over runs and lengths; a few lines of Python as the model; threads that copy.
"""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lmdbio import _core

LENGTHS = st.lists(st.integers(0, 100), max_size=40)


def extents_of(lengths: list[int]) -> np.ndarray:
    return np.array([(7 * i, length) for i, length in enumerate(lengths)], _core.EXTENT)


@given(LENGTHS, st.randoms(use_true_random=False), st.data())
def test_runs_lie_one_behind_the_other(lengths, random, data):
    order = list(range(len(lengths)))
    random.shuffle(order)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(lengths)))) | {0, len(lengths)})
    laid = _core.lay_out(extents_of(lengths), np.array(order, np.int64), np.array(cuts, np.int64))
    assert laid.lengths.tolist() == lengths
    offset, expected = 0, {}
    for row in order:
        expected[row] = offset
        offset += -(-lengths[row] // 8) * 8
    assert laid.offsets.tolist() == [expected[row] for row in range(len(lengths))]
    ends = [expected[order[cut]] if cut < len(order) else offset for cut in cuts]
    assert laid.run_offsets.tolist() == ends
    assert _core.rows_room(laid.lengths) == offset


def test_rows_of_more_than_there_is_saturate():
    extents = np.array([(0, 2**64 - 1), (0, 5)], _core.EXTENT)
    laid = _core.lay_out(extents, np.array([0, 1]), np.array([0, 1, 2]))
    assert int(laid.run_offsets[-1]) == 2**64 - 1


@given(LENGTHS)
def test_a_table_has_what_was_written(lengths):
    memory = _core.Memory(max(1, _core.TABLE_ROW_BYTES * len(lengths)))
    offsets = np.arange(len(lengths), dtype=np.uint64) * np.uint64(100)
    _core.write_table(memory.address, offsets, np.array(lengths, np.uint64))
    size = _core.TABLE_ROW_BYTES * len(lengths)
    table = np.frombuffer(bytes(_core.lend(memory.address, memory.size))[:size], np.uint64)
    pairs = table.reshape(-1, 2).tolist()
    assert pairs == [[100 * i, length] for i, length in enumerate(lengths)]


@given(st.integers(1, 50), st.lists(st.integers(0, 80), max_size=30))
def test_extents_are_taken_by_number(count, numbers):
    table = extents_of(list(range(count)))
    wanted = np.array(numbers, np.uint64)
    if numbers and max(numbers) >= count:
        with pytest.raises(IndexError, match=rf"some.mdb: record \d+ of {count}$"):
            _core.take_extents(table, wanted, "some.mdb")
    else:
        taken = _core.take_extents(table, wanted, "some.mdb")
        assert taken.tolist() == [(7 * i, i) for i in numbers]


class Block:
    """Records in memory, and a block of some of them."""

    def __init__(self, seed: int, count: int = 300, size: int = 3000) -> None:
        random = np.random.default_rng(seed)
        lengths = random.integers(0, size, count)
        self.numbers = np.sort(random.choice(10 * count, count, replace=False)).astype(np.int64)
        extents = np.array([(0, n) for n in lengths.tolist()], _core.EXTENT)
        slices = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.uint64)
        self.source = _core.Memory(int(lengths.sum()) + 1)
        self.bytes = random.bytes(self.source.size)
        _core.lend(self.source.address, self.source.size)[:] = self.bytes
        self.slices = slices
        self.loaded = _core.Loaded(self.numbers, extents, slices, self.source.address)
        places = random.permutation(count)
        self.records, self.rows = self.numbers[places], np.arange(count)
        self.places, own = places, extents[places]
        self.laid = _core.lay_out(own, self.rows, np.array([0, count]))
        self.slot = _core.Memory(int(self.laid.run_offsets[-1]) + 1)

    def start(self, copier: _core.Copier) -> _core.Copying:
        return copier.start(self.loaded, self.rows, self.records, self.laid, self.slot.address)

    def check(self) -> None:
        got = bytes(_core.lend(self.slot.address, self.slot.size))
        for row, place in enumerate(self.places.tolist()):
            first, length = int(self.laid.offsets[row]), int(self.laid.lengths[row])
            begin = int(self.slices[place])
            assert got[first : first + length] == self.bytes[begin : begin + length]


def test_copies_of_many_threads_are_whole():
    copier, blocks = _core.Copier(), [Block(seed) for seed in range(12)]

    def copy(some: list[Block]) -> None:
        for block in some:
            copying = block.start(copier)
            while not copying.poll(100):
                pass
            assert copying.poll()

    threads = [threading.Thread(target=copy, args=(blocks[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for block in blocks:
        block.check()


def test_copies_that_are_dropped_end_before_their_memory():
    for seed, kept in itertools.product(range(3), (0, 1, 5)):
        copier, blocks = _core.Copier(), [Block(seed) for _ in range(6)]
        copies = [block.start(copier) for block in blocks]
        for copying, block in list(zip(copies, blocks, strict=True))[:kept]:
            while not copying.poll(100):
                pass
            block.check()
        del copies[kept:]
        copies.clear()
        copier.close()


def test_nothing_is_copied_after_the_end_whoever_refers_to_copies():
    copier, blocks = _core.Copier(), [Block(seed, 3000, 30_000) for seed in range(4)]
    copies = [block.start(copier) for block in blocks]
    copier.close()
    are_over = [copying.poll() for copying in copies]
    assert are_over == sorted(are_over, reverse=True) and not all(are_over)
    for is_over, block in zip(are_over, blocks, strict=True):
        if is_over:
            block.check()
        _core.lend(block.slot.address, block.slot.size)[:] = bytes(block.slot.size)
    assert not any(copying.poll(20) for copying in copies[sum(are_over) :])
    for block in blocks:
        assert not any(bytes(_core.lend(block.slot.address, block.slot.size)))
    copies.clear()
    copier.close()


def test_a_record_that_is_not_there_is_refused():
    copier, block = _core.Copier(), Block(1)
    block.records[7] = 5000
    with pytest.raises(ValueError, match="a record is not loaded"):
        block.start(copier)
    copier.close()
    with pytest.raises(ValueError, match="has ended"):
        block.start(copier)
    with pytest.raises(ValueError, match="300 records, 3 extents, 300 slices"):
        _core.Loaded(block.numbers, block.loaded.extents[:3], block.slices, 0)
