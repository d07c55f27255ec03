"""Program: roots keep records one by one. Arguments: data sets of data.mixed_value, fixed_value.

In orders, assignments, modes and jobs of every shape, with more and with less memory than all
records need, each rank gets the records of the same job without a cache, with the values written;
roots keep what the rules give them, written down once more here; and rows come from where
``placement.forecast`` has said before.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter

import numpy as np
from data import FIXED, MIXED, fixed_value, mixed_value
from mpi4py import MPI

from lmdbio import Cache, _core
from lmdbio.locate.open import open_record_index
from lmdbio.observe.stats import Stats
from lmdbio.placement.forecast import ROW_SOURCES, Job, Outlook
from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.planning.reads import PAGE_BYTES, PlanOptions
from lmdbio.planning.shuffle import Shuffle
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
EPOCHS, REQUEST = 4, 8192
#: Of all orders, placements, memories and assignments, for each size of nodes.
CASES = int(sys.argv[3])
SHUFFLES = (None, "global", "groups:16", "windows:5x4", "runs:7")
PLACEMENTS = ("first", "frequency")
#: Parts of all records that each root has memory for.
PARTS = (2.0, 0.6, 0.2, 0.02)
MODES = (
    "auto",
    Mode(1, "scan", block_iterations=0),
    Mode(ALL_RANKS, "scan"),
    Mode(2, "scan", block_iterations=3),
    Mode(1, "scan", "direct", block_iterations=2),
)

#: Sources of rows, by epoch: how many there are.
Told = dict[int, dict[str, int]]


def read(path: str, value: object, **words: object) -> tuple[list[list[int]], Reader, Stats]:
    """Read all, and compare every record; the memory that was kept then is no more than asked."""
    shares = []
    with Reader(path, comm=COMM, **words) as rdr:  # type: ignore[arg-type]
        for batch in rdr:
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == value(index), (COMM.rank, index, words)  # type: ignore[operator]
            shares.append(batch.indices.tolist())
        cache = words.get("cache")
        if isinstance(cache, Cache):
            assert rdr.stats().cache_bytes <= int(cache.memory), (rdr.stats(), cache)
    COMM.barrier()  # a root counts what it sends also after its own ranks have left
    return shares, rdr, COMM.allreduce(rdr.stats())


def told_by_ranks(rdr: Reader) -> Told:
    told: Told = {}
    for each in COMM.allgather(rdr.sources()):
        for epoch, sources in each.items():
            for name, (records, _) in sources.items():
                counts = told.setdefault(epoch, {})
                counts[name] = counts.get(name, 0) + records
    return told


def uses_of(rdr: Reader) -> list[list[tuple[int, int]]]:
    """Place and record of each use of each team, in their order."""
    schedule, found = rdr.schedule, []
    for team in range(len(schedule.teams)):
        own: list[tuple[int, int]] = []
        for block in range(schedule.blocks or 0):
            numbers = [one.numbers() for one in schedule.team_places(block, team)]
            places = np.concatenate([np.empty(0, np.int64), *numbers]) + schedule.first_place
            records = schedule.team_records(block, team).tolist()
            own += zip(places.tolist(), records, strict=True)
        found.append(own)
    return found


def by_hand(rdr: Reader, cache: Cache, lengths: list[int]) -> Told:
    """Where all rows come from by the rule of the placement, use by use."""
    uses, count, room = uses_of(rdr), rdr.count, int(cache.memory)
    told: Told = {}

    def tell(place: int, name: str) -> None:
        told.setdefault(place // count, Counter())[name] += 1

    kept: list[set[int]] = []
    first_user: dict[int, int] = {}
    for _, record, team in sorted((*use, team) for team, own in enumerate(uses) for use in own):
        first_user.setdefault(record, team)
    for team, own in enumerate(uses):
        often = Counter(record for _, record in own)
        wanted = sorted(often, key=lambda record: (-often[record], record))
        if cache.placement == "first":
            wanted = [record for record, user in first_user.items() if user == team]
        left, fits = room, set()
        for record in wanted:
            left -= -(-lengths[record] // 8) * 8
            if left < 0:
                break
            fits.add(record)
        kept.append(fits)
    since: list[dict[int, int]] = [{} for _ in uses]
    for team, own in enumerate(uses):
        for place, record in own:
            since[team].setdefault(record, -1 if cache.warm == "preload" else place)
    for team, own in enumerate(uses):
        for place, record in own:
            has = [r for r, all_kept in enumerate(kept) if record in all_kept]
            if team in has:
                tell(place, "own" if since[team][record] < place else "file")
            else:
                tell(place, "peer" if any(since[r][record] < place for r in has) else "file")
    return {epoch: dict(counts) for epoch, counts in told.items()}


def foretold(rdr: Reader, extents: np.ndarray, shuffle: Shuffle | None, cache: Cache) -> Told:
    """The same as ``lmdbio plan`` says it; empty: it says nothing of such a job."""
    schedule = rdr.schedule
    nodes, size = len(schedule.teams), schedule.batch_size
    if schedule.assignment != "strided" or schedule.start:
        return {}
    job = Job(cache, size, nodes, COMM.size, EPOCHS, shuffle, ends=True)
    if job.schedule(rdr.count).teams != schedule.teams:
        return {}  # roots have other numbers of ranks
    wanted: Told = {}
    for one in Outlook(extents, job, PlanOptions(0, REQUEST), PAGE_BYTES).epochs():
        if one.epoch is not None:
            names = zip(ROW_SOURCES, one.supplied.records, strict=True)
            wanted[one.epoch] = {name: count for name, count in names if count}
    return wanted


def check_file(rdr: Reader, stats: Stats, cache: Cache, told: Told, whole: int) -> None:
    """Compare what was read from the file, and kept, with what is the least."""
    roots = len(rdr.schedule.teams)
    assert stats.own_records + stats.peer_records + stats.file_records == stats.records
    assert not stats.late_records and not stats.gone_records and not stats.disk_records
    assert stats.served_bytes == stats.peer_bytes
    if int(cache.memory) > whole:
        later = [counts for epoch, counts in told.items() if epoch > min(told)]
        # A job that begins inside an epoch uses some records first in the next one.
        starts_inside = rdr.schedule.start % rdr.count != 0
        if cache.placement == "first" and not starts_inside:
            assert not any("file" in counts for counts in later), told
        assert stats.read_bytes == stats.warm_bytes, "nothing is read that is not kept"
        reads = rdr.count if cache.placement == "first" else roots * rdr.count
        assert stats.read_bytes <= 2 * PAGE_BYTES * reads + whole * reads // rdr.count
        if cache.placement == "first":
            assert stats.file_records == (rdr.count if cache.warm == "demand" else 0)


def main() -> None:
    sets = ((sys.argv[1], MIXED, mixed_value), (sys.argv[2], FIXED, fixed_value))
    chance = random.Random(COMM.size)
    cases = said = exchanged = 0
    for per_node in sorted({COMM.size, -(-COMM.size // 2), 1}):
        every = list(itertools.product(SHUFFLES, PLACEMENTS, PARTS, ("strided", "blocked")))
        for shuffle, placement, part, assignment in chance.sample(every, CASES):
            path, count, value = chance.choice(sets)
            index = open_record_index(path, locate="auto", check="fast")
            extents = np.array(index.run(0, index.count))
            index.close()
            whole = int(_core.rows_room(np.ascontiguousarray(extents["length"])))
            start = chance.choice([0, 0, 0, count, count // 3])
            words = {
                "batch_size": chance.choice([COMM.size + 1, 16, 3, 40, count + 9]),
                "shuffle": shuffle,
                # The order that lmdbio plan looks at.
                "seed": 0 if start == 0 else 5,
                "start": start,
                "epochs": EPOCHS,
                "assignment": assignment,
                "mode": chance.choice(MODES),
                "ranks_per_node": per_node,
                "request_bytes_max": REQUEST,
            }
            warm = chance.choice(["demand", "preload"])
            cache = Cache(int(part * whole) + 1, placement=placement, warm=warm)
            shares, rdr, stats = read(path, value, cache=cache, **words)
            plain, other, _ = read(path, value, **words)
            if assignment == "strided" or other.mode.block_iterations == rdr.mode.block_iterations:
                assert shares == plain, words
            told = told_by_ranks(rdr)
            assert told == by_hand(rdr, cache, extents["length"].tolist()), (told, words, cache)
            named = None if shuffle is None else Shuffle.named(shuffle)
            wanted = foretold(rdr, extents, named, cache)
            assert wanted in ({}, told), (told, wanted, words, cache)
            check_file(rdr, stats, cache, told, whole)
            cases, said = cases + 1, said + bool(wanted)
            exchanged += stats.peer_records > 0
    least = max(1, CASES // 3) if COMM.size > 1 else 0
    assert said >= max(1, CASES // 4) and exchanged >= least, (said, exchanged)
    if COMM.rank == 0:
        print(f"{cases} cases, {said} told before, {exchanged} with rows of other roots")


main()
