"""Decoding: a Reader's batches, taken by one thread and decoded by others, ahead of the caller.

Reader -> one thread asks for the next batch -> threads decode a part of it each -> collated
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lmdbio.batch import Batch
from lmdbio.reader.reader import Reader
from lmdbio.torch.threads import Ended, Prefetcher, WorkerThreads

__all__ = ["NOTHING", "DecodedBatches", "Decoder"]

#: Stands for a batch of which no row is wanted.
NOTHING = object()


class Decoder:
    """Makes samples of a Reader's records, and a batch of samples.

    Args:
        transform: makes a sample of a value; None: the value.
        collate: makes a batch of a list of samples.
        buffers: values are memoryviews of the window instead of bytes.
    """

    def __init__(
        self,
        transform: Callable[[Any], Any] | None,
        collate: Callable[[list[Any]], Any],
        *,
        buffers: bool,
    ) -> None:
        self._transform, self.collate = transform, collate
        self._kind = memoryview if buffers else bytes

    def samples(self, batch: Batch, part: range) -> list[Any]:
        """Return the samples of some rows of a batch."""
        kind, transform = self._kind, self._transform
        if transform is None:
            return [kind(batch[i]) for i in part]
        return [transform(kind(batch[i])) for i in part]


class DecodedBatches:
    """A Reader's batches in their order, decoded ahead.

    Args:
        reader: from whose next batch on; it is not closed. To be asked by nobody else.
        threads: that decode the records of a batch.
        ahead: batches that wait to be asked for.
        rows: returns how many rows of the batch of an iteration are wanted, the first ones; None:
            all of each.
    """

    def __init__(
        self,
        reader: Reader,
        decoder: Decoder,
        *,
        threads: int,
        ahead: int,
        rows: Callable[[int], int] | None = None,
    ) -> None:
        self._reader, self._decoder, self._rows = reader, decoder, rows
        self._taking, self._decoding = WorkerThreads(1), WorkerThreads(threads)
        self._batches = Prefetcher(self._taking, self._take, None, ahead)

    @property
    def handed_out(self) -> int:
        """Batches, and errors, that the caller has had."""
        return self._batches.handed_out

    def next(self) -> tuple[int, Any]:
        """Return the next batch, ``NOTHING`` if no row is wanted, and the iteration that it is of.

        Raises:
            Ended: the Reader's last iteration is over.
            What ``transform``, ``collate`` or the Reader raised.
        """
        one: tuple[int, Any] = self._batches.next()
        return one

    def _take(self, _: int) -> tuple[int, Any]:
        iteration = self._reader.iteration
        try:
            batch = next(self._reader)
        except StopIteration:
            raise Ended from None
        rows = len(batch) if self._rows is None else self._rows(iteration)
        if self._rows is not None and not rows:
            return iteration, NOTHING
        size = -(-rows // self._decoding.threads) or 1
        parts = [range(at, min(at + size, rows)) for at in range(0, rows, size)]
        begun = [self._decoding.submit(partial(self._decoder.samples, batch, p)) for p in parts]
        for task in begun:  # all, for they look at the window
            task.wait()
        try:
            samples = [one for task in begun for one in task.result()]
            return iteration, self._decoder.collate(samples)
        except StopIteration as error:  # it would be taken for the end
            raise RuntimeError("transform or collate_fn raised StopIteration") from error

    def close(self) -> None:
        """End the threads. May be called twice; the Reader stays open."""
        self._taking.close()
        self._decoding.close()
