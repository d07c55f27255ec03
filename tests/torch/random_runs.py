"""Random trainings, each stopped anywhere, which go on in other ways, ranks, workers and batches.

    python -m tests.torch.random_runs [--runs N] [--seed S]

Each run trains one to three epochs in up to three parts, each a job of its own, with its own way
of loading, ranks, workers and batch size, which begins where the one before was stopped. The
samples of each batch of each rank are compared with what the guide's rule says (``places``,
written out here once more, of the permutation ``Epoch.samples``), and those of each epoch are
counted. Ends with 1 when one differs; the seed and the number on the terminal repeat it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.progress import track
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from lmdbio.planning.order import Epoch
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.torch import BatchSampler, Dataset, IterableDataset, Loader, state_of
from tests.support import databases

__all__ = ["COUNTS", "Run", "check", "draw", "write"]

COUNTS = (1, 7, 40, 64, 97)
WAYS = ("Loader", "BatchSampler", "IterableDataset", "stateful sampler", "stateful iterable")


@dataclass(frozen=True)
class Part:
    """A job that trains until it is stopped, and the ranks of it.

    Attributes:
        way: of loading.
        ranks, workers, batch_size: of each rank.
        stops_in, steps: the epoch in which it is stopped, after so many batches of each rank.
        says: the loop says which epoch begins; else the loader counts.
        looks: batches that the first rank takes before each epoch, and drops.
        stays: workers stay from epoch to epoch.
        is_same: it is of the way, ranks, workers and batches of the part before, whose
            StatefulDataLoaders' own states are loaded.
    """

    way: str
    ranks: int
    workers: int
    batch_size: int
    stops_in: int
    steps: int
    says: bool
    looks: int
    stays: bool
    is_same: bool = False


@dataclass(frozen=True)
class Run:
    """A training, and the jobs that it takes.

    Attributes:
        count, seed, shuffle, drop_last, even: of the order.
        epochs: in all.
    """

    count: int
    seed: int
    shuffle: bool | Shuffle
    drop_last: bool
    even: bool
    epochs: int
    parts: tuple[Part, ...] = field(repr=False)

    def order(self, epoch: int) -> list[int]:
        """Return the samples of an epoch, place by place."""
        seed = self.seed if self.shuffle else None
        shuffle = self.shuffle if isinstance(self.shuffle, Shuffle) else GLOBAL
        samples = Epoch(self.count, seed, epoch, shuffle).samples(range(self.count))
        return [int(sample) for sample in samples]


def draw(rng: random.Random) -> Run:
    """Draw a run."""
    epochs = rng.randint(1, 3)
    stops = sorted(rng.choices(range(epochs), k=rng.randint(0, 2)))
    parts: list[Part] = []
    for stop in (*stops, epochs):
        part = _part(rng, stop)
        if parts and parts[-1].way.startswith("stateful") and rng.random() < 0.5:
            part = replace(parts[-1], stops_in=stop, steps=part.steps, looks=0, is_same=True)
        parts.append(part)
    return Run(
        count=rng.choice(COUNTS),
        seed=rng.choice((0, 1, rng.getrandbits(40))),
        shuffle=_shuffle(rng),
        drop_last=rng.random() < 0.3,
        even=rng.random() < 0.7,
        epochs=epochs,
        parts=tuple(parts),
    )


def _shuffle(rng: random.Random) -> bool | Shuffle:
    chunk, window = rng.randint(1, 9), rng.randint(1, 4)
    partly = Shuffle.groups(chunk), Shuffle.windows(chunk, window), Shuffle.runs(chunk)
    return rng.choice((False, True, True, rng.choice(partly)))


def _part(rng: random.Random, stops_in: int) -> Part:
    way = rng.choice(WAYS)
    # To start workers takes most of the time of all runs.
    workers = 0 if way == "Loader" or rng.random() < 0.8 else rng.randint(1, 3)
    says = "iterable" in way.lower() or rng.random() < 0.3
    return Part(
        way=way,
        ranks=rng.randint(1, 2 if workers else 4),
        workers=workers,
        batch_size=rng.choice((1, 2, 3, 5, 8, 20)),
        stops_in=stops_in,
        steps=rng.choice((0, 1, rng.randrange(1, 12), rng.randrange(1, 50))),
        says=says,
        # Workers ask a sampler for batches that nobody has looked at, at times for all.
        looks=rng.choice((0, 0, 1, 3)) if says or not workers else 0,
        stays=workers > 0 and rng.random() < 0.4,
    )


def places(run: Run, part: Part, rank: int, used: int) -> Iterator[list[int]]:
    """The places of one rank's batches, from where all ranks have used so many.

    Each step takes the next ``ranks * batch_size`` places, in runs of ``batch_size``. The last
    step, if it is not full, is left out, or shared in runs of one length, made up by the epoch's
    first places, or in runs that differ by one.
    """
    size, ranks = part.batch_size, part.ranks
    while used + ranks * size <= run.count:
        yield list(range(used + rank * size, used + (rank + 1) * size))
        used += ranks * size
    rest = run.count - used
    if rest == 0 or run.drop_last:
        return
    if run.even:
        own = -(-rest // ranks)
        yield [(used + rank * own + i) % run.count for i in range(own)]
    elif mine := [used + i for i in range(rest) if _owner(i, rest, ranks) == rank]:
        yield mine


def _owner(i: int, rest: int, ranks: int) -> int:
    """The rank that takes the ith of some places, of which the first ranks take one more."""
    own, more = divmod(rest, ranks)
    longer = more * (own + 1)
    return i // (own + 1) if i < longer else more + (i - longer) // own


@dataclass
class Rank:
    """A rank's loader, what of it knows the epoch, what has its state, and what is to be closed.

    Attributes:
        counts: ``keeper`` knows how many batches were used.
        going: the iteration that was stopped.
    """

    loader: Any
    source: Any
    keeper: Any
    counts: bool
    opened: Any
    going: Any = None

    def state(self, batches: int) -> dict[str, Any]:
        """The state of lmdbio's, after so many batches of this iteration."""
        if not self.counts:
            return dict(self.source.state_dict(batches))
        state = self.keeper.state_dict()
        return dict(state) if "lmdbio" in state else state_of(state)


def number(value: bytes) -> int:
    return int.from_bytes(value[:4], "little")


def loader_of(run: Run, part: Part, rank: int, path: Path) -> Rank:
    """Make a rank's loader."""
    order: dict[str, Any] = {
        "shuffle": run.shuffle,
        "seed": run.seed,
        "drop_last": run.drop_last,
        "even": run.even,
        "rank": rank,
        "ranks": part.ranks,
    }
    if part.way == "Loader":
        loader = Loader(
            path, part.batch_size, transform=number, collate_fn=list, threads=2, **order
        )
        return Rank(loader, loader, loader, True, loader)
    workers: dict[str, Any] = {"num_workers": part.workers, "persistent_workers": part.stays}
    is_stateful = part.way.startswith("stateful")
    kind = StatefulDataLoader if is_stateful else DataLoader
    if "ampler" in part.way:
        opened = Dataset(path, number)
        source: Any = BatchSampler(opened, part.batch_size, **order)
        made = kind(opened, batch_sampler=source, collate_fn=list, **workers)
    else:
        source = IterableDataset(path, part.batch_size, transform=number, collate_fn=list, **order)
        opened = source.dataset
        made = kind(source, batch_size=None, **workers)
    return Rank(made, source, made if is_stateful else source, is_stateful, opened)


def check(run: Run, folder: Path) -> None:
    """Train a run.

    Raises:
        AssertionError: a batch, a state or an epoch is not what it should be.
    """
    epoch = used = 0
    state: dict[str, Any] | None = None
    own: list[dict[str, Any]] = []  # states of StatefulDataLoaders, of each rank
    had: dict[int, list[int]] = {number: [] for number in range(run.epochs)}
    for index, part in enumerate(run.parts):
        told = f"part {index}, {part}"
        ranks = [loader_of(run, part, rank, folder / str(run.count)) for rank in range(part.ranks)]
        for number, rank in enumerate(ranks):
            if part.is_same and own:
                rank.keeper.load_state_dict(own[number])
            elif state is not None:
                rank.source.load_state_dict(state)
        while epoch < run.epochs:
            wanted = [list(places(run, part, rank, used)) for rank in range(part.ranks)]
            steps = max(map(len, wanted))
            stop = min(part.steps, steps) if epoch == part.stops_in else None
            if stop != 0 and not (used and part.workers):  # these may have read all that is left
                # Who looks at all of an epoch has had it.
                _look(ranks[0], part, epoch, min(part.looks, steps - 1))
            for rank, loader in enumerate(ranks):
                order = run.order(epoch)
                right = [[order[place] for place in batch] for batch in wanted[rank][:stop]]
                batches = _trained(loader, part, epoch, None if stop is None else len(right))
                assert batches == right, (
                    f"{told}: epoch {epoch}, rank {rank}: {batches}, not {right}"
                )
                had[epoch] += [one for batch in batches for one in batch]
            if stop is None:
                epoch, used = epoch + 1, 0
                continue
            # Of those that had all of these steps; the others may lack a place in the last one.
            states = [
                rank.state(stop)
                for rank, own in zip(ranks, wanted, strict=True)
                if len(own) >= stop
            ]
            assert all(one == states[0] for one in states), f"{told}: states differ: {states}"
            state = states[0]
            after = epoch, min(run.count, used + stop * part.ranks * part.batch_size)
            # An epoch that drops all that is left is over, or has not begun.
            allowed = [after] * (stop < steps or not steps) + [(epoch + 1, 0)] * (stop == steps)
            # One that was saved after an epoch's last batch would end that epoch once more.
            keeps = stop < steps and part.way.startswith("stateful")
            own = [rank.keeper.state_dict() for rank in ranks] if keeps else []
            epoch, used = state["epoch"], state["used"]
            assert (epoch, used) in allowed, f"{told}: {state}, not one of {allowed}"
            break
        for rank in ranks:
            rank.opened.close()
    _count(run, had)


def _look(rank: Rank, part: Part, epoch: int, batches: int) -> None:
    """Have one rank begin an iteration that it leaves."""
    if batches > 0:
        if part.says:
            rank.source.set_epoch(epoch)
        going = iter(rank.loader)
        for _ in range(batches):
            next(going)


def _trained(rank: Rank, part: Part, epoch: int, stop: int | None) -> list[list[int]]:
    """Return a rank's batches of an epoch, until it is stopped."""
    if part.says:
        rank.source.set_epoch(epoch)
    if stop is None:
        return list(rank.loader)
    rank.going = iter(rank.loader)
    return [next(rank.going) for _ in range(stop)]


def _count(run: Run, had: dict[int, list[int]]) -> None:
    """Count the samples of each epoch, whatever the order."""
    batch = max(part.ranks * part.batch_size for part in run.parts)
    more = max(part.ranks for part in run.parts) - 1 if run.even else 0
    for epoch, samples in had.items():
        often = Counter(samples)
        assert len(samples) - len(often) <= more, (
            f"epoch {epoch}: repeated: {often.most_common(3)}"
        )
        missing = run.count - len(often)
        assert missing < batch if run.drop_last else not missing, (
            f"epoch {epoch}: {missing} missing"
        )


def write(folder: Path) -> None:
    """Write the data sets, whose records begin with their numbers."""
    for count in COUNTS:
        with databases.open_writable(folder / str(count), 1) as env:
            records = [(b"%04d" % i, i.to_bytes(4, "little") * (1 + i % 50)) for i in range(count)]
            databases.write(env, records)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0x7FFFFFFF)
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="lmdbio-runs-") as folder:
        write(Path(folder))
        for turn in track(range(asked.runs), "runs", transient=True):
            run = draw(random.Random(f"{asked.seed}/{turn}"))
            try:
                check(run, Path(folder))
            except Exception as error:
                wrong += 1
                print(f"WRONG {turn}: {run}: {type(error).__name__}: {error}", flush=True)
    print(f"{asked.runs} runs, {wrong} of them wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
