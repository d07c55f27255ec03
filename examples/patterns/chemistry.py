"""Samples of a chemistry data set: pickled objects, in many single files.

Each file is an environment of its own (``subdir=False``), with its samples under the decimal
numbers ``0``, ``1``, ... and their count under ``length``. As text these sort as 0, 1, 10, 2, ...:
sample i is not record i. Where its record is, ``Records.index_of`` tells once.

Unpickling runs what the file says: open files that you trust.
"""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch.utils.data

import lmdbio

__all__ = ["Molecules"]

LENGTH = b"length"


class Molecules(torch.utils.data.Dataset[Any]):
    """The samples of all files, one file's after the other's."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.records = lmdbio.JoinedRecords(paths, subdir=False)
        self.firsts = [0, *accumulate(map(len, self.records.parts))]
        found = zip(self.firsts[:-1], map(samples, self.records.parts), strict=True)
        self.where = np.concatenate([first + there for first, there in found])

    def __len__(self) -> int:
        return len(self.where)

    def __getitem__(self, index: int) -> Any:
        return pickle.loads(self.records[int(self.where[index])])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [pickle.loads(view) for view in self.records.read(self.where[indices])]

    def file_of(self, index: int) -> str:
        """The file that has a sample."""
        part = bisect_right(self.firsts, int(self.where[index])) - 1
        return self.records.parts[part].path


def samples(records: lmdbio.Records) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The record of each sample of one file."""
    try:
        count = pickle.loads(records[records.index_of(LENGTH)])
    except KeyError:
        count = len(records)
    return np.array([records.index_of(b"%d" % i) for i in range(count)], np.int64)
