"""What waiting cost: figures of runs, and whether they are within bounds. Pure.

    exposed     of a rank that computes longer than reading takes: the time in ``next(reader)``,
                as share of all; the largest of the ranks. Steady: from when the first batch is in
                hand. From the first call on: with the first block, which nothing could hide.
    CPU         of one thread, as per cent of a core, while it waits; the largest of its kind
    hop         from ``Mail.send`` of a letter on one root until ``Mail.receive`` gives it on the
                other; all clocks are one (CLOCK_MONOTONIC of one machine)

Source of the bounds: benchmarks/README.md, "What waiting costs".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cluster.judged import Verdict
from benchmarks.cluster.results import Spread

__all__ = [
    "HEADS",
    "Case",
    "Letters",
    "awaited",
    "exposed",
    "hops",
    "judge",
    "quantile",
    "quickest",
    "row",
    "thread_share",
]

#: A letter: its kind, the rank at the other end, and when, ns.
Letters = Sequence[tuple[str, int, int]]

EXPOSED_MAX, ROOT_CPU_MAX, OTHER_CPU_MAX = 0.01, 0.05, 0.005
#: Reported of hops.
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}


@dataclass(frozen=True, slots=True)
class Case:
    """What is waited for, and by whom.

    Attributes:
        part: "overlap", "cpu" or "hops".
        name: for people; no two cases of a part and a place have the same.
        ranks, nodes: the shape.
        store: in a word.
        run: as ``waiter.Waiter`` takes it.
        is_bounded: judged; else only reported.
    """

    part: str
    name: str
    ranks: int
    nodes: int
    store: str
    run: Mapping[str, Any]
    is_bounded: bool = True

    def __str__(self) -> str:
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        return f"{ranks} on {self.nodes} node{'s' if self.nodes > 1 else ''}, {self.store}"


# --- figures of one run --------------------------------------------------------------------


def exposed(told: Mapping[str, Any], *, steady: bool) -> float:
    """The share of waiting in the time of the rank that waited most.

    Args:
        told: of an overlap.
        steady: from when the first batch is in hand; else from the first call on.
    """
    shares: list[float] = []
    for one in told["ranks"]:
        first, *later = one["waits_s"]
        if steady:
            shares.append(sum(later) / (one["reading_s"] - first))
        else:
            shares.append((first + sum(later)) / one["reading_s"])
    return max(shares)


def awaited(told: Mapping[str, Any]) -> float:
    """The share of waiting for blocks alone, as lmdbio counts it; steady, of the rank that waited
    most. What ``exposed`` has beyond is handing out batches, and a root that is in the way."""
    shares: list[float] = []
    for one in told["ranks"]:
        first = one["waits_s"][0]
        later = max(0.0, one["stats"]["wait_seconds"] - first)
        shares.append(later / (one["reading_s"] - first))
    return max(shares)


def quickest(told: Mapping[str, Any]) -> float:
    """Seconds of a call of ``next`` that waits for nothing: the tenth part is quicker."""
    return quantile(sorted(wait for one in told["ranks"] for wait in one["waits_s"][1:]), 0.1)


def thread_share(told: Mapping[str, Any], who: str, *, roots: bool) -> float | None:
    """CPU time over time, of the busiest of these threads; None: there are none.

    Args:
        told: of a pace.
        who: "main", "filler" or "others"; "all" of a process together.
        roots: of ranks that are roots, or of those that are not.
    """
    shares = []
    for one in told["ranks"]:
        if one["is_root"] == roots:
            kinds = one["threads"] if who == "all" else (who,)
            spent = sum(one["threads"][kind]["cpu_s"] for kind in kinds)
            shares.append(spent / one["window_s"])
    return max(shares, default=None)


def wakes(told: Mapping[str, Any], who: str, *, roots: bool) -> float:
    """How often a second the most restless of these threads is woken."""
    return max(
        (
            float(one["threads"][who]["wakes"]) / one["window_s"]
            for one in told["ranks"]
            if one["is_root"] == roots
        ),
        default=0.0,
    )


def resting(told: Mapping[str, Any], stage: str) -> float:
    """The share of the Reader's life in which its filling thread waited so; the least of the
    roots'.

    Args:
        stage: "fill", "idle" or "turn", as in ``lmdbio.stats``.
    """
    shares: list[float] = [
        one["stats"][f"{stage}_seconds"] / one["whole_s"]
        for one in told["ranks"]
        if one["is_root"]
    ]
    return min(shares)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of values in order, the least one that so many are not above."""
    return ordered[max(0, -(-int(share * len(ordered) * 1e6) // 1_000_000) - 1)]


def hops(
    letters: Sequence[tuple[Letters, Letters]], begin_ns: int, end_ns: int
) -> dict[str, dict[str, float]]:
    """How long letters took that were sent within a time, in ms, by kind.

    Args:
        letters: of each rank: those it sent, and those it was given, in order. Between two ranks
            no letter overtakes another one.
        begin_ns, end_ns: the time.
    """
    came = defaultdict[tuple[str, int, int], list[int]](list)
    for rank, (_, got) in enumerate(letters):
        for kind, sender, moment in got:
            came[kind, sender, rank].append(moment)
    for moments in came.values():
        moments.reverse()
    taken = defaultdict[str, list[float]](list)
    for rank, (sent, _) in enumerate(letters):
        for kind, to, moment in sent:
            moments = came[kind, rank, to]
            if moments:
                arrived = moments.pop()
                if begin_ns <= moment < end_ns:
                    taken[kind].append((arrived - moment) / 1e6)
    found = {}
    for kind, times in taken.items():
        times.sort()
        told = {name: quantile(times, share) for name, share in QUANTILES.items()}
        found[kind] = {"count": float(len(times))} | told
    return found


# --- bounds --------------------------------------------------------------------------------


def below(case: Case, words: str, figures: Sequence[float], bound: float, note: str) -> Verdict:
    """A share, told in per cent, the median of which must be below a bound."""
    if not figures:
        return Verdict(
            words, str(case), None, f"< {100 * bound:g} %", None, "nothing was measured"
        )
    spread = Spread.of(figures)
    reached = spread.median < bound if case.is_bounded else None
    said = f"{100 * spread.low:.2f} to {100 * spread.high:.2f} %"
    return Verdict(
        words,
        str(case),
        100 * spread.median,
        f"< {100 * bound:g} %" if case.is_bounded else "",
        reached,
        "; ".join(filter(None, (said, note))),
    )


def overlap_verdicts(case: Case, runs: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    if not case.run["factor"]:
        return
    note = "" if case.is_bounded else "ranks and roots are more than there are cores"
    words = f"exposed I/O, {case.name}"
    steady = [exposed(told, steady=True) for told in runs]
    yield below(case, words, steady, EXPOSED_MAX, note)
    whole = [exposed(told, steady=False) for told in runs]
    if whole:
        figure = 100 * Spread.of(whole).median
        yield Verdict(f"{words}, the first block with it", str(case), figure)


def cpu_verdicts(case: Case, runs: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    stage = case.run["stage"]
    roots = [share for told in runs if (share := thread_share(told, "filler", roots=True))]
    note = ""
    if runs:
        note = f"it waited {100 * Spread.of([resting(told, stage) for told in runs]).median:.0f} %"
    yield below(case, f"CPU of a root that waits, {case.name}", roots, ROOT_CPU_MAX, note)
    others = [share for told in runs if (share := thread_share(told, "main", roots=False))]
    words = f"CPU of another rank that waits, {case.name}"
    yield below(case, words, others, OTHER_CPU_MAX, "in next()")


def hop_verdicts(case: Case, runs: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    """Reported, without a bound."""
    for name in ("median", "p90"):
        times = [told["hops"]["TOKEN"][name] for told in runs if "TOKEN" in told["hops"]]
        words = f"ms of a token's hop, {name}, {case.name}"
        figure = Spread.of(times) if times else None
        note = "" if figure is None else f"{figure.low:.2f} to {figure.high:.2f}"
        yield Verdict(words, str(case), None if figure is None else figure.median, note=note)


def judge(case: Case, runs: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Everything that is judged, or reported, of a case's rounds."""
    parts = {"overlap": overlap_verdicts, "cpu": cpu_verdicts, "hops": hop_verdicts}
    return list(parts[case.part](case, runs))


# --- tables --------------------------------------------------------------------------------

#: Of each part's table.
HEADS: Mapping[str, Sequence[str]] = {
    "overlap": (
        "compute", "iteration, ms", "I/O alone", "roots' I/O", "next(), least", "open, ms",
        "exposed, %", "of it, waits, %", "with first, %",
    ),
    "cpu": (
        "waits for", "that was, %", "root's filler, %", "wakes/s", "all of it, %",
        "other's main, %", "wakes/s", "all of it, %",
    ),
    "hops": (
        "main threads", "MPI", "hops/s", "median, ms", "p90", "p99", "most", "blocks/s",
        "root's filler, %",
    ),
}  # fmt: skip


def percent(values: Sequence[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if not known:
        return "-"
    spread = Spread.of(known)
    return f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"


def median(values: Sequence[float], form: str) -> str:
    return f"{Spread.of(values).median:{form}}" if values else "-"


def row(case: Case, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The cells of a case's line, under ``HEADS``; all but shares are medians."""
    if not runs:
        return [case.name, "-"]
    rows = {"overlap": overlap_row, "cpu": cpu_row, "hops": hop_row}
    return rows[case.part](case, runs)


def overlap_row(case: Case, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    count = case.run["iterations"]
    per_iteration = [1e3 * max(one["reading_s"] for one in told["ranks"]) / count for told in runs]
    filling = [
        1e3 * max(one["stats"]["fill_seconds"] for one in told["ranks"]) / count for told in runs
    ]
    computes = case.run["factor"] > 0
    alone = [
        1e3 * told["ranks"][0]["compute_s"] / case.run["factor"] for told in runs
    ] if computes else per_iteration  # fmt: skip
    opening = [1e3 * max(one["open_s"] for one in told["ranks"]) for told in runs]
    return [
        case.name,
        median(per_iteration, ".2f"),
        median(alone, ".2f"),
        median(filling, ".2f"),
        median([1e3 * quickest(told) for told in runs], ".2f"),
        median(opening, ".0f"),
        percent([exposed(told, steady=True) for told in runs]),
        percent([awaited(told) for told in runs]),
        percent([exposed(told, steady=False) for told in runs]),
    ]


def cpu_row(case: Case, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    stage = case.run["stage"]
    return [
        case.name,
        percent([resting(told, stage) for told in runs]),
        percent([thread_share(told, "filler", roots=True) for told in runs]),
        median([wakes(told, "filler", roots=True) for told in runs], ".0f"),
        percent([thread_share(told, "all", roots=True) for told in runs]),
        percent([thread_share(told, "main", roots=False) for told in runs]),
        median([wakes(told, "main", roots=False) for told in runs], ".0f"),
        percent([thread_share(told, "all", roots=False) for told in runs]),
    ]


def hop_row(case: Case, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    known = [told["hops"]["TOKEN"] for told in runs if "TOKEN" in told["hops"]]
    rates = [told["hops"]["TOKEN"]["count"] / told["ranks"][0]["window_s"]
             for told in runs if "TOKEN" in told["hops"]]  # fmt: skip
    blocks = [
        sum(one["stats"]["blocks"] / one["whole_s"] for one in told["ranks"]) for told in runs
    ]
    return [
        case.name,
        runs[0]["mpi"],
        median(rates, ".0f"),
        *(median([one[name] for one in known], ".2f") for name in QUANTILES),
        median(blocks, ".0f"),
        percent([thread_share(told, "filler", roots=True) for told in runs]),
    ]
