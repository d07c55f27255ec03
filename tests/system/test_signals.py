"""Errors that handlers of signals raise wait until a block is over; nothing else changes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from lmdbio.system.signals import ending_later


class Alarm(Exception):
    """The error that a program's own handler raises."""


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """A handler of SIGUSR1 that notes the signal, and raises."""
    numbers: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handler)
    yield numbers
    signal.signal(signal.SIGUSR1, before)


def test_what_handlers_raise_is_there_at_the_end(heard: list[int]) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)]
    went_on = False
    raised: list[BaseException] = []
    with ending_later(raised):
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGINT)
        went_on = True
    assert went_on and heard == [signal.SIGUSR1]
    assert [type(error) for error in raised] == [Alarm, KeyboardInterrupt]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)] == handlers
    with pytest.raises(Alarm):
        signal.raise_signal(signal.SIGUSR1)


@pytest.mark.usefixtures("heard")
def test_blocks_lie_in_one_another() -> None:
    outer: list[BaseException] = []
    inner: list[BaseException] = []
    with ending_later(outer):
        with ending_later(inner):
            signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
    assert len(outer) == 2 and not inner  # the outer one comes first to the handler


def test_a_handler_that_is_set_inside_stays() -> None:
    numbers: list[int] = []
    before = signal.getsignal(signal.SIGUSR2)
    try:
        signal.signal(signal.SIGUSR2, lambda number, _frame: None)
        with ending_later([]):
            signal.signal(signal.SIGUSR2, lambda number, _frame: numbers.append(number))
        signal.raise_signal(signal.SIGUSR2)
        assert numbers == [signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.usefixtures("heard")
def test_a_handler_that_calls_the_one_before_it_raises_again_afterwards() -> None:
    with ending_later([]):
        before = signal.getsignal(signal.SIGUSR1)
    assert callable(before)
    with pytest.raises(Alarm):
        before(signal.SIGUSR1, None)


@pytest.mark.usefixtures("heard")
def test_a_child_that_is_forked_inside_keeps_nothing() -> None:
    with ending_later([]):
        child = os.fork()
        if child == 0:
            try:
                signal.raise_signal(signal.SIGUSR1)
            except Alarm:
                os._exit(7)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_an_error_of_the_block_itself_leaves_at_once(heard: list[int]) -> None:
    raised: list[BaseException] = []
    with pytest.raises(OSError, match="its own"), ending_later(raised):
        signal.raise_signal(signal.SIGUSR1)
        raise OSError("its own")
    assert heard and [type(error) for error in raised] == [Alarm]


def test_other_threads_take_no_signals() -> None:
    seen: list[bool] = []

    def run() -> None:
        handler = signal.getsignal(signal.SIGINT)
        with ending_later([]):
            seen.append(signal.getsignal(signal.SIGINT) is handler)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [True]
