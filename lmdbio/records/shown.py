"""shown: objects that notebooks show on a card."""

from __future__ import annotations

from html import escape

from lmdbio.locate.record_index import RecordIndex

__all__ = ["Shown"]


class Shown:
    """Something that notebooks show on a card: what is there, and a few of its records."""

    _source: RecordIndex

    def _repr_html_(self) -> str:
        """Return a card as HTML; where the file cannot be read, what ``repr`` gives."""
        try:
            from lmdbio.records.card import records_card  # others begin sooner without it

            return records_card(self._source, type(self).__name__)
        except Exception as error:  # a notebook shows the object, not a traceback
            return f"<pre>{escape(repr(self))}\n{escape(str(error))}</pre>"
