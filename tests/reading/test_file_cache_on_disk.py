"""The stream of a disk's file to the page cache, behind random reads.

Goal: once random reads pay for it, or are expected to, the file comes to the page cache whole,
each byte once, with no memory of the process's own; the bytes are right before, while and after.
Method: files of 20 MB (small) and the same taken for large ones, evicted from the page cache; the
kernel says what is there, and what the process read from the disk.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.reading import file_cache
from tests.support import databases

COUNT, BATCH = 5000, 50


def value(index: int) -> bytes:
    return b"%08d" % index * 375


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stream") / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, ((b"%08d" % i, value(i)) for i in range(COUNT)))
    env.close()
    with (folder / "data.mdb").open("rb") as file:
        if not _core.inspect_at(file.fileno()).disk:
            pytest.skip("no disk of this machine is under the folder of the tests")
    return folder


def evict(path: Path) -> None:
    with (path / "data.mdb").open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def cold(path: Path) -> Path:
    evict(path)
    return path


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_cache, "SMALL_BYTES", 1 << 20)


def order(seed: int = 0) -> list[np.ndarray]:
    shuffled = np.random.default_rng(seed).permutation(COUNT)
    return [shuffled[at : at + BATCH] for at in range(0, COUNT, BATCH)]


def check(records: lmdbio.Records, indices: np.ndarray) -> None:
    assert [bytes(view) for view in records.read(indices)] == [value(int(i)) for i in indices]


def cached_share(records: lmdbio.Records) -> float:
    cached = records._routes.engine.cached_bytes()
    if cached is None:
        pytest.skip("this kernel does not say what the page cache holds")
    return cached / records._routes.file_cache.size


def read_from_disk() -> int:
    return int(Path("/proc/self/io").read_text().partition("\nread_bytes: ")[2].split()[0])


def test_a_shuffled_epoch_brings_each_byte_once_and_no_memory_of_its_own(
    cold: Path, large: None
) -> None:
    before = read_from_disk()
    with lmdbio.Records(cold) as records:
        for indices in order():
            check(records, indices)
        assert cached_share(records) > 0.99
        cache, stats = records._routes.file_cache, records.stats()
        assert (cache.place, cache.memory_bytes) == ("page cache", 0)
        assert not cache.complete(), "nothing is lent of it"
        assert stats.ahead_bytes >= 0.9 * cache.size
        assert read_from_disk() - before < 1.15 * cache.size, "the first batches, and all of it"


def test_a_few_batches_bring_little(cold: Path, large: None) -> None:
    with lmdbio.Records(cold) as records:
        check(records, order()[0][:8])
        check(records, order()[1][:8])
        assert cached_share(records) < 0.5
        assert not records.stats().ahead_bytes


def test_the_first_batch_of_a_small_file_brings_all_of_it(cold: Path) -> None:
    with lmdbio.Records(cold) as records:
        check(records, order()[0])
        assert cached_share(records) > 0.99


def test_one_record_of_a_small_file_does_not(cold: Path) -> None:
    with lmdbio.Records(cold) as records:
        assert records[COUNT // 2] == value(COUNT // 2)
        check(records, np.array([7]))
        assert cached_share(records) < 0.9


def test_what_is_expected_is_brought_behind_the_first_batch_unless_it_is_there(
    cold: Path, large: None
) -> None:
    for is_there in (False, True):
        with lmdbio.Records(cold) as records:
            before = read_from_disk()
            records.expect(COUNT)
            assert not records.stats().ahead_bytes, "the first batch is wanted sooner"
            check(records, order()[0])
            check(records, order()[1])
            assert cached_share(records) > 0.99
            assert (read_from_disk() == before) == is_there
            assert bool(records.stats().ahead_bytes) != is_there


def test_a_first_batch_that_is_given_up_delays_no_stream(cold: Path, large: None) -> None:
    with lmdbio.Records(cold) as records:
        records.expect(COUNT)
        records.begin(order()[0]).close()
        for indices in order()[1:5]:
            check(records, indices)
        assert cached_share(records) > 0.99 and records.stats().ahead_bytes


def test_single_records_do_not_wait_for_a_first_batch(cold: Path, large: None) -> None:
    with lmdbio.Records(cold) as records:
        records.expect(COUNT)
        assert [records[i] for i in range(0, COUNT, 9)] == [value(i) for i in range(0, COUNT, 9)]
        assert records.stats().ahead_bytes


def test_the_first_batches_of_many_do_not_wait_for_a_large_file(
    cold: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "AWAITED_BYTES", 1 << 20)
    with lmdbio.Records(cold) as records:
        with monkeypatch.context() as slow:  # a stream that brings nothing
            slow.setattr(file_cache._ToPageCache, "go_on", lambda stream, credit: stream._size)
            records.expect(COUNT)
            for indices in order()[: file_cache.PASSES]:
                check(records, indices)
        assert not records._routes.file_cache.takes_pass()
        if (aside := records._routes.direct_path.engine()) is not None:
            assert aside.counts().requests > 0
            assert cached_share(records) < 0.5, "none of them is in the stream's way"
        for indices in order()[file_cache.PASSES :]:
            check(records, indices)
        assert cached_share(records) > 0.99


def test_what_the_kernel_has_dropped_is_streamed_again(cold: Path, large: None) -> None:
    with lmdbio.Records(cold, memory_bytes_max=1 << 20) as records:
        for seed in range(3):
            evict(cold)
            for indices in order(seed):
                check(records, indices)
            assert cached_share(records) > 0.99
        assert records.stats().ahead_bytes >= 2 * records._routes.file_cache.size


def test_readahead_that_is_unwanted_is_not_done(cold: Path) -> None:
    with lmdbio.Records(cold, readahead=False) as records:
        for indices in order()[:5]:
            check(records, indices)
        assert not records.stats().ahead_bytes


def test_a_stream_that_is_far_from_its_end_is_not_waited_for(
    cold: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "AWAITED_BYTES", 0)  # each read pays for as much as it costs
    monkeypatch.setattr(file_cache, "WAIT_SECONDS_MAX", 0.0)
    with lmdbio.Records(cold) as records:
        for indices in order():
            check(records, indices)
        assert records._routes.file_cache._stream._prefetch is not None, "begun"


def test_a_child_forked_amid_the_stream_and_its_parent_both_go_on(cold: Path, large: None) -> None:
    with lmdbio.Records(cold) as records:
        for indices in order()[:3]:
            check(records, indices)
        records._routes.file_cache._stream.go_on(1 << 30)
        child = os.fork()
        if child == 0:
            try:
                for indices in order(1):
                    check(records, indices)
            except BaseException:
                os._exit(1)
            os._exit(0)
        for indices in order(2):
            check(records, indices)
        assert os.waitpid(child, 0)[1] == 0


def test_threads_may_meet_in_every_phase(cold: Path, large: None) -> None:
    problems = []
    with lmdbio.Records(cold) as records:

        def work(seed: int) -> None:
            try:
                for indices in order(seed):
                    check(records, indices)
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert cached_share(records) > 0.99
    assert not problems


def test_nothing_is_waited_for_once_it_is_closed(cold: Path, large: None) -> None:
    records = lmdbio.Records(cold)
    for indices in order()[:3]:
        check(records, indices)
    records._routes.file_cache._stream.go_on(1 << 30)
    records.close()
    records.close()


def test_a_hot_file_is_not_streamed_and_counts_nothing(path: Path, large: None) -> None:
    with lmdbio.Records(path, readahead=True, engine="pread") as records:
        list(records)
        for _ in range(5):
            check(records, np.random.default_rng(1).permutation(COUNT)[:2000])
        assert not records.stats().ahead_bytes


def test_a_set_of_files_that_is_hot_is_streamed_once_at_most(
    path: Path, tmp_path: Path, large: None
) -> None:
    env = databases.open_writable(tmp_path / "other", 1)
    databases.write(env, ((b"%08d" % i, value(i)) for i in range(COUNT)))
    env.close()
    with lmdbio.Records([path, tmp_path / "other"]) as records:
        list(records)
        for _ in range(5):
            records.expect(2 * COUNT)
            wanted = np.random.default_rng(2).permutation(2 * COUNT)[:2000]
            assert [bytes(view) for view in records.read(wanted)] == [
                value(int(i) % COUNT) for i in wanted
            ]
        assert records.stats().ahead_bytes <= records._routes.file_cache.size


def test_large_batches_stop_passing_by_the_page_cache_once_it_has_the_file(
    cold: Path, large: None
) -> None:
    with lmdbio.Records(cold) as records:
        for indices in order()[:20]:
            check(records, indices)
        assert records._routes.file_cache.has_come
        before = read_from_disk()
        for seed in range(3):
            check(records, np.random.default_rng(seed).permutation(COUNT)[:2000])
        assert records._routes.direct_path.engine() is None
        assert read_from_disk() == before


def test_what_is_closed_expects_nothing(path: Path) -> None:
    records = lmdbio.Records(path)
    records.close()
    records._routes.file_cache.expect(1 << 40)
