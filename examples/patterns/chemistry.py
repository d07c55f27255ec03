"""Samples of a chemistry data set: pickled objects, in many single files.

Each file is an environment of its own (``subdir=False``), with its samples under the decimal
numbers ``0``, ``1``, ... and their count under ``length``. As text these sort as 0, 1, 10, 2, ...:
``layout="auto"`` leaves ``length`` out, and has the samples in the order of their numbers.

Unpickling runs what the file says: open files that you trust.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import torch.utils.data

import lmdbio

__all__ = ["Molecules"]


class Molecules(torch.utils.data.Dataset[Any]):
    """The samples of all files, one file's after the other's."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.records = lmdbio.Records(paths, subdir=False, layout="auto")

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        return pickle.loads(self.records[index])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [pickle.loads(view) for view in self.records.read(indices)]

    def file_of(self, index: int) -> str:
        """The file that has a sample."""
        return self.records.file_of(index)[0]
