"""The cluster on one machine measures what it says, and leaves nothing behind.

Goal: shapes, turns, figures and verdicts are right; the command runs every kind of reader, all
read the same bytes, and what it tells adds up; a signal ends it with everything that it started
and mounted.
Method: made-up runs with known answers; the command on sets of a few megabytes, and its JSON held
against what the data sets themselves say.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster import cluster, counters, launch, rules, sweep
from benchmarks.cluster.results import CellResult, Figures, LaneResult
from benchmarks.cluster.sweep import PY_LMDB, SETS, Cell, Lane, Shape
from benchmarks.report import Verdict, summary
from lmdbio.records.records import Records
from tests.support import ROOT

CLUSTER = ROOT / "benchmarks" / "cluster"

MIB = 1 << 20
SECONDS_MAX = 120

# --- the plan ------------------------------------------------------------------------------


def test_strong_scaling_keeps_the_batch_and_weak_scaling_the_share_of_a_rank() -> None:
    shapes = [Shape(4, 2), Shape(8, 4)]
    made = list(sweep.cells(SETS["3k"], 6400, shapes, ("strong", "weak"), ("blocked",), share=2))
    sizes = {(one.scaling, one.shape.ranks): (one.batch, one.iterations) for one in made}
    assert sizes == {
        ("strong", 4): (100, 64), ("strong", 8): (100, 64),
        ("weak", 4): (8, 800), ("weak", 8): (16, 400),
    }  # fmt: skip
    assert {one.records for one in made} == {6400}


@pytest.mark.parametrize(("ranks", "nodes"), [(3, 2), (1, 2), (4, 0)])
def test_ranks_that_nodes_cannot_share_evenly_are_no_shape(ranks: int, nodes: int) -> None:
    with pytest.raises(ValueError, match="evenly"):
        Shape(ranks, nodes)


def test_lanes_are_turned_round_by_round_and_looked_at_first() -> None:
    lanes = sweep.mode_lanes(("py-lmdb", "coal", "stag", "plain"), (1, 3), ("pread", "direct"))
    names = [lane.name for lane in lanes]
    assert names == [
        PY_LMDB, "coal pread", "coal direct",
        "stag/1 pread", "stag/3 pread", "stag/1 direct", "stag/3 direct",
    ]  # fmt: skip
    plain = sweep.candidates(Shape(4, 2))
    assert len({lane.name for lane in plain}) == len(plain) == 24
    runs = sweep.in_turns(0, [*lanes, plain[0]], 2, MIB)
    assert [run.lane.name for run in runs if run.verifies] == names
    assert [run.lane for run in runs if run.round == 0] == [*lanes, plain[0]]
    assert [run.lane for run in runs if run.round == 1] == [plain[0], *reversed(lanes)]


def test_a_lane_that_sends_messages_is_there_over_each_transport_idle_and_busy() -> None:
    lanes = sweep.mode_lanes((PY_LMDB, "coal", "plain"), (1,))
    over_both = sweep.variants(lanes, ("mpi", "sockets"))
    assert [(one.name, one.transport) for one in over_both] == [
        (PY_LMDB, ""), ("coal", "mpi"), ("coal sockets", "sockets"),
    ]  # fmt: skip
    assert [one.name for one in sweep.variants(lanes, ("sockets",), has_busy=True)] == [
        PY_LMDB, f"{PY_LMDB} busy", "coal", "coal busy",
    ]  # fmt: skip


# --- figures and verdicts ------------------------------------------------------------------


def rank(number: int, *, reads: bool = True, **changes: Any) -> dict[str, Any]:
    phase = {"voluntary": 30, "involuntary": 2, "cpu_s": 0.5, "now": 4.0, "thread_cpu_s": 1.0}
    plain = {
        "rank": number, "node": number // 2, "reads": reads, "phase": phase, "seek_s": 1.0,
        "io_s": 2.0, "turn_s": 0.0, "wait_s": 0.0, "skew_s": 0.5, "open_s": 0.25, "read_s": 4.0,
        "sleep_s": 3.0, "early_switches": 3, "mode": {}, "stats": {}, "records": 50,
        "bytes": 150_000, "sum": 1, "first_wait_s": 1.0, "exposed_s": 0.03,
        "epochs": [],
    }  # fmt: skip
    return plain | changes


def told(seconds: float, **changes: Any) -> dict[str, Any]:
    ranks = [rank(0), rank(1, reads=False), rank(2, seek_s=3.0), rank(3, reads=False)]
    return {
        "error": "", "seconds": seconds, "reading_s": seconds / 2, "records": 200, "sum": 4,
        "value_bytes": 600_000, "needed": [400_000, 400_000], "delivered": [400_000, 404_000],
        "requests": 8, "seeks": 4, "link_busy_s": [1.0, 1.0], "late_ms": 0.1, "resident": 0.0,
        "ranks": ranks,
    } | changes  # fmt: skip


def lane(name: str, times: list[float], mode: str = "", **changes: Any) -> LaneResult:
    kind = {"py-lmdb": "py-lmdb", "plain": "plain"}.get(name, "reader")
    runs = [told(seconds, **changes) for seconds in times]
    return LaneResult(Lane(name, kind, mode), runs, 4)


def cell(*lanes: LaneResult, nodes: int = 4, dataset: str = "3k") -> CellResult:
    return CellResult(Cell(dataset, Shape(16, nodes), "strong", "blocked", 1024, 64), list(lanes))


def test_figures_are_of_those_who_read_and_add_up() -> None:
    one = Figures.of(told(8.0), plain=False)
    assert (one.seconds, one.reading_s) == (8.0, 4.0)
    assert one.seek_s == pytest.approx(2.0)  # of ranks 0 and 2
    assert one.rate == pytest.approx(800_000 / 4.0 / 1e6)
    assert one.amplified == pytest.approx(1.005)
    assert one.request_bytes == pytest.approx(804_000 / 8)
    assert one.switches == 4 * 35
    assert one.switches_per_record == pytest.approx(140 / 200)
    assert one.sleep_share == pytest.approx(0.75)
    assert one.cpu_s == pytest.approx(2.0)
    assert Figures.of(told(8.0), plain=True).needed == 600_000


def test_a_scan_counts_as_seeking() -> None:
    scans = told(8.0, ranks=[rank(0, mode={"locate": "scan"})])
    assert Figures.of(scans, plain=False).seek_s == pytest.approx(1.25)


@pytest.mark.parametrize("changes", [{"shape": Shape(8, 2)}, {"batch": 256}])
def test_a_small_cell_is_reported_and_not_judged(changes: dict[str, Any]) -> None:
    small = cell(
        lane(PY_LMDB, [80.0]), lane("coal", [70.0], "coal"), lane("stag", [60.0], "stag"),
        lane("plain", [9.0], value_bytes=800_000),
        lane("prov", [1.0], "prov", delivered=[420_000, 404_000]),
    )  # fmt: skip
    words = {one.words for one in rules.judge(small) if one.state == "NOT reached"}
    assert len(words) >= 4
    assert "too small" not in rules.in_short(small)
    small.cell = replace(small.cell, **changes)
    assert {one.state for one in rules.judge(small)} == {"reported", "reached"}
    assert {one.words for one in rules.judge(small) if one.bound} == {
        "everybody read the same bytes"
    }
    assert "1.3 times as fast" in rules.in_short(small)
    assert "too small to judge" in rules.in_short(small)


def verdict_of(made: CellResult, words: str) -> Verdict:
    found = [one for one in rules.judge(made) if words in one.words]
    assert len(found) == 1, [one.words for one in rules.judge(made)]
    return found[0]


@pytest.mark.parametrize(("seconds", "reached"), [(10.0, True), (11.2, False)])
def test_the_best_number_of_tokens_is_judged_against_the_best_plain_reader(
    seconds: float, reached: bool
) -> None:
    plain = lane("plain", [9.0, 9.0], value_bytes=800_000)
    made = cell(
        lane(PY_LMDB, [80.0, 90.0, 100.0]), lane("stag/1", [20.0], "stag"),
        lane("stag/2", [seconds], "stag"), plain,
    )  # fmt: skip
    one = verdict_of(made, "plain reads")
    assert (one.reached, one.bound) == (reached, ">= 0.9")
    assert one.figure == pytest.approx(9.0 / seconds)
    assert "stag/2" in one.note
    assert verdict_of(made, "LMDB, reading").figure == pytest.approx(90.0 / seconds)


def test_what_was_not_measured_is_no_figure_and_never_reached() -> None:
    absent = LaneResult(Lane("stag/1", "reader", "stag"), error="it died")
    one = verdict_of(cell(lane(PY_LMDB, [1.0]), absent), "LMDB, reading")
    assert (one.state, one.figure, one.reached) == ("no figure", None, None)
    assert "it died" in one.note


def test_bytes_that_differ_and_traffic_over_the_bound_are_not_reached() -> None:
    other = lane("prov", [1.0], "prov", delivered=[420_000, 404_000])
    other.sum = 5
    made = cell(lane(PY_LMDB, [1.0]), other)
    assert verdict_of(made, "same bytes").reached is False
    assert verdict_of(made, "needed, prov").reached is False
    assert verdict_of(cell(lane("prov", [1.0], "prov")), "needed, prov").reached is True
    (summed,) = [row for row in summary(rules.judge(made)).rows if "prov" in row[0]]
    assert list(summed[2:6]) == ["NOT reached", "", "1", ""]


@pytest.mark.parametrize(("compute_ms", "reached"), [(700.0, True), (100.0, None)])
def test_what_shows_beside_a_computation_that_takes_longer_is_judged(
    compute_ms: float, reached: bool | None
) -> None:
    """0.03 s of the 3 after the first batch: 1 per cent; reading took 2 s, computing 4 x that."""
    made = cell(lane("coal", [8.0], "coal"))
    made.cell = replace(made.cell, shape=Shape(1, 1), iterations=4, compute_ms=compute_ms)
    one = verdict_of(made, "beside computing, coal")
    assert one.figure == pytest.approx(0.01)
    assert one.reached is reached
    assert ("takes less than reading" in one.note) == (reached is None)
    assert not [v for v in rules.judge(cell(lane("coal", [8.0], "coal"))) if "beside" in v.words]


def placed(
    name: str, warm_s: float, *, file: int = 0, seen: int = 0, delivered: int = 808_000, **of: Any
) -> LaneResult:
    """A lane of two epochs, of which the second was to have ``file`` records, and had ``seen``."""
    sources = [{"0": {"file": (50, 1)}, "1": {"own": (50 - here, 1), "file": (here, 1)}}
               for here in (seen, 0, 0, 0)]  # fmt: skip
    ranks = [rank(number, epochs=[(2.0, 0.1), (2.0 + warm_s, 0.2)], sources=by,
                  stats={"late_records": 0, "gone_records": 0, "located_records": 0})
             for number, by in enumerate(sources)]  # fmt: skip
    records = [{"file": 200, "own": 0}, {"file": file, "own": 200 - file}]
    run = told(8.0, ranks=ranks, needed=[400_000] * 4, delivered=[delivered],
               simulated={"records": records})  # fmt: skip
    lane_of = Lane(name, "reader", "auto", policy="home", cache="memory=1G", **of)
    return LaneResult(lane_of, [run], 4)


@pytest.mark.parametrize("seen", [0, 3])
def test_counts_are_judged_by_what_was_simulated(seen: int) -> None:
    one = verdict_of(cell(placed("home", 1.0, seen=seen)), "not simulated so, home")
    assert (one.figure, one.reached) == (2.0 * bool(seen), not seen)


@pytest.mark.parametrize(("delivered", "reached"), [(808_000, True), (820_000, False)])
def test_a_file_that_fits_leaves_the_store_once(delivered: int, reached: bool) -> None:
    made = cell(placed("home", 1.0, delivered=delivered))
    made.cell = replace(made.cell, epochs=2)
    one = verdict_of(made, "in all epochs over the file's, home")
    assert one.figure == pytest.approx(delivered / 800_000) and one.reached is reached
    part = cell(placed("home", 1.0, file=9, seen=9))
    assert not [v for v in rules.judge(part) if "in all epochs" in v.words]


@pytest.mark.parametrize(("warm_s", "reached"), [(1.4, True), (1.5, False)])
def test_a_transport_is_judged_by_the_same_lane_over_mpi(warm_s: float, reached: bool) -> None:
    own = placed("home sockets", warm_s, transport="sockets")
    one = verdict_of(cell(placed("home", 1.0, transport="mpi"), own), "over sockets over that")
    assert one.figure == pytest.approx(1 / warm_s) and one.reached is reached
    assert not [v for v in rules.judge(cell(own)) if "over sockets" in v.words]


@pytest.mark.parametrize(("warm_s", "reached"), [(1.9, True), (2.1, False)])
def test_a_busy_main_thread_is_judged_by_one_that_sleeps(warm_s: float, reached: bool) -> None:
    busy = placed("home busy", warm_s, transport="mpi", is_busy=True)
    made = cell(placed("home", 1.0, transport="mpi"), busy)
    made.cell = replace(made.cell, shape=Shape(1, 1), compute_ms=1.0)
    assert verdict_of(made, "beside Python").reached is reached
    made.cell = replace(made.cell, shape=Shape(4096, 4))
    assert verdict_of(made, "beside Python").reached is None


def test_two_snapshots_of_the_store_make_a_run() -> None:
    def counts(bytes_: int, late_s: float) -> dict[str, Any]:
        link = {"requests": 1, "bytes": bytes_, "busy_s": bytes_ / 1e9}
        servers = [{"requests": bytes_ // MIB, "seeks": 2 * bytes_ // MIB},
                   {"requests": 5, "seeks": 1}]  # fmt: skip
        return {
            "mounts": [{"link": link, "servers": servers}],
            "answers": bytes_ // MIB, "late_s": late_s,
        }  # fmt: skip

    found = counters.between(counts(MIB, 0.5), counts(3 * MIB, 0.75))
    assert (found["delivered"], found["requests"], found["seeks"]) == ([2 * MIB], 2, 4)
    assert found["late_ms"] == pytest.approx(125)


# --- the command ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster-data")


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Where temporary files go; skips where this machine cannot have such a store."""
    lacking = cluster.missing()
    if lacking:
        pytest.skip(lacking)
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def environment(temporary: Path) -> dict[str, str]:
    root = str(CLUSTER.parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)}


def start(temporary: Path, data: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.cluster.run", "--data", str(data), "--mib", "4",
               "--ranks", "4", "--nodes", "2", "--sets", "3k", "--drop-data-only",
               "--limit-seconds", "60", *words]  # fmt: skip
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def nothing_left(temporary: Path) -> None:
    """No mount or file of the run."""
    assert str(temporary) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    assert not list(temporary.iterdir())


def report(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


@pytest.mark.mpi
def test_everybody_reads_the_same_and_what_is_told_adds_up(
    places: Path, data: Path, tmp_path: Path
) -> None:
    words = ("--modes", "py-lmdb,lmdb,prov,coal,stag,group", "--tokens", "1", "--rounds", "1")
    files = (tmp_path / "out.json", tmp_path / "out.html")
    process = start(places, data, *words, "--json", str(files[0]), "--html", str(files[1]))
    out, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode in (0, 1), out  # so little data decides nothing
    nothing_left(places)
    (made,) = report(files[0])["cells"]
    cell = made["cell"]
    records = cell["count"]
    assert cell["batch"] * (cell["iterations"] - 1) < records <= cell["batch"] * cell["iterations"]
    with Records(data / "4-mib" / "3k") as source:
        sizes = sum(len(source[i]) for i in range(records))
    assert {one["lane"]["name"] for one in made["lanes"]} == {
        PY_LMDB, "lmdb", "prov", "coal", "stag/1", "group",
    }  # fmt: skip
    assert len({one["sum"] for one in made["lanes"]}) == 1
    assert made["sums_agree"]
    for one in made["lanes"]:
        (run,) = one["runs"]
        assert (run["records"], run["value_bytes"]) == (records, sizes)
        assert sum(each["records"] for each in run["ranks"]) == records
        # 3 KB in a page of its own each; nodes share no record.
        assert sum(run["needed"]) == records * 4096
        assert sum(run["delivered"]) >= sum(run["needed"])
        assert run["requests"] > 0 and run["resident"] == 0.0
        assert 0 < run["reading_s"] <= run["seconds"]
        readers = sum(each["reads"] for each in run["ranks"])
        assert readers == (4 if "lmdb" in one["lane"]["name"] else 2)
    caffe = next(one for one in made["lanes"] if one["lane"]["name"] == PY_LMDB)
    # Each node walks over what the other one needs: the paper's R x B, and the tree.
    assert caffe["medians"]["amplified"] == pytest.approx(2.0, abs=0.1)
    assert "read/needed" in files[1].read_text(encoding="utf-8")


@pytest.mark.mpi
@pytest.mark.parametrize("transports", ["mpi,sockets", "sockets"])
def test_every_transport_reads_the_same_from_where_it_was_simulated_to(
    places: Path, data: Path, tmp_path: Path, transports: str
) -> None:
    """In the processes that mpiexec starts, and in those of torchrun."""
    lacking = launch.lacking(transports.split(","))
    if lacking:
        pytest.skip(lacking)
    file = tmp_path / "out.json"
    process = start(
        places, data, "--placements", "home", "--transports", transports,
        "--assignments", "strided", "--epochs", "2", "--rounds", "1", "--cache", "memory=1M",
        "--json", str(file)
    )  # fmt: skip
    out, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, out
    nothing_left(places)
    (made,) = report(file)["cells"]
    lanes = [one["lane"] for one in made["lanes"]]
    assert [one["transport"] for one in lanes] == transports.split(",")
    assert made["sums_agree"] and all(one["sum"] for one in made["lanes"])
    judged = [one for one in report(file)["verdicts"] if "not simulated so" in one["words"]]
    assert [one["figure"] for one in judged] == [0.0] * len(lanes)
    for one in made["lanes"]:
        (run,) = one["runs"]
        by = [each["sources"]["1"] for each in run["ranks"] if each["reads"]]
        assert all(one["peer"][0] > 0 for one in by), "no rows were exchanged"


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_ranks_and_mounts(
    places: Path, data: Path, tmp_path: Path, number: signal.Signals
) -> None:
    slow = ("--set", "server_mb_s=0.2", "--modes", "py-lmdb,plain", "--json", str(tmp_path / "j"))
    process = start(places, data, *slow)
    ranks: list[int] = []
    end = time.monotonic() + SECONDS_MAX
    while len(ranks) < 4 and time.monotonic() < end and process.poll() is None:
        ranks = running(places)
        time.sleep(0.05)
    assert len(ranks) >= 4, process.communicate(timeout=SECONDS_MAX)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    nothing_left(places)
    assert not running(places)


def running(temporary: Path) -> list[int]:
    """Ranks whose plan lies there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        is_rank = (
            any(word == b"benchmarks.cluster.rank" for word in words)
            and b"mpiexec" not in words[0]
        )
        if is_rank and any(word.startswith(bytes(temporary)) for word in words):
            found.append(int(path.parent.name))
    return found


def test_what_lacks_is_said_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cluster.run", "--data", str(tmp_path / "data")],
        cwd=ROOT,
        env=environment(tmp_path) | {"CC": "a-compiler-that-is-not-there"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 69, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()
