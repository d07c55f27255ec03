"""The column codec of one block (csrc/provenance.c).

Goal: every list of extents inside a file comes back exactly; no bytes whatever make the decoder
crash, read beyond them or name a byte outside the file; blocks close where they should.
Method: generated extents of many shapes, generated and mutated bytes, and layouts of 500,000
records as LMDB makes them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio import _core
from lmdbio.errors import ProvenanceError
from tests.support import long_run

PAGE_SIZES = [256, 512, 4096, 65536]


def layout(page_size: int = 4096, pages: int = 1 << 30, header: int = 16) -> _core.Layout:
    version = 1 if header == 16 else 3
    return _core.Layout(version, page_size, header, 0, pages)


def extents_of(pairs: list[tuple[int, int]]) -> _core.Extents:
    return np.array(pairs, _core.EXTENT)


def encode_all(where: _core.Layout, extents: _core.Extents) -> list[_core.Block]:
    blocks, at = [], 0
    while at < len(extents):
        blocks.append(_core.encode_block(where, extents[at:]))
        at += blocks[-1].records
    return blocks


def decode_all(where: _core.Layout, blocks: list[_core.Block]) -> _core.Extents:
    pieces = [_core.decode_block(where, b.form, b.raw, b.records) for b in blocks]
    return np.concatenate(pieces)


@st.composite
def layouts(draw: st.DrawFn) -> _core.Layout:
    page_size = draw(st.sampled_from(PAGE_SIZES))
    pages = draw(st.sampled_from([1, 7, 1000, 2**32, 2**62 // page_size]))
    return layout(page_size, pages, draw(st.sampled_from([16, 24])))


@st.composite
def placed_extents(draw: st.DrawFn) -> tuple[_core.Layout, _core.Extents]:
    """Anywhere in the file, in runs, in leaves, or all of these."""
    where = draw(layouts())
    space = where.page_limit * where.page_size
    anywhere = st.integers(0, space).flatmap(
        lambda offset: st.tuples(st.just(offset), st.integers(0, space - offset))
    )
    length = st.integers(0, min(space - where.header_size, 5 * where.page_size))
    on_page = st.tuples(
        st.integers(0, where.page_limit - 1).map(lambda p: p * where.page_size), length
    ).map(lambda e: (e[0] + where.header_size, min(e[1], space - e[0] - where.header_size)))
    pairs = draw(st.lists(st.one_of(anywhere, on_page), min_size=1, max_size=60))
    if draw(st.booleans()):  # make successors follow each other
        for i in range(1, len(pairs)):
            offset, size = pairs[i - 1]
            used = -(-(where.header_size + size) // where.page_size)
            page = offset // where.page_size + used
            start = page * where.page_size + where.header_size
            if start <= space and draw(st.integers(0, 9)):
                pairs[i] = (start, min(pairs[i][1], space - start))
    return where, extents_of(pairs)


@settings(max_examples=long_run.cases(400), deadline=None)
@given(placed_extents())
def test_any_extents_inside_the_file_come_back_exactly(case):
    where, extents = case
    blocks = encode_all(where, extents)
    assert sum(block.records for block in blocks) == len(extents)
    assert all(len(block.raw) <= _core.BLOCK_RAW_BYTES_MAX for block in blocks)
    assert decode_all(where, blocks).tobytes() == extents.tobytes()


def try_decode(where: _core.Layout, form: int, raw: bytes, records: int) -> None:
    """Decodes or refuses; what is decoded lies inside the file."""
    try:
        extents = _core.decode_block(where, form, raw, records)
    except ProvenanceError:
        return
    space = where.page_limit * where.page_size
    for offset, length in extents.tolist():
        assert offset + length <= space


@settings(max_examples=long_run.cases(400), deadline=None)
@given(layouts(), st.integers(0, 4), st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_are_decoded_to_extents_inside_the_file_or_refused(where, form, raw, records):
    try_decode(where, form, raw, records)


@settings(max_examples=long_run.cases(300), deadline=None)
@given(placed_extents(), st.data())
def test_a_mutated_block_is_decoded_to_extents_inside_the_file_or_refused(case, data):
    where, extents = case
    block = _core.encode_block(where, extents)
    raw = bytearray(block.raw)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    records = data.draw(st.sampled_from([block.records, block.records + 1, 1, 2**18]))
    try_decode(where, block.form, bytes(raw), records)
    try_decode(where, 3 - block.form, bytes(raw), records)
    try_decode(where, block.form, bytes(raw[:cut]), records)


@settings(max_examples=long_run.cases(100), deadline=None)
@given(placed_extents())
def test_a_block_cut_anywhere_or_with_a_byte_more_is_refused(case):
    where, extents = case
    block = _core.encode_block(where, extents)
    for cut in range(len(block.raw)):
        with pytest.raises(ProvenanceError):
            _core.decode_block(where, block.form, block.raw[:cut], block.records)
    with pytest.raises(ProvenanceError, match="left over"):
        _core.decode_block(where, block.form, block.raw + b"\0", block.records)


@pytest.mark.parametrize(
    ("pair", "pages"),
    [((4096 * 10, 1), 10), ((0, 4096 * 10 + 1), 10), ((2**64 - 1, 1), 2**50), ((8, 2**64 - 1), 9)],
)
def test_an_extent_outside_the_file_is_not_encoded(pair, pages):
    with pytest.raises(ValueError, match="outside the file"):
        _core.encode_block(layout(pages=pages), extents_of([(16, 1), pair]))


@pytest.mark.parametrize(
    "where",
    [layout(4095), layout(128), layout(131072), layout(pages=2**51), layout(header=5000)],
)
def test_a_layout_that_no_database_has_is_refused(where):
    with pytest.raises(ValueError, match="no database"):
        _core.encode_block(where, extents_of([(16, 1)]))
    with pytest.raises(ValueError, match="no database"):
        _core.decode_block(where, 1, b"\0" * 9, 1)


def test_nothing_is_no_block():
    with pytest.raises(ValueError, match="at least one record"):
        _core.encode_block(layout(), np.empty(0, _core.EXTENT))
    for records in (0, -1, 2**18 + 1, 2**40):
        with pytest.raises(ProvenanceError):
            _core.decode_block(layout(), 1, b"\0" * 9, records)


# Values that a block must refuse: lengths | runs | bytes of counts | counts | jumps.
BAD_RUNS = {
    "more runs than counts": bytes([5, 0, 2, 1, 2, 2]),
    "an empty run": bytes([5, 0, 2, 2, 0, 2, 2, 2]),
    "a run longer than the block": bytes([5, 0, 1, 1, 3, 2]),
    "too few records": bytes([5, 0, 1, 1, 1, 2]),
    "counts beyond the end": bytes([5, 0, 1, 200, 2, 2]),
    "a first page below 0": bytes([5, 0, 1, 1, 2, 1]),
    "a varint without end": bytes([5, 0, 1, 1, 2]) + b"\x80" * 12,
    "a varint above 64 bits": bytes([5, 0, 1, 1, 2]) + b"\xff" * 9 + b"\x02",
    "lengths that wrap": b"\xff" * 9 + b"\x01" + bytes([1, 255, 255, 1, 1, 2, 2]),
    "length planes beyond the end": bytes([5, 9, 0, 0, 1, 1, 2, 2]),
    "planes wider than the block": bytes([5, 8, 0, 0, 1, 1, 2, 2]),
}


@pytest.mark.parametrize("raw", BAD_RUNS.values(), ids=BAD_RUNS)
def test_runs_that_contradict_themselves_are_refused(raw):
    good = _core.decode_block(layout(), 1, bytes([5, 0, 1, 1, 2, 2]), 2)
    assert good.tolist() == [(4096 + 16, 5), (2 * 4096 + 16, 5)]
    with pytest.raises(ProvenanceError):
        _core.decode_block(layout(), 1, raw, 2)


def test_pages_are_counted_with_their_header():
    """A value of page size - header bytes owns one page, one byte more owns two."""
    for header in (16, 24):
        where = layout(header=header)
        for length, pages in ((4096 - header, 1), (4097 - header, 2), (8192 - header, 2), (0, 1)):
            pairs = [((1 + i * pages) * 4096 + header, length) for i in range(20)]
            block = _core.encode_block(where, extents_of(pairs))
            assert (block.form, block.runs) == (_core.BlockForm.RUNS, 1)
            assert decode_all(where, [block]).tolist() == pairs


def test_blocks_of_one_size_close_at_their_record_limit():
    count = 600_000
    extents = np.empty(count, _core.EXTENT)
    extents["offset"] = (np.arange(count, dtype=np.uint64) + 5) * 4096 + 16
    extents["length"] = 3085
    blocks = encode_all(layout(), extents)
    assert [b.records for b in blocks] == [2**18, 2**18, count - 2**19]
    assert all(len(b.raw) < 20 and b.runs == 1 for b in blocks)
    assert decode_all(layout(), blocks).tobytes() == extents.tobytes()


def test_blocks_of_varying_sizes_close_at_their_byte_limit():
    rng = np.random.default_rng(5)
    extents = np.empty(100_000, _core.EXTENT)
    extents["length"] = rng.integers(3000, 200_000, len(extents))
    pages = (extents["length"] + np.uint64(16 + 4095)) // np.uint64(4096)
    extents["offset"] = (np.cumsum(pages) - pages + np.uint64(9)) * np.uint64(4096) + np.uint64(16)
    blocks = encode_all(layout(), extents)
    assert all(b.form == _core.BlockForm.RUNS and b.runs == 1 for b in blocks)
    assert all(48_000 < len(b.raw) <= _core.BLOCK_RAW_BYTES_MAX for b in blocks[:-1])
    assert decode_all(layout(), blocks).tobytes() == extents.tobytes()


def test_values_packed_downward_in_leaves_take_few_different_bytes():
    """The guess for values in leaves leaves one small residual, whatever their lengths."""
    rng = np.random.default_rng(6)
    lengths = rng.integers(10, 90, 2000)
    pairs, page, at = [], 3, 4096
    for length in lengths.tolist():
        node = (8 + 12 + length + 1) // 2 * 2
        if at - node < 16 + 2 * 40:
            page, at = page + 1, 4096
        at -= node
        pairs.append((page * 4096 + at + 20, length))
    block = _core.encode_block(layout(), extents_of(pairs))
    assert block.form == _core.BlockForm.EXPLICIT
    residuals = block.raw[-(len(block.raw) - 2 - 2000) :]
    assert len(residuals) < 2000 * 1.1
    assert decode_all(layout(), [block]).tolist() == pairs
