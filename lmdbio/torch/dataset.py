"""Data sets for torch's DataLoader, which asks them by index; and the keywords that are none."""

from __future__ import annotations

import inspect
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy.typing as npt
import torch.utils.data

from lmdbio.provenance import Paths
from lmdbio.records.pending import Pending
from lmdbio.records.records import Records, open_records
from lmdbio.records.samples import Samples
from lmdbio.system.amounts import refuse_no_flag
from lmdbio.torch.draws import Source
from lmdbio.torch.ranks import processes_alike
from lmdbio.torch.samples import (
    Errors,
    SampleMaker,
    add_note,
    as_errors,
    origin,
    refuse_no_function,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from lmdbio.observe.stats import Stats
    from lmdbio.planning.mix import MixOrder
    from lmdbio.records.options import RecordsOptions

__all__ = ["Dataset", "lent", "refuse_foreign"]

_THREADS = "it finds its workers itself: write threads=4 or processes=4 to bound them"
_BEGUN = "its processes begin as multiprocessing says (set_start_method), and stay"
#: Words of a Loader's that an IterableDataset has not.
_OF_LOADER = ("decode", "threads", "processes", "pin_memory", "cache", "assignment")
#: Keywords of DataLoader that a Loader has no use for.
_OF_DATALOADER = {
    "num_workers": _THREADS,
    "prefetch_factor": "batches that wait to be asked for are ahead=2",
    "generator": "orders, and what transforms draw, follow from seed=",
    "multiprocessing_context": _BEGUN,
    "persistent_workers": _BEGUN,
    "timeout": "a worker that is stopped, or gone, is an error by itself",
    "in_order": "its batches come in order, always",
    "pin_memory_device": "write pin_memory=True",
    "dataset": "it is given the path, or Records, as its first argument",
}


class Dataset(torch.utils.data.Dataset[Any]):
    """A map-style data set: sample i is record i, or the i-th sample of a layout (``Records``).

    A DataLoader that requests whole batches (``__getitems__``, as all since torch 2.0 do) has each
    batch read at once: sorted, coalesced, all requests in flight. A Dataset can be pickled, and
    used in workers that are forked or spawned.

    Args:
        source: one path or several, as for ``Records``; or open ``Records``, a view of them
            (``Records.split``), or a ``Mix``.
        transform: function from a value to a sample; with ``keys``, from a key and a value. None:
            samples are values, or the pairs. If samples have several records, value and key are
            tuples. Its draws by torch, ``random`` and ``numpy.random`` follow from seed, epoch and
            index if a ``BatchSampler`` gives the indices (``sample_info``).
        keys: whether samples include their keys.
        buffers: whether values are memoryviews, lent without a copy, instead of bytes. You may
            keep them. (torch's ``default_collate`` takes them for sequences of numbers.)
        errors: treatment of exceptions of the transform, to which a note adds index, key and file:
            "raise"; "skip", which leaves these samples out of their batches and counts them
            (``stats().skipped_records``); or a function of the exception, which returns true for
            samples to leave out.
        options: keywords of ``Records``.

    Raises:
        TypeError: an unknown keyword, or a flag that is none; the message says what to write.
        OSError, Error: as ``Records``.
    """

    def __init__(
        self,
        source: Paths | Samples[Any, Any],
        transform: Callable[..., Any] | None = None,
        *,
        keys: bool = False,
        buffers: bool = False,
        errors: Errors = "raise",
        **options: Unpack[RecordsOptions],
    ) -> None:
        refuse_foreign("Dataset", options)
        refuse_no_function(transform=transform)
        refuse_no_flag(keys=keys, buffers=buffers)
        self.errors = as_errors(errors)
        self.records = open_records(source, **options)
        self.keys, self.buffers = keys, buffers
        where = partial(origin, self.records)
        #: Maker of the samples, for this process, threads and workers alike.
        self.maker = SampleMaker(where, transform, keys=keys, errors=self.errors)
        self._is_owner = self.records is not source
        self._known_in = 0  # process that has said how many others read alike

    def __repr__(self) -> str:
        return f"<Dataset of {self.records!r}>"

    def __len__(self) -> int:
        return len(self.records)

    @property
    def transform(self) -> Callable[..., Any] | None:
        """The function from a value to a sample, which may be replaced."""
        return self.maker.transform

    @transform.setter
    def transform(self, transform: Callable[..., Any] | None) -> None:
        self.maker.transform = transform

    @property
    def mixing(self) -> MixOrder | None:
        """The order of all epochs, where the source is a ``Mix``."""
        return self.records.mixing

    def __getitem__(self, index: SupportsIndex) -> Any:
        value = self.records[index]
        if self.buffers:
            value = lent(value)
        if self.keys:
            value = self.records.key(index), value
        if self.transform is None:
            return value
        number = operator.index(index)
        number += len(self) if number < 0 else 0
        try:
            return self.transform(*value) if self.keys else self.transform(value)
        except StopIteration as error:
            raise RuntimeError(
                f"the transform raised StopIteration for sample {number}"
            ) from error
        except Exception as error:  # alone it cannot be left out of a batch
            add_note(error, origin(self.records, number))
            raise

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        # An empty batch would be torch's riddle: _whole refuses it.
        finish = None if self.errors == "raise" else _whole
        source = getattr(indices, "source", None)
        samples: list[Any] = self.samples(self.begin(indices), finish, source=source)
        return samples

    def begin(self, indices: npt.ArrayLike) -> Pending:
        """Begin to read records, for ``samples``."""
        if (pid := os.getpid()) != self._known_in:
            self.records.expect(0, processes_alike())
            self._known_in = pid
        return self.records.begin(indices) if self.buffers else self.records.begin_values(indices)

    def samples(
        self,
        begun: Pending,
        finish: Callable[[list[Any]], Any] | None = None,
        *,
        source: Source | None = None,
        is_wanted: Callable[[], bool] | None = None,
    ) -> Any:
        """Return the samples of records that ``begin`` began to read, transformed.

        Args:
            begun: records under way.
            finish, source, is_wanted: arguments of ``SampleMaker.samples``.
        """
        values: Iterator[Any] | list[Any]
        if self.keys:
            values = zip(
                map(self.records.key, begun.indices.tolist()), begun.values(), strict=False
            )
        else:
            values = begun.taken() if self.transform is None else begun.values()
        return self.maker.samples(values, begun, source, is_wanted, finish)

    def stats(self) -> Stats:
        """Return what this process has read so far, and how many samples it has left out."""
        read = self.records.stats()
        return replace(read, skipped_records=read.skipped_records + self.maker.left_out)

    def close(self) -> None:
        """Close the files that it has opened. May be called twice; samples stay good."""
        if self._is_owner:
            self.records.close()


def _whole(samples: list[Any]) -> list[Any]:
    return samples


def lent(value: Any) -> Any:
    """Return a memoryview of a value, or of each in a tuple."""
    return tuple(map(memoryview, value)) if isinstance(value, tuple) else memoryview(value)


def refuse_foreign(name: str, options: Iterable[str], own: type | None = None) -> None:
    """Raise TypeError for keywords that neither a class nor ``Records`` has.

    Args:
        name: the class that was called.
        options: keywords that it does not have itself.
        own: class whose keywords a misspelt one may be meant for; None: it has none.
    """
    known = set(inspect.signature(Records.__init__).parameters) - {"self", "path"}
    for word in options:
        if word in known:
            continue
        if name == "Loader" and word in _OF_DATALOADER:
            raise TypeError(f"{name} has no {word}=: {_OF_DATALOADER[word]}")
        if word in _OF_DATALOADER or word in ("sampler", "batch_sampler"):
            raise TypeError(f"{name} has no {word}=: give it to torch's DataLoader over this one")
        if word in _OF_LOADER:
            raise TypeError(f"{name} has no {word}=: a Loader has")
        if own is not None:
            known |= set(inspect.signature(own).parameters) - {"options"}
        close = get_close_matches(word, known, 1)
        hint = f": did you mean {close[0]}=?" if close else f"; it has {', '.join(sorted(known))}"
        raise TypeError(f"{name} has no {word}={hint}")
