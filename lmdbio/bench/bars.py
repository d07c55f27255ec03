"""Progress bars of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

__all__ = ["bars"]


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
