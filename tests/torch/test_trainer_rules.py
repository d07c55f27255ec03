"""``lmdbio.torch`` among ranks, trainers and interruptions.

Goal: each sample once an epoch, whenever ranks come to know one another, whatever one of them has
looked at, and however often a loader is gone on with; what would share samples twice, or is no
order, is refused in words.

Method: samples are the records' own numbers; ranks are objects of one process, or processes over
a file; loaders are asked as trainers ask them.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchdata.stateful_dataloader as torchdata
from torch.utils.data import DataLoader, DistributedSampler

import lmdbio
from lmdbio.planning.order import Epoch
from lmdbio.planning.shuffle import Shuffle
from lmdbio.torch import BatchSampler, Dataset, IterableDataset, Loader, state_of
from tests.support import databases

COUNT, SIZE = 97, 8
STEPS = -(-COUNT // SIZE)
pytestmark = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated", "ignore:This DataLoader will create"
)


def number(data: bytes) -> int:
    return int(data[:6])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "db"
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, b"%06d" % i * 9) for i in range(COUNT)])
    return path


def order(epoch: int = 0, seed: int | None = 0) -> list[int]:
    samples: list[int] = Epoch(COUNT, seed, epoch).samples(np.arange(COUNT)).tolist()
    return samples


def flat(batches: Any) -> list[int]:
    return [int(one) for batch in batches for one in batch]


WAYS = ("Loader", "BatchSampler", "IterableDataset")


def made(way: str, folder: Path, workers: int = 0, **how: Any) -> tuple[Any, Any]:
    """Return what is iterated, and the part that takes states and epochs."""
    if way == "Loader":
        loader = Loader(folder, SIZE, transform=number, **how)
        return loader, loader
    if way == "BatchSampler":
        data = Dataset(folder, number)
        part: Any = BatchSampler(data, SIZE, **how)
        return DataLoader(data, batch_sampler=part, num_workers=workers), part
    part = IterableDataset(folder, SIZE, transform=number, **how)
    return DataLoader(part, batch_size=None, num_workers=workers), part


# --- ranks -------------------------------------------------------------------------------


def _rank_main(rank: int, way: str, folder: Path, meet: str, workers: int, answers: Any) -> None:
    loader, _ = made(way, folder, workers, shuffle=True)  # before the ranks know one another
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meet}", rank=rank, world_size=2
    )
    answers.put(flat(loader))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("way", WAYS)
def test_ranks_that_meet_after_a_loader_was_made_share_its_samples(
    folder: Path, tmp_path: Path, way: str
) -> None:
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__])  # torch, for all ranks at once
    answers = server.Queue()
    workers = 0 if way == "Loader" else 1
    given = (way, folder, str(tmp_path / "meet"), workers, answers)
    ranks = [server.Process(target=_rank_main, args=(rank, *given)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    both = answers.get(timeout=120) + answers.get(timeout=120)
    for rank in ranks:
        rank.join(60)
    assert len(both) == COUNT + 1 and set(both) == set(range(COUNT))


@pytest.mark.parametrize("way", WAYS)
def test_ranks_that_change_after_batches_were_handed_out_are_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    loader, part = made(way, folder)
    next(iter(loader))
    state = part.state_dict()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(lmdbio.Error, match="rank 0 of 1, and this is rank 0 of 2 now"):
        next(iter(loader))
    part.load_state_dict(state)  # which suits any number of ranks
    next(iter(loader))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("rank", "ranks", "words"),
    [
        ("one", "2", "RANK is 'one', which is no number"),
        ("0", "all", "WORLD_SIZE is 'all', which is no number"),
        ("2", "2", "no rank 2 of 2"),
        (None, "2", "WORLD_SIZE is 2, and RANK is not set"),
        ("1", None, "RANK is 1, and WORLD_SIZE is not set"),
    ],
)
def test_variables_that_say_no_rank_are_an_error(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    rank: str | None,
    ranks: str | None,
    words: str,
) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", ranks)):
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=words):
        loader, _ = made(way, folder)
        next(iter(loader))


def test_a_launcher_may_say_the_number_of_ranks_before_the_rank(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = Loader(folder, SIZE, transform=number)
    assert len(loader) == -(-COUNT // (2 * SIZE))
    monkeypatch.setenv("RANK", "1")
    assert next(iter(loader)).tolist() == list(range(SIZE, 2 * SIZE))


def _worker_ranks(data: IterableDataset) -> list[int]:
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    return flat(loader)


@pytest.mark.more
def test_workers_that_are_spawned_have_the_rank_of_their_process(
    folder: Path, tmp_path: Path
) -> None:
    """It alone has met the others."""
    data = IterableDataset(folder, SIZE, transform=number)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1
    )
    try:
        assert sorted(_worker_ranks(data)) == list(range(COUNT))
    finally:
        torch.distributed.destroy_process_group()


# --- samplers, shards of others, words ---------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        DistributedSampler(range(1000), num_replicas=2, rank=1),
        torch.utils.data.RandomSampler(range(10)),
        torch.utils.data.SequentialSampler(range(10)),
        BatchSampler(10),
    ],
)
def test_a_sampler_is_no_data_set(source: Any) -> None:
    with pytest.raises(TypeError, match="use_distributed_sampler=False"):
        BatchSampler(source, batch_size=4, drop_last=False)


def test_a_loader_is_no_data_set(folder: Path) -> None:
    with pytest.raises(TypeError, match="not a Loader"):
        BatchSampler(Loader(folder), 4)
    with pytest.raises(TypeError, match="not a float"):
        BatchSampler(4.0, 4)  # type: ignore[arg-type]
    assert len(BatchSampler(np.int64(9), 4)) == 3  # type: ignore[arg-type]


class _Sharded(torch.utils.data.BatchSampler):
    """Takes every n-th batch, as Accelerate's BatchSamplerShard."""

    def __init__(self, batches: Any, processes: int) -> None:
        self.batch_sampler, self.num_processes = batches, processes

    def __iter__(self) -> Any:
        return iter(list(self.batch_sampler)[:: self.num_processes])


@pytest.mark.parametrize("way", ["sampler", "iterable", "dispatcher"])
def test_batches_that_accelerate_would_share_again_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    active = types.SimpleNamespace(dataset=None, batch_sampler=None)
    state = types.ModuleType("accelerate.state")
    state.GradientState = lambda: types.SimpleNamespace(active_dataloader=active)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "accelerate.state", state)
    for ranks in (1, 2):
        if way == "sampler":
            part: Any = BatchSampler(COUNT, SIZE, rank=0, ranks=ranks)
            active.batch_sampler = _Sharded(part, 2)
        else:
            part = IterableDataset(folder, SIZE, rank=0, ranks=ranks)
            active.dataset = part
            if way == "dispatcher":
                active.slice_fn = None
        if ranks == 1 or way == "iterable":  # all samples are there, or each has its own
            list(part)
            continue
        with pytest.raises(lmdbio.Error, match="rank=0, ranks=1"):
            list(part)


@pytest.mark.parametrize("kind", [Loader, BatchSampler, IterableDataset])
@pytest.mark.parametrize("word", ["window", "none", "False", "groups:10", 1, 0.5])
def test_a_word_that_is_no_order_is_refused(folder: Path, kind: Any, word: Any) -> None:
    with pytest.raises(TypeError, match="True, False or a Shuffle"):
        kind(Dataset(folder) if kind is BatchSampler else folder, SIZE, shuffle=word)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "shuffle",
    [Shuffle.groups(10), Shuffle.windows(5, 3), Shuffle.runs(7), Shuffle.given(range(96, -1, -1))],
)
def test_every_shuffle_of_a_reader_is_an_order(folder: Path, way: str, shuffle: Shuffle) -> None:
    loader, part = made(way, folder, shuffle=shuffle, seed=4)
    wanted = Epoch(COUNT, 4, 0, shuffle).samples(np.arange(COUNT)).tolist()
    begun = iter(loader)
    seen = flat(next(begun) for _ in range(3))
    state = pickle.loads(pickle.dumps(part.state_dict()))
    again, part = made(way, folder, shuffle=shuffle, seed=4)
    part.load_state_dict(state)
    assert seen + flat(again) == wanted
    _, part = made(way, folder, shuffle=True, seed=4)
    with pytest.raises(ValueError, match="saved with shuffle"):
        part.load_state_dict(state)


def test_words_of_a_dataloader_are_answered(folder: Path) -> None:
    for word, answer in (
        ("num_workers", "threads=4"),
        ("prefetch_factor", "ahead="),
        ("generator", "seed="),
        ("transfrom", "did you mean transform="),
        ("readahaed", "did you mean readahead="),
    ):
        with pytest.raises(TypeError, match=f"Loader has no {word}=.*{answer}"):
            Loader(folder, **{word: 2})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Dataset has no tranform="):
        Dataset(folder, tranform=number)


def test_a_loader_is_what_trainers_look_for(folder: Path) -> None:
    loader = Loader(folder, SIZE, transform=number, shuffle=True, drop_last=True)
    assert isinstance(loader, DataLoader) and isinstance(loader.sampler, DistributedSampler)
    assert (loader.batch_size, loader.drop_last, loader.num_workers) == (SIZE, True, 0)
    assert len(loader.dataset) == COUNT and len(loader.sampler) == COUNT // SIZE * SIZE
    # As a trainer leaves out batches that were used before it was interrupted.
    rest = DataLoader(
        loader.dataset,
        batch_sampler=torch.utils.data.BatchSampler(list(loader.batch_sampler), 3, False),
        collate_fn=lambda lists: lists,
    )
    assert len(list(loader.batch_sampler)) == len(loader) and rest is not None
    loader.sampler.set_epoch(3)
    assert list(loader.sampler) == order(3)[: COUNT // SIZE * SIZE]
    assert loader.epoch == 4


# --- epochs ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("looks", [1, 2, STEPS - 1])
def test_a_look_of_one_rank_is_no_epoch(folder: Path, way: str, looks: int) -> None:
    how: dict[str, Any] = {"shuffle": True, "even": False, "ranks": 2}
    ranks = [made(way, folder, rank=rank, **how)[0] for rank in (0, 1)]
    begun = iter(ranks[0])
    for _ in range(min(looks, len(ranks[0]) - 1)):
        next(begun)
    del begun
    for epoch in range(3):
        shares = [[flat([batch]) for batch in loader] for loader in ranks]
        pairs = itertools.zip_longest(*shares, fillvalue=[])
        assert [one for pair in pairs for step in pair for one in step] == order(epoch)


def _late(worker: int) -> None:
    """Have the last of three workers start late, and begin each iteration after the others."""
    info = torch.utils.data.get_worker_info()
    if info is None or worker != info.num_workers - 1:
        return
    data: Any = info.dataset
    begin = data._batches

    def slow(*arguments: Any) -> Any:
        time.sleep(0.3)
        yield from begin(*arguments)

    data._batches = slow
    time.sleep(0.3)


def test_a_worker_that_stays_and_is_late_gives_the_epoch_of_the_others(folder: Path) -> None:
    data = IterableDataset(folder, COUNT // 3 + 1, transform=number, shuffle=True)
    loader = DataLoader(
        data, batch_size=None, num_workers=3, persistent_workers=True, worker_init_fn=_late
    )
    look = iter(loader)
    next(look)
    data.set_epoch(0)
    assert [flat(loader) for _ in range(2)] == [order(epoch) for epoch in range(2)]


@pytest.mark.parametrize("way", WAYS)
def test_iterations_that_give_nothing_use_up_no_epoch(folder: Path, way: str) -> None:
    loader, _ = made(way, folder, shuffle=True)
    for epoch in range(2):
        for _ in range(3):
            iter(loader)
        assert flat(loader) == order(epoch)


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_whose_end_is_not_asked_for_is_over(folder: Path, way: str) -> None:
    """Trainers count batches, and do not ask for one more."""
    loader, part = made(way, folder, shuffle=True)
    for epoch in range(3):
        begun = iter(loader)
        assert flat(next(begun) for _ in range(len(loader))) == order(epoch)
        state = part.state_dict()
        assert (state["epoch"], state["used"]) == (epoch + 1, 0)


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_that_is_said_after_the_iteration_was_made_counts(folder: Path, way: str) -> None:
    loader, part = made(way, folder, shuffle=True)
    begun = iter(loader)
    part.set_epoch(5)
    assert flat(begun) == order(5)
    assert flat(loader) == order(6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_after_a_state_the_later_epochs_are_whole(folder: Path, way: str, workers: int) -> None:
    if way == "Loader" and workers:
        return
    loader, part = made(way, folder, shuffle=True)
    begun = iter(loader)
    seen = flat(next(begun) for _ in range(4))
    state = part.state_dict()
    loader, part = made(way, folder, workers, shuffle=True)
    part.load_state_dict(state)
    assert len(loader) == STEPS
    assert seen + flat(loader) == order()
    assert [flat(loader) for _ in range(2)] == [order(1), order(2)]
    assert len(loader) == STEPS


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("way", ["BatchSampler", "IterableDataset"])
def test_after_a_state_of_torchdata_s_too(folder: Path, way: str, workers: int) -> None:
    def stateful() -> Any:
        data = Dataset(folder, number)
        if way == "BatchSampler":
            sampler = BatchSampler(data, SIZE, shuffle=True)
            return torchdata.StatefulDataLoader(data, batch_sampler=sampler, num_workers=workers)
        part = IterableDataset(folder, SIZE, transform=number, shuffle=True)
        return torchdata.StatefulDataLoader(part, batch_size=None, num_workers=workers)

    begun = iter(first := stateful())
    seen = flat(next(begun) for _ in range(4))
    state = first.state_dict()
    assert (state_of(state)["epoch"], state_of(state)["used"]) == (0, 4 * SIZE)
    again = stateful()
    again.load_state_dict(state)
    assert seen + flat(again) == order()
    assert [flat(again) for _ in range(2)] == [order(1), order(2)]


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_that_is_counted_anew_after_a_state_is_the_state_s(
    folder: Path, way: str
) -> None:
    """Trainers count from 0 in each process."""
    loader, part = made(way, folder, shuffle=True)
    part.set_epoch(3)
    begun = iter(loader)
    seen = flat(next(begun) for _ in range(4))
    state = part.state_dict()
    loader, part = made(way, folder, shuffle=True)
    part.load_state_dict(state)
    part.set_epoch(0)
    assert seen + flat(loader) == order(3)
    part.set_epoch(1)
    assert flat(loader) == order(4)


def test_a_state_speaks_of_the_iteration_that_was_asked_last(folder: Path) -> None:
    loader = Loader(folder, SIZE, transform=number, shuffle=True)
    begun = iter(loader)
    seen = flat(next(begun) for _ in range(3))
    assert flat([next(iter(loader))]) == order()[:SIZE]  # a look in the middle
    seen += flat([next(begun)])
    state = loader.state_dict()
    assert state["used"] == 4 * SIZE and seen == order()[: 4 * SIZE]


@pytest.mark.parametrize("name", ["epoch", "used", "seed"])
@pytest.mark.parametrize("value", [1.5, "2", None])
def test_a_state_whose_numbers_are_none_names_them(folder: Path, name: str, value: Any) -> None:
    loader = Loader(folder, SIZE)
    with pytest.raises(TypeError, match=f"the state's {name} must be an integer"):
        loader.load_state_dict({**loader.state_dict(), name: value})


def test_a_used_loader_pickles_as_a_fresh_one(folder: Path) -> None:
    loader = Loader(folder, SIZE, transform=number, shuffle=True)
    next(iter(loader))
    copy = pickle.loads(pickle.dumps(loader))
    assert flat(copy) == order() and flat(loader) == order()
    assert os.getpid() and copy.epoch == 1
