"""card: an environment on a small card, as notebooks display it: its first records."""

from __future__ import annotations

from functools import partial
from itertools import islice

from lmdbio.dropin.data_file import DataFile
from lmdbio.inside.cards import RECORDS, CardMaker, html_card, notebook_card
from lmdbio.inside.keytext import show_key
from lmdbio.inside.kinds import Kind, guess
from lmdbio.inside.page import Card
from lmdbio.locate.view import DatabaseView, Seen
from lmdbio.system.amounts import size_text

__all__ = ["card_html"]


def card_html(env: object, file: DataFile) -> str:
    """Return a card as HTML; where the file cannot be read, what ``repr`` gives."""
    return html_card(env, partial(_card, file))


def _card(file: DataFile, maker: CardMaker) -> str:
    meta, _ = file.newest(None)
    view = DatabaseView(file.open_engine(), meta, meta.main_db, None)
    cards = [_record(view, seen, maker) for seen in islice(view.records(), RECORDS)]
    count = meta.main_db.entries
    used = size_text((meta.last_pgno + 1) * meta.layout.page_size)
    facts = [("entry" if count == 1 else "entries", f"{count:,}"), ("", used)]
    return notebook_card("Environment", view.path, facts, cards)


def _record(view: DatabaseView, seen: Seen, maker: CardMaker) -> Card:
    """Return the card of one record."""
    excerpt = view.excerpt(seen)
    key = show_key(seen.key)
    if seen.database is not None:
        kind = Kind("database", "database", f"of {seen.database.entries:,} records")
        return maker.card(key, kind, excerpt, bytes)
    return maker.card(key, guess(excerpt), excerpt, partial(view.value, seen))
