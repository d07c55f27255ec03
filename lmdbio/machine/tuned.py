"""Whether ``lmdbio tune`` has measured anything here, and where that is kept.

Each opening asks. ``calibration`` is loaded where there is something to read, or to write.
"""

from __future__ import annotations

import errno
import os

from lmdbio.system.log import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lmdbio import _core
    from lmdbio.machine.calibration import Stored

__all__ = ["FOLDERS", "changed", "changes", "find", "folder"]

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


def find(engine: _core.Engine) -> Stored | None:
    """Return the calibration of the file system of ``engine``'s file; None where there is none.

    For every open: it costs next to nothing where nothing was ever tuned.
    """
    try:
        if not os.path.isdir(folder()):  # noqa: PTH112
            return None
    except OSError as error:
        tell(f"what lmdbio tune may have measured is not looked for: {error}")
        return None
    from lmdbio.machine import calibration

    return calibration.load_for(engine)
