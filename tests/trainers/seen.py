"""The batches of each rank, written down one by one, and read by the judge.

A line for each batch: a process that is killed leaves those that it had.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.trainers.case import Case

__all__ = ["Seen", "read", "run_cases"]


class Seen:
    """Where a run of a case writes down its batches, and keeps what the next run needs.

    Args:
        folder: of all cases.
        index: of the case.
        run: 0, or 1 after a stop.
    """

    def __init__(self, folder: Path, index: int, run: int) -> None:
        self.folder, self.index, self.run = folder, index, run

    @property
    def kept(self) -> Path:
        """The file, or the folder, that the first run leaves for the second."""
        return self.folder / f"{self.index}.kept"

    def add(self, epoch: int, batch: dict[str, torch.Tensor]) -> None:
        """Write down a batch that this rank trains on."""
        path = self.folder / f"{self.index}.{self.run}.{_rank()}.seen"
        with path.open("a") as file:
            file.write(json.dumps([epoch, batch["numbers"].tolist()]) + "\n")

    def fail(self, error: BaseException) -> None:
        """Write down how the run ended, if it is an error."""
        path = self.folder / f"{self.index}.{self.run}.{_rank()}.error"
        path.write_text("".join(traceback.format_exception(error)))


def _rank() -> int:
    distributed = torch.distributed
    there = distributed.is_available() and distributed.is_initialized()
    return distributed.get_rank() if there else 0


def run_cases(each: Callable[[Case, str, Seen], Any]) -> None:
    """Run the cases that the folder of the command line lists, one after the other."""
    folder = Path(sys.argv[1])
    for index, fields in json.loads((folder / "cases.json").read_text()):
        case = Case(**fields)
        for run in range(2 if case.stop else 1):
            seen = Seen(folder, index, run)
            try:
                each(case, str(folder / f"{case.count}"), seen)
            except Exception as error:
                seen.fail(error)
                break


def read(folder: Path, index: int) -> tuple[list[list[list[tuple[int, list[int]]]]], str]:
    """Return the batches by run and rank, with their epochs, and the errors' texts."""
    runs: list[list[list[tuple[int, list[int]]]]] = []
    for run in range(2):
        paths = sorted(folder.glob(f"{index}.{run}.*.seen"))
        texts = [path.read_text().splitlines() for path in paths]
        runs.append([[tuple(json.loads(line)) for line in lines] for lines in texts])
    errors = sorted(folder.glob(f"{index}.*.error"))
    return runs, "\n".join(path.read_text() for path in errors)
