"""Reader: this rank's share of each global batch, read ahead by the roots of its node.

Each root has one thread (``root_thread``). For every block of k iterations it plans the reads of
its team's records, waits for a free slot of the window, reads straight into the slot, writes the
table (offset and length per record) and publishes the block; the ranks of the team use it and
release it. The root plans blocks ahead, and reads them into every slot that is free, while the
ranks use those before. There is no barrier, and a rank that waits sleeps.

A rank needs a slot until it asks for the first batch beyond the block in it, and longer only
where views made from an earlier batch are alive (``lent``): with ``slots=2`` none may be when the
rank asks for the next batch, each further slot allows those of one batch more. Asking too early
raises BufferError and changes nothing.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import RLock, Thread
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lmdbio import share
from lmdbio.errors import Error, PeerError
from lmdbio.locate.open import Check, Order
from lmdbio.observe import ledger, tracing
from lmdbio.observe.stats import StageCounter, Stats
from lmdbio.placement.cache import Cache
from lmdbio.planning.mode import Mode
from lmdbio.planning.shuffle import Shuffle
from lmdbio.provenance import Paths
from lmdbio.reader.lent import LentBatches
from lmdbio.reader.options import ReaderOptions
from lmdbio.reader.root_thread import GOODBYE_SECONDS_MAX, RootThread, carry, uncaught
from lmdbio.reader.setup import Setup, set_up
from lmdbio.reading.batch import Batch
from lmdbio.system.log import WARNING, log

if TYPE_CHECKING:
    from lmdbio.cache import LeftGrains
    from lmdbio.layouts.layout import Layout
    from lmdbio.layouts.wanted import Skip
    from lmdbio.planning.order import Steps

__all__ = ["Reader", "moved"]

#: A rank that waits so long for a batch logs it.
WAIT_SECONDS_LOGGED = 30
_waited: set[str] = set()  # data sets of which that was logged

_readers: weakref.WeakSet[Reader] = weakref.WeakSet()


def _at_exit() -> None:
    """End every Reader that is still open, when the process or MPI ends."""
    for reader in list(_readers):
        reader._forget(uncaught())
        reader._closed = True  # in a child, too


atexit.register(_at_exit)
share.before_finalize(_at_exit)


class Reader:
    """Iterates over this rank's share of each global batch of a circular data set.

    ``for batch in reader`` yields a ``Batch`` per iteration, endlessly unless ``iterations`` or
    ``epochs`` is given. In iteration t the job consumes records ``start + t*batch_size`` and so
    on, modulo the number of records; rank p of P has the share floor(p*B/P) .. floor((p+1)*B/P) of
    them, which may be empty.

    A batch is valid until this rank asks for the next one. With ``slots=2`` no view or array of it
    may be alive then: the call raises BufferError, and may be repeated after they are dropped.
    Each further slot lets the views of one more batch live on.

    With ``comm`` all ranks make the Reader together, with the same arguments, and close it
    together. Between, no call is collective, and a rank may leave its loop at any time.

    Attributes:
        rank, size: rank of this process, and number of ranks in the job.
        mode: mode that the ranks agreed on, with every choice made.
        turns, windows, caching: reasons for the number of tokens, for windows that roots read
            whole or not, and for the cache of each root, each as ``text``.
        count: number of records in the data set.
        schedule: object that tells which rank uses which records in which iteration.

    Args:
        path: folder or file of an environment, or several that are read as one (``Records``).
            Nodes that have copies of the same data may give different paths.
        batch_size: number of records per iteration, over all ranks; may exceed that of the data
            set.
        comm: mpi4py intracommunicator, or process group of torch.distributed; None: this process
            alone. If you free a communicator before you close the Reader, other nodes are no
            longer told of a failure.
        mode: a ``Mode``, a mode's name, or "auto": the provenance file if there is one, else a
            scan; coalesced reads, by an engine that suits the storage; turns or two phases if
            several nodes read one file.
        assignment: "strided", as in Caffe; "blocked"; or "local", with ``cache``: ranks use the
            records of each batch that their root caches.
        start: number of the first record, any integer; with ``shuffle`` or ``epochs`` a place from
            0 on: place p is position p % count of epoch p // count. Another Reader continues at
            the ``place`` of this one, with any number of ranks. Or ``Steps``: each epoch begins
            with a new batch, as a ``torch.Loader``'s does.
        iterations: number of iterations; None: endless, or given by ``epochs``.
        shuffle: "global" (or True), "groups:SIZE", "windows:CHUNKxCOUNT", "runs:LENGTH", "group"
            or "window" with sizes that suit the file, or a ``Shuffle``; not in modes that seek.
            With groups and "blocked" a root reads a group at a time (asynchronous I/O).
        seed: seed of all orders, which are the same in any job.
        epochs: number of epochs after which the job ends, counted from place 0; its last batch
            may be short, and other batches may have records of two epochs.
        cache: tiers in which each root caches its share of the file, for all ranks: a ``Cache``,
            text ("memory=8G,disk=/local"), or "auto": up to half of the available memory, if
            several nodes read one file. It adds to ``memory_bytes_max``. None: no cache.
        slots: number of slots per root, at least 2. With 3 a loop's variables may hold one batch
            while the rank asks for the next. Small blocks get more.
        db: name of a named database; None: the main one.
        provenance: provenance file, or the folder that holds it; None: the usual places.
        check: "fast", "deep" or "always": how roots check the provenance file.
        order: "key", or "insertion" for records as they were put, if that order is known.
        layout, skip: choice of the records that are samples (``Records``), one record each.
        ranks_per_node: number of ranks per emulated node, to split real nodes; None:
            ``LMDBIO_RANKS_PER_NODE``, or no split.
        memory_bytes_max: budget of a machine for windows, bytes or text such as "2G"; None:
            ``LMDBIO_MEMORY_BYTES``, else 2.5 GB or a quarter of the memory available.
        depth: number of requests in flight per root.
        gap_bytes_max: number of unneeded bytes worth reading to save a request.
        request_bytes_max: bytes of the largest request. None in these three: chosen by storage.

    Raises:
        ValueError: an argument makes no sense, differs between ranks, the data set is empty,
            or one iteration does not fit the memory budget.
        IncompatibleError: the insertion order is unknown, or this mode cannot follow it; or the
            mode needs messages between roots, and MPI serves one thread alone.
        MemoryError: too little shared memory.
        PeerError: another rank failed while the Reader was made.
        Error, OSError: the data set cannot be read.
    """

    def __init__(
        self,
        path: Paths,
        batch_size: int,
        *,
        comm: Any = None,
        mode: Mode | str = "auto",
        assignment: str = "strided",
        start: int | Steps = 0,
        iterations: int | None = None,
        shuffle: Shuffle | str | bool | None = None,
        seed: int = 0,
        epochs: int | None = None,
        cache: Cache | str | None = None,
        slots: int = 3,
        db: bytes | str | None = None,
        provenance: str | os.PathLike[str] | None = None,
        check: Check = "fast",
        order: Order = "key",
        layout: str | Layout | None = None,
        skip: Skip | None = None,
        ranks_per_node: int | None = None,
        memory_bytes_max: int | str | None = None,
        depth: int | None = None,
        gap_bytes_max: int | None = None,
        request_bytes_max: int | None = None,
    ) -> None:
        options = ReaderOptions(
            path=path,
            batch_size=batch_size,
            mode=mode,
            assignment=assignment,
            start=start,
            iterations=iterations,
            shuffle=shuffle,
            seed=seed,
            epochs=epochs,
            cache=cache,
            slots=slots,
            db=db,
            provenance=provenance,
            check=check,
            order=order,
            layout=layout,
            skip=skip,
            ranks_per_node=ranks_per_node,
            memory_bytes_max=memory_bytes_max,
            depth=depth,
            gap_bytes_max=gap_bytes_max,
            request_bytes_max=request_bytes_max,
        )
        self._open(comm, options, None)

    def _open(self, comm: Any, options: ReaderOptions, left: LeftGrains | None) -> None:
        """Make all that this rank reads with; or as the class raises."""
        begun, self._pid = monotonic_ns(), os.getpid()
        self._closed = True  # until it is open
        self._thread: RootThread | None = None
        self._counter = StageCounter(self._engines)
        setup = set_up(comm, options.checked, self._counter, left)
        self._options, self._window, self._left = options, setup.window, setup.left
        self._thread, self.rank, self.size = setup.thread, setup.rank, setup.size
        self.mode, self.turns, self.windows = setup.mode, setup.turns, setup.windows
        self.caching, self.facts, self.schedule = setup.caching, setup.facts, setup.schedule
        self._iterations, self.count = setup.schedule.iterations, setup.facts.count
        self._lent = LentBatches(setup.window, setup.schedule, setup.rank, setup.options.slots)
        self._next, self._asking = 0, RLock()
        self._ended = self._closed = False
        _readers.add(self)
        _end_opening(self, begun, setup, self._counter)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            StopIteration: after ``iterations``.
            BufferError: views of an earlier batch are alive; the rank may try again.
            PeerError: another rank of the node failed.
            Error, OSError: this rank's reading thread failed.
        """
        self._check_usable()
        with self._asking:  # so that no other thread's close() frees what is looked at here
            self._check_usable()
            iteration = self._next
            if self._iterations is not None and iteration >= self._iterations:
                self._end()
                raise StopIteration
            self._lent.retire_batch(iteration)
            block, step = self.schedule.block_of(iteration)
            self._lent.advance(block)
            begun = monotonic_ns()
            while not _has_come(self._window, self._thread, block):
                self._check_usable()  # a signal handler may have closed it
                _check(self._window, self._thread)
                _check_wait(self._window, self._thread, block, begun, self._options.name)
            _check(self._window, self._thread)
            self._counter.span("wait for a block", begun)
            batch = self._lent.take(iteration, block, step)
            self._next = iteration + 1
            size = int(batch.lengths.sum())
            self._counter.count(iterations=1, records=len(batch), record_bytes=size)
            return batch

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise Error("a Reader cannot be used in a forked child; make one there")
        if self._closed:
            raise Error("this Reader is closed")

    def _end(self) -> None:
        """Ask for nothing more, after the last iteration: no block comes over live views."""
        if self._ended:
            return
        self._ended = True
        self._lent.end(self._next)
        self._window.leave((), closes=False)

    def _forget(self, error: BaseException | None) -> None:
        """Leave for good without waiting for any rank; after an error, abort the node."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if error is not None:
            self._window.abort(error)
        try:
            self._window.leave(self._lent.end(self._next), closes=False)
        finally:
            self._window.keep()
            self._window.hand_over(_is_unused(self._thread))

    def close(self) -> None:
        """Stop reading and free the window. Collective over the node; may be repeated.

        Waits until all ranks of the node have left their loops, because a root reads for others.
        Batches end; views and arrays made from them stay valid.
        """
        if self._closed or self._pid != os.getpid():
            self._closed = True
            return
        self._closed, self._left = True, None
        try:
            with self._asking:  # a thread that waits for a batch sees within a slice that it ended
                self._window.leave(self._lent.end(self._next), closes=True)
                self._window.close(self._finish, _is_unused(self._thread))
            ledger.ended(self)
        except BaseException as error:
            self._window.abort(error)
            self._window.keep()
            self._window.hand_over(_is_unused(self._thread))
            raise

    def _finish(self) -> None:
        if self._thread is not None:
            self._thread.finish()

    def __enter__(self) -> Reader:
        self._check_usable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        quiet = isinstance(error, GeneratorExit) or (
            isinstance(error, SystemExit) and error.code in (None, 0)
        )
        self._forget(None if quiet or isinstance(error, PeerError) else error)
        if self._thread is not None and not quiet and self._pid == os.getpid():
            self._thread.stop()
            self._thread.finish()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):  # as it is at exit, before what is used here goes
            self._forget(None)

    # --- what it did ----------------------------------------------------------------------

    @property
    def iteration(self) -> int:
        """Number of batches that this rank has received: the number of the next one."""
        return self._next

    @property
    def place(self) -> int:
        """``start`` for a Reader that continues here; not for one that began with ``Steps``.

        Raises:
            ValueError: with "blocked", in the middle of a block of several roots, where the rest
                begins at no single place. ``mode.block_iterations`` is the length of a block.
        """
        return self.schedule.start_after(self._next)

    @property
    def launched_s(self) -> float | None:
        """When this rank began to read for its team, by ``time.monotonic``; None: another does."""
        return None if self._thread is None else self._thread.launched_s

    def _engines(self) -> Stats:
        """Return the counts of the engines that this rank reads with."""
        return Stats() if self._thread is None else self._thread.engines()

    def stats(self) -> Stats:
        """Return the counts of what this rank has done so far; also after ``close``.

        A rank that reads for others has their records among those it located and planned.
        """
        return replace(self._counter.stats(), window_bytes=self._window.window_bytes)

    def sources(self) -> dict[int, dict[str, tuple[int, int]]]:
        """Return its team's rows, and their bytes, by epoch and source: "own", "peer", "file"."""
        return self._counter.sources()

    def __repr__(self) -> str:
        if not hasattr(self, "_window"):
            return "<Reader that was never open>"
        state = "closed" if self._closed else f"at iteration {self._next}"
        return f"<Reader of {self._options.name}, rank {self.rank} of {self.size}, {state}>"


def moved(reader: Reader, comm: Any, *, start: int | Steps, seed: int) -> Reader:
    """Close a Reader, and return one like it at another place. Collective over ``comm``.

    Each root goes on with what it has in memory, where the file is as it was.

    Args:
        reader: Reader that is open.
        comm: communicator or process group of its ranks.
        start, seed: arguments of the new one.

    Raises:
        As ``Reader``, and as its ``close``.
    """
    thread, left = reader._thread, reader._left
    reader.close()
    if thread is not None and thread.is_alive():  # other roots, which come later, need rows of it
        thread.join(GOODBYE_SECONDS_MAX)
        left = None if thread.is_alive() else left
    made = Reader.__new__(Reader)
    made._open(comm, replace(reader._options, start=start, seed=seed), left)
    return made


def _has_come(window: share.NodeWindow, thread: RootThread | None, block: int) -> bool:
    """Return whether a block is published, after a slice of time at most."""
    if thread is not None and thread.turns is not None:
        return carry(thread, block)
    return window.control.wait_published(window.root, block)


def _check(window: share.NodeWindow, thread: RootThread | None) -> None:
    """Raise what ended the reading, here or on another rank of the node."""
    ended: Error | None = None
    try:
        window.check()
    except Error as error:
        ended = error
    # After that, for the thread notes its own error first and then tells all ranks of it.
    if thread is not None and thread.error is not None:
        raise thread.error
    if ended is not None:
        raise ended


def _check_wait(
    window: share.NodeWindow, thread: RootThread | None, block: int, begun: int, name: str
) -> None:
    """Log that this rank has waited long for a block, and raise Error when no thread reads it.

    The main thread has ended, and the thread that reads with it; another one waits here.
    """
    if monotonic_ns() - begun > WAIT_SECONDS_LOGGED * 1e9 and name not in _waited:
        _waited.add(name)
        text = (
            f"{name}: no batch has come for {WAIT_SECONDS_LOGGED} s: the root waits for storage, "
            "or for a rank that does not iterate, and all ranks of a node have to"
        )
        # In a thread of its own: the caller has a lock, and a handler may do anything.
        Thread(target=log, args=(text, WARNING), daemon=True).start()
    if thread is None or thread.is_filling:
        return
    if not window.control.wait_published(window.root, block):
        _check(window, thread)
        raise Error(f"{name}: is read no more, for the main thread has ended")


def _is_unused(thread: RootThread | None) -> Callable[[], bool]:
    """Return a callable that reports whether this rank has stopped filling its window.

    It holds no reference to the Reader.
    """
    return lambda: thread is None or not thread.is_filling


def _end_opening(reader: Reader, begun: int, setup: Setup, counter: StageCounter) -> None:
    """Note the opening, which began at ``begun``, in a trace, and have what is read counted."""
    try:
        setup.end()
    except BaseException as error:  # the others have their Readers
        reader.__exit__(type(error), error, error.__traceback__)
        raise
    path, thread = setup.options.name, setup.thread
    tracing.note("open", begun, monotonic_ns(), {"file": path})

    def facts(_: Reader) -> ledger.Facts:
        file = path if thread is None else thread.path
        return ledger.Facts("Reader", file, setup.mode.engine, setup.mode.locate)

    ledger.follow(reader, facts, counter, Stats if thread is None else thread.engines)
