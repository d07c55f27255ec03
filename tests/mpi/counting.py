"""How many communicators a rank has."""

from __future__ import annotations

import contextlib

from mpi4py import MPI

#: Made under Open MPI to fill all gaps in its numbers.
NUMBERED = 100


def communicators(most: int) -> int:
    """How many there are: MPICH gives so many less, Open MPI numbers them without gaps.

    Those of a rank alone take the same numbers, and no messages.

    Args:
        most: more than these are not tried for; MPICH has about 2,000, Open MPI no limit.
    """
    if MPI.get_vendor()[0] == "sockets":
        return 0  # no MPI, no communicators
    is_open_mpi = MPI.get_vendor()[0] == "Open MPI"
    if is_open_mpi:
        most = NUMBERED
    made: list[MPI.Intracomm] = []
    with contextlib.suppress(MPI.Exception):
        while len(made) < most:
            made.append(MPI.COMM_SELF.Dup())
    last = max(comm.py2f() for comm in made) if is_open_mpi else most
    count = len(made)
    for comm in made:
        comm.Free()
    return int(last + is_open_mpi - count)
