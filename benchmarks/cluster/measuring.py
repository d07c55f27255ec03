"""Measures cells, launch after launch, into a report that is good at any moment."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console

from benchmarks.cluster import cluster, memory, tuned
from benchmarks.cluster.results import CellResult, LaneResult
from benchmarks.cluster.sweep import (
    PLAIN,
    Cell,
    Lane,
    Run,
    Shape,
    block_sizes,
    candidates,
    in_turns,
)
from benchmarks.cluster.table import cell_table
from benchmarks.command import Failed
from benchmarks.pfs import pfs
from lmdbio.bench import measure

MIB = 2**20
#: Enough to tell one setting of a plain reader from another.
CALIBRATION_BYTES = 96 * MIB
#: Of ``lmdbio tune``, before anything else reads from a store.
TUNE_SECONDS = 3.0
#: Of a run with blocks of one size: so many requests, and bytes at most.
BLOCK_REQUESTS, BLOCK_BYTES = 512, 64 * MIB


@dataclass(slots=True)
class Report:
    """Everything that was measured up to now.

    Attributes:
        sets: facts of the data sets, by name.
        cells: in the order of measuring.
        calibrations: of plain readers: a result for each shape and data set.
        blocks: of one process, by the size of its requests.
        stores: in words, one for each set of constants.
    """

    sets: dict[str, Any]
    cells: list[CellResult] = field(default_factory=list)
    calibrations: list[CellResult] = field(default_factory=list)
    blocks: list[CellResult] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)


class Measuring:
    """Measures into a report, and shows what comes.

    Args:
        asked: what ``run.parse`` gives, settled, and "folder", which the mounts show.
        report: for everything that is measured.
        console: for what comes.
    """

    def __init__(self, asked: Namespace, report: Report, console: Console) -> None:
        self.asked, self.report, self.console = asked, report, console
        #: The best plain readers, by data set and shape.
        self.ceilings: dict[tuple[str, Shape], list[Lane]] = {}

    def run(self, cells: Sequence[Cell], block_set: str = "") -> None:
        """Measures all cells, with those of one store before the next.

        Args:
            cells: what to measure.
            block_set: with this data set, also what one process gets by the size of its requests.
        """
        machine = measure.machine(self.asked.folder)
        self.console.print(
            f"{machine.facts['machine']}; the mounts' page "
            f"cache is emptied before each run{' of the data' * self.asked.drop_data_only}",
            style="dim", highlight=False,
        )  # fmt: skip
        for factor in dict.fromkeys(cell.factor for cell in cells):
            for nodes in dict.fromkeys(cell.shape.nodes for cell in cells):
                wanted = [c for c in cells if (c.factor, c.shape.nodes) == (factor, nodes)]
                if not wanted:
                    continue
                constants = dict(self.asked.constants)
                constants["out_of_order_ms"] *= factor
                with pfs.mounted(self.asked.folder, mounts=nodes, constants=constants) as store:
                    if store.words not in self.report.stores:
                        self.report.stores.append(store.words)
                    self.console.rule(f"{nodes} emulated nodes: {store.words}", align="left")
                    if self.asked.tuned:
                        tuned.tune(store, wanted[0].dataset, TUNE_SECONDS)
                    if block_set and nodes == 1 and factor == 1:
                        self.block_sizes(store, block_set)
                    for shape in dict.fromkeys(cell.shape for cell in wanted):
                        self.shape(store, shape, [cell for cell in wanted if cell.shape == shape])

    # --- one shape ------------------------------------------------------------------------

    def shape(self, store: pfs.Store, shape: Shape, cells: Sequence[Cell]) -> None:
        """All cells of one shape, by the same ranks."""
        made = [
            CellResult(cell, [LaneResult(lane) for lane in self.asked.lanes]) for cell in cells
        ]
        if PLAIN in self.asked.modes:
            for dataset in dict.fromkeys(cell.dataset for cell in cells):
                if (dataset, shape) not in self.ceilings:
                    self.ceilings[dataset, shape] = self.calibrate(store, shape, dataset)
            for one in made:
                ceiling = self.ceilings[one.cell.dataset, shape]
                one.lanes += [LaneResult(lane) for lane in ceiling]
        self.report.cells += made
        runs, looked = [], set[tuple[str, str]]()
        for place, one in enumerate(made):
            turns = in_turns(
                place, [each.lane for each in one.lanes], self.asked.rounds, self.size(one.cell)
            )
            # Once for each assignment; other batches of the same set have nothing new to see.
            kind = (one.cell.dataset, one.cell.assignment)
            looks = not self.asked.no_verify and kind not in looked
            looked.add(kind)
            runs += [run for run in turns if looks or not run.verifies]
        self.launch(store, shape, made, runs, show=True)

    def size(self, cell: Cell) -> int:
        """Bytes of the file that plain readers read: about those that the records lie in."""
        told = self.report.sets[cell.dataset]
        return int(told["file_bytes"] * cell.records / told["count"])

    def calibrate(self, store: pfs.Store, shape: Shape, dataset: str) -> list[Lane]:
        """Return the best plain reader of each pattern, after one run of each on a part."""
        cell = Cell(dataset, shape, "calibration", "-", shape.ranks, 1)
        made = CellResult(cell, [LaneResult(lane) for lane in candidates(shape)])
        size = min(CALIBRATION_BYTES, self.report.sets[dataset]["file_bytes"])
        runs = [Run(0, one.lane, 0, size) for one in made.lanes]
        self.launch(store, shape, [made], runs, show=False)
        self.report.calibrations.append(made)
        known = sorted((one for one in made.lanes if one.runs),
                       key=lambda one: one.median("rate") or 0.0)  # fmt: skip
        return list({one.lane.access: one.lane for one in known}.values())

    def block_sizes(self, store: pfs.Store, dataset: str) -> None:
        """One process by the size of its requests."""
        shape = Shape(1, 1)
        lanes = block_sizes()
        made = CellResult(
            Cell(dataset, shape, "block size", "-", 1, 1), [LaneResult(lane) for lane in lanes]
        )
        self.report.blocks.append(made)
        runs = [
            Run(
                0, lane, turn, max(lane.transfer, min(BLOCK_BYTES, BLOCK_REQUESTS * lane.transfer))
            )
            for turn in range(self.asked.rounds)
            for lane in lanes
        ]
        self.launch(store, shape, [made], runs, show=False)

    # --- one launch after the other ----------------------------------------------------------

    def launch(
        self,
        store: pfs.Store,
        shape: Shape,
        made: Sequence[CellResult],
        runs: Sequence[Run],
        *,
        show: bool,
    ) -> None:
        """All runs, by ranks that are started anew, without the one at fault, when they end
        before their time."""
        shown = 0
        waiting = list(runs)
        while waiting:
            done = self.attempt(store, shape, made, waiting)
            if done < len(waiting):
                # The lane that was at it is out, here and in the cells after it.
                lane = waiting[done].lane
                waiting = [run for run in waiting[done:] if run.lane != lane]
            else:
                waiting = []
            left = min((run.cell for run in waiting), default=len(made))
            for one in made[shown:left] if show else ():
                self.console.print(cell_table(one).on_screen())
                for name, words in one.commands.items():
                    self.console.print(f"{name}: {words}", style="dim", highlight=False)
            shown = max(shown, left)

    def attempt(
        self, store: pfs.Store, shape: Shape, made: Sequence[CellResult], runs: Sequence[Run]
    ) -> int:
        """How many of the runs were told of; the next one is at fault if that is not all."""
        with memory.bounded(self.asked.node_mib * shape.nodes * MIB) as group:
            return self.ranks(store, shape, made, runs, group)

    def ranks(
        self,
        store: pfs.Store,
        shape: Shape,
        made: Sequence[CellResult],
        runs: Sequence[Run],
        group: str,
    ) -> int:
        """The same, by ranks in a control group."""
        done = 0
        plan = {
            "drop_all": not self.asked.drop_data_only,
            "barrier": self.asked.barrier,
            "reader": self.asked.reader,
            "constants": dict(store.constants),
            "tuned": self.asked.tuned,
            "transports": self.asked.transports,
            "group": group,
            "cells": [asdict(one.cell) for one in made],
            "runs": [run.as_json() for run in runs],
        }
        with self.console.status(f"{shape}: starting ranks") as status:

            def say(number: int, seconds: float) -> None:
                run = runs[min(number, len(runs) - 1)]
                slow = f", {seconds:.0f} s" if seconds > 3 else ""
                turn = "looks at every byte" if run.verifies else f"round {run.round + 1}"
                status.update(
                    f"{made[run.cell].cell}: {run.lane.name}, {turn} "
                    f"({number + 1} of {len(runs)}){slow}"
                )

            try:
                limit = self.asked.limit_seconds
                for told in cluster.run_ranks(
                    store, shape.ranks, plan, seconds_max=limit, waiting=say
                ):
                    note(lane_of(made, runs[told["run"]]), runs[told["run"]], told)
                    done += 1
                    say(done, 0.0)
            except Failed as error:
                if done < len(runs):
                    lane_of(made, runs[done]).error = str(error)
                    self.console.print(f"[red]{made[runs[done].cell].cell}: "
                                       f"{runs[done].lane.name}: {error}[/]")  # fmt: skip
        return done


def lane_of(made: Sequence[CellResult], run: Run) -> LaneResult:
    return next(one for one in made[run.cell].lanes if one.lane == run.lane)


def note(lane: LaneResult, run: Run, told: dict[str, Any]) -> None:
    """Put what came of a run where it belongs."""
    if told["error"]:
        lane.error = told["error"]
    elif run.verifies:
        lane.sum = told["sum"]
    else:
        lane.runs.append(told | {"round": run.round})
