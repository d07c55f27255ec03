"""Sets that belong together by their index: one sequence of tuples.

Goal: a Zip does all that Records do, with a value of each set; loaders take it as they take
samples of several records. Method: the same calls on tuples of the values.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmdbio
from lmdbio.torch import Array, Dataset, Loader
from tests.support import databases

COUNT = 90


def value(name: bytes, i: int) -> bytes:
    return (name + b"%06d" % i) * (1 + i * 31 % 70)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[lmdbio.Records]]:
    paths: list[Path] = [tmp_path_factory.mktemp("zip") / name for name in "ab"]
    for path, name in zip(paths, (b"a", b"b"), strict=True):
        with databases.open_writable(path, 1) as env:
            databases.write(env, [(b"%s%04d" % (name, i), value(name, i)) for i in range(COUNT)])
    opened = [lmdbio.Records(path) for path in paths]
    yield opened
    for one in opened:
        one.close()


def test_a_zip_is_the_sequence_of_tuples(sets: list[lmdbio.Records]) -> None:
    both = lmdbio.Zip(sets)
    values = [(value(b"a", i), value(b"b", i)) for i in range(COUNT)]
    assert len(both) == COUNT and list(both) == values and both[-1] == values[-1]
    assert both[3:9:2] == values[3:9:2] and both.key(7) == (b"a0007", b"b0007")
    assert both.index_of(b"a0007") == 7
    assert both.sizes().tolist() == [len(a) + len(b) for a, b in values]
    order = np.random.default_rng(0).permutation(COUNT)
    for wanted in (order, order.tolist(), order - COUNT):
        batch = both.read(wanted)
        assert [tuple(map(bytes, one)) for one in batch] == [values[i] for i in order]
        assert batch.indices.tolist() == order.tolist()
        assert list(both.values(wanted)) == [values[i] for i in order]
    found = [bytes(b) for batch in both.batches(order, 16) for b in batch.columns[1]]
    assert found == [values[i][1] for i in order]
    assert list(both[order[:5]]) == [values[i] for i in order[:5]]
    assert both.stats().records >= COUNT
    copy = pickle.loads(pickle.dumps(both))
    assert copy[11] == values[11]
    for bad in ([COUNT], [-COUNT - 1]):
        with pytest.raises(IndexError, match=f"of {COUNT}"):
            both.read(bad)
    with pytest.raises(IndexError):
        both[COUNT]


def test_neighbours_are_shifted_views(sets: list[lmdbio.Records]) -> None:
    places = np.arange(COUNT - 2)
    clips = lmdbio.Zip([sets[0][places + shift] for shift in range(3)])
    assert len(clips) == COUNT - 2
    assert clips[5] == tuple(value(b"a", 5 + shift) for shift in range(3))
    batch = clips.read([0, 80])
    assert [tuple(map(bytes, one)) for one in batch] == [clips[0], clips[80]]


@pytest.mark.parametrize("processes", [0, 2])
def test_loaders_take_it(sets: list[lmdbio.Records], processes: int) -> None:
    both = lmdbio.Zip(sets)
    threads = 0 if processes else 2
    how: Any = {"shuffle": True, "threads": threads, "processes": processes, "collate_fn": list}
    with Loader(both, 8, transform=lambda pair: (pair[0][1:7], pair[1][1:7]), **how) as loader:
        found = [one for batch in loader for one in batch]
    assert sorted(found) == [(b"%06d" % i,) * 2 for i in range(COUNT)]
    assert Dataset(both).__getitems__([4]) == [both[4]]


def test_whole_batches_have_a_decoder_for_each_set(sets: list[lmdbio.Records]) -> None:
    with Loader(lmdbio.Zip(sets), 10, decode=(Array("u1", 7), Array("u1"))) as loader:
        left, right = next(iter(loader))
    assert bytes(left[3].numpy()) == b"a000003"
    assert right.tolist() == [ord("b")] * 10 and right.dtype == torch.uint8


def test_what_does_not_belong_together_is_refused(sets: list[lmdbio.Records]) -> None:
    with pytest.raises(ValueError, match=r"equally many samples, not \[90, 5\]"):
        lmdbio.Zip([sets[0], sets[1][np.arange(5)]])
    with pytest.raises(ValueError, match=r"not \[\]"):
        lmdbio.Zip([])
    for bad in ("abc", [lmdbio.Mix(sets), sets[0]]):
        with pytest.raises(TypeError, match="a set of a Zip is Records"):
            lmdbio.Zip(bad)  # type: ignore[arg-type]
    with lmdbio.Records(sets[0].path) as other:
        both = lmdbio.Zip([sets[1], other])
    with pytest.raises(lmdbio.Error, match="closed"):
        both.read([1])
