"""How much memory a process may take.

The budget counts pages of shared memory too, for they are memory (tmpfs) and count in the
job's control group.
"""

from __future__ import annotations

import os
import time

from lmdbio.system import procfs
from lmdbio.system.amounts import BYTES_MAX, parse_bytes, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

__all__ = [
    "DEFAULT_BYTES_MAX",
    "ENVIRONMENT",
    "available_bytes",
    "budget_bytes",
    "cached_bytes_max",
    "control_groups",
    "recently_available_bytes",
]

#: Upper limit of the default budget, bytes per machine.
DEFAULT_BYTES_MAX = 2_500_000_000
#: How old an answer may be that a program has not waited for.
RECENT_SECONDS = 1.0
#: Environment variable that replaces the default.
ENVIRONMENT = "LMDBIO_MEMORY_BYTES"


def control_groups(root: str | os.PathLike[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield folder, limit file, usage file, statistic of reclaimable pages per control group.

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
        root: folder of ``proc`` and ``sys``; tests put their own here.
    """
    kib = procfs.statistic(f"{root}/proc/meminfo", "MemAvailable:")
    if kib is not None:
        available = kib * 1024
    elif "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()):
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:  # macOS, Windows
        available = 4 * DEFAULT_BYTES_MAX
    for folder, limit_file, usage_file, statistic in control_groups(root):
        limit = procfs.number(f"{folder}/{limit_file}")
        usage = None if limit is None else procfs.number(f"{folder}/{usage_file}")
        if limit is not None and usage is not None:
            reclaimable = procfs.statistic(f"{folder}/memory.stat", f"{statistic} ") or 0
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
