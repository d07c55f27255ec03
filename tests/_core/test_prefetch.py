"""The part of a file that is brought to the page cache ahead of a reader.

Goal: it is used for records that lie dense, as whole databases do that were written by many
transactions, and for no others. Method: extents made by hand over a file of holes, and what
readahead says to them.
"""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from lmdbio import _core
from tests.support.in_memory import memory_engine

PAGE, BLOCK = 4096, 1 << 20
FILE_BYTES = 64 << 20


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, FILE_BYTES)
    with _core.Engine(path) as made:
        yield made


def pages(first: int, count: int, step: int = 1):
    """A record of 3 KB in each of some pages."""
    extents = np.empty(count, _core.EXTENT)
    extents["offset"] = (first + step * np.arange(count)) * PAGE + 16
    extents["length"] = 3072
    return extents


def cover(prefetch: _core.Prefetch, extents) -> bool:
    return prefetch.cover(extents, block_bytes=BLOCK, ahead=4 * BLOCK) is not None


def test_records_one_after_another_are_covered_to_the_end_of_the_file(engine):
    prefetch = _core.Prefetch(engine, FILE_BYTES, piece=128 << 10)
    assert all(cover(prefetch, pages(at, 256)) for at in range(0, FILE_BYTES // PAGE, 256))


def test_a_stray_record_among_them_does_not_matter(engine):
    prefetch = _core.Prefetch(engine, FILE_BYTES, piece=128 << 10)
    block = pages(0, 256)
    block["offset"][17] = FILE_BYTES - PAGE
    assert cover(prefetch, block)


def test_transactions_that_took_the_pages_of_others_go_forth_and_back(engine):
    prefetch = _core.Prefetch(engine, FILE_BYTES, piece=128 << 10)
    assert cover(prefetch, pages(0, 256))
    for at in range(256, 4096, 512):
        forth, back = pages(at + 256, 256), pages(at, 256)
        assert cover(prefetch, np.concatenate([forth[:128], back[:128]]))
        assert cover(prefetch, np.concatenate([forth[128:], back[128:]]))


@pytest.mark.parametrize("step", [4, 40])
def test_every_other_record_is_not_worth_the_file_between_them(engine, step):
    prefetch = _core.Prefetch(engine, FILE_BYTES, piece=128 << 10)
    assert not cover(prefetch, pages(0, 256, step))


def test_it_ends_where_records_are_no_longer_dense(engine):
    prefetch = _core.Prefetch(engine, FILE_BYTES, piece=128 << 10)
    assert cover(prefetch, pages(0, 256))
    answers = [cover(prefetch, pages(256 + at, 64, 16)) for at in range(0, 8192, 1024)]
    assert not answers[-1]


def test_nothing_is_covered_past_the_page_cache_or_after_the_end(engine):
    memory, _ = memory_engine(bytes(FILE_BYTES // 16))
    assert not cover(_core.Prefetch(memory, FILE_BYTES // 16, piece=PAGE), pages(0, 256))
    prefetch = _core.Prefetch(engine, FILE_BYTES, piece=128 << 10)
    assert not cover(prefetch, pages(0, 0))
    prefetch.close()
    prefetch.close()
    assert not cover(prefetch, pages(0, 256))


def scattered(count: int):
    """Records of 3 KB, each in a page by itself, all over the file."""
    extents = pages(0, FILE_BYTES // PAGE)
    return extents[np.random.default_rng(3).permutation(len(extents))[:count]]


def streaming(engine, size: int = FILE_BYTES, sweep_bytes_max: int = 1 << 40) -> _core.Prefetch:
    return _core.Prefetch(engine, size, piece=0, sweep_bytes_max=sweep_bytes_max)


def sweep(prefetch: _core.Prefetch, extents) -> range | None:
    return prefetch.sweep(extents, block_bytes=BLOCK)


@pytest.fixture
def large(tmp_path):
    """A file that is not small."""
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 2 * FILE_BYTES)
    with _core.Engine(path) as made:
        yield made


def cached(engine) -> int:
    found = engine.cached_bytes()
    if found is None:
        pytest.skip("this kernel does not say what the page cache holds")
    return found


@pytest.mark.parametrize("piece", [0, 128 << 10])
def test_a_file_is_swept_once_scattered_records_have_cost_enough(large, piece):
    prefetch = _core.Prefetch(large, 2 * FILE_BYTES, piece=piece, sweep_bytes_max=1 << 40)
    answers = [sweep(prefetch, scattered(4)) for _ in range(20)]
    begun = answers.index(range(2 * FILE_BYTES))
    assert 0 < begun < 20 and set(answers[:begun]) == {None}
    assert set(answers[begun:]) == {range(2 * FILE_BYTES)}
    prefetch.wait(answers[-1])
    assert cached(large) == 2 * FILE_BYTES


def test_a_file_is_swept_once_strays_among_dense_records_have_cost_enough(large):
    prefetch = streaming(large, 2 * FILE_BYTES)
    for at in range(0, FILE_BYTES // PAGE, 256):
        block = pages(at, 256)
        block["offset"][1::16] = scattered(16)["offset"]
        if sweep(prefetch, block) is not None:
            break
    assert 0 < at < FILE_BYTES // PAGE // 4


def test_a_small_file_is_swept_as_soon_as_records_are_scattered(engine):
    assert sweep(streaming(engine), pages(0, 64)) is None
    assert sweep(streaming(engine), scattered(64)) == range(FILE_BYTES)


def part_of(block) -> range:
    return range(int(block["offset"][0]), int(block["offset"][-1] + block["length"][-1]))


def test_dense_records_of_a_swept_file_wait_for_their_part_of_it(engine):
    prefetch = streaming(engine)
    sweep(prefetch, scattered(64))
    block = pages(FILE_BYTES // PAGE // 2, 64)
    assert sweep(prefetch, block) == part_of(block)
    prefetch.wait(part_of(block))
    assert engine.missing(block) is None


def test_a_sweep_for_dense_records_begins_where_they_lie(large):
    prefetch = streaming(large, 2 * FILE_BYTES)
    for at in range(3 * FILE_BYTES // PAGE // 2, 2 * FILE_BYTES // PAGE, 64):
        block = pages(at, 64)
        block["offset"][1::8] = scattered(8)["offset"]
        awaited = sweep(prefetch, block)
        if awaited is not None:
            break
    assert awaited == part_of(block)
    prefetch.wait(awaited)
    assert large.missing(pages(at, 1)) is None
    prefetch.wait(range(2 * FILE_BYTES))
    assert cached(large) == 2 * FILE_BYTES


def test_no_file_is_swept_that_comes_in_its_order_or_has_no_room(large, engine):
    in_order = streaming(large, 2 * FILE_BYTES)
    for at in range(0, FILE_BYTES // PAGE // 2, 512):
        block = pages(at, 512)
        block["offset"][256] = FILE_BYTES - PAGE  # a stray in the middle
        assert sweep(in_order, block) is None
    # Its last records are scattered, and few.
    assert sweep(streaming(large, 2 * FILE_BYTES), scattered(4)) is None
    assert sweep(streaming(engine, sweep_bytes_max=FILE_BYTES - 1), scattered(64)) is None
    memory, _ = memory_engine(bytes(1 << 20))
    assert sweep(streaming(memory, 1 << 20), scattered(64)) is None
    closed = streaming(engine)
    closed.close()
    closed.wait(range(FILE_BYTES))
    assert sweep(closed, scattered(64)) is None


def test_a_sweep_ends_with_its_owner(large):
    prefetch = streaming(large, 2 * FILE_BYTES)
    while sweep(prefetch, scattered(256)) is None:
        pass
    prefetch.close()
    prefetch.close()


def test_a_stream_brings_what_dense_records_need_and_little_more(large):
    prefetch = streaming(large, 2 * FILE_BYTES)
    for at in range(0, 4096, 256):
        block = pages(at, 256)
        awaited = prefetch.cover(block, block_bytes=BLOCK, ahead=4 * BLOCK)
        assert awaited.stop == int(block["offset"][-1] + block["length"][-1])
        prefetch.wait(awaited)
        assert cached(large) >= awaited.stop
    prefetch.close()
    most = awaited.stop + (32 << 20) + (64 << 20)  # and the kernel's own readahead
    assert cached(large) <= most


def test_stray_records_beside_a_stream_are_told_of(large):
    prefetch = streaming(large, 2 * FILE_BYTES)
    block = pages(0, 256)
    block["offset"][17] = 2 * FILE_BYTES - PAGE
    prefetch.wait(prefetch.cover(block, block_bytes=BLOCK, ahead=0))
    assert cached(large) > 0
    ends = time.monotonic() + 10  # nobody waits for a hint
    while large.missing(block) is not None and time.monotonic() < ends:
        time.sleep(0.01)
    assert large.missing(block) is None


def test_a_stream_of_a_file_without_room_in_the_page_cache_is_none(large):
    prefetch = streaming(large, 2 * FILE_BYTES, sweep_bytes_max=2 * FILE_BYTES - 1)
    assert prefetch.cover(pages(0, 256), block_bytes=BLOCK, ahead=0) is None


def test_the_last_page_is_there_before_copies_look_at_it(large):
    end = 2 * FILE_BYTES
    large.read(FILE_BYTES, PAGE)
    large.map_cached(1 << 30)
    for _ in range(100):  # the file is mapped after some reads
        assert large.missing(pages(FILE_BYTES // PAGE, 1)) is None
    assert cached(large) == 2 * PAGE
    assert large.cached_bytes_in(end - PAGE, PAGE) == PAGE


def test_a_stream_completes_what_the_page_cache_has_parts_of(large):
    for at in range(0, 2 * FILE_BYTES, 3 << 20):
        large.read(at + (at >> 3 & ~(PAGE - 1)) % (3 << 20), PAGE)
    prefetch = streaming(large, 2 * FILE_BYTES)
    while prefetch.sweep_all():
        prefetch.wait(range(2 * FILE_BYTES))
    assert cached(large) == 2 * FILE_BYTES


def test_a_stream_of_a_file_that_was_cut_ends(large):
    os.truncate(large.path, FILE_BYTES + 100)
    prefetch = streaming(large, 2 * FILE_BYTES)
    while prefetch.sweep_all():
        prefetch.wait(range(2 * FILE_BYTES))
    assert 0 < cached(large) <= FILE_BYTES + PAGE
