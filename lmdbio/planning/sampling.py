"""sampling: orders of epochs in which samples are drawn, sorted by size, or cut. Pure.

    value       places of an epoch            sample at each
    Weighted    as many as asked for          drawn by its weight, again and again
    Buckets     one for each sample           each once, in batches of samples of like size
    Passes      as many as asked for          each once before any comes again, epochs going on

Each is a function of seed, epoch and place that is computed where it is asked (``order``), and
knows nothing of ranks: so these share an epoch, and resume in its middle, as they do of a
permutation. ``Weighted`` takes 8 bytes a sample, ``Buckets`` the sizes, and neither a table of
an epoch.

Source: cumulative weights and binary search, as ``torch.utils.data.WeightedRandomSampler``;
windows that are sorted by length, as the bucketing of torchtext and Transformers.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio.planning.order import COUNT_MAX, I64, Epoch, Epochs, random_words
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.system.amounts import whole

__all__ = ["Buckets", "Passes", "SampledEpoch", "Sampling", "Weighted"]

#: Batches of a window that is sorted: many of each size, and none far from where chance had it.
WINDOW_BATCHES = 100


class Sampling(ABC):
    """The orders of all epochs of a data set, for any seed.

    Attributes:
        name: name with all that makes the order, for states; equal for equal orders.
    """

    name: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    def places(self, count: int) -> int:
        """Return the number of places of an epoch of ``count`` samples.

        Raises:
            ValueError: it is for another number of samples.
        """
        return count

    @abstractmethod
    def find(self, places: I64, epoch: SampledEpoch) -> I64:
        """Return the samples at some places of an epoch: int64, shape (n,)."""

    def epoch(self, samples: int, seed: int | None, number: int) -> SampledEpoch:
        """Return the order of one epoch.

        Args:
            samples: number of samples in the data set.
            seed: seed of all epochs, any integer.
            number: number of the epoch, from 0.

        Raises:
            ValueError: it is for another number of samples.
        """
        return SampledEpoch(self, samples, self.places(samples), seed, number)


@dataclass(frozen=True, slots=True)
class SampledEpoch:
    """The order of one epoch (``order.EpochOrder``).

    Attributes:
        sampling: orders of all epochs.
        samples_total: number of samples in the data set.
        count: number of places.
        seed: seed of all epochs; None: samples come in their own order.
        number: number of the epoch.
    """

    sampling: Sampling
    samples_total: int
    count: int
    seed: int | None
    number: int

    def samples(self, places: npt.ArrayLike) -> I64:
        """Return the samples at some places below ``count``: int64, shape (n,)."""
        return self.sampling.find(np.asarray(places, np.int64), self)


class Weighted(Sampling):
    """Samples drawn by weight, with replacement: ``WeightedRandomSampler`` that resumes.

        sampler = Weighted(weights, 100_000)    # or Weighted.balanced(labels)
        loader = Loader(path, 32, sampler=sampler, seed=1)

    Args:
        weights: weight of each sample, numbers from 0 on, shape (samples,); only their
            proportions count.
        size: number of samples in an epoch; None: as many as there are weights.

    Raises:
        ValueError: a weight is negative or not finite, all are 0, or ``size`` is below 1.
    """

    def __init__(self, weights: npt.ArrayLike, size: int | None = None) -> None:
        given = _numbers("weights", weights)
        ends = np.cumsum(given)
        if not len(given) or not ends[-1] > 0 or not np.isfinite(ends[-1]) or given.min() < 0:
            raise ValueError("weights are numbers from 0 on, at least one of them above 0")
        self._ends, self._last = ends, int(np.flatnonzero(given)[-1])
        self._size = _size(len(given) if size is None else size)
        self.name = f"{self._size} drawn by weights of crc32 {zlib.crc32(given.data)}"

    @classmethod
    def balanced(cls, labels: npt.ArrayLike, size: int | None = None) -> Weighted:
        """Return the order in which each class comes equally often.

        Args:
            labels: class of each sample, numbers or text, shape (samples,).
            size: number of samples in an epoch; None: as many as there are labels.
        """
        _, classes, counts = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
        return cls(1.0 / counts[classes], size)

    def places(self, count: int) -> int:
        """Return the size of an epoch."""
        _refuse_others("weights", len(self._ends), count)
        return self._size

    def find(self, places: I64, epoch: SampledEpoch) -> I64:
        """Return a sample for each place, drawn by its weight."""
        # 53 bits are what a float holds; a product that rounds up to the sum is the last one's.
        drawn = (random_words(epoch.seed or 0, epoch.number, places) >> np.uint64(11)) * 2.0**-53
        drawn *= self._ends[-1]
        order, found = np.argsort(drawn), np.empty_like(places)
        # A search in ascending order takes half the time: the next one lies near in memory.
        found[order] = np.searchsorted(self._ends, drawn[order], side="right")
        return np.minimum(found, self._last)


class Buckets(Sampling):
    """Batches of samples of like size, each sample once an epoch, the batches shuffled.

        loader = Loader(records, 32, sampler=Buckets(records.sizes(), 32))

    Of a random permutation ``batches`` batches at a time are sorted by size, cut into batches, and
    these shuffled. Samples that fill no batch come last.

    Args:
        sizes: size of each sample, in any unit, shape (samples,).
        batch_size: number of neighbours of like size: that of the loader; times the number of
            ranks for ranks whose batches are alike in each step.
        batches: number of batches that are sorted together; more of them are more alike, and
            less random.

    Raises:
        ValueError: a size is not finite, or a number is below 1.
    """

    def __init__(
        self, sizes: npt.ArrayLike, batch_size: int, batches: int = WINDOW_BATCHES
    ) -> None:
        self.sizes = _numbers("sizes", sizes)
        if not np.isfinite(self.sizes).all():
            raise ValueError("sizes are finite numbers")
        self.batch_size = _size(batch_size, "batch_size")
        self.window = self.batch_size * _size(batches, "batches")
        crc = zlib.crc32(self.sizes.data)
        self.name = f"{self.window} sorted for batches of {self.batch_size}, sizes of crc32 {crc}"

    def places(self, count: int) -> int:
        """Return the number of samples."""
        _refuse_others("sizes", len(self.sizes), count)
        return count

    def find(self, places: I64, epoch: SampledEpoch) -> I64:
        """Return the samples at some places of the windows, each of which is sorted once."""
        windows, within = np.divmod(places, self.window)
        found = np.empty_like(places)
        for window in sorted(set(windows.tolist())):
            here = windows == window
            found[here] = _sorted_window(self, epoch, window)[within[here]]
        return found


@lru_cache(maxsize=4)
def _sorted_window(order: Buckets, epoch: SampledEpoch, window: int) -> I64:
    """Return the samples of one window, in the order in which they come."""
    begin, size = window * order.window, order.batch_size
    places = np.arange(begin, min(begin + order.window, epoch.count), dtype=np.int64)
    samples = Epoch(epoch.count, epoch.seed, epoch.number).samples(places)
    samples = samples[np.argsort(order.sizes[samples], kind="stable")]
    whole = len(samples) // size
    # The words of a seed all count: no two windows have their batches in the same order.
    shuffled = Epoch(whole, ((epoch.seed or 0) << 64) + window + 1, epoch.number)
    batches = samples[: whole * size].reshape(whole, size)
    rest = samples[whole * size :]
    return np.concatenate((batches[shuffled.samples(np.arange(whole))].reshape(-1), rest))


class Passes(Sampling):
    """Epochs of a fixed length, which go on through the passes over a data set.

        loader = Loader(path, 32, sampler=Passes(32 * 1000))    # epochs of 1,000 batches

    Each sample comes once a pass, wherever epochs end: an epoch may be a part of a pass, or
    several.

    Args:
        size: number of samples in an epoch, of all ranks together.
        shuffle: whether each pass has another order; or a ``Shuffle``.

    Raises:
        ValueError: ``size`` is below 1.
        TypeError: ``shuffle`` is none of these.
    """

    def __init__(self, size: int, shuffle: bool | Shuffle = True) -> None:
        self._size = _size(size)
        if not isinstance(shuffle, bool | np.bool_ | Shuffle):
            raise TypeError(f"shuffle is True, False or a Shuffle, not {shuffle!r}")
        self._shuffle = shuffle if isinstance(shuffle, Shuffle) else GLOBAL
        self._is_shuffled = bool(shuffle)
        self.name = f"passes, {size} at a time, {self._shuffle if self._is_shuffled else 'as is'}"

    def places(self, count: int) -> int:
        """Return the size of an epoch."""
        if count < 1:
            raise ValueError("a data set without samples has no passes")
        return self._size

    def epoch(self, samples: int, seed: int | None, number: int) -> SampledEpoch:
        """Return the order of one epoch, in ascending order where none was asked for."""
        return super().epoch(samples, seed if self._is_shuffled else None, number)

    def find(self, places: I64, epoch: SampledEpoch) -> I64:
        """Return the samples at some places of the passes."""
        passes = Epochs(epoch.samples_total, epoch.seed, self._shuffle)
        return passes.samples(places + epoch.number * self._size)


def _numbers(name: str, given: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return numbers of one each sample, as the caller gives them.

    Raises:
        ValueError: they are no one-dimensional array of numbers.
    """
    found: npt.NDArray[Any] = np.asarray(given)
    if found.ndim != 1 or found.dtype.kind not in "iufb":
        raise ValueError(
            f"{name} are one number for each sample, not {found.dtype} of shape {found.shape}"
        )
    return np.ascontiguousarray(found, np.float64)


def _size(given: int, name: str = "size") -> int:
    return whole(name, given, 1, COUNT_MAX)


def _refuse_others(name: str, given: int, count: int) -> None:
    """Raise ValueError where numbers are those of another data set."""
    if given != count:
        raise ValueError(f"{given} {name} for a data set of {count} samples")
