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
from lmdbio.reader import roots
from lmdbio.reader.reader import Reader
from lmdbio.share import job

COMM = MPI.COMM_WORLD
#: A rank that is not told waits for ever: seconds until it is ended.
SECONDS_MAX = 10
#: Moments before and after the waits of the first steps, all of which a Reader takes.
MOMENTS = 30


def interrupted(*_arguments: object) -> Any:
    signal.raise_signal(signal.SIGINT)


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


failures_are_told()
for moment in range(MOMENTS):
    faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
    rank, kept_wait = moment // 2 % COMM.size, job._wait
    if rank == COMM.rank:
        job._wait = struck(moment, kept_wait)
    try:
        Reader(sys.argv[1], 8, comm=COMM, ranks_per_node=1)
    except KeyboardInterrupt:
        assert rank == COMM.rank
    except PeerError as error:
        assert rank != COMM.rank and f"rank {rank} failed: KeyboardInterrupt" in str(error)
    else:
        raise AssertionError("nobody was told")
    job._wait = kept_wait
failures_are_told()
for where, name in ((roots, "_root_source"), (share, "open_mail")):
    for rank in (0, COMM.size - 1):
        faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
        kept = getattr(where, name)
        setattr(where, name, interrupted if rank == COMM.rank else kept)
        try:
            Reader(sys.argv[1], 8, comm=COMM, ranks_per_node=1)
        except KeyboardInterrupt:
            assert rank == COMM.rank
        except PeerError as error:
            assert rank != COMM.rank and f"rank {rank} failed: KeyboardInterrupt" in str(error)
        else:
            raise AssertionError("nobody was told")
        setattr(where, name, kept)
        with Reader(sys.argv[1], 2 * COMM.size, comm=COMM, iterations=2) as reader:
            assert [len(batch) for batch in reader] == [2, 2]
        failures_are_told()
faulthandler.cancel_dump_traceback_later()
print("all", flush=True)
