"""Goal: the report of the five papers leaves no figure out, and says which run each number is of.

Method: the list of figures itself, and results out of reports with figures of one digit.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from benchmarks.cluster import run as cluster_run
from benchmarks.harness import Told
from benchmarks.papers import measured, pictures
from benchmarks.papers.claims import PAPERS, Result, answers_of, read_claims
from benchmarks.papers.page import Report, tell
from benchmarks.papers.runs import RUNS
from benchmarks.papers.simulated import GIVES, check_cases
from lmdbio.page.table import Table
from tests.support import ROOT

CLAIMS = read_claims()


def test_every_result_that_a_figure_names_comes_from_a_run() -> None:
    given = {*GIVES, *(name for run in RUNS for name in run.gives)}
    assert {name for one in CLAIMS for name in one.results} <= given
    assert {one.paper for one in CLAIMS} == set(PAPERS)
    assert len({(one.paper, one.label) for one in CLAIMS}) == len(CLAIMS) > 120


def test_every_file_that_a_figure_names_is_there() -> None:
    named = {path for one in CLAIMS for path in re.findall(r"[\w/]+/\w+\.\w+", one.here)}
    assert len(named) > 30
    assert not [path for path in sorted(named) if not (ROOT / path).exists()]


@pytest.mark.parametrize(
    "words", [words for run in RUNS for words in (*run.words, *run.quick)], ids=str
)
def test_the_words_of_every_run_are_words_of_the_cluster(words: str) -> None:
    asked = cluster_run.parse(shlex.split(words))
    assert asked.lanes and asked.shapes


def test_cases_are_checked_and_told() -> None:
    told, table, verdicts = check_cases()
    named = {name for one in CLAIMS for name in one.cases}
    assert named == set(told) and len(table.rows) == len(told)
    assert all(one.reached for one in verdicts)


def report(**results: Result) -> Report:
    return Report(CLAIMS, results=dict(results))


def test_a_page_has_every_figure_and_its_answer() -> None:
    made = Result("ladder", "modes", "Every mode", "STAG is fast", Table("", ("a",), [("b",)]))
    told = Told("papers")
    tell(told, report(ladder=made))
    assert all(f">{one.label}<" in told.more for one in CLAIMS)
    assert "STAG is fast [modes]" in told.more and "growth: its run was left out" in told.more
    assert not told.facts["unmentioned"] and not told.failed


def test_answers_name_their_run() -> None:
    claim = next(one for one in CLAIMS if one.results == ("ladder",))
    made = Result("ladder", "modes", "", "so many times", Table("", ("a",), []))
    assert answers_of(claim, {"ladder": made}, {}) == ["so many times [modes]"]


# --- results -------------------------------------------------------------------------------


def ran(name: str, seconds: float, *, kept: str = "", simulated: Any = None) -> dict[str, Any]:
    """A lane that ran once, on two ranks, two epochs."""
    rank = {
        "epochs": [[seconds / 2, 0.1], [seconds, 0.2]],
        "kept": kept,
        "stats": {"late_records": 0, "gone_records": 0},
        "sources": {"0": {"file": [5, 0]}, "1": {"own": [3, 0], "peer": [2, 0]}},
    }
    run = {"ranks": [rank, rank], "simulated": simulated}
    return {
        "lane": {"name": name, "seed": 0},
        "error": "",
        "runs": [run],
        "figures": [{"reading_s": seconds, "delivered": 1 << 20}],
    }


def cluster_report(*lanes: dict[str, Any], words: tuple[str, ...] = ()) -> dict[str, Any]:
    cell = {"dataset": "3k", "shape": {"ranks": 2, "nodes": 2}, "seed": 7, "compute_ms": 0}
    return {"cells": [{"cell": cell, "lanes": list(lanes)}], "command": ["run.py", *words]}


def expected(seconds: float, **first: int) -> dict[str, Any]:
    return {
        "epochs": [[seconds / 2, 0.0], [seconds / 2, 0.0]],
        "records": [{"own": 0, "peer": 0, "file": 10} | first, {"own": 6, "peer": 4, "file": 0}],
        "rates": ["file system: measured"],
    }


def test_fixed_placements_get_as_much_memory_as_auto_took() -> None:
    words = ("--placements", "auto", "--node-mib", "80", "--nodes", "2", "--json", "x")
    chosen = cluster_report(ran("auto", 4.0, kept="2 roots keep 41 of 100 MiB, in"), words=words)
    (told,) = measured.fixed_words([chosen])
    asked = shlex.split(told)
    assert asked[asked.index("--cache") + 1] == "memory=21M"
    assert asked[asked.index("--node-mib") + 1] == "80", "nodes are as small as auto's"
    assert "auto" not in told and "--json" not in told
    others = [ran(name, 9.0) for name in measured.PLACEMENTS[2:]]
    fixed = cluster_report(ran("none", 8.0), ran("home", 3.0), *others)
    (made,) = measured.auto([chosen, fixed])
    assert [one.figure for one in made.verdicts] == [0.75] and not made.verdicts[0].reached
    assert made.verdicts[0].note == "best: home"
    with pytest.raises(ValueError, match="of the fixed placements only none, home ran"):
        list(measured.auto([chosen, cluster_report(ran("none", 8.0), ran("home", 3.0))]))


def test_predicted_jobs_are_held_against_measured_ones() -> None:
    good = ran("a", 4.0, simulated=expected(4.4))
    wrong = ran("b", 4.0, simulated=expected(2.0, file=9))
    made, rates = measured.prediction([cluster_report(good), cluster_report(good, wrong)])
    off, counts = made.verdicts
    assert off.figure == pytest.approx(0.1) and off.reached and off.note == "worst 50.0%"
    assert counts.figure == pytest.approx(2 / 3) and not counts.reached
    assert counts.note == "3k, 2 ranks on 2 nodes b"
    assert rates.answer == "file system: measured"


def test_waiting_is_that_of_the_rank_that_waits_most() -> None:
    (made,) = measured.hidden("hidden", "beside training")([cluster_report(ran("global", 2.0))])
    assert made.table.rows[0][3:] == ("2", "0.2", "10%")


# --- pictures ------------------------------------------------------------------------------


def test_growth_tells_each_data_set_by_itself() -> None:
    reports = []
    for dataset, ranks, seconds in (("3k", 1, 4.0), ("3k", 8, 2.0), ("9k", 1, 8.0)):
        made = cluster_report(ran("py-lmdb", seconds), ran("stag", seconds / 4))
        shape = {"ranks": ranks, "nodes": ranks}
        made["cells"][0]["cell"] |= {"dataset": dataset, "scaling": "strong", "shape": shape}
        reports.append(made)
    (made,) = measured.growth(reports)
    assert made.answer == (
        "3k, strong, 1 rank on 1 node, 8 ranks on 8 nodes: py-lmdb 4 s, 2 s; stag 1 s, 0.5 s. "
        "9k, strong, 1 rank on 1 node: py-lmdb 8 s; stag 2 s"
    )
    assert made.picture.count("<figure") == 2 and "Strong scaling, 9k" in made.picture
    assert made.table.heads[-2:] == ("py-lmdb, s", "stag, s")


def test_pictures_leave_out_values_that_are_not_known() -> None:
    values = {"a": [1.0, None], "b<": [float("nan"), 3.0]}
    for draw in (pictures.lines, pictures.grouped, pictures.stacked):
        drawn = draw("title", "place", "s", ["x", "y"], values)
        assert "a: 1<" in drawn and "b&lt;: 3<" in drawn and "nan" not in drawn
        assert not draw("title", "place", "s", ["x"], {"a": [None]})
    assert pictures.bars("title", {"a": 1.0, "b": None}).count('class="bar"') == 1
    assert not pictures.bars("title", {"b": None}) and not pictures.scatter("t", "x", "y", {})


def test_a_stack_begins_each_part_where_the_last_one_ends() -> None:
    drawn = pictures.stacked("title", "place", "s", ["x"], {"low": [1.0], "high": [1.0]})
    (low, middle), (again, high) = re.findall(r"d=\"M[\d.]+,([\d.]+)V([\d.]+)\"", drawn)
    assert again == middle and float(low) > float(middle) > float(high)


def test_a_dot_of_equal_values_lies_on_the_line_of_equal_ones() -> None:
    drawn = pictures.scatter("title", "x", "y", {"a": [(2.0, 2.0), (5.0, 5.0)]})
    ends = re.findall(r"polyline points=\"([\d.]+),([\d.]+) ([\d.]+),([\d.]+)\"", drawn)
    left, bottom, right, top = map(float, ends[0])
    for x, y in re.findall(r"circle cx=\"([\d.]+)\" cy=\"([\d.]+)\"", drawn):
        share = (float(x) - left) / (right - left)
        assert float(y) == pytest.approx(bottom + share * (top - bottom), abs=0.2)
