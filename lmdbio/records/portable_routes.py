"""portable_routes: from numbers of records to values, through py-lmdb.

    one record    read when it is asked for
    a batch       read when it is begun, into memory of its own
    in order      read some at a time; values of a batch, too

It has no copy of the file, no stream and no shard, and asks for no choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic_ns
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.locate.portable_index import PortableIndex, open_record_index
from lmdbio.machine.choice import Choice, choose
from lmdbio.machine.overrides import ENGINES, Overrides, overrides_from_env
from lmdbio.machine.storage import Storage
from lmdbio.observe.stats import StageCounter, Stats
from lmdbio.reading.batch import Batch
from lmdbio.records.ahead import as_indices
from lmdbio.system.amounts import refuse_unknown

__all__ = ["Routes", "choose_reading", "open_record_index"]

U64 = npt.NDArray[np.uint64]
#: Records that are read at once, in order.
STREAMED = 256


def choose_reading(_pages: None, access: Literal["batch"], keyword: Overrides) -> Choice:
    """Return the choice that says what was asked for; it has no effect.

    Raises:
        ValueError: there is no such engine, or a variable of the environment makes no sense.
    """
    choice = choose(access, Storage(), keyword=keyword, environment=overrides_from_env())
    refuse_unknown("engine", choice.engine, ENGINES)
    return choice


class _Values(Iterator[bytes]):
    """Values of records, some of which are read at a time (``_core.Values``)."""

    left = 0  # records that another way would have to bring

    def __init__(self, values: Iterator[bytes]) -> None:
        self._values = values

    def __next__(self) -> bytes:
        return next(self._values)


class Routes:
    """The ways of reading the records of one source (``records.routes.Routes``).

    Args:
        source: index that reads.
        choice, readahead, budget: arguments without an effect here.

    Attributes:
        counter: counts.
        shard: no part of the file.
    """

    shard = None

    def __init__(
        self, source: PortableIndex, choice: Choice, *, readahead: Any, budget: int
    ) -> None:
        del choice, readahead, budget
        self.source = source
        self.counter = StageCounter(self.engine_counts)
        self.file_cache = self.in_order = self.slices = self  # which it has not

    def locate(self, indices: npt.ArrayLike) -> tuple[U64, _core.Extents]:
        """Return the indices from the beginning, and the sizes of these records."""
        wanted = as_indices(indices, self.source.count, self.source.path)
        return wanted, self.source.extents(wanted)

    def single(self, at: int) -> bytes:
        """Return one record, ``at`` being below the count."""
        begun = monotonic_ns()
        (value,) = self.source.read(np.array([at]))
        self.counter.single(begun, len(value))
        return value

    def cached(self, begun: int, wanted: U64, extents: _core.Extents) -> Batch:
        """Read a batch.

        Args:
            begun: the moment at which locating it began.
            wanted, extents: indices and sizes of the records, from ``locate``.
        """
        located, values = monotonic_ns(), self.source.read(wanted)
        packed = _core.pack_extents(extents)
        memory = np.frombuffer(b"".join(values) or b"\0", np.uint8)
        self.counter.gathered(begun, located, len(values), packed.size)
        return Batch.over(
            memory.ctypes.data,
            packed.size,
            indices=wanted,
            offsets=packed.offsets,
            lengths=packed.lengths,
            keep=memory,
        )

    def complete(self) -> bool:
        """Return that no memory has the whole file."""
        return False

    def bring(self, wanted: U64, extents: _core.Extents) -> None:
        """Do nothing: records are read as they are asked for."""

    def read(self, start: int, stop: int) -> list[bytes]:
        """Return the values of records ``start`` to ``stop`` (exclusive)."""
        return list(self.streamed(np.arange(start, stop, dtype=np.uint64)))

    def fills(self, begun: int, extents: _core.Extents, fields: Sequence[Any]) -> bool:
        """Return that no fields are where they are wanted."""
        del begun, extents, fields
        return False

    def held_values(self, indices: npt.ArrayLike) -> tuple[list[int], _Values]:
        """Return indices as a list, and their values, which are read as they are asked for."""
        wanted = as_indices(indices, self.source.count, self.source.path)
        return wanted.tolist(), _Values(self.streamed(wanted))

    def streamed(self, indices: U64) -> Iterator[bytes]:
        """Iterate over the values of records, some of which are read at a time."""
        for at in range(0, len(indices), STREAMED):
            begun, some = monotonic_ns(), indices[at : at + STREAMED]
            values = self.source.read(some)
            size = sum(map(len, values))
            self.counter.span("wait", begun, records=len(values), record_bytes=size)
            yield from values

    def expect(self, records: int, processes: int = 1) -> None:
        """Do nothing: no part of the file is read before it is asked for."""

    def engine_counts(self) -> Stats:
        """Return no counts: py-lmdb has none."""
        return Stats()

    def close(self) -> None:
        """Do nothing: the source has the files."""
