"""A run of ``lmdbio bench`` reads what it should, whoever does it.

Goal: every contestant hands out the same records, in every access, with one process or several;
fio and ior read as many bytes; a failure is told in its own words.
Method: each is run in this process on a small data set; ior is a stand-in that checks how it is
called.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest
from rich.console import Console

import lmdbio
from lmdbio.bench import (
    layout,
    measure,
    micro,
    plain,
    processes,
    readers,
    runner,
    shards,
    trials,
    workplace,
)
from lmdbio.bench.datasets import Dataset
from lmdbio.bench.trials import CONTESTANTS, Contestant, Trial
from tests.support import databases, long_run
from tests.support.benching import options, order


@pytest.mark.parametrize("module", [lmdb, lmdbio], ids=["lmdb", "lmdbio"])
@pytest.mark.parametrize(
    "runs", [[range(5)], [range(3, 6)], [range(4), range(8, 12)], [range(4, 8), range(12, 16)]]
)
def test_a_cursor_steps_over_what_belongs_to_others(
    small: Dataset, module: Any, runs: list[range]
) -> None:
    seen: list[tuple[int, bytes]] = []
    parts = readers.by_cursor(module, str(small.path), runs)
    totals = readers.consume(parts, check=lambda *record: seen.append(record))
    content = databases.content(small.path)
    assert seen == [(i, content[i][1]) for run in runs for i in run]
    assert totals[0] == len(seen)


def test_a_value_is_looked_at_before_the_next_one_is_asked_for() -> None:
    told: list[str] = []

    def values() -> Iterator[bytes]:
        for index in range(2):
            told.append(f"asked {index}")
            yield b"12"

    parts = [(range(3), values())]
    totals = readers.consume(parts, check=lambda index, _: told.append(f"checked {index}"))
    assert told == ["asked 0", "checked 0", "asked 1", "checked 1"]
    assert totals == (2, 4)  # what came, not the three that were asked for
    assert readers.consume([(range(3), values())]) == (2, 4)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_plain_reader_that_fails_ends_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    asked: list[int] = []

    def preadv(_fd: int, _buffers: object, offset: int) -> int:
        asked.append(offset)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main == (error is KeyboardInterrupt):
            raise error
        time.sleep(0.001)
        return 1

    path = tmp_path / "file"
    path.touch()
    monkeypatch.setattr(os, "preadv", preadv)
    read = plain.reading(range(1000), 1, str(path), direct=False, depth=3)
    with pytest.raises(error):
        read()
    assert len(asked) < 100


def tried(access: str, processes: int) -> Iterator[tuple[str, Contestant]]:
    """Yield contestants; of several processes each one is tried in one of the three accesses."""
    for number, (name, one) in enumerate(CONTESTANTS.items()):
        needs_mpi = one.kind == "reader" and processes > 1
        tries_all = processes == 1 or long_run.IS_LONG
        its_one = list(one.accesses)[number % len(one.accesses)]
        if access in one.accesses and not needs_mpi and (tries_all or access == its_one):
            yield name, one


@pytest.mark.more
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("access", trials.ACCESSES)
def test_every_contestant_reads_the_records_it_should(
    small: Dataset, tmp_path: Path, access: str, processes: int
) -> None:
    first = order(small, tmp_path, access, processes, Trial("lmdb"))
    expected = runner.run_processes(replace(first, verify=True)).digest
    assert expected
    for name, one in tried(access, processes):
        if one.kind in ("fio", "ior"):
            continue
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


@pytest.mark.more
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("access", trials.ACCESSES)
def test_records_of_several_files_are_read_by_those_that_can(
    tmp_path: Path, access: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "OPEN_MAX", 2)
    (tmp_path / "set").mkdir()
    for file, count in enumerate((30, 0, 7, 50)):
        path = tmp_path / "set" / f"{file}.lmdb"
        with databases.open_writable(path, 1, subdir=False, map_size=1 << 22) as env:
            values = [databases.value((file, i), 2000 + 37 * i) for i in range(count)]
            databases.write(env, [(b"%03d" % i, each) for i, each in enumerate(values)])
    work = micro.describe(
        tmp_path / "set", access, processes=processes, batch=16, bytes_max=100_000
    )
    assert (work.files, work.total) == (4, 87)
    absent, digests, read = micro.missing(work), set(), 0
    with workplace.workplace() as bench:
        for name in {"lmdb", *(name for name, _ in tried(access, processes))} - {*absent}:
            made = bench.order(bench.row(Trial(name), work), verify=True)
            digests.add(runner.run_processes(made).digest)
            made = replace(made, verify=False)
            sample = runner.run_processes(made).sample
            assert sample is not None and sample.value_bytes
            read += 1
    assert len(digests) == 1 and read >= 3
    assert {"open", "plain-pread", "fio-direct"} <= set(absent)


@pytest.mark.more
@pytest.mark.parametrize("access", ["sequential", "random"])
def test_checksums_see_the_same_bytes_whoever_adds_them_up(
    small: Dataset, tmp_path: Path, access: str
) -> None:
    first = order(small, tmp_path, access, 1, Trial("lmdb"))
    first = replace(first, consume=True, warm=True)
    expected = runner.run(first)
    assert expected is not None
    assert expected.digest
    content = databases.content(small.path)
    words = sum(readers.word_sum(content[int(i)][1]) for i in first.workload.indices()) % 2**64
    names = [name for name, one in CONTESTANTS.items() if not one.raw]
    for trial in trials.make_trials(first.workload, names, []):
        if trial.skipped:
            continue
        outcome = runner.run(replace(first, trial=trial))
        assert outcome is not None
        if trial.contestant.arrays:
            assert outcome.digest == words, trial.name
        else:
            assert outcome.digest == expected.digest, trial.name
        assert outcome.sample is not None
        assert outcome.sample.value_bytes == first.workload.value_bytes


@pytest.mark.parametrize("size", [0, 1, 7, 8, 3081, 196_608 + 5])
def test_every_byte_counts_in_a_checksum(size: int) -> None:
    value = os.urandom(size)
    for weigh in (readers.word_sum, readers.checksum(size)):
        assert weigh(value) == weigh(memoryview(value))
        for at in {0, size // 2, size - 1} if size else ():
            changed = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
            assert weigh(changed) != weigh(value)


@pytest.mark.more
@pytest.mark.parametrize("access", trials.ACCESSES)
def test_a_named_database_is_read_by_everybody(tmp_path: Path, access: str) -> None:
    with lmdb.open(str(tmp_path / "set"), max_dbs=2, map_size=1 << 26) as env:
        for name in (b"images", b"labels"):
            handle = env.open_db(name)
            with env.begin(db=handle, write=True) as txn:
                for i in range(600):
                    txn.put(b"%06d" % i, name + os.urandom(3000))
    work = micro.describe(
        tmp_path / "set", access, processes=1, batch=64, bytes_max=1 << 30, db="labels"
    )
    assert (work.total, work.count) == (600, 576)
    keys = str(workplace.write_keys(work, tmp_path / "keys"))
    names = [name for name, one in CONTESTANTS.items() if not one.raw]
    made = [trial for trial in trials.make_trials(work, names, []) if not trial.skipped]
    orders = [runner.Order(work, trial, keys=keys, verify=True) for trial in made]
    digests = {one.trial.name: runner.run_processes(one).digest for one in orders}
    assert set(digests.values()) == {digests["lmdb"]}
    other = runner.run_processes(replace(orders[0], workload=replace(work, db="images")))
    assert other.digest != digests["lmdb"]


def test_a_run_tells_the_most_memory_that_it_took(small: Dataset) -> None:
    def read() -> tuple[int, int]:
        held = bytearray(os.urandom(1 << 20) * 64)
        return 1, len(held)

    sample = measure.timed(read, small.data_file, cold=True)
    if sample.peak_bytes is None:
        pytest.skip("this kernel does not forget a peak")
    assert 60 << 20 < sample.peak_bytes < 200 << 20
    again = measure.timed(lambda: (1, 1), small.data_file, cold=True)
    assert again.peak_bytes is not None
    assert again.peak_bytes < 16 << 20


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
