"""cards: records and samples as cards of a page, and a data set on one of a notebook. Pure.

On a notebook's card styles stand on the elements themselves, and take the notebook's own color: a
style sheet would reach into the rest of the notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape

from lmdbio.inside.excerpt import Excerpt
from lmdbio.inside.kinds import Kind
from lmdbio.inside.page import Card
from lmdbio.inside.pictures import has_pillow, thumbnail
from lmdbio.inside.preview import preview_lines

__all__ = ["RECORDS", "CardMaker", "notebook_card", "html_card", "sample_card"]

#: Of the text on a card, which wraps, and of bytes in hexadecimal there, which should not.
TEXT_LINES, TEXT_WIDTH, HEX_WIDTH = 7, 120, 17
#: Records on a notebook's card; larger values have no picture there.
RECORDS, VALUE_BYTES_MAX, PLAIN_BYTES, PICTURE_SIDE = 6, 4 << 20, 1 << 20, 192
_QUIET = "opacity:.65;font-size:12px"
_MONO = "font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,monospace"
_BOX = "border:1px solid rgba(128,128,128,.35);border-radius:8px"
SIDE = 112


class CardMaker:
    """Makes cards of records.

    Args:
        side: largest side of a picture, pixels.
        pillow: whether image files are shrunk by Pillow.
        plain_bytes_max: limit on image files, bytes in all, that are taken as they are without
            Pillow.
        value_bytes_max: values above this are not read for a picture.

    Attributes:
        left_out: image files without a picture, for want of Pillow.
    """

    def __init__(
        self, side: int, *, pillow: bool, plain_bytes_max: int, value_bytes_max: int
    ) -> None:
        self.left_out = 0
        self._side, self._pillow, self._plain_left = side, pillow, plain_bytes_max
        self._value_bytes_max = value_bytes_max

    def card(self, key: str, kind: Kind, excerpt: Excerpt, read: Callable[[], bytes]) -> Card:
        """Return the card of a record.

        Args:
            key: key as text.
            kind, excerpt: Kind and Excerpt of its value.
            read: function that gives all of the value; called where the excerpt is a part, and a
                picture may come of it.
        """
        inner = kind.inner.detail if kind.inner is not None else ""
        detail = ", ".join(filter(None, (inner, kind.detail)))
        facts = (key, excerpt.length or 0, kind.title, detail)
        may_be = kind.picture is not None or kind.name in ("Datum", "npy")
        if may_be and (excerpt.length or 0) <= self._value_bytes_max:
            value = excerpt.head if excerpt.is_whole else read()
            found = thumbnail(
                value, kind, self._side, pillow=self._pillow, plain_bytes_max=self._plain_left
            )
            if kind.picture is not None and not self._pillow:
                self.left_out += found is None
                self._plain_left -= len(found.content) if found is not None else 0
            if found is not None:
                return Card(*facts, image=found.uri, width=found.width, height=found.height)
        return Card(*facts, lines=() if kind.group == "database" else _lines(excerpt, kind))


def sample_card(cards: Sequence[Card]) -> Card:
    """Return one card for a sample: its first picture, and its other records in a few words.

    Args:
        cards: cards of its records, at least one.
    """
    main = next((card for card in cards if card.image), cards[0])
    others = (
        card.lines[0] if card.lines else f"{card.title} {card.detail}".strip()
        for card in cards
        if card is not main
    )
    detail = ", ".join(filter(None, (main.detail, *others)))
    length = sum(card.length for card in cards)
    return replace(main, key=cards[0].key, length=length, detail=detail)


def _lines(excerpt: Excerpt, kind: Kind) -> tuple[str, ...]:
    """Return lines for a card, which is narrow."""
    width = TEXT_WIDTH if kind.group in ("text", "packed") else HEX_WIDTH
    return tuple(preview_lines(excerpt, kind, TEXT_LINES, width))


# --- a notebook's card --------------------------------------------------------------------


def html_card(displayed: object, card: Callable[[CardMaker], str]) -> str:
    """Return a card as HTML; where its records cannot be read, what ``repr`` gives.

    Args:
        displayed: the object.
        card: function that returns its card, with records by a maker.
    """
    maker = CardMaker(
        PICTURE_SIDE,
        pillow=has_pillow(),
        plain_bytes_max=PLAIN_BYTES,
        value_bytes_max=VALUE_BYTES_MAX,
    )
    try:
        return card(maker)
    except Exception as error:  # a notebook shows the object, not a traceback
        return f"<pre>{escape(repr(displayed))}\n{escape(str(error))}</pre>"


def notebook_card(
    title: str, path: str, facts: Sequence[tuple[str, str]], cards: Sequence[Card]
) -> str:
    """Return a card as HTML.

    Args:
        title: name of the object, such as "Records".
        path: path of the data.
        facts: name and value of each fact.
        cards: cards of some records.
    """
    displayed = "".join(
        f'<span style="margin-right:18px;white-space:nowrap"><b>{escape(value)}</b> '
        f'<span style="{_QUIET}">{escape(name)}</span></span>'
        for name, value in facts
    )
    records = "".join(_record(card) for card in cards)
    return (
        f'<div style="{_BOX};padding:12px 14px;max-width:760px;overflow:hidden;'
        'font:14px/1.5 system-ui,sans-serif">'
        f'<div><b>{escape(title)}</b> <span style="{_MONO};opacity:.75;overflow-wrap:anywhere">'
        f"{escape(path)}</span></div>"
        f'<div style="margin:6px 0 0">{displayed}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:8px;margin-top:10px">{records}</div></div>'
    )


def _record(card: Card) -> str:
    if card.image:
        pixels = "image-rendering:pixelated;" if 0 < card.width <= SIDE else ""
        well = (
            f'<img alt="" src="{escape(card.image)}" style="{pixels}width:{SIDE}px;'
            f'height:{SIDE}px;object-fit:contain;display:block;margin:0">'
        )
    else:
        text = "\n".join(card.lines[:7]) or f"{card.title} {card.detail}"
        well = (
            f'<pre style="{_MONO};font-size:9.5px;margin:0;padding:6px;width:{SIDE}px;height:'
            f"{SIDE}px;box-sizing:border-box;overflow:hidden;white-space:pre-wrap;"
            f'overflow-wrap:anywhere;background:transparent;color:inherit">{escape(text)}</pre>'
        )
    label = " ".join(filter(None, (card.title, card.detail)))
    return (
        f'<div title="{escape(f"{card.key}: {label}, {card.length:,} bytes")}" '
        f'style="{_BOX};overflow:hidden;width:{SIDE}px">{well}'
        f'<div style="{_MONO};font-size:10px;padding:3px 6px;white-space:nowrap;overflow:hidden;'
        f'text-overflow:ellipsis">{escape(card.key)}</div></div>'
    )
