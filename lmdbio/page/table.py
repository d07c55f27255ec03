"""A table, which is written once and shown twice: in a terminal and on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from lmdbio.page.document import section

if TYPE_CHECKING:
    from rich.table import Table as Screen

__all__ = ["Table"]

#: Style in a terminal of what a page shows as good or bad.
STYLES = {"good": "green", "bad": "bold red"}


@dataclass(frozen=True, slots=True)
class Table:
    """Lines of text under heads.

    Attributes:
        title: title above it; "" for none.
        heads: heads of the columns; a column in which every line is empty is left out.
        rows: texts of each line, as many as there are heads or fewer. A text alone is a heading
            of the lines below it.
        left: heads of the columns that begin at the left; the first one always does.
        notes: lines below it.
        marks: "good" or "bad", by the text of a cell.
        shades: colour of each line on a page; empty: none has one.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[str] = ()
    notes: Sequence[str] = ()
    marks: Mapping[str, str] = field(default_factory=dict)
    shades: Sequence[str] = ()

    def columns(self) -> list[tuple[str, bool, list[str]]]:
        """Return the head of each column, whether it begins at the left, and its texts."""
        filled = [[*row, *[""] * (len(self.heads) - len(row))] for row in self.rows]
        return [
            (head, not place or head in self.left, [row[place] for row in filled])
            for place, head in enumerate(self.heads)
            if any(row[place] for row in filled)
        ]

    def on_screen(self) -> Screen:
        """Return it as a terminal shows it."""
        from rich import markup
        from rich.box import SIMPLE
        from rich.table import Table as Screen

        title = markup.escape(self.title) or None
        out = Screen(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
        columns = self.columns()
        for head, left, _ in columns:
            out.add_column(head, justify="left" if left else "right", overflow="fold")
        for whole, row in zip(self.rows, self._lines(columns), strict=True):
            if len(whole) == 1 < len(columns):
                out.add_section()
            styled = []
            for text in row:
                style = STYLES.get(self.marks.get(text, ""), "bold" * (len(whole) == 1))
                styled.append(f"[{style}]{markup.escape(text)}[/]" if style and text else
                              markup.escape(text))  # fmt: skip
            out.add_row(*styled)
        if self.notes:
            out.caption, out.caption_justify = markup.escape("\n".join(self.notes)), "left"
        return out

    def as_html(self) -> str:
        """Return it as a page shows it; "" without lines."""
        if not self.rows:
            return ""
        columns = self.columns()
        head = "".join(
            f'<th class="{"left" * left}">{escape(name)}</th>' for name, left, _ in columns
        )
        body = ""
        for number, row in enumerate(self._lines(columns)):
            shade = f' style="--shade: var(--{self.shades[number]})"' if self.shades else ""
            cells = (
                f'<td class="{self.marks.get(text, "left" * left)}"{shade * (not place)}>'
                f"{escape(text)}</td>"
                for place, (text, (_, left, _)) in enumerate(zip(row, columns, strict=True))
            )
            body += f"<tr>{''.join(cells)}</tr>"
        below = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
            f"</table></div>{below}"
        )

    def section(self, lead: str = "", body: str = "") -> str:
        """Return it as a section of a page, below its title and a sentence, above ``body``."""
        return section(self.title, lead, self.as_html() + body)

    def _lines(self, columns: Sequence[tuple[str, bool, list[str]]]) -> list[tuple[str, ...]]:
        if not columns:
            return [() for _ in self.rows]
        return list(zip(*(texts for _, _, texts in columns), strict=True))
