"""Program: what cannot begin is refused on all ranks together, and the job goes on.

Arguments: a data set of data.fixed_value, and one with fewer records.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from lmdbio import share
from lmdbio.errors import IncompatibleError, PeerError
from lmdbio.reader.reader import Reader
from lmdbio.share import memory as rooms, mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
PATH, SMALLER = sys.argv[1:3]
LAST = SIZE - 1


def works() -> None:
    with Reader(PATH, 2 * SIZE, comm=COMM, iterations=3) as rdr:
        assert [len(b) for b in rdr] == [2] * 3


def refused(
    error: type[Exception] | tuple[type[Exception], ...], *words: str, **arguments: Any
) -> str:
    """The same call on all ranks fails on all ranks; what this rank was told."""
    call: dict[str, Any] = {"path": PATH, "batch_size": 2 * SIZE, "comm": COMM} | arguments
    try:
        Reader(**call)
    except error as told:
        text = f"{type(told).__name__}: {told}"
        assert all(word in text for word in words), (RANK, text, words)
        works()
        return text
    raise AssertionError(f"rank {RANK} was not refused: {arguments}")


def here(rank: int, special: Any, usual: Any) -> Any:
    return special if rank == RANK else usual


def arguments_that_differ_are_named_with_ranks_and_values() -> None:
    others = "rank 0" if SIZE == 2 else f"ranks 0-{LAST - 1}"
    for name, special, usual in (
        ("batch_size", 77, 78),
        ("start", 5, 0),
        ("assignment", "blocked", "strided"),
        ("slots", 3, 2),
        ("iterations", 9, None),
        ("mode", "dio", "auto"),
        ("ranks_per_node", 1, None),
        ("memory_bytes_max", 10**8, 10**9),
        ("path", SMALLER, PATH),
    ):
        refused(
            ValueError,
            f"{name} differs",
            f"{special!r} on rank {LAST}",
            f"{usual!r} on {others}",
            **{name: here(LAST, special, usual)},
        )


def nonsense_on_one_rank_is_an_error_on_all() -> None:
    told = refused((ValueError, PeerError), "batch_size", batch_size=here(0, 0, 8))
    assert told.startswith("ValueError" if RANK == 0 else "PeerError: rank 0 failed: ValueError")
    refused(IncompatibleError, "order='insertion'", mode="dm", order="insertion")


def too_little_memory_names_both_numbers() -> None:
    refused(
        (ValueError, PeerError), "needs", "memory budget", "10000 bytes", memory_bytes_max=10_000
    )


def a_small_shared_memory_is_found_before_any_touch() -> None:
    kept, touched = mpi.shm_free, []
    reserve = share.SharedMemory.reserve
    try:
        mpi.shm_free = lambda: 12_345
        share.SharedMemory.reserve = lambda *a: touched.append(a)  # type: ignore[method-assign]
        for per_node in {1, SIZE}:
            call = {"batch_size": 8 * SIZE, "comm": COMM, "ranks_per_node": per_node}
            try:
                Reader(PATH, **call)  # type: ignore[arg-type]
            except MemoryError as told:
                assert "12345 free" in str(told) and "smaller batch_size" in str(told), told
                assert f"ranks 0-{LAST} need" in str(told), told
            else:
                raise AssertionError("not refused")
        assert not touched
    finally:
        mpi.shm_free = kept
        share.SharedMemory.reserve = reserve  # type: ignore[method-assign]
    works()


def memory_that_cannot_be_reserved_is_an_error_on_all() -> None:
    populate = rooms._core.populate

    def fails(address: int, size: int) -> bool:
        if RANK == 0:
            raise OSError(28, "No space left on device")
        return populate(address, size)

    try:
        rooms._core.populate = fails
        try:
            Reader(PATH, 8, comm=COMM)
        except (MemoryError, PeerError) as told:
            assert "ran out while reserving" in str(told), told
            assert isinstance(told, MemoryError) == (RANK == 0)
        else:
            raise AssertionError("not refused")
    finally:
        rooms._core.populate = populate
    works()


def memory_that_runs_out_while_a_root_reads_is_an_error_on_all() -> None:
    populate = rooms._core.populate

    def fails(address: int, size: int) -> bool:
        if RANK == 0 and threading.current_thread() is not threading.main_thread():
            raise OSError(28, "No space left on device")
        return populate(address, size)

    for per_node in {1, SIZE}:
        try:
            rooms._core.populate = fails
            with Reader(PATH, 2 * SIZE, comm=COMM, ranks_per_node=per_node) as rdr:
                for _ in rdr:  # endless
                    pass
        except (MemoryError, PeerError) as told:
            assert "ran out while reserving" in str(told), told
            assert isinstance(told, MemoryError) == (RANK == 0)
        finally:
            rooms._core.populate = populate
        works()


CASES: list[Callable[[], None]] = [
    arguments_that_differ_are_named_with_ranks_and_values,
    nonsense_on_one_rank_is_an_error_on_all,
    too_little_memory_names_both_numbers,
    memory_that_cannot_be_reserved_is_an_error_on_all,
    memory_that_runs_out_while_a_root_reads_is_an_error_on_all,
]

if MPI.get_vendor()[0] != "sockets":  # whose windows no file system limits
    CASES.append(a_small_shared_memory_is_found_before_any_touch)

works()
for case in CASES:
    case()
    COMM.Barrier()
    if RANK == 0:
        print(f"{case.__name__}: ok", flush=True)
