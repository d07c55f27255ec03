"""Traces: whole files of what was done when, and nothing where none was asked for.

Goal: every surface's trace is valid by the rules of the trace event format, and says the same as
``stats()``; so it stays after exceptions, Ctrl-C, kill and fork; what had to be dropped is told;
off means no file and no spans. Method: traces of small real databases and of the memory engine,
whose requests take a known time; processes of their own where they end badly.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio import _core
from lmdbio.cli import cli
from lmdbio.observe import active, timeline, tracing
from tests.support import databases
from tests.support.in_memory import InMemory, memory_engine

COUNT = 3000
VALUE_BYTES = 3000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracing") / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, ((key, key * (VALUE_BYTES // 8)) for key in databases.keys(COUNT)))
    env.close()
    return folder


@pytest.fixture(autouse=True)
def no_rank_and_nothing_left_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in tracing.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield
    assert active.trace is None


def events(trace: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    return [
        event
        for event in trace["traceEvents"]
        if all(event.get(name) == value for name, value in wanted.items())
    ]


def sound(path: str | Path) -> dict[str, Any]:
    trace = timeline.load(path)
    assert timeline.check(trace) == []
    return trace


def total(trace: dict[str, Any], stage: str) -> float:
    return sum(event["dur"] for event in events(trace, name=stage, ph="X")) / 1e6


# --- what a trace says --------------------------------------------------------------------


def test_a_trace_of_records_says_what_stats_say(path, tmp_path):
    with lmdbio.trace(tmp_path / "t.json") as trace:
        with lmdbio.Records(path, readahead=False, engine="pread") as records:
            for seed in range(5):
                records.read(np.random.default_rng(seed).integers(0, COUNT, 64))
            batches = records.stats()  # what iterating reads for its objects has no plan
            assert len(list(records)) == COUNT
            assert records[7] == b"%08d" % 7 * (VALUE_BYTES // 8)
        stats = records.stats()
    read = sound(trace.path)
    for stage in ("locate", "plan", "submit", "copy"):
        assert total(read, stage) == pytest.approx(getattr(stats, f"{stage}_seconds"), abs=1e-5)
    waits = total(read, "wait") + total(read, "stream ahead")
    assert waits == pytest.approx(stats.wait_seconds, abs=1e-5)
    plans = events(read, name="plan")
    assert sum(event["args"]["gap_bytes"] for event in plans) == batches.gap_bytes
    cached = sum(event["args"]["requests"] for event in events(read, name="from the page cache"))
    requests = events(read, cat="request")
    assert len(requests) + cached >= batches.requests
    assert {event["args"]["file"] for event in requests} == {str(path / "data.mdb")}
    (process,) = events(read, ph="M", name="process_name")
    assert str(os.getpid()) in process["args"]["name"]
    assert threading.current_thread().name in {
        event["args"]["name"] for event in events(read, ph="M", name="thread_name")
    }


def test_a_trace_of_iteration_and_gets_has_what_only_c_saw(path, tmp_path):
    with lmdbio.trace(tmp_path / "t.json") as trace:
        with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
            assert sum(1 for _ in databases.scanning(txn.cursor())) == COUNT
            assert txn.get(b"%08d" % 8)
            stats = env.stats()
    read = sound(trace.path)
    for stage in ("locate", "plan", "wait", "copy"):
        assert total(read, stage) == pytest.approx(getattr(stats, f"{stage}_seconds"), rel=1e-3)
    located = sum(event["args"]["records"] for event in events(read, name="locate"))
    assert 0 < located <= stats.located_records
    assert events(read, cat="request")


def test_a_trace_of_a_reader_shows_its_thread_and_its_blocks(path, tmp_path):
    mode = lmdbio.Mode(block_iterations=10)
    with lmdbio.trace(tmp_path / "t.json") as trace:
        with lmdbio.Reader(path, 10, iterations=60, mode=mode) as reader:
            for batch in reader:
                del batch
        stats = reader.stats()
    read = sound(trace.path)
    names = {event["args"]["name"] for event in events(read, ph="M", name="thread_name")}
    assert "lmdbio-root" in names
    assert len(events(read, ph="b", name="block")) == stats.blocks == 6
    filled = total(read, "wait for reads") + total(read, "publish")
    assert filled == pytest.approx(stats.fill_seconds, abs=1e-5)
    blocks = [event["args"]["block"] for event in events(read, name="publish")]
    assert blocks == list(range(stats.blocks))
    assert total(read, "wait for a block") == pytest.approx(stats.wait_seconds, abs=1e-5)


def slow(requests: int, depth: int, delay_us: int = 0) -> tuple[InMemory, _core.Engine, Any, Any]:
    engine, file = memory_engine(bytes(requests * 4096), depth, delay_us=delay_us)
    into = np.empty(requests * 4096, np.uint8)
    reads = np.empty(requests, _core.READ)
    reads["offset"] = np.arange(requests) * 4096
    reads["length"] = reads["needed"] = 4096
    reads["into"] = reads["offset"] + np.uint64(into.ctypes.data)
    return file, engine, reads, into


def test_requests_tell_how_long_they_waited_for_a_thread_and_for_the_storage(tmp_path):
    _, engine, reads, into = slow(24, depth=3, delay_us=20_000)
    with lmdbio.trace(tmp_path / "t.json") as trace:
        with engine, engine.submit(reads, into) as ticket:
            ticket.wait()
        counts = engine.counts()
    read = sound(trace.path)
    requests = events(read, cat="request")
    assert [event["args"]["bytes"] for event in requests] == [4096] * 24
    assert {event["args"]["offset"] for event in requests} == set(range(0, 24 * 4096, 4096))
    assert min(event["dur"] for event in requests) >= 20_000
    (fared,) = timeline.requests(read)
    assert fared.count == 24 and fared.service_ms[0] >= 20
    # Three at a time: the last three waited while seven others went before them.
    assert fared.queue_ms[2] >= 7 * 20 and 1 <= fared.depth <= 3.0001
    assert counts.queued_requests == 24
    assert counts.service_ns >= 24 * 20_000_000
    in_flight = [event["args"]["remote 0"] for event in events(read, ph="C") if event["args"]]
    assert max(in_flight) == 3 and min(in_flight) == 0
    lanes = {event["tid"] for event in requests}
    assert len(lanes) <= 4


@pytest.fixture(autouse=True)
def engines_numbered_from_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core.ring, "traced", [])


def test_a_request_that_fails_is_in_the_trace(tmp_path):
    file, engine, reads, into = slow(8, depth=1)
    file.script(fail_every=3, sys_errno=5)
    with lmdbio.trace(tmp_path / "t.json") as trace:
        with engine, engine.submit(reads, into) as ticket, pytest.raises(OSError):
            ticket.wait()
    read = sound(trace.path)
    assert [event for event in events(read, cat="request") if "failed" in event["args"]]
    assert timeline.requests(read)[0].failed == 1


# --- bounds -------------------------------------------------------------------------------


def test_what_the_ring_had_no_room_for_is_counted(tmp_path):
    more = 1000
    _, engine, reads, into = slow(_core.ring.capacity + more, depth=2, delay_us=0)
    with lmdbio.trace(tmp_path / "t.json") as trace:
        with trace._lock:  # nothing is written meanwhile
            with engine, engine.submit(reads, into) as ticket:
                ticket.wait()
        trace.close()
    read = sound(trace.path)
    assert len(events(read, cat="request")) == _core.ring.capacity
    assert timeline.dropped(read) == more == trace.dropped


def test_spans_that_come_too_fast_are_dropped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(tracing, "PENDING_MAX", 10)
    with lmdbio.trace(tmp_path / "t.json") as trace:
        with trace._lock:
            for at in range(25):
                tracing.note("wait", at, at + 1)
    read = sound(trace.path)
    assert len(events(read, name="wait")) == 10 and timeline.dropped(read) == 15


def test_a_file_grows_no_larger_than_was_said(tmp_path):
    with lmdbio.trace(tmp_path / "t.json", size_bytes_max=20_000) as trace:
        for at in range(100):
            with trace._lock:
                for one in range(10):
                    tracing.note("wait", 100 * at + one, 100 * at + one + 1)
                trace._flush()
    assert os.path.getsize(trace.path) < 21_000  # noqa: PTH202
    read = sound(trace.path)
    assert len(events(read, name="wait")) + timeline.dropped(read) == 1000


def test_a_disk_that_is_full_ends_the_trace_and_not_the_program(tmp_path, monkeypatch):
    trace = lmdbio.trace(tmp_path / "t.json")
    tracing.note("wait", 1000, 2000)
    with trace._lock:
        trace._flush()

    real = os.pwrite

    def full(fd: int, data: Any, at: int) -> int:
        if len(data) > 20:
            real(fd, data[:15], at)
            raise OSError(28, "No space left on device")
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    tracing.note("copy", 3000, 4000)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trace.close()
    assert "No space left" in str(told[0].message) and str(tmp_path) in str(told[0].message)
    monkeypatch.undo()
    read = sound(trace.path)
    assert events(read, name="wait") and not events(read, name="copy")


# --- on and off ---------------------------------------------------------------------------


def test_off_there_is_no_file_and_no_span(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with lmdbio.trace(tmp_path / "t.json"):
        pass
    with lmdbio.Records(path) as records:
        records.read(range(100))
    assert len(_core.ring.take()[0]) == 0
    assert os.listdir(tmp_path) == ["t.json"]  # noqa: PTH208
    assert events(sound(tmp_path / "t.json"), ph="X") == []


def test_one_trace_at_a_time_and_a_place_that_cannot_be_written(tmp_path):
    with lmdbio.trace(tmp_path / "a.json"), pytest.raises(ValueError, match=r"a\.json"):
        lmdbio.trace(tmp_path / "b.json")
    with pytest.raises(OSError, match="none"):
        lmdbio.trace(tmp_path / "none" / "a.json")
    with lmdbio.trace(tmp_path / "a.json") as again:
        tracing.note("wait", 0, 1)
    assert len(events(sound(again.path), name="wait")) == 1


def test_an_exception_leaves_a_whole_trace(path, tmp_path):
    with pytest.raises(IndexError), lmdbio.trace(tmp_path / "t.json"):
        with lmdbio.Records(path, readahead=False) as records:
            records.read([1, 2, 3])
            records.read([COUNT])
    assert events(sound(tmp_path / "t.json"), name="locate")


@pytest.mark.parametrize(
    ("template", "rank", "alone", "name"),
    [
        ("t.json", None, True, "t.json"),
        ("t.json", 3, True, "t.r3.json"),
        ("t.json", None, False, "t.p77.json"),
        ("t.json", 3, False, "t.r3.p77.json"),
        ("t.%p.json", None, True, "t.77.json"),
        ("t.%p.json", 3, False, "t.77.json"),
        ("%r/t", 3, True, "3/t"),
        ("%r/t", None, True, "0/t"),
        ("%r.t", 3, False, "3.p77.t"),
        ("100%%.json", None, True, "100%.json"),
        ("50%.json", None, True, "50%.json"),
    ],
)
def test_no_two_processes_get_one_name(template, rank, alone, name):
    assert tracing.file_name(template, rank=rank, pid=77, alone=alone) == name


def test_launchers_say_the_rank():
    assert tracing.launched_rank({}) is None
    assert tracing.launched_rank({"PMI_RANK": "5", "SLURM_PROCID": "9"}) == 5
    assert tracing.launched_rank({"OMPI_COMM_WORLD_RANK": "x", "SLURM_PROCID": "9"}) == 9


# --- processes ----------------------------------------------------------------------------


def launch(program: str, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    roots = dict.fromkeys(str(Path(folder).parent) for folder in lmdbio.__path__)
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(roots), **variables)
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


FOR_EVER = """
import sys, lmdbio
records = lmdbio.Records(sys.argv[1], readahead=False)
n = 0
while True:
    records.read(range(n % 1000, n % 1000 + 200))
    n += 1
    if n == 50:
        print("reading", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_ended_leaves_a_whole_trace(path, tmp_path, number):
    process = launch(FOR_EVER, path, LMDBIO_TRACE=str(tmp_path / "t.json"))
    try:
        assert process.stdout is not None and process.stdout.readline() == "reading\n"
        time.sleep(3 * tracing.PERIOD_SECONDS)
        process.send_signal(number)
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode != 0
    if number == signal.SIGINT:
        json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    read = sound(tmp_path / "t.json")
    assert len(events(read, name="locate")) >= 5


FORKS = """
import os, sys, multiprocessing, lmdbio
path = sys.argv[1]
records = lmdbio.Records(path, readahead=False)
def work(n):
    records.read(range(n, n + 50))
    env = lmdbio.open(path, readonly=True, lock=False)
    with env.begin() as txn:
        scan = iter(txn.cursor())
        scan._has_waited = True  # as if the storage had been slow
        for _ in scan: pass
if __name__ == "__main__":
    work(0)
    context = multiprocessing.get_context(sys.argv[2])
    children = [context.Process(target=work, args=(i,)) for i in range(2)]
    for child in children: child.start()
    for child in children: child.join()
    assert [child.exitcode for child in children] == [0, 0]
    work(1)
"""


def test_forked_workers_write_files_of_their_own(path, tmp_path):
    process = launch(FORKS, path, "fork", LMDBIO_TRACE=str(tmp_path / "t.json"))
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    pids = set()
    for file in files:
        read = sound(file)
        pids |= {event["pid"] for event in read["traceEvents"]}
        assert f"p{read['otherData']['pid']}" in file.name or file.name == "t.json"
        stages = {event["name"] for event in events(read, ph="X", cat="stage")}
        assert {"locate", "plan", "wait", "copy"} <= stages, file
    assert len(pids) == 3
    assert timeline.check(timeline.merge([timeline.load(file) for file in files])) == []


def test_a_second_process_does_not_write_over_the_file_of_the_first(path, tmp_path):
    with lmdbio.trace(tmp_path / "t.json"):
        tracing.note("wait", 0, 1)
        program = "import sys, lmdbio; lmdbio.Records(sys.argv[1], readahead=False).read([1])"
        process = launch(program, path, LMDBIO_TRACE=str(tmp_path / "t.json"))
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
    assert events(sound(tmp_path / "t.json"), name="wait")
    (other,) = tmp_path.glob("t.p*.json")
    assert events(sound(other), name="locate")


def test_a_process_that_reads_nothing_makes_no_file(tmp_path):
    process = launch("import lmdbio", LMDBIO_TRACE=str(tmp_path / "t.json"))
    process.communicate(timeout=60)
    assert process.returncode == 0 and not list(tmp_path.iterdir())


# --- traces read back ---------------------------------------------------------------------


def made(host: str, monotonic: int, realtime: int, *more: dict[str, Any]) -> dict[str, Any]:
    name = {"ph": "M", "name": "process_name", "pid": 5, "tid": 5, "args": {"name": host}}
    told = {"host": host, "monotonic_ns": monotonic, "realtime_ns": realtime}
    return {"otherData": told, "traceEvents": [name, *more]}


def span(ts: float, dur: float, tid: int = 5, name: str = "wait") -> dict[str, Any]:
    event = {"ph": "X", "name": name, "cat": "stage", "pid": 5, "tid": tid}
    return event | {"ts": ts, "dur": dur, "args": {"bytes": 10}}


def test_machines_are_brought_together_by_the_wall_clock():
    merged = timeline.merge(
        [
            made("a", 1_000_000, 50_000_000, span(1000.0, 5)),
            made("a", 2_000_000, 51_000_000, span(2000.0, 5)),
            made("b", 9_000_000, 50_500_000, span(9000.0, 5)),
        ]
    )
    spans = events(merged, ph="X")
    assert [event["ts"] for event in spans] == [1000.0, 2000.0, 1500.0]
    assert [event["pid"] for event in spans] == [5, 5, 5 + timeline.MACHINE_STEP]
    lines = timeline.stages(merged)
    assert [(line.process, line.count, line.amount) for line in lines] == [
        ("a", 2, 20),
        ("b", 1, 10),
    ]


@pytest.mark.parametrize(
    ("event", "word"),
    [
        (span(10, 5) | {"ph": "?"}, "phase"),
        (span(10, 5) | {"pid": "5"}, "process"),
        (span(10, -1), "duration"),
        (span(-1, 1), "time"),
        (span(12, 10), "overlaps"),
        ({k: v for k, v in span(1, 1).items() if k != "tid"}, "thread"),
        (span(1, 1) | {"ph": "e", "id": "1"}, "beginning"),
        (span(1, 1) | {"ph": "b", "id": "1"}, "never ends"),
        ({"ph": "C", "name": "n", "pid": 5, "tid": 0, "ts": 1, "args": {"x": "y"}}, "counter"),
    ],
)
def test_what_is_wrong_with_a_trace_is_found(event, word, tmp_path):
    good = made("a", 0, 0, span(10, 10), span(11, 2), span(13, 7), span(12, 100, tid=6))
    assert timeline.check(good) == []
    bad = made("a", 0, 0, span(10, 10), event)
    (fault,) = timeline.check(bad)
    assert word in fault
    (tmp_path / "bad.json").write_text(json.dumps(bad), encoding="utf-8")
    told = CliRunner().invoke(cli, ["trace", str(tmp_path / "bad.json")])
    assert told.exit_code == 1 and f"bad.json: {fault}" in str(told.exception)


def test_the_command_sums_up_and_merges(path, tmp_path):
    for name in ("a", "b"):
        with lmdbio.trace(tmp_path / f"{name}.json"):
            with lmdbio.Records(path, readahead=False) as records:
                records.read(range(200))
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    out = tmp_path / "all.json"
    told = CliRunner().invoke(cli, ["trace", *files, "-o", str(out)])
    assert told.exit_code == 0 and "locate" in told.output and "service ms" in told.output
    both = [len(events(sound(file), name="locate")) for file in files]
    assert len(events(sound(out), name="locate")) == sum(both) > 0
    as_json = json.loads(CliRunner().invoke(cli, ["trace", str(out), "--json"]).output)
    assert {line["stage"] for line in as_json["stages"]} >= {"locate", "wait"}
    assert as_json["dropped"] == 0


def test_of_a_torn_trace_all_but_the_last_event_is_read(path, tmp_path):
    with lmdbio.trace(tmp_path / "t.json"), lmdbio.Records(path, readahead=False) as records:
        records.read(range(200))
    whole = sound(tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text(encoding="utf-8")
    last = text.rindex(",\n")
    for cut in (len(text) - 1, last + 9, last + 2):
        (tmp_path / "torn.json").write_text(text[:cut], encoding="utf-8")
        torn = sound(tmp_path / "torn.json")
        assert len(torn["traceEvents"]) >= len(whole["traceEvents"]) - 1


def test_of_a_torn_trace_what_began_last_is_left_out_with_its_end(tmp_path):
    facts = json.dumps(made("a", 0, 0)["otherData"])
    whole, begun = span(10, 10), span(21, 1) | {"ph": "b", "id": "1"}
    lines = ",\n".join(map(json.dumps, (whole, begun)))
    torn = tmp_path / "torn.json"
    torn.write_text(f'{{"otherData":{facts},"traceEvents":[\n{lines},\n{{"ph":"e","na', "utf-8")
    read = timeline.load(torn)
    assert read["traceEvents"] == [whole] and timeline.check(read) == []
    for other in ("1", "[]", "{}"):  # events of others
        torn.write_text(f'{{"otherData":{facts},"traceEvents":[\n{other},\n{{"na', "utf-8")
        assert timeline.load(torn)["traceEvents"] == [json.loads(other)]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": []}', "\xff"])
def test_what_is_no_trace_is_refused_by_name(tmp_path, text):
    bad = tmp_path / "bad.json"
    bad.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"bad\.json"):
        timeline.load(bad)
