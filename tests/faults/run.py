"""Makes reading fail in every way that can be arranged, many times, and judges what becomes of it.

    python tests/faults/run.py [--count N] [--seed S] [--surface NAME] [--kind NAME] [--json FILE]

Every surface (surfaces.py) meets every kind of fault (kinds.py) until there were N failures in
all: in a process of its own, with the real engine and real files. After each failure

    what was raised is documented, and names the file (and offset, wanted and got, for reads),
    what was returned is what py-lmdb reads,
    what failed works when it is tried again, or says that it is closed;

and at the end the process holds no more descriptors, threads, children, shared mappings and memory
than before. Ends with 1 when any of that is not so. A failure is a call that raised or, of kinds
that nobody may notice, a use in which faults struck. Several ranks read too where there is
mpiexec (ranks.py), which counts beside N.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interposer import build, environment
from kinds import KINDS
from oracle import write
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from surfaces import SURFACES, prepare

import lmdbio

HERE = Path(__file__).resolve().parent
#: A process goes through its cells so many times; what it holds must not grow between the
#: second and the last time.
ROUNDS = 4
#: Growth per failure that is none: what allocators and the interpreter keep comes and goes.
HEAP_BYTES_MAX, HEAP_BYTES_SLACK = 64, 128 << 10
OBJECTS_SLACK = 2000
RESIDENT_BYTES_SLACK = 128 << 20
EXACT = ("descriptors", "threads", "shared mappings", "children")
RANKS = (2, 4)
SUMMED = ("injected", "raised", "recovered", "compared", "wrong")


def cells(asked: argparse.Namespace) -> int:
    """How many there are."""
    return sum(
        1
        for surface in asked.surface
        for kind in KINDS
        if kind.name in asked.kind and (not kind.only or surface in kind.only)
    )


def command(asked: argparse.Namespace, folder: Path, surfaces: list[str], each: int) -> list[str]:
    """A worker's command line."""
    told = [sys.executable, str(HERE / "worker.py"), str(folder), "--seed", str(asked.seed)]
    told += ["--count", str(each), "--rounds", str(asked.rounds)]
    for surface in surfaces:
        told += ["--surface", surface]
    for kind in asked.kind:
        told += ["--kind", kind]
    return told


def mpi_command(ranks: int, folder: Path, seed: int, turns: int) -> list[str] | None:
    """The launch of ranks.py, None where there is no MPI."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    launcher = os.environ.get("LMDBIO_MPIEXEC") or beside or shutil.which("mpiexec")
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        launcher = None
    if launcher is None:
        return None
    program = [sys.executable, "-m", "mpi4py", str(HERE / "ranks.py")]
    return [launcher, "-n", str(ranks), *program, str(folder), str(seed), str(turns)]


def lines(told: list[str], env: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield what a process prints; a breach when it ends badly."""
    roots = os.pathsep.join(dict.fromkeys(str(Path(folder).parent) for folder in lmdbio.__path__))
    env = {**env, "PYTHONPATH": os.pathsep.join([roots, env.get("PYTHONPATH", "")])}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(told, env=env, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
        finally:
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.kill()
            process.wait()
        errors.seek(0)
        if process.returncode:
            tail = errors.read()[-3000:]
            yield {"died": f"{' '.join(told[1:4])} ended with {process.returncode}: {tail}"}


def growth(holds: list[dict[str, int]], failures: int) -> tuple[dict[str, float], list[str]]:
    """Return what a process held more at its end than after round two, and what is a leak."""
    if len(holds) < 2:
        return {}, []
    first, last = holds[1 if len(holds) > 2 else 0], holds[-1]
    more = {name: last[name] - first[name] for name in last}
    leaks = [f"{more[name]} more {name}" for name in EXACT if more[name] > 0]
    if more["heap"] > HEAP_BYTES_SLACK + HEAP_BYTES_MAX * failures:
        leaks.append(f"{more['heap']} bytes more heap after {failures} failures")
    if more["objects"] > OBJECTS_SLACK + failures:
        leaks.append(f"{more['objects']} more Python objects after {failures} failures")
    if more["resident"] > RESIDENT_BYTES_SLACK:
        leaks.append(f"{more['resident']} bytes more resident memory")
    return {name: value / max(1, failures) for name, value in more.items()}, leaks


class Soak:
    """All cells, and what was found in them."""

    def __init__(self) -> None:
        self.cells: list[dict[str, Any]] = []
        self.breaches: list[str] = []
        self.held: dict[str, dict[str, float]] = {}

    def follow(self, name: str, told: list[str], env: dict[str, str], step: Any) -> None:
        """One process to its end."""
        holds: list[dict[str, int]] = []
        half = failures = 0
        for line in lines(told, env):
            if "cell" in line:
                cell = line["cell"]
                self.cells.append(cell)
                failures += cell["failures"]
                where = f"{cell['surface']}, {cell['kind']}"
                self.breaches += [f"{where}: {text}" for text in cell["breaches"]]
                if cell["wrong"] and not cell["breaches"]:
                    self.breaches.append(f"{where}: {cell['wrong']} wrong results")
                step(cell)
            elif "held" in line:
                holds.append(line["held"])
                half = failures if len(holds) == min(2, len(holds)) else half
            else:
                self.breaches.append(line["died"])
        self.held[name], leaks = growth(holds, failures - half)
        self.breaches += [f"{name}: leaks: {text}" for text in leaks]

    def sums(self) -> dict[str, int]:
        names = ("uses", "failures", "injected", "raised", "recovered", "compared", "wrong")
        return {name: sum(cell[name] for cell in self.cells) for name in names}


def table(soak: Soak) -> Table:
    """Kinds of faults by surfaces: failures in the cells, sums of other counts beside them."""
    surfaces = list(dict.fromkeys(cell["surface"] for cell in soak.cells))
    shown = Table(title="failures by surface", header_style="bold")
    shown.add_column("fault", no_wrap=True)
    for surface in surfaces:
        shown.add_column(surface, justify="right")
    for name in SUMMED:
        shown.add_column(name, justify="right", style="bold")
    rows: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for cell in soak.cells:
        rows[cell["kind"]][cell["surface"]].append(cell)
    for kind, by_surface in rows.items():
        row = []
        for surface in surfaces:
            some = by_surface.get(surface, [])
            row.append(str(sum(cell["failures"] for cell in some) or "-"))
        every = [cell for some in by_surface.values() for cell in some]
        for name in SUMMED:
            row.append(str(sum(cell[name] for cell in every)))
        shown.add_row(kind, *row)
    return shown


def leaks(soak: Soak) -> Table:
    """Return a table of what each process held more at the end, per failure."""
    shown = Table(title="held more per failure, second round to last", header_style="bold")
    names = list(next(iter(soak.held.values()), {}))
    for name in ("process", *names):
        shown.add_column(name, justify="left" if name == "process" else "right")
    for process, told in soak.held.items():
        shown.add_row(process, *(f"{told[name]:.2f}" if name in told else "-" for name in names))
    return shown


def run(asked: argparse.Namespace, folder: Path) -> Soak:
    """Everything that was asked for."""
    soak = Soak()
    each = max(1, -(-asked.count // (cells(asked) * asked.rounds)))
    library = build(folder, asked.cc)
    env = environment(library)
    groups = [asked.surface] if asked.together else [[name] for name in asked.surface]
    bar = Progress(
        TextColumn("{task.description:34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("cells", total=asked.rounds * cells(asked))

        def step(cell: dict[str, Any]) -> None:
            bar.update(task, advance=1, description=f"{cell['surface']}: {cell['kind']}")

        for group in groups:
            place = folder / f"data-{len(soak.held)}"
            place.mkdir()
            told = command(asked, place, group, each)
            soak.follow("all surfaces" if asked.together else group[0], told, env, step)
            shutil.rmtree(place)
        for ranks in RANKS if asked.turns else ():
            place = folder / f"ranks-{ranks}"
            place.mkdir()
            oracle = write(place, "small")
            prepare(oracle)
            launch = mpi_command(ranks, oracle.path, asked.seed, asked.turns)
            if launch is not None:
                soak.follow(f"{ranks} ranks", launch, env, lambda _cell: None)
    return soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="failures (10000)")
    parser.add_argument("--turns", type=int, default=40, help="Readers per kind on ranks (40)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"({ROUNDS})")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="random seed")
    parser.add_argument("--surface", action="append", choices=list(SURFACES))
    parser.add_argument("--kind", action="append", choices=[kind.name for kind in KINDS])
    parser.add_argument("--together", action="store_true", help="one process for all surfaces")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"), help="compiler (cc)")
    asked = parser.parse_args()
    asked.surface = asked.surface or list(SURFACES)
    asked.kind = asked.kind or [kind.name for kind in KINDS]
    began = time.monotonic()
    print(f"seed {asked.seed}, {asked.count} failures, compiler {asked.cc}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lmdbio-faults-") as name:
        soak = run(asked, Path(name))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table(soak))
    console.print(leaks(soak))
    seen: dict[str, int] = defaultdict(int)
    for text in soak.breaches:
        seen[text] += 1
    for text, times in seen.items():
        print(f"BREACH {text}" + (f" ({times} times)" if times > 1 else ""))
    sums = soak.sums()
    print(", ".join(f"{value} {name}" for name, value in sums.items()), end="; ")
    print(f"{time.monotonic() - began:.0f} s, {len(soak.breaches)} breaches")
    if asked.json is not None:
        told = {"seed": asked.seed, "sums": sums, "breaches": soak.breaches}
        asked.json.write_text(
            json.dumps({**told, "held": soak.held, "cells": soak.cells}, indent=1)
        )
    return 1 if soak.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
