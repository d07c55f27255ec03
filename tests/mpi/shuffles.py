"""Program: shuffled epochs of every shape of job. Arguments: a data set of data.mixed_value.

Each rank compares its records with the values written; rank by rank they are put together and
compared with the orders of the epochs, which the program computes place by place.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
from data import MIXED, mixed_value
from mpi4py import MPI

from lmdbio.placement.sources import WindowSources
from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.planning.order import Epoch, Epochs
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.reader import block_size, phases
from lmdbio.reader.reader import Reader

EPOCHS, SEED = 2, 11
#: Of one's own: each record's mirror image.
MIRROR = Shuffle.given(range(MIXED - 1, -1, -1))
#: The words of a Reader whose roots read whole windows.
EXCHANGES = "each byte is read once an epoch"
SHUFFLES = (None, True, "groups:16", "windows:5x4", "runs:7", "group", "window", MIRROR)


def read(
    comm: MPI.Intracomm, path: str, batches: int | None = None, **more: object
) -> tuple[list[list[int]], Reader]:
    """Read so many batches, or all."""
    shares = []
    with Reader(path, comm=comm, seed=SEED, **more) as rdr:  # type: ignore[arg-type]
        for batch in itertools.islice(rdr, batches):
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == mixed_value(index), (comm.rank, index, more)
            shares.append(batch.indices.tolist())
    return shares, rdr


def sequence(rdr: Reader, first: int, last: int) -> list[int]:
    """Records at places of the epochs, by their definition."""
    if rdr.schedule.epochs is None:
        return [place % MIXED for place in range(first, last)]
    shuffle = rdr.schedule.epochs.shuffle
    return [
        int(Epoch(MIXED, SEED, number, shuffle).samples([within])[0])
        for number, within in (divmod(place, MIXED) for place in range(first, last))
    ]


def check(comm: MPI.Intracomm, shares: list[list[int]], rdr: Reader) -> None:
    """Compare each block of all ranks with the places that it has."""
    schedule = rdr.schedule
    strided = schedule.assignment == "strided"
    step = 1 if strided else schedule.block_iterations
    everybody = comm.allgather(shares)
    assert len({len(rank) for rank in everybody}) == 1, "all ranks have as many batches"
    end = EPOCHS * MIXED
    for first in range(0, len(shares), step):
        low = schedule.start + first * schedule.batch_size
        high = min(low + step * schedule.batch_size, end)
        got = [
            i
            for t in range(first, min(first + step, len(shares)))
            for r in everybody
            for i in r[t]
        ]
        wanted = sequence(rdr, low, high)
        assert (got if strided else sorted(got)) == (wanted if strided else sorted(wanted))
    every = [i for rank in everybody for batch in rank for i in batch]
    assert len(every) == end - schedule.start
    if not schedule.start:
        assert sorted(every) == sorted([*range(MIXED)] * EPOCHS)


def sliced(rdr: Reader) -> Epochs:
    """Return the order whose windows roots have read in slices."""
    used = (Path(sys.argv[1]) / "data.mdb").stat().st_size
    found = phases.choose_phases(Mode(phases=2), rdr.schedule, used, suggested=False).epochs
    assert found is not None
    return found


def check_traffic(comm: MPI.Intracomm, rdr: Reader) -> int:
    """Compare what roots sent and received with each other, and with what the orders say.

    Returns:
        Bytes that went from root to root.
    """
    schedule, stats = rdr.schedule, comm.allreduce(rdr.stats())
    assert stats.own_records + stats.peer_records + stats.file_records == stats.records
    assert not stats.late_records and not stats.gone_records
    if rdr.mode.phases == 1 and rdr.windows.text != EXCHANGES:
        assert stats.file_records == stats.records
        assert not stats.peer_bytes and not stats.served_bytes
        return 0
    own, moved, rows = 0, 0, WindowSources(schedule, sliced(rdr))
    for block in range(schedule.blocks or 0):
        for team in range(len(schedule.teams)):
            found = rows.block(block, team)
            counts = np.diff(found.begins)
            sizes = np.array([-(-len(mixed_value(i)) // 8) * 8 for i in found.records.tolist()])
            total = sizes[found.order].sum() if len(sizes) else 0
            here = np.repeat(found.roots == team, counts)
            own += int(sizes[found.order][here].sum()) if len(sizes) else 0
            moved += int(total) - int(sizes[found.order][here].sum()) if len(sizes) else 0
    assert stats.own_bytes == own
    assert stats.served_bytes == stats.peer_bytes == moved
    return moved


def resumes(comm: MPI.Intracomm, path: str, shuffle: object, per_node: int) -> None:
    """Go on in the middle of an epoch, of a group and of a window, with fewer ranks."""
    words = {"batch_size": 3, "shuffle": shuffle, "epochs": EPOCHS, "ranks_per_node": per_node}
    shares, rdr = read(comm, path, 5, **words)
    assert rdr.place == 15
    before = [i for t in range(5) for rank in comm.allgather(shares) for i in rank[t]]
    assert before == sequence(rdr, 0, 15)
    fewer = comm.Split(comm.rank < max(1, comm.size // 2), comm.rank)
    shares, rdr = read(fewer, path, start=15, **{**words, "batch_size": 7})
    check(fewer, shares, rdr)
    fewer.Free()


def main() -> None:
    comm, path = MPI.COMM_WORLD, sys.argv[1]
    modes = itertools.cycle(
        ["auto", "dio", "prov", "coal", "stag", Mode(ALL_RANKS, "provenance", "direct"),
         Mode(2, block_iterations=3), Mode(engine="mmap", block_iterations=5),
         Mode(ALL_RANKS, block_iterations=2, phases=2)]
    )  # fmt: skip
    sizes = itertools.cycle([comm.size + 1, 16, 1, 4 * comm.size, MIXED + 9])
    starts = itertools.cycle([0, 0, 13, MIXED + 5])
    cases = exchanged = in_file_order = 0
    phases.SLICE_BYTES = 8192
    for per_node in sorted({comm.size, -(-comm.size // 2)}):
        for shuffle, assignment in itertools.product(SHUFFLES, ("strided", "blocked")):
            # Windows of this small data set are read whole in every other case.
            block_size.WINDOW_BYTES_MIN = 1 if cases % 2 else 1 << 40
            shares, rdr = read(
                comm,
                path,
                batch_size=next(sizes),
                shuffle=shuffle,
                epochs=EPOCHS,
                assignment=assignment,
                mode=next(modes),
                start=next(starts),
                ranks_per_node=per_node,
            )
            check(comm, shares, rdr)
            in_file_order += shuffle is None and rdr.mode.phases == 2
            exchanged += check_traffic(comm, rdr) > 0
            cases += 1
        for shuffle in (GLOBAL, "groups:16", "windows:5x4"):
            resumes(comm, path, shuffle, per_node)
    assert exchanged >= 3 or comm.size == 1, exchanged
    assert in_file_order or comm.size == 1
    if comm.rank == 0:
        print(f"{cases} cases")


main()
