"""``lmdbio.torch``: what a loader gives, in which order, and after it was interrupted anywhere.

Goal: every sample once an epoch over all ranks and workers, in one order whatever these are; an
interrupted epoch goes on just where it was, with other ranks, workers and batches; data sets
pickle, fork and spawn.

Method: samples are the records' own numbers, so that orders can be compared; ranks are objects
with ``rank=`` of one process; workers are real ones. Interruptions are drawn, their seeds in the
tests' names.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import os
import pickle
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchdata.stateful_dataloader as torchdata
from torch.utils.data import DataLoader

import lmdbio
from lmdbio.planning.order import Epoch, Shard
from lmdbio.reading.batch import Batch
from lmdbio.records.options import RecordsOptions
from lmdbio.torch import (
    BatchSampler,
    Dataset,
    IterableDataset,
    Loader,
    ReaderLoader,
    state_of,
)
from lmdbio.torch.draws import Source
from lmdbio.torch.joint import ReaderBatches
from lmdbio.torch.resume import EpochSlice
from tests.support import databases

COUNT = 301
pytestmark = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated", "ignore:This DataLoader will create"
)


def value(i: int) -> bytes:
    return b"%06d" % i * (1 + i % 700)


def number(data: bytes) -> int:
    return int(bytes(data[:6]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torch") / "db"
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, value(i)) for i in range(COUNT)])
    return path


def order(seed: int | None, epoch: int = 0) -> list[int]:
    samples: list[int] = Epoch(COUNT, seed, epoch).samples(np.arange(COUNT)).tolist()
    return samples


def flat(batches: Any) -> list[int]:
    return [one for batch in batches for one in batch.tolist()]


# --- the data set ------------------------------------------------------------------------


def test_a_sample_is_a_value(folder: Path) -> None:
    data = Dataset(folder)
    assert len(data) == COUNT
    assert data[7] == value(7) and data[-1] == value(COUNT - 1)
    assert data.__getitems__([5, 5, 0]) == [value(5), value(5), value(0)]
    with pytest.raises(IndexError):
        data[COUNT]


def test_keys_and_views_are_handed_out_if_they_are_wanted(folder: Path) -> None:
    data = Dataset(folder, keys=True, buffers=True)
    for key, view in (data[7], *data.__getitems__([7])):
        assert (key, type(view), bytes(view)) == (b"00000007", memoryview, value(7))
    both = Dataset(folder, lambda key, data: (int(key), len(data)), keys=True)
    assert both.__getitems__([3, 9]) == [(3, len(value(3))), (9, len(value(9)))]
    lent = Dataset(folder, buffers=True).__getitems__(range(50))
    gc.collect()
    assert [bytes(view) for view in lent] == [value(i) for i in range(50)], "they may be kept"


def test_one_that_is_pickled_opens_its_files_anew(folder: Path) -> None:
    data = Dataset(folder, number)
    copy = pickle.loads(pickle.dumps(data))
    data.close()
    assert copy[12] == 12
    with pytest.raises(lmdbio.Error, match="closed"):
        data[12]


@pytest.mark.more
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_any_kind_read_it(folder: Path, method: str) -> None:
    loader = DataLoader(
        Dataset(folder, number), batch_size=50, num_workers=2, multiprocessing_context=method
    )
    assert flat(loader) == list(range(COUNT))


def test_several_files_are_one(folder: Path) -> None:
    data = Dataset([folder, folder], number)
    assert len(data) == 2 * COUNT
    assert data.__getitems__([0, COUNT, COUNT + 5, 2]) == [0, 0, 5, 2]
    assert pickle.loads(pickle.dumps(data))[COUNT + 9] == 9


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Dataset(tmp_path / "nowhere")


# --- orders ------------------------------------------------------------------------------


def loaders(folder: Path, **how: Any) -> Iterator[tuple[str, Any]]:
    """The same batches in all ways, epoch after epoch."""
    size = how.pop("batch_size", 16)
    data = Dataset(folder, number)
    for workers in (0, 2):
        sampler = BatchSampler(data, size, **how)
        yield f"sampler, {workers}", DataLoader(data, batch_sampler=sampler, num_workers=workers)
    yield "threads", Loader(folder, size, transform=number, **how)
    for workers in (0, 2):
        iterable = IterableDataset(folder, size, transform=number, **how)
        yield f"iterable, {workers}", DataLoader(iterable, batch_size=None, num_workers=workers)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("seed", [None, 3])
def test_all_ways_give_the_same_batches(folder: Path, seed: int | None, drop_last: bool) -> None:
    how = {"shuffle": seed is not None, "seed": seed or 0, "drop_last": drop_last}
    for name, loader in loaders(folder, **how):
        for epoch in range(2):
            if name.startswith("iterable"):
                loader.dataset.set_epoch(epoch)
            wanted = order(seed, epoch)
            batches = [wanted[at : at + 16] for at in range(0, COUNT, 16)]
            if drop_last:
                batches = [batch for batch in batches if len(batch) == 16]
            assert len(loader) == len(batches), name
            assert [batch.tolist() for batch in loader] == batches, (name, epoch)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_that_stay_hear_of_the_next_epoch(folder: Path, workers: int) -> None:
    data = IterableDataset(folder, 16, transform=number, shuffle=True)
    loader = DataLoader(data, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    for epoch in (0, 1, 5, 1):
        data.set_epoch(epoch)
        assert flat(loader) == order(0, epoch)


@pytest.mark.more
@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_ranks_share_an_epoch(folder: Path, ranks: int) -> None:
    every = [list(loaders(folder, rank=rank, ranks=ranks, shuffle=True)) for rank in range(ranks)]
    for same in zip(*every, strict=True):
        name = same[0][0]
        shares = [[batch.tolist() for batch in loader] for _, loader in same]
        assert len({len(share) for share in shares}) == 1, name
        for step in zip(*shares, strict=True):
            assert len({len(batch) for batch in step}) == 1, name
        used = [one for step in zip(*shares, strict=True) for batch in step for one in batch]
        wanted = order(0)
        assert used[:COUNT] == wanted, name
        assert used[COUNT:] == wanted[: len(used) - COUNT], (
            "the first ones make up what is missing"
        )


def test_ranks_are_those_of_the_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Comm:
        def Get_rank(self) -> int:
            return 1

        def Get_size(self) -> int:
            return 3

    wanted = list(BatchSampler(COUNT, 4, rank=1, ranks=3))
    assert list(BatchSampler(COUNT, 4, comm=Comm())) == wanted
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert list(BatchSampler(COUNT, 4)) == wanted
    assert list(BatchSampler(COUNT, 4, rank=0, ranks=1)) != wanted


def test_ranks_are_those_of_torch_distributed(tmp_path: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1
    )
    try:
        assert len(BatchSampler(10, 1)) == 10
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    "bad",
    [
        {"batch_size": 0},
        {"rank": 1},
        {"ranks": 2},
        {"rank": 2, "ranks": 2},
        {"rank": 0, "ranks": 1, "comm": object()},
    ],
)
def test_what_makes_no_sense_is_refused(folder: Path, bad: dict[str, Any]) -> None:
    for kind in (BatchSampler, IterableDataset, Loader):
        with pytest.raises(ValueError):
            kind(Dataset(folder) if kind is BatchSampler else folder, **bad)


# --- interruptions -----------------------------------------------------------------------


class Way:
    """One way of reading, for all ranks, up to a number of batches each."""

    def __init__(self, folder: Path, kind: str, workers: int, ranks: int, size: int) -> None:
        self.kind = kind
        self.loaders: list[Any] = []
        self.parts: list[Any] = []  # that take a state
        for rank in range(ranks):
            how: dict[str, Any] = {
                "shuffle": True, "seed": 9, "even": False, "rank": rank, "ranks": ranks
            }  # fmt: skip
            if kind == "threads":
                part = loader = Loader(folder, size, transform=number, threads=1 + workers, **how)
            elif kind == "iterable":
                part = IterableDataset(folder, size, transform=number, **how)
                loader = torchdata.StatefulDataLoader(part, batch_size=None, num_workers=workers)
            else:
                data = Dataset(folder, number)
                part = BatchSampler(data, size, **how)
                loader = torchdata.StatefulDataLoader(
                    data, batch_sampler=part, num_workers=workers
                )
            self.loaders.append(loader)
            self.parts.append(part)

    def load(self, state: Any, epoch: int) -> None:
        for part in self.parts:
            if state is not None:
                part.load_state_dict(state)
            part.set_epoch(epoch)

    def read(self, steps: int) -> tuple[list[int], Any]:
        """Samples in the order of all ranks, and the first one's state."""
        iterators = [iter(loader) for loader in self.loaders]
        used: list[int] = []
        last: list[Any] = []
        for _ in range(steps):
            last = [next(iterator, None) for iterator in iterators]
            used += flat(batch for batch in last if batch is not None)
        states = [loader.state_dict() for loader in self.loaders]
        if self.kind != "threads":
            states = list(map(state_of, states))
        iterators.clear()
        if all(batch is not None for batch in last):
            assert all(state == states[0] for state in states), "ranks agree"
        return used, states[0]


@pytest.mark.parametrize(
    "seed", [*range(40), *(pytest.param(seed, marks=pytest.mark.more) for seed in range(40, 200))]
)
def test_an_interrupted_epoch_goes_on_where_it_was(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    state, used, epoch = None, [], draw.randrange(3)
    while len(used) < COUNT:
        # Every fifth has workers; to begin them takes longer than all the rest.
        workers = draw.choice([1, 2]) if seed % 5 == 0 else 0
        kind = draw.choice(["threads", "iterable", "sampler"])
        way = Way(folder, kind, workers, draw.randint(1, 4), draw.choice([1, 4, 16, 33]))
        way.load(state, epoch)
        more, state = way.read(draw.randint(0, 12))
        used += more
        assert state["used"] == len(used) or state["epoch"] == epoch + 1
    assert used == order(9, epoch)


def test_a_state_at_the_end_is_that_of_the_next_epoch(folder: Path) -> None:
    loader = Loader(folder, 100, transform=number, shuffle=True)
    flat(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["used"]) == (1, 0)
    again = Loader(folder, 32, transform=number, shuffle=True)
    again.load_state_dict(state)
    assert flat(again) == order(0, 1)
    assert again.epoch == 2


def test_a_batch_counts_when_it_was_handed_out(folder: Path) -> None:
    loader = Loader(folder, 10, transform=number, threads=4, ahead=4)
    iterator = iter(loader)
    for step in range(5):
        assert loader.state_dict()["used"] == 10 * step
        next(iterator)
    iterator.close()
    assert loader.state_dict()["used"] == 50


def test_a_plain_loader_says_how_many_batches_were_used(folder: Path) -> None:
    data = Dataset(folder, number)
    sampler = BatchSampler(data, 16, shuffle=True)
    iterator = iter(DataLoader(data, batch_sampler=sampler, num_workers=2))
    used = flat(next(iterator) for _ in range(3))
    state = sampler.state_dict(3)
    del iterator
    rest = BatchSampler(data, 5, shuffle=True)
    rest.load_state_dict(state)
    assert used + flat(DataLoader(data, batch_sampler=rest)) == order(0)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["sampler", "iterable"])
def test_torchdata_s_own_state_resumes(folder: Path, kind: str, workers: int) -> None:
    way = Way(folder, kind, workers, 1, 16)
    (loader,) = way.loaders
    iterator = iter(loader)
    used = flat(next(iterator) for _ in range(7))
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    del iterator
    (loader,) = Way(folder, kind, workers, 1, 16).loaders
    loader.load_state_dict(state)
    assert used + flat(loader) == order(9)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["sampler", "iterable"])
def test_a_state_of_torchdata_s_at_the_end_begins_the_next_epoch(
    folder: Path, kind: str, workers: int
) -> None:
    way = Way(folder, kind, workers, 1, 16)
    assert flat(way.loaders[0]) == order(9)
    state = way.loaders[0].state_dict()
    assert (state_of(state)["epoch"], state_of(state)["used"]) == (1, 0)
    way = Way(folder, kind, workers, 1, 16)
    way.loaders[0].load_state_dict(state)
    for epoch in (1, 2):
        way.parts[0].set_epoch(epoch)
        assert flat(way.loaders[0]) == order(9, epoch)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_before_the_first_batch_is_the_epoch_s_beginning(
    folder: Path, workers: int
) -> None:
    data = IterableDataset(folder, 16, transform=number, shuffle=True)
    loader = torchdata.StatefulDataLoader(
        data, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )
    assert flat(loader) == order(0)
    data.set_epoch(1)
    iterator = iter(loader)
    told = state_of(loader.state_dict())
    del iterator
    assert (told["epoch"], told["used"]) == (1, 0)


def test_a_data_set_s_own_state_counts_without_workers(folder: Path) -> None:
    data = IterableDataset(folder, 10, transform=number)
    used = flat(itertools.islice(iter(data), 5))
    state = data.state_dict()
    loader = Loader(folder, 7, transform=number)
    loader.load_state_dict(state)
    assert used + flat(loader) == list(range(COUNT))
    workers = IterableDataset(folder, 10, transform=number)
    workers.load_state_dict(state)
    assert used + flat(DataLoader(workers, batch_size=None, num_workers=2)) == list(range(COUNT))


def test_one_worker_s_part_of_a_state_is_refused(folder: Path) -> None:
    data = IterableDataset(folder, 10, transform=number)
    loader = torchdata.StatefulDataLoader(data, batch_size=None, num_workers=1)
    next(iter(loader))
    snapshots = loader.state_dict()["_snapshot"]["_worker_snapshots"]
    (part,) = [one["dataset_state"] for one in snapshots.values()]
    with pytest.raises(ValueError, match="state_of"):
        Loader(folder).load_state_dict(part)


def test_dropped_samples_are_left_out_after_resuming_as_well(folder: Path) -> None:
    for workers in (0, 2):
        data = IterableDataset(folder, 16, transform=number, drop_last=True)
        loader = torchdata.StatefulDataLoader(data, batch_size=None, num_workers=workers)
        assert len(flat(loader)) == COUNT // 16 * 16
        assert state_of(loader.state_dict())["epoch"] == 1


@pytest.mark.parametrize("seed", [np.int64(3), np.int32(3), 2**70, -1])
def test_any_integer_is_a_seed(folder: Path, seed: Any) -> None:
    sampler = BatchSampler(COUNT, 50, shuffle=True, seed=seed)
    sampler.set_epoch(np.int64(2))
    assert list(itertools.chain(*sampler)) == order(int(seed), 2)


def test_what_is_no_seed_epoch_or_source_is_refused(folder: Path) -> None:
    with pytest.raises(TypeError):
        BatchSampler(COUNT, shuffle=True, seed=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a path"):
        BatchSampler(str(folder), 4)
    with pytest.raises(TypeError, match="not Dataset"):
        Loader(Dataset(folder))  # type: ignore[arg-type]
    for one in (BatchSampler(COUNT), Loader(folder), IterableDataset(folder)):
        with pytest.raises(ValueError, match="negative"):
            one.set_epoch(-1)
    with pytest.raises(ValueError, match="does not say count"):
        Loader(folder).load_state_dict({"lmdbio": 1})


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"lmdbio": 2}, "version 2"),
        ({"count": 300}, "count 300"),
        ({"shuffle": False}, "shuffle False"),
        ({"used": 302}, "302 of 301"),
        ({"epoch": -1}, "negative"),
    ],
)
def test_a_state_of_something_else_is_refused(
    folder: Path, changed: dict[str, Any], reason: str
) -> None:
    for kind in (IterableDataset, Loader):
        one = kind(folder, shuffle=True)
        with pytest.raises(ValueError, match=reason):
            one.load_state_dict({**one.state_dict(), **changed})
        assert one.state_dict() == kind(folder, shuffle=True).state_dict()
        with pytest.raises(ValueError, match=r"no state of lmdbio"):
            one.load_state_dict({})
    with pytest.raises(ValueError, match="no state of lmdbio"):
        state_of({"a": {"b": [1]}})


# --- threads -----------------------------------------------------------------------------


def test_an_error_comes_in_its_turn_and_ends_the_epoch(folder: Path) -> None:
    def broken(data: bytes) -> int:
        if number(data) == 57:
            raise RuntimeError("sample 57")
        return number(data)

    loader = Loader(folder, 10, transform=broken, threads=3)
    seen = []
    with pytest.raises(RuntimeError, match="sample 57"):
        for batch in loader:
            seen += batch.tolist()
    assert seen == list(range(50))
    assert loader.state_dict()["used"] == 50


def threads() -> int:
    """Threads of loaders."""
    return sum(one.name.startswith("lmdbio-loader") for one in threading.enumerate())


def await_no_crew() -> None:
    """Until those of loaders that nobody has are gone."""
    gc.collect()
    deadline = time.monotonic() + 10
    while threads():
        assert time.monotonic() < deadline, "threads live on"
        time.sleep(0.01)


def test_closing_leaves_no_thread(folder: Path) -> None:
    await_no_crew()
    with Loader(folder, 10, transform=number, threads=4) as loader:
        next(iter(loader))
        assert threads()
    assert not threads()
    loader.close()
    with pytest.raises(lmdbio.Error, match="closed"):
        next(iter(loader))


def test_a_loader_that_is_let_go_of_leaves_no_thread(folder: Path) -> None:
    await_no_crew()
    loader = Loader(folder, 10, transform=number, threads=4)
    next(iter(loader))
    del loader
    await_no_crew()


def test_an_iteration_may_be_collected_anywhere(folder: Path) -> None:
    """Also by the collector, in a thread of the Loader's own that it would wait for."""

    def collecting(data: bytes) -> int:
        if number(data) % 10 == 3:
            gc.collect()
        return number(data)

    loader = Loader(folder, 10, transform=collecting, threads=2)
    for _ in range(10):
        iterator = iter(loader)
        next(iterator)
        cycle: list[Any] = [iterator]
        cycle.append(cycle)
        del iterator, cycle
    assert flat(loader) == list(range(COUNT))
    loader.close()


def test_a_child_of_the_loop_ends_and_says_why_it_has_no_batch(folder: Path) -> None:
    loader = Loader(folder, 10, transform=number, threads=2)
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if not child:
        try:
            next(iterator)
        except lmdbio.Error as error:
            del iterator
            os._exit(flat(loader) != list(range(COUNT)) or "forked" not in str(error))
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert flat(iterator) == list(range(10, COUNT))


def test_records_that_were_open_stay_open(folder: Path) -> None:
    with lmdbio.Records(folder) as records:
        with Loader(records, 10) as loader:
            next(iter(loader))
        assert records[3] == value(3)


def test_after_closing_nothing_is_handed_out(folder: Path) -> None:
    loader = Loader(folder, 10, transform=number)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(lmdbio.Error, match="closed"):
        next(iterator)


def test_a_reader_s_batches_go_on_after_a_break(folder: Path) -> None:
    with (
        lmdbio.Reader(folder, 10, iterations=30) as reader,
        ReaderLoader(reader, transform=number, ahead=5) as loader,
    ):
        seen: list[int] = []
        for until in (3, 10, 25):
            for batch in loader:
                seen += batch.tolist()
                if len(seen) == 10 * until:
                    break
            assert loader.state_dict()["start"] == 10 * until % COUNT
        assert seen + flat(loader) == list(range(300))


@pytest.mark.parametrize("moment", range(8))
def test_ctrl_c_loses_no_batch(folder: Path, moment: int) -> None:
    def slow(data: bytes) -> int:
        time.sleep(0.002)
        return number(data)

    with (
        lmdbio.Reader(folder, 10, iterations=12) as reader,
        ReaderLoader(reader, transform=slow) as loader,
    ):
        seen: list[int] = []
        kept = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.03 + 0.005 * moment)
                while True:
                    batch = next(loader)
                    seen += batch.tolist()
                    time.sleep(0.001)
        finally:
            signal.signal(signal.SIGALRM, kept)
        start = loader.state_dict()["start"]
        assert start in (len(seen), len(seen) + 10)
        assert flat(loader) == list(range(start, 120))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("buffers", [False, True])
def test_a_reader_s_batches_are_decoded_ahead(folder: Path, threads: int, buffers: bool) -> None:
    with lmdbio.Reader(folder, 40, iterations=9) as reader:
        with ReaderLoader(reader, transform=number, threads=threads, buffers=buffers) as loader:
            iterator = iter(loader)
            seen = flat(itertools.islice(iterator, 4))
            state = loader.state_dict()
            assert state["start"] == 160
            seen += flat(iterator)
    assert seen == [i % COUNT for i in range(360)]
    with lmdbio.Reader(folder, 40, iterations=1, start=state["start"]) as reader:
        assert flat(ReaderLoader(reader, transform=number)) == list(range(160, 200))


@pytest.mark.parametrize("moment", range(6))
def test_closing_waits_for_no_batch_that_was_called_off(folder: Path, moment: int) -> None:
    with lmdbio.Reader(folder, 10, iterations=30) as reader:
        loader = ReaderLoader(reader, transform=number, threads=3, ahead=5)
        next(loader)
        time.sleep(moment * 1e-4)
        begun = time.monotonic()
        loader.close()
        assert time.monotonic() - begun < 3


def test_threads_that_wait_take_no_more_of_a_reader_once_it_is_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, take = [], ReaderBatches._take

    def slowly(batches: ReaderBatches) -> Any:
        taken.append(time.monotonic())
        time.sleep(0.2)
        return take(batches)

    monkeypatch.setattr(ReaderBatches, "_take", slowly)
    with lmdbio.Reader(folder, 10, iterations=60) as reader:
        loader = ReaderLoader(reader, transform=number, threads=4, ahead=8)
        next(loader)
        closed = time.monotonic()
        loader.close()
    assert sum(begun > closed for begun in taken) <= 1  # the one whose turn had just begun


def test_a_batch_whose_memory_has_gone_is_not_copied() -> None:
    memory = bytearray(100)
    batch = Batch(
        memory,
        indices=np.arange(2, dtype=np.uint64),
        offsets=np.array([0, 50], np.uint64),
        lengths=np.array([50, 50], np.uint64),
    )
    batch._exporter = None  # as for a moment, while another thread ends it
    with pytest.raises(BufferError, match="no longer valid"):
        batch.copy()


def test_a_shuffled_reader_s_state_is_a_place_of_its_epochs(folder: Path) -> None:
    words: dict[str, Any] = {"shuffle": True, "seed": 4, "epochs": 3}
    with lmdbio.Reader(folder, 40, **words) as reader:
        whole = flat(ReaderLoader(reader, transform=number))
    assert len(whole) == 3 * COUNT and sorted(whole[:COUNT]) == list(range(COUNT))
    with lmdbio.Reader(folder, 40, **words) as reader:
        loader = ReaderLoader(reader, transform=number)
        steps = COUNT // 40 + 2
        seen = flat(itertools.islice(loader, steps))
        state = loader.state_dict()
        loader.close()
    assert state["start"] == 40 * steps > COUNT and seen == whole[: 40 * steps]
    with lmdbio.Reader(folder, 32, start=state["start"], **words) as reader:
        assert flat(ReaderLoader(reader, transform=number)) == whole[40 * steps :]


def test_a_reader_s_error_comes_in_its_turn(folder: Path) -> None:
    def broken(data: bytes) -> int:
        if number(data) == 57:
            raise RuntimeError("sample 57")
        return number(data)

    with lmdbio.Reader(folder, 40, iterations=9) as reader:
        with ReaderLoader(reader, transform=broken, threads=2) as loader:
            iterator = iter(loader)
            assert flat([next(iterator)]) == list(range(40))
            with pytest.raises(RuntimeError, match="sample 57"):
                next(iterator)


def test_batches_are_pinned_where_there_is_a_gpu(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UserWarning, match="no GPU"):
        assert flat(Loader(folder, 50, transform=number, pin_memory=True)) == order(None)
    # Page-locked memory itself cannot be had here.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("lmdbio.torch.whole.pin_memory", lambda batch: batch + 1000)
    loader = Loader(folder, 50, transform=number, pin_memory=True)
    assert flat(loader) == [one + 1000 for one in order(None)]


@pytest.mark.parametrize("seed", range(30))
def test_samples_drawn_together_are_those_of_each_step(seed: int) -> None:
    draw = random.Random(seed)
    count, ranks = draw.choice([1, 7, 5000, 20_000]), draw.choice([1, 2, 7])
    epoch = Epoch(count, draw.choice([None, 3]), draw.randrange(5))
    size, used = draw.choice([1, 3, 64, 5000]), draw.randrange(count)
    even, drop_last = draw.random() < 0.5, draw.random() < 0.5
    for rank in range(ranks):
        shard = Shard(count, size, rank, ranks, used, drop_last=drop_last, even=even)
        epoch_slice = EpochSlice(epoch, shard, None, Source(0, epoch.number))
        steps = list(range(len(shard)))
        if draw.random() < 0.5:
            draw.shuffle(steps)
        for step in steps[:300]:
            expected = epoch.samples(shard.places(step))
            assert epoch_slice.samples(step).tolist() == expected.tolist()


def test_a_transform_that_has_no_more_shortens_no_batch(folder: Path) -> None:
    def broken(data: bytes) -> int:
        return next(iter([])) if number(data) == 7 else number(data)

    with lmdbio.Reader(folder, 10, iterations=3) as reader:
        loader = ReaderLoader(reader, transform=lambda data: next(iter([])))
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(loader)
    with pytest.raises(RuntimeError, match="StopIteration for sample 7"):
        list(DataLoader(Dataset(folder, broken), batch_size=None, sampler=range(20)))
    for loader in (
        DataLoader(Dataset(folder, broken), 10),
        Loader(folder, 10, transform=broken),
        IterableDataset(folder, 10, transform=broken),
    ):
        with pytest.raises(RuntimeError, match="StopIteration for sample 7"):
            list(loader)


#: Arguments of a Loader for which "nonsense" may be a name: of a file, a database, a key.
NAMES = {"source", "db", "skip", "provenance"}


@pytest.mark.parametrize(
    "name",
    [name for name in inspect.signature(Loader).parameters if name not in NAMES | {"options"}]
    + sorted(RecordsOptions.__annotations__.keys() - NAMES),
)
def test_a_word_that_a_loader_does_not_know_is_refused_by_name(folder: Path, name: str) -> None:
    words: dict[str, Any] = {"rank": 0, "ranks": 2} if name in ("rank", "ranks") else {}
    with pytest.raises((TypeError, ValueError), match=rf"(?i)\b{name}\b.*(nonsense|not str)"):
        Loader(folder, **words | {name: "nonsense"})


@pytest.mark.parametrize("value", ["no", "", 2, 1.0, []])
@pytest.mark.parametrize(
    "name", ["keys", "buffers", "drop_last", "even", "pin_memory", "readahead", "subdir"]
)
def test_a_flag_of_a_loader_is_true_or_false(folder: Path, name: str, value: Any) -> None:
    text = f"{name} must be one of True, False.*, not {value!r}"
    with pytest.raises(TypeError, match=re.escape(text).replace(re.escape(".*"), ".*")):
        Loader(folder, **{name: value})


def test_other_surfaces_refuse_the_same_flags(folder: Path) -> None:
    word: Any = "no"
    for make, name in (
        (lambda: Dataset(folder, keys=word), "keys"),
        (lambda: IterableDataset(folder, buffers=word), "buffers"),
        (lambda: BatchSampler(10, 2, even=word), "even"),
        (lambda: lmdbio.Records(folder, readahead=word), "readahead"),
    ):
        with pytest.raises(TypeError, match=f"{name} must be one of True, False"):
            make()
    assert len(BatchSampler(10, 4, drop_last=np.bool_(True))) == 2
