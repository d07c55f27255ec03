"""Reads a database while a writer commits to it, and judges every byte.

    python tests/writers/run.py [--reads N] [--seconds T] [--seed S] [--format V] [--json FILE]
                                [--opening]

One writer for each data format (writer.py) commits, updates, deletes, grows, aborts, and makes and
drops named databases, in storms and in calm; what its database holds after each transaction is
known (world.py). Processes of several threads read beside it (reading.py): ``lmdbio.open`` with
and without reader slots, ``Records``, ``Reader`` and ``convert``, by every engine, in short and in
long transactions. Every value, and every key that is not there, is held against the snapshot that
it was read from, and that against what the writer had committed at that moment. With ``--opening``
the writers never pause, and readers open named databases again and again (opening.py), which are
there at all times.

Ends with 1 when anything was wrong; when a transaction with a slot was refused; when an error was
none of those that the documents name; when a process died or hung.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import lmdbio

HERE = Path(__file__).resolve().parent
FORMATS = (1, 3)
#: A process that says nothing for so long hangs.
SILENT_SECONDS = 120.0
SUMMED = ("sessions", "unheld", "right", "wrong")


def environ() -> dict[str, str]:
    roots = dict.fromkeys(str(Path(folder).parent) for folder in lmdbio.__path__)
    path = os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


class Child:
    """A process whose lines go into a queue, ``None`` at its end."""

    def __init__(self, name: str, command: list[str], lines: queue.Queue[Any]) -> None:
        self.name, self._lines = name, lines
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env=environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.heard = time.monotonic()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard = time.monotonic()
            self._lines.put((self, line))
        self.process.wait()
        self._lines.put((self, None))

    def end(self) -> str:
        """Return the complaints of a process that has ended, or end it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._thread.join()
        self._errors.seek(0)
        complaint = self._errors.read()[-3000:]
        self._errors.close()
        code = self.process.returncode
        return f"{self.name} ended with {code}: {complaint}" if code or complaint else ""


@dataclass(slots=True)
class Sum:
    """The outcomes of one surface's reads, over all threads."""

    sessions: int = 0
    unheld: int = 0
    right: int = 0
    wrong: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, told: dict[str, Any]) -> None:
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + told[name])
        self.errors.update(told["errors"])


@dataclass(slots=True)
class Soak:
    """All that was read, and what was found wrong."""

    surfaces: dict[str, Sum] = field(default_factory=dict)
    breaches: list[str] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    engines: list[str] = field(default_factory=list)

    def take(self, version: int, told: dict[str, Any]) -> None:
        """The last word of one process."""
        for counts in told["counts"]:
            for surface, count in counts.items():
                self.surfaces.setdefault(f"v{version} {surface}", Sum()).add(count)
        self.breaches += [f"v{version}: {text}" for text in told["breaches"]]
        self.engines = told.get("engines", self.engines)

    def sums(self) -> dict[str, int]:
        sums = dict.fromkeys(SUMMED, 0)
        errors = 0
        for one in self.surfaces.values():
            errors += one.errors.total()
            for name in SUMMED:
                sums[name] += getattr(one, name)
        return {**sums, "documented errors": errors, "commits": sum(self.committed.values())}


def right_of(told: dict[str, Any]) -> int:
    return sum(count["right"] for counts in told["counts"] for count in counts.values())


def run_format(asked: argparse.Namespace, version: int, folder: Path, number: int) -> list[Child]:
    """Starts a writer, and the readers beside it; the writer comes first."""
    data = folder / f"data-{version}"
    data.mkdir()
    lines: queue.Queue[Any] = asked.lines
    seed = asked.seed * 1000 + number * 100
    command = [str(HERE / "writer.py"), str(data), str(version), str(seed)]
    writer = Child(f"writer v{version}", command + ["small"] * asked.opening, lines)
    while not (data / "progress").exists() or not any((data / "progress").read_bytes()[:8]):
        if writer.process.poll() is not None:
            break
        time.sleep(0.01)
    children = [writer]
    readers = asked.processes * len(asked.format)
    for process in range(asked.processes):
        told = [str(HERE / "worker.py"), str(data), str(folder / f"own-{version}-{process}")]
        told += ["--seed", str(seed + 1 + process), "--threads", str(asked.threads)]
        told += ["--reads", str(-(-asked.reads // readers)), "--seconds", str(asked.seconds)]
        told += ["--opening"] * asked.opening
        children.append(Child(f"readers v{version}", told, lines))
    return children


def heard(
    lines: queue.Queue[Any], running: list[Child], soak: Soak
) -> Iterator[tuple[Child, Any]]:
    """Yield what the processes say, until all of ``running`` have ended or one hangs."""
    left = list(running)
    while left:
        try:
            child, line = lines.get(timeout=1.0)
        except queue.Empty:
            silent = [c for c in left if time.monotonic() - c.heard > SILENT_SECONDS]
            soak.breaches += [f"{c.name} hangs: silent for {SILENT_SECONDS:.0f} s" for c in silent]
            if silent:
                return
            continue
        if line is None:
            left = [other for other in left if other is not child]
            continue
        yield child, line


def run(asked: argparse.Namespace, folder: Path) -> Soak:
    """Everything that was asked for."""
    soak, asked.lines = Soak(), queue.Queue()
    versions: dict[Child, int] = {}
    writers, readers = [], []
    last: dict[Child, dict[str, Any]] = {}
    bar = Progress(
        TextColumn("{task.description:28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
    try:
        for number, version in enumerate(asked.format):
            writer, *others = run_format(asked, version, folder, number)
            writers.append(writer)
            readers += others
            versions |= dict.fromkeys((writer, *others), version)
        with bar:
            task = bar.add_task("reads", total=asked.reads)
            for child, line in heard(asked.lines, readers, soak):
                if child in readers:
                    last[child] = json.loads(line)
                    wrong = sum(len(told["breaches"]) for told in last.values())
                    done = sum(map(right_of, last.values()))
                    bar.update(task, completed=done, description=f"reads, {wrong} breaches")
        for writer in writers:
            assert writer.process.stdin is not None
            writer.process.stdin.close()
        for child, line in heard(asked.lines, writers, soak):
            if line.startswith("committed"):
                soak.committed[versions[child]] = int(line.split()[1])
    finally:
        complaints = [child.end() for child in (*readers, *writers)]
    soak.breaches += [text for text in complaints if text]
    for child in readers:
        if child in last:
            soak.take(versions[child], last[child])
        else:
            soak.breaches.append(f"{child.name} said nothing")
    return soak


def table(soak: Soak) -> Table:
    """Surfaces by what became of their reads."""
    shown = Table(title="reads beside a writer", header_style="bold")
    shown.add_column("surface", no_wrap=True)
    for name in (*SUMMED, "errors"):
        shown.add_column(name, justify="right")
    for surface, one in sorted(soak.surfaces.items()):
        counts = [f"{getattr(one, name):,}" for name in SUMMED]
        shown.add_row(surface, *counts, f"{one.errors.total():,}")
    return shown


def print_soak(soak: Soak) -> None:
    Console(width=None if sys.stdout.isatty() else 120).print(table(soak))
    errors: Counter[str] = Counter()
    for one in soak.surfaces.values():
        errors.update(one.errors)
    for text, times in errors.most_common():
        print(f"documented, {times} times: {text}")
    for text, times in Counter(soak.breaches).items():
        print(f"BREACH {text}" + (f" ({times} times)" if times > 1 else ""))
    print(f"engines: {', '.join(soak.engines)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reads", type=int, help="values in all (1000000; --opening: any)")
    parser.add_argument("--seconds", type=float, default=900.0, help="at most (900)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="random seed")
    parser.add_argument("--format", type=int, action="append", choices=FORMATS, help="(both)")
    parser.add_argument("--processes", type=int, default=2, help="that read, per format (2)")
    parser.add_argument("--threads", type=int, default=2, help="of each process (2)")
    parser.add_argument("--opening", action="store_true", help="open and close, at full speed")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    asked = parser.parse_args()
    asked.format = asked.format or list(FORMATS)
    asked.reads = asked.reads or (10**12 if asked.opening else 1_000_000)
    began = time.monotonic()
    print(f"seed {asked.seed}, {asked.reads} reads", flush=True)
    with tempfile.TemporaryDirectory(prefix="lmdbio-writers-") as name:
        soak = run(asked, Path(name))
    print_soak(soak)
    sums, seconds = soak.sums(), time.monotonic() - began
    print(", ".join(f"{value} {name}" for name, value in sums.items()), end="; ")
    print(f"{seconds:.0f} s, {len(soak.breaches)} breaches")
    if asked.json is not None:
        surfaces = {
            surface: {**{n: getattr(one, n) for n in SUMMED}, "errors": dict(one.errors)}
            for surface, one in soak.surfaces.items()
        }
        told = {"seed": asked.seed, "seconds": seconds, "sums": sums, "engines": soak.engines}
        asked.json.write_text(
            json.dumps({**told, "breaches": soak.breaches, "surfaces": surfaces}, indent=1)
        )
    return 1 if soak.breaches or sums["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
