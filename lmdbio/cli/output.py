"""The output of every command: text, JSON, tables, bars."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from lmdbio.inside.keytext import show_key
from lmdbio.system.amounts import count_text, size_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from lmdbio.provenance import freshness

#: Names and values; a name without a value stands alone, a value without a name goes on below.
Lines = list[tuple[str, str]]

plural, size = count_text, size_text

#: Columns of tables that go to a file or a log, which is no window.
WIDTH = 150
#: Work that takes longer than this gets a progress bar, on a terminal.
BAR_AFTER_SECONDS = 2.0


def plain(value: Any) -> Any:
    """Turns our values into what JSON knows. Names of databases are bytes in LMDB."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "dtype"):  # a number of NumPy's
        return value.item()
    return str(value) if isinstance(value, Path) else value


def print_json(value: Any) -> None:
    click.echo(json.dumps(plain(value), indent=2))


def print_facts(facts: Lines) -> None:
    """Aligned lines of name and value."""
    width = max(len(name) for name, text in facts if text)
    for name, text in facts:
        click.echo(f"{name:<{width}}  {text}" if text else f"{name}")


def print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Print columns, the last one wrapped. rich, which colours and frames, takes long to load."""
    *widths, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    indent = sum(widths) + 2 * len(widths)
    is_seen = sys.stdout is not None and sys.stdout.isatty()
    room = (shutil.get_terminal_size().columns if is_seen else WIDTH) - indent
    for *cells, last in rows:
        begun = "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True))
        lines = textwrap.wrap(last, max(room, 14), break_long_words=False, break_on_hyphens=False)
        for line in lines:
            click.echo(f"{begun}{line}")
            begun = " " * indent


def reading(read_bytes: int, requests: int) -> str:
    return f"{size(read_bytes)} in {plural(requests, 'request')}"


def titled(name: bytes | None) -> str:
    return "main database" if name is None else f"database {show_key(name)}"


class Trimmed:
    """A text stream that leaves out blanks at the ends of lines, with which tables are filled up.

    Args:
        stream: text stream that is written to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(re.sub(r"[ \t]+(?=\n)", "", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def wide_console(*, stderr: bool = False, width: int = WIDTH) -> Console:
    """A console for tables; a file or a log is no window of 80 columns, and needs no blanks."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if console.is_terminal:
        return console
    stream = sys.stderr if stderr else sys.stdout
    if stream is None:  # closed before we began
        return console
    return Console(file=cast(TextIO, Trimmed(stream)), width=width)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    texts: Sequence[str] = (),
    stderr: bool = False,
    width: int = WIDTH,
) -> None:
    """Print a table: the first columns and ``texts`` read from the left, others are numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left or column in texts else "right")
    for row in rows:
        table.add_row(*row)
    wide_console(stderr=stderr, width=width).print(table, highlight=False)


def open_page(page: Path) -> bool:
    """Open a page in the browser, and say whether: of a desktop, and for somebody who looks.

    Over ssh, or without a display, a browser would take over the terminal, or open elsewhere.
    """
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    is_far = any(os.environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY"))
    has_desktop = any(map(os.environ.get, displays)) and not is_far
    if not has_desktop or sys.stdout is None or not sys.stdout.isatty():
        return False
    import webbrowser

    with suppress(webbrowser.Error):  # there is no such program
        return webbrowser.get("xdg-open").open(page.resolve().as_uri())
    return False


@contextmanager
def bar(what: str) -> Iterator[freshness.Progress]:
    """A progress callback (done, in all, stage); it shows a bar once the work takes long."""
    from rich.console import Console

    console = Console(stderr=True)
    begun = time.monotonic()
    displayed: Progress | None = None
    tasks: dict[str, Any] = {}

    def advance(done: int, total: int, stage: str) -> None:
        nonlocal displayed
        if displayed is None:
            if not console.is_terminal or time.monotonic() - begun < BAR_AFTER_SECONDS:
                return
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
            )

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            displayed = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
            displayed.start()
        if stage not in tasks:
            tasks[stage] = displayed.add_task(f"{what}: {stage}", total=total)
        displayed.update(tasks[stage], completed=done, total=total)

    try:
        yield advance
    finally:
        if displayed is not None:
            displayed.stop()
