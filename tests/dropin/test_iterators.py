"""Iterators whose loop runs in C (glue/items.h): interrupted, forked, shared, broken off.

Goal: an iterator hands out every record once and in order, and the cursor stands where it says,
whatever comes between. Method: signals at random moments, forks beside a thread that iterates,
threads that share an iterator over a file that is cut and made whole.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from operator import itemgetter
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio import _core
from tests.support import databases, long_run

COUNT = 4000
LENGTHS = (0, 100, 900, 3000, 33_000)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("iterators") / "env"
    env = databases.open_writable(folder, 1)
    records = ((key, bytes(LENGTHS[i % 5])) for i, key in enumerate(databases.keys(COUNT)))
    databases.write(env, records)
    env.close()
    return folder


KEYS = list(databases.keys(COUNT))


class Interrupt(BaseException):
    """As Ctrl-C."""


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", ["record", "advance"])
def test_an_interrupt_at_a_call_loses_and_repeats_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool, number: int
) -> None:
    """The nth call raises once: before it does anything, or after."""
    real = getattr(_core.Scan, name)
    left = number

    def interrupted(self: Any, *args: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            raise Interrupt
        found = real(self, *args, **named)
        if left == 0:
            raise Interrupt
        return found

    monkeypatch.setattr(_core.Scan, name, interrupted)
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        cursor = txn.cursor()
        iterator = cursor.iternext()
        seen: list[bytes] = []
        interrupts = 0
        while True:
            try:
                for key, _ in iterator:
                    seen.append(key)
                break
            except Interrupt:
                interrupts += 1
                assert cursor.key() == seen[-1]
    assert interrupts == 1
    assert seen == KEYS


@pytest.mark.parametrize("number", [2, 3])
def test_a_block_that_could_not_be_proved_comes_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The snapshot cannot be asked after the nth block, nor the cursor be put where it stood."""
    advance, settle, left, failing = _core.Scan.advance, _core.Scan.settle, number, False

    def advanced(self: Any) -> int:
        nonlocal left, failing
        left -= 1
        failing = left == 0
        return advance(self)

    def settled(self: Any, *args: Any, **named: Any) -> None:
        nonlocal failing
        if failing:
            failing = False
            raise OSError("not now")
        settle(self, *args, **named)

    monkeypatch.setattr(_core.Scan, "advance", advanced)
    monkeypatch.setattr(_core.Scan, "settle", settled)
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        verify = txn._verify

        def verified() -> None:
            if failing:
                raise OSError("not now")
            verify()

        monkeypatch.setattr(type(txn), "_verify", lambda self: verified())
        iterator = txn.cursor().iternext()
        seen: list[bytes] = []
        with pytest.raises(OSError, match="not now"):
            seen.extend(map(itemgetter(0), iterator))
        seen.extend(map(itemgetter(0), iterator))
    assert seen == KEYS


# One that strikes while Python lets go of an object is told as ignored, and lost.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signals_at_random_moments_repeat_nothing(path: Path) -> None:
    """Each may take one item on its way from the iterator to the loop, and no more."""
    armed = False
    strikes = since = 0  # in all; since the last item came

    def strike(*_: object) -> None:
        nonlocal armed, strikes, since
        if armed:
            armed = False
            strikes, since = strikes + 1, since + 1
            raise Interrupt

    jumps: list[tuple[int, int, int]] = []
    before = signal.signal(signal.SIGALRM, strike)
    end = time.monotonic() + long_run.cases(4, 1)  # seconds
    late = end + 3
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
        with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
            while time.monotonic() < (end if strikes > 50 else late):
                iterator, at, since = txn.cursor().iternext(), 0, 0
                while at < COUNT:
                    try:
                        armed = True
                        for key, _ in iterator:
                            place = int(key)
                            if not at <= place <= at + since:
                                jumps.append((at, place, since))
                            at = place + 1
                            since = 0
                        armed = False
                        if at + since < COUNT:
                            jumps.append((at, COUNT, since))
                        break
                    except Interrupt:
                        continue
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert strikes > 50
    assert not jumps, jumps[:5]


@pytest.mark.more
def test_a_child_forked_beside_a_thread_that_iterates_goes_on(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        box = [txn.cursor().iternext()]
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                for _ in box[0]:
                    if stop.is_set():
                        break
                box[0] = txn.cursor().iternext()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(40):
                time.sleep(0.005)
                child = os.fork()
                if child == 0:
                    signal.alarm(20)
                    item = next(box[0], None)
                    os._exit(0 if item is None or item[0] in KEYS else 1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            stop.set()
            thread.join()


@pytest.mark.more
@pytest.mark.parametrize("engine", ["auto", "pread", "mmap"])
def test_threads_share_an_iterator_over_a_file_that_is_cut_and_made_whole(
    tmp_path: Path, engine: str
) -> None:
    sizes = (40_000, 200, 300, 60_000, 34_000, 3000)
    folder = tmp_path / "env"
    env = databases.open_writable(folder, 1)
    expected = {b"%08d" % i: databases.value(i, sizes[i % 6]) for i in range(300)}
    databases.write(env, expected.items())
    env.sync(True)
    env.close()
    file = folder / "data.mdb"
    data = file.read_bytes()
    cut, end = len(data) // 2, time.monotonic() + 4
    wrong: list[Any] = []
    counts = [0, 0]

    def flip() -> None:
        while time.monotonic() < end:
            os.truncate(file, cut)
            time.sleep(0.06)  # longer than any look takes
            with file.open("r+b") as whole:
                whole.seek(cut)
                whole.write(data[cut:])
            time.sleep(0.002)

    with lmdbio.open(str(folder), readonly=True, lock=False, engine=engine) as env:
        txn = env.begin()
        box = [txn.cursor().iternext()]

        def work() -> None:
            while time.monotonic() < end:
                try:
                    key, value = next(box[0])
                except StopIteration:
                    box[0] = txn.cursor().iternext()
                except (lmdb.Error, OSError):
                    counts[1] += 1
                except BaseException as error:  # to be shown by the main thread
                    wrong.append(error)
                else:
                    counts[0] += 1
                    # Zeros are what a file shows that is being made whole again.
                    if value != expected[key] and value.strip(b"\0") and not value.count(0) > 4000:
                        wrong.append((key, len(value)))

        threads = [threading.Thread(target=work) for _ in range(3)]
        threads.append(threading.Thread(target=flip))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        txn.abort()
    assert not wrong, wrong[:3]
    assert all(counts)


def test_an_iterator_is_more_patient_after_each_run_that_was_broken_off(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        iterator = txn.cursor().iternext()
        patience = [iterator._scan_after]
        for _ in range(12):
            iterator.stop()
            patience.append(iterator._scan_after)
    assert patience[:4] == [0, 2, 4, 8] and patience[-1] == 1024
