"""Go from key to record and back by arithmetic, where keys count.

    key runs -> index of a key, key of an index, the order of the numbers

``lmdbio convert`` proves the runs against all keys (csrc/keys.h), so they replace the tree: a key
that no run holds is not in the database.

Pure.

Source: the keys of Caffe's convert_imageset, and of the usual makers of LMDB data sets for
PyTorch: str(i), "%08d", "image-%09d", struct.pack(">I", i), beside a few like b"__len__".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lmdbio._core import KeyForm, KeyRun
from lmdbio.system.frozen import dataclass

__all__ = [
    "KeyPattern",
    "describe",
    "format_key",
    "key_size_max",
    "plain_number",
    "plain_rank",
    "plain_ranks",
    "plain_sizes",
]

I64 = npt.NDArray[np.int64]

RUNS_DISPLAYED, BYTES_DISPLAYED = 6, 60
#: Of a number in a key (csrc/keys.c); int() refuses thousands of them.
DIGITS_MAX = 18


# --- numbers in the order of their digits ------------------------------------------------
#
# 0, 1, 10, 100, ..., 101, ..., 11, ...: as LMDB sorts str(i). Each number stands right before
# those that begin with it.


def plain_rank(number: int, first: int, count: int) -> int:
    """Return how many of ``first`` to ``first + count - 1`` come before ``number``, one of them.

    Args:
        first: 0 or 1.
    """
    if number == 0:
        return 0
    last, digits = first + count - 1, len(str(number))
    before = 1 - first  # the 0
    for size in range(1, len(str(last)) + 1):
        # The first number of so many digits that does not come before.
        end = number // 10 ** (digits - size) + 1 if size < digits else number
        end *= 10 ** max(0, size - digits)
        low, high = 10 ** (size - 1), min(10**size - 1, last)
        before += max(0, min(end - 1, high) - low + 1)
    return before


def plain_ranks(first: int, count: int) -> I64:
    """Return ``plain_rank`` of each of ``first`` to ``first + count - 1``, shape (count,)."""
    last = first + count - 1
    numbers = np.arange(first, last + 1, dtype=np.int64)
    ranks = np.full(count, 1 - first, np.int64)
    for digits in range(1, len(str(last)) + 1):
        some = slice(max(0, 10 ** (digits - 1) - first), max(0, 10**digits - first))
        mine = numbers[some]
        for size in range(1, len(str(last)) + 1):
            end = mine // 10 ** (digits - size) + 1 if size < digits else mine
            end = end * 10 ** max(0, size - digits)
            low, high = 10 ** (size - 1), min(10**size - 1, last)
            ranks[some] += np.maximum(0, np.minimum(end - 1, high) - low + 1)
    if first == 0:
        ranks[0] = 0
    return ranks


def plain_number(rank: int, first: int, count: int) -> int:
    """Return the number before which ``rank`` of ``first`` to ``first + count - 1`` come."""
    last = first + count - 1
    if first == 0 and rank == 0:
        return 0
    left = rank - (1 - first)
    number = 1
    while left:
        family, low, high = 0, number, number + 1  # who begins with it
        while low <= last:
            family += min(high, last + 1) - low
            low, high = low * 10, high * 10
        if family <= left:
            left -= family
            number += 1
        else:
            left -= 1
            number *= 10
    return number


def plain_sizes(run: KeyRun, count: int) -> npt.NDArray[np.uint16]:
    """Return the bytes of the keys of the first ``count`` numbers of a PLAIN run, by number."""
    sizes = np.full(count, len(run.stem) + len(run.tail) + 1, np.uint16)
    for digits in range(1, len(str(run.first + count))):
        sizes[max(0, 10**digits - run.first) :] += 1
    return sizes


# --- runs --------------------------------------------------------------------------------


def format_key(run: KeyRun, number: int) -> bytes:
    """Return the key of one number of a run."""
    match run.form:
        case KeyForm.LITERAL:
            text = b""
        case KeyForm.DECIMAL:
            text = b"%0*d" % (run.width, number)
        case KeyForm.PLAIN:
            text = b"%d" % number
        case _:
            text = number.to_bytes(run.width, "big" if run.form == KeyForm.BIG else "little")
    return run.stem + text + run.tail


def key_size_max(run: KeyRun) -> int:
    """Return the bytes of the longest key of a run."""
    return len(format_key(run, run.first + run.count - 1))


def _parse(run: KeyRun, key: bytes) -> int | None:
    """Return the number that ``key`` has where a key of this run has it; None: it has none."""
    stem, tail = len(run.stem), len(run.tail)
    text = key[stem : len(key) - tail]
    if (
        len(text) > DIGITS_MAX
        or len(key) < stem + tail
        or not key.startswith(run.stem)
        or not key.endswith(run.tail)
    ):
        return None
    if run.form in (KeyForm.BIG, KeyForm.LITTLE):
        big = run.form == KeyForm.BIG
        return int.from_bytes(text, "big" if big else "little") if len(text) == run.width else None
    plain = run.form == KeyForm.PLAIN
    if not text.isdigit() or (plain and len(text) > 1 and text.startswith(b"0")):
        return None
    return int(text) if plain or len(text) == run.width else None


def _is_like(run: KeyRun, key: bytes) -> bool:
    """Return whether a key has digits where a run has them, be they more or fewer."""
    stem, tail = len(run.stem), len(run.tail)
    text = key[stem : len(key) - tail]
    written = run.form in (KeyForm.DECIMAL, KeyForm.PLAIN)
    return written and text.isdigit() and key.startswith(run.stem) and key.endswith(run.tail)


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """The keys of a database, all of them.

    Attributes:
        runs: runs of keys in key order.
    """

    runs: tuple[KeyRun, ...]

    @property
    def count(self) -> int:
        """Number of keys."""
        return sum(run.count for run in self.runs)

    def index(self, key: bytes) -> int | None:
        """Return the record of a key; None: the database has none."""
        base = 0
        for run in self.runs:
            if run.form == KeyForm.LITERAL:
                rank = 0 if key == run.stem else None
            else:
                rank = self._rank(run, key)
            if rank is not None:
                return base + rank
            base += run.count
        return None

    @staticmethod
    def _rank(run: KeyRun, key: bytes) -> int | None:
        number = _parse(run, key)
        if number is None or not 0 <= number - run.first < run.count:
            return None
        if run.form == KeyForm.PLAIN:
            return plain_rank(number, run.first, run.count)
        return number - run.first

    def key(self, index: int) -> bytes:
        """Return the key of a record, 0 <= ``index`` < ``count``."""
        for run in self.runs:
            if index < run.count:
                plain = run.form == KeyForm.PLAIN
                rank = plain_number(index, run.first, run.count) if plain else run.first + index
                return format_key(run, rank)
            index -= run.count
        raise IndexError("no record of this number")

    def by_number(self) -> I64 | None:
        """Return the records by their numbers, those without one at the end, in key order.

        Returns:
            int64, shape (count,); None: numbers of different kinds, which say nothing of each
            other, or none at all. A key alone may have such a number as well: of str(i) from 2
            on, those with one digit stand alone between the others.
        """
        counting = [run for run in self.runs if run.form != KeyForm.LITERAL]
        if len({(run.form, run.width, run.stem, run.tail) for run in counting}) != 1:
            return None
        shape, base = counting[0], 0
        numbers, places, others = [], [], []
        for run in self.runs:
            # A number alone between two gaps is no run.
            alone = _parse(shape, run.stem) if run.form == KeyForm.LITERAL else None
            if alone is None and run.form == KeyForm.LITERAL and _is_like(shape, run.stem):
                return None
            if run.form == KeyForm.LITERAL and alone is None:
                others.append(base)
            else:
                first = run.first if alone is None else alone
                ranks = np.arange(run.count)
                numbers.append(ranks.astype(np.uint64) + np.uint64(first))
                plain = run.form == KeyForm.PLAIN
                places.append(base + (plain_ranks(first, run.count) if plain else ranks))
            base += run.count
        order = np.argsort(np.concatenate(numbers), kind="stable")
        return np.concatenate([np.concatenate(places)[order], np.array(others, np.int64)])


def describe(runs: Sequence[KeyRun]) -> str:
    """Describe keys to people: ``image-{000000001..000001000}, 'num-samples'``."""
    displayed = ", ".join(_describe(run) for run in runs[:RUNS_DISPLAYED])
    more = len(runs) - RUNS_DISPLAYED
    return displayed if more <= 0 else f"{displayed} and {more} runs more"


def _short(text: bytes) -> str:
    return repr(text[:BYTES_DISPLAYED])[2:-1] + ("..." if len(text) > BYTES_DISPLAYED else "")


def _describe(run: KeyRun) -> str:
    stem, tail = _short(run.stem), _short(run.tail)
    last = run.first + run.count - 1
    match run.form:
        case KeyForm.LITERAL:
            return f"'{stem}'"
        case KeyForm.DECIMAL:
            return f"{stem}{{{run.first:0{run.width}}..{last:0{run.width}}}}{tail}"
        case KeyForm.PLAIN:
            return f"{stem}{{{run.first}..{last}}}{tail}"
        case _:
            end = "highest" if run.form == KeyForm.BIG else "lowest"
            return f"{stem}{{{run.first}..{last}}} in {run.width} bytes, the {end} first"
