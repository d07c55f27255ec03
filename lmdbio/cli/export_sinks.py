"""Places that values are exported to, one file for each: a folder, or a tar archive.

Invariants:
  - a file has its name once all of it is written: nobody sees a part of one;
  - nothing that is there is replaced, unless that was asked for;
  - an archive appears whole, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from lmdbio.system.publish import Draft, unwritable

__all__ = ["FolderSink", "Sink", "TarSink", "opening_sink"]


class Sink(Protocol):
    """A place for files."""

    def write(self, name: str, length: int, pieces: Iterable[bytes]) -> None:
        """Write one file.

        Args:
            name: one part of a path.
            length: size of the content, bytes.
            pieces: the content.
        """

    def inside(self, place: str) -> Sink:
        """Return the folder of this name in it; ``place`` may have several parts."""


class FolderSink:
    """A folder.

    Args:
        folder: folder of the files, made if it is not there.
        force: whether to replace what has the name of a file.
    """

    def __init__(self, folder: Path, *, force: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._force = folder, force
        self._draft = folder / f".lmdbio-{secrets.token_hex(8)}.tmp"
        self._has_links = True

    def write(self, name: str, length: int, pieces: Iterable[bytes]) -> None:
        """Write a file beside its name, and rename it; see ``Sink``."""
        del length
        target = self._folder / name
        try:
            with self._draft.open("xb", buffering=0) as file:
                for piece in pieces:
                    view = memoryview(piece)
                    while view:
                        view = view[file.write(view) :]
            self._publish(target)
        except OSError as error:
            if error.filename not in (None, str(self._draft)):
                raise
            raise unwritable(error, target, "the value") from error
        finally:
            self._draft.unlink(missing_ok=True)

    def inside(self, place: str) -> FolderSink:
        """Make a folder in this one; see ``Sink``."""
        return FolderSink(self._folder / place, force=self._force)

    def _publish(self, target: Path) -> None:
        if self._force:
            self._draft.replace(target)
            return
        if self._has_links:
            try:
                os.link(self._draft, target)
                return
            except FileExistsError:
                raise _exists(target) from None
            except OSError:  # a file system without hard links
                self._has_links = False
        if os.path.lexists(target):
            raise _exists(target)
        self._draft.rename(target)


def _exists(target: Path) -> FileExistsError:
    text = "exists already (--force replaces it)"
    return FileExistsError(errno.EEXIST, text, str(target))


class TarSink:
    """A tar archive.

    Args:
        archive: archive that is open for writing.
        mtime_s: time of every file in it, the data's: so one data set always gives one archive.
        place: folder in it, with a slash at its end.
    """

    def __init__(self, archive: tarfile.TarFile, mtime_s: int, place: str = "") -> None:
        self._archive, self._mtime_s, self._place = archive, mtime_s, place

    def write(self, name: str, length: int, pieces: Iterable[bytes]) -> None:
        """Append a file; see ``Sink``."""
        member = tarfile.TarInfo(self._place + name)
        member.size, member.mtime, member.mode = length, self._mtime_s, 0o644
        self._archive.addfile(member, _Pieces(pieces))

    def inside(self, place: str) -> TarSink:
        """Return a folder in the archive; see ``Sink``."""
        return TarSink(self._archive, self._mtime_s, f"{self._place}{place}/")


class _Pieces(io.RawIOBase):
    """Pieces as a stream that can be read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._left = iter(pieces), memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = memoryview(piece)
        found, self._left = self._left[:size], self._left[size:]
        while 0 <= len(found) < size and (more := next(self._pieces, None)) is not None:
            joined = memoryview(bytes(found) + more)
            found, self._left = joined[:size], joined[size:]
        return bytes(found)


@contextlib.contextmanager
def opening_sink(target: Path, *, is_tar: bool, force: bool, mtime_s: int) -> Iterator[Sink]:
    """Open a place for files.

    Args:
        target: the folder, or the archive.
        is_tar: whether it is an archive.
        force: whether to replace what is there.
        mtime_s: modification time of the data file.

    Raises:
        FileExistsError: the archive exists.
        OSError: nothing can be written there.
    """
    if not is_tar:
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is no folder", str(target))
        yield FolderSink(target, force=force)
        return
    if os.path.lexists(target) and not force:
        raise _exists(target)
    with Draft(target, "the archive") as draft:
        try:
            with tarfile.open(draft.path, "w", format=tarfile.PAX_FORMAT) as archive:
                yield TarSink(archive, mtime_s)
        except OSError as error:
            if error.filename is not None:  # of the data, which cannot be read
                raise
            raise unwritable(error, target, "the archive") from error
        draft.publish(overwrite=force)
