"""The paper's numbers, those measured here, and why they differ. Pure.

Source: LMDBIO (ACM TOPC 2019), by section and figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.cluster.results import CellResult, LaneResult
from benchmarks.cluster.sweep import PLAIN, PY_LMDB

#: Where most of what differs comes from, said once.
SCALE = "4,608 and 9,216 processes on 128 and 256 nodes there; at most 32 on 8 emulated ones here"

Cells = Sequence[CellResult]
#: The value, and where it was measured.
Found = tuple[float, str] | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A number of the paper.

    Attributes:
        words: what it is of.
        value: the number.
        unit: "x" for factors, "%" for shares.
        where: section or figure, and under which circumstances.
        differs: why the number here may be another one.
        measure: the number here, None if what it needs was not measured.
    """

    words: str
    value: float
    unit: str
    where: str
    differs: str
    measure: Callable[[Cells], Found]

    @property
    def value_text(self) -> str:
        return value_text(self.value, self.unit)


@dataclass(frozen=True, slots=True)
class Answer:
    """A claim, and what was found here."""

    claim: Claim
    value: float | None
    where: str

    @property
    def text(self) -> str:
        return "-" if self.value is None else value_text(self.value, self.claim.unit)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A figure of the paper that is not answered here, and why."""

    number: str
    words: str
    reason: str


def value_text(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value:.3g} %"
    return f"{value:,.3g}x" if value < 1000 else f"{value:,.0f}x"


# --- picking cells -------------------------------------------------------------------------


def picked(cells: Cells, dataset: str, scaling: str = "strong") -> list[CellResult]:
    """Of the usual store, by ranks; "blocked" where there are both assignments."""
    of = [
        one for one in cells
        if (one.cell.dataset, one.cell.scaling, one.cell.factor) == (dataset, scaling, 1.0)
        and any(lane.runs for lane in one.lanes)
    ]  # fmt: skip
    blocked = [one for one in of if one.cell.assignment == "blocked"] or of
    return sorted(blocked, key=lambda one: (one.cell.shape.ranks, one.cell.shape.nodes))


def largest(found: Iterable[tuple[float | None, CellResult]]) -> Found:
    """The largest value, and where."""
    known = [(value, made) for value, made in found if value is not None]
    if not known:
        return None
    value, made = max(known, key=lambda pair: pair[0])
    return value, str(made.cell.shape)


def best_factor(mode: str, dataset: str, scaling: str = "strong") -> Callable[[Cells], Found]:
    """The mode's largest factor over py-lmdb."""
    return lambda cells: largest(
        (made.factor(mode), made) for made in picked(cells, dataset, scaling)
    )


def of_ceiling(cells: Cells) -> Found:
    """Per cent that py-lmdb reads of what plain readers do, where it is least."""
    found = [
        (ratio, made)
        for made in picked(cells, "3k")
        if (ratio := made.ratio(PY_LMDB, PLAIN, "rate")) is not None
    ]
    if not found:
        return None
    ratio, made = min(found, key=lambda pair: pair[0])
    return 100 * ratio, str(made.cell.shape)


def share(mode: str, figure: str) -> Callable[[Cells], Found]:
    """Per cent that a part has in the mode's time, on the largest shape."""

    def measure(cells: Cells) -> Found:
        for made in reversed(picked(cells, "3k")):
            lane = made.lane(mode)
            if lane is not None:
                part, whole = lane.median(figure), lane.median("seconds")
                if part is not None and whole:
                    return 100 * part / whole, str(made.cell.shape)
        return None

    return measure


def on_one_node(cells: Cells) -> list[tuple[CellResult, LaneResult]]:
    return [
        (made, lane) for made in picked(cells, "3k")
        if made.cell.shape.nodes == 1 and (lane := made.lane(PY_LMDB)) is not None
    ]  # fmt: skip


def switches_growth(cells: Cells) -> Found:
    """py-lmdb's context switches on one node, of the most ranks over one rank's."""
    found = on_one_node(cells)
    if len(found) < 2 or found[0][0].cell.shape.ranks != 1:
        return None
    first, last = found[0][1].median("switches"), found[-1][1].median("switches")
    if not first or last is None:
        return None
    return last / first, str(found[-1][0].cell.shape)


def asleep(cells: Cells) -> Found:
    found = on_one_node(cells)
    if not found:
        return None
    value = found[-1][1].median("sleep_share")
    return None if value is None else (100 * value, str(found[-1][0].cell.shape))


def fewer_switches(mode: str) -> Callable[[Cells], Found]:
    return lambda cells: largest(
        (made.ratio(PY_LMDB, mode, "switches"), made) for made in picked(cells, "3k")
    )


def seek_gain(cells: Cells) -> Found:
    return largest((made.ratio("lmm", "dm", "seek_s"), made) for made in picked(cells, "3k"))


def mapped_loss(cells: Cells) -> Found:
    """How many times as fast pread is as a mapping, in blocks of a page."""
    for made in cells:
        if made.cell.scaling == "block size":
            rate = made.ratio("pread 4 KiB", "mmap 4 KiB", "rate")
            if rate is not None:
                return rate, "1 process"
    return None


# --- the numbers ---------------------------------------------------------------------------

#: Reading alone is measured here; where the paper trains, its factor is of the whole.
TRAINS = "training there, reading alone here, where nothing dilutes the factor; " + SCALE
SWITCHES = (
    "there every interrupt woke all who waited for whatever page (3.3.1); this kernel wakes who "
    "waits for that very page"
)

CLAIMS = (
    Claim("LMDB's share of what IOR reads", 10, "%", "3.2, below this",
          SCALE + "; LMDB's loss grows with the nodes", of_ceiling),
    Claim("pread's speed over a mapping's, 4 KB blocks", 2.5, "x", "3.3.3, one reader",
          "both go through the same kernel readahead of 128 KiB here; GPFS does its own",
          mapped_loss),
    Claim("LMDB's context switches, most ranks of a node over one", 2546, "x",
          "3.3.1, 36 ranks over 1", SWITCHES, switches_growth),
    Claim("LMDB's time asleep", 93, "%", "3.3.1, 36 ranks", "2 cores, so the rest is waiting too",
          asleep),
    Claim("LMM over LMDB, reading", 43.77, "x", "5.1.1, at most 1,152 ranks", SCALE,
          best_factor("lmm", "3k")),
    Claim("LMM's context switches, fewer than LMDB's", 83, "x", "5.1.1", SWITCHES,
          fewer_switches("lmm")),
    Claim("LMM's seeking in its time", 60, "%", "5.1.2", SCALE, share("lmm", "seek_s")),
    Claim("DM over LMDB, reading", 6.7, "x", "5.1.2, 4,608 ranks", SCALE,
          best_factor("dm", "3k")),
    Claim("DM's seeking in its time", 1, "%", "5.1.2, below this",
          SCALE, share("dm", "seek_s")),
    Claim("DM's seeking, faster than LMM's", 1741, "x", "5.1.2", SCALE, seek_gain),
    Claim("DIO over LMDB, reading", 17.18, "x", "5.1.3, 4,608 ranks",
          SCALE + "; the scan here asks for all leaves of a level at once",
          best_factor("dio", "3k")),
    Claim("DIO's seeking in its time", 20, "%", "5.1.3",
          "opening is counted in, since the scan is part of it", share("dio", "seek_s")),
    Claim("PROV over LMDB, reading", 19.44, "x", "5.1.4, 4,608 ranks", SCALE,
          best_factor("prov", "3k")),
    Claim("COAL over LMDB, reading", 21.86, "x", "5.1.5, 4,608 ranks",
          SCALE + "; several requests of a root are in flight here, one there",
          best_factor("coal", "3k")),
    Claim("COAL's skew in its time", 25, "%", "5.1.5",
          "no barrier in each iteration here, unless asked for", share("coal", "skew_s")),
    Claim("STAG over LMDB, reading", 81.05, "x", "5.1.6, 4,608 ranks",
          SCALE + "; the factor grows with the nodes, as LMDB's redundant reads do",
          best_factor("stag", "3k")),
    Claim("STAG over LMDB, CIFAR10-Large, strong scaling", 65, "x", "Fig. 24, 9,216 ranks",
          TRAINS, best_factor("stag", "3k")),
    Claim("STAG over LMDB, ImageNet-Large, strong scaling", 1.6, "x", "Fig. 25, 9,216 ranks",
          TRAINS, best_factor("stag", "192k")),
    Claim("STAG over LMDB, CIFAR10-Large, weak scaling", 43, "x", "Fig. 26", TRAINS,
          best_factor("stag", "3k", "weak")),
    Claim("STAG over LMDB, ImageNet-Large, weak scaling", 1.9, "x", "Fig. 27", TRAINS,
          best_factor("stag", "192k", "weak")),
    Claim("LMM over LMDB, CIFAR10-Large on Blues", 1.21, "x", "Fig. 23(a), 512 ranks", TRAINS,
          best_factor("lmm", "3k")),
    Claim("DM over LMDB, CIFAR10-Large on Blues", 1.41, "x", "Fig. 23(a), 512 ranks", TRAINS,
          best_factor("dm", "3k")),
    Claim("LMM over LMDB, ImageNet on Blues", 7, "x", "Fig. 23(b), 512 ranks", TRAINS,
          best_factor("lmm", "192k")),
    Claim("DM over LMDB, ImageNet on Blues", 8.3, "x", "Fig. 23(b), 512 ranks", TRAINS,
          best_factor("dm", "192k")),
)  # fmt: skip


def answers(cells: Cells) -> list[Answer]:
    """Every number of the paper, with the one here.

    Args:
        cells: all that were measured, those of one process by the size of its requests included.
    """
    made = []
    for claim in CLAIMS:
        found = claim.measure(cells)
        made.append(Answer(claim, *(found if found is not None else (None, "not measured"))))
    return made


# --- the figures ---------------------------------------------------------------------------

#: Of the paper that cannot be drawn from what is measured here.
FIGURES = (
    Unanswered("1, 2", "workflows of Caffe and of mmap", "drawings, nothing is measured in them"),
    Unanswered("3-5, computing", "forward, backward and update time of Caffe",
               "batches are read without training; the example in Caffe's pattern trains"),
    Unanswered("5", "ResNet50 instead of CaffeNet",
               "the network changes the computing alone; the reading is that of Fig. 4"),
    Unanswered("9-14", "I/O randomisation, and the designs of the modes",
               "drawings; requests out of order are counted in the tables"),
    Unanswered("15-27, beyond 32 ranks", "64 to 9,216 processes, up to 256 nodes",
               "one machine: 16 nodes at most can be emulated, and Python's processes take 60 MB "
               "each; trends over ranks and nodes can be compared, ends cannot"),
    Unanswered("16(b)", "what mmap prefetches while others wait",
               "a drawing; Fig. 16(a) has its effect"),
    Unanswered("23-27, LMDB-MT-MKL", "one process a node with threads for computing",
               "nothing is computed"),
)  # fmt: skip
