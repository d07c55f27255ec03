"""Measures everything that lmdbio has to hold: speed, processor time and memory.

    python -m benchmarks.targets.run --data FOLDER [--only cold,warm] [--rounds 7] [--html FILE]

Makes six data sets in FOLDER (three of 2 GiB, and three of up to 240 MiB that lie on disk as those
of many scripts do) unless they are there, then goes through
the cells of cells.py: calibrates the plain readers, compares what everybody reads, and alternates
everybody round by round, each run in processes of its own. The bounds are judged at the end;
the JSON has every sample.

The exit status is 0 if all was reached, 1 if something was not, 2 if something has no figure,
69 if this machine lacks what the whole takes, 70 if the whole could not go on (one line says why:
no room for a data set, say), and 128 and the signal's number if it was interrupted. Figures
measured up to then are kept.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import lmdb
from rich.console import Console

from benchmarks.command import Failed, Missing, words_of
from benchmarks.harness import Told, conduct, race_parser
from benchmarks.targets import places, show
from benchmarks.targets.cells import CELLS, GROUPS, PLAIN, SETS, Cell, Lane, chosen
from benchmarks.targets.show import Measured
from lmdbio.bench import datasets, measure, micro, trials
from lmdbio.bench.datasets import Recipe
from lmdbio.bench.findings import MIB, Findings, Row
from lmdbio.bench.trials import Trial, Workload
from lmdbio.bench.workplace import Workplace, workplace

#: Of the file: enough to tell one setting of a plain reader from another.
CALIBRATION_BYTES = 256 * MIB
#: Of the file, for comparing what everybody reads.
VERIFY_BYTES = 64 * MIB


# --- the command line -----------------------------------------------------------------------


def scaled(asked: argparse.Namespace, size: int) -> int:
    """Return so many bytes as ``--scale`` leaves of a size."""
    return max(1, int(size * asked.scale))


def parse(words: list[str]) -> argparse.Namespace:
    parser = race_parser("benchmarks.targets.run", __doc__ or "", data="target-data", rounds=7)
    # fmt: off
    add = parser.add_argument
    add("--use", action="append", default=[], metavar="SET=PATH",
        help=f"measure this environment and make none; SET: {', '.join(SETS)}. Nothing is "
        "written to it: convert it first")
    add("--only", default="all", metavar="GROUPS",
        help=f"of {','.join(GROUPS)}")
    add("--sets", default="all",
        metavar="SETS", help=f"of {','.join(SETS)}")
    add("--limit-seconds", type=float, default=120.0,
        help="a single run that takes longer has failed (120)")
    add("--scale", type=float, default=1.0,
        help="of the bytes of all sets and runs, for a quick look (1)")
    add("--no-verify", action="store_true", help="do not compare what everybody reads first")
    add("--drop-data-only", action="store_true",
        help="put the data alone out of the page cache before cold runs; others may need theirs")
    # fmt: on
    asked = parser.parse_args(words)
    if asked.limit_seconds <= 0 or not 0 < asked.scale <= 1:
        parser.error("--limit-seconds is above 0, --scale above 0 and up to 1")
    try:
        asked.only = words_of(GROUPS, asked.only)
        asked.sets = words_of(tuple(SETS), asked.sets)
    except ValueError as error:
        parser.error(f"--only, --sets: {error}")
    asked.environments = {}
    for word in asked.use:
        name, _, path = word.partition("=")
        if name not in SETS or not path:
            parser.error(f"--use {word}: write SET=PATH; SET: {', '.join(SETS)}")
        asked.environments[name] = Path(path)
    return asked


# --- data sets ------------------------------------------------------------------------------


def recipe(name: str, asked: argparse.Namespace) -> Recipe:
    wanted = SETS[name]
    return Recipe(
        f"fixed-{name}",
        "fixed",
        scaled(asked, wanted.bytes),
        record_bytes=wanted.record_bytes,
        order=wanted.order,
    )


def prepare(name: str, asked: argparse.Namespace, console: Console) -> Path:
    """Return the environment of a set, made, and converted as it says, if it is not there.

    Raises:
        OSError: there is no room.
    """
    if name in asked.environments:
        return Path(asked.environments[name])
    return datasets.prepare(
        recipe(name, asked), asked.data, console, converted=SETS[name].is_converted
    ).path


# --- a cell ---------------------------------------------------------------------------------


class Cells:
    """Measures cells, one after the other, into ``measured``."""

    def __init__(self, asked: argparse.Namespace, console: Console) -> None:
        self.asked, self.console = asked, console
        self.measured: list[Measured] = []
        #: The fault of what a contestant read; "" if nothing was.
        self.compared: dict[tuple[str, str, str, int], str] = {}

    def measure(self, cell: Cell, folder: Path) -> None:
        """Measure a cell; ``measured`` has every figure up to the moment at which it ends."""
        made = Measured(cell)
        self.measured.append(made)
        self.console.rule(f"{len(self.measured)}. {cell.name}", align="left", style="dim")
        try:
            with places.at(cell.place, folder) as place, workplace() as bench:
                made.place, made.link = place.words, place.link
                bench.warm = bench.consume = cell.warm
                bench.drop_all = not self.asked.drop_data_only
                bench.limit_seconds = self.asked.limit_seconds
                bench.environment, bench.prefix = dict(cell.environment), place.prefix
                self.rows(bench, made, place.folder)
                if not self.asked.no_verify:
                    self.compare(bench, made, folder)
                self.alternate(bench, made)
        except (Missing, Failed, OSError, ValueError, lmdb.Error) as error:
            # The other cells may still do.
            made.why = str(error) or type(error).__name__
            self.console.print(made.why, style="bold yellow", markup=False, highlight=False)

    def work(self, cell: Cell, lane: Lane, folder: Path, bytes_max: int = 0) -> Workload:
        """Return the records that a lane reads."""
        return micro.describe(
            folder,
            cell.access,
            processes=lane.processes,
            batch=cell.batch,
            bytes_max=scaled(self.asked, bytes_max or lane.bytes_max or cell.bytes_max),
        )

    def rows(self, bench: Workplace, made: Measured, folder: Path) -> None:
        """Everybody who takes part, the plain readers with their best setting."""
        cell = made.cell
        for lane in cell.lanes:
            work = self.work(cell, lane, folder)
            if made.findings is None:
                made.findings = Findings(
                    measure.machine(Path(work.data_file)), work,
                    cold=not cell.warm, repeats=self.asked.rounds, versions=micro.versions(),
                )  # fmt: skip
            if lane.name == PLAIN:
                made.rows[PLAIN] = self.calibrate(bench, made, work, folder)
                continue
            (trial,) = trials.make_trials(work, [lane.contestant], (), micro.missing(work))
            row = bench.row(trial, work)
            if lane.processes > 1:
                row.called = f"{row.title}, {lane.processes} ranks"
            made.rows[lane.name] = [row]

    def calibrate(
        self, bench: Workplace, made: Measured, work: Workload, folder: Path
    ) -> list[Row]:
        """The best setting of each plain program, whose figures are yet to be measured.

        If none could be run, all that was tried, with what went wrong.
        """
        cell = made.cell
        part = self.work(cell, Lane(PLAIN), folder, min(cell.bytes_max, CALIBRATION_BYTES))
        absent = micro.missing(part)
        names = [name for name in cell.plain if name not in absent]
        # The built-in readers make the requests of ior.
        names = names or ["plain-pread", "plain-direct"]
        sizes = [size or part.record_bytes for size in cell.transfers]
        tried = [bench.row(trial, part) for trial in trials.make_trials(part, names, sizes)]
        made.calibration = tried
        micro.alternate(bench, tried, 1, self.console, title="calibrate")
        best: dict[str, Row] = {}
        for row in tried:
            other = best.get(row.family)
            if row.rates and (other is None or row.rates[0] > other.rates[0]):
                best[row.family] = row
        again = [
            trials.make_trials(work, [row.trial.name], [row.trial.transfer])[0]
            for row in best.values()
        ]
        return [bench.row(trial, work) for trial in again] or tried

    def compare(self, bench: Workplace, made: Measured, folder: Path) -> None:
        """Compares a part of what everybody reads with py-lmdb's; once for each way of reading.

        The file is the same at every place: it is read where it lies.
        """
        cell = made.cell
        pending = {}
        for lane in cell.lanes:
            key = (cell.dataset, cell.access, lane.contestant, lane.processes)
            if lane.name != PLAIN and key not in self.compared:
                work = self.work(cell, lane, folder, min(cell.bytes_max, VERIFY_BYTES))
                pending[key] = Row(Trial(lane.contestant, bytes=work.page_bytes), work)
        micro.verify(bench, list(pending.values()), self.console)
        self.compared |= {key: row.wrong for key, row in pending.items()}
        for lane in cell.lanes:
            key = (cell.dataset, cell.access, lane.contestant, lane.processes)
            for row in made.rows[lane.name] if lane.name != PLAIN else ():
                row.wrong = row.wrong or self.compared[key]
                row.verified = not row.wrong

    def alternate(self, bench: Workplace, made: Measured) -> None:
        """The rounds; who adds up to another checksum than most is wrong."""
        assert made.findings is not None
        work, rows = made.findings.workload, made.every
        made.findings.rows = rows
        if made.cell.warm:
            micro.warm(Path(work.data_file), work.file_bytes, self.console)
        micro.alternate(bench, rows, self.asked.rounds, self.console)
        for row in rows:
            same = [
                other
                for other in rows
                if other.work == row.work
                and other.runs
                and other.trial.contestant.arrays == row.trial.contestant.arrays
            ]
            if (
                row.runs
                and row.runs[0].digest != same[0].runs[0].digest
                and not row.trial.contestant.raw
            ):
                row.wrong = f"its values add up to something else than those of {same[0].label}"


# --- the order of events --------------------------------------------------------------------


def run(asked: argparse.Namespace, told: Told, console: Console) -> None:
    """Go through the cells, and note what was measured, however it ends."""
    cells = Cells(asked, console)
    folders: dict[str, Path] = {}
    try:
        for cell in chosen(asked.only, asked.sets, CELLS):
            if cell.dataset not in folders:
                folders[cell.dataset] = prepare(cell.dataset, asked, console)
            cells.measure(cell, folders[cell.dataset])
    finally:
        show.tell(told, cells.measured)


def main(words: list[str]) -> int:
    return conduct("targets", parse(words), run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
