"""The findings of benchmarks, as they hand them over: verdicts, tables, a JSON file, a page.

A table is written once and shown twice: in the terminal and on the page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from rich import markup
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table as Screen

from lmdbio.bench import page as pages
from lmdbio.bench.findings import Spread, figure

#: Of a verdict: its style in a terminal, its class on a page.
STATES = {
    "reached": ("green", "reached"),
    "NOT reached": ("bold red", "missed"),
    "no figure": ("bold yellow", "missed"),
}
STYLE = """
main { max-width: 84rem; }
td.left, th.left { text-align: left; white-space: normal; }
td.left::before { display: none !important; }
td.reached { color: var(--plain); font-weight: 600; }
td.missed { color: var(--bad); font-weight: 600; }
"""


# --- verdicts ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that must hold, at one place.

    Attributes:
        words: what must hold.
        where: the cell in which it was measured.
        figure: what is compared with the bound; None: nothing was measured.
        bound: such as ">= 0.9"; "" for a figure that is reported alone.
        reached: None: reported alone, or not measured.
        note: why there is no figure, or what else a reader should know.
        who: was judged; "" where the words say so.
        ends: the figure's least and greatest, over the rounds.
        measured, against: the figures behind a ratio, in words.
    """

    words: str
    where: str
    figure: float | None
    bound: str = ""
    reached: bool | None = None
    note: str = ""
    who: str = ""
    ends: tuple[float, float] | None = None
    measured: str = ""
    against: str = ""

    @property
    def state(self) -> str:
        """The verdict in a word or two."""
        if self.figure is None:
            return "no figure"
        if self.reached is None:
            return "reported"
        return "reached" if self.reached else "NOT reached"

    @property
    def text(self) -> str:
        """The figure, and its ends where they differ."""
        if self.reached is False and figure(self.figure) == self.bound.rpartition(" ")[2]:
            return figure(self.figure, ".5g")
        if self.figure is None or self.ends is None or self.ends[0] == self.ends[1]:
            return figure(self.figure)
        return f"{figure(self.figure)} ({figure(self.ends[0])}-{figure(self.ends[1])})"


def judged(
    words: str,
    where: str,
    value: float | None,
    *,
    least: float | None = None,
    most: float | None = None,
    **more: Any,
) -> Verdict:
    """Return the verdict on a figure with a bound, or with none.

    Args:
        words, where, value: see ``Verdict``.
        least, most: the bound; at most one of them.
        more: further attributes of the verdict.
    """
    bound, reached = "", None
    if least is not None:
        bound, reached = f">= {least:g}", value is not None and value >= least
    if most is not None:
        bound, reached = f"<= {most:g}", value is not None and value <= most
    return Verdict(words, where, value, bound, reached if value is not None else None, **more)


def counted(verdicts: Sequence[Verdict]) -> str:
    """Say how many verdicts there are of each state."""
    states = [one.state for one in verdicts]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def status(verdicts: Sequence[Verdict], *, failed: bool = False) -> int:
    """Return 2 if somebody failed, 1 if a bound was not reached, else 0."""
    return 2 if failed else int(any(one.reached is False for one in verdicts))


# --- tables --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """Lines of text under heads; a state of a verdict has its colour.

    Attributes:
        title: above it; "" for none.
        heads: of the columns; one in which every line is empty is left out.
        rows: as many texts as there are heads; a shorter one is filled up.
        left: the heads of columns that begin at the left; the first one always does.
        notes: lines below it.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[str] = ()
    notes: Sequence[str] = ()

    def columns(self) -> list[tuple[str, bool, list[str]]]:
        """Return the head of each column, whether it begins at the left, and its texts."""
        filled = [[*row, *[""] * (len(self.heads) - len(row))] for row in self.rows]
        return [
            (head, not place or head in self.left, [row[place] for row in filled])
            for place, head in enumerate(self.heads)
            if any(row[place] for row in filled)
        ]

    def on_screen(self) -> Screen:
        """Return it as the terminal shows it."""
        out = Screen(title=self.title or None, title_justify="left", box=SIMPLE, pad_edge=False)
        columns = self.columns()
        for head, left, _ in columns:
            out.add_column(head, justify="left" if left else "right", overflow="fold")
        for row in zip(*(texts for _, _, texts in columns), strict=True):
            out.add_row(
                *(f"[{STATES[text][0]}]{text}[/]" if text in STATES else markup.escape(text)
                  for text in row)
            )  # fmt: skip
        if self.notes:
            out.caption, out.caption_justify = markup.escape("\n".join(self.notes)), "left"
        return out

    def as_html(self) -> str:
        """Return it as a page shows it."""
        columns = self.columns()
        head = "".join(
            f'<th class="{"left" * left}">{escape(name)}</th>' for name, left, _ in columns
        )
        body = "".join(
            "<tr>" + "".join(
                f'<td class="{STATES[text][1] if text in STATES else "left" * left}">'
                f"{escape(text)}</td>"
                for text, (_, left, _) in zip(row, columns, strict=True)
            ) + "</tr>"
            for row in zip(*(texts for _, _, texts in columns), strict=True)
        )  # fmt: skip
        below = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
            f"</table></div>{below}"
        )

    def section(self, lead: str = "", body: str = "") -> str:
        """Return it as a section of a page, below its title and a sentence, above ``body``."""
        return pages.section(self.title, lead, self.as_html() + body)


def spread_text(spread: Spread | None, form: str = "") -> str:
    """Return a median and its ends, or the one value that there is; "-" for None."""
    if spread is None:
        return "-"
    if spread.min == spread.max:
        return figure(spread.median, form)
    return f"{figure(spread.median, form)} ({figure(spread.min, form)}-{figure(spread.max, form)})"


def verdict_table(verdicts: Sequence[Verdict], title: str = "") -> Table:
    """Return every verdict in a line; words that the line above has are not said again."""
    rows, before = [], ""
    for one in verdicts:
        words, before = "" if one.words == before else one.words, one.words
        rows.append((words, one.who, one.where, one.measured, one.against, one.text, one.bound,
                     one.state, one.note))  # fmt: skip
    heads = ("what", "who", "where", "measured", "against", "figure", "bound", "state", "note")
    return Table(title, heads, rows, left=("who", "where", "against", "state", "note"))


def summary(verdicts: Sequence[Verdict]) -> Table:
    """Return a line for each thing that must hold, over all places, with its worst verdict."""
    rows = []
    bounded = [one for one in verdicts if one.bound]
    for words in dict.fromkeys(one.words for one in bounded):
        of = [one for one in bounded if one.words == words]
        states = [one.state for one in of]
        known = [one for one in of if one.figure is not None] or of
        sign = 1 if known[0].bound.startswith(">=") else -1
        one_is_best = known[0].bound.startswith("within")
        # One that was missed, then the one that is farthest from the bound.
        far = {one: sign * abs((one.figure or 0.0) - one_is_best) for one in known}
        worst = min(known, key=lambda one: (one.reached is not False, far[one]))
        state = next((state for state in STATES if state != "reached" and state in states),
                     states[0])  # fmt: skip
        counts = [str(states.count(state) or "") for state in STATES]
        rows.append([words, worst.bound, state, *counts, worst.text, worst.where, worst.note])
    heads = ("what", "bound", "state", "in", "not in", "no figure in", "worst", "where", "note")
    return Table("What must hold", heads, rows, left=("bound", "state", "where", "note"))


# --- handing over --------------------------------------------------------------------------


def as_json(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return verdicts as plain values."""
    return [asdict(one) | {"state": one.state} for one in verdicts]


def page(name: str, began: str, title: str, verdicts: Sequence[Verdict], body: str,
         ended: str = "", style: str = "") -> str:  # fmt: skip
    """Return a whole page.

    Args:
        name: of the benchmark.
        began: date and time.
        title: above everything.
        verdicts: they are counted below it.
        body: sections.
        ended: why not everything was measured; "" if it was.
        style: further CSS.
    """
    said = counted(verdicts) or "Nothing was judged"
    why = f'<p class="bad">{escape(ended)}: not everything was measured.</p>' if ended else ""
    heading = (
        f'<header><p class="eyebrow">lmdbio {escape(name)} · {escape(began)}</p>'
        f'<h1>{escape(title)}</h1><p class="verdict">{escape(said)}.</p>{why}</header>'
    )
    return pages.document(f"lmdbio {name}", heading + body, STYLE + style)


def write(file: Path | None, what: Any) -> None:
    """Write a page (text), or plain values as JSON, where a file was asked for."""
    if file is not None:
        text = what if isinstance(what, str) else json.dumps(what, indent=1) + "\n"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def wide_console() -> Console:
    """Return a console that is wide where a file or a pipe has no width of its own."""
    return Console(width=max(170, Console().width) if not Console().is_terminal else None)
