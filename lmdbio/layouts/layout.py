"""A layout, the keys that it looks at, and the selection that it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lmdbio.errors import IncompatibleError
from lmdbio.provenance.keys import KeyPattern

__all__ = ["Keys", "Layout", "Selection", "refuse"]

I64 = npt.NDArray[np.int64]


class Keys(Protocol):
    """The keys of one database.

    ``has``, ``value``, ``first``, ``last`` and ``ends`` read a few pages each. ``pattern``,
    ``index`` and ``all`` may read all keys: a layout asks for them when its samples are wanted,
    and not to find out whether it is there.

    Attributes:
        path: path of the data file, for messages.
        count: keys.
    """

    path: str
    count: int

    @property
    def first(self) -> bytes:
        """The first key in key order; empty: there is none."""
        ...

    @property
    def last(self) -> bytes:
        """The last key in key order; empty: there is none."""
        ...

    @property
    def ends(self) -> Sequence[bytes]:
        """The first few keys and the last few, in key order, each once."""
        ...

    def has(self, key: bytes) -> bool:
        """Return whether a key is there."""
        ...

    def value(self, key: bytes) -> bytes | None:
        """Return the value of a key; None: it is not there."""
        ...

    @property
    def pattern(self) -> KeyPattern | None:
        """The pattern of all keys; None: none is known."""
        ...

    def index(self, key: bytes) -> int | None:
        """Return the record of a key, numbered in key order; None: it is not there."""
        ...

    def all(self) -> Iterator[list[bytes]]:
        """Iterate over all keys in key order, some at a time."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """The samples of one database, as a layout finds them.

    Attributes:
        layout: name of the layout.
        samples: number of samples, judged by a few keys; None: these do not tell.
        metadata: existing keys that belong to no sample.
        columns: number of records per sample.
        order: function that returns the records of all samples, numbered in key order: int64 of
            shape (samples,), or (samples, columns). It raises IncompatibleError if the keys
            contradict the layout. None: each record is a sample, in key order.
        keys_at: function that returns the keys of a sample's records by its index, whether they
            are there or not. None: all keys have to be read to know.
    """

    layout: str
    samples: int | None = None
    metadata: tuple[bytes, ...] = ()
    columns: int = 1
    order: Callable[[Keys], I64] | None = None
    keys_at: Callable[[int], tuple[bytes, ...]] | None = None


class Layout(Protocol):
    """The way in which a program stores samples in a database: a value that can be pickled."""

    @property
    def name(self) -> str:
        """The name by which people ask for it."""
        ...

    def find(self, keys: Keys) -> Selection | None:
        """Return the samples of a database; None: it has another layout."""
        ...


def refuse(path: str, name: str, why: str) -> IncompatibleError:
    """Return the error for a database whose keys contradict its layout."""
    return IncompatibleError(f"{path}: layout {name!r}: {why}")
