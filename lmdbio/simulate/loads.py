"""loads: what each node of a Reader's job reads, sends and uses in each iteration. Pure.

    extents, Job -> forecast.Outlook -> rows of each epoch: user, holder, source
      counted by epoch and source        what ``reader.sources()`` will tell, to the byte
      summed by iteration and node       what the clock of ``reader_job`` turns into seconds

Requests and bytes of an epoch from the file are those of its forecast. They lie where they are
first needed: a grain of a home in the iteration that has the first of its records, a window in the
one that begins with it, else a record in its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.forecast import FILE, ROW_SOURCES, Forecast, Job, Outlook, Rows

__all__ = ["Loads"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class _Wanted(NamedTuple):
    """The rows of an epoch that make a root read the file.

    Attributes:
        iterations, nodes: iteration of each row, and the node whose root reads it.
        sizes: bytes, as far as this tells parts of the epoch from one another.
    """

    iterations: I64
    nodes: I64
    sizes: F64


class Loads:
    """The loads of a job. Arrays of floats have the shape (iterations, nodes).

    Args:
        outlook: Outlook of the job over these records.
        extents: extents of all records.
        job: Job whose epochs follow one another in batches.

    Attributes:
        records, sizes: rows of each epoch by source, int64 of shape (epochs, 4), and their sizes,
            bytes, each row's rounded up to a multiple of 8 (``Reader.sources``).
        ends: number of the iteration that has each epoch's last record.
        used: bytes that a node's ranks use.
        held: bytes that its root takes out of its tiers, for itself and others.
        sent, received: bytes between roots.
        read, requests: bytes from the file and requests for them.
        before: bytes and requests before the first iteration, of all nodes.
        window_iterations: number of iterations in which a window is used; 0: there are no windows.
    """

    def __init__(self, outlook: Outlook, extents: _core.Extents, job: Job) -> None:
        self._outlook, self._extents, self._job = outlook, extents, job
        self._lengths = extents["length"].astype(np.int64)
        align = _core.ROW_ALIGNMENT
        self._rooms = (self._lengths + align - 1) // align * align
        self._count = len(extents)
        self._is_touched = np.zeros(len(outlook.homes.grains.used) or 1, np.bool_)
        self.before, self.window_iterations = (0, 0), 0
        self.records = np.zeros((job.epochs, len(ROW_SOURCES)), np.int64)
        self.sizes = np.zeros_like(self.records)
        self.ends = (np.arange(1, job.epochs + 1) * self._count - 1) // job.batch
        shape = -(-job.epochs * self._count // job.batch), job.nodes
        self.used, self.held, self.read = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.sent, self.received = np.zeros(shape), np.zeros(shape)
        self.requests = np.zeros(shape)
        for told in outlook.epochs():
            if told.epoch is None:
                self.before = told.read_bytes, told.requests
            else:
                self._add_epoch(told, told.epoch)

    def _add_epoch(self, told: Forecast, number: int) -> None:
        """Add the rows of an epoch."""
        wanted = []
        for rows in self._outlook.rows(number):
            for source in range(len(ROW_SOURCES)):
                some = rows.records[rows.sources == source]
                self.records[number, source] += len(some)
                self.sizes[number, source] += int(self._rooms[some].sum())
            iterations = (number * self._count + rows.places) // self._job.batch
            size = self._lengths[rows.records].astype(np.float64)
            has_holder = rows.holders >= 0
            is_sent = has_holder & (rows.holders != rows.users)
            is_held = has_holder & (rows.sources != FILE) & (not self._job.placement.hands_on)
            self._add(self.used, iterations, rows.users, size)
            self._add(self.held, iterations[is_held], rows.holders[is_held], size[is_held])
            self._add(self.sent, iterations[is_sent], rows.holders[is_sent], size[is_sent])
            self._add(self.received, iterations[is_sent], rows.users[is_sent], size[is_sent])
            wanted.append(self._wanted(number, rows, iterations, size))
        self._add_reads(told, wanted)

    def _add(self, sums: F64, iterations: I64, nodes: I64, amounts: F64) -> None:
        """Add amounts of nodes in iterations, which ascend or not."""
        if not len(iterations):
            return
        first, last = int(iterations.min()), int(iterations.max())
        places = (iterations - first) * self._job.nodes + nodes
        found = np.bincount(places, amounts, (last - first + 1) * self._job.nodes)
        sums[first : last + 1] += found.reshape(-1, self._job.nodes)

    def _add_reads(self, told: Forecast, wanted: list[_Wanted]) -> None:
        """Add the reads of an epoch, as many as were forecast, where they are wanted."""
        sizes = sum(float(one.sizes.sum()) for one in wanted)
        rows = sum(len(one.sizes) for one in wanted)
        if not sizes:
            return
        for one in wanted:
            self._add(self.read, one.iterations, one.nodes, one.sizes * (told.read_bytes / sizes))
            each = np.full(len(one.sizes), told.requests / rows)
            self._add(self.requests, one.iterations, one.nodes, each)

    def _wanted(self, number: int, rows: Rows, iterations: I64, size: F64) -> _Wanted:
        """Return the rows for which a root reads the file, and how much."""
        readers = np.where(rows.holders >= 0, rows.holders, rows.users)
        if self._job.placement.hands_on:
            return _Wanted(self._of_rounds(number, rows.places), readers, size)
        is_read = rows.sources == FILE
        is_home = self._outlook.homes.records[rows.records] != _core.NO_HOME
        grains = self._outlook.homes.grains
        of_home = np.flatnonzero(is_read & is_home)
        first = of_home[self._first_of(rows.records[of_home])]
        rest = np.flatnonzero(is_read & ~is_home)
        when = np.concatenate((iterations[first], iterations[rest]))
        if self._outlook.rounds(self._outlook.epoch(number)) is not None:
            when[len(first) :] = self._of_rounds(number, rows.places[rest])
        sizes = np.concatenate((np.full(len(first), float(grains.size)), size[rest]))
        return _Wanted(when, readers[np.concatenate((first, rest))], sizes)

    def _first_of(self, records: I64) -> I64:
        """Return which of some records are the first ones of their grains."""
        grains = self._outlook.homes.grains.first(self._extents[records])
        found, first = np.unique(grains, return_index=True)
        first = first[~self._is_touched[found]]
        self._is_touched[found] = True
        return np.asarray(np.sort(first), np.int64)

    def _of_rounds(self, number: int, places: I64) -> I64:
        """Return the iterations in which the windows begin that have some places."""
        epoch, batch = self._outlook.epoch(number), self._job.batch
        rounds = self._outlook.rounds(epoch)
        if rounds is None or not len(places):
            return np.empty(0, np.int64)
        if epoch.shuffle.held:  # windows stream evenly among what is held
            places = places * rounds.epoch.count // self._count
        begins = np.array([rounds.begin(one) for one in range(len(rounds) + 1)], np.int64)
        longest = int(np.diff(begins).max()) * self._count // rounds.epoch.count
        self.window_iterations = max(self.window_iterations, -(-longest // batch))
        first = begins[rounds.of(places)] * self._count // rounds.epoch.count
        return np.asarray((number * self._count + first) // batch, np.int64)
