"""The benchmark of waiting measures what it says.

Goal: shares, hops and verdicts are right; the command sees the wait that it makes.
Method: made-up runs with known answers; the command on a few megabytes, with tokens held back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.cluster import waited
from benchmarks.cluster.waited import Case
from tests.support import ROOT

SECONDS_MAX = 60

# --- figures -------------------------------------------------------------------------------


def overlap(*waits: tuple[float, float]) -> dict[str, Any]:
    """Ranks that read for 10 s, with (first, later) waits."""
    ranks = [
        {
            "reading_s": 10.0,
            "waits_s": [first, 0.01, later - 0.01],
            "stats": {"wait_seconds": first + later / 2},
        }
        for first, later in waits
    ]
    return {"ranks": ranks}


def test_the_first_block_counts_only_where_it_is_asked_for() -> None:
    told = overlap((2.0, 0.4), (0.0, 0.1))
    assert waited.exposed(told, steady=True) == pytest.approx(0.4 / 8)
    assert waited.exposed(told, steady=False) == pytest.approx(2.4 / 10)
    assert waited.awaited(told) == pytest.approx(0.2 / 8)
    assert waited.quickest(told) == pytest.approx(0.01)


def test_hops_are_matched_in_order_and_counted_by_when_they_were_sent() -> None:
    ms = 1_000_000
    sent = [("TOKEN", 1, 1 * ms), ("CURSOR", 1, 2 * ms), ("TOKEN", 1, 10 * ms)]
    came = [("TOKEN", 0, 4 * ms), ("TOKEN", 0, 15 * ms), ("CURSOR", 0, 16 * ms)]
    back, back_came = [("TOKEN", 0, 16 * ms), ("TOKEN", 0, 50 * ms)], [("TOKEN", 1, 17 * ms)]
    found = waited.hops([(sent, back_came), (back, came)], 2 * ms, 60 * ms)
    assert set(found) == {"TOKEN", "CURSOR"}
    assert found["CURSOR"] == {"count": 1, "median": 14, "p90": 14, "p99": 14, "most": 14}
    # Of 5 and 1 ms; the first was sent too early, the last has not come.
    assert (found["TOKEN"]["count"], found["TOKEN"]["median"], found["TOKEN"]["most"]) == (2, 1, 5)


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1), (0.1, 1), (0.5, 5), (0.9, 9), (0.91, 10), (1.0, 10)]
)
def test_a_quantile_is_one_of_the_values(share: float, value: int) -> None:
    assert waited.quantile(range(1, 11), share) == value


def pace(filler_s: float, main_s: float) -> dict[str, Any]:
    """A node of a root and another rank, looked at for 4 s."""
    spent = {"main": 0.4, "filler": filler_s, "others": 0.1}
    other = {"main": main_s, "filler": 0.0, "others": 0.0}
    return {
        "ranks": [
            {
                "is_root": is_root,
                "window_s": 4.0,
                "whole_s": 5.0,
                "stats": {"idle_seconds": 4.5},
                "threads": {who: {"cpu_s": one, "wakes": 8.0} for who, one in threads.items()},
            }
            for is_root, threads in ((True, spent), (False, other))
        ]
    }


def test_threads_are_told_apart_and_judged_by_the_median_of_the_rounds() -> None:
    case = Case("cpu", "a slot", 2, 1, "own storage", {"stage": "idle"})
    runs = [pace(0.1, 0.004), pace(0.16, 0.024), pace(0.8, 0.024)]
    assert waited.thread_share(runs[0], "filler", roots=True) == pytest.approx(0.025)
    assert waited.thread_share(runs[0], "all", roots=True) == pytest.approx(0.15)
    assert waited.wakes(runs[0], "main", roots=False) == pytest.approx(2.0)
    root, other = waited.judge(case, runs)
    assert (root.figure, root.bound, root.reached) == (pytest.approx(4.0), "< 5 %", True)
    assert "it waited 90 %" in root.note
    assert (other.figure, other.reached) == (pytest.approx(0.6), False)


def test_more_threads_than_cores_are_reported_and_nothing_measured_is_never_reached() -> None:
    run = {"factor": 1.2, "iterations": 5}
    free = Case("overlap", "x", 2, 2, "own storage", run, is_bounded=False)
    steady, whole = waited.judge(free, [overlap((1.0, 5.0))])
    assert (steady.state, whole.state) == ("reported", "reported")
    bounded = Case("overlap", "x", 1, 1, "own storage", run)
    assert waited.judge(bounded, [overlap((1.0, 5.0))])[0].reached is False
    assert waited.judge(bounded, [overlap((5.0, 0.04))])[0].reached is True
    assert [one.state for one in waited.judge(bounded, [])] == ["no figure"]


# --- the command ---------------------------------------------------------------------------


AWAY_S = 0.2


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return what the command tells of cases of two parts."""
    folder = tmp_path_factory.mktemp("waits")
    file = folder / "out.json"
    command = [
        sys.executable, "-m", "benchmarks.cluster.waits",
        "--data", folder / "data", "--json", file,
        "--mib", "2", "--rounds", "1", "--sets", "3k", "--stores", "local", "--factors", "3",
        "--nodes", "2", "--away", str(AWAY_S), "--settle", "0.1", "--seconds", "0.5",
        "--only", "overlap: 1 rank on", "--only", "its turn",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True,
        timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    if done.returncode == 69:
        pytest.skip(done.stderr.strip())
    assert done.returncode in (0, 1), done.stdout + done.stderr  # a busy machine decides nothing
    told = json.loads(file.read_text(encoding="utf-8"))
    assert told["verdicts"] and "What must hold" in done.stdout
    found: dict[str, list[dict[str, Any]]] = {"overlap": [], "cpu": [], "hops": []}
    for one in told["cases"]:
        found[one["case"]["part"]].append(one)
    return found


@pytest.mark.mpi
def test_tokens_that_are_held_back_make_roots_wait(cases: dict[str, list[dict[str, Any]]]) -> None:
    (made,) = cases["cpu"]
    (run,) = made["runs"]
    tokens = run["hops"]["TOKEN"]
    assert tokens["count"] >= 2 and tokens["median"] >= 1e3 * AWAY_S / 2
    assert [one["is_root"] for one in run["ranks"]] == [True, False, True, False]
    for one in run["ranks"]:
        assert one["window_s"] == pytest.approx(0.5, abs=0.3)
        spent = one["threads"]["filler"]
        assert (spent["cpu_s"] > 0 and spent["wakes"] > 0) == one["is_root"]
        assert one["threads"]["main"]["cpu_s"] < one["window_s"]
        assert (one["stats"]["turn_seconds"] > AWAY_S / 2) == one["is_root"]


@pytest.mark.mpi
def test_an_overlap_computes_for_as_long_as_it_says(
    cases: dict[str, list[dict[str, Any]]],
) -> None:
    alone, beside = cases["overlap"]
    count = alone["case"]["run"]["iterations"]
    (reading,), (rank,) = (one["runs"][0]["ranks"] for one in (alone, beside))
    assert rank["compute_s"] == pytest.approx(3 * reading["reading_s"] / count)
    assert rank["reading_s"] >= count * rank["compute_s"] + sum(rank["waits_s"])
    assert rank["stats"]["iterations"] == reading["stats"]["iterations"] == count
