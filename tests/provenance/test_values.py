"""Databases with duplicates (csrc/items.h, lmdbio/provenance/values.py): every value is a record.

Goal: values are found in the order of LMDB's cursor, by number and by key, with a sidecar and
without one, and what is damaged is told. Method: databases made by py-lmdb, whose cursor is the
judge; damage done to single bytes.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio import _core, provenance
from lmdbio._core import Engine
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import Error, IncompatibleError
from lmdbio.provenance import Provenance
from lmdbio.provenance.frames import pack_numbers
from lmdbio.provenance.freshness import TreeDigest
from tests.support import databases, long_run

NAME = b"many"
KINDS: dict[str, dict[str, Any]] = {
    "varying": {"dupsort": True},
    "fixed": {"dupsort": True, "dupfixed": True},
    "integers": {"dupsort": True, "dupfixed": True, "integerdup": True},
    "reversed": {"dupsort": True, "reverse_key": True},
}
#: Keys, and values of one at most: none; one; inside its node; some in trees; trees of two levels.
SHAPES = [(0, 1), (1, 1), (200, 3), (60, 900), (900, 12), (2, 40_000)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def value(rng: random.Random, kind: str) -> bytes:
    if kind in ("fixed", "integers"):
        return struct.pack("=Q", rng.getrandbits(60))
    return rng.randbytes(rng.randrange(1, 60))


def make(
    folder: Path,
    kind: str,
    keys: int,
    most: int,
    version: int = 1,
    steps: tuple[int, ...] = (1, 7),
) -> list[tuple[bytes, bytes]]:
    """Two transactions, so that trees are changed too; the records as the cursor gives them."""
    rng = random.Random(f"{kind}/{keys}/{most}")
    env = databases.open_writable(folder, version)
    db = env.open_db(NAME, **KINDS[kind])
    for step in steps:
        with env.begin(write=True, db=db) as txn:
            for number in range(0, keys, step):
                for _ in range(rng.choice((1, rng.randint(1, most), most)) if step == 1 else 3):
                    txn.put(b"%06d" % number, value(rng, kind))
    with env.begin(db=db) as txn:
        found = [(bytes(key), bytes(data)) for key, data in txn.cursor()]
    env.close()
    return found


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("keys", "most"), SHAPES)
def test_every_value_is_a_record(
    tmp_path: Path, keys: int, most: int, kind: str, version: int
) -> None:
    found = make(tmp_path / "env", kind, keys, most, version)
    report = convert(tmp_path / "env")
    assert (report.records, report.databases) == (len(found), (NAME,))
    verified = verify(tmp_path / "env")
    assert (verified.sidecar_records, verified.duplicates) == (len(found), (NAME,))
    ranges, at = [], 0
    for _, some in itertools.groupby(found, key=lambda record: record[0]):
        ranges.append(range(at, at := at + len(list(some))))
    for locate in ("provenance", "scan"):
        recs = lmdbio.Records(tmp_path / "env", db=NAME, locate=locate)  # type: ignore[arg-type]
        assert list(recs) == [data for _, data in found]
        assert list(recs.groups) == ranges and len(recs.groups) == len(ranges)
        for group in ranges[:: max(1, len(ranges) // 40)]:
            key = found[group.start][0]
            assert recs.index_of(key) == group.start
            assert recs.key(group.start) == recs.key(group.stop - 1) == key
        some = random.Random(1).choices(range(len(found)), k=300) if found else []
        assert list(map(bytes, recs.read(some))) == [found[i][1] for i in some]
        with pytest.raises(KeyError):
            recs.index_of(b"none")


def make_unequal(folder: Path) -> list[bytes]:
    """Trees of one to three levels beside each other, in any order; all values in key order."""
    rng = random.Random(11)
    env = databases.open_writable(folder, 1)
    db = env.open_db(NAME, dupsort=True)
    with env.begin(write=True, db=db) as txn:
        for number in range(150):
            for _ in range(3000 if number in (40, 141) else rng.choice((1, 3, 12, 30, 300))):
                txn.put(b"%06d" % number, rng.randbytes(200))
        found = [bytes(data) for _, data in txn.cursor()]
    env.close()
    return found


def test_trees_of_unequal_depth(tmp_path: Path) -> None:
    """They are walked side by side, however the walk cuts chunks."""
    found = make_unequal(tmp_path / "env")
    convert(tmp_path / "env")
    for locate in ("provenance", "scan"):
        with lmdbio.Records(tmp_path / "env", db=NAME, locate=locate) as recs:  # type: ignore[arg-type]
            assert list(recs) == found
    verify(tmp_path / "env")
    with Engine(tmp_path / "env" / "data.mdb") as engine:
        meta = _core.read_meta(engine)
        db, digests, orders, depths = _core.find_database(engine, meta, NAME), set(), set(), set()
        with _core.Walk(engine, meta, db) as walk:
            trees = [
                _core.leaf_items(meta.layout, chunk, engine.path).trees
                for chunk in walk
                if chunk.leaf
            ]
        for chunk_pages in (0, 1, 2, 3, 7, 100):
            digest, order = TreeDigest(), []
            for some in trees:
                with _core.Walk(engine, meta, some, chunk_pages) as walk:
                    for chunk in walk:
                        depths.add(chunk.height + 1)
                        digest.add(dataclasses.replace(chunk, level=-chunk.height))
                        if chunk.leaf:
                            order += zip(chunk.trees.tolist(), chunk.pgnos.tolist(), strict=True)
            digests.add(digest.finish(NAME, db))
            orders.add(tuple(order))
    assert len(digests) == len(orders) == 1 and depths == {1, 2, 3}


def repoint(data: Path, change: Callable[[bytearray, int, list[int]], None]) -> None:
    """Changes each record of a tree of duplicates: its bytes, where it is, all such places.

    Of one transaction, after which no leaf is left that is of no tree.
    """
    content = bytearray(data.read_bytes())
    places = []
    for at in range(2 * 4096, len(content), 4096):
        if struct.unpack_from("<H", content, at + 10)[0] != 0x02:  # a leaf
            continue
        for i in range((struct.unpack_from("<H", content, at + 12)[0] - 16) // 2):
            node = at + struct.unpack_from("<H", content, at + 16 + 2 * i)[0]
            flags, key_size = struct.unpack_from("<HH", content, node + 4)
            if flags == 0x02 | 0x04:
                places.append(node + 8 + key_size)
    assert len(places) > 4
    for place in places:
        change(content, place, places)
    data.write_bytes(content)


def all_to_one(content: bytearray, place: int, places: list[int]) -> None:
    content[place : place + 48] = content[places[0] : places[0] + 48]


def one_too_few(content: bytearray, place: int, places: list[int]) -> None:
    entries = struct.unpack_from("<Q", content, place + 32)[0]
    struct.pack_into("<Q", content, place + 32, entries - (place == places[2]))


def one_for_another(content: bytearray, place: int, places: list[int]) -> None:
    """The sum stays right."""
    change = (place == places[2]) - (place == places[3])
    entries = struct.unpack_from("<Q", content, place + 32)[0]
    struct.pack_into("<Q", content, place + 32, entries + change)


def endless(content: bytearray, place: int, _: list[int]) -> None:
    struct.pack_into("<Q", content, place + 32, 1 << 63)


def many_of_many(content: bytearray, place: int, _: list[int]) -> None:
    struct.pack_into("<H", content, place + 4, 0x04)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (all_to_one, "is reached twice"),
        (one_too_few, "the leaves hold"),
        (one_for_another, "the leaves hold"),
        (endless, "keys with more values than the"),
        (many_of_many, "says that its values have many, too"),
    ],
)
def test_forged_trees(tmp_path: Path, change: Any, reason: str) -> None:
    make(tmp_path / "env", "varying", 60, 900, steps=(1,))
    repoint(tmp_path / "env" / "data.mdb", change)
    with pytest.raises(Error, match=reason):
        convert(tmp_path / "env")
    with pytest.raises(Error, match=reason):
        lmdbio.Records(tmp_path / "env", db=NAME, locate="scan")


def test_a_tree_that_is_the_keys_own(tmp_path: Path) -> None:
    """No page is met twice, in whichever of the trees."""

    def to_the_root(content: bytearray, place: int, places: list[int]) -> None:
        if place == places[0]:
            struct.pack_into("<Q", content, place + 40, root)

    make(tmp_path / "env", "varying", 60, 900, steps=(1,))
    data = tmp_path / "env" / "data.mdb"
    with Engine(data) as engine:
        root = _core.find_database(engine, _core.read_meta(engine), NAME).root
    repoint(data, to_the_root)
    with pytest.raises(Error, match=f"page {root} is reached twice"):
        convert(tmp_path / "env")


def test_a_reader_takes_them_too(tmp_path: Path) -> None:
    found = make(tmp_path / "env", "fixed", 60, 900)
    convert(tmp_path / "env")
    count = 0
    with lmdbio.Reader(tmp_path / "env", 100, db=NAME, iterations=30) as reader:
        for batch in reader:
            assert list(map(bytes, batch)) == [data for _, data in found[count : count + 100]]
            count += 100


def test_groups_of_others_have_one_record(tmp_path: Path) -> None:
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%d" % i, b"%d" % i) for i in range(30)))
    env.close()
    recs = lmdbio.Records(tmp_path / "env")
    assert list(recs.groups) == [range(i, i + 1) for i in range(30)]
    by_number = lmdbio.Records(tmp_path / "env", order="insertion")
    for number, group in enumerate(by_number.groups):
        assert [by_number[i] for i in group] == [recs[number]]
    assert recs.groups[-1] == range(29, 30) and recs.groups[2:4] == [range(2, 3), range(3, 4)]
    with pytest.raises(IndexError):
        recs.groups[30]


def test_their_order_is_not_that_of_putting(tmp_path: Path) -> None:
    make(tmp_path / "env", "fixed", 30, 3)
    with pytest.raises(IncompatibleError, match="keys may have many"):
        lmdbio.Records(tmp_path / "env", db=NAME, order="insertion")


@pytest.mark.parametrize("form", ["replay", "leaves", "runs"])
def test_other_forms_cannot_tell_them(tmp_path: Path, form: Any) -> None:
    make(tmp_path / "env", "varying", 60, 900)
    with pytest.raises(IncompatibleError):
        convert(tmp_path / "env", form=form)


def test_a_change_inside_a_tree_is_noticed(tmp_path: Path) -> None:
    """The deep check hashes the pages of duplicates too."""
    found = make(tmp_path / "env", "varying", 3, 900)
    convert(tmp_path / "env")
    data = tmp_path / "env" / "data.mdb"
    content = bytearray(data.read_bytes())
    at = content.rfind(max((record for _, record in found), key=len))
    content[at] ^= 1
    data.write_bytes(content)
    with pytest.warns(UserWarning, match="digest of the branch and leaf pages"):
        recs = lmdbio.Records(tmp_path / "env", db=NAME)
    assert recs.located_by == "scan"


@pytest.mark.parametrize("kind", ["varying", "fixed"])
def test_damage_is_told(tmp_path: Path, kind: str) -> None:
    """Any changed byte of the tree gives an error, or records that lie in the file."""
    found = make(tmp_path / "env", kind, 12, 700)
    data = tmp_path / "env" / "data.mdb"
    whole = data.read_bytes()
    rng = random.Random(5)
    told, cases = 0, long_run.cases(400)
    for _ in range(cases):
        content = bytearray(whole)
        page = rng.randrange(2, len(whole) // 4096)
        # Headers and tables more often than values.
        content[page * 4096 + rng.choice((rng.randrange(24), rng.randrange(4096)))] ^= 1 << (
            rng.randrange(8)
        )
        data.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                recs = lmdbio.Records(tmp_path / "env", db=NAME, locate="scan")
                assert len(list(recs)) == len(found)
            except (Error, LookupError, OSError):
                told += 1
    assert told > cases // 20


def test_counts_lie_where_they_are_checked(tmp_path: Path) -> None:
    make(tmp_path / "env", "fixed", 9000, 2)
    convert(tmp_path / "env")
    sidecar = provenance.sidecar_file(tmp_path / "env" / "data.mdb")
    with Provenance.open(sidecar) as opened:
        section = opened.section(NAME)
        each = section.each_key()
        assert len(each) == 9000 and int(each.sum()) == section.count
    content = bytearray(sidecar.read_bytes())
    with Provenance.open(sidecar) as opened:
        at = int(opened.section(NAME)._offsets[-1])
    content[at + 20] ^= 1
    sidecar.write_bytes(content)
    recs = lmdbio.Records(tmp_path / "env", db=NAME, locate="provenance")
    assert len(recs[5]) == 8
    with pytest.raises(
        lmdbio.ProvenanceError, match="block 0 of keys of database 'many' fails its checksum"
    ):
        recs.groups[0]
    # A caller that did not ask for the provenance file gets them from the tree.
    walked = lmdbio.Records(tmp_path / "env", db=NAME)
    ends = np.cumsum(each).tolist()
    assert list(walked.groups) == list(map(range, [0, *ends[:-1]], ends))


def test_values_of_one_byte(tmp_path: Path) -> None:
    """Their count on a page (LMDB counts by a table that is not there) is larger than they are."""
    with lmdb.open(str(tmp_path), map_size=1 << 24, max_dbs=1) as env:
        db = env.open_db(NAME, dupsort=True, dupfixed=True)
        with env.begin(write=True, db=db) as txn:
            for i in range(20):
                txn.put(b"few", bytes([i]))
            for i in range(256):
                txn.put(b"many", bytes([i]))
    convert(tmp_path)
    verify(tmp_path)
    expected = [bytes([i]) for i in [*range(20), *range(256)]]
    with lmdbio.Records(tmp_path, db=NAME) as records:
        assert list(records) == expected


def test_trees_that_came_and_went(tmp_path: Path) -> None:
    """Of trees of duplicates that are emptied LMDB leaves branch pages in the database's sum."""
    with lmdb.open(str(tmp_path), map_size=1 << 26, max_dbs=1) as env:
        db = env.open_db(NAME, dupsort=True)
        for _ in range(40):
            with env.begin(write=True, db=db) as txn:
                for i in range(400):
                    txn.put(b"k", b"%0200d" % i)
            with env.begin(write=True, db=db) as txn:
                txn.delete(b"k")
        with env.begin(write=True, db=db) as txn:
            txn.put(b"k", b"v")
            stat = txn.stat(db)
        assert stat["branch_pages"] + stat["leaf_pages"] > env.info()["last_pgno"] + 1
    convert(tmp_path)
    verify(tmp_path)
    with lmdbio.Records(tmp_path, db=NAME) as records:
        assert list(records) == [b"v"]


@pytest.mark.parametrize("flags", [0x04 | 0x01, 0x04 | 0x02 | 0x01])
def test_duplicates_that_claim_to_be_a_large_value(tmp_path: Path, flags: int) -> None:
    """Nothing is read beyond the page, of which a large value's place alone was checked."""
    with lmdb.open(str(tmp_path), map_size=1 << 24, max_dbs=1) as env:
        db = env.open_db(NAME, dupsort=True)
        with env.begin(write=True, db=db) as txn:
            for i in range(3):
                txn.put(b"a", b"%04d" % i)
    data = tmp_path / "data.mdb"
    raw = bytearray(data.read_bytes())
    for at in range(2 * 4096, len(raw), 4096):
        node = at + struct.unpack_from("<H", raw, at + 16)[0]
        if struct.unpack_from("<H", raw, at + 10)[0] & 2 and raw[node + 4] & 0x04:
            struct.pack_into("<H", raw, at + 16, 4096 - 18)
            size = 48 if flags & 0x02 else 1 << 30
            struct.pack_into("<IHHc", raw, at + 4096 - 18, size, flags, 1, b"a")
    data.write_bytes(raw)
    with pytest.raises(Error, match="large value"):
        convert(tmp_path)
    with (
        lmdbio.open(str(tmp_path), readonly=True, lock=False, max_dbs=1) as env,
        env.begin(db=env.open_db(NAME)) as txn,
        pytest.raises(Error, match="large value"),
    ):
        list(txn.cursor())


def test_counts_that_do_not_read_back_are_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many in all, of as many keys: what is written is compared with what was walked."""
    make(tmp_path / "env", "fixed", 60, 30)
    written: list[int] = []

    def turned(numbers: Any) -> bytes:
        written.append(len(numbers))
        return pack_numbers(numbers[::-1])

    monkeypatch.setattr("lmdbio.provenance.writer.pack_numbers", turned)
    with pytest.raises(lmdbio.ProvenanceError, match="does not read back as walked"):
        convert(tmp_path / "env")
    assert written == [60]
    assert not provenance.sidecar_file(tmp_path / "env" / "data.mdb").exists()


def small(folder: Path, values: int) -> bytearray:
    """One key with so many values."""
    with lmdb.open(str(folder), map_size=1 << 24, max_dbs=1) as env:
        db = env.open_db(NAME, dupsort=True)
        with env.begin(write=True, db=db) as txn:
            for i in range(values):
                txn.put(b"key", b"%04d" % i)
    return bytearray((folder / "data.mdb").read_bytes())


def test_items_that_are_fewer_than_recorded_are_told(tmp_path: Path) -> None:
    raw = small(tmp_path, 3)
    at = 0
    while (at := raw.find(NAME, at)) >= 0:  # the record, in each state of the main database
        entries = at + len(NAME) + 32
        if struct.unpack_from("<Q", raw, entries) == (3,):
            struct.pack_into("<Q", raw, entries, 4)
        at += 1
    (tmp_path / "data.mdb").write_bytes(raw)
    with pytest.raises(lmdb.CorruptedError, match="has 3 items, its record says 4"):
        lmdbio.Records(tmp_path, db=NAME, locate="scan")


@pytest.mark.parametrize("values", [3, 1000])
def test_a_key_without_a_value_is_told(tmp_path: Path, values: int) -> None:
    """Its page of duplicates is empty; or the record of its tree has none."""
    raw = small(tmp_path, values)
    at = raw.rfind(b"key") + 3
    if values == 3:
        struct.pack_into("<H", raw, at + 12, 16)
    else:
        assert struct.unpack_from("<Q", raw, at + 32) == (1000,)
        struct.pack_into("<Q", raw, at + 32, 0)
    (tmp_path / "data.mdb").write_bytes(raw)
    for call in (convert, lambda path: lmdbio.Records(path, db=NAME, locate="scan")):
        with pytest.raises(lmdb.CorruptedError, match="a key has no value"):
            call(tmp_path)
