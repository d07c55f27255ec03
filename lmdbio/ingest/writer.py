"""Write a data set: records come in any order, and the set appears whole and in order.

    put, add -> pending, sorted -> one transaction -> part -> provenance file -> data set

Invariants:
  - a transaction holds whole samples;
  - pending records are bounded by ``batch_bytes_max``, and so are the pages of a transaction.
"""

from __future__ import annotations

import bisect
import operator
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmdbio import _core
from lmdbio.convert.convert import convert
from lmdbio.errors import BadValsizeError, lmdb_error
from lmdbio.ingest.growing import GrowingEnvironment, Record, size_of
from lmdbio.ingest.part import Part
from lmdbio.provenance.paths import DATA, SUFFIX
from lmdbio.system.amounts import whole

__all__ = ["BATCH_BYTES_MAX", "Writer"]

#: A transaction of so much takes tens of milliseconds, and a commit's own cost is lost in it.
BATCH_BYTES_MAX = 32 << 20
#: LMDB's own limits.
KEY_BYTES_MAX, VALUE_BYTES_MAX = 511, (1 << 32) - 1
#: The keys of samples have nine digits, as those of the layout "ocr".
SAMPLES_MAX = 10**9 - 1
#: A file whose leaves take more than an eighth of its pages has its values in them: they are worth
#: packing.
LEAF_SHARE = 8
COUNT_KEY = b"num-samples"
#: Keys of a sample of so many records. Pairs are counted from 1.
KEYS = {1: [b"%09d"], 2: [b"image-%09d", b"label-%09d"]}


class Writer:
    """Writes a data set that appears whole, in the order of its keys, or not at all.

        with lmdbio.Writer("train_lmdb") as writer:
            for image, label in samples:
                writer.add(image, label)

    The map grows by itself, so there is no ``map_size``. Records are put in large, sorted
    transactions. At the end of the ``with`` block the set is brought to the disk, gets its
    provenance file, and is renamed from ``PATH.part`` to its name. A set whose keys came in
    another order is rewritten in their order before, which takes its size once more on the disk
    for a moment. An exception in the block removes what was written, unless it can be continued.

    A writer is used by one thread at a time, in the process that made it. Memory: some three times
    ``batch_bytes_max``.

    Args:
        path: folder to be made, an LMDB environment; an empty folder is replaced, unless it is a
            mount point.
        db: name of the database; None: the main one.
        resume: facts of what is written, by name, such as ``{"source": "v2"}``. A writer that was
            broken off, even by SIGKILL, is continued by one of the same facts: ``samples`` says
            at first how many it has (without ``add``, ``len(writer)`` how many records), and the
            program goes on with the next. None: it is not continued.
        provenance: whether the set gets its provenance file.
        batch_bytes_max: size of the records that wait for a transaction, bytes.

    Raises:
        FileExistsError: the path exists, or a part of it that is another's.
        FileNotFoundError: there is no folder to put it into.
        BlockingIOError: another process writes it.
        Error: facts differ from those of the part that is there.
        OSError: nothing can be written there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        db: str | bytes | None = None,
        resume: Mapping[str, str] | None = None,
        provenance: bool = True,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        if not hasattr(os, "O_DIRECTORY"):
            _core.need("lmdbio.Writer on Windows")
        self._batch_bytes_max = whole("batch_bytes_max", batch_bytes_max, 1)
        self._name = db.encode() if isinstance(db, str) else db
        self._has_provenance = provenance
        self._pending: list[Record] = []
        self._bytes = 0
        self._owner = os.getpid()
        named = {} if self._name is None else {"database": os.fsdecode(self._name)}
        facts = None if resume is None else {**resume, **named}
        self._part = Part(Path(path).absolute(), facts)
        #: The records of a sample; 0: there are records alone.
        self._columns = self._part.columns
        try:
            self._part.begin()
            folder, target = self._part.folder, self._part.target
            self._environment = GrowingEnvironment(folder, target, self._name)
        except BaseException:
            self._part.leave()
            raise
        try:
            #: The greatest key that is put.
            self._last, self._count = self._environment.last_key(), self._find_count()
        except BaseException:
            self._leave()
            raise

    def _find_count(self) -> int:
        """Return how many samples, or records, earlier runs have committed."""
        if not self._columns:
            return int(self._environment.stat()["entries"])
        numbers, first = range(SAMPLES_MAX), KEYS[self._columns][0]
        return bisect.bisect_left(
            numbers,
            True,
            key=lambda n: self._environment.get(first % (n + self._columns - 1)) is None,
        )

    def __len__(self) -> int:
        """Return the samples of ``add``, or else the records of ``put``, with earlier runs'."""
        return self._count

    @property
    def samples(self) -> int:
        """Number of samples, with earlier runs': unlike the length, no record of ``put``."""
        return self._count if self._columns else 0

    def put(self, key: bytes, value: Any) -> None:
        """Put a record.

        Beside ``add`` it puts what is no sample, such as the names of classes. In a writer that is
        continued, a record that is there already, of that value, is passed over.

        Args:
            key: key, 1 to 511 bytes.
            value: value, bytes or an object with their buffer.

        Raises:
            BadValsizeError: a key or a value is too long, or a key is empty.
            KeyExistsError: a key was put before; a later call may say so.
            TypeError: key or value are no bytes.
            Error: the writer is closed.
            OSError: the file cannot be written.
        """
        key = _as_bytes("a key", key)
        if not 0 < len(key) <= KEY_BYTES_MAX:
            raise BadValsizeError(
                f"{self._part.target}: key {key[:40]!r} has {len(key):,} bytes: keys have 1 to "
                f"{KEY_BYTES_MAX}"
            )
        record = key, _as_bytes("a value", value)
        # A program that was killed at its end puts again what it has put beside its samples.
        if key <= self._last and self._part.is_resumed and self._environment.get(key) == record[1]:
            return
        self._put([record], self._count + (not self._columns))

    def add(self, value: Any, label: Any = None) -> None:
        """Add a sample under the next number, and its label if it has one.

        Samples without labels get the keys ``000000000``, ``000000001`` and so on. Samples with
        labels get ``image-000000001`` and ``label-000000001`` and so on, beside ``num-samples``:
        the layout "ocr", of which ``Records(path, layout="auto")`` and a Loader make pairs.

        Args:
            value: value, bytes or an object with their buffer, such as an image file.
            label: label; a whole number or text is written as text, in UTF-8, and bytes as they
                are. None: samples have none.

        Raises:
            ValueError: some samples have labels and others have none.
            BadValsizeError, TypeError, Error, OSError: as ``put``.
        """
        self.add_many([(value,) if label is None else (value, label)])

    def add_many(self, samples: Sequence[Sequence[Any]]) -> None:
        """Add samples, as ``add`` does each, in less time. One transaction holds all of them.

        Args:
            samples: ``[(value,), ...]``, or ``[(value, label), ...]``, of what ``add`` takes.

        Raises:
            ValueError, BadValsizeError, TypeError, Error, OSError: as ``add``; no sample is added.
        """
        if not samples:
            return
        columns = len(samples[0])
        if columns not in KEYS or any(
            isinstance(sample, bytes | bytearray | memoryview) or len(sample) != columns
            for sample in samples
        ):
            text = "samples are tuples, (value,) or (value, label), and all of one length"
            raise ValueError(f"{self._part.target}: {text}")
        if self._columns not in (0, columns):
            text = f"{self._part.target}: sample {self._count} has {'no ' * (columns == 1)}label"
            raise ValueError(f"{text}, unlike those before: all samples have one, or none has")
        first = self.samples
        after = first + len(samples)
        if after > SAMPLES_MAX:
            raise ValueError(f"{self._part.target}: keys have room for {SAMPLES_MAX:,} samples")
        numbers = range(first, after)
        records = [
            (key % (number + columns - 1), _as_label(part) if at else _as_bytes("a value", part))
            for at, key in enumerate(KEYS[columns])
            for number, part in zip(numbers, [sample[at] for sample in samples], strict=True)
        ]
        self._columns, self._count = columns, first  # not before: a refused sample says nothing
        self._put(records, after)

    def _put(self, records: list[Record], count: int) -> None:
        """Add records to those that are pending; so many samples, or records, there are then."""
        if self._owner != os.getpid():
            raise lmdb_error(f"{self._part.target}: this writer is closed, or another process's")
        size = size_of(records)
        # Not before a first sample: a program that has none puts again what is beside them.
        if self._bytes + size > self._batch_bytes_max and self._count:
            self._flush()
        # One statement, before or after which Ctrl-C comes.
        end = len(self._pending)
        self._pending[end:], self._bytes, self._count = records, self._bytes + size, count

    def _flush(self) -> None:
        """Commit what is pending."""
        if self._pending:
            self._pending.sort(key=operator.itemgetter(0))
            append = self._pending[0][0] > self._last
            self._part.note(self._columns, self._part.is_sorted and append)
            self._part.is_sorted &= append
            # Not after the commit: a Ctrl-C between the two would leave a smaller key than is put.
            self._last = max(self._last, self._pending[-1][0])
            self._environment.commit(self._pending, append=append)
        self._bytes = 0

    def close(self) -> None:
        """Bring the set to the disk, and give it its name. May be called again.

        Raises:
            KeyExistsError, OSError: as ``put``; or the name was taken meanwhile.
        """
        if self._owner != os.getpid():
            return
        try:
            self._flush()
            if self._columns == 2:
                count = [(COUNT_KEY, b"%d" % self._count)]
                self._environment.commit(count, overwrite=True)
            if not self._is_packed():
                self._rewrite()
            self._environment.close()
            if self._has_provenance and not _core.absence:
                convert(self._part.folder, output=self._part.folder / (DATA + SUFFIX))
            self._part.publish()
        except BaseException:
            self._leave()
            raise
        self._owner = 0

    def _is_packed(self) -> bool:
        """Return whether the file is as good as one that was put in the order of keys.

        Pairs are two ascending rows of keys. Values outside of leaves then lie in order, and a few
        leaves that are half full cost nothing.
        """
        stat = self._environment.stat()
        has_large: bool = stat["leaf_pages"] * LEAF_SHARE <= stat["overflow_pages"]
        return self._part.is_sorted or (self._columns == 2 and has_large)

    def _rewrite(self) -> None:
        """Put all records in the order of keys into a file that takes the place of this one."""
        folder = self._part.folder / "sorted"
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed at this
        fresh = GrowingEnvironment(folder, self._part.target, self._name)
        try:
            for records in _cut(self._environment.records(), self._batch_bytes_max):
                fresh.commit(records, append=True)
        finally:
            fresh.close()
        self._environment.close(sync=False)
        self._environment = fresh
        (folder / DATA).replace(self._part.folder / DATA)
        folder.rmdir()

    def _leave(self) -> None:
        self._owner = 0
        self._environment.close(sync=False)
        self._part.leave()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        elif self._owner == os.getpid():
            self._leave()


def _as_label(given: Any) -> bytes:
    """Return a label as bytes; numbers of NumPy and torch have a buffer too, and are numbers."""
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes):
        return _as_bytes("a label", given)
    try:
        return b"%d" % operator.index(given)
    except TypeError:
        return _as_bytes("a label", given)


def _as_bytes(what: str, given: Any) -> bytes:
    try:
        found = given if isinstance(given, bytes) else memoryview(given)[:].tobytes()
    except (TypeError, NotImplementedError):  # no buffer, or a number of NumPy's
        kind = type(given).__name__
        text = f"{what} must be bytes, or an object with a buffer, not {kind}"
        raise TypeError(text) from None
    if len(found) > VALUE_BYTES_MAX:
        text = f"{what} of {len(found):,} bytes: LMDB has room for {VALUE_BYTES_MAX:,} at most"
        raise BadValsizeError(text)
    return found


def _cut(records: Iterable[Record], bytes_max: int) -> Iterable[list[Record]]:
    """Yield runs of records of about so many bytes."""
    run: list[Record] = []
    size = 0
    for record in records:
        run.append(record)
        size += len(record[0]) + len(record[1])
        if size >= bytes_max:
            yield run
            run, size = [], 0
    if run:
        yield run
