"""Turns: which root reads next. Pure: no MPI, no clock.

The roots, in the order of their first records, form as many chains as there are tokens: chain i
has roots i, i + n, i + 2n and so on, so that roots which read at the same time are neighbours in
the file. Each chain has one token, and the root that has it may read one block:

    wish      a root with memory to read a block into tells all of its chain, and which block
    token     goes to the root whose block is next in the file, once that root wishes for it

So the roots read the file in its order, whatever size a block has; a root that was late catches
up; the token never stops at a root that cannot use it; and where no root wants it, it lies still,
and only its holder needs to listen. Where a root has no memory yet, though its block comes first,
the token waits for it while all roots that have asked still have reads under way: a wish says for
how long that will be. So a root whose own ranks are slow holds no other up, and no root waits for
one that is far behind.

A root that will never read again leaves with its last turn, or asks for another one, which it gets
before all others; the token passes it over from then on. The last root keeps the token.

Source: LMDBIO (ACM TOPC 2019), I/O staggering. How roots ask for the token: as in Suzuki and
Kasami's mutual exclusion (ACM TOCS 1985), served in the file's order instead of first come, first
served.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Pass", "Turns", "chain_of"]

#: The next block of a root that has left.
_GONE = 2**64 - 1
_REQUEST = struct.Struct("<QI")  # one after the block; milliseconds that the sender is busy
_REQUEST_MS_MAX = 2**32 - 1
#: No root waits for one that is so many blocks behind the first.
BEHIND_BLOCKS = 4
#: A root that waited while others had so many turns for each root of the chain is next.
MISSED_ROUNDS = 2


class Pass(NamedTuple):
    """A letter to send: the rank that it goes to, and a token or a wish."""

    to: int
    body: bytes


def chain_of(roots: Sequence[int], root: int, tokens: int) -> tuple[int, ...]:
    """Return the chain of one root.

    Args:
        roots: all roots (ranks of the job), as their chunks follow one another in the file.
        root: root whose chain is sought.
        tokens: number of tokens, at least 1; more than roots count as one for each root.
    """
    return tuple(roots[roots.index(root) % tokens :: tokens])


class Turns:
    """One root's part in its chain.

    Args:
        chain: the roots (ranks of the job), in order.
        root: this root, one of the chain.

    Attributes:
        holds: whether this root has the token.
        is_out: whether this root has left the chain.
    """

    __slots__ = (
        "_chain", "_dry_s", "_form", "_is_granted", "_missed", "_next", "_place", "_wished",
        "holds", "is_out",
    )  # fmt: skip

    def __init__(self, chain: Sequence[int], root: int) -> None:
        self._chain = tuple(chain)
        self._place = self._chain.index(root)
        # Of each root, by its index in the chain:
        self._next = [0] * len(self._chain)  # the block it reads next, as the token last said
        self._wished = [0] * len(self._chain)  # one after the latest block that it asked for
        self._dry_s = [0.0] * len(self._chain)  # when it has no reads under way, by its wish
        self._missed = [0] * len(self._chain)  # turns that others had while it wanted one
        self._form = struct.Struct(f"<{3 * len(self._chain)}Q")
        self.holds = self._place == 0
        self._is_granted = False  # it is this root's turn to read
        self.is_out = False

    @property
    def is_wished(self) -> bool:
        """Whether this root has asked for the token and does not have it yet."""
        return not self.holds and self._wants(self._place)

    @property
    def is_wanted(self) -> bool:
        """Whether another root has asked for the token."""
        return any(self._wants(place) for place in self._present() if place != self._place)

    @property
    def others(self) -> int:
        """How many other roots of the chain have not left, as the token last said."""
        return sum(place != self._place for place in self._present())

    def _present(self) -> list[int]:
        return [place for place, block in enumerate(self._next) if block != _GONE]

    def _wants(self, place: int) -> bool:
        return self._wished[place] > self._next[place]

    def request(self, block: int | None, now_s: float, busy_s: float = 0.0) -> list[Pass]:
        """Ask for the token.

        Args:
            block: block that this root wants to read; None: it wants to leave.
            now_s: the time.
            busy_s: time for which this root will have reads in flight, seconds.

        Returns:
            The letters to send; none where the token is here, or this root has asked for it.
        """
        wished, before = _GONE if block is None else block + 1, self._wished[self._place]
        if self.is_out or before == wished or (block is not None and self._wants(self._place)):
            return []
        self._wished[self._place], self._dry_s[self._place] = wished, now_s + busy_s
        if self.holds:
            return []
        others = [self._chain[place] for place in self._present() if place != self._place]
        body = _REQUEST.pack(wished, min(int(busy_s * 1000), _REQUEST_MS_MAX))
        return [Pass(root, body) for root in others]

    def hear(self, root: int, body: bytes, now_s: float) -> None:
        """Take in another root's wish for the token.

        Args:
            root: root that sent the wish.
            body: body of its letter.
            now_s: the time.

        Raises:
            RuntimeError: it is no wish of this chain.
        """
        if root not in self._chain or len(body) != _REQUEST.size:
            raise RuntimeError(f"a wish of {len(body)} bytes, from rank {root}, that cannot be")
        place = self._chain.index(root)
        wished, busy_ms = _REQUEST.unpack(body)
        if wished >= self._wished[place]:
            self._wished[place], self._dry_s[place] = wished, now_s + busy_ms / 1000

    def come(self, body: bytes) -> None:
        """Take in the token.

        Args:
            body: body of the letter that brought it.

        Raises:
            RuntimeError: it is here already, or is no token of this chain.
        """
        if self.holds or self.is_out or len(body) != self._form.size:
            raise RuntimeError(f"a token of {len(body)} bytes that cannot be")
        fields, count = self._form.unpack(body), len(self._chain)
        own = self._next[self._place]
        self._next = list(fields[:count])
        self._next[self._place] = max(own, self._next[self._place])
        wished = fields[count : 2 * count]
        self._wished = [max(pair) for pair in zip(self._wished, wished, strict=True)]
        self._missed = list(fields[2 * count :])
        self.holds = True
        self._is_granted = self._wants(self._place)

    def read(self, block: int) -> None:
        """Note that this root reads a block, be it in its turn or not."""
        self._next[self._place] = block + 1
        self._is_granted = False

    def is_next(self, now_s: float) -> bool:
        """Return whether it is this root's turn; if so, it stays its turn until it reads.

        It is where this root has asked, has the token, and its block comes next in the file.
        """
        if self.holds and self._wants(self._place) and not self._is_granted:
            self._is_granted = self._next_place(now_s) == self._place
            if self._is_granted:
                self._count_turn(self._place)
        return self._is_granted and self._wants(self._place)

    def _next_place(self, now_s: float) -> int | None:
        """Return the root that gets the token now, by its index in the chain.

        None: no root has asked for it, or it waits for one that has not.
        """
        present = self._present()
        wanting = [place for place in present if self._wants(place)]
        waits = all(now_s < self._dry_s[place] for place in wanting)
        reading = [self._next[place] for place in present if self._wished[place] != _GONE]
        first = max(reading, default=0)
        for place in self._in_order():
            if place in wanting:
                return place
            is_late = first - self._next[place] >= BEHIND_BLOCKS
            if waits and not is_late and place != self._place:
                return None
        return None

    def _in_order(self) -> list[int]:
        """Return the roots that have not left, in the order in which they get the token.

        First roots that want to leave, then those that have waited for long, then as in the file.
        """
        present = self._present()

        def order(place: int) -> tuple[int, int]:
            wished = self._wished[place]
            if wished == _GONE:
                return -1, place
            if self._missed[place] >= MISSED_ROUNDS * len(present):
                return 0, place
            return max(self._next[place] + 1, wished), place

        return sorted(present, key=order)

    def _count_turn(self, place: int) -> None:
        """Count the turn that a root begins, against all others that wait for one."""
        for other in self._present():
            self._missed[other] += other != place and self._wants(other)
        self._missed[place] = 0

    def pass_on(self, now_s: float, *, leaves: bool = False) -> Pass | None:
        """Give the token to the root whose turn is next.

        Args:
            now_s: the time.
            leaves: whether this root reads no more; then a root that has not left gets the token.

        Returns:
            The letter to send; None: the token stays here, or all roots have left.
        """
        if not self.holds:
            raise RuntimeError("there is no token to pass on")
        if leaves:
            self._next[self._place] = _GONE
            self.holds, self._is_granted, self.is_out = False, False, True
        place = self._next_place(now_s)
        if place is None and leaves:  # also where the token waits for a root that has not asked
            place = next(iter(self._in_order()), None)
        if place is None or place == self._place:
            return None
        self._count_turn(place)
        self.holds = self._is_granted = False
        body = self._form.pack(*self._next, *self._wished, *self._missed)
        return Pass(self._chain[place], body)
