"""Program: Ctrl-C comes on one rank while a Reader is made. Argument: a set of data.fixed_value.

That rank gets its KeyboardInterrupt, all others are told, and the job goes on: also where they
had begun to expect letters of that Reader, and it had not.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

from mpi4py import MPI

from lmdbio import share
from lmdbio.errors import PeerError
from lmdbio.reader import roots, setup
from lmdbio.reader.reader import Reader
from lmdbio.share import job

COMM = MPI.COMM_WORLD
#: A rank that is not told waits for ever: seconds until it is ended.
SECONDS_MAX = 10
#: Moments before and after the waits of the steps that make a Reader: at least so many, and fewer.
MOMENTS_MIN, MOMENTS_MAX = 20, 100


def interrupted(*_arguments: object) -> Any:
    signal.raise_signal(signal.SIGINT)


def failing(function: Callable[..., Any], kind: type[BaseException]) -> Callable[..., Any]:
    """The function as it is, behind Ctrl-C, or an error in its place."""

    def run(*arguments: Any, **more: Any) -> Any:
        if kind is not KeyboardInterrupt:
            raise kind
        interrupted()
        return function(*arguments, **more)  # where interrupts are held

    return run


def failures_are_told() -> None:
    """By letters, for each rank is a node."""
    try:
        with Reader(sys.argv[1], 2 * COMM.size, comm=COMM, ranks_per_node=1) as reader:
            for t, _batch in enumerate(reader):
                if t == 2 and COMM.rank == 0:
                    raise OSError("on fire")
    except OSError:
        assert COMM.rank == 0
    except PeerError as error:
        assert COMM.rank != 0 and "rank 0 failed: OSError: on fire" in str(error)


def struck(moment: int, wait: Callable[..., None]) -> Callable[..., None]:
    """A wait for all ranks: Ctrl-C comes before or after one of them, by its number."""
    moments = count()

    def waiting(*arguments: Any) -> None:
        for step in (lambda: wait(*arguments), lambda: None):
            if next(moments) == moment:
                interrupted()
            step()

    return waiting


def told_of(moment: int, per_node: int | None) -> bool:
    """Interrupt a rank at a moment of making a Reader; return whether there is such a moment."""
    rank, kept_wait = moment // 2 % COMM.size, job._wait
    outcome = ""
    job._wait = struck(moment, kept_wait) if rank == COMM.rank else kept_wait
    try:
        with Reader(sys.argv[1], 8, comm=COMM, ranks_per_node=per_node, iterations=3) as reader:
            job._wait = kept_wait
            outcome = "made"
            for _ in reader:
                pass
    except KeyboardInterrupt:
        assert rank == COMM.rank
        outcome = "interrupted"
    except PeerError as error:
        assert rank != COMM.rank and f"rank {rank} failed: KeyboardInterrupt" in str(error)
        outcome = outcome or "told"
    job._wait = kept_wait
    outcomes = COMM.allgather(outcome)
    was_struck = outcomes[rank] == "interrupted"
    others = {outcome for other, outcome in enumerate(outcomes) if other != rank}
    # All ranks have a Reader, or none: but for the one that hears of it when all others have.
    assert len(others) == 1 and (was_struck or others == {"made"}), outcomes
    return was_struck


failures_are_told()
for per_node in (1, None):
    faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
    for moment in range(MOMENTS_MAX):
        if not told_of(moment, per_node):
            break
        faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
    assert MOMENTS_MIN <= moment < MOMENTS_MAX, moment
failures_are_told()
WHERE: list[tuple[Any, str, int | None, type[BaseException]]] = [
    (roots, "_root_source", 1, KeyboardInterrupt),
    (share, "open_mail", 1, KeyboardInterrupt),
    (share, "attach_window", None, KeyboardInterrupt),
    (setup, "RootThread", 1, KeyboardInterrupt),
    (setup, "RootThread", None, MemoryError),
]
for where, name, per_node, kind in WHERE:
    for rank in (0, COMM.size - 1) if kind is KeyboardInterrupt else (0,):
        faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
        kept = getattr(where, name)
        setattr(where, name, failing(kept, kind) if rank == COMM.rank else kept)
        try:
            Reader(sys.argv[1], 8, comm=COMM, ranks_per_node=per_node)
        except kind:
            assert rank == COMM.rank
        except PeerError as error:
            assert rank != COMM.rank and f"rank {rank} failed: {kind.__name__}" in str(error)
        else:
            raise AssertionError("nobody was told")
        setattr(where, name, kept)
        with Reader(sys.argv[1], 2 * COMM.size, comm=COMM, iterations=2) as reader:
            assert [len(batch) for batch in reader] == [2, 2]
        failures_are_told()
faulthandler.cancel_dump_traceback_later()
print("all", flush=True)
