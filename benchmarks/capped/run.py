"""Run a command before a copy of a folder on a disk of a set speed: makes, mounts, caps, ends.

    python -m benchmarks.capped.run [--bytes 300M] [--requests 1500] FOLDER -- COMMAND...

FOLDER's files are copied to an ext4 image behind a loop device with direct I/O, which is mounted
read-only. The command, and all that it starts, may read so many bytes and requests a second from
it (cgroup v1, blkio.throttle); it finds the copy at {mount} in its words, or $CAPPED_MOUNT. The
bytes and requests that the kernel counted are printed at the end, to standard error.

The kernel counts a request when the file system asks for it, before neighbours are merged.

The exit status is the command's; 69 if this machine cannot do it (one line says why), 70 if a
step failed. However it ends, interrupted included, mount, loop device, control group and image
are gone afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import command
from benchmarks.capped import capped
from lmdbio.system.amounts import parse_bytes


def amount(text: str) -> int:
    """Return the bytes that a text such as 300M means."""
    return parse_bytes(text, "an amount")


def main(words: list[str]) -> int:
    parser = command.parser("benchmarks.capped.run", __doc__)
    parser.add_argument("--bytes", type=amount, default=300 << 20, help="a second; default 300M")
    parser.add_argument("--requests", type=amount, default=1500, help="a second; default 1500")
    parser.add_argument("--image", type=Path, metavar="FOLDER", help="where to put the image")
    chosen = parser.parse_args(words)
    caps = {"bytes_s": chosen.bytes, "requests_s": chosen.requests}

    def before_the_disk() -> int:
        with capped.capped(chosen.folder, **caps, image_folder=chosen.image) as disk:
            code, seconds = command.run(
                chosen.command, "CAPPED", {"mount": disk.mount}, disk.join, disk.members
            )
            found = disk.counters()
        text = (
            f"{found['requests']:,} requests, {found['bytes'] / 2**20:,.1f} MiB in {seconds:.2f} s"
            f"; a second at most {chosen.requests:,} and {chosen.bytes / 2**20:,.0f}"
        )
        limits = {f"{name}_max": cap for name, cap in caps.items()}
        command.report(chosen.json, limits | {"seconds": seconds, "exit": code} | found, text)
        return code

    return command.guarded(before_the_disk)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
