"""A case: one way of loading under one trainer, and what must come of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["BATCH", "EPOCHS", "SEED", "Case"]

#: Of each rank; epochs that are trained; the seed of their orders.
BATCH, EPOCHS, SEED = 4, 3, 7


@dataclass(frozen=True, slots=True)
class Case:
    """One way of loading under one trainer.

    Attributes:
        program: that trains, a module of this folder.
        processes: ranks of the job.
        way: of loading, one of ``ways``.
        given: how the trainer gets the loader, in words that the program knows.
        stop: where the first of two runs ends: "" (there is one run), "middle" (in epoch 1),
            "last batch" (of epoch 1, before the loop knows that it ended) or "end" (of epoch 1).
        workers: processes that load for each rank.
        count: samples of the data set.
        whole: the loader is told that it is one rank, since the trainer deals out batches.
        expects: "exact" (each rank's batches are what seed, epoch and rank say), "once" (ranks
            together have each sample once an epoch, in another order each), or what a
            refusal says.
    """

    program: str
    processes: int
    way: str
    given: str = ""
    stop: str = ""
    workers: int = 0
    count: int = 48
    whole: bool = False
    expects: str = "exact"

    def __str__(self) -> str:
        parts = [self.program, str(self.processes), self.way, self.given]
        parts += [f"{self.workers} workers"] * bool(self.workers) + [str(self.count)]
        parts += ["whole"] * self.whole + [f"stopped at {self.stop}"] * bool(self.stop)
        return ", ".join(filter(None, parts))

    @property
    def group(self) -> tuple[str, int, bool]:
        """Cases with the same one run in the same program."""
        return self.program, self.processes, "spawn" in self.given

    @property
    def order(self) -> dict[str, Any]:
        """The words of the loader that say its order."""
        ranks = {"rank": 0, "ranks": 1} if self.whole else {}
        return {"shuffle": True, "seed": SEED, **ranks}

    @property
    def steps(self) -> int:
        """Batches of a rank in an epoch."""
        return -(-self.count // (BATCH * self.processes))

    @property
    def stops_after(self) -> int | None:
        """The number of epoch 1's batch after which the first run leaves it; None: it does not."""
        return {"middle": 2, "last batch": self.steps}.get(self.stop)

    def fields(self) -> dict[str, Any]:
        """Return the fields, for a program of its own."""
        return asdict(self)
