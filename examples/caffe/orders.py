"""Trains a small network for some epochs, with the records in each order, on any number of ranks.

    python make_data.py --sorted train_lmdb           one class after the other
    python orders.py train_lmdb                       this process alone; MPI is not needed
    mpiexec -n 8 python orders.py train_lmdb --html orders.html

Each run begins with the same weights and reads the same records in each epoch:

    file       as they lie in the file: the fastest, and no chance at all
    group      groups of neighbours, shuffled, and the records inside each
    window     chunks from anywhere, some dozens of them shuffled together
    global     any record at any place: one request for each

A table shows, by order: the seconds of each epoch, the share in which ranks waited for records,
and the accuracy after the last one, on records drawn from the whole file; chance is 1 in 10 for
the data of make_data.py. The page has the same by epoch.

The file is put out of the page cache before each run (unless --warm). Where all of it fits there,
later epochs come from memory in any order: look at the first.
"""

from __future__ import annotations

import os

# Each rank is one thread: ranks share the cores already. NumPy looks at this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from models import Model
from ranks import Ranks
from train import first_shape, floats, forget, parsed

import lmdbio
from lmdbio.page.document import document, section
from lmdbio.page.drawing import Chart, Series, chart_html

ORDERS = ("file", "group", "window", "global")
#: Records, from the whole file, on which a network is judged.
JUDGED = 1000
PROGRESS_SECONDS = 2.0


@dataclass(slots=True)
class Run:
    """The result of one order, by epoch; means over ranks.

    Attributes:
        order: its name.
        seconds: of each epoch.
        waited: of these, in ``next(batch)``.
        accuracies: after each epoch, 0 to 1.
        windows: whether roots exchange rows, in words.
    """

    order: str
    seconds: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    windows: str = ""

    def line(self) -> str:
        epochs = " ".join(f"{seconds:7.2f}" for seconds in self.seconds)
        share = sum(self.waited) / sum(self.seconds)
        return f"{self.order:22} {share:6.1%} {self.accuracies[-1]:9.1%}  {epochs}"


HEAD = f"{'':22} {'I/O':>6} {'accuracy':>9}  seconds of each epoch"


# --- training ------------------------------------------------------------------------------


class Judge:
    """Records on which all orders are judged."""

    def __init__(self, path: str, seed: int) -> None:
        with lmdbio.Records(path) as records:
            count = min(JUDGED, len(records))
            drawn = np.sort(np.random.default_rng(seed).choice(len(records), count, replace=False))
            self._images, self._labels = floats([bytes(records[i]) for i in drawn.tolist()])

    def accuracy(self, model: Model) -> float:
        """Return the share of right answers. The model's sums are lost."""
        model.learn(self._images, self._labels)
        return float(model.sums[-1]) / len(self._labels)


def train(order: str, asked: argparse.Namespace, ranks: Ranks, model: Model, judge: Judge) -> Run:
    """Train from the first weights on. Collective.

    Raises:
        lmdbio.Error, OSError, ValueError, MemoryError: the data set cannot be read so.
    """
    forget(asked, ranks)
    run, waited, told = Run(order), 0.0, perf_counter()
    shuffle = None if order == "file" else order
    with lmdbio.Reader(
        asked.path, asked.batch_size, comm=ranks.comm, shuffle=shuffle, epochs=asked.epochs,
        seed=asked.seed, assignment="blocked",
    ) as reader:  # fmt: skip
        run.windows = reader.windows.text
        ranks.gather(None)
        begun = last = perf_counter()
        for iteration, batch in enumerate(reader):
            waited += perf_counter() - last
            images, labels = floats(batch)
            model.learn(images, labels)
            ranks.add_up(model.sums)
            model.step(reader.schedule.batch_length(iteration))
            used = reader.schedule.place_after(iteration + 1)
            if used // reader.count > len(run.seconds):  # its last batch may reach into the next
                run.seconds.append(perf_counter() - begun)
                run.waited.append(waited)
                run.accuracies.append(judge.accuracy(model))
                begun, waited = perf_counter(), 0.0
            if perf_counter() - told > PROGRESS_SECONDS:
                told = perf_counter()
                epochs = used / reader.count
                ranks.say(f"{order}: {epochs:.2f} of {asked.epochs} epochs")
            last = perf_counter()
    parts = ranks.gather((run.seconds, run.waited))
    run.seconds, run.waited = np.mean(parts, axis=0).tolist()
    return run


# --- the page ------------------------------------------------------------------------------


def page(runs: Sequence[Run], about: str) -> str:
    """Draw the time and the accuracy of each order, by epoch."""
    epochs = {i + 1.0: str(i + 1) for i in range(len(runs[0].seconds))}

    def chart(title: str, unit: str, values: Any, *, logarithmic: bool) -> str:
        series = [
            Series.of(run.order, [(i + 1.0, y) for i, y in enumerate(values(run))]) for run in runs
        ]
        return chart_html(Chart(title, epochs, "epoch", unit, series, logarithmic))

    times = chart("Time", "seconds", lambda run: run.seconds, logarithmic=True)
    rights = chart(
        "Accuracy", "%", lambda run: [100 * one for one in run.accuracies], logarithmic=False
    )
    body = section("Time of each epoch", "Less is better.", times)
    body += section("Accuracy after each epoch", "On records from the whole file.", rights)
    return document("Training, by the order of the records", f"<p>{about}</p>{body}")


# --- the command ---------------------------------------------------------------------------


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # fmt: off
    add = parser.add_argument
    add("path", help="the LMDB: its folder or file; raw images, all of one shape")
    add("--orders", nargs="+", default=ORDERS, metavar="ORDER",
        help="file, or a shuffle of lmdbio.Reader, such as groups:1000; default: all four")
    add("--epochs", type=int, default=3, help="of each run; default %(default)s")
    add("--html", type=Path, metavar="FILE", help="draw them there")
    # fmt: on
    return parsed(parser, given, "epochs")


def run(asked: argparse.Namespace, ranks: Ranks) -> None:
    """Train in one order after the other; tell on rank 0."""
    shape = first_shape(asked, ranks)
    judge, runs = Judge(asked.path, asked.seed), []
    about = (
        f"{asked.path}: images of {' x '.join(map(str, shape))}; {ranks.size} "
        f"rank{'s' * (ranks.size > 1)}, batches of {asked.batch_size}, {asked.framework}, "
        f"{'warm' if asked.warm else 'cold'}"
    )
    if ranks.rank == 0:
        print(about, "", HEAD, sep="\n", flush=True)
    for order in asked.orders:
        model = Model(
            asked.framework, shape, classes=asked.classes, hidden=asked.hidden, seed=asked.seed
        )
        runs.append(train(order, asked, ranks, model, judge))
        if ranks.rank == 0:
            print(runs[-1].line(), flush=True)
    if ranks.rank == 0 and asked.json:
        told = {"asked": vars(asked), "ranks": ranks.size, "runs": [asdict(one) for one in runs]}
        asked.json.write_text(json.dumps(told, indent=1, default=str), encoding="utf-8")
    if ranks.rank == 0 and asked.html:
        asked.html.write_text(page(runs, about), encoding="utf-8")


def main() -> int:
    asked = arguments()
    ranks = Ranks(None)
    try:
        ranks = Ranks.of_this_job()
        run(asked, ranks)
    except Exception as error:
        told = isinstance(error, (lmdbio.Error, OSError, ValueError))
        text = str(error) if told else traceback.format_exc()
        ranks.give_up(f"orders.py: rank {ranks.rank}, {asked.path}: {text}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
