"""All modes on many ranks, on a cluster that is emulated on one machine.

    python -m benchmarks.cluster.run --ranks 16 --nodes 4 --modes all --sets 3k,192k \\
        --json out.json --html out.html
    python -m benchmarks.cluster.run --preset quick | targets

Makes data sets in --data (or reuses them), mounts a modelled parallel file system once for each
emulated node, starts the ranks, and lets py-lmdb in Caffe's pattern, every mode of lmdbio.Reader
and plain readers take turns, each on cold mounts. Nothing but reading happens. However it ends,
nothing stays mounted or running.

The exit status is 0 if all that must hold was reached, 1 if something was not, 2 if somebody
failed, 69 if this machine lacks something (one line says what), 70 if a step failed, 128 and the
signal's number if it was interrupted. All figures measured up to then are kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks.cluster import cluster, others, report as reporting, tuned
from benchmarks.cluster.launch import TRANSPORTS
from benchmarks.cluster.measuring import Measuring, Report
from benchmarks.cluster.sweep import (
    CACHE,
    CACHED,
    LOADERS,
    LOCAL,
    MIXED,
    MODES,
    PLACEMENTS,
    POLICIES,
    SCALINGS,
    SETS,
    Cell,
    Shape,
    cells,
    loader_lanes,
    mode_lanes,
    placement_lanes,
    policy_lanes,
    variants,
)
from benchmarks.command import words_of
from benchmarks.harness import Told, conduct, race_parser
from benchmarks.pfs import pfs
from lmdbio.bench import datasets
from lmdbio.bench.datasets import Dataset, Recipe
from lmdbio.planning.mode import ENGINES
from lmdbio.planning.schedule import ASSIGNMENTS
from lmdbio.provenance import find_sidecar

MIB = 2**20
PAGE_BYTES, PAGE_HEADER = 4096, 16
NODES_MAX = 16

#: Options that are not given.
USUAL: dict[str, Any] = {
    "ranks": "16", "nodes": "4", "modes": "all", "sets": "3k,192k", "assignments": "blocked",
    "scalings": "strong", "tokens": "1,2,4", "rounds": 3, "mib": 256, "factors": "1",
    "block_sizes": False, "fill": 0,
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    # A look, in less than a minute.
    "quick": {"sets": "3k", "rounds": 1, "mib": 64},
    # The bounds.
    "targets": {"ranks": "16", "nodes": "4,8", "assignments": "blocked,strided", "rounds": 7},
}  # fmt: skip


# --- the command line ----------------------------------------------------------------------


def numbers_of(text: str) -> tuple[int, ...]:
    numbers = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    if any(number < 1 for number in numbers):
        raise ValueError(f"{text!r}: numbers are from 1")
    return numbers


def shapes_of(ranks: Sequence[int], nodes: Sequence[int], per_node: int) -> list[Shape]:
    """Every number of ranks on every number of nodes that it can be spread over evenly, with at
    most ``per_node`` ranks on each."""
    found = [
        Shape(count, spread)
        for count in ranks
        for spread in nodes
        if count % spread == 0 and count // spread <= per_node
    ]
    if not found:
        raise ValueError("no number of ranks can be spread over these nodes")
    return found


def parse(words: list[str]) -> argparse.Namespace:
    parser = race_parser("benchmarks.cluster.run", __doc__ or "", data="cluster-data", rounds=3)
    parser.set_defaults(rounds=None)  # as a preset says
    # fmt: off
    add = parser.add_argument
    add("--preset", choices=PRESETS, help="options for a purpose; those given go before")
    add("--ranks", metavar="N,...", help="ranks (16)")
    add("--nodes", metavar="N,...", help="emulated nodes (4); every combination that comes out "
        "even is measured")
    add("--fill", type=int, metavar="N",
        help="instead of --nodes: N ranks on each node, one node as long as they fit there")
    add("--ranks-per-node-max", type=int, default=16, metavar="N",
        help="leave out combinations with more (16)")
    add("--modes", metavar="MODES", help=f"of {','.join(MODES)}, or all")
    add("--policies", default="", metavar="P,...",
        help=f"instead of modes, each simulated as well: of {','.join(POLICIES)}, or all; "
        "benchmarks.cluster.policies draws them out of --json FILE")
    add("--placements", default="", metavar="P,...",
        help=f"instead of modes, in one exact order, each simulated as well: of "
        f"{','.join(PLACEMENTS)}, or all")
    add("--loaders", default="", metavar="L,...",
        help=f"instead of modes: of {','.join(LOADERS)}, or all; a page cache is emulated for "
        "those that map the file, so bound it by --node-mib")
    add("--tuned", action="store_true", help="simulate by what lmdbio tune measures on the mounts "
        "beforehand, not by the constants of the model")
    add("--transports", default="mpi", metavar="T,...",
        help=f"of {','.join(TRANSPORTS)}, each of which Readers and Loaders use in turn (mpi); "
        "mpiexec starts the ranks, torchrun does for sockets alone")
    add("--busy", action="store_true",
        help="each lane a second time, whose ranks compute in Python for --compute-ms")
    add("--sets", metavar="SETS", help=f"of {','.join(SETS)}")
    add("--assignments", metavar="A,...", help=f"of {','.join(ASSIGNMENTS)} (blocked)")
    add("--scalings", metavar="S,...", help=f"of {','.join(SCALINGS)} (strong)")
    add("--tokens", metavar="N,...", help="of mode stag, each a lane of its own (1,2,4)")
    add("--engines", default="", metavar="E,...",
        help=f"instead of the modes' own, each a lane of its own: of {','.join(ENGINES)}")
    add("--block-iterations", type=int, default=0, metavar="K",
        help="of modes that coalesce; 0: as they choose")
    add("--cache", default=CACHE, metavar="WORDS",
        help=f"of each root, in modes {CACHED}, {LOCAL}, {MIXED} and policies ({CACHE})")
    add("--memory-mib", type=int, metavar="N", help="memory_bytes_max of every Reader")
    add("--node-mib", type=int, default=0, metavar="N",
        help="memory of each node, by a control group of all ranks (unbounded)")
    add("--seed", type=int, default=0, metavar="N", help="of the first cell, from which others "
        "count on (0)")
    add("--depth", type=int, metavar="N", help="of every Reader, as --request-kib and --slots")
    add("--request-kib", type=int, metavar="N", help="request_bytes_max")
    add("--slots", type=int, metavar="N", help="slots of the window")
    add("--batch", type=int, default=0, metavar="B",
        help="records of an iteration in strong scaling; 0: as many as give 64 (3k) or 16 (192k) "
        "iterations")
    add("--share", type=int, default=2, metavar="N",
        help="records of a rank's part of a batch in weak scaling (2, as in the paper)")
    add("--compute-ms", type=float, default=0.0, metavar="MS",
        help="ranks sleep so long after each iteration, as training would (0); what reading still "
        "shows of itself is judged")
    add("--epochs", type=int, default=1, metavar="N", help="that a run reads (1)")
    add("--barrier", action="store_true", help="ranks wait for one another after each iteration")
    add("--mib", type=int, metavar="N", help="size of each data set's file (256)")
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help=f"another constant of the model; x2 is twice the usual: {' '.join(pfs.constants())}")
    add("--factors", metavar="F,...",
        help="of out_of_order_ms, each a store of its own, such as 0.5,1,2 (1)")
    add("--block-sizes", action="store_true", default=None,
        help="also what one process gets by the size of its requests")
    add("--limit-seconds", type=float, default=120.0, help="a longer run has failed (120)")
    add("--no-verify", action="store_true", help="do not look at every byte first")
    add("--drop-data-only", action="store_true",
        help="put the data alone out of the page cache before a run; others may need theirs")
    # fmt: on
    asked = parser.parse_args(words)
    for name, value in (USUAL | PRESETS.get(asked.preset or "", {})).items():
        if getattr(asked, name) is None:
            setattr(asked, name, value)
    try:
        settle(asked)
    except ValueError as error:
        parser.error(str(error))
    return asked


def settle(asked: argparse.Namespace) -> None:
    """Words to values.

    Raises:
        ValueError: one of them makes no sense.
    """
    asked.modes = words_of(MODES, asked.modes)
    asked.sets = words_of(tuple(SETS), asked.sets)
    asked.assignments = words_of(ASSIGNMENTS, asked.assignments)
    asked.scalings = words_of(SCALINGS, asked.scalings)
    asked.engines = words_of(ENGINES, asked.engines) if asked.engines else ("",)
    asked.tokens = numbers_of(asked.tokens)
    nodes = numbers_of(asked.nodes)
    ranks = numbers_of(asked.ranks)
    if asked.fill:
        asked.shapes = [Shape(count, max(1, count // asked.fill)) for count in ranks]
    else:
        asked.shapes = shapes_of(ranks, nodes, asked.ranks_per_node_max)
    if max(shape.nodes for shape in asked.shapes) > NODES_MAX:
        raise ValueError(f"there are up to {NODES_MAX} nodes")
    asked.factors = tuple(float(word) for word in asked.factors.split(","))
    asked.constants = pfs.constants(asked.set)
    asked.lanes = mode_lanes(
        asked.modes, asked.tokens, asked.engines, asked.block_iterations, asked.cache
    )
    if asked.policies:
        asked.modes = ()
        asked.lanes = policy_lanes(words_of(POLICIES, asked.policies), asked.cache)
    if asked.placements:
        asked.modes = ()
        asked.lanes = placement_lanes(words_of(PLACEMENTS, asked.placements), asked.cache)
    if asked.loaders:
        asked.modes = ()
        asked.lanes = loader_lanes(words_of(tuple(LOADERS), asked.loaders), asked.cache)
    if asked.policies or asked.placements:
        asked.request_kib = asked.request_kib or MIB // 1024
    if asked.tuned:  # a prediction of one order would say little of others
        asked.lanes = [replace(lane, seed=100 * i) for i, lane in enumerate(asked.lanes)]
    asked.transports = words_of(TRANSPORTS, asked.transports)
    if asked.busy and not asked.compute_ms:
        raise ValueError("--busy computes for --compute-ms: give it")
    asked.lanes = variants(asked.lanes, asked.transports, has_busy=asked.busy)
    reader = {
        "memory_bytes_max": asked.memory_mib and asked.memory_mib * MIB,
        "depth": asked.depth,
        "request_bytes_max": asked.request_kib and asked.request_kib * 1024,
        "slots": asked.slots,
    }
    asked.reader = {name: value for name, value in reader.items() if value is not None}
    if min(asked.rounds, asked.mib, asked.share, asked.epochs) < 1 or asked.limit_seconds <= 0:
        raise ValueError("--rounds, --mib, --share, --epochs and --limit-seconds are above 0")


# --- data sets -----------------------------------------------------------------------------


def recipe(name: str, mib: int) -> Recipe:
    """A set whose file has about this size: a record takes whole pages, the first with a
    header."""
    wanted = SETS[name]
    pages = -(-(wanted.value_bytes + PAGE_HEADER) // PAGE_BYTES)
    size = mib * MIB * wanted.value_bytes // (pages * PAGE_BYTES)
    fixed = wanted.value_bytes if wanted.kind == "fixed" else 0
    return Recipe(name, wanted.kind, max(1, size), record_bytes=fixed)


# --- the order of events -------------------------------------------------------------------


def cells_of(asked: argparse.Namespace, made: dict[str, Dataset]) -> list[Cell]:
    found = [
        cell
        for factor in asked.factors
        for name, dataset in made.items()
        for cell in cells(
            SETS[name],
            dataset.count,
            asked.shapes,
            asked.scalings,
            asked.assignments,
            share=asked.share,
            batch=asked.batch,
            factor=factor,
            compute_ms=asked.compute_ms,
            epochs=asked.epochs,
        )
    ]
    return [replace(cell, seed=seed) for seed, cell in enumerate(found, asked.seed)]


def measured(asked: argparse.Namespace, told: Told, console: Console) -> None:
    """Make the data, and measure all cells."""
    lacking = cluster.missing((*asked.transports, *["mpi"] * asked.tuned))  # mpiexec starts tune
    if lacking:
        raise command.Missing(lacking)
    # Of one size in one folder, which is all that the mounts show and hold in memory.
    folder = asked.folder = asked.data / f"{asked.mib}-mib"
    made = {
        name: datasets.prepare(recipe(name, asked.mib), folder, console, converted=True)
        for name in asked.sets
    }
    for one in made.values():
        others.write_forms(one.path, {lane.kind for lane in asked.lanes})
    report = Report({
        name: asdict(one)
        | {"path": name, "sidecar_bytes": find_sidecar(one.data_file).stat().st_size}
        for name, one in made.items()
    })  # fmt: skip
    try:
        with tuned.kept_apart():
            measuring = Measuring(asked, report, console)
            measuring.run(cells_of(asked, made), asked.sets[0] if asked.block_sizes else "")
    finally:
        reporting.tell(told, report)


def main(words: list[str]) -> int:
    asked = parse(words)
    with cluster.own_folder("cluster-run-"):
        return conduct("cluster", asked, measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
