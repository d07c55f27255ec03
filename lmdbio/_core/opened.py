"""An open engine as it tells of itself: facts of its file, and counts (csrc/engine_stats.h)."""

from __future__ import annotations

import os

from lmdbio import errors
from lmdbio._core._lmdbio import ffi, lib
from lmdbio.system.frozen import dataclass
from lmdbio.system.slim import attrgetter, partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lmdbio._core.remote import Remote, RemoteFile
    from lmdbio._core.status import Status
    from lmdbio.system.file_identity import FileIdentity

__all__ = ["Opened", "EngineCounts", "count_nothing"]


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """All counts of an engine since it was opened (``lio_tally``)."""

    requests: int = 0
    bytes: int = 0
    located_records: int = 0
    records: int = 0
    record_bytes: int = 0
    planned_bytes: int = 0
    gap_bytes: int = 0
    page_requests: int = 0
    page_bytes: int = 0
    queued_requests: int = 0
    queue_ns: int = 0
    service_ns: int = 0
    locate_ns: int = 0
    plan_ns: int = 0
    wait_ns: int = 0
    copy_ns: int = 0

    def __add__(self, other: EngineCounts) -> EngineCounts:
        return EngineCounts(
            *(getattr(self, name) + getattr(other, name) for name in self.__slots__)
        )


_counted = attrgetter(*EngineCounts.__slots__[:-4])


def count_nothing() -> EngineCounts:
    return EngineCounts()


def _counts_of(counts: Any) -> EngineCounts:
    return EngineCounts(*_counted(counts), *map(int, counts.stage_ns))


class Opened:
    """C's engine, and what it tells."""

    path: str
    _pointer: Any
    _status: Status
    _place: str
    _remote: Remote | None = None
    _last: Callable[[], EngineCounts]

    @property
    def pointer(self) -> Any:
        """The ``lio_engine *``, for other rooms of this file."""
        if self._pointer is None:
            raise errors.Error(f"{self.path}: was closed before it was read")
        return self._pointer

    @property
    def is_open(self) -> bool:
        """Whether nobody has closed it."""
        return self._pointer is not None

    @property
    def alignment(self) -> int:
        """Bytes; 1 when any offset will do."""
        return int(lib.lio_engine_alignment(self.pointer))

    @property
    def keeps_state(self) -> bool:
        """A read fails once the file has left the state that it was opened in: no guard is due."""
        return bool(lib.lio_engine_keeps_state(self.pointer))

    @property
    def fd(self) -> int:
        """The descriptor (borrowed); -1: there is none."""
        return int(lib.lio_engine_fd(self.pointer))

    @property
    def device(self) -> int:
        """The number of the file system's device, while that is mounted; 0: not known."""
        return int(lib.lio_engine_device(self.pointer))

    def size(self) -> int:
        """The file's size in bytes, now."""
        out = ffi.new("uint64_t *")
        self._status.call(lib.lio_engine_size, self.pointer, out)
        return int(out[0])

    def cached_bytes(self) -> int | None:
        """Bytes of the file in the page cache now; None where the kernel cannot say."""
        return self.cached_bytes_in(0, 0)

    def cached_bytes_in(self, offset: int, length: int) -> int | None:
        """The same for ``length`` bytes from ``offset`` on; 0: to the end of the file."""
        out = ffi.new("uint64_t *")
        code = lib.lio_engine_cached(self.pointer, offset, length, out, self._status.error)
        if code == lib.LIO_ERR_UNSUPPORTED:
            return None
        self._status.check(code)
        return int(out[0])

    @property
    def location(self) -> str:
        """By what the file is opened again, from any folder: its path, or its URL with secrets."""
        return self._place if self._remote is None else self._remote.file.url

    @property
    def remote_file(self) -> RemoteFile | None:
        """The file that lies elsewhere, which this reads; None: it reads one of this system."""
        return None if self._remote is None else self._remote.file

    def identity(self) -> FileIdentity:
        """The identity of the file, and of its state as far as its status tells."""
        from lmdbio.system.file_identity import FileIdentity

        if self._remote is not None:
            file = self._remote.file
            return FileIdentity.elsewhere(file.validator, file.size)
        return FileIdentity.of(os.fstat(self.fd))

    def counts(self) -> EngineCounts:
        """Return the counts since the engine was opened; after ``close``, those until then."""
        return self.note_counts()()

    def note_counts(self) -> Callable[[], EngineCounts]:
        """Note the same counts, and return a call that returns them as they are now.

        For whoever may never ask: the value of them takes longer to make than a file to close.
        """
        pointer = self._pointer
        if pointer is None:
            return self._last
        counts = ffi.new("lio_tally *")
        lib.lio_engine_tally(pointer, counts)
        return partial(_counts_of, counts)
