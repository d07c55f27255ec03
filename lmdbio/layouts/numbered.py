"""Samples whose keys are numbers: ``0``, ``00000042``, ``image-000000042``.

    a few keys                       -> whether it is this layout, and how many samples
    pattern of the keys, or all keys -> number and record of each -> records in order of numbers

A number that is missing is an error: a reader of the program that made the file fails there too,
and samples after it would have other numbers than they have with that reader. Where the file says
how many samples there are, that reader reads so many: keys of higher numbers are no samples then.
"""

from __future__ import annotations

import pickletools
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio._core import KeyForm, KeyRun
from lmdbio.layouts.layout import Keys, Selection, refuse
from lmdbio.provenance.keys import format_key, plain_ranks
from lmdbio.system.frozen import dataclass

__all__ = ["Found", "Numbered", "Numbers", "find_numbers", "keys_of_run"]

I64 = npt.NDArray[np.int64]
#: Of a number; larger ones do not fit 64 bits.
DIGITS_MAX = 18
#: Of a value that tells a number; one that NumPy pickled takes 150.
VALUE_BYTES_MAX = 512
#: Opcodes that push a whole number; those that stand around it.
_WHOLE = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"}
_AROUND = {"PROTO", "FRAME", "PUT", "BINPUT", "MEMOIZE", "STOP"}


#: Keys of no sample that stand beside numbers; more of them belong to samples in a way not known.
BESIDE_MAX = 8


class Found(NamedTuple):
    """Keys that have a number.

    Attributes:
        numbers: number of each key, int64.
        records: records of the same keys, numbered in key order, int64.
    """

    numbers: I64
    records: I64


@dataclass(frozen=True, slots=True)
class Numbers:
    """Keys that are a number behind the same bytes.

    Attributes:
        stem: bytes before the number.
        width: digits of each number; 0: as few as it takes.
    """

    stem: bytes = b""
    width: int = 0

    def key(self, number: int) -> bytes:
        """Return the key of a number."""
        return b"%s%0*d" % (self.stem, self.width, number)

    def number(self, key: bytes) -> int | None:
        """Return the number of a key; None: it has none."""
        text = key[len(self.stem) :]
        if not key.startswith(self.stem) or not text.isdigit() or len(text) > DIGITS_MAX:
            return None
        if self.width == 0:
            return None if text[:1] == b"0" and len(text) > 1 else int(text)
        # A number of more digits than that has them all, as ``%08d`` writes it.
        is_written = len(text) == self.width or (len(text) > self.width and text[:1] != b"0")
        return int(text) if is_written else None

    def among(self, keys: Sequence[bytes], base: int) -> Found:
        """Return those of some keys in key order, the first being record ``base``."""
        pairs = [(n, at) for at, key in enumerate(keys) if (n := self.number(key)) is not None]
        found = np.array(pairs, np.int64).reshape(-1, 2)
        return Found(found[:, 0], found[:, 1] + base)

    def of_run(self, run: KeyRun, base: int) -> Found:
        """Return those of a run, whose first key in key order is record ``base``."""
        is_alike = run.stem == self.stem and not run.tail
        ranks = np.arange(run.count)
        if is_alike and run.form == KeyForm.PLAIN and not self.width:
            return Found(ranks + run.first, plain_ranks(run.first, run.count) + base)
        if is_alike and run.form == KeyForm.DECIMAL and run.width == self.width:
            return Found(ranks + run.first, ranks + base)
        if not (run.stem.startswith(self.stem) or self.stem.startswith(run.stem)):
            return Found(ranks[:0], ranks[:0])
        return self.among(keys_of_run(run), base)


def keys_of_run(run: KeyRun) -> list[bytes]:
    """Return all keys of a run in key order."""
    numbers = np.arange(run.count)
    if run.form == KeyForm.PLAIN:
        numbers = np.argsort(plain_ranks(run.first, run.count))
    return [format_key(run, run.first + number) for number in numbers.tolist()]


def find_numbers(keys: Keys, shapes: Sequence[Numbers]) -> list[Found]:
    """Return the keys of each shape, in ascending order of their numbers."""
    parts: list[list[Found]] = [[] for _ in shapes]
    base, pattern = 0, keys.pattern
    if pattern is not None:
        for run in pattern.runs:
            for shape, into in zip(shapes, parts, strict=True):
                into.append(shape.of_run(run, base))
            base += run.count
    else:
        for some in keys.all():
            for shape, into in zip(shapes, parts, strict=True):
                into.append(shape.among(some, base))
            base += len(some)
    return [_sorted(part) for part in parts]


def _sorted(parts: list[Found]) -> Found:
    empty = np.empty(0, np.int64)
    numbers = np.concatenate([empty, *(part.numbers for part in parts)])
    records = np.concatenate([empty, *(part.records for part in parts)])
    order = np.argsort(numbers, kind="stable")
    return Found(numbers[order], records[order])


@dataclass(frozen=True, slots=True)
class Numbered:
    """A layout whose samples have numbers that count up by one.

    Attributes:
        name: name of the layout.
        columns: the keys of a sample. The first of them is there; each other one, if its first
            key is. None at all: one key, a number of the width that the file's have.
        marks: keys that are there as well, and no samples.
        others: keys that may be there as well, and are no samples.
        firsts: numbers that the first sample may have.
        count_key: the mark, or the other key, whose value says how many samples there are.
    """

    name: str
    columns: tuple[Numbers, ...] = (Numbers(),)
    marks: tuple[bytes, ...] = ()
    others: tuple[bytes, ...] = ()
    firsts: tuple[int, ...] = (0,)
    count_key: bytes | None = None

    @property
    def wants(self) -> str:
        """The keys by which it is known, in words."""
        column = self.columns[0] if self.columns else Numbers()
        keys = (*self.marks, column.key(self.firsts[0]))
        return f"which has the keys {', '.join(map(repr, keys))}"

    def find(self, keys: Keys) -> Selection | None:
        """Return the samples of a database; None: it has another layout."""
        if not keys.count or not all(map(keys.has, self.marks)):
            return None
        metadata = (*self.marks, *filter(keys.has, self.others))
        if len(metadata) == keys.count:
            return Selection(self.name, 0, metadata, order=self._none)
        shapes = self.columns or (_shape(keys.ends),)
        first = next((n for n in self.firsts if keys.has(shapes[0].key(n))), None)
        if first is None:
            return None
        columns = [one for one in shapes if keys.has(one.key(first))]
        beside = [key for key in keys.ends if all(one.number(key) is None for one in columns)]
        if len(beside) <= BESIDE_MAX:
            metadata = tuple(dict.fromkeys((*metadata, *beside)))
        if not self.columns and columns[0].width and not metadata:
            return None  # each record is a sample, and the order of keys that of their numbers
        there = (keys.count - len(metadata)) // len(columns)
        stated = None if self.count_key is None else number_in(keys.value(self.count_key))
        samples: int | None = there if stated is None else stated
        if stated is None and not keys.has(columns[0].key(first + there - 1)):
            if not self.marks:
                return None
            samples = None  # there are other keys, or numbers are missing
        order = partial(self._order, columns=columns, first=first, stated=stated)
        keys_at = partial(_keys_at, columns, first)
        return Selection(self.name, samples, metadata, len(columns), order, keys_at)

    def _order(
        self, keys: Keys, columns: Sequence[Numbers], first: int, stated: int | None
    ) -> I64:
        """Return the records of all samples.

        Args:
            columns: columns that are there.
            first: number of the first sample.
            stated: number of samples that the file says that there are; None: it does not.

        Raises:
            IncompatibleError: a number is missing, or the file does not say how many there are.
        """
        stop = None if stated is None else first + stated
        found = [_between(one, first, stop) for one in find_numbers(keys, columns)]
        last = max((int(one.numbers[-1]) for one in found if len(one.numbers)), default=first - 1)
        for shape, one in zip(columns, found, strict=True):
            wanted = first + np.arange(len(one.numbers))
            wrong = np.flatnonzero(one.numbers != wanted)
            missing = first + (int(wrong[0]) if len(wrong) else len(one.numbers))
            if missing <= last:
                there = next(n for n in columns if keys.has(n.key(last))).key(last)
                why = f"there is no key {shape.key(missing)!r}, though there is {there!r}"
                raise refuse(keys.path, self.name, why)
        key_of_last = columns[0].key(last)
        self._refuse_count(keys, f"the key of the last one is {key_of_last!r}", last - first + 1)
        records = np.stack([one.records for one in found], axis=1)
        return records[:, 0] if len(columns) == 1 else records

    def _none(self, keys: Keys) -> I64:
        """Return that there are no samples, unless the file says that there are."""
        self._refuse_count(keys, "there is none", 0)
        return np.empty(0, np.int64)

    def _refuse_count(self, keys: Keys, there: str, count: int) -> None:
        """Raise IncompatibleError where the file says another number of samples.

        Args:
            there: words for what is there.
            count: number of samples that are there.
        """
        text = None if self.count_key is None else keys.value(self.count_key)
        stated = None if text is None else number_in(text)
        if text is None or stated == count:
            return
        if stated is None and self.count_key not in self.marks:
            return  # written by pyarrow, which nothing but an old one reads
        text_of = repr(text[:20]) if stated is None else f"{stated:,}"
        why = f"{self.count_key!r} says that there are {text_of} samples, and {there}"
        raise refuse(keys.path, self.name, why)


def _keys_at(columns: Sequence[Numbers], first: int, index: int) -> tuple[bytes, ...]:
    """Return the keys of a sample by its index."""
    return tuple(one.key(first + index) for one in columns)


def _shape(ends: Sequence[bytes]) -> Numbers:
    """Return what numbers look like in a database, by its first and its last keys."""
    padded = next((key for key in ends if key.isdigit() and len(key) > 1 and key[:1] == b"0"), b"")
    return Numbers(width=len(padded))


def _between(found: Found, first: int, stop: int | None) -> Found:
    """Return the keys whose numbers are no less than ``first``, and below ``stop``."""
    here = found.numbers >= first
    if stop is not None:
        here &= found.numbers < stop
    return Found(found.numbers[here], found.records[here])


# --- numbers that values tell -------------------------------------------------------------


def number_in(value: bytes | None) -> int | None:
    r"""Return the number, not below 0, that a value tells; None: it tells none.

    Nothing is unpickled: opcodes are read. b"1000", b"\x80\x04\x4d\xe8\x03.", and NumPy's
    int64(1000) pickled give 1000.
    """
    text = b"" if value is None else value.strip()
    if text.isdigit():
        return int(text) if len(text) <= DIGITS_MAX else None
    if value is None or len(value) > VALUE_BYTES_MAX:
        return None
    try:
        steps = [(code.name, argument) for code, argument, _ in pickletools.genops(value)]
    except Exception:  # of pickletools, which reads what anybody may have written
        return None
    whole = [argument for name, argument in steps if name in _WHOLE]
    if len(whole) == 1 and all(name in _WHOLE | _AROUND for name, _ in steps):
        found = whole[0]
    else:
        found = _of_numpy([argument for _, argument in steps])
    return found if isinstance(found, int) and 0 <= found < 10**DIGITS_MAX else None


def _of_numpy(arguments: list[object]) -> int | None:
    """Return the number of NumPy's scalar, by what its pickle names; None: it is none."""
    texts = {word for one in arguments if isinstance(one, str) for word in one.split()}
    raw = [one for one in arguments if isinstance(one, bytes)]
    kinds = [kind for kind in ("i4", "i8", "u4", "u8") if kind in texts]
    if "scalar" not in texts or "<" not in texts or len(kinds) != 1 or len(raw) != 1:
        return None
    if len(raw[0]) != int(kinds[0][1]):
        return None
    return int.from_bytes(raw[0], "little", signed=kinds[0][0] == "i")
