"""Program: Readers and Loaders of samples. Arguments: where the data set is made.

All ranks together have each sample of each epoch once, by a scan whose extents the first root
sends, by copies that roots walk themselves, and by a provenance file, with and without a cache. A
layout of pairs, one that the file has not, and words that differ between ranks, are errors on all.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from mpi4py import MPI

from lmdbio import Reader
from lmdbio.convert.convert import convert
from lmdbio.errors import IncompatibleError, PeerError
from lmdbio.placement import homes
from lmdbio.planning.mode import ALL_RANKS, Mode

COMM = MPI.COMM_WORLD
COUNT = 211
MODES = ("auto", Mode(ALL_RANKS, "scan", block_iterations=1), Mode(1, "scan", block_iterations=3))

homes.GRAIN_BYTES_MIN = 4096


def value(i: int) -> bytes:
    return b"%d " % i * (1 + i * 97 % 900)


def write(path: Path) -> None:
    with lmdb.open(str(path), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for i in range(COUNT):
            txn.put(b"%d" % i, value(i))
        txn.put(b"length", pickle.dumps(COUNT))


def check(path: Path, wanted: dict[int, bytes], **words: Any) -> None:
    """Compare all samples of two epochs, of all ranks together."""
    words |= {"comm": COMM, "epochs": 2}
    with Reader(path, 24, **words) as reader:
        assert reader.count == len(wanted), (reader.count, words)
        mine = [
            (int(index), bytes(view))
            for batch in reader
            for index, view in zip(batch.indices, batch, strict=True)
        ]
    everything = [one for part in COMM.allgather(mine) for one in part]
    assert sorted(everything) == sorted([*wanted.items()] * 2), words


def refused(path: Path, words: dict[str, Any], kind: type[Exception], reason: str) -> None:
    try:
        Reader(path, 24, comm=COMM, **words)
    except (kind, PeerError) as error:
        assert reason in str(error), error
    else:
        raise AssertionError(f"{words} were not refused")


def main() -> None:
    folder = Path(sys.argv[1])
    files = [folder / "a", folder / "b"]
    if COMM.rank == 0:
        for file in files:
            write(file)
    COMM.barrier()
    samples = {i: value(i) for i in range(COUNT)}
    in_key_order = sorted(range(10, COUNT), key=lambda i: b"%d" % i)
    without = dict(enumerate(map(value, in_key_order)))
    shuffled: dict[str, Any] = {"shuffle": "global", "seed": 5}
    for turn in range(2):
        for mode in MODES if not turn else ("auto",):
            check(files[0], samples, layout="auto", mode=mode)
            check(files[0], samples, layout="ocp", mode=mode, **shuffled)
            check(files[0], samples, layout="ocp", mode=mode, cache="memory=4M", **shuffled)
            check(files[0], without, skip=["length", "[0-9]"], mode=mode, **shuffled)
            # Copies: each root walks its own.
            check(files[COMM.rank % 2], samples, layout="auto", mode=mode, ranks_per_node=1)
        COMM.barrier()
        if COMM.rank == 0 and not turn:
            convert(files[0])
        COMM.barrier()
    refused(files[0], {"layout": "ocr"}, IncompatibleError, "'ocr'")
    refused(files[0], {"layout": "no such"}, ValueError, "no such")
    if COMM.size > 1:
        differs = "length" if COMM.rank else "metadata"
        refused(files[0], {"skip": [differs]}, ValueError, "samples differs between ranks")
    loaders(files[0])
    COMM.barrier()
    if COMM.rank == 0:
        print("samples of all ranks", flush=True)


def loaders(path: Path) -> None:
    """Compare a Loader that has MPI and a cache with one that has neither."""
    try:
        from lmdbio.torch import Loader
    except ModuleNotFoundError:
        return
    words: dict[str, Any] = {"layout": "auto", "shuffle": True, "seed": 3, "collate_fn": list}
    plain = Loader(path, 7, rank=COMM.rank, ranks=COMM.size, threads=1, **words)
    with plain, Loader(path, 7, comm=COMM, cache="memory=4M", **words) as joint:
        for _ in range(2):
            for one, other in zip(joint, plain, strict=True):
                assert one == other
    assert np.isfinite(joint.stats().own_records)


main()
