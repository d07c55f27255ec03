"""Batches cut out of an order. Goal: all of it, in turn, once. Method: a table of orders."""

from __future__ import annotations

import numpy as np
import pytest

import lmdbio
from lmdbio.records.ahead import cut
from tests.support import databases


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
@pytest.mark.parametrize("size", [1, 8, 1000])
def test_an_order_is_cut_into_batches(count: int, size: int) -> None:
    order = np.random.default_rng(count).permutation(count)
    each, known = cut(order, size, count)
    parts = list(each)
    assert np.array_equal(np.concatenate([np.empty(0, int), *parts]), order)
    assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert known == (0 if (np.diff(order) >= 0).all() else count)


def test_batches_that_are_given_are_counted_where_that_needs_no_looking_ahead() -> None:
    parts = [[3, 1], [2]]
    assert cut(parts, None, 4) == (parts, 3)
    lazy = iter(parts)
    assert cut(lazy, None, 4) == (lazy, 0)


@pytest.mark.parametrize(
    ("wanted", "size", "error"),
    [([1, 2], 0, ValueError), ([1, 2], -3, ValueError), ([1, 2], "3", TypeError),
     ([[1, 2]], 3, TypeError), (5, 3, TypeError)],
)  # fmt: skip
def test_what_cannot_be_cut_is_refused(wanted: object, size: object, error: type) -> None:
    with pytest.raises(error):
        cut(wanted, size, 4)  # type: ignore[arg-type]


def test_records_of_one_file_and_of_several_take_an_order(tmp_path) -> None:
    values = [b"%05d" % i for i in range(300)]
    for name in "ab":
        env = databases.open_writable(tmp_path / name, 1)
        half = values[:150] if name == "a" else values[150:]
        databases.write(env, ((b"%05d" % i, value) for i, value in enumerate(half)))
        env.close()
    order = np.random.default_rng(1).permutation(300)
    with lmdbio.Records([tmp_path / "a", tmp_path / "b"]) as records:
        found = [bytes(view) for batch in records.batches(order, 32) for view in batch]
        assert found == [values[i] for i in order]
        with pytest.raises(ValueError, match="batch_size"):
            records.batches(order, 0)
    with lmdbio.Records(tmp_path / "b") as one:
        own = np.random.default_rng(2).permutation(150)
        batches = list(one.batches(own, 40, ahead=3))
        assert [len(batch) for batch in batches] == [40, 40, 40, 30]
