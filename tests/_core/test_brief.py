"""Calls that keep Python's lock.

Goal: brief calls (lmdbio/_core/glue/brief.h) keep the lock, others do not. Method: where threads
switch at no time of their own, another thread runs if a call gives the lock away, and only then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from lmdbio._core._lmdbio import lib

from lmdbio import _core
from lmdbio._core.brief import RECORDS_MAX, brief_up_to


@pytest.fixture
def no_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def others_run(call: Callable[[], object], calls: int = 1000) -> bool:
    """Return whether another thread runs while a call is made many times."""
    runs, has_ended = [0], threading.Event()

    def count() -> None:
        while not has_ended.is_set():
            runs[0] += 1
            time.sleep(0)  # gives the lock away, and waits for it

    other = threading.Thread(target=count)
    other.start()
    while not (seen := runs[0]):  # a busy machine may take its time to begin it
        time.sleep(0.01)
    for _ in range(calls):
        call()
    ran = runs[0] != seen
    has_ended.set()
    other.join()
    return ran


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="no such lock")
@pytest.mark.usefixtures("no_switches")
def test_brief_calls_keep_the_lock() -> None:
    lengths = np.ones(8, np.uint64)
    memory = _core.Memory(4096)
    assert not others_run(lambda: _core.rows_room(lengths))
    assert not others_run(lambda: _core.write_table(memory.address, lengths, lengths))
    many = np.ones(3_000_000, np.uint64)
    assert others_run(lambda: _core.rows_room(many), calls=30)


def test_many_records_are_given_to_the_function_that_lets_go() -> None:
    assert brief_up_to("lio_rows_room", RECORDS_MAX) is lib.lio_rows_room
    assert brief_up_to("lio_rows_room", RECORDS_MAX + 1) is not lib.lio_rows_room
