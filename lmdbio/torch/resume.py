"""The order in which a rank goes through the epochs, and states, to go on just there."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lmdbio.planning.deal import Owner, deal_steps
from lmdbio.planning.order import I64, Epoch, EpochOrder, Shard
from lmdbio.planning.sampling import Sampling
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.system.amounts import refuse_no_flag, whole
from lmdbio.system.log import log
from lmdbio.torch.draws import Source
from lmdbio.torch.given_order import STATE_NAMES, GivenEpoch, GivenOrder
from lmdbio.torch.ranks import Ranks

if TYPE_CHECKING:
    from lmdbio.planning.mix import MixOrder

__all__ = [
    "NAMES",
    "STATE_VERSION",
    "EpochCursor",
    "EpochSlice",
    "Order",
    "Ordering",
    "State",
    "as_order",
    "state_of",
    "whole_state",
]

State = dict[str, Any]
#: The orders of all epochs; None: samples come in their own.
Order = Shuffle | Sampling | GivenOrder | None

#: Of the form of a state, and what is in each.
STATE_VERSION = 1
NAMES = ("lmdbio", "count", "shuffle", "seed", "epoch", "used")
#: Samples that are drawn at once: for a batch, NumPy's calls take longer than its work.
DRAWN = 4096


def as_order(given: object) -> Order:
    """Return the orders that epochs have.

    Args:
        given: result of ``chosen_order``.

    Raises:
        TypeError: it is neither true nor false, nor a ``Shuffle``.
    """
    if given is None or isinstance(given, (bool, np.bool_)):
        return GLOBAL if given else None
    if isinstance(given, (Shuffle, Sampling, GivenOrder)):
        return given
    hint = ""
    if isinstance(given, str) and given.casefold().startswith(
        ("group", "window", "run", "global")
    ):
        hint = (
            "; for that word of a Reader's write lmdbio.Shuffle.windows(CHUNK, COUNT), which "
            "shuffles COUNT parts of CHUNK samples together, .groups(SIZE) or .runs(LENGTH)"
        )
    raise TypeError(f"shuffle is True, False or a Shuffle, not {given!r}{hint}")


def _name(shuffle: Order) -> bool | str:
    """Return an order as a state has it."""
    if isinstance(shuffle, (Sampling, GivenOrder)):
        return shuffle.name
    if shuffle is None or shuffle == GLOBAL:
        return shuffle is not None
    if shuffle.order is not None:
        return f"an order of crc32 {zlib.crc32(shuffle.order)}"
    kind = "" if shuffle.inner else ", chunks as they are"
    held = f", {shuffle.held} held" if shuffle.held else ""
    return f"windows of {shuffle.window} chunks of {shuffle.chunk}{kind}{held}"


@dataclass(frozen=True, slots=True)
class Ordering:
    """The orders of all epochs, as a user asks for them.

    Attributes:
        shuffle: orders that epochs have.
        seed: seed of these orders, and of what transforms draw.
        drop_last, even: arguments of ``Shard``.
        ranks: Ranks, which tells this process's rank and the number of all.
    """

    shuffle: Order
    seed: int
    drop_last: bool
    even: bool
    ranks: Ranks

    @classmethod
    def checked(
        cls,
        shuffle: bool | Shuffle | Sampling | GivenOrder,
        seed: int,
        *,
        drop_last: bool,
        even: bool,
        rank: int | None,
        ranks: int | None,
        comm: Any,
    ) -> Ordering:
        """Return the orders of arguments of ``BatchSampler``, ``shuffle`` being the chosen one.

        Raises:
            TypeError: ``shuffle``, ``seed`` or a flag is none.
            ValueError: as ``Ranks``.
        """
        refuse_no_flag(drop_last=drop_last, even=even)
        place = Ranks(rank, ranks, comm)
        number = whole("seed", seed)
        return cls(as_order(shuffle), number, bool(drop_last), bool(even), place)


class EpochCursor:
    """The place at which a rank's next iteration begins, and the order in which epochs go.

    An epoch is over when its last batch was handed out: only then the next iteration is the next
    epoch. So ranks agree on the epoch whatever one of them has looked at before, and an iteration
    that was left is begun again.

    Args:
        count: number of samples of an epoch.
        batch_size: number of samples of a rank's step.
        ordering: Ordering of the epochs.
        owner: function from some samples to the rank that holds each; None: ranks take what is
            theirs strided.
        mix: order of a ``Mix``, whose places are the samples then; None: there is none.

    Raises:
        ValueError: values that make no sense, or a mix is to have another order.
        TypeError: ``batch_size`` is no integer.

    Attributes:
        ranks, shuffle, drop_last: those of the ordering.
        seed: seed of the orders from now on.
        epoch, used: number of the epoch that the next iteration begins, and how many samples of it
            all ranks have used.
        version: number of jumps so far: iterations from before the last one are no longer those
            that a state speaks of.
        said: number of calls of ``set_epoch`` so far.
        last_said: the epoch that the last one said; None: there was none.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        ordering: Ordering,
        *,
        owner: Owner | None = None,
        mix: MixOrder | None = None,
    ) -> None:
        if mix is not None and ordering.shuffle is not None:
            raise ValueError(
                "a Mix has an order of its own: give it seed=, and not shuffle= or sampler= here"
            )
        self._mix = mix
        self.count, self.batch_size = count, whole("batch_size", batch_size)
        self.epoch = self.used = self.version = self.said = 0
        self.shuffle, self.seed = ordering.shuffle, ordering.seed
        self.drop_last, self._even = ordering.drop_last, ordering.even
        self.ranks, self._owner = ordering.ranks, owner
        self.last_said: int | None = None
        self._is_loaded, self._counted_from = False, 0
        #: The order that a program makes, and of one that was loaded the checksum of its epoch.
        self._given = self.shuffle if isinstance(self.shuffle, GivenOrder) else None
        self._checksum: int | None = None
        if owner is not None and self.has_batches:
            raise ValueError("batch_sampler= says which rank has which samples: no assignment=")
        self.begin()  # refuses what is none

    @property
    def has_batches(self) -> bool:
        """Whether a program makes the batches, whose sizes may be any."""
        return self._given is not None and self._given.has_batches

    def begin(
        self, epoch: int | None = None, used: int | None = None, *, use: bool = False
    ) -> EpochSlice:
        """Return the rest of an epoch.

        Args:
            epoch, used: place of the beginning; None: where the next iteration begins.
            use: whether its samples will be handed out.

        Raises:
            Error: as ``Ranks.use``.
            ValueError: the order is another one than that of the state, or makes no sense.
        """
        rank, ranks = self.ranks.use() if use else self.ranks.now()
        if self._given is not None:
            self._given.check(ranks)
            if use:
                self._begin_given(self._given)
        number, used = self.epoch if epoch is None else epoch, self.used if used is None else used
        order = self._order(number)
        shard = Shard(
            order.count,
            self.batch_size,
            rank,
            ranks,
            used,
            drop_last=self.drop_last,
            even=self._even,
        )
        return EpochSlice(order, shard, self._owner, Source(self.seed, number))

    def _order(self, number: int) -> EpochOrder:
        """Return the order of an epoch."""
        if self._mix is not None:
            return self._mix.epoch(number)
        if isinstance(self.shuffle, (Sampling, GivenOrder)):
            return self.shuffle.epoch(self.count, self.seed, number)
        seed = None if self.shuffle is None else self.seed
        return Epoch(self.count, seed, number, self.shuffle or GLOBAL)

    def _begin_given(self, given: GivenOrder) -> None:
        """Make the epoch that a program's order has next."""
        if (said := given.said()) is not None:
            self.set_epoch(said)
        found = given.begin(self.count, self.seed, self.epoch)
        if self.used and self._checksum not in (None, found.checksum):
            raise ValueError(
                f"{given.name}= gives another order of epoch {self.epoch} than that of the state: "
                "it has to follow from the epoch (set_epoch), or from draws without a generator"
            )

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self.begin(used=0))

    def end(self, number: int) -> None:
        """Take notice that an epoch's last batch was handed out."""
        if number == self.epoch:
            self.epoch, self.used = number + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch, unless it is the one under way.

        Trainers count anew in each process. So, when it is first said after a state was loaded, an
        epoch that is over is taken for a number of such a count, and counts on from there.
        """
        number = Epoch(self.count, None, whole("epoch", epoch)).number
        self.said += 1
        if self._is_loaded:
            self._is_loaded, self._counted_from = False, max(0, self.epoch - number)
            if self._counted_from:
                log(
                    f"set_epoch({number}) after a state was loaded, and epoch {self.epoch} is "
                    f"next: epochs are counted on from there ({number} is {self.epoch})"
                )
        number += self._counted_from
        self.last_said = number
        if number != self.epoch:
            self.epoch, self.used = number, 0
            self.version += 1

    def state(self, epoch: int, used: int) -> State:
        """Return the state after ``used`` samples of an epoch, over all ranks."""
        mix = {} if self._mix is None else {"mix": self._mix.signature}
        given = {} if self._given is None else self._given.state(self.seed, epoch, used)
        return {
            **mix,
            **given,
            "lmdbio": STATE_VERSION,
            "count": self.count,
            "shuffle": _name(self.shuffle),
            "seed": self.seed,
            "epoch": epoch,
            "used": used,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved; its seed counts from now on.

        Raises:
            ValueError: it is no state, or one of other data.
            TypeError: a number in it is none.
        """
        if not isinstance(state, Mapping) or "lmdbio" not in state:
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
        for name, known in (("count", self.count), ("shuffle", _name(self.shuffle))):
            if state[name] != known:
                raise ValueError(
                    f"the state was saved with {name} {state[name]}, and it is {known} here"
                )
        mix = None if self._mix is None else self._mix.signature
        if state.get("mix") != mix:
            raise ValueError(
                f"the state was saved with mix {state.get('mix')}, and it is {mix} here"
            )
        epoch, used, seed = (
            whole(f"the state's {name}", state[name]) for name in ("epoch", "used", "seed")
        )
        Epoch(self.count, None, epoch)
        if self._given is None:  # else it is known when the epoch begins
            Shard(self._order(epoch).count, 1, used=used)
        else:
            self._given.load(state)
        self.seed, self.epoch, self.used = seed, epoch, used
        self._checksum = state.get("order")
        self._is_loaded, self._counted_from = True, 0
        self.version += 1
        self.ranks.forget()


class EpochSlice:
    """The rest of an epoch for one rank. Threads may share it.

    Args:
        epoch: order of the epoch.
        shard: this rank's places in it.
        owner: argument of ``EpochCursor``.
        source: seed and number of the epoch, which transforms' draws follow from.
    """

    def __init__(
        self,
        epoch: EpochOrder,
        shard: Shard,
        owner: Owner | None,
        source: Source,
    ) -> None:
        self.epoch, self.shard, self._owner, self.source = epoch, shard, owner, source
        self._batches = shard.batches
        self._drawn: tuple[range, list[I64]] = range(0), []  # steps, and the samples of each

    def __len__(self) -> int:
        return self._batches

    @property
    def number(self) -> int:
        """Of the epoch."""
        return self.epoch.number

    @property
    def expected(self) -> int:
        """About how many records will be read at random: none of an epoch that goes in order."""
        if self.epoch.seed is None:
            return 0
        if isinstance(self.epoch, GivenEpoch) and self.epoch.edges is not None:
            return len(self) * self.epoch.batch_size
        return len(self) * self.shard.batch_size

    def samples(self, step: int) -> I64:
        """Return the record indices of one step, int64, shape (samples,)."""
        steps, drawn = self._drawn
        if step not in steps:
            # Where records have owners, all ranks' are drawn.
            size = self.shard.batch_size if self._owner is None else self.shard.step_size
            more = max(1, DRAWN // size)
            steps = range(step, max(step + 1, min(step + more, len(self.shard))))
            drawn = self._draw(steps)
            self._drawn = steps, drawn
        return drawn[step - steps.start]

    def _draw(self, steps: range) -> list[I64]:
        """Return the samples of each of some steps that follow one another."""
        if self._owner is not None:
            return deal_steps(self.epoch, self.shard, steps, self._owner)
        places, size = self.shard.run(steps), self.shard.batch_size
        if isinstance(self.epoch, GivenEpoch) and self.epoch.edges is not None:
            return self.epoch.batches(places)
        joined = self.epoch.samples(places)  # only the last step may have fewer, or none
        return [joined[at : at + size] for at in range(0, len(steps) * size, size)]

    def state(self, cursor: EpochCursor, steps: int) -> State:
        """After so many steps; at the end, that of the next epoch's beginning."""
        if steps >= len(self.shard):
            return cursor.state(self.epoch.number + 1, 0)
        return cursor.state(self.epoch.number, self.shard.used_after(steps))


def whole_state(state: Mapping[str, Any]) -> State:
    """Return the parts of a state that say nothing of one worker or one iteration."""
    if not isinstance(state, Mapping):
        raise ValueError("this is no state of lmdbio's")
    return {name: state[name] for name in (*NAMES, "mix", *STATE_NAMES) if name in state}


def state_of(state: Mapping[str, Any]) -> State:
    """The state of lmdbio's in one of torchdata's ``StatefulDataLoader``.

    That one can be loaded only with as many workers and ranks as it was saved with; this one, into
    a ``BatchSampler``, an ``IterableDataset`` or a ``Loader``, with any.

    Args:
        state: result of ``StatefulDataLoader.state_dict``, over one of those.

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
    reported = whole_state(first)
    done = min((one["step"] for one in found if "step" in one), default=0)
    if first.get("ended") or ("steps" in first and done >= first["steps"]):
        return {**reported, "epoch": reported["epoch"] + 1, "used": 0}
    used = reported["used"] + done * first.get("step_size", 0)
    return {**reported, "used": used}  # of samples drawn again and again there may be more


def _search(state: Any) -> Iterator[State]:
    if isinstance(state, Mapping):
        if "lmdbio" in state:
            yield dict(state)
            return
        for value in state.values():
            yield from _search(value)
