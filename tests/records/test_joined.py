"""Goal: the records of several files are one sequence that does all that one file's do.

Method: the same calls on a list of all values and on the files joined; files of several formats
and sizes, one of them empty, one twice.
"""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

import lmdbio
from lmdbio import JoinedRecords, Records
from lmdbio.records.joined import open_records
from tests.support import databases

COUNTS = (40, 0, 7, 300)


def value(file: int, i: int) -> bytes:
    return b"%d/%05d " % (file, i) * (1 + 37 * i % 900)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("joined")
    made = []
    for file, count in enumerate(COUNTS):
        path = folder / str(file)
        version = databases.FORMATS[file % len(databases.FORMATS)]
        with databases.open_writable(path, version) as env:
            databases.write(env, [(b"%08d" % i, value(file, i)) for i in range(count)])
        made.append(path)
    return [*made, made[2]]


@pytest.fixture(scope="module")
def values() -> list[bytes]:
    files = [*enumerate(COUNTS), (2, COUNTS[2])]
    return [value(file, i) for file, count in files for i in range(count)]


def test_it_is_the_sequence_of_all(paths: list[Path], values: list[bytes]) -> None:
    with JoinedRecords(paths) as joined:
        assert len(joined) == len(values)
        assert list(joined) == values
        for i in (0, 39, 40, 46, 47, -1, -len(values)):
            assert joined[i] == values[i]
        for cut in (slice(0, 0), slice(30, 60), slice(46, 47), slice(None), slice(300, 2, -7),
                    slice(10, 5), slice(-3, None)):  # fmt: skip
            assert joined[cut] == values[cut], cut
        assert joined.key(45) == b"00000005"
        for bad in (len(values), -len(values) - 1):
            with pytest.raises(IndexError, match=str(len(values))):
                joined[bad]


@pytest.mark.parametrize("seed", range(5))
def test_batches_of_all_files_come_in_the_order_asked(
    paths: list[Path], values: list[bytes], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    with JoinedRecords(paths) as joined:
        wanted = [draw.integers(-len(values), len(values), draw.integers(0, 90)) for _ in range(8)]
        for indices, batch in zip(wanted, joined.batches(wanted), strict=True):
            expected = [values[i] for i in indices]
            assert list(map(bytes, batch)) == expected
            assert [bytes(batch[i]) for i in range(len(batch))] == expected
            assert batch.lengths.tolist() == list(map(len, expected))
            assert batch.indices.tolist() == [i % len(values) for i in indices.tolist()]
            assert list(joined.values(indices)) == expected
        read = joined.stats().records
    assert read == 2 * sum(map(len, wanted))
    assert [bytes(view) for view in batch] == expected, "it stays valid"


def test_a_batch_is_a_sequence(paths: list[Path], values: list[bytes]) -> None:
    with JoinedRecords(paths) as joined:
        batch = joined.read([0, 45, 46])
        assert bytes(batch[-1]) == values[46]
        assert list(map(bytes, batch[1:])) == values[45:47]
        assert len(joined.read([])) == 0
        for bad in (3, -4):
            with pytest.raises(IndexError):
                batch[bad]
        with pytest.raises(IndexError, match=str(len(values))):
            joined.read([0, len(values)])
        with pytest.raises(TypeError):
            joined.read([[1]])


def test_it_is_pickled_by_its_paths(
    paths: list[Path], values: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paths[0].parent)
    with JoinedRecords([path.name for path in paths]) as joined:
        told = pickle.dumps(joined)
    monkeypatch.chdir("/")
    with pickle.loads(told) as again:
        assert list(again) == values


def test_a_child_process_reads_it(paths: list[Path], values: list[bytes]) -> None:
    with JoinedRecords(paths) as joined:
        joined.read([1, 50])
        child = os.fork()
        if not child:
            os._exit(
                0 if [bytes(v) for v in joined.read([50, 1])] == [values[50], values[1]] else 1
            )
        assert os.waitpid(child, 0)[1] == 0


def test_the_budget_is_shared(paths: list[Path]) -> None:
    budgets = []
    with JoinedRecords(paths, memory_bytes_max=1 << 20) as joined:
        budgets = [part._state["memory_bytes_max"] for part in joined.parts]
    assert sum(budgets) <= 1 << 20


def test_nothing_stays_open_when_one_cannot_be(paths: list[Path], tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        JoinedRecords([*paths, tmp_path / "nowhere"])
    assert (len(list(Path("/proc/self/fd").iterdir())), threading.active_count()) == before


def test_what_was_closed_says_so(paths: list[Path]) -> None:
    joined = JoinedRecords(paths)
    joined.close()
    joined.close()
    with pytest.raises(lmdbio.Error, match="closed"):
        joined.read([0])


def test_paths_are_a_list_of_them(paths: list[Path]) -> None:
    with pytest.raises(ValueError, match="nothing to join"):
        JoinedRecords([])
    with pytest.raises(TypeError, match="several paths"):
        JoinedRecords(str(paths[0]))


def test_what_is_open_is_taken_as_it_is(paths: list[Path]) -> None:
    with open_records(paths[0]) as one, open_records(paths[:2], depth=2) as two:
        assert isinstance(one, Records) and isinstance(two, JoinedRecords)
        assert open_records(one) is one and open_records(two) is two
        with pytest.raises(ValueError, match="depth"):
            open_records(one, depth=2)
