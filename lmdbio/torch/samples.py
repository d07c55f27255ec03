"""Samples: made of values, one by one; what fails names its record.

value -> transform -> sample    drawing its own random numbers (``draws``)
an exception -> a note: index, key, file -> raised, or the sample is left out (``errors``)
between two samples -> has anybody closed the loader?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice, starmap
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np

from lmdbio.errors import Error
from lmdbio.inside.keytext import show_key
from lmdbio.torch.draws import DrawMonitor, Indexed, Making, Source

__all__ = [
    "CalledOffError",
    "Errors",
    "Indexed",
    "Numbered",
    "RecordErrors",
    "SampleMaker",
    "add_note",
    "as_errors",
    "origin",
    "refuse_no_function",
]

#: Treatment of an exception of a transform: "raise" it, "skip" the sample, or ask a function of
#: the exception: if it returns true, the sample is left out.
Errors = str | Callable[[Exception], object]
#: Seconds that samples may take between two looks at whether the loader was closed.
POLL_SECONDS = 0.05
#: Samples between two looks, at most: transforms may become slow.
STRIDE_MAX = 64
#: Samples of a batch that a note names.
NAMED_MAX = 3


class CalledOffError(Error):
    """Nobody wants the samples any more: the loader was closed, or the iteration left."""


class RecordErrors(Exception):
    """A decoder raises this if some records of a batch cannot be decoded and the others can.

        raise RecordErrors({row: ValueError("no label")})

    Users of a loader see the first of these exceptions, with a note that names the record; or,
    with ``errors="skip"`` or a function that is true for all of them, the batch without these.

    Args:
        errors: the exception of each such record, by its row in the batch, from 0; at least one.

    Raises:
        ValueError: there are none.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        if not errors:
            raise ValueError("RecordErrors: name the row of at least one record")
        self.errors = dict(errors)
        row, error = next(iter(self.errors.items()))
        super().__init__(f"{len(self.errors)} records, such as row {row}: {error}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors,)


def as_errors(given: object) -> Errors:
    """Return what a user says of errors.

    Raises:
        ValueError, TypeError: it is none of the three.
    """
    if given in ("raise", "skip"):
        return str(given)
    if callable(given):
        return given
    kind = ValueError if isinstance(given, str) else TypeError
    raise kind(f'errors is "raise", "skip", or a function of the exception, not {given!r}')


def refuse_no_function(**given: object) -> None:
    """Raise TypeError for an argument, by its name, that is neither None nor a function."""
    for word, function in given.items():
        if function is not None and not callable(function):
            raise TypeError(f"{word}= is a function, not {function!r}")


def add_note(error: BaseException, text: str) -> None:
    """Add a note to an exception, as ``BaseException.add_note`` of Python 3.11 does it."""
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list) and text in notes:
        return
    with suppress(Exception):  # an exception may take no attributes, and is raised all the same
        if hasattr(error, "add_note"):
            error.add_note(text)
        else:
            error.__notes__ = [*(notes or ()), text]  # type: ignore[attr-defined]


def origin(records: Any, index: int) -> str:
    """Return in words where a sample comes from: index, key and file, as far as they are known.

    Args:
        records: ``Samples`` that it is one of.
        index: index of the sample there.
    """
    words = [f"sample {index}"]
    for describe in (_key, _file):
        try:
            words.append(describe(records, index))
        except Exception:
            continue  # it explains another exception, and must not hide that
    return ", ".join(words)


def _key(records: Any, index: int) -> str:
    key = records.key(index)
    keys = key if isinstance(key, tuple) else (key,)
    return f"key {' and '.join(map(show_key, keys))}"


def _file(records: Any, index: int) -> str:
    """Return the file of a sample, and its number there, where that is another one."""
    given, prefix = index, ""
    while hasattr(records, "base") or hasattr(records, "origin"):
        if hasattr(records, "base"):
            index, records = int(records.indices[index]), records.base
        else:
            name, index = records.origin(index)
            records, prefix = records.sets[records.names.index(name)], f"of set {name!r}, "
    if hasattr(records, "sets"):  # of a Zip
        return " and ".join(_file(one, index) for one in records.sets)
    file, number = records.file_of(index)
    return f"{prefix}file {file}" + ("" if number == given else f" (its number {number})")


class Numbered:
    """Samples that are known by their indices alone.

    Args:
        indices: index of each sample.
    """

    __slots__ = ("indices",)

    def __init__(self, indices: Any) -> None:
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)


class SampleMaker:
    """Makes samples of values, for any number of threads.

    Args:
        where: words for a sample's origin, by its index.
        transform, keys, errors: arguments of ``Dataset``.

    Attributes:
        where, transform: those arguments.
        left_out: number of samples that were left out so far.
    """

    def __init__(
        self,
        where: Callable[[int], str],
        transform: Callable[..., Any] | None,
        *,
        keys: bool = False,
        errors: Errors = "raise",
    ) -> None:
        self.where, self.transform, self._keys, self._errors = where, transform, keys, errors
        self._monitor, self._stride = DrawMonitor(), 1
        self._counting, self.left_out = Lock(), 0

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(SampleMaker, keys=self._keys, errors=self._errors)
        return made, (self.where, self.transform)

    def samples(
        self,
        values: Iterator[Any] | list[Any],
        batch: Indexed,
        source: Source | None = None,
        is_wanted: Callable[[], bool] | None = None,
        finish: Callable[[list[Any]], Any] | None = None,
    ) -> Any:
        """Return the samples of values.

        Args:
            values: value of each, or with keys a pair; none is asked for before the sample of the
                one before is made, so that a value leaves its memory, which is in a core's cache,
                to the next one. A list: the samples themselves.
            batch: the samples' batch, with their indices.
            source: Source of their random draws; None: the process's generators.
            is_wanted: whether the caller still wants them, asked between two samples.
            finish: function from the list of all to what is returned, which may draw as well;
                None: the list.

        Raises:
            CalledOffError: they are wanted no longer.
            RuntimeError: the transform raised StopIteration, or all samples were left out and
                there is a ``finish``.
            What ``values``, the transform or ``finish`` raised, with a note that names the record.
        """
        with Making(source, batch, self._monitor) as making:
            if isinstance(values, list):
                making.made = values
            else:
                if self._errors != "raise":
                    values = _reads(values)
                self._fill(making, self._made(values), is_wanted)
            return making.made if finish is None else self._finish(making, finish)

    def _made(self, values: Iterator[Any]) -> Iterator[Any]:
        """Return the iterator of samples of an iterator of values, or of pairs."""
        if self.transform is None:
            return values
        return starmap(self.transform, values) if self._keys else map(self.transform, values)

    def whole(
        self,
        batch: Any,
        decode: Callable[[Any], Any],
        source: Source | None,
        is_wanted: Callable[[], bool] | None = None,
    ) -> tuple[Any, Any]:
        """Return what a decoder makes of a whole batch, and the batch without what was left out.

        Args:
            batch: ``Batch``, or another one that has ``part``.
            decode: decoder of batches, asked again without the records that it has named.
            source, is_wanted: arguments of ``samples``; draws are those of the batch.

        Raises:
            CalledOffError, RuntimeError: as ``samples``.
            What ``decode`` raised, of a record or of the batch, with a note that names it.
        """
        with Making(source, batch, self._monitor) as making:
            making.made = [None] * len(batch)  # no sample is made by itself
            while True:
                if is_wanted is not None and not is_wanted():
                    raise CalledOffError("this loader is closed")
                try:
                    return decode(batch), batch
                except RecordErrors as failed:
                    batch = self._rest(batch, failed.errors)
                except Exception as error:
                    add_note(error, self._note(batch))
                    raise

    def _rest(self, batch: Any, failed: Mapping[int, Exception]) -> Any:
        """Return a batch without the records that a decoder has named, if they are left out."""
        cached = np.ones(len(batch), np.bool_)
        for row, error in sorted(failed.items()):
            if not 0 <= row < len(batch):
                raise IndexError(f"RecordErrors names row {row} of a batch of {len(batch)}")
            if not self._is_left_out(error, int(batch.indices[row])):
                raise error from None
            cached[row] = False
        if not cached.any():
            error = RuntimeError("all samples of the batch were left out")
            add_note(error, self._note(batch))
            raise error from None
        rows = np.flatnonzero(cached)
        return batch.part(rows, batch.indices[rows])

    def _finish(self, making: Making, finish: Callable[[list[Any]], Any]) -> Any:
        try:
            if not making.made and len(making.batch):
                raise RuntimeError("all samples of the batch were left out")
            return finish(making.made)
        except Exception as error:
            add_note(error, self._note(making.batch))
            raise

    def _fill(
        self, making: Making, made: Iterator[Any], is_wanted: Callable[[], bool] | None
    ) -> None:
        samples, count, place = making.made, len(making.batch), 0
        stride = count if is_wanted is None else self._stride
        while place < count:
            begun = 0.0 if is_wanted is None else monotonic()
            try:
                # The list's length is the place of the sample that is being made, at any moment.
                samples.extend(islice(made, stride))
                end = min(place + stride, count)
                place = len(samples) + making.left_out
                if place < end:  # for an iterator that is the end, as for a DataLoader
                    index = making.batch.indices[place]
                    raise RuntimeError(f"the transform raised StopIteration for sample {index}")
            except _ReadError as error:
                raise error.error from None
            except Exception as error:
                if not self._leaves_out(making, error):
                    raise
                place = len(samples) + making.left_out
            if is_wanted is not None:
                if not is_wanted():
                    raise CalledOffError("this loader is closed")
                stride = self._stride = _next_stride(stride, monotonic() - begun)

    def _leaves_out(self, making: Making, error: Exception) -> bool:
        """Return whether the sample that is being made is left out, for its transform raised."""
        place = len(making.made) + making.left_out
        is_left_out = self._is_left_out(error, int(making.batch.indices[place]))
        making.left_out += is_left_out
        return is_left_out

    def _is_left_out(self, error: Exception, index: int) -> bool:
        """Note which sample an exception is of; return whether it is left out, and counted."""
        add_note(error, self.where(index))
        errors = self._errors
        if not (errors == "skip" if isinstance(errors, str) else errors(error)):
            return False
        self.count_left_out(1)
        return True

    def count_left_out(self, count: int) -> None:
        """Count samples that were left out."""
        with self._counting:
            self.left_out += count

    def _note(self, batch: Indexed) -> str:
        """Return a note that names samples of a batch."""
        named = [self.where(int(index)) for index in batch.indices[:NAMED_MAX]]
        if (more := len(batch) - NAMED_MAX) > 0:
            named.append(f"and {more} more")
        return f"a batch of {len(batch)} samples: {'; '.join(named)}"


def _next_stride(stride: int, seconds: float) -> int:
    """Return how many samples are made before the next look, after a stride that took so long."""
    if seconds > POLL_SECONDS:
        return max(1, stride // 2)
    return min(stride * 2, STRIDE_MAX) if seconds < POLL_SECONDS / 4 else stride


class _ReadError(Exception):
    """An exception that reading a value raised, and no transform: no sample is left out for it.

    Attributes:
        error: the exception.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _reads(values: Iterator[Any]) -> Iterator[Any]:
    """Iterate over values; what reading them raises comes as ``_ReadError``."""
    try:
        yield from values
    except Exception as error:
        raise _ReadError(error) from error
