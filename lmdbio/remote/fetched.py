"""FetchedFile: a file elsewhere whose bytes a library brings."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from lmdbio.errors import Error
from lmdbio.remote.retry import AbandonedError, never
from lmdbio.remote.url import redacted

__all__ = ["FetchedFile", "failed"]


def failed(name: str, error: Exception) -> Exception:
    """Return a library's error as one of a file: it names the file, and the reason in one line."""
    told = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, Error):
        return Error(f"{name}: {told}")
    number = errno.EIO
    if isinstance(error, FileNotFoundError):
        number = errno.ENOENT
    elif isinstance(error, PermissionError):
        number = errno.EACCES
    elif isinstance(error, TimeoutError):
        number = errno.ETIMEDOUT
    return OSError(number, f"{os.strerror(number)}: {told}", name)


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
            told = f"{len(found)} bytes have come of {len(into)} from {offset} on"
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: {told}", self.name)
        into[:] = found
        return 1

    def close(self) -> None:  # noqa: B027 - not abstract: most have nothing to close
        """Do nothing: connections are the library's."""
