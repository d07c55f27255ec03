"""The real cost of a run, and the machine it ran on.

Counters are read before and after the timed part, by the process that does the reading:

    cpu        user + system seconds of the process, all threads (getrusage)
    fetched    bytes the process made the kernel fetch from storage (/proc/self/io read_bytes)
    faults     major faults: a thread stood still until a page was there
    calls      read system calls (/proc/self/io syscr)
    device     requests and bytes the block device served meanwhile, for whomever
    switches   times the process gave the processor up, or lost it (getrusage)
    peak       memory that the process had at most, over what it had before (VmHWM): of its own,
               shared with others, and mapped from files

A figure is called cold only if the data file was seen to be out of the page cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import re
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmdbio.machine.page_reporting import is_felt, reported_order
from lmdbio.machine.storage import inspect_folder
from lmdbio.provenance import find_sidecar
from lmdbio.system import procfs

__all__ = [
    "Machine",
    "Sample",
    "drop_all",
    "drop_cache",
    "drop_file",
    "machine",
    "resident_share",
    "switches",
    "timed",
]

#: A file with less than this share in the page cache is cold.
COLD_SHARE_MAX = 0.01


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the storage that a figure depends on."""

    system: str
    cpu: str
    cores: int
    memory_bytes: int
    python: str
    file_system: str
    device: str
    read_ahead_kb: int | None
    can_drop_cache: bool
    reported_order: int | None = None

    @property
    def facts(self) -> dict[str, str]:
        """Machine and storage in words."""
        ahead = "unknown" if self.read_ahead_kb is None else f"{self.read_ahead_kb:,} KiB"
        scatter = ""
        if is_felt(self.reported_order):
            scatter = (
                "; it hands freed memory back to its host (free page reporting), so that cold "
                "figures scatter two- to fourfold: lmdbio doctor names the remedy"
            )
        return {
            "machine": f"{self.cpu}, {self.cores} cores, {self.memory_bytes / 2**30:.0f} GiB, "
            f"{self.system}, Python {self.python}{scatter}",
            "storage": f"{self.file_system} on {self.device}, kernel readahead {ahead}",
        }


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed run. Times in seconds, sizes in bytes; None: not known on this machine."""

    seconds: float
    cpu_seconds: float
    records: int
    value_bytes: int
    fetched_bytes: int | None
    read_calls: int | None
    major_faults: int
    device_requests: int | None
    device_bytes: int | None
    cold: bool
    peak_bytes: int | None = None


def device_of(path: Path) -> str:
    """MAJOR:MINOR of the file system that holds ``path``."""
    number = path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def cpu_name() -> str:
    names = re.findall(r"model name\s*: (.+)", procfs.text("/proc/cpuinfo") or "")
    return names[0].strip() if names else platform.processor() or platform.machine()


def machine(path: Path) -> Machine:
    """Describes this machine and the storage under ``path``."""
    storage = inspect_folder(path if path.is_dir() else path.resolve().parent)
    readahead = procfs.number(f"/sys/class/bdi/{device_of(path)}/read_ahead_kb")
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        cpu=cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
        file_system=storage.file_system or "unknown",
        device=storage.source or "unknown",
        read_ahead_kb=readahead,
        can_drop_cache=os.access("/proc/sys/vm/drop_caches", os.W_OK),
        reported_order=reported_order(),
    )


def resident_share(path: Path) -> float:
    """The share of a file that is in the page cache, 0 to 1 (mincore; touches nothing).

    A file system whose files cannot be mapped (ENODEV) reads them past the page cache.
    """
    size = path.stat().st_size
    if size == 0:
        return 0.0
    try:
        return _mapped_share(path, size)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return 0.0


def _mapped_share(path: Path, size: int) -> float:
    pages = -(-size // mmap.PAGESIZE)
    seen = np.ones(pages, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as mapped:
        # The array lends its address and must be gone before the mapping can be closed.
        array = np.frombuffer(mapped, np.uint8)
        address = ctypes.c_void_p(array.ctypes.data)
        failed = libc.mincore(address, ctypes.c_size_t(size), ctypes.c_void_p(seen.ctypes.data))
        del array
    return 1.0 if failed else float(np.mean(seen & 1))


def drop_file(path: Path) -> bool:
    """Puts this file alone out of the page cache if it can; says whether it is out now."""
    with path.open("rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_share(path) < COLD_SHARE_MAX


def drop_cache(path: Path) -> bool:
    """Puts a file out of the page cache if it can, and the provenance file that it may have; says
    whether it is out now.

    No others, where that does: they keep what they have there.
    """
    sidecar = find_sidecar(path)
    if sidecar.is_file():
        drop_file(sidecar)
    return drop_file(path) or drop_all(path)


def drop_all(path: Path) -> bool:
    """Puts a file and, as root, all else out of the page cache; says whether the file is out."""
    drop_file(path)
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")
    return resident_share(path) < COLD_SHARE_MAX


def process_counters() -> dict[str, int]:
    """/proc/self/io as numbers; empty where the kernel does not count."""
    lines = (procfs.text("/proc/self/io") or "").splitlines()
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines)}


def status_bytes(name: str) -> int | None:
    """A line of /proc/self/status that is a size."""
    kib = procfs.statistic("/proc/self/status", f"{name}:")
    return None if kib is None else kib * 1024


def begin_peak() -> int | None:
    """Forgets the most memory that this process ever had; returns what it has now.

    None where the kernel cannot forget it.
    """
    try:
        # Source: proc(5), clear_refs: 5 sets VmHWM to VmRSS.
        Path("/proc/self/clear_refs").write_text("5\n", encoding="ascii")
    except OSError:
        return None
    return status_bytes("VmRSS")


def switches() -> int:
    """Context switches of this process up to now, asked for or not."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw + used.ru_nivcsw


def device_counters(path: Path) -> tuple[int, int] | None:
    """Requests and bytes read by the block device under ``path``; None without one."""
    text = procfs.text(f"/sys/dev/block/{device_of(path)}/stat")
    if text is None:
        return None
    fields = text.split()
    return int(fields[0]), int(fields[2]) * 512


def timed(read: Callable[[], tuple[int, int]], path: Path, *, cold: bool) -> Sample:
    """Runs ``read`` once and says what it cost.

    Args:
        read: function that returns the records and the bytes of values that it handed out.
        path: the data file.
        cold: result of ``drop_cache`` just before.
    """
    device, base = device_counters(path), begin_peak()
    before, used = process_counters(), resource.getrusage(resource.RUSAGE_SELF)
    begun = time.perf_counter()
    records, value_bytes = read()
    seconds = time.perf_counter() - begun
    now, after = resource.getrusage(resource.RUSAGE_SELF), process_counters()
    served, peak = device_counters(path), status_bytes("VmHWM")
    return Sample(
        seconds=seconds,
        cpu_seconds=now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime,
        records=records,
        value_bytes=value_bytes,
        fetched_bytes=difference(before, after, "read_bytes"),
        read_calls=difference(before, after, "syscr"),
        major_faults=now.ru_majflt - used.ru_majflt,
        device_requests=served[0] - device[0] if device and served else None,
        device_bytes=served[1] - device[1] if device and served else None,
        cold=cold,
        peak_bytes=max(0, peak - base) if peak is not None and base is not None else None,
    )


def difference(before: dict[str, int], after: dict[str, int], name: str) -> int | None:
    return after[name] - before[name] if name in before and name in after else None
