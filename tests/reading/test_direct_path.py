"""Large batches past the page cache.

Goal: the same bytes by either way; it begins and ends when it should, and where O_DIRECT is
refused, the file is cached or not on a local disk, the page cache serves. Method: Records over
a real database of large records, on whatever file system the temporary folder is; what the
kernel says of the file is replaced where a case needs it.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.dropin import data_file, iterator, known
from lmdbio.errors import Error, IncompatibleError
from lmdbio.machine import storage
from lmdbio.planning.reads import plan_reads
from lmdbio.reading import blocks, direct_path
from tests.support import databases

COUNT, BYTES = 400, 100_000
inspect = storage.inspect


def value(index: int) -> bytes:
    return (b"%08d" % index) * (BYTES // 8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bypass") / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, ((b"%08d" % i, value(i)) for i in range(COUNT)))
    env.close()
    return folder


def lies_on(monkeypatch, *, disk: bool) -> None:
    known.forget()
    monkeypatch.setattr(
        storage,
        "inspect",
        lambda *args, **kwargs: replace(inspect(*args, **kwargs), disk=disk, file_system="some"),
    )


@pytest.fixture(autouse=True)
def cold_local_disk(monkeypatch):
    """The file system of the temporary folder must not decide."""
    lies_on(monkeypatch, disk=True)
    monkeypatch.setattr(_core.Engine, "cached_bytes", lambda self: 0)
    # Nor must it depend on how fast this disk is.
    monkeypatch.setattr(direct_path, "DIRECT_RATE_MIN", 0)


def passes_by(records: lmdbio.Records) -> bool:
    return records._routes.direct_path.engine(direct_path.BATCH_BYTES_MIN) is not None


def check(records: lmdbio.Records, indices) -> None:
    assert [bytes(view) for view in records.read(indices)] == [value(int(i)) for i in indices]


@pytest.fixture
def refuses_direct(path):
    """The reason why the folder's file system has no O_DIRECT; None if it has."""
    try:
        _core.Engine(path / "data.mdb", "direct").close()
    except IncompatibleError as error:
        return str(error)
    return None


def test_batches_are_the_same_by_either_way(path):
    indices = np.random.default_rng(1).permutation(COUNT)
    with lmdbio.Records(path) as past, lmdbio.Records(path, engine="pread") as through:
        assert not passes_by(through), "whoever names an engine gets it"
        for at in range(0, COUNT, 100):
            check(past, indices[at : at + 100])
            check(through, indices[at : at + 100])


def test_only_large_batches_pass_by(path, refuses_direct):
    if refuses_direct:
        pytest.skip(refuses_direct)
    with lmdbio.Records(path) as records:
        check(records, [3, 1, 2])
        assert records._routes.direct_path.counts().requests == 0
        check(records, np.arange(100))
        past = records._routes.direct_path.counts()
        assert past.bytes >= 100 * BYTES
        assert records.stats().read_bytes > past.bytes, "stats count both ways"


def test_it_ends_when_the_file_was_read_once_over_and_the_file_then_comes_to_memory(
    path, refuses_direct, off_disk
):
    if refuses_direct:
        pytest.skip(refuses_direct)
    with lmdbio.Records(path) as records:
        for epoch in range(3):
            for at in range(0, COUNT, 100):
                check(records, np.arange(at, at + 100))
            assert passes_by(records) == (not records._routes.direct_path.once_over)
            if epoch == 0:
                assert records._routes.file_cache._stream._credited == 0, (
                    "one epoch says nothing of a second"
                )
        assert records._routes.direct_path.once_over
        end = time.monotonic() + 60  # on a busy disk the stream takes longer than three epochs
        while not records._routes.file_cache.complete() and time.monotonic() < end:
            check(records, np.arange(100))
        assert records._routes.file_cache.complete()


def test_it_ends_when_the_disk_is_slow(path, refuses_direct, monkeypatch):
    if refuses_direct:
        pytest.skip(refuses_direct)
    monkeypatch.setattr(direct_path, "DIRECT_RATE_MIN", 1 << 50)
    monkeypatch.setattr(direct_path, "RATE_BYTES", 1)
    with lmdbio.Records(path) as records:
        check(records, np.arange(100))
        assert passes_by(records), "the first reads make the memory too"
        check(records, np.arange(100))
        assert not passes_by(records)
        check(records, np.arange(100))


@pytest.mark.parametrize("cached", [None, 1 << 40])
def test_it_does_not_begin_where_the_file_is_or_may_be_cached(path, monkeypatch, cached):
    monkeypatch.setattr(_core.Engine, "cached_bytes", lambda self: cached)
    with lmdbio.Records(path) as records:
        assert not passes_by(records)
        check(records, np.arange(100))


def test_it_does_not_begin_on_network_and_fuse_file_systems(path, monkeypatch):
    lies_on(monkeypatch, disk=False)
    with lmdbio.Records(path) as records:
        assert not passes_by(records)
        check(records, np.arange(100))


def test_where_o_direct_is_refused_the_page_cache_serves(path, no_direct):
    with lmdbio.Records(path) as records:
        assert not passes_by(records)
        check(records, np.arange(100))


@pytest.mark.parametrize("problem", [OSError(24, "Too many open files"), Error("replaced")])
def test_where_the_file_cannot_be_opened_again_the_page_cache_serves(path, monkeypatch, problem):
    again = _core.Engine.again

    def fail(self, kind, depth):
        if kind == "direct":
            raise problem
        return again(self, kind, depth)

    monkeypatch.setattr(_core.Engine, "again", fail)
    with lmdbio.Records(path) as records:
        check(records, np.arange(100))
        assert not passes_by(records)
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        assert [data for _, data in txn.cursor()] == [value(i) for i in range(COUNT)]


def test_threads_that_come_first_together_open_it_once(path, monkeypatch, refuses_direct):
    if refuses_direct:
        pytest.skip(refuses_direct)
    opened, again = [], _core.Engine.again

    def slowly(self, kind, depth):
        engine = again(self, kind, depth)
        time.sleep(0.05)
        opened.append(engine)
        return engine

    with lmdbio.Records(path) as records:
        monkeypatch.setattr(_core.Engine, "again", slowly)
        threads = [threading.Thread(target=check, args=(records, range(100))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(opened) == 1


def test_an_iteration_past_the_page_cache_notices_a_writer(tmp_path, refuses_direct, monkeypatch):
    """Bytes read past it must count as read: else nobody looks at the meta pages again."""
    if refuses_direct:
        pytest.skip(refuses_direct)
    monkeypatch.setattr(iterator, "cached_bytes_max", lambda: 0)  # else it comes there whole
    writer = databases.open_writable(tmp_path / "env", 1)
    databases.write(writer, ((b"%08d" % i, value(i)) for i in range(COUNT)))
    writer.close()  # two in one process
    seen = 0
    env = lmdbio.open(str(tmp_path / "env"), readonly=True, lock=False)
    with env, env.begin() as txn, pytest.raises(lmdbio.Error, match="no longer protected"):
        for _, data in txn.cursor():
            assert data == value(seen)
            seen += 1
            if seen == COUNT // 2:
                assert env._file.direct_path.counts().requests > 0
                writer = databases.open_writable(tmp_path / "env", 1)
                for i in range(4):
                    databases.write(writer, [(b"%08d" % (COUNT - 1), b"%d" % i)])
                writer.close()
    # The block in hand, and one that had come before the last check.
    assert seen <= COUNT // 2 + 2 * (data_file.BLOCK_BYTES_MAX // BYTES + 1) < COUNT


def test_what_lies_between_the_values_counts_as_memory_of_a_block(tmp_path, refuses_direct):
    """Two databases written in turns: of 16 pages that a block spans, one is wanted."""
    if refuses_direct:
        pytest.skip(refuses_direct)
    writer = databases.open_writable(tmp_path / "env", 1)
    small, large = writer.open_db(b"small"), writer.open_db(b"large")
    for i in range(200):
        for db, size in (small, 2100), (large, 28_000):
            databases.write(writer, [(b"%08d" % i, b"." * size)], db=db)
    writer.close()
    block = 64 << 10
    env = lmdbio.open(
        str(tmp_path / "env"),
        readonly=True,
        lock=False,
        max_dbs=2,
        engine="direct",
        block_bytes_max=block,
    )
    with env, env.begin(db=env.open_db(b"small", create=False)) as txn:
        for at, _ in enumerate(txn.cursor()):
            if at == 60:
                break
        # Two blocks ahead, each with as much again around its values and one gap; and leaves.
        used = at * (28_000 + 2 * 4096)
        read = env._file.engine.counts().bytes
        assert read < used + 2 * (2 * block + (36 << 10)) + (256 << 10)


@pytest.mark.parametrize("depth", [4, 64])
def test_the_stages_of_a_reader_are_part_of_its_budget(path, refuses_direct, depth):
    if refuses_direct:
        pytest.skip(refuses_direct)
    budget = 32 << 20
    with lmdbio.Reader(
        path, batch_size=50, iterations=8, depth=depth, memory_bytes_max=budget
    ) as reader:
        for at, batch in enumerate(reader):
            assert bytes(batch[0]) == value(at * 50 % COUNT)
        stages = depth * _core.Memory.HUGE_PAGE
        fits = reader.stats().window_bytes + stages <= budget
        assert reader.mode.engine == ("staged" if fits else "pread")
        assert fits == (depth == 4)


def test_what_lies_between_records_counts_as_memory_of_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 20)
    writer = databases.open_writable(tmp_path / "env", 1)
    small, large = writer.open_db(b"small"), writer.open_db(b"large")
    for i in range(800):
        for db, size in (small, 2100), (large, 28_000):
            databases.write(writer, [(b"%08d" % i, b"." * size)], db=db)
    writer.close()
    with lmdbio.Records(tmp_path / "env", db=b"small") as records:
        pieces = list(records._routes.blocks.cut(np.arange(800, dtype=np.uint64)))
        assert sum(map(len, pieces)) == 800
        sizes = [
            plan_reads(piece, records._routes.options).totals.buffer_bytes for piece in pieces
        ]
        # Some pages were freed and used again: neighbours in the file, not in key order.
        assert max(sizes) <= 2.1 * blocks.BLOCK_BYTES
        assert list(records) == [b"." * 2100] * 800


def test_threads_share_it_beyond_its_end(path):
    wrong = []

    def read(seed: int) -> None:
        try:
            for _ in range(3):
                check(records, np.random.default_rng(seed).permutation(COUNT)[:100])
        except BaseException as error:
            wrong.append(error)

    with lmdbio.Records(path) as records:
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_child_reads_past_the_page_cache_too(path):
    with lmdbio.Records(path) as records:
        check(records, np.arange(100))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                check(records, np.arange(100, 200))
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        check(records, np.arange(200, 300))


def test_a_file_without_a_block_device_is_not_on_a_local_disk():
    with Path("/proc/self/stat").open("rb") as file:
        assert not _core.inspect_at(file.fileno()).disk


def test_batches_have_huge_pages_only_when_they_are_large():
    small, large = _core.Memory(1 << 20), _core.Memory(direct_path.BATCH_BYTES_MIN)
    assert large.address % _core.Memory.HUGE_PAGE == 0
    assert small.address % _core.Memory.ALIGNMENT == 0


def test_leaves_that_are_the_data_pass_by_too(tmp_path, refuses_direct):
    if refuses_direct:
        pytest.skip(refuses_direct)
    count, size = 60_000, 900
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(
        env, ((b"%08d" % i, b"%09d" % i * 100) for i in range(count)), commit_every=999
    )
    env.close()
    with (
        lmdbio.open(str(tmp_path / "env"), readonly=True, lock=False) as env,
        env.begin() as txn,
    ):
        for i, (key, read) in enumerate(databases.scanning(txn.cursor())):
            assert key == b"%08d" % i and read == b"%09d" % i * 100
        assert i == count - 1
        past, through = env._file.direct_path.counts().bytes, env._file.engine.counts().bytes
        assert past > count * size / 2
        assert past + through <= 1.2 * (tmp_path / "env" / "data.mdb").stat().st_size
