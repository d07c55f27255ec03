"""Draw docs/assets/gain.svg from the table that ``make demo`` filled (docs/benchmarks/results.md).

    python docs/assets/gain.py

The picture shows medians of the table and nothing else, so it changes when the table does.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "benchmarks" / "results.md"
PICTURE = ROOT / "docs" / "assets" / "gain.svg"
#: Rows of the table: data set, order, and the words of the picture.
ROWS = [
    ("jpeg", "shuffled, 1 batch†", "images, a shuffled batch"),
    ("cifar", "shuffled, 20 batches†", "3 KB records, shuffled batches"),
    ("cifar", "shuffled, whole epoch", "3 KB records, a shuffled epoch"),
    ("jpeg", "in order", "images, in order"),
]
READERS = (("py-lmdb", "#9aa0a6"), ("lmdbio", "#2f7ed8"))
LEFT, WIDTH, HEIGHT, TOP = 212, 360, 38, 34


def medians() -> dict[tuple[str, str, str], tuple[float, str]]:
    """Return MiB/s at 128 KiB of kernel readahead, and the ratio, by set, order and package."""
    found: dict[tuple[str, str, str], tuple[float, str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 9 and "Reader" not in cells[2]:
            number = re.match(r"[\d,]+", cells[3])
            if number:
                package = "py-lmdb" if cells[2].startswith("py-lmdb") else "lmdbio"
                rate = float(number[0].replace(",", ""))
                found[cells[0], cells[1], package] = rate, cells[4]
    return found


def main() -> None:
    found = medians()
    top = max(found[name, order, reader][0] for name, order, _ in ROWS for reader, _ in READERS)
    parts = []
    for number, (name, order, words) in enumerate(ROWS):
        y = TOP + number * HEIGHT
        parts.append(f'<text x="{LEFT - 8}" y="{y + 18}" text-anchor="end">{words}</text>')
        for place, (reader, colour) in enumerate(READERS):
            value, times = found[name, order, reader]
            width = max(2, WIDTH * value / top)
            bar = y + 2 + 13 * place
            ratio = f" · {float(times):.1f}x" if reader == "lmdbio" else ""
            parts.append(
                f'<rect x="{LEFT}" y="{bar}" width="{width:.1f}" height="11" rx="2" '
                f'fill="{colour}"/><text x="{LEFT + width + 6:.1f}" y="{bar + 9.5}" class="v">'
                f"{value:,.0f}{ratio}</text>"
            )
    legend = "".join(
        f'<rect x="{LEFT + 90 * i}" y="8" width="11" height="11" rx="2" fill="{colour}"/>'
        f'<text x="{LEFT + 90 * i + 16}" y="17.5">{reader}</text>'
        for i, (reader, colour) in enumerate(READERS)
    )
    size = f'width="680" height="{TOP + len(ROWS) * HEIGHT + 6}"'
    style = (
        "<style>text{font:12px system-ui,sans-serif;fill:#57606a}.v{font-size:11px}"
        "@media(prefers-color-scheme:dark){text{fill:#c9d1d9}}</style>"
    )
    PICTURE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        f"<title>MiB/s, cold page cache: py-lmdb and lmdbio</title>{style}{legend}"
        f'<text x="{LEFT + 200}" y="17.5">MiB/s, cold page cache</text>'
        f"{''.join(parts)}</svg>\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
