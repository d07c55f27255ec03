"""The bounds on the modes on many ranks, and whether they hold. Pure.

Source of the bounds: benchmarks/README.md, "A cluster on one machine".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from benchmarks.cluster.results import (
    CellResult,
    LaneResult,
    counts_that_differ,
    late_of,
)
from benchmarks.cluster.sweep import PLAIN, PY_LMDB, SETS, Cell
from benchmarks.report import Verdict, judged

#: Of ranks and nodes, where speed is judged.
RANKS, NODES = 16, (4, 8)
#: Of all records of a cell that is judged: what a file of 256 MiB holds is more. In a smaller one
#: the ends count, at which not all nodes read, and each thread's first switches.
BYTES_MIN = 160 * 2**20
#: The modes from the slowest to the fastest, as the paper has them on many nodes.
ORDER = (PY_LMDB, "lmm", "dm", "dio", "prov", "coal", "stag")
#: A mode may be so much slower than the one before it and still count as not slower.
TIE = 1.05
#: Orders that come in windows, the ranks with which they are judged (on 4 nodes), and how many
#: times as fast they are as an order in which records may lie anywhere.
GLOBAL, WINDOWED, SHUFFLED_RANKS = "global", ("group", "window"), (8, 16)
FASTER = {"3k": 20.0, "110k": 2.0}
#: Bytes from the store over those of the file, where later epochs need none.
STORE_MAX = 1.02
#: Of an epoch out of memory, the rate over sockets over that over MPI; and beside main threads
#: that compute in Python, over that beside threads that sleep.
SOCKETS_MIN, BUSY_MIN = 0.7, 0.5
#: A computation hides reading if it takes so many times as long; then so much may still show.
COMPUTES_MIN, EXPOSED_MAX = 1.2, 0.01


def why(made: CellResult, *names: str) -> str:
    """Say which lane ran as these, or why none did."""
    said = []
    for name in names:
        lane = made.lane(name)
        if lane is not None:
            said.append(lane.lane.name)
            continue
        of = [one for one in made.lanes if name in (one.lane.mode, one.lane.name, one.lane.kind)]
        errors = {one.error for one in of}
        said.append(f"{name}: {', '.join(filter(None, errors)) or 'did not take part'}")
    return "; ".join(said)


# --- what must hold ------------------------------------------------------------------------


def speed(made: CellResult) -> Iterator[Verdict]:
    """Judge STAG against the plain readers and py-lmdb."""
    cell, where = made.cell, str(made.cell)
    bounded = (cell.dataset, cell.assignment, cell.scaling) == ("3k", "blocked", "strong") and (
        cell.shape.nodes in NODES and is_judged(cell)
    )
    note = why(made, "stag", PLAIN)
    for words, figure, least in (
        ("STAG's rate over that of plain reads through the same mounts",
         made.ratio("stag", PLAIN, "rate"), 0.90),
        ("STAG, times as fast as LMDB, reading", made.factor("stag", "reading_s"), 8.0),
    ):  # fmt: skip
        if bounded or figure is not None:
            yield judged(words, where, figure, least=least if bounded else None, note=note)
    if (total := made.factor("stag")) is not None:
        yield Verdict("STAG, times as fast as LMDB, opening included", where, total, note=note)


def is_large(cell: Cell) -> bool:
    """Return whether a cell's records are as many bytes as bounds are meant for."""
    return cell.records * SETS[cell.dataset].value_bytes >= BYTES_MIN


def is_judged(cell: Cell) -> bool:
    """Return whether ranks and bytes are as many as bounds are meant for."""
    return cell.shape.ranks == RANKS and is_large(cell)


def at_scale(made: CellResult, bound: float) -> float | None:
    """Return a bound where the cell is as large as it is meant for; a small one is reported."""
    return bound if is_judged(made.cell) else None


def traffic(made: CellResult) -> Iterator[Verdict]:
    """Judge bytes from the store over bytes needed."""
    words, where = "bytes read over bytes needed", str(made.cell)
    for lane in made.lanes:
        if lane.lane.mode in ("prov", "coal", "stag") and lane.runs:
            figure = lane.median("amplified")
            yield judged(f"{words}, {lane.lane.name}", where, figure, most=at_scale(made, 1.02))
    base = made.lane(PY_LMDB)
    if base is not None:
        note = f"the paper's R x B: up to {made.cell.shape.nodes}, one page cache a node"
        yield Verdict(f"{words}, LMDB", where, base.median("amplified"), note=note)


def shuffled(made: CellResult) -> Iterator[Verdict]:
    """Judge orders that come in windows against the file's own order, and against any order."""
    cell, where = made.cell, str(made.cell)
    is_bounded = is_large(cell) and cell.shape.ranks in SHUFFLED_RANKS and cell.shape.nodes == 4
    is_bounded = is_bounded and not cell.compute_ms  # rates are of reading alone
    for name in WINDOWED:
        lane = made.lane(name)
        if lane is None or not lane.runs:
            continue
        reads = judged(
            f"{name}, bytes read over bytes of the file's records", where,
            lane.median("amplified"), most=1.02 if is_bounded else None,
        )  # fmt: skip
        yield reads
        for words, over, least in (
            ("rate over STAG's", "stag", 0.90),
            ("times as fast as global order without a cache", GLOBAL, FASTER.get(cell.dataset)),
        ):  # fmt: skip
            figure = made.ratio(name, over, "rate")
            if figure is not None:
                bound = least if is_bounded else None
                yield judged(f"{name}, {words}", where, figure, least=bound, note=why(made, over))


def switches(made: CellResult) -> Iterator[Verdict]:
    """Judge context switches against LMDB's."""
    for mode in ("coal", "stag") if made.cell.shape.ranks == RANKS else ():
        words = f"{mode.upper()}, times fewer context switches than LMDB"
        figure, least = made.ratio(PY_LMDB, mode, "switches"), at_scale(made, 50)
        yield judged(words, str(made.cell), figure, least=least, note=why(made, mode))


def own_lmdb(made: CellResult) -> Iterator[Verdict]:
    """Judge whether Reader's mode LMDB is as py-lmdb is."""
    for words, figure in (("time", "reading_s"), ("bytes", "delivered")):
        if made.lane("lmdb") is not None:
            ratio = made.ratio("lmdb", PY_LMDB, figure)
            bound = "within 10 %" if at_scale(made, 0.10) else ""
            reached = abs(ratio - 1) <= 0.10 if bound and ratio is not None else None
            words = f"Reader's mode LMDB over py-lmdb, {words}"
            yield Verdict(words, str(made.cell), ratio, bound, reached)


def speculation(made: CellResult) -> Iterator[Verdict]:
    """Judge what DM's guesses cost."""
    lane, where = made.lane("dm"), str(made.cell)
    if lane is None:
        return
    amplified, seek, total = (lane.median(name) for name in ("amplified", "seek_s", "seconds"))
    yield judged("DM, bytes read over bytes needed", where, amplified, most=at_scale(made, 2.0))
    if seek is not None and total:
        yield judged(
            "DM, share of seeking in the read time", where, seek / total, most=at_scale(made, 0.05)
        )
    words = "DM, share of records that lay where they were guessed"
    note = "of a whole run, the first guesses included"
    yield Verdict(words, where, lane.median("hit_rate"), note=note)


def large_records(made: CellResult) -> Iterator[Verdict]:
    """Judge 192 KB: STAG is the fastest, and COAL suffers from requests out of order."""
    own = made.lane("stag")
    if made.cell.dataset != "192k" or made.cell.shape.nodes < 2 or own is None:
        return
    rivals = [
        one.median("reading_s")
        for one in made.lanes
        if one.lane.reads_records and one.lane.mode != "stag" and one.runs
    ]
    least = 1.0 if is_large(made.cell) else None
    times, mine = [time for time in rivals if time is not None], own.median("reading_s")
    if times and mine:
        words = "STAG, times as fast as the best other mode"
        figure = min(times) / mine
        yield judged(words, str(made.cell), figure, least=least, note=why(made, "stag"))
    words = "COAL, times as many requests out of order as STAG"
    seeks = made.ratio("coal", "stag", "seeks")
    yield judged(words, str(made.cell), seeks, least=least, note=why(made, "coal", "stag"))


def order(made: CellResult) -> Iterator[Verdict]:
    """Judge whether the modes come out as in the paper."""
    known = []
    for mode in ORDER:
        lane = made.lane(mode)
        time = None if lane is None else lane.median("seconds")
        if time is not None:
            known.append((mode, time))
    if len(known) < 3 or made.cell.shape.nodes < 2:
        return
    out = [
        f"{mode} is slower than {before}"
        for (before, earlier), (mode, time) in pairwise(known)
        if time > TIE * earlier
    ]
    words = "modes that are slower than the one before them in the paper's order"
    yield judged(
        words, str(made.cell), float(len(out)), most=at_scale(made, 0), note="; ".join(out)
    )


def overlap(made: CellResult) -> Iterator[Verdict]:
    """Judge how much of reading shows beside a computation that takes longer."""
    cell, cores = made.cell, len(os.sched_getaffinity(0))
    for lane in made.lanes if cell.compute_ms else ():
        if lane.lane.kind != "reader" or not lane.runs:
            continue
        computes = cell.iterations * cell.compute_ms / 1e3
        enough = computes >= COMPUTES_MIN * (lane.median("io_s") or 0.0)
        room = cell.shape.ranks + cell.shape.nodes <= cores
        note = "" if room else "ranks and roots are more than there are cores"
        note = note if enough else "computing takes less than reading"
        most = EXPOSED_MAX if room and enough else None
        words = f"share of waiting beside computing, {lane.lane.name}"
        yield judged(words, str(cell), lane.median("exposed"), most=most, note=note)


def placed(made: CellResult) -> Iterator[Verdict]:
    """Judge whether records, and bytes of the store, came from where they were simulated to."""
    where = str(made.cell)
    for lane in made.lanes:
        runs = [run for run in lane.runs if "simulated" in run]
        if not runs:
            continue
        run = min(runs, key=late_of)
        late = late_of(run)
        note = f"{late} rows of late roots were read from the file" if late else ""
        words = f"counts by epoch and source that were not simulated so, {lane.lane.name}"
        differ = float(counts_that_differ(run))
        yield judged(words, where, differ, most=None if late else 0, note=note)
        later = run["simulated"]["records"][1:]
        if later and not any(one["file"] for one in later):
            words = f"bytes from the store in all epochs over the file's, {lane.lane.name}"
            figure = (lane.median("amplified") or 0.0) * made.cell.epochs
            most = STORE_MAX if is_large(made.cell) and not late else None
            yield judged(words, where, figure, most=most, note=note)


def twin(made: CellResult, lane: LaneResult, **changes: Any) -> LaneResult | None:
    """Return the lane that differs by its name and some fields alone; None: there is none."""
    wanted = replace(lane.lane, name="", **changes)
    found = (one for one in made.lanes if one.runs and replace(one.lane, name="") == wanted)
    return next(found, None)


def warm(made: CellResult) -> Iterator[Verdict]:
    """Judge the epochs after the first over sockets, and beside main threads that compute."""
    cores = len(os.sched_getaffinity(0))
    for lane in made.lanes:
        own = lane.median("warm_s") if lane.runs else None
        for words, least, one in (
            ("rate of epochs after the first over sockets over that over MPI",
             SOCKETS_MIN if lane.lane.cache and not made.cell.compute_ms else None,
             twin(made, lane, transport="mpi") if lane.lane.transport == "sockets" else None),
            ("rate of epochs after the first beside Python over that beside sleep",
             BUSY_MIN if made.cell.shape.ranks <= cores else None,
             twin(made, lane, is_busy=False) if lane.lane.is_busy else None),
        ):  # fmt: skip
            other = one.median("warm_s") if one is not None else None
            if own and other:
                bound = least if is_large(made.cell) else None
                yield judged(
                    f"{words}, {lane.lane.name}", str(made.cell), other / own, least=bound
                )


def agreement(made: CellResult) -> Iterator[Verdict]:
    """Judge whether everybody who looked at every byte saw the same."""
    looked = sum(one.sum is not None for one in made.lanes)
    if looked:
        words, note = "everybody read the same bytes", f"{looked} lanes"
        yield Verdict(words, str(made.cell), float(looked), "all", made.sums_agree, note)


RULES: Sequence[Callable[[CellResult], Iterator[Verdict]]] = (
    agreement, speed, traffic, shuffled, switches, own_lmdb, speculation, large_records, order,
    overlap, placed, warm,
)  # fmt: skip


def in_short(made: CellResult) -> str:
    """Return what a cell shows, in a sentence; "" where STAG or py-lmdb has no figure."""
    reads, whole = made.factor("stag", "reading_s"), made.factor("stag")
    if reads is None or whole is None:
        return ""
    words = f"{made.cell}: STAG reads {reads:.1f} times as fast as LMDB ({whole:.1f} with opening)"
    plain = made.ratio("stag", PLAIN, "rate")
    if plain is not None:
        words += f", at {plain:.2f} of the rate of plain reads"
    if not is_judged(made.cell):
        words += f"; too small to judge: bounds are for {RANKS} ranks and {BYTES_MIN >> 20} MiB"
    return words


def judge(made: CellResult) -> list[Verdict]:
    """Return everything that is judged, or reported, of a cell."""
    if not any(one.runs and one.lane.reads_records for one in made.lanes):
        return []
    return [verdict for rule in RULES for verdict in rule(made)]
