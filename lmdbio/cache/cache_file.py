"""One cache file, open and locked: taken again from an earlier job, or made; written, and checked.

    folder -> a file of this data set that no job has open -> locked
           -> of this state: its pages and sums are taken over; else it is emptied
    pages in memory -> written -> their sums -> written: in this order, so that a page whose sum is
                       there is a whole page, or is found not to be

The lock is of the open file (flock), and ends with it: a job that is killed leaves none. A child
that it has forked has neither the file nor the lock.

Source: HDMLP thesis (Dryden et al.), the tiers of a node; LBANN's data store.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.layout import HEADER_BYTES, PAGE_BYTES, SUFFIX, SUM_BYTES, Header, read_sums
from lmdbio.cache.source import SourceState
from lmdbio.system import fork
from lmdbio.system.log import log
from lmdbio.system.posix import OPEN_FLAGS, fcntl

__all__ = ["NUMBERS_MAX", "CacheFile", "lock"]

#: Files of one data set in one folder, at most: jobs that run at once, times their roots here.
NUMBERS_MAX = 10_000
#: A list of a folder locks each file for a moment.
LOCK_TRIES, LOCK_SECONDS = 3, 0.01


def lock(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file; return whether nobody else has.

    Args:
        kind: LOCK_EX, or LOCK_SH, which several have at once.

    Raises:
        OSError: the file system has no locks.
    """
    for left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                raise
        if left:
            time.sleep(LOCK_SECONDS)
    return False


class CacheFile:
    """A cache file that this process alone writes. Made by ``take``.

    Args:
        path: path of the file.
        file: descriptor, open and locked.
        header: header that stands in it, or is to.
        is_new: whether there was nothing of this state in it.

    Attributes:
        path: path of the file.
        header: header of the file; its range is that of ``keep``.
    """

    def __init__(self, path: str, file: _core.Descriptor, header: Header, *, is_new: bool) -> None:
        self.path, self.header, self._file, self._is_new = path, header, file, is_new
        # A disk may not answer for long: the descriptor's number must not be another file's before
        # the write has ended that uses it.
        self._guard, self._is_written, self._is_over = threading.Lock(), False, False
        fork.register(self)

    def _after_fork(self) -> None:
        # The file and its lock are the parent's: they end with it, whatever the child does.
        self._guard, self._is_written, self._is_over = threading.Lock(), False, True
        self._file.close()

    @property
    def _fd(self) -> int:
        return self._file.fd

    # --- taking one

    @classmethod
    def take(
        cls, folder: Path, source: SourceState, numbers: Iterable[int] | None = None
    ) -> CacheFile:
        """Take a file of a folder that no job has open, or a new one, and lock it.

        Args:
            folder: folder that exists.
            source: the data file, in its state now.
            numbers: numbers that its name may have, best first; jobs that have roots side by side
                give each other ones. None: any.

        Raises:
            OSError: the folder is none, cannot be written to, or has no locks.
        """
        folder = folder.absolute()  # the process may change its own before the file is closed
        stem, numbers = source.stem, range(NUMBERS_MAX) if numbers is None else numbers
        names = [f"{stem}-{number}{SUFFIX}" for number in numbers]
        there = {path.name for path in folder.iterdir()}
        of_another_state: CacheFile | None = None
        for name in names:
            found = cls._open(folder / name, source, 0) if name in there else None
            if found is None:
                continue
            if not found._is_new:
                if of_another_state is not None:
                    of_another_state.close()
                return found
            if of_another_state is None:
                of_another_state = found
            else:
                found.close()
        if of_another_state is not None:
            return of_another_state
        for name in names:
            if name in there:
                continue
            made = cls._open(folder / name, source, os.O_CREAT | os.O_EXCL)
            if made is not None:
                return made
        raise OSError(errno.EMFILE, f"jobs have all {len(names)} cache files open", str(folder))

    @classmethod
    def _open(cls, path: Path, source: SourceState, flags: int) -> CacheFile | None:
        """Open and lock a file; None: another job has it, or has made or removed it meanwhile.

        None also for what is another user's, or no regular file.
        """
        try:
            file = _core.Descriptor(path, flags | OPEN_FLAGS | os.O_RDWR, 0o644)
        except FileExistsError:
            return None
        except OSError:
            if flags & os.O_CREAT:
                raise
            return None
        try:
            is_file = stat.S_ISREG(os.fstat(file.fd).st_mode)
            if not is_file or not lock(file.fd) or os.fstat(file.fd).st_nlink == 0:
                return None
            if flags & os.O_CREAT:
                return cls(str(path), file, Header(source), is_new=True)
            try:
                found = Header.read(file.fd)
                if found.source != source:
                    raise ValueError("the data file has changed since")
                return cls(str(path), file, found, is_new=False)
            except ValueError as error:
                log(f"{path}: is filled anew: {error}")
                return cls(str(path), file, Header(source), is_new=True)
        except BaseException as error:
            file.close()
            if isinstance(error, OSError):
                error.filename = str(path)
            raise

    # --- what it keeps

    @property
    def left(self) -> int | None:
        """Where the part ends that an earlier job has left in it, bytes; None: there is none."""
        is_empty = self._is_new or self.header.first == self.header.end
        return None if is_empty else self.header.end * PAGE_BYTES

    @property
    def disk_bytes(self) -> int:
        """Bytes that it takes on the disk."""
        return os.fstat(self._fd).st_blocks * 512

    @property
    def free_bytes(self) -> int:
        """Bytes that are free on the disk."""
        system = os.fstatvfs(self._fd)
        return system.f_bavail * system.f_frsize

    def reserve(self) -> None:
        """Make sure that there is room for the header, at least.

        Raises:
            OSError: there is none.
        """
        if self._is_new:
            with self._named():
                os.ftruncate(self._fd, 0)
                self._write(memoryview(self.header.pack()), 0)

    def keep(self, first: int, end: int) -> npt.NDArray[np.uint32]:
        """Say which pages it is to keep, and give the room of all others back.

        Args:
            first, end: numbers of pages.

        Returns:
            The sums of these pages, 0 where one is not there, uint32, shape (end - first,).

        Raises:
            OSError: it cannot be written.
        """
        before, self.header = self.header, replace(self.header, first=first, end=end)
        if not self._is_new:
            try:
                self._release(before)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # the file system makes no holes
                    raise
                log(f"{self.path}: is filled anew: {error.strerror}")
                self._is_new = True
        with self._named():
            if self._is_new:
                os.ftruncate(self._fd, HEADER_BYTES)  # whose room it keeps
            os.ftruncate(self._fd, self.header.size)
            self._write(memoryview(self.header.pack()), 0)
            if self._is_new:
                return np.zeros(end - first, np.uint32)
            return read_sums(self._fd, first, end)

    def _release(self, before: Header) -> None:
        """Give back the room of pages, and their sums, that it kept and is to keep no more."""
        first, end = self.header.first, self.header.end
        parts = (before.first, min(before.end, first)), (max(before.first, end), before.end)
        for low, high in parts:
            if low >= high:
                continue
            begin, size = Header.sum_offset(low), SUM_BYTES * (high - low)
            _core.release_range(self._fd, begin, size, self.path)
            offset = self.header.data_offset + low * PAGE_BYTES
            _core.release_range(self._fd, offset, (high - low) * PAGE_BYTES, self.path)

    def write(self, memory: memoryview, page: int, sums: npt.NDArray[np.uint32]) -> None:
        """Write pages, and then their sums; for one thread.

        Args:
            memory: memory of whole pages.
            page: number of the first one.
            sums: sums of the pages.

        Raises:
            OSError: they do not fit the disk, or it fails.
        """
        with self._guard:
            if self._is_over:
                raise OSError(errno.EBADF, "it is closed", self.path)
            self._is_written = True
        try:
            with self._named():
                self._write(memory, self.header.data_offset + page * PAGE_BYTES)
                self._write(sums.data.cast("B"), Header.sum_offset(page))
        finally:
            with self._guard:
                self._is_written = False
                if self._is_over:
                    self._close()

    def open_engine(self, depth: int) -> _core.Engine:
        """Return an engine that reads the file, also when another one has its name by now.

        Raises:
            OSError, MemoryError: it cannot be opened.
        """
        engine = _core.Engine(self.path, "pread", depth, opened=f"/proc/self/fd/{self._fd}")
        with contextlib.suppress(OSError):  # advice
            os.posix_fadvise(engine.fd, 0, 0, os.POSIX_FADV_RANDOM)
        return engine

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Have errors say the path of the file."""
        try:
            yield
        except OSError as error:
            error.filename = self.path
            raise

    def _write(self, memory: memoryview, offset: int) -> None:
        while len(memory):
            written = os.pwrite(self._fd, memory, offset)
            if written == 0:
                raise OSError(errno.EIO, "nothing was written")
            memory, offset = memory[written:], offset + written

    def close(self) -> None:
        """Unlock and close it, and remove it if nothing was ever kept. May be called twice.

        While another thread writes, that one closes it at its end.
        """
        with self._guard:
            self._is_over = True
            if not self._is_written:
                self._close()

    def _close(self) -> None:
        if self._fd < 0:
            return
        if self._is_new and self.header.first == self.header.end:
            with contextlib.suppress(OSError):
                Path(self.path).unlink()
        with contextlib.suppress(OSError):  # a child that C has forked may have it open too
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._file.close()
