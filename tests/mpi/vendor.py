"""Program: which MPI it runs under, and with how many ranks."""

from __future__ import annotations

import sys

from mpi4py import MPI

sys.stdout.write(f"vendor {MPI.get_vendor()[0]}, {MPI.COMM_WORLD.size} ranks\n")
