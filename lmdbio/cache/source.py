"""The state of a data file, as a cache file remembers it.

A cache file is worth something only for the very state of the very file that it was filled from:
the same inode, size and times, and the same meta pages. A commit changes these, and so does a
copy; then the cache file is filled anew.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from lmdbio.remote import is_url
from lmdbio.remote.url import lasting, redacted
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.frozen import dataclass

__all__ = ["SourceState", "named"]


def named(paths: Sequence[str]) -> str:
    """Return how a cache file names its data file, or several, without what is secret in URLs.

    ETags tell the states of one URL apart, not two URLs, so each of them counts, and all of its
    query but for signatures, by a hash.
    """
    if not is_url(paths[0]):
        return os.path.realpath(paths[0])
    names = [lasting(path) for path in paths]
    name = redacted(paths[0]).partition("?")[0]
    if names == [name]:
        return name
    return f"{name}?{hashlib.blake2b(repr(names).encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True, slots=True)
class SourceState:
    """A data file in one state, or several that are read as one.

    Attributes:
        path: absolute path, links resolved; of the first of several; or of ``named``.
        ino, size, mtime_ns, ctime_ns: status of the file; of several, or on a server, the
            identity's.
        meta: crc32 of both meta pages.
        files: number of files that are read as one.
    """

    path: str
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int
    meta: int
    files: int = 1

    @classmethod
    def of(cls, paths: Sequence[str], identity: FileIdentity, metas: bytes) -> SourceState:
        """Return the state of an open data file, or of several.

        Args:
            paths: paths of the files, or URLs.
            identity: identity of all files.
            metas: the meta pages, or bytes that stand for those of all.
        """
        return cls(
            named(paths),
            identity.ino,
            identity.size or 0,
            identity.mtime_ns,
            identity.ctime_ns,
            zlib.crc32(metas),
            len(paths),
        )

    @property
    def seed(self) -> int:
        """A number that two states have in common by chance once in 2**32."""
        state = (self.ino, self.size, self.mtime_ns, self.ctime_ns, self.meta)
        return zlib.crc32(repr(state).encode())

    @property
    def stem(self) -> str:
        """How the names of its cache files begin: readable, and another one for each path."""
        path = Path(self.path)
        name = path.parent.name if path.name == "data.mdb" else path.name
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
        mark = os.fsencode(path) + (b":%d" % self.files if self.files > 1 else b"")
        return f"{plain[:60] or 'root'}-{zlib.crc32(mark):08x}"

    def is_current(self) -> bool:
        """Return whether the file under this path has still this status; meta pages aside.

        Of several files it is only known that there is the first one. No server is asked: of a URL
        this is said to be so.
        """
        if is_url(self.path):
            return True
        try:
            status = Path(self.path).stat()
        except OSError:
            return False
        if self.files > 1:
            return True
        now = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        return now == (self.ino, self.size, self.mtime_ns, self.ctime_ns)
