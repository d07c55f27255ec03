"""Worker processes of a Loader. Goal: whoever makes the batches, they are the same ones, with the
same draws, states and errors; and however a worker or the program ends, an error says so, nobody
waits for ever, and nothing is left. Method: each law is compared with the loop's own thread;
workers are killed, stopped and made to raise.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmdbio
from lmdbio.errors import Error
from lmdbio.layouts.layout import Keys, Selection
from lmdbio.torch import Loader, sample_info
from lmdbio.torch.worker_process import pack, unpack
from tests.support import databases

COUNT = 300
HOW: dict[str, Any] = {"shuffle": True, "seed": 7}
ENDS_SECONDS = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("processes") / "db"
    with databases.open_writable(path, 8) as env:
        databases.write(env, [(b"%08d" % i, value(i)) for i in range(COUNT)])
    return path


def value(number: int) -> bytes:
    return b"%06d" % number + bytes([number % 251]) * (number * 37 % 3000 + 600)


def number(data: Any) -> int:
    return int(bytes(data[:6]))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture(autouse=True)
def brief_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes make them, which else the loop's own thread would make soon."""
    monkeypatch.setattr("lmdbio.torch.workers.INLINE_SECONDS", -1.0)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    files, others = open_files(), multiprocessing.active_children()  # a DataLoader's end slowly
    yield
    assert [one for one in multiprocessing.active_children() if one not in others] == []
    deadline = time.monotonic() + 5
    while open_files() > files + 2 and time.monotonic() < deadline:  # two are Python's own
        gc.collect()  # exceptions know the frames that they came through
        time.sleep(0.02)  # a thread that was left behind lets go of its worker
    assert open_files() <= files + 2
    gc.collect()
    assert "lmdbio-batch" not in Path("/proc/self/maps").read_text()


def by_processes(folder: Path, size: int = 16, count: int = 2, **words: Any) -> Loader:
    return Loader(folder, size, threads=0, processes=count, **{**HOW, **words})


def by_the_loop(folder: Path, size: int = 16, **words: Any) -> Loader:
    return Loader(folder, size, threads=0, processes=0, **{**HOW, **words})


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.stride() == other.stride() and one.equal(other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        is_alike = type(one) is type(other) and len(one) == len(other)
        return is_alike and all(map(same, one, other))
    return bool(one == other)


# --- the same batches --------------------------------------------------------------------


def drawing(data: Any) -> tuple[Any, ...]:
    info = sample_info()
    assert info is not None and info.index == number(data)
    head = torch.frombuffer(bytearray(data[:600]), dtype=torch.uint8)
    return number(data), random.random(), float(np.random.rand()), torch.rand(3), head


class Pairs:
    """A layout by which each sample is of two records."""

    name = "pairs"

    def find(self, keys: Keys) -> Selection:
        return Selection("pairs", columns=2, order=lambda _: np.arange(COUNT).reshape(-1, 2))


def sizes(data: Any) -> list[int]:
    return list(map(len, data)) if isinstance(data, tuple) else [len(data), number(data)]


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("kind", ["view", "mix", "pairs"])
def test_samples_that_lie_in_several_places_are_sent_as_well(
    folder: Path, kind: str, buffers: bool
) -> None:
    with lmdbio.Records(folder, layout=Pairs() if kind == "pairs" else None) as records:
        view = records.subset(np.arange(0, len(records), 3))
        source = {"view": view, "mix": lmdbio.Mix([view, records]), "pairs": records}[kind]
        words = {**HOW, "shuffle": kind != "mix", "transform": sizes, "buffers": buffers}
        with Loader(source, 8, threads=0, processes=0, collate_fn=list, **words) as loop:
            wanted = list(loop)
        with Loader(source, 8, threads=0, processes=2, collate_fn=list, **words) as loader:
            assert list(loader) == wanted
            assert "process" in loader.workers.text and "TypeError" not in loader.workers.text


def test_a_mix_of_samples_of_one_and_of_two_records_is_sent_as_well(folder: Path) -> None:
    with lmdbio.Records(folder) as one, lmdbio.Records(folder, layout=Pairs()) as two:
        mix = lmdbio.Mix([one, two], weights=[20, 1])
        words = {**HOW, "shuffle": False, "transform": sizes, "collate_fn": list}
        with Loader(mix, 4, threads=0, processes=0, **words) as loop:
            wanted = list(loop)
        with Loader(mix, 4, threads=0, processes=2, **words) as loader:
            assert list(loader) == wanted
    assert {len(each) for batch in wanted for each in batch} == {2}


def with_key(key: bytes, data: Any) -> tuple[str, int]:
    return key.decode(), number(data)


def as_lists(samples: list[Any]) -> list[Any]:
    return [bytes(sample) for sample in samples]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_batches_draws_and_order_are_those_of_the_loop(folder: Path, count: int) -> None:
    with by_the_loop(folder, transform=drawing) as loop:
        with by_processes(folder, count=count, transform=drawing) as loader:
            for _ in range(2):
                assert same(list(loader), list(loop))
            assert "process" in loader.workers.text


@pytest.mark.parametrize(
    "words",
    [
        {"transform": with_key, "keys": True},
        {"keys": True, "collate_fn": list},
        {"transform": number, "buffers": True},
        {"buffers": True, "collate_fn": as_lists},
        {"collate_fn": as_lists, "shuffle": False},
        {"collate_fn": as_lists, "cache": "memory=1M"},
    ],
    ids=["keys", "keys alone", "buffers", "buffers alone", "in order", "cache"],
)
def test_words_of_a_loader_mean_the_same(folder: Path, words: dict[str, Any]) -> None:
    with by_the_loop(folder, **words) as loop, by_processes(folder, **words) as loader:
        assert same(list(loader), list(loop))


def test_samples_of_several_records_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with databases.open_writable(path, 8) as env:
        kinds = ((b"image", value), (b"label", lambda i: b"%d" % i))
        pairs = [(b"%s-%09d" % (kind, i), make(i)) for kind, make in kinds for i in range(1, 41)]
        databases.write(env, [*pairs, (b"num-samples", b"40")])
    words: dict[str, Any] = {"collate_fn": list, "layout": "ocr"}
    with by_the_loop(path, **words) as loop, by_processes(path, **words) as loader:
        expected = list(loop)
        assert len(expected[0][0]) == 2
        assert same(list(loader), expected)


def twice(data: Any) -> int:
    return 2 * number(data)


def test_a_transform_that_is_replaced_counts_from_the_next_iteration_on(folder: Path) -> None:
    with by_processes(folder, transform=number, shuffle=False) as loader:
        for transform, times in ((number, 1), (twice, 2)):
            loader.dataset.transform = transform
            assert torch.cat(list(loader)).tolist() == [times * one for one in range(COUNT)]


def test_a_state_goes_on_in_any_way(folder: Path) -> None:
    with by_the_loop(folder, transform=number) as loop:
        whole = [batch.tolist() for batch in loop]
    with by_processes(folder, transform=number) as loader:
        batches = iter(loader)
        begun = [next(batches).tolist() for _ in range(5)]
        state = loader.state_dict()
    with by_the_loop(folder, transform=number) as loop:
        loop.load_state_dict(state)
        assert begun + [batch.tolist() for batch in loop] == whole
    with by_processes(folder, count=3, transform=number) as loader:
        loader.load_state_dict(state)
        assert begun + [batch.tolist() for batch in loader] == whole


def test_batches_that_are_kept_stay_as_they_are(folder: Path) -> None:
    with by_processes(folder, 8, transform=drawing) as loader:
        kept = [list(loader) for _ in range(3)]
    with by_the_loop(folder, 8, transform=drawing) as loop:
        assert same(kept, [list(loop) for _ in range(3)])


def test_memory_of_batches_that_are_gone_is_used_again(folder: Path) -> None:
    with by_processes(folder, 8, transform=lambda data: torch.zeros(4096)) as loader:
        for _ in range(3):
            for batch in loader:
                assert batch.shape[1] == 4096
        pool = loader._source._pool  # type: ignore[union-attr]
        for worker in pool._all:
            assert len(worker._outputs) <= 6


def test_a_batch_may_be_changed(folder: Path) -> None:
    with by_processes(folder, transform=drawing) as loader:
        for batch in loader:
            batch[4].fill_(3)
            assert int(batch[4].sum()) == 3 * batch[4].numel()


class Named:
    def __init__(self, data: Any) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and same(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]


SEVERAL = torch.arange(4 * 3 * 20 * 20, dtype=torch.float32).reshape(4, 3, 20, 20)


@pytest.mark.parametrize(
    "batch",
    [
        torch.empty(0, 3),
        torch.tensor(7),
        torch.ones(2000, dtype=torch.bool),
        torch.ones(2000, dtype=torch.bfloat16),
        torch.ones(2000, dtype=torch.complex64),
        SEVERAL.to(memory_format=torch.channels_last),
        {"image": SEVERAL, "label": [1, 2], "name": ("a", b"b"), "none": None},
        [SEVERAL, SEVERAL],
        np.arange(5000.0).reshape(50, 100),
        np.arange(5000)[::2],
        np.asfortranarray(np.arange(6000).reshape(60, 100)),
        Named(SEVERAL),
        "text",
        b"x" * 100_000,
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_what_is_packed_comes_back(batch: Any) -> None:
    memory: list[bytearray] = []

    def allocate(size: int) -> memoryview:
        memory.append(bytearray(size))
        return memoryview(memory[0])

    pickled, places = pack(batch, allocate)
    back = unpack(pickled, places, memoryview(memory[0] if memory else b""))
    assert back == batch if isinstance(batch, Named) else same(back, batch)
    assert len(memory) <= 1


def test_a_view_is_packed_as_a_tensor_of_its_own() -> None:
    pickled, places = pack(SEVERAL[1:3, :, ::2], lambda size: memoryview(room)[:size])
    assert len(pickled) < 2000
    assert unpack(pickled, places, memoryview(room)).equal(SEVERAL[1:3, :, ::2])


room = bytearray(1 << 20)


# --- errors ------------------------------------------------------------------------------


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} {two}")  # it cannot be unpickled


def raising(data: Any) -> int:
    if number(data) == 77:
        raise KeyError("no such label", 77)
    return number(data)


def raising_odd(data: Any) -> int:
    if number(data) == 77:
        raise OddError(1, 2)
    return number(data)


def proven(loader: Loader) -> list[Any]:
    """Return batches up to the first error; some come before it."""
    found: list[Any] = []
    with pytest.raises(Exception) as caught:
        for batch in loader:
            found.append(batch)
    found.append(caught.value)
    return found


def test_an_exception_names_the_record_and_the_worker(folder: Path) -> None:
    with by_processes(folder, transform=raising) as loader:
        *batches, error = proven(loader)
    with by_the_loop(folder, transform=raising) as loop:
        *expected, plain = proven(loop)
    assert same(batches, expected)
    assert type(error) is KeyError and error.args == plain.args
    notes = "\n".join(error.__notes__)
    assert "sample 77, key 00000077, file" in notes and "worker process" in notes
    assert "in raising" in str(error.__cause__)


def test_an_exception_that_cannot_be_sent_says_what_it_was(folder: Path) -> None:
    with by_processes(folder, transform=raising_odd) as loader:
        error = proven(loader)[-1]
    assert isinstance(error, Error) and "OddError: 1 2" in str(error.__cause__)


@pytest.mark.parametrize("errors", ["skip", lambda error: isinstance(error, KeyError)])
def test_broken_samples_are_left_out_and_counted(folder: Path, errors: Any) -> None:
    with by_processes(folder, transform=raising, errors=errors) as loader:
        found = [one for batch in loader for one in batch.tolist()]
        assert sorted(found) == [i for i in range(COUNT) if i != 77]
        assert loader.stats().skipped_records == 1


def unhurried(data: Any) -> int:
    """A number that takes so long that no worker makes all batches alone."""
    time.sleep(1e-3)
    return number(data)


def one_at_work(loader: Loader, batches: Iterator[Any]) -> Any:
    """A worker process of whom a batch is asked: it is the next one that is asked, too.

    One that is free may be left idle, where the loop is no faster by it.
    """
    for _ in batches:
        pool = loader._source._pool
        at_work = [one for one in pool._all if one not in pool._free.queue]
        if at_work:
            return at_work[0].process
    raise AssertionError("an epoch without a batch that a worker makes")


def test_a_worker_that_is_killed_is_named_at_once(folder: Path) -> None:
    with by_processes(folder, 4, transform=unhurried) as loader:
        for _ in range(5):
            batches, begun = iter(loader), time.monotonic()
            victim = one_at_work(loader, batches)
            os.kill(victim.pid, signal.SIGKILL)
            with pytest.raises(Error, match=rf"pid {victim.pid}.* was killed by SIGKILL"):
                for _ in batches:
                    pass
            assert time.monotonic() - begun < 5
        assert sum(len(batch) for batch in loader) == COUNT  # others take its place


def test_a_worker_that_is_stopped_is_named_soon(folder: Path) -> None:
    with by_processes(folder, 4, transform=number) as loader:
        batches, begun = iter(loader), time.monotonic()
        next(batches)
        for worker in loader._source._pool._all:  # type: ignore[union-attr]
            os.kill(worker.process.pid, signal.SIGSTOP)
        with pytest.raises(Error, match=r"worker process \d .* was stopped"):
            for _ in batches:
                pass
        assert time.monotonic() - begun < 5
        assert sum(len(batch) for batch in loader) == COUNT


def test_a_transform_that_ends_its_process_is_named(folder: Path) -> None:
    def ending(data: Any) -> int:
        if number(data) == 77 and multiprocessing.parent_process() is not None:
            os._exit(3)
        return number(data)

    with by_processes(folder, 4, transform=ending) as loader:
        error = proven(loader)[-1]
    assert isinstance(error, Error) and "has ended with exit status 3" in str(error)


def beginning(worker: int) -> None:
    global began_with
    info = torch.utils.data.get_worker_info()
    assert info is not None and (info.id, info.num_workers) == (worker, 2)
    began_with = worker


began_with = -1


def number_and_worker(data: Any) -> tuple[int, int]:
    return number(data), began_with


def test_each_worker_is_told_its_number_when_it_begins(folder: Path) -> None:
    words: dict[str, Any] = {"transform": number_and_worker, "worker_init_fn": beginning}
    with by_processes(folder, 4, **words) as loader:
        assert loader.worker_init_fn is beginning
        batches = [batch for _ in range(2) for batch in loader]
    assert sorted(torch.cat([numbers for numbers, _ in batches]).tolist()) == sorted(
        [*range(COUNT), *range(COUNT)]
    )
    assert {int(one) for _, workers in batches for one in workers} <= {0, 1}


def failing(worker: int) -> None:
    raise KeyError(f"no device {worker}")


def leaving(worker: int) -> None:
    raise SystemExit(3)


def dying(worker: int) -> None:
    os._exit(4)


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        (failing, "worker_init_fn raised KeyError: 'no device"),
        (leaving, "worker_init_fn raised SystemExit: 3"),
        (dying, "has ended with exit status 4"),
    ],
)
def test_a_worker_that_cannot_begin_says_why(folder: Path, begin: Any, why: str) -> None:
    with by_processes(folder, 4, transform=number, worker_init_fn=begin) as loader:
        for _ in range(2):
            with pytest.raises(Error, match=why) as caught:
                list(loader)
    if begin is failing:
        assert isinstance(caught.value.__cause__, KeyError)
        assert "raised in worker process" in str(caught.value.__cause__.__notes__)


def late(worker: int) -> None:
    time.sleep(0.5)
    beginning(worker)


def test_workers_that_begin_late_are_waited_for_and_nobody_else_makes_their_batches(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmdbio.torch.workers.INLINE_SECONDS", 10.0)  # the loop would make all
    monkeypatch.setattr("lmdbio.torch.processes.TRIAL_SECONDS", 0.1)
    words: dict[str, Any] = {"transform": number_and_worker, "worker_init_fn": late}
    for bounds in ({"processes": 2}, {"processes": 2, "threads": 3}):
        with Loader(folder, 4, **words, **bounds, **HOW) as loader:
            workers = [int(one) for _ in range(2) for _, some in loader for one in some]
        assert len(workers) == 2 * COUNT and set(workers) <= {0, 1}


@pytest.mark.parametrize(
    "words",
    [{"processes": 0}, {"threads": 2}, {"transform": None}, {"decode": len, "transform": None}],
)
def test_a_function_that_begins_no_process_is_refused(folder: Path, words: Any) -> None:
    with pytest.raises(ValueError, match="worker_init_fn= begins worker processes"):
        Loader(folder, 4, **{"transform": number, "worker_init_fn": failing, **words})


def test_where_no_worker_can_begin_nobody_else_makes_the_batches(folder: Path) -> None:
    with by_processes(folder, 4, transform=number, worker_init_fn=failing) as loader:
        loader._source._pool.refuse("there is no memory")  # type: ignore[union-attr]
        with pytest.raises(Error, match="needs worker processes: there is no memory"):
            list(loader)


def test_a_job_that_only_a_thread_can_do_is_done_there(folder: Path) -> None:
    def unsendable(data: Any) -> Any:
        return threading.Lock(), number(data)

    with by_processes(folder, transform=unsendable, collate_fn=list) as loader:
        found = sorted(one for batch in loader for _, one in batch)
        assert found == list(range(COUNT))
        assert "cannot pickle" in loader.workers.text


@pytest.mark.parametrize("is_stopped", [False, True])
def test_closing_does_not_wait_for_a_worker_that_hangs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    monkeypatch.setattr("lmdbio.torch.threads.CLOSE_SECONDS", 0.5)

    def hanging(data: Any) -> int:
        if number(data) % 50 == 7:
            if is_stopped:
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1000)
        return number(data)

    loader = by_processes(folder, 4, shuffle=False, transform=hanging)
    batches = iter(loader)
    next(batches)
    begun = time.monotonic()
    loader.close()
    assert time.monotonic() - begun < 5


def test_an_iteration_that_is_left_frees_its_workers(folder: Path) -> None:
    def slow(data: Any) -> int:
        time.sleep(0.002)
        return number(data)

    with by_processes(folder, 4, transform=slow) as loader:
        for _ in range(10):
            next(iter(loader))
        assert sum(len(batch) for batch in loader) == COUNT


# --- the program ends --------------------------------------------------------------------

PROGRAM = """
import os, sys, time
from lmdbio.torch import Loader

def transform(data):
    time.sleep(0.001)
    return int(bytes(data[:6]))

if __name__ == "__main__":
    {before}
    loader = Loader(sys.argv[1], 4, transform=transform, threads=0, processes=2, shuffle=True)
    for epoch in range(1000):
        for step, batch in enumerate(loader):
            if (epoch, step) == (0, 5):
                print(*(one.process.pid for one in loader._source._pool._all), flush=True)
            {within}
"""


def begun(folder: Path, tmp_path: Path, before: str = "", within: str = "pass") -> Any:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(before=before or "pass", within=within))
    return subprocess.Popen(
        [sys.executable, str(path), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def are_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.more
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_program(folder: Path, tmp_path: Path, by: signal.Signals) -> None:
    with begun(folder, tmp_path) as program:
        pids = list(map(int, program.stdout.readline().split()))
        assert len(pids) == 2
        if by == signal.SIGINT:
            os.killpg(program.pid, by)  # as a terminal does
        else:
            program.send_signal(by)
        _, errors = program.communicate(timeout=ENDS_SECONDS)
    assert are_gone(pids)
    assert errors.count("Traceback") == (by == signal.SIGINT)


@pytest.mark.more
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start_processes_do_as_well(
    folder: Path, tmp_path: Path, method: str
) -> None:
    before = f"import multiprocessing; multiprocessing.set_start_method({method!r})"
    within = "if epoch == 1: print(sorted(loader.state_dict()), loader.workers.text); sys.exit()"
    with begun(folder, tmp_path, before, within) as program:
        said, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    pids, text = said.splitlines()
    assert "process" in text and "cannot" not in text
    assert are_gone(list(map(int, pids.split())))


def test_where_no_children_may_be_threads_do_the_work(folder: Path) -> None:
    def inside(queue: Any) -> None:
        with by_processes(folder, transform=number) as loader:
            queue.put((sum(len(batch) for batch in loader), loader.workers.text))

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=inside, args=(queue,), daemon=True)
    child.start()
    found, text = queue.get()
    child.join()
    queue.close()
    assert found == COUNT and "daemonic processes are not allowed to have children" in text


def test_a_rank_of_mpi_has_no_processes_but_those_it_asks_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", sys)
    for asked, expected in ((None, 0), (3, 3)):
        with Loader(folder, 4, transform=number, processes=asked) as loader:
            counts = loader._source._workers._counts  # type: ignore[union-attr]
            assert max(counts["processes"], default=0) == expected


# --- beside the rest of a program --------------------------------------------------------


def test_a_child_that_the_program_forks_keeps_the_batches_that_it_has(folder: Path) -> None:
    with by_processes(folder, 8, transform=drawing) as loader:
        batches = iter(loader)
        held = next(batches)
        expected = held[4].clone()
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:  # it looks when the parent has gone on
            os.read(reads, 1)
            os._exit(0 if held[4].equal(expected) else 1)
        del held
        assert sum(1 for _ in batches) > 20
        os.write(writes, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        os.close(reads)
        os.close(writes)


def test_a_child_that_ends_leaves_the_workers_alone(folder: Path) -> None:
    with by_processes(folder, 8, transform=number) as loader:
        batches = iter(loader)
        next(batches)
        pid = os.fork()
        if pid == 0:
            left = len(multiprocessing.active_children())
            os._exit(left)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert sum(len(batch) for batch in batches) == COUNT - 8


def test_an_error_of_a_pipe_is_the_transforms(folder: Path) -> None:
    def truncated(data: Any) -> int:
        if number(data) == 77:
            raise EOFError("ran out of input")
        return number(data)

    with by_processes(folder, 4, transform=truncated) as loader:
        error = proven(loader)[-1]
        assert type(error) is EOFError and "sample 77" in "\n".join(error.__notes__)
        assert sum(1 for _ in zip(loader, range(3), strict=False)) == 3


def test_a_later_batch_that_cannot_be_sent_is_made_here(folder: Path) -> None:
    def late(data: Any) -> Any:
        return (lambda: 1) if number(data) == 77 else number(data)

    with by_processes(folder, 4, transform=late, collate_fn=list) as loader:
        assert sum(len(batch) for batch in loader) == COUNT
        assert "a batch cannot be sent" in loader.workers.text


def test_a_lock_that_was_held_at_the_fork_ends_the_processes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmdbio.torch.processes.TRIAL_SECONDS", 0.5)
    lock = threading.Lock()
    forked = threading.Event()
    real = multiprocessing.Process.start

    def locked(process: Any) -> None:
        with lock:
            real(process)
        forked.set()

    monkeypatch.setattr(multiprocessing.get_context().Process, "start", locked)

    def waiting(data: Any) -> int:
        with lock:
            return number(data)

    with by_processes(folder, 16, transform=waiting) as loader:
        assert sum(len(batch) for batch in loader) == COUNT
        assert forked.is_set() and "may wait for a lock" in loader.workers.text


def test_many_batches_may_be_kept_by_few_descriptors(folder: Path) -> None:
    with by_processes(folder, 4, transform=drawing) as loader:
        files = open_files()
        kept = [batch for _ in range(3) for batch in loader]
        assert open_files() <= files + 60
        assert len(kept) == 3 * COUNT // 4


@pytest.mark.parametrize("bound", [-1, 1025, "2", 1.5])
@pytest.mark.parametrize("name", ["threads", "processes"])
def test_a_bound_that_makes_no_sense_is_refused(folder: Path, name: str, bound: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        Loader(folder, 4, **{name: bound})


def test_a_bound_may_be_any_integer(folder: Path) -> None:
    with Loader(folder, 4, transform=number, threads=np.int64(2), processes=np.int8(0)) as loader:
        assert sum(len(batch) for batch in loader) == COUNT
