"""Names of files: paths and URLs, told apart (``system.names``), and as people are shown them."""

from __future__ import annotations

import os

from lmdbio.system.names import absolute, is_url

__all__ = ["absolute", "is_url", "shown"]


def shown(name: str | os.PathLike[str]) -> str:
    """Return a path or URL for people."""
    if not is_url(name):
        return os.fspath(name)
    from lmdbio.remote.url import redacted

    return redacted(os.fspath(name))
