"""Storage: what is under a file, as far as can be seen without reading it.

A frozen value for others to choose by (``machine.choice``). To inspect never raises for want of
information: what is not known is None. Nothing is written, and no program is started.
"""

from __future__ import annotations

import os
import time

from lmdbio import _core
from lmdbio.errors import Error, IncompatibleError
from lmdbio.system import procfs
from lmdbio.system.frozen import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FILE_SYSTEMS", "MEMORY", "Storage", "Stripes", "inspect", "parse_stripes"]

#: Names by statfs's f_type (linux/magic.h; those of Lustre, GPFS, ZFS and BeeGFS from their own
#: headers). ext2 to ext4 share one, as do all that speak FUSE; the mount table tells them apart.
FILE_SYSTEMS = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xCA451A4E: "bcachefs",
    0x2FC12FC1: "zfs",
    0xF2F52010: "f2fs",
    0x73717368: "squashfs",
    0x9660: "iso9660",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
    0x794C7630: "overlay",
    0x65735546: "fuse",
    0x01021997: "9p",
    0x6969: "nfs",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x00C36400: "ceph",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
    0x20030528: "orangefs",
    0x01161970: "gfs2",
    0x7461636F: "ocfs2",
}
#: File systems whose files are in memory and nowhere else.
MEMORY = frozenset({"tmpfs", "ramfs"})

#: Extended attribute of a file's layout on Lustre, and the two forms that have one striping for
#: the whole file (lustre_user.h: LOV_USER_MAGIC_V1 and _V3). Composite layouts have several.
_LUSTRE_LAYOUT = "lustre.lov"
_LUSTRE_MAGICS = (0x0BD10BD0, 0x0BD30BD0)
#: lmm_magic, lmm_pattern, lmm_oi, lmm_stripe_size, lmm_stripe_count, lmm_layout_gen
_LUSTRE_HEADER = "<II16sIHH"
#: Lustre's own limits: stripes are multiples of 64 KiB, on at most so many targets.
_STRIPE_GRAIN, _STRIPES_MAX = 64 << 10, 2000


@dataclass(frozen=True, slots=True)
class Stripes:
    """How a file is spread over servers.

    Attributes:
        bytes: consecutive ones on one server.
        count: servers (targets).
    """

    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class Storage:
    """The storage under a file. None: not known.

    Attributes:
        file_system: type of the file system, such as "ext4", "nfs", "fuse.sshfs"; "0x..." for one
            without a name here.
        id: the file system's own number, 0 where it has none.
        source: mounted device, or server and path there.
        block_bytes: preferred size of a request, bytes.
        remote: whether it is elsewhere, and is asked for its bytes by requests; ``file_system`` is
            the scheme of its URL, and ``source`` the server.
        disk: whether a disk of this machine is under it.
        device: "major:minor" of the file system.
        rotational: whether the kernel takes the disk for a turning one (virtual disks say so too).
        readahead_bytes: distance that the kernel reads ahead of an ordered stream, bytes.
        direct: whether O_DIRECT reads are possible.
        direct_alignment: alignment of O_DIRECT offsets and lengths, bytes.
        size_bytes: size of the file, bytes.
        cached_bytes: part of the file that the page cache holds, bytes.
        stripes: stripes over several servers, where these can be seen (Lustre).
    """

    file_system: str | None = None
    id: int = 0
    source: str | None = None
    block_bytes: int | None = None
    remote: bool = False
    disk: bool = False
    device: str | None = None
    rotational: bool | None = None
    readahead_bytes: int | None = None
    direct: bool | None = None
    direct_alignment: int | None = None
    size_bytes: int | None = None
    cached_bytes: int | None = None
    stripes: Stripes | None = None

    @property
    def in_memory(self) -> bool:
        """The file system keeps its files in memory."""
        return self.file_system in MEMORY

    @property
    def cached_share(self) -> float | None:
        """The part of the file that is in the page cache, 0 to 1."""
        if self.cached_bytes is None or not self.size_bytes:
            return None
        return min(1.0, self.cached_bytes / self.size_bytes)


def inspect(
    engine: _core.Engine,
    *,
    cached: bool = True,
    thorough: bool = False,
    root: str | os.PathLike[str] = "",
) -> Storage:
    """Return the storage under the file that ``engine`` has open.

    Args:
        cached: whether to ask for the page cache as well, which costs up to a few milliseconds.
        thorough: whether to read the mount table, and try O_DIRECT where the kernel does not say.
        root: folder of ``proc`` and ``sys``; tests put their own here.
    """
    elsewhere = engine.remote_file
    if elsewhere is not None:
        return inspect_url(elsewhere.url, elsewhere.size)
    fd = engine.fd
    ground = _core.inspect_at(fd)
    mounted = _mount(root, ground.mount_id) if thorough else None
    source = mounted[1] if mounted else None
    device = _block_device(ground, source)
    direct, alignment = _direct(engine, ground, probe=thorough)
    rotational, readahead_bytes = _queue_facts(os.fspath(root), ground.device, device)
    name = mounted[0] if mounted else FILE_SYSTEMS.get(ground.magic)
    return Storage(
        file_system=name or (f"{ground.magic:#x}" if ground.magic else None),
        id=ground.id,
        source=source,
        block_bytes=ground.block_bytes or None,
        disk=ground.disk,
        device=ground.device,
        rotational=rotational,
        readahead_bytes=readahead_bytes,
        direct=direct,
        direct_alignment=alignment,
        size_bytes=_answer(engine.size),
        cached_bytes=_answer(engine.cached_bytes) if cached else None,
        stripes=_stripes(fd) if ground.magic == 0x0BD00BD0 else None,
    )


def inspect_url(url: str, size_bytes: int | None = None) -> Storage:
    """Return what a URL says of the storage under its file: nobody is asked."""
    from lmdbio.remote.url import scheme_of, server_of

    return Storage(
        file_system=scheme_of(url),
        source=server_of(url),
        remote=True,
        direct=False,
        size_bytes=size_bytes,
    )


def inspect_folder(folder: str | os.PathLike[str]) -> Storage:
    """Return what is known of the storage under a folder, without any file there.

    Raises:
        OSError: there is no such folder.
    """
    with _core.Descriptor(folder, os.O_RDONLY | os.O_DIRECTORY) as opened:
        ground = _core.inspect_at(opened.fd)
    mounted = _mount("", ground.mount_id)
    return Storage(
        file_system=mounted[0] if mounted else FILE_SYSTEMS.get(ground.magic),
        id=ground.id,
        source=mounted[1] if mounted else None,
        block_bytes=ground.block_bytes or None,
        disk=ground.disk,
        device=ground.device,
    )


def _answer(ask: Callable[[], int | None]) -> int | None:
    """Return what an engine says of its file; None: it cannot."""
    try:
        return ask()
    except (OSError, Error):
        return None


def _direct(
    engine: _core.Engine, ground: _core.Ground, *, probe: bool
) -> tuple[bool | None, int | None]:
    """Whether O_DIRECT reads are possible, and at which alignment."""
    if engine.keeps_state:
        return False, None  # it is several files, or none of this machine
    if ground.direct_alignment is not None:
        return ground.direct_alignment > 0, ground.direct_alignment or None
    if not probe:
        return None, None
    try:
        with engine.again("direct", 1) as tried:
            return True, tried.alignment
    except IncompatibleError:
        return False, None
    except (OSError, Error, MemoryError):
        return None, None


# --- proc and sys -------------------------------------------------------------------------


def _mount(root: str | os.PathLike[str], mount_id: int) -> tuple[str, str] | None:
    """Type and source of a mount: fields after the hyphen of its line in mountinfo (proc(5))."""
    if not mount_id:
        return None
    for line in (procfs.text(f"{root}/proc/self/mountinfo") or "").splitlines():
        head, found, tail = line.partition(" - ")
        fields = tail.split(" ")
        if found and head.split(" ", 1)[0] == str(mount_id) and len(fields) >= 2:
            return fields[0], _unescaped(fields[1])
    return None


def _unescaped(text: str) -> str:
    """The mount table writes blanks and backslashes as octal numbers."""
    import re

    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _block_device(ground: _core.Ground, source: str | None) -> str | None:
    """Return "major:minor" of the disk.

    btrfs gives a number that is no device's; its source in the mount table is the device.
    """
    if not ground.disk:
        return None
    if not ground.device.startswith("0:"):
        return ground.device
    try:
        number = os.stat(source).st_rdev if source else 0  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return f"{os.major(number)}:{os.minor(number)}" if number else None


#: Facts about disks' queues, and when each was found (``time.monotonic``). A program that opens a
#: data set for each record would pay for these files each time.
_queues: dict[tuple[str, str, str | None], tuple[float, bool | None, int | None]] = {}
RECENT_SECONDS, QUEUES_MAX = 1.0, 64


def _queue_facts(
    root: str, file_system: str, device: str | None
) -> tuple[bool | None, int | None]:
    """``rotational`` and ``readahead_bytes``, at most ``RECENT_SECONDS`` old."""
    now, which = time.monotonic(), (root, file_system, device)
    found = _queues.get(which)
    if found is None or now - found[0] >= RECENT_SECONDS:
        if len(_queues) >= QUEUES_MAX:
            _queues.clear()
        found = now, _rotational(root, device), _readahead(root, file_system, device)
        _queues[which] = found
    return found[1:]


def _queue(root: str | os.PathLike[str], device: str, name: str) -> int | None:
    """A setting of a disk's queue; partitions have their disk's."""
    place = f"{root}/sys/dev/block/{device}"
    found = procfs.number(f"{place}/queue/{name}")
    return found if found is not None else procfs.number(f"{place}/../queue/{name}")


def _readahead(root: str | os.PathLike[str], file_system: str, device: str | None) -> int | None:
    kib = procfs.number(f"{root}/sys/class/bdi/{file_system}/read_ahead_kb")
    if kib is None and device is not None:
        kib = _queue(root, device, "read_ahead_kb")
    return None if kib is None else kib << 10


def _rotational(root: str | os.PathLike[str], device: str | None) -> bool | None:
    found = None if device is None else _queue(root, device, "rotational")
    return None if found is None else bool(found)


# --- Lustre -------------------------------------------------------------------------------


def _stripes(fd: int) -> Stripes | None:
    try:
        return parse_stripes(os.getxattr(fd, _LUSTRE_LAYOUT))
    except OSError:
        return None


def parse_stripes(layout: bytes) -> Stripes | None:
    """The striping in a Lustre layout (struct lov_user_md_v1 or _v3); None for any other bytes.

    Source: lustre_user.h.
    """
    from struct import calcsize, unpack_from

    if len(layout) < calcsize(_LUSTRE_HEADER):
        return None
    magic, _pattern, _object, size, count, _generation = unpack_from(_LUSTRE_HEADER, layout)
    if magic not in _LUSTRE_MAGICS or not 1 <= count <= _STRIPES_MAX:
        return None
    if size == 0 or size % _STRIPE_GRAIN:
        return None
    return Stripes(bytes=size, count=count)
