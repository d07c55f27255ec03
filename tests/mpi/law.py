"""Program: for one assignment, every legal mode gives every rank the same bytes in the same order.

Arguments: a data set of data.mixed_value, with a sidecar; assignment; ranks per node; part; parts.

All that can be composed is: ways of locating, engines, blocks, roots, tokens, phases. Every part-
th of the cases is run here, in an order drawn from the arguments. Each record is compared with the
value that was written, and each rank's sequence with the one of the case before. In every fourth
case reads arrive late and in any order, so that nothing may lean on their being there.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from data import MIXED, mixed_value
from mpi4py import MPI

from lmdbio import _core
from lmdbio.planning.mode import AHEAD, ALL_RANKS, ENGINES, LOCATE, USUAL_TOKENS, Mode
from lmdbio.reader import block_size, phases, roots
from lmdbio.reader.reader import Reader
from tests.support.in_memory import memory_engine

COMM = MPI.COMM_WORLD
ITERATIONS, BATCH, START = 4, 23, MIXED - 40
LATE_US = 1500
BLOCKS = (1, 3)


def modes() -> Iterator[Mode]:
    roots, tokens = (1, 2, ALL_RANKS), (0, 1, 2, USUAL_TOKENS)
    here = [engine for engine in ENGINES if engine != "remote"]  # which reads from servers alone
    for choice in itertools.product(roots, LOCATE, here, BLOCKS, tokens):
        if choice[1] in AHEAD or choice[3] == 1:
            yield Mode(*choice, phases=1)
        if choice[1] in AHEAD and choice[4] < 2:
            yield Mode(*choice, phases=2)


class Late:
    """Makes engines of the data file that answer late."""

    def __init__(self, path: str) -> None:
        self._content = (Path(path) / "data.mdb").read_bytes()
        self._open = roots.open_engine

    def __enter__(self) -> None:
        content = self._content

        def late(_pages: object, choice: object) -> _core.Engine:
            # It passes as what a mode can be told to read with.
            return memory_engine(content, delay_us=LATE_US, kind="pread")[0]

        roots.open_engine = late  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        roots.open_engine = self._open


def read(path: str, mode: Mode, assignment: str, per_node: int) -> tuple[list[int], Mode]:
    told = []
    with Reader(
        path,
        BATCH,
        comm=COMM,
        mode=mode,
        assignment=assignment,
        start=START,
        iterations=ITERATIONS,
        ranks_per_node=per_node,
        # Small requests: blocks take several, and parts of them come before others.
        request_bytes_max=8192,
        depth=3,
    ) as rdr:
        for batch in rdr:
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == mixed_value(index), (COMM.rank, index, mode)
            told += batch.indices.tolist()
    if mode.phases == 2:
        stats, several = COMM.allreduce(rdr.stats()), len(rdr.schedule.teams) > 1
        assert stats.file_records == (0 if several else stats.records), (mode, rdr.windows, stats)
        assert (stats.peer_records > 0) is several, mode
    return told, rdr.mode


def main() -> None:
    path, assignment = sys.argv[1], sys.argv[2]
    # So that this small data set has many slices.
    block_size.WINDOW_BYTES_MIN, phases.SLICE_BYTES = 1, 4096
    per_node, part, parts = map(int, sys.argv[3:])
    cases = list(modes())
    random.Random(f"{assignment} {per_node} {COMM.size}").shuffle(cases)
    late = Late(path)
    # For "blocked" the roots and the iterations of a block say who gets what.
    alike: dict[object, list[int]] = {}
    for number, mode in enumerate(cases[part::parts]):
        if number % 4 == 0:
            with late:
                told, found = read(path, mode, assignment, per_node)
        else:
            told, found = read(path, mode, assignment, per_node)
        law = (
            assignment
            if assignment == "strided"
            else (found.roots_per_node, mode.block_iterations)
        )
        assert alike.setdefault(law, told) == told, (COMM.rank, mode)
        everybody = COMM.gather(told)
        if COMM.rank == 0:
            wanted = [(START + i) % MIXED for i in range(ITERATIONS * BATCH)]
            assert sorted(i for one in everybody for i in one) == sorted(wanted), mode
    if COMM.rank == 0:
        print(f"{len(cases[part::parts])} of {len(cases)} cases")


main()
