"""``lmdbio.torch`` under Lightning, Fabric, Accelerate, Transformers, torchdata and torchrun.

Goal: under each trainer every documented way of loading gives each sample once an epoch to all
ranks together, in the order of seed and epoch, goes on where a checkpoint was saved, and has other
orders in each epoch; or it is refused in words that say what to write.

Method: a program for each trainer, run as its users run it (alone, by torchrun, or with processes
that the trainer starts), trains three epochs for each case and writes down which samples each rank
trained on; these are compared with what the order's rule says. The programs are told nothing of
that. ``CASES`` holds what the guide promises.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.support import ROOT
from tests.trainers.case import Case
from tests.trainers.cases import CASES
from tests.trainers.judge import fault
from tests.trainers.seen import read

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None,
    reason="the trainers are not installed; `make trainers` does",
)
DISTRIBUTIONS = {
    "lightning_fit": "lightning",
    "fabric_loop": "lightning",
    "accelerate_loop": "accelerate",
    "transformers_trainer": "transformers",
    "plain_loop": "torchdata",
}
#: Programs whose processes torchrun starts.
BY_TORCHRUN = ("accelerate_loop", "transformers_trainer", "plain_loop")
SECONDS_MAX = 400


def command(case: Case, folder: Path) -> list[str]:
    """Return the command that runs the program of a case, and of all that go with it."""
    module = ["-m", f"tests.trainers.{case.program}", str(folder), str(case.processes)]
    if case.processes > 1 and case.program in BY_TORCHRUN:
        processes = f"--nproc-per-node={case.processes}"
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", processes, *module]
    return [sys.executable, *module]


def write(path: Path, count: int) -> None:
    """Write records that begin with their numbers."""
    with lmdb.open(str(path), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for number in range(count):
            txn.put(b"%06d" % number, number.to_bytes(4, "little") * (1 + number % 9))


class Programs:
    """Runs each program once, for all cases that were selected, and keeps what ranks saw."""

    def __init__(self, selected: list[Case], folder: Path) -> None:
        self.selected, self.folder = selected, folder
        self.seen: dict[Case, tuple[Any, str]] = {}

    def of(self, case: Case) -> tuple[Any, str]:
        """Return the batches of a case by run and rank, and its errors."""
        if case not in self.seen:
            self._run([one for one in self.selected if one.group == case.group])
        return self.seen[case]

    def _run(self, cases: list[Case]) -> None:
        folder = self.folder / "-".join(map(str, cases[0].group))
        folder.mkdir()
        for count in {case.count for case in cases}:
            write(folder / str(count), count)
        numbered = [(index, case.fields()) for index, case in enumerate(cases)]
        (folder / "cases.json").write_text(json.dumps(numbered))
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with (folder / "log").open("w+") as log:
            process = subprocess.Popen(
                command(cases[0], folder),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                status = str(process.wait(SECONDS_MAX))
            except subprocess.TimeoutExpired:
                status = f"no status within {SECONDS_MAX} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with the ranks that it started
                process.wait()
            log.seek(0)
            told = f"the program ended with {status}: {log.read()[-2000:]}"
        ended = "" if status == "0" else told
        for index, case in enumerate(cases):
            runs, errors = read(folder, index)
            self.seen[case] = runs, errors or ended


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    cases = [call.params["case"] for call in calls if call and "case" in call.params]
    return Programs(
        [case for case in cases if isinstance(case, Case)], tmp_path_factory.mktemp("runs")
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_sample_comes_once_an_epoch(
    case: Case, programs: Programs, record_property: Any
) -> None:
    version = importlib.metadata.version(DISTRIBUTIONS[case.program])
    record_property("case", {**case.fields(), "version": version})
    told = fault(case, *programs.of(case))
    assert not told, told
