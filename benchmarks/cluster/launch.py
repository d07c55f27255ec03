"""Starts the ranks of a job, and lets them meet: by mpiexec, or by torchrun for sockets alone.

    subprocess.run(command(8, ["-m", "program"], ("mpi", "sockets")))     here
    comms = meet(("mpi", "sockets"))                                     in the program

Ranks that mpiexec has started meet over sockets as well, so that both transports take turns in the
same processes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from lmdbio.bench import processes

__all__ = ["TRANSPORTS", "command", "lacking", "meet"]

#: Transports of the messages of a Reader's ranks.
TRANSPORTS = ("mpi", "sockets")


def lacking(transports: Sequence[str]) -> str | None:
    """Say what this machine lacks to start ranks, None if nothing.

    Args:
        transports: transports over which they meet, of TRANSPORTS.
    """
    if "sockets" in transports and importlib.util.find_spec("torch") is None:
        return "torch is not installed, by which ranks meet without MPI"
    if "mpi" not in transports:
        return None
    if processes.mpiexec() is None:
        return "there is no mpiexec (pip install 'lmdbio[mpich]')"
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed (pip install 'lmdbio[mpi]')"
    return None


def command(ranks: int, program: Sequence[str], transports: Sequence[str]) -> list[str]:
    """Return the command that starts ranks, and ends all of them when one fails.

    Args:
        ranks: number of ranks.
        program: words behind ``python``.
        transports: transports over which they meet, of TRANSPORTS.
    """
    python = [sys.executable, "-m"]
    if "mpi" not in transports:
        torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        return [*python, *torchrun, *program]
    return [processes.mpiexec() or "mpiexec", "-n", str(ranks), *python, "mpi4py", *program]


def meet(transports: Sequence[str]) -> dict[str, Any]:
    """Return the ``comm`` of a Reader by transport. Collective over all ranks that were started.

    Args:
        transports: transports of ``command``.
    """
    if "sockets" not in transports:
        from mpi4py import MPI

        return {"mpi": MPI.COMM_WORLD}
    import torch.distributed as dist

    if "mpi" not in transports:
        dist.init_process_group("gloo")
        return {"sockets": dist.group.WORLD}
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    store = dist.TCPStore("localhost", 0, is_master=True) if world.rank == 0 else None
    port = world.bcast(store and store.port)
    store = store or dist.TCPStore("localhost", port)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size)
    return {"mpi": world, "sockets": dist.group.WORLD}
