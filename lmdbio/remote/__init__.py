"""remote: files that lie elsewhere, on servers and in object stores, read by ranges.

Uses ``errors`` and ``system``.

    url          URLs, taken apart, and said to people
    http         a file on an HTTP server; ``connection``, ``answer``, ``effort``: what it takes
    store        an object in a bucket, by obstore (extra "cloud")
    filesystem   a file of whatever else fsspec knows

Each kind is imported when a URL of it is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmdbio.remote.url import absolute, is_url, redacted, scheme_of, server_of, shown, with_suffix

if TYPE_CHECKING:
    from lmdbio.remote.http import HttpFile

__all__ = [
    "absolute",
    "is_url",
    "open_url",
    "redacted",
    "scheme_of",
    "server_of",
    "shown",
    "with_suffix",
]


def open_url(url: str) -> HttpFile:
    """Open a file by its URL, which the caller closes.

    Raises:
        FileNotFoundError, PermissionError, OSError: it cannot be opened.
        MissingExtraError: no package is installed that knows its scheme.
        ValueError: it is no URL.
    """
    from lmdbio.remote.http import HttpFile

    return HttpFile(url)
