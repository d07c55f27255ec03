"""Several data sets as the PATHs of a command, which does something to each of their files."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from lmdbio.cli import EXPECTED, one_line
from lmdbio.cli.output import Lines, bar, print_facts, print_json
from lmdbio.provenance import data_files
from lmdbio.provenance.freshness import Progress

__all__ = ["Failed", "Name", "files_of", "largest", "report_each"]

#: A data set as a user names it: a URL stays text.
Name = Path | str
Report = TypeVar("Report")

#: Of more files than these, one paragraph is shown for all.
FILES_DISPLAYED = 8
#: Files at once: to bring a provenance file to the disk takes longer than to make a small one.
THREADS = 4


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


def report_each(
    verb: str,
    files: Sequence[Name],
    step: Callable[[Name, Progress | None], Report],
    *,
    lines: Callable[[Report], Lines],
    totals: Callable[[int, Sequence[Report]], Lines],
    as_json: bool,
    is_plain: bool = False,
) -> None:
    """Do something to each file, and print the reports; exit with status 1 if a file failed.

    An error ends the step of its file alone; of a single file it is raised.

    Args:
        verb: the command.
        files: files, in the order of their reports.
        step: function of a file and a progress callback, called by several threads.
        lines: function from a report to the lines that are shown for its file.
        totals: function from the number of files and all good reports to the lines that are shown
            where they are many.
        as_json: whether JSON is printed instead.
        is_plain: whether the JSON of a single file is no list.
    """
    reports: list[Report | Failed] = []
    good: list[Report] = []
    for report in _each(verb, files, step):
        reports.append(report)
        if isinstance(report, Failed):
            click.echo(f"lmdbio: {report.error}", err=True)
            continue
        good.append(report)
        if not as_json and len(files) <= FILES_DISPLAYED:
            print_facts(lines(report))
    if as_json:
        print_json(reports[0] if is_plain and len(files) == 1 else reports)
    elif len(files) > FILES_DISPLAYED:
        print_facts(totals(len(reports), good))
    if len(good) < len(reports):
        sys.exit(1)


def _each(
    verb: str, files: Sequence[Name], step: Callable[[Name, Progress | None], Report]
) -> Iterator[Report | Failed]:
    """Yield the report of each file, in their order."""
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
