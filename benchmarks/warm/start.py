"""Measures what a process takes that has just begun: the drop-in beside py-lmdb, and commands.

    python -m benchmarks.warm.start [--rounds 15]

Each round starts each process once, in turn. They open a small file, get a value, and iterate; CPU
seconds are of the whole process, Python's own start included, so that other work on the machine
counts little. Run it where lmdbio is installed as users install it: an editable installation adds
what it takes to find it.

The exit status is 0 if all bounds were reached, 1 if one was not.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import click
import lmdb

__all__ = ["PROGRAMS", "Took", "measure"]

RECORDS = 3000
GET = """if True:
    import sys, {package}
    with {package}.open(sys.argv[1], readonly=True, lock=False) as env, env.begin() as txn:
        assert txn.get(b"000007") is not None
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
        RuntimeError: it failed.
    """
    begun, child = time.perf_counter(), os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.execv(words[0], words)
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"{' '.join(words)}: status {os.waitstatus_to_exitcode(status)}")
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


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True)
def main(rounds: int) -> None:
    """Print the medians, and compare them with the bounds."""
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "env")
        with lmdb.open(data, map_size=1 << 26) as env, env.begin(write=True) as txn:
            for index in range(RECORDS):
                txn.put(b"%06d" % index, b"x" * 3000)
        programs = _programs(data)
        took: dict[str, list[Took]] = {name: [] for name in programs}
        for at in range(rounds + 1):  # the first one compiles
            for name, words in programs.items():
                found = measure(words)
                took[name] += [found] * (at > 0)
    wall, cpu = ({name: median(one[i] for one in took[name]) for name in took} for i in (0, 1))
    for name in took:
        print(f"{name:<16} {1e3 * wall[name]:7.1f} ms  {1e3 * cpu[name]:7.1f} ms of CPU")
    verdicts = {
        f"{name}, over py-lmdb's CPU": (cpu[f"{name} lmdbio"] / cpu[f"{name} lmdb"], RATIO_MAX)
        for name in PROGRAMS
    } | {f"lmdbio {name}, s": (wall[name], most) for name, most in COMMANDS.items()}
    for name, (value, most) in verdicts.items():
        print(f"{'ok' if value <= most else 'ABOVE':<6} {name}: {value:.2f}, at most {most:.2f}")
    sys.exit(any(value > most for value, most in verdicts.values()))


if __name__ == "__main__":
    main()
