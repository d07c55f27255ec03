"""Program: provenance files of which one node's is damaged. Arguments: a folder to make them in.

Each node has a provenance file of its own for one data set. Where a block of one is damaged, its
roots walk the tree when they meet that, and where its directory is, when they open it; all ranks
get the records that they get without any. A mode by provenance is an error on all ranks.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path
from typing import Any

from mpi4py import MPI

from lmdbio import Reader
from lmdbio.convert.convert import convert
from lmdbio.errors import Error, PeerError
from lmdbio.provenance import BLOCKS_AT
from tests.support import databases

COMM = MPI.COMM_WORLD
FOLDER, PER_NODE = Path(sys.argv[1]), 2
COUNT, BATCH = 900, 45


def value(i: int) -> bytes:
    return b"%d " % i * (1 + i * 97 % 60)


def make() -> None:
    with databases.open_writable(FOLDER / "env", 1) as env:
        databases.write(env, [(b"%06d" % i, value(i)) for i in range(COUNT)])
    (FOLDER / "0").mkdir()
    sidecar = convert(FOLDER / "env", form="explicit", output=f"{FOLDER}/0/data.prov").sidecar
    for what, at in (("block", BLOCKS_AT + 9), ("directory", -9)):
        content = bytearray(sidecar.read_bytes())
        content[at] ^= 4
        (FOLDER / what).mkdir()
        (FOLDER / what / "data.prov").write_bytes(content)


def read(provenance: Path, **words: Any) -> None:
    words |= {"ranks_per_node": PER_NODE, "provenance": provenance, "request_bytes_max": 8192}
    with Reader(FOLDER / "env", BATCH, comm=COMM, **words) as reader:
        mine = []
        for batch in reader:
            indices = batch.indices.tolist()
            assert [bytes(one) for one in batch] == [value(i) for i in indices], words
            mine.append(indices)
    every = COMM.allgather(mine)
    found = [i for t in range(len(mine)) for rank in every for i in rank[t]]
    assert sorted(found) == sorted(i % COUNT for i in range(len(found))), words


def refused(provenance: Path, **words: Any) -> None:
    words |= {"ranks_per_node": PER_NODE, "provenance": provenance, "iterations": 40}
    try:
        with Reader(FOLDER / "env", BATCH, comm=COMM, **words) as reader:
            for _ in reader:
                pass
        told = ""
    except (Error, PeerError) as error:
        told = str(error)
    every = COMM.allgather(told)
    assert all(every) and any("is damaged" in one for one in every), every


def main() -> None:
    if COMM.rank == 0:
        make()
    COMM.barrier()
    cases, sound = 0, FOLDER / "0" / "data.prov"
    for what, node in itertools.product(("block", "directory"), (0, 1)):
        is_here = COMM.rank // PER_NODE == min(node, (COMM.size - 1) // PER_NODE)
        own = FOLDER / what / "data.prov" if is_here else sound
        read(own, iterations=40)
        read(own, iterations=40, assignment="blocked", start=7 * BATCH)
        read(own, shuffle="global", seed=3, epochs=2)
        read(own, shuffle="global", seed=3, epochs=2, cache="memory=1M")
        refused(own, mode="coal")
        cases += 5
    if COMM.rank == 0:
        shutil.rmtree(FOLDER / "env")
        print(f"{cases} cases of damaged provenance files", flush=True)


main()
