"""Open a data file, wherever it lies."""

from __future__ import annotations

import os

from lmdbio._core import Engine
from lmdbio.system.names import is_url

__all__ = ["open_data"]


def open_data(name: str | os.PathLike[str], kind: str = "pread", depth: int = 8) -> Engine:
    """Open a data file for reading.

    Args:
        name: path or URL of the file.
        kind: kind of the ``Engine``; a file that lies elsewhere is read by requests instead of
            "pread" or "mmap".
        depth: requests in flight, 1..256.

    Raises:
        OSError, Error: it cannot be opened.
        IncompatibleError: it cannot be read by this kind.
        MissingExtraError: no package is installed that knows the URL's scheme.
    """
    text = os.fspath(name)
    if not is_url(text):
        return Engine(text, kind, depth)
    from lmdbio._core.remote import refuse_kind  # others begin sooner without these
    from lmdbio.remote import open_url, redacted

    refuse_kind(redacted(text), kind)
    return Engine.remote(open_url(text), depth)
