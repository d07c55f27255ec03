"""Hugging Face's Trainer: train, and train again from a checkpoint."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
import transformers

from lmdbio.torch import Dataset
from tests.trainers.case import BATCH, EPOCHS, Case
from tests.trainers.seen import Seen, run_cases
from tests.trainers.ways import batch_of, make, number


class Model(torch.nn.Module):
    """Trains on nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(torch.zeros(1, 1)).sum()}


class Stop(transformers.TrainerCallback):
    """Ends the training where a case wants it; the Trainer saves there."""

    def __init__(self, case: Case) -> None:
        self.step = case.steps + (case.stops_after or case.steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True


class Say(transformers.TrainerCallback):
    """Says which epoch begins, where the Trainer does not know whom to tell."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.source.set_epoch(int(state.epoch))


class Trainer(transformers.Trainer):
    """Writes down the batches, and takes the loader of a case.

    Args:
        loader: what ``get_train_dataloader`` returns; None: what the Trainer makes itself.
    """

    def __init__(self, case: Case, seen: Seen, loader: Any, **rest: Any) -> None:
        super().__init__(**rest)
        self.case, self.seen, self.loader = case, seen, loader

    def get_train_dataloader(self) -> Any:
        if self.loader is None:
            return super().get_train_dataloader()
        return (
            self.accelerator.prepare(self.loader) if "prepared" in self.case.given else self.loader
        )

    def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
        self.seen.add(self.state.global_step // self.case.steps, inputs)
        return super().training_step(model, inputs, *rest)


def train(case: Case, path: str, seen: Seen) -> None:
    is_map = case.way == "Dataset"
    made = None if is_map else make(case, path)
    callbacks: list[Any] = [Say(made.source)] if made and "said" in case.given else []
    if case.stop and not seen.run:
        callbacks.append(Stop(case))
    trainer = Trainer(
        case,
        seen,
        made and made.loader,
        model=Model(),
        train_dataset=Dataset(path, number) if is_map else None,
        data_collator=batch_of,
        callbacks=callbacks,
        args=transformers.TrainingArguments(
            str(seen.kept),
            per_device_train_batch_size=BATCH,
            num_train_epochs=EPOCHS,
            use_cpu=True,
            ddp_backend="gloo" if "RANK" in os.environ else None,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            logging_strategy="no",
        ),
    )
    trainer.train(resume_from_checkpoint=bool(seen.run))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    run_cases(train)
