"""Ends in odd order: files replaced, cut or closed, processes forked, while they are read.

Goal: whatever ends first, records are right or an exception is raised; never other bytes, a
hang or a signal. Method: each test brings about one order of events, in a process of its own
with a time limit where the failure would be a hang or a signal.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio.machine.overrides import Overrides
from lmdbio.reading import file_cache
from lmdbio.reading.engines import choose_reading, open_engine
from lmdbio.system import reader_slots
from tests.support import ROOT, databases
from tests.support.in_memory import memory_engine as memory_engine

COUNT = 1500
LIMIT_SECONDS = 60


def value(index: int, mark: int = 0) -> bytes:
    return b"%d%08d" % (mark, index) * 333


def build(folder, mark: int = 0, count: int = COUNT):
    env = databases.open_writable(folder, 1)
    databases.write(env, ((b"%08d" % i, value(i, mark)) for i in range(count)))
    env.close()
    return folder


@pytest.fixture
def path(tmp_path):
    return build(tmp_path / "env")


def alone(code: str, *arguments: object) -> str:
    """Runs ``code`` in a process of its own; its output."""
    head = "import os, sys, signal, threading, numpy as np, lmdbio\n"
    head += "from tests.surfaces import test_lifetimes as t\n"
    here = str(ROOT)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code), *map(str, arguments)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


def test_an_exception_that_is_kept_keeps_no_file_open(path):
    kept = []
    for _ in range(3):
        with pytest.raises(LookupError) as raised:
            lmdbio.Records(path, db="nope")
        kept.append(raised.value)
    opened = [link.resolve() for link in Path("/proc/self/fd").iterdir()]
    assert path / "data.mdb" not in opened, kept


@pytest.mark.parametrize("replaced", ["after the opening", "while it is opened"])
def test_a_file_replaced_by_rename_is_not_mixed_with_the_new_one(
    tmp_path, path, replaced, monkeypatch, off_disk
):
    monkeypatch.setattr(file_cache, "STEP_BYTES", 1 << 20)
    monkeypatch.setattr(file_cache, "WAIT_SECONDS_MAX", 60.0)  # however slow the disk is
    other = build(tmp_path / "other", mark=1)

    def replace():
        (other / "data.mdb").rename(path / "data.mdb")

    if replaced == "while it is opened":
        opened = lmdbio.records.records.open_record_index

        def open_and_replace(*args, **kwargs):
            source = opened(*args, **kwargs)
            replace()
            return source

        monkeypatch.setattr(lmdbio.records.records, "open_record_index", open_and_replace)
    with lmdbio.Records(path, readahead=True) as records:
        if replaced == "after the opening":
            replace()
        for seed in range(60):
            indices = np.random.default_rng(seed).integers(0, COUNT, 64)
            batch = records.read(indices)
            assert [bytes(view) for view in batch] == [value(int(i)) for i in indices]
        assert records._routes.file_cache.complete()


def test_a_file_cut_behind_its_records_is_read_although_it_cannot_be_streamed(
    tmp_path, path, monkeypatch, off_disk
):
    monkeypatch.setattr(file_cache, "STEP_BYTES", 1 << 20)
    env = databases.open_writable(path, 1)
    with env.begin(write=True) as txn:
        for i in range(COUNT // 2, COUNT):
            txn.delete(b"%08d" % i)
    for _ in range(2):
        with env.begin(write=True) as txn:
            txn.put(b"%08d" % 0, value(0))
    env.close()
    file = path / "data.mdb"
    with lmdbio.Records(path, locate="scan") as records:
        meta = records._source.meta
        walk = lmdbio._core.Walk(records._source._pages, meta, meta.main_db)
        pages = max(int(chunk.pgnos.max()) for chunk in walk) + 1
        table = records._source._table
        ends = int((table["offset"] + table["length"]).max())
    os.truncate(file, max(pages * 4096, -(-ends // 4096) * 4096))
    assert file.stat().st_size < (meta.last_pgno + 1) * 4096
    with lmdbio.Records(path, readahead=True) as records:
        for seed in range(60):
            indices = np.random.default_rng(seed).integers(0, COUNT // 2, 64)
            batch = records.read(indices)
            assert [bytes(view) for view in batch] == [value(int(i)) for i in indices]
        assert not records._routes.file_cache.complete()


@pytest.mark.parametrize("engine", ["pread", "direct"])
def test_records_can_be_closed_under_an_iteration_and_under_reading_threads(path, engine):
    code = """
        path, engine = sys.argv[1:]
        for turn in range(8):
            records = lmdbio.Records(path, engine=engine)
            iteration = iter(records)
            assert next(iteration) == t.value(0)
            wrong = []
            def read(seed):
                random = np.random.default_rng(seed)
                try:
                    while True:
                        at = int(random.integers(t.COUNT))
                        if records[at] != t.value(at):
                            wrong.append(at)
                        for i, view in zip(many := random.integers(0, t.COUNT, 64),
                                           records.read(many)):
                            if bytes(view) != t.value(int(i)):
                                wrong.append(i)
                except lmdbio.Error:
                    pass
            threads = [threading.Thread(target=read, args=(s,)) for s in range(3)]
            for thread in threads:
                thread.start()
            threading.Event().wait(0.02)
            records.close()
            del iteration
            for thread in threads:
                thread.join()
            assert not wrong
        print("closed")
    """
    assert alone(code, path, engine) == "closed\n"


@pytest.mark.more
@pytest.mark.parametrize("lock", [True, False])
def test_children_forked_while_threads_read_can_read_too(path, lock):
    code = """
        import time
        path, lock = sys.argv[1], sys.argv[2] == "True"
        env, records, stop = lmdbio.open(path, readonly=True, lock=lock), lmdbio.Records(path), []
        txn = env.begin()
        def begin():
            while not stop:
                with env.begin() as own:
                    own.get(b"%08d" % 5)
        def walk():
            while not stop:
                for _ in txn.cursor():
                    pass
        def read():
            random = np.random.default_rng(0)
            while not stop:
                records.read(random.integers(0, t.COUNT, 64))
        threads = [threading.Thread(target=f) for f in (begin, begin, walk, read)]
        for thread in threads:
            thread.start()
        for turn in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                with env.begin() as own:
                    good = own.get(b"%08d" % 7) == t.value(7) == txn.get(b"%08d" % 7)
                good = good and bytes(records.read([9])[0]) == t.value(9)
                os._exit(0 if good else 1)
            status = os.waitpid(child, 0)[1]
            if status:
                break
        stop.append(True)
        for thread in threads:
            thread.join()
        print(status)
    """
    assert alone(code, path, lock) == "0\n"


def test_an_environment_with_reader_slots_survives_the_truncation_of_its_file(path):
    code = """
        env = lmdbio.open(sys.argv[1], readonly=True)
        with env.begin() as txn:
            assert txn.get(b"%08d" % 3) == t.value(3)
        os.truncate(os.path.join(sys.argv[1], "data.mdb"), 0)
        refused = 0
        for call in (env.begin, env.info, env.readers, env.reader_check, env.stat,
                     lambda: env.copy(sys.argv[1])):
            try:
                call()
            except (lmdbio.Error, OSError):
                refused += 1
        print(refused)
    """
    assert alone(code, path) == "6\n"


def test_a_file_that_outgrows_the_map_size_is_read_on(path):
    code = """
        import subprocess
        path = sys.argv[1]
        with lmdbio.open(path, readonly=True, map_size=1 << 20) as env:
            grow = "import lmdb, sys; e = lmdb.open(sys.argv[1], map_size=1 << 28, sync=False);"
            grow += "t = e.begin(write=True); t.put(b'x', bytes(64 << 20)); t.commit(); e.close()"
            subprocess.run([sys.executable, "-c", grow, path], check=True)
            with env.begin() as txn:
                print(txn.get(b"x") == bytes(64 << 20), txn.get(b"%08d" % 1) == t.value(1))
    """
    assert alone(code, path) == "True True\n"


def test_a_snapshot_is_read_unprotected_where_py_lmdb_refuses_a_slot(path, monkeypatch):
    def refuse(self):
        raise lmdb.MapResizedError("grown")

    with lmdbio.open(str(path), readonly=True) as env:
        monkeypatch.setattr(reader_slots.Slots, "begin", refuse)
        with env.begin() as txn:
            assert txn.get(b"%08d" % 1) == value(1)


def test_an_environment_collected_while_slots_are_acquired_hangs_nothing(tmp_path, monkeypatch):
    one, other = build(tmp_path / "a", count=3), build(tmp_path / "b", count=3)
    code = """
        import gc, lmdb
        from lmdbio.system import reader_slots as snapshot
        signal.alarm(20)
        plain = snapshot._open
        def collecting(*args, **kwargs):
            gc.collect()
            return plain(*args, **kwargs)
        snapshot._open = collecting
        gc.disable()
        class Ring: pass
        ring = Ring()
        ring.ring, ring.env = ring, lmdbio.open(sys.argv[1], readonly=True)
        del ring
        env = lmdbio.open(sys.argv[2], readonly=True)
        with env.begin() as txn:
            assert txn.get(b"%08d" % 1) == t.value(1)
        lmdb.open(sys.argv[1], readonly=True).close()  # the collected one let go of its file
        print("open")
    """
    assert alone(code, one, other) == "open\n"


def test_ctrl_c_at_any_moment_leaves_records_whole(path):
    code = """
        import random
        from lmdbio.reading import file_cache as image
        image.STEP_BYTES = 1 << 18
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        random.seed(1)
        met = wrong = 0
        for turn in range(12):
            with lmdbio.Records(sys.argv[1], engine="pread", readahead=True) as records:
                for seed in range(40):
                    many = np.random.default_rng(seed).integers(0, t.COUNT, 64)
                    try:
                        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 2e-3))
                        batch = records.read(many)
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    except KeyboardInterrupt:
                        met += 1
                        continue
                    wrong += [bytes(v) for v in batch] != [t.value(int(i)) for i in many]
        print(met > 0, wrong)
    """
    assert alone(code, path) == "True 0\n"


def test_reads_under_way_end_before_the_memory_they_fill(path):
    class Memory(lmdbio._core.Memory):
        __slots__ = ("__weakref__",)

    with lmdbio.Records(path, engine="direct") as records:
        plan = lmdbio._core.make_plan(
            records._source.extents(np.arange(64, dtype=np.uint64)),
            gap_bytes_max=0,
            request_bytes_max=4096,
            alignment=4096,
        )
        choice = choose_reading(records._source.pages, "batch", Overrides("direct", depth=1))
        engine = open_engine(records._source.pages, choice)
        memory = Memory(plan.totals.buffer_bytes)
        ticket = engine.submit_plan(plan, memory.address, memory)
        engine.close()
        address, size = memory.address, memory.size
        del memory, engine
        gc.collect()
        ticket.wait()  # neither has gone
        filled = bytes(lmdbio._core.lend(address, size))
        first = int(plan.slices[0])
        assert filled[first : first + len(value(0))] == value(0)
        ticket.close()


@pytest.mark.more
@pytest.mark.parametrize("end", ["the interpreter ends", "a cycle is collected"])
def test_reads_under_way_end_before_their_memory_and_engine_do(path, end):
    """Either way the garbage collector finds engine, memory and ticket at once, oldest first."""
    code = """
        import gc
        def slow(path):
            engine, _ = t.memory_engine(bytes(1 << 22), 2, delay_us=20_000)
            memory = lmdbio._core.MemoryPool().take(1 << 22)
            reads = np.zeros(16, lmdbio._core.READ)
            reads["offset"] = np.arange(16) << 18
            reads["length"] = reads["needed"] = 1 << 18
            reads["into"] = reads["offset"] + np.uint64(memory.address)
            return [engine, memory, engine.submit(reads, memory)]
        records = lmdbio.Records(sys.argv[1], readahead=True)
        batch = records.read(np.arange(0, len(records), 7))
        held = slow(sys.argv[1])
        held.append(held)
        if sys.argv[2] == "a cycle is collected":
            del held
            assert gc.collect() > 0
        print("read")
    """
    for _ in range(3):
        assert alone(code, path, end) == "read\n"
