"""The bytes of a provenance file, on this system or elsewhere."""

from __future__ import annotations

import os

from lmdbio._core import Engine
from lmdbio.errors import InvalidError, ProvenanceError, ShortReadError
from lmdbio.remote import label, open_data

__all__ = ["open_contents", "read_contents"]


def open_contents(path: str | os.PathLike[str]) -> Engine:
    """Open a provenance file by its path or URL.

    Raises:
        FileNotFoundError, PermissionError: it is not there, or not for this user.
        ProvenanceError: it is no regular file, or cannot be opened.
    """
    try:
        return open_data(path)
    except (FileNotFoundError, PermissionError):
        raise
    except InvalidError as error:
        raise ProvenanceError(f"{label(path)}: is not a regular file") from error
    except OSError as error:  # a page for people, for one, under the name of what is not there
        raise _unreadable(label(path), error) from error


def read_contents(contents: Engine, offset: int, length: int) -> bytes:
    """Return bytes of the file.

    Raises:
        ProvenanceError: they cannot be read, or the file ends before.
    """
    try:
        return contents.read(offset, length)
    except ShortReadError as error:
        raise ProvenanceError(
            f"{contents.path}: is cut: it lacks some of the {length} bytes at offset {offset}"
        ) from error
    except OSError as error:
        raise _unreadable(contents.path, error) from error


def _unreadable(path: str, error: OSError) -> ProvenanceError:
    """Return what readers treat as damage: the tree is there."""
    return ProvenanceError(f"{path}: cannot be read: {error.strerror or error}")
