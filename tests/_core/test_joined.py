"""Several files as one (csrc/engine_joined.c): the bytes of each, few descriptors, no other state.

Goal: any range of the joined file holds the bytes of its files and zeros between them, whatever is
open, mapped or cached; a file that was committed to, cut or replaced is an error that names it.
Method: small databases, ranges drawn at random, held against the files themselves; descriptors
counted in /proc.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio import _core
from lmdbio.errors import Error, IncompatibleError, ShortReadError
from tests.support import databases, long_run

FILES, OPEN_MAX = 40, 4


def make(folder: Path, count: int = FILES) -> list[str]:
    """Write databases of several sizes, some of them long."""
    paths = []
    for number in range(count):
        path = folder / f"part-{number:03}.lmdb"
        env = lmdb.open(str(path), subdir=False, map_size=1 << 24, lock=False)
        with env.begin(write=True) as txn:
            for i in range(2 + number % 7 * 40):
                txn.put(b"%04d" % i, databases.value(1000 * number + i, 100 + 31 * number))
        env.close()
        paths.append(str(path))
    return paths


def join(paths: list[str], open_max: int = OPEN_MAX, depth: int = 8) -> _core.JoinedEngine:
    parts, base = np.zeros(len(paths), _core.PART), 0
    for number, path in enumerate(paths):
        with _core.Engine(path) as engine:
            meta, status = _core.read_meta(engine), os.fstat(engine.fd)
        layout = meta.layout
        at = meta.slot * layout.page_size + layout.header_size
        size = status.st_size
        parts[number] = (
            *(base, size, status.st_dev, status.st_ino),
            *(layout.version, at, meta.txnid, meta.mark),
        )
        base += -(-size // _core.PART_ALIGNMENT) * _core.PART_ALIGNMENT
    return _core.JoinedEngine(paths, parts, open_max, depth)


def whole(engine: _core.JoinedEngine) -> bytes:
    """The bytes that the joined file must have."""
    held = bytearray(engine.size())
    for path, base in zip(engine.paths, engine.parts["base"].tolist(), strict=True):
        content = Path(path).read_bytes()
        held[base : base + len(content)] = content
    return bytes(held)


def descriptors(paths: list[str]) -> int:
    """Count this process's descriptors of these files."""
    names, count = set(paths), 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += str(link.readlink()) in names
    return count


def commit(path: str, times: int = 1) -> None:
    env = lmdb.open(path, subdir=False, map_size=1 << 24, lock=False)
    for _ in range(times):
        with env.begin(write=True) as txn:
            txn.put(b"more", os.urandom(50))
    env.close()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make(tmp_path_factory.mktemp("parts"))


@pytest.mark.parametrize("mapped", [False, True], ids=["called", "mapped"])
def test_any_range_holds_the_bytes_of_its_files_and_zeros_between_them(
    paths: list[str], *, mapped: bool
) -> None:
    with join(paths) as engine:
        expected = whole(engine)
        if mapped:
            engine.map_cached(1 << 30)

        @settings(max_examples=long_run.cases(300), deadline=None)
        @given(st.data())
        def reads(data: st.DataObject) -> None:
            base = data.draw(st.sampled_from(engine.parts["base"].tolist()))
            offset = max(0, base + data.draw(st.integers(-9000, 20000)))
            length = data.draw(st.integers(0, min(700_000, len(expected) - offset)))
            assert engine.read(offset, length) == expected[offset : offset + length]

        reads()
        assert descriptors(paths) <= OPEN_MAX + 1


def test_a_batch_over_all_files_has_few_open(paths: list[str]) -> None:
    with join(paths, depth=32) as engine:
        expected, draw = whole(engine), np.random.default_rng(1)
        offsets = draw.choice(engine.parts["base"], 400) + draw.integers(0, 8000, 400, np.uint64)
        memory = np.zeros(400 * 512, np.uint8)
        reads = np.zeros(400, _core.READ)
        reads["offset"], reads["length"], reads["needed"] = offsets, 500, 500
        reads["into"] = memory.ctypes.data + 512 * np.arange(400, dtype=np.uint64)
        most = []
        with engine.submit(reads, memory) as ticket:
            while not ticket.poll():
                most.append(descriptors(paths))
        assert max([*most, descriptors(paths)]) <= OPEN_MAX + 1
        held = memory.tobytes()
        for row, offset in enumerate(offsets.tolist()):
            assert held[512 * row : 512 * row + 500] == expected[offset : offset + 500]


def test_many_threads_share_few_descriptors(paths: list[str]) -> None:
    with join(paths, open_max=2) as engine:
        expected, failures = whole(engine), []

        def read(seed: int) -> None:
            draw = np.random.default_rng(seed)
            for _ in range(200):
                offset = int(draw.choice(engine.parts["base"])) + int(draw.integers(0, 8000))
                if engine.read(offset, 300) != expected[offset : offset + 300]:
                    failures.append(offset)

        threads = [threading.Thread(target=read, args=[seed]) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures and descriptors(paths) <= 3


@pytest.mark.parametrize("mapped", [False, True], ids=["called", "mapped"])
def test_a_file_of_a_later_state_is_an_error_that_names_it(
    tmp_path: Path, *, mapped: bool
) -> None:
    paths = make(tmp_path, 6)
    with join(paths) as engine:
        if mapped:
            engine.map_cached(1 << 30)
        bases = engine.parts["base"].tolist()
        for _ in range(20):
            for base in bases:
                engine.read(base + 100, 50)
        commit(paths[3])
        engine.read(bases[3] + 100, 50)  # the next state leaves this one's pages alone
        commit(paths[3])
        with pytest.raises(Error, match=r"part-003\.lmdb: was written to since"):
            engine.read(bases[3] + 100, 50)
        engine.read(bases[2] + 100, 50)


def test_a_file_that_was_cut_is_an_error_that_names_it(tmp_path: Path) -> None:
    paths = make(tmp_path, 6)
    with join(paths) as engine:
        base = int(engine.parts["base"][4])
        os.truncate(paths[4], 10_000)
        with pytest.raises(ShortReadError, match=r"part-004\.lmdb: .*at offset 9000, got 1000"):
            engine.read(base + 9000, 2000)


def test_a_file_that_was_replaced_or_removed_is_an_error_that_names_it(tmp_path: Path) -> None:
    paths = make(tmp_path, 6)
    with join(paths, open_max=1) as engine:
        bases = engine.parts["base"].tolist()
        copy = tmp_path / "copy"
        copy.write_bytes(Path(paths[2]).read_bytes())
        copy.replace(paths[2])
        with pytest.raises(Error, match=r"part-002\.lmdb: another file has taken its place"):
            engine.read(bases[2] + 100, 50)
        Path(paths[5]).unlink()
        with pytest.raises(FileNotFoundError) as caught:
            engine.read(bases[5] + 100, 50)
        assert caught.value.filename == paths[5]


def test_the_limit_of_descriptors_is_named(tmp_path: Path) -> None:
    import resource

    paths = make(tmp_path, 6)
    with join(paths, open_max=64) as engine:
        bases, (soft, hard) = engine.parts["base"].tolist(), resource.getrlimit(7)
        engine.read(bases[1], 10)
        expected = Path(paths[2]).read_bytes()[:10]
        used = {int(link.name) for link in Path("/proc/self/fd").iterdir()}
        lowest = next(fd for fd in range(1 << 16) if fd not in used)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            assert engine.read(bases[2], 10) == expected  # in the other one's place
            with pytest.raises(OSError, match=rf"ulimit -n: {lowest}") as caught:
                join(paths)
            assert caught.value.errno == 24
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_other_engines_of_the_files_have_the_same_descriptors(paths: list[str]) -> None:
    with join(paths) as engine, engine.again("pread", 4) as other:
        for base in engine.parts["base"].tolist():
            assert engine.read(base, 40) == other.read(base, 40)
        assert descriptors(paths) <= OPEN_MAX + 1
        engine.close()
        assert other.read(0, 10) == Path(paths[0]).read_bytes()[:10]
        with pytest.raises(IncompatibleError, match="several files as one"):
            other.again("direct", 4)
    assert descriptors(paths) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_reads_on_whatever_threads_did_at_the_fork(paths: list[str]) -> None:
    with join(paths, open_max=1) as engine, engine.again("pread", 8) as other:
        expected, ends = whole(engine), threading.Event()

        def read(seed: int) -> None:
            draw = np.random.default_rng(seed)
            while not ends.is_set():
                other.read(int(draw.choice(engine.parts["base"])), 300)

        threads = [threading.Thread(target=read, args=[seed]) for seed in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                child = os.fork()
                if not child:
                    bases = engine.parts["base"].tolist()
                    right = all(engine.read(b, 99) == expected[b : b + 99] for b in bases)
                    os._exit(0 if right else 1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            ends.set()
            for thread in threads:
                thread.join()


def test_parts_of_impossible_places_are_refused(paths: list[str]) -> None:
    with join(paths[:3]) as engine:
        parts = engine.parts.copy()
    for field, value in [("base", 4096), ("size", 1 << 63), ("meta", 1 << 40)]:
        wrong = parts.copy()
        wrong[field][1] = value
        with pytest.raises(ValueError, match="impossible size or place"):
            _core.JoinedEngine(paths[:3], wrong, 4)
