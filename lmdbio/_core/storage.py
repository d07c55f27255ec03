"""Descriptors, and the storage under a file, as far as the kernel says (csrc/storage.h)."""

from __future__ import annotations

import os

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.owner import owned
from lmdbio.system.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Ground:
    """The kernel's facts about a file's storage; 0 where it says nothing.

    Attributes:
        magic: statfs's f_type.
        id: statfs's f_fsid, the file system's own, where it has one.
        block_bytes: size of a read that the file system prefers, bytes.
        mount_id: number of the mount in ``/proc/self/mountinfo``.
        device: "major:minor".
        direct_alignment: alignment of offsets for O_DIRECT, bytes; None where the kernel does not
            say, 0 where it says that there is no O_DIRECT.
        disk: a disk of this machine is under the file system.
    """

    magic: int
    id: int
    block_bytes: int
    mount_id: int
    device: str
    direct_alignment: int | None
    disk: bool


def inspect_at(fd: int) -> Ground:
    """Reads nothing of the file and never fails."""
    out = ffi.new("lio_storage *")
    lib.lio_storage_probe(fd, out)
    return Ground(
        magic=int(out.magic),
        id=int(out.id),
        block_bytes=int(out.block_bytes),
        mount_id=int(out.mount_id),
        device=f"{out.device_major}:{out.device_minor}",
        direct_alignment=int(out.direct_alignment) if out.direct_known else None,
        disk=bool(out.disk),
    )


def release_range(fd: int, offset: int, length: int, path: str) -> None:
    """Gives a range of a file back to the file system: it reads as zeros from then on.

    Raises:
        OSError: the file system cannot.
    """
    code = int(lib.lio_storage_release(fd, offset, length))
    if code:
        raise OSError(code, os.strerror(code), path)


class Descriptor:
    """A file that ``os.open`` has opened; it is closed when nothing refers to this any more.

    Args:
        path, flags, mode: arguments of ``os.open``; no child process inherits the descriptor.

    Raises:
        OSError: it cannot be opened.
    """

    __slots__ = ("_cell",)

    def __init__(self, path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> None:
        self._cell = owned(ffi.new("int *", -1), lib.lio_cell_descriptor_close)
        # The number goes into its cell without a line of Python's between, where a signal's
        # handler may raise.
        opened = map(os.open, (path,), (flags | os.O_CLOEXEC,), (mode,))
        list(map(self._cell.__setitem__, (0,), opened))

    @property
    def fd(self) -> int:
        """Its number; -1: it is closed."""
        return int(self._cell[0])

    def close(self) -> None:
        """Close it. May be called twice."""
        lib.lio_cell_descriptor_close(self._cell)

    def __enter__(self) -> Descriptor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
