"""Five papers in one report: what each claims, and what this code gives for it.

    python -m benchmarks.papers.run                 # everything: half an hour
    python -m benchmarks.papers.run --quick         # a look: three minutes
    python -m benchmarks.papers.run --only auto,prediction

Runs the emulated cluster (benchmarks.cluster), the simulator, and the arithmetic of tests/papers,
one after the other, and writes one page: for each figure and table of the five papers the claim,
and what answers it here, with spread, or why nothing does. Each number names the run that it comes
from; the page has the command of each.

A run that fails is told, and the others go on. The exit status is 0 if all that must hold was
reached, 1 if something was not, 2 if a run failed, 69 if this machine lacks something, 128 and the
signal's number if it was interrupted. All results up to then are kept.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks.cluster import cluster
from benchmarks.harness import Told, conduct
from benchmarks.papers import simulated
from benchmarks.papers.claims import Result, read_claims
from benchmarks.papers.page import Done, Report, tell
from benchmarks.papers.runs import RUNS, Run
from lmdbio.bench import processes

CLUSTER = "benchmarks.cluster.run"
CASES, SIMULATOR = "cases", "simulator"
NAMES = (CASES, SIMULATOR, *(run.name for run in RUNS))
#: A run of the cluster may return these: all is well, something was not reached, a lane failed.
TOLD = (0, 1, 2)
SECONDS_MAX = 1200.0


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments."""
    parser = command.plain_parser("benchmarks.papers.run", __doc__ or "")
    add = parser.add_argument
    add("--quick", action="store_true", help="three minutes: fewer runs, smaller data")
    add("--only", default="all", metavar="RUNS", help=f"of {', '.join(NAMES)}")
    add("--out", type=Path, default=Path("papers-results"), metavar="FOLDER",
        help="papers.html, papers.json, and the report of each run (papers-results)")  # fmt: skip
    add("--data", type=Path, default=Path("cluster-data"), metavar="FOLDER",
        help="of the data sets; kept, and reused (cluster-data)")  # fmt: skip
    asked = parser.parse_args(words)
    try:
        asked.only = command.words_of(NAMES, asked.only)
    except ValueError as error:
        parser.error(str(error))
    asked.json, asked.html = asked.out / "papers.json", asked.out / "papers.html"
    return asked


class Making:
    """Makes a report, run after run."""

    def __init__(self, asked: argparse.Namespace, console: Console) -> None:
        self.asked, self.console, self.report = asked, console, Report(read_claims())

    def make_all(self) -> None:
        """Make what was asked for, in turn."""
        if CASES in self.asked.only:
            self.step(CASES, ("python -m pytest tests/papers",), self.cases)
        if SIMULATOR in self.asked.only:
            itself = shlex.join(["python", "-m", "benchmarks.papers.run", "--only", SIMULATOR])
            quick = self.asked.quick
            self.step(SIMULATOR, (itself,), lambda: self.take(simulated.all_results(quick=quick)))
        for run in RUNS:
            words = run.quick if self.asked.quick else run.words
            if run.name in self.asked.only and words:
                self.cluster(run, words)

    def step(self, name: str, words: Sequence[str], work: Callable[[], None]) -> None:
        """Do a part of it, and note how it ended."""
        self.console.rule(name, align="left")
        begun, error = time.monotonic(), ""
        try:
            work()
        except (command.Failed, ValueError, KeyError, LookupError) as failed:
            error = f"{type(failed).__name__}: {failed}"
            self.console.print(f"[red]{name}: {error}[/]")
        self.report.runs.append(Done(name, tuple(words), time.monotonic() - begun, error))

    def take(self, results: Iterable[Result]) -> None:
        """Note results, and show what they say."""
        for made in results:
            self.report.results[made.name] = made
            self.console.print(f"{made.name}: {made.answer}", highlight=False)

    def cases(self) -> None:
        """Check the arithmetic."""
        self.report.cases, self.report.case_table, verdicts = simulated.check_cases()
        self.report.verdicts += verdicts

    # --- the cluster

    def cluster(self, run: Run, words: Sequence[str]) -> None:
        """Make a run of the cluster, and those that follow from it."""
        commands: list[str] = []

        def work() -> None:
            found = [self.launch(run.name, one, commands) for one in words]
            if run.after is not None:
                found += [self.launch(run.name, one, commands) for one in run.after(found)]
            made = list(run.results(found))
            assert {one.name for one in made} == set(run.gives), run.name
            self.take(made)

        self.step(run.name, commands, work)

    def launch(self, name: str, words: str, commands: list[str]) -> dict[str, Any]:
        """Run the cluster once; return its report.

        Raises:
            Failed: there is none.
        """
        given = shlex.split(words)
        if "--data" not in given:
            given += ["--data", str(self.asked.data)]
        commands.append(shlex.join(["python", "-m", CLUSTER, *given]))
        self.console.print(commands[-1], style="dim", highlight=False, soft_wrap=True)
        file = self.asked.out / f"{name}-{len(commands)}.json"
        file.unlink(missing_ok=True)
        python = [sys.executable, "-m", CLUSTER, *given, "--json", str(file.absolute())]
        with subprocess.Popen(
            python, env=processes.inherited(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            try:
                said, _ = process.communicate(timeout=SECONDS_MAX)
            except BaseException:
                process.terminate()  # it takes down what it has made
                process.wait()
                raise
        if process.returncode not in TOLD or not file.exists():
            lines = [line for line in said.splitlines() if line.strip()]
            raise command.Failed(
                f"the cluster ended with status {process.returncode}: {' | '.join(lines[-3:])}"
            )
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found


def measured(asked: argparse.Namespace, told: Told, console: Console) -> None:
    """Make what was asked for.

    Raises:
        Missing: this machine cannot emulate a cluster.
        OSError: nothing can be written where the report is to be.
    """
    lacking = cluster.missing()
    if lacking:
        raise command.Missing(lacking)
    for folder in (asked.out, asked.data):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(asked.out, os.W_OK):
        raise PermissionError(errno.EACCES, "nothing can be written there", str(asked.out))
    making = Making(asked, console)
    try:
        making.make_all()
    finally:
        tell(told, making.report)


def main(words: Sequence[str] | None = None) -> int:
    """Make the report; return the exit status."""
    return conduct("papers", parse(words), measured)


if __name__ == "__main__":
    sys.exit(main())
