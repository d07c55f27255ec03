"""Program: Loaders whose ranks keep the file together. Arguments: data sets; how many cases.

Each rank has step by step the batches of a Loader without a cache, and its states, with any number
of roots and any room for what they keep; also when the loop is left early, jumps, or goes on with
other ranks, with a cache or without one.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lmdb
from data import write
from mpi4py import MPI

from lmdbio import Cache
from lmdbio.cache import clear, find
from lmdbio.errors import Error, PeerError
from lmdbio.placement import homes
from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.torch import Loader

COMM = MPI.COMM_WORLD
SETS, CASES = sys.argv[1:-1], int(sys.argv[-1])
REQUEST = 8192
MODES = (
    "auto",
    Mode(1, "scan", block_iterations=0),
    Mode(ALL_RANKS, "scan", block_iterations=1),
    Mode(1, "scan", block_iterations=3),
)
#: Sums up how often each way was taken.
told = dict.fromkeys(("whole", "left", "jumped", "gone on", "peers", "disks"), 0)

#: A small data set has many grains.
homes.GRAIN_BYTES_MIN = 4096


def values_of(batch: Any) -> list[bytes]:
    """Decode a whole batch."""
    return list(map(bytes, batch))


class Pair:
    """A Loader of this rank that has MPI and a cache, and one that has neither.

    With ``whole`` the first one decodes whole batches.
    """

    def __init__(
        self, path: str, comm: MPI.Comm, own: dict[str, Any], whole: bool, **words: Any
    ) -> None:
        words |= {"collate_fn": list, "seed": 7}
        joint = words
        if whole:
            each = ("transform", "collate_fn", "buffers")
            joint = {word: given for word, given in words.items() if word not in each}
            joint["decode"] = values_of
        self.joint = Loader(path, comm=comm, **own, **joint)
        self.plain = Loader(path, rank=comm.rank, ranks=comm.size, threads=1, **words)
        self.words = words, own
        assert len(self.joint) == len(self.plain), self.words

    def epoch(self, steps: int | None = None) -> None:
        """Compare an epoch, or its first batches, and the states after each."""
        assert self.joint.epoch == self.plain.epoch
        begun, wanted = iter(self.joint), iter(self.plain)
        assert self.joint.state_dict() == self.plain.state_dict(), self.words
        done = 0
        while steps is None or done < steps:
            batch = next(wanted, None)
            found = next(begun, None)
            assert found == batch, (COMM.rank, done, self.words)
            assert self.joint.state_dict() == self.plain.state_dict(), self.words
            if batch is None:
                break
            done += 1
        told["whole" if steps is None else "left"] += 1

    def set_epoch(self, number: int) -> None:
        self.joint.set_epoch(number)
        self.plain.set_epoch(number)

    def load(self, state: dict[str, Any]) -> None:
        self.joint.load_state_dict(state)
        self.plain.load_state_dict(state)

    def close(self) -> dict[str, Any]:
        """Return the state at the end."""
        state, stats = self.plain.state_dict(), self.joint.stats()
        told["peers"] += stats.peer_records > 0
        told["disks"] += stats.disk_records > 0
        assert not stats.damaged_pages
        self.joint.close()
        self.plain.close()
        assert self.joint.stats().records >= stats.records
        return state


def case(number: int, chance: random.Random, folder: str) -> None:
    """Three epochs or more of a data set, and then of one with other ranks.

    Few cases have each set, a disk, and a root on each rank with a cache of its own; many have
    all sets with a disk.
    """
    path, on_disk = SETS[number % len(SETS)], number % 4 == 1
    size = (Path(path) / "data.mdb").stat().st_size
    words = {
        "batch_size": chance.choice([1, 3, 5, 16, 70]),
        "shuffle": chance.random() < 0.7,
        "even": chance.random() < 0.6,
        "transform": bytes,
    }
    with Loader(path) as loader:
        count = len(loader.dataset)
    words["drop_last"] = chance.random() < 0.4 and words["batch_size"] * COMM.size <= count
    # Memory for all records would leave none to the disk.
    parts = (0.4, 0.05) if on_disk else (2.0, 0.4, 0.05)
    room = max(1, int(chance.choice(parts) * size))
    cache = Cache(
        room // COMM.size,
        folder if on_disk else None,
        disk_bytes=room if on_disk else None,
        warm=chance.choice(["demand", "preload"]),
    )
    own = {
        "cache": chance.choice([cache, cache, "auto"]) if number > 1 else cache,
        "mode": chance.choice(MODES),
        "ranks_per_node": chance.choice([1, 2, COMM.size]) if number else 1,
        "request_bytes_max": REQUEST,
        "buffers": chance.random() < 0.5,
        "threads": chance.choice([1, 2]),
        "ahead": chance.choice([0, 2, 5]),
    }
    buffers, at_once = own.pop("buffers"), own["threads"] == 2
    pair = Pair(path, COMM, own, at_once, buffers=buffers, **words)
    whole = 3 if chance.random() < 0.5 else 1
    for _ in range(whole):
        pair.epoch()
    pair.epoch(chance.randrange(4))
    pair.epoch(chance.randrange(1, 4))
    if chance.random() < 0.5:
        pair.set_epoch(chance.choice([0, 2, 9]))
        pair.epoch(chance.choice([2, None]))
        told["jumped"] += 1
    pair.epoch(2)
    state = pair.close()
    fewer = COMM.Split(COMM.rank < max(1, COMM.size // 2), COMM.rank)
    words["batch_size"] = chance.choice([2, 3, 11])
    words["drop_last"] = words["drop_last"] and words["batch_size"] * COMM.size <= count
    pair = Pair(path, fewer, own, not at_once, buffers=buffers, **words)
    pair.load(state)
    pair.epoch()
    pair.epoch()
    pair.load(state)
    pair.epoch(1)
    pair.close()
    fewer.Free()
    told["gone on"] += 1


def later_epochs_read_nothing(path: str) -> None:
    """Roots send each other the records of all later epochs."""
    with Loader(
        path, 4, comm=COMM, cache="memory=1G", shuffle=True, ranks_per_node=1, collate_fn=len
    ) as loader:
        assert "keep" in loader.caching.text
        assert f"batches of {loader.batch_size} from <JointBatches of '/" in repr(loader)
        for _ in range(3):
            assert sum(loader) > 0
        records = COMM.allreduce(len(loader)) * 4  # of an epoch, with those that fill it up
        COMM.barrier()
        stats = COMM.allreduce(loader.stats())
        COMM.barrier()
        for epoch in (3, 4):
            assert loader.epoch == epoch and len(list(loader)) == len(loader)
        later = COMM.allreduce(loader.stats())
        missed = later.late_records + later.gone_records  # on a machine that is too busy
        assert missed or later.read_bytes == stats.read_bytes == stats.warm_bytes
        assert stats.file_records <= records + missed
        assert (stats.peer_records > 0) == (COMM.size > 1)
        COMM.barrier()


def a_jump_reads_nothing_again(path: str) -> None:
    """Roots go on with what they have in memory, in the middle of an epoch and in any other."""
    words = {"batch_size": 4, "shuffle": True, "collate_fn": list, "transform": bytes}
    plain = Loader(path, rank=COMM.rank, ranks=COMM.size, threads=1, **words)
    with plain, Loader(path, comm=COMM, cache="memory=1G", ranks_per_node=1, **words) as loader:
        for _ in range(2):
            assert list(loader) == list(plain)
        COMM.barrier()
        before = COMM.allreduce(loader.stats())
        assert before.warm_bytes > 0
        middle = loader.state_dict() | {"epoch": 5, "used": 8 * COMM.size}
        for epoch in (middle, 0, 9):
            for one in (loader, plain):
                if isinstance(epoch, int):
                    one.set_epoch(epoch)
                else:
                    one.load_state_dict(epoch)
            assert list(loader) == list(plain)
        COMM.barrier()
        stats = COMM.allreduce(loader.stats())
        assert stats.warm_bytes == before.warm_bytes and stats.own_records > before.own_records
        missed = stats.late_records + stats.gone_records  # on a machine that is too busy
        assert stats.file_records <= before.file_records + missed
        COMM.barrier()


def a_look_of_one_rank_is_no_epoch(path: str) -> None:
    """It begins the epoch again with the batches that it has seen, and nobody waits for others."""
    words = {"batch_size": 4, "shuffle": True, "collate_fn": list, "transform": bytes}
    plain = Loader(path, rank=COMM.rank, ranks=COMM.size, threads=1, **words)
    with plain, Loader(path, comm=COMM, cache="memory=1G", **words) as loader:
        for looks in (1, 3):
            if COMM.rank == 0:
                begun = iter(loader)
                for _ in range(looks):
                    next(begun)
                begun.close()
            assert list(loader) == list(plain)
        COMM.barrier()


def is_refused(path: str) -> None:
    """By name, on all ranks alike; and an older iteration that goes on says why it cannot."""
    for wrong, why in (
        ({"keys": True}, "keys=True"),
        ({"assignment": "local"}, "assignment='strided'"),
        ({"readahead": True}, "has no readahead; it has check, db"),
        ({"source": []}, "an empty list of paths"),
        ({"drop_last": True, "batch_size": 10_000}, "drop_last leaves out all"),
        ({"cache": "memory=1M,placement=first"}, "placement='home'"),
        ({"db": "nowhere"}, "nowhere"),
    ):
        try:
            Loader(**{"source": path, "comm": COMM, "cache": "memory=1M", **wrong})
        except Exception as error:
            # The first rank tells of the file; others of that one.
            assert why in str(error) or "rank" in str(error), (why, error)
        else:
            raise AssertionError(wrong)
    with Loader(path, 2, comm=COMM, cache="memory=1M", collate_fn=list) as loader:
        older, newer = iter(loader), iter(loader)
        next(older)
        next(newer)
        try:
            next(older)
        except Exception as error:
            assert "another iteration has begun" in str(error)
        else:
            raise AssertionError("two iterations go on")


def ctrl_c_loses_no_batch(path: str, moment: int) -> None:
    """Of this rank alone, which goes on where its state says."""

    def slow(value: bytes) -> bytes:
        time.sleep(0.0005)
        return bytes(value)

    words = {"batch_size": 8, "shuffle": True, "collate_fn": list, "transform": slow}
    with Loader(path, rank=0, ranks=1, threads=4, **words) as loader:
        wanted = [*loader, *loader]
    steps = len(wanted) // 2
    with Loader(path, comm=MPI.COMM_SELF, cache="memory=1M", threads=1, **words) as loader:
        seen: list[list[bytes]] = []
        kept = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.03 + 0.007 * moment)
            while True:
                for batch in loader:
                    seen.append(batch)
                    if len(seen) == steps:
                        time.sleep(10)
        except KeyboardInterrupt:
            pass
        finally:
            signal.signal(signal.SIGALRM, kept)
        state = loader.state_dict()
        done = state["epoch"] * steps + -(-state["used"] // 8)
        assert done in (len(seen), len(seen) + 1) and seen == wanted[: len(seen)]
        loader.load_state_dict(state)
        rest = list(loader)
        assert rest == wanted[done : done + len(rest)] and (done + len(rest)) % steps == 0


def a_failure_ends_the_loops_of_all(path: str) -> None:
    """A rank that leaves its loop by an error waits for nobody, and nobody for it."""
    try:
        with Loader(path, 2, comm=COMM, cache="memory=1M", ranks_per_node=1) as loader:
            while True:
                for step, _ in enumerate(loader):
                    if COMM.rank == 0 and step == 3:
                        raise ZeroDivisionError
    except ZeroDivisionError:
        assert COMM.rank == 0
    except PeerError:
        assert COMM.rank != 0
    COMM.barrier()


def a_jump_to_another_state_of_the_file_is_refused(folder: str) -> None:
    """The file has more records, fewer, or as many others: all ranks are told, and no hang."""
    values = [b"%d" % i for i in range(60)]
    path = Path(folder) / "written"
    for count in (80, 20, 60):
        if COMM.rank == 0:
            write(path, values)
        COMM.barrier()
        words = {"shuffle": True, "comm": COMM, "cache": "memory=1M", "collate_fn": list}
        with Loader(str(path), 2, **words) as loader:
            begun = iter(loader)
            for _ in range(2):
                next(begun)
            state = loader.state_dict() | {"used": 30}
            begun.close()
            COMM.barrier()
            if COMM.rank == 0:
                with lmdb.open(str(path), map_size=1 << 28) as env, env.begin(write=True) as txn:
                    for i in range(60, count):
                        txn.put(b"%08d" % i, b"new")
                    for i in range(count, 60):
                        txn.delete(b"%08d" % i)
                    txn.put(b"%08d" % 0, b"new")
            COMM.barrier()
            loader.load_state_dict(state)
            try:
                next(iter(loader))
            except Error as error:
                assert "written to, or replaced" in str(error), error
            else:
                raise AssertionError(count)
        COMM.barrier()
        if COMM.rank == 0:
            shutil.rmtree(path)


def main() -> None:
    chance = random.Random(COMM.size)
    folder = COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None)
    for number in range(CASES):
        case(number, chance, folder)
        COMM.barrier()
        if COMM.rank == 0:  # the next job finds nothing
            assert all(clear(entry) for entry in find(Path(folder)))
        COMM.barrier()
    later_epochs_read_nothing(SETS[0])
    a_jump_reads_nothing_again(SETS[0])
    a_look_of_one_rank_is_no_epoch(SETS[0])
    is_refused(SETS[0])
    for moment in range(4):
        ctrl_c_loses_no_batch(SETS[0], moment)
    a_failure_ends_the_loops_of_all(SETS[1])
    a_jump_to_another_state_of_the_file_is_refused(folder)
    assert (COMM.allreduce(told["peers"]) > 0) == (COMM.size > 1)
    assert COMM.allreduce(told["disks"]) or CASES < 2
    if COMM.rank == 0:
        Path(folder).rmdir()
        print(f"{CASES} cases, {told}")


main()
