"""Puts files out of the page cache, so that who reads them has to wait for the storage.

The kernel keeps a page that somebody has mapped: this process forgets first what it maps of it.
Where another process maps it, or a file system has no other place for it (tmpfs), it stays.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from lmdbio import _core
from lmdbio.bench.measure import resident_share

MADV_DONTNEED = 4
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAPPED = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) (\d+) ")
_libc = ctypes.CDLL(None, use_errno=True)


def put_out(file: Path, pages: Iterable[int] | None = None) -> None:
    """Put pages of a file (None: all) out of the page cache; no other thread unmaps it then."""
    collects = gc.isenabled()
    gc.disable()  # what it unmaps might be other memory by the time that it is forgotten
    try:
        for address, size in _mapped(file):
            failed = _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), MADV_DONTNEED)
            # A thread that ends may have unmapped it since: then nothing is to be forgotten.
            if failed and ctypes.get_errno() != errno.ENOMEM:
                raise OSError(ctypes.get_errno(), f"madvise of {file}")
    finally:
        if collects:
            gc.enable()
    with file.open("rb") as opened:
        if pages is None:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for page in pages or ():
            start = page * PAGE_BYTES
            os.posix_fadvise(opened.fileno(), start, PAGE_BYTES, os.POSIX_FADV_DONTNEED)


def cached_bytes(file: Path) -> int:
    """Return how many bytes of a file are in the page cache."""
    with _core.Engine(str(file)) as engine:
        found = engine.cached_bytes()
    if found is None:  # the kernel is older than that call
        return round(resident_share(file) * file.stat().st_size)
    return found


def why_warm(folder: Path) -> str:
    """Return why files of a folder cannot be put out of the page cache; "": they can.

    By a file that is written, put out, read, and put out again.
    """
    with tempfile.NamedTemporaryFile(dir=folder) as made:
        file = Path(made.name)
        made.write(bytes(64 * PAGE_BYTES))
        made.flush()
        os.fsync(made.fileno())
        there = []
        for act in (put_out, Path.read_bytes, put_out):
            act(file)
            there.append(cached_bytes(file))
    if there == [0, 64 * PAGE_BYTES, 0]:
        return ""
    return (
        f"{folder}: of a file that was put out, read, and put out again {there} bytes are in the "
        "page cache: a folder on a disk is needed (TMPDIR), tmpfs keeps all"
    )


def _mapped(file: Path) -> Iterator[tuple[int, int]]:
    """Yield address and bytes of each place where this process can read the file as it is."""
    status = file.stat()
    device = os.major(status.st_dev), os.minor(status.st_dev)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        found = _MAPPED.match(line)
        if found is None or int(found[6]) != status.st_ino:
            continue
        if (int(found[4], 16), int(found[5], 16)) == device and found[3] == "r--s":
            yield int(found[1], 16), int(found[2], 16) - int(found[1], 16)
