"""One suite over every engine.

Goal: whatever the way of reading, the same bytes, the same errors, no request lost. Method:
the same reads on one file through each engine; failures come from a file whose reads follow
a script, or from a real one that is too short.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from lmdbio import _core
from lmdbio.errors import Error, InvalidError, ShortReadError
from tests.support.in_memory import memory_engine

SIZE = 1_000_003  # no multiple of anything
CONTENT = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8).tobytes()
KINDS = ["pread", "direct", "uring", "staged", "mmap", "remote"]


@pytest.fixture(params=KINDS)
def engine(request, tmp_path):
    if request.param == "remote":
        made, _ = memory_engine(CONTENT)
    else:
        path = tmp_path / "file"
        path.write_bytes(CONTENT)
        made = open_or_skip(path, request.param)
    with made:
        yield made


def reads(engine: _core.Engine, pieces: list[tuple[int, int]]):
    """Aligned reads for pieces, their memory, and where each piece will lie."""
    extents = np.array(pieces, _core.EXTENT)
    plan = _core.make_plan(
        extents, gap_bytes_max=0, request_bytes_max=1 << 16, alignment=engine.alignment
    )
    return plan, _core.Memory(plan.totals.buffer_bytes)


def bytes_at(memory: _core.Memory, at: int, length: int) -> bytes:
    assert at + length <= memory.size
    return ctypes.string_at(memory.address + int(at), int(length))


def test_many_requests_in_flight_bring_the_files_bytes(engine):
    rng = np.random.default_rng(2)
    pieces = [
        (int(o), int(min(n, SIZE - o)))
        for o, n in zip(rng.integers(0, SIZE, 400), rng.integers(0, 20000, 400), strict=True)
    ]
    plan, memory = reads(engine, pieces)
    engine.read_plan(plan, memory.address)
    got = [bytes_at(memory, at, n) for at, (_, n) in zip(plan.slices, pieces, strict=True)]
    assert got == [CONTENT[o : o + n] for o, n in pieces]


@pytest.mark.parametrize("size", [(2 << 20) - 1, 2 << 20, (4 << 20) + 4097, 5_000_003])
@pytest.mark.parametrize("kind", ["pread", "direct", "uring", "staged"])
def test_a_large_request_is_whole_whatever_pieces_it_is_read_in(tmp_path, kind, size):
    """Stages are 2 MiB: the file ends before, at and after the end of one."""
    content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    path = tmp_path / "file"
    path.write_bytes(content)
    engine = open_or_skip(path, kind)
    with engine:
        for offset in (0, 4096, 1 << 20):
            length = -(-(size - offset) // 4096) * 4096
            memory = _core.Memory(length)
            read = np.zeros(1, _core.READ)
            read["offset"], read["length"], read["into"] = offset, length, memory.address
            read["needed"] = size - offset
            with engine.submit(read, memory) as ticket:
                ticket.wait()
            assert bytes_at(memory, 0, size - offset) == content[offset:]
            read["needed"] = length
            short = length > size - offset
            with engine.submit(read, memory) as ticket:
                if not short:
                    ticket.wait()
                    continue
                with pytest.raises(ShortReadError):
                    ticket.wait()


def test_one_range_can_be_read_to_the_last_byte(engine):
    assert engine.read(SIZE - 7, 7) == CONTENT[-7:]
    assert engine.read(0, 0) == b""


def test_the_end_of_the_file_inside_a_read_is_told_with_all_numbers(engine):
    with pytest.raises(ShortReadError) as caught:
        engine.read(SIZE - 5, 10)
    assert engine.path in str(caught.value)
    assert "wanted" in str(caught.value)
    plan, memory = reads(engine, [(0, 100), (SIZE - 5, 10), (5000, 100)])
    with pytest.raises(ShortReadError):
        engine.read_plan(plan, memory.address)
    assert engine.read(0, 10) == CONTENT[:10], "an engine outlives a failed read"


def test_counters_count_what_was_read(engine):
    before = engine.counts()
    engine.read(0, 4096)
    after = engine.counts()
    assert after.bytes - before.bytes == 4096
    assert after.requests - before.requests == 1


def test_impossible_reads_are_refused(engine):
    request = np.zeros(1, _core.READ)
    request["length"] = request["needed"] = 10
    with pytest.raises(ValueError, match="without memory"):
        engine.submit(request)
    request["offset"] = 2**63
    request["into"] = 4096
    with pytest.raises(ValueError, match="impossible"):
        engine.submit(request)


def test_threads_may_share_an_engine(engine):
    problems = []

    def read_much(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for offset in rng.integers(0, SIZE - 5000, 50).tolist():
            if engine.read(offset, 5000) != CONTENT[offset : offset + 5000]:
                problems.append(offset)

    threads = [threading.Thread(target=read_much, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_threads_are_told_of_their_own_errors(engine):
    problems = []

    def fail(first: int) -> None:
        for offset in range(first, first + 400):
            with pytest.raises(ShortReadError) as caught:
                engine.read(SIZE + offset, 10)
            if f"offset {(SIZE + offset) // engine.alignment * engine.alignment}," not in str(
                caught.value
            ):
                problems.append((offset, str(caught.value)))

    threads = [threading.Thread(target=fail, args=(i * 100_000,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_a_forked_child_and_its_parent_both_read_on(engine):
    plan, memory = reads(engine, [(0, 300_000), (500_000, 300_000)])
    engine.read_plan(plan, memory.address)  # the parent's threads exist now
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        own = _core.Memory(plan.totals.buffer_bytes)
        engine.read_plan(plan, own.address)
        at = int(plan.slices[1])
        good = bytes_at(own, at, 300_000) == CONTENT[500_000:800_000]
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    engine.read_plan(plan, memory.address)


def test_dropping_a_ticket_waits_for_what_is_under_way():
    with memory_engine(CONTENT, 2, delay_us=20_000)[0] as engine:
        plan, memory = reads(engine, [(i * 70_000, 100) for i in range(12)])
        with engine.submit_plan(plan, memory.address) as ticket:
            assert not ticket.poll(0)
        assert engine.counts().requests <= 4, "what had not begun was dropped"


def test_a_ticket_tells_how_far_it_has_come():
    with memory_engine(CONTENT, 2, delay_us=10_000)[0] as engine:
        plan, memory = reads(engine, [(i * 70_000, 100) for i in range(8)])
        with engine.submit_plan(plan, memory.address) as ticket:
            seen = [ticket.left()]
            assert not ticket.poll_begun()
            assert ticket.poll_begun(10_000)
            seen.append(ticket.left())
            ticket.wait()
            assert ticket.poll_begun()
            seen.append(ticket.left())
    assert seen[0] > 0.5, "most were waiting for a thread"
    assert seen[1] <= 2 / 8, "two can be under way"
    assert seen[2] == 0


def test_who_waits_for_a_ticket_to_begin_is_woken_when_an_older_one_ends():
    with memory_engine(CONTENT, 1, delay_us=50_000)[0] as engine:
        few, room = reads(engine, [(0, 100)])
        many, memory = reads(engine, [(i * 70_000, 100) for i in range(1, 6)])
        with engine.submit_plan(few, room.address) as older:
            with engine.submit_plan(many, memory.address) as ticket:
                begun = time.monotonic()
                assert not ticket.poll_begun(10_000, older)
                assert older.poll() and time.monotonic() - begun < 5
                assert not ticket.poll_begun(0, older), "there is more to begin"
                with memory_engine(CONTENT)[0] as other:
                    with other.submit_plan(few, room.address) as foreign:
                        with pytest.raises(ValueError, match="two engines"):
                            ticket.poll_begun(0, foreign)


def test_a_failing_request_ends_its_batch_with_the_operating_systems_error():
    engine, file = memory_engine(CONTENT)
    with engine:
        file.script(fail_every=3, sys_errno=errno.EIO)
        plan, memory = reads(engine, [(i * 70_000, 100) for i in range(12)])
        with pytest.raises(OSError, match="cannot read") as caught:
            engine.read_plan(plan, memory.address)
        assert caught.value.errno == errno.EIO
        file.script()
        engine.read_plan(plan, memory.address)


def test_what_is_no_file_is_refused_without_waiting(tmp_path):
    with pytest.raises(InvalidError, match="folder"):
        _core.Engine(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InvalidError, match="no regular file"):
        _core.Engine(tmp_path / "fifo")
    with pytest.raises(FileNotFoundError):
        _core.Engine(tmp_path / "nothing")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ValueError, match="NUL"):
        _core.Engine(f"{tmp_path}/file\0tail")


@pytest.mark.parametrize(("kind", "depth"), [("tape", 1), ("pread", 0), ("pread", 257)])
def test_unknown_kinds_and_depths_are_refused(tmp_path, kind, depth):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"engine|depth"):
        _core.Engine(tmp_path / "file", kind, depth)


def test_a_closed_engine_says_so(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    engine = _core.Engine(tmp_path / "file")
    engine.close()
    engine.close()
    with pytest.raises(Error, match="closed"):
        engine.read(0, 1)


def test_a_file_that_grew_or_shrank_after_open_is_read_as_it_is(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(CONTENT[:10_000])
    for kind in ("pread", "mmap"):
        with _core.Engine(path, kind) as engine:
            path.write_bytes(CONTENT[:20_000])
            assert engine.read(15_000, 100) == CONTENT[15_000:15_100]
            os.truncate(path, 5_000)
            with pytest.raises(ShortReadError):
                engine.read(8_000, 100)
        path.write_bytes(CONTENT[:10_000])


def open_or_skip(path, kind):
    try:
        return _core.Engine(path, kind)
    except _core.errors.IncompatibleError as e:
        pytest.skip(f"no O_DIRECT at {path}: {e}")


def large_file(folder):
    content = np.random.default_rng(3).integers(0, 256, 7_000_003, dtype=np.uint8).tobytes()
    path = folder / "large"
    path.write_bytes(content)
    return path, content


@pytest.mark.parametrize("kind", ["pread", "direct", "uring", "staged"])
def test_large_requests_bring_the_files_bytes_up_to_its_odd_end(tmp_path, kind):
    """Above and below what is staged at once, and what is not staged at all."""
    path, content = large_file(tmp_path)
    engine = open_or_skip(path, kind)
    with engine:
        for size in (100 << 10, 256 << 10, 2 << 20, 5 << 20, 8 << 20):
            for offset in (0, 4096, 3 << 20, 6 << 20):
                needed = min(size, len(content) - offset)
                memory = _core.Memory(size)
                one = np.array([(offset, size, needed, memory.address)], _core.READ)
                with engine.submit(one, memory) as ticket:
                    ticket.wait()
                    begun, ended = ticket.times
                    assert ended >= begun
                got = bytes(_core.lend(memory.address, needed, memory))
                assert got == content[offset : offset + needed]


@pytest.mark.parametrize("kind", ["pread", "direct", "uring", "staged"])
def test_a_large_request_beyond_the_end_is_an_error(tmp_path, kind):
    path, _ = large_file(tmp_path)
    engine = open_or_skip(path, kind)
    with engine:
        for offset, size in ((4 << 20, 4 << 20), (8 << 20, 1 << 20)):
            memory = _core.Memory(size)
            one = np.array([(offset, size, size, memory.address)], _core.READ)
            with engine.submit(one, memory) as ticket, pytest.raises(ShortReadError) as caught:
                ticket.wait()
            assert str(path) in str(caught.value)


def test_a_file_system_without_a_disk_is_read_ahead_by_reading(tmp_path):
    """tmpfs stands for FUSE and the network: no block device. Bytes there are not read twice."""
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        pytest.skip("no /dev/shm to write to")
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        path, content = large_file(Path(folder))
        with _core.Engine(path, "pread") as engine:
            for end in (len(content), len(content) + (8 << 20)):
                prefetch = _core.Prefetch(engine, end, piece=1 << 20, sweep_bytes_max=end)
                left = prefetch.sweep_all()
                prefetch.wait(range(end))
                assert left == 0 or end > len(content), "all of it is there"


@pytest.mark.parametrize("kind", ["pread", "direct", "uring"])
def test_threads_that_submit_and_give_up_at_once_do_not_disturb_each_other(tmp_path, kind):
    """Every second ticket is dropped with its reads under way; the others bring their bytes."""
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    problems = []

    def read_some(engine: _core.Engine, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            pieces = [(int(o), 3000) for o in rng.integers(0, SIZE - 3000, 24)]
            plan, memory = reads(engine, pieces)
            with engine.submit_plan(plan, memory.address, memory):
                pass
            engine.read_plan(plan, memory.address, memory)
            got = [bytes_at(memory, at, 3000) for at in plan.slices]
            if got != [CONTENT[o : o + n] for o, n in pieces]:
                problems.append(seed)

    with open_or_skip(path, kind) as engine:
        threads = [threading.Thread(target=read_some, args=(engine, i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems


FORBID = """
import ctypes, errno, os, struct, sys
import numpy as np
from lmdbio import _core
from lmdbio.errors import IncompatibleError

def forbid():
    # seccomp: io_uring's three calls are EPERM from now on, in all threads.
    steps = [(0x20, 0, 0, 0), (0x35, 0, 2, 425), (0x25, 1, 0, 427), (0x06, 0, 0, 0x50000 | 1),
             (0x06, 0, 0, 0x7FFF0000)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.syscall(number, 1, 1, program) == 0, ctypes.get_errno()

def read(engine):
    content = open(sys.argv[1], "rb").read()
    pages = np.random.default_rng(1).permutation(len(content) // 4096)[:100]
    memory = _core.Memory(100 * 4096)
    reads = np.zeros(100, _core.READ)
    reads["offset"], reads["length"], reads["needed"] = pages * 4096, 4096, 4096
    reads["into"] = memory.address + np.arange(100, dtype=np.uint64) * 4096
    with engine.submit(reads, memory) as ticket:
        ticket.wait()
    got = bytes(_core.lend(memory.address, 100 * 4096, memory))
    assert got == b"".join(content[p * 4096:][:4096] for p in pages.tolist())
"""


@pytest.mark.parametrize("when", ["before", "after it was opened", "after it was used"])
def test_where_io_uring_is_forbidden_a_sentence_says_so_or_threads_read(tmp_path, when):
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    open_or_skip(path, "uring").close()
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("no number of seccomp for this machine")
    code = {
        "before": """
forbid()
try:
    _core.Engine(sys.argv[1], "uring")
except IncompatibleError as e:
    assert "forbidden" in str(e) and sys.argv[1] in str(e), e
else:
    raise AssertionError("opened")
""",
        "after it was opened": 'e = _core.Engine(sys.argv[1], "uring"); forbid(); read(e)',
        "after it was used": """
e = _core.Engine(sys.argv[1], "uring", 8)
read(e); forbid(); read(e); read(e)
""",
    }[when]
    done = subprocess.run(
        [sys.executable, "-c", FORBID + code, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
