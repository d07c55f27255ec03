"""Parts of the commands that look into a database: its records, their keys and their kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lmdbio.cli.output import plural, size
from lmdbio.inside.excerpt import Excerpt
from lmdbio.inside.keytext import parse_key, show_key, similar_keys
from lmdbio.inside.kinds import Kind, guess
from lmdbio.locate.view import DatabaseView, Seen

__all__ = [
    "Record",
    "RecordNotFoundError",
    "database_facts",
    "find_record",
    "key_of",
    "key_text",
    "read_record",
    "record_facts",
]

#: Keys that are looked at for one that somebody may have meant.
EXAMPLES = 16
INTEGER_BYTES = 8


class RecordNotFoundError(LookupError):
    """There is no such record; the message names keys that are near."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record, and the kind of its value.

    Attributes:
        seen: the record.
        key: key as text.
        kind: kind of the value.
        excerpt: Excerpt of the value.
    """

    seen: Seen
    key: str
    kind: Kind
    excerpt: Excerpt


def read_record(view: DatabaseView, seen: Seen) -> Record:
    """Read the first and the last bytes of a value, and guess its kind."""
    excerpt = view.excerpt(seen)
    if seen.database is not None:
        kind = Kind("database", "database", f"of {plural(seen.database.entries, 'record')}")
    else:
        kind = guess(excerpt)
    return Record(seen, key_text(view, seen), kind, excerpt)


def key_text(view: DatabaseView, seen: Seen) -> str:
    """Return the key of a record as text that ``key_of`` takes."""
    key = seen.key
    if seen.database is not None and view.meta.layout.version == 3:
        key = key.removesuffix(b"\0")  # with which LMDB 1.0 ends names
    return show_key(key, integers=view.has_integer_keys)


def key_of(view: DatabaseView, text: str) -> bytes:
    """Return the key that a text on the command line stands for."""
    integer_bytes = 0
    if view.has_integer_keys:
        integer_bytes = next((len(seen.key) for seen in view.records()), INTEGER_BYTES)
    return parse_key(text, integer_bytes=integer_bytes)


def find_record(view: DatabaseView, text: str) -> Iterator[Seen]:
    """Yield the record of a key, or the several ones.

    Raises:
        RecordNotFoundError: there is none.
    """
    key = key_of(view, text)
    found = view.find(key)
    first = next(found, None)
    if first is None:
        raise RecordNotFoundError(f"{view.path}: no key {text}{_near(view, key)}")
    yield first
    yield from found


def _near(view: DatabaseView, key: bytes) -> str:
    """Return a sentence about keys that somebody may have meant."""
    if not view.db.entries:
        return ": the database is empty"

    def displayed(keys: list[bytes]) -> str:
        return " and ".join(show_key(one, integers=view.has_integer_keys) for one in keys)

    examples = [seen.key for seen in islice(view.records(), EXAMPLES)]
    for similar in islice(similar_keys(key, examples), 4 * EXAMPLES):
        if next(view.find(similar), None) is not None:
            return f": did you mean {displayed([similar])}?"
    near = view.near(key)
    return f": the keys beside it are {displayed(near)}" if near else ""


def record_facts(record: Record) -> dict[str, Any]:
    """Return what JSON tells of a record."""
    kind = record.kind
    facts: dict[str, Any] = {
        "key": record.key,
        "bytes": record.seen.length,
        "type": kind.title,
        "detail": kind.detail,
    }
    picture = kind.picture
    if picture is not None and picture.size is not None:
        facts["width"], facts["height"] = picture.size
    elif kind.size is not None:
        facts["width"], facts["height"] = kind.size
    return facts


def database_facts(view: DatabaseView) -> str:
    """Return the heading of a listing."""
    of = "" if view.name is None else f", database {show_key(view.name)}"
    many = " under keys that may have many" if view.has_duplicates else ""
    pages = (view.meta.last_pgno + 1) * view.meta.layout.page_size
    records = plural(view.db.entries, "record")
    return f"{view.path}{of}: {records}{many}, {size(pages)} in all"
