"""Given: orders that a program makes: indices, functions of the epoch, torch's samplers, batches.

    indices                              each epoch the same
    function of the epoch's number       called once an epoch
    iterable, such as torch's samplers   iterated once when its epoch begins, from its beginning

All draw from generators that are seeded by the loader's seed and the epoch (``draws``), and an
iterable is told the epoch (``set_epoch``): so an epoch can be made again, by every rank, and by a
job that resumes. One that comes out different all the same is found by its checksum in the state.
"""

from __future__ import annotations

import operator
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lmdbio.planning.order import I64
from lmdbio.planning.sampling import Sampling
from lmdbio.planning.shuffle import Shuffle
from lmdbio.records.ahead import as_indices, is_several
from lmdbio.torch.draws import DrawMonitor, Making, Source
from lmdbio.torch.samples import Numbered

__all__ = ["STATE_NAMES", "GivenEpoch", "GivenOrder", "Sampler", "chosen_order"]

#: An order, or batches, as a program gives them.
Sampler = Sampling | Iterable[Any] | Callable[[int], Iterable[Any]]

#: Names in a state of what a ``GivenOrder`` adds to it.
STATE_NAMES = ("order", "sampler")
#: Types of the items of a mask.
MASKS = (bool, np.bool_)
#: Attributes in which samplers say among how many processes they share samples themselves.
SHARES = ("num_replicas", "num_processes")


@dataclass(frozen=True, slots=True, eq=False)
class GivenEpoch:
    """The order of one epoch (``order.EpochOrder``), whose places are samples or batches.

    Attributes:
        number: number of the epoch.
        count: number of places.
        indices: indices of all samples, int64; None: they are not known before it begins.
        edges: begin of each batch in ``indices``, and the end, int64; None: places are samples.
        checksum: checksum of these; None: they are not known.
    """

    number: int
    count: int
    indices: I64 | None = None
    edges: I64 | None = None
    checksum: int | None = None

    @property
    def seed(self) -> int | None:
        """A number; None: samples come in ascending order."""
        known = self.indices
        return 0 if known is None or bool((known[1:] < known[:-1]).any()) else None

    @property
    def batch_size(self) -> int:
        """The number of samples at a place, on average."""
        return 0 if self.indices is None else -(-len(self.indices) // max(1, self.count))

    def samples(self, places: npt.ArrayLike) -> I64:
        """Return the samples at some places."""
        assert self.indices is not None and self.edges is None
        return self.indices[np.asarray(places, np.int64)]

    def batches(self, places: I64) -> list[I64]:
        """Return the samples of each of some batches."""
        indices, edges = self.indices, self.edges
        assert indices is not None and edges is not None
        return [indices[edges[place] : edges[place + 1]] for place in places.tolist()]


class GivenOrder:
    """The orders of all epochs, as a program makes them.

    Args:
        given: indices, function or iterable, of samples; or, with ``has_batches``, of batches.
        has_batches: whether places are batches.

    Raises:
        TypeError: it is none of these, or an iterator.
        ValueError: it draws from a generator of its own, which no epoch brings back.

    Attributes:
        name: name for states.
        has_batches: whether places are batches.
    """

    def __init__(self, given: Any, *, has_batches: bool = False) -> None:
        self.name = "batch_sampler" if has_batches else "sampler"
        self.has_batches, self._given = has_batches, given
        is_once = isinstance(given, (str, bytes, Iterator))
        is_iterable = not is_once and (hasattr(given, "__iter__") or hasattr(given, "__getitem__"))
        self._is_function = callable(given) and not is_iterable
        if not self._is_function and not (is_iterable and hasattr(given, "__len__")):
            kind = type(given).__name__
            raise TypeError(
                f"{self.name}= is indices, a function from an epoch's number to them, or an "
                f"object with them that has a len() and can be iterated again, not {kind}"
            )
        self._parts = list(_chain(given))
        epochal = [one for one in self._parts if hasattr(one, "set_epoch")]
        #: The part whose epoch can be set, and its epoch as this object has left it.
        self._epochal, self._left_at = (epochal[0] if epochal else None), 0
        stateful = (
            one
            for one in self._parts
            if hasattr(one, "state_dict") and hasattr(one, "load_state_dict")
        )
        #: The part that has a state of its own, and no epoch; and its first state, with its epoch.
        self._stateful: Any = None if epochal else next(stateful, None)
        self._first = (
            0,
            None if self._stateful is None else deepcopy(self._stateful.state_dict()),
        )
        own = [one for one in self._parts if isinstance(_generator(one), torch.Generator)]
        if own and not epochal and self._stateful is None:
            raise ValueError(
                f"{self.name}= draws from a generator of its own, which goes on from epoch to "
                f"epoch, so that no epoch can be begun again: make the {type(own[0]).__name__} "
                "without generator=, and its draws follow from seed= here and the epoch"
            )
        self._latest: tuple[int, GivenEpoch] | None = None  # and its seed
        #: The sampler's own state before the latest epoch, and the epoch that it iterates next.
        self._before: Any = None
        self._next = 0

    def said(self) -> int | None:
        """Return the epoch that the program itself has set in the sampler; None: it has not."""
        epoch = self._sampler_epoch
        return epoch if epoch != self._left_at else None

    @property
    def _sampler_epoch(self) -> int:
        """The epoch that the sampler is in; 0: it does not say."""
        epoch = getattr(self._epochal, "epoch", 0)
        return epoch if isinstance(epoch, int) and epoch > 0 else 0

    def check(self, ranks: int) -> None:
        """Raise ValueError if the sampler shares samples among processes, as ranks do."""
        for one in self._parts:
            number = max(getattr(one, name, 1) or 1 for name in SHARES)
            if ranks > 1 and number > 1:
                raise ValueError(
                    f"{self.name}= shares samples among {number} processes ("
                    f"{type(one).__name__}), and this loader shares them again among {ranks}: "
                    "give the order of all samples, or write rank=0, ranks=1"
                )

    def begin(self, samples: int, seed: int, number: int) -> GivenEpoch:
        """Return an epoch whose samples will be handed out, made unless it was before.

        Args:
            samples: number of samples in the data set.
            seed: seed of all epochs.
            number: number of the epoch.

        Raises:
            IndexError: an index is out of range.
            TypeError: one is no integer.
            ValueError: a batch is empty, or there are more places than ``len`` says.
        """
        if (known := self._known(seed, number)) is not None:
            return known
        if self._epochal is not None:
            self._epochal.set_epoch(number)
        if self._stateful is not None:
            self._advance(seed, number)
        given, length = self._given, None
        with _draws(seed, number):
            if self._is_function:
                given = given(number)
            elif not is_several(given):
                # One more than there are: an iterable without an end would be a hang.
                length = len(given)
                given = islice(given, length + 1)
            made = self._made(given, samples, number)
        if length is not None and made.count > length:
            raise ValueError(
                f"{self.name}= gives more than the {length} that its len() says: an epoch has an "
                "end"
            )
        self._latest, self._left_at = (seed, made), self._sampler_epoch
        return made

    def _advance(self, seed: int, number: int) -> None:
        """Have a sampler with a state go through the epochs before one, as far as it has not.

        Raises:
            ValueError: the epoch is one before the state that was loaded.
        """
        if number < self._next:
            self._next, first = self._first
            if number < self._next:
                raise ValueError(
                    f"{self.name}= has a state of its own, and cannot go back from epoch "
                    f"{self._next}, whose state was loaded, to {number}"
                )
            self._stateful.load_state_dict(deepcopy(first))
        for passed in range(self._next, number):
            with _draws(seed, passed):
                deque(islice(self._given, len(self._given) + 1), maxlen=0)
        self._before, self._next = deepcopy(self._stateful.state_dict()), number + 1

    def _made(self, given: Any, samples: int, number: int) -> GivenEpoch:
        """Return an epoch of indices, or of batches."""
        if not self.has_batches:
            indices = _integers(given, samples, self.name)
            return GivenEpoch(number, len(indices), indices, None, zlib.crc32(indices.data))
        batches = [_integers(one, samples, self.name) for one in given]
        sizes = np.array(list(map(len, batches)), np.int64)
        if not sizes.all():
            raise ValueError(f"{self.name}= has no samples in batch {int(np.argmin(sizes))}")
        joined = np.concatenate([np.empty(0, np.int64), *batches])
        edges = np.append(0, np.cumsum(sizes))
        checksum = zlib.crc32(edges.data, zlib.crc32(joined.data))
        return GivenEpoch(number, len(batches), joined, edges, checksum)

    def _known(self, seed: int, number: int) -> GivenEpoch | None:
        if self._latest is None or self._latest[0] != seed or self._latest[1].number != number:
            return None
        return self._latest[1]

    def epoch(self, samples: int, seed: int, number: int) -> GivenEpoch:
        """Return an epoch: of an iterable only its length, until it is begun (``begin``)."""
        if self._is_function:
            return self.begin(samples, seed, number)
        known = self._known(seed, number)
        return GivenEpoch(number, len(self._given)) if known is None else known

    def state(self, seed: int, number: int, used: int) -> dict[str, Any]:
        """Return what a state says of an epoch beside its number, by ``STATE_NAMES``."""
        known = self._known(seed, number)
        found: dict[str, Any] = {}
        if known is not None and used:
            found["order"] = known.checksum
        if self._stateful is not None:
            state = self._stateful.state_dict() if known is None else self._before
            epoch = self._next if known is None else number
            found["sampler"] = {"epoch": epoch, "state": deepcopy(state)}
        return found

    def load(self, state: Mapping[str, Any]) -> None:
        """Have the sampler go on where a state was saved, whatever its epoch was before."""
        self._left_at = self._sampler_epoch
        if self._stateful is not None and "sampler" in state:
            self._next, own = state["sampler"]["epoch"], state["sampler"]["state"]
            self._first, self._latest = (self._next, deepcopy(own)), None
            self._stateful.load_state_dict(own)


def _draws(seed: int, number: int) -> Making:
    """Return the context in which draws follow from seed and epoch, and from no sample."""
    return Making(Source(seed, number), Numbered(()), DrawMonitor())


def _chain(given: Any) -> Iterator[Any]:
    """Yield a sampler, and those that it has its samples or batches of."""
    seen: list[int] = []
    while given is not None and id(given) not in seen:
        yield given
        seen.append(id(given))
        given = getattr(given, "batch_sampler", getattr(given, "sampler", None))


def _generator(sampler: Any) -> Any:
    return getattr(sampler, "generator", None)


def _integers(given: Any, samples: int, name: str) -> I64:
    """Return indices from the beginning: int64, shape (n,).

    Raises:
        TypeError, IndexError: as ``as_indices``.
    """
    if isinstance(given, list | tuple) and given and all(isinstance(one, MASKS) for one in given):
        given = np.array(given, np.bool_)
    if not hasattr(given, "ndim"):
        try:
            given = np.fromiter(map(operator.index, given), np.int64)
        except TypeError as error:
            raise TypeError(f"{name}= gives what is no index: {error}") from None
    return as_indices(given, samples, f"{name}=").astype(np.int64)


def chosen_order(
    shuffle: bool | Shuffle,
    sampler: Sampler | None,
    batch_sampler: Sampler | None = None,
    batch_size: int = 1,
    drop_last: bool = False,
) -> bool | Shuffle | Sampling | GivenOrder:
    """Return the order that a loader is asked for: one of ``shuffle``, or another one.

    Args:
        shuffle, sampler, batch_sampler, batch_size, drop_last: arguments of ``Loader``.

    Raises:
        ValueError: there are two at once.
        TypeError, ValueError: as ``GivenOrder``.
    """
    if batch_sampler is not None:
        others = (shuffle is not False, sampler is not None, batch_size != 1, drop_last)
        if any(others):
            raise ValueError(
                "batch_sampler= says which samples make each batch: it goes not with batch_size, "
                "shuffle, sampler or drop_last"
            )
        if isinstance(batch_sampler, Sampling):
            kind = type(batch_sampler).__name__
            raise TypeError(f"{kind} gives samples, not batches: write sampler=, and batch_size=")
        return GivenOrder(batch_sampler, has_batches=True)
    if sampler is None:
        return shuffle
    if shuffle is not False:
        raise ValueError("sampler= is an order of its own: it goes not with shuffle=")
    return sampler if isinstance(sampler, Sampling) else GivenOrder(sampler)
