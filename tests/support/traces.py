"""The rules of the trace event format, by which tests hold traces."""

from __future__ import annotations

from typing import Any

PHASES = frozenset("XMCbei")


def check(trace: dict[str, Any]) -> list[str]:
    """Return the faults of a trace by the rules of the trace event format; [] for a sound one.

    Every event has a phase, a name and a process; times where they belong, none negative; the
    spans of one thread lie in each other or apart; what begins in flight ends.
    """
    wrong: list[str] = []
    spans: dict[tuple[int, int], list[tuple[float, float, str]]] = {}
    open_ids: dict[tuple[int, str, str], float] = {}
    for event in trace["traceEvents"]:
        phase, name = event.get("ph"), event.get("name")
        if phase not in PHASES or not name or not isinstance(event.get("pid"), int):
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
