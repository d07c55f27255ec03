"""Files of whatever else fsspec knows: hf, sftp, webdav, memory and many more.

fsspec holds no read against a state, so the meta pages are looked at after each batch of reads, as
those of a file on a shared file system are.
"""

from __future__ import annotations

import os
from typing import Any

from lmdbio.remote.fetched import FetchedFile, failed
from lmdbio.remote.url import redacted, scheme_of

__all__ = ["open_file"]


def open_file(url: str) -> FetchedFile:
    """Open a file by a URL that fsspec knows.

    Raises:
        FileNotFoundError, PermissionError, OSError: it cannot be opened.
        ValueError: nothing that is installed knows its scheme; the message says what to install.
    """
    scheme, name = scheme_of(url), redacted(url)
    try:
        import fsspec
    except ImportError:
        raise ValueError(
            f"{name}: lmdbio reads http and https, s3, gs and az (pip install 'lmdbio[cloud]'), "
            f"and what fsspec knows: pip install fsspec, and what that needs for {scheme}"
        ) from None
    try:
        fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{name}: fsspec does not read {scheme}: {error}") from None
    try:
        return _Known(url, fsspec)
    except Exception as error:
        raise failed(name, error) from None


class _Known(FetchedFile):
    """A file that fsspec reads."""

    def __init__(self, url: str, fsspec: Any) -> None:
        self._fsspec, self._pid = fsspec, os.getpid()
        self._system, self._path = fsspec.core.url_to_fs(url)
        facts = self._system.info(self._path)
        told = (facts.get(name) for name in ("ETag", "etag", "version", "mtime", "created"))
        validator = next((str(one) for one in told if one), "")
        super().__init__(url, size=int(facts["size"]), validator=validator, keeps_state=False)

    def fetch(self, begin: int, end: int) -> Any:
        if self._pid != os.getpid():  # fsspec's own thread is not there after fork
            self._system, self._path = self._fsspec.core.url_to_fs(
                self.url, skip_instance_cache=True
            )
            self._pid = os.getpid()
        return self._system.cat_file(self._path, start=begin, end=end)
