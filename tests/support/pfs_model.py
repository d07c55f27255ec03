"""The time that the modelled store takes for given reads: model.h's arithmetic, a second time.

The C keeps running totals per queue; this is a simulation of events, one after the other, with
clients that issue their next read when one is answered. Pure; it checks the C, and says what
the store could give.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

__all__ = ["Client", "first_server", "seconds"]


@dataclass(frozen=True)
class Client:
    """Reads of one file through one mount, at most ``depth`` of them in flight."""

    reads: Sequence[tuple[int, int]]  # offset and length in bytes, in order
    depth: int = 1
    mount: int = 0
    path: str = "data"


def first_server(path: str, servers: int) -> int:
    """Where a file's first stripe lies: FNV-1a of its path below the folder."""
    value = 0xCBF29CE484222325
    for byte in path.encode():
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return value % servers


@dataclass
class _Queue:
    """A server or a link: one thing at a time, in order of coming."""

    free: float = 0.0

    def occupy(self, now: float, duration: float) -> float:
        self.free = max(self.free, now) + duration
        return self.free


@dataclass
class _Simulation:
    constants: Mapping[str, float]
    events: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)
    servers: dict[int, _Queue] = field(default_factory=dict)
    links: dict[int, _Queue] = field(default_factory=dict)
    last: dict[tuple[str, int], int] = field(default_factory=dict)

    def at(self, time: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (time, next(self.order), action))

    def run(self) -> None:
        while self.events:
            time, _, action = heapq.heappop(self.events)
            action(time)

    def pieces(self, path: str, offset: int, length: int) -> list[tuple[int, int, int]]:
        """Server, offset in the file's object there, and bytes of each piece."""
        stripe, servers = int(self.constants["stripe_kib"]) * 1024, int(self.constants["servers"])
        found, end = [], offset + length
        while offset < end:
            number, within = divmod(offset, stripe)
            size = min(end - offset, stripe - within)
            server = (first_server(path, servers) + number) % servers
            found.append((server, number // servers * stripe + within, size))
            offset += size
        return found

    def read(
        self, now: float, client: Client, read: tuple[int, int], then: Callable[[float], None]
    ) -> None:
        pieces = self.pieces(client.path, *read)
        left = len(pieces)

        def carried(time: float) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                then(time)

        arrives = now + self.constants["request_ms"] / 1e3
        for piece in pieces:
            self.at(arrives, partial(self.serve, client, piece, carried))

    def serve(
        self,
        client: Client,
        piece: tuple[int, int, int],
        then: Callable[[float], None],
        now: float,
    ) -> None:
        server, place, size = piece
        on_server = size / (self.constants["server_mb_s"] * 1e6)
        on_link = size / (self.constants["client_mb_s"] * 1e6)
        follows = self.last.get((client.path, server), 0) == place
        self.last[client.path, server] = place + size
        moving = 0.0 if follows else self.constants["out_of_order_ms"] / 1e3
        sent = self.servers.setdefault(server, _Queue()).occupy(now, moving + on_server)
        link = self.links.setdefault(client.mount, _Queue())
        self.at(
            sent - min(on_server, on_link), lambda time: self.at(link.occupy(time, on_link), then)
        )


def seconds(constants: Mapping[str, float], clients: Sequence[Client]) -> list[float]:
    """When each client, all starting at 0, has its last answer."""
    simulation = _Simulation(constants)
    ends = [0.0] * len(clients)

    def start(number: int, client: Client) -> None:
        waiting = deque(client.reads)

        def next_read(time: float) -> None:
            ends[number] = max(ends[number], time)
            if waiting:
                simulation.read(time, client, waiting.popleft(), next_read)

        for _ in range(client.depth):
            simulation.at(0.0, next_read)

    for number, client in enumerate(clients):
        start(number, client)
    simulation.run()
    return ends
