"""Exceptions. The ones py-lmdb has are py-lmdb's own, so ``except lmdb.Error`` keeps working.

The classes here that py-lmdb has as well stand for its own: to make one makes py-lmdb's, which are
subclasses of these (lmdbio/system/pylmdb.py). So rooms catch them without loading py-lmdb.
"""

from __future__ import annotations

import errno
import itertools
import os

from lmdbio.system.pylmdb import StandIn, link_loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "BadValsizeError",
    "CorruptedError",
    "Error",
    "IncompatibleError",
    "InvalidError",
    "MissingExtraError",
    "MovedError",
    "NotReadonlyWarning",
    "PeerError",
    "ProvenanceError",
    "ShortReadError",
    "StaleError",
    "VersionMismatchError",
    "closed_error",
    "cut_error",
    "from_status",
    "keep_raised",
    "lmdb_error",
    "moved_error",
    "reclassified",
]


class Error(Exception, metaclass=StandIn, of="Error"):
    """Any error of LMDB's, or of lmdbio's.

    Attributes:
        what: whole message.
        code: error code of LMDB or errno; 0: none.
        reason: reason alone.
    """

    what: str
    code: int
    reason: str


class BadTxnError(Error, of="BadTxnError"):
    """A transaction must be aborted, or has ended."""


class BadValsizeError(Error, of="BadValsizeError"):
    """A key or value has a size that LMDB does not take."""


class CorruptedError(Error, of="CorruptedError"):
    """A page is none, or another one than its database refers to."""


class DbsFullError(Error, of="DbsFullError"):
    """More databases were opened than ``max_dbs``."""


class IncompatibleError(Error, of="IncompatibleError"):
    """An operation, a flag or an engine does not go with what is read."""


class InvalidError(Error, of="InvalidError"):
    """A file is no LMDB database."""


class InvalidParameterError(Error, of="InvalidParameterError"):
    """LMDB refuses an argument."""


class NotFoundError(Error, of="NotFoundError"):
    """There is no such key, or no such database."""


class ReadonlyError(Error, of="ReadonlyError"):
    """A program wrote to what was opened for reading."""


class VersionMismatchError(Error, of="VersionMismatchError"):
    """A database has a format of another version of LMDB's."""


class ShortReadError(CorruptedError):
    """The file ends inside a page or record that its database refers to."""


class ProvenanceError(Error):
    """A provenance file is damaged, or of a kind this version does not read."""


class StaleError(ProvenanceError):
    """A sound provenance file describes another state of this database, or another database."""


class MovedError(Error):
    """Writers have committed past the state that is read, so its pages may be overwritten."""


class PeerError(Error):
    """Another rank of a Reader failed or left; the message names it and the cause."""


link_loaded()


class MissingExtraError(ModuleNotFoundError):
    """A package that only a part of lmdbio needs is not installed; the message names its extra.

    Args:
        what: part of lmdbio that needs the package.
        package: usual name of the package.
        module: name of the module that cannot be imported.
        extra: extra of lmdbio that brings the package.
    """

    def __init__(self, what: str, package: str, module: str, extra: str) -> None:
        text = f"{what} needs {package}, which is not installed: pip install 'lmdbio[{extra}]'"
        super().__init__(text, name=module)


class NotReadonlyWarning(UserWarning):
    """A program opened an environment for writing, and wrote nothing: py-lmdb read it."""


# The codes of csrc/status.h.
OK, PENDING, NOTFOUND = 0, 1, 2
IO, SHORT, INVALID, VERSION, CORRUPT, SIDECAR, NOMEM, ARGUMENT, UNSUPPORTED = range(3, 12)
CHANGED, RAISED = 12, 13

#: Exceptions of functions of Python's that C called, by number, for those who wait for C to raise.
_raised: dict[int, BaseException] = {}
_numbers = itertools.count(1)
#: Of which so many, the newest, are kept: several reads of one batch may fail, and one is told of.
RAISED_MAX = 1024

# LMDB's own codes, beside those of errno.
MDB_BAD_VALSIZE, MDB_INCOMPATIBLE, MDB_NOTFOUND = -30781, -30784, -30798
MDB_DBS_FULL, MDB_IS_READONLY, MDB_BAD_TXN = -30791, -30770, -30782
MDB_INVALID, MDB_VERSION_MISMATCH, MDB_CORRUPTED = -30793, -30794, -30796

#: Class and code of what the C core finds.
_LMDB_ERRORS: dict[int, tuple[type[Error], int]] = {
    INVALID: (InvalidError, MDB_INVALID),
    VERSION: (VersionMismatchError, MDB_VERSION_MISMATCH),
    CORRUPT: (CorruptedError, MDB_CORRUPTED),
    SIDECAR: (ProvenanceError, 0),
    UNSUPPORTED: (IncompatibleError, MDB_INCOMPATIBLE),
    CHANGED: (MovedError, 0),
}


def _as_lmdb(error: Error, what: str, code: int, reason: str) -> Error:
    """An error with the attributes of those that py-lmdb raises."""
    attributes: Any = error
    attributes.what, attributes.code, attributes.reason = what, code, reason
    return error


def keep_raised(error: BaseException) -> int:
    """Keep an exception that C is to hand on, and return the number that stands for it."""
    number = next(_numbers)
    # Frames, also those of its reasons, would keep views of memory that is the caller's.
    error.__cause__ = error.__context__ = error.__traceback__ = None
    _raised[number] = error
    for older in list(_raised)[:-RAISED_MAX]:
        _raised.pop(older, None)  # another thread may be first
    return number


def _copy_raised(number: int, otherwise: str) -> BaseException:
    """Return a copy of an exception that was kept: several threads may raise it."""
    from copy import copy

    raised = _raised.get(number)
    return OSError(errno.EIO, otherwise) if raised is None else copy(raised)


def from_status(
    code: int, sys_errno: int, offset: int, wanted: int, got: int, reason: str, path: str
) -> BaseException:
    """The exception for a failed call of the C core.

    Args:
        code: ``enum lio_code`` (csrc/status.h).
        sys_errno: errno, or 0.
        offset, wanted, got: bytes; what they mean, ``reason`` says.
        reason: one sentence.
        path: the file the call was about, "" when there is none.
    """
    where = f"{path}: " if path else ""
    if code == RAISED:
        return _copy_raised(got, f"{where}{reason}")
    if code == IO:
        at = f" ({wanted} bytes at offset {offset})" if wanted else ""
        return OSError(sys_errno, f"{os.strerror(sys_errno)}: {reason}{at}", path or None)
    if code == SHORT:
        what = f"{where}{reason}: wanted {wanted} bytes at offset {offset}, got {got}"
        return _as_lmdb(ShortReadError(what), what, MDB_CORRUPTED, reason)
    if code == NOMEM:
        return MemoryError(f"{where}{reason}")
    if code == ARGUMENT:
        return ValueError(f"{where}{reason}")
    kind, number = _LMDB_ERRORS.get(code, (Error, 0))
    what = f"{where}{reason} (at offset {offset})" if offset else f"{where}{reason}"
    return _as_lmdb(kind(what), what, number, reason)


def cut_error(path: str, size: int, needed: int | ShortReadError) -> ShortReadError:
    """Return the error for a file that ends before its records do.

    Args:
        path: path of the data file.
        size: bytes that it has.
        needed: bytes that its records need; or why not even its trees can be read.
    """
    if isinstance(needed, int):
        reason = f"its records need {needed:,}"
    else:
        reason = f"its trees need more: {str(needed).removeprefix(f'{path}: ')}"
    reason = f"is cut: it has {size:,} bytes, {reason}"
    error = ShortReadError(f"{path}: {reason}")
    _as_lmdb(error, str(error), MDB_CORRUPTED, reason)
    return error


_STRERROR = {
    MDB_BAD_VALSIZE: (
        "MDB_BAD_VALSIZE: Unsupported size of key/DB name/data, or wrong DUPFIXED size"
    ),
    MDB_INCOMPATIBLE: "MDB_INCOMPATIBLE: Operation and DB incompatible, or DB flags changed",
    MDB_NOTFOUND: "MDB_NOTFOUND: No matching key/data pair found",
    MDB_DBS_FULL: "MDB_DBS_FULL: Environment maxdbs limit reached",
    MDB_BAD_TXN: "MDB_BAD_TXN: Transaction must abort, has a child, or is invalid",
    MDB_INVALID: "MDB_INVALID: File is not an LMDB file",
    MDB_IS_READONLY: "MDB_IS_READONLY: Can't write in readonly txn or environment",
}
#: Advice of py-lmdb's on what the caller can do about it.
_HINTS = {MDB_DBS_FULL: " (Please use a larger Environment(max_dbs=) parameter)"}
_KINDS: dict[int, type[Error]] = {
    MDB_BAD_VALSIZE: BadValsizeError,
    MDB_INCOMPATIBLE: IncompatibleError,
    MDB_NOTFOUND: NotFoundError,
    MDB_DBS_FULL: DbsFullError,
    MDB_BAD_TXN: BadTxnError,
    MDB_INVALID: InvalidError,
    errno.EINVAL: InvalidParameterError,
    errno.EACCES: ReadonlyError,
    MDB_IS_READONLY: ReadonlyError,
}


def lmdb_error(what: str, code: int = 0) -> Error:
    """An exception as py-lmdb raises it.

    Args:
        what: the call that failed; without a code, the whole message.
        code: error code of LMDB or errno.

    Returns:
        An instance of the code's class, with py-lmdb's attributes ``what``, ``code``, ``reason``.
    """
    reason = _STRERROR.get(code) or (os.strerror(code) if code else "Successful return: 0")
    message = f"{what}: {reason}{_HINTS.get(code, '')}" if code else what
    error = _KINDS.get(code, Error)(message)
    return _as_lmdb(error, what, code, reason)


def reclassified(error: Error, kind: type[Error], code: int) -> Error:
    """Return an error of another class and code, with the same words."""
    return _as_lmdb(kind(str(error)), str(error), code, getattr(error, "reason", str(error)))


def moved_error(what: str) -> MovedError:
    """Return the error for a state that is gone, with py-lmdb's attributes."""
    error = MovedError(what)
    _as_lmdb(error, what, 0, "Successful return: 0")
    return error


def closed_error() -> Error:
    """Return what py-lmdb raises for an object that was closed, or whose owner was."""
    return lmdb_error("Attempt to operate on closed/deleted/dropped object.")
