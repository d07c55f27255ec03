"""Loaders with caches on disks: the same samples as without one, and from where they come.

Goal: each process has a cache file of its own, which its next job takes over; batches are those
without a cache, whatever there is room for; the folder's troubles are named, and a full disk and
damage are none. Nothing stays open.

Method: ranks are Loaders with ``rank=`` of one process; grains of small files are small. Disks
that fail at any byte are the matter of tests/records/test_kept_disk.py.
"""

from __future__ import annotations

import errno
import gc
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.cache import CacheFile, find, verify
from lmdbio.placement import homes
from lmdbio.torch import Loader, process_cache
from tests.torch.test_kept_loader import COUNT, GRAIN, batches_of, number, write


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("kept") / "db", range(COUNT))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture(autouse=True)
def small_grains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "GRAIN_BYTES_MIN", GRAIN)
    monkeypatch.setattr(homes, "HOME_GRAINS_MIN", 2**20)


def drain(loader: Loader, epochs: int = 1) -> None:
    for _ in range(epochs):
        assert sorted(i for batch in loader for i in batch.tolist()) == list(range(COUNT))


WORDS: dict[str, Any] = {"shuffle": True, "transform": number, "threads": 4}


@pytest.mark.parametrize("ranks, assignment", [(1, "strided"), (3, "strided"), (3, "local")])
@pytest.mark.parametrize(
    "cache", ["disk={}", "memory=100K,disk={}", "memory=64K,disk={},disk_bytes=64K,warm=preload"]
)
def test_batches_are_those_without_a_disk_and_the_next_job_reads_less(
    path: Path, folder: Path, ranks: int, assignment: str, cache: str
) -> None:
    words = {"assignment": assignment, "buffers": ranks == 1}
    plain = batches_of(path, ranks, cache="memory=64M", **words)
    for _ in range(2):
        assert batches_of(path, ranks, cache=cache.format(folder), **words) == plain
    entries = find(folder)
    assert [entry.path.stem.rpartition("-")[2] for entry in entries] == list(
        map(str, range(ranks))
    )
    assert all(entry.state == "current" and not entry.is_open for entry in entries)
    assert all(verify(entry.path)[1] == 0 for entry in entries)


@pytest.mark.parametrize("cache", ["disk={}", "memory=100K,disk={}", "memory=64M,disk={}"])
def test_the_next_job_reads_nothing(path: Path, folder: Path, cache: str) -> None:
    cache = cache.format(folder)
    with Loader(path, 16, cache=cache, **WORDS) as loader:
        drain(loader)
        first = loader.stats()
        assert first.warm_bytes == first.read_bytes > 0 == first.file_records
        drain(loader)
        assert loader.stats().read_bytes == first.read_bytes
        assert (first.disk_records > 0) == ("64M" not in cache)
        assert "earlier job" not in loader.caching.text
        assert loader.stats().cache_disk_bytes == find(folder)[0].kept_bytes
    for more in ("", ",warm=preload"):
        with Loader(path, 16, cache=cache + more, **WORDS) as loader:
            drain(loader, 2)
            stats = loader.stats()
            assert stats.own_records + stats.disk_records == stats.records == 2 * COUNT
            assert stats.own_bytes + stats.disk_bytes == stats.record_bytes
            assert not (stats.read_bytes or stats.warm_bytes or stats.damaged_pages)
            assert "on a disk (an earlier job has left them there)" in loader.caching.text


def test_what_is_warm_beforehand_is_read_from_the_disk(path: Path, folder: Path) -> None:
    with Loader(path, 16, cache=f"memory=64K,disk={folder},warm=preload", **WORDS) as loader:
        before = loader.stats()
        assert before.warm_bytes == before.read_bytes > 0
        drain(loader, 2)
        after = loader.stats()
        assert after.read_bytes == before.read_bytes
        assert after.disk_records > after.own_records > 0


def test_ranks_of_one_folder_have_files_of_their_own(path: Path, folder: Path) -> None:
    def ranks(stack: ExitStack, count: int) -> list[Loader]:
        words: dict[str, Any] = {**WORDS, "cache": f"disk={folder}", "even": False}
        words["assignment"] = "local"
        return [
            stack.enter_context(Loader(path, 8, rank=rank, ranks=count, **words))
            for rank in range(count)
        ]

    for turn in range(2):
        with ExitStack() as stack:
            loaders = ranks(stack, 4)
            assert len(find(folder)) == 4 and all(entry.is_open for entry in find(folder))
            seen = [i for one in loaders for batch in one for i in batch.tolist()]
            assert sorted(seen) == list(range(COUNT))
            stats = [one.stats() for one in loaders]
            assert all((one.warm_bytes == 0) == bool(turn) for one in stats)
            assert all(one.disk_records > one.file_records for one in stats)
    with ExitStack() as stack:
        loaders = ranks(stack, 4) + ranks(stack, 4)  # two jobs at once
        assert len({entry.path for entry in find(folder) if entry.is_open}) == 8


def test_a_disk_keeps_no_more_than_it_was_given(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loader(path, 16, cache=f"disk={folder},disk_bytes=40K", **WORDS) as loader:
        drain(loader, 2)
        assert 0 < loader.stats().cache_disk_bytes <= 40 << 10
        assert loader.stats().file_records > 0
    for entry in find(folder):
        entry.path.unlink()
    # Half of what is free, divided by the processes of this machine.
    monkeypatch.setattr(CacheFile, "free_bytes", 3 * 2 * 50 * GRAIN)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with Loader(path, 16, cache=f"disk={folder},warm=preload", rank=0, ranks=3) as loader:
        kept = loader.stats().cache_disk_bytes
    for entry in find(folder):
        entry.path.unlink()
    assert 40 * GRAIN <= kept <= 60 * GRAIN


def test_several_files_are_kept_in_one(path: Path, folder: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", range(COUNT, COUNT + 90))
    for _ in range(2):
        found = batches_of(
            [path, other], 2, cache=f"memory=90K,disk={folder},disk_bytes=200K", even=False
        )
        assert found == batches_of([path, other], 2, even=False)
    entries = find(folder)
    assert len(entries) == 2  # one of each process, for both files
    assert 0 < sum(entry.kept_bytes for entry in entries) <= 2 * 200 << 10
    assert {entry.state for entry in entries} == {"current"}
    with Loader([path, other], 16, cache=f"disk={folder}", buffers=True, transform=number) as one:
        assert [i for batch in one for i in batch.tolist()] == list(range(COUNT + 90))


def test_auto_uses_the_folder_of_the_environment(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_cache, "is_far", lambda records: True)
    monkeypatch.setattr(process_cache, "available_bytes", lambda: 1 << 20)
    monkeypatch.setenv("LMDBIO_CACHE_DIR", str(folder))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    with Loader(path, 16, cache="auto", rank=0, ranks=2) as loader:
        list(loader)
        assert loader.stats().own_records > 0 < loader.stats().cache_disk_bytes
        assert "on a disk" in loader.caching.text
    with Loader(path, 16, cache="auto") as loader:  # one machine
        assert not loader.stats().cache_disk_bytes
    monkeypatch.setenv("LMDBIO_CACHE_DIR", str(folder / "absent"))
    with pytest.raises(FileNotFoundError, match=r"LMDBIO_CACHE_DIR: No such .*absent"):
        Loader(path, 16, cache="auto", rank=0, ranks=2)


def test_damaged_pages_are_read_from_the_file(path: Path, folder: Path) -> None:
    with Loader(path, 16, cache=f"disk={folder}", **WORDS) as loader:
        drain(loader)
    (entry,) = find(folder)
    content = bytearray(entry.path.read_bytes())
    for page in range(30, 60):
        content[-4096 * page] ^= 1
    entry.path.write_bytes(content)
    assert verify(entry.path)[1] == 30
    with Loader(path, 16, cache=f"disk={folder}", **WORDS) as loader:
        drain(loader, 2)
        stats = loader.stats()
        assert stats.damaged_pages >= 30 and stats.file_records > 0 < stats.warm_bytes
    assert verify(entry.path)[1] == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_gets_full_keeps_what_it_has(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    write, left = os.pwrite, [400_000]

    def fail(fd: int, data: Any, offset: int) -> int:
        if left[0] <= 0:
            raise OSError(code, os.strerror(code))
        left[0] -= len(data)
        return write(fd, data, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        with Loader(path, 16, cache=f"disk={folder}", **WORDS) as loader:
            drain(loader, 2)
            stats = loader.stats()
            assert stats.disk_records > 0 < stats.file_records
    with Loader(path, 16, cache=f"disk={folder}", **WORDS) as loader:
        drain(loader)
        assert 0 < loader.stats().warm_bytes < stats.warm_bytes + stats.file_bytes


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(
    path: Path, folder: Path
) -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    read_only = Path("/proc/self/fdinfo")  # also for root
    failure: BaseException | None = None
    try:
        Loader(path, 16, cache=lmdbio.Cache("1M", str(read_only)))
    except OSError as error:
        failure = error  # whose frames hold what was made
    assert failure is not None and str(read_only) in str(failure)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_a_database_that_is_written_gives_its_old_samples_or_an_error(
    folder: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "db", range(COUNT))
    with (
        Loader(path, 16, cache=f"disk={folder},warm=preload", **WORDS) as whole,
        Loader(path, 16, cache=f"disk={folder}", **WORDS) as part,
    ):
        next(iter(part))
        with lmdb.open(str(path), map_size=1 << 28) as env:
            for _ in range(4):
                with env.begin(write=True) as txn:
                    for i in range(COUNT):
                        txn.put(b"%08d" % i, b"999999" * 100)
        drain(whole)
        with pytest.raises(lmdbio.Error, match=r"data\.mdb: changed while it was read"):
            list(part)


def test_the_end_of_a_loader_leaves_nothing_open(path: Path, folder: Path) -> None:
    gc.collect()  # what other tests have left in circles
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        loader = Loader(path, 16, cache=f"memory=64K,disk={folder}", **WORDS)
        going = iter(loader)
        next(going)
        assert find(folder)[0].is_open
        loader.close()
        assert not find(folder)[0].is_open
        with pytest.raises(lmdbio.Error, match="closed"):
            next(going)
    assert len(find(folder)) == 1
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
