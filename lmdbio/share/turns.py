"""Whose turn it is to read. Pure: no MPI, no clock.

The roots, in the order of their first records, form as many chains as there are tokens: chain i
has roots i, i + n, i + 2n and so on, so that those which read at the same time are neighbours in
the file. Each chain has one token, and who has it may read one block:

    wish      whoever has memory to read a block into says so, and which block, to all of its chain
    token     goes to whoever's block is next in the file, once that root wishes for it

So the file is read in its order, whatever size a block has; one that was late catches up; the
token never stops at a root that cannot use it; and where nobody wants it, it lies still, and only
its holder needs to listen. Who has no memory yet, though its block comes first, is waited for
while all who have asked still have reads under way: a wish says for how long that will be. So one
whose own ranks are slow holds nobody up, and nobody waits for who is far behind.

Who will never read again leaves with its last turn, or asks for another, which it gets before all
others; it is left out from then on. The last one keeps the token.

Source: LMDBIO (ACM TOPC 2019), I/O staggering. Who asks whom: as in Suzuki and Kasami's mutual
exclusion (ACM TOCS 1985), served in the file's order instead of first come, first served.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Pass", "Turns", "chain_of"]

#: The next block of a root that has left.
_GONE = 2**64 - 1
_WISH = struct.Struct("<QI")  # one after the block; milliseconds
_WISH_MS_MAX = 2**32 - 1
#: Nobody waits for who is so many blocks behind the first.
BEHIND_BLOCKS = 4
#: Who has seen so many turns of others for each root is next.
MISSED_ROUNDS = 2


class Pass(NamedTuple):
    """A letter to write: a token, or a wish."""

    to: int
    body: bytes


def chain_of(roots: Sequence[int], root: int, tokens: int) -> tuple[int, ...]:
    """The chain of one root.

    Args:
        roots: all of them, as their chunks follow one another in the file.
        root: one of these.
        tokens: how many there are, at least 1; more than roots are as many as these.
    """
    return tuple(roots[roots.index(root) % tokens :: tokens])


class Turns:
    """One root's part in its chain.

    Args:
        chain: the roots (ranks of the job), in order.
        root: the one whose part this is.

    Attributes:
        holds: it has the token.
        is_out: it left the chain.
    """

    __slots__ = (
        "_chain", "_dry_s", "_form", "_is_granted", "_missed", "_next", "_place", "_wished",
        "holds", "is_out",
    )  # fmt: skip

    def __init__(self, chain: Sequence[int], root: int) -> None:
        self._chain = tuple(chain)
        self._place = self._chain.index(root)
        self._next = [0] * len(self._chain)  # block of each, as the token last said
        self._wished = [0] * len(self._chain)  # one after the latest block that each asked for
        self._dry_s = [0.0] * len(self._chain)  # when each that asked has nothing under way
        self._missed = [0] * len(self._chain)  # turns that others had while each wanted one
        self._form = struct.Struct(f"<{3 * len(self._chain)}Q")
        self.holds = self._place == 0
        self._is_granted = False  # a turn to read
        self.is_out = False

    @property
    def is_wished(self) -> bool:
        """Whether this root asked for the token, and has not got it yet."""
        return not self.holds and self._wants(self._place)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody else asked for the token."""
        return any(self._wants(place) for place in self._present() if place != self._place)

    @property
    def others(self) -> int:
        """Roots of the chain that have not left, but for this one; as the token last said."""
        return sum(place != self._place for place in self._present())

    def _present(self) -> list[int]:
        return [place for place, block in enumerate(self._next) if block != _GONE]

    def _wants(self, place: int) -> bool:
        return self._wished[place] > self._next[place]

    def wish(self, block: int | None, now_s: float, busy_s: float = 0.0) -> list[Pass]:
        """Asks for the token.

        Args:
            block: to read; None: to leave.
            now_s: the time.
            busy_s: for how long this root has reads under way.

        Returns:
            What to send to whom; nothing where it is here, or was asked for.
        """
        wished, before = _GONE if block is None else block + 1, self._wished[self._place]
        if self.is_out or before == wished or (block is not None and self._wants(self._place)):
            return []
        self._wished[self._place], self._dry_s[self._place] = wished, now_s + busy_s
        if self.holds:
            return []
        others = [self._chain[place] for place in self._present() if place != self._place]
        body = _WISH.pack(wished, min(int(busy_s * 1000), _WISH_MS_MAX))
        return [Pass(root, body) for root in others]

    def hear(self, root: int, body: bytes, now_s: float) -> None:
        """Somebody else asks for the token, by a wish that comes now.

        Raises:
            RuntimeError: it is none of this chain.
        """
        if root not in self._chain or len(body) != _WISH.size:
            raise RuntimeError(f"a wish of {len(body)} bytes, from rank {root}, that cannot be")
        place = self._chain.index(root)
        wished, busy_ms = _WISH.unpack(body)
        if wished >= self._wished[place]:
            self._wished[place], self._dry_s[place] = wished, now_s + busy_ms / 1000

    def come(self, body: bytes) -> None:
        """The token has come.

        Raises:
            RuntimeError: it is here already, or is none of this chain.
        """
        if self.holds or self.is_out or len(body) != self._form.size:
            raise RuntimeError(f"a token of {len(body)} bytes that cannot be")
        told, count = self._form.unpack(body), len(self._chain)
        own = self._next[self._place]
        self._next = list(told[:count])
        self._next[self._place] = max(own, self._next[self._place])
        wished = told[count : 2 * count]
        self._wished = [max(pair) for pair in zip(self._wished, wished, strict=True)]
        self._missed = list(told[2 * count :])
        self.holds = True
        self._is_granted = self._wants(self._place)

    def read(self, block: int) -> None:
        """This root reads a block, be it in its turn or not."""
        self._next[self._place] = block + 1
        self._is_granted = False

    def is_next(self, now_s: float) -> bool:
        """Whether this root may read, for it has asked and has the token; then until it does."""
        if self.holds and self._wants(self._place) and not self._is_granted:
            self._is_granted = self._next_place(now_s) == self._place
            if self._is_granted:
                self._count_turn(self._place)
        return self._is_granted and self._wants(self._place)

    def _next_place(self, now_s: float) -> int | None:
        """Who gets the token now; None: nobody has asked, or somebody is waited for."""
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
        """Who has not left: who wants to leave, then who has waited for long, then as in the
        file."""
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
        """Somebody's turn begins."""
        for other in self._present():
            self._missed[other] += other != place and self._wants(other)
        self._missed[place] = 0

    def pass_on(self, now_s: float, *, leaves: bool = False) -> Pass | None:
        """Gives the token to whose turn is next.

        Args:
            now_s: the time.
            leaves: this root will never read again; then whoever has not left gets the token.

        Returns:
            To whom, and what to send; None: it stays here, or everybody has left.
        """
        if not self.holds:
            raise RuntimeError("there is no token to pass on")
        if leaves:
            self._next[self._place] = _GONE
            self.holds, self._is_granted, self.is_out = False, False, True
        place = self._next_place(now_s)
        if place is None and leaves:  # also where one is waited for that has not asked
            place = next(iter(self._in_order()), None)
        if place is None or place == self._place:
            return None
        self._count_turn(place)
        self.holds = self._is_granted = False
        body = self._form.pack(*self._next, *self._wished, *self._missed)
        return Pass(self._chain[place], body)
