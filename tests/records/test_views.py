"""Views of samples: sequences that read nothing until they are asked.

Goal: a view does all that Records do, under indices of its own; views of views are one mapping;
splits are views; torch's data sets and Loaders take them as they take Records.

Method: the same calls on a list of values that the same indices were taken of.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import lmdbio
from lmdbio.records.samples import View
from tests.support import databases, long_run
from tests.support.programs import read_ocr, write_ocr

COUNT = 700


def value(i: int) -> bytes:
    return b"%d " % i * (1 + i * 59 % 800)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views") / "db"
    with databases.open_writable(folder, 1) as env:
        databases.write(env, [(b"%08d" % i, value(i)) for i in range(COUNT)])
    return folder


@pytest.fixture(scope="module")
def records(path: Path) -> Iterator[lmdbio.Records]:
    with lmdbio.Records(path) as one:
        yield one


@pytest.mark.parametrize(
    "indices",
    [
        np.array([5, 3, 3, 699, -1, -700], np.int16),
        [0, 1, 2],
        [],
        np.arange(600)[::-1],
        np.arange(COUNT) % 7 == 3,
        np.arange(300, dtype=np.uint64),
    ],
)
def test_a_view_is_the_sequence_of_its_samples(records: lmdbio.Records, indices: Any) -> None:
    view = records[indices]
    assert isinstance(view, View) and not isinstance(view, list)
    chosen = np.arange(COUNT)[np.asarray(indices, None if len(indices) else int)]
    values = [value(int(i)) for i in chosen]
    assert len(view) == len(values) and list(view) == values
    assert view.indices.tolist() == chosen.tolist()
    assert view.sizes().tolist() == list(map(len, values))
    for at in range(-len(values), len(values)):
        assert view[at] == values[at] and view.key(at) == b"%08d" % chosen[at]
    for cut in (slice(None), slice(1, 3), slice(None, None, -2), slice(9, 2)):
        assert view[cut] == values[cut]
    order = np.random.default_rng(0).permutation(len(values))
    for asked in (order, order.tolist(), order - len(values)):
        batch = view.read(asked)
        assert [bytes(one) for one in batch] == [values[i] for i in order]
        assert batch.indices.tolist() == order.tolist()
        assert list(view.values(asked)) == [values[i] for i in order]
    found = [bytes(one) for batch in view.batches(order, 100, ahead=2) for one in batch]
    assert found == [values[i] for i in order]
    for bad in (len(values), -len(values) - 1):
        with pytest.raises(IndexError, match=f"of {len(values)}"):
            view.read([bad])
        with pytest.raises(IndexError, match=f"view of {len(values)}"):
            view[bad]
        with pytest.raises(IndexError):
            view.key(bad)


@settings(max_examples=long_run.cases(30))
@given(data=st.data())
def test_views_of_views_are_one_mapping(records: lmdbio.Records, data: st.DataObject) -> None:
    view: Any = records
    chosen = np.arange(COUNT)
    for _ in range(data.draw(st.integers(1, 4))):
        indices = data.draw(
            st.lists(st.integers(-len(chosen), len(chosen) - 1), max_size=30)
            if len(chosen)
            else st.just([])
        )
        view = view[indices] if data.draw(st.booleans()) else view.subset(np.array(indices, int))
        chosen = chosen[np.array(indices, int)]
    assert view.base is records
    assert list(view) == [value(int(i)) for i in chosen]
    assert view.read(range(len(view))).indices.tolist() == list(range(len(view)))


def test_to_make_one_reads_nothing(path: Path) -> None:
    with lmdbio.Records(path) as one:
        before = one.stats()
        view = one.subset(np.arange(COUNT).repeat(9))[np.arange(4000)].split([0.5, 0.5])[0]
        assert len(view) == 2000 and one.stats() == before
        indices = np.array([4, 5])
        view = one[indices]
        indices[0] = 9
        assert view.indices.tolist() == [4, 5] and view.stats() == one.stats()
        with pytest.raises(ValueError, match="read-only"):
            view.indices[0] = 1


def test_indices_that_make_no_sense_are_refused(records: lmdbio.Records) -> None:
    for bad, error in (
        ([COUNT], IndexError), ([-COUNT - 1], IndexError), ([1.5], TypeError), ("abc", TypeError),
        (np.zeros((2, 2), int), TypeError), (np.zeros(3, bool), TypeError), (None, TypeError),
        (1.0, TypeError), ({1: 2}, TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            records[bad]  # type: ignore[call-overload]
        with pytest.raises(error):
            records[[1, 2]][bad]


def test_a_view_leads_from_keys_to_its_own_samples(records: lmdbio.Records) -> None:
    view = records[[9, 4, 9, 2]]
    assert view.index_of(b"%08d" % 9) == 0 and view.index_of(b"%08d" % 2) == 3
    for missing in (b"%08d" % 3, b"none"):
        with pytest.raises(KeyError):
            view.index_of(missing)


def test_a_view_can_be_pickled_with_its_records(path: Path) -> None:
    with lmdbio.Records(path) as one:
        parts = one.split([0.8, 0.2], seed=5)
        again = pickle.loads(pickle.dumps(parts))
        assert [list(part) for part in again] == [list(part) for part in parts]
        assert again[0].base is again[1].base and again[0].base is not one
        again[0].base.close()


def test_threads_may_share_a_view(records: lmdbio.Records) -> None:
    view, failures = records[np.arange(COUNT)[::-1]], []

    def read(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(COUNT)
        for at in range(0, COUNT, 50):
            some = order[at : at + 50]
            found = [bytes(one) for one in view.read(some)]
            if found != [value(COUNT - 1 - int(i)) for i in some]:
                failures.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_views_of_pairs_are_of_tuples(tmp_path: Path) -> None:
    write_ocr(tmp_path / "ocr", 60)
    samples = read_ocr(tmp_path / "ocr")
    with lmdbio.Records(tmp_path / "ocr", layout="ocr") as pairs:
        view = pairs[[7, -1, 7]]
        assert list(view) == [samples[7], samples[59], samples[7]] and view[1] == samples[59]
        batch = view.read([2, 1])
        assert [tuple(map(bytes, one)) for one in batch] == [samples[7], samples[59]]
        assert batch.indices.tolist() == [2, 1]
        assert [bytes(one) for one in batch.columns[1]] == [samples[7][1], samples[59][1]]
        assert view.key(1) == (b"image-000000060", b"label-000000060")
        train, rest = pairs.split([0.7, 0.3])
        assert sorted([*train, *rest]) == sorted(samples)


def test_torch_takes_a_view_as_it_takes_records(path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from lmdbio.torch import BatchSampler, Dataset, IterableDataset, Loader

    with lmdbio.Records(path) as one:
        train, val = one.split([0.9, 0.1], seed=3)
        wanted = [value(int(i)) for i in train.indices]
        with Loader(train, 32, shuffle=True, collate_fn=list) as loader:
            first = [sample for batch in loader for sample in batch]
            assert sorted(first) == sorted(wanted) and first != wanted
            state = loader.state_dict()
            assert state["count"] == len(train)
        with Loader(val, 32, keys=True, buffers=True, collate_fn=list) as loader:
            found = [(key, bytes(data)) for batch in loader for key, data in batch]
        assert found == [(b"%08d" % i, value(int(i))) for i in val.indices]
        assert one[0] == value(0)  # a Loader closes no Records that it was given
        dataset = Dataset(val, keys=True)
        assert dataset[3] == (val.key(3), val[3])
        sampler = BatchSampler(dataset, 8, shuffle=True)
        for workers in (0, 2):
            batches = DataLoader(
                dataset, batch_sampler=sampler, collate_fn=list, num_workers=workers,
                multiprocessing_context="fork" if workers else None,
            )  # fmt: skip
            assert sorted(sample for batch in batches for _, sample in batch) == sorted(val)
        stream = IterableDataset(train, 10, collate_fn=list)
        assert [sample for batch in stream for sample in batch] == wanted
        with pytest.raises(ValueError, match="not open yet"):
            Loader(train, 8, cache="memory=1M")
    assert torch is not None


# --- arrays of other libraries --------------------------------------------------------------


class Tensor:
    """An array of another library: it becomes NumPy's, and of one number it is an index."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)
        self.ndim = self._values.ndim

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._values

    def __index__(self) -> int:
        if self._values.size != 1:
            raise TypeError("only integer tensors of a single element can be converted")
        return int(self._values.reshape(-1)[0])


MASK = np.arange(COUNT) % 7 == 3
MEANT: dict[str, tuple[Any, list[int]]] = {
    "mask": (MASK, np.flatnonzero(MASK).tolist()),
    "nothing": (np.zeros(COUNT, bool), []),
    "several": (np.array([5, 3, 3, -1]), [5, 3, 3, COUNT - 1]),
    "one": (np.array([3]), [3]),
    "none": (np.array([], np.int64), []),
    "short numbers": (np.array([1, 0, 1], np.uint8), [1, 0, 1]),
}


@pytest.mark.parametrize("library", ["numpy", "list", "torch", "another"])
@pytest.mark.parametrize("meant", MEANT)
def test_arrays_of_any_library_mean_the_same(path: Path, library: str, meant: str) -> None:
    array, numbers = MEANT[meant]
    given: Any = {"numpy": array, "list": array.tolist(), "another": Tensor(array)}.get(library)
    if library == "torch":
        given = pytest.importorskip("torch").from_numpy(array)
    mixed = lmdbio.Mix({"a": lmdbio.Records(path)}, weights={"a": 1.0})
    with lmdbio.Records(path) as records, lmdbio.Records(path, readahead=True) as held:
        backwards = records[np.arange(COUNT)[::-1]]
        for samples in (records, held, backwards):
            values = [samples[i] for i in numbers]
            assert list(samples[given]) == list(samples.subset(given)) == values
            assert [bytes(one) for one in samples.read(given)] == values
            assert list(samples.values(given)) == values
            found = [bytes(one) for batch in samples.batches(given, 64) for one in batch]
            assert found == values
        assert mixed[given].indices.tolist() == numbers


def test_a_tuple_of_records_takes_them_too(tmp_path: Path) -> None:
    write_ocr(tmp_path / "db", 9)
    with lmdbio.Records(tmp_path / "db", layout="ocr") as records:
        for given in (Tensor([4]), Tensor(np.arange(9) == 4), [i == 4 for i in range(9)]):
            assert list(records[given]) == [records[4]]
        assert list(records.values(np.arange(9) == 4)) == [records[4]]
        assert records[Tensor(4)] == records[4]


def test_a_scalar_of_any_library_is_one_sample(records: lmdbio.Records) -> None:
    view = records[[5, 6, 7]]
    for one in (np.int64(2), np.uint8(2), np.array(2), Tensor(2), 2):
        assert records[one] == value(2) and view[one] == value(7)


@pytest.mark.parametrize("mask", [MASK[:-1], MASK[np.newaxis], np.array(True), [True]])
def test_a_mask_of_another_length_is_refused(records: lmdbio.Records, mask: Any) -> None:
    for call in (records.subset, records.read, lambda mask: list(records.values(mask))):
        with pytest.raises(TypeError, match=f"bool, one for each of {COUNT}"):
            call(mask)
