"""signals: what asks a process to end, ends what it is at, now or later, and that cleans up."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Ended", "ended_by_signals", "ending_later", "leaving_at_once"]


class Ended(KeyboardInterrupt):
    """A signal other than Ctrl-C asked for the end.

    Attributes:
        number: number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


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


#: Signals whose handlers may raise: those that ask a process to end, or wake it.
_RAISING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")


@contextmanager
def ending_later(raised: list[BaseException]) -> Iterator[None]:
    """Append what handlers of signals raise to a list, so that nothing inside is cut short.

    Handlers run as ever. The caller raises the first of the list afterwards, or tells of it.
    Outside of the main thread, where Python takes no signals, nothing is appended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _RAISING if hasattr(signal, name)]
    handlers = [(number, signal.getsignal(number)) for number in numbers]
    before = {int(number): handler for number, handler in handlers if callable(handler)}

    def run(number: int, frame: FrameType | None) -> None:
        try:
            before[number](number, frame)
        except BaseException as error:
            raised.append(error)

    def give_back() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is run:  # else a handler has set another one
                signal.signal(number, handler)

    try:
        for number in before:
            signal.signal(number, run)
        yield
    finally:
        while True:
            try:
                give_back()
                break
            except BaseException as error:  # by a handler that was given back before the others
                raised.append(error)
