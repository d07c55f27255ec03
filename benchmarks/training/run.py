"""Loading beside training, measured: what people train on, by all ways that they load it.

    python -m benchmarks.training.run                            five minutes: ours, two workloads
    python -m benchmarks.training.run --ways all --minutes 30    other formats as well
    python -m benchmarks.training.run --workloads pil --step     beside a training
    python -m benchmarks.training.run --workloads tensors --ways lmdb,loader --threads 1,8

Workloads: "tensors" (3 KB, a tensor of each), "pil", "cv2" and "torchvision" (JPEG files of 98 KB,
decoded and resized to 224 x 224), "nothing" (3 KB, untouched: what handing over costs), "array"
(the tensors, for which the Loader has a decoder of whole batches).

Ways: torch's DataLoader over py-lmdb ("lmdb"), the same program over lmdbio.open ("open"), over
lmdbio.torch.Dataset ("dataset") and IterableDataset ("iterable"), each with --workers processes;
lmdbio.torch.Loader as it comes ("loader"), and told to use so many threads ("loader-t4") or
processes ("loader-p4"); and, by "peers" or "all", what people use instead of LMDB: plain files
("files"), "webdataset", MosaicML "streaming", "litdata", "grain", "spdl" and Hugging Face
"datasets", over the same records, converted once. Something that is not installed is left out,
and the reason said (pip install 'lmdbio[bench-training]').

Each run is a process of its own, and all take turns, each round in the other order. The first
epoch is cold: the files were put out of the page cache, and seen to be out, and its time begins
before the loader is made. Those after it are warm: the same loader goes on, with the files in the
page cache. In each epoch every record must be handed out exactly once, with the same bytes by all.

With --step the loop trains: a residual network on a GPU, or, without one, as much of a small
network as takes about 50 ms a batch in one thread. "step" is then the step's time when nothing is
loaded, over its time beside the loader: 1 is best.

Judged, of each workload, cold and warm: the Loader as it comes is at least 0.95 of the best of the
DataLoaders and of all numbers of threads or processes that it was told; no number of threads is
below 0.8 of one; a DataLoader over Dataset is at least 0.95 of one over py-lmdb; nothing is left
behind.

The exit status is 0 if all bounds were kept, 1 if one was not, 2 if somebody failed or has no
figure, 69 if this machine cannot do it, 70 if the data could not be made.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks.harness import Told, conduct, race_parser
from benchmarks.training import ways
from benchmarks.training.racing import Race, ask, prepare, run_all
from benchmarks.training.results import NOTES, STATES, judge, table
from benchmarks.training.ways import Way
from benchmarks.training.workloads import WORKLOADS
from lmdbio.bench import measure

USUAL = "tensors,pil"
#: Of each data set: enough batches for many workers, and not too many for one thread.
MIB_MIN, MIB_PER_CORE = 48, 24


# --- the command line ------------------------------------------------------------------------


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a list with commas."""
    found = tuple(sorted({int(word) for word in text.split(",") if word}))
    if found and found[0] < 1:
        raise argparse.ArgumentTypeError("numbers from 1")
    return found


def parse(words: Sequence[str]) -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    workers, threads = max(1, cores - 2), ways.usual_threads(cores)
    mib = max(MIB_MIN, MIB_PER_CORE * cores)
    parser = race_parser("benchmarks.training.run", __doc__ or "", data="training-data", rounds=3)
    add = parser.add_argument
    # fmt: off
    add("--mib", type=int, default=mib, metavar="N", help=f"MiB of each data set ({mib})")
    add("--workloads", default=USUAL, metavar="NAME,...",
        help=f"of {', '.join(WORKLOADS)}, all ({USUAL})")
    add("--ways", default="ours", metavar="NAME,...", help="names, ours, peers, all (ours)")
    add("--workers", type=int, default=workers, metavar="N",
        help=f"of DataLoaders, and threads of SPDL ({workers}: all cores but two)")
    add("--threads", type=numbers, default=threads, metavar="N,...",
        help=f"that the Loader is told ({','.join(map(str, threads))})")
    add("--processes", type=numbers, default=(workers,), metavar="N,...",
        help=f"the same, where the Loader has them ({workers})")
    add("--step", action="store_true",
        help="train with the batches, which go to page-locked memory where there is a GPU")
    add("--minutes", type=float, default=5.0, metavar="M", help="no run begins after these (5)")
    # fmt: on
    asked = parser.parse_args(words)
    if asked.mib < 1 or asked.workers < 0 or asked.minutes <= 0:
        parser.error("--mib is from 1, --workers from 0, --minutes above 0")
    try:
        asked.workloads = command.words_of(tuple(WORKLOADS), asked.workloads)
        asked.ways = ways.chosen(ways.ways(asked.threads, asked.processes), asked.ways)
    except ValueError as error:
        parser.error(f"--workloads, --ways: {error}")
    return asked


# --- who can take part -------------------------------------------------------------------------


def missing(found: dict[str, Any], way: Way) -> str:
    """Return why a way cannot take part; "" if it can."""
    if way.needs and found["modules"].get(way.needs):
        return str(found["modules"][way.needs])
    unknown = [f"{word}=" for word in way.words if word not in found["loader_words"]]
    return f"this Loader has no {', '.join(unknown)}" if unknown else ""


def left_out(asked: argparse.Namespace, found: dict[str, Any]) -> dict[str, str]:
    """Return the workloads and the ways that cannot be measured here, each with the reason.

    Args:
        asked: the command line.
        found: what ``probe`` answered.
    """
    skipped = {}
    for one in (WORKLOADS[name] for name in asked.workloads):
        why = found["modules"].get(one.needs, "")
        if asked.step and one.transform is None:
            why = "--step: there is nothing to train with"
        if why:
            skipped[one.name] = str(why)
    return skipped | {way.name: why for way in asked.ways if (why := missing(found, way))}


# --- telling -----------------------------------------------------------------------------------


def cells_json(races: list[Race]) -> list[dict[str, Any]]:
    return [
        {"workload": race.cell.name, "title": race.cell.title, "failed": race.cell.failed,
         "step_repeats": race.step,
         "runs": {name: [asdict(run) for run in runs] for name, runs in race.cell.runs.items()}}
        for race in races
    ]  # fmt: skip


def measured(asked: argparse.Namespace, told: Told, console: Console) -> None:
    """Measure all workloads by all ways that this machine has."""
    deadline = time.monotonic() + 60 * asked.minutes
    needs = [WORKLOADS[name].needs for name in asked.workloads]
    with console.status("import what takes part"):
        modules = sorted({*needs, *(way.needs for way in asked.ways)} - {""})
        able_to = ask("probe", modules, "imports")
    skipped, gpu = left_out(asked, able_to), able_to["gpu"]
    able = [WORKLOADS[name] for name in asked.workloads if name not in skipped]
    racing = [way for way in asked.ways if way.name not in skipped]
    asked.data.mkdir(parents=True, exist_ok=True)
    machine = measure.machine(asked.data)
    # Other work on the machine takes cores from all, and most from those with many threads.
    load = os.getloadavg()[0]
    facts = {**machine.facts, "GPU": gpu or "none", "load before": f"{load:.1f}"}
    for name, fact in {**facts, **skipped}.items():
        words = f"{name}: {'left out, ' if name in skipped else ''}{fact}"
        console.print(words, markup=False, highlight=False)
    if not able or not racing:
        raise command.Missing("nothing of what was asked for can be measured here")
    races = prepare(asked, able, racing, console)
    told.title = f"Loading on {machine.cpu}, {machine.cores} cores, {gpu or 'no GPU'}"
    told.lead = NOTES
    told.ended = run_all(races, asked, deadline, console, pins=bool(gpu and asked.step))
    told.verdicts = [verdict for race in races for verdict in judge(race.cell)]
    told.parts = [
        (table(race.cell, state), "") for race in races for state in STATES if race.cell.runs
    ]
    for race in races if told.ended else ():
        if never := [way.name for way in race.cell.ways if way.name not in race.cell.runs]:
            console.print(f"never: {race.cell.name}: {', '.join(never)}")
    told.facts = {
        "gpu": gpu,
        "load_before": load,
        "settings": {"workers": asked.workers, "mib": asked.mib, "rounds": asked.rounds},
        "skipped": skipped,
        "cells": cells_json(races),
    }
    told.failed = any(race.cell.failed for race in races) or any(
        one.figure is None for one in told.verdicts
    )


def main(words: Sequence[str]) -> int:
    return conduct("training", parse(words), measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
