"""A job without MPI: ranks meet through a store, take steps together, and hear who is lost.

Ranks are threads of this process where nobody has to die; each has its own mesh.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import lmdb
import numpy as np
import pytest

from lmdbio.errors import Error, PeerError
from lmdbio.share import meeting, sockets
from lmdbio.share.meeting import Place, own_host, place_of_torchrun
from lmdbio.share.sockets import SocketTransport, transport_of_group
from tests.support import ROOT, databases

T = TypeVar("T")
SECONDS_MAX = 30.0


class Store:
    """A store like torch.distributed's, within a process."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, SECONDS_MAX)
            return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        with self.changed:
            return self.values.keys() >= set(keys)

    def delete_key(self, key: str) -> None:
        with self.changed:
            del self.values[key]


def on_all(ranks: int, run: Callable[[int], T]) -> list[T]:
    """Run a function on each rank, in a thread of its own; raise what the first one raised."""
    results: list[Any] = [None] * ranks
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            results[rank] = run(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive(), "a rank waits for ever"
    if errors:
        raise errors[0]
    return results


def meet(ranks: int, store: Store) -> list[SocketTransport]:
    return on_all(ranks, lambda rank: SocketTransport(rank, ranks, store))


def end(transports: list[SocketTransport]) -> None:
    on_all(len(transports), lambda rank: transports[rank].leave())


def finish(gathering: Any) -> list[bytes]:
    deadline = time.monotonic() + SECONDS_MAX
    while not gathering.has_ended():
        assert time.monotonic() < deadline, "a step does not end"
        time.sleep(0.001)
    answers: list[bytes] = gathering.answers()
    return answers


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_all_know_the_answers_of_all_step_after_step(ranks: int) -> None:
    transports = meet(ranks, Store())
    draw = random.Random(ranks)
    bodies = [[draw.randbytes(draw.choice([0, 5, 3000])) for _ in range(ranks)] for _ in range(5)]

    def run(rank: int) -> list[list[bytes]]:
        return [finish(transports[rank].begin_gather(step[rank])) for step in bodies]

    assert on_all(ranks, run) == [bodies] * ranks
    end(transports)


@pytest.mark.parametrize("takes", [[1, 1, 1, 1, 1], [0, 0, 1, 0, 1], [1, 0, 0, 0, 0]])
def test_those_who_take_an_array_have_it(takes: list[int]) -> None:
    transports = meet(5, Store())
    array = np.arange(30_000, dtype=np.uint16).reshape(100, 300)

    def run(rank: int) -> Any:
        transport = transports[rank]
        first = transport.send_array(array if rank == 0 else None, [bool(one) for one in takes])
        second = transport.send_array(array[:3] if rank == 0 else None, [True] * 5)
        assert (second == array[:3]).all()
        return first

    for rank, found in enumerate(on_all(5, run)):
        assert (found == array).all() if rank == 0 or takes[rank] else found is None
    end(transports)


def test_a_store_serves_several_meetings() -> None:
    store = Store()
    for _ in range(3):
        transports = meet(3, store)
        assert store.values == {}
        end(transports)


@pytest.mark.parametrize("check_seconds", [sockets.CHECK_SECONDS, 0.0])
def test_ctrl_c_between_any_two_lines_of_a_step_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, check_seconds: float
) -> None:
    """The caller notes it and goes on, as it does under MPI; also where it looks who is lost."""
    monkeypatch.setattr(sockets, "CHECK_SECONDS", check_seconds)
    transports = meet(4, Store())
    interrupted = 0
    for line in range(90):
        bodies = [b"%d of %d" % (line, rank) for rank in range(4)]

        def run(rank: int, line: int = line, bodies: list[bytes] = bodies) -> int:
            gathering = transports[rank].begin_gather(bodies[rank])
            if rank != 1:
                assert finish(gathering) == bodies
                return 0
            passed = 0

            def trace(frame: FrameType, event: str, _: object) -> Any:
                nonlocal passed
                if not frame.f_code.co_filename.endswith(("sockets.py", "mesh.py")):
                    return None
                if event == "line":
                    passed += 1
                    if passed == line + 1:
                        raise KeyboardInterrupt
                return trace

            deadline = time.monotonic() + SECONDS_MAX
            has_ended = False
            while not has_ended:
                assert time.monotonic() < deadline, f"line {line}: the step does not end"
                sys.settrace(trace)
                try:
                    has_ended = gathering.has_ended()
                except KeyboardInterrupt:
                    pass
                finally:
                    sys.settrace(None)
                time.sleep(0.0005)
            assert gathering.answers() == bodies
            return int(passed > line)

        interrupted += sum(on_all(4, run))
    assert interrupted > 40
    end(transports)


def test_a_rank_that_leaves_is_named_by_those_that_wait_for_it() -> None:
    transports = meet(3, Store())
    transports[2].leave()

    def run(rank: int) -> None:
        if rank < 2:
            with pytest.raises(PeerError, match="rank 2"):
                finish(transports[rank].begin_meeting())

    on_all(3, run)
    end(transports[:2])


def test_who_has_left_gets_an_error_and_so_does_a_forked_child() -> None:
    transports = meet(2, Store())
    child = os.fork()
    if child == 0:
        try:
            finish(transports[0].begin_meeting())
        except Error:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert on_all(2, lambda rank: finish(transports[rank].begin_gather(b"x"))) == [[b"x"] * 2] * 2
    end(transports)
    with pytest.raises(Error, match="has ended"):
        finish(transports[0].begin_meeting())


@pytest.mark.parametrize("absent", [0, 2])
def test_a_rank_that_never_comes_is_named_by_all_others(
    absent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "MEET_SECONDS_MAX", 0.5)
    store = Store()

    def run(rank: int) -> None:
        if rank != absent:
            with pytest.raises(
                PeerError, match=rf"^rank {absent} is lost: .* make a Reader together"
            ):
                SocketTransport(rank, 3, store)

    on_all(3, run)
    assert store.values == {}


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_a_rank_that_gives_up_while_all_meet_is_named_by_all_others(ranks: int) -> None:
    """It knows where the others are, and hands that on to nobody."""
    store = Store()

    class GivesUp(SocketTransport):
        def place(self, rank: int, home: meeting.Home) -> None:
            super().place(rank, home)
            if rank == 1:
                raise KeyboardInterrupt

    def run(rank: int) -> None:
        if rank == 1:
            with pytest.raises(KeyboardInterrupt):
                GivesUp(1, ranks, store)
            return
        with pytest.raises(PeerError, match=r"^rank 1 is lost"):
            finish(SocketTransport(rank, ranks, store).begin_meeting())

    began = time.monotonic()
    on_all(ranks, run)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("hidden", [0, 1])
def test_an_address_that_cannot_be_reached_is_named(
    hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(meeting, "MEET_SECONDS_MAX", 2.0)
    monkeypatch.setattr(meeting, "WORD_SECONDS", 0.0)
    monkeypatch.setattr(meeting, "UNREACHED_SECONDS_MAX", 0.3)

    class Elsewhere(SocketTransport):
        def listen(self, key: bytes, other: str) -> meeting.Home:
            return super().listen(key, other)._replace(host="127.0.0.77", port=port, near="other")

    def run(rank: int) -> None:
        told = rf"^rank {hidden} is lost: it cannot be reached at 127.0.0.77, port {port} .LMDBIO_"
        began = time.monotonic()
        with pytest.raises(PeerError, match="^rank [01] is lost" if rank == hidden else told):
            (Elsewhere if rank == hidden else SocketTransport)(rank, 2, store)
        assert rank == hidden or time.monotonic() - began < 1.5

    store = Store()
    on_all(2, run)


def test_a_farewell_of_rank_0_ends_the_wait_for_its_word() -> None:
    """It has welcomed the other one, and then ended without a word of its own."""
    store = Store()

    class Silent(SocketTransport):
        def place(self, rank: int, home: meeting.Home) -> None:
            self.mesh.leave(100)
            raise KeyboardInterrupt

    def run(rank: int) -> None:
        if rank == 0:
            with pytest.raises(KeyboardInterrupt):
                Silent(0, 2, store)
            return
        with pytest.raises(PeerError, match=r"^rank 0 is lost"):
            SocketTransport(1, 2, store)

    began = time.monotonic()
    on_all(2, run)
    assert time.monotonic() - began < 10


def test_transports_end_with_those_who_refer_to_them() -> None:
    def held(what: str) -> set[str]:
        gc.collect()
        return {path.name for path in Path("/proc/self", what).iterdir()}

    # Sets: threads that other tests have left to end may do so meanwhile.
    before = {what: held(what) for what in ("fd", "task")}
    for _ in range(5):
        transports = meet(3, Store())
        assert all(held(what) - then for what, then in before.items())
        del transports
    deadline = time.monotonic() + SECONDS_MAX
    for what, then in before.items():
        while left := held(what) - then:
            assert time.monotonic() < deadline, left
            time.sleep(0.01)


def test_a_forked_child_of_a_rank_does_not_meet_in_its_place() -> None:
    class Group:
        def __init__(self, rank: int) -> None:
            self.rank, self.size = (lambda: rank), (lambda: 2)

        def get_group_store(self) -> Store:
            return store

    store = Store()
    groups = [Group(rank) for rank in range(2)]
    transports = on_all(2, lambda rank: transport_of_group(groups[rank]))
    assert transport_of_group(groups[0]) is transports[0]
    child = os.fork()
    if child == 0:
        try:
            finish(transport_of_group(groups[1]).begin_meeting())
        except Error as error:
            os._exit(0 if "forked" in str(error) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    end(transports)


def test_the_address_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMDBIO_HOST", "127.0.0.5")
    assert own_host("localhost") == "127.0.0.5"
    monkeypatch.setenv("LMDBIO_HOST", "no.such.host.invalid")
    with pytest.raises(ValueError, match=r"LMDBIO_HOST=no\.such\.host"):
        own_host("")
    monkeypatch.delenv("LMDBIO_HOST")
    for loop in ("localhost", "127.0.1.1", "::1"):  # as Debian names the machine itself
        assert own_host(loop) == own_host("")
    assert own_host("no.such.host.invalid")  # the way out, or this machine alone
    assert own_host("")


RANK = """
import sys, time
sys.path[:0] = [{tests!r}]
from mpi4py import MPI
import lmdbio
from lmdbio.errors import PeerError
comm = MPI.COMM_WORLD
with open({out!r} + str(comm.rank), "w") as out:
    try:
        with lmdbio.Reader({path!r}, 4, comm=comm, ranks_per_node={per_node}) as reader:
            for number, batch in enumerate(reader):
                if number == 5:
                    print(__import__("os").getpid(), file=out, flush=True)
                time.sleep(0.002)
    except PeerError as error:
        print(error, file=out, flush=True)
"""


@pytest.mark.parametrize(
    ("ranks", "per_node", "dies"),
    [(2, 2, 1), (2, 2, 0), (4, 2, 2), (4, 2, 3), (4, 1, 3)],
    ids=["follower", "root", "root of the second node", "follower there", "only roots"],
)
def test_a_killed_rank_is_named_by_all_others(
    tmp_path: Path, ranks: int, per_node: int, dies: int
) -> None:
    path = tmp_path / "db"
    with lmdb.open(str(path), map_size=1 << 24) as env:
        databases.write(env, [(b"%08d" % i, bytes(1000)) for i in range(500)])
    shim = str(ROOT / "tests" / "mpi" / "sockets")
    program = RANK.format(tests=shim, out=f"{tmp_path}/out", path=str(path), per_node=per_node)
    common = {"WORLD_SIZE": str(ranks), "LMDBIO_TEST_STORE": str(tmp_path)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=os.environ | common | {"RANK": str(rank), "PYTHONPATH": str(ROOT)},
        )
        for rank in range(ranks)
    ]

    def said(rank: int) -> list[str]:
        file = tmp_path / f"out{rank}"
        return file.read_text().splitlines() if file.exists() else []

    try:
        deadline = time.monotonic() + 2 * SECONDS_MAX
        while not all(said(rank) for rank in range(ranks)):
            assert time.monotonic() < deadline, [each.poll() for each in running]
            time.sleep(0.01)
        running[dies].send_signal(signal.SIGKILL)
        for rank, each in enumerate(running):
            assert each.wait(SECONDS_MAX) == (-signal.SIGKILL if rank == dies else 0)
            if rank != dies:
                assert f"rank {dies} " in said(rank)[1], said(rank)
    finally:
        for each in running:
            each.kill()
            each.wait()


@pytest.mark.parametrize(("ranks", "absent"), [(2, 1), (3, 1), (8, 5)])
def test_a_rank_that_comes_to_no_barrier_is_named_by_all_others(
    ranks: int, absent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by those that wait for one that waits for it in turn."""
    monkeypatch.setattr(meeting, "MEET_SECONDS_MAX", 0.5)
    transports = meet(ranks, Store())

    def run(rank: int) -> None:
        if rank != absent:
            time.sleep(0.04 * (rank % 3))
            with pytest.raises(PeerError, match=rf"rank {absent} .* has waited 0\.5 s for it"):
                transports[rank].barrier()

    on_all(ranks, run)
    # It hears of it wherever it meets the others next.
    deadline = time.monotonic() + SECONDS_MAX
    while transports[absent].lost() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(PeerError, match=f"rank {absent} is lost"):
        transports[absent].barrier()
    end(transports)


def test_a_barrier_holds_all_ranks_until_the_last_one_comes() -> None:
    transports, come = meet(5, Store()), [False] * 5

    def run(rank: int) -> bool:
        time.sleep(0.02 * (4 - rank))
        come[rank] = True
        transports[rank].barrier()
        return all(come)

    for _ in range(3):
        come[:] = [False] * 5
        assert all(on_all(5, run))
    end(transports)


def test_an_address_that_a_killed_job_has_left_misleads_no_rank() -> None:
    """It was killed while its ranks met; torchrun starts the next one over the same store."""
    store = Store()
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        address = ["00" * 16, "127.0.0.1", dead.getsockname()[1], "elsewhere"]
        store.set(meeting.KEY, json.dumps(address))  # where nobody listens

    def run(rank: int) -> SocketTransport:
        if rank == 0:
            time.sleep(0.5)  # others have tried it by then
        return SocketTransport(rank, 3, store)

    transports = on_all(3, run)
    assert on_all(3, lambda rank: finish(transports[rank].begin_gather(b"x"))) == [[b"x"] * 3] * 3
    end(transports)


@pytest.mark.parametrize(("variables", "place"), [
    ({"LMDBIO_HOST": "10.0.0.5"}, Place(8, 2, "10.0.0.5")),
    ({"LMDBIO_HOST": "127.0.0.1"}, Place(8, 2, "127.0.0.1", "is the address of every machine")),
    ({"LMDBIO_HOST": "127.0.0.1", "LOCAL_WORLD_SIZE": "8"}, Place(8, 1, "127.0.0.1")),
    ({"LMDBIO_HOST": "no.such.host.invalid"}, Place(8, 2, "", "LMDBIO_HOST=no.such")),
    ({"RANK": ""}, None), ({"WORLD_SIZE": "many"}, None), ({"MASTER_ADDR": ""}, None),
], ids=str)  # fmt: skip
def test_where_torchrun_has_put_this_process(
    variables: dict[str, str], place: Place | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}
    for name, text in (usual | variables).items():
        monkeypatch.setenv(name, text)
    found = place_of_torchrun()
    assert (found is None) == (place is None)
    if found is not None and place is not None:
        assert found[:3] == place[:3] and place.problem in found.problem
        assert bool(found.problem) == bool(place.problem)
