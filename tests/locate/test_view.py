"""A glance at a database gives the records that py-lmdb gives, by few reads.

Method: every shape of database in both formats, against py-lmdb; a file whose pages lie a terabyte
apart; reads are counted; damage and a writer end in an error that names the file.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio.errors import CorruptedError, Error, ShortReadError
from lmdbio.locate import view
from lmdbio.locate.view import DatabaseView, Seen, viewing
from tests.support import databases, long_run
from tests.support.databases import CASES, FORMATS, build, content
from tests.support.far import spread_out


def value_of(one: DatabaseView, seen: Seen) -> bytes:
    return b"".join(one.pieces(seen))


def names_of(path: Path) -> list[bytes | None]:
    """The main database, where it has records of its own, and the named ones."""
    with viewing(path) as one:
        named = [name for name, _ in one.databases()]
    return [*named] if named else [None]


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_record_of_every_shape_is_come_by(
    case: databases.Case, version: int, tmp_path: Path
) -> None:
    path = build(case, tmp_path, version)
    for name in names_of(path):
        expected = content(path, name)
        with viewing(path, name) as one:
            found = [(seen.key, value_of(one, seen)) for seen in one.records()]
            assert found == expected
            for number in {0, len(expected) // 2, len(expected) - 1} & set(range(len(expected))):
                seen = one.at(number)
                assert (seen.key, value_of(one, seen)) == expected[number]
                keyed = [value_of(one, seen) for seen in one.find(seen.key)]
                assert keyed == [data for key, data in expected if key == seen.key]
            for beyond in (len(expected), 1 << 64):
                with pytest.raises(IndexError, match=str(path)):
                    one.at(beyond)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records_at_fractions_are_records_in_order(case: databases.Case, tmp_path: Path) -> None:
    path = build(case, tmp_path, 1)
    for name in names_of(path):
        expected = content(path, name)
        keys = list(dict.fromkeys(key for key, _ in expected))
        with viewing(path, name) as one:
            few = [seen.key for seen in one.spread((i + 0.5) / 7 for i in range(7))]
            places = [keys.index(key) for key in few]
            assert places == sorted(set(places))
            assert bool(few) == bool(keys)
            # The tree is as even as its leaves: of many, the first and the last quarter are met.
            if len(keys) > 500:
                assert places[0] < len(keys) / 4 and places[-1] > 3 * len(keys) / 4


@given(prefix=st.binary(max_size=4))
@settings(max_examples=long_run.cases(40))
def test_a_prefix_gives_those_that_begin_with_it(prefix: bytes, prefixed: Path) -> None:
    with viewing(prefixed) as one:
        found = [seen.key for seen in one.records(prefix)]
    assert found == [key for key, _ in content(prefixed) if key.startswith(prefix)]


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prefixed")
    draw = databases.random.Random(6)
    with lmdb.open(str(path)) as env, env.begin(write=True) as txn:
        for _ in range(400):
            txn.put(draw.randbytes(draw.randrange(1, 4)), b"")
    return path


def test_parts_of_a_value_are_its_bytes(tmp_path: Path) -> None:
    lengths = databases.threshold_lengths(1)
    with lmdb.open(str(tmp_path), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for length in lengths:
            txn.put(b"%08d" % length, databases.value("part", length))
    with viewing(tmp_path) as one:
        for seen in one.records():
            whole = databases.value("part", int(seen.key))
            assert seen.length == len(whole)
            excerpt = one.excerpt(seen, 100, 10)
            assert excerpt.head == whole[:100]
            assert excerpt.tail == whole[max(100, len(whole) - 10) :]


def test_keys_near_one_that_is_not_there_are_its_neighbours(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as txn:
        for key in (b"b", b"d", b"f"):
            txn.put(key, b"")
    with viewing(tmp_path) as one:
        assert one.near(b"e") == [b"d", b"f"]
        assert one.near(b"a") == [b"b"]
        assert one.near(b"z") == [b"f"]
        assert one.near(b"") == [b"b"]
        assert list(one.find(b"e")) == [] and list(one.find(b"")) == []


def test_few_reads_are_enough_where_pages_lie_a_terabyte_apart(tmp_path: Path) -> None:
    path = tmp_path / "far.mdb"
    expected = spread_out(path, records=3000, gap_bytes=1 << 30)
    assert path.stat().st_size > 1 << 40
    with viewing(path) as one:
        first = [(seen.key, value_of(one, seen)) for seen in islice(one.records(), 5)]
        assert first == expected[:5]
        requests = one.engine.counts().requests
        assert requests < 200
        spread = list(one.spread((i + 0.5) / 20 for i in range(20)))
        assert len(spread) == 20
        assert [value_of(one, seen) for seen in spread] == [
            dict(expected)[seen.key] for seen in spread
        ]
        middle = expected[len(expected) // 2]
        (seen,) = one.find(middle[0])
        assert value_of(one, seen) == middle[1]


# --- damage -------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One file of 300 records, half of them in overflow pages."""
    path = tmp_path / "data.mdb"
    with lmdb.open(str(path), subdir=False, map_size=1 << 24) as env:
        with env.begin(write=True) as txn:
            for index in range(300):
                txn.put(b"%08d" % index, databases.value(index, 5000 if index % 2 else 50))
    return path


def look_at_all(path: Path) -> None:
    with viewing(path) as one:
        for seen in one.records():
            value_of(one, seen)
        for seen in one.spread(i / 50 for i in range(50)):
            one.excerpt(seen, 10, 10)


@given(draw=st.data())
@settings(max_examples=long_run.cases(150))
def test_damage_is_an_error_or_goes_unseen_and_never_more(
    draw: st.DataObject, damaged: tuple[Path, bytes]
) -> None:
    path, whole = damaged
    content = bytearray(whole)
    for _ in range(draw.draw(st.integers(1, 8))):
        page = draw.draw(st.integers(0, len(whole) // 4096 - 1))
        at = 4096 * page + draw.draw(st.integers(0, 60))
        content[at] = draw.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        look_at_all(path)
    except (lmdb.Error, OSError) as error:
        assert str(path) in str(error)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("damaged") / "data.mdb"
    with lmdb.open(str(path), subdir=False, map_size=1 << 24) as env:
        with env.begin(write=True) as txn:
            for index in range(300):
                txn.put(b"%08d" % index, databases.value(index, 5000 if index % 8 == 0 else 50))
    return path, path.read_bytes()


def test_a_file_that_was_cut_is_called_so(data: Path) -> None:
    os.truncate(data, data.stat().st_size // 2)
    with pytest.raises((ShortReadError, CorruptedError), match=str(data)):
        look_at_all(data)


def test_a_writer_that_went_on_is_an_error(data: Path) -> None:
    with viewing(data) as one:
        seen = next(one.records())
        with lmdb.open(str(data), subdir=False, map_size=1 << 24) as env:
            for turn in range(3):
                with env.begin(write=True) as txn:
                    txn.put(b"new", b"%d" % turn)
        with pytest.raises(Error, match="changed while it was read"):
            list(one.pieces(seen))
            list(one.records())


def test_no_descriptor_is_kept(data: Path) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    for _ in range(5):
        look_at_all(data)
        with pytest.raises(LookupError):
            with viewing(data, "nothing"):
                pass
    assert opened() == before


def test_a_value_is_read_in_pieces(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "PIECE_BYTES", 1000)
    with viewing(data) as one:
        seen = one.at(1)
        pieces: list[Any] = list(one.pieces(seen))
        assert [len(piece) for piece in pieces] == [1000] * 5
        assert b"".join(pieces) == databases.value(1, 5000)
