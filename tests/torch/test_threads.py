"""Threads that run jobs ahead of a caller. Goal: whoever runs a job, results come in order, each
once, errors in their turn; a caller that comes again at once runs brief jobs, and only those.
Method: jobs that tell which thread ran them, that take time of a clock of the test's own, that
raise, also Ctrl-C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

import pytest

from lmdbio.torch.threads import (
    INLINE_SECONDS,
    WAITED_SECONDS,
    Ended,
    Prefetcher,
    WorkerThreads,
)

MANY = 300


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
    return made


@pytest.fixture
def threads(clock: Clock):
    with_two = WorkerThreads(2)
    yield with_two
    with_two.close()


def who(number: int) -> tuple[int, bool]:
    """The number, and whether the caller's thread ran this."""
    return number, threading.current_thread() is threading.main_thread()


def jobs(
    count: int, sleep: Callable[[float], None] = lambda _: None, seconds: float = 0.0
) -> Iterator[Callable[[], tuple[int, bool]]]:
    """Jobs that each take so many seconds of the clock."""

    def job(number: int) -> tuple[int, bool]:
        sleep(seconds)
        return who(number)

    return (partial(job, number) for number in range(count))


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
    found = results(Prefetcher(threads, jobs(MANY), 2, inline=True))
    assert [number for number, _ in found] == list(range(MANY))
    assert not any(inline for _, inline in found[:8])
    assert all(inline for _, inline in found[50:])


def test_who_does_not_ask_for_that_has_threads(threads: WorkerThreads) -> None:
    found = results(Prefetcher(threads, jobs(MANY), 2))
    assert found == [(number, False) for number in range(MANY)]


def test_a_caller_with_work_of_its_own_has_threads(clock: Clock, threads: WorkerThreads) -> None:
    ahead = Prefetcher(threads, jobs(MANY), 2, inline=True)
    found = results(ahead, clock.sleep, 5 * INLINE_SECONDS)
    assert found == [(number, False) for number in range(MANY)]


def test_long_jobs_stay_on_threads(clock: Clock, threads: WorkerThreads) -> None:
    long = jobs(MANY, clock.sleep, 1.5 * INLINE_SECONDS)
    found = results(Prefetcher(threads, long, 2, inline=True))
    assert found == [(number, False) for number in range(MANY)]


def test_jobs_that_wait_stay_on_threads(
    clock: Clock, threads: WorkerThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmdbio.torch.threads.thread_time", lambda: 0.0)  # no processor needed
    waiting = jobs(MANY, clock.sleep, 2 * WAITED_SECONDS)
    found = results(Prefetcher(threads, waiting, 2, inline=True))
    assert found == [(number, False) for number in range(MANY)]


def test_jobs_that_become_long_go_back_to_threads(clock: Clock, threads: WorkerThreads) -> None:
    both = chain(jobs(MANY), jobs(20, clock.sleep, 20 * INLINE_SECONDS))
    found = results(Prefetcher(threads, both, 2, inline=True))
    assert [number for number, _ in found] == [*range(MANY), *range(20)]
    assert found[MANY] == (0, True)
    assert not any(inline for _, inline in found[MANY + 1 :])


def test_what_a_job_raises_comes_in_its_turn(threads: WorkerThreads) -> None:
    def fails(number: int) -> int:
        if number % 10 == 9:
            raise ValueError(f"job {number}")
        return number

    ahead = Prefetcher(threads, map(partial(partial, fails), range(MANY)), 2, inline=True)
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

    ahead = Prefetcher(threads, map(partial(partial, struck), range(MANY)), 2, inline=True)
    for number in range(MANY - 1):
        assert ahead.next()[0] == number
    with pytest.raises(KeyboardInterrupt):
        ahead.next()
    assert ahead.next() == (MANY - 1, True)
    with pytest.raises(Ended):
        ahead.next()


def test_after_cancel_nothing_runs(threads: WorkerThreads) -> None:
    ahead = Prefetcher(threads, jobs(MANY), 2, inline=True)
    for _ in range(100):
        ahead.next()
    ahead.cancel()
    with pytest.raises(Ended):
        ahead.next()
