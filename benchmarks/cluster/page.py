"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape

from benchmarks.cluster.figures import Drawing, drawings
from benchmarks.cluster.judged import Verdict, summaries
from benchmarks.cluster.measuring import Report
from benchmarks.cluster.paper import FIGURES, SCALE, Answer
from benchmarks.cluster.results import CellResult
from benchmarks.cluster.table import HEADS, SUMMARY_HEADS, row, summary_row, text
from lmdbio.bench import page as pages

__all__ = ["page"]

STYLE = """
main { max-width: 84rem; }
.drawings { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); }
.drawings figure { margin: 0; background: #fff; border-radius: .5rem; padding: .5rem; }
.drawings svg { width: 100%; height: auto; }
.drawings figcaption { color: #626d7a; font-size: .85rem; }
td.left, th.left { text-align: left; white-space: normal; }
td.reached { color: var(--plain); font-weight: 600; }
td.missed { color: var(--bad); font-weight: 600; }
"""
CLASSES = {"reached": "reached", "NOT reached": "missed", "no figure": "missed"}


def html_table(heads: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]]) -> str:
    """``rows``: class and text of each cell."""
    head = "".join(f'<th class="left">{escape(one)}</th>' for one in heads)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{escape(words)}</td>' for kind, words in cells)
        + "</tr>" for cells in rows
    )  # fmt: skip
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def verdict_section(verdicts: Sequence[Verdict]) -> str:
    rows = [
        [("left", one.words), ("left", one.cell), ("", text(one.figure, ".3g")), ("", one.bound),
         (CLASSES.get(one.state, ""), one.state), ("left", one.note)]
        for one in verdicts
    ]  # fmt: skip
    heads = ("what", "where", "figure", "bound", "", "note")
    every = f"<details><summary>in each cell</summary>{html_table(heads, rows)}</details>"
    lines = []
    for one in summaries(verdicts):
        words = summary_row(one)
        kinds = ["left", "", CLASSES.get(one.state, ""), "", "", "", "", "left", "left"]
        lines.append(list(zip(kinds, words, strict=True)))
    return pages.section("What must hold", "", html_table(SUMMARY_HEADS, lines) + every)


def paper_section(answers: Sequence[Answer]) -> str:
    rows = [
        [("left", one.claim.words), ("", one.claim.value_text), ("left", one.claim.where),
         ("", one.text), ("left", one.where), ("left", one.claim.differs)]
        for one in answers
    ]  # fmt: skip
    heads = ("what", "paper", "where there", "here", "where here", "why they differ")
    lead = f"Everywhere: {SCALE}. Dashes: not measured in this run."
    return pages.section("The paper's factors and these", lead, html_table(heads, rows))


def drawing_section(made: Sequence[Drawing]) -> str:
    drawn = "".join(
        f"<figure>{one.svg}<figcaption>Fig. {escape(one.number)}: {escape(one.words)}"
        "</figcaption></figure>"
        for one in made
    )
    lead = "Numbered as in the paper, with its axes; medians. Processes, and nodes in brackets."
    missing = html_table(
        ("figure", "what", "why it is not answered here"),
        [[("left", one.number), ("left", one.words), ("left", one.reason)] for one in FIGURES],
    )
    return pages.section("The paper's figures", lead, f'<div class="drawings">{drawn}</div>') + (
        pages.section("What is not answered", "", missing)
    )


def cell_section(made: CellResult) -> str:
    rows = []
    for lane in made.lanes:
        words = row(made, lane)
        words += [""] * (len(HEADS) - len(words))
        rows.append([("left", words[0]), *(("", word) for word in words[1:])])
    agree = "" if made.sums_agree else "The sums of the bytes read differ."
    listed = "\n".join(f"{name}: {words}" for name, words in made.commands.items())
    below = f"<pre>{escape(listed)}</pre>" if listed else ""
    return pages.section(str(made.cell), agree, html_table(tuple(HEADS), rows) + below)


def facts_section(report: Report) -> str:
    facts = [(name, str(value)) for name, value in report.machine.items()]
    facts += [("store", words) for words in report.stores]
    facts += [("command", shlex.join(report.command)), ("seconds", f"{report.seconds:,.0f}")]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in facts)
    legend = "".join(
        f"<dt>{escape(head)}</dt><dd>{escape(words)}</dd>"
        for head, words in HEADS.items()
        if words
    )
    return pages.section("Columns", "", f"<dl>{legend}</dl>") + (
        pages.section("Where and how", "", f"<dl>{listed}</dl>")
    )


def page(report: Report, verdicts: Sequence[Verdict], answers: Sequence[Answer]) -> str:
    """The whole page."""
    states = [one.state for one in verdicts]
    said = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    why = report.failed or ("Interrupted" if report.interrupted else "")
    ended = f'<p class="bad">{escape(why)}: not everything was measured.</p>' if why else ""
    heading = (
        f'<header><p class="eyebrow">lmdbio cluster · {escape(report.began)}</p>'
        "<h1>All modes on many ranks, on one machine</h1>"
        f'<p class="verdict">{escape(said or "Nothing was judged")}.</p>{ended}</header>'
    )
    made = drawings(report.cells, report.blocks)
    body = heading + verdict_section(verdicts) + paper_section(answers) + drawing_section(made)
    body += "".join(cell_section(one) for one in report.cells) + facts_section(report)
    return pages.document("lmdbio cluster", body, STYLE)
