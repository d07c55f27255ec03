"""A data set that iterates: each rank's and each worker's batches, read ahead."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
from torch.utils.data import default_collate, get_worker_info

from lmdbio.planning.shuffle import Shuffle
from lmdbio.provenance import Paths
from lmdbio.records.ahead import read_ahead
from lmdbio.records.samples import Samples
from lmdbio.system.amounts import whole
from lmdbio.torch.dataset import Dataset, refuse_foreign
from lmdbio.torch.given_order import Sampler, chosen_order
from lmdbio.torch.ranks import (
    Communicator,
    processes_alike,
    refuse_second_sharding,
    worker,
)
from lmdbio.torch.resume import EpochCursor, EpochSlice, Ordering, State, whole_state
from lmdbio.torch.samples import Errors

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from lmdbio.records.options import RecordsOptions

__all__ = ["AHEAD", "IterableDataset"]

#: Batches that are read and nobody has asked for, beside those that threads work at.
AHEAD = 2
#: Workers that a DataLoader may have.
WORKERS_MAX = 1024
#: Bits of an epoch's number.
EPOCH_BITS = 40


class _Shared:
    """Where the workers of all processes are in the epochs, in memory that they share.

    Workers that stay hear there of what the data set's process says (an epoch, a state), and that
    process sees which epochs they have gone through.
    """

    #: Of its numbers: where iterations begin; whether ``set_epoch`` said it; how many jumps there
    #: were; of the last iteration, its number of workers, the number of jumps before it, where it
    #: began, whether there was one since the last jump, and which of a worker's iterations it was;
    #: then, of each worker, one more than the epoch that it has ended, and above ``EPOCH_BITS``
    #: the number of jumps before that.
    EPOCH, USED, SAID, VERSION, WORKERS = range(5)
    BEGUN_VERSION, BEGUN_EPOCH, BEGUN_USED, HAS_BEGUN, TURN, ENDED = range(5, 11)

    def __init__(self) -> None:
        self._numbers = torch.zeros(self.ENDED + WORKERS_MAX, dtype=torch.int64).share_memory_()

    @property
    def version(self) -> int:
        """The number of jumps so far."""
        return int(self._numbers[self.VERSION])

    @property
    def is_said(self) -> bool:
        """Whether ``set_epoch`` said the epoch."""
        return bool(self._numbers[self.SAID])

    def jump(self, epoch: int, used: int, *, said: bool) -> None:
        """Have the next iterations begin elsewhere.

        Raises:
            ValueError: there is no room for the epoch's number.
        """
        if epoch >= 1 << EPOCH_BITS:
            raise ValueError(f"epoch {epoch} is none below 2**{EPOCH_BITS}")
        begins = torch.tensor([epoch, used, said, self.version + 1])
        self._numbers[self.HAS_BEGUN] = 0
        self._numbers[: self.WORKERS] = begins

    def _mark(self, epoch: int, version: int) -> int:
        """Return what a worker says that has ended the epoch before; a later one is greater."""
        return version << EPOCH_BITS | epoch

    def next(self) -> tuple[int, int]:
        """Return where the next iteration begins: epoch, samples used."""
        epoch, used = self._numbers[:2].tolist()
        workers = int(self._numbers[self.WORKERS])
        ended = self._numbers[self.ENDED : self.ENDED + workers]
        reached = int(ended.min()) - self._mark(0, self.version) if workers else 0
        return (reached, 0) if reached > epoch else (epoch, used)

    def begins(self, turn: int) -> tuple[int, int, int]:
        """Return where an iteration begins: the number of jumps before it, epoch, samples used.

        Args:
            turn: number of a worker's iteration. One that comes late, where workers stay, finds
                the epoch ended by the others of this iteration, and begins where they did.
        """
        found = self.version, *self.next()
        if turn > 1 and int(self._numbers[self.TURN]) == turn:
            version, epoch, used = self._numbers[self.BEGUN_VERSION : self.HAS_BEGUN].tolist()
            return version, epoch, used
        return found

    def begin(self, version: int, epoch: int, used: int, workers: int, turn: int) -> None:
        """Take notice of an iteration; all of its workers say the same."""
        numbers = self._numbers
        if int(numbers[self.WORKERS]) != workers:
            # Those that come new have ended what the others have.
            numbers[self.ENDED :].clamp_(min=self._mark(epoch, self.version))
            numbers[self.WORKERS] = workers
        numbers[self.BEGUN_VERSION : self.TURN] = torch.tensor([version, epoch, used, 1])
        numbers[self.TURN] = turn  # last: those that read it find all of the others

    def latest(self) -> tuple[int, int] | None:
        """Return where the last iteration began; None: there was none since the last jump."""
        epoch, used, has_begun = self._numbers[self.BEGUN_EPOCH : self.TURN].tolist()
        return (epoch, used) if has_begun else None

    def end(self, number: int, epoch: int, version: int) -> None:
        """Take notice that a worker makes its last batch of an epoch, which began by a version."""
        # Not over a later mark: workers of an iteration that was left may come late.
        mark, place = self._mark(epoch + 1, version), self.ENDED + number
        self._numbers[place] = max(mark, int(self._numbers[place]))


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """Batches of samples for each rank and each worker, prefetched.

        data = IterableDataset(path, 32, shuffle=True)
        loader = DataLoader(data, batch_size=None, num_workers=2)
        for epoch in range(epochs):
            for batch in loader:

    Workers take a rank's batches in turns, so a loader yields the same batches in the same order
    whatever ``num_workers`` is; all ranks get equally many. When all workers have made their last
    batch of an epoch, the next iteration is the next epoch; an iteration that stopped earlier
    starts again. ``set_epoch`` or a loaded state override this.

    Args:
        source, transform, keys, buffers, errors, options: arguments of ``Dataset``.
        batch_size, shuffle, sampler, seed, drop_last, even, rank, ranks, comm: arguments of
            ``BatchSampler``.
        collate_fn: function from a list of samples to a batch; None: torch's ``default_collate``.
        ahead: number of batches that are prefetched.

    Raises:
        As ``Dataset`` and ``BatchSampler``.
    """

    def __init__(
        self,
        source: Paths | Samples[Any, Any],
        batch_size: int = 1,
        *,
        transform: Callable[..., Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        keys: bool = False,
        buffers: bool = False,
        errors: Errors = "raise",
        shuffle: bool | Shuffle = False,
        sampler: Sampler | None = None,
        seed: int = 0,
        drop_last: bool = False,
        even: bool = True,
        ahead: int = AHEAD,
        rank: int | None = None,
        ranks: int | None = None,
        comm: Communicator | torch.distributed.ProcessGroup | None = None,
        **options: Unpack[RecordsOptions],
    ) -> None:
        refuse_foreign("IterableDataset", options, IterableDataset)
        self.dataset = Dataset(
            source, transform, keys=keys, buffers=buffers, errors=errors, **options
        )
        self._collate = default_collate if collate_fn is None else collate_fn
        self._ahead = whole("ahead", ahead, 1)
        place: Any = {"rank": rank, "ranks": ranks, "comm": comm}
        chosen = chosen_order(shuffle, sampler)
        ordering = Ordering.checked(chosen, seed, drop_last=drop_last, even=even, **place)
        mix = self.dataset.mixing
        self._cursor = EpochCursor(len(self.dataset), batch_size, ordering, mix=mix)
        self._shared = _Shared()
        #: This process's iteration, its next step, and the version by which it began.
        self._going: tuple[EpochSlice, int, int] | None = None
        self._resumes: tuple[EpochSlice, int] | None = None  # this worker's, as it was saved
        self._made: weakref.ref[Iteration] | None = None  # the newest one
        self._turns = 0  # iterations that were made in this worker

    def __len__(self) -> int:
        """Return the number of batches of a rank in a whole epoch."""
        return len(self._cursor)

    def _slice(self) -> EpochSlice:
        """Return what the next iteration gives, of all workers together."""
        self._cursor.epoch, self._cursor.used = self._shared.next()
        return self._cursor.begin()

    def __iter__(self) -> Iteration:
        refuse_second_sharding(self, self._cursor.ranks.now()[1], "IterableDataset")
        self._turns += get_worker_info() is not None
        made = Iteration(self)
        self._made = weakref.ref(made)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def _batches(self, turn: int) -> Generator[Any, None, None]:
        (number, workers), shared = worker(), self._shared
        if number >= WORKERS_MAX:
            raise ValueError(f"an IterableDataset has at most {WORKERS_MAX} workers")
        cursor, first = self._cursor, number
        version, cursor.epoch, cursor.used = shared.begins(turn)
        resumes, self._resumes = self._resumes, None
        if resumes is not None and (resumes[0].number == cursor.epoch or not shared.is_said):
            cursor.epoch, cursor.used, first = resumes[0].number, resumes[0].shard.used, resumes[1]
        epoch_slice = cursor.begin(use=True)
        epoch, shard = epoch_slice.number, epoch_slice.shard
        shared.begin(version, epoch, shard.used, workers, turn)
        self._going = epoch_slice, first, version
        # Where workers take the epoch's batches in turns, this one's are its share.
        steps = range(first, len(epoch_slice), workers)
        self.dataset.records.expect(epoch_slice.expected // workers, processes_alike())
        read = read_ahead(self.dataset.begin, map(epoch_slice.samples, steps), self._ahead)
        make = partial(self.dataset.samples, finish=self._collate, source=epoch_slice.source)
        if not steps:
            shared.end(number, epoch, version)
        for step, begun in zip(steps, read, strict=True):
            batch = make(begun)
            self._going = epoch_slice, step + workers, version
            if step == steps[-1]:  # nobody may ask for more
                shared.end(number, epoch, version)
            yield batch
            del batch
        if workers == 1:
            self._going = epoch_slice, len(shard), version

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is; one that a state was loaded for goes on."""
        self._cursor.epoch, self._cursor.used = self._shared.next()
        self._cursor.set_epoch(epoch)
        # A jump in any case: workers of an iteration that was left may still be at work.
        self._shared.jump(self._cursor.epoch, self._cursor.used, said=True)

    def state_dict(self, batches: int | None = None) -> State:
        """Return where this data set is in the epoch.

        Args:
            batches: number of this rank's batches that were used since the iteration began, by all
                workers together: say so where there are any. None: without workers, those that
                were handed out; in a worker, its own part of a state (``state_of``).
        """
        newest = None if self._made is None else self._made()
        is_new = newest is not None and not newest.is_begun
        if batches is not None:
            latest = None if is_new else self._shared.latest()
            begun = self._slice() if latest is None else self._cursor.begin(*latest)
            return begun.state(self._cursor, batches)
        if not is_new and self._going is not None and self._going[2] == self._shared.version:
            epoch_slice, step, _ = self._going
        else:
            epoch_slice, step = self._resumes or (self._slice(), worker()[0])
        if get_worker_info() is None:
            return epoch_slice.state(self._cursor, step)
        shard = epoch_slice.shard
        reported = self._cursor.state(epoch_slice.number, shard.used)
        return {**reported, "step": step, "steps": len(shard), "step_size": shard.step_size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration go on where the state was saved.

        Raises:
            ValueError: it is of other data, or of another seed.
        """
        own = whole_state(state)
        if own.get("seed", self._cursor.seed) != self._cursor.seed:
            seed = self._cursor.seed
            raise ValueError(f"the state was saved with seed {own['seed']}, and it is {seed} here")
        self._cursor.load(own)
        self._going = self._resumes = None
        if "step" in state:
            self._resumes = self._cursor.begin(), int(state["step"])
        else:
            self._shared.jump(self._cursor.epoch, self._cursor.used, said=False)


class Iteration(Iterator[Any]):
    """One iteration; says whether it is over, as StatefulDataLoader wants it of an iterator.

    It begins when it is first asked: trainers make iterations that they do not use, and say the
    epoch afterwards.

    Args:
        data: data set whose batches it gives.
    """

    def __init__(self, data: IterableDataset) -> None:
        self._data, self._turn = data, data._turns
        self._batches: Generator[Any, None, None] | None = None
        #: It goes on where an epoch was over, so nothing is left, unless one is said from now on.
        self._ended: int | None = None

    @property
    def is_begun(self) -> bool:
        """Whether it was asked for a batch."""
        return self._batches is not None

    def __next__(self) -> Any:
        if self._batches is None:
            if self._ended == self._data._cursor.said:
                raise StopIteration
            self._batches = self._data._batches(self._turn)
        return next(self._batches)

    def state_dict(self) -> dict[str, bool]:
        """Return whether the epoch is over, and nobody has asked for more; of workers, never."""
        data, going = self._data, self._data._going
        if get_worker_info() is not None:
            return {"ended": False}
        if self._batches is None:
            return {"ended": self._ended == data._cursor.said}
        return {"ended": going is not None and going[1] >= len(going[0].shard)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was saved; the data set has its own part of that."""
        cursor, self._ended = self._data._cursor, None
        # Where nobody says epochs, an iteration without batches would be an epoch that is lost.
        if state.get("ended") and cursor.last_said == cursor.epoch - 1:
            self._ended = cursor.said

    def close(self) -> None:
        """Give up what is under way."""
        if self._batches is not None:
            self._batches.close()
