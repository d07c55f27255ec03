"""Threads that run jobs ahead of a caller. Goal: whoever runs a job, results come in order, each
once, errors in their turn; a caller that comes again at once runs brief jobs, and only those.
Method: jobs that tell which thread ran them, that take time of a clock of the test's own, that
raise, also Ctrl-C.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from lmdbio.errors import Error
from lmdbio.torch import prefetch as prefetching, threads as running, workers as choosing
from lmdbio.torch.prefetch import Ended, Prefetcher
from lmdbio.torch.threads import (
    SWITCH_SECONDS,
    SWITCH_SECONDS_SHORT,
    WAITED_SECONDS,
    Task,
    WorkerThreads,
)
from lmdbio.torch.workers import INLINE_SECONDS, LOOP, Workers

MANY = 300
#: Files before whose every bytecode Ctrl-C strikes.
STRUCK = {module.__file__ for module in (prefetching, running, choosing)}


class Clock:
    """A time of its own for each thread, which stands still but for ``sleep``."""

    def __init__(self) -> None:
        self._own = threading.local()

    def now(self) -> float:
        return getattr(self._own, "seconds", 0.0)

    def sleep(self, seconds: float) -> None:
        self._own.seconds = self.now() + seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("lmdbio.torch.threads.monotonic", made.now)
    monkeypatch.setattr("lmdbio.torch.threads.thread_time", made.now)
    monkeypatch.setattr("lmdbio.torch.prefetch.monotonic", made.now)
    return made


@pytest.fixture
def threads(clock: Clock):
    with_two = WorkerThreads(2)
    yield with_two
    with_two.close()


def who(number: int) -> tuple[int, bool]:
    """The number, and whether the caller's thread ran this."""
    return number, threading.current_thread() is threading.main_thread()


def begun(threads: WorkerThreads, job: Callable[[], Any]) -> Task:
    """A task that a thread runs."""
    task = Task(job)
    threads.begin(task)
    return task


def ahead_of(
    threads: WorkerThreads,
    job: Callable[[int], Any] = who,
    count: int = MANY,
    *,
    inline: bool = True,
) -> Prefetcher:
    return Prefetcher(threads, job, count, 2, workers=Workers(threads.threads, may_loop=inline))


def taking(sleep: Callable[[float], None], seconds: float) -> Callable[[int], tuple[int, bool]]:
    """A job that takes so many seconds of the clock."""

    def job(number: int) -> tuple[int, bool]:
        sleep(seconds)
        return who(number)

    return job


def results(
    ahead: Prefetcher, sleep: Callable[[float], None] = lambda _: None, away: float = 0.0
) -> list[tuple[int, bool]]:
    """All that are left, for a caller that is away between two of them."""
    found = []
    while True:
        try:
            found.append(ahead.next())
        except Ended:
            return found
        sleep(away)


def test_a_caller_that_comes_at_once_runs_brief_jobs(threads: WorkerThreads) -> None:
    found = results(ahead_of(threads))
    assert [number for number, _ in found] == list(range(MANY))
    assert not any(inline for _, inline in found[:8])
    assert all(inline for _, inline in found[50:])


def test_who_does_not_ask_for_that_has_threads(threads: WorkerThreads) -> None:
    found = results(ahead_of(threads, inline=False))
    assert found == [(number, False) for number in range(MANY)]


def test_a_caller_with_work_of_its_own_has_threads(clock: Clock, threads: WorkerThreads) -> None:
    ahead = ahead_of(threads)
    found = results(ahead, clock.sleep, 5 * INLINE_SECONDS)
    assert found == [(number, False) for number in range(MANY)]


def test_long_jobs_stay_on_threads(clock: Clock, threads: WorkerThreads) -> None:
    found = results(ahead_of(threads, taking(clock.sleep, 1.5 * INLINE_SECONDS)))
    assert found == [(number, False) for number in range(MANY)]


def test_jobs_that_wait_stay_on_threads(
    clock: Clock, threads: WorkerThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmdbio.torch.threads.thread_time", lambda: 0.0)  # no processor needed
    found = results(ahead_of(threads, taking(clock.sleep, 2 * WAITED_SECONDS)))
    assert found == [(number, False) for number in range(MANY)]


def test_jobs_that_become_long_go_back_to_threads(clock: Clock, threads: WorkerThreads) -> None:
    long = taking(clock.sleep, 20 * INLINE_SECONDS)
    found = results(ahead_of(threads, lambda n: who(n) if n < MANY else long(n), MANY + 20))
    assert [number for number, _ in found] == list(range(MANY + 20))
    assert found[MANY] == (MANY, True)
    assert not any(inline for _, inline in found[MANY + 1 :])


def test_what_a_job_raises_comes_in_its_turn(threads: WorkerThreads) -> None:
    def fails(number: int) -> int:
        if number % 10 == 9:
            raise ValueError(f"job {number}")
        return number

    ahead = ahead_of(threads, fails)
    for number in range(MANY):
        if number % 10 == 9:
            with pytest.raises(ValueError, match=f"job {number}$"):
                ahead.next()
        else:
            assert ahead.next() == number
    with pytest.raises(Ended):
        ahead.next()


def test_a_job_that_ctrl_c_ended_runs_again(threads: WorkerThreads) -> None:
    strikes = iter((True,))

    def struck(number: int) -> tuple[int, bool]:
        if number == MANY - 1 and next(strikes, False):
            raise KeyboardInterrupt
        return who(number)

    ahead = ahead_of(threads, struck)
    for number in range(MANY - 1):
        assert ahead.next()[0] == number
    with pytest.raises(KeyboardInterrupt):
        ahead.next()
    assert ahead.next() == (MANY - 1, True)
    with pytest.raises(Ended):
        ahead.next()


def test_after_cancel_nothing_runs(threads: WorkerThreads) -> None:
    ahead = ahead_of(threads)
    for _ in range(100):
        ahead.next()
    ahead.cancel()
    with pytest.raises(Ended):
        ahead.next()


def test_what_closing_calls_off_was_not_handed_out() -> None:
    threads, goes_on = WorkerThreads(1), threading.Event()
    begun(threads, goes_on.wait)  # the only thread has no time for the others
    ahead = ahead_of(threads, inline=False)

    def close() -> None:
        while not ahead._begun:
            time.sleep(0.001)
        threads.close()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        with pytest.raises(Error, match="closed"):
            ahead.next()
        assert ahead.handed_out == 0
    finally:
        goes_on.set()
        closing.join()


def struck_at(step: int, call: Callable[[], Any]) -> bool:
    """Call it; Ctrl-C comes before a step that the prefetcher or its threads take in there.

    Returns: whether it has come; False: there are fewer steps.
    """
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in STRUCK:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("inline", [False, True])
def test_ctrl_c_before_any_step_loses_nothing(inline: bool) -> None:
    step = 0
    was_struck = True
    while was_struck:
        ran: list[int] = []

        def job(number: int, ran: list[int] = ran) -> int:
            ran.append(number)
            return number

        threads = WorkerThreads(2)
        try:
            ahead = ahead_of(threads, job, 12, inline=inline)
            if inline:
                assert ahead._workers is not None
                ahead._workers.setting, ahead._workers._saved = LOOP, 0.0
            was_struck = struck_at(step, ahead.next)
            first = ahead.handed_out  # 1: Ctrl-C came after the result had been handed out
            assert first <= 1
            assert [ahead.next() for _ in range(first, 12)] == list(range(first, 12))
            with pytest.raises(Ended):
                ahead.next()
        finally:
            threads.close()
        assert sorted(ran) == list(range(12)) or (inline and sorted(set(ran)) == list(range(12)))
        step += 1
    assert step > 100


def test_a_job_is_left_behind_though_other_threads_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lmdbio.torch.threads.CLOSE_SECONDS", 0.2)
    for_ever, all_threads = threading.Event(), []
    for _ in range(5):
        threads, together = WorkerThreads(3), threading.Barrier(3)
        for task in [begun(threads, together.wait) for _ in range(3)]:
            task.result()  # each thread has had one
        threads.resize(1)
        hanging, at_first = begun(threads, for_ever.wait), time.monotonic()
        while not any(threads._running.values()):
            time.sleep(0.001)
        threads.close()
        all_threads += threads._all
        with pytest.raises(Error, match="closed"):
            hanging.result()
        assert time.monotonic() - at_first < 5
    for_ever.set()
    for thread in all_threads:  # which would end in the next test
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def own_switches(monkeypatch: pytest.MonkeyPatch):
    """Threads that other tests have left behind do not count."""
    before = sys.getswitchinterval()
    monkeypatch.setattr(running, "_short_switches", running._ShortSwitches())
    sys.setswitchinterval(SWITCH_SECONDS)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("own_switches")
def test_threads_hand_on_pythons_lock_sooner_while_there_are_some() -> None:
    first, second = WorkerThreads(2), WorkerThreads(1)
    for threads in (first, second):
        begun(threads, lambda: None).result()
    assert sys.getswitchinterval() == SWITCH_SECONDS_SHORT
    first.close()
    assert sys.getswitchinterval() == SWITCH_SECONDS_SHORT
    second.close()
    assert sys.getswitchinterval() == SWITCH_SECONDS


@pytest.mark.usefixtures("own_switches")
def test_a_switch_interval_of_the_program_stays() -> None:
    sys.setswitchinterval(2e-3)
    threads = WorkerThreads(1)
    begun(threads, lambda: None).result()
    assert sys.getswitchinterval() == 2e-3
    sys.setswitchinterval(4e-3)
    threads.close()
    assert sys.getswitchinterval() == 4e-3
