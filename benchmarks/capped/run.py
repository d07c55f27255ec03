"""Runs a command before a copy of a folder on a disk of a set speed: makes, mounts, caps, ends.

    python benchmarks/capped/run.py [--bytes 300M] [--requests 1500] FOLDER -- COMMAND...

FOLDER's files are copied to an ext4 image behind a loop device with direct I/O, which is mounted
read-only. The command, and all that it starts, may read so many bytes and requests a second from
it (cgroup v1, blkio.throttle); it finds the copy at {mount} in its words, or $CAPPED_MOUNT. What
it read, as the kernel counted it, is printed at the end, to standard error.

The kernel counts a request when the file system asks for it, before neighbours are merged.

The exit status is the command's; 69 if this machine cannot do it (one line says why), 70 if a
step failed. However it ends, interrupted included, mount, loop device, control group and image
are gone afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNAVAILABLE, FAILED = 69, 70  # sysexits.h: EX_UNAVAILABLE, EX_SOFTWARE
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECONDS_TO_DIE = 5.0
TOOLS = {"losetup": "util-linux", "mount": "mount", "umount": "mount", "mkfs.ext4": "e2fsprogs"}
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Missing(Exception):
    """Something that this machine lacks; the message says what."""


class Failed(Exception):
    """A step did not work; the message says which."""


class Interrupted(BaseException):
    """A signal asks for the end; the first one only, so that cleaning up is not disturbed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def interrupt(number: int, _frame: object) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def amount(text: str) -> int:
    """Bytes, such as 300M."""
    factor = UNITS.get(text[-1:].upper(), 1)
    value = int(text[:-1] if factor > 1 else text) * factor
    if value <= 0:
        raise ValueError
    return value


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", type=amount, default=300 << 20, help="a second; default 300M")
    parser.add_argument("--requests", type=amount, default=1500, help="a second; default 1500")
    parser.add_argument("--image", type=Path, metavar="FOLDER", help="where to put the image")
    parser.add_argument("--json", metavar="FILE", help="the counters, instead of the line")
    parser.add_argument("folder", type=Path)
    parser.add_argument("command", nargs="+", help="after --")
    chosen = parser.parse_args(words)
    if not chosen.folder.is_dir():
        parser.error(f"{chosen.folder} is not a folder")
    return chosen


# --- what is needed -----------------------------------------------------------------------


def missing() -> str | None:
    """What this machine lacks, None if nothing."""
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
        try:
            shutil.copytree(folder, mount, dirs_exist_ok=True)
        finally:
            tool("umount", mount)
        tool("mount", "-o", "ro", device, mount)
        stack.callback(tool, "umount", mount)
        number = Path(device).stat().st_rdev
        disk = Disk(mount, _group(stack), f"{os.major(number)}:{os.minor(number)}")
        for name, value in (("read_bps_device", bytes_s), ("read_iops_device", requests_s)):
            (disk.group / f"blkio.throttle.{name}").write_text(f"{disk.device} {value}\n")
        yield disk


def _group(stack: contextlib.ExitStack) -> Path:
    above = throttle()
    assert above is not None
    group = above / f"capped-{os.getpid()}"
    group.mkdir()
    stack.callback(group.rmdir)
    return group


# --- the command --------------------------------------------------------------------------


def end_all(process: subprocess.Popen[bytes], group: Path, number: int) -> None:
    """Hands a signal to the command's group, then ends whatever is left in the control group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(SECONDS_TO_DIE)
    end = time.monotonic() + SECONDS_TO_DIE
    while (left := (group / "cgroup.procs").read_text(encoding="ascii").split()) and (
        time.monotonic() < end
    ):
        for word in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(word), signal.SIGKILL)
        time.sleep(0.05)
        process.poll()


def run(words: list[str], disk: Disk) -> int:
    """The exit status of the command as a shell gives it."""
    words = [word.replace("{mount}", str(disk.mount)) for word in words]
    # A shell that joins the control group before it becomes the command.
    join = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(disk.group / "cgroup.procs")]
    process = subprocess.Popen(
        [*join, *words],
        env={**os.environ, "CAPPED_MOUNT": str(disk.mount)},
        start_new_session=True,
    )
    try:
        code = process.wait()
    except Interrupted as interrupted:
        end_all(process, disk.group, interrupted.number)
        raise
    end_all(process, disk.group, signal.SIGTERM)  # what it may have left behind
    return code if code >= 0 else 128 - code


def report(
    chosen: argparse.Namespace, counters: dict[str, int], seconds: float, code: int
) -> None:
    found = {
        "bytes_s_max": chosen.bytes,
        "requests_s_max": chosen.requests,
        "seconds": seconds,
        "exit": code,
        **counters,
    }
    if chosen.json is not None:
        Path(chosen.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return
    print(
        f"{counters['requests']:,} requests, {counters['bytes'] / 2**20:,.1f} MiB in "
        f"{seconds:.2f} s; a second at most {chosen.requests:,} and {chosen.bytes / 2**20:,.0f}",
        file=sys.stderr,
    )


def main(words: list[str]) -> int:
    chosen = parse(words)
    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        with capped(
            chosen.folder,
            bytes_s=chosen.bytes,
            requests_s=chosen.requests,
            image_folder=chosen.image,
        ) as disk:
            start = time.monotonic()
            code = run(chosen.command, disk)
            report(chosen, disk, time.monotonic() - start, code)
    except Missing as error:
        print(f"run.py: {error}", file=sys.stderr)
        return UNAVAILABLE
    except Failed as error:
        print(f"run.py: {error}", file=sys.stderr)
        return FAILED
    except Interrupted as interrupted:
        return 128 + interrupted.number
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
