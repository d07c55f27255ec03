"""Trains a small network from an LMDB of Caffe's, on any number of ranks, with each reader.

    python make_data.py train_lmdb
    python train.py train_lmdb                  this process alone; MPI is not needed
    mpiexec -n 4 python train.py train_lmdb     data-parallel: each rank has its share of a batch

Each reader trains the same network anew: py-lmdb in the pattern of Caffe's data layer, then
lmdbio in each of its modes. The table shows where an iteration's time goes, in milliseconds,
as the mean over ranks:

    I/O        waiting in next(batch) for records; its share of the whole beside it
    decode     Datum messages to an array of floats
    compute    forward, backward, and the step of the weights
    allreduce  adding up over all ranks; who waits for a slower rank waits here
    open       once, in seconds: opening the reader, which may locate all records

Readers may differ in time and in nothing else. Every run begins with the same weights, so from
the same bytes in the same order come the same losses and weights, bit for bit: the last
column is a hash over both. If two of them differ the exit status is 1.

The file is put out of the page cache before each run (unless --warm): that is how a data set
larger than memory is met. Loss and accuracy are those of the last tenth of the iterations, of each
batch before the step that learns from it; chance is 1 in 10 for the data of make_data.py.
"""

from __future__ import annotations

import os

# Each rank is one thread: ranks share the cores already. NumPy looks at this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import hashlib
import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from datum import decode
from models import FRAMEWORKS, Model
from ranks import Ranks
from readers import CURSOR, MODES, by_cursor, by_lmdbio
from results import HEAD, PARTS, Run, line, verdicts

import lmdbio
from lmdbio.bench import measure

PROGRESS_SECONDS = 2.0


class Watch:
    """Adds up the seconds of each part."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("open", *PARTS), 0.0)
        self._last = perf_counter()

    def lap(self, part: str) -> None:
        """All since the last call was ``part``."""
        now = perf_counter()
        self.seconds[part] += now - self._last
        self._last = now


# --- training ------------------------------------------------------------------------------


class Refused(Exception):
    """This reader cannot read this data set here; on all ranks."""


def floats(batch: Any) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Images from -1 to 1 and labels: a copy, so that no view of the batch outlives this call."""
    if not len(batch):  # more ranks than records in a batch
        return np.empty(0, np.float32), np.empty(0, np.int32)
    images, labels = decode(batch)
    scaled = np.multiply(images, 1 / 128, dtype=np.float32)
    scaled -= 1
    return scaled, labels


def open_reader(name: str, asked: argparse.Namespace, ranks: Ranks) -> Any:
    """A context that gives an iterator over this rank's batches. Collective."""
    common = {"comm": ranks.comm, "iterations": asked.iterations}
    if name == CURSOR:
        if asked.assignment != "strided":
            raise Refused("cannot: Caffe's order is strided")
        return by_cursor(asked.path, asked.batch_size, **common)
    try:
        return by_lmdbio(
            asked.path, asked.batch_size, mode=name, assignment=asked.assignment, **common
        )
    except (lmdbio.Error, OSError, ValueError, MemoryError) as error:
        raise Refused(f"cannot: {error}") from error


def train(name: str, asked: argparse.Namespace, ranks: Ranks, model: Model) -> Run:
    """One run from the first weights on. Collective.

    Raises:
        Refused: this reader cannot read this data set.
        ValueError: a record is no image of the kind that the first one is; on this rank.
    """
    cached = forget(asked, ranks)
    watch, losses, accuracies = Watch(), [], []
    told = perf_counter()
    with open_reader(name, asked, ranks) as reader:
        watch.lap("open")
        for batch in reader:
            watch.lap("read")
            images, labels = floats(batch)
            watch.lap("decode")
            model.learn(images, labels)
            watch.lap("compute")
            ranks.add_up(model.sums)
            watch.lap("allreduce")
            loss, accuracy = model.step(asked.batch_size)
            losses.append(loss)
            accuracies.append(accuracy)
            if perf_counter() - told > PROGRESS_SECONDS:
                told = perf_counter()
                ranks.say(
                    f"{name}: iteration {len(losses)} of {asked.iterations}, loss {loss:.3f}"
                )
            watch.lap("compute")
        order = "strided" if asked.assignment == "strided" else blocked_order(reader)
    digest = hashlib.sha256(np.array(losses).tobytes() + model.weights.tobytes()).digest()
    everybody = ranks.gather((watch.seconds, digest))
    mean = {part: sum(s[part] for s, _ in everybody) / ranks.size for part in watch.seconds}
    opened = mean.pop("open")
    fingerprint = hashlib.sha256(b"".join(d for _, d in everybody)).hexdigest()[:12]
    return Run(name, order, cached, opened, mean, losses, accuracies, fingerprint)


def blocked_order(reader: lmdbio.Reader) -> str:
    """Say how the blocks' iterations and roots decide the records of a batch."""
    schedule = reader.schedule
    roots = len(schedule.teams)
    return f"blocked, {schedule.block_iterations} iterations a block, roots: {roots}"


def forget(asked: argparse.Namespace, ranks: Ranks) -> float:
    """Puts the file out of the page cache of every node; what of it stayed. Collective."""
    ranks.gather(None)  # nobody reads any more
    path = Path(asked.path)
    file = path / "data.mdb" if path.is_dir() else path
    if not asked.warm:
        measure.drop_file(file)
    return float(max(ranks.gather(measure.resident_share(file))))


def about(asked: argparse.Namespace, ranks: Ranks, shape: tuple[int, ...], model: Model) -> str:
    machine = measure.machine(Path(asked.path))
    return (
        f"{asked.path}: images of {' x '.join(map(str, shape))} on {machine.file_system} "
        f"(read_ahead_kb {machine.read_ahead_kb}), {'warm' if asked.warm else 'cold'}\n"
        f"{ranks.size} rank{'s' * (ranks.size > 1)}, {machine.cores} cores; {asked.iterations} "
        f"iterations of {asked.batch_size} records, {asked.assignment}; {asked.framework}, "
        f"{len(model.weights):,} parameters"
    )


# --- the command ---------------------------------------------------------------------------


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = (CURSOR, *MODES, "auto")
    # fmt: off
    add = parser.add_argument
    add("path", help="the LMDB: its folder or file; raw images, all of one shape")
    add("--readers", nargs="+", choices=known, default=known[:-1], metavar="READER",
        help=f"of {', '.join(known)}; default: all but auto, which is one of them")
    add("--iterations", type=int, default=200, help="of each run; default %(default)s")
    add("--assignment", choices=("strided", "blocked"), default="strided",
        help="strided: Caffe's order (default); blocked: lmdbio's own, for large reads")
    # fmt: on
    return parsed(parser, given, "iterations")


def parsed(
    parser: argparse.ArgumentParser, given: Sequence[str] | None, count: str
) -> argparse.Namespace:
    """Add what each program that trains here is told, and parse; ``count`` is its own number."""
    # fmt: off
    add = parser.add_argument
    add("--batch-size", type=int, default=128, help="over all ranks; default %(default)s")
    add("--framework", choices=tuple(FRAMEWORKS), default="numpy",
        help="numpy: a perceptron (default); torch: a convolutional net")
    add("--hidden", type=int, default=64, metavar="UNITS",
        help="fewer: less to compute for a byte, as on a faster processor; default %(default)s")
    add("--classes", type=int, default=10, help="labels are below; default %(default)s")
    add("--seed", type=int, default=1, help="of weights and orders; default %(default)s")
    add("--warm", action="store_true", help="leave the file in the page cache")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    # fmt: on
    asked = parser.parse_args(given)
    for name in (count, "batch_size", "hidden", "classes"):
        if getattr(asked, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return asked


def first_shape(asked: argparse.Namespace, ranks: Ranks) -> tuple[int, ...]:
    """Channels, height, width of the first record, which one rank reads."""
    shape = None
    if ranks.rank == 0:
        with lmdbio.Records(asked.path) as records:
            if not len(records):
                raise ValueError("there are no records")
            shape = decode([records[0]])[0].shape[1:]
    return tuple(next(filter(None, ranks.gather(shape))))


def run(asked: argparse.Namespace, ranks: Ranks) -> int:
    """Trains with one reader after the other; the exit status."""
    shape = first_shape(asked, ranks)
    runs: list[Run] = []
    refused: dict[str, str] = {}
    for name in asked.readers:
        model = Model(
            asked.framework, shape, classes=asked.classes, hidden=asked.hidden, seed=asked.seed
        )
        if not runs and not refused and ranks.rank == 0:
            print(about(asked, ranks, shape, model), HEAD, sep="\n\n", flush=True)
        try:
            runs.append(train(name, asked, ranks, model))
            text = line(runs[-1])
        except Refused as error:
            refused[name] = str(error)
            text = f"{name:8} {error}"
        if ranks.rank == 0:
            print(text, flush=True)
    told = verdicts(runs)
    if ranks.rank == 0:
        print("", *(text for _, text in told), sep="\n")
        kept = max((r.cached for r in runs), default=0)
        if kept > 0.01 and not asked.warm:
            print(f"not all cold: up to {kept:.0%} of the file stayed in the page cache")
        if asked.json:
            result = {"asked": vars(asked), "ranks": ranks.size, "refused": refused}
            result["runs"] = [asdict(one) | {"io_share": one.io_share()} for one in runs]
            asked.json.write_text(json.dumps(result, indent=1, default=str), encoding="utf-8")
    return 0 if all(agree for agree, _ in told) else 1


def main() -> int:
    asked = arguments()
    ranks = Ranks(None)
    try:
        ranks = Ranks.of_this_job()
        return run(asked, ranks)
    except Exception as error:
        told = isinstance(error, (lmdbio.Error, OSError, ValueError))
        text = str(error) if told else traceback.format_exc()
        ranks.give_up(f"train.py: rank {ranks.rank}, {asked.path}: {text}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
