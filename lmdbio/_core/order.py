"""Orders of the records of an epoch (csrc/order.h)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import pointer_to

__all__ = ["Shuffling"]

U64 = npt.NDArray[np.uint64]


class Shuffling:
    """An order of records, by chunks and windows, computed where it is asked. Pure.

    Args:
        count: records, at least 1.
        chunk: records that stay together, 1 or more; the last chunk may have fewer.
        window: chunks whose records are shuffled among each other, 1 or more.
        chunk_keys, inner_keys: keys of the rounds, ``LIO_ORDER_ROUNDS`` numbers each.
        keeps_inner: records stay in their order inside chunks; ``window`` has no meaning.
        keeps_chunks: chunks stay in their order too.
    """

    def __init__(
        self,
        count: int,
        chunk: int,
        window: int,
        *,
        chunk_keys: U64,
        inner_keys: U64,
        keeps_inner: bool,
        keeps_chunks: bool = False,
    ) -> None:
        self.pointer: Any = ffi.new("lio_shuffle *")
        self._count = self.pointer.count = count
        self.pointer.chunk, self.pointer.window = chunk, window
        self.pointer.chunk_keys = chunk_keys.tolist()
        self.pointer.inner_keys = inner_keys.tolist()
        self.pointer.keeps_inner, self.pointer.keeps_chunks = keeps_inner, keeps_chunks

    def records(self, numbers: U64) -> None:
        """Replaces places by the records there.

        Args:
            numbers: C-contiguous.

        Raises:
            IndexError: one is not below the count.
        """
        self._check(numbers)
        lib.lio_shuffle_records(self.pointer, pointer_to(numbers, "uint64_t *"), len(numbers))

    def places(self, numbers: U64) -> None:
        """Replaces records by their places; as ``records``."""
        self._check(numbers)
        lib.lio_shuffle_places(self.pointer, pointer_to(numbers, "uint64_t *"), len(numbers))

    def _check(self, numbers: U64) -> None:
        if len(numbers) and int(numbers.max()) >= self._count:
            raise IndexError(f"a number is not below {self._count}")
