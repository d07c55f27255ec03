"""Program: one rank fails in mid-epoch, in every way, and all others are told.

Arguments: a set of data.fixed_value, and the sizes of nodes to try. The rank that fails notes
when; each other rank must get PeerError naming it and the cause, soon, and the job must go on.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

from mpi4py import MPI

from lmdbio import _core
from lmdbio.errors import PeerError
from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.reader import block_size, phases
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
PATH = sys.argv[1]
#: How soon a rank must be told, seconds: of the same node (woken at once), of another.
SAME_NODE_SECONDS_MAX, OTHER_NODE_SECONDS_MAX = 3.0, 5.0
#: When a rank stops to wait for being told, seconds.
WAIT_SECONDS_MAX = 8.0
#: The iteration in which it happens: the pipeline of blocks is under way.
AT = 12


class Fire(Exception):
    pass


def user_code(rdr: Reader) -> None:
    raise Fire("the rank is on fire")


def a_view_held(rdr: Reader) -> None:
    batch = next(rdr)
    held = batch[0]
    try:
        next(rdr)
    finally:
        del held


def an_interrupt(rdr: Reader) -> None:
    signal.raise_signal(signal.SIGINT)


def the_roots_thread(rdr: Reader) -> None:
    """Its reads fail from now on; the error comes with the batch that they were for."""
    BROKEN.set()
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    for batch in rdr:
        assert time.monotonic() < deadline
        del batch


#: In this mode records are shuffled, and roots exchange them.
WINDOWS = Mode(block_iterations=2)
block_size.WINDOW_BYTES_MIN = block_size.BLOCK_BYTES_TARGET = 1
block_size.TURN_BLOCK_BYTES_TARGET = 1
phases.SLICE_BYTES = 32 << 10
#: Set where the engine of this root's thread is to fail.
BROKEN = threading.Event()
MANNERS: dict[Callable[[Reader], None], str] = {
    user_code: "Fire: the rank is on fire",
    a_view_held: "BufferError: views of the batch",
    an_interrupt: "KeyboardInterrupt: ",
    the_roots_thread: f"OSError: [Errno {errno.EIO}] the disk is on fire",
}


@contextlib.contextmanager
def breakable_engine() -> Iterator[None]:
    poll = _core.Ticket.poll

    def fails(self: _core.Ticket, timeout_ms: int = 0) -> bool:
        if BROKEN.is_set() and threading.current_thread() is not threading.main_thread():
            raise OSError(errno.EIO, "the disk is on fire", PATH)
        return poll(self, timeout_ms)

    _core.Ticket.poll = fails  # type: ignore[method-assign]
    try:
        yield
    finally:
        _core.Ticket.poll = poll  # type: ignore[method-assign]
        BROKEN.clear()


def read(rdr: Reader, failing: int, manner: Callable[[Reader], None], noted: list[float]) -> None:
    deadline = None
    for t, batch in enumerate(rdr):
        words = batch.array("<u4", 750)
        assert (words == batch.indices.astype("<u4")[:, None]).all()
        del words, batch
        if t == AT and failing == RANK:
            noted.append(time.monotonic())
            manner(rdr)
        if t >= AT:
            deadline = deadline or time.monotonic() + WAIT_SECONDS_MAX
            if time.monotonic() > deadline:
                return
        time.sleep(0.001)


def case(manner: Callable[[Reader], None], failing: int, per_node: int, mode: Mode | str) -> None:
    noted: list[float] = []
    told = ""
    try:
        with Reader(
            PATH, 2 * SIZE, comm=COMM, mode=mode, slots=2, ranks_per_node=per_node,
            shuffle="groups:64" if mode == WINDOWS else None,
        ) as rdr:  # fmt: skip
            read(rdr, failing, manner, noted)
    except PeerError as error:
        noted.append(time.monotonic())
        told = f"PeerError: {error}"
    except (Fire, BufferError, OSError, KeyboardInterrupt) as error:
        told = f"{type(error).__name__}: {error}"
    BROKEN.clear()
    everybody = COMM.allgather((told, noted[0] if noted else None))
    where = f"{manner.__name__} on rank {failing} of {SIZE}, nodes of {per_node}, {mode}"
    began = everybody[failing][1]
    assert began is not None and everybody[failing][0].startswith(MANNERS[manner]), everybody
    for rank, (text, when) in enumerate(everybody):
        if rank == failing:
            continue
        wanted = f"PeerError: rank {failing} failed: {MANNERS[manner]}".strip()
        assert text.startswith(wanted), (where, f"rank {rank} ended with {text!r}")
        same = rank // per_node == failing // per_node
        limit = SAME_NODE_SECONDS_MAX if same else OTHER_NODE_SECONDS_MAX
        assert 0 <= when - began < limit, (where, f"rank {rank} after {when - began:.1f} s")


def main() -> None:
    modes = itertools.cycle(
        [
            Mode(1),
            Mode(2, block_iterations=2),
            Mode(block_iterations=0, tokens=1),
            Mode(ALL_RANKS),
            "lmdb",
            Mode(ALL_RANKS, block_iterations=2, tokens=1),
            "dm",
            WINDOWS,
            Mode(block_iterations=2, phases=2),
        ]
    )
    last, cases = SIZE - 1, 0
    with breakable_engine():
        for per_node in map(int, sys.argv[2:]):
            # Only roots fill; the first rank of each node is one.
            ends = (0, last // per_node * per_node)
            for manner in MANNERS:
                for failing in ends if manner is the_roots_thread else (0, last):
                    case(manner, failing, per_node, next(modes))
                    cases += 1
    with Reader(PATH, 2 * SIZE, comm=COMM, iterations=3) as rdr:
        assert [len(batch) for batch in rdr] == [2] * 3  # the job itself is unharmed
    if RANK == 0:
        print(f"{cases} cases", flush=True)


main()
