"""Measures what one call costs on a file in memory: the drop-in beside py-lmdb.

    python -m benchmarks.warm.run [--sets 100,3k,110k] [--rounds 9]

Each data set is made in --data (or reused), read once and locked in memory, so that no page is
missing. Both packages then make the same calls in turn, in one process, each over an environment
of its own; a ratio is of one round, and the median of all rounds is judged. Nothing reads from the
disk. Transactions hold reader slots where a row says lock=True. While one package has the file
open the other one gets none in the same process, so they open it in turn then, and make the calls
once before those that are timed.

The exit status is 0 if all bounds were reached, 1 if one was not, 69 if this machine lacks memory.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
from rich.console import Console

import lmdbio
from benchmarks import command
from benchmarks.harness import Told, by_turns, conduct, judged, race_parser
from benchmarks.page_cache import held_in_memory
from benchmarks.report import Verdict
from benchmarks.warm.calls import CALLS, LOCKED, OPENINGS, SMALL_BYTES, Call, Loop
from lmdbio.bench import datasets
from lmdbio.bench.datasets import Recipe

#: Bytes of a value and records of each data set, by name.
SETS = {"100": (100, 250_000), "3k": (3072, 250_000), "110k": (113_011, 16_000)}
#: Records that one loop asks for: of large ones fewer, which take as long.
ASKED, ASKED_LARGE, LARGE_BYTES = 20_000, 2_000, 50_000
SEED = 5


def key(number: int) -> bytes:
    return b"%08d" % number


def make(folder: Path, name: str) -> Path:
    """Write a data set, if it is not there."""
    size, count = SETS[name]
    recipe = Recipe(f"warm-{name}", "fixed", size * count, record_bytes=size)
    return datasets.ensure(recipe, folder)[0].path


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold all pages of a file in memory.

    Raises:
        Missing: the kernel does not lock so many.
    """
    with held_in_memory([file]) as is_locked:
        if not is_locked:
            raise command.Missing(
                f"{file}: {file.stat().st_size:,} bytes cannot be locked in memory"
            )
        yield


def timed(over: Any, loop: Loop, keys: Sequence[bytes], _round: int = 0) -> float:
    """Return the microseconds of one call over an environment, or over what opens one."""
    gc.collect()
    begun = time.perf_counter_ns()
    calls = loop(over, keys)
    return (time.perf_counter_ns() - begun) / calls / 1e3


def timed_alone(
    opened: Callable[[], Any], loop: Loop, keys: Sequence[bytes], _round: int
) -> float:
    """Return the microseconds of one call while nobody else has the file open."""
    with opened() as env:
        loop(env, keys)
        return timed(env, loop, keys)


def run_set(path: Path, name: str, rounds: int) -> Iterator[Verdict]:
    """Time all calls on one data set."""
    size, count = SETS[name]
    rng = random.Random(SEED)
    asked = ASKED_LARGE if size >= LARGE_BYTES else ASKED
    keys = [key(rng.randrange(count)) for _ in range(asked)]

    def opened(package: Any, *, lock: bool = False) -> Callable[[], Any]:
        return partial(package.open, str(path), readonly=True, lock=lock, readahead=False)

    def compared(call: Call, measured: Callable[..., float], both: Iterable[Any]) -> Verdict:
        theirs, ours = (partial(measured, one, call.loop, keys) for one in both)
        # The first round brings code and pages.
        took = by_turns(rounds, theirs, ours, warmups=1)
        is_bounded = not call.small or size <= SMALL_BYTES
        most = call.most if is_bounded else None
        return judged(call.words, f"{name}, {count:,} records", took[::-1], most=most, unit="us")

    with locked(path / "data.mdb"):
        for call in OPENINGS:
            yield compared(call, timed, (opened(lmdb), opened(lmdbio)))
        for call in LOCKED:
            yield compared(call, timed_alone, (opened(lmdb, lock=True), opened(lmdbio, lock=True)))
        with opened(lmdb)() as theirs, opened(lmdbio)() as ours:
            for call in CALLS:
                yield compared(call, timed, (theirs, ours))


def measured(asked: argparse.Namespace, told: Told, console: Console) -> None:
    """Time all calls on the data sets that were asked for."""
    told.title = "Warm calls: one call on a file in memory, over py-lmdb's time"
    for name in command.words_of(tuple(SETS), asked.sets):
        with console.status(f"make and measure {name}"):
            told.verdicts += run_set(make(asked.data, name), name, asked.rounds)
    order = [call.words for call in (*CALLS, *LOCKED, *OPENINGS)]
    told.verdicts.sort(key=lambda one: order.index(one.words))


def main(words: list[str]) -> int:
    parser = race_parser("benchmarks.warm.run", __doc__ or "", data="warm-data", rounds=9)
    parser.add_argument("--sets", default="100,3k,110k", help="of 100,3k,110k, or all")
    return conduct("warm", parser.parse_args(words), measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
