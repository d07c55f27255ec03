"""Goal: turns go round fairly and end, whoever wants, does not want, or leaves.

Method: chains of roots played in one process; letters take a random time; roots have something to
read or not, and leave, at random. Seeds are in the tests' names.
"""

from __future__ import annotations

import itertools
import random

import pytest

from lmdbio.share import Turns, chain_of


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 8])
def test_chains_hold_every_root_once_and_begin_with_neighbours(tokens: int) -> None:
    roots = (0, 4, 8, 12, 16, 20, 24, 28)
    chains = {chain_of(roots, root, tokens) for root in roots}
    assert len(chains) == tokens
    assert sorted(root for chain in chains for root in chain) == list(roots)
    assert sorted(chain[0] for chain in chains) == list(roots[:tokens])
    for chain in chains:
        places = [roots.index(root) for root in chain]
        assert all(b - a == tokens for a, b in itertools.pairwise(places))


def test_more_tokens_than_roots_give_everybody_one() -> None:
    assert [chain_of((3, 7), root, 5) for root in (3, 7)] == [(3,), (7,)]


class Play:
    """One chain, its letters, and who reads when."""

    def __init__(self, roots: int, seed: int) -> None:
        self.draw = random.Random(seed)
        self.chain = tuple(range(0, 10 * roots, 10))
        self.turns = {root: Turns(self.chain, root) for root in self.chain}
        self.wants = {root: self.draw.randrange(12) for root in self.chain}
        self.read: list[int] = []
        self.letters: list[tuple[int, bytes]] = []

    def step(self) -> None:
        if self.letters and self.draw.random() < 0.5:
            to, body = self.letters.pop()
            self.turns[to].come(body)
            return
        root = self.draw.choice(self.chain)
        turns = self.turns[root]
        if not turns.holds:
            return
        leaves = self.wants[root] == 0
        if not leaves and self.draw.random() < 0.7:  # it has memory to read into
            self.wants[root] -= 1
            self.read.append(root)
        passed = turns.pass_on(leaves=leaves)
        if passed is not None:
            self.letters.append(passed)


@pytest.mark.parametrize("seed", range(30))
def test_everybody_reads_all_it_wants_one_at_a_time_and_the_chain_ends(seed: int) -> None:
    play = Play(roots=1 + seed % 7, seed=seed)
    wanted = dict(play.wants)
    for _ in range(100_000):
        assert sum(t.holds for t in play.turns.values()) + len(play.letters) <= 1
        if all(t.is_out for t in play.turns.values()):
            break
        play.step()
    assert all(turns.is_out for turns in play.turns.values())
    assert not play.letters, "nobody is written to who has left"
    assert {root: play.read.count(root) for root in play.chain} == wanted


def test_while_all_want_to_read_they_read_in_order() -> None:
    turns = {root: Turns((1, 2, 3), root) for root in (1, 2, 3)}
    seen = []
    for _ in range(9):
        (holder,) = [root for root, one in turns.items() if one.holds]
        seen.append(holder)
        passed = turns[holder].pass_on()
        assert passed is not None
        turns[passed.to].come(passed.body)
    assert seen == [1, 2, 3] * 3


def test_who_is_alone_keeps_its_turn() -> None:
    turns = Turns((5,), 5)
    assert turns.holds
    assert turns.pass_on() is None
    assert turns.holds
    assert turns.pass_on(leaves=True) is None
    assert turns.is_out
    assert not turns.holds


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0" * 9])
def test_a_token_of_another_chain_is_refused(body: bytes) -> None:
    with pytest.raises(RuntimeError, match="token"):
        Turns((1, 2, 3), 2).come(body)


def test_nobody_holds_two_tokens() -> None:
    with pytest.raises(RuntimeError, match="token"):
        Turns((1, 2), 1).come(b"\0")
    with pytest.raises(RuntimeError, match="no token"):
        Turns((1, 2), 2).pass_on()
