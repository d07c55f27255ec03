"""Transforms: their draws, their errors, and how soon their threads end.

Goal: a sample is augmented alike in each run, by whatever thread, worker or rank, and nothing
outside of transforms is changed by that; an exception names the record; broken samples can be
left out, exactly; a closed loader ends after the sample under way.

Method: transforms that draw from every module's own functions; each way of loading is compared
with one thread; transforms that raise, sleep or wait for one another.
"""

from __future__ import annotations

import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import lmdbio
from lmdbio.torch import (
    BatchSampler,
    Dataset,
    IterableDataset,
    Loader,
    ReaderLoader,
    SampleInfo,
    sample_info,
)
from tests.support import databases

COUNT = 60
HOW: dict[str, Any] = {"shuffle": True, "seed": 5}
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def number(data: Any) -> int:
    return int(bytes(data[:6]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("samples") / "db"
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, b"%06d" % i * 9) for i in range(COUNT)])
    return path


# --- draws -------------------------------------------------------------------------------


def drawing(data: bytes) -> tuple[Any, ...]:
    time.sleep(number(data) % 3 * 1e-4)  # threads take turns
    info = sample_info()
    assert info is not None and info.index == number(data)
    return (
        number(data),
        random.random(),
        random.randint(0, 10**9),
        float(np.random.rand()),
        int(np.random.permutation(1000)[0]),
        float(torch.rand(())),
        int(torch.randint(0, 10**9, ())),
        int(torch.randperm(1000)[0]),
        float(torch.empty(()).uniform_()),
        float(torch.zeros(()).normal_()),
        float(torch.bernoulli(torch.full((), 0.5))),
        float(torch.distributions.Beta(2.0, 3.0).sample()),
        float(np.random.sample()),
        float(info.numpy.random()),
        info.random.random(),
        float(torch.rand((), generator=info.torch)),
    )


def drawn(batches: Any) -> dict[int, tuple[Any, ...]]:
    """Each sample of an epoch, with its draws."""
    return {sample[0]: tuple(sample) for batch in batches for sample in batch}


def test_draws_are_those_of_seed_epoch_and_index_in_every_way_of_loading(folder: Path) -> None:
    first = Loader(folder, 7, transform=drawing, collate_fn=list, threads=1, **HOW)
    epochs = [drawn(first), drawn(first)]
    assert set(epochs[0]) == set(range(COUNT))
    assert all(epochs[0][i][1:] != epochs[1][i][1:] for i in range(COUNT))
    assert len({values[1:] for values in epochs[0].values()}) == COUNT
    data = Dataset(folder, drawing)
    for loader in (
        Loader(folder, 16, transform=drawing, collate_fn=list, threads=4, **HOW),
        *(
            DataLoader(
                data,
                batch_sampler=BatchSampler(data, 9, **HOW),
                collate_fn=list,
                num_workers=workers,
            )
            for workers in (0, 2)
        ),
        *(
            DataLoader(
                IterableDataset(folder, 8, transform=drawing, collate_fn=list, **HOW),
                batch_size=None,
                num_workers=workers,
            )
            for workers in (0, 2)
        ),
    ):
        assert [drawn(loader), drawn(loader)] == epochs
    ranks = [
        Loader(folder, 5, transform=drawing, collate_fn=list, rank=rank, ranks=3, **HOW)
        for rank in range(3)
    ]
    assert {i: one for loader in ranks for i, one in drawn(loader).items()} == epochs[0]


def test_a_reader_s_samples_draw_alike_whatever_the_threads(folder: Path) -> None:
    every = []
    for threads in (1, 3):
        with lmdbio.Reader(folder, 20, shuffle=True, seed=5, epochs=2) as reader:
            loader = ReaderLoader(reader, transform=drawing, collate_fn=list, threads=threads)
            every.append([sample for batch in loader for sample in batch])
    assert every[0] == every[1] and len(every[0]) == 2 * COUNT


def test_a_batch_that_is_put_together_draws_for_itself(folder: Path) -> None:
    def mixed(samples: list[int]) -> Any:
        info = sample_info()
        assert info is not None and info.index is None
        return samples[0], float(torch.rand(())), random.random()

    every = [
        list(Loader(folder, 10, transform=number, collate_fn=mixed, threads=n, **HOW))
        for n in (1, 4)
    ]
    assert every[0] == every[1] and len({batch[1:] for batch in every[0]}) == len(every[0])


def test_generators_of_the_program_are_left_alone(folder: Path) -> None:
    def state() -> tuple[Any, ...]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    def seeded() -> None:
        random.seed(3), np.random.seed(3), torch.manual_seed(3)

    seeded()
    wanted = state()
    seeded()
    for threads in (1, 3):  # by the loop's own thread, and by others
        drawn(Loader(folder, 7, transform=drawing, collate_fn=list, threads=threads))
    assert state() == wanted
    assert pickle.loads(pickle.dumps(random.random))() < 1
    assert sample_info() is None


def test_what_a_transform_seeds_no_other_thread_takes_away(folder: Path) -> None:
    """As those do that cut an image and its mask alike."""

    def twice(data: bytes) -> bool:
        pairs = []
        for _ in range(2):
            torch.manual_seed(np.int64(number(data)))
            random.seed(number(data))
            np.random.seed(number(data))
            values = [float(torch.rand(())), random.random(), float(np.random.rand())]
            time.sleep(1e-4)
            pairs.append((values, float(torch.rand(())), random.random(), np.random.rand()))
        return pairs[0] == pairs[1]

    loader = Loader(folder, 10, transform=twice, collate_fn=list, threads=4)
    assert all(same for batch in loader for same in batch)


def test_a_transform_that_begins_to_draw_late_is_met(folder: Path) -> None:
    def late(data: bytes) -> float:
        return random.random() + float(torch.rand(())) if is_late else 0.0

    every = []
    for threads in (1, 4):
        loader = Loader(folder, 10, transform=late, collate_fn=list, threads=threads)
        is_late = False
        for _ in range(6):  # more samples than are watched
            list(loader)
        is_late = True
        list(loader)
        every.append(list(loader))
    assert every[0] == every[1]


def test_a_transform_that_draws_from_an_epoch_on_is_met(folder: Path) -> None:
    def scheduled(data: bytes) -> float:
        info = sample_info()
        assert isinstance(info, SampleInfo)
        return float(torch.rand(())) if info.epoch >= 9 else 0.0

    every = []
    for threads in (1, 4):
        loader = Loader(folder, 10, transform=scheduled, collate_fn=list, threads=threads)
        every.append([list(loader) for _ in range(10)][9])
    assert every[0] == every[1] and every[0][0][0] > 0


# --- errors ------------------------------------------------------------------------------


def broken(data: Any) -> int:
    if number(data) in (17, 18, 44):
        raise ValueError("cannot decode")
    return number(data)


def notes(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_names_index_key_and_file(folder: Path, workers: int) -> None:
    data = Dataset(folder, broken)
    for loader in (
        Loader(folder, 8, transform=broken),
        DataLoader(data, 8, num_workers=workers),
        DataLoader(data, batch_size=None, num_workers=workers),
        DataLoader(
            IterableDataset(folder, 8, transform=broken), batch_size=None, num_workers=workers
        ),
    ):
        with pytest.raises(ValueError, match="cannot decode") as caught:
            list(loader)
        said = notes(caught.value)
        assert f"sample 17, key 00000017, file {folder}/data.mdb" in said, said
    with lmdbio.Reader(folder, 8, iterations=9) as reader:
        with pytest.raises(ValueError) as caught:
            list(ReaderLoader(reader, transform=broken))
        assert f"sample 17, file {folder}/data.mdb" in notes(caught.value)


def test_an_exception_of_a_view_a_mix_or_several_files_names_the_record(
    folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with databases.open_writable(other, 1) as env:
        databases.write(env, [(b"\x00\x1b[31m", b"000017"), (b"b", b"000001")])
    both = lmdbio.Records([folder, other])
    for source, wanted in (
        (both.subset([COUNT]), f"sample 0, key 0x001b5b33316d, file {other}/data.mdb"),
        (both, "sample 17, key 00000017"),
        (lmdbio.Mix({"a": lmdbio.Records(folder), "b": lmdbio.Records(other)}), "of set '"),
    ):
        with pytest.raises(ValueError) as caught:
            list(Loader(source, 100, transform=broken))
        assert wanted in notes(caught.value)


def test_an_exception_of_collate_names_the_batch(folder: Path) -> None:
    def failing(samples: list[int]) -> None:
        raise KeyError("no such thing")

    for loader in (
        Loader(folder, 8, collate_fn=failing),
        Loader(folder, 8, transform=number, collate_fn=failing),
        IterableDataset(folder, 8, transform=number, collate_fn=failing),
    ):
        with pytest.raises(KeyError) as caught:
            list(loader)
        assert "a batch of 8 samples: sample 0, key 00000000" in notes(caught.value)
        assert "and 5 more" in notes(caught.value)


@pytest.mark.parametrize("errors", ["skip", lambda error: "decode" in str(error)])
def test_broken_samples_are_left_out_exactly(folder: Path, errors: Any) -> None:
    good = [i for i in range(COUNT) if i not in (17, 18, 44)]
    how: dict[str, Any] = {"transform": broken, "errors": errors, "collate_fn": list}
    loader = Loader(folder, 8, threads=3, **how)
    batches = list(loader)
    assert [one for batch in batches for one in batch] == good
    assert list(map(len, batches)) == [8, 8, 6, 8, 8, 7, 8, 4]
    assert loader.stats().skipped_records == 3
    begun = iter(loader)
    seen = [one for _ in range(3) for one in next(begun)]
    again = Loader(folder, 5, **how)
    again.load_state_dict(loader.state_dict())
    assert loader.state_dict()["used"] == 24
    assert seen + [one for batch in again for one in batch] == good
    data = Dataset(folder, broken, errors=errors)
    assert [i for batch in DataLoader(data, 8) for i in batch.tolist()] == good
    assert data.stats().skipped_records == 3
    iterable = IterableDataset(folder, 8, **how)
    assert [one for batch in iterable for one in batch] == good
    with lmdbio.Reader(folder, 20, iterations=3) as reader:
        assert [i for b in ReaderLoader(reader, threads=3, **how) for i in b] == good


def test_samples_that_are_not_to_be_left_out_and_whole_batches_raise(folder: Path) -> None:
    with pytest.raises(ValueError, match="cannot decode"):
        list(Loader(folder, 8, transform=broken, errors=lambda error: False))
    for loader in (
        Loader(folder, 1, transform=broken, errors="skip"),
        DataLoader(Dataset(folder, broken, errors="skip"), 1),
    ):
        with pytest.raises(RuntimeError, match="all samples of the batch were left out"):
            list(loader)
    for wrong, kind in (("ignore", ValueError), (None, TypeError), (3, TypeError)):
        with pytest.raises(kind, match='"raise", "skip", or a function'):
            Loader(folder, errors=wrong)  # type: ignore[arg-type]


def test_what_cannot_be_read_is_never_left_out(folder: Path) -> None:
    data = Dataset(folder, number, errors="skip")
    data.close()
    with pytest.raises(lmdbio.Error, match="closed"):
        data.__getitems__([1, 2])


def test_a_key_that_cannot_be_read_moves_no_other(folder: Path) -> None:
    data = Dataset(folder, lambda key, value: (key, value), keys=True, errors="skip")
    read = data.records.key

    def failing(index: int) -> bytes:
        if index == 2:
            raise OSError("no key")
        return read(index)

    data.records.key = failing  # type: ignore[method-assign]
    assert data.__getitems__([0, 1]) == [(b"%08d" % i, b"%06d" % i * 9) for i in range(2)]
    with pytest.raises(OSError, match="no key"):
        data.__getitems__([0, 1, 2, 3])


def test_an_exception_that_takes_no_note_is_raised_as_it_is(folder: Path) -> None:
    class FrozenError(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError("frozen")

        add_note = None  # type: ignore[assignment]

    def failing(data: bytes) -> int:
        if number(data) == 5:
            raise FrozenError("as it is")
        return number(data)

    with pytest.raises(FrozenError, match="as it is"):
        list(Loader(folder, 10, transform=failing))
    skipping = Loader(folder, 10, transform=failing, errors="skip", collate_fn=list)
    assert 5 not in next(iter(skipping))


def test_a_sample_alone_is_not_left_out(folder: Path) -> None:
    with pytest.raises(ValueError, match="cannot decode") as caught:
        Dataset(folder, broken, errors="skip")[17 - COUNT]
    assert "sample 17, key 00000017" in notes(caught.value)


# --- endings -----------------------------------------------------------------------------


def test_closing_waits_for_samples_and_not_for_batches(folder: Path) -> None:
    made: list[int] = []

    def slow(data: bytes) -> int:
        time.sleep(0.1)
        made.append(number(data))
        return number(data)

    loader = Loader(folder, COUNT, transform=slow, threads=2)
    threading.Timer(0.35, loader.close).start()
    with pytest.raises(lmdbio.Error, match="closed"):
        next(iter(loader))
    assert 0 < len(made) < COUNT / 2


def test_a_transform_that_does_not_return_keeps_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lmdbio.torch.threads.CLOSE_SECONDS", 0.5)
    monkeypatch.setattr("lmdbio.system.log._logged", set())  # another test may have had this told
    begun, for_ever = threading.Event(), threading.Event()

    def never(data: bytes) -> None:
        begun.set()
        for_ever.wait()

    def close() -> None:
        begun.wait()  # a job that nobody has begun would be called off, and leave nothing
        loader.close()

    loader = Loader(folder, 10, transform=never, threads=2)
    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(lmdbio.Error, match="closed"):
        next(iter(loader))
    closing.join()
    for_ever.set()
    assert "left behind" in caplog.text


PROGRAM = """
import signal, sys, threading, time
from lmdbio.torch import Loader
def never(data):
    print("begun", flush=True)
    while True: time.sleep(3600)
def ended(*_): sys.exit(7)
signal.signal(signal.SIGTERM, ended)
loader = Loader(sys.argv[1], 10, transform=never, threads=1)
next(iter(loader))
"""


@pytest.mark.more
def test_a_program_ends_that_is_told_to_while_a_transform_does_not_return(folder: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None and program.stdout.readline() == "begun\n"
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (7, "")


@pytest.mark.parametrize("given", [0, 1])
def test_fewer_threads_than_asked_for_do_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: int
) -> None:
    """As under a container's limit of processes."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name == "lmdbio-loader":
            if len(started) >= given:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with Loader(folder, 8, transform=number, threads=16, shuffle=True) as loader:
        for _ in range(2):
            assert sorted(i for batch in loader for i in batch.tolist()) == list(range(COUNT))
    assert f"has {given} of 4 threads" in caplog.text


def test_a_transform_that_asks_its_own_loader_is_told(folder: Path) -> None:
    def asking(data: bytes) -> int:
        return len(next(iter(loader)))

    loader = Loader(folder, 8, transform=asking, threads=1)
    with pytest.raises(lmdbio.Error, match="would wait for itself"):
        next(iter(loader))
    loader.close()


# --- what they print ---------------------------------------------------------------------


def test_data_sets_and_loaders_print_what_they_are_of(folder: Path) -> None:
    records = repr(lmdbio.Records(folder))
    assert repr(Dataset(folder)) == f"<Dataset of {records}>"
    with Loader(folder, 8) as loader:
        assert repr(loader) == f"<Loader of 8 batches of 8 from <Dataset of {records}>>"
    assert repr(loader).startswith("<Loader of 8 batches of 8 from <Dataset of ")
    assert repr(Loader.__new__(Loader)) == "<Loader that was never open>"
