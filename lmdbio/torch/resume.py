"""The order in which a rank goes through the epochs, and states, to go on just there."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch.utils.data import get_worker_info

from lmdbio.planning.dealt import Holder, deal_steps
from lmdbio.planning.order import I64, Epoch, Shard

if TYPE_CHECKING:
    from lmdbio.planning.mix import MixEpoch, MixOrder

__all__ = [
    "NAMES",
    "STATE_VERSION",
    "Communicator",
    "EpochCursor",
    "State",
    "EpochSlice",
    "resolve_rank",
    "state_of",
    "whole_state",
    "worker",
]

State = dict[str, Any]

#: Of the form of a state, and what is in each.
STATE_VERSION = 1
NAMES = ("lmdbio", "count", "shuffle", "seed", "epoch", "used")
#: Samples that are drawn at once: for a batch, NumPy's calls take longer than its work.
DRAWN = 4096


class Communicator(Protocol):
    """mpi4py's, as far as it matters."""

    def Get_rank(self) -> int:
        """Return this process's rank."""
        ...

    def Get_size(self) -> int:
        """Return the number of ranks."""
        ...


def resolve_rank(
    rank: int | None, ranks: int | None, comm: Communicator | None
) -> tuple[int, int]:
    """Rank and number of ranks: as told, of a communicator, of torch.distributed, of torchrun.

    Raises:
        ValueError: half of it was told, or both ways.
    """
    if (rank is None) != (ranks is None):
        raise ValueError("rank= and ranks= belong together")
    if rank is not None and ranks is not None:
        if comm is not None:
            raise ValueError("either rank= and ranks=, or comm=")
        return rank, ranks
    if comm is not None:
        return comm.Get_rank(), comm.Get_size()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1


def worker() -> tuple[int, int]:
    """Return the number of this process among a DataLoader's workers, and how many there are."""
    worker = get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


class EpochCursor:
    """In which order a rank goes through the epochs, and which it begins next.

    Args:
        holder: which rank holds each of some samples; None: ranks take what is theirs strided.
        mix: the order of a ``Mix``, whose places are the samples then; None: there is none.

    Raises:
        ValueError: values that make no sense, or a mix is to be shuffled.

    Attributes:
        epoch, used: where the next iteration begins.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        even: bool,
        rank: tuple[int, int],
        holder: Holder | None = None,
        mix: MixOrder | None = None,
    ) -> None:
        if mix is not None and shuffle:
            raise ValueError("a Mix has an order of its own: give it seed=, and not shuffle= here")
        self._mix = mix
        self.count, self.seed, self.shuffle = count, operator.index(seed), bool(shuffle)
        self.epoch = self.used = 0
        self._batch_size, self._rank, self._holder = batch_size, rank, holder
        self._drop_last, self._even = drop_last, even
        self.begin()  # refuses what is none

    def begin(self, epoch: int | None = None, used: int | None = None) -> EpochSlice:
        """Return the rest of an epoch; None: of the next one."""
        number, used = self.epoch if epoch is None else epoch, self.used if used is None else used
        rank, ranks = self._rank
        order: Epoch | MixEpoch = Epoch(self.count, self.seed if self.shuffle else None, number)
        if self._mix is not None:
            order = self._mix.epoch(number)
        return EpochSlice(
            order,
            Shard(
                self.count,
                self._batch_size,
                rank,
                ranks,
                used,
                drop_last=self._drop_last,
                even=self._even,
            ),
            self._holder,
        )

    def set_epoch(self, epoch: int) -> None:
        """Go to the begin of an epoch, unless it is the one under way."""
        number = Epoch(self.count, None, operator.index(epoch)).number
        if number != self.epoch:
            self.epoch, self.used = number, 0

    def state(self, epoch: int, used: int) -> State:
        """Return the state after ``used`` samples of an epoch, over all ranks."""
        mix = {} if self._mix is None else {"mix": self._mix.signature}
        return {
            **mix,
            "lmdbio": STATE_VERSION,
            "count": self.count,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "epoch": epoch,
            "used": used,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state was saved; its seed counts from now on.

        Raises:
            ValueError: it is no state, or one of other data.
        """
        if "lmdbio" not in state:
            raise ValueError("this is no state of lmdbio's")
        if state["lmdbio"] != STATE_VERSION:
            version = state["lmdbio"]
            raise ValueError(f"a state of version {version}; this is version {STATE_VERSION}")
        missing = [name for name in NAMES if name not in state]
        if missing:
            raise ValueError(f"the state does not say {', '.join(missing)}")
        if "step" in state:
            raise ValueError(
                "the state of one worker: state_of() makes the data set's out of all workers'"
            )
        for name, known in (("count", self.count), ("shuffle", self.shuffle)):
            if state[name] != known:
                raise ValueError(
                    f"the state was saved with {name} {state[name]}, and it is {known} here"
                )
        mix = None if self._mix is None else self._mix.signature
        if state.get("mix") != mix:
            raise ValueError(
                f"the state was saved with mix {state.get('mix')}, and it is {mix} here"
            )
        epoch, used = int(state["epoch"]), int(state["used"])
        Epoch(self.count, None, epoch)
        Shard(self.count, 1, used=used)
        self.seed, self.epoch, self.used = int(state["seed"]), epoch, used


class EpochSlice:
    """The rest of an epoch for one rank. Threads may share it.

    Args:
        holder: as for ``EpochCursor``.
    """

    def __init__(
        self, epoch: Epoch | MixEpoch, shard: Shard, holder: Holder | None = None
    ) -> None:
        self.epoch, self.shard, self._holder = epoch, shard, holder
        self._batches = shard.batches
        self._drawn = range(0), np.empty(0, np.int64)  # steps, and their samples

    def __len__(self) -> int:
        return self._batches

    @property
    def number(self) -> int:
        """Of the epoch."""
        return self.epoch.number

    @property
    def expected(self) -> int:
        """About how many records will be read at random: none of an epoch that goes in order."""
        return 0 if self.epoch.seed is None else len(self) * self.shard.batch_size

    def samples(self, step: int) -> I64:
        """Return the record indices of one step, int64, shape (samples,)."""
        (steps, drawn), size = self._drawn, self.shard.batch_size
        if step not in steps:
            more = max(1, DRAWN // size)
            if self._holder is not None:
                more = max(1, DRAWN // self.shard.step_size)  # all ranks' are drawn
            steps = range(step, max(step + 1, min(step + more, len(self.shard))))
            drawn = self._draw(steps)
            self._drawn = steps, drawn
        begin = (step - steps.start) * size
        return drawn[begin : begin + size]  # only the last step may have fewer

    def _draw(self, steps: range) -> I64:
        """Return the samples of steps that follow one another, joined."""
        if self._holder is None:
            return self.epoch.samples(self.shard.run(steps))
        assert isinstance(self.epoch, Epoch)  # nobody holds samples of a mix
        return np.concatenate(deal_steps(self.epoch, self.shard, steps, self._holder))

    def state(self, cursor: EpochCursor, steps: int) -> State:
        """After so many steps; at the end, that of the next epoch's beginning."""
        if steps >= len(self.shard):
            return cursor.state(self.epoch.number + 1, 0)
        return cursor.state(self.epoch.number, self.shard.used_after(steps))


def whole_state(state: Mapping[str, Any]) -> State:
    """Return the parts of a state that say nothing of one worker or one iteration."""
    return {name: state[name] for name in (*NAMES, "mix") if name in state}


def state_of(state: Mapping[str, Any]) -> State:
    """The state of lmdbio's in one of torchdata's ``StatefulDataLoader``.

    That one can be loaded only with as many workers and ranks as it was saved with; this one, into
    a ``BatchSampler``, an ``IterableDataset`` or a ``Loader``, with any.

    Args:
        state: what ``StatefulDataLoader.state_dict`` gave, over one of those.

    Raises:
        ValueError: there is none in it, or it is of batches after the last snapshot
            (``snapshot_every_n_steps`` above 1).
    """
    if state.get("_steps_since_snapshot", 0):
        raise ValueError("saved between two snapshots: say snapshot_every_n_steps=1")
    found = list(_search(state))
    if not found:
        raise ValueError("there is no state of lmdbio's in it")
    # A sampler's iteration knows more than the sampler; of workers, each knows its own steps.
    first = next((one for one in found if "ended" in one), found[0])
    told = whole_state(first)
    done = min((one["step"] for one in found if "step" in one), default=0)
    if first.get("ended") or ("steps" in first and done >= first["steps"]):
        return {**told, "epoch": told["epoch"] + 1, "used": 0}
    used = told["used"] + done * first.get("step_size", 0)
    return {**told, "used": min(told["count"], used)}


def _search(state: Any) -> Iterator[State]:
    if isinstance(state, Mapping):
        if "lmdbio" in state:
            yield dict(state)
            return
        for value in state.values():
            yield from _search(value)
