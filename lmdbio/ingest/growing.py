"""py-lmdb's environment, whose map grows with its content, and whose errors name their cause.

Invariant: Ctrl-C, which Python raises between two statements of the main thread, finds records in
the caller's list, or in a transaction that will be committed; never in both, and never in none.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lmdbio.ingest.part import WHAT
from lmdbio.provenance.paths import DATA
from lmdbio.system.publish import unwritable
from lmdbio.system.pylmdb import lmdb

__all__ = ["GrowingEnvironment", "Record", "size_of"]

Record = tuple[bytes, bytes]

#: Map of a new file; it doubles when it is full. These are addresses: no file gets longer by it.
MAP_BYTES = 1 << 30
#: Room in the map for a transaction, so that its commit finds some: pages around its values, which
#: may take twice their bytes, and the pages that it frees.
ROOM, ROOM_BYTES = 3, 4 << 20


def size_of(records: Iterable[tuple[bytes, ...]]) -> int:
    """Return the bytes of keys and values."""
    return sum(map(len, itertools.chain.from_iterable(records)))


class _Commit:
    """A transaction that the first call brings to the disk; each later one says how that went.

    One thread makes all calls, and it is not the main one: Ctrl-C breaks none off.

    Args:
        txn: the transaction.
        size: size of its records, bytes.

    Raises:
        lmdb.Error: it cannot be written there.
    """

    def __init__(self, txn: Any, size: int) -> None:
        self.size, self._txn = size, txn
        self._error: Exception | None = None

    def __call__(self) -> None:
        txn, self._txn = self._txn, None
        if txn is not None:
            try:
                txn.commit()
            except lmdb.Error as error:
                self._error = error
        if self._error is not None:
            raise self._error


class GrowingEnvironment:
    """One database of an environment that this process alone writes.

    A transaction's pages are brought to the disk before its meta page: a machine that stops leaves
    a state of a moment before, and a process that is killed the last commit.

    Args:
        folder: folder of the environment, made if it is not there.
        target: path of the data set, for messages.
        db: name of the database; None: the main one.
    """

    def __init__(self, folder: Path, target: Path, db: bytes | None) -> None:
        self._folder, self._target, self._is_closed = folder, target, False
        self._thread = ThreadPoolExecutor(1)
        #: The transaction that goes to the disk.
        self._committing: _Commit | None = None
        #: Why a transaction is lost, and with it the set.
        self._failure: Exception | None = None
        try:
            self._environment = lmdb.open(
                os.fsencode(folder),
                map_size=MAP_BYTES,
                lock=False,
                metasync=False,
                max_dbs=int(db is not None),
            )
            self._db = self._environment.open_db(db)
        except lmdb.Error as error:
            raise self._explained(error, 0) from error

    def commit(
        self, records: list[Record], *, append: bool = False, overwrite: bool = False
    ) -> None:
        """Put records in one transaction, which a thread brings to the disk.

        The next call, or ``close``, waits for that, and raises its error.

        Args:
            records: keys and values in the order of keys; emptied once they will be committed.
            append: whether the first key is greater than all that are there.
            overwrite: whether a key that is there gets another value.

        Raises:
            KeyExistsError: a key is there, or comes twice; nothing is put.
            OSError: the file cannot be written.
        """
        self.wait()
        size = size_of(records)
        while True:
            self._make_room(size)
            txn = self._environment.begin(write=True, db=self._db)
            try:
                done = txn.cursor().putmulti(records, overwrite=overwrite, append=append)
                if done[1] < len(records):
                    break
                # One statement. If Ctrl-C keeps it from the thread, ``wait`` hands it on.
                self._committing, records[:] = _Commit(txn, size), ()
                self._thread.submit(self._committing)
                return
            except lmdb.MapFullError:
                size *= 2  # many small records, which take more than their bytes
            except lmdb.Error as error:
                raise self._explained(error, size) from error
            finally:
                if self._committing is None:
                    txn.abort()
        raise lmdb.KeyExistsError(
            f"{self._target}: key {self._repeated(records)!r} is put twice; each key has one value"
        )

    def _make_room(self, size: int) -> None:
        """Let the map have room for records of so many bytes, and for the pages around them."""
        info = self._environment.info()
        used = (info["last_pgno"] + 1) * self._environment.stat()["psize"]
        if used + ROOM * size + ROOM_BYTES > info["map_size"]:
            self._environment.set_mapsize(2 * info["map_size"] + ROOM * size)

    def wait(self) -> None:
        """Wait until all that was put is on the disk.

        Raises:
            OSError: it cannot be written there; each later call raises it again.
        """
        if self._failure is not None:
            raise self._failure
        if self._committing is None:
            return
        try:
            self._thread.submit(self._committing).result()
        except lmdb.Error as error:
            self._failure = self._explained(error, self._committing.size)
            raise self._failure from error
        self._committing = None  # not before: Ctrl-C ends the call, and not the transaction

    def _repeated(self, records: Sequence[Record]) -> bytes:
        """Return the first key that comes twice, or is there already."""
        keys = [key for key, _ in records]
        twice = (key for key, after in itertools.pairwise(keys) if key == after)
        with self._reading() as txn:
            return next((key for key in keys if txn.get(key) is not None), next(twice, b""))

    def _explained(self, error: Exception, size: int) -> Exception:
        """Return an error of the system as such, with the path; any other as it is.

        LMDB calls a write that a full disk has cut an input/output error: the system itself is
        asked for so much room, and says why there is none.
        """
        code = int(getattr(error, "code", 0))
        if code <= 0:
            return error
        found = OSError(code, str(error))
        if code == errno.EIO:
            try:
                with (self._folder / DATA).open("r+b") as file:
                    end = os.fstat(file.fileno()).st_size
                    try:
                        os.posix_fallocate(file.fileno(), end, size + 1)
                    finally:  # a program that tries again and again grows no file
                        file.truncate(end)
            except OSError as why:
                found = why
        return unwritable(found, self._target, WHAT)

    def _reading(self) -> Any:
        """Begin a transaction that sees all that was put."""
        self.wait()
        return self._environment.begin(db=self._db)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None: it is not there."""
        with self._reading() as txn:
            found: bytes | None = txn.get(key)
        return found

    def last_key(self) -> bytes:
        """Return the greatest key; empty: there is none."""
        with self._reading() as txn, txn.cursor() as cursor:
            return bytes(cursor.key()) if cursor.last() else b""

    def stat(self) -> Mapping[str, Any]:
        """Return py-lmdb's counts of the database: entries, pages of each kind."""
        with self._reading() as txn:
            found: Mapping[str, Any] = txn.stat(self._db)
        return found

    def records(self) -> Iterator[Record]:
        """Iterate over all records in the order of keys."""
        with self._reading() as txn:
            yield from txn.cursor()

    def close(self, *, sync: bool = True) -> None:
        """Close it, after all of it is on the disk. May be called again.

        Args:
            sync: whether it is brought there; an environment that is of no use need not be.
        """
        try:
            if sync and not self._is_closed:
                self.wait()
                self._environment.sync(True)
        except lmdb.Error as error:
            raise self._explained(error, 0) from error
        finally:
            self._is_closed = True
            self._thread.shutdown()
            self._environment.close()
