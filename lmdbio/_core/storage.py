"""The storage under an open file, as far as the kernel says (csrc/storage.h)."""

from __future__ import annotations

import os

from lmdbio._core._lmdbio import ffi, lib
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


def look_at(fd: int) -> Ground:
    """Reads nothing of the file and never fails."""
    out = ffi.new("lio_storage *")
    lib.lio_storage_look(fd, out)
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
