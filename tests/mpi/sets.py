"""Program: many files as one. Arguments: where they are made; ranks per node.

A ragged set, of both data formats, with an empty file in it and one twice, comes as py-lmdb reads
it: in modes, assignments, orders and caches, with provenance files of some or of all, from copies
elsewhere on each node. Files that differ, are replaced while the Reader is made, or
written to while it reads, are errors on all ranks that name them.
"""

from __future__ import annotations

import itertools
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from mpi4py import MPI

from lmdbio import Reader
from lmdbio.convert.convert import convert
from lmdbio.errors import Error, PeerError
from lmdbio.placement import homes
from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.reader import block_size, roots
from tests.support import databases

COMM = MPI.COMM_WORLD
FOLDER, PER_NODE = Path(sys.argv[1]), int(sys.argv[2])
COUNTS = (40, 0, 7, 90, 1, 33)
BATCH, EPOCHS, REQUEST = 12, 2, 8192
MODES: tuple[Mode | str, ...] = ("auto", "dio", "prov", "coal", "stag", Mode(ALL_RANKS, "scan"))
SHUFFLES = ("global", "windows:5x4", "groups:16", "runs:7")

#: A small data set has many grains, and windows.
homes.GRAIN_BYTES_MIN = block_size.WINDOW_BYTES_MIN = 4096


def on_first(step: Callable[[], Any]) -> None:
    """Do something to the files by the first rank alone, before any other goes on."""
    COMM.barrier()
    if COMM.rank == 0:
        step()
    COMM.barrier()


def value(file: int, i: int) -> bytes:
    return b"%d/%d " % (file, i) * (1 + (i * 97 + file) % 700)


def write(folder: Path, key: bytes = b"%06d") -> None:
    for file, count in enumerate(COUNTS):
        version = databases.FORMATS[file % 2]
        path = folder / f"part-{file}.lmdb"
        with databases.open_writable(path, version, subdir=False, map_size=1 << 26) as env:
            databases.write(env, [(key % i, value(file, i)) for i in range(count)])


def paths(folder: Path) -> list[str]:
    files = [str(folder / f"part-{file}.lmdb") for file in range(len(COUNTS))]
    return [*files, files[2]]


def version_of(path: str) -> int:
    return databases.FORMATS[int(Path(path).stem[-1]) % 2]


def by_py_lmdb(files: list[str]) -> list[bytes]:
    """Return all values, file by file."""
    found = []
    for path in files:
        lib = {"lib_version": 1} if version_of(path) == 3 else {}
        with (
            lmdb.open(path, subdir=False, readonly=True, lock=False, **lib) as env,
            env.begin() as txn,
        ):
            found += [bytes(each) for _, each in txn.cursor()]
    return found


def read(source: Any, wanted: list[bytes], **words: Any) -> tuple[list[list[int]], Reader]:
    """Return the records of each global batch, in its order, each compared with its value."""
    words = {"ranks_per_node": PER_NODE, "request_bytes_max": REQUEST, **words}
    with Reader(source, BATCH, comm=COMM, **words) as reader:
        assert reader.count == len(wanted)
        mine = []
        for batch in reader:
            indices = batch.indices.tolist()
            assert [bytes(one) for one in batch] == [wanted[i] for i in indices], words
            mine.append(indices)
    every = COMM.allgather(mine)
    return [[i for rank in every for i in rank[t]] for t in range(len(mine))], reader


def in_order(source: Any, wanted: list[bytes], mode: Mode | str, **words: Any) -> None:
    """Read twice the file, from its middle on, in Caffe's order and in blocks."""
    steps, start = 2 * len(wanted) // BATCH, len(wanted) // 2
    told = [(start + i) % len(wanted) for i in range(steps * BATCH)]
    words |= {"mode": mode, "start": start, "iterations": steps}
    batches, _ = read(source, wanted, **words)
    assert list(itertools.chain(*batches)) == told, words
    batches, _ = read(source, wanted, assignment="blocked", **words)
    assert sorted(itertools.chain(*batches)) == sorted(told), words


def shuffled(source: Any, wanted: list[bytes], shuffle: str, **words: Any) -> Reader:
    """Read epochs in the order of their seed."""
    words |= {"shuffle": shuffle, "seed": 4, "epochs": EPOCHS}
    batches, reader = read(source, wanted, **words)
    found, epochs = list(itertools.chain(*batches)), reader.schedule.epochs
    assert epochs is not None
    order = epochs.samples(np.arange(EPOCHS * len(wanted))).tolist()
    if words.get("assignment") == "local":
        for begin in range(0, len(order), BATCH):
            part = slice(begin, begin + BATCH)
            assert sorted(found[part]) == sorted(order[part]), words
    else:
        assert found == order, words
    assert (np.bincount(found) == EPOCHS).all(), words
    return reader


def cached(source: Any, wanted: list[bytes], disk: Path) -> None:
    """Roots keep all or a part, in memory or on disks, and the next job takes the disks over."""
    for cache, shuffle, more in (
        ("memory=8M", "global", {}),
        ("memory=40K", "runs:7", {}),
        ("memory=40K,placement=mixed", "windows:5x4", {}),
        ("memory=1M,warm=preload", "global", {"assignment": "local"}),
        ("memory=1M,warm=window", "global", {}),
        (f"memory=1,disk={disk},disk_bytes=8M", "global", {}),
        (f"memory=1,disk={disk},disk_bytes=8M", "global", {}),
        ("memory=40K,placement=first", "global", {}),
    ):
        reader = shuffled(source, wanted, shuffle, cache=cache, **more)
        assert "keep" in reader.caching.text or COMM.size == PER_NODE, (cache, reader.caching)


def refused(source: Any, *reasons: str, **words: Any) -> None:
    """Make a Reader, which fails on all ranks, and read it where it is made."""
    try:
        with Reader(source, BATCH, comm=COMM, ranks_per_node=PER_NODE, **words) as reader:
            for _ in reader:
                pass
        told = ""
    except (Error, ValueError, OSError, PeerError) as error:
        told = str(error)
    every = COMM.allgather(told)
    assert all(every), every
    assert any(all(reason in one for reason in reasons) for one in every), (reasons, every)


def commit(path: str, times: int = 2) -> None:
    with databases.open_writable(Path(path), version_of(path), subdir=False) as env:
        for _ in range(times):
            with env.begin(write=True) as txn:
                txn.put(b"%06d" % 0, value(0, 0))


def other_nodes(here: list[str], there: list[str]) -> list[str]:
    return there if COMM.rank >= PER_NODE else here


def copies(folder: Path, here: list[str], wanted: list[bytes]) -> None:
    """Other nodes have a copy, which is that of the first one, or else an error."""
    copy = folder / "copy"
    on_first(lambda: shutil.copytree(folder / "set", copy))
    source = other_nodes(here, paths(copy))
    for mode in ("auto", "coal", "dio"):
        in_order(source, wanted, mode)
        shuffled(source, wanted, "global", mode=mode)
    shuffled(source, wanted, "global", cache="memory=1M")
    if COMM.size == PER_NODE:
        return
    on_first(lambda: commit(paths(copy)[5], 1))
    refused(source, "differs between roots: transaction", mode="dio", iterations=3)
    on_first(lambda: Path(paths(copy)[3]).unlink())
    refused(source, "part-3.lmdb", mode="dio", iterations=3)


def replaced(folder: Path, here: list[str]) -> None:
    """A file is replaced by its copy after all roots have seen it and before they open it."""
    opening = roots.open_shared_extents

    def late(*arguments: Any, **words: Any) -> Any:
        if COMM.rank == (COMM.size - 1) // PER_NODE * PER_NODE:
            shutil.copy(here[3], folder / "new")
            (folder / "new").replace(here[3])
        return opening(*arguments, **words)

    roots.open_shared_extents = late
    try:
        if COMM.size > PER_NODE:
            refused(here, "was written to, or replaced, while the Reader was made", mode="dio")
    finally:
        roots.open_shared_extents = opening
    COMM.barrier()


def committed_to(here: list[str]) -> None:
    """One file is written to while the Reader reads; what was read before is right."""
    wanted = by_py_lmdb(here)
    told = ""
    words: dict[str, Any] = {"mode": Mode(1, "scan", block_iterations=1, phases=1)}
    reader = Reader(here, BATCH, comm=COMM, ranks_per_node=PER_NODE, iterations=400, **words)
    try:
        for t, batch in enumerate(reader):
            if t == 3:
                on_first(lambda: commit(here[3]))
            assert [bytes(one) for one in batch] == [wanted[i] for i in batch.indices.tolist()]
    except (Error, PeerError) as error:
        told = str(error)
    finally:
        reader.close()
    assert "part-3.lmdb: was written to since it was opened" in told, told
    COMM.barrier()


def samples(folder: Path) -> None:
    """Each file has the layout of its own, whose order is that of numbers."""
    (folder / "layout").mkdir(exist_ok=True)

    def make() -> None:
        write(folder / "layout", b"%d")
        for path in paths(folder / "layout")[:-1]:
            with (
                databases.open_writable(Path(path), version_of(path), subdir=False) as env,
                env.begin(write=True) as txn,
            ):
                if count := txn.stat()["entries"]:
                    txn.put(b"length", pickle.dumps(count))

    on_first(make)
    files = [*enumerate(COUNTS), (2, COUNTS[2])]
    wanted = [value(file, i) for file, count in files for i in range(count)]
    source = paths(folder / "layout")
    for mode in ("auto", "dio"):
        in_order(source, wanted, mode, layout="auto")
        shuffled(source, wanted, "global", mode=mode, layout="ocp", cache="memory=1M")


def loaders(here: list[str]) -> None:
    """Loaders that keep the files together, or not, go on in mid-epoch as one of one process."""
    try:
        from lmdbio.torch import Loader
    except ModuleNotFoundError:
        return
    words: dict[str, Any] = {"shuffle": True, "seed": 3, "collate_fn": list, "transform": bytes}
    fewer = COMM.Split(COMM.rank < COMM.size // 2, COMM.rank)
    ways: list[dict[str, Any]] = [{}, {"cache": "memory=40K"}, {"cache": "memory=8M"}]
    for own in ways:
        told, states = [], []
        for comm, steps in ((COMM, 4), (fewer, None)):
            joint = {"comm": comm, "ranks_per_node": PER_NODE, **own} if own else {}
            other = {"rank": comm.rank, "ranks": comm.size}
            plain = Loader(here, 5, threads=1, **other, **words)
            with plain, Loader(here, 5, **(joint or other), **words) as loader:
                for state in states:
                    plain.load_state_dict(state)
                    loader.load_state_dict(state)
                batches = [*itertools.islice(zip(loader, plain, strict=True), steps)]
                assert all(one == same for one, same in batches), own
                told += [
                    value for one, _ in batches for every in comm.allgather(one) for value in every
                ]
                states.append(loader.state_dict())
                assert states[-1] == plain.state_dict()
        if own == ways[0]:
            first = told
        assert told == first and set(told) == set(by_py_lmdb(here)), own
    fewer.Free()


def main() -> None:
    here = paths(FOLDER / "set")
    on_first(lambda: ((FOLDER / "set").mkdir(), write(FOLDER / "set")))
    wanted = by_py_lmdb(here)
    assert len(wanted) == sum(COUNTS) + COUNTS[2]
    cases = 0
    for converted in ((), (0, 3), range(len(COUNTS))):
        on_first(lambda: [convert(here[file]) for file in converted])  # noqa: B023
        for mode in MODES:
            if mode in ("prov", "coal", "stag") and len(converted) < len(COUNTS):
                continue
            in_order(here, wanted, mode)
            shuffled(here, wanted, SHUFFLES[cases % len(SHUFFLES)], mode=mode)
            cases += 1
        on_first((FOLDER / f"disk{len(converted)}").mkdir)
        cached(here, wanted, FOLDER / f"disk{len(converted)}")
    folder = f"{FOLDER}/set/*.lmdb"
    shuffled(folder, by_py_lmdb(here[:-1]), "global")
    refused(here, "a cursor walks one file", mode="lmm")
    copies(FOLDER, here, wanted)
    samples(FOLDER)
    loaders(here)
    replaced(FOLDER, here)
    committed_to(here)
    if COMM.rank == 0:
        print(f"{cases} cases of many files", flush=True)


main()
