"""Exceptions. The ones py-lmdb has are py-lmdb's own, so ``except lmdb.Error`` keeps working."""

from __future__ import annotations

import os

from lmdb import (
    CorruptedError,
    Error,
    IncompatibleError,
    InvalidError,
    VersionMismatchError,
)

__all__ = [
    "CorruptedError",
    "Error",
    "IncompatibleError",
    "InvalidError",
    "PeerError",
    "ProvenanceError",
    "ShortReadError",
    "StaleError",
    "VersionMismatchError",
    "from_status",
]


class ShortReadError(CorruptedError):
    """The file ends inside a page or record that the database says is there."""


class ProvenanceError(Error):
    """A provenance file is damaged, or of a kind this version does not read."""


class StaleError(ProvenanceError):
    """A sound provenance file that does not describe this state of this database."""


class PeerError(Error):
    """Another rank of a Reader failed or went away; the message names it and the cause."""


# The codes of csrc/status.h.
OK, PENDING, NOTFOUND = 0, 1, 2
IO, SHORT, INVALID, VERSION, CORRUPT, SIDECAR, NOMEM, ARGUMENT, UNSUPPORTED = range(3, 12)

_LMDB_ERRORS: dict[int, type[Error]] = {
    INVALID: InvalidError,
    VERSION: VersionMismatchError,
    CORRUPT: CorruptedError,
    SIDECAR: ProvenanceError,
    UNSUPPORTED: IncompatibleError,
}


def from_status(
    code: int, sys_errno: int, offset: int, wanted: int, got: int, reason: str, path: str
) -> Exception:
    """The exception for a failed call of the C core.

    Args:
        code: ``enum lio_code`` (csrc/status.h).
        sys_errno: errno, or 0.
        offset, wanted, got: bytes; what they mean, ``reason`` says.
        reason: one sentence.
        path: the file the call was about, "" when there is none.
    """
    where = f"{path}: " if path else ""
    if code == IO:
        at = f" ({wanted} bytes at offset {offset})" if wanted else ""
        return OSError(sys_errno, f"{os.strerror(sys_errno)}: {reason}{at}", path or None)
    if code == SHORT:
        return ShortReadError(
            f"{where}{reason}: wanted {wanted} bytes at offset {offset}, got {got}"
        )
    if code == NOMEM:
        return MemoryError(f"{where}{reason}")
    if code == ARGUMENT:
        return ValueError(f"{where}{reason}")
    kind = _LMDB_ERRORS.get(code, Error)
    return kind(f"{where}{reason} (at offset {offset})" if offset else f"{where}{reason}")
