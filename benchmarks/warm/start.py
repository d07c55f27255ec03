"""Measures what a process takes that has just begun: the drop-in beside py-lmdb, and commands.

    python -m benchmarks.warm.start [--rounds 15]

Each round starts each process once, in turn. They open a small file, get a value, and iterate; CPU
seconds are of the whole process, Python's own start included, so that other work on the machine
counts little. Run it where lmdbio is installed as users install it: an editable installation adds
what it takes to find it.

The exit status is 0 if all bounds were reached, 1 if one was not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from statistics import median

from rich.console import Console

from benchmarks.command import Failed
from benchmarks.harness import Told, by_turns, conduct, race_parser
from benchmarks.report import judged
from lmdbio.bench import datasets
from lmdbio.bench.datasets import Recipe

__all__ = ["PROGRAMS", "Took", "measure"]

RECORDS = 3000
GET = """if True:
    import sys, {package}
    with {package}.open(sys.argv[1], readonly=True, lock=False) as env, env.begin() as txn:
        assert txn.get(b"00000007") is not None
"""
ITERATE = f"{GET}        assert sum(1 for _ in txn.cursor()) == {RECORDS}\n"
PROGRAMS = {"get": GET, "iterate": ITERATE}
#: Over py-lmdb's CPU seconds; and of commands, seconds.
RATIO_MAX = 2.0
COMMANDS = {"--version": 0.15, "--help": 0.15, "info": 0.4}

#: Seconds by the clock, and of CPU.
Took = tuple[float, float]


def measure(words: list[str]) -> Took:
    """Run a program, and return what it took.

    Raises:
        Failed: it failed.
    """
    begun, child = time.perf_counter(), os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.execv(words[0], words)
    _, status, used = os.wait4(child, 0)
    if status:
        raise Failed(f"{' '.join(words)}: status {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime


def _programs(data: str) -> dict[str, list[str]]:
    python = sys.executable
    found = {
        f"{name} {package}": [python, "-c", code.format(package=package), data]
        for name, code in PROGRAMS.items()
        for package in ("lmdb", "lmdbio")
    }
    found |= {asked: [python, "-m", "lmdbio", asked] for asked in ("--version", "--help")}
    return found | {"info": [python, "-m", "lmdbio", "info", data]}


def measured(asked: argparse.Namespace, told: Told, _console: Console) -> None:
    """Start all programs by turns, and judge their medians."""
    recipe = Recipe("start", "fixed", RECORDS * 3000, record_bytes=3000)
    programs = _programs(str(datasets.ensure(recipe, asked.data)[0].path))
    took: dict[str, list[Took]] = {name: [] for name in programs}

    def started(name: str, _round: int) -> float:
        took[name].append(measure(programs[name]))
        return took[name][-1][0]

    by_turns(asked.rounds, *(partial(started, name) for name in programs), warmups=1)
    # The first round compiles.
    wall, cpu = ({name: median(one[i] for one in took[name][1:]) for name in took} for i in (0, 1))
    told.title = "A process that has just begun"
    for name in PROGRAMS:
        ours, theirs = cpu[f"{name} lmdbio"], cpu[f"{name} lmdb"]
        told.verdicts.append(judged(
            f"{name}, over py-lmdb's CPU seconds", "whole process", ours / theirs, most=RATIO_MAX,
            measured=f"{1e3 * ours:.1f} ms", against=f"{1e3 * theirs:.1f} ms",
        ))  # fmt: skip
    told.verdicts += [
        judged(f"lmdbio {name}, seconds", "whole process", wall[name], most=most)
        for name, most in COMMANDS.items()
    ]
    told.facts = {"took": took}


def main(words: Sequence[str]) -> int:
    parser = race_parser("benchmarks.warm.start", __doc__ or "", data="warm-data", rounds=15)
    return conduct("start", parser.parse_args(words), measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
