"""Lightning's Trainer: fit, and fit again from a checkpoint; predict."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import lightning.pytorch as lightning
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy

from tests.trainers.case import EPOCHS, Case
from tests.trainers.seen import Seen, run_cases
from tests.trainers.ways import make


class Model(lightning.LightningModule):
    """Trains on nothing, and writes down the batches.

    Args:
        said: what is told of each epoch; None: it counts by itself.
        kept: what has a state that Lightning does not see.
    """

    def __init__(self, seen: Seen, said: Any, kept: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen, self.said, self.kept = seen, said, kept
        self.batches = self.predicted = 0

    def on_train_epoch_start(self) -> None:
        self.batches = 0
        if self.said is not None:
            self.said.set_epoch(self.current_epoch)

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        self.seen.add(self.current_epoch, batch)
        self.batches += 1
        return self.layer(torch.zeros(1, 1)).sum()

    def predict_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
        self.seen.add(self.predicted, batch)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.kept is not None:
            checkpoint["order"] = self.kept.state_dict(self.batches)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.kept is not None:
            self.kept.load_state_dict(checkpoint["order"])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class Making(Model):
    """Makes the loader itself, when Lightning asks for it.

    Args:
        loader: function that returns it.
        rest: arguments of ``Model``.
    """

    def __init__(self, loader: Callable[[], Any], *rest: Any) -> None:
        super().__init__(*rest)
        self.loader = loader

    def train_dataloader(self) -> Any:
        return self.loader()


class Stop(lightning.Callback):
    """Saves a checkpoint where a case wants it, and ends the training there."""

    def __init__(self, case: Case, seen: Seen) -> None:
        self.case, self.path = case, str(seen.kept)

    def _save(self, trainer: Any) -> None:
        trainer.save_checkpoint(self.path)
        trainer.should_stop = True

    def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
        if (trainer.current_epoch, rest[-1] + 1) == (1, self.case.stops_after):
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        if (trainer.current_epoch, self.case.stop) == (1, "end"):
            self._save(trainer)


def fit(case: Case, path: str, seen: Seen) -> None:
    # By the model it is made when the processes have met.
    made = None if "made by the model" in case.given else make(case, path)
    strategy: Any = "auto"
    if case.processes > 1:
        start = "spawn" if "spawn" in case.given else "popen"
        strategy = DDPStrategy(
            process_group_backend="gloo", start_method=start, timeout=timedelta(seconds=60)
        )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=case.processes,
        strategy=strategy,
        plugins=[LightningEnvironment()],  # else it asks mpi4py, which may have no MPI here
        max_epochs=EPOCHS,
        use_distributed_sampler="own" not in case.given,
        overfit_batches=3 if "overfit" in case.given else 0.0,
        callbacks=[Stop(case, seen)] if not seen.run else [],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    said = made.source if made and "said" in case.given else None
    again = {"ckpt_path": str(seen.kept), "weights_only": False} if seen.run else {}
    kept = made.source if made and "hooks" in case.given else None
    if made is None:
        making = Making(lambda: make(case, path).loader, seen, said, kept)
        trainer.fit(making, **again)
        return
    model = Model(seen, said, kept)
    if "predict" not in case.given:
        trainer.fit(model, made.loader, **again)
        return
    for model.predicted in range(EPOCHS):
        trainer.predict(model, made.loader, return_predictions=False)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    run_cases(fit)
