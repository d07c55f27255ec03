"""The demonstration measures and compares what it says.

Goal: a difference of one byte, or a record left out, is found; legs read what they are called;
medians and ratios are right; a dead or hung contestant is told.
Method: small data sets; made-up figures with known answers where only what is shown matters.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest
from rich.console import Console

import lmdbio
from lmdbio.bench import demo, measure, micro, processes, readers
from lmdbio.bench.datasets import Dataset, Recipe
from lmdbio.bench.demo import Demonstration
from lmdbio.bench.findings import Findings, Row
from lmdbio.bench.page import demo_page
from lmdbio.bench.runner import Digest, Outcome
from lmdbio.bench.trials import Trial, make_trials
from lmdbio.bench.workplace import Workplace
from tests.support import ROOT
from tests.support.benching import parsed, sample, workload

QUIET = Console(quiet=True)


def legs_of(made: Dataset, folder: Path) -> list[Findings]:
    bench = Workplace(folder)
    bench.environment = demo.TWO_NODES
    return [demo.leg_of(bench, made, leg, 5) for leg in demo.LEGS]


@pytest.mark.more
@pytest.mark.mpi
def test_every_contestant_hands_out_every_value(small: Dataset, tmp_path: Path) -> None:
    legs = legs_of(small, tmp_path)
    rows = [row for leg in legs for row in leg.rows]
    bench = Workplace(tmp_path)
    micro.verify(bench, rows, QUIET)
    assert [(row.verified, row.wrong) for row in rows] == [(True, "")] * 9
    counts = [leg.workload.count for leg in legs]
    assert counts == [small.count, small.count, demo.BATCH, small.count]
    assert rows[2].work.count == small.count // demo.BATCH * demo.BATCH


@pytest.mark.mpi
def test_the_ranks_of_a_reader_are_timed_together_on_two_nodes(
    small: Dataset, tmp_path: Path
) -> None:
    bench = Workplace(tmp_path)
    bench.environment = demo.TWO_NODES
    row = legs_of(small, tmp_path)[0].rows[-1]
    outcome = bench.start(row)
    assert outcome.nodes == 2
    assert outcome.sample is not None
    assert outcome.sample.records == row.work.count
    assert outcome.sample.value_bytes == row.work.value_bytes
    assert outcome.sample.seconds > 0


class Tampering:
    """Stands in for py-lmdb's module and changes or drops one record."""

    def __init__(self, drop: bool) -> None:
        self.drop = drop

    def open(self, path: str, **options: Any) -> Any:
        env = lmdb.open(path, **options)
        drop = self.drop

        class Transaction:
            def __enter__(self) -> Any:
                self.txn = env.begin()
                return self

            def __exit__(self, *_: object) -> None:
                self.txn.abort()

            def cursor(self) -> Any:
                for index, (key, value) in enumerate(self.txn.cursor()):
                    if index == 100 and drop:
                        return
                    changed = value[:-1] + bytes([value[-1] ^ 1])
                    yield key, changed if index == 99 and not drop else value

        class Environment:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                env.close()

            def begin(self, **_: object) -> Any:
                return Transaction()

        return Environment()


@pytest.mark.parametrize("drop", [False, True])
def test_one_wrong_byte_and_one_missing_record_are_found(small: Dataset, drop: bool) -> None:
    sums = []
    for module in (lmdb, Tampering(drop)):
        digest = Digest()
        parts = readers.by_cursor(module, str(small.path), [range(small.count)])
        readers.consume(parts, check=digest)
        sums.append(digest.sum)
    assert sums[0] != sums[1]


@pytest.mark.parametrize(
    ("share", "count", "title"),
    [
        (1.0, 1000, "shuffled, whole epoch"),
        (1 / 32, 20 * 256, "shuffled, 20 batches†"),
        (1 / 32, 256, "shuffled, 1 batch†"),
        (1 / 32, 100, "shuffled, 1 batch†"),
    ],
)
def test_a_leg_says_how_many_batches_it_reads(share: float, count: int, title: str) -> None:
    assert demo.Leg("random", share, demo.AT_RANDOM).title(count) == title


def test_timing_a_cold_file_sees_it_fetched(small: Dataset, tmp_path: Path) -> None:
    found = Workplace(tmp_path).start(legs_of(small, tmp_path)[0].rows[0]).sample
    assert found is not None
    assert found.records == small.count
    if found.cold and found.fetched_bytes is not None:
        assert found.fetched_bytes >= found.value_bytes


def test_a_file_just_read_is_resident_and_a_dropped_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    path.read_bytes()
    assert measure.resident_share(path) == 1.0
    if not measure.drop_cache(path):
        pytest.skip("this file system keeps its pages in memory")
    assert measure.resident_share(path) < measure.COLD_SHARE_MAX


def test_an_empty_file_is_resident_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert measure.resident_share(path) == 0.0


def test_the_machine_is_described(tmp_path: Path) -> None:
    found = measure.machine(tmp_path)
    assert found.cores >= 1
    assert found.memory_bytes > 1 << 20
    assert found.file_system != "unknown"
    assert f"{found.cores} cores" in found.facts["machine"]


def made_up(tmp_path: Path, *, cold: bool = True, wrong: str = "") -> Demonstration:
    """py-lmdb at 50 MiB/s, a rival of it at 100, and one who cannot run here."""
    work = workload("sequential", count=10, value_bytes=100 << 20)

    def row(name: str, called: str, *seconds: float, skipped: str = "") -> Row:
        trial = Trial(name, bytes=100 << 20, skipped=skipped)
        runs = [Outcome(sample(one, cold=cold), 10) for one in seconds]
        return Row(trial, work, runs=runs, verified=bool(seconds), called=called)

    rows = [
        row("lmdb", "rival", 1.0, 2.0, 4.0), row("open", "ours", 0.5, 1.0, 5.0),
        row("reader", "absent", skipped="there is no mpiexec"),
    ]  # fmt: skip
    rows[1].wrong, rows[1].verified = wrong, not wrong
    machine = measure.machine(tmp_path)
    return Demonstration(machine, legs=[Findings(machine, work, rows, title="set, in order")])


def test_medians_spreads_and_ratios_are_what_they_say(tmp_path: Path) -> None:
    plain = demo.as_json(made_up(tmp_path))
    assert plain["rows"][0]["mib_per_second"] == {
        "median": 50.0,
        "min": 25.0,
        "max": 100.0,
        "interval": None,
    }
    assert [row["ratio_to_lmdb"] for row in plain["rows"]] == [1.0, 2.0, None]
    assert plain["rows"][0]["cpu_seconds_per_gib"]["median"] == pytest.approx(10.24)
    assert plain["equal"] is True
    assert plain["verified"] == 20
    assert json.loads(json.dumps(plain)) == plain


def shown(made: Demonstration, width: int = 160) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    demo.show(made, console)
    return console.export_text()


def test_the_table_names_everyone_and_marks_warm_figures(tmp_path: Path) -> None:
    cold, warm = shown(made_up(tmp_path)), shown(made_up(tmp_path, cold=False))
    for word in ("rival", "ours", "there is no mpiexec", "2.00", "equal: 20 values"):
        assert word in cold
    assert "*" not in cold.replace("in it where marked *", "")
    assert "WARM" in warm
    assert "50*" in warm


def figures(made: Demonstration) -> list[str]:
    """Return the lines of the conclusion that have a figure."""
    return [" ".join(line.split()) for line in demo.conclude(made).splitlines() if line[:1] == " "]


def test_it_ends_with_one_figure_for_each_way_of_reading(tmp_path: Path) -> None:
    made = made_up(tmp_path)
    slow = made_up(tmp_path).legs[0]  # takes py-lmdb 8 s, and lmdbio 2: 10 s in all, and 3
    for row, times in zip(slow.rows, (4, 2, 1), strict=True):
        row.runs = [
            replace(run, sample=replace(run.sample, seconds=run.sample.seconds * times))
            for run in row.runs
            if run.sample is not None
        ]
    part = replace(made.legs[0].workload, access="random")
    whole = replace(part, total=part.count)
    made.legs += [
        slow,
        replace(slow, workload=part),
        replace(slow, workload=whole),
        replace(made.legs[0], workload=whole, cold=False),
    ]
    assert figures(made) == [
        "in order 3.3",
        "shuffled, first batches 4.0",
        "shuffled, whole epoch 4.0",
        "shuffled, warm 2.0",
    ]
    text = " ".join(shown(made).split())
    assert "In short, py-lmdb's time over that of lmdbio's best reader" in text
    assert "Next: lmdbio bench PATH" in text


def test_the_conclusion_says_what_limits_it(tmp_path: Path) -> None:
    made = made_up(tmp_path)
    for order, is_said in ((None, False), (11, False), (9, True)):
        made.machine = replace(made.machine, reported_order=order)
        assert ("Here judge by the first batches" in demo.conclude(made)) is is_said
    made.datasets.append({"value_bytes": 1000})
    assert "too little to conclude from" in demo.conclude(made)
    assert "Read from memory" in demo.conclude(made_up(tmp_path, cold=False))
    made.legs.clear()
    assert demo.conclude(made).startswith("Nothing was measured")


def test_it_says_first_how_long_it_takes() -> None:
    assert demo.estimate(504, 5) == "6 minutes"
    assert demo.estimate(10, 1) == "a minute"


@pytest.mark.parametrize("width", [80, 100, 150])
def test_no_window_cuts_a_figure_or_a_name(tmp_path: Path, width: int) -> None:
    made = made_up(tmp_path)
    leg = made.legs[0]
    leg.title = "jpeg, shuffled, whole epoch"
    leg.rows[1].called = "lmdbio.Reader, 4 ranks on 2 nodes"
    for row in leg.rows[:2]:
        row.trial = replace(row.trial, bytes=100 * row.trial.bytes)
    text = shown(made, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for word in (leg.title, leg.rows[1].called, "2,500-10,000"):
        assert word in text


def test_a_difference_is_shown_and_means_not_equal(tmp_path: Path) -> None:
    made = made_up(tmp_path, wrong="its records differ from py-lmdb's")
    assert not made.equal
    assert "its records differ" in shown(made)
    assert "none differs" not in shown(made)


def test_a_contestant_that_was_not_verified_is_not_called_equal(tmp_path: Path) -> None:
    made = made_up(tmp_path)
    made.legs[0].rows[1].verified = False
    assert not made.equal
    assert not Demonstration(made.machine).equal


def test_the_page_has_a_bar_for_each_contestant_and_its_figures(tmp_path: Path) -> None:
    made = made_up(tmp_path)
    made.legs[0].rows[1].called = "a <b> reader"
    text = demo_page(made.legs, made.facts, made.notes)
    words = "".join(parsed(text).itertext())
    assert text.count('<svg class="bar"') == 2 * 2
    assert "a <b> reader" in words
    assert "2.00x" in words
    assert "set, in order" in words


def test_a_contestant_that_dies_is_told_with_its_last_words(
    small: Dataset, tmp_path: Path
) -> None:
    row = legs_of(small, tmp_path)[0].rows[0]
    row.work = replace(row.work, path="/nowhere")
    with pytest.raises(processes.RunFailed, match=r"py-lmdb.*nowhere"):
        Workplace(tmp_path).start(row)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no safe path")
def test_a_contestant_is_not_that_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lmdbio").mkdir()
    (tmp_path / "lmdbio" / "__init__.py").write_text("raise ImportError('a clone')")
    monkeypatch.chdir(tmp_path)
    tell = "import json, lmdbio; print(json.dumps({'file': lmdbio.__file__}))"
    command = [sys.executable, "-c", tell]
    found = processes.call(command, "lmdbio", processes.inherited(), 60.0)
    assert found == {"file": lmdbio.__file__}


def test_a_contestant_that_hangs_is_ended() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(processes.RunFailed, match="no answer after 1 s"):
        processes.call(command, "py-lmdb", processes.inherited(), 1.0)


def test_no_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    huge = Recipe("huge", "cifar", 1 << 60)
    with pytest.raises(OSError, match="MiB"):
        demo.run(tmp_path, tmp_path / "out", QUIET, recipes=(huge,))
    assert not (tmp_path / "huge").exists()


def test_py_lmdb_runs_at_its_better_readahead(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order with it, at random without: as these made-up seconds say."""
    legs = legs_of(small, tmp_path)

    def start(_bench: Any, row: Row, **_: Any) -> Outcome:
        better = (row.work.access == "sequential") == (row.trial.name == "lmdb")
        one = replace(sample(1.0 if better else 2.0), value_bytes=row.work.value_bytes)
        return Outcome(replace(one, seconds=one.seconds * row.work.value_bytes / 2**20))

    monkeypatch.setattr(Workplace, "start", start)
    made = Demonstration(measure.machine(tmp_path), legs=legs)
    demo.calibrate(Workplace(tmp_path), made, QUIET)
    names = [leg.rows[0].trial.name for leg in legs]
    assert names == ["lmdb", "lmdb-noreadahead", "lmdb-noreadahead", "lmdb"]
    assert len(made.notes) == 3
    assert "readahead off" in made.notes[1]
    assert make_trials(legs[0].workload, [names[1]], ())[0].contestant.readahead is False


@pytest.mark.mpi
@pytest.mark.more
def test_the_demonstration_runs_as_a_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from lmdbio.cli import main; main()", "demo", "--json"]
    sizes = ["--megabytes", "3", "--repeats", "1"]
    folders = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, *sizes, *folders],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["equal"] is True
    assert {row["leg"].partition(",")[0] for row in found["rows"]} == {"cifar", "jpeg"}
    assert sum("on 2 nodes" in row["title"] for row in found["rows"]) == 2
    assert all(
        row["skipped"] is None and row["samples"] and row["verified"] for row in found["rows"]
    )
    assert json.loads((tmp_path / "out" / "demo.json").read_text())["equal"] is True
    assert (tmp_path / "out" / "demo.html").exists()
