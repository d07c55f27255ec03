"""The bytes of a provenance file, on this system or elsewhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lmdbio import _core
from lmdbio.errors import ProvenanceError
from lmdbio.remote import is_url, open_url
from lmdbio.remote.url import redacted

__all__ = ["LocalContents", "RemoteContents", "open_contents"]


def open_contents(path: str | os.PathLike[str]) -> LocalContents | RemoteContents:
    """Open a provenance file by its path or URL.

    Raises:
        FileNotFoundError, PermissionError: it is not there, or not for this user.
        ProvenanceError: it is no regular file, or cannot be opened.
    """
    return RemoteContents(os.fspath(path)) if is_url(path) else LocalContents(Path(path))


class LocalContents:
    """A provenance file of this system; attributes and methods are those of ``RemoteContents``."""

    def __init__(self, path: Path) -> None:
        self.path: Path | str = path
        # Non-blocking, so that a FIFO under this name is refused instead of waited for.
        try:
            self._file = _core.Descriptor(path, os.O_RDONLY | os.O_NONBLOCK)
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:  # a folder in whose place there is a file, for one
            raise ProvenanceError(f"{path}: cannot be read: {error.strerror}") from error
        status = os.fstat(self._file.fd)
        if not stat.S_ISREG(status.st_mode):
            raise ProvenanceError(f"{path}: is not a regular file")
        self.size = status.st_size

    def read(self, offset: int, length: int) -> bytes:
        pieces = []
        while length:
            try:
                piece = os.pread(self._file.fd, length, offset)
            except OSError as e:
                why = os.strerror(e.errno or 0)
                text = f"{why}: cannot read ({length} bytes at offset {offset})"
                raise OSError(e.errno, text, os.fspath(self.path)) from e
            if not piece:
                raise ProvenanceError(
                    f"{self.path}: is cut: {length} bytes are missing at offset {offset}"
                )
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._file.close()


class RemoteContents:
    """A provenance file elsewhere.

    Attributes:
        path: name of the file, for people.
        size: bytes.
    """

    def __init__(self, url: str) -> None:
        try:
            self._file = open_url(url)
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:  # a page for people, for one, under the name of what is not there
            raise ProvenanceError(f"{redacted(url)}: cannot be read: {error.strerror}") from error
        self.path: Path | str = self._file.name
        self.size: int = self._file.size

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the file.

        Raises:
            OSError: they cannot be read.
            ProvenanceError: the file ends before.
        """
        there = max(0, min(length, self.size - offset))
        if there < length:
            raise ProvenanceError(
                f"{self.path}: is cut: {length - there} bytes are missing at offset "
                f"{offset + there}"
            )
        into = bytearray(length)
        self._file.read_into(offset, memoryview(into))
        return bytes(into)

    def close(self) -> None:
        self._file.close()
