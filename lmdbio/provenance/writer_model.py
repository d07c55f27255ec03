"""Find out how a database was made from where its records lie.

    extents, meta page -> candidates -> replays -> the one that is right for every record

The number of transactions bounds how many records each of them put; the first record that is not
where one long transaction would have put it tells where the first of them ended. A history
that is found is proved: every record of its replay lies where it lies in the file. Finding none is
no error: other forms of provenance hold for any history.

Keys like str(i) are put in the order of their numbers, which is not that of the keys: then the
records of the first numbers are those that tell.

Pure: reads nothing.

Source: LMDBIO (Pumma et al., section 4.4.2), which asks the maker of the database instead.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from lmdbio import _core
from lmdbio._core import Extents, History, KeyForm, KeyRun, Meta, Replayed, SplitRule
from lmdbio.errors import IncompatibleError
from lmdbio.provenance.keys import key_size_max, plain_ranks, plain_sizes
from lmdbio.system.frozen import dataclass

__all__ = ["Evidence", "RECORDS_MAX", "capacities", "find_history", "replay"]

#: A replay gives the extents of all records at once, 16 bytes each.
RECORDS_MAX = 1 << 22
#: Intervals tried where the first commit cannot be seen exactly (values inside leaves).
CANDIDATES_MAX = 512
#: Records replayed in a search at most: so many, and so many for each that there is. The right
#: history is among the first few; a database without one must not cost much more than its walk.
WORK_MIN, WORK = 1 << 21, 8
#: Leaves that later puts may still move: those at the end of a part of a history.
LEAVES_AT_END = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts of a database that a history is to explain.

    Attributes:
        meta: the state.
        extents: extents of all its records in key order, dtype ``EXTENT``.
        key_size: bytes of every key; None: they differ.
        named: whether it is a named one, and the only one; False: the main one.
        keys: the runs of its keys; none: they follow no pattern.
    """

    meta: Meta
    extents: Extents
    key_size: int | None
    named: bool
    keys: tuple[KeyRun, ...] = ()


def replay(history: History, *, expected: Extents | None = None) -> Replayed:
    """Replay a history (``_core.replay``), with keys as it says."""
    run = history.numbered
    if run is None:
        return _core.replay(history, expected=expected)
    ranks = plain_ranks(run.first, history.count)
    sizes = np.empty(history.count, np.uint16)
    sizes[ranks] = plain_sizes(run, history.count)
    return _core.replay(history, expected=expected, key_sizes=sizes, order=ranks)


def find_history(evidence: Evidence) -> tuple[History | None, str]:
    """Find the history whose replay is right for every record; or None and why there is none."""
    extents, meta = evidence.extents, evidence.meta
    count = len(extents)
    if not 0 < count <= RECORDS_MAX:
        return None, f"{count:,} records; 1 to {RECORDS_MAX:,} are replayed"
    numbered = None
    if evidence.key_size is None:
        # Values inside leaves are moved by each later neighbour: of these no beginning tells.
        numbered = evidence.keys[0] if len(evidence.keys) == 1 else None
        if numbered is None or numbered.form != KeyForm.PLAIN:
            return None, "keys of different lengths"
        layout = meta.layout
        if int(extents["offset"][0]) % layout.page_size != layout.header_size:
            return None, "keys of different lengths, and values inside leaves"
    if (extents["length"] != extents["length"][0]).any():
        return None, "values of different lengths"
    one = History(
        version=meta.layout.version,
        page_size=meta.layout.page_size,
        count=count,
        commit_every=count,
        key_size=evidence.key_size or 0,
        length=int(extents["length"][0]),
        named=evidence.named,
        numbered=numbered,
    )
    search = _Search(extents, numbered)
    for apart, append, split in itertools.product(
        (False, True) if evidence.named else (False,), (False, True), _rules(one)
    ):
        guess = dataclasses.replace(one, apart=apart, append=append, split=split)
        for history in _candidates(guess, search, meta.txnid - apart):
            if search.right(history) == count:
                return history, ""
    return None, "no history of puts in key order, in transactions of one size, gives its layout"


def _rules(one: History) -> tuple[SplitRule, ...]:
    """Return the rules that may lead to different places.

    All others treat a new last node alike.
    """
    if one.numbered is None:
        return SplitRule.BY_PAGE, SplitRule.OLDEST
    return tuple(SplitRule)


class _Search:
    """Replays histories against the extents, as long as that is worth it."""

    def __init__(self, extents: Extents, numbered: KeyRun | None) -> None:
        self._extents = extents
        self._ranks = None if numbered is None else plain_ranks(numbered.first, len(extents))
        self._left = WORK_MIN + WORK * len(extents)

    def right(self, history: History) -> int:
        """Return how many records, from the first on, the replay puts where they are."""
        self._left -= history.count
        if self._left < 0:
            return 0
        try:
            return replay(history, expected=self._first(history.count)).right
        except (IncompatibleError, ValueError):  # sizes that are not modelled
            return 0

    def _first(self, count: int) -> Extents:
        """Return those of the records that were put first, in key order."""
        if self._ranks is None or count == len(self._extents):
            return self._extents[:count]
        first: Extents = self._extents[np.sort(self._ranks[:count])]
        return first


def _candidates(one: History, search: _Search, transactions: int) -> Iterator[History]:
    """Yield histories like ``one``, but of so many transactions, that may be right."""
    count = one.count
    if not 1 <= transactions <= count:
        return
    if transactions == 1:
        yield one
        return
    low, high = -(-count // transactions), (count - 1) // (transactions - 1)
    leaf = 2 * capacities(one)[0]
    # The first commit shows where a single transaction is no longer right.
    enough = min(count, high + 2 * LEAVES_AT_END * leaf)
    first = search.right(dataclasses.replace(one, count=enough, commit_every=enough))
    # Pages of leaves may go on to lie alike by chance: then that was earlier.
    intervals = range(max(low, min(first, high) - leaf), min(high, first + leaf) + 1)
    likely = sorted(intervals, key=lambda n: (n >= first, *_roundness(n)), reverse=True)
    for every in likely[:CANDIDATES_MAX]:
        # A part tells wrong ones apart at less cost; what it ends with may move later.
        part = min(count, 4 * (every + leaf))
        start = dataclasses.replace(one, count=part, commit_every=min(every, part))
        if search.right(start) >= part - LEAVES_AT_END * leaf:
            yield dataclasses.replace(one, commit_every=every)


def capacities(history: History) -> tuple[int, int]:
    """Return how many records a leaf page can hold, and how many children a branch page.

    The paper's second and third item, which follow from the others.
    """
    if history.numbered is not None:
        size = key_size_max(history.numbered)
        history = dataclasses.replace(history, key_size=size, numbered=None)
    return _core.capacities(history)


def _roundness(number: int) -> tuple[int, int]:
    """Rank rounder numbers first: people commit every 1,000 records rather than every 997."""
    tens = len(str(number)) - len(str(number).rstrip("0"))
    twos = (number & -number).bit_length()
    return max(tens, twos // 3), -number
