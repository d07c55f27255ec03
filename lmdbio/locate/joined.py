"""Tell where the records of several files lie, which are read as one (csrc/engine_joined.c).

    paths -> the records of each, by its provenance file or a walk -> one table of all extents

Records count on from file to file.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import Error, IncompatibleError
from lmdbio.locate.file_set import FileSet, prefetching
from lmdbio.locate.key_index import Ranges
from lmdbio.locate.open_database import settled
from lmdbio.locate.record_index import RecordIndex
from lmdbio.remote import is_url, label
from lmdbio.system import fork

__all__ = ["Layouts", "join_indexes"]

I64 = npt.NDArray[np.int64]

#: Files whose keys are at hand; each has one or two descriptors open.
KEYED_FILES_MAX = 8
#: Files on servers that are opened at a time: each takes some round trips.
OPENING_MAX = 8


def join_indexes(
    paths: Sequence[str],
    open_index: Callable[[str], RecordIndex],
    db: bytes | None,
    beside: Callable[[str], str | os.PathLike[str]] | None,
) -> RecordIndex:
    """Open several files as one.

    Args:
        paths: paths of the data files.
        open_index: function that opens one of them.
        db: a named database that each has, None for the main one.
        beside: function that names the provenance file which is opened with each.

    Raises:
        OSError, Error, LookupError: one of them cannot be opened, or its tree not be read.
        IncompatibleError: the samples of one are of another layout than those of another.
    """
    found, tables = FileSet(paths), []
    ways: set[str] = set()
    reason = ""
    layouts = Layouts()
    for index, table in _opened(paths, partial(_located, open_index), beside):
        with index:
            layouts.add(index)
            table["offset"] += np.uint64(found.add(index.pages, index.meta, index.count))
            tables.append(table)
            ways.add(index.locate)
            reason = reason or index.reason
    return RecordIndex(
        path=(pages := found.open()).path,
        db=db,
        meta=found.meta,
        count=int(found.counts.sum()),
        locate="provenance" if ways == {"provenance"} else "scan",
        reason=reason,
        _pages=pages,
        _size=pages.size(),
        _keys=JoinedKeys(found, open_index, layouts.columns),
        _order=None,
        _table=np.concatenate(tables),
        _provenance=None,
        _tree=None,
        entries=int(found.counts.sum()),
        columns=layouts.columns,
        layout=layouts.name,
        file_set=found,
    )


#: An open file, and where its records lie.
_Located = tuple[RecordIndex, _core.Extents]


def _located(open_index: Callable[[str], RecordIndex], path: str) -> _Located:
    """Open a file, and find all of its records in the state that it has."""

    def find() -> _Located:
        index = open_index(path)
        try:
            table = index.run(0, index.count).copy()
            index.guard()
        except BaseException:
            index.close()
            raise
        return index, table

    return settled(path, find)


def _opened(
    paths: Sequence[str],
    open_index: Callable[[str], _Located],
    beside: Callable[[str], str | os.PathLike[str]] | None,
) -> Iterator[_Located]:
    """Open files in order, each when it is asked for; on servers the next ones meanwhile."""
    if not is_url(paths[0]):
        with prefetching(paths, beside) as opened:
            for path in paths:
                yield open_index(path)
                opened()
        return
    with ThreadPoolExecutor(OPENING_MAX, "lmdbio opening") as threads:
        begun: deque[Future[_Located]] = deque()
        try:
            for at in range(len(paths)):
                with contextlib.suppress(RuntimeError):  # no thread can be started, or no more
                    for path in paths[at + len(begun) : at + OPENING_MAX]:
                        begun.append(threads.submit(open_index, path))
                yield begun.popleft().result() if begun else open_index(paths[at])
        finally:
            for one in begun:
                one.cancel()
            for one in begun:
                if not one.cancelled() and one.exception() is None:
                    one.result()[0].close()


class Layouts:
    """The layouts of several files, which are one.

    Attributes:
        name: name of the first one's layout; None: no file has one.
        columns: records of a sample.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.columns = 1
        self._first: str | None = None  # file that has samples

    def add(self, index: RecordIndex) -> None:
        """Add the next file; one without samples may have any layout.

        Raises:
            IncompatibleError: only some of the files have one, or its samples are of more records.
        """
        if not index.count:
            return
        if self._first is None:
            self._first, self.name, self.columns = index.path, index.layout, index.columns
        elif index.columns != self.columns or (index.layout is None) != (self.name is None):
            first = _in_words(self.name, self.columns)
            raise IncompatibleError(
                f"{index.path}: has {_in_words(index.layout, index.columns)}, and {self._first} "
                f"{first}: read them apart, or name the layout that all have"
            )


def _in_words(layout: str | None, columns: int) -> str:
    """Return a layout, as it was found, in words."""
    if layout is None:
        return "no layout that is known"
    return f"the layout {layout!r}" + (f" of {columns} records a sample" if columns > 1 else "")


class JoinedKeys:
    """The keys of several files, of which the last ones that were asked for stay open.

    Threads may share it.

    Args:
        file_set: states of the files, with the number of records of each.
        open_index: function that opens one.
        columns: records of a sample.
    """

    def __init__(
        self, file_set: FileSet, open_index: Callable[[str], RecordIndex], columns: int = 1
    ) -> None:
        self._file_set, self._paths, self._open = file_set, file_set.paths, open_index
        # Of each file, the number of its first record, and the count of all.
        self._firsts: I64 = np.cumsum([0, *file_set.counts])
        self._columns = columns
        self._opened: OrderedDict[int, RecordIndex] = OrderedDict()
        self._lock = threading.RLock()
        self._is_closed = False
        fork.register(self)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()

    def key(self, record: int) -> bytes:
        """Return the key of a record in its file.

        Raises:
            OSError, Error: the file cannot be read, or has moved on.
        """
        file = int(np.searchsorted(self._firsts, record, side="right")) - 1
        with self.opened(file) as index:
            return index.key(record - int(self._firsts[file]))

    def record(self, key: bytes) -> int | None:
        """Return the (first) record of a key in the first file that has it; None: none has.

        Raises:
            OSError, Error: a file cannot be read, or has moved on.
        """
        for file in range(len(self._paths)):
            with self.opened(file) as index:
                found = index.index(key)
            if found is not None:
                return int(self._firsts[file]) + found
        return None

    @property
    def groups(self) -> Sequence[range]:
        """The records of each key, in key order, file by file."""
        return _JoinedGroups(self, len(self._paths), self._firsts // self._columns)

    @contextlib.contextmanager
    def opened(self, file: int) -> Iterator[RecordIndex]:
        """Lend one of the files, open, to one thread.

        Raises:
            OSError, Error: it cannot be opened, or has moved on.
        """
        with self._lock:
            found = self._opened.pop(file, None) or self._again(file)
            self._opened[file] = found
            yield found
            while len(self._opened) > KEYED_FILES_MAX:
                self._opened.popitem(last=False)[1].close()

    def _again(self, file: int) -> RecordIndex:
        """Open a file in the state that it had when all were opened."""
        if self._is_closed:
            raise Error(f"{label(self._paths[file])}: was closed before it was read")
        found = self._open(self._file_set.locations[file])
        try:
            self._file_set.refuse_other(file, found.pages, found.meta)
        except BaseException:
            found.close()
            raise
        return found

    def close(self) -> None:
        """Close all. May be called twice."""
        with self._lock:
            self._is_closed = True
            while self._opened:
                self._opened.popitem()[1].close()


class _JoinedGroups(Ranges):
    """The records of each key of several files.

    Args:
        keys: keys of all files.
        files: number of files.
        firsts: number of each file's first record, or of its first sample.
    """

    def __init__(self, keys: JoinedKeys, files: int, firsts: I64) -> None:
        self._keys, self._files, self._firsts = keys, files, firsts
        self._ends: I64 | None = None

    def _found(self) -> I64:
        """Return the number of each file's last key, counted from 1 on over all files."""
        if self._ends is None:
            counts = []
            for file in range(self._files):
                with self._keys.opened(file) as index:
                    counts.append(len(index.groups))
            self._ends = np.cumsum(counts)
        return self._ends

    def __len__(self) -> int:
        return int(self._found()[-1])

    def _of(self, key: int) -> range:
        ends = self._found()
        file = int(np.searchsorted(ends, key, side="right"))
        with self._keys.opened(file) as index:
            there = index.groups[key - (int(ends[file - 1]) if file else 0)]
        first = int(self._firsts[file])
        return range(first + there.start, first + there.stop)
