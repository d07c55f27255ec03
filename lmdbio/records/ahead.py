"""ahead: indices as callers give them, and batches that are begun ahead of their use."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from lmdbio.errors import Error

__all__ = ["as_indices", "cut", "is_several", "read_ahead"]

U64 = npt.NDArray[np.uint64]
#: The usual type of an index that is no ``int``: for a quick look.
INT64 = np.int64


def as_indices(indices: npt.ArrayLike, count: int, path: str) -> U64:
    """Return indices that count from the beginning, of ``count`` records.

    Args:
        indices: integers, shape (n,); negative ones count from the end. Or whether each record is
            meant: bool, shape (count,).

    Raises:
        TypeError: they are neither of these.
        IndexError: there is no such record.
    """
    given = asked = np.asarray(indices)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
        given = asked = unmasked(given, count)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise TypeError(
                f"indices must be a one-dimensional array of integers (or of bool, one for each "
                f"of {count}), not {given.dtype} of shape {given.shape}"
            )
    if given.dtype.kind == "i" and given.size and int(given.min()) < 0:
        given = given.astype(np.int64)  # an unsigned or short type could not hold the sum
        given = np.where(given < 0, given + count, given)
    if given.size and (int(given.max()) >= count or int(given.min()) < 0):
        wrong = asked[(given < 0) | (given >= count)][0]
        raise IndexError(f"{path}: record {wrong} of {count}")
    return given.astype(np.uint64)


def unmasked(given: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return the indices that a mask of ``count`` records means; what is none as it is."""
    return np.flatnonzero(given) if given.dtype == np.bool_ and given.shape == (count,) else given


def is_several(index: object) -> bool:
    """Return whether an index means several records: a list, or an array of whichever library."""
    return isinstance(index, list) or getattr(index, "ndim", 0) > 0


def cut(
    wanted: Iterable[npt.ArrayLike] | npt.ArrayLike, batch_size: int | None, count: int
) -> tuple[Iterable[npt.ArrayLike], int]:
    """Return the indices of each batch, and how many records will be read at random.

    None, as far as is known, where the batches are made while they are used, or the order is the
    records' own.

    Args:
        wanted: indices of each batch; with ``batch_size``, of all batches, shape (n,).
        batch_size: records of a batch.
        count: records that there are.

    Raises:
        TypeError: ``wanted`` is no one-dimensional array, and there is a ``batch_size``.
        ValueError: ``batch_size`` is below 1.
    """
    if batch_size is None:
        each: Any = wanted
        return each, sum(map(len, each)) if isinstance(each, (list, tuple, np.ndarray)) else 0
    size = operator.index(batch_size)
    if size < 1:
        raise ValueError(f"batch_size must be at least 1, not {size}")
    order = unmasked(np.asarray(wanted), count)
    if order.ndim != 1:
        raise TypeError(f"with batch_size, indices are one array of shape (n,), not {order.shape}")
    each = (order[at : at + size] for at in range(0, len(order), size))
    return each, 0 if bool((order[1:] >= order[:-1]).all()) else len(order)


class Closable(Protocol):
    """The part of pending work that is used to give it up."""

    def close(self) -> None: ...


B = TypeVar("B", bound=Closable)


def read_ahead(
    begin: Callable[[npt.ArrayLike], B], wanted: Iterable[npt.ArrayLike], ahead: int
) -> Iterator[B]:
    """Begin one after another, and hand each out while ``ahead`` more are under way.

    The caller waits for the one handed out; those that nobody takes are closed.

    Args:
        begin: begins to read the records of some indices.
        wanted: indices of each, taken as they are needed.
        ahead: number of batches in flight beside the one handed out.

    Raises:
        ValueError: ``ahead`` is below 1.
        OSError, MemoryError, Error: as ``begin``, after the batches before it.
    """
    if ahead < 1:
        raise ValueError(f"ahead must be at least 1, not {ahead}")
    return _read_ahead(begin, wanted, ahead)


def _read_ahead(
    begin: Callable[[npt.ArrayLike], B], wanted: Iterable[npt.ArrayLike], ahead: int
) -> Iterator[B]:
    begun: deque[B] = deque()
    failure: Exception | None = None
    try:
        for indices in wanted:
            try:
                begun.append(begin(indices))
            except (OSError, MemoryError, Error) as error:
                failure = error  # raised after the batches before it
                break
            if len(begun) > ahead:
                yield begun.popleft()
        while begun:
            yield begun.popleft()
        if failure is not None:
            raise failure
    finally:
        for one in begun:
            one.close()
