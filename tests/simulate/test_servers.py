"""Goal: reads take the time that servers, moves and links leave them, and callers are told once.

Method: closed forms of the four ways to read, one server or several, one link or two. The C of the
benchmarks' store has the same arithmetic; tests/benchmarks/test_pfs.py compares both.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lmdbio.simulate import Store
from lmdbio.simulate.servers import Read, Servers, first_server

MIB = 1 << 20
#: 100 MiB a second and server, 400 a link; every part of a second is a whole number of units.
STORE = Store(4, MIB, 100.0 * MIB, 0.5e-3, 2e-3, 400.0 * MIB)


def seconds(store: Store, clients: list[tuple[list[Read], int, int]]) -> list[float]:
    """Clients read one file: each has its reads, a depth and a link."""
    servers, ends = Servers(store), [-1.0] * len(clients)
    for number, (reads, depth, link) in enumerate(clients):

        def end(time: float, number: int = number) -> None:
            assert ends[number] < 0, "told twice"
            ends[number] = time

        servers.stream(0.0, reads, end, depth=depth, link=link)
    servers.run()
    return ends


def ordered(size: int, count: int) -> list[Read]:
    return [(i * size, size) for i in range(count)]


@pytest.mark.parametrize(
    ("store", "reads", "depth", "expected"),
    [
        (STORE, ordered(MIB, 8), 1, 8 * (0.5e-3 + 0.01)),
        # The last stripes of four servers come at once, and go over the link in turn.
        (STORE, ordered(MIB, 40), 16, 0.5e-3 + 0.1 + 3 * 0.0025),
        (replace(STORE, link_rate=50.0 * MIB), ordered(MIB, 8), 8, 0.5e-3 + 8 * 0.02),
        (replace(STORE, link_rate=200.0 * MIB), ordered(MIB, 8), 1, 8 * (0.5e-3 + 0.01)),
        # One piece on each server, in reverse: each but the first of the file is out of order.
        (STORE, [(i * MIB, MIB) for i in (4, 0)], 1, 2 * (0.5e-3 + 2e-3 + 0.01)),
        # Two stripes of one read come from two servers at once, over one link.
        (STORE, [(0, 2 * MIB)], 1, 0.5e-3 + 0.01 + 0.0025),
        (STORE, [(MIB // 2, MIB)], 1, 0.5e-3 + 2e-3 + 0.005),
        (STORE, [], 4, 0.0),
    ],
)
def test_one_client_takes_what_is_worked_out_by_hand(
    store: Store, reads: list[Read], depth: int, expected: float
) -> None:
    assert seconds(store, [(reads, depth, 0)]) == [pytest.approx(expected, rel=1e-9)]


def test_two_links_carry_at_once_and_one_in_turn() -> None:
    store = replace(STORE, link_rate=100.0 * MIB, server_rate=1e6 * MIB, out_of_order_seconds=0)
    clients = [(ordered(MIB, 1), 1, 0), ([(MIB, MIB)], 1, 1)]
    assert seconds(store, clients) == pytest.approx([0.0105, 0.0105], rel=1e-3)
    shared = [(reads, depth, 0) for reads, depth, _ in clients]
    assert seconds(store, shared) == pytest.approx([0.0105, 0.0205], rel=1e-3)


def test_two_that_read_one_file_in_turns_move_its_servers() -> None:
    servers = Servers(replace(STORE, servers=1))
    for first in (0, 64 * MIB):
        reads = [(first + i * MIB, MIB) for i in range(8)]
        servers.stream(0.0, reads, lambda time: None, depth=1, path="a")
    servers.run()
    assert (servers.reads, servers.bytes, servers.pieces) == (16, 16 * MIB, 16)
    assert servers.moves == 15
    apart = Servers(replace(STORE, servers=1))
    for path in "ab":
        apart.stream(0.0, ordered(MIB, 8), lambda time: None, depth=1, path=path)
    apart.run()
    assert apart.moves == 0, "each file has an order of its own"


def test_a_caller_learns_at_once_that_all_is_asked_for() -> None:
    servers, told = Servers(STORE), []
    servers.stream(0.0, ordered(MIB, 3), told.append, depth=3, asked=told.append)
    assert told == [0.0]
    servers.stream(0.0, ordered(MIB, 3), told.append, depth=2, asked=told.append, link=1)
    servers.run()
    assert len(told) == 4
    nothing: list[float] = []
    servers.stream(7.0, [], nothing.append, depth=1, asked=nothing.append)
    servers.run()
    assert nothing == [7.0, 7.0]


def test_events_of_one_time_happen_in_the_order_of_asking() -> None:
    servers, order = Servers(STORE), []
    for name in "abc":
        servers.at(1.0, lambda time, name=name: order.append((time, name)))
    servers.at(0.5, lambda time: order.append((time, "d")))
    servers.run()
    assert order == [(0.5, "d"), (1.0, "a"), (1.0, "b"), (1.0, "c")]


def test_files_begin_on_servers_by_their_name() -> None:
    assert {first_server(f"train{i}/data.mdb", 4) for i in range(40)} == {0, 1, 2, 3}
    assert first_server("", 1) == 0
