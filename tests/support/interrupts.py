"""Ctrl-C at moments of the test's choice, inside the test's work and nowhere else.

Python looks for signals after each call, and where a function or a round of a loop begins.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any


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


@functools.cache
def looks(code: Any) -> frozenset[int]:
    """Return the instructions before which Python looks for signals, by their offsets."""
    behind = ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME")
    all_of = list(dis.get_instructions(code))
    return frozenset(
        one.offset
        for last, one in itertools.pairwise(all_of)
        if last.opname in behind or last.opname.startswith("CALL_")
    )


def ctrl_c() -> None:
    """Raise as Ctrl-C does."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def after(number: int, act: Callable[[], object], files: tuple[str, ...]) -> Iterator[list[int]]:
    """Have ``act`` called after so many instructions; yield a list of how many there were.

    Those in ``files`` count, which are beginnings of paths. For ``ctrl_c`` those alone count
    before which Python looks for signals.
    """
    done = [0]

    def trace(frame: Any, event: str, _: object) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(files):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode" and (act is not ctrl_c or frame.f_lasti in looks(frame.f_code)):
            done[0] += 1
            if done[0] == number:
                act()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield done
    finally:
        sys.settrace(before)
