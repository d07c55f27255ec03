"""Figures are computed, shown and drawn right.

Goal: medians, spreads, percentiles and ratios are of the same bytes; the page is well-formed and
needs nothing but itself; nothing is cut off in a terminal.
Method: made-up runs with known answers.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from lmdbio.bench import findings, tables, trials
from lmdbio.bench.page import page
from lmdbio.page import drawing
from lmdbio.page.table import Table
from tests.support.benching import made_findings, parsed


@pytest.mark.parametrize("top", [0.003, 0.9, 7.0, 236.0, 1799.0, 2.5e6])
def test_ticks_are_few_and_reach_the_top(top: float) -> None:
    ticks = drawing.nice_ticks(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top > ticks[-2] - 1e-9
    assert 3 <= len(ticks) <= 7
    spanned = drawing.log_ticks(top, 30 * top)
    assert spanned[0] <= top
    assert spanned[-1] >= 30 * top


def test_rates_and_ratios_are_of_the_same_bytes() -> None:
    found = made_findings()
    assert [row.rate.median for row in found.measured if row.rate] == [100, 50, 200, 100, 400]
    base, top, ours = found.baseline, found.ceiling, found.best("lmdbio")
    assert base is not None
    assert top is not None
    assert ours is not None
    assert base.trial.name == "lmdb"
    assert top.label == "plain O_DIRECT, 1 MiB"
    assert found.ratio(ours, base) == pytest.approx(2.0)
    assert found.ratio(ours, top) == pytest.approx(0.5)
    assert base.rate == findings.Spread(100, 50, 200)
    assert base.switches_per_gib == findings.Spread(102.4, 102.4, 102.4)
    assert [row.label for row in found.leading][-1] == "plain O_DIRECT, 1 MiB"


def test_at_random_only_requests_of_a_records_size_are_compared() -> None:
    found = made_findings("random")
    found.workload = replace(found.workload, page_bytes=640 * 4096)
    assert found.ceiling is not None
    assert found.ceiling.label == "plain O_DIRECT, 4 KiB"
    assert found.rows[0].latencies[50.0] == pytest.approx(2.0)
    assert found.rows[0].latencies[100.0] == pytest.approx(9.0)


def test_the_json_has_every_sample_and_what_they_depend_on() -> None:
    plain = json.loads(json.dumps(findings.as_json(made_findings())))
    assert plain["schema"] == "lmdbio-bench/1"
    assert set(plain) >= {"machine", "workload", "cache", "rows", "versions", "notes", "rounds"}
    assert plain["rounds"] == 3
    assert {"file_system", "read_ahead_kb"} <= set(plain["machine"])
    for row in plain["rows"][:-1]:
        assert len(row["samples"]) == 3
        assert {"seconds", "cold", "switches", "laps", "fetched_bytes"} <= set(row["samples"][0])
        assert set(row["mib_per_second"]) == {"median", "min", "max", "interval"}
    assert plain["rows"][-1]["skipped"] == "fio is not installed"
    assert plain["rows"][2]["ratio_to_lmdb"] == pytest.approx(2.0)


@pytest.mark.parametrize("access", trials.ACCESSES)
def test_the_page_is_well_formed_and_needs_nothing_else(access: str) -> None:
    text = page(made_findings(access, path='a <b> & "c"'))
    tree = parsed(text)
    for word in ("http", "<script", "src=", "<link", "@import", "url("):
        assert word not in text
    heads = [head.text for head in tree.iter("h2")]
    assert {"Bandwidth", "Bandwidth against transfer size", "How to read this"} <= set(heads)
    assert len(list(tree.iter("svg"))) > 10
    words = "".join(tree.itertext())
    for word in ('Reading a <b> & "c"', "fio is not installed", "a & b", "<now>", "fio 'a b'"):
        assert word in words
    assert "prefers-color-scheme: dark" in text
    assert "viewport" in text


def test_who_gave_other_values_stands_out_on_the_page() -> None:
    found = made_findings()
    found.rows[2].wrong = "its records differ"
    told = {dd.text: dd.get("class") for dd in parsed(page(found)).iter("dd")}
    assert told["its records differ"] == "bad"
    assert told["fio is not installed"] != "bad"


def test_a_table_of_empty_cells_is_shown() -> None:
    made = Table("", ("a", "b"), [("", "")], notes=["nobody"])
    assert "nobody" in made.as_html()
    Console(file=io.StringIO()).print(made.on_screen())


def test_a_page_of_nothing_is_still_a_page() -> None:
    found = made_findings()
    for row in found.rows:
        row.runs = []
    found.interrupted = 2
    assert "Interrupted" in "".join(parsed(page(found)).itertext())
    assert not found.sound


@pytest.mark.parametrize("width", [80, 150])
def test_the_table_of_lmdbio_bench_fits_and_marks_warm_figures(width: int) -> None:
    found = made_findings()
    first = found.rows[0].runs[0]
    assert first.sample is not None
    found.rows[0].runs[0] = replace(first, sample=replace(first.sample, cold=False))
    console = Console(record=True, width=width, file=io.StringIO())
    tables.show_bench(found, console)
    text = console.export_text()
    assert "100*" in text
    assert "WARM" in text
    assert "fio is not installed" in text
    table = [line for line in text.splitlines() if "py-lmdb, no readahead" in line]
    assert table
    assert "…" not in text


def test_names_in_brackets_are_shown_as_they_are() -> None:
    found = made_findings()
    found.workload = replace(found.workload, db="[/bold]")
    found.rows[0].wrong, found.notes = "no [red] file", ["a [/note]"]
    console = Console(record=True, width=150, file=io.StringIO())
    tables.show_bench(found, console)
    text = console.export_text()
    for words in ("database [/bold]", "no [red] file", "a [/note]"):
        assert words in text


def test_six_runs_tell_where_their_median_lies() -> None:
    few, six = findings.Spread.of([3, 1, 2, 5, 4]), findings.Spread.of([3, 1, 2, 5, 4, 6])
    assert few is not None and few.interval is None
    assert six is not None and six.interval == (1, 6)
    ten = findings.Spread.of(range(10, 0, -1))
    assert ten is not None and ten.interval == (2, 9)
