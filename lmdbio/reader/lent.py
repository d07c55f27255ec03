"""Batches that this rank borrows from slots: the current one, and those whose views live on.

A rank needs a slot until it asks for the first batch beyond the block in it, and longer where
views made from an earlier batch are alive.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

from lmdbio import _core, share
from lmdbio.planning.schedule import Schedule
from lmdbio.reading.batch import Batch

__all__ = ["LentBatches"]


class LentBatches:
    """Makes this rank's batches over slots, and releases the blocks that it needs no more.

    It needs the current block, and those under live views.

    Args:
        window: window whose slots hold the blocks.
        schedule: says which rows of which block are this rank's.
        rank: rank in the job.
        slots: slots of the Reader: when the rank asks for the next batch, views of the last
            ``slots - 2`` batches may be alive.
    """

    def __init__(
        self, window: share.NodeWindow, schedule: Schedule, rank: int, slots: int
    ) -> None:
        self._window, self._schedule, self._slots = window, schedule, slots
        self._rank, self._first = rank, schedule.rows(0, rank).start
        self._count = len(schedule.share(rank))
        self._team_rows = schedule.team_rows(schedule.team_of(rank))
        self._batch: Batch | None = None  # the current one
        self._block = self._released = 0
        self._pins: list[tuple[int, int, weakref.ref[Any]]] = []  # iteration, block, exporter

    # --- the current batch

    def take(self, iteration: int, block: int, step: int) -> Batch:
        """Return this rank's rows of a published block as its current batch.

        Args:
            iteration: iteration of the rows.
            block, step: number of its block, and the step in it (``Schedule.block_of``).
        """
        window = self._window
        lender = window.lender  # first: the memory that is read below must not end meanwhile
        first, count = self._first + step * self._team_rows, self._count
        if self._schedule.is_short(iteration):
            own = self._schedule.rows(iteration, self._rank)
            first, count = own.start, len(own)
        slot = window.addresses[block % window.layout.slots]
        rows = _core.split_rows(
            slot + first * _core.TABLE_ROW_BYTES, count, window.layout.data_bytes
        )
        if rows is None:
            raise RuntimeError(f"the table of block {block} points outside its slot")
        offsets, lengths, low, size = rows
        address = slot + window.layout.table_bytes + low
        if lender is None and size:
            # This window cannot be mapped a second time: views are of a copy.
            lender = _core.Memory(size)
            _core.lend(lender.address, size)[:] = _core.lend(address, size)[:]
            address = lender.address
        indices = partial(self._schedule.records, iteration, self._rank)
        self._batch = Batch.of_slot(
            address, size, indices=indices, offsets=offsets, lengths=lengths, keep=lender
        )
        return self._batch

    def retire_batch(self, iteration: int) -> None:
        """End the current batch, for the rank asks for that of ``iteration``.

        Raises:
            BufferError: a view is alive whose memory ``iteration`` needs; nothing has changed.
        """
        bar = iteration + 2 - self._slots
        oldest = self._oldest_pinned()
        if oldest is not None and oldest < bar:
            self._refuse(oldest, iteration)
        batch = self._batch
        if batch is None:
            return
        if not batch._try_end():
            if iteration - 1 < bar:
                self._refuse(iteration - 1, iteration)
            self._pin(batch, iteration - 1)
        self._batch = None

    def end(self, iterations: int) -> list[tuple[int, int]]:
        """End the current batch for good, after ``iterations`` batches; its views stay good.

        Returns:
            The addresses that live views look at: of the first byte, and after the last.
        """
        if self._batch is not None and not self._batch._try_end():
            self._pin(self._batch, iterations - 1)
        self._batch = None
        spans = []
        for _, _, alive in self._pins:
            exporter = alive()
            if exporter is not None:
                first = _core.address_of(exporter)
                spans.append((first, first + len(exporter)))
        return spans

    def _refuse(self, held: int, iteration: int) -> None:
        raise BufferError(
            f"views of the batch of iteration {held} are alive while iteration {iteration} is "
            f"asked for, and slots={self._slots} leaves no memory for that: drop them, "
            "copy() it, or raise slots="
        )

    # --- views that live on

    def _pin(self, batch: Batch, iteration: int) -> None:
        """End a batch whose views live on, and keep its block until they die."""
        exporter = batch._expire()
        if exporter is None:
            return
        # Python calls back when the last view dies, at any moment: the call only counts anew.
        reference = weakref.ref(exporter, lambda _dead: self._release())
        block = self._schedule.block_of(iteration)[0]
        self._pins.append((iteration, block, reference))

    def _oldest_pinned(self) -> int | None:
        """Return the oldest iteration, before the current batch's, that a live view belongs to."""
        self._pins = [pin for pin in self._pins if pin[2]() is not None]
        return min((iteration for iteration, _, _ in self._pins), default=None)

    # --- blocks

    def advance(self, block: int) -> None:
        """Note that the rank asks for a batch of ``block``; release the blocks before it."""
        self._block = max(self._block, block)
        if self._released < self._block:  # also where an exception (Ctrl-C) came between
            self._release()
            self._released = self._block

    def _release(self) -> None:
        pinned = {block for _, block, alive in self._pins if alive() is not None}
        self._window.release(min({self._block} | pinned))
