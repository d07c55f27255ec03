"""Orders of records, and roots that bring the rows of a block (csrc/order.h, sources.h). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import pointer_to
from lmdbio._core.brief import brief_up_to

__all__ = [
    "NO_HOME",
    "OwnerTable",
    "RoundTable",
    "Seats",
    "Shuffling",
    "find_block_sources",
    "find_home_uses",
    "find_homes",
    "find_records",
    "find_round_uses",
    "find_teams",
]

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

#: The home of a record that no root keeps.
NO_HOME = int(lib.LIO_NO_HOME)

#: More places than any sequence has.
ENDLESS = 2**64 - 1

#: ``planning.schedule.Places``: first, step, repeats, runs.
PeriodicPlaces = tuple[int, int, int, tuple[range, ...]]


class Shuffling:
    """An order of records, by chunks and windows, computed where it is asked. Pure.

    Args:
        count: records, at least 1.
        chunk: records that stay together, 1 or more; the last chunk may have fewer.
        window: chunks whose records are shuffled among each other, 1 or more.
        chunk_keys, inner_keys: keys of the rounds, ``LIO_ORDER_ROUNDS`` numbers each.
        keeps_inner: records stay in their order inside chunks; ``window`` has no meaning.
        keeps_chunks: chunks stay in their order too.
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
        self.pointer: Any = ffi.new("lio_shuffle *")
        self._count = self.pointer.count = count
        self.pointer.chunk, self.pointer.window = chunk, window
        self.pointer.chunk_keys = chunk_keys.tolist()
        self.pointer.inner_keys = inner_keys.tolist()
        self.pointer.keeps_inner, self.pointer.keeps_chunks = keeps_inner, keeps_chunks

    def records(self, numbers: U64) -> None:
        """Replaces places by the records there.

        Args:
            numbers: C-contiguous.

        Raises:
            IndexError: one is not below the count.
        """
        self._check(numbers)
        lib.lio_shuffle_records(self.pointer, pointer_to(numbers, "uint64_t *"), len(numbers))

    def places(self, numbers: U64) -> None:
        """Replaces records by their places; as ``records``."""
        self._check(numbers)
        lib.lio_shuffle_places(self.pointer, pointer_to(numbers, "uint64_t *"), len(numbers))

    def _check(self, numbers: U64) -> None:
        if len(numbers) and int(numbers.max()) >= self._count:
            raise IndexError(f"a number is not below {self._count}")


class RoundTable:
    """The rounds of an epoch.

    Args:
        shuffling: Shuffling of the epoch.
        rounds: number of rounds of the epoch.
        size: places of a round that is full.
        short_round, lacking: the round that is not, or ``rounds``; and places that it lacks.
    """

    def __init__(
        self, shuffling: Shuffling, rounds: int, size: int, short_round: int, lacking: int
    ) -> None:
        self.pointer: Any = ffi.new("lio_rounds *")
        self.pointer.shuffle = shuffling.pointer[0]
        self.pointer.rounds, self.pointer.size = rounds, size
        self.pointer.short_round, self.pointer.lacking = short_round, lacking


class Seats:
    """Says which team uses each place, and in which block.

    Args:
        start, end: first place that is used, and the end; None: no end.
        batch_size, block_iterations: records of each batch, and iterations of a block.
        length: places in all, of which the last batch may lack some; None: endless.
        last_block: number of the last block; None: there is none.
        ranks, teams: numbers of ranks and of teams.
        chunks: start of each team's places in a block, and then in the last one; "blocked" alone.
        team_of: team of each rank; "strided" alone.
    """

    def __init__(
        self,
        *,
        start: int,
        end: int | None,
        batch_size: int,
        block_iterations: int,
        length: int | None,
        last_block: int | None,
        ranks: int,
        teams: int,
        chunks: Sequence[int],
        team_of: Sequence[int],
    ) -> None:
        self.pointer: Any = ffi.new("lio_seats *")
        self._chunks, self._team_of = ffi.new("uint64_t[]", chunks), ffi.new("uint32_t[]", team_of)
        self.pointer.start, self.pointer.end = start, ENDLESS if end is None else end
        self.pointer.batch_size = batch_size
        self.pointer.block_iterations = block_iterations
        self.pointer.length = ENDLESS if length is None else length
        self.pointer.last_block = ENDLESS if last_block is None else last_block
        self.pointer.ranks, self.pointer.teams = ranks, teams
        self.pointer.chunks = self._chunks
        self.pointer.team_of = self._team_of if team_of else ffi.NULL


def find_block_sources(
    tables: Sequence[RoundTable], epoch: int, roots: int, places: Sequence[PeriodicPlaces]
) -> tuple[I64, I64, I64, I64, I64]:
    """Returns which root brings each row of a block, and for which round.

    Args:
        tables: rounds of the epochs of the places, from number ``epoch`` on.
        roots: number of roots.
        places: places of the rows, ascending.

    Returns:
        ``placement.sources.BlockSources``: int64 each.
    """
    epochs = ffi.new("lio_rounds[]", [one.pointer[0] for one in tables])
    rows, count, _pointed_to = _list(places)
    out = [np.empty(count + 1, np.int64) for _ in range(5)]
    scratch = np.empty(4 * count, np.uint64)
    found = brief_up_to("lio_sources_block", count)(
        epochs,
        epoch,
        roots,
        rows,
        len(rows),
        *(pointer_to(one, "int64_t *") for one in out),
        pointer_to(scratch, "uint64_t *"),
    )
    records, order, rounds, servers, begins = out
    return records[:count], order[:count], rounds[:found], servers[:found], begins[: found + 1]


def _list(places: Sequence[PeriodicPlaces]) -> tuple[Any, int, list[Any]]:
    """Returns places as C lists them, how many there are, and what keeps their memory."""
    pointed_to, rows = [], ffi.new("lio_places[]", len(places))
    for row, (first, step, repeats, runs) in zip(rows, places, strict=True):
        bounds = [number for run in runs for number in (run.start, len(run))]
        pointed_to.append(ffi.new("uint64_t[]", bounds))
        row.first, row.step, row.repeats = first, step, repeats
        row.runs, row.count = pointed_to[-1], len(runs)
    return rows, int(lib.lio_places_count(rows, len(rows))), pointed_to


def find_round_uses(
    table: RoundTable, epoch: int, number: int, root: int, roots: int, seats: Seats
) -> tuple[I64, int, I64, I64, I64, I64]:
    """Returns what becomes of the records that a root reads for a round of an epoch.

    Returns:
        ``placement.sources.RoundUses``: int64 each, and a number.
    """
    count = int(lib.lio_sources_slice(table.pointer, number, root, roots))
    out = [np.empty(count + 1, np.int64) for _ in range(5)]
    scratch, used = np.empty(5 * count, np.uint64), ffi.new("uint64_t *")
    found = brief_up_to("lio_sources_uses", count)(
        table.pointer,
        epoch,
        number,
        root,
        roots,
        seats.pointer,
        *(pointer_to(one, "int64_t *") for one in out),
        used,
        pointer_to(scratch, "uint64_t *"),
    )
    records, order, teams, blocks, begins = out
    others = int(begins[found])
    return (
        records[:count],
        int(used[0]),
        order[:others],
        teams[:found],
        blocks[:found],
        begins[: found + 1],
    )


def find_records(
    shufflings: Sequence[Shuffling], epoch: int, places: Sequence[PeriodicPlaces]
) -> I64:
    """Returns the records at places of the endless sequence, in their order.

    Args:
        shufflings: shufflings of the epochs of the places, from number ``epoch`` on.
        places: places of the sequence, ascending.
    """
    epochs = ffi.new("lio_shuffle[]", [one.pointer[0] for one in shufflings])
    rows, count, _pointed_to = _list(places)
    records = np.empty(count, np.int64)
    find = brief_up_to("lio_sources_records", count)
    find(epochs, epoch, rows, len(rows), pointer_to(records, "int64_t *"))
    return records


def find_homes(homes: U16, records: I64) -> tuple[I64, I64, I64]:
    """Returns the rows of a block sorted by home.

    Args:
        homes: owner of each record of the data set, or ``NO_HOME``.
        records: record number of each row.

    Returns:
        The rows in that order; of each run of one home its root, -1 where it is ``NO_HOME``; and
        where each run begins, and the end of the last.
    """
    count = len(records)
    order, roots, begins = (np.empty(count + 1, np.int64) for _ in range(3))
    scratch = np.empty(2 * count, np.uint64)
    runs = brief_up_to("lio_sources_at_home", count)(
        pointer_to(homes, "uint16_t *"),
        pointer_to(records, "int64_t *"),
        count,
        *(pointer_to(one, "int64_t *") for one in (order, roots, begins)),
        pointer_to(scratch, "uint64_t *"),
    )
    return order[:count], roots[:runs], begins[: runs + 1]


def find_home_uses(
    homes: U16, root: int, seats: Seats, first: int, records: I64, takers: U32 | None = None
) -> tuple[I64, int, I64, I64, I64, I64]:
    """Returns what becomes of the records of a root's home at a run of places.

    Args:
        homes: owner of each record of the data set, or ``NO_HOME``.
        first: the first place, from the start of the sequence on.
        records: record numbers at all these places.
        takers: the team of each place; None: as the seats say.

    Returns:
        ``placement.sources.RoundUses``: int64 each, and a number.
    """
    count = len(records)
    held, order, teams, blocks, begins = (np.empty(count + 1, np.int64) for _ in range(5))
    scratch = np.empty(5 * count, np.uint64)
    here, used = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    runs = brief_up_to("lio_sources_home_uses", count)(
        pointer_to(homes, "uint16_t *"),
        root,
        seats.pointer,
        first,
        pointer_to(records, "int64_t *"),
        ffi.NULL if takers is None else pointer_to(takers, "uint32_t *"),
        count,
        *(pointer_to(one, "int64_t *") for one in (held, order, teams, blocks, begins)),
        here,
        used,
        pointer_to(scratch, "uint64_t *"),
    )
    others = int(begins[runs])
    return (
        held[: int(here[0])].copy(),
        int(used[0]),
        order[:others].copy(),
        teams[:runs].copy(),
        blocks[:runs].copy(),
        begins[: runs + 1].copy(),
    )


class OwnerTable:
    """The roots that keep each record.

    Args:
        begins: first index in ``roots`` of each record, and the last one's end, shape (records +
            1,).
        roots: roots that keep each record, one after the other.
        since: the epoch from which on others have the record of each of them.
        root_count: number of roots.
    """

    __slots__ = ("_keep", "pointer", "root_count")

    def __init__(self, begins: U32, roots: U16, since: U32, root_count: int) -> None:
        if len(roots) != len(since) or len(roots) != int(begins[-1]):
            raise ValueError(f"{len(roots)} roots, {len(since)} epochs, {int(begins[-1])} kept")
        pointed_to = [np.ascontiguousarray(one) for one in (begins, roots, since)]
        self._keep = pointed_to
        self.pointer: Any = ffi.new("lio_owners *")
        self.pointer.begins = pointer_to(pointed_to[0], "uint32_t *")
        self.pointer.roots = pointer_to(pointed_to[1], "uint16_t *")
        self.pointer.since = pointer_to(pointed_to[2], "uint32_t *")
        self.pointer.root_count = self.root_count = root_count

    def choose(self, records: I64, epoch: int, teams: U32 | int) -> U16:
        """Returns the root that each record comes from in an epoch, or ``NO_HOME``.

        Args:
            records: record numbers, below the number of records.
            teams: team that uses each record; or the one that uses all.
        """
        roots = np.empty(len(records), np.uint16)
        records = np.ascontiguousarray(records, np.int64)
        users = None if isinstance(teams, int) else np.ascontiguousarray(teams, np.uint32)
        brief_up_to("lio_sources_owners", len(records))(
            self.pointer,
            min(epoch, 2**32 - 1),
            pointer_to(records, "int64_t *"),
            len(records),
            ffi.NULL if users is None else pointer_to(users, "uint32_t *"),
            teams if isinstance(teams, int) else 0,
            pointer_to(roots, "uint16_t *"),
        )
        return roots


def find_teams(seats: Seats, places: I64) -> U32:
    """Returns the team that uses each place, counted from the start of the sequence."""
    places = np.ascontiguousarray(places, np.int64)
    teams = np.empty(len(places), np.uint32)
    brief_up_to("lio_sources_teams", len(places))(
        seats.pointer,
        pointer_to(places, "int64_t *"),
        len(places),
        pointer_to(teams, "uint32_t *"),
    )
    return teams
