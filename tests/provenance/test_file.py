"""Reading provenance files.

Goal: every golden sample is read as FORMAT.md says; every damaged one is refused with its
reason; no flipped byte ever changes an answer; lookups are right in any order and bounded in
memory.
Method: the samples in provenance/samples (made without the library), and mutations of them.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from lmdbio import _core
from lmdbio.convert.verify import verify
from lmdbio.errors import ProvenanceError, StaleError
from lmdbio.provenance import Provenance, freshness
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.values import DUPSORT
from lmdbio.provenance.writer import Writer
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.publish import Draft
from tests.support import ROOT

SAMPLES = ROOT / "provenance" / "samples"
GOOD = json.loads((SAMPLES / "good.json").read_text(encoding="utf-8"))
#: Names a leaf of tiny.mdb.
LEAVES = "2-tiny-leaves.prov"
#: Of samples whose transactions are told.
TRANSACTIONS = {
    "2-replay.prov": 1,
    "2-replay-commits.prov": 2,
    "2-replay-append.prov": 2,
    "3-replay-numbers.prov": 1,
}
BAD = json.loads((SAMPLES / "bad.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def read_all(path: Path) -> list[tuple[bytes | None, list[tuple[int, int]]]]:
    with Provenance.open(path) as opened:
        for section in opened.sections:
            order = section.order()
            if order is not None:
                assert order.tolist() == [n * 7 % 62 for n in range(62)]
            if section.database.flags & DUPSORT:
                assert section.each_key().tolist() == [1] * 10 + [2] * 15 + [4, 4, 4, 5, 5]
        return [(s.name, s.extents().tolist()) for s in opened.sections]


def expected(sample: str) -> list[tuple[bytes | None, list[tuple[int, int]]]]:
    return [
        (
            None if db["name"] is None else bytes.fromhex(db["name"]),
            [tuple(extent) for extent in db["extents"]],
        )
        for db in GOOD[sample]
    ]


def test_there_are_samples():
    assert len(GOOD) >= 7 and len(BAD) >= 20
    assert {p.name for p in SAMPLES.glob("*.prov")} == {*GOOD, *BAD, "tiny.mdb.prov", LEAVES}


@pytest.mark.parametrize("sample", GOOD)
def test_a_good_sample_is_read(sample):
    want = expected(sample)
    assert read_all(SAMPLES / sample) == want
    with Provenance.open(SAMPLES / sample) as opened:
        assert opened.databases == [name for name, _ in want]
        txnid = TRANSACTIONS.get(sample, 7)
        assert (opened.facts.txnid, opened.facts.page_size) == (txnid, 4096)
        for name, extents in want:
            section = opened.section(name)
            assert section.count == len(extents)
            assert section.record_bytes == sum(length for _, length in extents)
            for i, extent in enumerate(extents):
                assert section.locate([i]).tolist() == [extent]


@pytest.mark.parametrize("sample", BAD)
def test_a_bad_sample_is_refused_with_its_reason(sample):
    with pytest.raises(ProvenanceError) as caught:
        read_all(SAMPLES / sample)
    assert BAD[sample] in str(caught.value)
    assert str(SAMPLES / sample) in str(caught.value)
    assert not isinstance(caught.value, StaleError)


@pytest.mark.parametrize("sidecar", ["tiny.mdb.prov", LEAVES])
def test_the_tiny_pair_fits_after_a_deep_check(sidecar):
    with (
        _core.Engine(SAMPLES / "tiny.mdb") as engine,
        Provenance.open(SAMPLES / sidecar) as opened,
    ):
        opened.attach(LeafReader(engine, opened.facts.layout))
        meta = _core.read_meta(engine)
        report = freshness.check(engine, meta, opened)
        assert (report.how, report.bytes) == ("deep", 4096)
        values = [engine.read(*map(int, e)) for e in opened.section().extents()]
    assert values == [b"a" * 3000, b"b" * 10, b"c" * 9000, b"", b"d" * 2038, b"e" * 2040]
    verified = verify(SAMPLES / "tiny.mdb", SAMPLES / sidecar)
    assert (verified.sidecar_records, verified.headers) == (6, 4)


@pytest.mark.parametrize("sample", ["fixed.prov", "tiny.mdb.prov", "named.prov"])
def test_a_sidecar_of_another_database_is_refused(sample, tmp_path):
    other = tmp_path / "other.mdb"
    content = bytearray((SAMPLES / "tiny.mdb").read_bytes())
    if sample == "tiny.mdb.prov":  # same metas, but one value's length in the leaf differs
        leaf = max(content.rfind(b"0005"), 0) - 8
        content[leaf] ^= 1
    other.write_bytes(content)
    with _core.Engine(other) as engine, Provenance.open(SAMPLES / sample) as opened:
        with pytest.raises(StaleError, match=r"digest|flags: |txnid: "):
            freshness.check(engine, _core.read_meta(engine), opened)


@pytest.mark.parametrize(
    "sample",
    ["blocks.prov", "named.prov", "2-replay.prov", "3-keys.prov", "3-duplicates-counted.prov"],
)
def test_every_flipped_byte_is_noticed(sample, tmp_path):
    content = (SAMPLES / sample).read_bytes()
    path = tmp_path / sample
    for at in range(len(content)):
        for flip in (0x01, 0x80, 0xFF):
            path.write_bytes(content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :])
            with pytest.raises(ProvenanceError):
                read_all(path)


@pytest.mark.parametrize(
    "sample", ["blocks.prov", "empty.prov", "2-replay-commits.prov", "3-duplicates.prov"]
)
def test_a_file_cut_anywhere_is_refused(sample, tmp_path):
    content = (SAMPLES / sample).read_bytes()
    path = tmp_path / sample
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ProvenanceError):
            read_all(path)


def test_random_damage_never_changes_an_answer(tmp_path):
    content = (SAMPLES / "blocks.prov").read_bytes()
    path, want = tmp_path / "x.prov", expected("blocks.prov")
    rng = np.random.default_rng(2024)
    for _ in range(1500):
        mutated = bytearray(content)
        kind = rng.integers(3)
        at, size = int(rng.integers(len(mutated))), int(rng.integers(1, 40))
        if kind == 0:
            mutated[at : at + size] = rng.bytes(size)
        elif kind == 1:
            del mutated[at : at + size]
        else:
            mutated[at:at] = rng.bytes(size)
        path.write_bytes(mutated)
        try:
            assert read_all(path) == want
        except ProvenanceError as e:
            assert str(path) in str(e)


def test_a_damaged_block_spoils_only_its_own_records(tmp_path):
    path = tmp_path / "x.prov"
    content = bytearray((SAMPLES / "blocks.prov").read_bytes())
    content[70] ^= 1  # block 0, records 0 to 29
    path.write_bytes(content)
    want = expected("blocks.prov")[0][1]
    with Provenance.open(path) as opened:
        assert opened.section().locate([40, 30, 66]).tolist() == [want[40], want[30], want[66]]
        with pytest.raises(ProvenanceError, match="block 0"):
            opened.section().locate([40, 29])


def test_locate_keeps_the_callers_order_and_repeats():
    want = expected("blocks.prov")[0][1]
    rng = np.random.default_rng(1)
    with Provenance.open(SAMPLES / "blocks.prov", cache_bytes_max=0) as opened:
        section = opened.section()
        for dtype in (np.uint64, np.int32, np.int64, np.uint8):
            indices = rng.integers(0, section.count, 200).astype(dtype)
            assert section.locate(indices).tolist() == [want[i] for i in indices]
        assert section.locate([]).shape == (0,)
        assert section.locate(np.empty(0, np.uint64)).dtype == _core.EXTENT
        for start in range(section.count + 1):
            for stop in range(start, section.count + 1):
                assert section.extents(start, stop).tolist() == want[start:stop]


@pytest.mark.parametrize(
    "indices", [[67], [-1], [0, 2**40], np.array([2**64 - 1], np.uint64), [3, -(2**60)]]
)
def test_an_index_out_of_range_is_an_index_error(indices):
    with Provenance.open(SAMPLES / "blocks.prov") as opened:
        assert opened.section().count == 67
        with pytest.raises(IndexError, match="67 records"):
            opened.section().locate(indices)


def test_ranges_and_types_are_checked():
    with Provenance.open(SAMPLES / "blocks.prov") as opened:
        section = opened.section()
        for start, stop in ((-1, 3), (5, 4), (0, 68)):
            with pytest.raises(IndexError):
                section.extents(start, stop)
        with pytest.raises(TypeError, match="integers"):
            section.locate([1.5])
        with pytest.raises(ValueError, match="one dimension"):
            section.locate([[1]])
        with pytest.raises(KeyError, match="database 'nope'"):
            opened.section("nope")
    with Provenance.open(SAMPLES / "named.prov") as opened:
        assert opened.section("train").count == opened.section(b"train").count == 62
        with pytest.raises(KeyError, match="main database"):
            opened.section()


def test_decoded_blocks_are_kept_within_the_given_memory():
    with Provenance.open(SAMPLES / "blocks.prov", cache_bytes_max=40 * 16) as opened:
        section = opened.section()
        decoded = []
        original = opened._decode
        opened._decode = lambda s, n: decoded.append(n) or original(s, n)
        for number in (0, 0, 0, 1, 1, 0):  # 30, 32 and 5 records
            section.block(number)
        assert decoded == [0, 1, 0]
        section.block(2)
        section.block(0)
        section.block(2)
        assert decoded == [0, 1, 0, 2]
        assert opened._cache_bytes <= 40 * 16


def test_answers_cannot_be_used_to_change_the_cache():
    with Provenance.open(SAMPLES / "fixed.prov") as opened:
        section = opened.section()
        with pytest.raises(ValueError, match="read-only"):
            section.block(0)["offset"] = 0
        section.locate([0])["offset"] = 0
        assert section.locate([0]).tolist() == [expected("fixed.prov")[0][1][0]]


def test_threads_may_share_one():
    want = expected("blocks.prov")[0][1]
    wrong = []
    with Provenance.open(SAMPLES / "blocks.prov", cache_bytes_max=30 * 16) as opened:

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(100):
                indices = rng.integers(0, 67, 9)
                if opened.section().locate(indices).tolist() != [want[i] for i in indices]:
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_child_goes_on_though_a_thread_held_the_lock_at_the_fork():
    want = expected("blocks.prov")[0][1]
    with Provenance.open(SAMPLES / "blocks.prov") as opened:
        section = opened.section()
        section.locate([1])
        with opened.lock:
            child = os.fork()
            if child == 0:
                signal.alarm(10)  # a child that waits for ever is a failure, too
                good = section.locate([66, 1]).tolist() == [want[66], want[1]]
                os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_opening_reads_little_of_a_large_file(tmp_path, monkeypatch):
    rng = np.random.default_rng(8)
    extents = np.empty(400_000, _core.EXTENT)
    extents["length"] = rng.integers(3000, 200_000, len(extents))
    extents["offset"] = np.arange(len(extents), dtype=np.uint64) * np.uint64(53 * 4096) + 16
    layout = _core.Layout(1, 4096, 16, 0, 400_000 * 53)
    db = _core.Database(0, 0, 4, 9, 99, 53 * 400_000, len(extents), 77)
    meta = _core.Meta(layout, db, db, 1 << 40, layout.page_limit - 1, 3, 0)
    with Draft(tmp_path / "x.prov") as draft:
        writer = Writer(draft, layout)
        writer.begin(None, db)
        writer.add(extents)
        writer.end()
        size = writer.finish(meta, FileIdentity(0, 0, 0, 0, bytes(16)), bytes(32))
        draft.publish(True)
    read = []
    original = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: read.append(n) or original(fd, n, at))
    with Provenance.open(tmp_path / "x.prov") as opened:
        assert opened.section().locate([123_456]).tolist() == [tuple(extents[123_456])]
    assert size > 700_000 and sum(read) < 65536 + 2 * 49152


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_is_no_file_is_refused(kind, tmp_path):
    path = tmp_path / "x.prov"
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(ProvenanceError, match="not a regular file"):
        Provenance.open(path)


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Provenance.open(tmp_path / "x.prov")


def test_a_closed_one_says_so():
    opened = Provenance.open(SAMPLES / "fixed.prov")
    section = opened.section()
    opened.close()
    opened.close()
    with pytest.raises(ValueError, match="closed"):
        section.locate([0])
