"""report: what a program read of each file, and what a change would gain, from facts alone. Pure.

Advice is given only where a count or a measurement says that it holds, and names it. No gain is
named that nobody has measured; a file that the storage had no part in is called so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lmdbio.observe.ledger import Facts, FileState, Line

__all__ = ["FileReport", "Report", "Way", "advise"]

#: From this share of a file on, its page cache is said to have had all of it.
CACHED_SHARE = 0.99
#: Of so many records on, a request for each of so large a share of them is a habit.
HABIT_RECORDS, HABIT_SHARE = 100, 0.5


@dataclass(frozen=True, slots=True)
class Way:
    """A way in which a file was read, and the sum of what was read so."""

    facts: Facts
    line: Line


@dataclass(frozen=True, slots=True)
class FileReport:
    """A file that a program opened.

    Attributes:
        file: absolute.
        ways: ways in which it was read.
        before, after: state of the file when it was first opened, and at the end; None: not known.
        is_unwritten: whether it was opened for writing, and nothing was committed.
        gain: gain where lmdbio reads instead of py-lmdb, as far as it is known, in words.
        measured: result of ``lmdbio tune`` for its storage, in words; "": nothing.
    """

    file: str
    ways: tuple[Way, ...]
    before: FileState | None
    after: FileState | None
    is_unwritten: bool
    gain: str
    measured: str

    @property
    def was_cached(self) -> bool:
        """Whether the page cache had all of it from the first."""
        before = self.before
        if before is None or before.cached_bytes is None:
            return False
        return before.cached_bytes >= CACHED_SHARE * before.bytes


@dataclass(frozen=True, slots=True)
class Report:
    """All that a program read.

    Attributes:
        seconds: duration of the run.
        rank: rank in its job; None: none started it.
        storage_bytes: size of what the kernel brought from storage for all that is counted, of
            whatever file; None: it does not say.
        forked, counted: processes forked from this one, and processes besides it in this report.
        spawns: processes were spawned, which are not.
        files: reports of the files that were opened.
    """

    seconds: float
    rank: int | None
    storage_bytes: int | None
    forked: int
    counted: int
    spawns: bool
    files: tuple[FileReport, ...]


def advise(file: FileReport) -> list[str]:
    """Return what a change would gain with a file, a sentence or two each."""
    told = [text for way in file.ways for text in _advise(file, way)]
    if file.was_cached and any(way.line.stats.records for way in file.ways):
        told.append(
            "The page cache had all of it: the storage had no part in how fast it was read."
        )
    return told


def _advise(file: FileReport, way: Way) -> Iterator[str]:
    facts, stats = way.facts, way.line.stats
    if facts.surface == "lmdb.open" and file.is_unwritten:
        more = f"; {file.measured}" if file.measured else ""
        yield (
            "It was opened for writing, and nothing was written, so py-lmdb read it: "
            "lmdbio run --readonly, or readonly=True in the program, lets lmdbio read: "
            f"{file.gain}{more}."
        )
    if facts.located_by == "scan":
        yield (
            f"Its tree was walked when it was opened, {stats.page_bytes:,} bytes in "
            f"{stats.page_requests:,} requests: lmdbio convert writes a provenance file, which "
            "saves most of that."
        )
    asks_singly = stats.records >= HABIT_RECORDS and stats.requests >= HABIT_SHARE * stats.records
    if facts.surface == "lmdbio.open" and asks_singly and not file.was_cached:
        known = file.measured or "lmdbio tune measures what that gains on its storage"
        yield (
            f"{stats.records:,} records took {stats.requests:,} requests, one after the other: "
            "where their order is known ahead, lmdbio.Records.batches keeps many in flight "
            f"({known})."
        )
