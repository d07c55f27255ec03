"""Check where a provenance file is written, before hours are spent on what it says.

Invariant: nothing but a provenance file is ever replaced.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from lmdbio.provenance import MAGIC, PROVENANCE_DIR, sidecar_file
from lmdbio.system.publish import Draft, unwritable

__all__ = ["HINT", "WHAT", "check_target", "has_folder", "make_folder", "try_target"]

#: The file's name, and the way out, in the message that it can't be written.
WHAT = "the provenance file"
HINT = f"; name another place with --output or {PROVENANCE_DIR}"


def try_target(data: Path, output: str | os.PathLike[str] | None = None) -> None:
    """Raise what ``convert`` would, if it could not write its file; leave nothing there.

    Args:
        data: data file that is to be converted; it need not be there yet, but its folder.
        output: argument of ``convert``.
    """
    target = sidecar_file(data, output)
    check_target(target, data, True)
    if has_folder(output):
        folder = next(folder for folder in target.parents if os.path.lexists(folder))
        target = folder / target.name
    with Draft(target, WHAT, hint=HINT):
        pass


def has_folder(output: str | os.PathLike[str] | None) -> bool:
    """Return whether the file goes to a folder that was named for it, and is made.

    Args:
        output: argument of ``convert``; None: ``$LMDBIO_PROVENANCE_DIR`` counts, if it is set.
    """
    return output is not None or bool(os.environ.get(PROVENANCE_DIR))


def make_folder(target: Path) -> None:
    """Make the folder that a provenance file goes to, if it is not there.

    Raises:
        OSError: it cannot be made.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise unwritable(e, target, WHAT, HINT) from e


def check_target(target: Path, data: Path | str, overwrite: bool) -> None:
    """Refuse to replace anything but a provenance file.

    Raises:
        FileExistsError: the target is something else, or is there and ``overwrite`` is False.
        OSError: the target's folder cannot be searched.
    """
    if os.path.realpath(target) == os.path.realpath(data):
        raise FileExistsError(errno.EEXIST, "this is the database itself", str(target))
    try:
        if not target.exists():
            return
    except OSError as e:  # a folder that may not be searched
        raise unwritable(e, target, WHAT, HINT) from e
    if isinstance(data, Path) and data.exists() and target.samefile(data):
        raise FileExistsError(errno.EEXIST, "this is the database itself", str(target))
    if not overwrite:
        raise FileExistsError(errno.EEXIST, "there is a provenance file already", str(target))
    if not target.is_file():
        raise FileExistsError(errno.EEXIST, "exists, and is no provenance file", str(target))
    with target.open("rb") as file:
        head = file.read(len(MAGIC))
    if head and head != MAGIC:
        raise FileExistsError(errno.EEXIST, "exists, and is no provenance file", str(target))
