"""Program: roots keep copies besides their homes. Arguments: data sets of data.mixed_value and
fixed_value; how many cases of each size of nodes.

In orders, assignments, modes and jobs of every shape, each rank gets the records of the same job
without a cache, with the values written; roots copy what the rule gives them, written down once
more here; rows come from where ``planning.forecast`` has said before; and what a team has copied
is sent to it no more.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from time import sleep

import numpy as np
from data import FIXED, MIXED, fixed_value, mixed_value
from mpi4py import MPI

from lmdbio import Cache
from lmdbio.locate.open import open_record_index
from lmdbio.observe.stats import Stats
from lmdbio.planning import homes
from lmdbio.planning.forecast import Job, Outlook
from lmdbio.planning.homes import Homes, Room, grain_bytes
from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.planning.reads import PAGE_BYTES, PlanOptions
from lmdbio.planning.shuffle import Shuffle
from lmdbio.planning.supply import ROW_SOURCES
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
EPOCHS, REQUEST = 5, 8192
CASES = int(sys.argv[3])
SHUFFLES = (None, "global", "groups:16", "windows:5x4", "runs:7")
#: Memory of each root, in even shares of the file.
PARTS = (0.5, 1.3, 2.0, 9.0)
MODES = (
    "auto",
    Mode(1, "scan", block_iterations=0),
    Mode(ALL_RANKS, "scan"),
    Mode(2, "scan", block_iterations=3),
    Mode(1, "scan", "direct", block_iterations=2),
)

#: A small data set has many grains.
homes.GRAIN_BYTES_MIN = 4096

#: Rows by epoch and source.
Told = dict[int, dict[str, int]]


def read(path: str, value: object, **words: object) -> tuple[list[list[int]], Reader, Stats]:
    """Read all, and compare every record."""
    shares = []
    with Reader(path, comm=COMM, **words) as rdr:  # type: ignore[arg-type]
        for batch in rdr:
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == value(index), (COMM.rank, index, words)  # type: ignore[operator]
            shares.append(batch.indices.tolist())
        # A root counts what it has sent when it looks next, also one whose team has no rows.
        for _ in range(1000):
            if is_settled(rdr):
                break
            sleep(0.01)
        cache = words.get("cache")
        if isinstance(cache, Cache):
            assert rdr.stats().cache_bytes <= int(cache.memory), (rdr.stats(), cache)
    return shares, rdr, COMM.allreduce(rdr.stats())


def is_settled(rdr: Reader) -> bool:
    """Whether all that has come was counted where it was sent; the same on all ranks."""
    stats = COMM.allreduce(rdr.stats())
    return COMM.bcast(stats.served_bytes == stats.peer_bytes)


def told_by_ranks(rdr: Reader) -> Told:
    told: Told = {}
    for each in COMM.allgather(rdr.sources()):
        for epoch, sources in each.items():
            for name, (records, _) in sources.items():
                counts = told.setdefault(epoch, {})
                counts[name] = counts.get(name, 0) + records
    return told


def by_hand(rdr: Reader, cache: Cache, extents: np.ndarray) -> Told:
    """Where all rows come from by the rule, use by use."""
    schedule, count, memory = rdr.schedule, rdr.count, int(cache.memory)
    roots, end = len(schedule.teams), int((extents["offset"] + extents["length"]).max())
    grain = grain_bytes(REQUEST, memory, end // roots)
    grains = homes.Grains.of([extents], end, grain)
    rooms = [Room(memory).total(grains)] * roots
    kept = Homes.of(grains, rooms, count, lambda first, last: extents[first:last])
    has_all = not (kept.records == 0xFFFF).any()
    epoch_places = schedule.block_iterations * schedule.batch_size <= count
    told: Told = {}
    first_epoch = schedule.first_place // count
    for team in range(roots):
        uses: list[tuple[int, int]] = []
        for block in range(schedule.blocks or 0):
            numbers = [one.numbers() for one in schedule.team_places(block, team)]
            places = np.concatenate([np.empty(0, np.int64), *numbers]) + schedule.first_place
            records = schedule.team_records(block, team).tolist()
            uses += zip((places // count).tolist(), records, strict=True)
        often = Counter(record for _, record in uses if kept.records[record] != team)
        left, copies = memory - len(kept.kept(team)) * grain, set()
        for record in sorted(often, key=lambda one: (-often[one], one)):
            left -= -(-int(extents["length"][record]) // 8) * 8
            if left < 0 or roots == 1 or not has_all or not epoch_places:
                break
            copies.add(record)
        since: dict[int, int] = {}
        for epoch, record in uses:
            since.setdefault(record, epoch)
            home = int(kept.records[record])
            own = home == team or (record in copies and since[record] + 2 <= epoch)
            is_read = home == 0xFFFF or (cache.warm == "demand" and epoch == first_epoch)
            name = "file" if is_read else "own" if own else "peer"
            told.setdefault(epoch, Counter())[name] += 1
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
    if schedule.block_iterations * size > rdr.count:
        return {}  # an epoch is shorter than a block
    wanted: Told = {}
    for one in Outlook(extents, job, PlanOptions(0, REQUEST), PAGE_BYTES).epochs():
        if one.epoch is not None:
            names = zip(ROW_SOURCES, one.supplied.records, strict=True)
            wanted[one.epoch] = {name: count for name, count in names if count}
    return wanted


def main() -> None:
    sets = ((sys.argv[1], MIXED, mixed_value), (sys.argv[2], FIXED, fixed_value))
    chance = random.Random(COMM.size)
    cases = compared = said = copied = 0
    for per_node in sorted({-(-COMM.size // 2), 1}):
        every = list(itertools.product(SHUFFLES, PARTS, ("strided", "blocked")))
        for shuffle, part, assignment in chance.sample(every, CASES):
            path, count, value = chance.choice(sets)
            index = open_record_index(path, locate="auto", check="fast")
            extents = np.array(index.run(0, index.count))
            index.close()
            end = int((extents["offset"] + extents["length"]).max())
            mode, start = chance.choice(MODES), chance.choice([0, 0, 0, count, count // 3])
            nodes = [min(per_node, COMM.size - i) for i in range(0, COMM.size, per_node)]
            roots = sum(map(Mode.resolve(mode, provenance=True).roots, nodes))
            words = {
                "batch_size": chance.choice([COMM.size + 1, 16, 3, 40]),
                "shuffle": shuffle,
                # The order that lmdbio plan looks at.
                "seed": 0 if start == 0 else 5,
                "start": start,
                "epochs": EPOCHS,
                "assignment": assignment,
                "mode": mode,
                "ranks_per_node": per_node,
                "request_bytes_max": REQUEST,
            }
            warm = chance.choice(["demand", "preload"])
            cache = Cache(int(part * end / roots) + 1, placement="copies", warm=warm)
            shares, rdr, stats = read(path, value, cache=cache, **words)
            plain, other, _ = read(path, value, **words)
            if assignment == "strided" or other.mode.block_iterations == rdr.mode.block_iterations:
                assert shares == plain, words
            cases += 1
            if stats.late_records or stats.gone_records:
                continue  # a root was late: another one has read for itself
            told = told_by_ranks(rdr)
            by_rule = by_hand(rdr, cache, extents)
            assert told == by_rule, (told, by_rule, words, cache)
            named = None if shuffle is None else Shuffle.named(shuffle)
            wanted = foretold(rdr, extents, named, cache)
            assert wanted in ({}, told), (told, wanted, words, cache)
            assert stats.served_bytes == stats.peer_bytes
            # Nothing is read for copies.
            assert stats.warm_bytes <= end + len(rdr.schedule.teams) * 2 * REQUEST
            if part > 1:
                assert stats.read_bytes == stats.warm_bytes
            own = [told[epoch].get("own", 0) for epoch in sorted(told)]
            compared, said = compared + 1, said + bool(wanted)
            copied += own[-1] > own[1]
    assert compared >= 3 * cases // 4, (compared, cases)
    assert (said or CASES < 12) and (copied >= CASES // 3 or COMM.size == 1), (said, copied)
    if COMM.rank == 0:
        print(f"{cases} cases, {said} told before, {copied} with copies")


main()
