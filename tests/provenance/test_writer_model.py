"""Histories found out (lmdbio/provenance/writer_model.py), and sidecars that hold nothing else.

Goal: databases put to in key order are recognised, whatever their commits, sizes, formats and
names; what is written down leads to every record; of all others it is said why not, and their
sidecars hold tables as before. Method: databases made by py-lmdb, converted, and compared with a
walk of the file.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import IncompatibleError, ProvenanceError
from lmdbio.locate.open import open_record_index
from lmdbio.provenance import BLOCKS_AT, Provenance, writer_model
from lmdbio.provenance.directory import pack_directory, pack_preamble
from lmdbio.provenance.frames import compress
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.writer import Writer
from lmdbio.provenance.writer_model import Evidence, find_history
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.publish import Draft
from tests.support import databases, histories


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make(
    folder: Path,
    count: int,
    length: int,
    *,
    every: int,
    version: int = 1,
    name: bytes | None = None,
    apart: bool = False,
    append: bool = False,
) -> Path:
    """Values of one length under keys of eight digits."""
    env = databases.open_writable(folder, version, max_dbs=2 if name else 0)
    db = env.open_db(name) if name and apart else None
    for first in range(0, count, every):
        with env.begin(write=True) as txn:
            if name and db is None:
                db = env.open_db(name, txn=txn)
            part = range(first, min(first + every, count))
            items = [(b"%08d" % i, databases.value(i, length)) for i in part]
            txn.cursor(db).putmulti(items, append=append)
    env.close()
    return folder


def scanned(path: Path, name: bytes | None = None) -> tuple[_core.Extents, _core.Meta]:
    with open_record_index(path, db=name, locate="scan") as source:
        return source.run(0, source.count).copy(), source.meta


WAYS = [
    (1000, 3000, {"every": 1000}),
    (5000, 3000, {"every": 1000}),
    (5000, 3000, {"every": 700, "append": True}),
    (5000, 20_000, {"every": 100, "version": 3}),
    (400, 3000, {"every": 1}),
    (5000, 100, {"every": 1000}),
    (5000, 100, {"every": 997, "version": 3}),
    (3000, 0, {"every": 10**6}),
    (3000, 2038, {"every": 128, "append": True}),
    (2000, 3000, {"every": 300, "name": b"train"}),
    (2000, 3000, {"every": 300, "name": b"train", "apart": True}),
    (2000, 500, {"every": 300, "name": b"train", "apart": True, "version": 3}),
]


@pytest.mark.parametrize(("count", "length", "way"), WAYS)
def test_a_history_is_found_and_leads_to_every_record(
    tmp_path: Path, count: int, length: int, way: dict
) -> None:
    path = make(tmp_path / "env", count, length, **way)
    name = way.get("name")
    extents, meta = scanned(path, name)
    found, reason = find_history(Evidence(meta, extents, 8, name is not None))
    assert found is not None, reason
    assert found.length == length
    replayed = _core.replay(found)
    assert replayed.extents is not None and np.array_equal(replayed.extents, extents)
    assert replayed.txnid == meta.txnid

    report = convert(path)
    assert (report.replayed, report.blocks_runs, report.blocks_explicit) == (1, 0, 0)
    assert report.sidecar_bytes < 512
    with Provenance.open(report.sidecar) as opened:
        section = opened.section(name)
        assert section.history == found
        assert np.array_equal(section.extents(), extents)
        some = random.Random(1).choices(range(count), k=50)
        assert np.array_equal(section.locate(some), extents[some])
        part = slice(count // 3, count // 2)
        assert np.array_equal(section.extents(part.start, part.stop), extents[part])
    with lmdbio.Records(path, db=name, locate="provenance") as records:
        assert records[count - 1] == databases.value(count - 1, length)
        assert [bytes(v) for v in records.read([5, 0, 7])] == [
            databases.value(i, length) for i in (5, 0, 7)
        ]
    assert verify(path).sidecar_records == count


@pytest.mark.parametrize("version", [1, 3])
def test_random_databases_are_converted_by_either_way(tmp_path: Path, version: int) -> None:
    """Shuffled, of varying sizes, with keys of all kinds: the sidecar is exact all the same."""
    for turn in range(20):
        rng = random.Random(f"{turn}/{version}")
        made = histories.make(rng, tmp_path / str(turn), version)
        report = convert(tmp_path / str(turn))
        with Provenance.open(report.sidecar) as opened, _core.Engine(report.data) as engine:
            opened.attach(LeafReader(engine, opened.facts.layout))
            assert np.array_equal(opened.sections[0].extents(), made.expected), made.told


def test_one_record_elsewhere_is_enough(tmp_path: Path) -> None:
    extents, meta = scanned(make(tmp_path / "env", 5000, 3000, every=1000))
    assert find_history(Evidence(meta, extents, 8, False))[0] is not None
    for at in (0, 2500, 4999):
        other = extents.copy()
        other["offset"][at] += np.uint64(4096)
        found, reason = find_history(Evidence(meta, other, 8, False))
        assert found is None and "layout" in reason


def test_what_was_not_only_put_to_has_none(tmp_path: Path) -> None:
    path = make(tmp_path / "env", 2000, 3000, every=100)
    env = databases.open_writable(path, 1)
    with env.begin(write=True) as txn:
        txn.put(b"%08d" % 77, databases.value(77, 3000))
    env.close()
    report = convert(path)
    assert (report.replayed, report.blocks_runs) == (0, 1)
    extents, _ = scanned(path)
    with Provenance.open(report.sidecar) as opened:
        assert np.array_equal(opened.section().extents(), extents)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"key_size": None}, "keys of different lengths"),
        ({"extents": np.array([(8208, 10), (8308, 11)], _core.EXTENT)}, "values of different"),
        ({"extents": np.empty(0, _core.EXTENT)}, "0 records"),
    ],
)
def test_why_there_is_none_is_said(tmp_path: Path, change: dict, reason: str) -> None:
    extents, meta = scanned(make(tmp_path / "env", 10, 3000, every=10))
    given = {"meta": meta, "extents": extents, "key_size": 8, "named": False} | change
    found, why = find_history(Evidence(**given))
    assert found is None and reason in why


def test_large_databases_are_not_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "env", 300, 3000, every=100)
    monkeypatch.setattr("lmdbio.convert.database_walk.RECORDS_MAX", 299)
    monkeypatch.setattr(writer_model, "RECORDS_MAX", 299)
    report = convert(path)
    assert (report.replayed, report.blocks_runs) == (0, 1)
    assert report.sidecar_bytes == report.sidecar.stat().st_size


@pytest.mark.parametrize(
    "way",
    [
        {"version": 1, "page_size": 32768, "count": 3000, "commit_every": 500, "length": 0},
        {"version": 1, "page_size": 256, "count": 300, "commit_every": 1, "length": 8},
        {"version": 3, "page_size": 8192, "count": 300, "commit_every": 1, "length": 273},
    ],
)
def test_leaves_that_lie_alike_by_chance_hide_no_commit(way: dict[str, int]) -> None:
    """After the first commit too, records lie where one long transaction would have put them."""
    replayed = _core.replay(_core.History(**way, key_size=8))  # type: ignore[arg-type]
    single = _core.History(**(way | {"commit_every": way["count"]}), key_size=8)  # type: ignore[arg-type]
    assert _core.replay(single, expected=replayed.extents).right > way["commit_every"]
    layout = _core.Layout(
        way["version"],
        way["page_size"],
        16 if way["version"] == 1 else 24,
        0,
        replayed.last_pgno + 1,
    )
    meta = _core.Meta(
        layout,
        replayed.free_db,
        replayed.main_db,
        1 << 30,
        replayed.last_pgno,
        replayed.txnid,
        0,
    )
    assert replayed.extents is not None
    found, reason = find_history(Evidence(meta, replayed.extents, 8, False))
    assert found is not None, reason
    assert np.array_equal(_core.replay(found).extents, replayed.extents)


def test_an_imagenet_of_one_size_takes_less_than_a_kilobyte(tmp_path: Path) -> None:
    """Its layout is computed: the file would have 252 GB."""
    way = {"version": 1, "page_size": 4096, "count": 1_281_167, "commit_every": 1000}
    made = _core.History(**way, key_size=8, length=196_608)  # type: ignore[arg-type]
    replayed = _core.replay(made)
    assert replayed.extents is not None
    layout = _core.Layout(1, 4096, 16, 0, replayed.last_pgno + 1)
    last, txnid = replayed.last_pgno, replayed.txnid
    meta = _core.Meta(layout, replayed.free_db, replayed.main_db, 1 << 40, last, txnid, 0)
    found, _ = find_history(Evidence(meta, replayed.extents, 8, False))
    assert found == made
    with Draft(tmp_path / "x.prov") as draft:
        writer = Writer(draft, layout)
        writer.begin(None, meta.main_db)
        writer.replay(found, [replayed.extents])
        size = writer.finish(meta, FileIdentity(1, 2, 3, 4, bytes(range(16))), bytes(range(32)))
        draft.publish(True)
    assert size <= 1024
    with Provenance.open(tmp_path / "x.prov") as opened:
        assert np.array_equal(opened.section().extents(), replayed.extents)


FORMS = ("replay", "runs", "leaves", "explicit")


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize(
    ("length", "shuffled", "can"),
    [
        (3000, False, FORMS),
        (100, False, ("replay", "leaves", "explicit")),
        (3000, True, ("runs", "leaves", "explicit")),
        (100, True, ("leaves", "explicit")),
    ],
)
def test_every_form_is_exact_or_refused(
    tmp_path: Path, version: int, length: int, shuffled: bool, can: tuple[str, ...]
) -> None:
    count, path = 3000, tmp_path / "env"
    order = list(range(count))
    if shuffled:
        random.Random(5).shuffle(order)
    env = databases.open_writable(path, version)
    items = ((b"%08d" % i, databases.value(i, length)) for i in order)
    databases.write(env, items, commit_every=250)
    env.close()
    extents, _ = scanned(path)
    sizes = {}
    for form in FORMS:
        if form not in can:
            with pytest.raises(IncompatibleError, match=r"data\.mdb") as caught:
                convert(path, form=form)
            assert any(word in str(caught.value) for word in ("form=", "form runs describes"))
            continue
        report = convert(path, form=form)
        sizes[form] = report.sidecar_bytes
        held = report.replayed, report.blocks_runs, report.blocks_leaves, report.blocks_explicit
        assert [kind for kind, held in zip(FORMS, held, strict=True) if held] == [form]
        with open_record_index(path, locate="provenance") as source:
            assert np.array_equal(source.run(0, count), extents)
        assert verify(path).sidecar_records == count
    chosen = convert(path).sidecar_bytes
    assert chosen <= min(sizes.values()) + 4096 and chosen in sizes.values()


def test_a_form_that_is_none_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "env", 10, 3000, every=10)
    with pytest.raises(ValueError, match="replay, runs, leaves, explicit"):
        convert(path, form="tiny")  # type: ignore[arg-type]


def test_a_search_in_vain_ends(tmp_path: Path) -> None:
    """Few transactions of unequal size: every interval would be a replay of all records."""
    env = databases.open_writable(tmp_path / "env", 1)
    for part in (range(90_000), range(90_000, 100_000), range(100_000, 200_000)):
        with env.begin(write=True) as txn:
            txn.cursor().putmulti([(b"%08d" % i, b"12345678") for i in part])
    env.close()
    extents, meta = scanned(tmp_path / "env")
    replayed = []
    original = _core.replay

    def counted(made: _core.History, **more: object) -> _core.Replayed:
        replayed.append(made.count)
        return original(made, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_core, "replay", counted)
        assert find_history(Evidence(meta, extents, 8, False))[0] is None
    assert sum(replayed) <= writer_model.WORK_MIN + writer_model.WORK * len(extents)


def test_a_history_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """A replay is held to a checksum of what was walked; transactions are counted
    before it costs anything.
    """
    path = make(tmp_path / "env", 3000, 400, every=100)
    sidecar = convert(path).sidecar
    with Provenance.open(sidecar) as opened:
        facts, entry = opened.facts, opened.section()._entry
    assert entry.history is not None
    for change, reason in (
        ({"commit_every": 101}, "other records"),
        ({"append": True}, "other records"),
        ({"commit_every": 99}, "other transactions"),
        ({"commit_every": 3000}, "other transactions"),
    ):
        entry.history = dataclasses.replace(convert_history(path), **change)
        raw = pack_directory(facts, [entry])
        stored = compress(raw)
        head = pack_preamble(BLOCKS_AT, stored, len(raw))
        sidecar.write_bytes(head + stored)
        with pytest.raises(ProvenanceError, match=reason):
            lmdbio.Records(path, locate="provenance", check="always")[7]


def convert_history(path: Path) -> _core.History:
    extents, meta = scanned(path)
    found, reason = find_history(Evidence(meta, extents, 8, False))
    assert found is not None, reason
    return found
