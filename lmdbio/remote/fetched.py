"""FetchedFile: a file elsewhere whose bytes a library brings.

fsspec knows hf, sftp, webdav, memory and many more. It holds no read against a state, so the meta
pages are read again after each batch of reads, as those of a file on a shared file system are.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from lmdbio.errors import Error
from lmdbio.remote.retry import AbandonedError, never
from lmdbio.remote.url import redacted, scheme_of

__all__ = ["FetchedFile", "failed", "open_file"]


def failed(name: str, error: Exception) -> Exception:
    """Return a library's error as one of a file: it names the file, and the reason in one line."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, Error):
        return Error(f"{name}: {text}")
    number = errno.EIO
    if isinstance(error, FileNotFoundError):
        number = errno.ENOENT
    elif isinstance(error, PermissionError):
        number = errno.EACCES
    elif isinstance(error, TimeoutError):
        number = errno.ETIMEDOUT
    return OSError(number, f"{os.strerror(number)}: {text}", name)


class FetchedFile(ABC):
    """A file elsewhere, open.

    Attributes:
        url, name, size, validator, keeps_state: attributes of ``_core.RemoteFile``.
    """

    def __init__(self, url: str, *, size: int, validator: str, keeps_state: bool) -> None:
        self.url, self.name, self.size = url, redacted(url), size
        self.validator, self.keeps_state = validator, keeps_state

    @abstractmethod
    def fetch(self, begin: int, end: int) -> Any:
        """Return an object with the bytes [begin, end) of the file.

        Raises:
            Exception: whatever the library raises.
        """

    def read_into(
        self, offset: int, into: memoryview, is_given_up: Callable[[], bool] = never
    ) -> int:
        """Fill memory with bytes of the file; see ``_core.RemoteFile``."""
        if is_given_up():
            raise AbandonedError(f"{self.name}: the read was given up")
        try:
            found = memoryview(self.fetch(offset, offset + len(into))).cast("B")
        except Exception as error:
            raise failed(self.name, error) from None
        if len(found) != len(into):
            text = f"{len(found)} bytes have come of {len(into)} from {offset} on"
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: {text}", self.name)
        into[:] = found
        return 1

    def close(self) -> None:  # noqa: B027 - not abstract: most have nothing to close
        """Do nothing: connections are the library's."""


def open_file(url: str) -> FetchedFile:
    """Open a file by a URL that fsspec knows.

    Raises:
        FileNotFoundError, PermissionError, OSError: it cannot be opened.
        ValueError: nothing that is installed knows its scheme; the message says what to install.
    """
    scheme, name = scheme_of(url), redacted(url)
    try:
        import fsspec
    except ImportError:
        raise ValueError(
            f"{name}: lmdbio reads http and https, s3, gs and az (pip install 'lmdbio[cloud]'), "
            f"and what fsspec knows: pip install fsspec, and what that needs for {scheme}"
        ) from None
    try:
        fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{name}: fsspec does not read {scheme}: {error}") from None
    try:
        return _FsspecFile(url, fsspec)
    except Exception as error:
        raise failed(name, error) from None


class _FsspecFile(FetchedFile):
    """A file that fsspec reads."""

    def __init__(self, url: str, fsspec: Any) -> None:
        self._fsspec, self._pid = fsspec, os.getpid()
        self._system, self._path = fsspec.core.url_to_fs(url)
        facts = self._system.info(self._path)
        validators = (facts.get(name) for name in ("ETag", "etag", "version", "mtime", "created"))
        validator = next((str(one) for one in validators if one), "")
        super().__init__(url, size=int(facts["size"]), validator=validator, keeps_state=False)

    def fetch(self, begin: int, end: int) -> Any:
        if self._pid != os.getpid():  # fsspec's own thread is not there after fork
            self._system, self._path = self._fsspec.core.url_to_fs(
                self.url, skip_instance_cache=True
            )
            self._pid = os.getpid()
        return self._system.cat_file(self._path, start=begin, end=end)
