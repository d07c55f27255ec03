"""Hold one database of one file, open, in the state that it was opened in.

    open  ->  meta (transaction S)  ->  reads  ->  guard: still S, or S + 1?
      |                                               |
      +---- again, within bounds (settled) ---- no ---+

Invariants:
  - the pages of a state stay as they are until the second commit after it (LMDB reuses freed
    pages no sooner), so what was read is good if the file has not moved past S + 1 by then;
  - reading pages alone holds no reader slot: the caller calls ``guard`` after each batch of reads;
  - that a state is damaged, or lacks a name, is said after such a look, too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lmdbio import _core
from lmdbio.errors import Error, MovedError, ShortReadError, moved_error
from lmdbio.remote import label, open_data
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.log import log

if TYPE_CHECKING:
    from lmdbio.locate.file_set import FileSet

__all__ = [
    "Guarding",
    "OpenDatabase",
    "OpenFile",
    "guard_state",
    "guarded",
    "judge",
    "judged",
    "opening",
    "settled",
]

AnyOpen = TypeVar("AnyOpen", bound="OpenDatabase")
Made = TypeVar("Made")

#: An opening during which a writer commits is made again: so often, and so long, at most.
TRIES_MAX, TRYING_SECONDS = 32, 1.0
OPENED = "was committed to while it was opened ({}); open it again"

#: Of the mapping out of which guarding copies the meta pages: the first piece of the file, and
#: some for pages that are looked at in between (csrc/engine_mapped.h).
META_MAPPED_BYTES = 4 << 20


@dataclass(slots=True, eq=False)
class OpenDatabase:
    """One database of one file, in the state that it was opened in.

    Attributes:
        path: the data file.
        db: name of the database, None for the main one.
        meta: the state of the file.
        count: records.
        file_set: states of several files that are read as one, where ``meta`` is that of the
            first; None: there is one file.
    """

    path: str
    db: bytes | None
    meta: _core.Meta
    count: int
    _pages: _core.Engine
    _size: int  # of the file, when it was opened
    file_set: FileSet | None = field(default=None, kw_only=True)

    @property
    def pages(self) -> _core.Engine:
        """The engine that reads the tree's pages."""
        return self._pages

    @property
    def used_bytes(self) -> int:
        """Bytes of the file that this state uses, free pages within included."""
        if self.file_set is not None:
            return self.file_set.used_bytes
        return (self.meta.last_pgno + 1) * self.meta.layout.page_size

    @property
    def identity(self) -> FileIdentity:
        """The identity of the file."""
        if self.file_set is not None:
            return self.file_set.identity
        return self._pages.identity()

    def metas(self) -> bytes:
        """Return both meta pages as they stand now, or bytes that stand for those of all files.

        Raises:
            OSError, Error: they cannot be read.
        """
        if self.file_set is not None:
            return self.file_set.state
        return _core.meta_bytes(self._pages, self.meta.layout)

    @property
    def txnid(self) -> int:
        """The transaction that is read; of several files the sum of theirs."""
        return self.meta.txnid if self.file_set is None else self.file_set.txnid

    @property
    def paths(self) -> Sequence[str]:
        """The data file, or those that are read as one."""
        return [self.path] if self.file_set is None else self.file_set.paths

    @property
    def locations(self) -> Sequence[str]:
        """By what they are opened again: paths, or URLs, which may hold secrets."""
        return [self._pages.location] if self.file_set is None else self.file_set.locations

    def file_of(self, index: int) -> tuple[str, int]:
        """Return the file that has a record, which is there, and the record's number in it."""
        if self.file_set is None:
            return self.path, index
        return self.file_set.file_of(index)

    def is_newest(self) -> bool:
        """Return whether nothing was committed to the file since it was opened.

        Of several files the state is told by what was seen of each when it was opened.
        """
        if self._pages.keeps_state:
            return True
        return _core.newest_txnid(self._pages, self.meta.layout) == self.meta.txnid

    def guard(self) -> None:
        """Make sure that what was read up to now belonged to the state this was opened in.

        Without a reader slot the pages of snapshot S may be rewritten from transaction S + 3
        on, so results are refused once the file has moved past S + 1; and when S is not there
        though it has not, for then another one was written over it.

        Raises:
            MovedError: the file has moved on.
        """
        guard_state(self._pages, self.meta)

    def judged(self) -> contextlib.AbstractContextManager[None]:
        """Call what a body of reads fails by a commit, where that came meanwhile (``judged``)."""
        return judged(self._pages, self.meta)

    def begin_guard(self) -> Guarding:
        """Begin to make sure of the same, without waiting for it."""
        return Guarding(self._pages, self.meta)

    def guard_mapped(self) -> None:
        """Guard what is lent from a mapping.

        There the rest of a page that the file was cut in shows zeros. (Engines ask for the size
        after reads.)

        Raises:
            Error: the file has moved on.
            ShortReadError: it is shorter than it was.
        """
        self.guard()
        size = self._pages.size()
        if size < self._size:
            raise ShortReadError(
                f"{self.path}: was cut while it was read: wanted {self._size} bytes at offset 0, "
                f"got {size}"
            )

    def map_metas(self) -> None:
        """Let guarding copy the meta pages out of a mapping, where they are in the page cache."""
        self._pages.map_cached(META_MAPPED_BYTES)

    def counts(self) -> _core.EngineCounts:
        """Return the counts of what locating and guarding have read; also after ``close``."""
        return self._pages.counts()

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._pages.close()

    def __enter__(self: AnyOpen) -> AnyOpen:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenFile(NamedTuple):
    """A file whose pages can be read, its state, and one database of it.

    Attributes:
        pages: Engine of the file; the caller closes it.
        meta: the newest state.
        database: record of the database in this state.
    """

    pages: _core.Engine
    meta: _core.Meta
    database: _core.Database


@contextlib.contextmanager
def opening(
    data: str, name: bytes | None, engine: str, *, proves: bool = False
) -> Iterator[OpenFile]:
    """Open a data file, and close it if the body fails, which is ``judged``.

    Args:
        proves: the body makes sure of the database's record itself.

    Raises:
        OSError, Error: the file or its metas cannot be read, or it was committed to meanwhile.
        LookupError: no such named database.
    """
    pages = open_data(data, engine, depth=32)
    meta: _core.Meta | None = None
    try:
        meta = _core.read_meta(pages)
        found = meta.main_db
        if name is not None:
            found = _core.find_database(pages, meta, name)
            if not proves:
                guard_state(pages, meta)
        yield OpenFile(pages, meta, found)
    except BaseException as error:
        try:
            if meta is not None and isinstance(error, Exception):
                judge(pages, meta, error)
        finally:
            pages.close()
        raise


@contextlib.contextmanager
def judged(pages: _core.Engine, meta: _core.Meta) -> Iterator[None]:
    """Call what the body fails by a commit, where that came meanwhile (``judge``)."""
    try:
        yield
    except Exception as error:
        judge(pages, meta, error)
        raise


@contextlib.contextmanager
def guarded(pages: _core.Engine, meta: _core.Meta) -> Iterator[None]:
    """Make sure, after a body of reads, that these were of this state (``judged``, too).

    Raises:
        MovedError: the file has moved on.
    """
    with judged(pages, meta):
        yield
        guard_state(pages, meta)


def judge(pages: _core.Engine, meta: _core.Meta, error: Exception) -> None:
    """Return where an error of reading a state is what it says, and no commit's.

    Pages of a state that is gone may say anything: that they are damaged, that there is no such
    name, that a layout is another one.

    Raises:
        MovedError: the file has moved on; the error is its cause.
    """
    if isinstance(error, MovedError):
        return
    try:
        guard_state(pages, meta)
    except MovedError as moved:
        raise moved from error
    except (OSError, Error):  # such as a file that is no LMDB file any more
        return


def settled(path: str, make: Callable[[], Made], text: str = OPENED) -> Made:
    """Return what is made of the newest state of a file; try again where a writer came between.

    Args:
        path: path of the file, for the message.
        make: opener that leaves nothing open where it fails, and raises ``MovedError`` then.
        text: the message, of how often.

    Raises:
        MovedError: a writer came between each time.
    """
    end, tries = time.monotonic() + TRYING_SECONDS, 0
    while True:
        tries += 1
        try:
            return make()
        except MovedError as error:
            if tries < TRIES_MAX and time.monotonic() < end:
                log(f"{label(path)}: was committed to while it was opened, and is opened again")
                continue
            often = "once" if tries == 1 else f"{tries} times"
            raise moved_error(f"{label(path)}: {text.format(often)}") from error


class Guarding:
    """A look at the meta pages that is under way: ``guard_state`` without waiting.

    Args:
        pages, meta: arguments of ``guard_state``.

    Attributes:
        ticket: ticket of its read.
    """

    def __init__(self, pages: _core.Engine, meta: _core.Meta) -> None:
        self._pages, self._meta = pages, meta
        self._read = _core.Probe(pages, meta)
        self.ticket = self._read.ticket

    def poll(self) -> bool:
        """Return whether it is made sure; raise as ``guard_state``."""
        if not self.ticket.poll():
            return False
        _judge(self._pages, self._meta, self._read.found())
        return True


def guard_state(pages: _core.Engine, meta: _core.Meta) -> None:
    """Make sure that the file has not moved past the transaction after ``meta``'s.

    Raises:
        MovedError: it has, or ``meta`` is no more in it.
    """
    _judge(pages, meta, _core.probe(pages, meta))


def _judge(pages: _core.Engine, meta: _core.Meta, found: tuple[int, bool]) -> None:
    now, is_there = found
    if not (is_there and meta.txnid <= now <= meta.txnid + 1):
        raise moved_error(
            f"{pages.path}: changed while it was read (transaction {meta.txnid} when opened, "
            f"{now} now); open it again; where it has provenance, run lmdbio convert again"
        )
