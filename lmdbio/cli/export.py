"""``lmdbio export``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from lmdbio.cli.export_sinks import Sink, opening_sink
from lmdbio.cli.looking import Looked, db_option, json_option, key_of, key_text, look_at
from lmdbio.cli.output import DATA, OUTPUT, bar, plural, print_json, size
from lmdbio.inside.names import Names
from lmdbio.locate.glance import Glance, Seen, glancing
from lmdbio.remote import is_url

#: The beginning of a pattern that stands for itself, whatever the rules of patterns and keys.
_LITERAL = re.compile(r"(?!0x)[\w/.,:=@+-]*", re.ASCII)
REPORT_EVERY = 64


@click.command()
@click.argument("path", type=DATA)
@click.argument("target", type=OUTPUT, required=False, metavar="DIR")
@click.option("--tar", "archive", type=OUTPUT, metavar="FILE", help="Write a tar archive instead.")
@click.option(
    "--match", "pattern", metavar="GLOB", help="Take keys that match, as ls prints them."
)
@click.option("--limit", type=click.IntRange(1), help="Take so many records at most.")
@click.option("--force", "-f", is_flag=True, help="Replace files that are there.")
@db_option
@json_option
def export(
    path: Path | str,
    target: str | None,
    archive: str | None,
    pattern: str | None,
    limit: int | None,
    force: bool,
    name: str | None,
    as_json: bool,
) -> None:
    """Write each record of PATH as a file into DIR, or into a tar archive.

    A file is named after its key, with an ending by its type: image-7.jpg, train%2Fcat_1.png,
    0x0000002a.msgpack. Characters that a file name should not have stand as %XX; a second value of
    a key gets ~2. The bytes are those of the value. A file has its name once it is whole; none is
    replaced without --force. A DIR that ends in .tar is an archive.

    \b
    Examples:
        lmdbio export train_lmdb images/
        lmdbio export train_lmdb some/ --match 'image-*' --limit 100
        lmdbio export train_lmdb train.tar
        lmdbio export scenes.mdb --db depth --tar depth.tar
        lmdbio export train_lmdb images/ --json | jq .types
    """
    if (target is None) == (archive is None):
        raise click.UsageError("where to? DIR, or --tar FILE")
    goal = archive if archive is not None else target or ""
    is_tar = archive is not None or goal.endswith(".tar")
    with glancing(path, name) as glance:
        # A server tells another time than the writer of the file.
        mtime_s = 0 if is_url(path) else int(Path(glance.path).stat().st_mtime)
        with opening_sink(Path(goal), is_tar=is_tar, force=force, mtime_s=mtime_s) as sink:
            report = write_all(glance, sink, pattern, limit)
    facts = {"data": glance.path, "to": goal, **report}
    if as_json:
        print_json(facts)
        return
    types = ", ".join(f"{count:,} {kind}" for kind, count in facts["types"].items())
    click.echo(f"{goal}: {plural(facts['files'], 'file')}, {size(facts['bytes'])}")
    if types:
        click.echo(f"    {types}")
    if facts["databases"]:
        left = plural(facts["databases"], "named database")
        click.echo(f"    {left} left out (--db exports one)")


def write_all(
    glance: Glance, sink: Sink, pattern: str | None, limit: int | None
) -> dict[str, Any]:
    """Write the records that match, and return what was written."""
    names = Names(integers=glance.has_integer_keys)
    types: Counter[str] = Counter()
    files = written = databases = 0
    total = min(limit or glance.db.entries, glance.db.entries)
    with bar(f"export {glance.path}") as progress:
        for seen in matched(glance, pattern):
            if seen.database is not None:
                databases += 1
                continue
            looked = look_at(glance, seen)
            name = names.name(seen.key, looked.kind.extension)
            sink.write(name, seen.length, pieces_of(glance, looked))
            types[looked.kind.title] += 1
            files, written = files + 1, written + seen.length
            if files % REPORT_EVERY == 0:
                progress(files, total, "records")
            if files == limit:
                break
    found = dict(types.most_common())
    return {"files": files, "bytes": written, "types": found, "databases": databases}


def matched(glance: Glance, pattern: str | None) -> Iterator[Seen]:
    """Yield the records whose keys match a pattern; None: all."""
    if pattern is None:
        yield from glance.records()
        return
    literal = _LITERAL.match(pattern)
    prefix = b""
    # A pattern that begins with 0 may mean a key in hexadecimal.
    if literal is not None and literal[0] not in ("", "0") and glance.sorts_by_prefix:
        prefix = key_of(glance, literal[0])
    for seen in glance.records(prefix):
        if fnmatchcase(key_text(glance, seen), pattern):
            yield seen


def pieces_of(glance: Glance, looked: Looked) -> Iterator[bytes]:
    """Yield a value, which was read already if it is small."""
    if looked.glimpse.is_whole:
        yield looked.glimpse.head
    else:
        yield from glance.pieces(looked.seen)
