"""The processes that train together: mpi4py's, or this one alone."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Ranks"]


class Ranks:
    """Those that train together; alone, none but this process."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.rank: int = 0 if comm is None else comm.rank
        self.size: int = 1 if comm is None else comm.size

    @classmethod
    def of_this_job(cls) -> Ranks:
        """All processes that mpiexec started.

        Raises:
            ValueError: mpi4py is not there, or of another MPI: each would train alone.
        """
        started = os.environ.get("PMI_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or "1"
        comm, why = None, "mpi4py is of another MPI than mpiexec"
        try:
            from mpi4py import MPI

            comm = MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None
        except (ImportError, RuntimeError) as error:
            why = str(error)
        if comm is None and int(started) > 1:
            raise ValueError(f"mpiexec started {started} processes that know of none other: {why}")
        return cls(comm)

    def add_up(self, vector: npt.NDArray[np.float32]) -> None:
        """Makes ``vector`` the sum over all ranks' vectors."""
        if self.comm is not None:
            self.comm.Allreduce(sys.modules["mpi4py.MPI"].IN_PLACE, vector)

    def gather(self, value: Any) -> list[Any]:
        """All ranks' values, on all ranks."""
        return [value] if self.comm is None else list(self.comm.allgather(value))

    def say(self, text: str) -> None:
        """To who waits, once."""
        if self.rank == 0:
            print(text, file=sys.stderr, flush=True)

    def give_up(self, reason: str) -> None:
        """Says why and ends all ranks: they may be waiting for this one, for ever."""
        try:
            print(reason, file=sys.stderr, flush=True)
            if self.comm is not None:
                time.sleep(1)  # an mpiexec that is told to end everything reads nothing more
        finally:
            if self.comm is not None:
                self.comm.Abort(1)
