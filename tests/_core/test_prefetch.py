"""The part of a file that is brought to the page cache ahead of a reader.

Goal: it is used for records that lie dense, as whole databases do that were written by many
transactions, and for no others. Method: extents made by hand over a file of holes, and what
readahead says to them.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from lmdbio import _core

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
    return prefetch.cover(extents, block_bytes=BLOCK, ahead=4 * BLOCK)


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
    memory = _core.Engine.memory(bytes(FILE_BYTES // 16))
    assert not cover(_core.Prefetch(memory, FILE_BYTES // 16, piece=PAGE), pages(0, 256))
    prefetch = _core.Prefetch(engine, FILE_BYTES, piece=128 << 10)
    assert not cover(prefetch, pages(0, 0))
    prefetch.close()
    prefetch.close()
    assert not cover(prefetch, pages(0, 256))
