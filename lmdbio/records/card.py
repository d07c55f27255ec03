"""card: Records on a small card, as notebooks show them.

A few records are looked at, wherever the file lies, and no key is searched for.
"""

from __future__ import annotations

from html import escape

import numpy as np

from lmdbio.inside.card import notebook_card
from lmdbio.inside.cards import CardMaker
from lmdbio.inside.glimpse import HEAD_BYTES, TAIL_BYTES, Glimpse
from lmdbio.inside.kinds import guess
from lmdbio.inside.page import Card
from lmdbio.inside.summary import size_text
from lmdbio.inside.thumbnails import has_pillow
from lmdbio.locate.record_index import RecordIndex

__all__ = ["records_card"]

#: Records on a card; larger values have no picture there.
RECORDS, VALUE_BYTES_MAX, PLAIN_BYTES, SIDE = 6, 4 << 20, 1 << 20, 192


def records_card(index: RecordIndex, shown: object) -> str:
    """Return the card of open Records as HTML; where they cannot be read, what ``repr`` gives.

    Args:
        index: index of the records.
        shown: the Records.
    """
    try:
        return _card(index, type(shown).__name__)
    except Exception as error:  # a notebook shows the object, not a traceback
        return f"<pre>{escape(repr(shown))}\n{escape(str(error))}</pre>"


def _card(index: RecordIndex, name: str) -> str:
    count = index.count
    numbers = np.linspace(0, count - 1, RECORDS) if count else np.empty(0)
    chosen = np.unique(numbers.astype(np.uint64))
    maker = CardMaker(
        SIDE, pillow=has_pillow(), plain_bytes_max=PLAIN_BYTES, value_bytes_max=VALUE_BYTES_MAX
    )
    extents = index.extents(chosen)
    with index.judged():
        cards = [
            _record(index, int(number), int(offset), int(length), maker)
            for number, (offset, length) in zip(chosen, extents.tolist(), strict=True)
        ]
    index.guard()
    titles = dict.fromkeys(card.title for card in cards)
    facts = [(f"record{'s' * (count != 1)}", f"{count:,}"), ("", size_text(index.used_bytes))]
    if titles:
        facts.append(("", ", ".join(titles)))
    facts.append((f"found by {index.locate}", ""))
    of = "" if index.db is None else f", database {index.db.decode(errors='backslashreplace')}"
    return notebook_card(name, index.path + of, facts, cards)


def _record(index: RecordIndex, number: int, offset: int, length: int, maker: CardMaker) -> Card:
    """Return the card of one record."""
    read = index.pages.read
    head = read(offset, min(length, HEAD_BYTES)) if length else b""
    begun = max(len(head), length - TAIL_BYTES)
    tail = read(offset + begun, length - begun) if begun < length else b""
    glimpse = Glimpse(head, length, tail)
    return maker.card(f"[{number}]", guess(glimpse), glimpse, lambda: read(offset, length))
