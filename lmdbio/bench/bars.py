"""Progress bars of the benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

__all__ = ["bars", "by_steps"]


@contextmanager
def bars(console: Console, *, sizes: bool) -> Iterator[Progress]:
    """Progress bars that count bytes or runs; they leave their last state behind."""
    counts = (DownloadColumn(), TransferSpeedColumn()) if sizes else (MofNCompleteColumn(),)
    with Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        *counts,
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        yield progress


def by_steps(progress: Progress, task: TaskID, total: int) -> Callable[[int], None]:
    """A callback that takes every value's size and moves the bar in steps."""
    pending = 0
    step = max(1, total // 200)

    def advance(size: int) -> None:
        nonlocal pending
        pending += size
        if pending >= step:
            progress.update(task, advance=pending, visible=True)
            pending = 0

    return advance
