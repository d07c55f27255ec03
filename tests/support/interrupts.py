"""Ctrl-C at a moment of the test's choice, inside the test's work and nowhere else."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable


def interrupt(work: Callable[[], object], seconds: float) -> None:
    """Run `work`, and raise KeyboardInterrupt in it after `seconds`, where it still goes on.

    On a busy machine the signal comes late or the work ends early: a handler that raised then
    would end the test's process, so the handler raises only while `work` goes on.
    """
    goes_on = True

    def strike(*_: object) -> None:
        if goes_on:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            work()
            goes_on = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
