"""Batches of indices, for loaders that have their own way to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch.utils.data

from lmdbio.torch.resume import Communicator, EpochCursor, EpochSlice, State, resolve_rank

__all__ = ["BatchSampler"]


class BatchSampler(torch.utils.data.Sampler[list[int]]):
    """Batches of indices: each rank's, in one order over all ranks, seeded and resumable.

        loader = DataLoader(dataset, batch_sampler=BatchSampler(dataset, 32, shuffle=True))

    Each iteration is the next epoch, unless ``set_epoch`` or a state says otherwise. With
    torchdata's ``StatefulDataLoader`` the loader's own state holds this one's. With torch's
    DataLoader, whose workers run ahead, say ``state_dict(batches)``.

    Args:
        source: the data set, a ``Mix``, or how many samples there are.
        batch_size: of a rank.
        shuffle: another order each epoch.
        seed: of these orders; the same on all ranks.
        drop_last: leave out a last batch that is not full.
        even: all ranks have as many samples (``order.Shard``).
        rank, ranks: which one of how many; or
        comm: mpi4py's. None of them: as torch.distributed or torchrun says, else one rank.

    Raises:
        ValueError: values that make no sense.
    """

    def __init__(
        self,
        source: Sized | int,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        even: bool = True,
        rank: int | None = None,
        ranks: int | None = None,
        comm: Communicator | None = None,
    ) -> None:
        if isinstance(source, (str, bytes)):
            raise TypeError("the data set, or how many samples it has; not a path")
        self.batch_size, self.drop_last = batch_size, drop_last  # as torch's own have them
        self._cursor = EpochCursor(
            source if isinstance(source, int) else len(source),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            even=even,
            rank=resolve_rank(rank, ranks, comm),
            mix=getattr(source, "mixing", None),
        )
        self._latest: Indices | None = None

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return len(self._cursor.begin(used=0))

    def __iter__(self) -> Indices:
        return Indices(self)

    def _begin(self, iteration: Indices) -> EpochSlice:
        """An iteration begins the next epoch, or goes on where a state says."""
        self._latest, cursor = iteration, self._cursor
        epoch_slice = cursor.begin()
        cursor.set_epoch(cursor.epoch + 1)
        return epoch_slice

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._cursor.epoch

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is; one that a state was loaded for goes on."""
        self._cursor.set_epoch(epoch)
        self._latest = None

    def state_dict(self, batches: int | None = None) -> State:
        """Where this iteration is.

        Args:
            batches: how many of it were used; None: all that were handed out, which a DataLoader
                with workers does before they are used.
        """
        if self._latest is None:
            return self._cursor.state(self._cursor.epoch, self._cursor.used)
        return self._latest.state(batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where the state was saved.

        Raises:
            ValueError: it is of other data.
        """
        self._cursor.load(state)
        self._latest = None


class Indices(Iterator[list[int]]):
    """One iteration of a BatchSampler; has a state of its own, as StatefulDataLoader wants it.

    It begins when it is first asked: loaders with workers make two, and use one.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        self._sampler, self._steps = sampler, 0
        self._slice: EpochSlice | None = None

    def _begun(self) -> EpochSlice:
        if self._slice is None:
            self._slice = self._sampler._begin(self)
        return self._slice

    def __iter__(self) -> Indices:
        return self

    def __next__(self) -> list[int]:
        epoch_slice = self._begun()
        if self._steps >= len(epoch_slice):
            self._steps = len(epoch_slice.shard)
            raise StopIteration
        samples: list[int] = epoch_slice.samples(self._steps).tolist()
        self._steps += 1
        return samples

    def state(self, batches: int | None) -> State:
        steps = self._steps if batches is None else batches
        return self._begun().state(self._sampler._cursor, steps)

    def state_dict(self) -> State:
        # Not that of the next epoch: a loader that was saved at its end ends at once.
        cursor, epoch_slice, steps = self._sampler._cursor, self._slice, self._steps
        if epoch_slice is None:
            return {**cursor.state(cursor.epoch, cursor.used), "ended": False}
        state = cursor.state(epoch_slice.epoch.number, epoch_slice.shard.used_after(steps))
        return {**state, "ended": steps == len(epoch_slice.shard)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sampler.load_state_dict(state)
        self._slice, self._steps = None, 0
        if state.get("ended"):
            self._steps = len(self._begun().shard)
