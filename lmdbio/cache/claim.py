"""claim: the cache file of one process or root of a job, and how many bytes it may hold.

    state of the data file, number in the job -> a file of that number, locked -> room on its disk

Processes of a job leave each other theirs: each takes files of its own number, and of numbers that
larger jobs alone have; one that is alone on its machine takes any.
"""

from __future__ import annotations

import errno
from pathlib import Path

from lmdbio.cache.cache_file import NUMBERS_MAX, CacheFile
from lmdbio.cache.source import SourceState
from lmdbio.errors import Error
from lmdbio.locate.open_database import OpenDatabase
from lmdbio.remote import label
from lmdbio.system.log import WARNING, log

__all__ = ["claim", "room_on_disk", "state_of"]

#: So much of what is free on a disk is taken where nothing is said: a half.
DISK_PART = 2
#: Jobs of which each has a file of its own in one folder, at most.
JOBS_MAX = 1000
#: Less than this part of a cache file is header and sums.
SUM_PART = 512


def state_of(opened: OpenDatabase) -> SourceState:
    """Return the state of an open data set.

    Raises:
        Error: it was written to since.
        OSError: it cannot be read.
    """
    state = SourceState.of(opened.locations, opened.identity, opened.metas())
    if not opened.is_newest():
        raise Error(f"{label(opened.locations[0])}: was written to while it was opened")
    return state


def claim(
    folder: Path, source: SourceState, number: int, count: int, asker: str, *, is_alone: bool
) -> CacheFile | None:
    """Take a cache file in a folder; None: its disk has no room for one.

    Args:
        folder: folder that exists.
        source: the data file.
        number: number of this process in its job.
        count: number of processes that may take one.
        asker: name of the option or variable that gives the folder, for errors.
        is_alone: whether the process is the only one on this machine.

    Raises:
        OSError: the folder is not there, or cannot be written to.
    """
    numbers = list(range(number, number + count * JOBS_MAX, count))
    if is_alone:
        numbers += sorted(set(range(NUMBERS_MAX)) - set(numbers))
    try:
        file = CacheFile.take(folder, source, numbers)
    except OSError as error:
        name = error.filename or str(folder)
        raise type(error)(error.errno, f"{asker}: {error.strerror}", name) from error
    try:
        file.reserve()
    except OSError as error:
        file.close()
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log(f"{file.path}: nothing is kept on this disk: {error.strerror}", WARNING)
        return None
    except BaseException:
        file.close()
        raise
    return file


def room_on_disk(file: CacheFile, asked: int | None, sharers: int) -> int:
    """Return how many bytes of the data file a cache file may keep.

    Args:
        asked: size of all cache files of a process, bytes; None: half of what is free.
        sharers: processes that use this disk.
    """
    there = file.disk_bytes
    free = file.free_bytes // sharers + there
    free -= free // SUM_PART
    # Pages that an earlier job has left stay, however little is free besides.
    room = max(free // DISK_PART, there) if asked is None else min(asked, free)
    if asked is not None and room < asked:
        log(f"{file.path}: the disk has room for {room >> 20} of {asked >> 20} MiB")
    return room
