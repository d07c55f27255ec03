"""Goal: where roots keep a part of the file, the rest streams through windows, once an epoch.

Method: one process, small files; jobs of several ranks are in tests/mpi/caches.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.errors import Error
from lmdbio.placement import homes
from lmdbio.planning.order import Epochs
from lmdbio.planning.shuffle import Shuffle
from lmdbio.reader import block_size
from lmdbio.reader.reader import Reader
from tests.reader.support import KEPT_COUNT as COUNT

WORDS: dict[str, Any] = {"shuffle": "windows:6x5", "seed": 2, "epochs": 3}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small data set has many grains, and windows."""
    monkeypatch.setattr(homes, "GRAIN_BYTES_MIN", 4096)
    monkeypatch.setattr(block_size, "WINDOW_BYTES_MIN", 4096)


def mixed(memory: int | str, **more: Any) -> lmdbio.Cache:
    return lmdbio.Cache(memory, placement="mixed", **more)


def read(path: Path, cache: Any, **more: Any) -> tuple[list[tuple[int, bytes]], Reader]:
    with Reader(path, 7, cache=cache, request_bytes_max=8192, **{**WORDS, **more}) as reader:
        told = [
            (index, bytes(batch[i]))
            for batch in reader
            for i, index in enumerate(batch.indices.tolist())
        ]
    return told, reader


@pytest.mark.parametrize("warm", ["demand", "preload"])
@pytest.mark.parametrize("shuffle", ["windows:6x5", "groups:40"])
@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9, 2])
def test_what_has_no_home_is_read_once_an_epoch(
    path: Path, values: list[bytes], warm: str, shuffle: str, part: float
) -> None:
    size = (path / "data.mdb").stat().st_size
    told, reader = read(path, mixed(int(part * size) + 1, warm=warm), shuffle=shuffle)
    epochs = reader.schedule.epochs
    assert epochs is not None
    held, plain = epochs.shuffle.held, Shuffle.named(shuffle)
    assert epochs == Epochs(COUNT, 2, Shuffle.mixed(held, plain.chunk, plain.window))
    assert (held == 0, 0 < held < COUNT, held == COUNT) == (part < 0.1, 0 < part < 1, part > 1)
    assert [index for index, _ in told] == epochs.samples(range(3 * COUNT)).tolist()
    assert all(value == values[index] for index, value in told)
    assert f"of {COUNT} records the first {held} come anywhere" in reader.caching.text
    stats = reader.stats()
    assert stats.warm_bytes <= min(size, part * size + 4096)
    counts = {
        epoch: {source: records for source, (records, _) in by_source.items()}
        for epoch, by_source in reader.sources().items()
    }
    usual = {name: n for name, n in (("own", held), ("file", COUNT - held)) if n}
    first = usual if warm == "preload" else {"file": COUNT}
    assert counts == {0: first, 1: usual, 2: usual}


def test_large_windows_read_no_more_than_what_has_no_home(tmp_path: Path) -> None:
    count = 4000
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for i in range(count):
            txn.put(b"%06d" % i, b"%06d" % i * 500, append=True)
    with Reader(
        tmp_path / "db", 50, shuffle="windows:400x2", epochs=3, cache=mixed("4M")
    ) as reader:
        assert sum(len(batch) for batch in reader) == 3 * count
    stats, size = reader.stats(), count * 4096
    assert stats.warm_bytes == 4 << 20
    # Of the first epoch as well: a window takes what has no home alone.
    assert stats.read_bytes <= stats.warm_bytes + 1.02 * 3 * (size - stats.warm_bytes)


def test_an_order_goes_on_with_another_cache(path: Path) -> None:
    size = (path / "data.mdb").stat().st_size
    told, reader = read(path, mixed(size // 2))
    epochs = reader.schedule.epochs
    assert epochs is not None
    for cache in (mixed(size // 4), mixed("1G"), lmdbio.Cache("1G"), None):
        rest, other = read(path, cache, shuffle=epochs.shuffle, start=100)
        assert rest == told[100:], cache
        assert other.schedule.epochs == epochs
    _, other = read(path, mixed(size // 4), shuffle=epochs.shuffle)
    assert f"records of {epochs.shuffle.held} that the order holds" in other.caching.text
    assert "no room for all that the order holds" in other.windows.text


def test_small_windows_are_read_with_their_blocks(
    path: Path, values: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_size, "WINDOW_BYTES_MIN", 1 << 30)
    told, reader = read(path, mixed((path / "data.mdb").stat().st_size // 2))
    assert all(value == values[index] for index, value in told)
    assert "are small" in reader.windows.text
    assert reader.sources()[2].keys() == {"own", "file"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"shuffle": "global"}, "needs records that come in windows"),
        ({"shuffle": "groups:1"}, "a record by itself is none: .* 'groups:SIZE' of 2 records"),
        ({"shuffle": "windows:1x9"}, "a record by itself is none"),
        ({"shuffle": None}, "in windows: write shuffle='window'"),
        ({"shuffle": Shuffle.runs(5)}, "windows"),
        ({"assignment": "local"}, "needs placement=home: with mixed"),
    ],
)
def test_orders_without_windows_are_refused(path: Path, words: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Reader(path, 7, cache=mixed("1G"), **{"shuffle": "window", **words})


def test_a_disk_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in memory alone: disk is for placement=home"):
        Reader(path, 7, cache=mixed("1G", disk=str(tmp_path)), shuffle="window")


def test_a_start_needs_the_order_that_is_gone_on_with(path: Path) -> None:
    with pytest.raises(ValueError, match=r"start: .* save reader\.schedule\.epochs\.shuffle"):
        Reader(path, 7, cache=mixed("1G"), shuffle="window", start=7)


def test_a_file_that_is_written_ends_the_reading(path: Path, values: list[bytes]) -> None:
    mode = lmdbio.Mode(locate="scan", block_iterations=1)
    with Reader(path, 7, mode=mode, cache=mixed("200K"), shuffle="windows:6x5") as reader:
        with lmdb.open(str(path), map_size=1 << 28) as env:
            for value in range(3):
                with env.begin(write=True) as txn:
                    for i in range(COUNT):
                        txn.put(b"%08d" % i, bytes([value]) * 9000)
        with pytest.raises(Error, match=r"data\.mdb"):
            for _ in range(COUNT):
                batch = next(reader)
                assert [bytes(one) for one in batch] == [values[i] for i in batch.indices.tolist()]


def test_a_reader_may_be_left_at_any_time(path: Path) -> None:
    for steps in (0, 1, 5, 60):
        with Reader(path, 7, cache=mixed("500K"), **{**WORDS, "epochs": None}) as reader:
            for _ in range(steps):
                next(reader)
        assert reader.stats().cache_bytes == 0


def test_an_order_that_is_not_the_files_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for i in range(3000):
            txn.put(str(i).encode(), bytes(3000))
    words: dict[str, Any] = {"shuffle": "windows:60x5", "cache": mixed("6M"), "iterations": 2}
    with caplog.at_level("WARNING", "lmdbio"), Reader(tmp_path / "db", 7, **words) as reader:
        assert "records do not lie in the file in their order" in reader.caching.text
    assert "order='insertion'" in caplog.text
    with Reader(tmp_path / "db", 7, order="insertion", **words) as reader:
        assert "their order" not in reader.caching.text
