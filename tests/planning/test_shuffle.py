"""Goal: each shuffle of each epoch has every record once, moves it as far as it may and no
further, and can be asked in both directions, for any part alone.

Method: whole orders of many counts against what the words say (which chunks, which windows);
hypothesis draws counts, chunks and windows, short last chunks and windows among them; windows and
chunks are told from chance by chi-square, with fixed seeds.
"""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lmdbio.planning.order import Epoch
from lmdbio.planning.shuffle import GLOBAL, Shuffle

SHUFFLES = {
    "global": GLOBAL,
    "groups": Shuffle.groups(16),
    "windows": Shuffle.windows(7, 5),
    "runs": Shuffle.runs(9),
    "mixed": Shuffle.mixed(1, 7, 5),
}


def order(count: int, shuffle: Shuffle, seed: int = 1, number: int = 0) -> np.ndarray:
    return Epoch(count, seed, number, shuffle).samples(np.arange(count))


@pytest.mark.parametrize("name", SHUFFLES)
def test_each_shuffle_has_each_record_once_for_all_counts(name: str) -> None:
    for count in range(1, 700):
        found = order(count, SHUFFLES[name], count)
        assert np.array_equal(np.sort(found), np.arange(count)), count


@pytest.mark.parametrize("name", SHUFFLES)
def test_the_inverse_gives_back_the_place(name: str) -> None:
    for count in (1, 2, 34, 35, 36, 1000, 99_991):
        epoch = Epoch(count, 5, 3, SHUFFLES[name])
        places = np.arange(count)
        assert np.array_equal(epoch.places(epoch.samples(places)), places)
        assert np.array_equal(epoch.samples(epoch.places(places)), places)


drawn = st.builds(
    Shuffle, st.integers(1, 50), st.integers(1, 12) | st.integers(2**60, 2**62), st.booleans()
)


@given(st.integers(1, 400), drawn, st.integers(), st.integers(0, 9), st.data())
def test_any_part_is_that_of_the_whole(
    count: int, shuffle: Shuffle, seed: int, number: int, data: st.DataObject
) -> None:
    whole = order(count, shuffle, seed, number)
    assert np.array_equal(np.sort(whole), np.arange(count))
    places = data.draw(st.lists(st.integers(0, count - 1), max_size=9))
    epoch = Epoch(count, seed, number, shuffle)
    assert epoch.samples(places).tolist() == whole[places].tolist()
    assert epoch.places(whole[places]).tolist() == places


@given(st.integers(1, 2**62), drawn, st.data())
def test_a_place_far_out_is_computed_alone_and_back(
    count: int, shuffle: Shuffle, data: st.DataObject
) -> None:
    epoch = Epoch(count, 9, 1, shuffle)
    places = data.draw(st.lists(st.integers(0, count - 1), max_size=5))
    found = epoch.samples(places)
    assert epoch.places(found).tolist() == places
    assert all(0 <= sample < count for sample in found.tolist())


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9))
def test_a_window_has_the_records_of_its_chunks(count: int, chunk: int, window: int) -> None:
    """The chunks come as in the order that keeps them; each run of them is shuffled alone."""
    found, kept = order(count, Shuffle.windows(chunk, window)), order(count, Shuffle.runs(chunk))
    if chunk * window >= count:
        window = count  # all of it
    chunks = np.split(kept, np.flatnonzero(np.diff(kept // chunk)) + 1)
    at = 0
    for first in range(0, len(chunks), window):
        inside = np.concatenate(chunks[first : first + window])
        assert sorted(found[at : at + len(inside)].tolist()) == sorted(inside.tolist())
        at += len(inside)
    assert at == count


def test_groups_stay_together_and_are_shuffled_inside() -> None:
    found = order(1600, Shuffle.groups(16)).reshape(100, 16)
    groups = found // 16
    assert (groups == groups[:, :1]).all()
    assert not np.array_equal(groups[:, 0], np.arange(100))
    inner = {tuple(row) for row in (found % 16).tolist()}
    assert len(inner) == 100, "each group has an order of its own"


def test_runs_keep_their_order() -> None:
    found = order(95, Shuffle.runs(10))
    ends = np.flatnonzero(np.diff(found) != 1)
    assert all(found[end] in (94, *range(9, 95, 10)) for end in ends)
    assert all(found[end + 1] % 10 == 0 for end in ends)
    assert not np.array_equal(found, np.arange(95))


def test_one_window_or_chunks_of_one_record_are_the_global_order() -> None:
    whole = order(300, GLOBAL)
    assert np.array_equal(order(300, Shuffle.windows(10, 30)), whole)
    assert np.array_equal(order(300, Shuffle.groups(300)), whole)
    assert np.array_equal(order(300, Shuffle.runs(1)), whole)
    assert np.array_equal(order(300, Shuffle.windows(1, 4)), whole)


def test_epochs_and_windows_differ() -> None:
    shuffle = Shuffle.windows(8, 4)
    orders = {tuple(order(320, shuffle, 1, number)) for number in range(20)}
    assert len(orders) == 20
    windows = order(320, Shuffle.groups(32)).reshape(10, 32) % 32
    assert len({tuple(row) for row in windows.tolist()}) == 10


def chi_square(table: np.ndarray, expected: float) -> float:
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    return float((((table - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


def test_each_record_is_as_likely_at_each_place_of_a_window() -> None:
    table = np.zeros((12, 12))
    for number in range(2000):
        found = order(120, Shuffle.groups(12), 3, number)
        group = found[:12]
        table[np.arange(12), group % 12] += 1
    assert abs(chi_square(table, 2000 / 12)) < 5


def test_each_chunk_is_as_likely_in_each_position() -> None:
    table = np.zeros((10, 10))
    for number in range(2000):
        chunks = order(120, Shuffle.groups(12), 3, number).reshape(10, 12)[:, 0] // 12
        table[np.arange(10), chunks] += 1
    assert abs(chi_square(table, 200)) < 5


def test_a_given_order_is_the_same_in_each_epoch() -> None:
    shuffle = Shuffle.given([3, 0, 2, 1])
    for number in range(2):
        epoch = Epoch(4, 7, number, shuffle)
        assert epoch.samples([0, 1, 2, 3]).tolist() == [3, 0, 2, 1]
        assert epoch.places([3, 0, 2, 1]).tolist() == [0, 1, 2, 3]
    assert Shuffle.given(np.array([1, 0], np.uint8)) == Shuffle.given([1, 0])


@pytest.mark.parametrize("wrong", [[0, 0], [1, 2], [[0, 1]], [0.0, 1.0]])
def test_a_given_order_that_is_none_is_refused(wrong: list) -> None:
    with pytest.raises(ValueError, match="order"):
        Shuffle.given(wrong)


def test_a_given_order_of_other_records_is_refused() -> None:
    for given_order in ([1, 0], []):
        with pytest.raises(ValueError, match="records cannot be that of 3"):
            Epoch(3, 0, 0, Shuffle.given(given_order))
    with pytest.raises(ValueError, match="has each from 0 on once"):
        Shuffle(order=np.array([7, 7]).tobytes())


def test_windows_of_three_records_have_all_their_orders() -> None:
    seen = {tuple(order(30, Shuffle.groups(3), 1, n)[:3] % 3) for n in range(200)}
    assert len(seen) == 6


@pytest.mark.parametrize("values", [{"chunk": 0}, {"window": 0}, {"chunk": -3}, {"window": 2**63}])
def test_what_is_no_shuffle_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Shuffle(**values)
    with pytest.raises(IndexError, match="sample lies outside"):
        Epoch(3, 0).places([3])


def test_without_a_seed_nothing_is_shuffled() -> None:
    assert Epoch(9, None, 3, Shuffle.groups(3)).samples(range(9)).tolist() == list(range(9))
    assert Epoch(9, None).places([4]).tolist() == [4]


@given(st.integers(1, 2000), st.data())
def test_of_any_run_of_places_held_records_have_their_proportion(
    count: int, data: st.DataObject
) -> None:
    held = data.draw(st.integers(1, count))
    shuffle = Shuffle.mixed(held, data.draw(st.integers(1, 40)), data.draw(st.integers(1, 9)))
    found = order(count, shuffle)
    assert np.array_equal(np.sort(found), np.arange(count))
    so_far = np.cumsum(found < held)
    assert np.all(np.abs(so_far - np.arange(1, count + 1) * held / count) < 1)


def test_the_others_come_in_windows_and_in_another_order_each_epoch() -> None:
    shuffle = Shuffle.mixed(300, 10, 5)
    first, second = (order(1000, shuffle, number=i) for i in (0, 1))
    for found in (first, second):
        streamed = found[found >= 300] - 300
        for begin in range(0, 700, 50):
            assert len(np.unique(streamed[begin : begin + 50] // 10)) == 5
        assert len(np.unique(found[found < 300][:100])) == 100
    assert not np.array_equal(first, second)


def test_more_held_records_than_there_are_and_more_than_fit_the_sum_are_refused() -> None:
    with pytest.raises(ValueError, match="11 held records cannot be mixed among 10"):
        Epoch(10, 1, 0, Shuffle.mixed(11, 2, 2))
    with pytest.raises(ValueError, match="cannot be mixed"):
        Epoch(2**31 + 1, 1, 0, Shuffle.mixed(11, 2, 2))
    with pytest.raises(ValueError, match="negative"):
        Shuffle.mixed(-1, 2, 2)


def test_the_largest_mixed_order_goes_there_and_back() -> None:
    epoch = Epoch(2**31, 1, 0, Shuffle.mixed(2**30 + 1, 2**10, 2**10))
    places = np.random.default_rng(1).integers(0, 2**31, 10_000)
    assert np.array_equal(epoch.places(epoch.samples(places)), places)


@pytest.mark.parametrize(
    ("text", "shuffle"),
    [
        ("global", GLOBAL),
        ("groups:16", Shuffle.groups(16)),
        ("Group:16", Shuffle.groups(16)),
        ("windows:7x5", Shuffle.windows(7, 5)),
        ("window:7x5", Shuffle.windows(7, 5)),
        ("runs:9", Shuffle.runs(9)),
    ],
)
def test_a_shuffle_has_a_name(text: str, shuffle: Shuffle) -> None:
    assert Shuffle.named(text) == shuffle


def test_groups_and_windows_without_sizes_suit_the_records() -> None:
    group = Shuffle.named("group", 4096.0, 256)
    assert group.chunk == 16384 and group.is_grouped
    # However large the records are, a group is a whole number of batches, and a chunk a record.
    assert Shuffle.named("group", 1e9, 96).chunk == 96
    assert Shuffle.named("group", 5000.0, 96).chunk % 96 == 0
    window = Shuffle.named("window", 4096.0)
    assert (window.chunk, window.window) == (2048, 32) and not window.is_grouped
    assert Shuffle.named("window", 1e9).chunk == 1


@pytest.mark.parametrize(
    "text",
    ["", "groups", "windows", "runs", "global:3", "groups:0", "groups:-1", "windows:3",
     "groups:3x3", "groups:1e3", "groups:", "rows:3", "groups: 3", "windows:3x",
     "groups:9999999999999999999"],
)  # fmt: skip
def test_what_is_no_shuffle_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not global, groups:SIZE"):
        Shuffle.named(text)


@pytest.mark.parametrize("text", ["groups:", "windows:", "window:", "global:"])
def test_a_colon_without_sizes_is_no_shuffle_whatever_the_records(text: str) -> None:
    with pytest.raises(ValueError, match="is not global, groups:SIZE"):
        Shuffle.named(text, 4096.0, 256)


@pytest.mark.parametrize("record_bytes", [10, 3000, 110_000, 90 << 20])
@pytest.mark.parametrize("count", [1, 100, 8000, 10**6, 10**8])
def test_an_epoch_that_warms_comes_in_small_parts_of_the_file(
    count: int, record_bytes: int
) -> None:
    shuffle = Shuffle.warming(count, record_bytes)
    assert shuffle.inner and not shuffle.held and 1 <= shuffle.window <= 32
    window_bytes = shuffle.chunk * shuffle.window * record_bytes
    assert window_bytes <= 1.1 * max(count * record_bytes / 16, 8 * record_bytes)
    assert window_bytes <= (256 << 20) + shuffle.window * record_bytes
    if count * record_bytes > 16 * (256 << 20) and record_bytes < 1 << 20:
        assert shuffle.window == 32, "as usual windows"
