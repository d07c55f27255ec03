"""Ranks: which process of a job this is, asked when an iteration begins.

Trainers make loaders before the processes of a job know one another (``trainer.fit(model,
loader)``, ``mp.spawn``, ``Fabric.launch``), so what was true then says nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol

import torch
from torch.utils.data import get_worker_info

from lmdbio.errors import Error
from lmdbio.system.amounts import whole
from lmdbio.system.process import processors

__all__ = [
    "Communicator",
    "Ranks",
    "processes_alike",
    "processors_each",
    "ranks_here",
    "ranks_on_machine",
    "refuse_no_ranks",
    "refuse_second_sharding",
    "worker",
]

#: Variables in which launchers say how many of their processes are on this machine: torchrun,
#: MPICH's Hydra, Open MPI and MVAPICH.
LOCAL_VARIABLES = (
    "LOCAL_WORLD_SIZE",
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
)


class Communicator(Protocol):
    """mpi4py's, as far as it matters."""

    def Get_rank(self) -> int:
        """Return this process's rank."""
        ...

    def Get_size(self) -> int:
        """Return the number of ranks."""
        ...


def refuse_no_ranks(comm: object) -> None:
    """Raise TypeError for a ``comm`` that says no ranks."""
    knows_ranks = isinstance(comm, torch.distributed.ProcessGroup) or hasattr(comm, "Get_rank")
    if comm is not None and not knows_ranks:
        raise TypeError(
            f"comm is mpi4py's communicator, a process group, None or False, not {comm!r}"
        )


class Ranks:
    """This process's rank and the number of ranks.

    Args:
        rank, ranks: both numbers as the caller gives them; or
        comm: the communicator, or process group, that says them. None of them: ``now`` asks
            torch.distributed, then the variables RANK and WORLD_SIZE (torchrun's), else there is
            one rank.

    Raises:
        ValueError: half of it was given, or both ways; or there is no such rank.
    """

    def __init__(
        self,
        rank: int | None = None,
        ranks: int | None = None,
        comm: Communicator | torch.distributed.ProcessGroup | None = None,
    ) -> None:
        if (rank is None) != (ranks is None):
            raise ValueError("rank= and ranks= belong together")
        if rank is not None and comm is not None:
            raise ValueError("either rank= and ranks=, or comm=")
        refuse_no_ranks(comm)
        if isinstance(comm, torch.distributed.ProcessGroup):
            rank, ranks = comm.rank(), comm.size()
        elif comm is not None:
            rank, ranks = comm.Get_rank(), comm.Get_size()
        self._fixed = None
        if rank is not None and ranks is not None:
            self._fixed = _checked(whole("rank", rank), whole("ranks", ranks), "rank=")
        self._used: tuple[int, int] | None = None
        #: The rank in the process that pickled this, and the process that unpickled it.
        self._sent: tuple[tuple[int, int], int] | None = None

    def now(self) -> tuple[int, int]:
        """Return rank and number of ranks as far as they are known now.

        A launcher may have set WORLD_SIZE alone: the number of ranks is right then.

        Raises:
            ValueError: RANK or WORLD_SIZE makes no sense.
        """
        return self._found(is_sure=False)

    def _found(self, *, is_sure: bool) -> tuple[int, int]:
        if self._fixed is not None:
            return self._fixed
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        if self._sent is not None and get_worker_info() is not None:
            place, pid = self._sent
            if pid == os.getpid():  # a worker that was spawned; one that was forked has all else
                return place
        return _of_variables(is_sure=is_sure)

    def use(self) -> tuple[int, int]:
        """Return what ``now`` returns, for samples that are handed out.

        Raises:
            ValueError: one of RANK and WORLD_SIZE is not set, or makes no sense.
            Error: samples were handed out to another rank, or with other ranks, before.
        """
        rank, ranks = now = self._found(is_sure=True)
        if self._used is not None and self._used != now:
            raise Error(
                f"samples were handed out to rank {self._used[0]} of {self._used[1]}, and this is "
                f"rank {rank} of {ranks} now, so some would come twice and others never: load a "
                "state, or make the loader anew, or give rank= and ranks="
            )
        self._used = now
        return now

    def forget(self) -> None:
        """Forget what was handed out: a state was loaded, which suits any number of ranks."""
        self._used = None

    def __getstate__(self) -> tuple[tuple[int, int] | None, tuple[int, int]]:
        return self._fixed, self.now()

    def __setstate__(self, state: tuple[tuple[int, int] | None, tuple[int, int]]) -> None:
        self._fixed, place = state
        self._used, self._sent = None, (place, os.getpid())


def _checked(rank: int, ranks: int, who: str) -> tuple[int, int]:
    if not 0 <= rank < ranks:
        raise ValueError(f"{who}: there is no rank {rank} of {ranks}")
    return rank, ranks


def _of_variables(*, is_sure: bool) -> tuple[int, int]:
    """Return rank and number of ranks as torchrun's variables say them; without them 0 and 1.

    Args:
        is_sure: whether both have to be there, or none.
    """
    numbers: dict[str, int] = {}
    for name in ("RANK", "WORLD_SIZE"):
        if text := os.environ.get(name, ""):
            try:
                numbers[name] = int(text)
            except ValueError:
                raise ValueError(
                    f"the variable {name} is {text!r}, which is no number: mend it, or give "
                    "rank= and ranks="
                ) from None
    rank, ranks = numbers.get("RANK", 0), numbers.get("WORLD_SIZE", 1)
    if len(numbers) == 1 and not is_sure:
        return 0, ranks
    if len(numbers) == 1 and (rank, ranks) != (0, 1):
        ((name, number),) = numbers.items()
        other = "RANK" if name == "WORLD_SIZE" else "WORLD_SIZE"
        raise ValueError(
            f"the variable {name} is {number}, and {other} is not set: set it, or give rank= and "
            "ranks="
        )
    return _checked(rank, ranks, "the variables RANK and WORLD_SIZE")


def ranks_here() -> int:
    """Return how many processes of the job are on this machine; 1 where no launcher says it."""
    said = (os.environ.get(name, "") for name in LOCAL_VARIABLES)
    return max(1, next((int(text) for text in said if text.isdigit()), 1))


def processors_each() -> int:
    """Return how many processors there are for each rank of this machine, at least 1."""
    return max(1, processors() // ranks_here())


def ranks_on_machine(ranks: int) -> int:
    """Return how many ranks of a job are on this machine: all, unless torchrun says it."""
    text = os.environ.get(LOCAL_VARIABLES[0], "")
    return max(1, min(int(text), ranks)) if text.isdigit() else ranks


def processes_alike() -> int:
    """Return how many processes of this machine read what this one does: workers of all ranks."""
    return worker()[1] * ranks_here()


def worker() -> tuple[int, int]:
    """Return the number of this process among a DataLoader's workers, and how many there are."""
    worker = get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


def refuse_second_sharding(part: object, ranks: int, name: str) -> None:
    """Raise Error if Accelerate shares the batches of a loader, part of which shares them as well.

    Accelerate's ``prepare`` has each process take every n-th batch of a loader, or one process
    read for all; of batches that are a rank's own a fraction of the epoch would be left.

    Args:
        part: the batch sampler or data set that asks.
        ranks: the number of ranks that it shares batches among.
        name: name of its class, for the message.
    """
    state = sys.modules.get("accelerate.state")
    loader = None if state is None or ranks == 1 else state.GradientState().active_dataloader
    if loader is None:  # the one that is iterated over now, of those that were prepared
        return
    reads_for_all = hasattr(loader, "slice_fn")  # a DataLoaderDispatcher
    for name_of_link in ("batch_sampler", "dataset"):
        link, shares = getattr(loader, name_of_link, None), reads_for_all
        while link is not None and link is not part:
            shares = shares or getattr(link, "num_processes", 1) > 1  # BatchSamplerShard or such
            link = getattr(link, name_of_link, None)
        if link is part and shares:
            raise Error(
                f"this {name} shares its batches among {ranks} ranks, and Accelerate, which "
                f"prepared the loader, shares them again: write {name}(..., rank=0, ranks=1), or "
                "do not prepare() the loader"
            )
