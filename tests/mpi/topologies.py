"""Program: Readers on communicators of every kind, and several at once.

Arguments: a set of data.mixed_value with a sidecar, and one of data.fixed_value. Every record
that a rank gets is compared with what Caffe's order says is its share, byte for byte.

A rank can be ahead of others by as many blocks as there are slots, less one, and two ranks that
waited for each other in two Readers would wait for ever, as with any two queues. So the orders
differ here by no more than that.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from data import FIXED, MIXED, fixed_value, mixed_value
from mpi4py import MPI

from lmdbio.errors import Error
from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.reader.reader import Reader
from lmdbio.reading.batch import Batch

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
SETS = {"mixed": (sys.argv[1], MIXED, mixed_value), "fixed": (sys.argv[2], FIXED, fixed_value)}
#: By provenance where there is a sidecar, else by a scan; one root, two, and every rank.
MODES = itertools.cycle(
    [
        "auto",
        Mode(ALL_RANKS),
        Mode(2, block_iterations=3),
        "dio",
        Mode(2, engine="mmap"),
        Mode(ALL_RANKS, engine="direct", block_iterations=2),
        "lmdb",
        "lmm",
    ]
)


class Watched:
    """A Reader whose every batch is compared with what it must be."""

    def __init__(
        self,
        comm: MPI.Intracomm | None,
        name: str,
        batch_size: int,
        *,
        iterations: int = 12,
        start: int = 0,
        **more: object,
    ) -> None:
        path, self._count, self._value = SETS[name]
        if "mode" not in more:  # the same on all ranks, as every call but this is made by all
            more["mode"] = next(MODES)
        self._rank, self._size = (comm.rank, comm.size) if comm is not None else (0, 1)
        self._start, self._batch_size, self._t = start, batch_size, 0
        self.iterations = iterations
        self.reader = Reader(
            path, batch_size, comm=comm, iterations=iterations, start=start, **more
        )

    def look(self, batch: Batch) -> None:
        B, p, P = self._batch_size, self._rank, self._size
        first = self._start + self._t * B
        share = range(first + p * B // P, first + (p + 1) * B // P)
        assert batch.indices.tolist() == [i % self._count for i in share], (RANK, self.reader)
        for record, index in zip(batch, batch.indices.tolist(), strict=True):
            assert bytes(record) == self._value(index), (RANK, index, self.reader)
        self._t += 1

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.look(next(self.reader))

    def finish(self) -> None:
        for batch in self.reader:
            self.look(batch)
        assert self._t == self.iterations

    def close(self) -> None:
        self.reader.close()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        self.reader.__exit__(kind, error, trace)  # type: ignore[arg-type]


def per_nodes() -> Iterator[int | None]:
    """Nodes as MPI makes them; unequal ones, where the ranks don't divide; single ranks."""
    yield from (None, SIZE - 1, 2, 1)


def two_jobs_of_different_sizes_read_different_data_at_once() -> None:
    for per_node in per_nodes():
        few = RANK < SIZE // 3 + 1
        comm = WORLD.Split(few, RANK)
        if few:
            job = Watched(comm, "mixed", 7, iterations=20, start=-3, ranks_per_node=per_node)
        else:
            job = Watched(comm, "fixed", comm.size - 1, iterations=9, ranks_per_node=per_node)
        with job:
            job.finish()
        comm.Free()


def ranks_in_another_order_get_the_shares_of_their_new_ranks() -> None:
    shuffled = random.Random(7).sample(range(SIZE), SIZE)
    keys = [[SIZE - rank for rank in range(SIZE)], shuffled, [r % 2 for r in range(SIZE)]]
    for key, per_node in itertools.product(keys, (None, 2)):
        comm = WORLD.Split(0, key[RANK])
        with Watched(comm, "mixed", SIZE + 2, start=5, ranks_per_node=per_node) as job:
            job.finish()
        comm.Free()


def several_readers_at_once_are_asked_in_another_order_on_each_rank() -> None:
    for per_node in per_nodes():
        with ExitStack() as stack:
            jobs = [
                Watched(WORLD, "mixed", 2 * SIZE + 1, iterations=8, ranks_per_node=per_node),
                Watched(WORLD, "fixed", SIZE, iterations=8, start=-1, ranks_per_node=per_node),
                Watched(WORLD, "mixed", 1, iterations=8),
            ]
            for job in jobs:
                stack.enter_context(job)
            for turn in range(8):
                for job in random.Random(f"{RANK}/{turn}").sample(jobs, len(jobs)):
                    job.step()


def some_readers_end_while_others_go_on() -> None:
    """In the same order on all ranks, some of which are further with the others."""
    jobs = [Watched(WORLD, name, SIZE + 1, iterations=30) for name in ("mixed", "fixed", "mixed")]
    for job in jobs:
        job.step(1 + RANK % 2)
    for job in (jobs[1], jobs[2], jobs[0]):
        job.finish()
        job.close()


def a_part_of_the_job_reads_while_the_whole_job_does() -> None:
    half = WORLD.Split(RANK % 2, RANK)
    with Watched(WORLD, "fixed", 3 * SIZE, iterations=24, ranks_per_node=2) as whole:
        whole.step(3 + RANK % 2)
        with Watched(half, "mixed", 5, iterations=8 + 4 * (RANK % 2)) as part:
            part.step(2)
            whole.step(1)
            part.finish()
        whole.finish()
    half.Free()


def every_rank_reads_for_itself_while_the_whole_job_does() -> None:
    with Watched(WORLD, "mixed", SIZE + 3, iterations=20) as whole:
        own = Watched(MPI.COMM_SELF, "fixed", RANK + 1, iterations=RANK + 3, start=RANK)
        alone = Watched(None, "mixed", 2, iterations=4, start=-RANK)
        with own, alone:
            whole.step(RANK % 2)
            own.finish()
            alone.finish()
        whole.finish()


def a_communicator_may_be_freed_once_the_reader_is_made() -> None:
    for per_node in (None, 2):
        comm = WORLD.Dup()
        job = Watched(comm, "fixed", SIZE + 2, iterations=30, ranks_per_node=per_node)
        comm.Free()
        other = WORLD.Dup()  # it may get the number of the one before
        with job:
            job.step(1 + RANK % 2)
            other.barrier()
            job.finish()
        other.Free()


def messages_of_the_user_on_the_same_communicator_stay_the_users() -> None:
    for per_node in (None, 2, 1):
        with Watched(WORLD, "mixed", 2 * SIZE, iterations=30, ranks_per_node=per_node) as job:
            for turn in range(10):
                request = WORLD.isend((RANK, turn), (RANK + 1) % SIZE, tag=turn)
                job.step(1 + (RANK + turn) % 2)
                status = MPI.Status()
                # Nobody but the neighbour may send what is received from anybody.
                told = WORLD.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
                assert told == ((RANK - 1) % SIZE, turn) and status.Get_tag() == turn
                request.wait()
                assert WORLD.allreduce(1) == SIZE
            job.finish()


def communicators_with_a_shape_and_of_some_ranks_only_will_do() -> None:
    cart = WORLD.Create_cart([SIZE], periods=[True], reorder=True)
    with Watched(cart, "mixed", SIZE + 1, ranks_per_node=SIZE - 1) as job:
        job.finish()
    cart.Free()
    some = WORLD.group.Incl(list(range(SIZE - 1, 0, -1)))
    if RANK:
        comm = WORLD.Create_group(some)
        with Watched(comm, "fixed", 2, mode="auto", ranks_per_node=2) as job:
            job.finish()
        comm.Free()


def readers_end_in_another_order_than_they_began_and_before_their_end() -> None:
    jobs = [Watched(WORLD, "fixed", SIZE, iterations=40, ranks_per_node=2) for _ in range(3)]
    for job in jobs:
        job.step(2 + RANK % 2)
    for job in reversed(jobs):
        job.close()


#: Every way of locating, and turns.
KINDS = ["auto", "lmdb", "lmm", "dm", "dio", Mode(tokens=1)]


def epochs_of_no_iterations_and_readers_that_are_never_asked_end_at_once() -> None:
    for per_node, mode in itertools.product((SIZE, SIZE - 1, 1), KINDS):
        with Watched(
            WORLD, "mixed", SIZE, iterations=0, ranks_per_node=per_node, mode=mode
        ) as job:
            job.finish()
        with Watched(WORLD, "mixed", SIZE - 1, ranks_per_node=per_node, mode=mode):
            pass


def ranks_come_late_and_leave_late() -> None:
    for late in (0, SIZE - 1):
        time.sleep(0.1 * (late == RANK))
        with Watched(WORLD, "mixed", SIZE, ranks_per_node=2) as job:
            time.sleep(0.1 * (late != RANK))
            job.finish()


#: Of communicators that users make by MPI, and send over themselves.
OF_MPI: list[Callable[[], None]] = [
    messages_of_the_user_on_the_same_communicator_stay_the_users,
    communicators_with_a_shape_and_of_some_ranks_only_will_do,
]
CASES: list[Callable[[], None]] = [
    two_jobs_of_different_sizes_read_different_data_at_once,
    ranks_in_another_order_get_the_shares_of_their_new_ranks,
    several_readers_at_once_are_asked_in_another_order_on_each_rank,
    some_readers_end_while_others_go_on,
    a_part_of_the_job_reads_while_the_whole_job_does,
    every_rank_reads_for_itself_while_the_whole_job_does,
    a_communicator_may_be_freed_once_the_reader_is_made,
    *([] if MPI.get_vendor()[0] == "sockets" else OF_MPI),
    readers_end_in_another_order_than_they_began_and_before_their_end,
    epochs_of_no_iterations_and_readers_that_are_never_asked_end_at_once,
    ranks_come_late_and_leave_late,
]

for case in CASES:
    began = time.perf_counter()
    try:
        case()
    except Error as error:
        raise AssertionError(f"{case.__name__}: {error}") from error
    WORLD.Barrier()
    if RANK == 0:
        print(f"{case.__name__}: {time.perf_counter() - began:.2f} s", flush=True)
