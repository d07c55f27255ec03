"""The folder of what ``lmdbio tune`` measured, and how often this process has changed it."""

from __future__ import annotations

import errno
import os

__all__ = ["FOLDERS", "changed", "changes", "folder"]

#: Variables of the environment that say where calibrations are kept.
FOLDERS = ("XDG_CACHE_HOME", "HOME")

_changes = 0


def changes() -> int:
    """Return how often this process has stored or forgotten a calibration."""
    return _changes


def changed() -> None:
    """Count that it has."""
    global _changes
    _changes += 1


def folder() -> str:
    """Return the folder of all calibrations of this user.

    Raises:
        OSError: this user has no home.
    """
    base = os.environ.get(FOLDERS[0])
    if not base:
        base = os.path.expanduser("~/.cache")  # noqa: PTH111
        if base.startswith("~"):
            why = "this user has no home: set XDG_CACHE_HOME to a folder"
            raise FileNotFoundError(errno.ENOENT, why, base)
    return f"{base}/lmdbio/tuned"
