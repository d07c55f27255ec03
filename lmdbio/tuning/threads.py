"""Threads: how often some threads call a function each, all at once, for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter

__all__ = ["call_at_once"]


def call_at_once(
    functions: Sequence[Callable[[], object]], seconds: float
) -> list[tuple[int, float]]:
    """Call each function again and again by a thread of its own, all of them at once.

    Args:
        functions: functions, each of which is called once at least.
        seconds: time after which none is called any more.

    Returns:
        The number of calls of each function, and the time that they took.

    Raises:
        BaseException: a function has raised it.
    """
    begin = threading.Barrier(len(functions))
    counted, failures = [(0, 0.0)] * len(functions), list[BaseException]()

    def work(number: int) -> None:
        function, calls = functions[number], 0
        begin.wait()
        begun = perf_counter()
        try:
            while (spent := perf_counter() - begun) < seconds or not calls:
                function()
                calls += 1
            counted[number] = calls, spent
        except BaseException as error:
            failures.append(error)

    # Daemons, for which Python's end does not wait: one may never come back from its function, or
    # wait for another that could not be started.
    workers = [
        threading.Thread(target=work, args=(number,), daemon=True)
        for number in range(len(functions))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return counted
