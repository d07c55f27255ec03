"""waiting: threads that need grains of a shard, and wait for them.

Ctrl-C may end any step: a load stays in its list until its grains are marked, and a thread that
needs one of them goes on with it. Nobody waits for a tier that does not answer for longer than its
limits say.
"""

from __future__ import annotations

import contextlib
from time import monotonic_ns

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.loads import GrainLoads, Load
from lmdbio.cache.table import LOST
from lmdbio.cache.tier import TierReads
from lmdbio.errors import Error
from lmdbio.reading.guarded import GuardedReads
from lmdbio.system.log import WARNING, log

__all__ = ["WaitingLoads"]

Flags = npt.NDArray[np.bool_]


class WaitingLoads:
    """The loads of a shard, driven by threads that wait for what they need.

    Args:
        loads: loads of the shard.
    """

    def __init__(self, loads: GrainLoads) -> None:
        self._loads, self._limits = loads, loads.limits

    @property
    def _is_away(self) -> bool:
        back = self._loads.back
        return back is not None and back.is_away

    def _want(self, grains: Flags) -> list[Load]:
        return self._loads.want(grains, is_away=self._is_away)

    def start(self, grains: Flags) -> None:
        """Start to read those of some grains that are missing.

        Raises:
            Error: it is closed.
        """
        buffers = 0
        for load in self._want(grains):
            buffers += not load.to_memory
            if not load.has_begun and (load.to_memory or buffers <= self._limits.loads):
                self._try_to_begin(load)

    def bring(self, grains: Flags, *, ahead: bool = False) -> None:
        """Wait until some grains are present, or lost.

        Those that are to lie in a tier that does not answer may still be absent.

        Args:
            grains: mask of the shard's grains that are needed, shape (owned,).
            ahead: whether only a few loads are to be under way; else those to memory have begun.

        Raises:
            Error: the file has moved on, or it is closed.
        """
        while loads := self._want(grains):
            for number, load in enumerate(loads):
                if self._is_away and not load.to_memory:
                    continue  # it stays in its list until the tier answers
                for one in loads[number : number + self._limits.loads]:
                    if ahead or not one.to_memory:
                        self._try_to_begin(one)
                self._go_on(load)
                while (copy := self._next_copy()) is not None:
                    self._go_on(copy)

    def _next_copy(self) -> Load | None:
        """Return what is to be written for the next job; None: nothing, or it would wait."""
        loads = self._loads
        with loads.lock:
            if not loads.copies or self._is_away:
                return None
            loads.to_back.append(loads.copies.popleft())
            return loads.to_back[-1]

    def _try_to_begin(self, load: Load) -> None:
        with load.lock:  # not one that is asked for and then tested: Ctrl-C may come between
            with contextlib.suppress(OSError, Error):  # ``_go_on`` tries once more
                self._loads.begin(load)

    def _go_on(self, load: Load) -> None:
        """Wait for a load, and mark its grains; return at once if another thread has.

        Raises:
            Error: the file has moved on, or it is closed.
        """
        with load.lock:
            if load.is_over:
                return
            begun = monotonic_ns()
            try:
                self._loads.begin(load)
                if isinstance(load.reads, TierReads):
                    load.reads.await_from_now()
                while not self._loads.poll(load, _core.SLICE_MS):
                    if load.is_late:
                        self._leave(load)
                        return
            except (OSError, Error) as error:
                self._fail(load, error)
            self._loads.counter.span("wait", begun)

    def _leave(self, load: Load) -> None:
        """Wait no more for a tier that does not answer.

        A write is looked at again when the tier is asked again. Reads may still fill their memory,
        which nothing else may.
        """
        loads = self._loads
        assert loads.back is not None
        loads.back.note_stuck()
        if isinstance(load.reads, TierReads):
            load.reads.abandon()
            with loads.lock:
                loads.table.mark(loads.table.front, load.grains, LOST)
                loads.end(load)

    def _fail(self, load: Load, error: OSError | Error) -> None:
        """Do without grains that cannot be read as a whole.

        Raises:
            Error: the file has moved on, or it is closed.
        """
        loads = self._loads
        if loads.front is None:
            raise loads.closed()
        has_come = isinstance(load.reads, GuardedReads) and load.reads.have_come
        states = loads.table.front if load.to_memory else loads.table.back
        with loads.lock:
            if not has_come:
                loads.table.mark(states, load.grains, LOST)
            load.buffer = None  # something may still fill it: no other load takes it
            loads.end(load)
        if has_come:
            raise error
        path = loads.source.index.path
        log(f"{path}: records near each other are read one by one: {error}", WARNING)
