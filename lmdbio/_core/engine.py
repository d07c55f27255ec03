"""An open file and a way of reading it (csrc/engine.h)."""

from __future__ import annotations

import os

from lmdbio import errors
from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.brief import BYTES_MAX, brief_up_to
from lmdbio._core.opened import EngineCounts, Opened, count_nothing
from lmdbio._core.owner import cell_of, held, owned
from lmdbio._core.status import SLICE_MS, Status
from lmdbio._core.trace import ring
from lmdbio.system.log import log
from lmdbio.system.names import absolute
from lmdbio.system.slim import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np
    import numpy.typing as npt

    from lmdbio._core.arrays import Extents
    from lmdbio._core.plan import Plan
    from lmdbio._core.remote import Remote, RemoteFile


class Ticket:
    """Requests under way. ``wait`` for them, or leave the ``with`` block to drop the rest.

    For one thread at a time. It is made before its requests begin, so that an exception at any
    moment (Ctrl-C) finds them owned: they end before the memory they fill is let go of, and
    before the engine.

    Args:
        engine: Engine that reads.
        keep: the owner of the memory that is filled. It must not refer to the ticket.
    """

    def __init__(self, engine: Engine, keep: object = None) -> None:
        # Held by nothing else, a frame in a traceback included.
        keeps = engine.pointer, keep
        self._out = owned(ffi.new("lio_ticket **"), lib.lio_cell_ticket_free, keeps)
        self._status = engine.new_status()

    @property
    def out(self) -> Any:
        """The ``lio_ticket **``, for the engine to fill."""
        if self._out is None:
            raise ValueError(f"{self._status.path}: these reads were given up")
        return self._out

    def poll(self, timeout_ms: int = 0) -> bool:
        """True when every byte is there; raises the first error."""
        wait = brief_up_to("lio_ticket_wait", abs(timeout_ms), 0)  # negative: for ever
        return self._status.is_over(wait(self.out[0], timeout_ms, self._status.error))

    def poll_begun(self, timeout_ms: int = 0, older: Ticket | None = None) -> bool:
        """True when no request is left to begin, though some may be under way.

        Args:
            timeout_ms: longest wait, milliseconds.
            older: another ticket of the engine; when it ends, this waits no longer.
        """
        before = ffi.NULL if older is None else older.out[0]
        code = lib.lio_ticket_wait_begun(self.out[0], before, timeout_ms, self._status.error)
        return self._status.is_over(code)

    def left(self) -> float:
        """The share of its requests that have not ended."""
        return float(lib.lio_ticket_left(self.out[0]))

    def wait(self, alive: Callable[[], None] | None = None) -> None:
        """Waits in slices; ``alive`` is called between them and may raise to give up."""
        while not self.poll(SLICE_MS):
            if alive is not None:
                alive()

    @property
    def times(self) -> tuple[float, float]:
        """When it was submitted and had its last byte, by ``time.monotonic``, in seconds.

        The same moment when all was there at once, or is not yet.
        """
        submitted, ended = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.lio_ticket_times(self.out[0], submitted, ended)
        return int(submitted[0]) / 1e9, int(ended[0]) / 1e9

    def close(self) -> None:
        """Drops what has not begun, waits for what has. May be called twice."""
        self._out = None

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Engine(Opened):
    """An open file and a way of reading it (csrc/engine.h).

    Args:
        path: the file.
        kind: "pread", "direct", "uring", "staged" or "mmap".
        depth: requests in flight, 1..256.
        opened: another name of the file, by which it is opened; errors name ``path``.

    Attributes:
        path: name of the file, as the caller gave it.

    Raises:
        IncompatibleError: the file system or the kernel forbids this kind.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str = "pread",
        depth: int = 8,
        *,
        opened: str | None = None,
    ) -> None:
        self.path = os.fspath(path)
        if "\0" in self.path:  # C would take the part before it for the whole
            raise ValueError(f"a path with a NUL byte: {self.path!r}")
        self.kind = kind
        self.depth = depth
        self._place = absolute(self.path)
        name = os.fsencode(self._place if opened is None else opened)
        self._fill(partial(lib.lio_engine_open, name, kind.encode(), depth))

    def _fill(self, opens: Callable[[Any, Any], int], keep: object = None) -> None:
        """Own the engine that ``opens(cell, error)`` of C's opens.

        Args:
            keep: object that the engine needs as long as it is open.
        """
        cell, status = cell_of("lio_engine", "engine_close", keep), self.new_status()
        status.call(opens, cell)
        self._status = status
        self._pointer = held(cell)
        self._last: Callable[[], EngineCounts] = count_nothing
        ring.follow(self)

    def new_status(self) -> Status:
        """Return a status that names this file."""
        return Status(self.path)

    @classmethod
    def remote(cls, file: RemoteFile | Remote, depth: int = 8) -> Engine:
        """An engine for a file that lies elsewhere.

        Args:
            file: file that lives as long as all engines of ``again``; or what these share.
            depth: requests in flight, 1..256.
        """
        from lmdbio._core.remote import Remote

        shared = file if isinstance(file, Remote) else Remote(file)
        self = cls.__new__(cls)
        self.path, self.kind, self.depth, self._remote = shared.file.name, "remote", depth, shared
        self._fill(partial(lib.lio_engine_open_remote, shared.pointer, depth), shared)
        return self

    def missing(self, extents: Extents) -> npt.NDArray[np.bool_] | None:
        """Of each extent (dtype ``EXTENT``), whether it has to be waited for, or takes longer to
        copy by itself than to read with the others; shape (n,). None: of none, as far as is
        known (csrc/engine_mapped.h).
        """
        import numpy as np

        from lmdbio._core.arrays import EXTENT, pointer_to

        extents = np.ascontiguousarray(extents, EXTENT)
        missing = np.empty(len(extents), np.bool_)
        count = lib.lio_engine_find_missing(
            self.pointer,
            pointer_to(extents, "lio_extent *"),
            len(extents),
            pointer_to(missing, "uint8_t *"),
        )
        return missing if count else None

    def prefault(self, extents: Extents) -> None:
        """Tells another thread to make ready what is to be copied out of the page cache soon.

        A hint, for what ``missing`` has just found held: nobody waits for it, and nothing fails.

        Args:
            extents: dtype ``EXTENT``, in the order in which they are wanted.
        """
        import numpy as np

        from lmdbio._core.arrays import EXTENT, pointer_to

        extents = np.ascontiguousarray(extents, EXTENT)
        lib.lio_engine_prefault(self.pointer, pointer_to(extents, "lio_extent *"), len(extents))

    def span(self) -> tuple[int, int, object]:
        """Where this engine maps the file as it was when opened.

        Returns:
            Address, bytes (0: it maps nothing), and what keeps it mapped.
        """
        size = ffi.new("uint64_t *")
        start = lib.lio_engine_map(self.pointer, size)
        return int(ffi.cast("uintptr_t", start)), int(size[0]), self.pointer

    def mapping(self) -> memoryview | None:
        """The same as a view, of which views keep it mapped; None: there is none."""
        address, size, keep = self.span()
        if not size:
            return None
        from lmdbio._core.memory import lend

        return memoryview(lend(address, size, keep)).toreadonly().cast("B")

    def map_cached(self, bytes_max: int) -> None:
        """Copies what is asked for, if it is in the page cache, out of a mapping.

        Before threads share it; nothing changes for kinds other than "pread". The logger is told
        where that cannot be.

        Args:
            bytes_max: largest part of the mapping that is touched, bytes; it counts as the
                process's.
        """
        refusal = lib.lio_engine_map_cached(self.pointer, bytes_max)
        if refusal:
            why = ffi.string(refusal).decode()
            log(f"{self.path}: what is cached is read by calls, not out of a mapping: {why}")

    def expect_random(self) -> None:
        """Tells the kernel not to read ahead: what is read lies anywhere. A hint."""
        lib.lio_engine_expect_random(self.pointer)
        if self.fd < 0:
            return
        try:
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)
        except OSError as error:
            log(f"{self.path}: the kernel goes on to read ahead of batches: {error.strerror}")

    def again(self, kind: str, depth: int) -> Engine:
        """Opens the same file once more, also when its name stands for another one by now.

        Raises:
            OSError, Error: it cannot be opened.
        """
        pointer = self.pointer  # keeps the descriptor open
        if self._remote is not None:
            from lmdbio._core.remote import refuse_kind

            refuse_kind(self.path, kind)
            return Engine.remote(self._remote, depth)
        fd = int(lib.lio_engine_fd(pointer))
        try:
            return Engine(self.path, kind, depth, opened=f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # no /proc here
            other = Engine(self.path, kind, depth, opened=self._place)
            if not os.path.samestat(os.fstat(fd), os.fstat(other.fd)):
                raise errors.Error(f"{self.path}: was replaced while it was opened") from None
            log(f"{self.path}: is opened by its name once more, for there is no /proc")
            return other

    def submit(self, reads: npt.NDArray[Any], keep: object = None) -> Ticket:
        """Starts reads (an array of dtype ``READ``).

        Args:
            reads: requests whose memory outlives the ticket.
            keep: the owner of that memory; the ticket holds it.
        """
        import numpy as np

        from lmdbio._core.arrays import READ, pointer_to

        reads = np.ascontiguousarray(reads, READ)
        ticket = Ticket(self, keep)
        status = self._status
        # Bytes that the page cache holds are copied at once.
        size = int(reads[0]["length"]) if len(reads) == 1 else BYTES_MAX + 1
        submit = brief_up_to("lio_engine_submit", size, BYTES_MAX)
        status.call(submit, self.pointer, pointer_to(reads, "lio_read *"), len(reads), ticket.out)
        return ticket

    def submit_plan(self, plan: Plan, address: int, keep: object = None) -> Ticket:
        """Starts the reads of a plan into the buffer at ``address``, owned by ``keep``."""
        import numpy as np

        from lmdbio._core.arrays import READ

        reads = np.empty(len(plan.requests), READ)
        for field in ("offset", "length", "needed"):
            reads[field] = plan.requests[field]
        reads["into"] = plan.requests["buffer_offset"] + np.uint64(address)
        return self.submit(reads, keep)

    def read_plan(self, plan: Plan, address: int, keep: object = None) -> None:
        """Reads a plan and returns when every byte is there. ``keep``: see ``submit``."""
        with self.submit_plan(plan, address, keep) as ticket:
            ticket.wait()

    def read(self, offset: int, length: int) -> bytes:
        """Reads one range through memory of its own; for small, rare reads."""
        from lmdbio._core.memory import Memory

        align = self.alignment
        start = offset // align * align
        span = -(-(offset + length - start) // align) * align
        memory = Memory(span)
        request = ffi.new("lio_read *")
        request.offset, request.length = start, span
        request.needed = offset + length - start
        request.into = ffi.cast("uint8_t *", memory.address)
        self._status.call(lib.lio_engine_read, self.pointer, request, 1)
        return bytes(ffi.buffer(ffi.cast("char *", memory.address + offset - start), length))

    def close(self) -> None:
        """Closes the file, or leaves it to the last call or ticket that still uses it.

        May be called twice.
        """
        self._last = self.note_counts()
        self._pointer = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
