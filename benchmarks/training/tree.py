"""Counts what a process and all that it has started use: processor time, memory of their own.

Memory is the proportional share of what is anonymous or lies in /dev/shm (Pss_Anon and Pss_Shmem
of /proc/PID/smaps_rollup): pages that a fork shares count once. Mapped files are the page
cache's, and are not counted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

__all__ = ["cpu_seconds", "memory_bytes", "shared_files", "strays"]

SHARED = Path("/dev/shm")
COUNTED = ("Pss_Anon:", "Pss_Shmem:")


def _members(root: psutil.Process) -> Iterator[psutil.Process]:
    yield root
    with contextlib.suppress(psutil.Error):
        yield from root.children(recursive=True)


def cpu_seconds(root: psutil.Process) -> float:
    """Return the processor seconds of a tree up to now, those of children that ended included."""
    total = 0.0
    for member in _members(root):
        with contextlib.suppress(psutil.Error):
            total += sum(member.cpu_times()[:4])  # own and children's, user and system
    return total


def memory_bytes(root: psutil.Process) -> int:
    """Return the memory of a tree's own; processes that ended meanwhile have none."""
    total = 0
    for member in _members(root):
        with contextlib.suppress(OSError, psutil.Error):
            text = Path(f"/proc/{member.pid}/smaps_rollup").read_text(encoding="ascii")
            total += sum(
                int(line.split()[1]) << 10
                for line in text.splitlines()
                if line.startswith(COUNTED)
            )
    return total


def shared_files() -> set[str]:
    """Return the names of what lies in /dev/shm and is this user's."""
    found = set()
    for path in SHARED.rglob("*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid == os.getuid():
                found.add(str(path))
    return found


def strays(before: set[str]) -> list[str]:
    """Return what lies in /dev/shm, lay not there before, and belongs to nobody who lives.

    Args:
        before: what lay there.
    """
    new = shared_files() - before
    if not new:
        return []
    held: set[str] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            held.update(file.path for file in process.open_files())
            held.update(mapped.path for mapped in process.memory_maps())
    return sorted(new - held)
