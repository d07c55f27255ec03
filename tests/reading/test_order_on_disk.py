"""Files whose records do not lie in the order of their keys.

Goal: a reader in key order gets the records of such a file, whose parts come to the page cache in
the order of the file, each once. Method: files put in random order and under numbers as text,
evicted from the page cache, read by every surface that goes in key order; the kernel says what is
there afterwards, and what the process read from the disk.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.dropin import iterator
from tests.support import databases

COUNT, BYTES = 24_000, 3072
KEYS = {"random": b"%08d", "text": b"%d"}


def value(i: int) -> bytes:
    return b"%08d" % i * (BYTES // 8)


@pytest.fixture(scope="module", params=KEYS)
def path(request, tmp_path_factory) -> Path:
    """A file of more than 64 MiB."""
    folder = tmp_path_factory.mktemp(request.param)
    order = list(range(COUNT))
    if request.param == "random":
        random.Random(7).shuffle(order)
    env = databases.open_writable(folder, 1)
    for at in range(0, COUNT, 1000):
        databases.write(env, ((KEYS[request.param] % i, value(i)) for i in order[at : at + 1000]))
    env.close()
    return folder


@pytest.fixture
def cold(path: Path) -> Path:
    with (path / "data.mdb").open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


@pytest.fixture(scope="module")
def wanted(path: Path) -> list[bytes]:
    """The values in key order, as py-lmdb has them."""
    with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        return list(txn.cursor().iternext(keys=False))


def scanned(path: Path) -> Iterator[bytes]:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        yield from txn.cursor().iternext(keys=False)


def iterated(path: Path) -> Iterator[bytes]:
    with lmdbio.Records(path) as records:
        yield from records


def batches(path: Path) -> Iterator[bytes]:
    with lmdbio.Reader(path, 256, epochs=1) as reader:
        for batch in reader:
            yield from map(bytes, batch)


def read_in_order(path: Path) -> Iterator[bytes]:
    with lmdbio.Records(path) as records:
        for at in range(0, COUNT, 256):
            yield from map(bytes, records.read(np.arange(at, min(COUNT, at + 256))))


def values_in_order(path: Path) -> Iterator[bytes]:
    with lmdbio.Records(path) as records:
        for at in range(0, COUNT, 256):
            yield from records.begin_values(list(range(at, min(COUNT, at + 256)))).values()


SURFACES = {
    "scan": scanned,
    "iterate": iterated,
    "reader": batches,
    "read": read_in_order,
    "values": values_in_order,
}


def disk_bytes() -> int:
    """Return how many bytes this process has had from disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])


@pytest.mark.parametrize("surface", SURFACES)
def test_the_values_come_in_key_order(cold, wanted, surface):
    assert list(SURFACES[surface](cold)) == wanted


@pytest.mark.parametrize("surface", SURFACES)
def test_each_part_of_the_file_is_read_about_once(cold, path, surface):
    size = (path / "data.mdb").stat().st_size
    before = disk_bytes()
    assert sum(1 for _ in SURFACES[surface](cold)) == COUNT
    read = disk_bytes() - before
    if not read:
        pytest.skip("the file system of the temporary folder has no disk")
    assert read <= 1.08 * size


@pytest.mark.parametrize("path", ["random"], indirect=True)
def test_a_file_in_random_order_is_there_before_its_records_are_handed_out(path, cold):
    with _core.Engine(path / "data.mdb") as engine:
        if engine.cached_bytes() is None:
            pytest.skip("the kernel does not say what is cached")
        values = scanned(cold)
        for _ in range(COUNT // 4):
            next(values)
        assert engine.cached_bytes() >= 0.99 * engine.size()


@pytest.mark.parametrize("surface", SURFACES)
def test_a_file_without_room_is_read_in_parts(cold, wanted, surface, monkeypatch):
    monkeypatch.setattr(iterator, "cached_bytes_max", lambda: 1 << 20)
    monkeypatch.setattr("lmdbio.records.routes.cached_bytes_max", lambda: 1 << 20)
    monkeypatch.setattr("lmdbio.reader.supply.cached_bytes_max", lambda: 1 << 20)
    assert list(SURFACES[surface](cold)) == wanted


def test_batches_of_several_threads_come_in_any_turn(cold, wanted):
    found: dict[int, list[bytes]] = {}
    with lmdbio.Records(cold) as records:

        def read(thread: int) -> None:
            for at in range(thread * 256, COUNT, 4 * 256):
                found[at] = [bytes(v) for v in records.read(range(at, min(COUNT, at + 256)))]

        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [value for at in sorted(found) for value in found[at]] == wanted


def test_a_child_goes_on_by_itself(cold, wanted):
    with lmdbio.Records(cold) as records:
        for at in range(0, 1024, 256):
            records.read(range(at, at + 256))
        pid = os.fork()
        if pid == 0:
            values = [
                bytes(v)
                for at in range(1024, COUNT, 256)
                for v in records.read(range(at, min(COUNT, at + 256)))
            ]
            os._exit(0 if values == wanted[1024:] else 1)
        values = [bytes(v) for v in records.read(range(1024, 1280))]
        assert values == wanted[1024:1280]
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("path", ["random"], indirect=True)
def test_a_writer_is_noticed_though_all_was_read_before(path, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "data.mdb").write_bytes((path / "data.mdb").read_bytes())
    seen = 0
    env = lmdbio.open(str(copy), readonly=True, lock=False)
    with env, env.begin() as txn, pytest.raises(lmdbio.Error, match="no longer protected"):
        for _ in txn.cursor():
            seen += 1
            if seen == COUNT // 4:
                writer = databases.open_writable(copy, 1)
                for i in range(4):
                    databases.write(writer, [(b"%08d" % (COUNT - 1), b"%d" % i)])
                writer.close()
    assert seen < COUNT


def test_a_signals_handler_may_close_records_while_a_batch_waits_for_its_part(
    cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []

    def wait(self: _core.Prefetch, awaited: range) -> None:  # where a handler runs, in this thread
        records.close()
        closed.append(True)

    monkeypatch.setattr(_core.Prefetch, "wait", wait)
    records = lmdbio.Records(cold)
    with pytest.raises(lmdb.Error, match="closed"):
        for start in range(0, COUNT, 100):
            records.read(range(start, start + 100))
    assert closed
