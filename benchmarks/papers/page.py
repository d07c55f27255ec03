"""The report: what a page shows of it, and its values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape

from benchmarks.harness import Told
from benchmarks.papers.claims import KINDS, PAPERS, Claim, Result, answers_of
from benchmarks.report import Verdict
from lmdbio.page.document import section
from lmdbio.page.table import Table

__all__ = ["Done", "Report", "sections", "tell", "unmentioned"]

STYLE = """
td.left { white-space: normal; min-width: 7rem; } .claims td.left { min-width: 10rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr));
  gap: 1.4rem 2rem; margin-bottom: 1.4rem; } figure.wide { grid-column: 1 / -1; }
figure { margin: 0; } h3 { font-size: .95rem; margin: .4rem 0; }
"""


@dataclass(frozen=True, slots=True)
class Done:
    """A run that was made.

    Attributes:
        name: of it.
        commands: as they can be typed.
        seconds: that it took.
        error: why it has no results; "": it has.
    """

    name: str
    commands: tuple[str, ...]
    seconds: float
    error: str = ""


@dataclass(slots=True)
class Report:
    """Everything up to now.

    Attributes:
        claims: of the papers.
        runs: in turn.
        results: by name.
        cases: a sentence for each checked case.
        case_table: all of them.
        verdicts: of the cases.
    """

    claims: Sequence[Claim]
    runs: list[Done] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    cases: dict[str, str] = field(default_factory=dict)
    case_table: Table | None = None
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def judged(self) -> list[Verdict]:
        """All verdicts."""
        return [*self.verdicts, *(one for made in self.results.values() for one in made.verdicts)]


def unmentioned(report: Report) -> list[str]:
    """Return the figures that nothing answers, and that no reason explains."""
    return [
        f"{one.paper} {one.label}"
        for one in report.claims
        if not any(answers_of(one, report.results, report.cases))
    ]


def claim_rows(report: Report, paper: str) -> list[tuple[str, ...]]:
    """Return the figures of a paper, and what answers each."""
    rows: list[tuple[str, ...]] = []
    for one in report.claims:
        if one.paper == paper:
            told = answers_of(one, report.results, report.cases)
            answer = "; ".join(told)
            if one.kind in ("drawing", "no") and told == [one.here]:
                answer = f"{KINDS[one.kind]}: {one.here}"
            rows.append((one.label, one.shows, one.claims, answer))
    return rows


def tell(told: Told, report: Report) -> None:
    """Note all that there is up to now."""
    missing = unmentioned(report)
    told.title = "Five papers, and what this code gives for them"
    told.verdicts, told.style, told.more = report.judged, STYLE, sections(report)
    told.failed = bool(missing) or any(one.error for one in report.runs)
    told.lines = [f"{len(report.claims)} figures, {len(missing)} without an answer"]
    told.facts = {
        "runs": [asdict(one) for one in report.runs],
        "results": {
            name: asdict(replace(made, picture="")) for name, made in report.results.items()
        },
        "cases": report.cases,
        "figures": [
            asdict(one) | {"answers": answers_of(one, report.results, report.cases)}
            for one in report.claims
        ],
        "unmentioned": missing,
    }


def sections(report: Report) -> str:
    """Return the figures of each paper, the results, the cases and the runs, as HTML."""
    heads, parts = ("figure", "shows", "claimed", "here"), []
    for paper, title in PAPERS.items():
        table = Table(title, heads, claim_rows(report, paper), heads)
        parts.append(section(table.title, "", table.as_html(), "claims"))
    parts += map(result_section, report.results.values())
    if report.case_table is not None:
        parts.append(report.case_table.section("Checked by tests/papers. Run: cases."))
    return "".join(parts) + runs_section(report.runs)


def result_section(made: Result) -> str:
    """Return a result: what it says, its picture, its table."""
    picture = f'<div class="pictures">{made.picture}</div>' if made.picture else ""
    lead = f"{made.answer}. Run: {made.run}."
    return section(made.title, lead, picture + made.table.as_html())


def runs_section(runs: Sequence[Done]) -> str:
    """Return the commands of all runs."""
    body = "".join(
        f"<p><b>{escape(one.name)}</b>, {one.seconds:,.0f} s"
        f"{f': {escape(one.error)}' if one.error else ''}</p>"
        f"<pre>{escape(chr(10).join(one.commands))}</pre>"
        for one in runs
    )
    return section("Runs", "Each number above names its run.", body)
