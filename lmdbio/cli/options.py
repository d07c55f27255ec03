"""Arguments and options that several commands take, and their types.

A type refuses a value by a sentence that names it. Whether a file can be read is no matter of
types: that is an answer, not a wrong use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from lmdbio.inside.keytext import parse_key
from lmdbio.provenance.paths import lies_beside
from lmdbio.remote import is_url
from lmdbio.remote.url import redacted

Value = TypeVar("Value")

#: Of records that an option names or counts: more than a file can have.
RECORDS_MAX = 1 << 48
#: Of runs of a measurement.
REPEATS_MAX = 10_000
#: Of a measurement, and of what it may take, seconds.
SECONDS_MAX = 1_000_000


def checked(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Return the type of an option whose value a function makes of its text.

    Args:
        parse: function that raises ValueError or OSError for a text that makes no sense.
    """

    def convert(text: str) -> Value:
        try:
            return parse(text)
        except (ValueError, OSError) as error:
            raise click.BadParameter(str(error)) from None

    return convert


class Seconds(click.FloatRange):
    """A time that is more than nothing, and has an end."""

    def __init__(self) -> None:
        super().__init__(min=0, max=SECONDS_MAX, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the time; what is no number is in no range."""
        seconds = super().convert(value, param, ctx)
        return seconds if seconds == seconds else self.fail(f"{value} is no time", param, ctx)


class PathName(click.Path):
    """A path that is not empty: that would be the current folder, which nobody has named.

    Args:
        has_urls: whether a URL stays text, since a path has no "//" in it; else a URL is a wrong
            use. None: nobody looks for one.
        options: options of ``click.Path``. Click tests no file: whether it can be read is an
            answer, not a wrong use.
    """

    def __init__(self, *, has_urls: bool | None, **options: Any) -> None:
        super().__init__(readable=False, **options)
        self._has_urls = has_urls

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what a caller of Python would give."""
        if value == "":
            self.fail("the path is empty (an unset variable?)", param, ctx)
        if self._has_urls is not None and is_url(value):
            if not self._has_urls:
                text = f"{redacted(value)} is a URL: lmdbio pull copies it to this machine"
                self.fail(text, param, ctx)
            return value
        return super().convert(value, param, ctx)


#: A path of this machine; a data set or a provenance file, which may be a URL; and where something
#: is written: a trailing slash, which tells a folder, must not get lost.
PATH = PathName(has_urls=False, path_type=Path)
DATA = PathName(has_urls=True, path_type=Path)
OUTPUT = PathName(has_urls=None)


@checked
def database_name(text: str) -> bytes:
    """Return the name of a named database as ``ls`` and ``info`` spell it (``inside.keytext``)."""
    if not text:
        raise ValueError("the name is empty (an unset variable?)")
    return parse_key(text)


def _without_others(_: click.Context, __: click.Parameter, paths: tuple[Path | str, ...]) -> Any:
    """Leave out what lies beside data, where a shell has replaced a pattern by several PATHs."""
    data = tuple(path for path in paths if is_url(path) or not lies_beside(path))
    return data if len(paths) > 1 and data else paths


_paths = partial(
    click.argument, "paths", nargs=-1, required=True, metavar="PATH...", callback=_without_others
)
#: Environments, folders and patterns of several; and the same of this machine.
paths_argument, local_paths_argument = _paths(type=DATA), _paths(type=PATH)
_json = partial(click.option, "--json", "as_json", is_flag=True)
#: Of commands whose JSON names no provenance file, and of those that have one there.
json_option = _json(help="Print JSON instead of text.")
sidecar_json_option = _json(
    help='Print JSON instead of text (the provenance file is "sidecar" there).'
)


def renamed_option(old: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return an option that had another name: scripts still say the old one, which no help shows.

    Args:
        old: the old name.
        names, settings: arguments of ``click.option``; the last name is that of the parameter.
    """

    def both(command: Any) -> Any:
        hidden = {**settings, "help": None, "hidden": True}
        return click.option(*names, **settings)(click.option(old, names[-1], **hidden)(command))

    return both


#: "How many" has one spelling in all commands.
LIMIT = ("--limit", "-n", "limit")
db_option = click.option(
    "--db",
    "name",
    type=database_name,
    metavar="NAME",
    help="Read this named database, spelled as ls does.  [default: the main one]",
)
provenance_option = click.option(
    "--provenance",
    "sidecar",
    type=DATA,
    help="The provenance file, or the folder that holds it, if it is not beside the data.",
)
