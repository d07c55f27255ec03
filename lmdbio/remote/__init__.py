"""remote: files that lie elsewhere, on servers and in object stores, read by ranges.

Uses ``_core``, ``errors`` and ``system``.

    url          URLs, taken apart, and displayed to people
    http         a file on an HTTP server; ``connection``, ``answer`` and ``retry``: what it takes
    store        an object in a bucket, by obstore (extra "cloud")
    joined       several files as one
    fetched      a file that a library reads: fsspec whatever else it knows

Each kind is imported when a URL of it is opened, and ``url`` when there is one at all.
"""

from __future__ import annotations

import os

from lmdbio.system.names import absolute, is_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lmdbio._core import Engine
    from lmdbio.remote.fetched import FetchedFile
    from lmdbio.remote.http import HttpFile

__all__ = ["absolute", "is_url", "label", "open_data", "open_url"]

#: Schemes of object stores.
STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "adl", "azure", "abfs", "abfss"})


def label(name: str | os.PathLike[str]) -> str:
    """Return a path, or a URL without what is secret in it, for people."""
    if not is_url(name):
        return os.fspath(name)
    from lmdbio.remote.url import redacted

    return redacted(os.fspath(name))


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
    from lmdbio._core import Engine

    text = os.fspath(name)
    if not is_url(text):
        return Engine(text, kind, depth)
    from lmdbio._core.remote import refuse_kind  # others begin sooner without these
    from lmdbio.remote.url import redacted

    refuse_kind(redacted(text), kind)
    return Engine.remote(open_url(text), depth)


def open_url(url: str) -> HttpFile | FetchedFile:
    """Open a file by its URL, which the caller closes.

    Raises:
        FileNotFoundError, PermissionError, OSError: it cannot be opened.
        MissingExtraError: the package that reads its scheme is not installed.
        ValueError: it is no URL, or nothing that is installed knows its scheme.
    """
    from lmdbio.remote.url import scheme_of

    scheme = scheme_of(url)
    if scheme in ("http", "https"):
        from lmdbio.remote.http import HttpFile

        return HttpFile(url)
    if scheme in STORES:
        from lmdbio.remote.store import open_object

        return open_object(url)
    from lmdbio.remote.fetched import open_file

    return open_file(url)
