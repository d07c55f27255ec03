"""One run, watched from outside: the peak of its memory, and what it leaves behind.

    python -m benchmarks.training.watch JOB         JOB and the answer are JSON

Processes whose parent has ended become children of this one (PR_SET_CHILD_SUBREAPER), so that
workers that outlive their run are seen, however they were started. As root each run has a /dev/shm
of its own: others' files are not taken for its, and what it leaves ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from typing import Any

import psutil

from benchmarks.training import tree

SECONDS_BETWEEN = 0.1
#: Helpers of multiprocessing end by themselves when they see their parent's end.
SECONDS_TO_END = 2.0
PR_SET_CHILD_SUBREAPER = 36
# Source: unshare(2), mount(2).
CLONE_NEWNS, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x20000, 2, 4, 0x4000, 1 << 18


def own_shared_memory() -> bool:
    """Give this process and all that it starts a /dev/shm of their own, if it may.

    Returns:
        Whether it has one.
    """
    libc = ctypes.CDLL(None)
    return bool(
        libc.unshare(CLONE_NEWNS) == 0
        and libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) == 0
        and libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV, None) == 0
    )


def watched(words: list[str]) -> tuple[int, dict[str, Any]]:
    """Run a command; return its exit status, and what it told as JSON with what was seen."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = tree.shared_files()
    # A file, not a pipe, which those that outlive their run would hold open.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out)
        peak, root = 0, psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, tree.memory_bytes(root))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_BETWEEN)
        out.seek(0)
        said = out.read().splitlines()
    told = json.loads(said[-1]) if process.returncode == 0 else {}
    return process.returncode, {**told, "peak_bytes": peak, "left": left(before)}


def left(before: set[str]) -> list[str]:
    """Return what a run left: processes, which are ended, and files in /dev/shm.

    Args:
        before: what lay in /dev/shm.
    """
    own, end = psutil.Process(), time.monotonic() + SECONDS_TO_END
    while (living := own.children(recursive=True)) and time.monotonic() < end:
        psutil.wait_procs(living, timeout=0.1)
    names = []
    for process in living:
        with contextlib.suppress(psutil.Error):
            names.append(f"process {' '.join(process.cmdline())[-80:]}")
            process.kill()
    psutil.wait_procs(living, timeout=SECONDS_TO_END)
    return names + tree.strays(before)


def main() -> int:
    own_shared_memory()
    status, told = watched([sys.executable, "-m", "benchmarks.training.loop", sys.argv[1]])
    if status == 0:
        print(json.dumps(told))
    return abs(status)  # of a signal, its number


if __name__ == "__main__":
    sys.exit(main())
