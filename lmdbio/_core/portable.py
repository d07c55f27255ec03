"""Those names of the C core that records and orders need, in NumPy. Pure.

They stand for it where it is not here (``compiled``), with the same names, arguments and results:
tests/portable holds them equal.

Source: csrc/order.c, whose comments explain the permutations; csrc/extent.h.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "BLOCK_LEAVES_MAX",
    "Begins",
    "CHECKED_PAGE_BYTES",
    "EXTENT",
    "Extents",
    "Items",
    "Memory",
    "Names",
    "Packed",
    "Shuffling",
    "Stands",
    "Transacts",
    "copy_rows",
    "count_inside",
    "keep_heap",
    "lend",
    "pack_extents",
]

U64 = npt.NDArray[np.uint64]
Extents = npt.NDArray[Any]  # of dtype EXTENT

EXTENT = np.dtype([("offset", "<u8"), ("length", "<u8")])
#: Numbers that modules calculate with as they load.
BLOCK_LEAVES_MAX, CHECKED_PAGE_BYTES = 4096, 4096
#: Bases of the drop-in's classes, of which py-lmdb's own take the place.
Begins = Items = Names = Stands = Transacts = object


# --- memory


class Packed(NamedTuple):
    """Records placed one after another (``_core.Packed``)."""

    extents: Extents
    lengths: U64
    offsets: U64
    size: int
    room: int


def pack_extents(extents: Extents) -> Packed:
    """Place records one after another."""
    lengths = np.ascontiguousarray(extents["length"])
    ends = np.cumsum(lengths, dtype=np.uint64)
    size = int(ends[-1]) if len(ends) else 0
    return Packed(extents, lengths, ends - lengths, size, size)


def count_inside(offsets: U64, lengths: U64, size: int) -> int:
    """Return how many records, from the first on, lie inside of so many bytes."""
    room = np.uint64(size)
    outside = (lengths > room) | (offsets > room - np.minimum(lengths, room))
    return int(np.argmax(outside)) if outside.any() else len(offsets)


class Memory:
    """Memory of our own.

    Args:
        size: number of bytes.

    Attributes:
        address: address of the first byte.
    """

    def __init__(self, size: int) -> None:
        self._bytes, self.size = np.empty(size, np.uint8), size
        self.address = self._bytes.ctypes.data


def lend(address: int, size: int, keep: object = None) -> Any:
    """Return an exporter of memory, which keeps an object alive (``_core.lend``)."""
    lent: Any = (ctypes.c_uint8 * size).from_address(address)
    lent.keep = keep
    return np.frombuffer(lent, np.uint8)


def copy_rows(sources: U64, lengths: U64, targets: U64) -> None:
    """Copy rows of memory from addresses to addresses."""
    for source, length, target in zip(
        sources.tolist(), lengths.tolist(), targets.tolist(), strict=True
    ):
        ctypes.memmove(target, source, length)


def keep_heap() -> None:
    """Do nothing: how memory is given back is the core's concern."""


# --- the order of an epoch

#: Sides of a network are no smaller: three numbers would only be rotated.
SIDE_MIN = 4


def _mixed(value: U64) -> U64:
    """Mix bits: the finaliser of SplitMix64, modulo 2**64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: U64 = value ^ (value >> np.uint64(31))
    return mixed


class _Permutation:
    """A permutation of the numbers below one: a Feistel network, walked until it comes back.

    Args:
        below: number of the numbers, at least 1.
        keys: key of each round.
    """

    def __init__(self, below: int, keys: U64) -> None:
        self.below, self._keys = np.uint64(below), keys
        left = max(math.isqrt(below), SIDE_MIN)
        self._sides = np.uint64(left), np.uint64(max((below - 1) // left + 1, SIDE_MIN))

    def forth(self, numbers: U64, tweaks: U64 | None = None) -> U64:
        """Return the number at each place; ``tweaks`` make other permutations of the keys."""
        return self._walk(numbers, tweaks, is_back=False)

    def back(self, numbers: U64, tweaks: U64 | None = None) -> U64:
        """Return the place of each number."""
        return self._walk(numbers, tweaks, is_back=True)

    def _walk(self, numbers: U64, tweaks: U64 | None, *, is_back: bool) -> U64:
        found = self._once(numbers, tweaks, is_back)
        while (beyond := np.flatnonzero(found >= self.below)).size:
            some = None if tweaks is None else tweaks[beyond]
            found[beyond] = self._once(found[beyond], some, is_back)
        return found

    def _once(self, numbers: U64, tweaks: U64 | None, is_back: bool) -> U64:
        right, left = np.divmod(numbers, self._sides[0])
        rounds = range(len(self._keys))
        for i in reversed(rounds) if is_back else rounds:
            side, key = self._sides[i % 2], self._keys[i]
            given = left if is_back else right
            key = given + key if tweaks is None else given + key + tweaks
            turn = _mixed(key) % side
            if is_back:
                left, right = (right + side - turn) % side, left
            else:
                left, right = right, (left + turn) % side
        found: U64 = right * self._sides[0] + left
        return found


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of some places: where each begins, its size, and its tweak."""

    begins: U64
    sizes: U64
    tweaks: U64


class Shuffling:
    """An order of records, by chunks and windows (``_core.Shuffling``).

    Args:
        count, chunk, window: counts of records, of records of a chunk, of chunks of a window.
        chunk_keys, inner_keys: keys of the rounds, uint64.
        keeps_inner: whether records stay in their order inside chunks.
        keeps_chunks: whether chunks stay in their order.
    """

    def __init__(
        self,
        count: int,
        chunk: int,
        window: int,
        *,
        chunk_keys: U64,
        inner_keys: U64,
        keeps_inner: bool,
        keeps_chunks: bool = False,
    ) -> None:
        if not keeps_inner and chunk * window >= count:
            chunk = 1  # one window shuffled inside, and chunks of one record, come to the same
        self._count, self._inner_keys = count, inner_keys
        self._keeps_inner, self._keeps_chunks = keeps_inner or chunk == 1, keeps_chunks
        rest, chunks = count % chunk, -(-count // chunk)
        self._chunk, self._window = np.uint64(chunk), np.uint64(min(window, chunks))
        self._chunks = _Permutation(chunks, chunk_keys)
        #: Position of the chunk that is short, its length, and the records that it lacks.
        self._short, self._length, self._lacking = (
            np.uint64(number) for number in (chunks, rest, chunk - rest)
        )
        if rest:
            self._short = self._positions(np.array([chunks - 1], np.uint64))[0]

    def records(self, numbers: U64) -> None:
        """Replace places by the records there; IndexError: one is not below the count."""
        self._check(numbers)
        positions, offsets = self._located(numbers)
        if not self._keeps_inner:
            windows = self._windows(positions)
            inside = self._shuffled(windows, numbers - windows.begins, is_back=False)
            positions, offsets = self._located(windows.begins + inside)
        chunks = positions if self._keeps_chunks else self._chunks.forth(positions)
        numbers[:] = chunks * self._chunk + offsets

    def places(self, numbers: U64) -> None:
        """Replace records by their places; as ``records``."""
        self._check(numbers)
        chunks, offsets = np.divmod(numbers, self._chunk)
        positions = self._positions(chunks)
        found = self._begins(positions) + offsets
        if not self._keeps_inner:
            windows = self._windows(positions)
            inside = self._shuffled(windows, found - windows.begins, is_back=True)
            found = windows.begins + inside
        numbers[:] = found

    def _check(self, numbers: U64) -> None:
        if len(numbers) and int(numbers.max()) >= self._count:
            raise IndexError(f"a number is not below {self._count}")

    def _positions(self, chunks: U64) -> U64:
        """Return the position of each chunk."""
        return chunks if self._keeps_chunks else self._chunks.back(chunks)

    def _begins(self, positions: U64) -> U64:
        """Return the first place of the chunk at each position."""
        lacking = np.where(positions > self._short, self._lacking, np.uint64(0))
        begins: U64 = positions * self._chunk - lacking
        return begins

    def _located(self, places: U64) -> tuple[U64, U64]:
        """Return the position of the chunk that has each place, and the place in it."""
        positions, offsets = np.divmod(places, self._chunk)
        is_behind = (positions > self._short) | (
            (positions == self._short) & (offsets >= self._length)
        )
        later, rest = np.divmod(places + self._lacking, self._chunk)
        return np.where(is_behind, later, positions), np.where(is_behind, rest, offsets)

    def _windows(self, positions: U64) -> _Windows:
        """Return the window of each position."""
        numbers = positions // self._window
        firsts = numbers * self._window
        begins = self._begins(firsts)
        ends = self._begins(np.minimum(firsts + self._window, self._chunks.below))
        return _Windows(begins, ends - begins, _mixed(numbers + np.uint64(1)))

    def _shuffled(self, windows: _Windows, inside: U64, *, is_back: bool) -> U64:
        """Return the numbers inside of windows, shuffled there."""
        found = np.empty_like(inside)
        for size in set(windows.sizes.tolist()):  # three at most
            here = windows.sizes == np.uint64(size)
            inner = _Permutation(size, self._inner_keys)
            walk = inner.back if is_back else inner.forth
            found[here] = walk(inside[here], windows.tweaks[here])
        return found
