"""The results of the runs: a line of the table for each, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["HEAD", "PARTS", "Run", "line", "verdicts"]

#: Of an iteration.
PARTS = ("read", "decode", "compute", "allreduce")


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one reader.

    Attributes:
        reader: its name.
        order: which rank got which records; runs of one order have to agree.
        cached: share of the file that was in the page cache at the beginning, 0 to 1.
        open_seconds, seconds: until the reader was there; of each part, over all iterations. Means
            over ranks.
        losses, accuracies: of each iteration, over the whole batch.
        fingerprint: hash of the losses and of all ranks' weights.
    """

    reader: str
    order: str
    cached: float
    open_seconds: float
    seconds: dict[str, float]
    losses: list[float]
    accuracies: list[float]
    fingerprint: str

    def ms(self, part: str) -> float:
        """Of a mean iteration, in milliseconds."""
        return 1000 * self.seconds[part] / len(self.losses)

    def io_share(self) -> float:
        return self.seconds["read"] / sum(self.seconds.values())


HEAD = (
    f"{'':8} {'ms/iter':>8} {'I/O':>8} {'share':>6} {'decode':>7} {'compute':>8} {'allreduce':>9} "
    f"{'open s':>7} {'loss':>6} {'accuracy':>8}  fingerprint"
)


def line(run: Run) -> str:
    last = -(-len(run.losses) // 10)
    loss, accuracy = np.mean(run.losses[-last:]), np.mean(run.accuracies[-last:])
    return (
        f"{run.reader:8} {sum(map(run.ms, PARTS)):8.3f} {run.ms('read'):8.3f} "
        f"{run.io_share():6.1%} {run.ms('decode'):7.3f} {run.ms('compute'):8.3f} "
        f"{run.ms('allreduce'):9.3f} {run.open_seconds:7.3f} {loss:6.3f} {accuracy:8.1%}  "
        f"{run.fingerprint}"
    )


def verdicts(runs: Sequence[Run]) -> list[tuple[bool, str]]:
    """Of the runs of each order: do they agree, in words."""
    told = []
    for order in dict.fromkeys(run.order for run in runs):
        mine = [run for run in runs if run.order == order]
        names = ", ".join(run.reader for run in mine)
        agree = len({run.fingerprint for run in mine}) == 1
        text = "the same losses and weights, bit for bit" if agree else "DIFFERENT results"
        text = text if len(mine) > 1 else "nothing to compare"
        told.append((agree, f"{order}: {names}: {text}"))
    return told
