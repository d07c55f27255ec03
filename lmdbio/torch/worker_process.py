"""A worker process: makes batches of values that the loader's process reads.

Order -> values in the loader's segment -> samples -> collate -> Reply, arrays in a segment of its
own, which it uses again once the loader's process has let go of them

It opens no file, and has no thread but one that ends it when the loader's process is gone. Random
draws follow from the sample, as in threads (``draws``).
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import _utils

from lmdbio.torch.dataset import lent
from lmdbio.torch.draws import Source
from lmdbio.torch.samples import CalledOffError, Numbered, SampleMaker
from lmdbio.torch.transfer import Places, Segment, pack
from lmdbio.torch.whole import Recipe

U64 = npt.NDArray[np.uint64]

__all__ = ["Order", "Reply", "serve"]

#: Seconds between two looks at whether the parent is there.
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Order:
    """One batch to make.

    Attributes:
        indices: index of each sample.
        source: Source of random draws.
        offsets, lengths: place of each value in the loader's segment; None: ``values`` has them.
        values: the values, where samples are of several records.
        keys: key of each sample; None: they are not asked for.
        size: bytes of a segment whose descriptor comes next; 0: the one of before.
        freed: numbers of the worker's segments that nobody looks at any more.
        retired: numbers of those that a process looks at which this one does not know of.
    """

    indices: U64
    source: Source | None
    offsets: U64 | None
    lengths: U64 | None
    values: list[Any] | None
    keys: list[Any] | None
    size: int
    freed: list[int]
    retired: list[int]


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of an order.

    Attributes:
        pickled, places: the batch, as ``pack`` returns it; or an exception, without places.
        segment: number of the worker's segment that its arrays lie in; None: there are none.
        size: bytes of that segment, if it is new: its descriptor comes next; else 0.
        dropped: numbers of segments that the worker no longer has.
        left_out: number of samples that were left out.
        is_error: an exception was raised, and ``trace`` says where.
        is_unsendable: whether it was the batch that could not be pickled.
        is_begun: the worker has begun; False: ``Recipe.begin`` raised the exception.
    """

    pickled: bytes
    places: Places
    segment: int | None
    size: int
    dropped: list[int]
    left_out: int
    is_error: bool = False
    trace: str = ""
    is_unsendable: bool = False
    is_begun: bool = True


class _Segments:
    """The segments of a worker, into which it packs batches."""

    def __init__(self) -> None:
        self._all: dict[int, Segment] = {}
        self._free: set[int] = set()
        self._made = 0
        self.used: int | None = None
        self.fresh: Segment | None = None
        self.dropped: list[int] = []

    def begin(self, freed: list[int], retired: list[int]) -> None:
        """Begin a batch; the loader's process has let go of some segments, or will never."""
        for number in retired:
            self._all.pop(number, None)
        self._free.update(number for number in freed if number in self._all)
        self.used, self.fresh, self.dropped = None, None, []

    def allocate(self, size: int) -> memoryview:
        """Return memory of a free segment, or of a new one in place of those too small."""
        fits = [number for number in self._free if self._all[number].size >= size]
        if fits:
            self.used = min(fits, key=lambda number: self._all[number].size)
            self._free.discard(self.used)
            return self._all[self.used].view
        self.dropped = sorted(self._free)
        for number in self.dropped:
            self._all.pop(number).close_fd()
        self._free.clear()
        self.fresh = Segment.make(size)
        self.used, self._made = self._made, self._made + 1
        self._all[self.used] = self.fresh
        return self.fresh.view

    def give_back(self) -> None:
        """Take back the segment of a batch that failed: nobody will look at it."""
        if self.used is None:
            return
        if self.fresh is None:
            self._free.add(self.used)
        else:
            self._all.pop(self.used)  # nobody else knows of it


class _Worker:
    """Makes batches for one connection.

    Args:
        connection: connection to the loader's process.
        recipe: Recipe of the batches.
    """

    def __init__(self, connection: Connection, recipe: Recipe) -> None:
        self._connection, self._recipe = connection, recipe
        self._input: Segment | None = None
        self._segments = _Segments()
        self._maker = SampleMaker(
            self._describe, recipe.transform, keys=recipe.keys, errors=recipe.errors
        )

    def _describe(self, index: int) -> str:
        """Ask the loader's process, which has the file, for a sample's origin in words."""
        self._connection.send(index)
        return str(self._connection.recv())

    def run(self, unbegun: BaseException | None = None) -> None:
        """Make batches until the loader's process asks for no more.

        Args:
            unbegun: exception with which each order is answered; None: it is done.
        """
        while (order := self._connection.recv()) is not None:
            if order.size:
                self._input = Segment(recv_handle(self._connection), order.size)
                self._input.close_fd()
            if unbegun is not None:
                self._connection.send(replace(self._failure(unbegun, 0), is_begun=False))
                continue
            self._segments.begin(order.freed, order.retired)
            before, is_made = self._maker.left_out, False
            try:
                batch = self._batch(order)
                is_made = True
                pickled, places = pack(batch, self._segments.allocate)
                del batch
                reply = self._reply(pickled, places, before)
            except BaseException as error:
                self._segments.give_back()
                self._connection.send(self._failure(error, before, is_unsendable=is_made))
                del error
                continue
            self._connection.send(reply)
            if self._segments.fresh is not None:
                send_handle(self._connection, self._segments.fresh.fd, os.getppid())
                self._segments.fresh.close_fd()

    def _reply(self, pickled: bytes, places: Places, before: int) -> Reply:
        own = self._segments
        return Reply(
            pickled=pickled,
            places=places,
            segment=own.used,
            size=0 if own.fresh is None else own.fresh.size,
            dropped=own.dropped,
            left_out=self._maker.left_out - before,
        )

    def _failure(self, error: BaseException, before: int, *, is_unsendable: bool = False) -> Reply:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:
            pickled = b""
        left_out = self._maker.left_out - before
        dropped = self._segments.dropped
        return Reply(pickled, [], None, 0, dropped, left_out, True, trace, is_unsendable)

    def _batch(self, order: Order) -> Any:
        values: Iterator[Any] | list[Any] = self._values(order)
        if order.keys is not None:
            values = zip(order.keys, values, strict=True)
        elif self._recipe.transform is None:
            values = list(values)
        batch, collate = Numbered(order.indices), self._recipe.collate.function
        return self._maker.samples(values, batch, order.source, self._is_wanted, collate)

    def _is_wanted(self) -> bool:
        return self._input is None or not self._input.view[0]

    def _values(self, order: Order) -> Iterator[Any]:
        buffers = self._recipe.buffers
        if order.offsets is None or order.lengths is None:
            return map(lent, order.values or []) if buffers else iter(order.values or [])
        assert self._input is not None
        view = self._input.view if not buffers else self._input.view.toreadonly()
        kind = memoryview if buffers else bytes
        places = zip(order.offsets.tolist(), order.lengths.tolist(), strict=True)
        return (kind(view[at : at + length]) for at, length in places)


def serve(
    connection: Connection, others: list[Connection], number: int, count: int, recipe: Recipe
) -> None:
    """Be the worker process of a number, until its loader's process asks for no more.

    Args:
        connection: connection to the loader's process.
        others: the loader's ends of connections that a fork has copied; they are closed.
        number, count: number of this worker, and of all.
        recipe: Recipe of the batches.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader's process decides what Ctrl-C ends
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for other in others:
        other.close()
    threading.Thread(target=_end_with_parent, name="lmdbio-parent", daemon=True).start()
    torch.set_num_threads(1)
    info = _utils.worker.WorkerInfo(
        id=number, num_workers=count, seed=torch.initial_seed() + number, dataset=None
    )
    _utils.worker._worker_info = info
    unbegun: BaseException | None = None
    try:
        if recipe.begin is not None:
            recipe.begin(number)
    except BaseException as error:
        unbegun = error
    # The loader's process may close this, or go.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError, CalledOffError):
        _Worker(connection, recipe).run(unbegun)


def _end_with_parent() -> None:
    """End this process when its parent is gone, whatever a transform does meanwhile.

    Other children of the parent may have copied what says so at once, so it is looked as well.
    """
    parent, began_under = parent_process(), os.getppid()
    sentinels = [] if parent is None else [parent.sentinel]
    while os.getppid() == began_under and not wait(sentinels, LOOK_SECONDS):
        pass
    os._exit(1)
