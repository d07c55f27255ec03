"""A copy is compared with its source, key by key and value by value, before it has its name.

Method: single bits of copies are turned before they are compared; databases that differ in one
thing are told apart by it; small blocks and pieces, however the two sides are walked.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import given, strategies as st

from lmdbio import _core
from lmdbio.convert import comparison
from lmdbio.convert.census import count
from lmdbio.convert.compacting import compact
from lmdbio.convert.comparison import Side, difference
from lmdbio.errors import CorruptedError
from lmdbio.provenance import values
from lmdbio.provenance.values import Part
from lmdbio.system.publish import Draft
from tests.support.compacting import fragmented
from tests.support.databases import FORMATS, open_writable, records, value, write

LARGE = value(b"large", 3_000_000)  # is compared in pieces


def put_all_sorts(env: lmdb.Environment) -> None:
    """Every way in which LMDB keeps keys and values; there is room between them."""
    write(env, [(b"m%07d" % (2 * i), value(i, i * 40)) for i in range(200)])
    write(env, [(b"n", LARGE)])
    many = env.open_db(b"many", dupsort=True)
    write(env, [(b"k-few", b"few-%03d" % (2 * i)) for i in range(9)], db=many)
    write(env, [(b"k-lots", b"lots-%06d" % (2 * i)) for i in range(3000)], db=many)
    write(env, records(300, lambda i: i * 30, tail="p"), db=env.open_db(b"plain"))


def put_fixed(env: lmdb.Environment) -> None:
    """Put values of one size, which are copied record by record."""
    fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True)
    pairs = [(b"key-%d" % i, b"%d-%08d" % (i, 2 * n)) for i in range(3) for n in range(3000)]
    write(env, pairs, db=fixed)
    write(env, [(b"m%07d" % (2 * i), value(i, i * 40)) for i in range(200)])


@pytest.fixture(scope="module", params=FORMATS)
def sorts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sorts")
    for name, put in (("all", put_all_sorts), ("fixed", put_fixed)):
        with open_writable(folder / name, request.param) as env:
            put(env)
    return {name: folder / name for name in ("all", "fixed")}


def flip_in_copies(monkeypatch: pytest.MonkeyPatch, what: bytes) -> None:
    """The last bit of something is another one in what was written, wherever it stands."""
    sync = Draft.sync

    def damaged(self: Draft) -> None:
        sync(self)
        content = self.path.read_bytes()
        places = [found.end() - 1 for found in re.finditer(re.escape(what), content)]
        assert places
        for at in places:
            self.write(bytes([content[at] ^ 1]), at)

    monkeypatch.setattr(Draft, "sync", damaged)


FLIPPED = {
    "a key": ("all", b"m0000020", "key 10 (from 0) of the main database"),
    "a value on a leaf": ("all", value(20, 800), "value 20 (from 0) of the main database"),
    "a value on pages": ("all", value(199, 7960), "value 199 (from 0) of the main database"),
    "a large value": ("all", LARGE[-20:], "value 201 (from 0) of the main database"),
    "a piece": ("all", LARGE[1_234_547:1_234_567], "value 201 (from 0) of the main database"),
    "one of few": ("all", b"few-008", "value 4 (from 0) of database 'many'"),
    "one of many": ("all", b"lots-000500", "value 259 (from 0) of database 'many'"),
    "their key": ("all", b"k-lots", "key 1 (from 0) of database 'many'"),
    "a key of another": ("all", b"00000123p", "key 123 (from 0) of database 'plain'"),
    "a value of another": ("all", value(b"00000123p", 3690), "value 123 (from 0) of database"),
    "one that was put": ("fixed", b"1-00000500", "value 3250 (from 0) of database 'fixed'"),
    "the key of one": ("fixed", b"key-2", "key 2 (from 0) of database 'fixed'"),
    "a value beside": ("fixed", value(20, 800), "value 21 (from 0) of the main database"),
}


@pytest.mark.parametrize("case", FLIPPED)
def test_a_copy_in_which_one_bit_is_another_is_not_published(
    case: str, sorts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page is damaged by it, so that only the source tells."""
    name, what, where = FLIPPED[case]
    flip_in_copies(monkeypatch, what)
    with pytest.raises(CorruptedError, match="the copy differs from") as caught:
        compact(sorts[name], tmp_path / "target", convert=False)
    assert f" in {where}" in str(caught.value).replace(",", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", ["a key", "a value on a leaf", "a large value", "their key"])
def test_without_values_keys_alone_are_compared(
    case: str, sorts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, what, where = FLIPPED[case]
    flip_in_copies(monkeypatch, what)
    if where.startswith("value"):
        report = compact(sorts[name], tmp_path / "target", convert=False, values=False)
        assert not report.values_compared
        return
    with pytest.raises(CorruptedError, match="the copy differs from"):
        compact(sorts[name], tmp_path / "target", convert=False, values=False)
    assert list(tmp_path.iterdir()) == []


def differing(one: Path, other: Path, *, values: bool = True) -> str | None:
    """Return what ``compact`` would say if one were the copy of the other."""
    with _core.Engine(one / "data.mdb") as first, _core.Engine(other / "data.mdb") as second:
        sides = [
            Side(each, count(each, _core.read_meta(each), None, "")) for each in (first, second)
        ]
        return difference(*sides, values=values, progress=None, stage="")


def put_main(*pairs: tuple[bytes, bytes]) -> Callable[[lmdb.Environment], None]:
    return lambda env: write(env, pairs)


def put_named(
    name: bytes, *pairs: tuple[bytes, bytes], **flags: bool
) -> Callable[[lmdb.Environment], None]:
    return lambda env: write(env, pairs, db=env.open_db(name, **flags))


DIFFERENT = {
    "names": (put_named(b"a"), put_named(b"b"), "the names of databases"),
    "one more": (
        lambda env: (put_named(b"a")(env), put_named(b"b")(env)),
        put_named(b"a"),
        "the names of databases",
    ),
    "main": (
        lambda env: (put_named(b"a")(env), put_main((b"k", b""))(env)),
        put_named(b"a"),
        "whether the main database has records",
    ),
    "flags": (put_named(b"a"), put_named(b"a", reverse_key=True), "flags of database 'a'"),
    "more": (
        put_main((b"a", b""), (b"b", b"")),
        put_main((b"a", b"")),
        "the number of records of the main database",
    ),
    "none": (put_main(), put_main((b"a", b"")), "the number of records of the main database"),
    "lengths": (
        put_main((b"a", b"x"), (b"b", b"xy")),
        put_main((b"a", b"xy"), (b"b", b"x")),
        "the length of value 0 (from 0) of the main database",
    ),
    "a longer key": (
        put_main((b"a", b"bc"), (b"ab", b"")),
        put_main((b"a", b"bc"), (b"abc", b"")),
        "key 1 (from 0) of the main database",
    ),
    "another key's": (
        put_named(b"m", (b"a", b"1"), (b"a", b"2"), (b"b", b"3"), dupsort=True),
        put_named(b"m", (b"a", b"1"), (b"b", b"2"), (b"b", b"3"), dupsort=True),
        "the number of values of key 0 (from 0) of database 'm'",
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_is_told(case: str, tmp_path: Path) -> None:
    for name, put in zip(("one", "other"), DIFFERENT[case][:2], strict=True):
        with open_writable(tmp_path / name, 1) as env:
            put(env)
    told = DIFFERENT[case][2]
    one, other = tmp_path / "one", tmp_path / "other"
    assert [differing(*pair) for pair in ((one, other), (other, one))] == [told, told]
    assert differing(one, other, values=False) == told
    assert differing(one, one) is differing(other, other) is None


def test_data_formats_are_compared(tmp_path: Path) -> None:
    for version in FORMATS:
        open_writable(tmp_path / str(version), version).close()
    one, other = (tmp_path / str(version) for version in FORMATS)
    assert differing(one, other) == "data format or page size"


def duplicated(path: Path, version: int) -> Path:
    """Keys with few values, which lie on the keys' leaves, and with many, which do not."""
    with open_writable(path, version) as env:
        db = env.open_db(b"many", dupsort=True)
        for i in range(150):
            count = 60 if i % 7 == 3 else i % 4 + 1
            write(env, [(b"%08d" % i, b"%04d" % n * 25) for n in range(count)], db=db)
    return path


def walk_by(pages: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons walk files in folders of these names by so many pages at a time."""
    walk = comparison.walk

    def cut(engine: _core.Engine, meta: _core.Meta, db: _core.Database) -> Iterator[Part]:
        def short(*arguments: Any, **options: Any) -> _core.Walk:
            count = pages[Path(engine.path).parent.name]
            return _core.Walk(*arguments, **options, chunk_pages=count)

        parts = walk(engine, meta, db)
        while True:
            with monkeypatch.context() as patched:
                patched.setattr(values, "Walk", short)
                part = next(parts, None)
            if part is None:
                return
            yield part

    monkeypatch.setattr(comparison, "walk", cut)


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("kind", ["fragmented", "duplicated"])
def test_each_record_is_compared_however_they_are_read(
    kind: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks and pieces that are small, with walks that stop at other places on either side."""
    monkeypatch.setattr(comparison, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(comparison, "PIECE_BYTES", 700)
    source, other = tmp_path / "source", tmp_path / "other"
    name = None if kind == "fragmented" else b"many"
    if name is None:
        fragmented(source, version, count=300)
    else:
        duplicated(source, version)
    compact(source, other, convert=False, values=False)
    with _core.Engine(other / "data.mdb") as engine:
        meta = _core.read_meta(engine)
        db = meta.main_db if name is None else _core.find_database(engine, meta, name)
        extents = np.concatenate([part.extents for part in values.walk(engine, meta, db)])
    walk_by({"source": 3, "other": 1}, monkeypatch)
    assert differing(source, other) is differing(other, source) is None
    chance = random.Random(11)
    with (other / "data.mdb").open("r+b", buffering=0) as file:
        for number in chance.sample(range(len(extents)), 8):
            offset, length = extents[number].tolist()
            at = offset + chance.randrange(length)
            before = os.pread(file.fileno(), 1, at)
            os.pwrite(file.fileno(), bytes([before[0] ^ 128]), at)
            told = differing(source, other)
            assert told is not None
            assert told.startswith(f"value {number:,} (from 0) of ")
            os.pwrite(file.fileno(), before, at)
    assert differing(source, other) is None


def parts_of(length: int, draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[tuple[int, int]]:
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=4)))
    return list(pairwise([0, *cuts, length]))


@given(st.lists(st.binary(max_size=3), max_size=12), st.data())
def test_keys_are_compared_whatever_comes_first(keys: list[bytes], data: st.DataObject) -> None:
    other = list(keys)
    if keys:
        at = data.draw(st.integers(0, len(keys) - 1))
        other[at] += data.draw(st.sampled_from([b"", b"x"]))
    expected = next((i for i in range(len(keys)) if keys[i] != other[i]), None)
    coming = [(0, keys, part) for part in parts_of(len(keys), data.draw)]
    coming += [(1, other, part) for part in parts_of(len(keys), data.draw)]
    together, numbers = comparison._Keys(), comparison._Together(np.int64)
    found, seen = None, [np.empty(0, np.int64)] * 2
    # In any order but that of a side's own parts.
    for side in data.draw(st.permutations([side for side, _, _ in coming])):
        _, every, (begin, end) = coming.pop([one[0] for one in coming].index(side))
        pages, places = bytearray(), []
        for key in reversed(every[begin:end]):  # as they lie on a page
            places.append((len(pages) + 1, len(key)))
            pages += b"-" + key
        table = np.array(places[::-1], _core.EXTENT)
        if found is None:
            found = together.add(side, np.frombuffer(bytes(pages), np.uint8), table)
        given_now = numbers.add(side, np.arange(begin, end))
        seen = [np.concatenate(pair) for pair in zip(seen, given_now, strict=True)]
    assert found == expected
    assert [one.tolist() for one in seen] == [list(range(len(keys)))] * 2
    assert numbers.done == len(keys)
    assert not numbers.left


def test_large_values_are_compared_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_writable(tmp_path / "source", 1) as env:
        write(env, [(b"large", LARGE)])
    taken: list[int] = []
    take = _core.MemoryPool.take

    def noting(self: _core.MemoryPool, size: int) -> _core.Memory:
        taken.append(size)
        return take(self, size)

    monkeypatch.setattr(comparison, "BLOCK_BYTES", 100_000)
    monkeypatch.setattr(comparison, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(_core.MemoryPool, "take", noting)
    assert differing(tmp_path / "source", tmp_path / "source") is None
    assert sum(taken) > 2 * len(LARGE)
    assert max(taken) < 120_000
