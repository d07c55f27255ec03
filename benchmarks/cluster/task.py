"""The task of a rank, and the account that it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

#: Takes the bytes of one record.
Look = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Task:
    """The task of one rank.

    Attributes:
        path: the environment, as this rank's node sees it.
        lane, cell: a ``sweep.Lane`` and a ``sweep.Cell`` as JSON has them.
        comm: communicator, or process group, of all ranks.
        rank, size: rank of this process, and number of ranks.
        ranks_per_node: of the emulated nodes.
        bytes_max: of the file, for plain readers.
        step: called after each iteration.
        options: further arguments of the Reader.
    """

    path: str
    lane: Mapping[str, Any]
    cell: Mapping[str, Any]
    comm: Any
    rank: int
    size: int
    ranks_per_node: int
    bytes_max: int
    step: Callable[[], None]
    options: Mapping[str, Any]


@dataclass(slots=True)
class Account:
    """The bytes that one rank read, and where its time went.

    Attributes:
        records, bytes: handed out; of plain readers requests, and bytes of the file.
        indices: of the records.
        seek_s, io_s, turn_s, wait_s: see above.
        first_wait_s, exposed_s: in ``next(reader)``: for the first batch, which nothing could
            hide, and for all later ones.
        epochs: for each, until its last batch came, since reading began; and of that, in
            ``next(reader)``.
        reads: this rank reads from the store.
        read_since: when its reading began (``time.monotonic``); 0: when it had opened. A Reader's
            roots read as soon as they can, before all ranks have opened.
        mode: of a Reader, as it came out.
        kept: in words, what roots of a Reader keep, and why.
        stats: of a Reader.
        sources: of a Reader, by epoch and source: records, and bytes.
    """

    records: int = 0
    bytes: int = 0
    indices: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    seek_s: float = 0.0
    io_s: float = 0.0
    turn_s: float = 0.0
    wait_s: float = 0.0
    first_wait_s: float = 0.0
    exposed_s: float = 0.0
    epochs: list[tuple[float, float]] = field(default_factory=list)
    reads: bool = True
    read_since: float = 0.0
    mode: dict[str, Any] = field(default_factory=dict)
    kept: str = ""
    stats: dict[str, float] = field(default_factory=dict)
    sources: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)

    def waited(self, seconds: float) -> None:
        """Note how long ``next(reader)`` took, before its batch is counted."""
        if self.records:
            self.exposed_s += seconds
        else:
            self.first_wait_s = seconds
