"""Lightning's Fabric: a loop of one's own, in processes that it starts."""

from __future__ import annotations

import logging
import sys
import warnings
from datetime import timedelta
from typing import Any

import lightning.fabric as lightning
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.fabric.strategies import DDPStrategy

from tests.trainers.case import Case
from tests.trainers.loop import run_epochs
from tests.trainers.seen import Seen, run_cases
from tests.trainers.ways import make


def train(fabric: Any) -> None:
    def each(case: Case, path: str, seen: Seen) -> None:
        made = make(case, path)
        loader = made.loader
        if "itself" not in case.given:
            own = "own" in case.given
            loader = fabric.setup_dataloaders(loader, use_distributed_sampler=not own)
        run_epochs(case, seen, made, loader)

    run_cases(each)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    processes = int(sys.argv[2])
    strategy: Any = "auto"
    if processes > 1:
        strategy = DDPStrategy(
            process_group_backend="gloo", start_method="spawn", timeout=timedelta(seconds=60)
        )
    lightning.Fabric(
        accelerator="cpu", devices=processes, strategy=strategy, plugins=[LightningEnvironment()]
    ).launch(train)
