"""Draws every policy that a Reader runs, measured and simulated, epoch by epoch.

    python -m benchmarks.cluster.run --policies all ... --json policies.json
    python -m benchmarks.cluster.policies policies.json

On the left the seconds of each epoch, and of these the ones in which a rank waited for its next
batch (of the rank that waited most); on the right where its records came from. Bars are measured,
medians over the rounds, and lines across them are simulated. The exit status is 1 where a job
without late roots has counted other records than were simulated, 2 where there is nothing to draw.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.cluster.results import epochs_of, late_of, waits_of
from benchmarks.command import plain_parser
from lmdbio.page.drawing import nice_ticks
from lmdbio.simulate import SOURCES

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "assets" / "policies.svg"
COLOURS = {
    "computing": "#9ec1e8", "waiting": "#d9534f",
    "own": "#2f7ed8", "peer": "#7fb069", "file": "#e0a030",
}  # fmt: skip
WORDS = {"own": "own memory", "peer": "another root", "file": "the file"}
#: Places in the picture, px.
NAMES, EPOCHS, SECONDS, SHARES, WIDTH, RIGHT = 8, 214, 224, 518, 250, 792
TOP, ROW, BAR, GAP = 62, 15, 11, 9


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch of a policy, or what comes before the first.

    Attributes:
        name: in the picture.
        seconds, waiting: measured.
        simulated: the same two.
        records: by source, in the order of ``SOURCES``; nothing before the first.
        simulated_records: the same.
    """

    name: str
    seconds: float
    waiting: float
    simulated: tuple[float, float]
    records: tuple[int, ...] = ()
    simulated_records: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """A policy.

    Attributes:
        name: of it.
        epochs: in turn.
        late: rows that some root read because another one was late, or had ended.
    """

    name: str
    epochs: tuple[Epoch, ...]
    late: int

    @property
    def agrees(self) -> bool:
        """Whether as many records came from everywhere as were simulated."""
        return all(one.records == one.simulated_records for one in self.epochs)


# --- what was measured ---------------------------------------------------------------------


def read(report: Mapping[str, Any], dataset: str) -> list[Measured]:
    """Return the policies of a report.

    Args:
        report: as ``run --json`` writes it.
        dataset: of the cell; "": of the first one that has policies.
    """
    for cell in report["cells"]:
        lanes = [one for one in cell["lanes"] if one["lane"]["policy"] and one["runs"]]
        if lanes and dataset in ("", cell["cell"]["dataset"]):
            return [policy_of(one["lane"]["name"], one["runs"]) for one in lanes]
    return []


def policy_of(name: str, runs: Sequence[Mapping[str, Any]]) -> Measured:
    """Return a policy from its runs; counts are those of the run with the fewest late rows."""
    told = runs[0]["simulated"]
    late, counted = min(((late_of(run), run) for run in runs), key=lambda one: one[0])
    epochs = []
    if told["init_seconds"]:
        opened = statistics.median(max(rank["open_s"] for rank in run["ranks"]) for run in runs)
        epochs.append(Epoch("before", opened, opened, (told["init_seconds"],) * 2))
    for number, simulated in enumerate(told["epochs"]):
        seconds, waiting = (
            statistics.median(of(run)[number] for run in runs) for of in (epochs_of, waits_of)
        )
        records = told["records"][number]
        epochs.append(
            Epoch(
                f"epoch {number}", seconds, waiting, tuple(simulated),
                tuple(records_of(counted, number, source) for source in SOURCES),
                tuple(
                    sum(records.get(name, 0) for name in names_of(source)) for source in SOURCES
                ),
            )
        )  # fmt: skip
    return Measured(name, tuple(epochs), late)


def names_of(source: str) -> tuple[str, ...]:
    """Return what counts as a source; a root's disk is its own."""
    return (source, "disk") if source == "own" else (source,)


def records_of(run: Mapping[str, Any], number: int, source: str) -> int:
    """Return the records of an epoch that came from a source."""
    by = [rank["sources"].get(str(number), {}) for rank in run["ranks"]]
    return sum(one[name][0] for one in by for name in names_of(source) if name in one)


# --- the picture ---------------------------------------------------------------------------


def rectangle(left: float, top: float, width: float, colour: str) -> str:
    if width <= 0:
        return ""
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>'
    )


def across(at: float, top: float, *, is_part: bool = False) -> str:
    """Draw a line across a bar: what was simulated."""
    kind = "s p" if is_part else "s"
    return f'<path class="{kind}" d="M{at:.1f} {top - 2:.1f}v{BAR + 4}"/>'


def text(left: float, top: float, words: str, kind: str = "") -> str:
    """Draw words, whose middle is at ``left`` in kind "m", and their end in kind "e"."""
    return f'<text x="{left:.1f}" y="{top:.1f}" class="{kind}">{escape(words)}</text>'


def legend() -> Iterator[str]:
    """Draw what colours and lines mean."""
    for begin, names in ((SECONDS, ("waiting", "computing")), (SHARES, SOURCES)):
        left = float(begin)
        for name in names:
            words = WORDS.get(name, name)
            yield rectangle(left, 28, BAR, COLOURS[name])
            yield text(left + BAR + 5, 37.5, words)
            left += BAR + 16 + 7 * len(words)
    yield across(SECONDS + 200, 28)
    yield text(SECONDS + 208, 37.5, "simulated")


def epoch_bars(one: Epoch, top: float, most: float) -> Iterator[str]:
    """Draw an epoch: seconds on the left, sources on the right."""
    scale = WIDTH / most
    yield text(EPOCHS, top + 9.5, one.name, "e")
    yield rectangle(SECONDS, top, one.seconds * scale, COLOURS["computing"])
    yield rectangle(SECONDS, top, min(one.waiting, one.seconds) * scale, COLOURS["waiting"])
    seconds, waiting = one.simulated
    if 0 < waiting < seconds:
        yield across(SECONDS + waiting * scale, top, is_part=True)
    yield across(SECONDS + seconds * scale, top)
    left, whole = float(SHARES), sum(one.records)
    for source, count in zip(SOURCES, one.records, strict=False):
        yield rectangle(left, top, WIDTH * count / whole, COLOURS[source])
        left += WIDTH * count / whole
    done = 0
    for count in one.simulated_records:
        done += count
        yield across(SHARES + WIDTH * done / whole, top)


def svg(policies: Sequence[Measured], words: str) -> str:
    """Return the picture.

    Args:
        policies: at least one.
        words: what was measured.
    """
    epochs = [one for policy in policies for one in policy.epochs]
    ticks = nice_ticks(max(max(one.seconds, one.simulated[0]) for one in epochs))
    parts, top = list(legend()), float(TOP)
    parts += [text(SECONDS, 14, "seconds", "h"), text(SHARES, 14, "records by source", "h")]
    for policy in policies:
        parts.append(text(NAMES, top + 9.5, policy.name, "h"))
        for one in policy.epochs:
            parts += epoch_bars(one, top, ticks[-1])
            top += ROW
        top += GAP
    for tick in ticks:
        at = SECONDS + WIDTH * tick / ticks[-1]
        parts.append(f'<path class="g" d="M{at:.1f} {TOP - 6}V{top - GAP + 2:.1f}"/>')
        parts.append(text(at, top + 4, f"{tick:g}", "m"))
    for share in (0, 50, 100):
        parts.append(text(SHARES + WIDTH * share / 100, top + 4, f"{share} %", "m"))
    style = (
        "text{font:12px system-ui,sans-serif;fill:#57606a}.h{font-weight:600}"
        ".m{text-anchor:middle}.e{text-anchor:end}"
        ".s{stroke:#111;stroke-width:1.8}.p{stroke-dasharray:2.5 1.5}"
        ".g{stroke:#8884;stroke-width:1}@media(prefers-color-scheme:dark){text{fill:#c9d1d9}"
        ".s{stroke:#fff}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{RIGHT}" height="{top + 12:.0f}" '
        f'viewBox="0 0 {RIGHT} {top + 12:.0f}" role="img"><title>{escape(words)}</title>'
        f"<style>{style}</style>{''.join(parts)}</svg>\n"
    )


def main(words: Sequence[str]) -> int:
    """Draw a report; return the exit status."""
    parser = plain_parser("benchmarks.cluster.policies", __doc__ or "")
    parser.add_argument("report", type=Path, help="of benchmarks.cluster.run --policies, as JSON")
    parser.add_argument("--set", default="", metavar="SET", help="of the data; else the first one")
    parser.add_argument("--svg", type=Path, default=PICTURE, metavar="FILE", help=f"({PICTURE})")
    asked = parser.parse_args(words)
    policies = read(json.loads(asked.report.read_text(encoding="utf-8")), asked.set)
    if not policies:
        print(f"{asked.report}: it has no policies that were measured", file=sys.stderr)
        return 2
    asked.svg.write_text(
        svg(policies, "Every policy on the modelled store, measured and simulated"),
        encoding="utf-8",
    )
    print(asked.svg)
    differ = [one.name for one in policies if not one.agrees and not one.late]
    for one in policies:
        if one.late:
            print(f"{one.name}: {one.late} rows of late roots were read from the file")
    if differ:
        print(f"other counts than simulated: {', '.join(differ)}", file=sys.stderr)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
