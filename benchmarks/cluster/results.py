"""Results of runs, and the figures that follow from them. Pure.

All figures of a lane are medians over its rounds.

    seconds     from when the first rank began until the last had its last record: opening,
                finding, reading
    reading_s   of reading alone: from when the first rank had opened; with a Reader, from when
                the first root began to read, which is before all ranks have opened
    rate        MB/s: bytes needed over reading_s; of plain readers, bytes read
    amplified   bytes from the store over bytes needed: the pages that hold each node's records
    seek_s ...  means over the ranks that read from the store (roots; all, for py-lmdb)
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.cluster.sweep import PLAIN, PY_LMDB, Cell, Lane, ior_words
from lmdbio.bench.findings import Spread

MB = 1e6


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run; see above. Seconds, bytes.

    Attributes:
        open_s: the mean over all ranks.
        skew_s: a reading rank was done, and others were not.
        request_bytes: the mean of what the store was asked for.
        switches: context switches of all ranks while they read, asked for or not; those of a
            root's threads that read while it opened are among them.
        sleep_share: of the time of reading in which a rank did not compute, the mean over ranks.
        cpu_s: of all ranks.
        exposed: share of the time from the first batch on in which a rank waited for the next
            one, of the rank that waited most.
        warm_s: seconds of an epoch after the first, the mean over these; None: there is but one.
        hit_rate: share of the records located that lay in what was guessed; None: nothing was.
    """

    seconds: float
    reading_s: float
    open_s: float
    seek_s: float
    io_s: float
    turn_s: float
    skew_s: float
    rate: float
    needed: int
    delivered: int
    amplified: float
    requests: int
    request_bytes: float
    seeks: int
    records: int
    switches: int
    switches_per_record: float
    sleep_share: float
    cpu_s: float
    late_ms: float
    hit_rate: float | None
    exposed: float
    warm_s: float | None

    @classmethod
    def of(cls, run: Mapping[str, Any], *, plain: bool) -> Figures:
        ranks: list[dict[str, Any]] = run["ranks"]
        readers = [one for one in ranks if one["reads"]] or ranks
        delivered = sum(run["delivered"])
        needed = run["value_bytes"] if plain else sum(run["needed"])
        switches = int(sum(_switches(one) for one in ranks))
        epochs = epochs_of(run)
        return cls(
            seconds=run["seconds"],
            reading_s=run["reading_s"],
            open_s=_mean(ranks, lambda one: one["open_s"]),
            seek_s=_mean(readers, _seek),
            io_s=_mean(readers, lambda one: one["io_s"]),
            turn_s=_mean(readers, lambda one: one["turn_s"]),
            skew_s=_mean(readers, lambda one: one["skew_s"]),
            rate=needed / run["reading_s"] / MB,
            needed=needed,
            delivered=delivered,
            amplified=delivered / max(1, needed),
            requests=run["requests"],
            request_bytes=delivered / max(1, run["requests"]),
            seeks=run["seeks"],
            records=run["records"],
            switches=switches,
            switches_per_record=switches / max(1, run["records"]),
            sleep_share=_mean(ranks, lambda one: one["sleep_s"] / max(1e-9, one["read_s"])),
            cpu_s=sum(one["phase"]["cpu_s"] for one in ranks),
            late_ms=run["late_ms"],
            hit_rate=_hit_rate(ranks),
            exposed=max(
                one["exposed_s"] / max(1e-9, one["read_s"] - one["first_wait_s"]) for one in ranks
            ),
            warm_s=statistics.fmean(epochs[1:]) if len(epochs) > 1 else None,
        )


def epochs_of(run: Mapping[str, Any]) -> list[float]:
    """Return the seconds of each epoch of a run, up to the last rank's last batch."""
    ranks = run["ranks"]
    ends = [max(one["epochs"][i][0] for one in ranks) for i in range(len(ranks[0]["epochs"]))]
    return [end - before for before, end in zip([0.0, *ends], ends, strict=False)]


def waits_of(run: Mapping[str, Any]) -> list[float]:
    """Return the seconds of each epoch in which a rank waited, of the one that waited most."""
    ranks, found = run["ranks"], []
    for i in range(len(ranks[0]["epochs"])):
        before = [one["epochs"][i - 1][1] if i else 0.0 for one in ranks]
        found.append(max(one["epochs"][i][1] - b for one, b in zip(ranks, before, strict=True)))
    return found


def late_of(run: Mapping[str, Any]) -> int:
    """Return the rows of a run that were read for other roots were late."""
    stats = (rank["stats"] for rank in run["ranks"])
    return sum(int(one["late_records"] + one["gone_records"]) for one in stats)


def counts_that_differ(run: Mapping[str, Any]) -> int:
    """Return how many of a run's counts of records, by epoch and source, were not simulated so."""
    differ = 0
    for epoch, expected in enumerate(run["simulated"]["records"]):
        by = [rank["sources"].get(str(epoch), {}) for rank in run["ranks"]]
        for source, count in expected.items():
            differ += sum(one.get(source, (0, 0))[0] for one in by) != count
    return differ


def _seek(rank: Mapping[str, Any]) -> float:
    """A scan is done while a Reader opens, and not told apart from it."""
    scans = rank["mode"].get("locate") == "scan"
    return float(rank["seek_s"] + (rank["open_s"] if scans else 0.0))


def _hit_rate(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    stats = [one["stats"] for one in ranks if one["stats"]]
    located = sum(one["located_records"] for one in stats)
    if not located or not any(one["guessed_bytes"] for one in stats):
        return None
    return float(sum(one["guessed_records"] for one in stats) / located)


def _switches(rank: Mapping[str, Any]) -> float:
    phase = rank["phase"]
    return float(phase["voluntary"] + phase["involuntary"] + rank["early_switches"])


def _mean(ranks: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], float]) -> float:
    return statistics.fmean(key(one) for one in ranks)


@dataclass(slots=True)
class LaneResult:
    """The result of one lane in one cell.

    Attributes:
        lane: who read.
        runs: the timed ones, as ``rank.summary`` tells them.
        sum: over all records' bytes; None: not looked at.
        error: why there is no (further) figure.
    """

    lane: Lane
    runs: list[dict[str, Any]] = field(default_factory=list)
    sum: int | None = None
    error: str = ""

    @property
    def figures(self) -> list[Figures]:
        return [Figures.of(run, plain=not self.lane.reads_records) for run in self.runs]

    def spread(self, name: str) -> Spread | None:
        """Of one of the figures; None: there is none."""
        values = [getattr(one, name) for one in self.figures]
        return None if None in values else Spread.of(values)

    def median(self, name: str) -> float | None:
        found = self.spread(name)
        return None if found is None else found.median

    def as_json(self) -> dict[str, Any]:
        names = Figures.__dataclass_fields__ if self.runs else ()
        medians = {name: self.median(name) for name in names}
        return {
            "lane": asdict(self.lane),
            "error": self.error,
            "sum": self.sum,
            "medians": medians,
            "figures": [asdict(one) for one in self.figures],
            "runs": self.runs,
        }


@dataclass(slots=True)
class CellResult:
    """The result of one cell."""

    cell: Cell
    lanes: list[LaneResult]

    def lane(self, name: str) -> LaneResult | None:
        """The lane of this name; of "stag", "coal" and the like the fastest one, whatever its
        tokens and engine; of "plain" the one of the highest rate."""
        exact = [one for one in self.lanes if one.lane.name == name and one.runs]
        if exact and name not in ("coal", "prov", "dio"):
            return exact[0]
        if name == PLAIN:
            found = [one for one in self.lanes if one.lane.kind == "plain" and one.runs]
            return max(found, key=lambda one: one.median("rate") or 0.0, default=None)
        found = [one for one in self.lanes if one.lane.mode == name and one.runs]
        return min(found, key=lambda one: one.median("reading_s") or 0.0, default=None)

    def ratio(self, name: str, other: str, figure: str) -> float | None:
        """Of the medians of two lanes."""
        one, rival = self.lane(name), self.lane(other)
        if one is None or rival is None:
            return None
        top, bottom = one.median(figure), rival.median(figure)
        return None if top is None or not bottom else top / bottom

    def factor(self, name: str, figure: str = "seconds") -> float | None:
        """How many times as fast as py-lmdb."""
        return self.ratio(PY_LMDB, name, figure)

    @property
    def sums_agree(self) -> bool:
        """Everybody who looked at every byte saw the same."""
        return len({one.sum for one in self.lanes if one.sum is not None}) <= 1

    @property
    def commands(self) -> dict[str, str]:
        """The commands that IOR would be told, by the name of each plain reader."""
        return {
            one.lane.name: ior_words(one.lane, self.cell.shape, one.runs[0]["value_bytes"])
            for one in self.lanes
            if one.lane.kind == "plain" and one.runs
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "cell": asdict(self.cell),
            "commands": self.commands,
            "title": str(self.cell),
            "sums_agree": self.sums_agree,
            "lanes": [one.as_json() for one in self.lanes],
        }
