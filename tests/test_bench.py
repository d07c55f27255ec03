"""The benchmark harness measures and compares what it says.

Goal: data sets are what Caffe's converter would write; a difference of one byte, or a record
left out, is found; counters, medians and ratios are right; a dead or hung contestant is told.
``lmdbio bench`` gives everybody the same records or as many bytes, loses no sample, and leaves
no process behind; its page needs nothing but itself.
Method: tiny data sets; contestants are run in this process, except where starting one is the
point.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

import lmdbio
from lmdbio.bench import (
    contestants,
    datasets,
    demo,
    drawing,
    findings,
    layout,
    measure,
    micro,
    processes,
    readers,
    report,
    runner,
    screen,
    trials,
)
from lmdbio.bench.contestants import Job
from lmdbio.bench.datasets import Dataset, Recipe
from lmdbio.bench.findings import Findings, Row
from lmdbio.bench.page import page
from lmdbio.bench.runner import Order, Outcome
from lmdbio.bench.trials import CONTESTANTS, Trial, Workload
from lmdbio.cli import cli

SMALL = Recipe("small", "cifar", 8_000_000)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """About 2,600 raw images."""
    made, reused = datasets.ensure(SMALL, tmp_path_factory.mktemp("sets"))
    assert not reused
    return made


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


def parse_message(message: bytes) -> dict[int, int | bytes]:
    """Fields of a protobuf message: varints (wire type 0) and bytes (2)."""
    fields: dict[int, int | bytes] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        result = shift = 0
        while True:
            byte = message[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while at < len(message):
        field, wire = divmod(varint(), 8)
        if wire == 0:
            fields[field] = varint()
        else:
            assert wire == 2
            length = varint()
            fields[field] = message[at : at + length]
            at += length
    assert at == len(message)
    return fields


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31, 2**63])
def test_numbers_are_base_128(number: int) -> None:
    assert parse_message(b"\x08" + datasets.varint(number)) == {1: number}


def test_raw_images_are_datum_messages_with_a_shape() -> None:
    message = datasets.datum(b"p" * 3072, 7, encoded=False, shape=(3, 32, 32))
    assert parse_message(message) == {1: 3, 2: 32, 3: 32, 4: b"p" * 3072, 5: 7, 7: 0}


def test_encoded_images_are_distinct_jpeg_files_of_realistic_sizes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    made, _ = datasets.ensure(Recipe("jpeg", "jpeg", 20_000_000), tmp_path)
    sizes, files = [], set()
    with lmdb.open(str(made.path), readonly=True, lock=False) as env, env.begin() as txn:
        for index, (key, value) in enumerate(txn.cursor()):
            assert key.startswith(b"%08d_n" % index)
            assert key.endswith(b".JPEG")
            fields = parse_message(value)
            assert set(fields) == {4, 5, 7}
            assert fields[7] == 1
            data = fields[4]
            assert isinstance(data, bytes)
            sizes.append(len(data))
            files.add(data)
            if index < 5:
                picture = image.open(io.BytesIO(data))
                picture.load()
                assert picture.format == "JPEG"
    assert len(files) == len(sizes) == made.count
    assert 80_000 < np.median(sizes) < 140_000
    assert min(sizes) > 18_000
    assert len(set(sizes)) > 0.9 * len(sizes)


def test_a_transaction_is_committed_every_1000_puts(small: Dataset) -> None:
    with lmdb.open(str(small.path), readonly=True, lock=False) as env:
        # Opening commits nothing; the last, incomplete thousand has a commit of its own.
        assert env.info()["last_txnid"] == -(-small.count // datasets.COMMIT_PUTS)
        assert env.stat()["entries"] == small.count


def test_an_intact_data_set_is_reused_and_a_damaged_one_written_again(tmp_path: Path) -> None:
    recipe = replace(SMALL, value_bytes_min=400_000)
    made, _ = datasets.ensure(recipe, tmp_path)
    again, reused = datasets.ensure(recipe, tmp_path)
    assert reused
    assert again == made
    with made.data_file.open("r+b") as file:
        file.seek(made.file_bytes // 2)
        byte = file.read(1)
        file.seek(made.file_bytes // 2)
        file.write(bytes([byte[0] ^ 0xFF]))
    third, reused = datasets.ensure(recipe, tmp_path)
    assert not reused
    assert third.content == made.content


def test_another_recipe_or_a_lost_manifest_means_writing(tmp_path: Path) -> None:
    recipe = replace(SMALL, value_bytes_min=100_000)
    made, _ = datasets.ensure(recipe, tmp_path)
    assert datasets.existing(replace(recipe, seed=2), made.path) is None
    assert datasets.existing(replace(recipe, value_bytes_min=200_000), made.path) is None
    datasets.manifest(made.path).write_text("{", encoding="utf-8")
    assert datasets.existing(recipe, made.path) is None


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

            def begin(self) -> Any:
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


def sample(seconds: float, *, cold: bool = True) -> measure.Sample:
    return measure.Sample(
        seconds=seconds,
        cpu_seconds=seconds / 2,
        records=10,
        value_bytes=100 << 20,
        fetched_bytes=110 << 20,
        read_calls=3,
        major_faults=0,
        device_requests=7,
        device_bytes=110 << 20,
        cold=cold,
    )


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


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.save_picture(made_report(tmp_path), tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


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
        cwd=Path(__file__).resolve().parents[1],
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
    assert (tmp_path / "out" / "demo.png").exists()


# --- lmdbio bench: what is pure ------------------------------------------------------------


def workload(access: str, processes: int = 1, **changes: Any) -> Workload:
    base = Workload(
        path="set", data_file="set/data.mdb", access=access, processes=processes, batch=64,
        count=640, total=1000, value_bytes=640 * 3000, page_bytes=640 * 4096,
        file_bytes=1000 * 4096,
    )  # fmt: skip
    return replace(base, **changes)


@pytest.mark.parametrize("access", trials.ACCESSES)
@pytest.mark.parametrize("processes", [1, 3, 8])
def test_the_processes_share_the_records_without_gap_or_repeat(
    access: str, processes: int
) -> None:
    work = workload(access, processes)
    parts = [np.concatenate(work.batches(rank)) for rank in range(processes)]
    every = np.concatenate(parts)
    assert len(every) == len(set(every.tolist())) == work.count
    assert set(every.tolist()) == set(work.indices().tolist())
    if access != "random":
        assert every.max() == work.count - 1
        for rank, part in enumerate(parts):
            assert [i for run in work.runs(rank) for i in run] == part.tolist()


def test_strided_is_caffes_order_and_sequential_one_run_each() -> None:
    work = workload("strided", 4)
    assert [len(part) for part in work.batches(1)] == [16] * 10
    assert work.runs(1)[:2] == [range(16, 32), range(80, 96)]
    assert workload("sequential", 4).runs(1) == [range(160, 320)]


@pytest.mark.parametrize(
    ("extents", "pages"),
    [
        ([], 0),
        ([(0, 0)], 0),
        ([(16, 100), (200, 3000)], 1),
        ([(4096, 4097)], 2),
        ([(4000, 200)], 2),
        ([(8192, 100), (0, 100), (8400, 9000)], 4),
        ([(0, 40_000), (4096, 100)], 10),
    ],
)
def test_pages_are_counted_once(extents: list[tuple[int, int]], pages: int) -> None:
    table = np.array(extents, np.uint64).reshape(-1, 2)
    assert trials.page_bytes(table[:, 0], table[:, 1]) == pages * 4096


@pytest.mark.parametrize(
    ("total", "file_bytes", "batch", "bytes_max", "records"),
    [
        (1000, 1 << 20, 100, 1 << 30, 1000),
        (1050, 1 << 20, 100, 1 << 30, 1000),
        (1000, 1 << 20, 100, 1 << 19, 500),
        (1000, 1 << 20, 100, 1, 100),
        (50, 1 << 20, 50, 1 << 30, 50),
    ],
)
def test_a_part_of_a_data_set_is_whole_batches(
    total: int, file_bytes: int, batch: int, bytes_max: int, records: int
) -> None:
    assert trials.records_wanted(total, file_bytes, batch, bytes_max) == records


@pytest.mark.parametrize("access", trials.ACCESSES)
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("transfer", [4096, 65536])
def test_plain_reads_stay_inside_and_never_meet(
    access: str, processes: int, transfer: int
) -> None:
    work = workload(access, processes)
    made = work.layout(transfer)
    assert made is not None
    offsets = [offset for rank in range(processes) for offset in made.offsets(rank)]
    assert len(offsets) == len(set(offsets)) == made.requests
    assert made.requests * transfer == made.bytes <= work.page_bytes
    assert made.bytes > work.page_bytes - processes * max(made.block, transfer)
    assert all(offset % transfer == 0 for offset in offsets)
    assert max(offsets) + transfer <= work.file_bytes


def test_a_stride_has_iors_blocks() -> None:
    made = workload("strided", 4).layout(4096)
    assert made == layout.Layout(4096, 16 * 4096, 10, 4)
    assert list(made.offsets(1))[:2] == [16 * 4096, 17 * 4096]
    assert list(made.offsets(1))[16] == 80 * 4096


def test_a_transfer_that_does_not_fit_is_left_out_and_one_that_is_odd_refused() -> None:
    assert workload("sequential").layout(64 << 20) is None
    with pytest.raises(ValueError, match="multiple"):
        workload("sequential").layout(1000)
    made = trials.make_trials(workload("sequential"), ["plain-pread"], [4096, 64 << 20])
    assert [bool(trial.skipped) for trial in made] == [False, True]


def test_contestants_are_chosen_by_name_group_and_pattern() -> None:
    assert trials.choose(["read", "lmdb"]) == ["lmdb", "read"]
    assert trials.choose(["lmdb*"]) == ["lmdb", "lmdb-noreadahead"]
    assert trials.choose(["all"]) == list(CONTESTANTS)
    assert set(trials.choose(["raw"])) >= {"plain-pread", "fio-direct", "ior-direct"}
    with pytest.raises(ValueError, match="'nobody'"):
        trials.choose(["nobody"])


def test_who_cannot_take_part_is_named_with_the_reason() -> None:
    missing = {"fio-direct": "fio is not installed"}
    names = ["lmdb", "records", "fio-direct", "ior-direct"]
    made = trials.make_trials(workload("random"), names, [4096], missing)
    assert [trial.skipped for trial in made] == [
        "", "reads in order only", "fio is not installed", "takes a whole file at random",
    ]  # fmt: skip
    assert trials.turns(made, 2) == [[made[0]], [made[0]]]


def test_every_other_round_goes_backwards() -> None:
    made = trials.make_trials(workload("sequential"), ["lmdb", "open", "read"], [])
    assert trials.turns(made, 3) == [made, made[::-1], made]


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (50.0, 3.0), (90.0, 4.6), (100.0, 5.0)])
def test_percentiles_lie_between_neighbours(share: float, value: float) -> None:
    assert findings.percentile([5.0, 1.0, 4.0, 2.0, 3.0], share) == pytest.approx(value)
    assert findings.percentile([7.0], share) == 7.0


@pytest.mark.parametrize("top", [0.003, 0.9, 7.0, 236.0, 1799.0, 2.5e6])
def test_ticks_are_few_and_reach_the_top(top: float) -> None:
    ticks = drawing.nice_ticks(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top > ticks[-2] - 1e-9
    assert 3 <= len(ticks) <= 7
    spanned = drawing.log_ticks(top, 30 * top)
    assert spanned[0] <= top
    assert spanned[-1] >= 30 * top


def made_findings(access: str = "sequential", path: str = "set") -> Findings:
    """py-lmdb at 100 and 50 MiB/s, Records.read at 200, plain reads at 100 and 400."""
    work = workload(access, path=path, page_bytes=100 << 20)
    rates = {
        Trial("lmdb", bytes=100 << 20): 100, Trial("lmdb-noreadahead", bytes=100 << 20): 50,
        Trial("read", bytes=100 << 20): 200, Trial("plain-direct", 4096, 50 << 20): 100,
        Trial("plain-direct", 1 << 20, 50 << 20): 400,
    }  # fmt: skip
    rows = []
    for trial, rate in rates.items():
        one = replace(sample(trial.bytes / 2**20 / rate), value_bytes=trial.bytes)
        runs = [
            Outcome(replace(one, seconds=one.seconds * factor), 10, (0.001, 0.002, 0.009))
            for factor in (1.0, 0.5, 2.0)
        ]
        rows.append(Row(trial, runs=runs, verified=not trial.contestant.raw))
    rows.append(Row(Trial("fio-direct", 4096, skipped="fio is not installed"), ("fio", "a b")))
    return Findings(measure.machine(Path()), work, rows, repeats=3, began="<now>", notes=["a & b"])


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
        assert set(row["mib_per_second"]) == {"median", "min", "max"}
    assert plain["rows"][-1]["skipped"] == "fio is not installed"
    assert plain["rows"][2]["ratio_to_lmdb"] == pytest.approx(2.0)


def parsed(text: str) -> xml.etree.ElementTree.Element:
    """The page, which is XML as well as HTML."""
    return xml.etree.ElementTree.fromstring(text.partition("\n")[2])


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


def test_a_page_of_nothing_is_still_a_page() -> None:
    found = made_findings()
    for row in found.rows:
        row.runs = []
    found.interrupted = True
    assert "Interrupted" in "".join(parsed(page(found)).itertext())
    assert not found.sound


@pytest.mark.parametrize("width", [80, 150])
def test_the_table_of_lmdbio_bench_fits_and_marks_warm_figures(width: int) -> None:
    found = made_findings()
    first = found.rows[0].runs[0]
    assert first.sample is not None
    found.rows[0].runs[0] = replace(first, sample=replace(first.sample, cold=False))
    console = Console(record=True, width=width, file=io.StringIO())
    screen.show(found, console)
    text = console.export_text()
    assert "100*" in text
    assert "WARM" in text
    assert "fio is not installed" in text
    table = [line for line in text.splitlines() if "py-lmdb, no readahead" in line]
    assert table
    assert "…" not in text


# --- lmdbio bench: runs --------------------------------------------------------------------


@pytest.mark.parametrize("module", [lmdb, lmdbio], ids=["lmdb", "lmdbio"])
@pytest.mark.parametrize(
    "runs", [[range(5)], [range(3, 6)], [range(4), range(8, 12)], [range(4, 8), range(12, 16)]]
)
def test_a_cursor_steps_over_what_belongs_to_others(
    small: Dataset, module: Any, runs: list[range]
) -> None:
    seen: list[tuple[int, int]] = []
    totals = readers.by_cursor(
        module, str(small.path), runs, lambda index, key, _: seen.append((index, int(key[:8])))
    )
    assert seen == [(i, i) for run in runs for i in run]
    assert totals[0] == len(seen)


def options(made: Dataset, out: Path, **changes: Any) -> micro.Options:
    base = micro.Options(
        path=made.path, access="sequential", contestants=("lmdb", "read", "plain-direct"),
        transfers=(65536,), processes=1, batch=64, repeats=2, cold=True, seconds_max=60.0,
        bytes_max=1 << 20, json_file=out / "bench.json", html_file=out / "bench.html",
    )  # fmt: skip
    return replace(base, **changes)


def order(made: Dataset, tmp_path: Path, access: str, processes: int, trial: Trial) -> Order:
    work, _ = micro.describe(options(made, tmp_path, access=access, processes=processes))
    keys = micro.write_keys(work, tmp_path / "keys")
    made_trials = trials.make_trials(work, [trial.name], [trial.transfer or 65536])
    return Order(work, made_trials[0], keys=str(keys))


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("access", trials.ACCESSES)
def test_every_contestant_reads_the_records_it_should(
    small: Dataset, tmp_path: Path, access: str, processes: int
) -> None:
    first = order(small, tmp_path, access, processes, Trial("lmdb"))
    expected = runner.run_processes(replace(first, verify=True)).digest
    assert expected
    for name, one in CONTESTANTS.items():
        if one.kind in ("fio", "ior") or access not in one.accesses:
            continue
        if one.kind == "reader" and processes > 1:
            continue  # needs MPI
        made = replace(first, trial=replace(first.trial, name=name))
        if one.raw:
            bytes_wanted = first.workload.layout(65536)
            assert bytes_wanted is not None
            made = replace(made, trial=Trial(name, 65536, bytes_wanted.bytes))
            outcome = runner.run_processes(made)
            assert outcome.sample is not None
            assert outcome.sample.value_bytes == bytes_wanted.bytes
            continue
        assert runner.run_processes(replace(made, verify=True)).digest == expected, name
    outcome = runner.run_processes(first)
    assert outcome.sample is not None
    assert outcome.sample.value_bytes == first.workload.value_bytes
    assert len(outcome.laps) == (first.workload.iterations * processes) * (access == "random")


def test_a_process_that_fails_is_told_with_its_words(small: Dataset, tmp_path: Path) -> None:
    made = order(small, tmp_path, "sequential", 1, Trial("read"))
    lost = replace(made, workload=replace(made.workload, path="/nowhere"))
    with pytest.raises(RuntimeError, match="nowhere"):
        runner.run_processes(lost)


@pytest.mark.mpi
def test_the_ranks_of_a_reader_read_what_py_lmdb_does(small: Dataset, tmp_path: Path) -> None:
    given = options(
        small, tmp_path, access="strided", processes=2, contestants=("reader",), repeats=1
    )
    found = micro.run(given, Console(quiet=True))
    assert found.rows[0].wrong == ""
    assert found.rows[0].verified
    assert len(found.rows[0].runs) == 1


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
@pytest.mark.parametrize("access", trials.ACCESSES)
def test_fio_reads_as_many_bytes_as_it_should(small: Dataset, tmp_path: Path, access: str) -> None:
    made = order(small, tmp_path, access, 2, Trial("fio-direct", 4096))
    data = made.workload.data_file
    command = layout.fio_command(made.layout, data, direct=True, depth=1)
    outcome = runner.run_command(replace(made, command=tuple(command)))
    assert outcome.sample is not None
    assert outcome.sample.records == made.layout.requests
    assert outcome.sample.seconds > 0


IOR = """#!{python}
import json, sys
given = dict(zip(sys.argv[1:-1], sys.argv[2:]))
if "--version" in sys.argv: sys.exit()
assert "-k" in sys.argv and "-w" not in sys.argv
size = int(given["-b"]) * int(given["-s"])
with open(given["-o"], "rb") as file:
    assert len(file.read(size)) == size
summary = [word for word in sys.argv if word.startswith("summaryFile=")][0].partition("=")[2]
print("WARNING: a word that is no JSON {{")
json.dump({{"tests": [{{"Results": [[
    {{"access": "write", "totalTime": 9.0}}, {{"access": "read", "bwMiB": 1.0, "totalTime": 0.25}}
]]}}]}}, open(summary, "w"))
"""


def test_ior_is_run_on_a_link_and_its_own_time_is_taken(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "ior"
    program.parent.mkdir()
    program.write_text(IOR.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(processes, "mpiexec", lambda: None)
    given = options(small, tmp_path, contestants=("ior-pread", "ior-direct"), repeats=1)
    found = micro.run(given, Console(quiet=True))
    assert [row.wrong for row in found.rows] == ["", ""]
    for row in found.rows:
        (outcome,) = row.runs
        assert outcome.sample is not None
        assert outcome.sample.seconds == 0.25
        assert str(small.path) not in " ".join(row.command)
    assert "--posix.odirect" in found.rows[1].command
    assert small.data_file.exists()


def test_figures_of_fio_and_ior_that_are_none_are_refused() -> None:
    for text in ("", "{}", '{"jobs": []}', "fio: error"):
        with pytest.raises(ValueError, match="fio gave no figures"):
            layout.fio_figures(text)
        with pytest.raises(ValueError, match="ior gave no figures"):
            layout.ior_seconds(text)


def test_a_bench_writes_every_sample_and_a_page(small: Dataset, tmp_path: Path) -> None:
    found = micro.run(options(small, tmp_path / "new"), Console(quiet=True))
    assert found.sound
    assert [len(row.runs) for row in found.rows] == [2, 2, 2]
    assert [row.verified for row in found.rows] == [True, True, False]
    plain = json.loads((tmp_path / "new" / "bench.json").read_text())
    assert [len(row["samples"]) for row in plain["rows"]] == [2, 2, 2]
    for row in plain["rows"][:2]:
        assert all(one["value_bytes"] == found.workload.value_bytes for one in row["samples"])
    assert found.workload.count % 64 == 0
    parsed((tmp_path / "new" / "bench.html").read_text())


def answering(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0, **wrong: int) -> list[str]:
    """Puts figures of no meaning in the place of runs; returns who ran, in order."""
    ran: list[str] = []

    def start(bench: Any, row: Row, *, warm: bool = False, verify: bool = False) -> Outcome:
        name = row.trial.name
        if verify:
            return Outcome(digest=7 + wrong.get(name, 0))
        ran.append(name)
        time.sleep(seconds)
        raw = row.trial.contestant.raw
        size = row.trial.bytes if raw else bench.work.value_bytes
        return Outcome(replace(sample(1.0), value_bytes=size))

    monkeypatch.setattr(micro.Workplace, "start", start)
    return ran


def test_contestants_alternate_and_who_differs_is_not_timed(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = answering(monkeypatch, read=1)
    given = options(small, tmp_path, contestants=("lmdb", "open", "read", "plain-pread"))
    found = micro.run(given, Console(quiet=True))
    assert ran == ["lmdb", "open", "plain-pread", "plain-pread", "open", "lmdb"]
    assert "differ" in found.rows[2].wrong
    assert not found.sound


def test_no_round_begins_that_would_end_too_late(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = answering(monkeypatch, seconds=0.2)
    given = options(small, tmp_path, contestants=("lmdb",), repeats=50, seconds_max=1.0)
    found = micro.run(given, Console(quiet=True))
    assert 1 <= len(ran) <= 5
    assert any(note.startswith(f"Stopped after {len(ran)} of 50") for note in found.notes)


def test_without_fio_and_ior_the_others_run_and_the_page_says_so(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    given = options(
        small, tmp_path, contestants=("lmdb", "plain-pread", "fio-direct", "ior-pread")
    )
    found = micro.run(given, Console(quiet=True))
    assert found.sound
    assert len(found.measured) == 2
    text = "".join(parsed((tmp_path / "bench.html").read_text()).itertext())
    assert "fio is not installed" in text
    assert "ior is not installed" in text


def test_warm_runs_leave_the_page_cache_alone_and_say_so(small: Dataset, tmp_path: Path) -> None:
    given = options(small, tmp_path, contestants=("plain-pread",), repeats=1, cold=False)
    found = micro.run(given, Console(quiet=True))
    assert found.state.startswith("WARM, as asked")
    assert measure.resident_share(small.data_file) == 1.0


def test_a_file_that_stays_in_memory_is_called_warm(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch)
    cold = sample(1.0, cold=False)
    monkeypatch.setattr(sys.modules[__name__], "sample", lambda *_: cold)
    found = micro.run(options(small, tmp_path), Console(quiet=True))
    assert "could not be put out of the page cache" in found.state
    assert any("marked *" in note for note in found.notes)


def bench_cli(*words: str) -> Any:
    return CliRunner().invoke(cli, ["bench", *words])


def test_a_wrong_use_is_told() -> None:
    assert "nobody" in bench_cli("x", "--contestants", "nobody").output
    assert "no size" in bench_cli("x", "--transfer", "4Q").output
    assert "multiple" in bench_cli("x", "--transfer", "1000").output
    assert bench_cli("x", "--processes", "9").exit_code == 2
    assert "train_lmdb" in bench_cli("--help").output


def test_what_is_no_data_set_is_refused_by_name(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.mdb"
    wrong.write_bytes(bytes(100_000))
    with lmdb.open(str(tmp_path / "empty")):
        pass
    for path, word in ((wrong, "wrong.mdb"), (tmp_path / "empty", "no records")):
        result = bench_cli(str(path), "--html", str(tmp_path / "out" / "bench.html"))
        assert word in str(result.exception)
    assert isinstance(bench_cli(str(tmp_path / "nowhere")).exception, FileNotFoundError)
    assert not (tmp_path / "out").exists()


def running(word: str) -> list[int]:
    """Processes whose command line has ``word`` in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if word.encode() in words and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def test_ctrl_c_leaves_no_process_and_keeps_what_was_measured(
    small: Dataset, tmp_path: Path
) -> None:
    page_file = tmp_path / "bench.html"
    words = ["bench", str(small.path), "--html", str(page_file), "--repeats", "1000"]
    words += ["--contestants", "lmdb,plain-pread", "--transfer", "64K"]
    code = "import sys; from lmdbio.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=Path(__file__).resolve().parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    marks = (f'"path": "{small.path}"', '"verify": false')
    deadline = time.monotonic() + 30
    while not set(running(marks[0])) & set(running(marks[1])) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(1.5)  # so that some runs are complete
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert running(marks[0]) == []
    plain = json.loads(page_file.with_suffix(".json").read_text())
    assert plain["interrupted"] is True
    assert sum(len(row["samples"]) for row in plain["rows"]) >= 1
    assert "Interrupted" in "".join(parsed(page_file.read_text()).itertext())
