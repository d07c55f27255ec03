"""Runs a command before a copy of a folder on a disk of a set speed: makes, mounts, caps, ends.

    python -m benchmarks.capped.run [--bytes 300M] [--requests 1500] FOLDER -- COMMAND...

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
import json
import sys
from pathlib import Path

from benchmarks import command
from benchmarks.capped import capped

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def amount(text: str) -> int:
    """Bytes, such as 300M."""
    factor = UNITS.get(text[-1:].upper(), 1)
    value = int(text[:-1] if factor > 1 else text) * factor
    if value <= 0:
        raise ValueError
    return value


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.capped.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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


def report(chosen: argparse.Namespace, disk: capped.Disk, seconds: float, code: int) -> None:
    counters = disk.counters()
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

    def before_the_disk() -> int:
        with capped.capped(
            chosen.folder,
            bytes_s=chosen.bytes,
            requests_s=chosen.requests,
            image_folder=chosen.image,
        ) as disk:
            code, seconds = command.carry_out(
                chosen.command,
                {"mount": disk.mount},
                {"CAPPED_MOUNT": str(disk.mount)},
                prefix=disk.join,
                left=disk.members,
            )
            report(chosen, disk, seconds, code)
        return code

    return command.guarded(before_the_disk)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
