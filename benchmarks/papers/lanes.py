"""Reports of the emulated cluster, as lanes with their figures. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cluster.results import epochs_of, waits_of
from benchmarks.cluster.sweep import Shape
from lmdbio.bench.findings import MIB, Spread

__all__ = ["Lane", "Reports", "by_where", "lanes_of", "over"]

Reports = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane in a cell that ran.

    Attributes:
        cell, lane: as JSON has them.
        runs: timed ones, at least one.
        figures: of each run, by name.
    """

    cell: Mapping[str, Any]
    lane: Mapping[str, Any]
    runs: Sequence[Mapping[str, Any]]
    figures: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        return str(self.lane["name"])

    @property
    def where(self) -> str:
        """The data set and the shape."""
        return f"{self.cell['dataset']}, {self.shape}"

    @property
    def shape(self) -> str:
        """Ranks and nodes."""
        return str(Shape(**self.cell["shape"]))

    def spread(self, name: str) -> Spread:
        """Return a figure's median and ends over the rounds."""
        found = Spread.of([float(one[name]) for one in self.figures])
        assert found is not None  # there is at least one run
        return found

    @property
    def seconds(self) -> float:
        """Of reading, the median."""
        return self.spread("reading_s").median

    @property
    def read_mib(self) -> float:
        """From the store, the median."""
        return self.spread("delivered").median / MIB

    def epochs(self) -> list[float]:
        """Return the seconds of each epoch, medians."""
        return [statistics.median(one) for one in zip(*map(epochs_of, self.runs), strict=True)]

    def waits(self) -> list[float]:
        """Return the seconds that the rank waited that waited most, of each epoch, medians."""
        return [statistics.median(one) for one in zip(*map(waits_of, self.runs), strict=True)]


def lanes_of(reports: Reports) -> list[Lane]:
    """Return all lanes that ran, in the order of the reports."""
    return [
        Lane(made["cell"], one["lane"], one["runs"], one["figures"])
        for report in reports
        for made in report["cells"]
        for one in made["lanes"]
        if one["runs"]
    ]


def by_where(lanes: Sequence[Lane]) -> dict[str, dict[str, Lane]]:
    """Return lanes by where they ran, and by name."""
    found: dict[str, dict[str, Lane]] = {}
    for one in lanes:
        found.setdefault(one.where, {})[one.name] = one
    return found


def over(slow: Lane, fast: Lane) -> float:
    """Return how many times as long one lane took as another."""
    return slow.seconds / fast.seconds
