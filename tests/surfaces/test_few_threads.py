"""A process that can start no thread: ulimit -u, or a container that has as many as it may.

Goal: whatever reads does so by the threads there are, or by the caller, and gives the same bytes.
Method: a preloaded library lets the system start none, or a few; the page cache has nothing of the
file.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from tests.support import TESTS
from tests.support.range_server import RangeServer

COUNT = 1200
PROGRAM = """
import logging, os, pathlib, sys
import numpy as np
sys.path.insert(0, FAULTS)
from interposer import Act, Call, Interposer
import lmdbio
from lmdbio import _core

logging.basicConfig(level=logging.INFO, stream=sys.stdout)
path, first, url = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
a, b = (os.path.join(path, name) for name in "ab")

def value(i):
    i %= COUNT
    return b"%06d" % i * (300 + i % 99)

def uncached():
    for one in (a, b):
        fd = os.open(one + "/data.mdb", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

def records(engine, path=a, **more):
    with lmdbio.Records(path, engine=engine, **more) as records:
        chosen = np.random.default_rng(0).integers(0, len(records), 300).tolist()
        assert [bytes(one) for one in records.read(chosen)] == [value(i) for i in chosen]
        assert [bytes(one) for one in records] == [value(i) for i in range(len(records))]

def environment(engine, path=a):
    with lmdbio.open(path, readonly=True, engine=engine) as env, env.begin() as txn:
        assert [data for _, data in txn.cursor()] == [value(i) for i in range(COUNT)]

def reader(**more):
    with lmdbio.Reader(a, 50, iterations=30, **more) as reader:
        got = [bytes(one) for batch in reader for one in batch]
    order = range(1500) if "shuffle" not in more else None
    assert order is None or got == [value(i) for i in order]
    assert len(got) == 1500

def left():
    with lmdbio.Reader(a, 50) as reader:
        assert bytes(next(reader)[3]) == value(3)

Interposer(pathlib.Path(path)).arm(Call.THREAD, Act.FAIL, 11, first, 1)
for engine in ("auto", "direct", "uring"):
    uncached(), environment(engine)
    uncached(), records(engine)
uncached(), records("auto", [a, b])
uncached(), records("auto", readahead=True)
uncached(), reader()
uncached(), left()
uncached(), reader(shuffle=True, epochs=2, cache="memory=256K,warm=preload")
if url:
    records("auto", url[0]), records("auto", url), environment("auto", url[0])
prefetch = _core.Prefetch(_core.Engine(a + "/data.mdb"), 1 << 20, piece=0, sweep_bytes_max=1 << 20)
uncached(), prefetch.sweep_all(), prefetch.wait(range(1 << 20))
"""


@pytest.mark.more
@pytest.mark.parametrize("there", [0, 1, 3])
def test_what_has_few_threads_reads_all_the_same(tmp_path: Path, there: int) -> None:
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        pytest.skip("threads are refused by a library for glibc on Linux")
    if subprocess.run(["cc", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no C compiler named cc")
    sys.path.insert(0, str(TESTS / "faults"))
    try:
        import interposer
    finally:
        sys.path.remove(str(TESTS / "faults"))
    for name in "ab":
        with (
            lmdb.open(str(tmp_path / name), map_size=1 << 26) as env,
            env.begin(write=True) as txn,
        ):
            for i in range(COUNT):
                txn.put(b"%06d" % i, b"%06d" % i * (300 + i % 99))
    program = f"COUNT, FAULTS = {COUNT}, {str(TESTS / 'faults')!r}\n{PROGRAM}"
    files = {f"/{name}": (tmp_path / name / "data.mdb").read_bytes() for name in "ab"}
    with RangeServer(files) as server:
        urls = [server.url(name) for name in files]
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), str(there), *urls],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={
                **interposer.environment(interposer.build(tmp_path)),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )
    assert done.returncode == 0, done.stderr
    told = "blocks are read when they are waited for: cannot start a thread" in done.stdout
    assert told or there
