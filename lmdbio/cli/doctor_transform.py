"""Time a transform on some records, by one thread and by two.

One that holds Python's lock gains nothing by the second thread. Neither does any other while the
machine is busy: so a function that is known to let go of the lock is timed beside it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from hashlib import sha256
from itertools import cycle, islice
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click

from lmdbio.cli import one_line
from lmdbio.doctor.facts import TransformFacts
from lmdbio.locate.glance import Glance

__all__ = ["Transform", "transform_facts", "values_of"]

#: Records that are decoded again and again, and bytes of their values at most, but for one record.
RECORDS, BYTES_MAX = 64, 64 << 20
#: Seconds of a measurement by one thread, about, and pairs of such: by one, by two.
SECONDS, PAIRS = 0.1, 5
#: Bytes that are hashed where a function is needed that lets go of the lock.
FREE_BYTES = 1 << 18


class Transform(click.ParamType[Any]):
    """A function, named as ``FILE.py:NAME`` or ``MODULE:NAME``."""

    name = "transform"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Callable[[bytes], Any]]:
        """Return the name, and the function; a wrong use: it cannot be imported."""
        where, colon, name = str(value).rpartition(":")
        if not (where and colon and name):
            self.fail(f"{value!r} is not FILE.py:NAME or MODULE:NAME", param, ctx)
        try:
            found = _imported(where)
            for part in name.split("."):
                found = getattr(found, part)
        except (Exception, SystemExit) as error:  # the user's own code runs here
            self.fail(f"{value}: {type(error).__name__}: {one_line(error)}", param, ctx)
        if not callable(found):
            self.fail(f"{value} is no function", param, ctx)
        return str(value), found


def _imported(where: str) -> Any:
    """Import a module, or a file as a module that is not the program."""
    sys.path.insert(0, str(Path(where).parent if where.endswith(".py") else Path.cwd()))
    if not where.endswith(".py"):
        return importlib.import_module(where)
    spec = importlib.util.spec_from_file_location(Path(where).stem, where)
    if spec is None or spec.loader is None or not Path(where).is_file():
        raise FileNotFoundError(f"there is no file {where}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import does: classes of the file pickle
    spec.loader.exec_module(module)
    return module


def values_of(glance: Glance) -> list[bytes]:
    """Return the values of some records, spread evenly.

    Raises:
        OSError, Error: they cannot be read.
    """
    values: list[bytes] = []
    left = BYTES_MAX
    for seen in glance.spread([(number + 0.5) / RECORDS for number in range(RECORDS)]):
        left -= seen.length
        if seen.database is not None or (values and left < 0):
            continue
        values.append(b"".join(glance.pieces(seen)))
    return values


def transform_facts(
    name: str, transform: Callable[[bytes], Any], values: list[bytes]
) -> TransformFacts:
    """Return what a transform takes, and what a second thread gains.

    Args:
        name: name that the user gave it.
        transform: function of a value.
        values: values to try it on.
    """
    if not values:
        return TransformFacts(name)
    where = ""
    try:
        for value in values:  # also warms it up
            transform(value)
        where = ", in a thread"
        timed = _Timed(transform, values)
        if len(os.sched_getaffinity(0)) < 2:
            return TransformFacts(name, timed.seconds)
        free = _Timed(sha256, [bytes(FREE_BYTES)])
        pairs = [(timed.gain(), free.gain()) for _ in range(PAIRS)]
    except (Exception, SystemExit) as error:
        return TransformFacts(name, error=f"{type(error).__name__}: {one_line(error)}{where}")
    gain, free_gain = (median(some) for some in zip(*pairs, strict=True))
    return TransformFacts(name, timed.seconds, gain, free_gain)


class _Timed:
    """A function, called so often that one thread takes ``SECONDS`` for it, about.

    Args:
        function: function of a value.
        values: values that it is given, again and again.

    Attributes:
        seconds: time of a call by one thread, the shortest so far.
    """

    def __init__(self, function: Callable[[bytes], Any], values: list[bytes]) -> None:
        self._function, self._values, self._calls = function, values, 1
        self.seconds = inf
        while (seconds := self._time(threads=1)) < SECONDS / 2:
            more = min(8.0, SECONDS / max(seconds, 1e-9))
            self._calls = max(self._calls + 1, int(self._calls * more))

    def gain(self) -> float:
        """Return the calls a second by two threads, as a multiple of those by one."""
        return 2 * self._time(threads=1) / self._time(threads=2)

    def _time(self, *, threads: int) -> float:
        """Return the time in which each of some threads makes all calls."""
        seconds = _seconds(self._function, self._values, self._calls, threads)
        if threads == 1:
            self.seconds = min(self.seconds, seconds / self._calls)
        return seconds


def _seconds(
    function: Callable[[bytes], Any], values: list[bytes], calls: int, threads: int
) -> float:
    """Return the time in which each of some threads calls a function so many times.

    Raises:
        BaseException: the function has raised it.
    """
    begin = threading.Barrier(threads + 1)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        some = list(islice(cycle(values[number:] + values[:number]), min(calls, len(values))))
        begin.wait()
        try:
            for value in islice(cycle(some), calls):
                function(value)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(at,), daemon=True) for at in range(threads)]
    for worker in workers:
        worker.start()
    begin.wait()
    begun = perf_counter()
    for worker in workers:
        worker.join()
    seconds = perf_counter() - begun
    if failures:
        raise failures[0]
    return seconds
