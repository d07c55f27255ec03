"""How much memory a window may take, and how much its slots can need at most.

The budget counts pages of shared memory too, for they are memory (tmpfs) and count in the
job's control group. The bound is proven, not guessed: a slot sized by it can never turn out
too small in the middle of an epoch.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.system import procfs
from lmdbio.system.amounts import BYTES_MAX, parse_bytes, whole

__all__ = [
    "DEFAULT_BYTES_MAX",
    "ENVIRONMENT",
    "FootprintBound",
    "LengthBound",
    "available_bytes",
    "budget_bytes",
    "cached_bytes_max",
    "recently_available_bytes",
]

#: Upper limit of the default budget, bytes per machine.
DEFAULT_BYTES_MAX = 2_500_000_000
#: How old an answer may be that a program has not waited for.
RECENT_SECONDS = 1.0
#: Environment variable that replaces the default.
ENVIRONMENT = "LMDBIO_MEMORY_BYTES"


def _statistic(path: str, pattern: str) -> int | None:
    """The number in the line that the pattern describes."""
    found = re.search(rf"^{pattern}\b", procfs.text(path) or "", re.MULTILINE)
    return None if found is None else int(found[1])


def _groups(root: str | os.PathLike[str]) -> Iterator[tuple[str, str, str, str]]:
    """(folder, limit file, usage file, statistic of reclaimable pages) per control group.

    From the process's own group up to the mount: a limit anywhere above holds too. Inside a
    container the group's path is often not what is mounted; then only the mount's own counts.
    """
    for line in (procfs.text(f"{root}/proc/self/cgroup") or "").split("\n"):
        _, first, rest = line.partition(":")
        controllers, second, group = rest.partition(":")
        if not (first and second):
            continue  # the end, or the rest of a name with a line break in it
        if controllers == "":
            mount, files = f"{root}/sys/fs/cgroup", ("memory.max", "memory.current")
            statistic = "inactive_file"
        elif "memory" in controllers.split(","):
            mount = f"{root}/sys/fs/cgroup/memory"
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            statistic = "total_inactive_file"
        else:
            continue
        folder = f"{mount}/{group.strip('/')}".rstrip("/")
        while len(folder) > len(mount):
            yield folder, *files, statistic
            folder = folder.rpartition("/")[0].rstrip("/")
        yield mount, *files, statistic


def available_bytes(root: str | os.PathLike[str] = "") -> int:
    """Memory that this process can still get, bytes: of the machine and of its control groups.

    Args:
        root: where ``proc`` and ``sys`` are; tests put their own here.
    """
    kib = _statistic(f"{root}/proc/meminfo", r"MemAvailable:\s*([0-9]{1,20})")
    if kib is not None:
        available = kib * 1024
    else:
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for folder, limit_file, usage_file, statistic in _groups(root):
        limit = procfs.number(f"{folder}/{limit_file}")
        usage = None if limit is None else procfs.number(f"{folder}/{usage_file}")
        if limit is not None and usage is not None:
            reclaimable = _statistic(f"{folder}/memory.stat", rf"{statistic} ([0-9]{{1,20}})") or 0
            available = min(available, max(0, limit - usage + reclaimable))
    return available


#: When this machine's memory was asked for last (``time.monotonic``), and the answer.
_recent = -RECENT_SECONDS, 0


def recently_available_bytes() -> int:
    """Return ``available_bytes()``, at most ``RECENT_SECONDS`` old.

    It takes a dozen files to find out, which a program that opens a data set for each record would
    pay each time.
    """
    global _recent
    now = time.monotonic()
    if now - _recent[0] >= RECENT_SECONDS:
        _recent = now, available_bytes()
    return _recent[1]


def cached_bytes_max() -> int:
    """Return the bytes of the largest file that the page cache is asked to keep whole."""
    return recently_available_bytes() // 2


def _whole_bytes(given: Any) -> int:
    """Return an amount that is no text; 2e9 is a whole number as well."""
    is_whole = hasattr(given, "__index__") or (isinstance(given, float) and given.is_integer())
    if isinstance(given, bool) or not is_whole:
        raise TypeError(
            "memory_bytes_max must be a whole number of bytes, or text such as '2G', "
            f"not {given!r}"
        )
    return whole("memory_bytes_max", int(given), 1, BYTES_MAX)


def budget_bytes(
    memory_bytes_max: int | str | None,
    environ: Mapping[str, str] = os.environ,
    root: str | os.PathLike[str] = "",
    *,
    recent: bool = False,
) -> int:
    """The budget of one machine, bytes.

    The keyword, else ``LMDBIO_MEMORY_BYTES``, else the smaller of 2.5 GB and a quarter of
    ``available_bytes()``, or with ``recent`` of ``recently_available_bytes()``.

    Args:
        memory_bytes_max: the keyword: a number, or text as the variable has it ("2G").

    Raises:
        ValueError: not a positive amount.
        TypeError: neither a whole number nor text.
    """
    if isinstance(memory_bytes_max, str):
        return parse_bytes(memory_bytes_max, "memory_bytes_max")
    if memory_bytes_max is not None:
        return _whole_bytes(memory_bytes_max)
    text = environ.get(ENVIRONMENT)
    if text:
        return parse_bytes(text, ENVIRONMENT)
    available = recently_available_bytes() if recent else available_bytes(root)
    return min(DEFAULT_BYTES_MAX, available // 4)


class FootprintBound:
    """Bounds the bytes that any run of consecutive records can need, aligned, gaps excluded.

    A record needs the aligned pieces of the file that it touches. A run needs at most all the
    pieces of its first record and, of every other, those that the record before it does not
    need too. Sliding-window sums of the latter over the circle of records, plus the largest
    difference between the two, bound every run. Records that repeat are read once, so no set
    of records needs more than the whole circle does.

    Beyond ``CELLS`` records neighbours are summed up in cells, and a run is charged for all
    cells that it can touch.

    Args:
        count: records.
        alignment: bytes, a power of two.
    """

    CELLS = 2**22

    def __init__(self, count: int, alignment: int) -> None:
        self._alignment = alignment
        self._cell = -(-count // self.CELLS)
        self._sums: npt.NDArray[np.int64] = np.zeros(-(-count // self._cell), np.int64)
        #: Sums of all cells before each; None: to be made.
        self._before: npt.NDArray[np.int64] | None = None
        self._count, self._seen = count, 0
        self._last = (0, 0)
        self._shared_max = 0
        #: Sum of so many of the largest cells; None: to be made.
        self._largest: tuple[int, int] | None = None
        self.total = 0

    def add(self, extents: npt.NDArray[Any]) -> None:
        """Takes the extents (dtype ``EXTENT``) of the next records, in index order."""
        if not len(extents):
            return
        count = len(extents)
        if self._cell == 1:
            needed = self._sums[self._seen : self._seen + count]
        else:
            needed = np.empty(count, np.int64)
        self._last, shared_max, total = _core.footprint(
            extents, self._alignment, self._last, needed
        )
        if self._cell > 1:
            cells = np.arange(self._seen, self._seen + count) // self._cell
            starts = np.flatnonzero(np.diff(cells, prepend=-1))
            self._sums[cells[starts]] += np.add.reduceat(needed, starts)
        self._before = self._largest = None
        self._shared_max = max(self._shared_max, shared_max)
        self._seen += count
        self.total += total

    def run(self, length: int) -> int:
        """Bytes that ``length`` consecutive records of the circle need at most."""
        self._check_seen()
        if length <= 0:
            return 0
        # The last cell may be short, so a run over the seam can touch one more.
        cells = -(-(length - 1) // self._cell) + 1 + (self._cell > 1)
        if length >= self._count or cells >= len(self._sums):
            return self.total
        if self._before is None:
            self._before = np.concatenate(([0], np.cumsum(self._sums)))
        largest = _core.largest_run(self._before, cells)
        return min(self.total, largest + self._shared_max)

    def any(self, length: int) -> int:
        """Bytes that ``length`` records need at most, wherever they lie."""
        self._check_seen()
        if length <= 0:
            return 0
        if length >= len(self._sums):
            return self.total
        if self._largest is None or self._largest[0] != length:
            # Records of one cell may be the largest ones: the cell stands for each of them.
            largest = np.partition(self._sums, len(self._sums) - length)[-length:]
            self._largest = length, int(largest.sum())
        return min(self.total, self._largest[1] + length * self._shared_max)

    def _check_seen(self) -> None:
        if self._seen != self._count:
            raise RuntimeError(f"{self._seen} of {self._count} extents were seen")

    def runs(self, lengths: tuple[int, ...], repeats: int) -> int:
        """Bytes that ``repeats`` times a set of runs needs at most."""
        return min(self.total, repeats * sum(map(self.run, lengths)))


class LengthBound:
    """Bounds the bytes of any records that are copied, each rounded up to a multiple.

    It knows how many records are of each length, to one part in 64: lengths are told apart by the
    exponent of a float64 and the first bits of its fraction, rounded up.

    Args:
        alignment: bytes, to a multiple of which each record is rounded up.
    """

    #: Bits of a float64's fraction that lengths are not told apart by; and those of one half.
    BITS, NONE = 46, int(np.float64(0.5).view(np.int64))

    def __init__(self, alignment: int) -> None:
        self._alignment = alignment
        self._counts: npt.NDArray[np.int64] = np.zeros(1, np.int64)

    def add(self, extents: npt.NDArray[Any]) -> None:
        """Takes the extents (dtype ``EXTENT``) of more records."""
        if not len(extents):
            return
        alignment = np.uint64(self._alignment)
        lengths = (extents["length"] + alignment - np.uint64(1)) // alignment * alignment
        up = (1 << self.BITS) - 1 - self.NONE
        codes = (lengths.astype(np.float64).view(np.int64) + up) >> self.BITS
        counts = np.bincount(np.maximum(codes, 0), minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        self._counts = counts

    def any(self, count: int) -> int:
        """Bytes that ``count`` of the records need at most."""
        codes = np.arange(len(self._counts))[::-1]
        lengths = ((codes << self.BITS) + self.NONE).view(np.float64)
        lengths[-1] = 0  # of those that have none
        before = np.cumsum(self._counts[::-1])
        taken = np.diff(np.minimum(before, count), prepend=0)
        return int(np.ceil((taken * lengths).sum()))
