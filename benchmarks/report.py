"""The findings of benchmarks, as they hand them over: verdicts, a JSON file, a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmdbio.bench.findings import Spread, figure
from lmdbio.page.document import document, header
from lmdbio.page.table import Table

#: How a verdict is shown.
STATES = {"reached": "good", "NOT reached": "bad", "no figure": "bad"}
STYLE = ":root { --wide: 84rem; }"


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


def spread_text(spread: Spread | None, form: str = "") -> str:
    """Return a median and its ends, or the one value that there is; "-" for None."""
    if spread is None:
        return "-"
    if spread.min == spread.max:
        return figure(spread.median, form)
    return f"{figure(spread.median, form)} ({figure(spread.min, form)}-{figure(spread.max, form)})"


def verdict_table(
    verdicts: Sequence[Verdict], title: str = "", notes: Sequence[str] = ()
) -> Table:
    """Return every verdict in a line; words that the line above has are not said again."""
    rows, before = [], ""
    for one in verdicts:
        words, before = "" if one.words == before else one.words, one.words
        rows.append((words, one.who, one.where, one.measured, one.against, one.text, one.bound,
                     one.state, one.note))  # fmt: skip
    heads = ("what", "who", "where", "measured", "against", "figure", "bound", "state", "note")
    left = ("who", "where", "against", "state", "note")
    return Table(title, heads, rows, left, notes, STATES)


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
    left = ("bound", "state", "where", "note")
    return Table("What must hold", heads, rows, left, marks=STATES)


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
    why = f"{ended}: not everything was measured." if ended else ""
    head = header(title, f"lmdbio {name} · {began}", verdict=f"{said}.", bad=why)
    return document(f"lmdbio {name}", head + body, STYLE + style)


def write(file: Path | None, what: Any) -> None:
    """Write a page (text), or plain values as JSON, where a file was asked for."""
    if file is not None:
        text = what if isinstance(what, str) else json.dumps(what, indent=1) + "\n"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
