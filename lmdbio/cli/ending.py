"""The ends of commands that fail: errors that are told in one line, and output that is closed."""

from __future__ import annotations

import errno
import io
import warnings
from typing import BinaryIO

from lmdbio.errors import MissingExtraError
from lmdbio.system.pylmdb import lmdb

__all__ = ["EXPECTED", "SHOW_WARNING", "ClosedOutput", "one_line"]

#: Python's own way of showing a warning, as it is before a command shows them another way.
SHOW_WARNING = warnings.showwarning

#: Errors that a command tells in one line; any other is a fault of lmdbio.
EXPECTED = (lmdb.Error, OSError, ValueError, LookupError, MemoryError, MissingExtraError)


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed before the command began: what is written fails."""

    encoding = "utf-8"

    def write(self, _text: str) -> int:
        """Raise OSError, which the command tells."""
        raise OSError(errno.EBADF, "is closed", "standard output")

    @property
    def buffer(self) -> BinaryIO:
        """Raise as ``write``: nobody takes bytes either."""
        raise OSError(errno.EBADF, "is closed", "standard output")


def one_line(error: BaseException) -> str:
    """Return the error in words, with the file that it is about."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(text.split()) or type(error).__name__
