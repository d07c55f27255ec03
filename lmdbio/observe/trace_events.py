"""Turn spans into events of the trace event format, each a line of JSON.

    span of a stage     on the track of the thread that did it
    span of a request   on a lane of its own, as many as were in flight at once, and a counter

Source: the trace event format (JSON objects) of chrome://tracing and Perfetto.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from lmdbio import _core
from lmdbio._core import SpanKind

__all__ = ["STAGES", "Span", "TraceEncoder"]

#: Threads have numbers of the kernel's, at most 2**22; lanes of requests have these.
FIRST_LANE = 1 << 24

#: A stage that C notes: its name, and the unit of its amount.
STAGES = {
    SpanKind.LOCATE: ("locate", "records"),
    SpanKind.PLAN: ("plan", "bytes"),
    SpanKind.WAIT: ("wait", "bytes"),
    SpanKind.COPY: ("copy", "bytes"),
    SpanKind.CACHED: ("from the page cache", "bytes"),
}

#: Name, begin, end (ns), thread (None: beside all), arguments.
Span = tuple[str, int, int, int | None, Mapping[str, Any] | None]


class TraceEncoder:
    """Turns spans into events, each a line of JSON. Pure, but for what it remembers.

    Args:
        pid: the process's number, for every event.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._lanes: list[int] = []  # when the last request of each ended
        self._named: set[int] = set()
        self._engines: dict[int, tuple[str, str]] = {}

    def process(self, rank: int | None) -> list[str]:
        """Name the process; viewers show ranks in their order."""
        who = "lmdbio" if rank is None else f"rank {rank}"
        name = f"{who} (process {self._pid} on {socket.gethostname()})"
        return [
            self._metadata("process_name", self._pid, name=name),
            self._metadata("process_sort_index", self._pid, sort_index=rank or 0),
        ]

    def threads(self, names: Mapping[int, str]) -> list[str]:
        """Name the threads that were not named before."""
        new = {thread: name for thread, name in names.items() if thread not in self._named}
        self._named.update(new)
        return [self._metadata("thread_name", thread, name=name) for thread, name in new.items()]

    def dropped(self, count: int, at_ns: int) -> list[str]:
        """Encode that so many events were dropped."""
        head = f'"ph":"i","s":"p","name":"events dropped","pid":{self._pid},"tid":{self._pid}'
        return [f'{{{head},"ts":{_us(at_ns)},"args":{{"count":{count}}}}}']

    def stage(self, span: Span) -> list[str]:
        """Encode a span of a thread, or of a read that was under way beside all threads."""
        name, begun, ended, thread, args = span
        arguments = json.dumps(args or {})
        if thread is not None:
            return [self._complete(json.dumps(name), "stage", begun, ended, thread, arguments)]
        head = (
            f'"name":{json.dumps(name)},"cat":"flight","id":"{self._pid}.{begun}.{ended}",'
            f'"pid":{self._pid},"tid":{self._pid}'
        )
        return [
            f'{{"ph":"b",{head},"ts":{_us(begun)},"args":{arguments}}}',
            f'{{"ph":"e",{head},"ts":{_us(ended)}}}',
        ]

    def noted(self, span: tuple[int, ...], traced: Sequence[_core.Traced]) -> list[str]:
        """Encode a span that C noted (``lio_span``)."""
        queued, begun, ended, offset, amount, kind, thread, engine, count = span[:9]
        if kind in STAGES:
            name, unit = STAGES[SpanKind(kind)]
            arguments = f'{{"{unit}":{amount},"requests":{count}}}'
            return [self._complete(f'"{name}"', "stage", begun, ended, thread, arguments)]
        way, file = self._engine(engine, traced)
        what = "read ahead" if kind == SpanKind.POPULATE else "read"
        failed = f',"failed":{span[11]}' if span[11] else ""
        arguments = (
            f'{{"offset":{offset},"bytes":{amount},"queued_us":{_us(begun - queued)},'
            f'"file":{file}{failed}}}'
        )
        lane, events = self._lane(begun, ended)
        events.append(self._complete(f'"{what}, {way}"', "request", begun, ended, lane, arguments))
        for at, depth in ((begun, span[9]), (ended, span[10])):
            events.append(
                f'{{"ph":"C","name":"requests in flight","pid":{self._pid},"tid":0,'
                f'"ts":{_us(at)},"args":{{"{way} {engine}":{depth}}}}}'
            )
        return events

    def _engine(self, number: int, traced: Sequence[_core.Traced]) -> tuple[str, str]:
        """Return an engine's way of reading, and its file as JSON."""
        if number not in self._engines:
            engine = traced[number]
            self._engines[number] = engine.kind, json.dumps(engine.path)
        return self._engines[number]

    def _lane(self, begun: int, ended: int) -> tuple[int, list[str]]:
        """Return the first lane that is free: spans of one thread must not overlap."""
        free = (at for at, last in enumerate(self._lanes) if last <= begun)
        at, events = next(free, len(self._lanes)), []
        lane = FIRST_LANE + at
        if at == len(self._lanes):
            self._lanes.append(0)
            events = [
                self._metadata("thread_name", lane, name=f"requests, lane {at}"),
                self._metadata("thread_sort_index", lane, sort_index=lane),
            ]
        self._lanes[at] = ended
        return lane, events

    def _metadata(self, what: str, thread: int, **args: Any) -> str:
        return json.dumps({"ph": "M", "name": what, "pid": self._pid, "tid": thread, "args": args})

    def _complete(
        self, name: str, category: str, begun: int, ended: int, thread: int, args: str
    ) -> str:
        return (
            f'{{"ph":"X","name":{name},"cat":"{category}","pid":{self._pid},"tid":{thread},'
            f'"ts":{_us(begun)},"dur":{_us(max(0, ended - begun))},"args":{args}}}'
        )


def _us(ns: int) -> str:
    """Write nanoseconds as microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"
