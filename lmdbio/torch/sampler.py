"""Batches of indices, for loaders that have their own way to read."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch.utils.data
from torch.utils.data.distributed import DistributedSampler

from lmdbio.planning.shuffle import Shuffle
from lmdbio.torch.draws import Source
from lmdbio.torch.given_order import Sampler, chosen_order
from lmdbio.torch.ranks import Communicator, refuse_second_sharding
from lmdbio.torch.resume import EpochCursor, EpochSlice, Ordering, State

__all__ = ["BatchIndices", "BatchSampler", "Ordered", "RankSampler"]


class BatchIndices(list[int]):
    """The indices of a batch, which know their epoch wherever a DataLoader sends them.

    Attributes:
        source: Source of the random draws of the batch's samples.
    """

    __slots__ = ("source",)
    source: Source


class RankSampler(DistributedSampler[int]):
    """The indices of this rank's samples, one by one, in the order of a loader's batches.

    Trainers that find a ``DistributedSampler`` leave a loader as it is, and tell it their epochs.

    Args:
        cursor: order of the loader.
    """

    def __init__(self, cursor: EpochCursor) -> None:
        self._cursor = cursor  # torch's own attributes are below: ranks may not be known yet

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self._cursor.ranks.now()[0]

    @property
    def num_replicas(self) -> int:
        """The number of ranks."""
        return self._cursor.ranks.now()[1]

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._cursor.epoch

    @property
    def seed(self) -> int:
        """The seed of all orders."""
        return self._cursor.seed

    @property
    def shuffle(self) -> bool:
        """Whether epochs have orders of their own."""
        return self._cursor.shuffle is not None

    @property
    def drop_last(self) -> bool:
        """Whether a last step that is not full is left out."""
        return self._cursor.drop_last

    def __len__(self) -> int:
        """Return the number of this rank's samples in a whole epoch.

        Raises:
            TypeError: a program makes the batches, of any sizes.
        """
        if self._cursor.has_batches:
            raise TypeError("batch_sampler= has batches of any sizes: len(loader) counts them")
        epoch_slice = self._cursor.begin(used=0)
        full = max(0, len(epoch_slice) - 1)
        return full * self._cursor.batch_size + (
            len(epoch_slice.shard.places(full)) if len(epoch_slice) else 0
        )

    def __iter__(self) -> Iterator[int]:
        for batch in Indices(self._cursor):
            yield from batch

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is (``BatchSampler.set_epoch``)."""
        self._cursor.set_epoch(epoch)


class Ordered:
    """Something that hands out batches in the order of a cursor, which trainers ask and set."""

    _cursor: EpochCursor

    @property
    def batch_size(self) -> int | None:
        """Number of samples of a rank's batch; None: a ``batch_sampler`` says it of each."""
        return None if self._cursor.has_batches else self._cursor.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is left out."""
        return self._cursor.drop_last

    @property
    def sampler(self) -> RankSampler:
        """The indices of this rank's samples; trainers tell it the epoch (``set_epoch``)."""
        return RankSampler(self._cursor)

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self._cursor)

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._cursor.epoch

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is; one that a state was loaded for goes on."""
        self._cursor.set_epoch(epoch)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration go on where the state was saved.

        Raises:
            ValueError: it is of other data.
        """
        self._cursor.load(state)


class BatchSampler(Ordered, torch.utils.data.Sampler[list[int]]):
    """Batches of indices for each rank, in one order over all ranks, seeded and resumable.

        loader = DataLoader(dataset, batch_sampler=BatchSampler(dataset, 32, shuffle=True))

    After an epoch's last batch, the next iteration is the next epoch; an iteration that stopped
    earlier starts again. ``set_epoch`` or a loaded state override this. The state of torchdata's
    ``StatefulDataLoader`` includes the sampler's. With torch's DataLoader, whose workers run
    ahead, call ``state_dict(batches)``.

    Args:
        source: data set, ``Mix``, or number of samples.
        batch_size: number of samples of a rank's batch.
        shuffle: whether each epoch has another order; or a ``Shuffle``, which limits how far
            samples move.
        sampler: order instead of ``shuffle``, of the samples of all ranks: ``Weighted``,
            ``Buckets`` or ``Passes``; indices, the same in each epoch; a function from an epoch's
            number to indices; or an iterable of indices that has a ``len()`` and is iterated anew
            in each epoch, such as torch's samplers. What it draws by torch, ``random`` and
            ``numpy.random`` follows from seed and epoch.
        seed: seed of these orders, and of a ``Dataset`` transform's draws; the same on all ranks.
        drop_last: whether to leave out a last batch that is not full.
        even: whether all ranks have equally many samples: the epoch's first ones fill up.
        rank: number of this process among the ranks, from 0.
        ranks: number of ranks.
        comm: mpi4py's communicator, or a process group of torch.distributed, instead of ``rank``
            and ``ranks``. Default of all three: torch.distributed's or torchrun's ranks when an
            iteration begins, else one rank.

    Raises:
        TypeError: the source is no data set.
        ValueError: values that make no sense.
        Error: when an iteration begins: the ranks have changed since the last batch, or Accelerate
            shards the batches a second time.
    """

    def __init__(
        self,
        source: Sized | int,
        batch_size: int = 1,
        *,
        shuffle: bool | Shuffle = False,
        sampler: Sampler | None = None,
        seed: int = 0,
        drop_last: bool = False,
        even: bool = True,
        rank: int | None = None,
        ranks: int | None = None,
        comm: Communicator | torch.distributed.ProcessGroup | None = None,
    ) -> None:
        place: Any = {"rank": rank, "ranks": ranks, "comm": comm}
        chosen = chosen_order(shuffle, sampler)
        ordering = Ordering.checked(chosen, seed, drop_last=drop_last, even=even, **place)
        mix = getattr(source, "mixing", None)
        self._cursor = EpochCursor(_count(source), batch_size, ordering, mix=mix)
        self._latest: Indices | None = None  # the one that was asked last
        self._made: weakref.ref[Indices] | None = None  # the newest one

    @classmethod
    def over(cls, cursor: EpochCursor) -> BatchSampler:
        """Return the batches of another loader's order; both go on together."""
        made = cls.__new__(cls)
        made.__setstate__({"_cursor": cursor})
        return made

    def __iter__(self) -> Indices:
        made = Indices(self._cursor, self)
        self._made = weakref.ref(made)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {"_cursor": self._cursor}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._cursor = state["_cursor"]
        self._latest = self._made = None

    def state_dict(self, batches: int | None = None) -> State:
        """Return where the iteration is that was asked last, else where the next one begins.

        Args:
            batches: number of its batches that were used; None: all that were handed out, which a
                DataLoader with workers does before they are used.
        """
        latest, newest = self._latest, None if self._made is None else self._made()
        if batches is not None and newest is not None and not newest.is_begun:
            # Batches of this one are meant: those of the one before were used.
            return self._cursor.begin().state(self._cursor, batches)
        if latest is None or not latest.is_current:
            return self._cursor.state(self._cursor.epoch, self._cursor.used)
        return latest.state(batches)


def _count(source: object) -> int:
    """Return how many samples a source has.

    Raises:
        TypeError: it is no data set.
    """
    if isinstance(source, torch.utils.data.Sampler):
        raise TypeError(
            f"BatchSampler is given a {type(source).__name__}, and it takes the data set: it "
            "shuffles and shares samples among ranks by itself. A trainer that makes loaders anew "
            "must leave this one as it is: write Trainer(use_distributed_sampler=False) in "
            "Lightning, setup_dataloaders(..., use_distributed_sampler=False) in Fabric, or fit "
            "with lmdbio.torch.Loader; for what Lightning makes anew in any case (predict, "
            "overfit_batches) write DataLoader(lmdbio.torch.Dataset(...), batch_size=...)"
        )
    if isinstance(source, (str, bytes)):
        raise TypeError("the data set, or how many samples it has; not a path")
    try:
        return operator.index(source)  # type: ignore[arg-type]
    except TypeError:
        pass
    if isinstance(source, torch.utils.data.DataLoader) or not hasattr(source, "__len__"):
        kind = type(source).__name__
        raise TypeError(f"the data set, or how many samples it has; not a {kind}")
    return len(source)


class Indices(Iterator[list[int]]):
    """One iteration over batches of indices; has a state of its own, as StatefulDataLoader wants.

    It begins when it is first asked: loaders with workers make two, and use one; trainers say the
    epoch after they have made it.

    Args:
        cursor: order of the batches.
        sampler: the sampler that remembers the iteration asked last; None: nobody does.
    """

    def __init__(self, cursor: EpochCursor, sampler: BatchSampler | None = None) -> None:
        self._cursor, self._sampler, self._steps = cursor, sampler, 0
        self._slice: EpochSlice | None = None
        self._version, self._count = -1, 0
        #: It goes on where an epoch was over, so nothing is left, unless one is said from now on.
        self._ended: int | None = None

    @property
    def is_begun(self) -> bool:
        """Whether it was asked for a batch."""
        return self._slice is not None

    @property
    def is_current(self) -> bool:
        """Whether no jump came since it began."""
        return self._version == self._cursor.version

    def _begun(self) -> EpochSlice:
        if self._slice is not None:
            return self._slice
        cursor = self._cursor
        if self._sampler is not None:
            refuse_second_sharding(self._sampler, cursor.ranks.now()[1], "BatchSampler")
        self._slice, self._version = cursor.begin(use=True), cursor.version
        self._count = len(self._slice)
        return self._slice

    def __iter__(self) -> Indices:
        return self

    def __next__(self) -> list[int]:
        if self._ended is not None and self._ended == self._cursor.said:
            raise StopIteration
        epoch_slice = self._slice or self._begun()
        if self._sampler is not None and self.is_current:
            self._sampler._latest = self
        left = self._count - self._steps
        if left <= 0:
            self._steps = len(epoch_slice.shard)
            self._end(epoch_slice)
            raise StopIteration
        samples = BatchIndices(epoch_slice.samples(self._steps).tolist())
        samples.source = epoch_slice.source
        self._steps += 1
        if left == 1:
            self._end(epoch_slice)
        return samples

    def _end(self, epoch_slice: EpochSlice) -> None:
        if self.is_current:
            self._cursor.end(epoch_slice.number)

    def state(self, batches: int | None) -> State:
        """Return where this is after so many batches; at the end, that of the next epoch."""
        return self._begun().state(self._cursor, self._steps if batches is None else batches)

    def state_dict(self) -> State:
        """Return where this is. At its end, that is not the next epoch: a loader ends at once."""
        cursor, epoch_slice, steps = self._cursor, self._slice, self._steps
        if epoch_slice is None:
            is_over = self._ended is not None and self._ended == cursor.said
            epoch = cursor.epoch - is_over
            return {**cursor.state(epoch, cursor.used), "ended": is_over}
        state = cursor.state(epoch_slice.number, epoch_slice.shard.used_after(steps))
        return {**state, "ended": steps >= len(epoch_slice.shard)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was saved."""
        self._cursor.load(state)
        self._slice, self._steps = None, 0
        self._ended = None
        if state.get("ended"):
            self._cursor.end(self._cursor.epoch)
            self._ended = self._cursor.said
