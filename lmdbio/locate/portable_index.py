"""portable_index: the file and key of each record: what ``RecordIndex`` knows, by py-lmdb.

number of a record -> file, and number there -> by its layout -> number in key order
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.layouts.wanted import Wanted
from lmdbio.locate.joined import Layouts
from lmdbio.locate.open import Check, Locate, Order
from lmdbio.locate.open_database import settled
from lmdbio.locate.portable_file import LmdbFile
from lmdbio.locate.samples import FoundSamples, choose_samples
from lmdbio.provenance import Paths, data_files, in_words, name_bytes
from lmdbio.remote import absolute, is_url, label
from lmdbio.system.amounts import refuse_unknown

__all__ = ["PortableIndex", "open_record_index"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


def open_record_index(
    path: Paths,
    *,
    db: bytes | str | None = None,
    locate: Locate = "auto",
    provenance: str | os.PathLike[str] | None = None,
    check: Check = "fast",
    order: Order = "key",
    samples: Wanted | None = None,
    subdir: bool | None = None,
) -> PortableIndex:
    """Open a database for reading records by index (``locate.open.open_record_index``).

    All keys are read once. ``provenance`` and ``check`` change no result, and have no effect.

    Raises:
        ImportError: the C core is needed: for a URL, ``locate="provenance"``, or
            ``order="insertion"``.
        OSError, Error, LookupError, ValueError: as with the core.
    """
    del provenance
    refuse_unknown("locate", locate, get_args(Locate))
    refuse_unknown("check", check, get_args(Check))
    refuse_unknown("order", order, get_args(Order))
    for word, is_asked in (
        ('locate="provenance"', locate == "provenance"),
        ('order="insertion"', order == "insertion"),
    ):
        if is_asked:
            _core.need(word)
    files = data_files(path, subdir)
    if is_url(files[0]):
        _core.need(f"{label(files[0])}, a URL,")
    name = name_bytes(db)
    return PortableIndex([_open_one(file, name, samples) for file in files], name)


def _open_one(path: str, name: bytes | None, wanted: Wanted | None) -> LmdbFile:
    """Open a database of one file, and find its samples."""

    def make() -> LmdbFile:
        file = LmdbFile(path, name)
        try:
            if wanted is not None:
                keys: Any = file
                found: FoundSamples = choose_samples(keys, file.flags, name, wanted)
                file.choose(found.records(keys, None), found.columns, found.layout)
        except BaseException:
            file.close()
            raise
        return file

    return settled(path, make)


class PortableIndex:
    """Tells the file, key, size and value of each record, by its number. Threads may share it.

    Args:
        parts: files with their samples, of which the records continue from file to file.
        db: name of the database; None: the main one.

    Attributes:
        path, paths: data file, or all of them in words; and each.
        count, columns, layout, locate: values of ``RecordIndex``.
        pages, file_set: no engine; and where the files are opened again, of several.
    """

    locate, pages = "scan", None

    def __init__(self, parts: Sequence[LmdbFile], db: bytes | None) -> None:
        found = Layouts()
        part: Any  # of which it asks what an index has as well
        for part in parts:
            found.add(part)
        self.db, self.columns, self.layout = db, found.columns, found.name
        self._parts, self.paths = parts, [part.path for part in parts]
        self.path = in_words(self.paths)
        self._firsts: I64 = np.cumsum([0, *(part.count for part in parts)])
        self.count = int(self._firsts[-1])
        places = SimpleNamespace(locations=[absolute(path) for path in self.paths])
        self.file_set = places if len(parts) > 1 else None

    def _place(self, record: int) -> tuple[int, int]:
        """Return the number of a record's file, and its number there."""
        file = int(np.searchsorted(self._firsts, record, side="right")) - 1
        return file, record - int(self._firsts[file])

    def file_of(self, index: int) -> tuple[str, int]:
        """Return the file that has a record, and the record's number in it."""
        file, number = self._place(index)
        return self.paths[file], number

    def key(self, index: int) -> bytes:
        """Return the key of a record."""
        file, number = self._place(index)
        return self._parts[file].keys[number]

    def index(self, key: bytes) -> int | None:
        """Return the first record of a key; None: there is none."""
        for first, part in zip(self._firsts.tolist(), self._parts, strict=False):
            if (found := part.index(key)) is not None:
                return int(first + found)
        return None

    @cached_property
    def _lengths(self) -> U64:
        return np.concatenate([np.array(part.lengths, np.uint64) for part in self._parts])

    def extents(self, indices: U64) -> _core.Extents:
        """Return extents of records that have lengths alone: py-lmdb tells no places."""
        found = np.zeros(len(indices), _core.EXTENT)
        found["length"] = self._lengths[indices.astype(np.int64)]
        return found

    def read(self, records: npt.NDArray[Any]) -> list[bytes]:
        """Return the values of records.

        Raises:
            Error: a file has moved on, or was closed.
        """
        numbers = records.astype(np.int64)
        if len(self._parts) == 1:
            return self._parts[0].read(numbers.tolist())
        files = np.searchsorted(self._firsts, numbers, side="right") - 1
        found = np.empty(len(numbers), object)
        for file in sorted(set(files.tolist())):
            here = files == file
            there = numbers[here] - self._firsts[file]
            found[here] = self._parts[file].read(there.tolist())
        return list(found)

    @property
    def groups(self) -> Sequence[range]:
        """The records of each key, in key order, file by file; or the samples."""
        if len(self._parts) == 1:
            return self._parts[0].groups
        firsts = self._firsts // self.columns
        return [
            range(first + some.start, first + some.stop)
            for first, part in zip(firsts.tolist(), self._parts, strict=False)
            for some in part.groups
        ]

    def close(self) -> None:
        """Close the files. May be called twice."""
        for part in self._parts:
            part.close()
