"""Warm-up: a progress bar of a root that reads its part before the first batch.

It shows after some seconds, where somebody looks at a terminal; else the logger hears that it
takes long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from lmdbio.reader.root_thread import RootThread, carry
from lmdbio.system.log import log

if TYPE_CHECKING:
    from rich.progress import Progress

    from lmdbio.reader.supply import Supply

__all__ = ["SILENT_SECONDS", "reporting", "wait_warm"]

#: Nobody hears of a warm-up that takes no longer; and the time between two looks at it.
SILENT_SECONDS = 2.0
NAP_SECONDS = 0.005
#: Of the file's path, its last letters: bar and numbers want a line of 80.
PATH_LETTERS = 20


def wait_warm(thread: RootThread, *, is_displayed: bool) -> None:
    """Wait until all is there that is to be there before the first block; raise what fails.

    Args:
        thread: thread of this root.
        is_displayed: whether this root is the one that reports; the others are about as far.
    """
    if thread.turns is not None:
        carry(thread, 0)
    with reporting(thread._supply, is_displayed=is_displayed) as report:
        while thread._supply.is_cold and thread.is_filling:
            thread._filled.wait(NAP_SECONDS)
            report()
    if thread.error is not None:
        raise thread.error


@contextmanager
def reporting(supply: Supply, *, is_displayed: bool) -> Iterator[Callable[[], None]]:
    """Give a function that shows how much of its part a root has, from when it takes long.

    Args:
        supply: supply of the root.
        is_displayed: whether it shows anything.
    """
    silent_until_s = monotonic() + SILENT_SECONDS
    bar: Progress | None = None

    def report() -> None:
        nonlocal bar, is_displayed
        if not is_displayed or monotonic() < silent_until_s:
            return
        path, (there, whole) = supply.path, supply.warmth
        if bar is None and not _is_terminal():
            is_displayed = False
            log(f"{path}: the first root keeps {there >> 20} of {whole >> 20} MiB by now")
            return
        if bar is None:
            bar = _bar()
            bar.add_task(f"{path[-PATH_LETTERS:]}: first root's part", total=whole)
        bar.update(bar.task_ids[0], completed=there, total=whole)

    try:
        yield report
    finally:
        if bar is not None:
            bar.stop()


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
