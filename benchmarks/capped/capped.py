"""A copy of a folder on a disk of a set speed, for as long as a ``with`` lasts.

    with capped.capped(folder, bytes_s=300 << 20, requests_s=1500) as disk:
        ...  # processes in disk.group (their ids in its cgroup.procs) read disk.mount so slowly

An ext4 image behind a loop device with direct I/O, mounted read-only; the cap is cgroup v1's
blkio.throttle. However the ``with`` ends, mount, loop device, control group and image are gone
afterwards; only SIGKILL leaves them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import Failed, Missing, remove_group

TOOLS = {"losetup": "util-linux", "mount": "mount", "umount": "mount", "mkfs.ext4": "e2fsprogs"}


# --- what is needed -----------------------------------------------------------------------


def missing() -> str | None:
    """Say what this machine lacks, None if nothing."""
    if os.geteuid() != 0:
        return "loop devices and control groups need root"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"there is no {tool} (Debian: apt-get install {package})"
    if not Path("/dev/loop-control").exists():
        return "there is no /dev/loop-control (modprobe loop; in a container, --privileged)"
    if throttle() is None:
        return (
            "no control group v1 with blkio.throttle is mounted "
            "(mount -t cgroup -o blkio none FOLDER; a kernel with CONFIG_BLK_DEV_THROTTLING)"
        )
    return None


def throttle() -> Path | None:
    """Where the blkio controller of cgroup v1 is mounted, if it can throttle."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        head, _, tail = line.partition(" - ")
        kind, _source, options = tail.split(" ", 2)
        place = Path(head.split(" ")[4])
        throttles = (place / "blkio.throttle.read_bps_device").exists()
        if kind == "cgroup" and "blkio" in options.split(",") and throttles:
            return place
    return None


def tool(*words: str | Path) -> str:
    """Runs a program; its output.

    Raises:
        Failed: it did not end well.
    """
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{words[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


# --- the disk -----------------------------------------------------------------------------


@dataclass
class Disk:
    """A mounted copy on a capped disk."""

    mount: Path
    group: Path
    device: str  # major:minor

    def count(self, what: str) -> int:
        """Reads counted so far: "io_serviced" or "io_service_bytes"."""
        text = (self.group / f"blkio.throttle.{what}").read_text(encoding="ascii")
        rows = (line.split() for line in text.splitlines())
        return sum(int(row[2]) for row in rows if row[:2] == [self.device, "Read"])

    @property
    def join(self) -> list[str]:
        """Words before a command: a shell that joins the group before it becomes the command."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.group / "cgroup.procs")]

    def members(self) -> list[int]:
        """Return the processes in the group."""
        text = (self.group / "cgroup.procs").read_text(encoding="ascii")
        return [int(word) for word in text.split()]

    def counters(self) -> dict[str, int]:
        return {"requests": self.count("io_serviced"), "bytes": self.count("io_service_bytes")}


def image_bytes(folder: Path) -> int:
    """Room for the files, and a twelfth and 64 MiB for the file system."""
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return (used + used // 12 + (64 << 20)) // 4096 * 4096


@contextlib.contextmanager
def capped(
    folder: Path, *, bytes_s: int, requests_s: int, image_folder: Path | None = None
) -> Iterator[Disk]:
    """A copy of ``folder`` on a disk that gives so much a second, for as long as a ``with``.

    Raises:
        Missing, Failed: it cannot be made.
    """
    lacking = missing()
    if lacking:
        raise Missing(lacking)
    with contextlib.ExitStack() as stack:
        top = Path(tempfile.mkdtemp(prefix="capped-", dir=image_folder))
        stack.callback(top.rmdir)
        image, mount = top / "image", top / "mount"
        size = image_bytes(folder)
        if shutil.disk_usage(top).free < size:
            raise Failed(f"{top}: no room for an image of {size >> 20} MiB (--image FOLDER)")
        stack.callback(image.unlink, missing_ok=True)
        with image.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        # Without room for root and a journal: nobody will write.
        tool("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal", image)
        device = tool("losetup", "--find", "--show", "--direct-io=on", image)
        stack.callback(tool, "losetup", "--detach", device)
        mount.mkdir()
        stack.callback(mount.rmdir)
        tool("mount", device, mount)
        stack.callback(_unmount, mount)
        shutil.copytree(folder, mount, dirs_exist_ok=True)
        # Not unmounted and mounted again: for a moment after that the kernel calls it busy.
        tool("mount", "-o", "remount,ro", mount)
        _evict(mount)
        number = Path(device).stat().st_rdev
        disk = Disk(mount, _group(stack), f"{os.major(number)}:{os.minor(number)}")
        for name, value in (("read_bps_device", bytes_s), ("read_iops_device", requests_s)):
            (disk.group / f"blkio.throttle.{name}").write_text(f"{disk.device} {value}\n")
        yield disk


def _evict(folder: Path) -> None:
    """Puts what was just written out of the page cache."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _unmount(mount: Path) -> None:
    """Unmount; a process that was ended a moment ago may still hold a file open."""
    for _ in range(50):
        with contextlib.suppress(Failed):
            tool("umount", mount)
            return
        time.sleep(0.1)
    tool("umount", mount)


def _group(stack: contextlib.ExitStack) -> Path:
    above = throttle()
    assert above is not None
    group = above / f"capped-{os.getpid()}"
    group.mkdir()
    stack.callback(remove_group, group)
    return group
