"""Runs the programs of this folder on several ranks, for the tests beside it.

Looks for mpiexec in ``LMDBIO_MPIEXEC``, beside the Python in use, then on the PATH. Two nodes
are played by MPICH's own switches where the MPI is MPICH; under any MPI, ``ranks_per_node=``
does.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lmdbio

HERE = Path(__file__).resolve().parent
#: No launch may take longer, seconds.
TIMEOUT_S = 90
TWO_NODES = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}


def mpiexec() -> str:
    """The launcher; skips the test where it or mpi4py is missing."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = os.environ.get("LMDBIO_MPIEXEC") or beside or shutil.which("mpiexec")
    if not found:
        pytest.skip("mpiexec is not installed")
    return found


def command(ranks: int, program: str, *arguments: object, plain: bool = False) -> list[str]:
    """``plain``: an uncaught exception ends its rank only, instead of the whole job."""
    start = [sys.executable] if plain else [sys.executable, "-m", "mpi4py"]
    oversubscribe = ["--oversubscribe"] if is_open_mpi() else []
    path = str(HERE / program)
    return [mpiexec(), *oversubscribe, "-n", str(ranks), *start, path, *map(str, arguments)]


@functools.cache
def is_open_mpi() -> bool:
    told = subprocess.run([mpiexec(), "--version"], capture_output=True, text=True, check=False)
    return "open" in told.stdout.lower() and "mpi" in told.stdout.lower()


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    # One package for all: several folders when it is built in place and not installed.
    roots = {str(Path(folder).parent) for folder in lmdbio.__path__}
    environ = dict(os.environ)
    environ["PYTHONPATH"] = os.pathsep.join([*roots, environ.get("PYTHONPATH", "")])
    environ.pop("LMDBIO_RANKS_PER_NODE", None)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return environ | (more or {})


def run(
    ranks: int,
    program: str,
    *arguments: object,
    env: dict[str, str] | None = None,
    prefix: tuple[str, ...] = (),
    expect: int | None = 0,
    plain: bool = False,
    timeout: float = TIMEOUT_S,
) -> str:
    """Runs a program to its end and returns what it printed.

    Args:
        expect: the exit status, None for any.
        plain: see ``command``.
    """
    done = subprocess.run(
        [*prefix, *command(ranks, program, *arguments, plain=plain)],
        env=environment(env),
        timeout=timeout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if expect is not None:
        assert done.returncode == expect, done.stdout
    return done.stdout
