"""Clients of the modelled store: the time that it takes for given reads, by the simulator.

``lmdbio.simulate.servers`` has the arithmetic of benchmarks/pfs/model.h a second time, event by
event; it checks the C, and says what the store could give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lmdbio.simulate import Store
from lmdbio.simulate.servers import Servers, first_server

__all__ = ["Client", "first_server", "seconds"]


@dataclass(frozen=True)
class Client:
    """Reads of one file through one mount, at most ``depth`` of them in flight."""

    reads: Sequence[tuple[int, int]]  # offset and length in bytes, in order
    depth: int = 1
    mount: int = 0
    path: str = "data"


def store_of(constants: Mapping[str, float]) -> Store:
    """The store of benchmarks/pfs/model.conf, with these constants."""
    return Store(
        servers=int(constants["servers"]),
        stripe_bytes=int(constants["stripe_kib"]) * 1024,
        server_rate=constants["server_mb_s"] * 1e6,
        request_seconds=constants["request_ms"] / 1e3,
        out_of_order_seconds=constants["out_of_order_ms"] / 1e3,
        link_rate=constants["client_mb_s"] * 1e6,
    )


def seconds(constants: Mapping[str, float], clients: Sequence[Client]) -> list[float]:
    """When each client, all starting at 0, has its last answer."""
    servers = Servers(store_of(constants))
    ends = [0.0] * len(clients)
    for number, client in enumerate(clients):
        servers.stream(
            0.0,
            client.reads,
            partial(ends.__setitem__, number),
            depth=client.depth,
            link=client.mount,
            path=client.path,
        )
    servers.run()
    return ends
