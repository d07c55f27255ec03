"""signals: what asks a process to end, ends what it is at, now or later, and that cleans up."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Ended", "ended_by_signals", "ending_later", "leaving_at_once", "number_of"]


class Ended(KeyboardInterrupt):
    """A signal other than Ctrl-C asked for the end.

    Attributes:
        number: number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def number_of(interrupt: BaseException) -> int:
    """Return the number of the signal that has interrupted the program."""
    return getattr(interrupt, "number", signal.SIGINT)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end what is inside as Ctrl-C does; the first signal alone counts.

    The code inside cleans up meanwhile. Outside of the main thread it does nothing: there Python
    takes no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number: int, _frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)

    # A process that was started with a signal ignored (nohup) goes on ignoring it.
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process at once, in one line, where Python would raise.

    For while a command is imported: nothing is begun then, and an exception may be lost in what is
    imported. Outside of the main thread it does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    # A process that was started with the signal ignored goes on ignoring it.
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: object) -> None:
    os.write(2, b"lmdbio: interrupted\n")
    os._exit(128 + signal.SIGINT)


_Handler = Callable[[int, FrameType | None], Any]


def _handlers() -> dict[int, _Handler]:
    """Return the program's own handlers of signals, by number."""
    numbers = range(1, getattr(signal, "SIGRTMIN", signal.NSIG))
    # Module signal makes an enum of every answer: it takes 13 times as long.
    handlers = [(number, _signal.getsignal(number)) for number in numbers]
    return {number: handler for number, handler in handlers if callable(handler)}


@contextmanager
def ending_later(raised: list[BaseException]) -> Iterator[None]:
    """Append what handlers of signals raise to a list, so that nothing inside is cut short.

    Handlers run as ever. The caller raises the first of the list afterwards, or tells of it.
    Outside of the main thread, where Python takes no signals, nothing is appended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, owner = _handlers(), os.getpid()

    def run(number: int, frame: FrameType | None) -> None:
        try:
            before[number](number, frame)
        except BaseException as error:
            if os.getpid() != owner:  # it is over, or this is a child that was forked meanwhile
                raise
            raised.append(error)

    try:
        for number in before:
            signal.signal(number, run)
        yield
    finally:
        while owner:
            try:
                _give_back(before, run)
                owner = 0
            except BaseException as error:  # by a handler that was given back before the others
                raised.append(error)


def _give_back(before: dict[int, _Handler], run: _Handler) -> None:
    """Set handlers again where another one is set in their place."""
    for number, handler in before.items():
        if signal.getsignal(number) is run:  # else a handler has set another one
            signal.signal(number, handler)
