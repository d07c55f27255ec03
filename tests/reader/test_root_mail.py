"""Goal: roots that take turns read in the file's order, hold nobody up, starve nobody and end.

Method: the real ``RootMail`` of several roots on a clock of the test's own. Letters take half a
millisecond; a storage shares its rate among whoever has requests there, each behind a link; a root
goes round as ``RootThread`` does. Fuzzed plays have their seed in the test's name.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmdbio.reader import flow, root_mail
from lmdbio.reader.flow import Flight
from lmdbio.reader.root_mail import RootMail
from lmdbio.share import Kind, Turns, chain_of
from lmdbio.share.mail import Letter

TICK_S, LETTER_S, LATENCY_S = 0.001, 0.0005, 0.004
DEPTH, GOODBYE_S = 16, 10.0

now_s = 0.0


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr(root_mail, "time", clock)
    monkeypatch.setattr(flow, "time", clock)
    yield


class Post:
    """All letters, with their senders and receivers."""

    def __init__(self, roots: int) -> None:
        self.boxes: list[deque[tuple[float, Letter]]] = [deque() for _ in range(roots)]
        self.tokens: list[tuple[float, int]] = []  # when, to whom


@dataclass
class Mail:
    post: Post
    root: int
    is_open: bool = True

    def send(self, to: int, kind: Kind, body: bytes) -> None:
        self.post.boxes[to].append((now_s + LETTER_S, Letter(kind, self.root, body)))
        if kind == Kind.TOKEN:
            self.post.tokens.append((now_s, to))

    def receive(self, apart_s: float = 0.0) -> Letter | None:
        box = self.post.boxes[self.root]
        return box.popleft()[1] if box and box[0][0] <= now_s else None

    def close(self) -> None:
        self.is_open = False


class Ticket:
    """A block's requests."""

    def __init__(self, requests: int, size: float) -> None:
        self.waiting, self.count = requests, requests
        self.size = size / requests
        self.under_way: list[list[float]] = []  # bytes left, when begun
        self.begun_s, self.ended_s = now_s, 0.0

    def left(self) -> float:
        return (self.waiting + len(self.under_way)) / self.count

    def poll_begun(self, _timeout_ms: int = 0, _older: object = None) -> bool:
        return not self.waiting


@dataclass
class Storage:
    """Bytes a second in all, and of each root's link."""

    rate: float
    link: float
    blocks: dict[int, list[Ticket]] = field(default_factory=dict)

    def tick(self) -> None:
        served = {root: self._under_way(tickets) for root, tickets in self.blocks.items()}
        served = {root: requests for root, requests in served.items() if requests}
        count = sum(len(requests) for requests in served.values())
        for requests in served.values():
            rate = min(self.rate * len(requests) / count, self.link)
            for request in requests:
                request[0] -= rate * TICK_S / len(requests)
        for tickets in self.blocks.values():
            for ticket in list(tickets):
                ticket.under_way = [one for one in ticket.under_way if one[0] > 0]
                if not ticket.waiting and not ticket.under_way:
                    ticket.ended_s = now_s
                    tickets.remove(ticket)

    @staticmethod
    def _under_way(tickets: list[Ticket]) -> list[list[float]]:
        room = DEPTH - sum(len(ticket.under_way) for ticket in tickets)
        for ticket in tickets:
            begins = min(room, ticket.waiting)
            ticket.under_way += [[ticket.size, now_s] for _ in range(begins)]
            ticket.waiting -= begins
            room -= begins
        every = [one for ticket in tickets for one in ticket.under_way]
        return [one for one in every if now_s - one[1] >= LATENCY_S]


class Root:
    """Reads all of its blocks; its ranks use them up in their own time."""

    def __init__(
        self,
        play: Play,
        chain: tuple[int, ...],
        number: int,
        blocks: int,
        use_s: Callable[[], float],
    ) -> None:
        self.play, self.number, self.blocks, self.use_s = play, number, blocks, use_s
        mail: Any = Mail(play.post, number)
        self.mail = RootMail(mail, turns=Turns(chain, number))
        self.pending: int | None = 0
        self.flying: deque[Ticket] = deque()
        self.landed = self.used = 0
        self.used_s = self.wakes_s = 0.0
        self.wakes: Callable[[], bool] = lambda: False
        self.read: list[tuple[float, int, bool]] = []  # when, block, in turn
        self.goodbye_s = self.gone_s = 0.0

    def step(self) -> None:
        if self.used < self.landed and now_s >= self.used_s:
            self.used, self.used_s = self.used + 1, now_s + self.use_s()
        if self.gone_s or (now_s < self.wakes_s and not self.wakes()):
            return
        for _ in range(100):
            self.mail.read()
            if not (self._fill() if not self.goodbye_s else self._say_goodbye()):
                return
        pytest.fail(f"root {self.number} goes round without a rest")

    def _fill(self) -> bool:
        mail = self.mail
        mail.end_turn()
        if self.flying and self.flying[0].ended_s:
            ticket = self.flying.popleft()
            mail.end_turn()
            mail.landed(ticket.ended_s - ticket.begun_s)
            self.landed += 1
            return True
        if self.pending is None:
            if not self.flying:
                self.goodbye_s = now_s
                return True
            mail.give_turn()
        elif self._is_free() and mail.may_read(self.pending):
            self._submit(self.pending)
            return True
        else:
            mail.give_turn()
        self._rest()
        return False

    def _is_free(self) -> bool:
        return self.pending is not None and self.pending - self.used < self.play.slots

    def _submit(self, block: int) -> None:
        ticket: Any = Ticket(self.play.requests, self.play.size)
        self.play.storage.blocks.setdefault(self.number, []).append(ticket)
        self.flying.append(ticket)
        assert self.mail.turns is not None
        self.read.append((now_s, block, self.mail.turns.holds))
        none = np.empty(0, np.uint64)
        requests = self.play.requests
        self.mail.read_by(Flight(block, ticket, 0, none, none, 0, False, requests, DEPTH))
        self.pending = block + 1 if block + 1 < self.blocks else None
        if self.pending is None:
            self.mail.leave_turns()

    def _rest(self) -> None:
        first, last = (self.flying[0], self.flying[-1]) if self.flying else (None, None)
        self.wakes_s = now_s + self.mail.slice_ms() / 1000
        if self.mail.in_turn and last is not None:
            self.wakes = lambda: not last.waiting or (first is not last and bool(first.ended_s))
        elif first is not None:
            self.wakes = lambda: bool(first.ended_s)
        else:
            self.wakes = lambda: not self._is_free() and self.pending is None
            if not self._is_free():
                self.wakes = self._is_free

    def _say_goodbye(self) -> bool:
        if self.mail.leave(lambda: None):
            self.gone_s = now_s
        elif now_s > self.goodbye_s + GOODBYE_S:
            pytest.fail(f"nobody gives root {self.number} a last turn")
        self.wakes_s = now_s + self.mail.slice_ms() / 1000
        self.wakes = lambda: False
        return False


class Play:
    """Some roots, until all have left."""

    def __init__(
        self,
        uses_s: list[Callable[[], float]],
        blocks: list[int],
        *,
        tokens: int = 1,
        rate: float = 400e6,
        link: float = 150e6,
        size: float = 8e6,
        requests: int = 4,
        slots: int = 4,
    ) -> None:
        global now_s
        now_s = 0.0
        self.size, self.requests, self.slots = size, requests, slots
        self.post, self.storage = Post(len(uses_s)), Storage(rate, link)
        numbers = range(len(uses_s))
        self.roots = [
            Root(self, chain_of(numbers, i, tokens), i, blocks[i], uses_s[i]) for i in numbers
        ]

    def run(self, until_s: float = 120.0) -> Play:
        global now_s
        while not all(root.gone_s for root in self.roots):
            now_s += TICK_S
            assert now_s < until_s, "somebody hangs"
            self.storage.tick()
            for root in self.roots:
                root.step()
        for sent_s, to in self.post.tokens:
            assert sent_s <= self.roots[to].gone_s, f"a token was sent to {to}, who had left"
        for root in self.roots:
            assert [block for _, block, _ in root.read] == list(range(root.blocks))
        return self

    @property
    def jumps(self) -> int:
        """Reads that did not go on in the file's order."""
        whole = sorted((at, block, root.number) for root in self.roots
                       for at, block, _ in root.read)  # fmt: skip
        places = [block * len(self.roots) + number for _, block, number in whole]
        return sum(after < before for before, after in itertools.pairwise(places))

    @property
    def out_of_turn(self) -> int:
        return sum(not in_turn for root in self.roots for *_, in_turn in root.read)

    def ends_s(self) -> list[float]:
        return [root.read[-1][0] for root in self.roots]


def each(seconds: float) -> Callable[[], float]:
    return lambda: seconds


@pytest.mark.parametrize("requests", [1, 4, 16])
@pytest.mark.parametrize("size", [1.5e6, 16e6])
def test_roots_that_keep_up_read_in_the_order_of_the_file(requests: int, size: float) -> None:
    play = Play([each(0)] * 4, [30] * 4, size=size, requests=requests).run()
    assert play.jumps <= 4, "but for the first blocks"
    assert play.out_of_turn == 0
    assert max(play.ends_s()) < 1.3 * 120 * size / 400e6 + 0.2, "and the storage is not idle"


def fast_storage(uses: list[Callable[[], float]]) -> Play:
    """Play roots of which one alone cannot use the storage."""
    return Play(uses, [50] * 8, rate=1600e6, link=200e6).run()


@pytest.fixture(scope="module")
def undisturbed_s() -> float:
    """When the last of them ends where none is slow."""
    return max(fast_storage([each(0)] * 8).ends_s())


@pytest.mark.parametrize("slow", [0, 2, 7])
@pytest.mark.parametrize("use_s", [0.05, 0.1, 0.2, 0.4])
def test_who_is_slow_holds_nobody_up(undisturbed_s: float, slow: int, use_s: float) -> None:
    """To wait for each other would cost much."""
    play = fast_storage([each(use_s if number == slow else 0) for number in range(8)])
    others = [end for number, end in enumerate(play.ends_s()) if number != slow]
    assert max(others) < 1.25 * undisturbed_s


@pytest.mark.parametrize("requests", [4, 16, 64])
def test_who_is_far_ahead_leaves_all_the_same(requests: int) -> None:
    """Others begin to read fast only when one has read all; more requests than the engine has
    under way make turns scarce."""
    late = [lambda: 0.25 if now_s < 6 else 0.0] * 3
    play = Play([each(0), *late], [60] * 4, requests=requests).run()
    first = play.roots[0]
    assert first.gone_s < first.read[-1][0] + 2.5


def test_a_root_without_memory_does_not_keep_the_token() -> None:
    play = Play([each(1.0), each(0), each(0)], [6, 60, 60]).run()
    assert max(play.ends_s()[1:]) < 4
    assert play.out_of_turn == 0


@pytest.mark.parametrize("seed", range(40))
def test_everybody_reads_all_of_it_and_leaves(seed: int) -> None:
    draw = random.Random(seed)
    roots = draw.randint(2, 6)

    def stalls() -> float:
        return draw.choice([0.0, 0.0, 0.0, 0.01, 0.05, 0.3])

    uses = [draw.choice([each(0), each(0.02), stalls]) for _ in range(roots)]
    blocks = [draw.choice([1, 7, 25]) for _ in range(roots)]
    play = Play(
        uses,
        blocks,
        tokens=draw.randint(1, max(1, roots - 1)),
        size=draw.choice([0.5e6, 4e6, 16e6]),
        requests=draw.choice([1, 3, 8, 40]),
        slots=draw.randint(2, 8),
    ).run()
    for root in play.roots:
        waits = [after[0] - before[0] for before, after in itertools.pairwise(root.read)]
        assert max(waits, default=0.0) < 4.0
