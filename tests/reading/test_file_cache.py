"""The stream behind random reads, and the records lent from what it brought.

Goal: the same bytes before, while and after the file comes to memory; what was lent is never
written again; the budget holds. Method: Records over a small real database with the stream's
steps made small, so that every phase is met within a few reads.
"""

from __future__ import annotations

import os
import threading

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio.reading import file_cache
from tests.support import databases

COUNT = 3000


def value(index: int) -> bytes:
    return b"%08d" % index * 375


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image") / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, ((b"%08d" % i, value(i)) for i in range(COUNT)))
    env.close()
    return folder


@pytest.fixture(autouse=True)
def small_steps(monkeypatch, planned, off_disk):
    monkeypatch.setattr(file_cache, "SMALL_BYTES", 0)
    monkeypatch.setattr(file_cache, "STEP_BYTES", 1 << 20)
    monkeypatch.setattr(file_cache, "REQUEST_BYTES", 1 << 16)
    # How fast a busy disk is must not decide.
    monkeypatch.setattr(file_cache, "WAIT_SECONDS_MAX", 60.0)
    monkeypatch.setattr(file_cache, "EXPECTED_WAIT_SECONDS_MAX", 60.0)


def batches(seed: int = 0):
    order = np.random.default_rng(seed).permutation(COUNT)
    return [order[at : at + 64] for at in range(0, COUNT, 64)]


def check(batch: lmdbio.Batch, indices) -> None:
    assert [bytes(view) for view in batch] == [value(int(i)) for i in indices]


def test_records_are_the_same_before_while_and_after_the_file_comes_to_memory(path):
    with lmdbio.Records(path) as records:
        kept = []
        phases = set()
        for indices in batches() + batches(1):
            batch = records.read(indices)
            phases.add(records._routes.file_cache.complete())
            check(batch, indices)
            kept.append((batch, indices))
        assert phases == {False, True}, "both phases were met"
        before = records.stats().requests
        check(records.read(range(COUNT)), range(COUNT))
        assert records.stats().requests == before, "nothing more is read"
    for batch, indices in kept:
        check(batch, indices)


def test_the_end_of_the_stream_is_not_waited_for_when_it_is_far(path, monkeypatch):
    monkeypatch.setattr(file_cache, "WAIT_SECONDS_MAX", 0.0)
    with lmdbio.Records(path) as records:
        for _ in range(20):
            for indices in batches():
                check(records.read(indices), indices)
            if records._routes.file_cache.complete():
                break
        assert records._routes.file_cache.complete(), "it arrives all the same"


def test_nothing_is_streamed_before_the_reads_have_cost_a_part_of_it(path):
    with lmdbio.Records(path) as records:
        worth = records._routes.file_cache.size // records._routes.options.gap_bytes_max
        worth //= file_cache.REQUESTS_SHARE
        for number, indices in enumerate(batches()):
            check(records.read(indices), indices)
            requests = records.stats().requests
            if requests <= worth:
                assert records._routes.file_cache._stream._at == 0
            elif number == 20:
                assert records._routes.file_cache._stream._at > 0
        assert requests > worth


def test_few_reads_earn_little(path):
    with lmdbio.Records(path, readahead=True) as records:
        check(records.read([5, 3]), [5, 3])
        assert not records._routes.file_cache.complete()
        routes = records._routes
        assert routes.file_cache._stream._at <= 4 * 2 * routes.options.gap_bytes_max


def test_large_records_earn_nothing(tmp_path):
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%04d" % i, databases.value(i, 200_000)) for i in range(40)))
    env.close()
    with lmdbio.Records(tmp_path / "env") as records:
        for index in range(0, 40, 2):
            assert bytes(records.read([index])[0]) == databases.value(index, 200_000)
        assert records._routes.file_cache._stream._at == 0


def test_without_room_or_without_wish_nothing_comes_to_memory(path, monkeypatch):
    with lmdbio.Records(path, readahead=False) as records:
        assert records._routes.file_cache.place == "nowhere"
        for indices in batches():
            check(records.read(indices), indices)
    with lmdbio.Records(path, memory_bytes_max=1 << 20, readahead=True) as records:
        for indices in batches():
            check(records.read(indices), indices)
        assert records._routes.file_cache.place == "page cache"
    monkeypatch.setattr(file_cache, "cached_bytes_max", lambda: 1 << 19)
    with lmdbio.Records(path, memory_bytes_max=1 << 20) as records:
        assert records._routes.file_cache.place == "nowhere"
    monkeypatch.setenv("LMDBIO_MEMORY_BYTES", "1M")
    with lmdbio.Records(path) as records:
        assert records._routes.file_cache.place == "nowhere"


def test_a_child_forked_amid_the_stream_and_its_parent_both_go_on(path):
    with lmdbio.Records(path, readahead=True) as records:
        head = batches()[:4]
        for indices in head:
            check(records.read(indices), indices)
        assert records._routes.file_cache._stream._at
        child = os.fork()
        if child == 0:
            try:
                for indices in batches(2):
                    check(records.read(indices), indices)
                assert records._routes.file_cache.complete()
            except BaseException:
                os._exit(1)
            os._exit(0)
        for indices in batches(3):
            check(records.read(indices), indices)
        assert os.waitpid(child, 0)[1] == 0


def test_threads_may_meet_in_every_phase(path):
    problems = []
    with lmdbio.Records(path) as records:

        def work(seed: int) -> None:
            try:
                for indices in batches(seed):
                    check(records.read(indices), indices)
            except BaseException as e:
                problems.append(e)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert records._routes.file_cache.complete()
    assert not problems


def test_a_file_that_a_writer_moves_on_is_refused_also_from_memory(tmp_path):
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%08d" % i, value(i)) for i in range(500)))
    env.close()
    with lmdbio.Records(tmp_path / "env") as records:
        for index in range(0, 500, 7):
            records.read([index])
        assert records._routes.file_cache.complete()
        writer = lmdb.open(str(tmp_path / "env"), map_size=1 << 28)
        for turn in range(3):
            with writer.begin(write=True) as txn:
                txn.put(b"00000000", b"%d" % turn)
        writer.close()
        with pytest.raises(lmdb.Error, match="changed while it was read"):
            records.read([1])


def test_an_order_that_is_known_is_streamed_from_the_first_request_on(path):
    order = np.random.default_rng(3).permutation(COUNT)
    with lmdbio.Records(path) as records:
        cache, seen = records._routes.file_cache, 0
        for batch in records.batches(order, 64):
            check(batch, order[seen : seen + len(batch)])
            seen += len(batch)
            if seen == 64:
                assert cache.counts().requests, "begun with the first batch"
            if seen >= 4 * 64:
                assert cache.complete(), "and waited for, since it ends soon"
        assert seen == COUNT
        assert records.stats().requests < 4 * 64, "single requests for the first batches alone"


def test_a_few_records_or_an_order_that_is_the_file_s_own_bring_no_stream(path):
    with lmdbio.Records(path) as records:
        for order in (np.arange(COUNT), np.random.default_rng(4).permutation(COUNT)[:30]):
            for batch in records.batches(order, 30):
                check(batch, batch.indices)
        records.expect(0)
        assert not records._routes.file_cache.counts().requests


def test_what_is_expected_obeys_the_wish_and_the_budget(path, monkeypatch):
    with lmdbio.Records(path, readahead=False) as records:
        records.expect(COUNT)
        assert not records._routes.file_cache.counts().requests
    monkeypatch.setattr(file_cache, "cached_bytes_max", lambda: 1 << 19)
    with lmdbio.Records(path, memory_bytes_max=1 << 20) as records:
        records.expect(COUNT)
        assert not records._routes.file_cache.counts().requests
        order = np.random.default_rng(5).permutation(COUNT)
        for batch in records.batches(order, 64):
            check(batch, batch.indices)


def test_processes_that_read_alike_have_one_copy_in_the_page_cache(path):
    order = np.random.default_rng(6).permutation(COUNT)
    with lmdbio.Records(path, memory_bytes_max=1 << 26) as records:
        cache = records._routes.file_cache
        assert cache.place == "memory"
        records.expect(COUNT, 3)
        assert cache.place == "page cache"
        for batch in records.batches(order, 64):
            check(batch, batch.indices)
        assert not cache.memory_bytes


def test_processes_that_read_alike_share_the_budget(path, monkeypatch):
    monkeypatch.setattr(file_cache, "cached_bytes_max", lambda: 0)
    with lmdbio.Records(path, memory_bytes_max=1 << 26) as records:
        cache = records._routes.file_cache
        for processes, place in ((1, "memory"), (3, "memory"), (20, "nowhere")):
            records.expect(0, processes)
            assert cache.place == place


def test_what_a_parent_has_brought_to_memory_its_children_share(path):
    order = np.random.default_rng(7).permutation(COUNT)
    with lmdbio.Records(path, memory_bytes_max=1 << 26) as records:
        records.expect(COUNT)
        for batch in records.batches(order, 64):
            check(batch, batch.indices)
        assert records._routes.file_cache.complete()
        records.expect(COUNT, 20)
        assert records._routes.file_cache.complete()
        check(records.read(order[:9]), order[:9])


def test_a_stream_to_memory_that_is_under_way_ends_where_others_read_alike(path, monkeypatch):
    monkeypatch.setattr(file_cache, "STEPS", 1)
    monkeypatch.setattr(file_cache.FileCache, "_is_near", lambda self: False)
    monkeypatch.setattr(file_cache, "cached_bytes_max", lambda: 0)
    order = np.random.default_rng(8).permutation(COUNT)
    with lmdbio.Records(path, memory_bytes_max=1 << 26) as records:
        cache = records._routes.file_cache
        records.expect(COUNT)
        kept = records.read(order[:9])
        assert cache.place == "memory" and not cache.complete()
        before = cache.counts()
        records.expect(COUNT, 20)
        assert cache.place == "nowhere" and cache.counts() == before
        for batch in records.batches(order, 64):
            check(batch, batch.indices)
        check(kept, order[:9])
