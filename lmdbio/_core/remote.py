"""Files that lie elsewhere, which objects of Python's read (csrc/engine_remote.h)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import Status
from lmdbio.errors import IncompatibleError, keep_raised
from lmdbio.system import fork
from lmdbio.system.process import at_end

__all__ = ["Remote", "RemoteFile", "refuse_kind"]

#: So long the end of a process waits for reads that it has given up; they look sooner.
END_MS = 5000


class RemoteFile(Protocol):
    """A file that lies elsewhere, open. Threads share it, and a child after fork goes on with it.

    Attributes:
        url: address by which it is opened, and opened again.
        name: the same for people: without what is secret in it.
        size: bytes.
        validator: token of the file's state: an ETag, or a version; "": there is none.
        keeps_state: a read fails once the file is in another state.
    """

    @property
    def url(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def validator(self) -> str: ...
    @property
    def keeps_state(self) -> bool: ...

    def read_into(self, offset: int, into: memoryview, is_given_up: Callable[[], bool]) -> int:
        """Fill ``into`` with the bytes from ``offset`` on; several threads may call it at once.

        Args:
            offset: offset in the file, bytes; the file has all of these bytes.
            into: buffer to fill; must not be kept.
            is_given_up: whether nobody waits any more; to be asked a few times a second.

        Returns:
            How many requests it took.

        Raises:
            OSError, Error: naming the file and the reason.
        """

    def close(self) -> None:
        """Let go of its connections, as it does when it dies. May be called twice."""


def refuse_kind(name: str, kind: str) -> None:
    """Refuse a kind of engine that reads files of this system alone.

    Raises:
        IncompatibleError: it is one.
    """
    if kind not in ("pread", "mmap", "remote"):
        raise IncompatibleError(
            f'{name}: engine="{kind}" reads files of this machine: leave the engine at "auto"'
        )


@ffi.def_extern(name="lio_python_read", error=lib.LIO_ERR_IO)  # type: ignore[untyped-decorator]
def _read(
    handle: Any, call: Any, offset: int, length: int, into: Any, requests: Any, error: Any
) -> int:
    try:
        with memoryview(ffi.buffer(into, length)) as view:
            file = ffi.from_handle(handle)
            requests[0] = file.read_into(offset, view, partial(lib.lio_remote_is_given_up, call))
    except BaseException as raised:  # Ctrl-C included: the caller that waits raises it
        error.code, error.offset, error.wanted = lib.LIO_ERR_RAISED, offset, length
        error.got = keep_raised(raised)
        reason = type(raised).__name__.encode()
        ffi.memmove(error.reason, reason + b"\0", len(reason) + 1)
        return int(lib.LIO_ERR_RAISED)
    return int(lib.LIO_OK)


_alive: weakref.WeakSet[Remote] = weakref.WeakSet()
_is_registered = False


class Remote:
    """A remote file as engines read it, which lives as long as the last of them.

    Args:
        file: file that dies with it, unless the caller keeps it.
    """

    def __init__(self, file: RemoteFile) -> None:
        self.file = file
        handle, status = ffi.new_handle(file), Status(file.name)
        cell = cell_of("lio_remote", "remote_close", handle)
        status.call(
            lib.lio_remote_open, lib.lio_python_read, handle, file.size, file.keeps_state, cell
        )
        self.pointer = held(cell)
        fork.register(self)
        _register(self)

    def _after_fork(self) -> None:
        lib.lio_remote_forked(self.pointer)

    def end(self) -> None:
        """Read nothing more, and give up what is under way."""
        lib.lio_remote_end(self.pointer, END_MS)


def _register(remote: Remote) -> None:
    """Have it end before the interpreter does, which no thread of C's may enter then."""
    global _is_registered
    if not _is_registered:
        at_end(_end_all)
        fork.register(_CHILD)
        _is_registered = True
    _alive.add(remote)


class _Child:
    def _after_fork(self) -> None:
        global _is_registered
        _is_registered = False  # multiprocessing forgets what is to be called at the end


_CHILD = _Child()


def _end_all() -> None:
    for remote in list(_alive):
        remote.end()
