"""Open what a name means: a path of this system, or a URL."""

from __future__ import annotations

import os

from lmdbio._core.engine import Engine
from lmdbio._core.remote import refuse_kind
from lmdbio.remote import is_url, open_url, redacted

__all__ = ["open_data"]


def open_data(name: str | os.PathLike[str], kind: str = "pread", depth: int = 8) -> Engine:
    """Open a data file for reading.

    Args:
        name: its path, or its URL.
        kind: of ``Engine``; a file that lies elsewhere is read by requests instead of "pread" or
            "mmap".
        depth: requests in flight, 1..256.

    Raises:
        OSError, Error: it cannot be opened.
        IncompatibleError: it cannot be read by this kind.
        MissingExtraError: no package is installed that knows the URL's scheme.
    """
    text = os.fspath(name)
    if not is_url(text):
        return Engine(text, kind, depth)
    refuse_kind(redacted(text), kind)
    return Engine.remote(open_url(text), depth)
