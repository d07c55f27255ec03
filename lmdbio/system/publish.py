"""drafts: what is written beside its goal, and becomes it whole or vanishes.

    .lmdbio-MARK-CHANCE.tmp  --- publish --->  goal
                             --- anything else, or the next run for the goal --->  nothing

A draft is a file, or a folder with one file in it. MARK stands for the goal's name.

Invariants:
  - the goal is what it was until the draft has its name, which the kernel gives at once;
  - a draft is locked as long as its writer lives: one that can be locked is a dead run's, and is
    removed by the next run for the same goal. Where the file system has no locks, none is.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from pathlib import Path
from types import TracebackType

from lmdbio.system.log import log
from lmdbio.system.posix import fcntl

__all__ = ["Draft", "has_name", "refuse_taken", "sync_folder", "try_lock", "unwritable"]


class Draft:
    """A draft, open for writing. Leaving the ``with`` block removes what was not published.

    Args:
        target: the goal.
        what: description of the draft, for messages.
        inside: the name of the file in a folder that becomes the goal; None: a file does.
        hint: advice where it can't be written; ends messages.

    Attributes:
        target: the goal.
        path: the file that is written. Others may write to it, too.

    Raises:
        OSError: it can't be made there.
    """

    def __init__(
        self, target: Path, what: str = "the file", *, inside: str | None = None, hint: str = ""
    ) -> None:
        self.target, self._what, self._inside, self._hint = target, what, inside, hint
        mark = hashlib.blake2b(os.fsencode(target.name), digest_size=8).hexdigest()
        self._prefix = f".lmdbio-{mark}-"
        self._place = self.path = target  # until there is one
        self._fds: list[int] = []  # the first one is locked, the last one is the file's
        try:
            self._sweep()
            while not self._make():
                pass
        except BaseException as e:
            self._remove()
            if isinstance(e, OSError):
                raise self._unwritable(e) from e
            raise

    def _sweep(self) -> None:
        """Removes what dead runs left."""
        pattern = re.compile(re.escape(self._prefix) + r"[0-9a-f]{16}\.tmp")
        for left in self.target.parent.iterdir():
            if pattern.fullmatch(left.name) is None:
                continue
            with contextlib.suppress(OSError):
                access = os.O_RDONLY if left.is_dir() else os.O_RDWR
                fd = os.open(left, access | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if try_lock(fd):
                        _discard(left)
                finally:
                    os.close(fd)

    def _make(self) -> bool:
        """Makes it, and locks it; False: a sweeper came between the two."""
        self._place = self.target.parent / f"{self._prefix}{secrets.token_hex(8)}.tmp"
        self.path = self._place if self._inside is None else self._place / self._inside
        if self._inside is None:
            self._open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        else:
            self._place.mkdir()
            with contextlib.suppress(FileNotFoundError):
                self._open(self._place, os.O_RDONLY | os.O_DIRECTORY)
        is_locked = bool(self._fds) and try_lock(self._fds[0]) is not False
        if not is_locked or not has_name(self._fds[0], self._place):
            self._close()
            return False
        if self._inside is not None:
            self._open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        return True

    def _open(self, path: Path, flags: int) -> None:
        # At once: a signal's handler may raise before the line after a call.
        self._fds.extend(map(os.open, (path,), (flags | os.O_CLOEXEC,), (0o666,)))

    def write(self, content: bytes | memoryview, offset: int) -> None:
        """Write all of the content at an offset of the draft, bytes."""
        view = memoryview(content)
        try:
            while view:
                written = os.pwrite(self._fds[-1], view, offset)
                view, offset = view[written:], offset + written
        except OSError as e:
            raise self._unwritable(e) from e

    def read(self, length: int, offset: int) -> bytes:
        """Return bytes that were written."""
        content = bytearray()
        while len(content) < length:
            part = os.pread(self._fds[-1], length - len(content), offset + len(content))
            if not part:
                raise OSError(errno.EIO, "the draft was cut by somebody else", str(self.path))
            content += part
        return bytes(content)

    def cut(self, size: int) -> None:
        """Makes the file ``size`` bytes long."""
        try:
            os.ftruncate(self._fds[-1], size)
        except OSError as e:
            raise self._unwritable(e) from e

    def sync(self) -> None:
        """Returns when what was written is on the disk."""
        try:
            for fd in reversed(self._fds):
                os.fsync(fd)
        except OSError as e:
            raise self._unwritable(e) from e

    def publish(self, overwrite: bool = False) -> None:
        """Gives it its name.

        Args:
            overwrite: whether a file that has the name is replaced; an empty folder is always
                replaced by a folder.

        Raises:
            FileExistsError: something else has that name.
            OSError: nothing can be renamed there.
        """
        try:
            if overwrite:
                self._place.replace(self.target)
            elif self._inside is not None:
                self._place.rename(self.target)  # the kernel replaces empty folders alone
            else:
                self._link()
        except OSError as e:
            if e.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                text = "came to exist meanwhile"
                raise FileExistsError(errno.EEXIST, text, str(self.target)) from e
            raise self._unwritable(e) from e
        sync_folder(self.target.parent)

    def _link(self) -> None:
        """Renames a file, but fails when the goal exists."""
        try:
            os.link(self._place, self.target)
        except FileExistsError:
            raise
        except OSError as error:  # a file system without hard links
            log(f"{self.target}: is renamed to, not linked: {error.strerror}")
            if os.path.lexists(self.target):
                raise FileExistsError(errno.EEXIST, "exists", str(self.target)) from None
            self._place.rename(self.target)

    def _unwritable(self, e: OSError) -> OSError:
        return unwritable(e, self.target, self._what, self._hint)

    def _remove(self) -> None:
        """Removes what has not become the goal."""
        if self._place != self.target:
            _discard(self._place)
        self._close()

    def _close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, as far as that can be done.

    Some network file systems know no fsync of folders, and there may be no descriptor left; a
    rename is done, and atomic, all the same.
    """
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def refuse_taken(target: Path, what: str, *, folder: bool) -> None:
    """Refuse a goal that something has already, or that has no folder to lie in.

    Args:
        target: the goal.
        what: description of it, for messages.
        folder: whether it is a folder, which may replace an empty one.

    Raises:
        FileNotFoundError: there is no folder to put it into.
        FileExistsError: the goal exists.
    """
    if not target.parent.is_dir():
        text = f"there is no such folder to put {what} into"
        raise FileNotFoundError(errno.ENOENT, text, str(target.parent))
    if not os.path.lexists(target):
        return
    # Nothing can be renamed to a folder where another file system is mounted.
    is_free = folder and target.is_dir() and not target.is_symlink() and not target.is_mount()
    if not is_free or any(target.iterdir()):
        text = "exists already: name a path that is free"
        raise FileExistsError(errno.EEXIST, text, str(target))


def unwritable(e: OSError, target: Path, what: str, hint: str = "") -> OSError:
    """Return ``e`` with the name of the goal, which the caller knows."""
    why = os.strerror(e.errno or 0)
    return OSError(e.errno, f"cannot write {what} here: {why}{hint}", str(target))


def try_lock(fd: int) -> bool | None:
    """True: locked. False: another holds it. None: this file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def has_name(fd: int, path: Path) -> bool:
    """Return whether an open file, or folder, has this name yet."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _discard(draft: Path) -> None:
    """Removes a draft, as far as it is there."""
    with contextlib.suppress(OSError):
        if draft.is_dir():
            for each in draft.iterdir():
                with contextlib.suppress(OSError):
                    each.unlink()
            draft.rmdir()
        else:
            draft.unlink()
