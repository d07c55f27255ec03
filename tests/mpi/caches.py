"""Program: roots keep parts of the file. Arguments: data sets of data.mixed_value and
fixed_value; how many cases of each size of nodes.

In orders, assignments, modes and jobs of every shape, with more and with less memory than the file
needs, each rank gets the records of the same job without a cache, with the values written; each
grain is read once; and rows come from where ``placement.forecast`` has said before. Where ranks
take what their root keeps, each batch has the records of the same job strided, in equal shares.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from data import FIXED, MIXED, fixed_value, mixed_value
from mpi4py import MPI

from lmdbio import Cache
from lmdbio.cache import clear, find
from lmdbio.locate.open import open_record_index
from lmdbio.observe.stats import Stats
from lmdbio.placement import homes
from lmdbio.placement.forecast import ROW_SOURCES, Job, Outlook
from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.planning.reads import PAGE_BYTES, PlanOptions
from lmdbio.planning.shuffle import Shuffle
from lmdbio.reader import block_size
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
EPOCHS, SEED, REQUEST = 3, 0, 8192
#: Of all orders, sizes and assignments, for each size of nodes.
CASES = int(sys.argv[3])
SHUFFLES = (None, "global", "groups:16", "windows:5x4", "runs:7")
WINDOWED, SCATTERED = ("groups:16", "windows:5x4"), ("global", "runs:7")
#: Parts of the file that all roots together have memory for.
PARTS = (2.0, 1.0, 0.6, 0.1)
MODES = (
    "auto",
    Mode(1, "scan", block_iterations=0),
    Mode(ALL_RANKS, "scan"),
    Mode(2, "scan", block_iterations=3),
    Mode(1, "scan", "direct", block_iterations=2),
)

#: A small data set has many grains, and windows.
homes.GRAIN_BYTES_MIN = block_size.WINDOW_BYTES_MIN = 4096


def read(path: str, value: object, **words: object) -> tuple[list[list[int]], Reader, Stats]:
    """Read all, and compare every record."""
    shares = []
    with Reader(path, comm=COMM, seed=SEED, **words) as rdr:  # type: ignore[arg-type]
        for batch in rdr:
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == value(index), (COMM.rank, index, words)  # type: ignore[operator]
            shares.append(batch.indices.tolist())
    COMM.barrier()  # a root counts what it sends also after its own ranks have left
    return shares, rdr, COMM.allreduce(rdr.stats())


def check_file(rdr: Reader, stats: Stats, size: int, part: float, roots: int) -> None:
    """Compare what was read from the file with what is the least."""
    own = stats.own_records + stats.disk_records
    assert own + stats.peer_records + stats.file_records == stats.records
    assert not stats.damaged_pages
    assert not stats.late_records and not stats.gone_records
    assert stats.served_bytes == stats.peer_bytes, (stats, rdr, rdr.caching, rdr.schedule)
    overlap = roots * 2 * REQUEST  # a record that ends in the next root's grains
    assert stats.warm_bytes <= size + overlap, (stats, rdr.caching)
    if part > 1:
        assert stats.read_bytes == stats.warm_bytes, stats
        later = [by for epoch, by in rdr.sources().items() if epoch]
        assert all("file" not in by for by in later)
    if rdr.mode.phases == 2 or (rdr.schedule.epochs and rdr.schedule.epochs.shuffle.held):
        return  # windows have pages in common, and take what lies between records
    # Reads of single records take the pages that they lie in.
    pages = stats.file_bytes + 2 * PAGE_BYTES * stats.file_records
    assert stats.read_bytes <= stats.warm_bytes + pages


def check_forecast(path: str, rdr: Reader, shuffle: Shuffle | None, cache: Cache) -> bool:
    """Compare rows by source and epoch with what was to be expected; False: nothing says so."""
    nodes, assignment = len(rdr.schedule.teams), rdr.schedule.assignment
    if assignment == "blocked":
        return False
    size = rdr.schedule.batch_size
    words = {"assignment": assignment, "first": rdr.schedule.epochs and rdr.schedule.epochs.first}
    job = Job(cache, size, nodes, COMM.size, EPOCHS, shuffle, ends=True, **words)
    if job.schedule(rdr.count).teams != rdr.schedule.teams:
        return False  # roots have other numbers of ranks
    index = open_record_index(path, locate="auto", check="fast")
    extents = np.array(index.run(0, index.count))
    index.close()
    outlook = Outlook(extents, job, PlanOptions(0, REQUEST), PAGE_BYTES)
    wanted = {}
    for one in outlook.epochs():
        if one.epoch is not None:
            names = zip(ROW_SOURCES, one.supplied.records, strict=True)
            wanted[one.epoch] = {name: count for name, count in names if count}
    told: dict[int, dict[str, int]] = {}
    for each in COMM.allgather(rdr.sources()):
        for epoch, sources in each.items():
            for name, (records, _) in sources.items():
                counts = told.setdefault(epoch, {})
                counts[name] = counts.get(name, 0) + records
    assert told == wanted, (told, wanted, rdr)
    return True


def joined(lists: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


def check_local(rdr: Reader, told_by: list[list[list[int]]], plain: list[list[int]]) -> None:
    """Compare batches with those of the same job strided, and each share with what its root has.

    Args:
        rdr: with homes, which all ranks know.
        told_by: records of each rank, batch by batch.
        plain: of this rank, strided.
    """
    schedule, strided = rdr.schedule, COMM.allgather(plain)
    is_one = len(schedule.teams) == 1
    assert schedule.assignment == ("strided" if is_one else "local")
    assert ('"strided" here' in rdr.caching.text) == is_one
    held = 0
    for t in range(len(plain)):
        shares, usual = ([rank[t] for rank in every] for every in (told_by, strided))
        assert list(map(len, shares)) == list(map(len, usual)), t
        assert sorted(joined(shares)) == sorted(joined(usual)), t
        if is_one:
            assert shares == usual, t
            continue
        assert schedule.owner is not None
        for team, ranks in enumerate(schedule.teams):
            taken = np.array(joined(shares[rank] for rank in ranks), np.uint64)
            batch = np.array(joined(usual), np.uint64)
            least = min(len(taken), int((schedule.owner(batch) == team).sum()))
            assert (schedule.owner(taken) == team).sum() == least, (t, team)
            held += least
    assert COMM.allreduce(held) == COMM.size * held


def resumes(path: str, cache: str, assignment: str) -> None:
    """Go on in the middle of the first epoch, with fewer ranks, another home and batch."""
    words = {"shuffle": "global", "seed": 3, "epochs": EPOCHS, "cache": cache}
    words |= {"assignment": assignment, "ranks_per_node": 1}
    with Reader(path, 5, comm=COMM, **words) as rdr:  # type: ignore[arg-type]
        before = [next(rdr).indices.tolist() for _ in range(4)]
        place = rdr.place
    fewer = COMM.Split(COMM.rank < max(1, COMM.size // 2), COMM.rank)
    after = []
    with Reader(path, 7, comm=fewer, start=place, **words) as rdr:  # type: ignore[arg-type]
        for batch in rdr:
            assert [bytes(one) for one in batch] == [
                mixed_value(i) for i in batch.indices.tolist()
            ]
            after.append(batch.indices.tolist())
    rest = [i for t in range(len(after)) for rank in fewer.allgather(after) for i in rank[t]]
    first = [i for t in range(4) for rank in COMM.allgather(before) for i in rank[t]]
    assert rdr.schedule.epochs is not None
    wanted = rdr.schedule.epochs.samples(np.arange(EPOCHS * MIXED)).tolist()
    if assignment == "strided":
        assert first + rest == wanted
    steps = [*range(0, place, 5), *range(place, len(wanted), 7), len(wanted)]
    for begin, end in itertools.pairwise(steps):  # batch by batch
        assert sorted((first + rest)[begin:end]) == sorted(wanted[begin:end])
    fewer.Free()


def resumes_mixed(path: str) -> None:
    """Go on in the middle of the second epoch, with fewer ranks and less memory, in that order."""
    words = {"seed": 3, "epochs": EPOCHS, "ranks_per_node": 1}
    room = (Path(path) / "data.mdb").stat().st_size // 2 // COMM.size
    cache = Cache(room, placement="mixed")
    with Reader(path, 5, comm=COMM, shuffle="windows:5x4", cache=cache, **words) as rdr:  # type: ignore[arg-type]
        before = [next(rdr).indices.tolist() for _ in range(MIXED // 5 + 7)]
        place, epochs = rdr.place, rdr.schedule.epochs
    assert epochs is not None and 0 < epochs.shuffle.held < MIXED
    fewer = COMM.Split(COMM.rank < max(1, COMM.size // 2), COMM.rank)
    told = []
    for cache in (Cache("1G", placement="mixed"), Cache(room // 9, placement="mixed"), None):
        words |= {"shuffle": epochs.shuffle, "start": place, "cache": cache}
        with Reader(path, 7, comm=fewer, **words) as rdr:  # type: ignore[arg-type]
            told.append([])
            for batch in rdr:
                values = [mixed_value(i) for i in batch.indices.tolist()]
                assert [bytes(one) for one in batch] == values
                told[-1].append(batch.indices.tolist())
    assert told[0] == told[1] == told[2]
    after = fewer.allgather(told[0])
    rest = [i for t in range(len(told[0])) for rank in after for i in rank[t]]
    first = [i for t in range(len(before)) for rank in COMM.allgather(before) for i in rank[t]]
    assert first + rest == epochs.samples(np.arange(EPOCHS * MIXED)).tolist()
    fewer.Free()


def endless(path: str, cache: str, *, keeps: bool) -> None:
    """Batches that follow the file from before its first record on; and all ranks say how."""
    told = []
    for assignment in ("local", "strided"):
        with Reader(
            path, 16, comm=COMM, start=-7, cache=cache, assignment=assignment, ranks_per_node=1
        ) as rdr:
            told.append([joined(COMM.allgather(next(rdr).indices.tolist())) for _ in range(30)])
            is_local = keeps and assignment == "local" and COMM.size > 1
            assert rdr.schedule.assignment == ("local" if is_local else "strided"), rdr.caching
    local, strided = told
    assert list(map(sorted, local)) == list(map(sorted, strided))
    assert (local != strided) == (keeps and COMM.size > 1)


def main() -> None:
    sets = ((sys.argv[1], MIXED, mixed_value), (sys.argv[2], FIXED, fixed_value))
    chance = random.Random(COMM.size)
    told = cases = on_disks = mixed = warmed = 0
    folder = COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None)
    for per_node in sorted({COMM.size, -(-COMM.size // 2), 1}):
        every = list(itertools.product(SHUFFLES, PARTS, ("strided", "blocked", "local")))
        for shuffle, part, assignment in chance.sample(every, CASES):
            path, count, value = chance.choice(sets)
            size = (Path(path) / "data.mdb").stat().st_size
            mode = chance.choice(MODES)
            words = {
                "batch_size": chance.choice([COMM.size + 1, 16, 3, 40, count + 9]),
                "shuffle": shuffle,
                "epochs": EPOCHS,
                "assignment": assignment,
                "mode": mode,
                "ranks_per_node": per_node,
                "request_bytes_max": REQUEST,
            }
            nodes = [min(per_node, COMM.size - i) for i in range(0, COMM.size, per_node)]
            roots = sum(map(Mode.resolve(mode, provenance=True).roots, nodes))
            room = int(part * size / roots) + 1
            on_disk = chance.choice([0, 0, 0.3, 0.7, 1])
            is_mixed = assignment != "local" and shuffle in WINDOWED and chance.random() < 0.8
            on_disk *= not is_mixed
            cache = Cache(
                memory=int((1 - on_disk) * room) + (not on_disk),
                disk=folder if on_disk else None,
                disk_bytes=int(on_disk * room) if on_disk else None,
                warm=chance.choice(["demand", "preload", *["window"] * (shuffle in SCATTERED)]),
                placement="mixed" if is_mixed else "home",
            )
            shares, rdr, stats = read(path, value, cache=cache, **words)
            if assignment == "local":
                words |= {"assignment": "strided"}
            if cache.warm == "window":  # it is an order as well
                words |= {"cache": Cache(1, warm="window")}
                warmed += 1
            if is_mixed:
                assert rdr.schedule.epochs is not None
                words |= {"shuffle": rdr.schedule.epochs.shuffle}
                mixed += 0 < rdr.schedule.epochs.shuffle.held < count
            plain, other, _ = read(path, value, **words)
            told_by = COMM.allgather(shares)
            if assignment == "local":
                check_local(rdr, told_by, plain)
            elif assignment == "strided" or (
                other.mode.block_iterations == rdr.mode.block_iterations
            ):
                assert shares == plain, words
            counted = np.bincount([i for rank in told_by for batch in rank for i in batch])
            assert counted.tolist() == [EPOCHS] * count
            check_file(rdr, stats, size, part, len(rdr.schedule.teams))
            named = None if shuffle is None else Shuffle.named(shuffle)
            told += check_forecast(path, rdr, named, cache)
            cases += 1
            on_disks += stats.disk_records > 0
            COMM.barrier()
            if COMM.rank == 0:  # the next job finds nothing
                assert all(clear(entry) for entry in find(Path(folder)))
            COMM.barrier()
    for cache, assignment in itertools.product(("memory=1G", "memory=40K"), ("strided", "local")):
        resumes(sys.argv[1], cache, assignment)
    for _ in range(2):  # the second job begins with what the first one has left
        resumes(sys.argv[1], f"memory=40K,disk={folder}", "strided")
    resumes_mixed(sys.argv[1])
    endless(sys.argv[2], "memory=1G", keeps=True)
    endless(sys.argv[2], "auto", keeps=False)  # these nodes have one page cache
    least = max(1, CASES // 10)
    assert told >= max(1, CASES // 2) and on_disks >= max(1, CASES // 4), (told, on_disks)
    assert mixed >= least and warmed >= least, (mixed, warmed)
    COMM.barrier()
    if COMM.rank == 0:
        assert all(clear(entry) for entry in find(Path(folder)))
        Path(folder).rmdir()
        print(f"{cases} cases, {told} told before, {on_disks} with rows from disks, {mixed} mixed")


main()
