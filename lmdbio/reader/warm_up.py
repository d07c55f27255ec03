"""Warm-up: a progress bar of a root that reads its part before the first batch.

It shows after some seconds, where somebody looks at a terminal; else the logger hears that it
takes long.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from lmdbio.reader.root_thread import RootThread, carry
from lmdbio.system.log import log

if TYPE_CHECKING:
    from rich.progress import Progress

    from lmdbio.reader.supply import Supply

__all__ = ["SILENT_SECONDS", "WarmUp", "wait_warm"]

#: Nobody hears of a warm-up that takes no longer; and the time between two looks at it.
SILENT_SECONDS = 2.0
NAP_SECONDS = 0.005
#: Of the file's path, its last letters: bar and numbers want a line of 80.
PATH_LETTERS = 20


class WarmUp:
    """Shows how far a root is, from when it takes long until the end of the ``with``.

    Args:
        supply: supply of the root.
        is_displayed: whether this root is the one that reports; the others are about as far.
    """

    def __init__(self, supply: Supply, *, is_displayed: bool) -> None:
        self._supply, self._is_displayed = supply, is_displayed
        self._begun_s = monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> WarmUp:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def wait(self, over: threading.Event, goes_on: Callable[[], bool]) -> None:
        """Wait until the root has its part, or has ended.

        Args:
            over: event that is set when it has ended.
            goes_on: returns whether it has not.
        """
        while self._supply.is_cold and goes_on():
            over.wait(NAP_SECONDS)
            self.show()

    def show(self) -> None:
        """Show how much of its part the root has, if it has begun long ago."""
        if not self._is_displayed or monotonic() < self._begun_s + SILENT_SECONDS:
            return
        path, (there, whole) = self._supply.path, self._supply.warmth
        if self._bar is None and not _is_terminal():
            self._is_displayed = False
            log(f"{path}: the first root keeps {there >> 20} of {whole >> 20} MiB by now")
            return
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task(f"{path[-PATH_LETTERS:]}: first root's part", total=whole)
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=there, total=whole)


def wait_warm(thread: RootThread, *, is_displayed: bool) -> None:
    """Wait until all is there that is to be there before the first block; raise what fails."""
    if thread.turns is not None:
        carry(thread, 0)
    with WarmUp(thread._supply, is_displayed=is_displayed) as warm_up:
        warm_up.wait(thread._filled, lambda: thread.is_filling)
    if thread.error is not None:
        raise thread.error


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _bar() -> Progress:
    """Return a bar that has started; others begin sooner without rich."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    bar = Progress(
        TextColumn("{task.description}"), *columns, console=Console(stderr=True), transient=True
    )
    bar.start()
    return bar
