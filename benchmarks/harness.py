"""The parts that every benchmark has: options, contestants by turns, and how findings are told.

    def measure(asked, told, console):
        told.verdicts.append(judged(..., by_turns(asked.rounds, ours, theirs), ...))

    sys.exit(harness.conduct("name", asked, measure))

A benchmark that is interrupted, or fails, tells what it had found up to then.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from rich.console import Console

from benchmarks import command, report
from benchmarks.report import Verdict
from lmdbio.bench import measure
from lmdbio.bench.findings import figure
from lmdbio.cli.output import wide_console
from lmdbio.page.document import facts_html, section
from lmdbio.page.table import Table

__all__ = ["Told", "by_turns", "conduct", "judged", "race_parser", "turns"]

Contestant = TypeVar("Contestant")


# --- options -------------------------------------------------------------------------------


def race_parser(program: str, words: str, *, data: str, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of what every race takes: --data, --rounds, --json, --html.

    Args:
        program: name of the module, as ``python -m`` has it.
        words: help on what it does, printed as it is.
        data, rounds: folder of the data and number of rounds where nothing is said.
    """
    made = command.plain_parser(program, words)
    add = made.add_argument
    add("--data", type=Path, default=Path(data), metavar="FOLDER",
        help=f"of the data sets; kept, and reused ({data})")  # fmt: skip
    add("--rounds", type=_rounds, default=rounds, metavar="N", help=f"runs of each ({rounds})")
    add("--json", type=Path, metavar="FILE", help="what was measured, and the verdicts")
    add("--html", type=Path, metavar="FILE", help="the same as a page")
    return made


def _rounds(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


# --- contestants by turns ------------------------------------------------------------------


def turns(contestants: Sequence[Contestant], rounds: int) -> Iterator[tuple[int, Contestant]]:
    """Yield the number of a round and the next contestant of it.

    Every other round goes backwards, so that what drifts meets all alike.
    """
    for number in range(rounds):
        for one in contestants if number % 2 == 0 else contestants[::-1]:
            yield number, one


def by_turns(
    rounds: int, *contestants: Callable[[int], float], warmups: int = 0
) -> list[list[float]]:
    """Return the figures of each contestant, which is called with the number of the round.

    Args:
        rounds: number of rounds that count.
        contestants: functions that measure once.
        warmups: number of rounds before them.
    """
    found: list[list[float]] = [[] for _ in contestants]
    for number, (figures, contestant) in turns(
        list(zip(found, contestants, strict=True)), warmups + rounds
    ):
        figures.append(contestant(number))
    return [figures[warmups:] for figures in found]


def judged(
    words: str,
    where: str,
    figures: Sequence[list[float]],
    *,
    least: float | None = None,
    most: float | None = None,
    unit: str,
    scale: float = 1.0,
) -> Verdict:
    """Judge the median ratio of the first contestant's figure to the second's of the same round.

    Args:
        words, where: see ``Verdict``.
        figures: figures of two contestants, round by round.
        least, most: the bound; without one it is reported alone.
        unit, scale: unit in which figures are shown, and how many of theirs it has.
    """
    ratios = [ours / theirs for ours, theirs in zip(*figures, strict=True)]
    ours, theirs = (f"{figure(median(one) / scale)} {unit}" for one in figures)
    return report.judged(
        words,
        where,
        median(ratios),
        least=least,
        most=most,
        ends=(min(ratios), max(ratios)),
        measured=ours,
        against=theirs,
    )


# --- telling -------------------------------------------------------------------------------


@dataclass(slots=True)
class Told:
    """The findings of a benchmark up to now.

    Attributes:
        title: title of the page.
        verdicts: verdicts on what must hold.
        parts: further tables, and what stands below each on the page, as HTML.
        lead: sentence above each of them on the page, below all in a terminal.
        lines: sentences at the end, in a terminal.
        more: sections at the end of the page, as HTML.
        style: further CSS of the page.
        facts: further values for the JSON file.
        summed: whether verdicts are shown by what must hold, not one by one.
        ended: reason why not everything was measured; "" if it was.
        failed: whether a contestant failed.
    """

    title: str
    verdicts: list[Verdict] = field(default_factory=list)
    parts: list[tuple[Table, str]] = field(default_factory=list)
    lead: str = ""
    lines: list[str] = field(default_factory=list)
    more: str = ""
    style: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    summed: bool = False
    ended: str = ""
    failed: bool = False

    @property
    def table(self) -> Table:
        """All verdicts."""
        if self.summed:
            return report.summary(self.verdicts)
        return report.verdict_table(self.verdicts, "What must hold")

    @property
    def status(self) -> int:
        """The exit status: 2 if a contestant failed, 1 if a bound was not reached, else 0."""
        return report.status(self.verdicts, failed=self.failed)


def conduct(
    name: str,
    asked: argparse.Namespace,
    measured: Callable[[argparse.Namespace, Told, Console], None],
) -> int:
    """Measure, tell what was found, and return the exit status.

    Args:
        name: name of the benchmark.
        asked: options of ``race_parser``, and further ones.
        measured: function that fills the findings; see ``command.guarded`` for what it raises.
    """
    console, begun = wide_console(width=170), time.monotonic()
    began = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    told = Told(name)

    def work() -> int:
        try:
            measured(asked, told, console)
        except BaseException as error:
            told.ended = "Interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
            raise
        finally:
            if told.verdicts or told.parts or told.more:
                tell(time.monotonic() - begun)
        return told.status

    def tell(seconds: float) -> None:
        for table in (*(table for table, _ in told.parts), told.table):
            if table.rows:
                console.print(table.on_screen())
        counted = report.counted(told.verdicts) or "nothing is judged"
        ended = f"; {told.ended}: not all was measured" if told.ended else ""
        for line in (told.lead, *told.lines, f"{counted}; {seconds:.0f} s{ended}"):
            console.print(line, highlight=False, markup=False)
        machine = measure.machine(asked.data)
        found = {"machine": asdict(machine), "began": began,
                 "command": sys.argv, "seconds": seconds, "ended": told.ended}  # fmt: skip
        verdicts = {"verdicts": report.as_json(told.verdicts)}
        report.write(asked.json, found | told.facts | verdicts)
        body = told.table.section() + "".join(
            table.section(told.lead, below) for table, below in told.parts
        )
        body += told.more + section("Machine", "", facts_html(machine.facts))
        page = report.page(name, began, told.title, told.verdicts, body, told.ended, told.style)
        report.write(asked.html, page)

    return command.guarded(work)
