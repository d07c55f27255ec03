"""``lmdbio get`` and ``lmdbio cat``: values as they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import click

from lmdbio.cli.looking import (
    db_option,
    find_record,
    json_option,
    look_at,
    record_facts,
)
from lmdbio.cli.output import DATA, OUTPUT, print_json
from lmdbio.errors import ProvenanceError
from lmdbio.inside.glimpse import Glimpse
from lmdbio.inside.kinds import text_of
from lmdbio.locate.glance import Glance, Seen, glancing
from lmdbio.locate.open import open_record_index
from lmdbio.pylmdb.find import lmdb
from lmdbio.system.publish import Draft

Command = TypeVar("Command", bound=Callable[..., None])

#: The leaves before this record are soon read.
FAR_RECORDS = 100_000
#: Of a value that is written to a terminal, so much is looked at.
LOOKED_AT = 4096
KEY_RULES = """
    A key is text, as ls prints it: \\n, \\t, \\\\ and \\xNN stand for single bytes, and 0x... for
    bytes in hexadecimal. (A shell wants backslashes in quotes.) In a database whose keys are
    integers it is a number.
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
    "--index", "numbers", type=click.IntRange(0), multiple=True, metavar="N",
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
    name: str | None,
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
    with glancing(path, name) as glance:
        if as_json:
            print_json([record_facts(look_at(glance, s)) for s in chosen(glance, keys, numbers)])
            return
        # All are found before anything is written: a key that is not there is no half an answer.
        records = list(chosen(glance, keys, numbers))
        if not force:
            refuse_terminal(glance, records)
        output = sys.stdout.buffer
        for seen in records:
            write_value(glance, seen, output)
        output.flush()


@click.command()
@click.argument("path", type=DATA)
@click.argument("key", required=False)
@click.option(
    "--index", "number", type=click.IntRange(0), metavar="N",
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
    name: str | None,
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
    with glancing(path, name) as glance:
        keys = () if key is None else (key,)
        seen = next(chosen(glance, keys, () if number is None else (number,)))
        if output is not None:
            with Draft(Path(output), "the value") as draft:
                at = 0
                for piece in glance.pieces(seen):
                    draft.write(piece, at)
                    at += len(piece)
                draft.publish(overwrite=True)
        if as_json:
            print_json(record_facts(look_at(glance, seen)))
        elif output is None:
            if not force:
                refuse_terminal(glance, [seen])
            stream = sys.stdout.buffer
            write_value(glance, seen, stream)
            stream.flush()


def chosen(glance: Glance, keys: tuple[str, ...], numbers: tuple[int, ...]) -> Iterator[Seen]:
    """Yield the records of keys, then those of numbers."""
    for text in keys:
        yield from find_record(glance, text)
    for number in numbers:
        yield record_at(glance, number)


def record_at(glance: Glance, number: int) -> Seen:
    """Return a record by its number; a provenance file that holds spares the leaves before it."""
    if number >= FAR_RECORDS and not glance.has_duplicates:
        with suppress(ProvenanceError, OSError, lmdb.Error):
            with open_record_index(glance.path, db=glance.name, locate="provenance") as index:
                if number < index.count:
                    return next(glance.find(index.key(number)))
    return glance.at(number)


def write_value(glance: Glance, seen: Seen, output: BinaryIO) -> None:
    for piece in glance.pieces(seen):
        output.write(piece)


def refuse_terminal(glance: Glance, records: list[Seen]) -> None:
    """Refuse to write bytes that are no text to a terminal, which might obey them."""
    if not is_terminal():
        return
    for seen in records:
        if seen.length and text_of(Glimpse(*_glimpse(glance, seen))) is None:
            raise ValueError(
                f"{glance.path}: this value is no text, and standard output is a terminal: "
                "redirect it, or say --force"
            )


def _glimpse(glance: Glance, seen: Seen) -> tuple[bytes, int]:
    return glance.part(seen, LOOKED_AT).head, seen.length


def is_terminal() -> bool:
    try:
        return os.isatty(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):
        return False
