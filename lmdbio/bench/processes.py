"""Starts contestants: each job in a process, or in ranks, that end with it.

However a run ends (by itself, too late, by Ctrl-C, SIGTERM or SIGHUP), nothing that it started
is left: fio's jobs and MPI's ranks have sessions of their own, so they are looked up.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["SECONDS_MAX", "RunFailed", "Waiting", "call", "end", "inherited", "mpiexec"]

#: A contestant that is this slow has hung.
SECONDS_MAX = 300.0
#: From SIGTERM, upon which fio and mpiexec end what they started, to SIGKILL.
SECONDS_TO_END = 2.0

#: Called about once a second with the seconds that a run has taken up to then.
Waiting = Callable[[float], None]


class RunFailed(Exception):
    """A contestant died, hung or gave no answer; the message has its last words."""


def mpiexec() -> str | None:
    """The mpiexec beside this Python (the mpich wheel's), else the one in PATH."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")


def inherited() -> dict[str, str]:
    """Our environment, with which a child sees this very package.

    Not the one in the current folder, which may be a clone that was never compiled (from Python
    3.11 on).
    """
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def descendants(pid: int) -> dict[int, int]:
    """Descriptors (pidfd) of all that a process has started, by process; to be closed."""
    found: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            # A process may end at any moment.
            with contextlib.suppress(OSError):
                for child in map(int, path.read_text(encoding="ascii").split()):
                    if child not in found:
                        found[child] = os.pidfd_open(child)
                        waiting.append(child)
    return found


def end(process: subprocess.Popen[Any]) -> None:
    """Ends a process, its group and all its descendants, whatever group these are in."""
    below = descendants(process.pid)
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            for descriptor in below.values():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=SECONDS_TO_END)
    finally:
        for descriptor in below.values():
            os.close(descriptor)


def outputs(
    process: subprocess.Popen[str], title: str, seconds_max: float, waiting: Waiting | None
) -> tuple[str, str]:
    """Return what a process writes until it ends: output and errors.

    Raises:
        RunFailed: it took over ``seconds_max``.
    """
    begun = time.monotonic()
    while True:
        passed = time.monotonic() - begun
        if passed >= seconds_max:
            raise RunFailed(f"{title}: no answer after {seconds_max:g} s (the limit)")
        try:
            return process.communicate(timeout=min(1.0, seconds_max - passed))
        except subprocess.TimeoutExpired:
            if waiting is not None:
                waiting(time.monotonic() - begun)


def call(
    command: list[str],
    title: str,
    environment: dict[str, str],
    seconds_max: float,
    waiting: Waiting | None = None,
) -> dict[str, Any]:
    """Runs a command in a process group of its own; returns the JSON in its last line.

    Raises:
        RunFailed: it exited with an error, gave no answer, or took over ``seconds_max``.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = outputs(process, title, seconds_max, waiting)
    finally:
        # Also after Ctrl-C.
        if process.poll() is None:
            end(process)
    if process.returncode != 0:
        words = err.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        raise RunFailed(f"{title}: {words[0]}")
    try:
        return dict(json.loads(out.strip().splitlines()[-1]))
    except (IndexError, ValueError, TypeError) as error:
        raise RunFailed(f"{title}: gave no answer") from error
