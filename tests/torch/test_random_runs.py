"""Trainings that are stopped anywhere go on in other ways, with other ranks, workers, batches.

Goal: each rank's batches are those of the rule, whatever was stopped before; each epoch has each
sample once. Method: ``random_runs``, some of whose runs are made here; `make resumes` makes a
thousand others.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torch.random_runs import check, draw, write

pytestmark = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated", "ignore:This DataLoader will create"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    write(path)
    return path


@pytest.mark.more
@pytest.mark.parametrize("seed", range(40))
def test_a_training_that_is_stopped_goes_on_just_there(seed: int, folder: Path) -> None:
    check(draw(random.Random(seed)), folder)
