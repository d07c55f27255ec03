"""Tell whether two looks at a file, or two names, stand for one file in one state.

    roots of a job        is_same_file   the same file, whatever each node mounts it as
    a provenance file     differences    the file that was converted, not written to since
    a deep check passed   mark           names what is remembered of this very file

Times and numbers of a file system prove nothing: they say when to look closer, or what may be
taken as known. A writer can set them, and a copy can keep them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from lmdbio.system.frozen import dataclass

__all__ = ["FileIdentity"]

#: dev, ino, size, mtime_ns, ctime_ns. Names what is remembered between runs, so it stays as it is.
_MARK = struct.Struct("<QQQqq")


#: Stand for this process, and for all machines, of files on servers.
_PROCESS = os.urandom(16)
_ELSEWHERE = hashlib.blake2b(b"lmdbio elsewhere", digest_size=16).digest()


@functools.cache  # a Reader looks at a file once or twice while it is made
def _host() -> bytes:
    """Return 16 bytes that identify this machine."""
    machine = b""
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_bytes().strip()
    mark = machine + b"\0" + os.fsencode(socket.gethostname())
    return hashlib.blake2b(mark, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of a file and of its state, as far as its status tells.

    Attributes:
        mtime_ns, ctime_ns: times of the last change of content and status, ns since 1970.
        dev, ino: numbers of device and inode, which mean something on ``host`` alone: nodes count
            mounts.
        host: 16 bytes that identify the machine.
        size: bytes; None: not recorded, as in a provenance file.
    """

    mtime_ns: int
    ctime_ns: int
    dev: int
    ino: int
    host: bytes
    size: int | None = None

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        """Return the identity of the file that has this status on this machine."""
        return cls(
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_dev,
            status.st_ino,
            _host(),
            status.st_size,
        )

    @classmethod
    def joined(cls, files: Sequence[FileIdentity]) -> FileIdentity:
        """Return the identity of several files that are read as one, in this order."""
        states = [(one.ino, one.size, one.mtime_ns) for one in files]
        mark = hashlib.blake2b(repr(states).encode(), digest_size=8).digest()
        return cls(
            max(one.mtime_ns for one in files),
            max(one.ctime_ns for one in files),
            files[0].dev,
            int.from_bytes(mark, "little") >> 1,  # as inodes are, below 2**63
            files[0].host,
            sum(one.size or 0 for one in files),
        )

    @classmethod
    def elsewhere(cls, validator: str, size: int) -> FileIdentity:
        """Return the identity of a file on a server, which all machines see alike.

        Args:
            validator: token of its state, such as an ETag; "": there is none, so that it is taken
                for one that was seen before by this process alone.
            size: bytes.
        """
        mark = validator.encode() or _PROCESS
        number = int.from_bytes(hashlib.blake2b(mark, digest_size=8).digest(), "little")
        return cls(0, 0, 0, number, _ELSEWHERE, size)

    def differences(self, now: FileIdentity) -> tuple[str, ...]:
        """Return the names of the fields that differ; ``dev`` and ``ino`` only on one host."""
        names = ["mtime_ns", "ctime_ns"]
        if self.host == now.host:
            names += ["dev", "ino"]
        return tuple(name for name in names if getattr(self, name) != getattr(now, name))

    def is_same_file(self, other: FileIdentity) -> bool:
        """Return whether two nodes' names may stand for one file: inode, size and mtime.

        A device's number is given at mounting, so that each node has its own, and a file system
        of several servers need not show one ctime to all its clients.
        """
        return (self.ino, self.size, self.mtime_ns) == (other.ino, other.size, other.mtime_ns)

    def is_same_inode(self, other: FileIdentity) -> bool:
        """Return whether both were one file of one machine, written to meanwhile or not."""
        return (self.dev, self.ino) == (other.dev, other.ino)

    def mark(self) -> bytes:
        """Return bytes that stand for this file in this state on this machine."""
        fields = self.dev, self.ino, self.size or 0, self.mtime_ns, self.ctime_ns
        return _MARK.pack(*fields) + self.host
