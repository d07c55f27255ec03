"""Accelerate: a loop of one's own over what ``prepare`` made of a loader."""

from __future__ import annotations

import warnings
from typing import Any

from accelerate import Accelerator, skip_first_batches

from tests.trainers.case import EPOCHS, Case
from tests.trainers.loop import run_epochs
from tests.trainers.seen import Seen, run_cases
from tests.trainers.ways import make


def train(case: Case, path: str, seen: Seen) -> None:
    accelerator = Accelerator(cpu=True)
    made = make(case, path)
    loader = made.loader
    if "itself" not in case.given:
        loader = accelerator.prepare(loader)
    if "skipped" in case.given:
        skip(case, seen, loader)
    else:
        run_epochs(case, seen, made, loader)


def skip(case: Case, seen: Seen, loader: Any) -> None:
    """Goes on as Accelerate's guide says: epochs are said, and batches left out."""
    for epoch in range(1 if seen.run else 0, EPOCHS):
        loader.set_epoch(epoch)
        again = seen.run and epoch == 1
        for used, batch in enumerate(skip_first_batches(loader, 2) if again else loader, 1):
            seen.add(epoch, batch)
            if not seen.run and epoch == 1 and used == 2:
                return


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    run_cases(train)
