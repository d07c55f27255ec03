"""As much of ``mpi4py.MPI`` as the programs of tests/mpi use, over sockets."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

from lmdbio.share.memory import wait_unused
from lmdbio.share.sockets import SocketTransport
from lmdbio.share.transport import end_messages

UNDEFINED, THREAD_MULTIPLE = -32766, 3
COMM_NULL = None


class Folder:
    """A store of files, which each process may write and read.

    Args:
        folder: folder of the job.
        name: name that the keys begin with.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def set(self, key: str, value: str) -> None:
        draft = self.folder / f"{self.name}-{key}-draft"
        draft.write_text(value)
        draft.rename(self.folder / f"{self.name}-{key}")

    def get(self, key: str) -> bytes:
        return (self.folder / f"{self.name}-{key}").read_bytes()

    def check(self, keys: list[str]) -> bool:
        return all((self.folder / f"{self.name}-{key}").exists() for key in keys)

    def delete_key(self, key: str) -> None:
        (self.folder / f"{self.name}-{key}").unlink()


class Intracomm(SocketTransport):
    """A communicator: what a Reader takes, and some calls of mpi4py's."""

    def __init__(self, rank: int, size: int, store: Folder) -> None:
        super().__init__(rank, size, store)
        self._store, self._made = store, 0

    def allgather(self, what: Any) -> list[Any]:
        gathering = self.begin_gather(pickle.dumps(what))
        while not gathering.has_ended():
            time.sleep(0.0005)
        return [pickle.loads(text) for text in gathering.answers()]

    def barrier(self) -> None:
        self.allgather(None)

    Barrier = barrier

    def bcast(self, what: Any = None, root: int = 0) -> Any:
        return self.allgather(what if self.rank == root else None)[root]

    def gather(self, what: Any) -> list[Any] | None:
        every = self.allgather(what)
        return every if self.rank == 0 else None

    def allreduce(self, what: Any) -> Any:
        first, *others = self.allgather(what)
        for each in others:
            first = first + each
        return first

    def reduce(self, what: Any) -> Any:
        total = self.allreduce(what)
        return total if self.rank == 0 else None

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Split(self, color: int = 0, key: int = 0) -> Intracomm | None:
        self._made += 1
        all_ranks = self.allgather((color, key, self.rank))
        if color == UNDEFINED:
            return None
        ranks = [
            rank for other, _, rank in sorted(all_ranks, key=lambda one: one[1:]) if other == color
        ]
        store = Folder(self._store.folder, f"{self._store.name}-{self._made}-{color}")
        return Intracomm(ranks.index(self.rank), len(ranks), store)

    def Dup(self) -> Intracomm:
        made = self.Split(0, self.rank)
        assert made is not None
        return made

    def Free(self) -> None:
        self.leave()


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    return "sockets", (1, 0, 0)


def Is_finalized() -> bool:
    return COMM_WORLD.has_left


def Finalize() -> None:
    end_messages()
    wait_unused()
    COMM_WORLD.leave()


_environment = os.environ
_folder = Path(_environment.get("LMDBIO_TEST_STORE", "."))
COMM_WORLD = Intracomm(
    int(_environment["RANK"]), int(_environment["WORLD_SIZE"]), Folder(_folder, "world")
)
COMM_SELF = Intracomm(0, 1, Folder(_folder, f"self-{COMM_WORLD.rank}"))
