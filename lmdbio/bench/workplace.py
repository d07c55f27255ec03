"""Where the runs of a benchmark are started: each in processes of its own, told by one JSON value.

Row -> Order (as JSON) -> lmdbio.bench.runner -> Outcome
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from lmdbio.bench import layout, processes
from lmdbio.bench.findings import Row
from lmdbio.bench.processes import SECONDS_MAX
from lmdbio.bench.runner import Order, Outcome, ranks_by_mpi
from lmdbio.bench.shards import Shards
from lmdbio.bench.trials import Trial, Workload

__all__ = ["Workplace", "make_folder", "workplace"]

MODULE = "lmdbio.bench.runner"


class Workplace:
    """Starts runs, and keeps what they share in a folder of its own.

    Attributes:
        warm: whether the page cache is left as it is before a run.
        consume: whether every byte of every value is looked at.
        drop_all: whether everything is out of the page cache before a cold run, not only the data.
        limit_seconds: a run that takes longer has failed.
        environment: variables for the runs.
        prefix: words before the command of each run, such as those of a program that starts it
            with less of something.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warm = self.consume = self.drop_all = False
        self.limit_seconds = SECONDS_MAX
        self.environment: Mapping[str, str] = {}
        self.prefix: Sequence[str] = ()
        self.keys: dict[Workload, str] = {}

    def row(self, trial: Trial, work: Workload) -> Row:
        """Return a row for the findings, with nothing measured yet."""
        return Row(trial, work, self.command(trial, work))

    def command(self, trial: Trial, work: Workload) -> tuple[str, ...]:
        """Return the command line of fio or ior; an empty one for everybody else."""
        one, made = trial.contestant, work.layout(trial.transfer or layout.GRAIN)
        if trial.skipped or made is None:
            return ()
        if one.kind == "fio":
            return tuple(
                layout.fio_command(
                    made, work.data_file, direct=one.direct, depth=one.depth, queue=one.queue
                )
            )
        if one.kind == "ior":
            mpi, link = processes.mpiexec(), self.link(work)
            return tuple(layout.ior_command(made, link, self.summary, mpi, direct=one.direct))
        return ()

    @property
    def summary(self) -> str:
        """Return the file that ior writes."""
        return str(self.folder / "ior.json")

    def link(self, work: Workload) -> str:
        """Make another name of the data file, since ior removes what it has read."""
        link = self.folder / "data"
        link.unlink(missing_ok=True)
        link.symlink_to(work.data_file)
        return str(link)

    def keys_of(self, work: Workload) -> str:
        """Return a file with the keys of the records to read, which is written once."""
        if work not in self.keys:
            self.keys[work] = str(write_keys(work, self.folder / f"keys{len(self.keys)}"))
        return self.keys[work]

    def order(self, row: Row, *, verify: bool) -> Order:
        """Say what the process of a run has to do."""
        keyed = row.work.access == "random" and row.trial.contestant.kind in ("lmdb", "open")
        return Order(
            workload=row.work,
            trial=row.trial,
            keys=self.keys_of(row.work) if keyed else "",
            warm=self.warm,
            verify=verify,
            consume=self.consume,
            command=row.command,
            summary=self.summary,
            drop_all=self.drop_all,
        )

    def start(
        self, row: Row, *, verify: bool = False, waiting: processes.Waiting | None = None
    ) -> Outcome:
        """Start a run in processes of its own, and return what it told.

        Raises:
            RunFailed: the run failed, or took longer than ``limit_seconds``.
        """
        order = self.order(row, verify=verify)
        python = [sys.executable, "-m", MODULE]
        if ranks_by_mpi(order):
            mpiexec = [processes.mpiexec() or "mpiexec", "-n", str(row.work.processes)]
            # mpi4py's runner ends all ranks when one of them raises.
            python = [*mpiexec, sys.executable, "-m", "mpi4py", "-m", MODULE]
        environment = {**processes.inherited(), **self.environment}
        command = [*self.prefix, *python, json.dumps(asdict(order))]
        return Outcome.parse(
            processes.call(command, row.title, environment, self.limit_seconds, waiting)
        )


@contextmanager
def workplace() -> Iterator[Workplace]:
    """Make a workplace, whose folder is removed when the ``with`` block ends."""
    with tempfile.TemporaryDirectory(prefix="lmdbio-bench-") as folder:
        yield Workplace(Path(folder))


def write_keys(work: Workload, file: Path) -> Path:
    """Write the keys of the records to read, in order, for readers that look records up."""
    wanted = work.indices().tolist()
    missing_keys = set(wanted)
    keys: dict[int, bytes] = {}
    for index, key in enumerate(Shards(work.path, work.db).keys()):
        if index in missing_keys:
            keys[index] = key
            if len(keys) == len(missing_keys):
                break
    file.write_text("\n".join(keys[index].hex() for index in wanted), encoding="ascii")
    return file


def make_folder(folder: Path, option: str) -> None:
    """Make a folder, if it is not there, and see that files can be made in it.

    Args:
        folder: folder that is written to.
        option: command-line option that names another folder.

    Raises:
        OSError: it cannot be made or written to; the message names the option.
    """
    hint = f"name another folder with {option}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "cannot be written to", str(folder))
    except (FileExistsError, NotADirectoryError) as error:
        what = f"is a file, not a folder: {hint}"
        raise NotADirectoryError(errno.ENOTDIR, what, str(folder)) from error
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {hint}", str(folder)) from error
