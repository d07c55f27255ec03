"""mmaction2's long-term feature bank, which opens with locks; written by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.clients.client import bare

DISTRIBUTION = "mmaction2"
CALLS = "`open(readonly=True)` with locks, `begin` and `get` per clip; `torch.load`"
VIDEOS = 100
MODULE = "mmaction.models.roi_heads.shared_heads.lfb"


def write(path: str) -> None:
    import torch

    Path(path).mkdir()
    torch.manual_seed(1)
    bank = {
        f"video{i:04d}": {900 + j: torch.rand(1 + j % 5, 64) for j in range(40 + i % 20)}
        for i in range(VIDEOS)
    }
    torch.save(bank, Path(path) / "lfb_train.pkl")
    bank_of(path, construct_lmdb=True)


def bank_of(path: str, construct_lmdb: bool = False) -> Any:
    return bare(MODULE).LFB(
        path,
        lfb_channels=64,
        dataset_modes="train",
        device="lmdb",
        lmdb_map_size=1 << 30,
        construct_lmdb=construct_lmdb,
    )


def opened(path: str) -> Any:
    return bank_of(path)


def epoch(reader: Any) -> list[Any]:
    import torch

    torch.manual_seed(2)
    return [reader[f"video{i:04d},{910 + i % 9}"] for i in range(VIDEOS)]


def odd(reader: Any, path: str) -> dict[str, Any]:
    return {
        "a video that is not there": lambda: reader["no,900"],
        "a time that is not there": lambda: reader["video0001,5"],
        "no video": lambda: reader[",900"],
        "no such folder": lambda: bank_of(path + "?"),
        "opened twice": lambda: bank_of(path)["video0001,5"],
    }


DIFFERS = {"opened twice"}


def test_the_bank_gives_the_same_features(race: Any) -> None:
    race()
