"""``lmdbio ls`` and ``lmdbio head``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from shlex import quote

import click
from rich.table import Table
from rich.text import Text

from lmdbio.cli.options import DATA, LIMIT, RECORDS_MAX, db_option
from lmdbio.cli.output import plain, plural, size, wide_console
from lmdbio.cli.records import Record, database_facts, key_of, key_text, read_record, record_facts
from lmdbio.inside.keytext import show_key
from lmdbio.inside.preview import preview_lines
from lmdbio.locate.view import DatabaseView, Seen, viewing
from lmdbio.provenance import data_files
from lmdbio.remote import label

LISTED, HEAD = 20, 5
lines_option = click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object a line instead of text."
)


@click.command()
@click.argument("path", type=DATA)
@click.argument("prefix", required=False)
@click.option(
    *LIMIT, type=click.IntRange(0, RECORDS_MAX), default=LISTED, show_default=True,
    help="Most records to list; 0: all.",
)  # fmt: skip
@click.option("--keys-only", is_flag=True, help="Print keys alone, one a line.")
@db_option
@lines_option
def ls(
    path: Path | str,
    prefix: str | None,
    limit: int,
    keys_only: bool,
    name: bytes | None,
    as_json: bool,
) -> None:
    """List records of PATH in the order of their keys: key, bytes, type.

    With PREFIX, only keys that begin with it. A folder or a quoted pattern of files is listed file
    by file. The type is guessed from the first bytes of a value; nothing in it is run. However
    large the file is, ls reads only the pages of the records that it lists.

    A key is printed as get, cat and ls accept it: text as it is, with \\n, \\t and \\xNN for what
    cannot be printed and \\\\ for a backslash; bytes that are no text as 0x and hexadecimal
    digits.

    \b
    Examples:
        lmdbio ls train_lmdb                     the first 20 records
        lmdbio ls train_lmdb image-0000001       only keys that begin with image-0000001
        lmdbio ls train_lmdb --limit 0 --keys-only > keys.txt
        lmdbio ls scenes.mdb --db depth          the records of a named database
        lmdbio ls train_lmdb --limit 0 --json | jq -r 'select(.type != "JPEG") | .key'
    """
    files, left, found = data_files(path), limit or None, 0
    for number, file in enumerate(files):
        with viewing(file, name) as view:
            if keys_only or as_json:
                of_file = {"file": view.path} if as_json and len(files) > 1 else {}
                printed = print_lines(view, prefix, left, of_file, keys_only, as_json)
            else:
                printed = list_file(view, path, prefix, left, is_one=len(files) == 1)
        left, found = None if left is None else left - printed, found + printed
        if left == 0 and number + 1 < len(files):
            if not (keys_only or as_json):
                more = plural(len(files) - number - 1, "more file")
                click.echo(f"... and {more} (--limit 0 lists all)")
            break
    if not found and len(files) > 1 and not (keys_only or as_json):
        click.echo(f"{len(files):,} files: {none_found(prefix)}")


def none_found(prefix: str | None) -> str:
    """Return the sentence that says that there is nothing to list."""
    if prefix is None:
        return "no record"
    hint = " (it is a path: quote a pattern of files)" if Path(prefix).exists() else ""
    return f"no key begins with {prefix}{hint}"


def print_lines(
    view: DatabaseView,
    prefix: str | None,
    limit: int | None,
    of_file: dict[str, str],
    keys_only: bool,
    as_json: bool,
) -> int:
    """Print records of one file, a line each, and return how many."""
    count = 0
    for seen in islice(listed(view, prefix), limit):
        count, key = count + 1, key_text(view, seen)
        if as_json:
            facts = {"key": key} if keys_only else record_facts(read_record(view, seen))
            click.echo(json.dumps(plain(of_file | facts), ensure_ascii=False))
        else:
            click.echo(key)
    return count


def list_file(
    view: DatabaseView, path: Path | str, prefix: str | None, limit: int | None, *, is_one: bool
) -> int:
    """List records of one file, the only one or one of several, and return how many."""
    found = listed(view, prefix)
    records = [read_record(view, seen) for seen in islice(found, limit)]
    has_more = limit is not None and next(found, None) is not None
    if records or is_one:
        print_listing(view, path, prefix, records, has_more=has_more)
    return len(records)


def listed(view: DatabaseView, prefix: str | None) -> Iterator[Seen]:
    """Yield the records that begin with a prefix; None: all."""
    if prefix is None:
        return view.records()
    if not view.sorts_by_prefix:
        raise ValueError(
            f"{view.path}: keys of this database are not in the order of their first bytes: "
            "no PREFIX"
        )
    return view.records(key_of(view, prefix))


def print_listing(
    view: DatabaseView,
    path: Path | str,
    prefix: str | None,
    records: list[Record],
    *,
    has_more: bool,
) -> None:
    click.echo(database_facts(view))
    if not records:
        click.echo(none_found(prefix))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("key", overflow="fold", no_wrap=False)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("type", overflow="fold")
    for one in records:
        table.add_row(Text(one.key), f"{one.seen.length:,}", Text(str(one.kind)))
    wide_console(width=120).print(table, highlight=False)
    if has_more and prefix is None:
        click.echo(f"... and {view.db.entries - len(records):,} more (--limit 0 lists all)")
    elif has_more:
        click.echo("... and more (--limit 0 lists all)")
    print_databases(view, path, records)


def print_databases(view: DatabaseView, path: Path | str, records: list[Record]) -> None:
    """Name the named databases of a main one, and how to look into them."""
    named = {one.key: one.seen.database for one in records if one.seen.database is not None}
    for name, database in view.databases():
        named.setdefault(show_key(name), database)
    if not named:
        return
    texts = [
        f"{name} ({plural(database.entries, 'record')})"
        for name, database in islice(named.items(), 8)
        if database is not None
    ]
    more = ", ..." * (len(named) > len(texts))
    click.echo(f"named databases: {', '.join(texts)}{more}")
    click.echo(f"    lmdbio ls {quote(label(path))} --db {quote(next(iter(named)))}")


@click.command()
@click.argument("path", type=DATA)
@click.option(
    *LIMIT, type=click.IntRange(1, RECORDS_MAX), default=HEAD, show_default=True,
    help="Most records to show.",
)  # fmt: skip
@click.option(
    "--lines", type=click.IntRange(1, 200), default=6, show_default=True,
    help="Most lines of each value to show.",
)  # fmt: skip
@db_option
@lines_option
def head(path: Path | str, limit: int, lines: int, name: bytes | None, as_json: bool) -> None:
    """Show the first records of PATH, each with a preview of its value.

    Text is shown as it is, JSON indented, arrays by their first numbers, what is compressed
    unpacked as far as that takes, anything else in hexadecimal; of images, width and height.
    Pickles are named and never loaded.

    \b
    Examples:
        lmdbio head train_lmdb
        lmdbio head train_lmdb -n 1 --lines 40   one record, and more of it
        lmdbio head scenes.mdb --db captions
        lmdbio head train_lmdb --json | jq -r .preview[]
    """
    files, left = data_files(path), limit
    for file in files:
        with viewing(file, name) as view:
            left -= show_first(view, path, left, lines, as_json=as_json)
        if not left:
            break


def show_first(
    view: DatabaseView, path: Path | str, count: int, lines: int, *, as_json: bool
) -> int:
    """Show the first records of a file, and return how many."""
    if not as_json:
        click.echo(database_facts(view))
    records = []
    for seen in islice(view.records(), count):
        one = read_record(view, seen)
        records.append(one)
        printed = [] if seen.database else preview_lines(one.excerpt, one.kind, lines)
        if as_json:
            facts = record_facts(one) | {"preview": printed}
            click.echo(json.dumps(plain(facts), ensure_ascii=False))
            continue
        click.echo(f"\n{one.key}  {size(seen.length)}  {one.kind}")
        for line in printed:
            click.echo(f"    {line}")
    if not as_json:
        print_databases(view, path, records)
    return len(records)
