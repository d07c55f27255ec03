"""stepped: epochs that each begin with a new batch, as PyTorch's loaders have them. Pure.

    Shard: rank, step -> its samples -> places of an endless sequence, a whole number of batches

    count 11, 2 ranks, batch_size 2, even    a batch: rank 0's share | rank 1's
                                 step 0      0  1 | 2  3
                                 step 1      4  5 | 6  7
                                 step 2      8  9 | 10 0       0 once more, as ``Shard`` has it
    count 9                      step 2      8 (1)| 0 (2)      what fills up is taken by nobody

So a schedule of full batches that goes on from epoch to epoch has each rank's samples at the
beginning of its share of each batch, and all of it where the step is full.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lmdbio.planning.order import I64, Epochs, Shard, Steps

__all__ = ["SteppedEpochs"]


@dataclass(frozen=True, slots=True)
class SteppedEpochs(Epochs):
    """The orders of all epochs, each of which begins with a new batch of all ranks.

    Place p of this sequence belongs to epoch p // ``places``.

    Attributes:
        batch_size: number of samples that a rank takes in a step.
        ranks: number of ranks in the job.
        steps: way in which ranks take epochs; the sequence begins at ``start``.

    Raises:
        ValueError: for values that describe no steps, or none at all.
    """

    batch_size: int = 1
    ranks: int = 1
    steps: Steps = field(default_factory=Steps)

    def __post_init__(self) -> None:
        Epochs.__post_init__(self)
        self.epoch(self.steps.epoch)
        self.shard(self.steps.epoch)  # raises for values that make none
        if not self.places:
            raise ValueError(
                f"drop_last leaves out all of {self.count} samples: a step of all ranks has "
                f"{self.ranks * self.batch_size}"
            )

    def shard(self, number: int, rank: int = 0) -> Shard:
        """Return what a rank takes of an epoch."""
        steps = self.steps
        used = steps.used if number == steps.epoch else 0
        return Shard(
            self.count,
            self.batch_size,
            rank,
            self.ranks,
            used,
            drop_last=steps.drop_last,
            even=steps.even,
        )

    @property
    def is_stepped(self) -> bool:
        """Whether epochs begin with new batches."""
        return True

    @property
    def places(self) -> int:
        """How many places an epoch takes, from its first sample on."""
        whole = self.shard(self.steps.epoch + 1)
        return len(whole) * whole.step_size

    @property
    def start(self) -> int:
        """The place at which the first epoch begins, or goes on."""
        return self.begin(self.steps.epoch)

    def begin(self, number: int) -> int:
        """Return the place of the first step of an epoch, the first one's being the next one.

        An epoch that goes on in its middle ends where it would have ended.
        """
        shard = self.shard(number)
        return (number + 1) * self.places - len(shard) * shard.step_size

    def taken(self, place: int, rank: int) -> int:
        """Return how many samples a rank takes of the batch that begins at a place."""
        number, _ = divmod(place, self.places)
        step = (place - self.begin(number)) // (self.ranks * self.batch_size)
        return len(self.shard(number, rank).places(step))

    def uses_max(self, places: int) -> int:
        """Return how often a record is at so many neighbouring places, at most."""
        epochs = -(-(places - 1) // self.places) + 1
        if self.steps.drop_last:
            return epochs
        return epochs * (1 + -(-self.ranks * self.batch_size // self.count))

    def samples(self, places: npt.ArrayLike) -> I64:
        """Return the samples at some places from ``start`` on: int64 of the same shape (n,).

        Raises:
            IndexError: a place lies before it.
        """
        given = np.asarray(places, np.int64)
        if not given.size:
            return given
        numbers, found = given // self.places, np.empty_like(given)
        for number in sorted(set(numbers.tolist())):  # np.unique would import one more module
            here = numbers == number
            found[here] = self.epoch(number).samples(self._places_of(number, given[here]))
        return found

    def _places_of(self, number: int, places: I64) -> I64:
        """Return the places of an epoch at some places of the sequence that belong to it."""
        shard, within = self.shard(number), places - self.begin(number)
        full = (shard.count - shard.used) // shard.step_size * shard.step_size
        is_full = within < full
        found: I64 = within + shard.used
        if not is_full.all():
            found[~is_full] = _last_step(shard)[within[~is_full] - full]
        return found


@lru_cache(maxsize=4)
def _last_step(shard: Shard) -> I64:
    """Return the places of an epoch in a last step that is not full, rank by rank.

    Each rank has its own, and then what fills up: the first places that nobody else has there.
    """
    own, lengths = shard.of_all_ranks(len(shard) - 1)
    is_own = np.arange(shard.batch_size) < np.array(lengths)[:, np.newaxis]
    again = int((len(own) + shard.used + (len(shard) - 1) * shard.step_size) - shard.count)
    found = np.empty(is_own.shape, np.int64)
    found[is_own] = own
    found[~is_own] = (again + np.arange(is_own.size - len(own))) % shard.count
    return found.ravel()
