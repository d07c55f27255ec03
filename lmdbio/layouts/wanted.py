"""The records of a database that are wanted as samples, as callers say it."""

from __future__ import annotations

from collections.abc import Iterable

from lmdbio.layouts.known import layout_named
from lmdbio.layouts.layout import Layout
from lmdbio.layouts.skipping import as_skip
from lmdbio.system.frozen import dataclass

__all__ = ["Skip", "Wanted"]

Skip = Iterable[bytes | str] | bytes | str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records that are wanted.

    Attributes:
        layout: a name, a layout, or "auto"; None: each record is a sample.
        skip: keys that are left out, and patterns of such.
    """

    layout: str | Layout | None
    skip: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, layout: str | Layout | None, skip: Skip | None) -> Wanted:
        """Return what is wanted, checked.

        Raises:
            ValueError, TypeError: there is no such layout, or a key is no text.
        """
        if layout is not None:
            layout_named(layout)
        return cls(layout, as_skip(skip))

    def __repr__(self) -> str:
        name = self.layout if isinstance(self.layout, str | None) else self.layout.name
        return f"layout {name}, skip {self.skip}"
