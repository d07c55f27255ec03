"""Goal: a shuffled Reader gives each epoch in the order of its seed, whatever reads it.

Where windows are read whole, each byte comes from the file once an epoch.

Method: databases written by py-lmdb; orders computed place by place; windows of any size are read
whole where a test says so. Jobs of several ranks are in tests/mpi.
"""

from __future__ import annotations

import os
import re
from itertools import chain
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from lmdbio.errors import Error
from lmdbio.planning.mode import Mode
from lmdbio.planning.order import Epoch, Steps
from lmdbio.planning.randomness import randomness
from lmdbio.planning.shuffle import Shuffle
from lmdbio.reader import block_size
from lmdbio.reader.reader import Reader
from tests.reader.support import COUNT, MODES, drain, value, write
from tests.support import long_run

SHUFFLES: list[Shuffle | str | bool | None] = [
    None, True, "global", "group", "window", "groups:16", "windows:7x5", "runs:9",
    Shuffle.given(np.arange(COUNT)[::-1]), Shuffle.mixed(50, 7, 5),
]  # fmt: skip


def chosen(modes: list[Any]) -> list[Any]:
    """Return all modes in the long run; otherwise every second one, on each day the others."""
    return list(chain(*long_run.one_of(modes[::2], modes[1::2])))


@pytest.mark.parametrize("shuffle", SHUFFLES, ids=lambda one: str(one)[:20])
@pytest.mark.parametrize("assignment", ["strided", "blocked"])
@pytest.mark.parametrize("window_bytes_min", [1, 2**40])
def test_each_epoch_has_each_record_once_in_the_order_of_the_seed(
    mixed: Path,
    monkeypatch: pytest.MonkeyPatch,
    shuffle: Shuffle | str | bool | None,
    assignment: str,
    window_bytes_min: int,
) -> None:
    monkeypatch.setattr(block_size, "WINDOW_BYTES_MIN", window_bytes_min)
    found = []
    for mode in (MODES[0], *chosen(MODES[1:])):
        with Reader(
            mixed, 16, mode=mode, assignment=assignment, shuffle=shuffle, seed=5, epochs=3
        ) as rdr:
            found.append(drain(rdr))
            assert rdr.schedule.iterations == -(-3 * COUNT // 16) and rdr.place == 3 * COUNT
    assert all(one == found[0] for one in found), "whatever reads it"
    epochs = np.reshape(found[0], (3, COUNT))
    assert (np.sort(epochs, axis=1) == np.arange(COUNT)).all()
    own = rdr.schedule.epochs
    if own is None:
        assert (epochs == np.arange(COUNT)).all()
        return
    for number, order in enumerate(epochs):
        assert np.array_equal(
            order, Epoch(COUNT, 5, number, own.shuffle).samples(np.arange(COUNT))
        )


@pytest.mark.parametrize("size", [16, 3 * COUNT + 1])
@pytest.mark.parametrize("shuffle", [None, "global"])
@pytest.mark.parametrize("cache", [None, "memory=1G", "memory=60K"])
def test_epochs_of_steps_begin_with_a_new_batch_each(
    mixed: Path, size: int, shuffle: str | None, cache: str | None
) -> None:
    start = Steps(epoch=2, used=30)
    for mode in ("auto", Mode(1, "scan", "direct", block_iterations=3)):
        with Reader(
            mixed, size, mode=mode, shuffle=shuffle, seed=5, start=start, cache=cache
        ) as rdr:
            for number in (2, 3, 4):
                order = Epoch(COUNT, None if shuffle is None else 5, number)
                left = order.samples(np.arange(30 if number == 2 else 0, COUNT)).tolist()
                while left:
                    batch = next(rdr)
                    records = batch.indices.tolist()
                    assert len(records) == size and records[: len(left)] == left[:size]
                    assert all(batch[i] == value(record) for i, record in enumerate(records))
                    left = left[size:]
                    del batch
            sources = rdr.sources()
        assert min(sources) == 2
        if cache == "memory=1G":
            assert set(sources[2]) == {"file"} and set(sources[3]) == {"own"}


@pytest.mark.parametrize("words", [
    {"assignment": "blocked"}, {"shuffle": "window"}, {"epochs": 3},
    {"cache": "memory=1M,placement=first"}, {"cache": "memory=1M,warm=window", "shuffle": True},
    {"cache": "memory=1M", "assignment": "local"},
], ids=str)  # fmt: skip
def test_steps_go_with_few_words(mixed: Path, words: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Steps go with strided ranks"):
        Reader(mixed, 16, start=Steps(), **words)


def test_steps_of_no_such_epoch_are_refused(mixed: Path) -> None:
    with pytest.raises(ValueError, match="drop_last leaves out all"):
        Reader(mixed, COUNT + 1, start=Steps(drop_last=True))
    with pytest.raises(ValueError, match="samples cannot have been used"):
        Reader(mixed, 16, start=Steps(used=COUNT + 1))


def test_a_shuffled_reader_goes_on_where_another_one_stopped(mixed: Path) -> None:
    words: dict[str, Any] = {"shuffle": "windows:7x5", "seed": 2, "epochs": 2}
    with Reader(mixed, 10, **words) as rdr:
        whole = drain(rdr)
    with Reader(mixed, 10, **words) as rdr:
        begun = [batch.indices.tolist() for _, batch in zip(range(23), rdr, strict=False)]
        place = rdr.place
    assert place == 230 and list(chain.from_iterable(begun)) == whole[:230]
    with Reader(mixed, 7, start=place, **words) as rdr:
        assert drain(rdr) == whole[230:]
    with Reader(mixed, 7, start=2 * COUNT, **words) as rdr:
        assert drain(rdr) == [] and rdr.place == 2 * COUNT


def test_epochs_end_a_reader_also_where_nothing_is_shuffled(mixed: Path) -> None:
    with Reader(mixed, 100, epochs=1) as rdr:
        assert [len(batch) for batch in rdr] == [100, 100, 11]
    with Reader(mixed, 100, epochs=9, iterations=3, start=5) as rdr:
        assert drain(rdr) == [(5 + i) % COUNT for i in range(300)]
    with Reader(mixed, 100, epochs=1, iterations=30, mode="lmm") as rdr:
        assert drain(rdr) == list(range(COUNT)), "a mode that seeks has a short batch, too"
    with Reader(mixed, 100, epochs=0) as rdr:
        assert drain(rdr) == []


def test_groups_that_repeat_are_warned_of(mixed: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Reader(mixed, 10, shuffle="groups:20", epochs=19):
        pass
    assert not caplog.records
    with Reader(mixed, 10, shuffle="groups:20", epochs=20):
        pass
    assert f"S = 20 epochs of N = {COUNT} records in G = 11 groups" in caplog.text


def test_a_block_is_a_whole_group_or_window_where_a_root_has_it_alone(fixed: Path) -> None:
    for shuffle, k in (("groups:100", 10), ("windows:20x6", 12), ("group", None)):
        with Reader(fixed, 10, shuffle=shuffle, assignment="blocked", epochs=1) as rdr:
            assert k is None or rdr.mode.block_iterations == k
            assert len(drain(rdr, [bytes([i % 251]) * 3001 for i in range(500)])) == 500


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any window is read as a whole, into memory of its own."""
    monkeypatch.setattr(block_size, "WINDOW_BYTES_MIN", 1)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize(
    ("shuffle", "batch_size"), [("groups:30", 7), ("windows:10x6", 16), ("windows:90x2", 500)]
)
def test_each_byte_is_read_once_an_epoch_wherever_blocks_begin(
    fixed: Path, shuffle: str, batch_size: int
) -> None:
    values = [bytes([i % 251]) * 3001 for i in range(500)]
    mode = Mode(block_iterations=2)
    with Reader(
        fixed, batch_size, shuffle=shuffle, epochs=4, mode=mode, gap_bytes_max=4096
    ) as rdr:
        assert sorted(drain(rdr, values)) == sorted([*range(500)] * 4)
        stats = rdr.stats()
    pages = 500 * 4096
    assert 4 * pages <= stats.read_bytes <= 1.02 * 4 * pages
    assert stats.requests <= 4 * (500 // 10 + 2), "a chunk is read at once"


def test_a_reader_says_why_it_reads_no_windows(mixed: Path, fixed: Path) -> None:
    with Reader(mixed, 10, shuffle="windows:7x5") as rdr:
        assert re.search(r"windows of [0-9]+ KiB are small", rdr.windows.text)
    with Reader(fixed, 10, shuffle="windows:100x5", memory_bytes_max="4M") as rdr:
        assert "the memory budget has no room for " in rdr.windows.text


@pytest.mark.usefixtures("small_windows")
def test_a_reader_of_windows_may_begin_and_stop_anywhere(mixed: Path) -> None:
    words: dict[str, Any] = {"shuffle": "windows:7x5", "seed": 2, "slots": 4}
    with Reader(mixed, 10, epochs=3, **words) as rdr:
        whole = drain(rdr)
    for start in (1, 34, 35, 36, COUNT - 1, COUNT, 2 * COUNT + 40):
        with Reader(mixed, 9, start=start, epochs=3, **words) as rdr:
            assert drain(rdr) == whole[start:]
        with Reader(mixed, 9, start=start, iterations=4, **words) as rdr:
            assert drain(rdr)[: 3 * COUNT - start] == whole[start : start + 36]
    with Reader(mixed, 9, **words) as rdr:  # endless; left in the middle
        assert next(rdr).indices.tolist() == whole[:9]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize(
    ("count", "batch_size", "start"), [(8, 8, 4), (8, 8, 0), (8, 24, 3), (1, 5, 2), (8, 3, 7)]
)
def test_a_slot_has_room_for_the_largest_record_of_each_epoch_in_a_block(
    tmp_path: Path, count: int, batch_size: int, start: int
) -> None:
    values = [bytes([i]) * (300_000 if i == 0 else 100) for i in range(count)]
    write(tmp_path, values)
    for seed in range(6):
        with Reader(
            tmp_path, batch_size, shuffle="windows:2x2", seed=seed, start=start, epochs=30
        ) as rdr:
            assert len(drain(rdr, values)) == 30 * count - start


def test_a_slot_has_room_for_values_without_nodes(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 28, max_dbs=2) as env:
        numbers = env.open_db(b"numbers", dupsort=True, dupfixed=True)
        with env.begin(write=True, db=numbers) as txn:
            for key in range(20):
                values = [(b"%02d" % key, i.to_bytes(2, "big")) for i in range(60_000)]
                txn.cursor().putmulti(values, dupdata=True, append=True)
    with Reader(tmp_path, 1_100_000, db=b"numbers", shuffle="groups:900000", epochs=1) as rdr:
        read = [int.from_bytes(batch[0], "big") for batch in rdr]
        assert len(read) == 2 and rdr.stats().records == 1_200_000


@pytest.mark.usefixtures("small_windows")
def test_windows_without_room_are_read_block_by_block(fixed: Path) -> None:
    values = [bytes([i % 251]) * 3001 for i in range(500)]
    requests = []
    for budget in ("64M", "700K"):
        with Reader(
            fixed, 10, shuffle="groups:200", epochs=1, memory_bytes_max=budget, slots=2,
            mode=Mode(block_iterations=1),
        ) as rdr:  # fmt: skip
            assert sorted(drain(rdr, values)) == list(range(500))
            requests.append(rdr.stats().requests)
    assert requests[0] < 10 < requests[1]


@pytest.mark.usefixtures("small_windows")
def test_a_file_that_changes_under_its_windows_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "db", [value(i) for i in range(COUNT)])
    with Reader(path, 10, shuffle="groups:50", epochs=40) as rdr:
        next(rdr)
        with lmdb.open(str(path), map_size=1 << 28) as env:
            for number in range(3):
                with env.begin(write=True) as txn:
                    txn.put(b"more %d" % number, b"x")
        with pytest.raises(Error, match=r"data\.mdb"):
            drain(rdr)


@pytest.mark.usefixtures("small_windows")
def test_a_window_that_cannot_be_read_is_an_error_that_names_the_file(
    mixed: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cut"
    path.mkdir()
    whole = (mixed / "data.mdb").read_bytes()
    (path / "data.mdb").write_bytes(whole)
    with Reader(path, 10, shuffle="groups:20", epochs=50, mode=Mode(engine="pread")) as rdr:
        next(rdr)
        os.truncate(path / "data.mdb", len(whole) // 4)
        with pytest.raises((Error, OSError), match=r"data\.mdb"):
            drain(rdr)
        with pytest.raises((Error, OSError), match=r"data\.mdb"):
            next(rdr)


def delivered_randomness(path: Path, count: int, shuffle: str) -> tuple[float, float]:
    """The randomisation level of what a Reader delivers in 500 epochs, and by the formula.

    Of each place: the different records that came there after the same windows before, less those
    that had come of the window by then.
    """
    came: dict[tuple[int, frozenset[int]], set[int]] = {}
    with Reader(path, count, shuffle=shuffle, epochs=500, seed=1) as reader:
        assert reader.schedule.epochs is not None
        order = reader.schedule.epochs.shuffle
        size = order.window_records(count)
        for batch in reader:
            records = batch.indices.tolist()
            for place, record in enumerate(records):
                before = frozenset(records[: place // size * size])
                came.setdefault((place, before), set()).add(record)
    found = whole = 0.0
    for place in range(count):
        several = [len(records) for (at, _), records in came.items() if at == place]
        choices = np.mean(several) * (1 - place % size / size)
        found += np.log2(choices) / (count - place)
        whole += np.log2(count - place) / (count - place)
    return found / whole, randomness(order, count)


@pytest.mark.parametrize(
    ("count", "shuffle"),
    [(5, "global"), (6, "groups:2"), (6, "groups:3"), (8, "groups:4"), (8, "windows:2x2")],
)
def test_what_is_delivered_has_the_chance_that_the_formula_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, shuffle: str
) -> None:
    """DeepIO, equations 1 to 5."""
    monkeypatch.setattr(block_size, "WINDOW_BYTES_MIN", 1)
    path = write(tmp_path / "db", [value(i) for i in range(count)])
    measured, said = delivered_randomness(path, count, shuffle)
    assert measured == pytest.approx(said, abs=1e-12)
