"""Small batches copied out of the page cache as they lie.

Goal: the same records as by a plan, whatever of the file is cached; what is lent stays as it is.
Method: Records over real files of which parts are put out of the page cache.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import random
import threading
import time
from pathlib import Path

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio.reading import file_cache
from lmdbio.records.pending import CachedValues
from lmdbio.records.routes import OWN_BYTES
from tests.support import databases

COUNT, LENGTH = 2000, 3000


def content(index: int) -> bytes:
    return databases.value(index, LENGTH)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%08d" % i, content(i)) for i in range(COUNT)))
    env.sync(True)
    env.close()
    return tmp_path / "env"


class Counted:
    """A gatherer that counts what it could serve."""

    def __init__(self, records: lmdbio.Records) -> None:
        self.served = self.missed = 0
        self._of = records._routes.gatherer
        assert self._of is not None
        records._routes.gatherer = self

    def copy(self, packed, memory) -> bool:
        served = self._of.copy(packed, memory)
        self.served, self.missed = self.served + served, self.missed + (not served)
        return served


@pytest.mark.parametrize("engine", ["auto", "pread"])
def test_a_cached_batch_needs_no_plan_and_lies_in_the_order_asked(path, engine):
    with lmdbio.Records(path, engine=engine, readahead=False) as records:
        list(records)
        counted = Counted(records)
        # The first reads of an engine are calls; then small ones are copies from a mapping.
        for seed in range(20):
            wanted = np.random.default_rng(seed).integers(-COUNT, COUNT, 64)
            batch = records.read(wanted)
            assert [bytes(view) for view in batch] == [content(i % COUNT) for i in wanted.tolist()]
            assert batch.indices.tolist() == (wanted % COUNT).tolist()
            assert batch.contiguous, "records of one length lie at one stride"
            array = batch.array(np.uint8, (LENGTH,))
            assert array[5].tobytes() == content(int(wanted[5]) % COUNT)
        assert (counted.served, counted.missed) == (20, 0)


@pytest.mark.parametrize("kind", [list, np.uint64, np.int32, np.uint8, np.int64])
def test_numbers_of_every_kind_name_the_same_records(path, kind):
    wanted = [3, 250, 0, 3]
    with lmdbio.Records(path) as records:
        records[:]
        given = wanted if kind is list else np.array(wanted).astype(kind)
        for _ in range(2):  # without the table and with it
            assert [bytes(view) for view in records.read(given)] == [content(i) for i in wanted]
            list(records)
        for wrong in ([COUNT], [-COUNT - 1], np.array([2**64 - 1], np.uint64)):
            with pytest.raises(IndexError):
                records.read(wrong)


def test_a_batch_of_which_a_part_is_not_cached_is_read(path):
    """The batch is read, whichever record is the first missing. Mapped pages stay cached."""
    data = path / "data.mdb"
    chance = random.Random(1)
    with lmdbio.Records(path, engine="pread", readahead=False) as records, data.open("rb") as file:
        list(records)
        counted = Counted(records)
        size = data.stat().st_size
        for _ in range(60):
            at = chance.randrange(size) // mmap.PAGESIZE * mmap.PAGESIZE
            os.posix_fadvise(file.fileno(), at, 64 << 10, os.POSIX_FADV_DONTNEED)
            wanted = [chance.randrange(COUNT) for _ in range(100)]
            assert [bytes(view) for view in records.read(wanted)] == [content(i) for i in wanted]
    if counted.missed == 0:
        pytest.skip("this file system does not let go of cached pages")
    assert counted.served > 0


def test_a_large_batch_is_planned(path):
    with lmdbio.Records(path, readahead=False) as records:
        list(records)
        counted = Counted(records)
        wanted = np.arange(COUNT)  # 6 MB
        assert [bytes(view) for view in records.read(wanted)] == list(map(content, range(COUNT)))
        assert (counted.served, counted.missed) == (0, 0)


def test_batches_come_at_once_and_stay(path):
    with lmdbio.Records(path, readahead=False) as records:
        list(records)
        counted = Counted(records)
        wanted = [[i, COUNT - 1 - i] for i in range(50)]
        kept = list(records.batches(wanted, ahead=3))
        assert counted.served == 50
    for indices, batch in zip(wanted, kept, strict=True):
        assert [bytes(view) for view in batch] == [content(i) for i in indices]


def test_what_is_lent_is_not_written_again_while_threads_read(path):
    """A batch's memory comes back to the pool when the last view of it has gone."""
    problems: list[object] = []
    with lmdbio.Records(path, readahead=False) as records:
        list(records)

        def work(seed: int) -> None:
            chance = random.Random(seed)
            kept = []
            for _ in range(300):
                wanted = [chance.randrange(COUNT) for _ in range(chance.randrange(1, 40))]
                batch = records.read(wanted)
                at = chance.randrange(len(wanted))
                kept.append((batch[at], wanted[at]))
                if len(kept) > 5:
                    view, index = kept.pop(chance.randrange(5))
                    if bytes(view) != content(index):
                        problems.append(index)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems


def test_a_cached_file_that_is_read_over_and_over_comes_to_memory(path, monkeypatch, off_disk):
    """A copy earns its bytes, so not before the file was read once over."""
    monkeypatch.setattr(file_cache, "STEP_BYTES", 1 << 20)
    with lmdbio.Records(path) as records:
        list(records)
        counted = Counted(records)
        read = 0
        while not records._routes.file_cache.complete():
            wanted = np.random.default_rng(read).integers(0, COUNT, 100)
            batch = records.read(wanted)
            assert [bytes(view) for view in batch] == [content(i) for i in wanted.tolist()]
            read += int(batch.lengths.sum())
            if read < records._routes.file_cache.size:
                assert records._routes.file_cache._stream._at == 0
            assert read < 10 * records._routes.file_cache.size
        assert counted.served > 0


def test_a_forked_child_and_its_parent_both_gather(path):
    with lmdbio.Records(path, readahead=False) as records:
        list(records)
        wanted = [7, 3, 1999] * 10
        expected = [content(i) for i in wanted]
        for _ in range(30):
            records.read(wanted)
        child = os.fork()
        if child == 0:
            os._exit(0 if [bytes(view) for view in records.read(wanted)] == expected else 1)
        assert [bytes(view) for view in records.read(wanted)] == expected
        assert os.waitpid(child, 0)[1] == 0


def commit(path: Path, times: int) -> None:
    with lmdb.open(str(path), map_size=1 << 28) as env:
        for turn in range(times):
            with env.begin(write=True) as txn:
                txn.put(b"%08d" % turn, b"new")


@pytest.mark.parametrize("engine", ["mmap", "auto"])
def test_a_batch_begun_before_a_writer_moved_on_is_right_or_refused(path, engine):
    """Values lent from a mapping show the writer's pages; they are checked at their turn."""
    wanted = [list(range(at, at + 50)) for at in range(0, 300, 50)]
    with lmdbio.Records(path, engine=engine) as records:
        list(records)
        batches = records.batches(iter(wanted), ahead=2)  # an order that is not known ahead
        assert [bytes(view) for view in next(batches)] == [content(i) for i in wanted[0]]
        commit(path, 5)
        handed_out = 1
        with pytest.raises(lmdbio.Error, match="changed while it was read"):
            for batch in batches:
                assert [bytes(view) for view in batch] == [content(i) for i in wanted[handed_out]]
                handed_out += 1
    assert handed_out == (1 if engine == "mmap" else 3)


def test_batches_lent_from_memory_come_before_the_error_of_a_later_one(
    path, monkeypatch, off_disk
):
    monkeypatch.setattr(file_cache, "PREFETCH_BUDGET_FACTOR", 10**6)
    with lmdbio.Records(path, readahead=True) as records:
        while not records._routes.file_cache.complete():
            records.read(np.arange(0, COUNT, 100))

        def wanted():
            yield from ([i, i + 1] for i in range(5))
            commit(path, 5)
            yield [7]

        handed_out = []
        with pytest.raises(lmdbio.Error, match="changed while it was read"):
            for batch in records.batches(wanted(), ahead=3):
                handed_out.append([bytes(view) for view in batch])
    assert handed_out == [[content(i), content(i + 1)] for i in range(2)]


def test_many_small_records_are_planned_where_each_would_take_a_call(tmp_path):
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%08d" % i, b"%08d" % (i * 7)) for i in range(3000)))
    env.close()
    for engine, served in (("pread", False), ("auto", True)):
        with lmdbio.Records(tmp_path / "env", engine=engine, readahead=False) as records:
            list(records)
            for _ in range(40):
                records.read([0])  # from here on it is known to be worth a mapping
            counted = Counted(records)
            batch = records.read(np.arange(3000))
            assert [bytes(view) for view in batch] == [b"%08d" % (i * 7) for i in range(3000)]
            assert (counted.served, counted.missed) == (served, not served)


def test_a_batch_that_is_cached_but_for_its_end_is_not_read_twice(path):
    data = path / "data.mdb"
    with lmdbio.Records(path, engine="pread", readahead=False) as records, data.open("rb") as file:
        list(records)
        offset = int(records._source.extents(np.array([COUNT - 1], np.uint64))["offset"][0])
        os.posix_fadvise(file.fileno(), offset & -4096, 4096, os.POSIX_FADV_DONTNEED)
        before = records.stats()
        wanted = [*range(200, 400), COUNT - 1]
        assert [bytes(view) for view in records.read(wanted)] == [content(i) for i in wanted]
        # The copies in vain were 3 KB each; 16 KiB and more are asked about first.
        assert (records.stats() - before).read_bytes <= 3 * 200 * LENGTH


def test_what_lies_between_records_is_zero(tmp_path):
    """Not what the memory held before."""
    lengths = [17, 1, 0, 30, 16, 15]
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%d" % i, b"\xff" * lengths[i % len(lengths)]) for i in range(600)))
    env.close()
    with lmdbio.Records(tmp_path / "env", readahead=False) as records:
        list(records)
        records._routes.pool.take(1 << 20)
        for seed in range(20):
            wanted = np.random.default_rng(seed).integers(0, 600, 200)
            batch = records.read(wanted)
            held = batch.buffer.copy()
            for start, length in zip(batch.offsets, batch.lengths, strict=True):
                assert (held[int(start) : int(start + length)] == 255).all()
                held[int(start) : int(start + length)] = 0
            assert not held.any()


@pytest.mark.parametrize("kind", [np.int8, np.int16, ">i8", ">i4"])
def test_negative_numbers_of_every_kind_count_from_the_end(path, kind):
    with lmdbio.Records(path) as records:
        for _ in range(2):
            batch = records.read(np.array([5, -1, -100], kind))
            assert [bytes(v) for v in batch] == [content(i) for i in (5, COUNT - 1, COUNT - 100)]
            list(records)
        unaligned = np.frombuffer(b"x" + np.array([5, -1]).tobytes(), np.int64, 2, 1)
        assert [bytes(v) for v in records.read(unaligned)] == [content(5), content(COUNT - 1)]


def test_many_small_records_beyond_what_may_be_mapped_are_planned(tmp_path):
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%08d" % i, databases.value(i, 128)) for i in range(40_000)))
    env.close()
    own = OWN_BYTES + 40_000 * 16
    with lmdbio.Records(
        tmp_path / "env", readahead=False, memory_bytes_max=own + (2 << 20)
    ) as records:
        list(records)
        for _ in range(40):
            records.read([0])
        counted = Counted(records)

        def check(first: int, count: int, *, served: bool) -> None:
            before = counted.served
            batch = records.read(np.arange(first, first + count))
            for index, view in enumerate(batch, first):
                assert bytes(view) == databases.value(index, 128)
            assert counted.served - before == served

        check(0, 1000, served=True)
        for at in range(0, 40_000, 1000):
            records.read(np.arange(at, at + 1000))
        check(0, 1000, served=True)
        check(39_000, 1000, served=False)
        check(39_000, 256, served=True)  # by as many calls


def put_out(path: Path, parts: list[int]) -> None:
    """Puts pieces of 64 KiB out of the page cache."""
    with (path / "data.mdb").open("rb") as file:
        os.fsync(file.fileno())
        for part in parts:
            os.posix_fadvise(file.fileno(), part << 16, 1 << 16, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("engine", ["auto", "pread", "direct", "mmap"])
@pytest.mark.parametrize("readahead", [None, True, False])
def test_values_are_the_same_whatever_of_the_file_is_cached(path, engine, readahead):
    parts = (path / "data.mdb").stat().st_size >> 16
    draw, asked = random.Random(engine), 0
    with lmdbio.Records(path, engine=engine, readahead=readahead) as records:
        for turn in range(40):
            if turn % 2:
                put_out(path, draw.sample(range(parts), draw.choice([1, parts // 4, parts])))
            wanted = draw.choices(range(-COUNT, COUNT), k=draw.choice([0, 1, 7, 64, 600]))
            begun = records.begin_values(wanted)
            if turn % 3 == 1:  # what was there when it was begun has been put out since
                put_out(path, draw.sample(range(parts), draw.choice([1, parts])))
            assert begun.indices.tolist() == [i % COUNT for i in wanted]
            assert list(begun.values()) == [content(i % COUNT) for i in wanted]
            asked += len(wanted)
        assert records.stats().records == asked


def read_alone(records: lmdbio.Records, path: Path, wanted: list[int]) -> None:
    """Brings these records to the page cache, without what lies between them."""
    put_out(path, list(range((path / "data.mdb").stat().st_size >> 16)))
    assert [records[i] for i in wanted] == [content(i) for i in wanted]


@pytest.mark.parametrize(
    ("out", "since", "most"),
    [([], False, 1.2), ([9, 10], False, 1.5), ([9, 10], True, 1.5)],
    ids=["nothing", "some", "some, since it was begun"],
)
def test_values_read_what_is_missing_and_no_gaps_elsewhere(path, out, since, most):
    wanted = list(range(0, 720, 3))

    def read(records: lmdbio.Records) -> float:
        read_alone(records, path, wanted)
        if not since:
            put_out(path, out)
        before, begun = records.stats(), records.begin_values(wanted)
        if since:
            put_out(path, out)
        assert list(begun.values()) == [content(i) for i in wanted]
        told = records.stats() - before
        assert told.records == told.located_records == len(wanted)
        return told.read_bytes / (len(wanted) * LENGTH)

    # Mapped pages stay cached, and nothing is mapped. Others on this machine may put pages out
    # meanwhile, but not every time.
    with lmdbio.Records(path, engine="pread", readahead=False, memory_bytes_max=1) as records:
        assert any(read(records) < most for _ in range(20))


def test_values_of_a_file_that_a_writer_moved_on_are_refused(path):
    with lmdbio.Records(path) as records:
        list(records)
        values = records.values(range(300))
        assert next(values) == content(0)
        commit(path, 5)
        with pytest.raises(lmdbio.Error, match="changed while it was read"):
            list(values)


@pytest.mark.parametrize("readahead", [True, False])
def test_values_of_what_is_closed_are_refused(path, readahead, monkeypatch, off_disk):
    monkeypatch.setattr(file_cache, "PREFETCH_BUDGET_FACTOR", 10**6)
    records = lmdbio.Records(path, readahead=readahead)
    end = time.monotonic() + 30  # on a busy disk the stream takes longer than a thousand reads
    records.read(np.arange(0, COUNT, 100))
    while readahead and not records._routes.file_cache.complete() and time.monotonic() < end:
        records.read(np.arange(0, COUNT, 100))
    assert records._routes.file_cache.complete() == readahead
    begun = records.begin_values(range(10))
    with pytest.raises(IndexError):
        records.values([COUNT])
    records.close()
    with pytest.raises((lmdbio.Error, ValueError), match="closed"):
        list(begun.values())


def rewrite(path: Path) -> None:
    with lmdb.open(str(path), map_size=1 << 28) as env:
        for turn in range(6):
            with env.begin(write=True) as txn:
                for i in range(COUNT):
                    txn.put(b"%08d" % i, bytes([turn]) * LENGTH)


@pytest.mark.parametrize("harm", ["rewritten", "cut"])
@pytest.mark.parametrize("engine", ["mmap", "auto", "pread", "direct"])
def test_values_out_of_a_file_that_changes_are_right_or_refused(path, engine, harm):
    (path / "data.mdb").read_bytes()
    with lmdbio.Records(path, engine=engine, readahead=False) as records:
        values = records.values(range(COUNT))
        assert [next(values) for _ in range(3)] == [content(i) for i in range(3)]
        if harm == "rewritten":
            rewrite(path)
        else:
            os.truncate(path / "data.mdb", 100 * 4096)
        seen = 3
        try:
            for value in values:
                assert value == content(seen)
                seen += 1
        except lmdbio.Error:
            pass
        else:
            assert engine == "direct", "only what was read when it was asked for is still there"
            assert seen == COUNT


def test_nothing_of_a_file_stays_open_when_records_are_closed(path):
    def opened() -> int:
        found = 0
        for one in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # that of the folder itself is gone
                found += one.readlink() == path / "data.mdb"
        return found

    kept = []
    for _ in range(3):
        records = lmdbio.Records(path, engine="pread")
        assert list(records.values([1, 2])) == [content(1), content(2)] and records[5] == content(
            5
        )
        assert opened() > 0
        records.close()
        assert opened() == 0
        kept.append(records)


def test_what_is_under_way_is_not_pickled(path):
    with lmdbio.Records(path) as records:
        for begun in (records.begin([5]), records.begin_values([5])):
            with pytest.raises(TypeError, match="under way"):
                pickle.dumps(begun)
            begun.close()


def test_values_that_wait_for_nobody_are_handed_out_once(path):
    with lmdbio.Records(path, engine="pread", readahead=False) as records:
        for _ in range(20):  # others on this machine may put pages out meanwhile, but not always
            assert [records[i] for i in range(COUNT)] == [content(i) for i in range(COUNT)]
            begun = records.begin_values([3, -1, 3])
            assert list(begun.values()) == [content(3), content(COUNT - 1), content(3)]
            if isinstance(begun, CachedValues):
                break
        assert isinstance(begun, CachedValues) and begun.indices.tolist() == [3, COUNT - 1, 3]
        with pytest.raises(ValueError, match=r"data\.mdb: these values were handed out"):
            begun.values()
