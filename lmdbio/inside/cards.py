"""cards: records as cards of a page or a notebook. Pure."""

from __future__ import annotations

from collections.abc import Callable

from lmdbio.inside.glimpse import Glimpse
from lmdbio.inside.kinds import Kind
from lmdbio.inside.page import Card
from lmdbio.inside.preview import preview_lines
from lmdbio.inside.thumbnails import thumbnail

__all__ = ["CardMaker"]

#: Of the text on a card, which wraps, and of bytes in hexadecimal there, which should not.
TEXT_LINES, TEXT_WIDTH, HEX_WIDTH = 7, 120, 17


class CardMaker:
    """Makes cards of records, and counts the pictures among them.

    Args:
        side: largest side of a picture, pixels.
        pillow: whether image files are shrunk by Pillow.
        plain_bytes_max: limit on image files, bytes in all, that are taken as they are without
            Pillow.
        value_bytes_max: values above this are not read for a picture.

    Attributes:
        made: pictures.
        left_out: image files without a picture, for want of Pillow.
    """

    def __init__(
        self, side: int, *, pillow: bool, plain_bytes_max: int, value_bytes_max: int
    ) -> None:
        self.made = self.left_out = 0
        self._side, self._pillow, self._plain_left = side, pillow, plain_bytes_max
        self._value_bytes_max = value_bytes_max

    def card(self, key: str, kind: Kind, glimpse: Glimpse, read: Callable[[], bytes]) -> Card:
        """Return the card of a record.

        Args:
            key: key as text.
            kind, glimpse: Kind and Glimpse of its value.
            read: function that gives all of the value; called where the glimpse is a part, and a
                picture may come of it.
        """
        inner = kind.inner.detail if kind.inner is not None else ""
        detail = ", ".join(filter(None, (kind.detail, inner)))
        facts = (key, glimpse.length or 0, kind.title, detail)
        may_be = kind.picture is not None or kind.name in ("Datum", "npy")
        if may_be and (glimpse.length or 0) <= self._value_bytes_max:
            value = glimpse.head if glimpse.is_whole else read()
            found = thumbnail(
                value, kind, self._side, pillow=self._pillow, plain_bytes_max=self._plain_left
            )
            if kind.picture is not None and not self._pillow:
                self.left_out += found is None
                self._plain_left -= len(found.content) if found is not None else 0
            if found is not None:
                self.made += 1
                return Card(*facts, image=found.uri, width=found.width, height=found.height)
        return Card(*facts, lines=() if kind.group == "database" else _lines(glimpse, kind))


def _lines(glimpse: Glimpse, kind: Kind) -> tuple[str, ...]:
    """Return lines for a card, which is narrow."""
    width = TEXT_WIDTH if kind.group in ("text", "packed") else HEX_WIDTH
    return tuple(preview_lines(glimpse, kind, TEXT_LINES, width))
