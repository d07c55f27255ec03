"""Goal: a Reader whose root keeps records one by one gives the same records, and reads no more.

Method: one process, small files; all orders and placements against a Reader without a cache. Jobs
of several ranks are in tests/mpi/keeping.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.errors import Error, IncompatibleError
from lmdbio.reader import caching, record_rows, round_cache
from lmdbio.reader.reader import Reader
from tests.reader.support import KEPT_COUNT as COUNT

PLACEMENTS = ("first", "frequency")
ONE_ITERATION = lmdbio.Mode(locate="scan", block_iterations=1)  # little is read ahead of its use


def read(path: Path, cache: Any, **more: Any) -> tuple[list[tuple[int, bytes]], Reader]:
    words = {"shuffle": "global", "seed": 2, "epochs": 3, **more}
    with Reader(path, 7, cache=cache, **words) as reader:
        told = [
            (index, bytes(batch[i]))
            for batch in reader
            for i, index in enumerate(batch.indices.tolist())
        ]
    return told, reader


def counts(reader: Reader) -> dict[int, dict[str, int]]:
    return {
        epoch: {source: records for source, (records, _) in by_source.items()}
        for epoch, by_source in reader.sources().items()
    }


@pytest.mark.parametrize("memory", ["1G", "500K", "40K", 1])
@pytest.mark.parametrize("shuffle", [None, "global", "windows:10x3", "groups:11"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_records_are_those_of_a_reader_without_a_cache(
    path: Path, values: list[bytes], placement: str, shuffle: Any, memory: Any
) -> None:
    told, reader = read(path, lmdbio.Cache(memory, placement=placement), shuffle=shuffle)
    assert told == read(path, None, shuffle=shuffle)[0]
    assert all(value == values[index] for index, value in told)
    stats = reader.stats()
    assert counts(reader)[0] == {"file": COUNT}
    assert stats.cache_bytes == 0, "it is closed"
    assert "1 root keeps records" in reader.caching.text
    if memory == "1G":
        size = (path / "data.mdb").stat().st_size
        assert counts(reader)[1] == counts(reader)[2] == {"own": COUNT}
        # Neighbours of several blocks share pages.
        assert stats.read_bytes <= size + 2 * 4096 * COUNT
        assert stats.warm_bytes == stats.read_bytes


@pytest.mark.parametrize("placement", ["first", "frequency"])
def test_all_is_read_before_the_first_batch_in_large_requests(path: Path, placement: str) -> None:
    cache = lmdbio.Cache("1G", placement=placement, warm="preload")
    told, reader = read(path, cache)
    assert told == read(path, None)[0]
    assert counts(reader) == {epoch: {"own": COUNT} for epoch in range(3)}
    stats, size = reader.stats(), (path / "data.mdb").stat().st_size
    # Buffers of a twentieth of it, which share a page with the next one.
    assert stats.read_bytes == stats.warm_bytes <= 1.1 * size
    assert stats.requests <= COUNT // 5


def test_what_no_root_has_room_for_comes_from_the_file(path: Path) -> None:
    for placement in ("first", "frequency"):
        reader = read(path, lmdbio.Cache("500K", placement=placement))[1]
        later = counts(reader)
        assert later[1] == later[2] and later[1]["own"] + later[1]["file"] == COUNT
        assert 0 < later[1]["own"] < COUNT


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("start", [1, COUNT - 1, COUNT, COUNT + 100])
def test_a_job_may_begin_inside_an_epoch(path: Path, placement: str, start: int) -> None:
    told, reader = read(path, lmdbio.Cache("1G", placement=placement), start=start, epochs=4)
    assert told == read(path, None, start=start, epochs=4)[0]
    # Each record is read at its first use, in the first epoch or in the one after.
    assert sum(by.get("file", 0) for by in counts(reader).values()) == COUNT


def test_a_job_may_have_no_end(path: Path, values: list[bytes]) -> None:
    with Reader(
        path, 11, start=-3, cache=lmdbio.Cache("1G", placement="first"), mode=ONE_ITERATION
    ) as reader:
        for _ in range(3 * COUNT // 11):
            batch = next(reader)
            assert [bytes(one) for one in batch] == [values[i] for i in batch.indices.tolist()]
    assert counts(reader)[2].get("own", 0) > COUNT // 2
    assert sum(by.get("file", 0) for by in counts(reader).values()) <= COUNT


def test_a_record_that_comes_several_times_in_a_batch_is_read_once(
    path: Path, values: list[bytes]
) -> None:
    for placement in PLACEMENTS:
        cache = lmdbio.Cache("1G", placement=placement)
        with Reader(path, 2 * COUNT + 5, shuffle="global", epochs=5, cache=cache) as reader:
            for batch in reader:
                assert [bytes(one) for one in batch] == [
                    values[index] for index in batch.indices.tolist()
                ]
        wanted = {0: {"file": COUNT}} | {epoch: {"own": COUNT} for epoch in range(1, 5)}
        assert counts(reader) == wanted


def test_a_reader_of_nothing_ends(path: Path) -> None:
    for placement in PLACEMENTS:
        for warm in ("demand", "preload"):
            cache = lmdbio.Cache("1G", placement=placement, warm=warm)
            assert read(path, cache, iterations=0)[0] == []


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_records_without_bytes_are_kept_as_well(tmp_path: Path, placement: str) -> None:
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 20) as env, env.begin(write=True) as txn:
        for i in range(20):
            txn.put(b"%02d" % i, b"")
    told, reader = read(tmp_path / "db", lmdbio.Cache("1M", placement=placement))
    assert sorted(told) == sorted([(i, b"") for i in range(20)] * 3)
    assert counts(reader) == {0: {"file": 20}, 1: {"own": 20}, 2: {"own": 20}}


@pytest.mark.parametrize(
    ("cache", "more", "why"),
    [
        ("memory=1G,placement=frequency", {"epochs": None}, "frequency .* needs epochs="),
        ("memory=1G,disk=/tmp,placement=first", {}, "in memory alone: disk is for placement=home"),
        ("memory=1G,placement=first", {"assignment": "local"}, "needs placement=home"),
        ("memory=1G,placement=frequency", {"epochs": 10**8}, "steps are more than 536,870,912"),
    ],
)
def test_what_cannot_be_is_refused(path: Path, cache: str, more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(path, cache, **more)


def test_modes_that_seek_keep_nothing(path: Path) -> None:
    with pytest.raises(IncompatibleError, match="cache="):
        read(path, "memory=1G,placement=first", mode="dm", shuffle=None)


def test_memory_that_is_not_there_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "available_bytes", lambda: 1 << 20)
    for placement in PLACEMENTS:
        with pytest.raises(
            MemoryError, match=r"data\.mdb: cache: \d+ MiB of memory, and \d+ MiB of"
        ):
            read(path, lmdbio.Cache("8G", placement=placement))
        # As much as it needs, and no more, has to be there.
        read(path, lmdbio.Cache("512K", placement=placement))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_sizes_of_records_are_asked_for_its_need_and_its_plan_alone(
    path: Path, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, rooms = list[int](), record_rows.record_rooms

    def told(source: Any) -> Any:
        found = rooms(source)
        asked.append(len(found))
        return found

    monkeypatch.setattr(record_rows, "record_rooms", told)
    read(path, lmdbio.Cache("512K", placement=placement))
    assert asked == [COUNT, COUNT]


def rewrite(path: Path) -> None:
    with lmdb.open(str(path), map_size=1 << 28) as env:
        for value in range(3):
            with env.begin(write=True) as txn:
                for i in range(COUNT):
                    txn.put(b"%08d" % i, bytes([value]) * 9000)


@pytest.mark.parametrize("placement", ["first", "frequency"])
def test_what_was_kept_before_the_file_is_written_stays_as_it_was(
    path: Path, values: list[bytes], placement: str
) -> None:
    cache = lmdbio.Cache("1G", placement=placement, warm="preload")
    with Reader(path, COUNT, shuffle="global", epochs=2, cache=cache) as reader:
        next(reader)
        rewrite(path)
        batch = next(reader)
        assert [bytes(one) for one in batch] == [values[i] for i in batch.indices.tolist()]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_was_not_kept_ends_the_reading_when_the_file_is_written(
    path: Path, values: list[bytes], placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_cache, "BLOCKS_AHEAD", 4)
    cache = lmdbio.Cache("200K", placement=placement)
    with Reader(
        path, 7, mode=ONE_ITERATION, shuffle="global", epochs=3, cache=cache, slots=2
    ) as reader:
        rewrite(path)
        with pytest.raises(Error, match=r"data\.mdb"):
            for batch in reader:
                assert [bytes(one) for one in batch] == [values[i] for i in batch.indices.tolist()]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_read_that_fails_is_an_error_that_names_the_file(
    path: Path, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = _core.Ticket.poll
    calls = 0

    def fails(self: _core.Ticket, timeout_ms: int = 0) -> bool:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise OSError(5, "the disk is on fire", str(path))
        return polls(self, timeout_ms)

    monkeypatch.setattr(_core.Ticket, "poll", fails)
    with pytest.raises(OSError, match="on fire"):
        read(path, lmdbio.Cache("200K", placement=placement), epochs=50)


SIZE, BUDGET = 96 << 20, 8 << 20
RECORD = 24_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "db"
    with lmdb.open(str(path), map_size=2 * SIZE) as env, env.begin(write=True) as txn:
        for i in range(SIZE // RECORD):
            txn.put(b"%06d" % i, bytes([i % 251]) * (RECORD + i % 700))
    return path


def anonymous_bytes() -> int:
    (line,) = (
        line
        for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
        if line.startswith("Anonymous:")
    )
    return int(line.split()[1]) << 10


def grown_by(path: Path, cache: Any) -> tuple[int, int]:
    """Return by how much memory is more after two epochs, and how much of that stays."""
    before = anonymous_bytes()
    reader = Reader(
        path, 32, shuffle="global", epochs=3, cache=cache, memory_bytes_max=BUDGET,
        mode=ONE_ITERATION,
    )  # fmt: skip
    for _ in range(2 * (SIZE // RECORD) // 32):
        next(reader)
    grown = anonymous_bytes() - before
    if cache is not None:
        assert reader.stats().cache_bytes <= cache.memory
    reader.close()
    return grown, anonymous_bytes() - before


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_memory_is_what_was_asked_for_and_is_free_again(large: Path, placement: str) -> None:
    memory = 64 << 20
    grown_by(large, None)  # what is taken once a process
    grown, left = grown_by(large, lmdbio.Cache(memory, placement=placement))
    assert memory // 2 < grown <= 1.1 * memory + BUDGET
    assert left < memory // 4
