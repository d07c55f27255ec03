"""card: Records on a small card, as notebooks show them.

A few records are looked at, wherever the file lies, and no key is searched for.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from lmdbio.inside.cards import RECORDS, CardMaker, html_card, notebook_card
from lmdbio.inside.excerpt import HEAD_BYTES, TAIL_BYTES, Excerpt
from lmdbio.inside.kinds import guess
from lmdbio.inside.page import Card
from lmdbio.locate.record_index import RecordIndex
from lmdbio.system.amounts import size_text

__all__ = ["records_card"]


def records_card(index: RecordIndex, what: object) -> str:
    """Return the card of open Records as HTML; where they cannot be read, what ``repr`` gives.

    Args:
        index: index of the records.
        what: the Records.
    """
    return html_card(what, partial(_card, index, type(what).__name__))


def _card(index: RecordIndex, name: str, maker: CardMaker) -> str:
    count = index.count
    numbers = np.linspace(0, count - 1, RECORDS) if count else np.empty(0)
    chosen = np.unique(numbers.astype(np.uint64))
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
    excerpt = Excerpt(head, length, tail)
    return maker.card(f"[{number}]", guess(excerpt), excerpt, lambda: read(offset, length))
