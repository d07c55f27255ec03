"""Orders that a program gives a loader: ``sampler=`` and ``batch_sampler=``.

Goal: the samples are those of the order, shared among ranks without loss or repeat; a state at any
batch goes on exactly, in another process as well; torch's own samplers mean what they mean to a
DataLoader; an order that cannot be made again is refused, or found.

Method: samples are the records' own numbers; every state of small epochs is loaded into a loader
made anew; ranks are objects with ``rank=`` of one process.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchdata.stateful_dataloader as torchdata
from torch.utils.data import (
    BatchSampler as TorchBatches,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import lmdbio
from lmdbio.torch import (
    BatchSampler,
    Buckets,
    Dataset,
    IterableDataset,
    Loader,
    Passes,
    Weighted,
    state_of,
)
from tests.support import databases

COUNT, SIZE = 53, 4
pytestmark = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated", "ignore:This DataLoader will create"
)


def number(data: bytes) -> int:
    return int(data[:6])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("orders") / "db"
    with databases.open_writable(path, 1) as env:
        rows = [(b"%08d" % i, b"%06d" % i * (1 + i * 37 % 90)) for i in range(COUNT)]
        databases.write(env, rows)
    return path


def lists(batches: Any) -> list[list[int]]:
    return [[int(one) for one in batch] for batch in batches]


def flat(batches: Any) -> list[int]:
    return [int(one) for batch in batches for one in batch]


class Epochal:
    """A sampler as programs write them: it is told the epoch, and has batches of any sizes."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 11 + self.epoch % 2

    def __iter__(self) -> Iterator[list[int]]:
        draw = np.random.default_rng((self.seed, self.epoch))
        for _ in range(len(self)):
            yield draw.integers(COUNT, size=draw.integers(1, 6)).tolist()


class Stateful:
    """A sampler whose generator goes on, and which has a state of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        return iter(self.rng.permutation(COUNT).tolist())

    def state_dict(self) -> Any:
        return self.rng.bit_generator.state

    def load_state_dict(self, state: Any) -> None:
        self.rng.bit_generator.state = state


SAMPLERS: dict[str, Callable[[], Any]] = {
    "weighted": lambda: Weighted(np.arange(COUNT), 61),
    "buckets": lambda: Buckets(np.arange(COUNT) % 7, SIZE, 3),
    "passes": lambda: Passes(31),
    "array": lambda: np.arange(COUNT)[::-2],
    "list": lambda: [3, 3, -1, 0, 7] * 4,
    "mask": lambda: np.arange(COUNT) % 3 == 1,
    "function": lambda: lambda epoch: np.roll(np.arange(COUNT), epoch)[: 20 + epoch],
    "drawing function": lambda: lambda epoch: np.random.permutation(COUNT)[: 20 + epoch],
    "range": lambda: range(5, 40),
    "torch random": lambda: RandomSampler(range(COUNT)),
    "torch subset": lambda: SubsetRandomSampler(range(10, 40)),
    "torch weighted": lambda: WeightedRandomSampler(torch.arange(COUNT).float(), 61),
    "state": Stateful,
    "mask as a list": lambda: [number % 3 == 1 for number in range(COUNT)],
}
BATCHES: dict[str, Callable[[], Any]] = {
    "torch": lambda: TorchBatches(RandomSampler(range(COUNT)), 5, False),
    "lists": lambda: [[1, 2], [0], [5, 5, 5, 5], [-1, 3, 4]] * 4,
    "array": lambda: np.arange(50).reshape(-1, 5),
    "function": lambda: lambda epoch: [[i] * (1 + i % 3) for i in range(9 + epoch)],
    "told": Epochal,
    "state": lambda: TorchBatches(Stateful(), 5, False),
}
CASES = [("sampler", name) for name in SAMPLERS] + [("batch_sampler", name) for name in BATCHES]


def order_of(word: str, name: str) -> dict[str, Any]:
    if word == "sampler":
        return {"sampler": SAMPLERS[name](), "batch_size": SIZE}
    return {"batch_sampler": BATCHES[name]()}


def loader_of(folder: Path, word: str, name: str, **how: Any) -> Loader:
    return Loader(folder, transform=number, threads=1, **order_of(word, name), **how)


@pytest.mark.parametrize(("word", "name"), CASES)
def test_a_state_at_any_batch_goes_on_exactly(folder: Path, word: str, name: str) -> None:
    epochs = 3
    with loader_of(folder, word, name, seed=4) as loader:
        states, found = [loader.state_dict()], []
        for _ in range(epochs):
            assert len(loader) > 1
            for batch in loader:
                found.append([int(one) for one in batch])
                states.append(json.loads(json.dumps(loader.state_dict())))
    with loader_of(folder, word, name, seed=9) as again:
        for at in {*range(0, len(found), 3), len(found) // 2, len(found) - 1}:
            again.load_state_dict(states[at])
            rest = lists(again)
            assert rest == found[at : at + len(rest)]
            assert again.epoch == states[at]["epoch"] + 1
            assert at + len(rest) == len(found) or again.state_dict()["used"] == 0


@pytest.mark.parametrize(("word", "name"), CASES)
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_an_epoch(folder: Path, word: str, name: str, ranks: int) -> None:
    with loader_of(folder, word, name) as loader:
        epochs = [lists(loader) for _ in range(2)]
    loaders = [
        loader_of(folder, word, name, even=False, rank=rank, ranks=ranks) for rank in range(ranks)
    ]
    for wanted in epochs:
        parts = [lists(one) for one in loaders]
        steps = range(max(map(len, parts)))
        found = [part[step] for step in steps for part in parts if step < len(part)]
        if word == "batch_sampler":
            assert found == wanted
        else:
            assert flat(found) == flat(wanted)
    for one in loaders:
        one.close()
    evens = [loader_of(folder, word, name, rank=rank, ranks=ranks) for rank in range(ranks)]
    assert len({len(list(one)) for one in evens}) == 1, "all take as many steps"
    for one in evens:
        one.close()


@pytest.mark.parametrize(("word", "name"), CASES)
def test_an_epoch_goes_on_with_other_ranks(folder: Path, word: str, name: str) -> None:
    def ranks_of(ranks: int) -> list[Loader]:
        return [
            loader_of(folder, word, name, even=False, rank=rank, ranks=ranks)
            for rank in range(ranks)
        ]

    with loader_of(folder, word, name) as loader:
        wanted = flat(loader)
    found: list[int] = []
    state: Any = {"epoch": 0}
    for ranks, steps in ((2, 1), (3, 1), (2, COUNT)):
        if state["epoch"] == 1:
            break  # a short one is over
        loaders = ranks_of(ranks)
        for one in loaders:
            if found:
                one.load_state_dict(state)
        iterators = [iter(one) for one in loaders]
        for _ in range(steps):
            batches = [next(one, None) for one in iterators]
            found += flat(one for one in batches if one is not None)
            if None in batches:
                break
        states = [one.state_dict() for one in loaders]
        state = states[0]
        assert all(one == state for one in states), "ranks agree"
        iterators.clear()
        for one in loaders:
            one.close()
    assert found == wanted and (state["epoch"], state["used"]) == (1, 0)


@pytest.mark.parametrize("name", SAMPLERS)
def test_all_loaders_have_the_same_order(folder: Path, name: str) -> None:
    with loader_of(folder, "sampler", name, seed=2) as loader:
        wanted = [lists(loader) for _ in range(2)]
    data = Dataset(folder, number)
    sampler = BatchSampler(data, SIZE, sampler=SAMPLERS[name](), seed=2)
    batches = DataLoader(data, batch_sampler=sampler)
    assert [lists(batches) for _ in range(2)] == wanted
    part = IterableDataset(folder, SIZE, transform=number, sampler=SAMPLERS[name](), seed=2)
    assert [lists(DataLoader(part, batch_size=None)) for _ in range(2)] == wanted


@pytest.mark.parametrize("kind", [BatchSampler, IterableDataset])
@pytest.mark.parametrize("name", ["weighted", "buckets", "passes", "torch random", "array"])
def test_workers_have_the_same_order_and_states(folder: Path, kind: Any, name: str) -> None:
    def made() -> Any:
        words: Any = {"sampler": SAMPLERS[name](), "seed": 2}
        if kind is IterableDataset:
            part = IterableDataset(folder, SIZE, transform=number, **words)
            return torchdata.StatefulDataLoader(part, batch_size=None, num_workers=2)
        data = Dataset(folder, number)
        sampler = BatchSampler(data, SIZE, **words)
        return torchdata.StatefulDataLoader(data, batch_sampler=sampler, num_workers=2)

    with loader_of(folder, "sampler", name, seed=2) as loader:
        wanted = lists(loader)
        stateful = made()
        batches = iter(stateful)
        assert lists(next(batches) for _ in range(3)) == wanted[:3]
        state = stateful.state_dict()
        loader.load_state_dict(state_of(state))
        assert lists(loader) == wanted[3:]
    again = made()
    again.load_state_dict(state)
    assert lists(again) == wanted[3:]


@pytest.mark.parametrize("name", ["state", "torch random", "weighted"])
@pytest.mark.parametrize("batches", [1, 5, COUNT // SIZE, COUNT])
def test_torchdata_s_states_lead_to_the_next_epochs(folder: Path, name: str, batches: int) -> None:
    with loader_of(folder, "sampler", name, seed=2) as loader:
        wanted = [one for _ in range(4) for one in lists(loader)]
    data = Dataset(folder, number)
    sampler = BatchSampler(data, SIZE, sampler=SAMPLERS[name](), seed=2)
    stateful = torchdata.StatefulDataLoader(data, batch_sampler=sampler)
    found = lists(stateful)  # an epoch, and a part of the next one
    for batch in stateful:
        found.append([int(one) for one in batch])
        if len(found) % len(stateful) == batches:
            break
    state = stateful.state_dict()
    for again in (state_of(state), json.loads(json.dumps(state_of(state)))):
        with loader_of(folder, "sampler", name) as loader:
            loader.load_state_dict(again)
            rest = [one for _ in range(2) for one in lists(loader)]
            assert found + rest == wanted[: len(found) + len(rest)]


@pytest.mark.parametrize("processes", [0, 2])
def test_threads_and_processes_make_the_batches(folder: Path, processes: int) -> None:
    threads = 0 if processes else 3
    words: Any = {"transform": number, "processes": processes, "threads": threads}
    with Loader(folder, batch_sampler=Epochal(), worker_init_fn=None, **words) as loader:
        assert lists(loader) == list(Epochal())
    weighted = Weighted(np.arange(COUNT))
    with Loader(folder, SIZE, sampler=weighted, **words) as loader:
        plain = Loader(folder, SIZE, sampler=weighted, transform=number)
        assert lists(loader) == lists(plain)


def test_torch_s_samplers_mean_what_they_mean_to_a_dataloader(folder: Path) -> None:
    data = Dataset(folder, number)
    for batches in (
        TorchBatches(SequentialSampler(data), 5, False),
        TorchBatches(SequentialSampler(data), 5, True),
        [[1, 2], [3]],
    ):
        with Loader(folder, batch_sampler=batches, transform=number) as loader:
            assert lists(loader) == lists(DataLoader(data, batch_sampler=batches))
            assert len(loader) == len(batches) and loader.batch_size is None
            assert repr(loader).startswith(f"<Loader of {len(batches)} batches of any size from ")
            assert loader.drop_last is False
    with Loader(folder, 8, sampler=RandomSampler(data), transform=number) as loader:
        first, second = lists(loader), lists(loader)
        assert sorted(flat(first)) == sorted(flat(second)) == list(range(COUNT))
        assert first != second and len(loader) == -(-COUNT // 8) and len(loader.sampler) == COUNT
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    with Loader(folder, 8, sampler=RandomSampler(data), transform=number) as loader:
        assert lists(loader) == first
    assert torch.equal(torch.random.get_rng_state(), before), "the program's generator is its own"


def test_draws_by_weight_are_distributed_as_torch_s(folder: Path) -> None:
    weights, draws = np.arange(COUNT) % 5 * 1.5, 60_000
    ours = Weighted(weights, draws)
    theirs = WeightedRandomSampler(weights.tolist(), draws)
    counts = []
    for sampler in (ours, theirs):
        batches = BatchSampler(COUNT, 500, sampler=sampler, seed=3)
        counts.append(np.bincount(flat(batches), minlength=COUNT))
    shares = weights / weights.sum()
    for count in counts:
        deviation = np.sqrt(draws * shares * (1 - shares))
        assert count.sum() == draws and (np.abs(count - draws * shares) <= 5 * deviation).all()


def test_a_sampler_hears_of_epochs_and_is_heard(folder: Path) -> None:
    wanted = {}
    for epoch in range(4):
        sampler = Epochal()
        sampler.set_epoch(epoch)
        wanted[epoch] = list(sampler)
    sampler = Epochal()
    with Loader(folder, batch_sampler=sampler, transform=number) as loader:
        for epoch in range(2):  # as with a DataLoader: the program tells the sampler
            sampler.set_epoch(epoch)
            assert len(loader) == len(wanted[epoch]) and lists(loader) == wanted[epoch]
        sampler.set_epoch(3)
        assert lists(loader) == wanted[3] and loader.epoch == 4
        loader.set_epoch(1)  # or the loader
        assert lists(loader) == wanted[1] and sampler.epoch == 1
        batches = iter(loader)
        next(batches)
        sampler.set_epoch(3)  # after a break
        assert lists(loader) == wanted[3]
    sampler.set_epoch(2)  # before there is a loader
    with Loader(folder, batch_sampler=sampler, transform=number) as loader:
        assert lists(loader) == wanted[2]
        batches = iter(loader)
        first = lists(next(batches) for _ in range(4))
        state = loader.state_dict()
    sampler.set_epoch(1)  # a state that is loaded says it better
    with Loader(folder, batch_sampler=sampler, transform=number) as loader:
        loader.load_state_dict(state)
        assert first + lists(loader) == wanted[3]


@pytest.mark.parametrize("word", ["sampler", "batch_sampler"])
def test_a_sampler_with_a_state_goes_back(folder: Path, word: str) -> None:
    with loader_of(folder, word, "state") as loader:
        first, second = lists(loader), lists(loader)
        loader.set_epoch(0)
        assert lists(loader) == first and lists(loader) == second


def test_a_state_of_epochs_longer_than_the_data_set(folder: Path) -> None:
    data = IterableDataset(folder, 4, sampler=Weighted(np.ones(COUNT), 5 * COUNT))
    assert state_of({"x": {**data.state_dict(), "used": 3 * COUNT}})["used"] == 3 * COUNT


def test_an_order_that_cannot_be_made_again_is_found(folder: Path) -> None:
    class Bare:
        def __len__(self) -> int:
            return COUNT

        def __iter__(self) -> Iterator[int]:
            return iter(np.random.default_rng().permutation(COUNT).tolist())

    with Loader(folder, SIZE, sampler=Bare(), transform=number) as loader:
        batches = iter(loader)
        first = lists(next(batches) for _ in range(2))
        state = loader.state_dict()
        assert lists(loader)[:2] == first, "one epoch is one order as long as this loader lives"
    with Loader(folder, SIZE, sampler=Bare(), transform=number) as loader:
        loader.load_state_dict(state)
        with pytest.raises(ValueError, match="gives another order of epoch 0"):
            list(loader)


def test_a_state_of_another_order_is_refused(folder: Path) -> None:
    states = {}
    for word, name in CASES:
        with loader_of(folder, word, name) as loader:
            next(iter(loader))
            states[word, name] = loader.state_dict()
    with Loader(folder, SIZE, shuffle=True) as loader:
        for state in states.values():
            with pytest.raises(ValueError, match="saved with shuffle"):
                loader.load_state_dict(state)
    with Loader(folder, SIZE, sampler=Weighted(np.ones(COUNT))) as loader:
        with pytest.raises(ValueError, match="saved with shuffle"):
            loader.load_state_dict(states["sampler", "weighted"])
    with Loader(folder, SIZE, sampler=[1, 2, 3, 4, 5, 6]) as loader:
        loader.load_state_dict(states["sampler", "range"])
        with pytest.raises(ValueError, match="another order"):
            list(loader)


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"batch_sampler": [[1]], "batch_size": 2}, ValueError, "goes not with batch_size"),
    ({"batch_sampler": [[1]], "shuffle": True}, ValueError, "goes not with"),
    ({"batch_sampler": [[1]], "drop_last": True}, ValueError, "goes not with"),
    ({"batch_sampler": [[1]], "sampler": [1]}, ValueError, "goes not with"),
    ({"batch_sampler": Weighted([1])}, TypeError, "Weighted gives samples, not batches"),
    ({"sampler": [1], "shuffle": True}, ValueError, "goes not with shuffle"),
    ({"sampler": iter([1])}, TypeError, "iterated again, not list_iterator"),
    ({"sampler": (i for i in range(3))}, TypeError, "iterated again, not generator"),
    ({"sampler": "abc"}, TypeError, "not str"),
    ({"sampler": 3}, TypeError, "not int"),
    ({"sampler": RandomSampler(range(COUNT), generator=torch.Generator())}, ValueError,
     "without generator="),
    ({"batch_sampler": TorchBatches(RandomSampler([1], generator=torch.Generator()), 2, True)},
     ValueError, "make the RandomSampler without generator="),
    ({"sampler": Weighted([1, 2])}, ValueError, "2 weights for a data set of 53"),
    ({"sampler": DistributedSampler(range(COUNT), 2, 0), "rank": 0, "ranks": 2}, ValueError,
     "shares samples among 2 processes"),
    ({"batch_sampler": TorchBatches(DistributedSampler(range(COUNT), 2, 0), 2, True), "rank": 0,
      "ranks": 2}, ValueError, "shares samples among 2 processes"),
    ({"batch_sampler": [[1]], "cache": "memory=1M", "assignment": "local", "rank": 0, "ranks": 2},
     ValueError, "no assignment="),
]  # fmt: skip


@pytest.mark.parametrize(("words", "kind", "why"), REFUSED)
def test_what_goes_not_together_is_refused(
    folder: Path, words: dict[str, Any], kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        Loader(folder, **words)


class Endless:
    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield 1


@pytest.mark.parametrize(
    ("words", "kind", "why"),
    [
        ({"sampler": [COUNT]}, IndexError, f"record {COUNT} of {COUNT}"),
        ({"sampler": [0.5]}, TypeError, "no index"),
        ({"sampler": np.array([0.5])}, TypeError, "float64"),
        ({"sampler": ["a"]}, TypeError, "no index"),
        ({"sampler": Endless()}, ValueError, "an epoch has an end"),
        ({"batch_sampler": [[1], []]}, ValueError, "no samples in batch 1"),
        ({"batch_sampler": [1, 2]}, TypeError, "int"),
        ({"batch_sampler": [[1], [COUNT]]}, IndexError, f"record {COUNT}"),
    ],
)
def test_an_order_that_makes_no_sense_is_an_error(
    folder: Path, words: dict[str, Any], kind: type[Exception], why: str
) -> None:
    with Loader(folder, **words) as loader, pytest.raises(kind, match=why):
        list(loader)


def test_a_share_of_its_own_is_kept_by_one_rank(folder: Path) -> None:
    sampler = DistributedSampler(range(COUNT), 2, 1, shuffle=False)
    with Loader(folder, SIZE, sampler=sampler, transform=number, rank=0, ranks=1) as loader:
        assert flat(loader) == list(sampler)


def test_a_mix_has_its_own_order(folder: Path) -> None:
    with lmdbio.Records(folder) as records, pytest.raises(ValueError, match="or sampler="):
        Loader(lmdbio.Mix([records]), SIZE, sampler=[1, 2])


def test_views_caches_and_pickles_go_with_an_order(folder: Path) -> None:
    weighted = Weighted(np.arange(20))
    with lmdbio.Records(folder) as records:
        with Loader(records[np.arange(20) + 30], SIZE, sampler=weighted, transform=number) as one:
            plain = [x for _ in range(2) for x in flat(one)]
        assert set(plain) <= set(range(31, 50))
        sizes = records.sizes()
        assert sizes.tolist() == [len(value) for value in records]
    words: Any = {"transform": number, "cache": "memory=1M", "sampler": Buckets(sizes, SIZE)}
    with Loader(folder, SIZE, **words) as one:
        assert sorted(flat(one)) == list(range(COUNT))
    both = [
        Loader(folder, SIZE, **words, assignment="local", rank=rank, ranks=2, even=False)
        for rank in range(2)
    ]
    found = Counter(x for one in both for x in flat(one))
    assert found == Counter(range(COUNT))
    with loader_of(folder, "sampler", "weighted") as one:
        copy = pickle.loads(pickle.dumps(one._cursor))
        assert copy.begin(use=True).samples(0).tolist() == lists(one)[0]
