"""Whose turn it is to read. Pure: no MPI, no clock.

The roots, in the order of their first records, form as many chains as there are tokens: chain i
has roots i, i + n, i + 2n and so on, so that those which read at the same time are neighbours in
the file. Each chain has one token, and who has it may read one block:

    wish      whoever has memory to read a block into says so to all others of its chain
    token     goes from its holder to the next in the chain, round and round, that wishes for it

So while all read as fast as they can, they read in the order of the file; the token never stops
at one that cannot use it; and where nobody wants it, it lies still, and only its holder needs to
listen. A turn has a number, so that a wish which comes late is not taken for another one.

Who will never read again takes a last turn, leaves with it, and is left out from then on; the
last one keeps the token.

Source: LMDBIO (ACM TOPC 2019), I/O staggering. Who asks whom: as in Suzuki and Kasami's mutual
exclusion (ACM TOCS 1985), served in the file's order instead of first come, first served.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Pass", "Turns", "chain_of"]

#: Turns taken by a root that has left.
_GONE = 2**32 - 1
_WISH = struct.Struct("<I")


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

    __slots__ = ("_chain", "_form", "_place", "_taken", "_wished", "holds", "is_out")

    def __init__(self, chain: Sequence[int], root: int) -> None:
        self._chain = tuple(chain)
        self._place = self._chain.index(root)
        self._taken = [0] * len(self._chain)  # turns of each, as the token last said
        self._wished = [-1] * len(self._chain)  # the latest turn that each asked for
        self._form = struct.Struct(f"<{len(self._chain)}I")
        self.holds = self._place == 0
        self.is_out = False

    @property
    def is_wished(self) -> bool:
        """Whether this root asked for the token, and has not got it yet."""
        return not self.holds and self._wants(self._place)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody else asked for the token."""
        return any(self._wants(place) for place in range(len(self._chain)) if place != self._place)

    @property
    def others(self) -> int:
        """Roots of the chain that have not left, but for this one; as the token last said."""
        own = self._taken[self._place] != _GONE
        return sum(taken != _GONE for taken in self._taken) - own

    def _wants(self, place: int) -> bool:
        return self._taken[place] != _GONE and self._wished[place] >= self._taken[place]

    def wish(self) -> list[Pass]:
        """Asks for the token.

        Returns:
            What to send to whom; nothing where it is here, or was asked for.
        """
        if self.holds or self.is_out or self._wants(self._place):
            return []
        number = self._wished[self._place] = self._taken[self._place]
        return [
            Pass(root, _WISH.pack(number))
            for place, root in enumerate(self._chain)
            if place != self._place and self._taken[place] != _GONE
        ]

    def hear(self, root: int, body: bytes) -> None:
        """Somebody else asks for the token.

        Raises:
            RuntimeError: it is none of this chain.
        """
        if root not in self._chain or len(body) != _WISH.size:
            raise RuntimeError(f"a wish of {len(body)} bytes, from rank {root}, that cannot be")
        place = self._chain.index(root)
        self._wished[place] = max(self._wished[place], *_WISH.unpack(body))

    def come(self, body: bytes) -> None:
        """The token has come.

        Raises:
            RuntimeError: it is here already, or is none of this chain.
        """
        if self.holds or self.is_out or len(body) != self._form.size:
            raise RuntimeError(f"a token of {len(body)} bytes that cannot be")
        self._taken = list(self._form.unpack(body))
        self.holds = True

    def pass_on(self, *, leaves: bool = False) -> Pass | None:
        """Ends a turn, and gives the token to who wants it.

        Args:
            leaves: this root will never read again; then whoever has not left gets the token.

        Returns:
            To whom, and what to send; None: nobody wants it.
        """
        if not self.holds:
            raise RuntimeError("there is no token to pass on")
        places = [(self._place + step) % len(self._chain) for step in range(1, len(self._chain))]
        wanting = [place for place in places if self._wants(place)]
        if leaves and not wanting:
            wanting = [place for place in places if self._taken[place] != _GONE]
        if leaves:
            self._taken[self._place] = _GONE
            self.holds, self.is_out = False, True
        if not wanting:
            return None
        if not leaves:
            self._taken[self._place] += 1
            self.holds = False
        body = self._form.pack(*self._taken)
        return Pass(self._chain[wanting[0]], body)
