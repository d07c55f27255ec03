"""Does a provenance file describe the data? The fast and the deep check.

Goal: a sidecar is accepted for the very state of the very database it was made from, wherever
that now lies, and refused for any other with the field that differs; a deep check runs when it
must, costs what was announced, and is remembered.
Method: databases that py-lmdb changes, swaps and copies, among them two with equal meta pages.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from pathlib import Path

import lmdb
import pytest

from lmdbio import _core
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import CorruptedError, ProvenanceError, StaleError
from lmdbio.locate import open_database
from lmdbio.provenance import Provenance, freshness
from lmdbio.provenance.freshness import DeepCheck
from lmdbio.system import file_identity
from lmdbio.system.file_identity import FileIdentity

Lengths = list[int]
LENGTHS = [3000 + 7 * i for i in range(400)]


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LMDBIO_PROVENANCE_DIR", raising=False)


def make(path: Path, lengths: Lengths, name: bytes | None = None) -> Path:
    options = {"map_size": 1 << 28, "subdir": False, "lock": False, "max_dbs": 4}
    with lmdb.open(str(path), **options) as env:
        db = env.open_db(name) if name else None
        with env.begin(write=True, db=db) as transaction:
            for i, length in enumerate(lengths):
                transaction.put(b"%08d" % i, bytes([i % 251]) * length)
    return path


def run_check(data: Path, sidecar: Path, check: str = "fast") -> DeepCheck:
    with _core.Engine(data) as engine, Provenance.open(sidecar) as opened:
        meta = _core.read_meta(engine)
        announced = freshness.deep_check(engine, opened, check)
        report = freshness.check(engine, meta, opened, check)
        hashed = engine.counts().bytes
    assert announced == report and announced.due == (report.how == "deep")
    assert (hashed > announced.bytes) == announced.due  # and a meta read
    return report


@pytest.fixture
def pair(tmp_path):
    data = make(tmp_path / "data.mdb", LENGTHS)
    return data, convert(data).sidecar


def test_a_fresh_sidecar_passes_fast(pair):
    report = run_check(*pair)
    assert (report.how, report.reasons) == ("fast", ())


def test_deep_is_remembered_and_always_is_not(pair):
    hows = [run_check(*pair, check).how for check in ("deep", "deep", "always", "fast", "deep")]
    assert hows == ["deep", "remembered", "deep", "fast", "remembered"]
    with pytest.raises(ValueError, match="check must be one of fast, deep, always"):
        run_check(*pair, "never")


def test_a_touched_file_is_checked_deeply_once(pair):
    data, sidecar = pair
    os.utime(data)
    report = run_check(data, sidecar)
    assert report.how == "deep" and set(report.reasons) == {"mtime_ns", "ctime_ns"}
    assert run_check(data, sidecar).how == "remembered"
    os.utime(data)
    assert run_check(data, sidecar).how == "deep"


def test_a_copy_elsewhere_is_checked_deeply_once(pair, tmp_path):
    data, sidecar = pair
    copy = tmp_path / "copy.mdb"
    shutil.copy2(data, copy)
    report = run_check(copy, sidecar)
    assert report.how == "deep" and "ino" in report.reasons
    assert run_check(copy, sidecar).how == "remembered"
    assert run_check(data, sidecar).how == "fast"


def test_device_and_inode_count_on_their_own_host_alone(pair, monkeypatch):
    data, sidecar = pair
    hints = FileIdentity.of(data.stat())
    moved = dataclasses.replace(hints, dev=hints.dev + 1, ino=hints.ino + 1)
    assert hints.differences(moved) == ("dev", "ino")
    assert hints.differences(dataclasses.replace(moved, host=bytes(16))) == ()
    monkeypatch.setattr(file_identity, "_host", lambda: bytes(16))
    assert run_check(data, sidecar).how == "fast"


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/dev/null"])
def test_it_does_without_a_place_to_remember(folder, pair, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    assert [run_check(*pair, "deep").how for _ in range(2)] == ["deep", "deep"]


def test_it_does_without_a_home(pair, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert [run_check(*pair, "deep").how for _ in range(2)] == ["deep", "deep"]


def test_what_is_remembered_stays_small(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(freshness, "_REMEMBERED_MAX", 3)
    data, sidecar = pair
    for _ in range(6):
        os.utime(data)
        run_check(data, sidecar)
    assert len(list((tmp_path / "cache" / "lmdbio" / "checked").iterdir())) == 3


def test_a_commit_makes_it_stale(pair):
    data, sidecar = pair
    make(data, [5000])
    with pytest.raises(StaleError, match=r"txnid: 2 now, 1 when converted") as caught:
        run_check(data, sidecar)
    assert str(data) in str(caught.value) and str(sidecar) in str(caught.value)
    convert(data)
    assert run_check(data, sidecar).how == "fast"


def test_an_older_state_may_still_be_asked_for(pair):
    data, sidecar = pair
    make(data, [5000])
    with _core.Engine(data) as engine, Provenance.open(sidecar) as opened:
        meta = _core.read_meta(engine, opened.facts.txnid)
        assert freshness.check(engine, meta, opened).how == "deep"


@pytest.mark.parametrize("check", ["fast", "deep", "always"])
def test_a_swapped_database_with_equal_meta_pages_is_refused(check, tmp_path):
    """The same lengths in another order: the metas are equal, two records are not."""
    # Within one number of pages, so that nothing else moves.
    swapped = [LENGTHS[1], LENGTHS[0], *LENGTHS[2:]]
    one, other = make(tmp_path / "a.mdb", LENGTHS), make(tmp_path / "b.mdb", swapped)
    sidecar = convert(one).sidecar
    with _core.Engine(one) as a, _core.Engine(other) as b:
        assert _core.read_meta(a) == _core.read_meta(b)
    with pytest.raises(StaleError, match="digest of the branch and leaf pages: "):
        run_check(other, sidecar, check)
    other.replace(one)
    with pytest.raises(StaleError, match="digest of the branch and leaf pages: "):
        run_check(one, sidecar, check)


def test_another_database_is_refused_by_what_differs_first(pair, tmp_path):
    _, sidecar = pair
    for lengths, field in (
        (LENGTHS[:-1], "last page: |entries: "),
        ([*LENGTHS[:-1], 9], "last page: "),
        ([], "txnid: |last page: "),
    ):
        other = make(tmp_path / f"{len(lengths)}-{sum(lengths)}.mdb", lengths)
        with pytest.raises(StaleError, match=field):
            run_check(other, sidecar)


def test_each_fact_of_the_meta_page_is_compared(pair):
    data, sidecar = pair
    with _core.Engine(data) as engine, Provenance.open(sidecar) as opened:
        meta = _core.read_meta(engine)
        facts = opened.facts
        for name in ("version", "page_size", "env_flags", "txnid", "last_pgno"):
            opened.facts = dataclasses.replace(facts, **{name: getattr(facts, name) ^ 2})
            with pytest.raises(StaleError, match="does not describe this state"):
                freshness.check(engine, meta, opened)
        for which in ("free_db", "main_db"):
            db = getattr(facts, which)
            for field in dataclasses.fields(db):
                changed = dataclasses.replace(db, **{field.name: getattr(db, field.name) ^ 1})
                opened.facts = dataclasses.replace(facts, **{which: changed})
                with pytest.raises(StaleError, match=f"database {field.name}: "):
                    freshness.check(engine, meta, opened)


def test_a_data_file_too_small_for_its_records_is_refused(pair):
    data, sidecar = pair
    with Provenance.open(sidecar) as opened:
        end = opened.facts.extents_end
    with data.open("r+b") as file:
        file.truncate(end - 1)
    with pytest.raises((StaleError, CorruptedError), match=rf"{end}|ends|cut"):
        run_check(data, sidecar)


def test_a_changed_leaf_is_noticed_and_a_changed_value_is_not_looked_at(pair):
    data, sidecar = pair
    content = bytearray(data.read_bytes())
    with Provenance.open(sidecar) as opened:
        first = int(opened.section().extents()["offset"][0])
    content[first + 5] ^= 1
    data.write_bytes(content)
    assert run_check(data, sidecar).how == "deep"
    content[content.index(b"00000007")] ^= 1
    data.write_bytes(content)
    with pytest.raises(StaleError, match="digest"):
        run_check(data, sidecar)


def test_named_databases_are_found_again_and_compared(tmp_path):
    data = make(tmp_path / "n.mdb", LENGTHS, b"train")
    sidecar = convert(data).sidecar
    assert run_check(data, sidecar, "always").how == "deep"
    other = make(tmp_path / "m.mdb", LENGTHS, b"eval_")
    with _core.Engine(other) as engine, Provenance.open(sidecar) as opened:
        with pytest.raises(StaleError, match="no database named 'train'"):
            freshness.check(engine, _core.read_meta(engine), opened)
    # The same metas and names, but the named database itself differs.
    lengths = [LENGTHS[1], LENGTHS[0], *LENGTHS[2:]]
    third = make(tmp_path / "o.mdb", lengths, b"train")
    with pytest.raises(StaleError, match="digest"):
        run_check(third, sidecar)


def test_the_digest_does_not_depend_on_how_the_walk_is_cut(pair, monkeypatch):
    data, sidecar = pair
    walk = _core.Walk
    for pages in (1, 2, 3, 7, 100):
        monkeypatch.setattr(_core, "Walk", lambda e, m, d, pages=pages: walk(e, m, d, pages))
        assert run_check(data, sidecar, "always").how == "deep"


# --- verify ------------------------------------------------------------------------------


def test_verify_reads_every_header_and_compares_every_record(pair):
    data, sidecar = pair
    report = verify(data)
    assert report.sidecar == sidecar
    assert report.records == report.headers == report.sidecar_records == len(LENGTHS)
    assert report.record_bytes == sum(LENGTHS)
    assert report.overflow_pages == sum(-(-(16 + length) // 4096) for length in LENGTHS)
    sidecar.unlink()
    assert verify(data).sidecar is None
    with pytest.raises(FileNotFoundError):
        verify(data, sidecar)


@pytest.mark.parametrize("what", ["page number", "flags", "too few pages", "too many pages"])
def test_verify_notices_a_damaged_overflow_header(what, pair):
    data, sidecar = pair
    content = bytearray(data.read_bytes())
    with Provenance.open(sidecar) as opened:
        page = int(opened.section().extents()["offset"][250]) // 4096 * 4096
    at, value = {
        "page number": (0, content[page] ^ 1),
        "flags": (10, 2),
        "too few pages": (12, 1),
        "too many pages": (14, 255),
    }[what]
    content[page + at] = value
    data.write_bytes(content)
    with pytest.raises(CorruptedError, match=r"should begin 2 overflow pages"):
        verify(data)


def test_verify_notices_pages_with_two_owners(pair):
    data, sidecar = pair
    sidecar.unlink()
    content = bytearray(data.read_bytes())
    # Let one record's node point at its neighbour's pages.
    first, second = (content.index(b"%08d" % i) + 8 for i in (20, 21))
    content[first : first + 8] = content[second : second + 8]
    data.write_bytes(content)
    with pytest.raises(CorruptedError, match=r"two owners"):
        verify(data)


def test_verify_notices_a_false_count(pair):
    data, _ = pair
    content = bytearray(data.read_bytes())
    for meta in (0, 4096):
        content[meta + 16 + 24 + 48 + 24] ^= 1  # overflow pages of the main database
    data.write_bytes(content)
    with pytest.raises(StaleError, match="overflow_pages"):
        verify(data)
    Path(f"{data}.prov").unlink()
    with pytest.raises(CorruptedError, match="overflow pages, its record says"):
        verify(data)


def test_verify_notices_a_sidecar_with_one_record_elsewhere(pair, monkeypatch):
    """Sound by all checksums, and made for this database, but wrong in one length."""
    data, sidecar = pair
    original = _core.leaf_extents

    def lie(*args):
        extents, overflow = original(*args)
        extents["length"][len(extents) // 2] -= 1
        return extents, overflow

    monkeypatch.setattr(_core, "leaf_extents", lie)
    convert(data)
    monkeypatch.setattr(_core, "leaf_extents", original)
    assert run_check(data, sidecar).how == "fast"
    with pytest.raises(StaleError, match="lie elsewhere"):
        verify(data)


def test_verify_notices_a_damaged_sidecar(pair):
    data, sidecar = pair
    content = bytearray(sidecar.read_bytes())
    content[70] ^= 4
    sidecar.write_bytes(content)
    with pytest.raises(ProvenanceError, match="checksum"):
        verify(data)


@pytest.mark.parametrize("rests", [True, False])
def test_verify_tells_a_writer_from_damage(pair, monkeypatch, rests):
    """It tries again, a few times."""
    data, sidecar = pair
    sidecar.unlink()
    monkeypatch.setattr(open_database, "TRIES_MAX", 3)
    committed = []

    def commit(done, total, stage):
        # Twice, so that the pages of the state being verified are overwritten.
        for i in range(6):
            if not rests or len(committed) < 6:
                committed.append(time.time())
                make(data, [3000 + i] * 300)

    if rests:
        assert verify(data, progress=commit).records == 400
        return
    with pytest.raises(lmdb.Error, match=r"\(3 times\): verify it when its writer rests"):
        verify(data, progress=commit)


def test_truncated_data_is_reported_with_the_file(pair):
    data, sidecar = pair
    sidecar.unlink()
    with data.open("r+b") as file:
        file.truncate(data.stat().st_size // 2)
    with pytest.raises(CorruptedError, match=str(data)):
        verify(data)
