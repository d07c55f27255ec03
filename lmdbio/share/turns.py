"""Whose turn it is to read. Pure: no MPI, no clock.

The roots, in the order of their first records, form as many chains as there are tokens: chain i
has roots i, i + n, i + 2n and so on, so that those which read at the same time are neighbours in
the file. In each chain one token goes round:

    root 0 -> root n -> root 2n -> ... -> root 0

Who has it may read one block. Who has nothing to read, or no memory to read it into, passes it on
at once. Who will never read again says so with the token and is left out from then on; the last
one keeps it.

Source: LMDBIO (ACM TOPC 2019), I/O staggering.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Pass", "Turns", "chain_of"]


class Pass(NamedTuple):
    """A token on its way."""

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

    __slots__ = ("_chain", "_left", "_place", "holds", "is_out")

    def __init__(self, chain: Sequence[int], root: int) -> None:
        self._chain = tuple(chain)
        self._place = self._chain.index(root)
        self._left = 0  # a bit for each root of the chain that left it
        self.holds = self._place == 0
        self.is_out = False

    def come(self, body: bytes) -> None:
        """The token has come.

        Raises:
            RuntimeError: it is here already, or is none of this chain.
        """
        if self.holds or self.is_out or len(body) != self._bytes():
            raise RuntimeError(f"a token of {len(body)} bytes that cannot be")
        self._left |= int.from_bytes(body, "little")
        self.holds = True

    def _bytes(self) -> int:
        return -(-len(self._chain) // 8)

    def pass_on(self, *, leaves: bool = False) -> Pass | None:
        """Gives the token away.

        Args:
            leaves: this root will never read again.

        Returns:
            To whom, and what to send; None: nobody else is left.
        """
        if not self.holds:
            raise RuntimeError("there is no token to pass on")
        if leaves:
            self._left |= 1 << self._place
            self.holds, self.is_out = False, True
        for step in range(1, len(self._chain)):
            place = (self._place + step) % len(self._chain)
            if not self._left >> place & 1:
                self.holds = False
                return Pass(self._chain[place], self._left.to_bytes(self._bytes(), "little"))
        return None
