"""The demonstration measures and compares what it says.

Goal: a difference of one byte, or a record left out, is found; counters, medians and ratios are
right; a dead or hung contestant is told.
Method: a small data set; contestants are run in this process, except where starting one is the
point.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from rich.console import Console

from lmdbio.bench import contestants, demo, measure, processes, report
from lmdbio.bench.contestants import Job
from lmdbio.bench.datasets import Dataset, Recipe
from lmdbio.bench.demo_page import page
from tests.support import ROOT
from tests.support.benching import sample


def job(made: Dataset, contestant: str, **changes: Any) -> Job:
    base = Job(
        contestant=contestant,
        path=str(made.path),
        order=contestants.CONTESTANTS[contestant].order,
        count=made.count,
        total=made.count,
        digests=str(made.digest_file),
        keys=str(made.keys_file),
    )
    return replace(base, **changes)


@pytest.mark.parametrize("name", ["lmdb-order", "open-order", "lmdb-shuffled", "records-shuffled"])
def test_a_contestant_of_one_process_hands_out_every_value(small: Dataset, name: str) -> None:
    answer = contestants.run(job(small, name, verify=True))
    assert answer.wrong is None
    assert answer.verified == small.count


@pytest.mark.mpi
def test_the_ranks_of_a_reader_hand_out_every_value_on_two_nodes(small: Dataset) -> None:
    answer = processes.start(job(small, "reader-order", verify=True), seconds_max=60)
    assert answer.wrong is None
    assert answer.verified >= small.count
    assert answer.nodes == 2


@pytest.mark.mpi
def test_the_ranks_of_a_reader_are_timed_together(small: Dataset) -> None:
    answer = processes.start(job(small, "reader-order"), seconds_max=60)
    sample = measure.Sample(**(answer.sample or {}))
    assert sample.records >= small.count
    assert sample.value_bytes >= small.value_bytes
    assert sample.seconds > 0


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


@pytest.mark.parametrize(("drop", "word"), [(False, "record 99"), (True, "not handed out")])
def test_one_wrong_byte_and_one_missing_record_are_found(
    small: Dataset, monkeypatch: pytest.MonkeyPatch, drop: bool, word: str
) -> None:
    def prepare(work: Job, check: Any) -> Any:
        module = types.SimpleNamespace(open=Tampering(drop).open)
        return lambda: contestants.in_order(module, work, check)

    tampered = replace(contestants.CONTESTANTS["lmdb-order"], prepare=prepare)
    monkeypatch.setitem(contestants.CONTESTANTS, "lmdb-order", tampered)
    answer = contestants.run(job(small, "lmdb-order", verify=True))
    assert answer.wrong is not None
    assert word in answer.wrong


def test_a_job_of_an_eighth_reads_an_eighth_of_the_shuffle(small: Dataset) -> None:
    whole = job(small, "lmdb-shuffled")
    part = replace(whole, count=small.count // 8)
    assert np.array_equal(part.indices(), whole.indices()[: small.count // 8])
    assert sorted(whole.indices()) == list(range(small.count))
    assert contestants.run(replace(part, verify=True)).verified == small.count // 8


@pytest.mark.parametrize(
    ("share", "total", "count", "label"),
    [
        (1.0, 1000, 1000, "shuffled, whole epoch"),
        (1 / 32, 163_372, 20 * 256, "shuffled, 20 batches†"),
        (1 / 32, 4250, 256, "shuffled, 1 batch†"),
        (1 / 32, 100, 100, "shuffled, 1 batch†"),
    ],
)
def test_a_leg_reads_whole_batches_and_says_how_many(
    share: float, total: int, count: int, label: str
) -> None:
    leg = demo.Leg(contestants.SHUFFLED, share, ("lmdb-shuffled",))
    assert leg.count(total) == count
    assert leg.label(total) == label


def test_timing_a_cold_file_sees_it_fetched(small: Dataset) -> None:
    answer = contestants.run(job(small, "lmdb-order"))
    sample = measure.Sample(**(answer.sample or {}))
    assert sample.records == small.count
    assert sample.value_bytes == small.value_bytes
    assert sample.mib_per_second > 0
    if sample.cold and sample.fetched_bytes is not None:
        assert sample.fetched_bytes >= small.value_bytes


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


def made_report(tmp_path: Path, *, cold: bool = True, wrong: str | None = None) -> report.Report:
    rows = [
        report.Row("set", "in order", "rival", baseline=True, verified=10),
        report.Row("set", "in order", "ours", verified=10, wrong=wrong),
        report.Row("set", "in order", "absent", skipped="there is no mpiexec"),
    ]
    rows[0].samples = [sample(seconds, cold=cold) for seconds in (1.0, 2.0, 4.0)]
    rows[1].samples = [sample(seconds, cold=cold) for seconds in (0.5, 1.0, 5.0)]
    return report.Report(measure.machine(tmp_path), rows=rows)


def test_medians_spreads_and_ratios_are_what_they_say(tmp_path: Path) -> None:
    made = made_report(tmp_path)
    plain = report.as_json(made)
    assert plain["rows"][0]["mib_per_second"] == {"median": 50.0, "min": 25.0, "max": 100.0}
    assert [row["ratio"] for row in plain["rows"]] == [1.0, 2.0, None]
    assert plain["rows"][0]["cpu_seconds_per_gib"] == pytest.approx(10.24)
    assert plain["equal"] is True
    assert plain["verified"] == 20
    assert json.loads(json.dumps(plain)) == plain


def shown(made: report.Report, width: int = 160) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    report.show(made, console)
    return console.export_text()


def test_the_table_names_everyone_and_marks_warm_figures(tmp_path: Path) -> None:
    cold, warm = shown(made_report(tmp_path)), shown(made_report(tmp_path, cold=False))
    for word in ("rival", "ours", "there is no mpiexec", "2.00", "equal: 20 values"):
        assert word in cold
    assert "*" not in cold
    assert "WARM" in warm
    assert "50  (25-100) *" in warm


@pytest.mark.parametrize("width", [80, 100, 150])
def test_no_window_cuts_a_figure_or_a_name(tmp_path: Path, width: int) -> None:
    made = made_report(tmp_path)
    for row in made.rows:
        row.dataset, row.order = "jpeg", "shuffled, whole epoch"
        row.contestant = "lmdbio.Reader, 4 ranks on 2 nodes"
        row.setting = "readahead on (off: 1,044 MiB/s)"
    first = made.rows[0]
    first.samples = [replace(one, value_bytes=one.value_bytes * 100) for one in first.samples]
    text = shown(made, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for word in ("shuffled, whole epoch", made.rows[0].contestant, made.rows[0].setting):
        assert word in text
    assert "(2,500-10,000)" in text


def test_a_difference_is_shown_and_means_not_equal(tmp_path: Path) -> None:
    made = made_report(tmp_path, wrong="record 3: the value differs from py-lmdb's")
    assert not made.equal
    assert "NOT EQUAL" in shown(made)
    assert "record 3" in shown(made)


def test_a_contestant_that_was_not_verified_is_not_called_equal(tmp_path: Path) -> None:
    made = made_report(tmp_path)
    made.rows[1].verified = 0
    assert not made.equal
    assert not report.Report(made.machine).equal


def test_the_page_has_a_bar_for_each_run_contestant_and_its_figures(tmp_path: Path) -> None:
    made = made_report(tmp_path)
    made.rows[0].contestant = "a <b> reader"
    text = page(made)
    ran = [row for row in made.rows if row.samples]
    assert text.count('<svg class="bar"') == 2 * len(ran)
    assert "a &lt;b&gt; reader" in text and "<b> reader" not in text
    for row in ran:
        if not row.baseline:
            assert f"{made.ratio(row):.2f}x" in text


def test_a_contestant_that_dies_is_told_with_its_last_words(small: Dataset) -> None:
    with pytest.raises(processes.RunFailed, match=r"py-lmdb.*nowhere"):
        processes.start(job(small, "lmdb-order", path="/nowhere"))


def test_a_contestant_that_hangs_is_ended(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        processes, "command", lambda _: [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    with pytest.raises(processes.RunFailed, match="no answer after 1 s"):
        processes.start(job(small, "lmdb-order"), seconds_max=1.0)


def test_no_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    huge = Recipe("huge", "cifar", 1 << 60)
    with pytest.raises(OSError, match="MiB"):
        demo.run(demo.Plan(tmp_path, tmp_path / "out", recipes=(huge,)), Console(quiet=True))
    assert not (tmp_path / "huge").exists()


@pytest.mark.mpi
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
    assert {row["dataset"] for row in found["rows"]} == {"cifar", "jpeg"}
    assert all(row["skipped"] is None and row["samples"] for row in found["rows"])
    assert json.loads((tmp_path / "out" / "demo.json").read_text())["equal"] is True
    assert (tmp_path / "out" / "demo.html").exists()
