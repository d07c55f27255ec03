"""Several data sets as the PATHs of a command, which does something to each of their files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from lmdbio.cli.ending import EXPECTED, one_line
from lmdbio.cli.output import DATA, PATH, bar
from lmdbio.provenance import data_files
from lmdbio.provenance.freshness import Progress
from lmdbio.provenance.paths import lies_beside
from lmdbio.remote import is_url

__all__ = [
    "Failed",
    "Name",
    "each_file",
    "files_of",
    "largest",
    "local_paths_argument",
    "paths_argument",
]

#: A data set as a user names it: a URL stays text.
Name = Path | str
Report = TypeVar("Report")

#: Files at once: to bring a provenance file to the disk takes longer than to make a small one.
THREADS = 4


def _without_others(_: click.Context, __: click.Parameter, paths: tuple[Name, ...]) -> Any:
    """Leave out what lies beside data, where a shell has replaced a pattern by several PATHs."""
    data = tuple(path for path in paths if is_url(path) or not lies_beside(path))
    return data if len(paths) > 1 and data else paths


#: Environments, folders and patterns of several.
paths_argument = click.argument(
    "paths", type=DATA, nargs=-1, required=True, metavar="PATH...", callback=_without_others
)
#: The same, of this machine.
local_paths_argument = click.argument(
    "paths", type=PATH, nargs=-1, required=True, metavar="PATH...", callback=_without_others
)


@dataclass(frozen=True, slots=True)
class Failed:
    """A file, one of several, to which something could not be done.

    Attributes:
        data: the file, or a PATH that has none.
        error: reason of the failure; other reports have no such field.
    """

    data: Name
    error: str


def files_of(paths: Sequence[Name]) -> list[Name]:
    """Return the data files; of a PATH that has none the PATH, of which each command says why."""
    found: list[Name] = []
    for path in paths:
        try:
            found += data_files(path)
        except OSError:
            found.append(path)
    return found


def largest(files: Sequence[Name]) -> Name:
    """Return the largest file, which stands for all where a command looks at one."""
    return files[0] if len(files) == 1 else max(files, key=_size)


def each_file(
    verb: str, files: Sequence[Name], step: Callable[[Name, Progress | None], Report]
) -> Iterator[Report | Failed]:
    """Do something to each file, and yield the reports in the order of the files.

    An error ends the step of its file alone; of a single file it is raised.

    Args:
        verb: the command.
        step: function of a file and a progress callback, called by several threads.
    """
    if len(files) == 1:
        with bar(f"{verb} {files[0]}") as progress:
            yield step(files[0], progress)
        return
    ended = threading.Event()

    def go_on(*_: Any) -> None:
        if ended.is_set():
            raise InterruptedError

    def one(file: Name) -> Report | Failed:
        try:
            go_on()
            return step(file, go_on)
        except EXPECTED as error:
            text = one_line(error)
            return Failed(file, text if str(file) in text else f"{file}: {text}")

    sizes = [_size(file) for file in files]
    done = 0
    with bar(f"{verb} {len(files):,} files") as progress, ThreadPoolExecutor(THREADS) as threads:
        try:
            for number, report in enumerate(threads.map(one, files)):
                done += sizes[number]
                progress(number + 1, len(files), "files")
                progress(done >> 20, sum(sizes) >> 20, "MiB")
                yield report
        finally:  # after Ctrl-C none begins, and those that are under way end
            ended.set()


def _size(file: Name) -> int:
    try:
        return os.stat(file).st_size  # noqa: PTH116  (a URL is no Path)
    except OSError:
        return 0
