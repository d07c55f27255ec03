"""Loaders with caches: the same samples as without one, and from where they come.

Goal: whatever processes keep, each of their batches is that of a Loader without a cache; with
``assignment="local"`` each step's samples of all of them are, in shares as large, and most come
from what a process keeps. A state goes on with and without a cache, with other ranks. A part that
is kept is read once.

Method: ranks are Loaders with ``rank=`` of one process; grains of small files are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio.machine import budget
from lmdbio.placement import homes
from lmdbio.torch import Loader, process_cache
from tests.support import databases

COUNT, GRAIN = 301, 4096
CACHE = "memory=64M"


def value(i: int) -> bytes:
    return b"%06d" % i * (1 + i * 83 % 700)


def number(data: bytes) -> int:
    i = int(bytes(data[:6]))
    assert bytes(data) == value(i)
    return i


def write(path: Path, numbers: Sequence[int]) -> Path:
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, value(i)) for i in numbers])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("kept") / "db", range(COUNT))


@pytest.fixture(autouse=True)
def small_grains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "GRAIN_BYTES_MIN", GRAIN)
    monkeypatch.setattr(homes, "HOME_GRAINS_MIN", 2**20)


def batches_of(path: Any, ranks: int, epochs: int = 2, **words: Any) -> list[list[list[int]]]:
    """Return for each rank its batches of all epochs."""
    words = {"batch_size": 8, "shuffle": True, "seed": 4, **words}
    found = []
    for rank in range(ranks):
        loader = Loader(
            path, transform=number, collate_fn=list, rank=rank, ranks=ranks, threads=2, **words
        )
        with loader:
            found.append([batch for _ in range(epochs) for batch in loader])
    return found


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("words", [
    {}, {"shuffle": False}, {"drop_last": True}, {"even": False}, {"buffers": True},
    {"even": False, "drop_last": True, "shuffle": False}, {"batch_size": 70}, {"batch_size": 400},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("cache", [CACHE, "memory=100K", CACHE + ",warm=preload"])
def test_batches_are_those_without_a_cache(
    folder: Path, ranks: int, words: dict[str, Any], cache: str
) -> None:
    plain = batches_of(folder, ranks, **words)
    assert batches_of(folder, ranks, cache=cache, **words) == plain


@pytest.mark.parametrize("ranks", [1, 2, 5, 16])
@pytest.mark.parametrize("words", [
    {}, {"shuffle": False}, {"drop_last": True}, {"even": False}, {"buffers": True},
    {"batch_size": 70}, {"batch_size": 70, "even": False}, {"batch_size": 400},
], ids=str)  # fmt: skip
def test_local_steps_are_those_of_strided_ones_in_shares_as_large(
    folder: Path, ranks: int, words: dict[str, Any]
) -> None:
    plain = batches_of(folder, ranks, **words)
    local = batches_of(folder, ranks, cache=CACHE, assignment="local", **words)
    for rank in range(ranks):
        assert list(map(len, local[rank])) == list(map(len, plain[rank]))
    for step in range(max(map(len, plain))):
        there = [
            sorted(i for one in found if step < len(one) for i in one[step])
            for found in (plain, local)
        ]
        assert there[0] == there[1]
        sizes = [len(one[step]) for one in local if step < len(one)]
        assert max(sizes) - min(sizes) <= 1
    if ranks == 1:
        assert local == plain


def test_in_a_local_epoch_without_padding_each_sample_comes_once(folder: Path) -> None:
    local = batches_of(folder, 4, 1, cache=CACHE, assignment="local", even=False)
    assert sorted(i for rank in local for batch in rank for i in batch) == list(range(COUNT))


def test_local_ranks_read_only_the_balance_from_the_file(folder: Path) -> None:
    shares = {}
    for assignment in ("strided", "local"):
        with Loader(
            folder, 16, shuffle=True, cache=CACHE, assignment=assignment, rank=1, ranks=4,
            collate_fn=len,
        ) as loader:  # fmt: skip
            taken = sum(loader) + sum(loader)
            stats = loader.stats()
            assert stats.own_records + stats.file_records == taken == stats.records
            assert stats.own_bytes + stats.file_bytes == stats.record_bytes
            assert 0 < stats.warm_bytes <= stats.cache_bytes < 10**6
            shares[assignment] = stats.file_records / taken
    assert shares["local"] < 0.25 < 0.6 < shares["strided"]


@pytest.mark.parametrize("threads", [1, 4])
def test_later_epochs_of_a_whole_cache_read_nothing(folder: Path, threads: int) -> None:
    with Loader(
        folder, 16, shuffle=True, transform=number, cache=CACHE, threads=threads
    ) as loader:
        assert sorted(i for batch in loader for i in batch.tolist()) == list(range(COUNT))
        first = loader.stats()
        assert first.warm_bytes == first.read_bytes > 0
        for _ in range(3):
            assert sorted(i for batch in loader for i in batch.tolist()) == list(range(COUNT))
        later = loader.stats() - first
        assert later.own_records == later.records == 3 * COUNT
        assert not (later.read_bytes or later.requests or later.page_bytes or later.ahead_bytes)
        assert not (later.warm_bytes or later.file_records)
    assert loader.stats().cache_bytes == 0
    with pytest.raises(lmdbio.Error, match="closed"):
        list(loader)


def test_one_that_is_warm_beforehand_has_read_all(folder: Path) -> None:
    with Loader(folder, 16, cache=CACHE + ",warm=preload") as loader:
        before = loader.stats()
        assert before.warm_bytes == before.read_bytes > 0
        list(loader)
        assert loader.stats().read_bytes == before.read_bytes


@pytest.mark.parametrize("room", [1, GRAIN, 33 * GRAIN + 5])
def test_no_more_is_kept_than_there_is_room_for(folder: Path, room: int) -> None:
    with Loader(folder, 16, shuffle=True, cache=lmdbio.Cache(room)) as loader:
        list(loader)
        assert loader.stats().cache_bytes <= max(1, room)
        assert loader.stats().warm_bytes <= room
        assert "keeps" in loader.caching.text


@pytest.mark.parametrize("assignment", ["strided", "local"])
@pytest.mark.parametrize("ranks_before, ranks_after", [(1, 3), (3, 2), (4, 1)])
def test_a_state_goes_on_with_and_without_a_cache(
    folder: Path, assignment: str, ranks_before: int, ranks_after: int
) -> None:
    words: dict[str, Any] = {"shuffle": True, "seed": 9, "transform": number, "collate_fn": list}
    kept: dict[str, Any] = {"cache": CACHE, "assignment": assignment}
    for before, after in ((kept, kept), ({}, kept), (kept, {})):
        seen: list[int] = []
        with ExitStack() as stack:
            ranks = [
                stack.enter_context(
                    Loader(folder, 8, rank=r, ranks=ranks_before, **before, **words)
                )
                for r in range(ranks_before)
            ]
            going = [iter(one) for one in ranks]
            for _ in range(5):
                seen += [i for one in going for i in next(one)]
            states = [one.state_dict() for one in ranks]
        assert all(state == states[0] for state in states)
        assert states[0] == {
            "lmdbio": 1, "count": COUNT, "shuffle": True, "seed": 9, "epoch": 0,
            "used": 5 * 8 * ranks_before,
        }  # fmt: skip
        for rank in range(ranks_after):
            words_after = {**words, **after, "even": False}
            with Loader(folder, 4, rank=rank, ranks=ranks_after, **words_after) as loader:
                loader.load_state_dict(states[0])
                seen += [i for batch in loader for i in batch]
        assert sorted(seen) == list(range(COUNT))


def test_several_files_are_kept_each_in_parts(folder: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", range(COUNT, COUNT + 90))
    for assignment in ("strided", "local"):
        words: dict[str, Any] = {"cache": CACHE, "assignment": assignment, "even": False}
        found = batches_of([folder, other], 3, 1, **words)
        assert sorted(i for r in found for b in r for i in b) == list(range(COUNT + 90))
        if assignment == "strided":
            assert found == batches_of([folder, other], 3, 1, even=False)
    with Loader([folder, other], 16, cache="memory=200K") as loader:
        list(loader)
        assert 0 < loader.stats().cache_bytes <= 200 << 10
    with Loader([folder, other], 16, buffers=True, transform=number, cache=CACHE) as loader:
        assert [i for batch in loader for i in batch.tolist()] == list(range(COUNT + 90))


def test_two_loaders_of_one_folder_keep_each_their_own(folder: Path) -> None:
    with Loader(folder, 16, transform=number, cache=CACHE) as one:
        with Loader(folder, 16, transform=number, cache="memory=64K") as other:
            for first, second in zip(one, other, strict=True):
                assert first.tolist() == second.tolist()
            assert other.stats().cache_bytes <= 64 << 10 < one.stats().cache_bytes
        assert len(list(one)) == len(one)


def test_a_file_that_is_written_gives_its_old_samples_or_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "db", range(COUNT))

    def rewrite() -> None:
        with lmdb.open(str(path), map_size=1 << 28) as env:
            for _ in range(4):
                with env.begin(write=True) as txn:
                    for i in range(COUNT):
                        txn.put(b"%08d" % i, b"999999" * 100)

    with (
        Loader(path, 16, shuffle=True, transform=number, cache=CACHE) as whole,
        Loader(path, 16, shuffle=True, transform=number, cache="memory=64K", threads=3) as part,
    ):
        list(whole)
        next(iter(part))
        rewrite()
        assert sorted(i for batch in whole for i in batch.tolist()) == list(range(COUNT))
        with pytest.raises(lmdbio.Error, match=r"data\.mdb: changed while it was read"):
            list(part)


# --- words


@pytest.mark.parametrize("words, raised, why", [
    ({"cache": 7}, TypeError, "Cache"),
    ({"cache": "memory"}, ValueError, 'or cache is "auto"'),
    ({"cache": lmdbio.Cache("1M", placement="first")}, ValueError, "placement='home'"),
    ({"cache": "memory=1M,warm=window"}, ValueError, "warm='demand' or 'preload'"),
    ({"cache": "memory=1M", "rank": 3, "ranks": 3}, ValueError, "there is no rank 3 of 3"),
    ({"cache": "disk=/nowhere"}, FileNotFoundError, "/nowhere"),
    ({"cache": "disk=/dev/null"}, NotADirectoryError, "/dev/null"),
    ({"cache": CACHE, "readahead": True}, ValueError, "readahead"),
    ({"assignment": "local"}, ValueError, "without a cache"),
    ({"cache": CACHE, "assignment": "blocked"}, ValueError, "strided, local"),
])  # fmt: skip
def test_nonsense_is_refused(
    folder: Path, words: dict[str, Any], raised: type[Exception], why: str
) -> None:
    with pytest.raises(raised, match=why):
        Loader(folder, 16, **words)


class Communicator:
    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 4


def test_ranks_that_have_mpi_keep_nothing_unless_told(folder: Path) -> None:
    with Loader(folder, 16, comm=Communicator()) as loader:
        assert loader.caching.text == "no process keeps what it has read"


def test_open_records_keep_nothing(folder: Path) -> None:
    with lmdbio.Records(folder) as records, pytest.raises(ValueError, match="not open yet"):
        Loader(records, 16, cache=CACHE)


def test_memory_that_is_not_there_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_cache, "available_bytes", lambda: 3 << 20)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    Loader(folder, 16, cache=CACHE, rank=0, ranks=16).close()  # which needs no more than a part
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    with pytest.raises(MemoryError, match=r"data\.mdb: cache: .* each of the 16 processes"):
        monkeypatch.setattr(process_cache, "available_bytes", lambda: 30_000)
        Loader(folder, 16, cache=CACHE, rank=0, ranks=16)


@pytest.mark.parametrize("ranks, here, is_far, kept", [
    (1, None, True, False), (4, None, True, False), (4, "4", True, False), (4, "2", True, True),
    (4, "2", False, False), (4, "nonsense", True, False),
])  # fmt: skip
def test_auto_keeps_where_several_machines_read_far_storage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, here: str | None, is_far: bool,
    kept: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(process_cache, "is_far", lambda records: is_far)
    monkeypatch.setattr(process_cache, "available_bytes", lambda: 8 * 11 * GRAIN)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if here is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
    words: dict[str, Any] = {"shuffle": True, "even": False, "transform": number}
    seen: list[int] = []
    for rank in range(ranks):
        with Loader(
            folder, 8, cache="auto", assignment="local", rank=rank, ranks=ranks, **words
        ) as loader:
            seen += [i for batch in loader for i in batch.tolist()]
            memory = loader.stats().cache_bytes
            # A half of what each of two processes of a machine can get.
            assert memory == (22 * GRAIN if kept else 0), loader.caching.text
            assert ("keeps" in loader.caching.text) and (("MiB" in loader.caching.text) == kept)
    assert sorted(seen) == list(range(COUNT)), "what is dealt depends on no memory"


def test_a_failure_to_make_one_leaves_no_file_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(process_cache, "available_bytes", lambda: 1000)
    failure: BaseException | None = None
    try:
        Loader(folder, 16, cache=CACHE)
    except MemoryError as error:
        failure = error  # whose frames hold what was made
    assert failure is not None
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert budget.available_bytes() > 1000


def test_the_parts_of_ranks_are_even(folder: Path) -> None:
    sizes = []
    for rank in range(4):
        with Loader(folder, 16, cache=CACHE, rank=rank, ranks=4) as loader:
            sizes.append(loader.stats().cache_bytes)
    assert max(sizes) - min(sizes) <= 2 * GRAIN
    assert np.mean(sizes) > 20 * GRAIN
