"""``lmdbio export``: a file for each value, in a folder or a tar archive.

Invariants:
  - a file has its name once all of it is written: nobody sees a part of one;
  - nothing that is there is replaced, unless that was asked for;
  - an archive appears whole, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import click

from lmdbio.cli.options import DATA, LIMIT, OUTPUT, RECORDS_MAX, db_option, json_option
from lmdbio.cli.output import bar, plural, print_json, size
from lmdbio.cli.records import Record, key_of, key_text, read_record
from lmdbio.inside.names import Names
from lmdbio.locate.view import DatabaseView, Seen, viewing
from lmdbio.provenance import data_files
from lmdbio.provenance.paths import DATA as DATA_FILE
from lmdbio.remote import is_url
from lmdbio.system.publish import Draft, unwritable

#: The beginning of a pattern that stands for itself, whatever the rules of patterns and keys.
_LITERAL = re.compile(r"(?!0x)[\w/.,:=@+-]*", re.ASCII)
REPORT_EVERY = 64


@click.command()
@click.argument("path", type=DATA)
@click.argument("target", type=OUTPUT, required=False, metavar="DIR")
@click.option("--tar", "archive", type=OUTPUT, metavar="FILE", help="Write a tar archive instead.")
@click.option(
    "--match", "pattern", metavar="GLOB", help="Export keys that match, as ls prints them."
)
@click.option(*LIMIT, type=click.IntRange(1, RECORDS_MAX), help="Most records to export.")
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
    name: bytes | None,
    as_json: bool,
) -> None:
    """Write each record of PATH as a file into DIR, or into a tar archive.

    A file is named after its key, with an ending by its type: image-7.jpg, train%2Fcat_1.png,
    0x0000002a.msgpack. Characters that a file name should not have stand as %XX; a second value of
    a key gets ~2. The bytes are those of the value. A file has its name once it is whole; none is
    replaced without --force. A DIR that ends in .tar is an archive. Of a folder or a quoted
    pattern of files, the records of each get a folder in it.

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
    files = data_files(path)
    # A server tells another time than the writer of the file.
    mtime_s = 0 if is_url(files[0]) else int(Path(files[0]).stat().st_mtime)
    report = Exported()
    with opening_sink(Path(goal), is_tar=is_tar, force=force, mtime_s=mtime_s) as sink:
        for file, place in zip(files, places(files), strict=True):
            if report.files == limit:
                break
            with viewing(file, name) as opened_view:
                write_all(
                    opened_view, sink.inside(place) if place else sink, pattern, limit, report
                )
    data = files[0] if len(files) == 1 else str(path)
    facts = {"data": data, "to": goal, **report.facts()}
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


@dataclass
class Exported:
    """Counts of what was written.

    Attributes:
        files, bytes: number of values that were written, and their size.
        databases: number of databases that were left out.
        types: number of values of each type.
    """

    files: int = 0
    bytes: int = 0
    databases: int = 0
    types: Counter[str] = field(default_factory=Counter)

    def facts(self) -> dict[str, Any]:
        """Return what JSON tells."""
        types = dict(self.types.most_common())
        return {
            "files": self.files,
            "bytes": self.bytes,
            "types": types,
            "databases": self.databases,
        }


def places(files: Sequence[str]) -> list[str]:
    """Return a folder for the records of each file, named as it is; "" where there is one file."""
    if len(files) == 1:
        return [""]
    common = os.path.commonpath([Path(file).parent for file in files])
    found = []
    for file in (Path(os.path.relpath(file, common)) for file in files):
        found.append(str(file.parent if file.name == DATA_FILE else file.with_suffix("")))
    return found if len(set(found)) == len(found) else list(map(str, range(len(files))))


def write_all(
    opened_view: DatabaseView, sink: Sink, pattern: str | None, limit: int | None, report: Exported
) -> None:
    """Write the records of a file that match, and count what was written.

    Args:
        limit: largest number of records that are written, with those written before.
    """
    names = Names(integers=opened_view.has_integer_keys)
    total = min(limit or opened_view.db.entries, report.files + opened_view.db.entries)
    with bar(f"export {opened_view.path}") as progress:
        for seen in matched(opened_view, pattern):
            if seen.database is not None:
                report.databases += 1
                continue
            record = read_record(opened_view, seen)
            name = names.name(seen.key, record.kind.extension)
            sink.write(name, seen.length, pieces_of(opened_view, record))
            report.types[record.kind.title] += 1
            report.files, report.bytes = report.files + 1, report.bytes + seen.length
            if report.files % REPORT_EVERY == 0:
                progress(report.files, total, "records")
            if report.files == limit:
                break


def matched(opened_view: DatabaseView, pattern: str | None) -> Iterator[Seen]:
    """Yield the records whose keys match a pattern; None: all."""
    if pattern is None:
        yield from opened_view.records()
        return
    literal = _LITERAL.match(pattern)
    prefix = b""
    # A pattern that begins with 0 may mean a key in hexadecimal.
    if literal is not None and literal[0] not in ("", "0") and opened_view.sorts_by_prefix:
        prefix = key_of(opened_view, literal[0])
    for seen in opened_view.records(prefix):
        if fnmatchcase(key_text(opened_view, seen), pattern):
            yield seen


def pieces_of(opened_view: DatabaseView, record: Record) -> Iterator[bytes]:
    """Yield a value, which was read already if it is small."""
    if record.excerpt.is_whole:
        yield record.excerpt.head
    else:
        yield from opened_view.pieces(record.seen)


# --- places for files ---------------------------------------------------------------------


class Sink(Protocol):
    """A place for files."""

    def write(self, name: str, length: int, pieces: Iterable[bytes]) -> None:
        """Write one file.

        Args:
            name: one part of a path.
            length: size of the content, bytes.
            pieces: the content.
        """

    def inside(self, place: str) -> Sink:
        """Return the folder of this name in it; ``place`` may have several parts."""


class FolderSink:
    """A folder.

    Args:
        folder: folder of the files, made if it is not there.
        force: whether to replace what has the name of a file.
    """

    def __init__(self, folder: Path, *, force: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._force = folder, force
        self._draft = folder / f".lmdbio-{secrets.token_hex(8)}.tmp"
        self._has_links = True

    def write(self, name: str, length: int, pieces: Iterable[bytes]) -> None:
        """Write a file beside its name, and rename it; see ``Sink``."""
        del length
        target = self._folder / name
        try:
            with self._draft.open("xb", buffering=0) as file:
                for piece in pieces:
                    view = memoryview(piece)
                    while view:
                        view = view[file.write(view) :]
            self._publish(target)
        except OSError as error:
            if error.filename not in (None, str(self._draft)):
                raise
            raise unwritable(error, target, "the value") from error
        finally:
            self._draft.unlink(missing_ok=True)

    def inside(self, place: str) -> FolderSink:
        """Make a folder in this one; see ``Sink``."""
        return FolderSink(self._folder / place, force=self._force)

    def _publish(self, target: Path) -> None:
        if self._force:
            self._draft.replace(target)
            return
        if self._has_links:
            try:
                os.link(self._draft, target)
                return
            except FileExistsError:
                raise _exists(target) from None
            except OSError:  # a file system without hard links
                self._has_links = False
        if os.path.lexists(target):
            raise _exists(target)
        self._draft.rename(target)


def _exists(target: Path) -> FileExistsError:
    text = "exists already (--force replaces it)"
    return FileExistsError(errno.EEXIST, text, str(target))


class TarSink:
    """A tar archive.

    Args:
        archive: archive that is open for writing.
        mtime_s: time of every file in it, the data's: so one data set always gives one archive.
        place: folder in it, with a slash at its end.
    """

    def __init__(self, archive: tarfile.TarFile, mtime_s: int, place: str = "") -> None:
        self._archive, self._mtime_s, self._place = archive, mtime_s, place

    def write(self, name: str, length: int, pieces: Iterable[bytes]) -> None:
        """Append a file; see ``Sink``."""
        member = tarfile.TarInfo(self._place + name)
        member.size, member.mtime, member.mode = length, self._mtime_s, 0o644
        self._archive.addfile(member, io.BufferedReader(_Pieces(pieces)))

    def inside(self, place: str) -> TarSink:
        """Return a folder in the archive; see ``Sink``."""
        return TarSink(self._archive, self._mtime_s, f"{self._place}{place}/")


class _Pieces(io.RawIOBase):
    """Pieces as a stream that can be read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._left = iter(pieces), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._pieces, b""))
        taken, self._left = self._left[: len(target)], self._left[len(target) :]
        target[: len(taken)] = taken
        return len(taken)


@contextlib.contextmanager
def opening_sink(target: Path, *, is_tar: bool, force: bool, mtime_s: int) -> Iterator[Sink]:
    """Open a place for files.

    Args:
        target: the folder, or the archive.
        is_tar: whether it is an archive.
        force: whether to replace what is there.
        mtime_s: modification time of the data file.

    Raises:
        FileExistsError: the archive exists.
        OSError: nothing can be written there.
    """
    if not is_tar:
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is no folder", str(target))
        yield FolderSink(target, force=force)
        return
    if os.path.lexists(target) and not force:
        raise _exists(target)
    with Draft(target, "the archive") as draft:
        try:
            with tarfile.open(draft.path, "w", format=tarfile.PAX_FORMAT) as archive:
                yield TarSink(archive, mtime_s)
        except OSError as error:
            if error.filename is not None:  # of the data, which cannot be read
                raise
            raise unwritable(error, target, "the archive") from error
        draft.publish(overwrite=force)
