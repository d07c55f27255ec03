"""cli: the command line, one thin command each over the public calls.

Uses ``prediction``, ``doctor``, ``tuning``, ``bench``, ``dropin``, ``ingest``, ``convert``,
``reading``, ``locate``, ``share``, ``machine``, ``cache``, ``layouts``, ``placement``,
``planning``, ``simulate``, ``provenance``, ``observe``, ``inside``, ``page``, ``remote`` and
``_core``; only ``__main__`` uses it.

Answers go to standard output, as text or (``--json``) as JSON; everything else to standard
error. Exit status: 0; 1 for an error, reported in one line; 2 for a wrong use; 130 after Ctrl-C.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from importlib import import_module
from typing import Any, BinaryIO

import click

import lmdbio
from lmdbio.errors import MissingExtraError
from lmdbio.system.pylmdb import lmdb
from lmdbio.system.signals import leaving_at_once, number_of

__all__ = ["COMMANDS", "EXPECTED", "SHOW_WARNING", "ClosedOutput", "cli", "main", "one_line"]

#: Python's own way of showing a warning, as it is before a command shows them another way.
SHOW_WARNING = warnings.showwarning

#: Errors that a command reports in one line; any other is a fault of lmdbio.
EXPECTED = (lmdb.Error, OSError, ValueError, LookupError, MemoryError, MissingExtraError)

#: The module of each command. A command is loaded when it is typed: most load NumPy, and some of
#: them half of lmdbio.
COMMANDS = {
    "convert": "convert",
    "compact": "copy",
    "info": "info",
    "doctor": "doctor",
    "ls": "ls",
    "head": "ls",
    "get": "values",
    "cat": "values",
    "export": "export",
    "gallery": "gallery",
    "verify": "convert",
    "import": "ingest",
    "pull": "copy",
    "plan": "plan",
    "tune": "tune",
    "bench": "bench",
    "run": "run",
    "trace": "trace",
    "cache": "cache",
    "simulate": "simulate",
    "demo": "bench",
}


class Commands(click.Group):
    """The commands of ``COMMANDS``: to list them loads none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None: there is no such name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        with leaving_at_once():
            from lmdbio import _core  # the list of all does without it

            _core.need(f"the command {cmd_name}")
            module = import_module(f"{__name__}.{COMMANDS[cmd_name]}")
        # By its own name: "import" can be no name of a function.
        all_of = (one for one in vars(module).values() if isinstance(one, click.Command))
        return next(one for one in all_of if one.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write no table of them: the group's own help lists all, each with an example."""


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed before the command began: what is written fails."""

    encoding = "utf-8"

    def write(self, _text: str) -> int:
        """Raise OSError, which the command reports."""
        raise OSError(errno.EBADF, "is closed", "standard output")

    @property
    def buffer(self) -> BinaryIO:
        """Raise as ``write``: nobody takes bytes either."""
        raise OSError(errno.EBADF, "is closed", "standard output")


def one_line(error: BaseException) -> str:
    """Return the error in words, with the file that it is about."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(text.split()) or type(error).__name__


def main() -> None:
    """Run the command that was typed, and end the process with its status."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        if sys.stdout is None:
            sys.stdout = ClosedOutput()
        # Not standalone: click would turn a broken pipe or Ctrl-C into words of its own.
        status = cli.main(standalone_mode=False, prog_name="lmdbio")
        # None for a program that was run, which may have closed it as well.
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (KeyboardInterrupt, click.Abort) as interrupt:
        click.echo("lmdbio: interrupted", err=True)
        # Click has an Abort of its own for what interrupted a command.
        status = 128 + number_of(interrupt.__cause__ or interrupt)
    except BrokenPipeError:
        # The reader of our output has closed the pipe; Python's own flush at exit must not
        # complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 1
    except EXPECTED as error:
        click.echo(f"lmdbio: {one_line(error)}", err=True)
        status = 1
    sys.exit(status or 0)


def _show_warning(message: Warning | str, *_: Any) -> None:
    """Report a warning in one line: the source beside it is lmdbio's own."""
    click.echo(f"lmdbio: {' '.join(str(message).split())}", err=True)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 99},
)
@click.version_option(lmdbio.__version__)
def cli() -> None:
    """Reads LMDB data sets at the storage's own speed.

    \b
    A data set is an LMDB environment (a folder with data.mdb, or a single file), or several:
    a folder of files, or a quoted pattern.

    \b
        lmdbio convert train_lmdb     write its provenance file, train_lmdb/data.mdb.prov
        lmdbio compact train_lmdb copy_lmdb     copy it in order, without free pages
        lmdbio info train_lmdb        show what is in it, how it is read, and why
        lmdbio doctor train_lmdb      find what limits it here, and the command to type next
        lmdbio ls train_lmdb          list its records: keys, sizes, types
        lmdbio head train_lmdb        show the first records
        lmdbio get train_lmdb KEY     write one value
        lmdbio cat train_lmdb KEY...  write several values, one after another
        lmdbio export train_lmdb DIR  write a file for each record, or a tar archive
        lmdbio gallery train_lmdb     draw a page of small pictures of its records
        lmdbio verify train_lmdb      read its whole structure, and prove it sound
        lmdbio import train/ train_lmdb     make a data set of images in folders, or of tar shards
        lmdbio pull URL train.mdb     copy a file from a server, and verify it
        lmdbio plan train_lmdb        list the reads for some records, without doing them
        lmdbio tune train_lmdb        measure its storage, and remember the best settings
        lmdbio bench train_lmdb       race py-lmdb, lmdbio, fio and IOR on it
        lmdbio run train.py           run a program with lmdbio in the place of py-lmdb
        lmdbio trace t.json           sum up which requests were made when, of all ranks
        lmdbio cache list /local      list the cache files of jobs on a disk, and their state
        lmdbio simulate               predict how long a training takes, by its way of loading
        lmdbio demo                   write data, race py-lmdb, draw the result
        lmdbio COMMAND --help         show all options of a command, with examples
    """
