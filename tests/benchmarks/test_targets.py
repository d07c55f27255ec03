"""The measuring stick measures right, and says so when it could not.

Goal: medians, ratios and verdicts are right; whoever fails, differs or is missing is reported and
never counts as reached; every rule can be judged; the command runs end to end, and a signal ends
it with everything that it started and mounted.
Method: verdicts of made-up runs with known answers; the command on sets of a few megabytes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.command import Missing
from benchmarks.harness import Told
from benchmarks.targets import cells, places, run, show
from benchmarks.targets.cells import CELLS, PLAIN, Cell, Lane, Rule
from benchmarks.targets.verdicts import judge
from lmdbio.bench.findings import Row
from lmdbio.bench.runner import Outcome
from lmdbio.bench.trials import CONTESTANTS, Trial
from tests.support import ROOT
from tests.support.benching import parsed, sample, workload

MIB = 1 << 20


def row(name: str, rates: list[float], **changes: Any) -> Row:
    """Runs of 100 MiB at these rates."""
    work = workload("sequential", page_bytes=100 * MIB)
    runs = [
        Outcome(replace(sample(100 / rate), peak_bytes=int(rate) * MIB, value_bytes=100 * MIB))
        for rate in rates
    ]
    return Row(Trial(name, bytes=100 * MIB), work, runs=runs, **changes)


def cell(*rules: Rule) -> Cell:
    lanes = (Lane("ours", "open"), Lane("rival", "lmdb"), Lane("other", "lmdb-noreadahead"))
    return Cell("a cell", "3k", "sequential", (*lanes, Lane(PLAIN)), rules)


def told_of(*cells: show.Measured) -> Told:
    told = Told("targets")
    show.tell(told, cells)
    return told


# --- judging --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "reached"), [(None, None), (1.9, True), (2.0, True), (2.1, False)]
)
def test_a_ratio_is_one_of_medians_and_has_the_spread_of_its_rounds(
    least: float | None, reached: bool | None
) -> None:
    rows = {"ours": [row("open", [100, 200, 900])], "rival": [row("lmdb", [100, 50, 300])]}
    (one,) = judge(cell(Rule("cold", "words", ("ours",), ("rival",), least=least)), rows)
    assert one.measured == "200 (100-900) MiB/s"
    assert one.against == "100 (50-300) py-lmdb"
    assert one.figure == pytest.approx(2.0)
    assert one.ends == pytest.approx((1.0, 4.0))
    assert one.text == "2 (1-4)"
    assert one.reached is reached


def test_the_best_of_several_rivals_is_the_measure() -> None:
    rule = Rule("cold", "words", ("ours",), ("rival", "other", PLAIN), least=1.0)
    rows = {
        "ours": [row("open", [100])],
        "rival": [row("lmdb", [50])],
        "other": [row("lmdb-noreadahead", [80])],
        PLAIN: [row("fio-direct", [70]), row("ior-direct", [160])],
    }
    (one,) = judge(cell(rule), rows)
    assert (one.against, one.figure) == ("160 ior O_DIRECT", pytest.approx(100 / 160))
    rows[PLAIN][1].wrong = "died"
    assert judge(cell(rule), rows)[0].against == "80 py-lmdb, no readahead"


@pytest.mark.parametrize(
    ("quantity", "number", "ratio", "unit"),
    [
        ("rate", 50.0, 2.0, "MiB/s"),
        ("records", 320.0, 2.0, "records/s"),
        ("cpu", 2.56, 2.0, "CPU s/GiB"),
        ("peak", 50.0 * MIB, 2.0, "MiB"),
    ],
)
def test_every_quantity_is_compared_with_a_number_in_its_unit(
    quantity: str, number: float, ratio: float, unit: str
) -> None:
    # 100 MiB and 640 records in a second, half of which is processor time; 100 MiB of memory.
    rule = Rule("cpu", "words", ("ours",), number=number, most=1.9, quantity=quantity)
    (one,) = judge(cell(rule), {"ours": [row("open", [100, 100])]})
    assert one.figure == pytest.approx(ratio)
    assert one.measured.endswith(f" {unit}") and one.reached is False


def test_of_cpu_the_least_is_the_best() -> None:
    rule = Rule("cpu", "words", ("ours",), ("rival", "other"), most=1.0, quantity="cpu")
    slow, fast = row("lmdb", [50]), row("lmdb-noreadahead", [100])
    (one,) = judge(cell(rule), {"ours": [row("open", [100])], "rival": [slow], "other": [fast]})
    assert one.against.endswith(" py-lmdb, no readahead")
    assert one.reached is True


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ({"rival": [row("lmdb", [1])]}, "ours: not measured"),
        ({"ours": [row("open", [9], wrong="it died")], "rival": [row("lmdb", [1])]}, "it died"),
        ({"ours": [row("open", [9])], "rival": [row("lmdb", [1], wrong="hung")]}, "rival: hung"),
        ({"ours": [row("open", [])], "rival": [row("lmdb", [1])]}, "ours: not measured"),
        ({"ours": [row("open", [9])]}, "rival: not measured"),
    ],
)
def test_who_failed_or_is_missing_has_no_figure_but_a_reason(
    rows: dict[str, list[Row]], word: str
) -> None:
    (one,) = judge(cell(Rule("cold", "words", ("ours",), ("rival",), least=0.1)), rows)
    assert (one.figure, one.reached, one.state) == (None, None, "no figure")
    assert word in one.note
    made = show.Measured(cell(Rule("cold", "words", ("ours",), ("rival",), least=0.1)), rows=rows)
    assert told_of(made).status == 2


def test_a_cell_that_could_not_be_measured_says_why_in_every_verdict() -> None:
    found = judge(CELLS[0], {}, why="there is no /dev/fuse")
    assert len(found) == sum(len(rule.lanes) for rule in CELLS[0].rules)
    assert all(one.note == "there is no /dev/fuse" for one in found)


def test_a_link_bounds_what_can_be_reached() -> None:
    rule = Rule("model", "words", ("ours",), ("rival",), least=3.0, bounded_by_link=True)
    rows = {"ours": [row("open", [140])], "rival": [row("lmdb", [100])]}
    (one,) = judge(cell(rule), rows, link=150.0)
    assert one.note == "the link lets pass 1.50 times this py-lmdb's rate"


def test_the_status_tells_reached_and_missed() -> None:
    rule = Rule("cold", "words", ("ours",), ("rival",), least=1.5)
    for rate, expected in ((200.0, 0), (120.0, 1)):
        rows = {"ours": [row("open", [rate])], "rival": [row("lmdb", [100])]}
        assert told_of(show.Measured(cell(rule), rows=rows)).status == expected
    assert told_of().status == 2


# --- the cells ------------------------------------------------------------------------------


def test_every_rule_speaks_of_lanes_that_are_there_and_of_known_contestants() -> None:
    assert {rule.group for one in CELLS for rule in one.rules} == set(cells.GROUPS)
    assert len({one.name for one in CELLS}) == len(CELLS)
    for one in CELLS:
        names = {lane.name for lane in one.lanes}
        assert one.dataset in cells.SETS
        for lane in one.lanes:
            assert lane.name == PLAIN or lane.contestant in CONTESTANTS
        for rule in one.rules:
            assert set(rule.lanes) | set(rule.rivals) <= names
            assert bool(rule.rivals) != bool(rule.number)
        if PLAIN in names:
            assert one.transfers
            assert all(CONTESTANTS[name].raw for name in one.plain)


def test_a_setting_that_failed_in_the_calibration_is_told_beside_the_others() -> None:
    tried = [row("fio-direct", [70.0]), row("fio-queue", [90.0])]
    tried.append(row("fio-uring-32", [], wrong="not permitted"))
    assert show.calibration_text(tried) == (
        "fio O_DIRECT, 8 in flight 90, fio O_DIRECT 70 MiB/s; "
        "fio O_DIRECT, io_uring, 32 in flight failed (not permitted)"
    )
    assert show.calibration_text(tried[2:]).startswith("none ran; ")


def test_a_group_brings_the_lanes_that_its_rules_need_and_no_others() -> None:
    (one,) = cells.chosen(["cpu"], ["3k"], CELLS[:1])
    assert {rule.group for rule in one.rules} == {"cpu"}
    assert "py-lmdb, no readahead" not in {lane.name for lane in one.lanes}
    assert "py-lmdb" in {lane.name for lane in one.lanes}
    assert cells.chosen(["cpu"], ["192k"], CELLS[:1]) == []


def test_a_wrong_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--only", "nothing"], ["--use", "3k"], ["--rounds", "0"], ["--scale", "2"]):
        with pytest.raises(SystemExit):
            run.parse(words)
        assert words[0] in capsys.readouterr().err


# --- as a whole -----------------------------------------------------------------------------


def stick(tmp_path: Path, *words: str) -> list[str]:
    files = ["--json", str(tmp_path / "t.json"), "--html", str(tmp_path / "t.html")]
    return [
        sys.executable, "-m", "benchmarks.targets.run", "--data", str(tmp_path / "data"),
        "--scale", "0.001", "--rounds", "1", "--drop-data-only", *files, *words,
    ]  # fmt: skip


def test_it_measures_from_making_the_data_to_the_page(tmp_path: Path) -> None:
    command = stick(tmp_path, "--only", "random", "--sets", "3k")
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    plain = json.loads((tmp_path / "t.json").read_text())
    assert [one["cell"]["name"] for one in plain["cells"]] == ["cold, random batches, 3k"]
    for one in plain["cells"]:
        assert one["verdicts"]
        for verdict in one["verdicts"]:
            assert verdict["figure"] > 0, verdict
        for found in one["findings"]["rows"]:
            assert len(found["samples"]) == 1
            assert found["wrong"] is None
    assert "fio --name" in done.stdout or "plain" in done.stdout
    words = "".join(parsed((tmp_path / "t.html").read_text()).itertext())
    for word in ("cold, random batches, 3k", "0.80 of fio", "kernel readahead", "page cache"):
        assert word in words
    assert (tmp_path / "data" / "fixed-3k" / "data.mdb.prov").exists()
    # A second time it finds them there.
    made = (tmp_path / "data" / "fixed-3k" / "data.mdb").stat().st_mtime_ns
    asked = run.parse(["--data", str(tmp_path / "data"), "--scale", "0.001"])
    assert run.prepare("3k", asked, run.Console(quiet=True)).name == "fixed-3k"
    assert (tmp_path / "data" / "fixed-3k" / "data.mdb").stat().st_mtime_ns == made


def given(tmp_path: Path, small: Any, *words: str) -> Any:
    """Return options to measure the small data set once."""
    use = ["--data", str(tmp_path), "--use", f"3k={small.path}", "--rounds", "1"]
    return run.parse([*use, *words])


def test_an_environment_that_is_given_is_measured_as_it_lies(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in small.path.iterdir())
    report = Told("targets")
    wanted = [one for one in CELLS if one.name == "warm, random keys, 3k"]
    monkeypatch.setattr(run, "CELLS", wanted)
    asked = given(tmp_path, small, "--scale", "0.01")
    run.run(asked, report, run.Console(quiet=True))
    assert {one.figure is not None for one in report.verdicts} == {True}
    assert sorted(path.name for path in small.path.iterdir()) == before
    assert not list(tmp_path.iterdir())


def test_a_contestant_that_differs_or_is_absent_is_reported(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [one for one in CELLS if one.name == "warm, random keys, 3k"]
    monkeypatch.setattr(run, "CELLS", wanted)
    monkeypatch.setattr(run.micro, "missing", lambda _work: {"open": "no open here"})
    begun = run.Workplace.start

    def start(bench: Any, one: Row, **options: Any) -> Outcome:
        outcome: Outcome = begun(bench, one, **options)
        return replace(outcome, digest=outcome.digest + (one.trial.name == "read"))

    monkeypatch.setattr(run.Workplace, "start", start)
    report = Told("targets")
    asked = given(tmp_path, small, "--scale", "0.01", "--no-verify")
    run.run(asked, report, run.Console(quiet=True))
    notes = " ".join(one.note for one in report.verdicts)
    assert "no open here" in notes
    assert "add up to something else" in notes
    assert report.status == 2


def test_a_place_that_this_machine_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "a-compiler-that-is-not-there")
    with pytest.raises(Missing, match="a-compiler-that-is-not-there"):
        with places.at("model", Path("/nowhere")):
            pass


def test_runs_at_the_capped_device_are_held_to_its_caps(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [one for one in CELLS if one.name == "capped device, random batches, 3k"]
    monkeypatch.setattr(run, "CELLS", [replace(wanted[0], bytes_max=1 << 40)])
    # At 50 requests a second the first ones take a while already.
    monkeypatch.setattr(places, "CAP_REQUESTS", 50)
    report = Told("targets")
    asked = given(tmp_path, small, "--no-verify", "--drop-data-only")
    run.run(asked, report, run.Console(quiet=True))
    (made,) = report.facts["cells"]
    if made["why"]:
        pytest.skip(made["why"])
    (one,) = report.verdicts
    assert one.note == ""
    ((sample_of_it,),) = [row["samples"] for row in made["findings"]["rows"]]
    assert sample_of_it["seconds"] > 0.1
    assert "50 requests/s" in made["facts"]["place"]


def mounts() -> str:
    return "".join(line for line in Path("/proc/mounts").read_text().splitlines() if "pfs" in line)


def test_a_signal_ends_runs_and_mounts_and_keeps_what_was_measured(tmp_path: Path) -> None:
    before = mounts()
    command = stick(tmp_path, "--only", "model", "--sets", "3k", "--rounds", "500")
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 40
    while mounts() == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.poll() is not None:
        said, _ = process.communicate()
        if "no figure" in said:
            pytest.skip("this machine cannot mount the modelled store")
        raise AssertionError(said)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=40)
    assert process.returncode == 143, said
    assert "Interrupted" in said
    assert mounts() == before
    assert json.loads((tmp_path / "t.json").read_text())["ended"] == "Interrupted"
    data = str(tmp_path / "data")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert data.encode() not in path.read_bytes()
        except OSError:
            continue
