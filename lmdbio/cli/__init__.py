"""cli: the command line, one thin command each over the public calls.

Uses ``program``, ``prediction``, ``doctor``, ``tuning``, ``compact``, ``pull``, ``bench``,
``dropin``, ``convert``, ``reading``, ``locate``, ``share``, ``machine``, ``cache``, ``layouts``,
``planning``, ``simulate``, ``provenance``, ``observe``, ``inside``, ``page``, ``pylmdb``,
``remote`` and ``_core``; only ``__main__`` uses it.

Answers go to standard output, as text or (``--json``) as JSON; everything else to standard
error. Exit status: 0; 1 for an error, told in one line; 2 for a wrong use; 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from importlib import import_module
from typing import Any, NamedTuple

import click

import lmdbio
from lmdbio.cli.ending import EXPECTED, ClosedOutput, one_line
from lmdbio.system.signals import leaving_at_once

__all__ = ["COMMANDS", "EXPECTED", "cli", "main", "one_line"]


class Later(NamedTuple):
    """A command that is loaded when it is typed.

    Attributes:
        module: module of this package that has it.
        name: name of the command there.
        help: the first paragraph of its own.
    """

    module: str
    name: str
    help: str


#: By name; most load NumPy, and some of them half of lmdbio.
COMMANDS = {
    "convert": Later(
        "convert", "convert", "Write the provenance file: where every record of PATH lies."
    ),
    "compact": Later(
        "compact",
        "compact",
        "Copy SOURCE to TARGET without its free pages, in order, and convert the copy.",
    ),
    "info": Later("info", "info", "Tell what PATH is, and what will happen when it is opened."),
    "doctor": Later(
        "doctor",
        "doctor",
        "Tell what limits PATH on this machine, and which command to type next.",
    ),
    "ls": Later("ls", "ls", "List records of PATH in the order of their keys: key, bytes, type."),
    "head": Later(
        "ls", "head", "Show the first records of PATH, each with a preview of its value."
    ),
    "get": Later("values", "get", "Write one value to standard output, or to a file."),
    "cat": Later(
        "values",
        "cat",
        "Write the values of some records to standard output, one after the other.",
    ),
    "export": Later(
        "export", "export", "Write each record of PATH as a file into DIR, or into a tar archive."
    ),
    "gallery": Later(
        "gallery",
        "gallery",
        "Make an HTML page of small pictures of PATH's records, which needs nothing else.",
    ),
    "verify": Later(
        "verify", "verify", "Prove the whole tree of PATH, and its provenance file, sound."
    ),
    "pull": Later(
        "pull",
        "pull",
        "Copy the data file at URL to TARGET, a file or a folder (which ends in a slash).",
    ),
    "plan": Later("plan", "plan", "List the reads for some records of PATH, without doing them."),
    "tune": Later(
        "tune", "tune", "Measure how the storage under PATH likes to be read, and remember it."
    ),
    "bench": Later(
        "bench", "bench", "Measure how fast PATH can be read here: py-lmdb, lmdbio, fio, ior."
    ),
    "run": Later(
        "run", "run", "Run a Python program with lmdbio in the place of py-lmdb, unchanged."
    ),
    "trace": Later(
        "trace", "sum_up", "Sum up traces, and put those of several processes together."
    ),
    "cache": Later("cache", "cache", "List, verify or clear the cache files in FOLDER."),
    "simulate": Later(
        "simulate",
        "simulate",
        "How long would a training take, with which way of loading its data?",
    ),
    "demo": Later(
        "demo", "demo", "Write two data sets, race lmdbio against py-lmdb, show one table."
    ),
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
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        with leaving_at_once():
            module = import_module(f"{__name__}.{found.module}")
        loaded: click.Command = getattr(module, found.name)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of them, from the texts that are here."""
        told = {name: click.Command(name, help=each.help) for name, each in COMMANDS.items()}
        click.Group(commands=told).format_commands(ctx, formatter)


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
        status = 128 + getattr(interrupt.__cause__ or interrupt, "number", signal.SIGINT)
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
    """Tell a warning in one line: the source beside it is lmdbio's own."""
    click.echo(f"lmdbio: {' '.join(str(message).split())}", err=True)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 99},
)
@click.version_option(lmdbio.__version__)
def cli() -> None:
    """Reads LMDB data sets at the storage's own speed.

    \b
    A data set is an LMDB environment: a folder with data.mdb, or a single file; or many of them: a
    folder or a quoted pattern.
        lmdbio convert train_lmdb     find every record once; writes train_lmdb/data.mdb.prov
        lmdbio compact train_lmdb copy_lmdb     a copy without free pages, in order; converted
        lmdbio info train_lmdb        what is in it, and whether the provenance file is good
        lmdbio doctor train_lmdb      what limits it here, and the command to type next
        lmdbio ls train_lmdb          its records: keys, sizes, types
        lmdbio head train_lmdb        the first ones, shown
        lmdbio get train_lmdb KEY     one value; cat writes several
        lmdbio export train_lmdb DIR  a file for each record, or a tar archive
        lmdbio gallery train_lmdb     a page of small pictures of records
        lmdbio verify train_lmdb      read it all, and prove it sound
        lmdbio pull URL train.mdb     a copy of one that lies elsewhere, verified
        lmdbio plan train_lmdb        the reads for some records, without doing them
        lmdbio tune train_lmdb        how does its storage like to be read; remembered
        lmdbio bench train_lmdb       how fast can it be read here, by whom, and what limits it
        lmdbio run train.py           a program, lmdbio in the place of py-lmdb, and a report
        lmdbio trace t.json           where did the time go; several ranks' traces as one
        lmdbio cache list /local      what do jobs keep on this disk, and is it still good
        lmdbio simulate               how long would a training take, loading its data in which way
        lmdbio demo                   write data, race py-lmdb, draw the result
    """
