"""Decoding: a Reader's batches, taken by one thread and decoded by others, ahead of the caller.

Reader -> one thread asks for the next batch -> threads decode a part of it each -> collated
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lmdbio.batch import Batch
from lmdbio.reader.reader import Reader
from lmdbio.torch.draws import Indexed, Source
from lmdbio.torch.prefetch import Ended, Prefetcher
from lmdbio.torch.samples import Errors, Numbered, SampleMaker
from lmdbio.torch.threads import Wanted, WorkerThreads
from lmdbio.torch.whole import WholeBatches

__all__ = ["NOTHING", "DecodedBatches", "Decoder"]

#: Stands for a batch of which no row is wanted.
NOTHING = object()


class Decoder:
    """Makes samples of a Reader's records, and a batch of samples.

    Args:
        transform: function from a value to a sample; None: samples are values.
        collate: function from a list of samples to a batch.
        buffers: whether values are memoryviews of the window instead of bytes.
        errors: argument of ``Dataset``.
        whole: maker of whole batches, instead of the other arguments; None: they are used.
    """

    def __init__(
        self,
        transform: Callable[[Any], Any] | None,
        collate: Callable[[list[Any]], Any],
        *,
        buffers: bool,
        errors: Errors = "raise",
        whole: WholeBatches | None = None,
    ) -> None:
        self.whole = whole
        self._transform, self._collate = transform, collate
        self._kind = memoryview if buffers else bytes
        self._origin = _Origin()
        self._maker = SampleMaker(self._origin, errors)

    def reads(self, path: str) -> None:
        """Take notice of the file that records come from, which exceptions name."""
        self._origin.path = path

    def _made(self, values: Iterator[Any], _: Indexed) -> Iterator[Any]:
        return values if self._transform is None else map(self._transform, values)

    @property
    def left_out(self) -> int:
        """The number of samples that were left out so far."""
        return self._maker.left_out

    def samples(self, batch: Batch, part: range, source: Source, wanted: Wanted) -> list[Any]:
        """Return the samples of some rows of a batch."""
        values = map(self._kind, map(batch.__getitem__, part))
        rows = Numbered(batch.indices[part.start : part.stop])
        made: list[Any] = self._maker.samples(self._made, values, rows, source, wanted)
        return made

    def whole_batch(
        self, whole: WholeBatches, batch: Batch, rows: int, source: Source, wanted: Wanted
    ) -> Any:
        """Return what is made of the first rows of a batch as a whole."""
        if rows < len(batch):
            batch = batch.part(slice(0, rows), batch.indices[:rows])
        return self._maker.whole(batch, whole.decode, source, wanted)[0]

    def collate(self, samples: list[Any], batch: Batch, rows: int, source: Source) -> Any:
        """Return a batch of the samples of its first rows."""
        return self._maker.finished(samples, Numbered(batch.indices[:rows]), source, self._collate)


class _Origin:
    """Where a sample comes from, in words.

    Attributes:
        path: file that the Reader reads.
    """

    path = ""

    def __call__(self, index: int) -> str:
        return f"sample {index}, file {self.path}"


class DecodedBatches:
    """A Reader's batches in their order, decoded ahead.

    Args:
        reader: Reader from whose next batch on; it is not closed. Nobody else may ask it.
        seed: seed of what samples draw.
        threads: number of threads that decode the records of a batch.
        ahead: number of batches that wait to be asked for.
        rows: function from an iteration to how many rows of its batch are wanted, the first ones;
            None: all of each.
    """

    def __init__(
        self,
        reader: Reader,
        decoder: Decoder,
        *,
        seed: int,
        threads: int,
        ahead: int,
        rows: Callable[[int], int] | None = None,
    ) -> None:
        self._reader, self._decoder, self._rows, self._seed = reader, decoder, rows, seed
        decoder.reads(reader.facts.path)
        self._taking = WorkerThreads(1)
        self._decoding = WorkerThreads(threads, owner=self._taking)
        self._wanted = Wanted(self._taking)
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
        schedule, decoder = self._reader.schedule, self._decoder
        place = schedule.place_after(iteration)
        source = Source(self._seed, place // schedule.epoch_places)
        if decoder.whole is not None:
            made = decoder.whole_batch(decoder.whole, batch, rows, source, self._wanted)
            return iteration, made
        size = -(-rows // self._decoding.threads) or 1
        parts = [range(at, min(at + size, rows)) for at in range(0, rows, size)]
        make = partial(decoder.samples, batch, source=source, wanted=self._wanted)
        begun = [self._decoding.submit(partial(make, part)) for part in parts]
        for task in begun:  # all, for they look at the window
            task.wait()
        try:
            samples = [one for task in begun for one in task.result()]
            return iteration, decoder.collate(samples, batch, rows, source)
        except StopIteration as error:  # it would be taken for the end
            raise RuntimeError("transform or collate_fn raised StopIteration") from error

    def close(self) -> None:
        """End the threads. May be called twice; the Reader stays open."""
        self._taking.close()
        self._decoding.close()
