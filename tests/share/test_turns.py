"""Goal: turns go round fairly and end, whoever wants, does not want, or leaves.

Method: chains of roots played in one process; letters take a random time; roots have something to
read or not, and leave, at random. Seeds are in the tests' names.
"""

from __future__ import annotations

import itertools
import random

import pytest

from lmdbio.share import Pass, Turns, chain_of
from lmdbio.share.turns import BEHIND_BLOCKS, MISSED_ROUNDS


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
    """One chain, its letters, and the times of its reads."""

    def __init__(self, roots: int, seed: int) -> None:
        self.draw, self.time_s = random.Random(seed), 0.0
        self.chain = tuple(range(0, 10 * roots, 10))
        self.turns = {root: Turns(self.chain, root) for root in self.chain}
        self.wants = {root: self.draw.randrange(12) for root in self.chain}
        self.read: list[int] = []
        self.tokens: list[Pass] = []
        self.wishes: list[tuple[int, Pass]] = []

    def now_s(self) -> float:
        self.time_s += self.draw.random()
        return self.time_s

    def step(self) -> None:
        """A letter comes, any that is under way; or somebody does something."""
        letter = self.draw.random()
        if self.tokens and letter < 0.3:
            to, body = self.tokens.pop()
            self.turns[to].come(body)
        elif self.wishes and letter < 0.6:
            sender, request = self.wishes.pop(self.draw.randrange(len(self.wishes)))
            self.turns[request.to].hear(sender, request.body, self.now_s())
        else:
            self.act(self.draw.choice(self.chain))

    def act(self, root: int) -> None:
        turns, has_memory = self.turns[root], self.draw.random() < 0.7
        left, block = self.wants[root], self.read.count(root)
        if left and self.draw.random() < 0.02:  # it has waited in vain
            self.take(root)
        elif has_memory or not left:
            wishes = turns.request(block if left else None, self.now_s(), self.draw.random() * 20)
            self.wishes += [(root, request) for request in wishes]
        if not turns.holds:
            return
        if left and has_memory and turns.is_next(self.now_s()):
            self.take(root)
        passed = turns.pass_on(self.now_s(), leaves=not left)
        if passed is not None:
            self.tokens.append(passed)

    def take(self, root: int) -> None:
        self.turns[root].read(self.read.count(root))
        self.wants[root] -= 1
        self.read.append(root)


@pytest.mark.parametrize("seed", range(60))
def test_everybody_reads_all_it_wants_one_at_a_time_and_the_chain_ends(seed: int) -> None:
    play = Play(roots=1 + seed % 7, seed=seed)
    wanted = dict(play.wants)
    for _ in range(100_000):
        assert sum(t.holds for t in play.turns.values()) + len(play.tokens) <= 1
        if all(t.is_out for t in play.turns.values()):
            break
        play.step()
    assert all(turns.is_out for turns in play.turns.values())
    assert not play.tokens, "nobody gets the token who has left"
    assert {root: play.read.count(root) for root in play.chain} == wanted


#: All who ask have reads under way until then.
DRY_S = 10.0


class Ring:
    """Three roots whose letters come at once. A root that ``waits`` asks before these have
    nothing under way, else after that."""

    def __init__(self) -> None:
        self.turns = {root: Turns((1, 2, 3), root) for root in (1, 2, 3)}
        self.blocks = dict.fromkeys(self.turns, 0)

    def request(self, *roots: int) -> None:
        for root in roots:
            for to, body in self.turns[root].request(self.blocks[root], 0.0, DRY_S):
                self.turns[to].hear(root, body, 0.0)

    def holder(self) -> int:
        (holder,) = [root for root, one in self.turns.items() if one.holds]
        return holder

    def read(self, root: int) -> None:
        self.turns[root].read(self.blocks[root])
        self.blocks[root] += 1

    def pass_on(self, *, waits: bool = False, leaves: bool = False) -> bool:
        now_s = 0.0 if waits else DRY_S
        passed = self.turns[self.holder()].pass_on(now_s, leaves=leaves)
        if passed is not None:
            self.turns[passed.to].come(passed.body)
        return passed is not None

    def turn(self, *, waits: bool = False) -> int | None:
        """Return the root that reads next, and has read."""
        self.pass_on(waits=waits)
        root = self.holder()
        if not self.turns[root].is_next(0.0 if waits else DRY_S):
            return None
        self.read(root)
        return root


@pytest.mark.parametrize("waits", [False, True])
def test_while_all_want_to_read_they_read_in_the_order_of_the_file(waits: bool) -> None:
    ring, seen = Ring(), []
    for _ in range(9):
        ring.request(3, 2, 1)
        seen.append(ring.turn(waits=waits))
    assert seen == [1, 2, 3] * 3


def test_the_token_goes_past_those_that_do_not_want_it() -> None:
    ring = Ring()
    ring.request(3)
    assert ring.turn() == 3


def test_whose_block_comes_first_is_waited_for_while_nobody_runs_dry() -> None:
    ring = Ring()
    ring.request(1)
    assert ring.turn(waits=True) == 1
    ring.request(3, 1)
    assert ring.turn(waits=True) is None, "2 comes first"
    ring.request(2)
    assert [ring.turn(waits=True) for _ in range(3)] == [2, 3, 1]
    ring.request(3)
    assert ring.turn(waits=True) is None, "2 comes first again"
    for to, body in ring.turns[1].request(2, 0.0):  # and has nothing under way
        ring.turns[to].hear(1, body, 0.0)
    assert [ring.turn(waits=True), ring.turn(waits=True)] == [3, 1]


def test_who_is_far_behind_is_not_waited_for() -> None:
    ring = Ring()
    for behind in range(2 * BEHIND_BLOCKS):
        ring.request(1, 3)
        seen = [ring.turn(waits=True), ring.turn(waits=True)]
        if behind == 0:  # 1 comes before 2
            assert seen == [1, None]
            assert ring.turn() == 3
        elif behind < BEHIND_BLOCKS:
            assert seen == [None, None]
            assert [ring.turn(), ring.turn()] == [1, 3]
        else:
            assert seen == [1, 3]


@pytest.mark.parametrize("waits", [False, True])
def test_who_is_far_ahead_is_not_starved(waits: bool) -> None:
    """All others always want a turn, and come before it in the file."""
    ring = Ring()
    ring.blocks[2] = 1000
    ring.turns[2].read(999)
    readers = []
    for _ in range(100):
        ring.request(1, 2, 3)
        readers.append(ring.turn(waits=waits))
    ahead = [i for i, root in enumerate(readers) if root == 2]
    assert len(ahead) > 100 / (3 * MISSED_ROUNDS + 3)
    assert all(later - i > 2 * MISSED_ROUNDS for i, later in itertools.pairwise(ahead))
    assert readers.count(1) > 40 and readers.count(3) > 40, "and the others go on as before"


def test_a_turn_that_was_granted_is_not_taken_back() -> None:
    ring = Ring()
    ring.request(2)
    assert ring.pass_on()
    assert ring.turns[2].is_next(0.0), "1, which comes first, was waited for already"
    ring.request(1)
    assert ring.turns[2].is_next(DRY_S)
    ring.read(2)
    assert not ring.turns[2].is_next(DRY_S), "for one block"


def test_nobody_waits_for_itself() -> None:
    ring = Ring()
    ring.request(2)
    assert ring.holder() == 1
    assert ring.turn(waits=True) == 2, "1 holds the token, and has no memory"


def test_who_was_late_catches_up_before_others_go_on() -> None:
    ring = Ring()
    for _ in range(3):
        ring.request(1, 3)
        assert [ring.turn(), ring.turn()] == [1, 3]
    seen = []
    for _ in range(5):
        ring.request(1, 2, 3)
        seen.append(ring.turn())
    assert seen == [2, 2, 2, 1, 2]


def test_a_wish_of_who_passes_the_token_on_is_not_forgotten() -> None:
    ring = Ring()
    ring.request(1)
    assert ring.turn() == 1
    ring.request(2, 1)  # 1, which holds the token, tells nobody
    assert [ring.turn(), ring.turn()] == [2, 1]


def test_what_was_read_out_of_turn_is_not_waited_for() -> None:
    ring = Ring()
    ring.request(2)
    ring.read(2)  # it waited in vain
    ring.request(1)
    assert ring.turn() == 1
    assert ring.turn() is None, "its wish was for the block that it has"
    ring.request(3, 2)
    assert [ring.turn(), ring.turn()] == [3, 2], "2 has read a block more"


def test_a_token_that_nobody_wants_lies_still() -> None:
    ring = Ring()
    assert not ring.pass_on()
    assert ring.holder() == 1
    ring.request(2)
    assert ring.turn() == 2
    assert not ring.pass_on(), "a wish is for one turn"
    assert ring.holder() == 2


def test_a_wish_that_comes_after_its_turn_is_none() -> None:
    ring = Ring()
    late = ring.turns[2].request(0, 0.0)
    for to, body in late[:1]:
        ring.turns[to].hear(2, body, 0.0)
    assert ring.turn() == 2
    ring.request(3)
    assert ring.turn() == 3
    ring.turns[late[1].to].hear(2, late[1].body, 0.0)
    assert ring.holder() == late[1].to == 3
    assert not ring.pass_on()


def test_nobody_asks_twice_for_one_turn() -> None:
    turns = Turns((1, 2, 3), 2)
    assert [letter.to for letter in turns.request(0, 0.0)] == [1, 3]
    assert turns.is_wished
    assert turns.request(0, 0.0) == []


def test_who_leaves_gives_the_token_to_somebody_who_has_not_left() -> None:
    ring = Ring()
    assert ring.pass_on(leaves=True)
    assert ring.holder() == 2
    ring.request(3, 1)
    assert ring.turns[1].is_out
    assert ring.pass_on(waits=True, leaves=True)
    assert ring.holder() == 3
    assert ring.turns[3].others == 0
    assert ring.turns[3].request(0, 0.0) == []


def test_who_leaves_is_served_first_however_far_it_has_read() -> None:
    ring = Ring()
    for _ in range(7):
        ring.read(3)
    for to, body in ring.turns[3].request(None, 0.0, DRY_S):
        ring.turns[to].hear(3, body, 0.0)
    ring.request(1, 2)
    assert ring.turns[1].is_wanted
    assert ring.pass_on(waits=True)
    assert ring.holder() == 3
    assert ring.pass_on(leaves=True)
    assert [ring.turn(waits=True), ring.turn(waits=True)] == [1, 2], "nobody is behind 3"


def test_who_leaves_after_all_asks_anew() -> None:
    turns = Turns((1, 2, 3), 2)
    assert turns.request(5, 0.0)
    assert [letter.to for letter in turns.request(None, 0.0)] == [1, 3]
    assert turns.request(None, 0.0) == []
    assert turns.request(5, 0.0) == []


def test_who_is_alone_keeps_its_turn() -> None:
    turns = Turns((5,), 5)
    assert turns.holds
    assert turns.others == 0
    assert turns.pass_on(0.0) is None
    assert turns.holds
    assert turns.pass_on(0.0, leaves=True) is None
    assert turns.is_out
    assert not turns.holds


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0" * 49])
def test_a_token_of_another_chain_is_refused(body: bytes) -> None:
    with pytest.raises(RuntimeError, match="token"):
        Turns((1, 2, 3), 2).come(body)


@pytest.mark.parametrize(("root", "body"), [(3, b""), (3, b"\0" * 5), (4, b"\0" * 12)])
def test_a_wish_of_another_chain_is_refused(root: int, body: bytes) -> None:
    with pytest.raises(RuntimeError, match="wish"):
        Turns((1, 2, 3), 2).hear(root, body, 0.0)


def test_nobody_holds_two_tokens() -> None:
    ring = Ring()
    ring.request(2)
    passed = ring.turns[1].pass_on(0.0)
    assert passed is not None
    ring.turns[2].come(passed.body)
    with pytest.raises(RuntimeError, match="token"):
        ring.turns[2].come(passed.body)
    with pytest.raises(RuntimeError, match="no token"):
        Turns((1, 2), 2).pass_on(0.0)
