"""Makes exceptions of status codes."""

from __future__ import annotations

from lmdbio import errors
from lmdbio._core._lmdbio import ffi, lib
from lmdbio.system.slim import local

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SLICE_MS = 100
NEWEST = 2**64 - 1


class _OfThread(local):
    """A ``lio_error`` for each thread: none is told of the failure of another's call."""

    def __init__(self) -> None:
        self.error = ffi.new("lio_error *")


own = _OfThread()


class Status:
    """This thread's ``lio_error``, and the name of the file its calls are about.

    Args:
        path: name of the file.
        find: function from an offset to the name of the file that has it, and the offset in that,
            of several files that are read as one; None: there is one file.
    """

    __slots__ = ("find", "path")

    def __init__(
        self, path: str = "", find: Callable[[int], tuple[str, int]] | None = None
    ) -> None:
        self.path, self.find = path, find

    @property
    def error(self) -> Any:
        """For the next call to fill; it is read right after that."""
        return own.error

    def exception(self, code: int) -> BaseException:
        e = own.error
        reason = ffi.string(e.reason).decode("utf-8", "replace")
        return self.exception_of(code, e.sys_errno, e.offset, e.wanted, e.got, reason)

    def exception_of(
        self, code: int, sys_errno: int, offset: int, wanted: int, got: int, reason: str
    ) -> BaseException:
        """Return the exception for a failed call (``errors.from_status``)."""
        path = self.path
        if self.find is not None:
            path, offset = self.find(int(offset))
        return errors.from_status(code, sys_errno, offset, wanted, got, reason, path)

    def check(self, code: int) -> None:
        if code != lib.LIO_OK:
            raise self.exception(code)

    def call(self, function: Callable[..., int], *given: object) -> None:
        """Call a function of C, whose last argument is the error; raise what that says."""
        self.check(function(*given, own.error))

    def is_over(self, code: int) -> bool:
        """Return whether what was waited for has come; raise where it has failed."""
        if code == lib.LIO_PENDING:
            return False
        self.check(code)
        return True
