"""Values by their places (glue/values.h): one object at a time, never a wrong one.

Goal: whatever order, sizes and gaps the places have, each value is what lies there; a file that is
cut or written to on the way raises, and what was not handed out comes again. Method: places all
over a small file, read through real engines, cut at chosen moments.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.errors import ShortReadError
from lmdbio.locate.open import open_record_index
from tests.support import databases

COUNT = 300
LENGTHS = (0, 1, 900, 3000, 5000, 31_000, 33_000, 100_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, databases.records(COUNT, lambda i: LENGTHS[i % len(LENGTHS)]))
    env.sync(True)
    env.close()
    return tmp_path / "env"


def extents(*places: tuple[int, int]) -> _core.Extents:
    return np.array(list(places), _core.EXTENT)


@pytest.fixture(params=["pread", "mmap"])
def reading(request: pytest.FixtureRequest, path: Path):
    """A way to read extents of the file, and its bytes."""
    with (
        open_record_index(path) as source,
        _core.Engine(path / "data.mdb", request.param) as engine,
    ):
        content = (path / "data.mdb").read_bytes()
        yield lambda places: source.values(engine, places), content


def test_places_in_any_order_with_any_gaps(reading) -> None:
    values, content = reading
    size = len(content)
    rng = np.random.default_rng(4)
    neighbours = [(at, 900) for at in range(0, 200_000, 1000)]
    apart = [(at, 900) for at in range(0, size - 900, 20_000)]
    scattered = [(int(at), 5000) for at in rng.integers(0, size - 5000, 50)]
    backwards = scattered[::-1]
    overlapping = [(at, 2000) for at in range(5000, 50_000, 500)]
    large = [(8, 40_000), (40_008, 100), (40_108, 200_000), (0, size), (size - 1, 1)]
    empty = [(0, 0), (size, 0), (7, 0), (8, 1), (9, 0), (9, 1)]
    for places in (neighbours, apart, scattered, backwards, overlapping, large, empty):
        assert list(values(extents(*places))) == [content[o : o + n] for o, n in places]
    assert list(values(extents())) == []


def test_a_place_beyond_the_end_is_refused_among_good_ones(reading) -> None:
    values, content = reading
    size = len(content)
    found = values(extents((size - 3000, 1000), (size - 2000, 1000), (size - 1000, 1001)))
    with pytest.raises(ShortReadError, match="wanted 3001 bytes"):
        next(found)
    found = values(extents((0, 40_000), (size - 40_000, 40_001)))
    assert next(found) == content[:40_000]
    for _ in range(2):  # what was not handed out comes again
        with pytest.raises(ShortReadError, match="wanted 40001 bytes"):
            next(found)


@pytest.mark.parametrize("surface", ["iteration", "slices"])
def test_a_file_cut_on_the_way_raises(path: Path, surface: str) -> None:
    """Nothing wrong before that; zeros of a cut page neither."""
    expected = [v for _, v in databases.records(COUNT, lambda i: LENGTHS[i % len(LENGTHS)])]
    size = (path / "data.mdb").stat().st_size
    with lmdbio.Records(path) as records:
        seen = []

        def read() -> None:
            parts = records if surface == "iteration" else slices()
            for value in parts:
                seen.append(value)
                if len(seen) == COUNT // 2:
                    os.truncate(path / "data.mdb", size // 4 + 100)

        def slices():
            for at in range(0, COUNT, 7):
                yield from records[at : at + 7]

        with pytest.raises((lmdbio.Error, OSError), match=r"data\.mdb"):
            read()
        assert seen == expected[: len(seen)]
        assert COUNT // 2 <= len(seen) < COUNT


def test_a_writer_that_moves_on_is_told(path: Path) -> None:
    with lmdbio.Records(path) as records:
        values = iter(records)
        next(values)
        env = databases.open_writable(path, 1)
        for turn in range(4):
            with env.begin(write=True) as txn:
                txn.put(b"%08d" % turn, b"changed" * 500)
        env.close()
        with pytest.raises(lmdbio.Error, match="changed while it was read"):
            list(values)


def test_records_are_counted_as_they_are_handed_out(path: Path) -> None:
    lengths = [LENGTHS[i % len(LENGTHS)] for i in range(COUNT)]
    with lmdbio.Records(path) as records:
        values = iter(records)
        for _ in range(100):
            next(values)
        del values
        gc.collect()
        assert records.stats().records == 100
        assert records.stats().record_bytes == sum(lengths[:100])
        assert len(records[0:COUNT]) == COUNT
        assert records.stats().records == 100 + COUNT


def test_memory_is_cut_inside_its_bounds(path: Path) -> None:
    with _core.Engine(path / "data.mdb", "pread") as engine:
        memory = _core.Memory(8192)
        with pytest.raises(ValueError, match="beyond its buffer"):
            _core.Values.of_memory(engine, memory, extents((0, 10), (8000, 193)))
        read = np.zeros(1, _core.READ)
        read["length"], read["needed"], read["into"] = 8192, 8192, memory.address
        with engine.submit(read, memory) as ticket:
            ticket.wait()
        content = (path / "data.mdb").read_bytes()
        places = [(0, 10), (100, 0), (50, 8000)]
        assert list(_core.Values.of_memory(engine, memory, extents(*places))) == [
            content[o : o + n] for o, n in places
        ]


def test_nothing_is_kept(path: Path) -> None:
    with open_record_index(path) as source, _core.Engine(path / "data.mdb", "pread") as engine:
        places = extents((0, 10), (20, 3000), (4000, 50_000))
        before = sys.getrefcount(places)
        for _ in range(200):
            values = source.values(engine, places)
            next(values), next(values)
        del values
        assert sys.getrefcount(places) == before


def test_those_that_are_left_are_taken_at_once(path: Path) -> None:
    with _core.Engine(path / "data.mdb", "pread") as engine:
        size = (path / "data.mdb").stat().st_size
        memory = _core.Memory(size)
        read = np.zeros(1, _core.READ)
        read["length"], read["needed"], read["into"] = size, size, memory.address
        with engine.submit(read, memory) as ticket:
            ticket.wait()
        content = (path / "data.mdb").read_bytes()
        rng = np.random.default_rng(6)
        begins = rng.integers(0, size - 9000, 500).tolist()
        places = [(at, int(rng.integers(0, 9000))) for at in begins]
        places += [(0, 0), (size, 0), (0, size)]
        wanted = [content[o : o + n] for o, n in places]
        before = engine.counts().records
        values = _core.Values.of_memory(engine, memory, extents(*places))
        first = [next(values) for _ in range(3)]
        assert first + values.take() == wanted
        assert values.take() == list(values) == []
        assert engine.counts().records - before == len(places)
        assert _core.Values.of_memory(engine, memory, extents()).take() == []


def test_what_was_cut_is_not_taken_and_comes_again(reading, path: Path) -> None:
    values, content = reading
    places = extents((0, 4000), (300_000, 4000))
    assert values(places).take() == [content[:4000], content[300_000:304_000]]
    os.truncate(path / "data.mdb", 200_000)
    over = values(places)
    for _ in range(2):
        with pytest.raises(lmdbio.Error, match=r"data\.mdb"):
            over.take()
    assert over.left == 1
