"""Goal: in each round every record of its window has one reader, and all readers as much to read.

Method: whole epochs of drawn counts, chunks and windows against what the words say; short last
chunks anywhere.
"""

from __future__ import annotations

from itertools import islice, pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lmdbio.planning.order import Epoch, Epochs
from lmdbio.planning.rounds import Rounds, RoundSequence
from lmdbio.planning.shuffle import GLOBAL, Shuffle

drawn = st.builds(
    Rounds,
    st.builds(
        Epoch,
        st.integers(1, 400),
        st.integers(0, 99) | st.none(),
        st.integers(0, 3),
        st.builds(Shuffle, st.integers(2, 30), st.integers(1, 12) | st.just(2**60), st.booleans()),
    ),
    st.integers(1, 7),
)


@given(drawn)
def test_each_record_of_a_round_is_read_once_by_its_holder(rounds: Rounds) -> None:
    count = rounds.epoch.count
    servers = rounds.owner(np.arange(count))
    places = rounds.of(np.arange(count))
    for number in range(len(rounds)):
        begin, end = rounds.begin(number), rounds.begin(number + 1)
        assert np.all(places[begin:end] == number)
        used = np.sort(rounds.epoch.samples(np.arange(begin, end)))
        slices = [rounds.slice(number, root) for root in range(rounds.roots)]
        assert np.array_equal(np.sort(np.concatenate(slices)), used)
        assert max(map(len, slices)) - min(map(len, slices)) <= 1
        for root, own in enumerate(slices):
            assert np.all(servers[own] == root) and np.all(np.diff(own) > 0)
    assert rounds.begin(len(rounds)) == count


@given(drawn)
def test_a_slice_is_few_runs_of_the_file(rounds: Rounds) -> None:
    """Chunks stay whole but where a slice begins or ends."""
    shuffle = rounds.epoch.shuffle
    for number in range(len(rounds)):
        for root in range(rounds.roots):
            own = rounds.slice(number, root)
            runs = np.count_nonzero(np.diff(own) > 1) + (len(own) > 0)
            assert runs <= len(own) // shuffle.chunk + 3


def test_orders_without_windows_and_no_roots_are_refused() -> None:
    for shuffle in (GLOBAL, Shuffle.given(np.arange(9)), Shuffle.mixed(3, 2, 2)):
        with pytest.raises(ValueError, match="window"):
            Rounds(Epoch(9, 1, 0, shuffle), 2)
    with pytest.raises(ValueError, match="at least 1 root"):
        Rounds(Epoch(9, 1, 0, Shuffle.groups(3)), 0)


@given(
    st.integers(1, 200), st.integers(2, 20), st.integers(1, 8), st.integers(0, 900),
    st.integers(1, 3),
)  # fmt: skip
def test_rounds_follow_one_another_from_any_place_on(
    count: int, chunk: int, window: int, place: int, roots: int
) -> None:
    epochs = Epochs(count, 4, Shuffle(chunk, window))
    sequence = RoundSequence(epochs, roots)
    found = list(islice(sequence.from_place(place), 12))
    assert found[0].begin <= place < found[0].end
    for one, following in pairwise(found):
        assert one.end == following.begin and one.begin < one.end
    for one in found:
        rounds = sequence.rounds(one.epoch)
        read = [rounds.slice(one.number, root) for root in range(roots)]
        used = epochs.samples(np.arange(one.begin, one.end))
        assert sorted(np.concatenate(read).tolist()) == sorted(used.tolist())
