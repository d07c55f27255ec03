"""Order: which sample comes when in an epoch, and which of them a rank uses. Pure, without tables.

    seed, epoch, count, shuffle -> Epoch: place <-> sample     computed where it is asked
    ranks, batch size           -> Shard: rank, step -> places  each once, whatever the ranks are

All ranks together use an epoch's samples in its order: in each step, rank r takes the r-th run of
``batch_size`` places. So ``used``, how many samples all ranks have used, is all that has to be
remembered to go on in the middle of an epoch, with as many ranks as there are then.

The permutation is a Feistel network on numbers below a * b >= count, walked along its cycles until
it comes back below count: any part of it costs as much as it is long and takes no memory, and it
is the same wherever, and with whatever version of NumPy, it is computed.

Source: Black and Rogaway, Ciphers with Arbitrary Finite Domains (CT-RSA 2002), methods 2 and 3;
the round function is the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from operator import index
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.shuffle import GLOBAL, MIXED_COUNT_MAX, Shuffle

__all__ = [
    "GOLDEN",
    "Epoch",
    "EpochOrder",
    "Epochs",
    "Shard",
    "Steps",
    "mix_bits",
    "random_words",
    "split_share",
]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

#: An even number; fewer than six are told from chance by few samples.
ROUNDS = 8
#: With more the two sides of the network would not fit 64 bits.
COUNT_MAX = 2**62
_MASK = 2**64 - 1
#: Of SplitMix64: what is added between two numbers.
GOLDEN = 0x9E3779B97F4A7C15
#: Added to a key: of the permutations inside windows.
_INNER = 0xD1B54A32D192ED03


class EpochOrder(Protocol):
    """The order of one epoch, for callers that go through it by places."""

    @property
    def count(self) -> int:
        """The number of places."""

    @property
    def number(self) -> int:
        """The number of the epoch, from 0."""

    @property
    def seed(self) -> int | None:
        """The seed of all epochs; None: samples come in ascending order."""

    def samples(self, places: npt.ArrayLike) -> I64:
        """Return the samples at some places: int64, shape (n,)."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The order of one epoch.

    Attributes:
        count: samples, at most 2**62.
        seed: seed of all epochs, any integer; None: samples come in their own order.
        number: number of the epoch, from 0; each has another order.
        shuffle: the orders that it may have.

    Raises:
        ValueError: ``count`` or ``number`` is negative or too large, or ``shuffle`` is of other
            samples.
        TypeError: a number is no integer.
    """

    count: int
    seed: int | None = None
    number: int = 0
    shuffle: Shuffle = GLOBAL

    def __post_init__(self) -> None:
        for name in ("count", "number", "seed"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, index(value))  # also those of NumPy
        if self.count < 0:
            raise ValueError(f"count must not be negative ({self.count})")
        if self.count > COUNT_MAX:
            raise ValueError(f"{self.count} samples are more than {COUNT_MAX}")
        if self.number < 0:
            raise ValueError(f"an epoch's number must not be negative ({self.number})")
        self.shuffle.given_order(self.count)
        if self.shuffle.held and not self.shuffle.held <= self.count <= MIXED_COUNT_MAX:
            raise ValueError(
                f"{self.shuffle.held} held records cannot be mixed among {self.count} "
                f"(at most {MIXED_COUNT_MAX})"
            )

    def samples(self, places: npt.ArrayLike) -> I64:
        """The samples at some places.

        Args:
            places: integers, shape (n,), from 0 below ``count``.

        Returns:
            Shape (n,), each sample at just one place.

        Raises:
            IndexError: there is no such place.
            ValueError, TypeError: they are no list of integers.
        """
        given = self._checked(places, "place")
        order = self.shuffle.given_order(self.count)
        if order is not None:
            return order[given]
        if self.seed is not None and self.shuffle.held:
            return self._mixed(given)
        if self.seed is not None and len(given):
            self.shuffling.records(given.view(np.uint64))
        return given

    def places(self, samples: npt.ArrayLike) -> I64:
        """The places of some samples: the inverse of ``samples``.

        Args:
            samples: integers, shape (n,), from 0 below ``count``.

        Raises:
            IndexError: there is no such sample.
        """
        given = self._checked(samples, "sample")
        order = self.shuffle.given_order(self.count)
        if order is not None:
            return _inverse(self.shuffle)[given]
        if self.seed is not None and self.shuffle.held:
            return self._unmixed(given)
        if self.seed is not None and len(given):
            self.shuffling.places(given.view(np.uint64))
        return given

    def mixed_epochs(self) -> tuple[Epoch, Epoch]:
        """Return the order of the held records, and that of the others, counted on from these."""
        held = self.shuffle.held
        return (
            replace(self, count=held, shuffle=GLOBAL),
            replace(self, count=self.count - held, shuffle=self.shuffle.streamed),
        )

    def _mixed(self, places: I64) -> I64:
        held, streamed = self.mixed_epochs()
        is_held, numbers = self.shuffle.apart(places, self.count)
        numbers[is_held] = held.samples(numbers[is_held])
        numbers[~is_held] = held.count + streamed.samples(numbers[~is_held])
        return numbers

    def _unmixed(self, samples: I64) -> I64:
        held, streamed = self.mixed_epochs()
        is_held = samples < held.count
        places = np.empty_like(samples)
        of_held = held.places(samples[is_held])
        places[is_held] = self.shuffle.held_places(of_held, self.count)
        of_others = streamed.places(samples[~is_held] - held.count)
        places[~is_held] = self.shuffle.streamed_places(of_others, self.count)
        return places

    def _checked(self, numbers: npt.ArrayLike, what: str) -> I64:
        """Return a copy, each below the count."""
        found = np.asarray(numbers)
        if found.ndim != 1:
            raise ValueError(f"{what}s are a list, not an array of shape {found.shape}")
        if found.size and found.dtype.kind not in "iu":
            raise TypeError(f"{what}s are integers, not {found.dtype}")
        given = np.array(found, np.int64)
        if given.size and (int(given.min()) < 0 or int(given.max()) >= self.count):
            raise IndexError(f"a {what} lies outside the {self.count} samples")
        return given

    @property
    def shuffling(self) -> _core.Shuffling:
        """The order, as C computes it; not of a given one, nor of one that mixes."""
        return _shuffling(self.count, self.seed, self.number, self.shuffle)


@dataclass(frozen=True, slots=True)
class Epochs:
    """The orders of all epochs, one after the other, without an end.

    Place p of this sequence is place p % count of epoch p // count.

    Attributes:
        count, seed, shuffle: values of each ``Epoch``; there is at least one sample.
        first: shuffle of epoch 0; None: as of the others.
    """

    count: int
    seed: int | None = None
    shuffle: Shuffle = GLOBAL
    first: Shuffle | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("epochs without samples have no order")
        for number in (0, 1):
            self.epoch(number)  # raises for values that make none

    def samples(self, places: npt.ArrayLike) -> I64:
        """The samples at some places: int64 of the same shape (n,).

        Raises:
            ValueError: a place is negative.
        """
        given = np.asarray(places, np.int64)
        if not given.size:
            return given
        numbers, within = np.divmod(given, self.count)
        first, last = int(numbers.min()), int(numbers.max())
        if first == last:
            return self.epoch(first).samples(within)
        found = np.empty_like(given)
        for number in sorted(set(numbers.tolist())):  # np.unique would import one more module
            here = numbers == number
            found[here] = self.epoch(number).samples(within[here])
        return found

    @property
    def is_stepped(self) -> bool:
        """Whether epochs begin with new batches (``stepped``)."""
        return False

    @property
    def places(self) -> int:
        """How many places an epoch takes."""
        return self.count

    def uses_max(self, places: int) -> int:
        """Return how often a record is at so many neighbouring places, at most."""
        return -(-(places - 1) // self.count) + 1

    def epoch(self, number: int) -> Epoch:
        """Return the order of an epoch."""
        shuffle = self.shuffle if number or self.first is None else self.first
        return Epoch(self.count, self.seed, number, shuffle)


@lru_cache(maxsize=4)
def _inverse(shuffle: Shuffle) -> I64:
    """The places of all records of a given order."""
    order = np.frombuffer(shuffle.order or b"", np.int64)
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


@lru_cache(maxsize=16)
def _shuffling(count: int, seed: int | None, number: int, shuffle: Shuffle) -> _core.Shuffling:
    keys = _keys(seed or 0, number)
    inner = [mix_bits(key + _INNER) for key in keys.tolist()]
    return _core.Shuffling(
        count,
        shuffle.chunk,
        shuffle.window,
        chunk_keys=keys,
        inner_keys=np.array(inner, np.uint64),
        keeps_inner=not shuffle.inner or seed is None,
        keeps_chunks=seed is None,
    )


def _keys(seed: int, number: int) -> U64:
    """A key for each round."""
    key = mix_bits(number + GOLDEN)
    while True:  # all words of the seed, and its sign
        key = mix_bits((key ^ (seed & _MASK)) + GOLDEN)
        if -(2**63) <= seed < 2**63:
            break
        seed >>= 64
    return np.array([mix_bits(key + i * GOLDEN) for i in range(1, ROUNDS + 1)], np.uint64)


def random_words(seed: int, number: int, places: I64) -> U64:
    """Return 64 random bits for each of some places of an epoch, by SplitMix64: uint64."""
    value = (places.view(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
    value += _keys(seed, number)[0]
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words: U64 = value ^ (value >> np.uint64(31))
    return words


def mix_bits(value: int) -> int:
    """Each bit of the result depends on all of the value's, modulo 2**64 (as in csrc/order.c)."""
    value &= _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def split_share(total: int, parts: int, part: int) -> range:
    """The positions of ``part`` when ``total`` things are shared evenly by ``parts``."""
    return range(part * total // parts, (part + 1) * total // parts)


@dataclass(frozen=True, slots=True)
class Shard:
    """The places of an epoch that one rank uses, step by step.

    Step t takes the next ``ranks * batch_size`` places, rank r the r-th run of them. The ranks
    share the rest, in the last step, in runs of one length:

        count 10, 2 ranks, batch_size 2         step 0    step 1    step 2
        even                        rank 0       0 1       4 5       8
                                    rank 1       2 3       6 7       9
        count 11, even              rank 0       0 1       4 5       8 9
                                    rank 1       2 3       6 7       10 0    the first again
        count 11, not even          rank 0       0 1       4 5       8 9
                                    rank 1       2 3       6 7       10

    Attributes:
        count: samples of the epoch.
        batch_size: number of samples that a rank takes in a step.
        rank, ranks: rank whose shard it is, and number of ranks.
        used: samples that all ranks have used before.
        drop_last: whether the last step is left out where it is not full.
        even: whether all ranks take as many: the last step is filled up with the epoch's first
            ones, at most ``ranks - 1``. Else the later ranks get one less, or none.

    Raises:
        ValueError: for values that describe no shard.
    """

    count: int
    batch_size: int
    rank: int = 0
    ranks: int = 1
    used: int = 0
    drop_last: bool = False
    even: bool = True

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}")
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"there is no rank {self.rank} of {self.ranks}")
        if not 0 <= self.used <= self.count:
            raise ValueError(f"{self.used} of {self.count} samples cannot have been used")

    @property
    def step_size(self) -> int:
        """Samples that all ranks take in a step that is full."""
        return self.ranks * self.batch_size

    def __len__(self) -> int:
        """Steps, of this rank and of every other."""
        full, rest = divmod(self.count - self.used, self.step_size)
        return full + (rest > 0 and not self.drop_last)

    @property
    def batches(self) -> int:
        """Steps in which this rank has places: all, or all but the last."""
        steps = len(self)
        return steps - (steps > 0 and not len(self.places(steps - 1)))

    def places(self, step: int) -> I64:
        """Those of one step.

        Returns:
            Shape (n,): ``batch_size`` of them, in the last step perhaps fewer; unless all ranks
            take as many, also none.

        Raises:
            IndexError: there is no such step.
        """
        return self.run(range(step, step + 1))

    def run(self, steps: range) -> I64:
        """Those of steps that follow one another: ``places`` of each, joined.

        Raises:
            IndexError: there is no such step.
        """
        if not 0 <= steps.start <= steps.stop <= len(self):
            raise IndexError(f"steps {steps.start} to {steps.stop} of {len(self)}")
        full = range(steps.start, min(steps.stop, (self.count - self.used) // self.step_size))
        first = self.used + self.rank * self.batch_size + full.start * self.step_size
        if not full:  # a batch may be meant to be larger than all there is
            return self._last_places() if steps else np.empty(0, np.int64)
        begins = np.arange(
            first, first + len(full) * self.step_size, self.step_size, dtype=np.int64
        )
        inner = (begins[:, None] + np.arange(self.batch_size, dtype=np.int64)).reshape(-1)
        return inner if full == steps else np.concatenate((inner, self._last_places()))

    def _last_places(self) -> I64:
        """Those of a last step that is not full."""
        first = self.used + (len(self) - 1) * self.step_size
        size = min(self.step_size, self.count - first)
        if self.even:
            own = -(-size // self.ranks)
            begin = first + self.rank * own
            return np.arange(begin, begin + own, dtype=np.int64) % self.count
        own, more = divmod(size, self.ranks)
        begin = first + self.rank * own + min(self.rank, more)
        return np.arange(begin, begin + own + (self.rank < more), dtype=np.int64)

    def of_all_ranks(self, step: int) -> tuple[I64, list[int]]:
        """Those that all ranks together have in one step, and how many each has.

        Returns:
            The places of rank 0, then those of rank 1, and so on; and the number of each rank's.

        Raises:
            IndexError: there is no such step.
        """
        if not 0 <= step < len(self):
            raise IndexError(f"step {step} of {len(self)}")
        first = self.used + step * self.step_size
        if first + self.step_size <= self.count:
            places = np.arange(first, first + self.step_size, dtype=np.int64)
            return places, [self.batch_size] * self.ranks
        parts = [replace(self, rank=rank)._last_places() for rank in range(self.ranks)]
        return np.concatenate(parts), list(map(len, parts))

    def used_after(self, steps: int) -> int:
        """Samples that all ranks have used when each has done so many steps of this shard.

        Raises:
            ValueError: there are not so many.
        """
        if not 0 <= steps <= len(self):
            raise ValueError(f"{steps} steps of {len(self)}")
        return min(self.count, self.used + steps * self.step_size)


@dataclass(frozen=True, slots=True)
class Steps:
    """The way in which ranks take epochs, as ``Shard`` has it, and where they begin (``stepped``).

    Attributes:
        epoch: the first one's number.
        used: samples of it that all ranks have used before.
        drop_last, even: choices of the last step, as of ``Shard``.
    """

    epoch: int = 0
    used: int = 0
    drop_last: bool = False
    even: bool = True
