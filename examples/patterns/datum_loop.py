"""Caffe's data layer: Datum messages in a circle, each rank its share of every batch.

    python examples/patterns/datum_loop.py train_lmdb 256 100
    mpiexec -n 4 python examples/patterns/datum_loop.py train_lmdb 256 100

Prints the mean of all pixels and the number of images seen, over all ranks. How a network is
trained this way, and what each mode of reading costs, ../caffe shows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lmdbio

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "caffe")]
from datum import decode  # noqa: E402

__all__ = ["loop"]


def loop(path: str, batch_size: int, iterations: int, comm: Any = None) -> tuple[int, float]:
    """Images of this rank, and the sum of their mean pixels."""
    images, total = 0, 0.0
    with lmdbio.Reader(path, batch_size, comm=comm, iterations=iterations) as reader:
        for batch in reader:
            if not len(batch):
                continue  # more ranks than records of a batch
            pixels, _labels = decode(batch)
            images += len(pixels)
            total += float(pixels.mean(axis=tuple(range(1, pixels.ndim))).sum())
            del pixels  # which may look at the window
    return images, total


def main() -> None:
    path, batch_size, iterations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    comm = None
    if {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE"} & os.environ.keys():
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    images, total = loop(path, batch_size, iterations, comm)
    if comm is not None:
        images, total = comm.allreduce(images), comm.allreduce(total)
    if comm is None or comm.rank == 0:
        print(f"{images} images, mean pixel {total / max(1, images):.3f}")


if __name__ == "__main__":
    main()
