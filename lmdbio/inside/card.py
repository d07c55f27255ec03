"""card: a data set on a small card, for notebooks. Pure.

Styles stand on the elements themselves, and take the notebook's own color: a style sheet would
reach into the rest of the notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lmdbio.inside.page import Card

__all__ = ["notebook_card"]

_QUIET = "opacity:.65;font-size:12px"
_MONO = "font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,monospace"
_BOX = "border:1px solid rgba(128,128,128,.35);border-radius:8px"
SIDE = 112


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
    shown = "".join(
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
        f'<div style="margin:6px 0 0">{shown}</div>'
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
