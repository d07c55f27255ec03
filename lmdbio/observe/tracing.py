"""Tracing: what was done when, as a file that chrome://tracing and Perfetto read.

    with lmdbio.trace("trace.json"):      or LMDBIO_TRACE=trace.json in the environment
        ...

The file is in the trace event format (JSON objects). Spans of a stage stand on the track of the
thread that did it; requests on lanes of their own, as many as were in flight at once; beside
them runs a counter of the requests in flight. All times are of CLOCK_MONOTONIC, which all
processes of a machine share; what is needed to compare machines stands in ``otherData``.

Nothing is held back for long: a thread writes what has come in ten times a second, and every
write leaves a whole JSON file, so that exceptions, Ctrl-C and fork do no harm. (Who is killed in
the middle of a write leaves a torn last event, which ``timeline.load`` does without.) The
recorder drops and counts spans that come faster than that. While no trace is taken, a stage asks
one global and that is all.

A process's file: NAME.json | NAME.r3.json (a rank) | NAME.p1234.json (a child, or the name was in
use)
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.observe import active
from lmdbio.observe.trace_events import STAGES, Span, TraceEncoder
from lmdbio.system import fork
from lmdbio.system.posix import fcntl
from lmdbio.system.warn import warn

__all__ = ["Trace", "name_rank", "note", "note_flight", "trace"]

#: Bytes that a trace file may take; Perfetto in a browser holds about so many with ease.
SIZE_BYTES_MAX = 256 << 20
#: Between two writes.
PERIOD_SECONDS = 0.1
#: Spans that wait for the next write, at most.
PENDING_MAX = 1 << 16
#: Where launchers say which rank a process is.
RANK_VARIABLES = (
    "PMIX_RANK",
    "PMI_RANK",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
)


def note(name: str, begun_ns: int, ended_ns: int, args: Mapping[str, Any] | None = None) -> None:
    """Notes that this thread did something, if a trace is taken. Times: ``time.monotonic_ns``."""
    taken = active.trace
    if taken is not None:
        taken.add((name, begun_ns, ended_ns, threading.get_native_id(), args))


def note_flight(name: str, times: tuple[float, float], args: Mapping[str, Any]) -> None:
    """Notes what was under way beside all threads (``Ticket.times``), if a trace is taken."""
    taken = active.trace
    if taken is not None:
        taken.add((name, int(times[0] * 1e9), int(times[1] * 1e9), None, args))


def name_rank(rank: int) -> None:
    """This process is that rank of a job; a trace says so."""
    taken = active.trace
    if taken is not None:
        taken.name_rank(rank)


def trace(path: str | os.PathLike[str], *, size_bytes_max: int = SIZE_BYTES_MAX) -> Trace:
    """Start a trace of all that lmdbio does in this process, until it is closed.

    Args:
        path: trace file, which is overwritten. ``%p`` stands for the process's number, ``%r`` for
            its rank (0 without MPI). Without them, ranks of a job write ``NAME.r3.json``; forked
            children, and processes that find the file in use, write ``NAME.p1234.json``.
        size_bytes_max: largest size of the file, bytes; later events are dropped, and counted.

    Returns:
        A context manager with ``close()``.

    Raises:
        OSError: the file cannot be written.
        ValueError: a trace is being taken already.
    """
    return Trace(path, size_bytes_max=size_bytes_max)


class Trace:
    """A trace being taken. Made by ``trace``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        size_bytes_max: int = SIZE_BYTES_MAX,
        lazily: bool = False,
    ) -> None:
        if active.trace is not None:
            raise ValueError(f"a trace is being taken already, into {active.trace.path}")
        # The working directory may change, and with it what a relative name stands for.
        self._template = os.path.abspath(os.fspath(path))  # noqa: PTH100
        self._size_max = size_bytes_max
        self._rank = launched_rank()
        self._alone = True
        self._begin()
        if not lazily:
            self._open()
        try:
            _core.ring.start()
            _core.ring.take()  # what an earlier trace left
        except BaseException:
            self._close_file()
            raise
        fork.register(self)
        active.trace = self
        self.begin_writing()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._encoder = TraceEncoder(self._pid)
        self._file: TraceFile | None = None
        self._lock = threading.Lock()  # of the file, and of closing it
        self._pending: list[Span] = []
        self._threads: dict[int, str] = {}
        self._end, self._closed = threading.Event(), False
        self._writer: threading.Thread | None = None
        self.dropped = 0

    def _after_fork(self) -> None:
        closed = self._closed
        self._close_file()
        self._alone = False
        self._begin()
        self._closed = closed

    @property
    def path(self) -> str:
        """This process's file."""
        if self._file is not None:
            return self._file.path
        return file_name(self._template, rank=self._rank, pid=self._pid, alone=self._alone)

    # --- taking --------------------------------------------------------------------------

    def add(self, span: Span) -> None:
        """Keeps a span until it is written, or drops it. Never waits."""
        if len(self._pending) >= PENDING_MAX:
            self.dropped += 1
            return
        self._pending.append(span)
        if span[3] is not None and span[3] not in self._threads:
            self._threads[span[3]] = threading.current_thread().name
        if self._writer is None:
            self.begin_writing()

    def begin_writing(self) -> None:
        """Has what is noted written down from now on; forked children begin anew."""
        if self._writer is not None or self._closed:
            return
        self._writer = threading.Thread(target=self._write_on, name="lmdbio-trace", daemon=True)
        util = sys.modules.get("multiprocessing.util")
        if util is not None and not self._alone:
            # Its children end without Python's own exit functions.
            util.Finalize(None, self.close, exitpriority=0)
        # When the interpreter ends there are no threads any more; close() writes.
        with contextlib.suppress(RuntimeError):
            self._writer.start()

    def name_rank(self, rank: int) -> None:
        """This process is that rank."""
        if rank == self._rank:
            return
        self._rank = rank
        with self._lock:
            if self._file is not None:
                self._file.append(self._encoder.process(rank))

    def _write_on(self) -> None:
        while not self._end.wait(PERIOD_SECONDS):
            with self._lock:
                if not self._closed:
                    self._flush()

    def _flush(self) -> None:
        """Write down the spans that have come in. The caller holds the lock."""
        pending, self._pending = self._pending, []
        spans, lost = _core.ring.take()
        self.dropped += lost
        if not pending and not len(spans):
            return
        spans.sort(order="begun_ns")
        self._name_threads(spans)
        events = self._encoder.threads(dict(self._threads))
        for span in pending:
            events += self._encoder.stage(span)
        for noted in spans.tolist():
            events += self._encoder.noted(noted, _core.ring.traced)
        try:
            opened = self._file or self._open()
            if opened.fits(events, self._size_max):
                opened.append(events)
            else:
                self.dropped += len(pending) + len(spans)
        except OSError as error:
            self._give_up(error)

    def _name_threads(self, spans: npt.NDArray[Any]) -> None:
        """Names the threads that only C has seen."""
        stages = np.isin(spans["kind"], [int(kind) for kind in STAGES])
        new = set(spans["thread"][stages].tolist()) - self._threads.keys()
        if new:
            known = {thread.native_id: thread.name for thread in threading.enumerate()}
            self._threads.update({thread: known.get(thread, "thread") for thread in new})

    # --- the file ------------------------------------------------------------------------

    def _open(self) -> TraceFile:
        """This process's file; one with its number where another process has the name."""
        facts = {
            "program": " ".join(sys.argv[:1]),
            "host": socket.gethostname(),
            "pid": self._pid,
            "rank": self._rank,
            "clock": "CLOCK_MONOTONIC",
            "monotonic_ns": time.monotonic_ns(),
            "realtime_ns": time.time_ns(),
        }
        try:
            opened = TraceFile(self.path, facts)
        except BlockingIOError:
            self._alone = False
            opened = TraceFile(self.path, facts)
        self._file = opened
        opened.append(self._encoder.process(self._rank))
        return opened

    def _close_file(self) -> None:
        opened, self._file = self._file, None
        if opened is not None:
            opened.close()

    def _give_up(self, error: OSError) -> None:
        """A full disk or the like ends the trace, and not the program."""
        why = error.strerror or type(error).__name__
        if self._file is None:
            warn(f"{self.path}: no trace can be written there: {why}")
        else:
            warn(f"{self.path}: the trace ends here, and the program goes on: {why}")
        self._closed = True
        self._switch_off()
        self._close_file()

    def _switch_off(self) -> None:
        if active.trace is self:
            _core.ring.stop()
            active.trace = None

    def close(self) -> None:
        """Ends the trace; the file is complete then. May be called twice."""
        self._switch_off()
        self._end.set()
        with self._lock:
            if not self._closed:
                self._flush()
            if self.dropped and self._file is not None:
                self._file.append(self._encoder.dropped(self.dropped, time.monotonic_ns()))
            self._closed = True
            self._close_file()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- files --------------------------------------------------------------------------------


def launched_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return this process's rank of a job, as its launcher says; None without one."""
    for name in RANK_VARIABLES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None


def file_name(template: str, *, rank: int | None, pid: int, alone: bool) -> str:
    """Name the file of one process.

    Args:
        template: name of the file, with or without ``%p`` and ``%r``; ``%%`` is a per cent sign.
        rank: None without a job.
        alone: False: another process writes the file that it would be without a ``%p``.
    """
    given = set(re.findall(r"%([pr%])", template))
    known = {"p": str(pid), "r": str(rank or 0), "%": "%"}
    name = re.sub(r"%([pr%])", lambda match: known[match[1]], template)
    if rank is not None and not given & {"p", "r"}:
        name = _insert(name, f"r{rank}")
    if not alone and "p" not in given:
        name = _insert(name, f"p{pid}")
    return name


def _insert(name: str, part: str) -> str:
    stem, suffix = os.path.splitext(name)  # noqa: PTH122
    return f"{stem}.{part}{suffix}"


class TraceFile:
    """Holds events in a file that is whole JSON after every write.

    Locked as long as it is open, so that processes that were given one name find out.

    Args:
        path: path of the file, which is overwritten.
        facts: facts that the file says about itself.

    Raises:
        BlockingIOError: another process writes there.
        OSError: it cannot be written.
    """

    TRAILER = b"\n]}\n"

    def __init__(self, path: str, facts: Mapping[str, Any]) -> None:
        self.path, self._at, self._empty = path, 0, True
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
            head = f'{{"displayTimeUnit":"ms","otherData":{json.dumps(facts)},"traceEvents":[\n'
            self._write(head.encode())
        except BaseException:
            os.close(self._fd)
            raise

    def fits(self, events: Sequence[str], size_bytes_max: int) -> bool:
        """Return whether the file with these events stays within a size."""
        return self._at + sum(map(len, events)) + 2 * len(events) <= size_bytes_max

    def append(self, events: Sequence[str]) -> None:
        """Write events. After an error the file is what it was before."""
        if not events:
            return
        try:
            self._write((("" if self._empty else ",\n") + ",\n".join(events)).encode())
        except OSError:
            os.ftruncate(self._fd, self._at)
            os.pwrite(self._fd, self.TRAILER, self._at)
            raise
        self._empty = False

    def _write(self, data: bytes) -> None:
        rest, at = memoryview(data + self.TRAILER), self._at
        while rest:
            written = os.pwrite(self._fd, rest, at)
            rest, at = rest[written:], at + written
        os.ftruncate(self._fd, at)
        self._at += len(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _start_by_environment() -> None:
    """``LMDBIO_TRACE``. The file is made when there is something to write."""
    path = os.environ.get(active.TRACE)
    if path:
        Trace(path, lazily=True)


def _at_exit() -> None:
    if active.trace is not None:
        active.trace.close()


atexit.register(_at_exit)
_start_by_environment()
