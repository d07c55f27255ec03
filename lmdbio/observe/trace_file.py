"""Name a process's trace file, and write it so that it is whole after every write.

NAME.json | NAME.r3.json (a rank) | NAME.p1234.json (a child, or the name was in use)
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["TraceFile", "file_name", "launched_rank"]

#: Where launchers say which rank a process is.
RANK_VARIABLES = (
    "PMIX_RANK",
    "PMI_RANK",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
)


def launched_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return this process's rank of a job, as its launcher says; None without one."""
    for name in RANK_VARIABLES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None


def file_name(template: str, *, rank: int | None, pid: int, alone: bool) -> str:
    """Name the file of one process.

    Args:
        template: name of the file, with or without ``%p`` and ``%r``; ``%%`` is a per cent sign.
        rank: None without a job.
        alone: False: another process writes the file that it would be without a ``%p``.
    """
    given = set(re.findall(r"%([pr%])", template))
    known = {"p": str(pid), "r": str(rank or 0), "%": "%"}
    name = re.sub(r"%([pr%])", lambda match: known[match[1]], template)
    if rank is not None and not given & {"p", "r"}:
        name = _insert(name, f"r{rank}")
    if not alone and "p" not in given:
        name = _insert(name, f"p{pid}")
    return name


def _insert(name: str, part: str) -> str:
    stem, suffix = os.path.splitext(name)  # noqa: PTH122
    return f"{stem}.{part}{suffix}"


class TraceFile:
    """Holds events in a file that is whole JSON after every write.

    Locked as long as it is open, so that processes that were given one name find out.

    Args:
        path: path of the file, which is overwritten.
        facts: facts that the file says about itself.

    Raises:
        BlockingIOError: another process writes there.
        OSError: it cannot be written.
    """

    TRAILER = b"\n]}\n"

    def __init__(self, path: str, facts: Mapping[str, Any]) -> None:
        self.path, self._at, self._empty = path, 0, True
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
            head = f'{{"displayTimeUnit":"ms","otherData":{json.dumps(facts)},"traceEvents":[\n'
            self._write(head.encode())
        except BaseException:
            os.close(self._fd)
            raise

    def fits(self, events: Sequence[str], size_bytes_max: int) -> bool:
        """Return whether the file with these events stays within a size."""
        return self._at + sum(map(len, events)) + 2 * len(events) <= size_bytes_max

    def append(self, events: Sequence[str]) -> None:
        """Write events. After an error the file is what it was before."""
        if not events:
            return
        try:
            self._write((("" if self._empty else ",\n") + ",\n".join(events)).encode())
        except OSError:
            os.ftruncate(self._fd, self._at)
            os.pwrite(self._fd, self.TRAILER, self._at)
            raise
        self._empty = False

    def _write(self, data: bytes) -> None:
        rest, at = memoryview(data + self.TRAILER), self._at
        while rest:
            written = os.pwrite(self._fd, rest, at)
            rest, at = rest[written:], at + written
        os.ftruncate(self._fd, at)
        self._at += len(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
