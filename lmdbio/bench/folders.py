"""The folders that a benchmark writes to, made and tried before anything is measured."""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["make_folder"]


def make_folder(folder: Path, option: str) -> None:
    """Make a folder, if it is not there, and see that files can be made in it.

    Args:
        folder: folder that is written to.
        option: command-line option that names another folder.

    Raises:
        OSError: it cannot be made or written to; the message names the option.
    """
    hint = f"name another folder with {option}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "cannot be written to", str(folder))
    except (FileExistsError, NotADirectoryError) as error:
        what = f"is a file, not a folder: {hint}"
        raise NotADirectoryError(errno.ENOTDIR, what, str(folder)) from error
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {hint}", str(folder)) from error
