"""Sidecars that name leaf pages (lmdbio/provenance/leaves.py): extents are read off the data.

Goal: records of varying sizes, inside leaves and beside them, shuffled or not, are found exactly;
as few leaves are read as hold what is asked for, all at once; a page that is not the leaf it was
is told. Method: databases made by py-lmdb, compared with a walk of the file; requests counted.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import lmdbio
from lmdbio import _core
from lmdbio._core import LEAF
from lmdbio.convert import convert as conversion
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import Error, ProvenanceError
from lmdbio.locate.open import open_record_index
from lmdbio.provenance import Provenance
from lmdbio.provenance.leaves import LeafReader
from tests.support import databases

COUNT = 6000
LAYOUT = _core.Layout(1, 4096, 16, 0, 1 << 40)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def value(index: int) -> bytes:
    """Most in overflow pages of their own, as pictures are; some inside leaves."""
    return databases.value(index, random.Random(index).choice((50, 900, 2500, 3500, 6000)))


@pytest.fixture(params=[1, 3])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    env = databases.open_writable(tmp_path / "env", request.param)
    order = list(range(COUNT))
    random.Random(7).shuffle(order)
    items = ((b"key-%d" % i, value(i)) for i in order)
    databases.write(env, items, commit_every=500)
    env.close()
    return tmp_path / "env"


def wanted(path: Path) -> list[bytes]:
    del path
    return [value(i) for i in sorted(range(COUNT), key=lambda i: b"key-%d" % i)]


def test_records_are_found_by_their_leaves(path: Path) -> None:
    report = convert(path)
    assert report.blocks_leaves and not (report.blocks_runs or report.blocks_explicit)
    pattern_bytes = 64  # what its keys look like
    assert report.sidecar_bytes < 0.1 * COUNT + 1024 + pattern_bytes
    values = wanted(path)
    with open_record_index(path, locate="scan") as scanned, open_record_index(path) as source:
        extents = scanned.run(0, COUNT)
        assert source.locate == "provenance"
        for _ in range(3):  # one by one, and then by the table of all
            some = np.random.default_rng(3).integers(0, COUNT, 40).astype(np.uint64)
            assert np.array_equal(source.extents(some), extents[some])
            assert np.array_equal(source.run(100, 900), extents[100:900])
            assert source.extent(COUNT - 1) == tuple(extents[COUNT - 1])
    with lmdbio.Records(path, locate="provenance") as records:
        assert records[17] == values[17]
        assert records[5:300] == values[5:300]
        assert [bytes(v) for v in records.read([9, 5000, 9, 0])] == [
            values[i] for i in (9, 5000, 9, 0)
        ]
        assert list(records) == values
    assert verify(path).sidecar_records == COUNT


def test_no_more_leaves_are_read_than_are_needed(path: Path) -> None:
    report = convert(path)
    with Provenance.open(report.sidecar) as opened, _core.Engine(path / "data.mdb") as engine:
        opened.attach(LeafReader(engine, opened.facts.layout))
        section = opened.section()
        one = section.locate([COUNT // 2])
        assert engine.counts().bytes == 4096
        assert np.array_equal(section.locate([COUNT // 2] * 5), np.repeat(one, 5))
        assert engine.counts().bytes == 2 * 4096
        section.extents(0, COUNT)
        leaves = section.database.leaf_pages
        assert engine.counts().bytes == (2 + leaves) * 4096


@pytest.mark.parametrize("engine", ["pread", "direct", "mmap"])
def test_every_engine_reads_leaves(path: Path, engine: str) -> None:
    report = convert(path)
    with (
        Provenance.open(report.sidecar) as opened,
        _core.Engine(path / "data.mdb", engine) as reader,
    ):
        opened.attach(LeafReader(reader, opened.facts.layout))
        assert len(opened.section().extents(0, COUNT)) == COUNT


def test_opening_and_finding_one_record_reads_little(path: Path) -> None:
    sidecar = convert(path).sidecar
    with open_record_index(path) as source:
        source.extents(np.array([0], np.uint64))
        counts = source.counts()
    assert counts.page_bytes + sidecar.stat().st_size <= 65536


def test_without_the_data_nothing_is_said(path: Path) -> None:
    with Provenance.open(convert(path).sidecar) as opened:
        with pytest.raises(ValueError, match="not open"):
            opened.section().locate([0])


def test_a_page_that_is_another_leaf_is_told(path: Path) -> None:
    sidecar = convert(path).sidecar
    with Provenance.open(sidecar) as opened:
        leaves = opened.block(opened.section(), 0)
        with _core.Engine(path / "data.mdb") as engine:
            reader = LeafReader(engine, opened.facts.layout)
            good = leaves[:3].copy()
            assert len(reader.extents(good)) == good["records"].sum()
            for change in ({"records": 1}, {"pgno": 3}, {"pgno": good["pgno"][0] + 1}):
                wrong = good.copy()
                for field, one in change.items():
                    wrong[field][1] = one + (field == "records" and wrong["records"][1])
                with pytest.raises(Error, match=r"data\.mdb"):
                    reader.extents(wrong)


def test_a_leaf_that_was_written_over_is_no_damage(path: Path) -> None:
    """The state has gone; what was located before it went is refused, too."""
    convert(path)
    version = 1 if lmdbio_version(path) == 1 else 3
    with lmdbio.Records(path, locate="provenance") as records:
        assert records[7] == wanted(path)[7]
        env = databases.open_writable(path, version)
        for turn in range(6):
            with env.begin(write=True) as txn:
                for i in range(turn, COUNT, 3):
                    txn.put(b"key-%d" % i, b"other" * 300)
        env.close()
        for read in (lambda: records[COUNT // 2], lambda: records.read([3, 4000])):
            with pytest.raises(Error, match="changed while it was read"):
                read()


def lmdbio_version(path: Path) -> int:
    with _core.Engine(path / "data.mdb") as engine:
        return _core.read_meta(engine).layout.version


def test_a_damaged_leaf_is_told_to_who_needs_it(path: Path) -> None:
    convert(path)
    values = wanted(path)
    with lmdbio.Records(path, locate="provenance") as records:
        section = records._source._section
        assert section is not None and section.forms["leaves"] == 1
        leaves = section._owner.block(section, 0)
        with (path / "data.mdb").open("r+b") as file:
            file.seek(int(leaves["pgno"][5]) * 4096)
            file.write(bytes(4096))
        first = int(leaves["records"][:5].sum())
        for _ in range(3):
            assert records[first - 1] == values[first - 1]
            assert [bytes(v) for v in records.read([0, COUNT - 1])] == [values[0], values[-1]]
            with pytest.raises(Error, match=r"data\.mdb"):
                records.read([0, first])
            with pytest.raises(Error, match=r"data\.mdb"):
                list(records)


def test_commits_while_the_draft_is_compared_start_the_walk_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leaf that is overwritten meanwhile is no damage."""
    version = lmdbio_version(path)
    turns = iter((0,))
    original = conversion._compare

    def storm(*arguments: Any) -> None:
        for turn in turns:
            env = databases.open_writable(path, version)
            for step in range(5):
                with env.begin(write=True) as txn:
                    for i in range(step, COUNT, 7):
                        txn.put(b"key-%d" % i, value(i + turn + 1))
            env.close()
        original(*arguments)

    monkeypatch.setattr(conversion, "_compare", storm)
    report = convert(path, form="leaves")
    assert report.attempts == 2
    with open_record_index(path, locate="scan") as scanned, open_record_index(path) as source:
        assert np.array_equal(source.run(0, COUNT), scanned.run(0, COUNT))


LEAVES = st.lists(
    st.tuples(st.integers(0, (1 << 40) - 1), st.integers(1, 4095)), min_size=1, max_size=80
)


@given(LEAVES)
def test_what_is_encoded_is_decoded(pairs: list[tuple[int, int]]) -> None:
    leaves = np.array(pairs, LEAF)
    at = 0
    while at < len(leaves):
        block, taken = _core.encode_leaves(LAYOUT, leaves[at:])
        found = _core.decode_leaves(LAYOUT, block.raw, block.records)
        assert np.array_equal(found, leaves[at : at + taken])
        at += taken


@given(st.binary(max_size=60), st.integers(0, 1 << 20))
def test_whatever_the_bytes_decoding_ends(raw: bytes, records: int) -> None:
    try:
        found = _core.decode_leaves(LAYOUT, raw, records)
    except ProvenanceError:
        return
    assert found["records"].sum() == records and (found["pgno"] < LAYOUT.page_limit).all()


@given(LEAVES, st.data())
def test_a_changed_byte_is_told_or_gives_other_leaves(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    leaves = np.array(pairs, LEAF)
    block, taken = _core.encode_leaves(LAYOUT, leaves)
    at = data.draw(st.integers(0, len(block.raw) - 1))
    raw = bytearray(block.raw)
    raw[at] ^= data.draw(st.integers(1, 255))
    for changed in (bytes(raw), block.raw[:at]):
        try:
            found = _core.decode_leaves(LAYOUT, changed, block.records)
        except ProvenanceError:
            continue
        assert int(found["records"].sum()) == block.records
        assert not np.array_equal(found, leaves[:taken])


@pytest.mark.parametrize("wrong", [(1 << 40, 1), (5, 0), (5, 4096)])
def test_what_is_no_leaf_is_not_encoded(wrong: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="leaf 1 lies outside"):
        _core.encode_leaves(LAYOUT, np.array([(7, 3), wrong], LEAF))
    with pytest.raises(ValueError, match="at least one"):
        _core.encode_leaves(LAYOUT, np.empty(0, LEAF))
