"""Compare and race a client over py-lmdb and over lmdbio, each in a process of its own."""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support import ROOT

SUBSTITUTED = Path(__file__).with_name("substituted")
ROUNDS = 15
#: As long as a round is at least, for one package.
ROUND_SECONDS = 0.2


def version_of(distribution: str) -> str:
    """Return the version of a client; skip the test that needs it where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed; `make clients` does")


def surroundings(package: str) -> dict[str, str]:
    """Return the environment of a Python whose lmdb is this package."""
    path = [str(SUBSTITUTED)] * (package == "lmdbio") + [str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TQDM_DISABLE": "1"}


class Contestant:
    """A client over one package, in a process of its own."""

    def __init__(self, package: str, client: str, path: Path, log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.clients.worker", client, str(path)],
                cwd=path.parent,
                env=surroundings(package),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, *words: object) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return json.loads(line)

    def __enter__(self) -> Contestant:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def write(client: ModuleType, path: Path) -> None:
    """Make the data set of a client in a process that ends, over py-lmdb."""
    code = f"import sys, {client.__name__} as client; client.write(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=path.parent,
        env=surroundings("lmdb"),
        check=True,
        capture_output=True,
    )


def times(ours: Contestant, theirs: Contestant) -> tuple[list[float], list[float]]:
    """Return the seconds of an epoch, round by round, of lmdbio and of py-lmdb, in turns."""
    count = max(1, round(ROUND_SECONDS / theirs.ask("epoch", 1)))
    seconds: tuple[list[float], list[float]] = ([], [])
    for i in range(ROUNDS):
        for which in (0, 1) if i % 2 else (1, 0):
            seconds[which].append((ours, theirs)[which].ask("epoch", count))
    return seconds


def compare_and_race(client: ModuleType, folder: Path, record: Any) -> None:
    """Assert that a client gives the same over either package; print and record its times."""
    version = version_of(client.DISTRIBUTION)
    path = folder / "data"
    write(client, path)
    with (
        Contestant("lmdbio", client.__name__, path, folder / "lmdbio.log") as ours,
        Contestant("lmdb", client.__name__, path, folder / "lmdb.log") as theirs,
    ):
        package, held = ours.ask("who")
        assert package == "lmdbio" and "Environment" in held, held
        assert theirs.ask("who") == ["lmdb", []]
        values, wanted = ours.ask("values"), theirs.ask("values")
        differing = [i for i in range(len(wanted)) if values[i : i + 1] != wanted[i : i + 1]]
        assert (len(values), differing[:9]) == (len(wanted), [])
        seconds = times(ours, theirs)
        ends, wanted_ends = ours.ask("odd"), theirs.ask("odd")
    assert list(ends) == list(wanted_ends)
    differs = getattr(client, "DIFFERS", set())
    for name, wanted_end in wanted_ends.items():
        if name in differs:
            assert (name, ends[name][0], wanted_end[0]) == (name, "value", "error"), ends[name]
        else:
            assert (name, ends[name]) == (name, wanted_end)
    ours_median, theirs_median = map(statistics.median, seconds)
    row = {
        "client": client.DISTRIBUTION,
        "version": version,
        "calls": client.CALLS,
        "values": len(wanted),
        "odd": len(wanted_ends),
        "differs": sorted(differs),
        "lmdb": theirs_median,
        "lmdbio": ours_median,
    }
    record("client", row)
    print(
        f"{client.DISTRIBUTION} {version}: {len(wanted)} values and {len(wanted_ends)} odd calls "
        f"alike; warm epoch, median of {ROUNDS}: py-lmdb {theirs_median * 1e3:.2f} ms, "
        f"lmdbio {ours_median * 1e3:.2f} ms, {theirs_median / ours_median:.2f} of its speed "
        f"(rounds {min(seconds[1]) * 1e3:.2f} to {max(seconds[1]) * 1e3:.2f} ms, "
        f"{min(seconds[0]) * 1e3:.2f} to {max(seconds[0]) * 1e3:.2f} ms)"
    )
