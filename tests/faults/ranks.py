"""Program: Readers on several ranks, one of which meets faults. Started by run.py.

In each turn all ranks make a Reader and go through it; one of them, another each time, has the
faults. All must end, with batches that are right or with a documented exception; the job must
be whole afterwards. Arguments: data set, seed, turns. Rank 0 prints as worker.py does.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import random
import sys
import warnings
from collections import Counter
from pathlib import Path

from cell import Cell
from interposer import Act, Call, Interposer
from kinds import Kind, Rule, Scripted
from mpi4py import MPI
from oracle import read
from worker import held, settle

import lmdbio

COMM = MPI.COMM_WORLD
RANK, RANKS = COMM.rank, COMM.size
ITERATIONS = 12
TURN_SECONDS_MAX = 60

KINDS = (
    Kind("read: EIO", (Rule(Call.READ, Act.FAIL, errno.EIO),)),
    Kind("read: end of file", (Rule(Call.READ, Act.END),)),
    Kind("open: EMFILE", (Rule(Call.OPEN, Act.FAIL, errno.EMFILE),)),
    Kind("fstat: EIO", (Rule(Call.STAT, Act.FAIL, errno.EIO),)),
    Kind("malloc: NULL", (Rule(Call.MEMORY, Act.FAIL, errno.ENOMEM),)),
    Kind("thread: EAGAIN", (Rule(Call.THREAD, Act.FAIL, errno.EAGAIN),)),
    Kind("statvfs: EIO", (Rule(Call.STATVFS, Act.FAIL, errno.EIO, 1),), borne=True),
    Kind("read: short", (Rule(Call.READ, Act.SHORT, 0, 1),), borne=True),
    Kind("/dev/shm: full", (Rule(Call.POPULATE, Act.FAIL, errno.EFAULT),)),
)


def turn(cell: Cell, folder: Path, values: list[bytes], size: int, start: int) -> None:
    """One Reader's life on this rank."""
    with lmdbio.Reader(folder, size, comm=COMM, start=start, iterations=ITERATIONS) as reader:
        for t, batch in enumerate(reader):
            wanted = [values[int(i)] for i in batch.indices]
            cell.equal([bytes(v) for v in batch], wanted, f"iteration {t}")
            first = start + t * size + RANK * size // RANKS
            cell.equal(batch.indices[:1].tolist(), [first % len(values)], f"iteration {t}")
            del batch


def main() -> int:
    folder, seed, turns = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    settle()
    oracle = read(folder)
    values = [value for _, value in oracle.items]
    interposer = Interposer(folder.parent)
    interposer.watch(oracle.file, oracle.sidecar)
    holds: list[dict[str, int]] = []
    for kind in KINDS:
        chance = random.Random(f"{seed}/{kind.name}")  # the same on all ranks
        fault = Scripted(kind, interposer, random.Random(f"{seed}/{kind.name}/{RANK}"))
        cell = Cell(kind, fault, [folder.parent, Path("/dev/shm")])
        fault.disarm()
        turn(cell, folder, values, 40, 0)
        fault.measure()
        told: Counter[str] = Counter()
        for _ in range(turns):
            faulthandler.dump_traceback_later(TURN_SECONDS_MAX, exit=True)
            size, start = chance.choice((RANKS, 16, 60)), chance.randrange(len(values))
            struck = chance.randrange(RANKS)
            COMM.Barrier()
            if struck == RANK or kind.borne:
                cell.arm()
            error: BaseException | None = None
            try:
                turn(cell, folder, values, size, start)
            except Exception as caught:
                error = caught
                if isinstance(error, lmdbio.errors.PeerError) and struck != RANK:
                    told["peer"] += 1
                    cell.disarm()
                else:
                    cell.note(error)
            cell.disarm()
            failed = COMM.allgather(error is not None)
            del error
            told["failed"] += any(failed)
            if all(failed) or not any(failed):
                turn(cell, folder, values, 8, 3)  # the job is whole
                told["recovered"] += any(failed)
            else:
                told["partly"] += 1
                turn(cell, folder, values, 8, 3)
            faulthandler.cancel_dump_traceback_later()
        holds.append(held())
        rows = COMM.gather((cell.injected, cell.raised, cell.compared, cell.wrong, cell.breaches))
        if RANK == 0:
            assert rows is not None
            sums = [sum(row[i] for row in rows) for i in range(4)]
            report = {
                "surface": f"reader, {RANKS} ranks",
                "kind": kind.name,
                "uses": turns,
                "failures": told["failed"] if not kind.borne else turns,
                "injected": sums[0],
                "raised": sums[1],
                "recovered": told["recovered"] + told["partly"],
                "compared": sums[2],
                "wrong": sums[3],
                "breaches": [text for row in rows for text in row[4]],
            }
            print(json.dumps({"cell": report}), flush=True)
    if RANK == 0:
        for one in holds:
            print(json.dumps({"held": one}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
