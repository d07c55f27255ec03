"""Mixes of open sets: values, keys and batches of all sets in one order.

Goal: a mix gives, whichever call asks, what its order says; a loop that is interrupted goes on
with the samples that an uninterrupted one has, with any number of ranks and workers.

Method: sets whose values say whose they are; the pure order, held against every call.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmdbio
from lmdbio.records.mix import Mix, MixedBatch
from tests.support import databases
from tests.support.programs import read_ocr, write_ocr

COUNTS = {"large": 300, "middle": 70, "small": 9}
WEIGHTS = {"large": 0.5, "middle": 0.3, "small": 0.2}


def value(name: str, i: int) -> bytes:
    return b"%s %d " % (name.encode(), i) * (1 + i * 53 % 600)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("mix")
    opened = {}
    for name, count in COUNTS.items():
        with databases.open_writable(folder / name, 1) as env:
            databases.write(env, [(b"%08d" % i, value(name, i)) for i in range(count)])
        opened[name] = lmdbio.Records(folder / name)
    yield opened
    for one in opened.values():
        one.close()


@pytest.fixture
def mix(sets: dict[str, Any]) -> Mix:
    return Mix(sets, WEIGHTS, seed=3, epoch_size=100)


def wanted(mix: Mix, places: Any) -> list[bytes]:
    found, samples = mix.order.find(np.array(places, np.int64))
    return [value(mix.names[s], int(i)) for s, i in zip(found, samples, strict=True)]


def test_every_call_gives_what_the_order_says(mix: Mix) -> None:
    assert len(mix) == 100 and mix.order.weights == (5, 3, 2)
    first = wanted(mix, range(100))
    assert list(mix) == first and [mix[i] for i in range(-100, 100)] == first * 2
    assert mix[90:] == first[90:] and mix[::-3] == first[::-3]
    places = np.random.default_rng(1).integers(0, 10**7, 400)
    values = wanted(mix, places)
    batch = mix.read(places)
    assert isinstance(batch, MixedBatch) and batch.indices.tolist() == places.tolist()
    assert list(map(bytes, batch)) == values == list(mix.values(places))
    assert [bytes(batch[i]) for i in (-1, 0)] == [values[-1], values[0]]
    assert [bytes(one) for one in batch[3:5]] == values[3:5]
    assert [mix.names[s] for s in batch.sets[:9]] == [mix.origin(p)[0] for p in places[:9]]
    for epoch in (0, 1, 7):
        found = [bytes(one) for batch in mix.batches(mix.epoch(epoch), 32) for one in batch]
        assert found == wanted(mix, mix.epoch(epoch))
    name, index = mix.origin(1234)
    assert mix.key(1234) == b"%08d" % index and wanted(mix, [1234]) == [value(name, index)]
    assert list(mix.values([-1])) == [first[-1]]
    assert mix.stats().records > 400


def test_samples_that_are_not_there_are_refused(mix: Mix) -> None:
    for call in (lambda: mix[100], lambda: mix[-101], lambda: mix.read([-101])):
        with pytest.raises(IndexError, match="of 100 of an epoch"):
            call()
    with pytest.raises(TypeError, match="integers"):
        mix.read([0.5])
    with pytest.raises(TypeError, match="ask the set"):
        mix.index_of(b"%08d" % 1)
    with pytest.raises(ValueError, match="negative"):
        mix.epoch(-1)


def test_a_mix_of_views_and_a_view_of_a_mix(sets: dict[str, Any]) -> None:
    train, rest = sets["large"].split([0.9, 0.1])
    mix = Mix([train, sets["small"]], [3, 1], seed=1)
    assert mix.names == ("0", "1") and len(mix) == len(train) + 9
    mine = {value("large", int(i)) for i in train.indices}
    values = list(mix)
    assert {one for one in values if one.startswith(b"large")} <= mine
    view = mix.split([0.5, 0.5], seed=2)[1]
    assert sorted(view) == sorted(values[i] for i in view.indices)
    batch = view.read([3, 0])
    assert list(map(bytes, batch)) == [view[3], view[0]] and batch.indices.tolist() == [3, 0]
    with pytest.raises(TypeError, match="ask the set"):
        view.index_of(b"0")
    assert rest.stats() == train.stats()


def test_stats_count_each_file_once(sets: dict[str, Any]) -> None:
    parts = sets["middle"].split([0.5, 0.5])
    mix = Mix(parts, seed=None)
    before = mix.stats().records
    assert len(list(mix.values(range(40)))) == 40
    assert mix.stats().records - before == 40


def test_a_mix_can_be_pickled(mix: Mix) -> None:
    again = pickle.loads(pickle.dumps(mix))
    assert again.order == mix.order and list(again.values(range(500, 600))) == wanted(
        mix, range(500, 600)
    )
    assert repr(again) == "<Mix of large: 5, middle: 3, small: 2; 100 samples an epoch>"
    for one in again.sets:
        one.close()


def test_pairs_mix_with_pairs(tmp_path: Path) -> None:
    opened = []
    for count in (40, 15):
        write_ocr(tmp_path / str(count), count)
        opened.append(lmdbio.Records(tmp_path / str(count), layout="auto"))
    mix = Mix(opened, [1, 1], seed=4)
    samples = [read_ocr(tmp_path / str(count)) for count in (40, 15)]
    sets, numbers = mix.order.find(np.arange(90))
    pairs = [samples[s][i] for s, i in zip(sets, numbers, strict=True)]
    assert list(mix.values(range(90))) == pairs
    assert [tuple(map(bytes, one)) for one in mix.read(range(90))] == pairs
    for one in opened:
        one.close()


def test_arguments_that_make_no_mix_are_refused(sets: dict[str, Any], tmp_path: Path) -> None:
    databases.open_writable(tmp_path / "none", 1).close()
    with lmdbio.Records(tmp_path / "none") as empty:
        for given, weights, error, reason in (
            ({}, None, ValueError, "one for each set"),
            (sets["large"], None, TypeError, "several sets"),
            ({"a": "a path"}, None, TypeError, "'a' of a mix is Records, .* not str"),
            ({"a": Mix([sets["small"]])}, None, TypeError, "not Mix"),
            ({"a": empty}, None, ValueError, "none.*set 'a' of a mix has no samples"),
            (sets, [1, 2], ValueError, "2 weights for 3 sets"),
            (sets, {"large": 1}, ValueError, "weights of"),
            (sets, [1, 2, 0], ValueError, "above 0"),
        ):
            with pytest.raises(error, match=reason):
                Mix(given, weights)
    with pytest.raises(ValueError, match="at least one sample"):
        Mix(sets, epoch_size=0)


def test_a_part_that_fails_gives_the_others_up(sets: dict[str, Any], tmp_path: Path) -> None:
    with databases.open_writable(tmp_path / "gone", 1) as env:
        databases.write(env, [(b"%08d" % i, b"x" * 9000) for i in range(20)])
    with lmdbio.Records(tmp_path / "gone", engine="pread") as gone:
        mix = Mix([sets["large"], gone], [1, 1])
        with (tmp_path / "gone" / "data.mdb").open("r+b") as file:
            file.truncate(8192)
        for read in (mix.read, lambda places: list(mix.values(places))):
            with pytest.raises((lmdbio.Error, OSError), match="gone"):
                read(range(40))
        assert list(mix.sets[0].values([1])) == [value("large", 1)]


# --- torch ---------------------------------------------------------------------------------


def loaded(mix: Mix, ranks: int, batch: int, state: Any, epochs: int) -> tuple[list[bytes], Any]:
    """Return the samples of Loaders of all ranks, step by step, and the last state."""
    from lmdbio.torch import Loader

    steps: dict[tuple[int, int], list[bytes]] = {}
    last: Any = None
    for rank in range(ranks):
        words: dict[str, Any] = {"rank": rank, "ranks": ranks, "even": False}
        with Loader(mix, batch, collate_fn=list, **words) as loader:
            if state is not None:
                loader.load_state_dict(state)
            for epoch in range(epochs):
                for step, one in enumerate(loader):  # the last one may be of the first ranks alone
                    steps.setdefault((epoch, step), []).extend(one)
            last = loader.state_dict()
    return [one for at in sorted(steps) for one in steps[at]], last


def test_loaders_go_through_epochs_by_the_order(mix: Mix) -> None:
    pytest.importorskip("torch")
    for ranks, batch in ((1, 10), (2, 5), (5, 4)):
        found, last = loaded(mix, ranks, batch, None, 3)
        assert found == wanted(mix, range(300))
        assert (last["epoch"], last["used"], last["count"]) == (3, 0, 100)
        assert last["mix"] == mix.order.signature


def test_what_is_interrupted_goes_on_with_other_ranks(mix: Mix) -> None:
    pytest.importorskip("torch")
    from lmdbio.torch import Loader

    whole = wanted(mix, range(300))
    with Loader(mix, 7, rank=0, ranks=2, collate_fn=list) as first:
        first.set_epoch(1)
        steps = iter(first)
        own = [next(steps) for _ in range(3)]
        state = pickle.loads(pickle.dumps(first.state_dict()))
    assert own == [whole[100 + at : 107 + at] for at in (0, 14, 28)] and state["used"] == 42
    for ranks in (1, 3, 4):
        assert loaded(mix, ranks, 2, state, 2)[0] == whole[142:]


def test_states_are_of_one_mix(mix: Mix, sets: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    from lmdbio.torch import IterableDataset, Loader

    with Loader(mix, 10) as loader:
        state = loader.state_dict()
    others = (
        Mix(sets, WEIGHTS, seed=4, epoch_size=100),
        Mix(sets, [1, 1, 1], seed=3, epoch_size=100),
        sets["large"][list(range(100))],
    )
    for other in others:
        with Loader(other, 10) as loader, pytest.raises(ValueError, match="saved with mix"):
            loader.load_state_dict(state)
        with pytest.raises(ValueError, match="saved with mix"):
            IterableDataset(other, 10).load_state_dict(state)
    with Loader(others[2], 10) as loader:
        plain = loader.state_dict()
    with Loader(mix, 10) as loader, pytest.raises(ValueError, match="saved with mix"):
        loader.load_state_dict(plain)
    for refused in (Loader, IterableDataset):
        with pytest.raises(ValueError, match="an order of its own"):
            refused(mix, 10, shuffle=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_take_a_mix_in_turns(mix: Mix, workers: int) -> None:
    pytest.importorskip("torch")
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader import StatefulDataLoader

    from lmdbio.torch import BatchSampler, Dataset, IterableDataset, state_of

    how = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
    stream = IterableDataset(mix, 8, collate_fn=list)
    stream.set_epoch(2)
    found = [one for batch in DataLoader(stream, batch_size=None, **how) for one in batch]
    assert found == wanted(mix, range(200, 300))
    dataset = Dataset(mix, keys=True)
    sampler = BatchSampler(dataset, 8)
    loader = StatefulDataLoader(
        dataset, batch_sampler=sampler, collate_fn=list, snapshot_every_n_steps=1, **how
    )
    assert [one for batch in loader for _, one in batch] == wanted(mix, range(100))
    begun = iter(loader)
    before = [one for _ in range(5) for _, one in next(begun)]
    state = state_of(loader.state_dict())
    del begun
    assert before == wanted(mix, range(100, 140)) and state["used"] == 40
    again = BatchSampler(mix, 12)
    again.load_state_dict(state)
    rest = [one for batch in again for one in batch]
    assert rest == list(range(140, 200))


def test_samples_of_pytorch_s_own_loader_are_those_of_epoch_0(mix: Mix) -> None:
    pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from lmdbio.torch import Dataset

    found = [one for batch in DataLoader(Dataset(mix), 9, collate_fn=list) for one in batch]
    assert found == wanted(mix, range(100))
