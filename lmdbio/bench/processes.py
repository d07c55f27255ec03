"""Starts contestants: each job in a process, or in ranks, that end with it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lmdbio.bench.contestants import CONTESTANTS, Answer, Job

__all__ = ["RunFailed", "call", "inherited", "mpiexec", "start", "unavailable"]

SECONDS_MAX = 300.0
MODULE = "lmdbio.bench.contestants"


class RunFailed(Exception):
    """A contestant died, hung or gave no answer; the message has its last words."""


def mpiexec() -> str | None:
    """The mpiexec beside this Python (the mpich wheel's), else the one in PATH."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")


def unavailable(contestant: str) -> str | None:
    """Why a contestant cannot run here, None if it can."""
    if CONTESTANTS[contestant].ranks == 1:
        return None
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    return None if mpiexec() else "there is no mpiexec"


def command(job: Job) -> list[str]:
    argument = json.dumps(asdict(job))
    ranks = CONTESTANTS[job.contestant].ranks
    if ranks == 1:
        return [sys.executable, "-m", MODULE, argument]
    # mpi4py's runner ends all ranks when one of them raises.
    python = [sys.executable, "-m", "mpi4py", "-m", MODULE, argument]
    return [mpiexec() or "mpiexec", "-n", str(ranks), *python]


def inherited() -> dict[str, str]:
    """Our environment, with which a child sees this very package."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def environment(job: Job) -> dict[str, str]:
    """The child sees this very package, and as many nodes as the contestant wants."""
    found = inherited()
    nodes = CONTESTANTS[job.contestant].nodes
    if nodes > 1:
        # MPICH then splits its ranks as if they ran on so many machines.
        found |= {"MPIR_CVAR_NUM_CLIQUES": str(nodes), "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}
    return found


def call(
    command: list[str], title: str, environment: dict[str, str], seconds_max: float
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
        out, err = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{title}: no answer after {seconds_max:.0f} s") from error
    finally:
        # Whatever is left of it, ranks included, also after Ctrl-C.
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0:
        words = err.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        raise RunFailed(f"{title}: {words[0]}")
    try:
        return dict(json.loads(out.strip().splitlines()[-1]))
    except (IndexError, ValueError, TypeError) as error:
        raise RunFailed(f"{title}: gave no answer") from error


def start(job: Job, seconds_max: float = SECONDS_MAX) -> Answer:
    """Runs a job and returns its answer.

    Raises:
        RunFailed: see ``call``.
    """
    title = CONTESTANTS[job.contestant].title
    answer = call(command(job), title, environment(job), seconds_max)
    try:
        return Answer(**answer)
    except TypeError as error:
        raise RunFailed(f"{title}: gave no answer") from error
