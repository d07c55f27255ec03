"""Makes and closes Readers many times, with failures in between, and counts what is left.

    python tests/mpi/endure.py [--cycles N] [--failures N] [--ranks N] [--mpi NAME] [--seed S]
        [--struck N] [--stop SECONDS]

Each MPI that is there runs one job (endurance.py). Its ranks count what they hold after the first
cycles, when everything that is made once has been made, and at the end. Windows, mappings of
shared memory, descriptors, threads, child processes, communicators and files must be as many
as before; memory may grow by what allocators and the interpreter keep. Over sockets so many jobs
follow in which a rank is killed, stopped or ends in another way (sockets/struck.py). Ends with 1
when anything leaked, or a job failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import data
import launch
from rich.console import Console
from rich.table import Table

from lmdbio.convert.convert import convert

#: Counts that must not grow at all.
EXACT = (
    "windows",
    "shared mappings",
    "descriptors",
    "threads",
    "children",
    "communicators",
    "files",
    "cache files in use",
    "files in /dev/shm",
)
#: How much others may grow, for every cycle and failure, and beside.
PER_CYCLE = {"mappings": 0.02, "Python objects": 1, "resident bytes": 4 << 10}
BESIDE = {"mappings": 40, "Python objects": 1000, "resident bytes": 16 << 20}
SECONDS_PER_CYCLE_MAX = 3


def write(folder: Path) -> tuple[Path, Path]:
    """The data sets, each in a folder of its own: the one of mixed values with a sidecar."""
    mixed, fixed = folder / "mixed" / "db", folder / "fixed" / "db"
    mixed.parent.mkdir()
    fixed.parent.mkdir()
    convert(data.write(mixed, [data.mixed_value(i) for i in range(data.MIXED)]))
    data.write(fixed, [data.fixed_value(i) for i in range(data.FIXED)])
    return mixed, fixed


def leaks(report: dict[str, Any]) -> list[str]:
    """Return the counts that a job ended with and may not have."""
    cycles, told = report["cycles"] + report["failures"], []
    for name, more in report["growth"].items():
        allowed = 0 if name in EXACT else BESIDE[name] + PER_CYCLE[name] * cycles
        if more > allowed:
            told.append(f"{more} more {name} than before, {allowed:.0f} may be")
    return told


def run(mpi: launch.Mpi, asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One job; what it counted, and what it said if that is nothing."""
    mixed, fixed = write(folder)
    out = mpi.run(
        asked.ranks,
        "endurance.py",
        mixed,
        fixed,
        asked.cycles,
        asked.failures,
        asked.seed,
        asked.communicators,
        expect=None,
        timeout=60 + SECONDS_PER_CYCLE_MAX * (asked.cycles + asked.failures),
    )
    for line in out.splitlines():
        if line.startswith('{"ranks"'):
            return dict(json.loads(line))
    return {"said": out}


def strike(asked: argparse.Namespace, folder: Path) -> tuple[int, str]:
    """Jobs in which ranks are struck; how many went wrong, and what was said."""
    program = Path(__file__).parent / "sockets" / "struck.py"
    command = [program, folder / "fixed" / "db", asked.struck, asked.seed, "--stop", asked.stop]
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=launch.find("sockets").environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if not last.startswith('{"struck"'):
        return 1, done.stdout + done.stderr
    report = json.loads(last)
    lines = [
        f"{kind}: {one['cases']} cases, others: {one['got']}, the last after {one['seconds']} s"
        for kind, one in report["struck"].items()
    ]
    return report["bad"], "\n".join([*done.stdout.splitlines()[:-1], *lines])


def table(name: str, report: dict[str, Any]) -> Table:
    """Counts of the rank that has most, before and after."""
    shown = Table(
        title=f"{launch.VENDORS[name]}, {report['ranks']} ranks: {report['cycles']} cycles, "
        f"{report['failures']} failures",
        header_style="bold",
    )
    for column in ("held by a rank", "before", "after", "growth"):
        shown.add_column(column, justify="left" if column.startswith("held") else "right")
    for what, (before, after) in report["held"].items():
        growth = report["growth"][what]
        shown.add_row(what, f"{before[1]:,}", f"{after[1]:,}", f"{growth:+,}" if growth else "0")
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=1000, help="Readers made and closed (1000)")
    parser.add_argument("--failures", type=int, default=100, help="in between (100)")
    parser.add_argument("--ranks", type=int, default=4, help="(4)")
    parser.add_argument("--mpi", action="append", choices=launch.NAMES, help="only this one")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="random seed")
    parser.add_argument(
        "--communicators",
        type=int,
        default=2500,
        help="looks how many of so many are left; takes seconds (2500, all that MPICH has)",
    )
    parser.add_argument("--struck", type=int, default=100, help="jobs of each kind (100)")
    parser.add_argument(
        "--stop", type=float, default=30, help="seconds that ranks are stopped (30)"
    )
    parser.add_argument("--json", type=Path, help="where to write all figures")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    print(f"seed {asked.seed}", flush=True)
    figures, bad, ran = {}, 0, 0
    for name in asked.mpi or launch.NAMES:
        try:
            mpi = launch.find(name)
        except launch.NotThereError as error:
            print(f"{launch.VENDORS[name]}: skipped, {error}", flush=True)
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="lmdbio-endurance-") as folder:
            report = figures[name] = run(mpi, asked, Path(folder))
            if name == "sockets":
                wrong, said = strike(asked, Path(folder))
                print(said, flush=True)
                bad += wrong
        ran += 1
        if "said" in report:
            print(f"{launch.VENDORS[name]}: the job failed\n{report['said'][-6000:]}")
            bad += 1
            continue
        console.print(table(name, report))
        found = report["leaks"] = leaks(report)
        for text in found:
            print(f"LEAK {launch.VENDORS[name]}: {text}")
        bad += len(found)
        raised = ", ".join(f"{count} {error}" for error, count in report["raised"].items())
        print(f"raised: {raised}; {time.monotonic() - began:.0f} s, {len(found)} leaks")
    if asked.json is not None:
        asked.json.write_text(json.dumps(figures, indent=1))
    return 1 if bad or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
