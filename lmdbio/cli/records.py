"""Parts of the commands that look into a database: its records, their keys and their kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lmdbio.cli.output import plural, size
from lmdbio.inside.excerpt import HEAD_BYTES, TAIL_BYTES, Excerpt
from lmdbio.inside.keytext import parse_key, show_key, similar_keys
from lmdbio.inside.kinds import Kind, guess
from lmdbio.locate.glance import Glance, Seen

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


def read_record(glance: Glance, seen: Seen) -> Record:
    """Read the first and the last bytes of a value, and guess its kind."""
    head, tail = glance.part(seen, HEAD_BYTES, TAIL_BYTES)
    excerpt = Excerpt(head, seen.length, tail)
    if seen.database is not None:
        kind = Kind("database", "database", f"of {plural(seen.database.entries, 'record')}")
    else:
        kind = guess(excerpt)
    return Record(seen, key_text(glance, seen), kind, excerpt)


def key_text(glance: Glance, seen: Seen) -> str:
    """Return the key of a record as text that ``key_of`` takes."""
    key = seen.key
    if seen.database is not None and glance.meta.layout.version == 3:
        key = key.removesuffix(b"\0")  # with which LMDB 1.0 ends names
    return show_key(key, integers=glance.has_integer_keys)


def key_of(glance: Glance, text: str) -> bytes:
    """Return the key that a text on the command line stands for."""
    integer_bytes = 0
    if glance.has_integer_keys:
        integer_bytes = next((len(seen.key) for seen in glance.records()), INTEGER_BYTES)
    return parse_key(text, integer_bytes=integer_bytes)


def find_record(glance: Glance, text: str) -> Iterator[Seen]:
    """Yield the record of a key, or the several ones.

    Raises:
        RecordNotFoundError: there is none.
    """
    key = key_of(glance, text)
    found = glance.find(key)
    first = next(found, None)
    if first is None:
        raise RecordNotFoundError(f"{glance.path}: no key {text}{_near(glance, key)}")
    yield first
    yield from found


def _near(glance: Glance, key: bytes) -> str:
    """Return a sentence about keys that somebody may have meant."""
    if not glance.db.entries:
        return ": the database is empty"

    def shown(keys: list[bytes]) -> str:
        return " and ".join(show_key(one, integers=glance.has_integer_keys) for one in keys)

    examples = [seen.key for seen in islice(glance.records(), EXAMPLES)]
    for similar in islice(similar_keys(key, examples), 4 * EXAMPLES):
        if next(glance.find(similar), None) is not None:
            return f": did you mean {shown([similar])}?"
    near = glance.near(key)
    return f": the keys beside it are {shown(near)}" if near else ""


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


def database_facts(glance: Glance) -> str:
    """Return the heading of a listing."""
    of = "" if glance.name is None else f", database {show_key(glance.name)}"
    many = " under keys that may have many" if glance.has_duplicates else ""
    pages = (glance.meta.last_pgno + 1) * glance.meta.layout.page_size
    records = plural(glance.db.entries, "record")
    return f"{glance.path}{of}: {records}{many}, {size(pages)} in all"
