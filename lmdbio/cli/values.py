"""``lmdbio get`` and ``lmdbio cat``: values as they are."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from lmdbio.cli.options import DATA, OUTPUT, RECORDS_MAX, db_option, json_option
from lmdbio.cli.output import print_json
from lmdbio.cli.records import RecordNotFoundError, find_record, key_of, read_record, record_facts
from lmdbio.errors import ProvenanceError
from lmdbio.inside.kinds import text_of
from lmdbio.locate.open import open_record_index
from lmdbio.locate.view import DatabaseView, Seen, viewing
from lmdbio.provenance import data_files
from lmdbio.system.publish import Draft
from lmdbio.system.pylmdb import lmdb

Command = TypeVar("Command", bound=Callable[..., None])

#: The leaves before this record are soon read.
FAR_RECORDS = 100_000
#: Of a value that is written to a terminal, so much is looked at.
SAMPLED_BYTES = 4096
KEY_RULES = """
    A key is text, as ls prints it: \\n, \\t, \\\\ and \\xNN stand for single bytes, and 0x... for
    bytes in hexadecimal. (A shell wants backslashes in quotes.) In a database whose keys are
    integers it is a number. Of a folder or a quoted pattern of files, the first one that has the
    key is asked, and numbers of records count on from file to file.
"""


def with_key_rules(command: Command) -> Command:
    """Put the rules of keys into a command's help, before its examples."""
    text = command.__doc__ or ""
    command.__doc__ = text.replace("KEY_RULES\n", KEY_RULES.strip("\n").lstrip() + "\n")
    return command


force_option = click.option(
    "--force", "-f", is_flag=True, help="Write bytes that are no text to a terminal all the same."
)


@click.command()
@click.argument("path", type=DATA)
@click.argument("keys", nargs=-1, metavar="KEY...")
@click.option(
    "--index", "numbers", type=click.IntRange(0, RECORDS_MAX), multiple=True, metavar="N",
    help="Take record N, from 0 in the order of the keys; may be given again.",
)  # fmt: skip
@db_option
@force_option
@json_option
@with_key_rules
def cat(
    path: Path | str,
    keys: tuple[str, ...],
    numbers: tuple[int, ...],
    name: bytes | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the values of some records to standard output, one after the other.

    Just the bytes, and nothing in between. Of a key with several values, all of them.

    KEY_RULES

    \b
    Examples:
        lmdbio cat train_lmdb 00000007 | file -
        lmdbio cat train_lmdb label-000000001 label-000000002
        lmdbio cat train_lmdb --index 0 --index 1 > first.bin
        lmdbio cat train_lmdb 0x00000007         four bytes
        lmdbio cat train_lmdb 00000007 --json    its size and type instead
    """
    if not keys and not numbers:
        raise click.UsageError("which record? KEY, or --index N")
    # All are found before anything is written: a key that is not there is no half an answer.
    with choosing(path, name, keys, numbers) as records:
        if as_json:
            print_json([record_facts(read_record(*record)) for record in records])
        else:
            write_values(records, force=force)


@click.command()
@click.argument("path", type=DATA)
@click.argument("key", required=False)
@click.option(
    "--index", "number", type=click.IntRange(0, RECORDS_MAX), metavar="N",
    help="Take record N, from 0 in the order of the keys.",
)  # fmt: skip
@click.option("--output", "-o", type=OUTPUT, help="Write the value to this file.")
@db_option
@force_option
@json_option
@with_key_rules
def get(
    path: Path | str,
    key: str | None,
    number: int | None,
    output: str | None,
    name: bytes | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write one value to standard output, or to a file.

    A file is whole or not there. Exit status 1 where there is no such key: the message names keys
    that are near.

    KEY_RULES

    \b
    Examples:
        lmdbio get train_lmdb 00000007 -o seven.jpg
        lmdbio get train_lmdb num-samples
        lmdbio get train_lmdb --index 100000 | file -
        lmdbio get scenes.mdb kitchen/01 --db depth -o depth.npy
        lmdbio get train_lmdb 00000007 --json    its size and type instead
    """
    if (key is None) == (number is None):
        raise click.UsageError("which record? KEY, or --index N")
    keys, numbers = () if key is None else (key,), () if number is None else (number,)
    with choosing(path, name, keys, numbers) as records:
        view, seen = records[0]
        if output is not None:
            with Draft(Path(output), "the value") as draft:
                at = 0
                for piece in view.pieces(seen):
                    draft.write(piece, at)
                    at += len(piece)
                draft.publish(overwrite=True)
        if as_json:
            print_json(record_facts(read_record(view, seen)))
        elif output is None:
            write_values(records[:1], force=force)


def record_at(view: DatabaseView, number: int) -> Seen:
    """Return a record by its number; a provenance file that holds spares the leaves before it."""
    if number >= FAR_RECORDS and not view.has_duplicates:
        with suppress(ProvenanceError, OSError, lmdb.Error):
            with open_record_index(view.path, db=view.name, locate="provenance") as index:
                if number < index.count:
                    return next(view.find(index.key(number)))
    return view.at(number)


@contextlib.contextmanager
def choosing(
    path: Path | str, name: bytes | None, keys: tuple[str, ...], numbers: tuple[int, ...]
) -> Iterator[list[tuple[DatabaseView, Seen]]]:
    """Find the records of keys, then those of numbers, in files that stay open meanwhile.

    Of several files, the first one that has a key is asked, and numbers count on from file to
    file.

    Raises:
        LookupError: a record is not there.
    """
    files = data_files(path)
    with contextlib.ExitStack() as opened:
        views: dict[str, DatabaseView] = {}

        def find(
            step: Callable[[DatabaseView, bool], list[Seen]],
        ) -> list[tuple[DatabaseView, Seen]]:
            """Return the records of the first file that has some; a step knows the last one."""
            for file in files:
                with contextlib.ExitStack() as trying:
                    view = views.get(file) or trying.enter_context(viewing(file, name))
                    if found := step(view, file == files[-1]):
                        views[file] = view
                        opened.enter_context(trying.pop_all())
                        return [(view, seen) for seen in found]
            return []

        records: list[tuple[DatabaseView, Seen]] = []
        for text in keys:
            found = find(partial(with_key, text=text, is_only=len(files) == 1))
            if not found:
                raise RecordNotFoundError(f"{path}: no key {text} in any of {len(files):,} files")
            records += found
        for number in numbers:
            left = number

            def numbered(view: DatabaseView, is_last: bool) -> list[Seen]:
                nonlocal left
                if left < view.db.entries or is_last:
                    return [record_at(view, left)]
                left -= view.db.entries
                return []

            records += find(numbered)
        yield records


def with_key(view: DatabaseView, _: bool, *, text: str, is_only: bool) -> list[Seen]:
    """Return the records of a key; none, where others may have it."""
    return list(find_record(view, text) if is_only else view.find(key_of(view, text)))


def write_values(records: list[tuple[DatabaseView, Seen]], *, force: bool) -> None:
    """Write values to standard output; bytes that are no text to a terminal by force alone."""
    if not force:
        refuse_terminal(records)
    output = sys.stdout.buffer
    for view, seen in records:
        for piece in view.pieces(seen):
            output.write(piece)
    output.flush()


def refuse_terminal(records: list[tuple[DatabaseView, Seen]]) -> None:
    """Refuse to write bytes that are no text to a terminal, which might obey them."""
    if not is_terminal():
        return
    for view, seen in records:
        if seen.length and text_of(view.excerpt(seen, SAMPLED_BYTES, 0)) is None:
            raise ValueError(
                f"{view.path}: this value is no text, and standard output is a terminal: "
                "redirect it, or say --force"
            )


def is_terminal() -> bool:
    try:
        return os.isatty(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):
        return False
