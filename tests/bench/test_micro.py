"""``lmdbio bench`` as a whole: order of events, files, wrong uses, ends.

Goal: contestants alternate; no sample is lost; whatever ends it, no process is left behind.
Method: where only the order matters, runs are replaced by figures of no meaning; signals go to a
process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest
from click.testing import CliRunner
from rich.console import Console

from lmdbio.bench import measure, micro, processes
from lmdbio.bench.datasets import Dataset
from lmdbio.bench.findings import Row
from lmdbio.bench.runner import Outcome
from lmdbio.bench.workplace import Workplace
from lmdbio.cli import cli
from lmdbio.system.signals import ended_by_signals
from tests.support import ROOT
from tests.support.benching import options, parsed, sample


@pytest.mark.more
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

    def start(_bench: Any, row: Row, *, verify: bool = False, waiting: Any = None) -> Outcome:
        name = row.trial.name
        if verify:
            return Outcome(digest=7 + wrong.get(name, 0))
        ran.append(name)
        time.sleep(seconds)
        raw = row.trial.contestant.raw
        size = row.trial.bytes if raw else row.work.value_bytes
        return Outcome(replace(sample(1.0), value_bytes=size))

    monkeypatch.setattr(Workplace, "start", start)
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
    shares = []
    # A kernel that reclaims ahead of need (DAMON) takes pages at any moment, now and then most.
    while len(shares) < 5 and max(shares, default=0.0) <= 0.99:
        found = micro.run(given, Console(quiet=True))
        assert found.state.startswith("WARM, as asked")
        shares.append(measure.resident_share(small.data_file))
    assert max(shares) > 0.99


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
    assert "a size must be" in bench_cli("x", "--transfer", "4Q").output
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


def wait_for(wanted: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while not wanted() and time.monotonic() < deadline:
        time.sleep(0.02)
    return wanted()


def begin_bench(small: Dataset, page_file: Path, *words: str) -> subprocess.Popen[str]:
    words = ("bench", str(small.path), "--html", str(page_file), "--repeats", "1000", *words)
    code = "import sys; from lmdbio.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.more
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_process_and_keeps_what_was_measured(
    small: Dataset, tmp_path: Path, number: signal.Signals
) -> None:
    page_file = tmp_path / "bench.html"
    process = begin_bench(
        small, page_file, "--contestants", "lmdb,plain-pread", "--transfer", "64K"
    )
    marks = (f'"path": "{small.path}"', '"verify": false')

    def timed() -> set[int]:
        return set(running(marks[0])) & set(running(marks[1]))

    assert wait_for(lambda: bool(timed()))
    # Once another one runs, the first one's figures are there.
    first = timed()
    assert wait_for(lambda: bool(timed() - first) and not timed() & first)
    process.send_signal(number)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + number, said
    assert running(marks[0]) == []
    plain = json.loads(page_file.with_suffix(".json").read_text())
    assert plain["interrupted"] is True
    assert sum(len(row["samples"]) for row in plain["rows"]) >= 1
    assert "Interrupted" in "".join(parsed(page_file.read_text()).itertext())


@pytest.mark.mpi
def test_ranks_with_sessions_of_their_own_end_as_well(small: Dataset, tmp_path: Path) -> None:
    words = ["--contestants", "reader", "--access", "strided", "--processes", "2"]
    process = begin_bench(small, tmp_path / "bench.html", *words)
    mark = f'"path": "{small.path}"'
    # mpiexec and the ranks at least.
    assert wait_for(lambda: len(running(mark)) >= 3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert wait_for(lambda: running(mark) == [], 5)


#: Has a child in a session of its own, as fio's jobs are, and waits for ever.
HANGING = """import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]],
                 start_new_session=True)
time.sleep(600)
"""


def test_a_run_that_hangs_is_told_of_and_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = f"{tmp_path}/hanging"
    waited: list[float] = []
    command = [sys.executable, "-c", HANGING, mark]
    with pytest.raises(processes.RunFailed, match=r"somebody: no answer after 2 s"):
        processes.call(command, "somebody", dict(os.environ), 2.0, waited.append)
    assert waited
    assert waited[0] < 1.9
    assert wait_for(lambda: running(mark) == [], 5)


def test_the_limit_of_a_run_can_be_set_and_is_told(small: Dataset, tmp_path: Path) -> None:
    given = options(small, tmp_path, contestants=("lmdb", "plain-direct"), limit_seconds=0.05)
    found = micro.run(given, Console(quiet=True))
    assert len(found.rows) == 2
    assert all("no answer after 0.05 s" in row.wrong for row in found.rows)
    assert "no answer after 0.05 s" in (tmp_path / "bench.html").read_text()
    assert not found.sound


def test_outside_of_the_main_thread_signals_are_left_alone() -> None:
    failed: list[BaseException] = []

    def inside() -> None:
        try:
            with ended_by_signals():
                pass
        except BaseException as error:
            failed.append(error)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert not failed
    with ended_by_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_json_goes_to_standard_output_and_bars_to_standard_error(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch)
    html, every = tmp_path / "out" / "page.html", tmp_path / "all.json"
    out = ["--html", str(html), "--json-file", str(every)]
    done = bench_cli(str(small.path), *out, "--json", "--contestants", "plain-pread")
    assert json.loads(done.stdout) == json.loads(every.read_text())
    assert "verify" not in done.stdout
    done = bench_cli(str(small.path), *out, "--contestants", "plain-pread")
    assert "measure" in done.stderr and "measure " not in done.stdout
    assert "opening and of the first" in " ".join(done.stdout.split())


def test_a_folder_that_cannot_be_written_names_the_option(small: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, words in (
        (tmp_path / "file", "is a file, not a folder: name another folder with --html"),
        (Path("/proc/nothing"), "name another folder with --html"),
    ):
        done = bench_cli(str(small.path), "--html", str(folder / "page.html"))
        assert words in str(done.exception) and str(folder) in str(done.exception)


def test_the_demonstration_wants_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(
        cli, ["demo", "--data", str(tmp_path / "file"), "--out", str(tmp_path / "out")]
    )
    assert "is a file, not a folder: name another folder with --data" in str(done.exception)
