"""Messages between processes over sockets arrive whole and in order, and every end of a rank is
noticed, a farewell told from a loss.

Several meshes live in this process, each with its thread and its sockets; where a process has to
die, it is one of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lmdbio import _core
from lmdbio._core import Mesh, PeerState

#: Of this process alone: sockets have names of it.
KEY = os.urandom(Mesh.KEY_BYTES)
SECONDS_MAX = 20.0
OPEN = Path("/proc/self/fd")


def until(true: Callable[[], object]) -> None:
    """Wait until something is true; fail after ``SECONDS_MAX``."""
    deadline = time.monotonic() + SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)


def place_all(meshes: list[Mesh], *, is_near: bool) -> None:
    for mesh in meshes:
        for rank, other in enumerate(meshes):
            mesh.place(rank, "127.0.0.1", other.port, is_near=is_near)


def take(mesh: Mesh, tag: int) -> tuple[int, bytes]:
    found: list[tuple[int, bytes]] = []

    def came() -> bool:
        message = mesh.take(tag)
        if message is not None:
            found.append(tuple(message))
        return bool(found)

    until(came)
    return found[0]


@pytest.fixture(params=["unix", "tcp"])
def two(request: pytest.FixtureRequest) -> Iterator[list[Mesh]]:
    # A key of its own: a child that was forked meanwhile may hold names of an earlier test.
    key = os.urandom(Mesh.KEY_BYTES)
    meshes = [Mesh(rank, 2, key) for rank in range(2)]
    place_all(meshes, is_near=request.param == "unix")
    yield meshes
    for mesh in meshes:
        mesh.leave(0)


def test_messages_of_a_tag_arrive_whole_and_in_order(two: list[Mesh]) -> None:
    draw = random.Random(7)
    bodies = [
        draw.randbytes(draw.choice([0, 1, 100, 70_000, 2**20, 3 * 2**20])) for _ in range(60)
    ]
    for i, body in enumerate(bodies):
        two[0].send(1, i % 3, body)
        two[1].send(0, 5, body[::-1])
    for tag in (2, 0, 1):
        for body in bodies[tag::3]:
            assert take(two[1], tag) == (0, body)
    for body in bodies:
        assert take(two[0], 5) == (1, body[::-1])
    assert two[0].take(5) is None and two[1].take(Mesh.ANY_TAG) is None
    until(lambda: two[0].unsent == two[1].unsent == 0)


def test_a_message_to_itself_arrives(two: list[Mesh]) -> None:
    two[1].send(1, 3, b"own")
    assert two[1].take(3) == (1, b"own")


def test_an_exchange_calls_it_as_a_library_of_mpi() -> None:
    mesh = Mesh(0, 1, KEY)
    library, communicator = mesh.library()
    _core.probe_mpi(library, communicator)
    mesh.leave(0)


def test_waiting_ends_when_something_comes(two: list[Mesh]) -> None:
    seen = two[1].wait(0, 0)
    began = time.monotonic()
    assert two[1].wait(seen, 50) == seen
    assert time.monotonic() - began >= 0.04
    two[0].send(1, 0, b"x")
    assert two[1].wait(seen, 10_000) > seen
    assert two[1].take(0) == (0, b"x")


def test_whoever_leaves_says_farewell_and_is_not_lost(two: list[Mesh]) -> None:
    """Both ways: the one that connected leaves, and the one that was connected to."""
    two[0].send(1, 0, b"last")
    two[0].leave()
    until(lambda: two[1].states()[0] == PeerState.LEFT)
    assert two[1].lost() is None
    assert two[1].take(0) == (0, b"last")
    two[1].send(0, 0, b"nobody is there")  # dropped
    assert two[1].unsent == 0


def test_the_one_that_listened_says_farewell(two: list[Mesh]) -> None:
    two[0].connect(1)
    two[0].send(1, 0, b"hello")
    assert take(two[1], 0) == (0, b"hello")
    two[1].leave()
    until(lambda: two[0].states()[1] == PeerState.LEFT)
    assert two[0].lost() is None


@pytest.mark.parametrize("is_near", [True, False])
def test_a_rank_that_leaves_loses_nobody_who_answers_its_farewell(is_near: bool) -> None:
    """It still waits for a connection to a third one, which takes none."""
    meshes = [Mesh(rank, 3, KEY) for rank in range(2)]
    with contextlib.ExitStack() as stack:
        third = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):  # the kernel lets no more wait
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(third.getsockname())
        place_all(meshes, is_near=is_near)
        meshes[0].place(2, *third.getsockname(), is_near=False)
        meshes[1].send(0, 0, b"hello")
        meshes[0].send(1, 0, b"hello")
        assert take(meshes[0], 0) == (1, b"hello") and take(meshes[1], 0) == (0, b"hello")
        meshes[0].connect(2)
        time.sleep(0.1)  # it begins to connect
        meshes[0].leave(300)
    until(lambda: meshes[1].states()[0] == PeerState.LEFT)
    assert meshes[0].states()[1] != PeerState.LOST and meshes[0].lost() is None
    meshes[1].leave(0)


DIES = """
import os, sys, time
from lmdbio._core import Mesh
mesh = Mesh(1, 2, bytes.fromhex(sys.argv[4]))
mesh.place(0, "127.0.0.1", int(sys.argv[1]), is_near=sys.argv[2] == "unix")
print(mesh.port, flush=True)
if sys.argv[3] == "connects":
    mesh.send(0, 0, b"hello")
sys.stdin.read()
"""


@pytest.mark.parametrize("who", ["connects", "listens"])
@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_a_process_that_is_killed_is_lost(way: str, who: str) -> None:
    mesh = Mesh(0, 2, KEY)
    with subprocess.Popen(
        [sys.executable, "-c", DIES, str(mesh.port), way, who, KEY.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        mesh.place(1, "127.0.0.1", port, is_near=way == "unix")
        if who == "connects":
            assert take(mesh, 0) == (1, b"hello")
        else:
            mesh.send(1, 0, b"hello")
            until(lambda: mesh.unsent == 0)
        assert mesh.lost() is None
        other.send_signal(signal.SIGKILL)
        until(lambda: mesh.lost() is not None)
    lost = mesh.lost()
    # Where it had not read all, the kernel resets its connection.
    assert lost is not None and lost[0] == 1
    assert "its process has ended" in lost[1] or "its connection broke" in lost[1]
    assert mesh.states() == [PeerState.AWAY, PeerState.LOST]
    mesh.send(1, 0, b"dropped")
    assert mesh.unsent == 0
    mesh.leave(0)


def test_a_rank_that_nobody_listens_for_is_lost() -> None:
    mesh = Mesh(0, 3, KEY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mesh.place(1, "127.0.0.1", port, is_near=False)
    mesh.send(1, 0, b"x")
    until(lambda: mesh.lost() is not None)
    lost = mesh.lost()
    assert lost is not None and lost[0] == 1 and "cannot be reached" in lost[1]
    mesh.connect(2)
    until(lambda: mesh.states()[2] == PeerState.LOST)
    mesh.leave(0)


def met(port: int, *, is_near: bool = False) -> Mesh:
    """Rank 0, which has met rank 1, that listened at a port, and has nothing from it yet."""
    mesh = Mesh(0, 2, KEY)
    mesh.place(1, "127.0.0.1", port, is_near=is_near)
    mesh.met()
    return mesh


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_a_rank_that_left_before_its_first_message_is_not_lost(way: str) -> None:
    other = Mesh(1, 2, KEY)
    other.leave()
    mesh = met(other.port, is_near=way == "unix")
    mesh.send(1, 0, b"nobody is there")
    until(lambda: mesh.states()[1] == PeerState.LEFT)
    assert mesh.lost() is None and mesh.unsent == 0
    mesh.leave(0)


def test_a_rank_that_leaves_before_it_reads_the_greeting_is_not_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        mesh = met(other.getsockname()[1])
        mesh.send(1, 0, b"nobody reads it")
        link = other.accept()[0]
        until(lambda: len(link.recv(32, socket.MSG_PEEK)) == 32)
        link.close()
    until(lambda: mesh.states()[1] == PeerState.LEFT)
    assert mesh.lost() is None
    mesh.leave(0)


def test_a_rank_that_is_turned_away_before_its_welcome_comes_again() -> None:
    """Its listener had too many strangers. It sends what it was to send after all, in order."""
    mesh = Mesh(0, 2, KEY)
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(SECONDS_MAX)
        mesh.place(1, "127.0.0.1", other.getsockname()[1], is_near=False)
        for number in range(50):
            mesh.send(1, 0, b"message %02d" % number)
            link = other.accept()[0]
            if number % 2:
                assert link.recv(32, socket.MSG_WAITALL) == greeting(0, 2)
            link.close()
        with other.accept()[0] as link:
            link.settimeout(SECONDS_MAX)
            assert link.recv(32, socket.MSG_WAITALL) == greeting(0, 2)
            link.sendall(b"W")
            for number in range(50):
                assert link.recv(26, socket.MSG_WAITALL)[16:] == b"message %02d" % number
            assert mesh.lost() is None
    mesh.leave(0)


def test_a_rank_that_leaves_says_all_to_one_that_has_not_welcomed_it() -> None:
    """As one that is stopped: it reads when it goes on."""
    mesh = Mesh(0, 2, KEY)
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(SECONDS_MAX)
        mesh.place(1, "127.0.0.1", other.getsockname()[1], is_near=False)
        mesh.send(1, 0, b"the last message")
        time.sleep(0.1)
        mesh.leave(50)
        with other.accept()[0] as link:
            link.settimeout(SECONDS_MAX)
            assert link.recv(32, socket.MSG_WAITALL) == greeting(0, 2)
            assert link.recv(32, socket.MSG_WAITALL)[16:] == b"the last message"
            assert link.recv(16, socket.MSG_WAITALL)[4:8] == FAREWELL
            assert link.recv(1) == b""


def test_who_is_turned_away_each_time_is_told() -> None:
    """As where another program has the port."""
    mesh, closing = Mesh(0, 2, KEY), threading.Event()

    def turn_away(other: socket.socket) -> None:
        while not closing.is_set():
            with contextlib.suppress(TimeoutError):
                other.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.1)
        turning = threading.Thread(target=turn_away, args=(other,))
        turning.start()
        mesh.place(1, "127.0.0.1", other.getsockname()[1], is_near=False)
        mesh.connect(1)
        until(lambda: mesh.lost() is not None)
        closing.set()
        turning.join()
    lost = mesh.lost()
    assert lost is not None and lost[0] == 1 and "its process has ended" in lost[1]
    mesh.leave(0)


def test_a_rank_that_has_welcomed_this_one_is_known_to_be_here(two: list[Mesh]) -> None:
    """From then on its end without a farewell is a loss, whatever has been said before."""
    two[0].connect(1)
    until(lambda: two[0].states()[1] == PeerState.HERE)


def test_a_rank_that_ends_before_all_have_met_is_lost() -> None:
    """A rank that leaves says farewell to those that it has heard."""
    mesh = Mesh(0, 2, KEY)
    with socket.create_server(("127.0.0.1", 0)) as other:
        mesh.place(1, "127.0.0.1", other.getsockname()[1], is_near=False)
        mesh.connect(1)
        other.accept()[0].close()
    until(lambda: mesh.states()[1] == PeerState.LOST)
    mesh.leave(0)


def test_a_rank_that_has_heard_this_one_and_is_cut_off_is_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        mesh = met(other.getsockname()[1])
        mesh.send(1, 0, b"x")
        link = other.accept()[0]
        link.sendall(b"W")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()  # by a reset
        until(lambda: mesh.lost() is not None)
    lost = mesh.lost()
    assert lost is not None and "reset" in lost[1]
    mesh.leave(0)


def cut_off(link: socket.socket) -> None:
    """Let nothing reach a socket any more, as where its machine has died."""
    nothing = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF: keep 0 bytes
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(nothing))
    link.setsockopt(socket.SOL_SOCKET, 26, program)  # SO_ATTACH_FILTER


@pytest.mark.more
def test_a_rank_that_is_stopped_is_not_lost_and_a_dead_machine_is() -> None:
    """Rank 1 reads nothing. 2 dies while it is written to, 3 while nothing is said, 4 full.

    Before Linux 6.15 the kernel asks a full one every two minutes: the way back tells of it.
    """
    mesh = Mesh(0, 5, KEY)
    with contextlib.ExitStack() as stack:
        links = []
        for rank in (1, 2, 3, 4):
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            mesh.place(rank, "127.0.0.1", server.getsockname()[1], is_near=False)
            mesh.connect(rank)
            links.append(stack.enter_context(server.accept()[0]))
            until(lambda: len(links[-1].recv(32, socket.MSG_PEEK)) == 32)
            links[-1].sendall(b"W")
        back = stack.enter_context(socket.create_connection(("127.0.0.1", mesh.port)))
        back.sendall(greeting(4, 5))
        assert back.recv(1) == b"W"
        mesh.send(1, 0, bytes(32 << 20))
        mesh.send(4, 0, bytes(32 << 20))
        time.sleep(3)  # both are full
        cut_off(links[3])
        cut_off(back)
        cut_off(links[1])
        cut_off(links[2])
        mesh.send(2, 0, b"x")
        began = time.monotonic()
        while mesh.states()[2:] != [PeerState.LOST] * 3 and time.monotonic() < began + 60:
            assert mesh.states()[1] == PeerState.HERE
            time.sleep(0.1)
        assert time.monotonic() - began > 20
        time.sleep(2)  # without data its limit would have been the same
        assert mesh.states() == [PeerState.AWAY, PeerState.HERE] + [PeerState.LOST] * 3
        assert mesh.unsent == 32 << 20
        lost = mesh.lost()
        assert lost is not None and "timed out" in lost[1]
    mesh.leave(0)


def test_a_rank_connects_back_to_one_of_another_machine() -> None:
    mesh = Mesh(0, 2, KEY)
    with socket.create_server(("127.0.0.1", 0)) as other:
        mesh.place(1, "127.0.0.1", other.getsockname()[1], is_near=False)
        with socket.create_connection(("127.0.0.1", mesh.port)) as caller:
            caller.sendall(greeting(1, 2))
            other.settimeout(SECONDS_MAX)
            back = other.accept()[0]
            back.settimeout(SECONDS_MAX)
            assert back.recv(32, socket.MSG_WAITALL) == greeting(0, 2)
            back.close()
    mesh.leave(0)


def test_a_near_rank_of_another_network_is_reached_by_tcp() -> None:
    """Its Unix socket cannot be found."""
    one, other = Mesh(0, 2, KEY), Mesh(1, 2, KEY[::-1])
    # Another name, since the key is another one; and so it is refused, by TCP.
    one.place(1, "127.0.0.1", other.port, is_near=True)
    one.send(1, 0, b"x")
    until(lambda: one.lost() is not None)
    assert other.take(Mesh.ANY_TAG) is None
    one.leave(0)
    other.leave(0)


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\n\r\n" * 4, bytes(32), b"lmdbioM1" + bytes(24)]
)
def test_strangers_are_not_heard(two: list[Mesh], said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", two[0].port)) as stranger:
        stranger.settimeout(SECONDS_MAX)
        with contextlib.suppress(OSError):  # it is cut off at once
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
    assert two[0].lost() is None and two[0].take(Mesh.ANY_TAG) is None
    two[1].send(0, 0, b"still here")
    assert take(two[0], 0) == (1, b"still here")


#: Tag of a rank's last message.
FAREWELL = (-2).to_bytes(4, "little", signed=True)


def greeting(rank: int, ranks: int) -> bytes:
    return b"lmdbioM1" + KEY + rank.to_bytes(4, "little") + ranks.to_bytes(4, "little")


def test_a_crowd_of_strangers_shuts_no_rank_out(two: list[Mesh]) -> None:
    """The oldest ones are closed."""
    with contextlib.ExitStack() as stack:
        crowd = [
            stack.enter_context(socket.create_connection(("127.0.0.1", two[0].port)))
            for _ in range(80)
        ]
        crowd[0].settimeout(SECONDS_MAX)
        assert crowd[0].recv(1) == b""
        crowd[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            crowd[-1].recv(1)
        two[1].send(0, 0, b"a rank")
        assert take(two[0], 0) == (1, b"a rank")


def test_a_stranger_that_says_nothing_is_closed() -> None:
    mesh = Mesh(0, 2, KEY)
    with socket.create_connection(("127.0.0.1", mesh.port)) as stranger:
        stranger.settimeout(SECONDS_MAX)
        began = time.monotonic()
        assert stranger.recv(1) == b""
        assert time.monotonic() - began > 9.0  # a rank may be slow
    mesh.leave(0)


#: Binds the name of a rank, or greets as a rank, by a Unix socket and as another user.
OTHER_USER = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
_, way, name, said = sys.argv
with socket.socket(socket.AF_UNIX) as own:
    if way == "binds":
        own.bind(chr(0) + name)
        own.listen()
        print("ready", flush=True)
        other = own.accept()[0]
    else:
        own.connect(chr(0) + name)
        other = own
        try:
            other.sendall(bytes.fromhex(said))
        except BrokenPipeError:
            pass
    other.settimeout(20)
    try:
        print(other.recv(100), flush=True)
    except ConnectionResetError:
        print(b"", flush=True)
"""


def other_user(way: str, rank: int, said: bytes = b"") -> subprocess.Popen[str]:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    name = f"lmdbio-{int.from_bytes(KEY[:4], 'little'):08x}-{rank}"
    return subprocess.Popen(
        [sys.executable, "-c", OTHER_USER, way, name, said.hex()],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_name_that_another_user_has_bound_is_told_no_key() -> None:
    with other_user("binds", 1) as thief:
        assert thief.stdout is not None and thief.stdout.readline() == "ready\n"
        meshes = [Mesh(rank, 2, KEY) for rank in range(2)]
        place_all(meshes, is_near=True)
        meshes[0].send(1, 0, b"by TCP")
        assert take(meshes[1], 0) == (0, b"by TCP")
        assert thief.stdout.readline() == "b''\n"
    for mesh in meshes:
        mesh.leave(0)


def test_another_user_is_not_heard_even_with_the_key() -> None:
    mesh = Mesh(0, 2, KEY)
    body = b"lmdb" + bytes(4) + (2).to_bytes(8, "little") + b"hi"
    with other_user("greets", 0, greeting(1, 2) + body) as thief:
        assert thief.stdout is not None and thief.stdout.readline() == "b''\n"
    assert mesh.take(0) is None and mesh.states() == [PeerState.AWAY] * 2
    mesh.leave(0)


@pytest.mark.parametrize(
    "head",
    [
        b"nope" + bytes(12),
        b"lmdb" + (5).to_bytes(4, "little") + (2**31).to_bytes(8, "little"),
        b"lmdb" + (2**32 - 3).to_bytes(4, "little") + bytes(8),
    ],
)
def test_what_is_no_message_ends_the_rank_that_sent_it(head: bytes) -> None:
    mesh = Mesh(0, 2, KEY)
    with socket.create_connection(("127.0.0.1", mesh.port)) as other:
        other.sendall(greeting(1, 2) + head)
        until(lambda: mesh.lost() is not None)
    lost = mesh.lost()
    assert lost is not None and lost[0] == 1 and "no message" in lost[1]
    mesh.leave(0)


def test_a_rank_is_heard_over_one_connection() -> None:
    mesh = Mesh(0, 2, KEY)
    body = b"lmdb" + bytes(4) + (2).to_bytes(8, "little") + b"hi"
    with socket.create_connection(("127.0.0.1", mesh.port)) as first:
        first.sendall(greeting(1, 2) + body)
        assert take(mesh, 0) == (1, b"hi")
        with socket.create_connection(("127.0.0.1", mesh.port)) as second:
            second.settimeout(SECONDS_MAX)
            with contextlib.suppress(ConnectionResetError):  # it is cut off at once
                second.sendall(greeting(1, 2) + body)
                assert second.recv(1) == b""
        assert mesh.take(0) is None and mesh.lost() is None
    mesh.leave(0)


def fork_bare() -> int:
    """Fork as C does: nothing closes what the child holds. It sleeps until it is killed."""
    child = int(ctypes.PyDLL(None).fork())
    if child == 0:
        while True:
            time.sleep(SECONDS_MAX)
    return child


def test_a_connection_that_a_bare_fork_holds_is_not_watched_after_its_end() -> None:
    """Else epoll reports what is freed, and does so for ever: the thread would not sleep."""
    mesh = Mesh(0, 2, KEY)

    def count() -> int:
        return len(list(OPEN.iterdir()))

    before = count()
    with socket.create_connection(("127.0.0.1", mesh.port)) as stranger:
        until(lambda: count() == before + 2)
        child = fork_bare()
        try:
            stranger.sendall(bytes(32))
            until(lambda: count() == before + 1)
            stranger.sendall(b"more")
            used_s, began_s = time.process_time(), time.monotonic()
            while time.monotonic() < began_s + 0.5:
                time.sleep(0.1)
            assert time.process_time() - used_s < 0.1
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    mesh.leave(0)


def test_a_forked_child_holds_no_connection(two: list[Mesh]) -> None:
    """Else nobody would hear of the parent's end."""
    two[0].send(1, 0, b"x")
    take(two[1], 0)
    child = os.fork()
    if child == 0:
        two[0].send(1, 0, b"of a child")
        links = [os.readlink(fd) for fd in OPEN.iterdir() if fd.exists()]  # noqa: PTH115
        os._exit(3 if any("socket" in link for link in links) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    two[0].send(1, 0, b"of the parent")
    assert take(two[1], 0) == (0, b"of the parent")


def test_no_descriptor_is_left() -> None:
    def count() -> int:
        return len(list(OPEN.iterdir()))

    before = count()
    for _ in range(50):
        meshes = [Mesh(rank, 3, KEY) for rank in range(3)]
        place_all(meshes, is_near=True)
        meshes[0].send(1, 0, bytes(100_000))
        meshes[1].send(2, 0, b"x")
        take(meshes[2], 0)
        for mesh in meshes:
            mesh.leave()
        del mesh, meshes
    assert count() == before
