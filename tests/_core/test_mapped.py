"""Reads out of a mapping (csrc/engine_mapped.h): right bytes or another way, never a signal.

Goal: what the page cache holds is handed out without a call of the kernel; a file that is cut or
another SIGBUS handler change nothing of what is promised, and no more is touched than was
allowed. Method: count the process's calls and its mapped memory, cut files under it, and send it
signals, in processes of their own where they may die of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.machine import storage
from tests.support import ROOT, databases

COUNT = 2000
#: From here on a mapping is used (MAPPED_FROM), with room to spare.
ENOUGH = 200
#: File systems that cut files in an order that a copy can notice (storage.c), as far as a test's
#: folder may lie on one.
MAPPED = ("ext4", "btrfs", "tmpfs")
#: The bytes that one piece touches (PIECE_BYTES).
PIECE_BYTES = 256 << 10

EXPECTED = {b"%08d" % i: databases.value(i, 3000) for i in range(COUNT)}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder whose file system is one of those that are mapped."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="lmdbio-") as memory:
        yield tmp_path if file_system(tmp_path) in MAPPED else Path(memory)


def file_system(folder: Path) -> str | None:
    probe = folder / "probe"
    probe.write_bytes(b"x")
    with _core.Engine(probe) as engine:
        return storage.inspect(engine).file_system


@pytest.fixture
def path(place: Path) -> Path:
    folder = place / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, EXPECTED.items())
    env.sync(True)
    env.close()
    warm(folder)
    return folder


def warm(folder: Path) -> None:
    (folder / "data.mdb").read_bytes()


def calls() -> int:
    """Calls for reading that this process has made."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("syscr")).split()[1])


def mapped_bytes() -> int:
    """Of files, in the memory of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kinds = [line for line in lines if line.startswith(("RssFile", "RssShmem"))]
    return sum(int(line.split()[1]) * 1024 for line in kinds)


def run(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def get_all(txn: lmdbio.Transaction) -> None:
    for key, value in EXPECTED.items():
        assert txn.get(key) == value


def test_gets_of_what_is_cached_make_no_calls(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        get_all(txn)
        before = calls()
        get_all(txn)
        assert calls() - before < COUNT // 10
        assert env.stats().records == 2 * COUNT


def test_records_too(path: Path) -> None:
    with lmdbio.Records(path, readahead=False) as records:
        values = list(EXPECTED.values())
        assert [records[i] for i in range(COUNT)] == values
        before = calls()
        assert [bytes(v) for v in records.read(range(0, COUNT, 2))] == values[::2]
        assert calls() - before < COUNT // 10


def test_who_asks_for_pread_gets_calls(path: Path) -> None:
    options = {"readonly": True, "lock": False, "engine": "pread"}
    with lmdbio.open(str(path), **options) as env, env.begin() as txn:
        get_all(txn)
        before = calls()
        get_all(txn)
        assert calls() - before >= COUNT


def test_what_has_left_the_cache_is_read(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        get_all(txn)
        with (path / "data.mdb").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        get_all(txn)


def test_no_more_is_touched_than_the_budget_allows(path: Path) -> None:
    code = """
import sys, lmdbio
from tests._core import test_mapped as t
env = lmdbio.open(sys.argv[1], readonly=True, lock=False)
with env.begin() as txn:
    txn.get(next(iter(t.EXPECTED)))
    before = t.mapped_bytes()
    t.get_all(txn); t.get_all(txn)
    print(t.mapped_bytes() - before)
"""
    own = 96 << 20
    here = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}

    def touched(allowed: int) -> int:
        found = run(code, path, LMDBIO_MEMORY_BYTES=str(own + allowed), **here)
        assert found.returncode == 0, found.stderr
        return int(found.stdout)

    size = (path / "data.mdb").stat().st_size
    slack = 1 << 20  # the interpreter's own libraries
    assert touched(4 * PIECE_BYTES) <= 4 * PIECE_BYTES + slack
    assert touched(2 * size) >= size * 3 // 4


def test_a_writers_new_pages_are_seen(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True) as env:
        with env.begin() as txn:
            get_all(txn)
        subprocess.run(
            [
                sys.executable,
                "-c",
                "import lmdb, sys\n"
                "env = lmdb.open(sys.argv[1], map_size=1 << 28)\n"
                "with env.begin(write=True) as txn:\n"
                "    for i in range(2000): txn.put(b'%08d' % i, b'changed' * 500)\n",
                str(path),
            ],
            check=True,
            timeout=60,
        )
        with env.begin() as txn:
            assert all(txn.get(key) == b"changed" * 500 for key in EXPECTED)


@pytest.mark.parametrize("keep", [0, 5000, 1 << 20, (1 << 20) + 100])
def test_a_file_that_was_cut_is_told(path: Path, keep: int) -> None:
    """Also where the cut goes through the middle of a page, of which the rest reads as zeros."""
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        get_all(txn)
        size = (path / "data.mdb").stat().st_size
        os.truncate(path / "data.mdb", keep)
        told = 0
        for key, value in EXPECTED.items():
            try:
                assert txn.get(key) == value
            except (lmdb.Error, OSError) as error:
                assert "data.mdb" in str(error)
                told += 1
        assert told >= COUNT * (size - keep) // size - COUNT // 20


def test_a_file_cut_again_and_again_gives_no_wrong_byte(path: Path) -> None:
    """Nor a signal: gets beside a thread that cuts the file, which stays cut."""
    file = path / "data.mdb"
    size = file.stat().st_size
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        get_all(txn)
        steps = iter(range(size, 2 * 4096, -size // 300 | 1))
        stop = threading.Event()

        def cut() -> None:
            for keep in steps:
                os.truncate(file, keep)
                if stop.wait(0.002):
                    return

        thread = threading.Thread(target=cut)
        thread.start()
        told = right = 0
        try:
            while thread.is_alive():
                for key, value in EXPECTED.items():
                    try:
                        assert txn.get(key) == value
                        right += 1
                    except (lmdb.Error, OSError):
                        told += 1
        finally:
            stop.set()
            thread.join()
        assert right and told


DIES = """
import faulthandler, mmap, os, signal, sys, lmdbio
order = sys.argv[2]
if order == "faulthandler before": faulthandler.enable()
env = lmdbio.open(sys.argv[1], readonly=True, lock=False)
with env.begin() as txn:
    for i in range(200): txn.get(b"%08d" % i)
    if order == "faulthandler after": faulthandler.enable()
    with open(sys.argv[1] + "/other", "w+b") as file:
        file.write(bytes(8192)); file.flush()
        other = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        other[5000]
"""


@pytest.mark.parametrize("order", ["none", "faulthandler before", "faulthandler after"])
def test_who_else_touches_what_is_gone_dies_as_without_us(path: Path, order: str) -> None:
    found = run(DIES, path, order)
    assert found.returncode == -signal.SIGBUS
    assert ("Fatal Python error: Bus error" in found.stderr) == (order != "none")


SENT = """
import os, signal, sys, lmdbio
kind = sys.argv[2]
seen = []
if kind == "handled": signal.signal(signal.SIGBUS, lambda *_: seen.append(1))
if kind == "ignored": signal.signal(signal.SIGBUS, signal.SIG_IGN)
env = lmdbio.open(sys.argv[1], readonly=True, lock=False)
with env.begin() as txn:
    for i in range(200): txn.get(b"%08d" % i)
    os.kill(os.getpid(), signal.SIGBUS)
    for i in range(200): txn.get(b"%08d" % i)
print("lives", len(seen))
"""


def test_a_signal_that_was_sent_goes_where_it_did(path: Path) -> None:
    assert run(SENT, path, "handled").stdout == "lives 1\n"
    assert run(SENT, path, "ignored").stdout == "lives 0\n"
    assert run(SENT, path, "usual").returncode == -signal.SIGBUS


OVER = """
import os, signal, sys, time, lmdbio
from tests._core import test_mapped as t
env = lmdbio.open(sys.argv[1], readonly=True, lock=False)
with env.begin() as txn:
    t.get_all(txn)
    signal.signal(signal.SIGBUS, lambda *_: None)
    time.sleep(1.1)
    before = t.calls()
    t.get_all(txn)
    assert t.calls() - before >= t.COUNT
    os.truncate(sys.argv[1] + "/data.mdb", 1 << 20)
    told = 0
    for key in t.EXPECTED:
        try: txn.get(key)
        except (lmdbio.Error, OSError): told += 1
    print("told" if told else "silent")
"""


def test_under_another_handler_nothing_is_mapped(path: Path) -> None:
    here = os.pathsep.join([str(ROOT), *sys.path])
    found = run(OVER, path, PYTHONPATH=here)
    assert found.stdout == "told\n", found.stderr


def test_a_child_goes_on(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        get_all(txn)
        child = os.fork()
        if child == 0:
            try:
                get_all(txn)
                os.truncate(path / "data.mdb", 1 << 20)
                with pytest.raises((lmdb.Error, OSError)):
                    get_all(txn)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def test_little_room_for_addresses_is_left_alone(path: Path) -> None:
    code = """
import resource, sys, lmdbio
from tests._core import test_mapped as t
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
with lmdbio.open(sys.argv[1], readonly=True, lock=False) as env, env.begin() as txn:
    t.get_all(txn)
    print(sys.argv[1] + "/data.mdb" in open("/proc/self/maps").read())
"""
    here = os.pathsep.join([str(ROOT), *sys.path])
    assert run(code, path, PYTHONPATH=here).stdout == "False\n"


BLOCKED = """
import os, signal, sys, lmdbio
from tests._core import test_mapped as t
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGBUS})
for options in ({}, {"engine": "mmap"}):
    with lmdbio.Records(sys.argv[1], readahead=False, **options) as records:
        assert [records[i] for i in range(t.COUNT)] == list(t.EXPECTED.values())
        if options:
            os.truncate(sys.argv[1] + "/data.mdb", 400_000)
        told = 0
        for i in range(t.COUNT):
            try: records[i]
            except (lmdbio.Error, OSError): told += 1
        assert bool(told) == bool(options)
print("lives")
"""


def test_where_the_signal_is_blocked_nothing_is_mapped(path: Path) -> None:
    here = os.pathsep.join([str(ROOT), *sys.path])
    found = run(BLOCKED, path, PYTHONPATH=here)
    assert found.stdout == "lives\n", found.stderr


THREADS = """
import os, sys, lmdbio, numpy as np
records = lmdbio.Records(sys.argv[1], engine="mmap", readahead=False)
records._routes.file_cache.place = "nowhere"  # as where little of the file is cached at first
values = iter(records)
[next(values) for _ in range(100)]
os.truncate(sys.argv[1] + "/data.mdb", 1 << 20)
for read in (lambda: list(values), lambda: records[0:2000:2], lambda: records.read(range(2000))):
    try: read()
    except (lmdbio.Error, OSError) as error: assert "data.mdb" in str(error)
    else: print("silent")
print("lives")
"""


def test_threads_that_read_for_others_are_guarded_too(path: Path) -> None:
    found = run(THREADS, path)
    assert found.stdout == "lives\n", found.stderr


# --- large values -------------------------------------------------------------------------

LARGE, LARGE_COUNT = 600_000, 96


@pytest.fixture
def large(place: Path) -> Path:
    """A database of large values, 58 MB, in the page cache."""
    folder = place / "large"
    with databases.open_writable(folder, 1) as env:
        databases.write(env, ((b"%04d" % i, large_value(i)) for i in range(LARGE_COUNT)))
        env.sync(True)
    warm(folder)
    return folder


def large_value(number: int) -> bytes:
    return databases.value(number, 1000) * (LARGE // 1000)


def test_large_values_are_copied_out_of_the_mapping_too(large: Path) -> None:
    with lmdbio.Records(large, readahead=False) as records:
        for _ in range(2):
            before = calls()
            for number, value in enumerate(records.values(range(LARGE_COUNT))):
                assert value == large_value(number)
        assert calls() - before < LARGE_COUNT // 4


EVICTED = """
import os, resource, sys, threading, time, lmdbio
from tests._core import test_mapped as t
records = lmdbio.Records(sys.argv[1], readahead=False)
half = t.LARGE_COUNT // 2
def read(numbers):
    for number, value in zip(numbers, records.values(numbers), strict=True):
        assert value == t.large_value(number), number
def read_in_thread(numbers):
    thread = threading.Thread(target=read, args=(numbers,))
    thread.start()
    thread.join()
# In threads of their own, too: the engine takes the faults that this one has had by now, to import
# lmdbio, for waiting, when a busy machine holds the first long copy up.
for _ in range(2): read_in_thread(range(half))
# What was said of a page of the tree holds for the clock's second: in the next one the engine asks
# again, hears that the piece has left the cache, and believes nothing. So all of the rest happens
# in one second, which a busy machine makes no longer than that.
time.sleep(1.02 - time.monotonic() % 1)
read_in_thread(range(half))
with open(sys.argv[1] + "/data.mdb", "rb") as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    left = records._routes.engine.cached_bytes()
before, faults = t.calls(), resource.getrusage(resource.RUSAGE_SELF).ru_majflt
for number in range(t.LARGE_COUNT - 1, half, -2):
    read_in_thread([number])
print(left, t.calls() - before, resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults)
"""


def test_what_was_believed_to_be_there_is_waited_for_once(large: Path) -> None:
    """Half of the file was there, piece after piece, when the other half leaves the page cache.
    The first value of that is waited for in a fault, which brings as much as the kernel reads
    ahead; the others are read, also where each is another thread's."""
    here = os.pathsep.join([str(ROOT), *sys.path])
    found = run(EVICTED, large, PYTHONPATH=here)
    assert found.returncode == 0, found.stderr
    left, read, faults = map(int, found.stdout.split())
    size = (large / "data.mdb").stat().st_size
    if file_system(large) == "tmpfs":
        assert left >= size and faults == 0
    else:
        assert left < 0.7 * size and faults > 0 and read > LARGE_COUNT // 4 // 3


# --- what is mapped ahead -------------------------------------------------------------------

AHEAD = """
import os, sys, time, lmdbio
from tests._core import test_mapped as t
kind = sys.argv[2]
if kind == "one": os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
records = lmdbio.Records(sys.argv[1], readahead=False)
half = t.LARGE_COUNT // 2
assert all(records[i] == t.large_value(i) for i in range(half))  # which maps the file
if kind == "child":
    for value in records.values(range(half, t.LARGE_COUNT)): pass
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        os._exit(0)
before, size = t.mapped_bytes(), (half - 3) * t.LARGE
until = time.monotonic() + (1 if kind == "one" else 20)
rest = range(half, t.LARGE_COUNT - 1)  # the last one may end in the file's last page
begun = records.begin_values(list(rest))
while t.mapped_bytes() - before < size and time.monotonic() < until: time.sleep(0.01)
print(t.mapped_bytes() - before, size, records.stats().requests, flush=True)
assert list(begun.values()) == [t.large_value(i) for i in rest]
"""


def ahead(large: Path, kind: str) -> list[int]:
    """Bytes mapped while nobody read, bytes of the values begun, requests made until then."""
    here = os.pathsep.join([str(ROOT), *sys.path])
    found = run(AHEAD, large, kind, PYTHONPATH=here)
    assert found.returncode == 0, found.stderr
    return [int(word) for word in found.stdout.split()]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
@pytest.mark.parametrize("kind", ["many", "child"])
def test_what_was_begun_is_mapped_by_another_thread(large: Path, kind: str) -> None:
    """A child has the mapping of its parent, but none of the pages that the parent touched."""
    mapped, size, requests = ahead(large, kind)
    assert mapped >= size
    assert requests <= (LARGE_COUNT if kind == "child" else LARGE_COUNT // 2 + 1)


def test_with_one_processor_it_is_not(large: Path) -> None:
    mapped, _, requests = ahead(large, "one")
    assert mapped < 2 * PIECE_BYTES and requests <= LARGE_COUNT // 2 + 1


GONE = """
import os, resource, sys, time, lmdbio
from tests._core import test_mapped as t
records = lmdbio.Records(sys.argv[1], readahead=False)
half = t.LARGE_COUNT // 2
for i in range(half): assert records[i] == t.large_value(i)
_, extents = records._routes.locate(range(half, t.LARGE_COUNT - 1))
assert records._routes.engine.missing(extents) is None
time.sleep(1.1)  # then that is not known any more, but believed
with open(sys.argv[1] + "/data.mdb", "rb") as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    cached = records._routes.engine.cached_bytes()
    for _ in range(4): records._routes.engine.prefault(extents)
    time.sleep(0.5)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults)
    print(records._routes.engine.cached_bytes() - cached)
"""


def test_what_has_left_the_cache_is_not_fetched_by_mapping_ahead(large: Path) -> None:
    """It is the reads that bring it, together. The first fault ends the belief; it
    brings what the kernel reads ahead (8 MiB here, of 28), and goes no further than that."""
    here = os.pathsep.join([str(ROOT), *sys.path])
    found = run(GONE, large, PYTHONPATH=here)
    assert found.returncode == 0, found.stderr
    faults, brought = map(int, found.stdout.split())
    assert brought < LARGE * LARGE_COUNT // 4
    assert faults > 0 or file_system(large) == "tmpfs"


CUT_AHEAD = """
import os, sys, lmdbio
from tests._core import test_mapped as t
records = lmdbio.Records(sys.argv[1], readahead=False)
for i in range(t.LARGE_COUNT // 2): records[i]
rest = list(range(t.LARGE_COUNT // 2, t.LARGE_COUNT))
begun = [records.begin_values(rest) for _ in range(20)]  # of which some hints are dropped
os.truncate(sys.argv[1] + "/data.mdb", 1 << 20)
told = 0
for one in begun:
    try: list(one.values())
    except (lmdbio.Error, OSError) as error: told += "data.mdb" in str(error)
print(told)
"""


def test_who_maps_ahead_in_a_file_that_is_cut_lives(large: Path) -> None:
    here = os.pathsep.join([str(ROOT), *sys.path])
    found = run(CUT_AHEAD, large, PYTHONPATH=here)
    assert found.stdout == "20\n", found.stderr


def test_what_was_begun_may_be_left_at_any_moment(large: Path) -> None:
    """By who begins more than can be mapped, who closes at once, and in a child."""
    numbers = list(range(LARGE_COUNT))
    for turn in range(12):
        with lmdbio.Records(large, readahead=False) as records:
            assert [records[i] for i in range(40)] == [large_value(i) for i in range(40)]
            begun = [records.begin_values(numbers[turn:]) for _ in range(turn)]
            child = os.fork()
            if child == 0:
                try:
                    right = map(large_value, range(LARGE_COUNT))
                    same = all(a == b for a, b in zip(records.values(numbers), right, strict=True))
                    os._exit(0 if same else 1)
                finally:
                    os._exit(2)
            if begun:
                assert next(begun[-1].values()) == large_value(turn)
            assert os.waitpid(child, 0)[1] == 0
