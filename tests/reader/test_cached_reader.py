"""Goal: a Reader that keeps parts of the file gives the same records, and says what it keeps.

Method: one process, small files; whatever cannot be is refused by name. Jobs of several ranks are
in tests/mpi/caches.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.errors import Error, IncompatibleError
from lmdbio.machine.choice import Reason
from lmdbio.placement import homes
from lmdbio.reader import caching, setup
from lmdbio.reader.reader import Reader, moved
from tests.reader.support import KEPT_COUNT as COUNT, write


def read(
    path: Path, cache: Any, batch: int = 7, **more: Any
) -> tuple[list[tuple[int, bytes]], Reader]:
    words = {"shuffle": "global", "seed": 2, "epochs": 3, **more}
    with Reader(path, batch, cache=cache, **words) as reader:
        told = [
            (index, bytes(rows[i]))
            for rows in reader
            for i, index in enumerate(rows.indices.tolist())
        ]
    return told, reader


@pytest.mark.parametrize("warm", ["demand", "preload"])
@pytest.mark.parametrize(
    "shuffle", [None, "global", "windows:10x3", lmdbio.Shuffle.mixed(9, 4, 2)]
)
def test_records_are_those_of_a_reader_without_a_cache(
    path: Path, values: list[bytes], warm: str, shuffle: Any
) -> None:
    told, reader = read(path, lmdbio.Cache("1G", warm=warm), shuffle=shuffle)
    assert told == read(path, None, shuffle=shuffle)[0]
    assert all(value == values[index] for index, value in told)
    size = (path / "data.mdb").stat().st_size
    stats = reader.stats()
    assert stats.read_bytes == stats.warm_bytes <= size
    assert stats.cache_bytes == 0, "it is closed"
    first = {"file": COUNT} if warm == "demand" else {"own": COUNT}
    counts = {
        epoch: {source: records for source, (records, _) in by_source.items()}
        for epoch, by_source in reader.sources().items()
    }
    assert counts == {0: first, 1: {"own": COUNT}, 2: {"own": COUNT}}
    assert "1 root keeps" in reader.caching.text


def test_a_first_epoch_in_windows_needs_no_whole_file(tmp_path: Path) -> None:
    count = 6000
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for i in range(count):
            txn.put(b"%06d" % i, b"%06d" % i * 500, append=True)
    words: dict[str, Any] = {"shuffle": "global", "seed": 5, "epochs": 2}
    with Reader(tmp_path / "db", 100, **words) as reader:
        usual = [i for batch in reader for i in batch.indices.tolist()]
    with Reader(tmp_path / "db", 100, cache="memory=1G,warm=window", **words) as reader:
        told = []
        for batch in reader:
            told += batch.indices.tolist()
            assert all(bytes(batch[k]) == b"%06d" % i * 500 for k, i in enumerate(told[-100:]))
            if len(told) == 2000:
                place, epochs = reader.place, reader.schedule.epochs
    assert told[count:] == usual[count:], "later epochs are as without"
    assert sorted(told[:count]) == list(range(count)) and told[:count] != usual[:count]
    assert epochs is not None and epochs.first is not None
    window = epochs.first.window_records(count)
    assert window < count // 8
    # Three chunks of the file, or four: not all of it.
    assert len({i // epochs.first.chunk for i in told[:window]}) <= epochs.first.window
    with Reader(
        tmp_path / "db", 70, start=place, cache="memory=9M,warm=window", **words
    ) as reader:
        assert [i for batch in reader for i in batch.indices.tolist()] == told[2000:]


def test_a_first_epoch_in_windows_needs_another_order_behind_it(path: Path) -> None:
    for shuffle in (None, "window", "groups:8"):
        with pytest.raises(ValueError, match=r"warm='window' .* write shuffle='global'"):
            Reader(path, 7, cache="memory=1G,warm=window", shuffle=shuffle)


def test_records_that_no_root_has_room_for_come_from_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "GRAIN_BYTES_MIN", 4096)
    told, reader = read(path, "memory=500K")
    assert told == read(path, None)[0]
    later = reader.sources()[2]
    assert later["own"][0] + later["file"][0] == COUNT
    assert 450 << 10 <= reader.stats().warm_bytes <= 500 << 10


@pytest.mark.parametrize("warm", ["demand", "preload"])
def test_a_reader_of_nothing_ends(path: Path, warm: str) -> None:
    assert read(path, lmdbio.Cache("1G", warm=warm), iterations=0)[0] == []


def test_one_machine_has_a_page_cache(path: Path) -> None:
    reader = read(path, "auto")[1]
    assert "page cache" in reader.caching.text
    assert not reader.stats().warm_bytes
    assert "no root keeps" in read(path, None)[1].caching.text


@pytest.mark.parametrize(
    ("cache", "raised", "why"),
    [
        ("memory", ValueError, "NAME=VALUE"),
        ("memory=0", ValueError, "memory, a disk"),
        ("disk=/nowhere/at/all", FileNotFoundError, "/nowhere/at/all"),
        (3, TypeError, "must be a Cache"),
    ],
)
def test_nonsense_is_refused(path: Path, cache: Any, raised: type[Exception], why: str) -> None:
    with pytest.raises(raised, match=why):
        Reader(path, 7, cache=cache)


def test_one_root_alone_has_no_use_for_homes(path: Path) -> None:
    for cache in ("memory=1G", "auto"):
        told, reader = read(path, cache, assignment="local")
        assert told == read(path, None)[0]
        assert reader.schedule.assignment == "strided"
        assert '"local" is "strided" here' in reader.caching.text
        assert "strided" not in read(path, cache)[1].caching.text


def test_nothing_is_local_without_a_cache(path: Path) -> None:
    with pytest.raises(ValueError, match=r'"local" .* without a cache: write cache="memory=8G"'):
        Reader(path, 7, assignment="local")
    with pytest.raises(ValueError, match="one of strided, blocked, local, not 'near'"):
        Reader(path, 7, assignment="near")


def test_modes_that_seek_keep_nothing(path: Path) -> None:
    with pytest.raises(IncompatibleError, match="cache="):
        Reader(path, 7, mode="dm", cache="memory=1G")


def test_memory_that_is_not_there_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "available_bytes", lambda: 1 << 20)
    why = r"data\.mdb: cache: \d+ MiB of memory, and \d+ MiB of window beside it, are more than"
    with pytest.raises(MemoryError, match=why):
        Reader(path, 7, cache="memory=8G")
    # As much as it needs, and no more, has to be there, and the window's room beside it.
    Reader(path, 7, cache="memory=512K").close()
    with pytest.raises(MemoryError, match=why):
        Reader(path, COUNT, cache="memory=512K")


def test_automatic_caches_leave_the_window_its_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "available_bytes", lambda: 1 << 20)
    monkeypatch.setattr(
        setup, "choose_cache", lambda *_, **__: ("auto", Reason("facts", "a test"))
    )
    monkeypatch.setattr(homes, "GRAIN_BYTES_MIN", 4096)
    for size, least, most in ((1, 400 << 10, 512 << 10), (8, 0, 400 << 10)):
        reader = read(path, "auto", batch=size)[1]
        assert least < reader.stats().warm_bytes <= most, size


def rewrite(path: Path) -> None:
    with lmdb.open(str(path), map_size=1 << 28) as env:
        for value in range(3):
            with env.begin(write=True) as txn:
                for i in range(COUNT):
                    txn.put(b"%04d" % i, bytes([value]) * 9000)


def test_what_was_kept_before_the_file_is_written_stays_as_it_was(
    path: Path, values: list[bytes]
) -> None:
    with Reader(path, COUNT, shuffle="global", cache="memory=1G,warm=preload") as reader:
        next(reader)
        rewrite(path)
        batch = next(reader)
        assert [bytes(one) for one in batch] == [values[i] for i in batch.indices.tolist()]


def test_what_was_not_kept_ends_the_reading_when_the_file_is_written(
    path: Path, values: list[bytes]
) -> None:
    mode = lmdbio.Mode(locate="scan", block_iterations=1)  # little is read ahead of its use
    with Reader(path, 7, mode=mode, shuffle="global", cache="memory=200K") as reader:
        rewrite(path)
        with pytest.raises(Error, match=r"data\.mdb"):
            for _ in range(COUNT):
                batch = next(reader)
                assert [bytes(one) for one in batch] == [values[i] for i in batch.indices.tolist()]


def anonymous_bytes() -> int:
    (line,) = (
        line
        for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
        if line.startswith("Anonymous:")
    )
    return int(line.split()[1]) << 10


def test_memory_is_free_when_a_reader_is_closed(tmp_path: Path) -> None:
    size = 64 << 20
    with lmdb.open(str(tmp_path / "db"), map_size=2 * size) as env, env.begin(write=True) as txn:
        for i in range(size >> 16):
            txn.put(b"%06d" % i, bytes([i % 251]) * (1 << 16))
    reader = Reader(tmp_path / "db", 8, cache="memory=1G,warm=preload")
    assert len(next(reader)) == 8
    kept = anonymous_bytes()
    assert reader.stats().cache_bytes >= size
    reader.close()
    assert kept - anonymous_bytes() > size // 2


@pytest.mark.parametrize(
    ("room", "has_disk"), [("1G", False), ("500K", False), ("500K", True)], ids=str
)
def test_a_reader_that_moves_goes_on_with_what_it_has_in_memory(
    path: Path, room: str, has_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "GRAIN_BYTES_MIN", 4096)
    cache = f"memory={room},disk={tmp_path}" if has_disk else f"memory={room}"
    words: dict[str, Any] = {"shuffle": "global", "epochs": 5}
    first = Reader(path, 7, cache=cache, seed=2, **words)
    for _ in range(2 * COUNT // 7 + 1):
        next(first)
    with moved(first, None, start=COUNT + 3, seed=9) as second:
        with pytest.raises(Error, match="closed"):
            next(first)
        told = [bytes(value) for rows in second for value in rows]
    assert first.stats().warm_bytes > 0 and first.stats().cache_bytes == 0
    assert second.stats().warm_bytes == 0, "nothing is read again"
    assert second.stats().own_records > 0
    with Reader(path, 7, seed=9, start=COUNT + 3, **words) as plain:
        assert told == [bytes(value) for rows in plain for value in rows]


@pytest.mark.parametrize("was_stuck", [False, True])
def test_memory_that_a_disk_may_still_fill_is_not_handed_on(
    path: Path, values: list[bytes], was_stuck: bool, tmp_path: Path
) -> None:
    """By a read that was given up when the disk did not answer."""
    first = Reader(path, 7, cache=f"memory=64K,disk={tmp_path}", shuffle="global")
    next(first)
    left = first._left
    assert left is not None and left.shard.back is not None
    if was_stuck:
        left.shard.back.note_stuck()
    with moved(first, None, start=0, seed=1) as second:
        again = second._left
        assert again is not None
        assert (again.memory is left.memory) != was_stuck
        rows = next(second)
        assert [bytes(value) for value in rows] == [values[i] for i in rows.indices.tolist()]
        del rows


def test_a_reader_that_moves_keeps_nothing_of_a_file_that_was_replaced(
    values: list[bytes], tmp_path: Path
) -> None:
    """By another one with the same meta pages."""
    changed = [bytes(255 - one for one in value) for value in values]
    path, other = write(tmp_path / "db", values), write(tmp_path / "other", changed)
    words: dict[str, Any] = {"cache": "memory=1G", "iterations": 40}
    first = Reader(path, 10, **words)
    for batch in first:
        assert [bytes(value) for value in batch] == [values[i] for i in batch.indices.tolist()]
    del batch
    (other / "data.mdb").replace(path / "data.mdb")
    with moved(first, None, start=0, seed=0) as second:
        assert second.facts.state == first.facts.state
        for batch in second:
            assert [bytes(value) for value in batch] == [changed[i] for i in batch.indices]
    assert second.stats().warm_bytes == first.stats().warm_bytes > 0


def test_small_records_need_no_page_each_in_the_window(tmp_path: Path) -> None:
    count = 200_000
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for i in range(count):
            txn.put(b"%06d" % i, b"%06d" % i, append=True)
    with Reader(
        tmp_path / "db",
        1000,
        mode=lmdbio.Mode(engine="direct", locate="scan"),
        cache="memory=64M",
        shuffle="global",
        iterations=20,
        memory_bytes_max="2M",
    ) as reader:
        for batch in reader:
            assert all(bytes(v) == b"%06d" % i for i, v in zip(batch.indices, batch, strict=True))
