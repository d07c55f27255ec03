"""Tests whose programs run on as many ranks share a launch; each has its own output and result.

A launch of four ranks takes seconds before the first line of a program: MPI begins, and Python
imports. A test says by ``@pytest.mark.program(name, *arguments, ranks=n)`` what it wants to be
run, and takes the fixture ``output``. The first such test has the programs of all tests that will
run on as many ranks, of the same MPI and nodes, run one after another (several.py). Where one
fails, the job ends; those behind it are launched again. A test of what a program leaves to its
end, when MPI ends as well, has no such mark and a launch of its own.

An argument is the name of a fixture of the session, ``folder`` for a new one, or a function of
the MPI's name; any other is passed on as it is. ``ranks``, and ``arguments`` behind those of the
mark, may be parameters of the test.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import launch
import pytest

#: Arguments that are fixtures.
FIXTURES = ("mixed", "fixed", "tiny", "smaller", "copies", "url", "stateless_url")


@dataclass(frozen=True)
class Wanted:
    """A program that a test asks for, with the words that several.py reads of it."""

    test: str
    program: str
    arguments: list[str]


def key(item: pytest.Item) -> tuple[Any, ...] | None:
    """Return what tests that share a launch have in common; None of a test that shares none."""
    mark = item.get_closest_marker("program")
    if mark is None:
        return None
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    ranks = mark.kwargs.get("ranks", parameters.get("ranks"))
    is_on_two_nodes = "nodes_of_its_own" in item.fixturenames  # type: ignore[attr-defined]
    return parameters.get("mpi"), ranks, is_on_two_nodes


@dataclass
class Launches:
    """Runs programs for all tests of a session.

    Attributes:
        outputs: what the programs of tests that have yet to run have printed, by test.
        failures: of those that failed, the same.
    """

    outputs: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def output(self, request: pytest.FixtureRequest, mpi: launch.Mpi) -> str:
        """Return what the program of a test has printed.

        Raises:
            AssertionError: it failed; with the same.
        """
        test: pytest.Item = request.node
        if test.nodeid not in self.outputs and test.nodeid not in self.failures:
            items = request.session.items
            rest = items[items.index(test) :]
            shared = [one for one in rest if key(one) == key(test)]
            is_on_two_nodes = "nodes_of_its_own" in request.fixturenames
            environ = launch.TWO_NODES if is_on_two_nodes else {}
            ranks = int((key(test) or ())[1])
            wanted = [_wanted(one, request) for one in shared]
            folder = request.getfixturevalue("tmp_path_factory").mktemp("together")
            self._run(mpi, ranks, environ, wanted, folder)
        if test.nodeid in self.failures:
            raise AssertionError(self.failures.pop(test.nodeid))
        return self.outputs.pop(test.nodeid)

    def _run(
        self,
        mpi: launch.Mpi,
        ranks: int,
        environ: dict[str, str],
        wanted: list[Wanted],
        folder: Path,
    ) -> None:
        """Run programs, in as many launches as it takes."""
        number = 0
        while wanted:
            number += 1
            files = [folder / f"{number}-{place}.out" for place in range(len(wanted))]
            (folder / "list.json").write_text(json.dumps(list(_listed(wanted, files))))
            said = _launch(mpi, ranks, environ, folder / "list.json", files)
            done = [file.with_suffix(".done").exists() for file in files]
            count = done.index(False) if False in done else len(done)
            printed = [file.read_text(errors="replace") if file.exists() else "" for file in files]
            self.outputs.update(
                (one.test, text) for one, text in zip(wanted[:count], printed, strict=False)
            )
            if said is not None:  # of the last one, where it failed when all of them were done
                failed = min(count, len(wanted) - 1)
                self.outputs.pop(wanted[failed].test, None)
                self.failures[wanted[failed].test] = printed[failed] + said
                count = failed + 1
            wanted = wanted[count:]


def _wanted(item: pytest.Item, request: pytest.FixtureRequest) -> Wanted:
    mark = item.get_closest_marker("program")
    assert mark is not None
    name, *arguments = mark.args
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    words = []
    for argument in [*arguments, *parameters.get("arguments", ())]:
        if callable(argument):
            argument = argument(parameters["mpi"])
        elif argument == "folder":
            argument = request.getfixturevalue("tmp_path_factory").mktemp("folder")
        elif argument in FIXTURES:
            argument = request.getfixturevalue(argument)
        words.append(str(argument))
    return Wanted(item.nodeid, str(launch.HERE / name), words)


def _listed(wanted: Iterable[Wanted], files: Iterable[Path]) -> Iterable[dict[str, Any]]:
    for one, file in zip(wanted, files, strict=True):
        yield {"program": one.program, "arguments": one.arguments, "output": str(file)}


def _launch(
    mpi: launch.Mpi, ranks: int, environ: dict[str, str], listed: Path, files: list[Path]
) -> str | None:
    """Run several.py to its end.

    Returns:
        What the launch printed and how it ended, if it failed.
    """
    with (listed.parent / "launch.out").open("w+", encoding="utf-8", errors="replace") as out:
        job = subprocess.Popen(
            mpi.command(ranks, "several.py", listed),
            env=mpi.environment(environ),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        done, deadline, late = 0, time.monotonic() + launch.TIMEOUT_S, ""
        try:
            while job.poll() is None:
                count = sum(file.with_suffix(".done").exists() for file in files)
                if count > done:  # each program has as long as if it were alone
                    done, deadline = count, time.monotonic() + launch.TIMEOUT_S
                if time.monotonic() > deadline:
                    job.kill()
                    late = f"\nno end within {launch.TIMEOUT_S} s"
                time.sleep(0.02)
        finally:
            job.kill()
            job.wait()
        out.seek(0)
        is_done = all(file.with_suffix(".done").exists() for file in files)
        ended = f"{out.read()}{late}\nstatus {job.returncode}"
        return None if job.returncode == 0 and is_done else ended
