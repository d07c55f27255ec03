"""Timelines: trace files read back, checked, put together, and summed up.

Each process of a job writes a file of its own (``tracing``). Times within a machine are of
one clock; those of several machines are brought together by each file's note of what the wall
clock said, and are then as good as the machines' clocks agree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Line", "Requests", "check", "dropped", "load", "merge", "requests", "stages"]

Event = dict[str, Any]
Trace = dict[str, Any]

#: The kernel's numbers of processes are below; the processes of further machines come above.
MACHINE_STEP = 1 << 22
_PHASES = frozenset("XMCbei")


def load(path: str | os.PathLike[str]) -> Trace:
    """A trace file; of one that was being written when its process was killed, what is whole.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no trace that lmdbio wrote; the message names it.
    """
    try:
        text, is_cut = Path(path).read_text(encoding="utf-8"), False
        try:
            trace = json.loads(text)
        except ValueError:
            trace, is_cut = json.loads(text.rpartition(",\n")[0] + "]}"), True
    except ValueError:  # of JSON, or of UTF-8
        raise ValueError(f"{os.fspath(path)}: is no trace (lmdbio writes them as JSON)") from None
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise ValueError(f"{os.fspath(path)}: is JSON, but no trace of lmdbio")
    if "monotonic_ns" not in trace.get("otherData", {}):
        raise ValueError(f"{os.fspath(path)}: is a trace, but was not written by lmdbio")
    events = trace["traceEvents"]
    if is_cut and events and isinstance(events[-1], dict) and events[-1].get("ph") == "b":
        del events[-1]  # what begins here has had its end in the part that is gone
    return trace


def check(trace: Trace) -> list[str]:
    """Return the faults of a trace by the rules of the trace event format; [] for a sound one.

    Every event has a phase, a name and a process; times where they belong, none negative; the
    spans of one thread lie in each other or apart; what begins in flight ends.
    """
    wrong: list[str] = []
    spans: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    open_ids: dict[tuple[int, str, str], float] = {}
    for event in trace["traceEvents"]:
        phase, name = event.get("ph"), event.get("name")
        if phase not in _PHASES or not name or not isinstance(event.get("pid"), int):
            wrong.append(f"an event without phase, name or process: {event}")
        elif phase != "M" and not event.get("ts", -1) >= 0:
            wrong.append(f"{name}: an event without a time: {event}")
        elif not isinstance(event.get("tid"), int):
            wrong.append(f"{name}: an event without a thread: {event}")
        elif phase == "X":
            begun = event["ts"]
            if not event.get("dur", -1) >= 0:
                wrong.append(f"{name}: a span without a duration: {event}")
                continue
            span = (begun, -event["dur"], name)
            spans.setdefault((event["pid"], event["tid"]), []).append(span)
        elif phase == "C" and not all(
            isinstance(value, (int, float)) and value >= 0 for value in event["args"].values()
        ):
            wrong.append(f"{name}: a counter that counts nothing: {event}")
        elif phase == "b":
            open_ids[event["pid"], event["cat"], event["id"]] = event["ts"]
        elif phase == "e":
            begun = open_ids.pop((event["pid"], event["cat"], event["id"]), None)
            if begun is None or begun > event["ts"]:
                wrong.append(f"{name}: an end without a beginning: {event}")
    wrong += [f"flight {key} never ends" for key in open_ids]
    for thread, found in spans.items():
        wrong += _overlaps(thread, found)
    return wrong


def _overlaps(thread: tuple[int, int], spans: list[tuple[float, float, str]]) -> list[str]:
    """Spans that begin inside another one of their thread and end outside."""
    wrong, around = [], list[tuple[float, str]]()
    for begun, minus, name in sorted(spans):
        ended = begun - minus
        # Microseconds as floats: half a nanosecond is none.
        while around and around[-1][0] <= begun + 5e-4:
            around.pop()
        if around and ended > around[-1][0] + 5e-4:
            wrong.append(f"{name} at {begun} overlaps {around[-1][1]} on thread {thread}")
        around.append((ended, name))
    return wrong


def merge(traces: Sequence[Trace]) -> Trace:
    """One trace of several, on the clock of the first."""
    first = traces[0]["otherData"]
    machines = {str(first["host"]): 0}
    events: list[Event] = []
    for trace in traces:
        facts = trace["otherData"]
        machine = machines.setdefault(str(facts["host"]), len(machines))
        shift = 0.0
        if machine:
            wall = facts["realtime_ns"] - facts["monotonic_ns"]
            shift = (wall - (first["realtime_ns"] - first["monotonic_ns"])) / 1000
        for event in trace["traceEvents"]:
            moved = dict(event, pid=event["pid"] + machine * MACHINE_STEP)
            if "ts" in moved:
                moved["ts"] += shift
            events.append(moved)
    return {
        "displayTimeUnit": "ms",
        "otherData": dict(first, merged=len(traces), hosts=list(machines)),
        "traceEvents": events,
    }


@dataclass(frozen=True, slots=True)
class Line:
    """The sums of one stage of one process.

    Attributes:
        process, stage: names.
        count: spans.
        seconds: their sum.
        longest_seconds: the longest.
        amount: bytes, or records of "locate".
    """

    process: str
    stage: str
    count: int
    seconds: float
    longest_seconds: float
    amount: int


def _processes(events: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    return {
        event["pid"]: event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "process_name"
    }


def stages(trace: Trace) -> list[Line]:
    """The stages of all processes, those with the most time first."""
    names = _processes(trace["traceEvents"])
    sums: dict[tuple[str, str], list[float]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] != "X" or event.get("cat") != "stage":
            continue
        process = names.get(event["pid"], str(event["pid"]))
        amounts = event["args"]
        line = sums.setdefault((process, event["name"]), [0, 0.0, 0.0, 0])
        line[0] += 1
        line[1] += event["dur"] / 1e6
        line[2] = max(line[2], event["dur"] / 1e6)
        line[3] += amounts.get("bytes", amounts.get("records", 0))
    lines = [
        Line(process, stage, int(count), seconds, longest, int(amount))
        for (process, stage), (count, seconds, longest, amount) in sums.items()
    ]
    return sorted(lines, key=lambda line: (line.process, -line.seconds))


@dataclass(frozen=True, slots=True)
class Requests:
    """How one process's requests of one kind fared.

    Attributes:
        process, way: names.
        count, bytes: number of all requests, and of their bytes.
        queue_ms, service_ms: median, 99th percentile and maximum of the wait for a thread, and
            of the time under way.
        busy_seconds: seconds in which at least one was in flight.
        depth: mean number in flight while busy.
        failed: number of requests that failed.
    """

    process: str
    way: str
    count: int
    bytes: int
    queue_ms: tuple[float, float, float]
    service_ms: tuple[float, float, float]
    busy_seconds: float
    depth: float
    failed: int


def requests(trace: Trace) -> list[Requests]:
    """How requests fared: whether they wait for a thread (more depth) or the storage."""
    names = _processes(trace["traceEvents"])
    found: dict[tuple[int, str], list[Event]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event.get("cat") == "request":
            found.setdefault((event["pid"], event["name"]), []).append(event)
    return [_fared(names.get(pid, str(pid)), way, events) for (pid, way), events in found.items()]


def _fared(process: str, way: str, events: list[Event]) -> Requests:
    begun = np.array([event["ts"] for event in events])
    took = np.array([event["dur"] for event in events])
    queued = np.array([event["args"]["queued_us"] for event in events])
    order = np.argsort(begun)
    starts, ends = begun[order], np.maximum.accumulate((begun + took)[order])
    # Busy from the first start to the last end, but for where all before had ended.
    idle = np.maximum(0.0, starts[1:] - ends[:-1]).sum()
    busy = float(ends[-1] - starts[0] - idle)
    return Requests(
        process=process,
        way=way,
        count=len(events),
        bytes=sum(event["args"]["bytes"] for event in events),
        queue_ms=_percentiles(queued),
        service_ms=_percentiles(took),
        busy_seconds=busy / 1e6,
        depth=float(took.sum()) / busy if busy else 0.0,
        failed=sum("failed" in event["args"] for event in events),
    )


def dropped(trace: Trace) -> int:
    """Events that there was no room for."""
    return sum(
        event["args"]["count"]
        for event in trace["traceEvents"]
        if event["ph"] == "i" and event["name"] == "events dropped"
    )


def _percentiles(microseconds: Any) -> tuple[float, float, float]:
    middle, high, top = np.percentile(microseconds, (50, 99, 100)) / 1000
    return float(middle), float(high), float(top)
