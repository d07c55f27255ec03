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

import ctypes
import gc
import mmap
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import lmdb
import numpy as np

import lmdbio
from benchmarks import command, report
from benchmarks.warm.calls import CALLS, LOCKED, OPENINGS, SMALL_BYTES, Call, Loop
from lmdbio.bench import measure

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
    path = folder / f"warm-{name}"
    if (path / "data.mdb").exists():
        return path
    draft = folder / f"warm-{name}.part"
    content = np.random.default_rng(SEED).bytes(64 * size)
    with lmdb.open(str(draft), map_size=2 * count * size + (1 << 28), sync=False) as env:
        for first in range(0, count, 1000):
            with env.begin(write=True) as txn:
                for i in range(first, min(first + 1000, count)):
                    at = i * 7919 % (63 * size)
                    txn.put(key(i), content[at : at + size], append=True)
    draft.rename(path)
    return path


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold all pages of a file in memory.

    Raises:
        Missing: the kernel does not lock so many.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with file.open("rb") as opened:
        size = file.stat().st_size
        with mmap.mmap(opened.fileno(), size, prot=mmap.PROT_READ | mmap.PROT_WRITE,
                       flags=mmap.MAP_PRIVATE) as held:  # fmt: skip
            exported = ctypes.c_char.from_buffer(held)
            try:
                # Locked read-only, a private mapping has the page cache's own pages.
                address = ctypes.c_void_p(ctypes.addressof(exported))
                if libc.mprotect(address, ctypes.c_size_t(size), 1) or libc.mlock(
                    address, ctypes.c_size_t(size)
                ):
                    raise command.Missing(f"{file}: no {size:,} bytes can be locked in memory")
                yield
            finally:
                del exported


def timed(over: Any, loop: Loop, keys: Sequence[bytes]) -> float:
    """Return the microseconds of one call over an environment, or over what opens one."""
    gc.collect()
    begun = time.perf_counter_ns()
    calls = loop(over, keys)
    return (time.perf_counter_ns() - begun) / calls / 1e3


def timed_alone(opened: Callable[[], Any], loop: Loop, keys: Sequence[bytes]) -> float:
    """Return the microseconds of one call while nobody else has the file open."""
    with opened() as env:
        loop(env, keys)
        return timed(env, loop, keys)


def in_turn(
    theirs: Callable[[], float], ours: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    """Return what each gave in each round: the microseconds of py-lmdb's call, and of ours."""
    took: tuple[list[float], list[float]] = [], []
    for number in range(rounds + 1):
        order = ((theirs, took[0]), (ours, took[1]))
        for measured, times in order if number % 2 else order[::-1]:
            times.append(measured())
    return took[0][1:], took[1][1:]  # the first round brings code and pages


def judge(call: Call, name: str, took: tuple[list[float], list[float]]) -> report.Verdict:
    """Judge the ratio of a call's times on one data set."""
    ratios = [mine / theirs for theirs, mine in zip(*took, strict=True)]
    is_bounded = not call.small or SETS[name][0] <= SMALL_BYTES
    return report.judged(
        call.words,
        f"{name}, {SETS[name][1]:,} records",
        median(ratios),
        most=call.most if is_bounded else None,
        ends=(min(ratios), max(ratios)),
        measured=f"{median(took[1]):.2f} us",
        against=f"py-lmdb {median(took[0]):.2f} us",
    )


def run_set(path: Path, name: str, rounds: int) -> Iterator[report.Verdict]:
    """Time all calls on one data set."""
    size, count = SETS[name]
    rng = random.Random(SEED)
    asked = ASKED_LARGE if size >= LARGE_BYTES else ASKED
    keys = [key(rng.randrange(count)) for _ in range(asked)]

    def opened(package: Any, *, lock: bool = False) -> Callable[[], Any]:
        return partial(package.open, str(path), readonly=True, lock=lock, readahead=False)

    def judged(call: Call, measured: Callable[..., float], both: Iterable[Any]) -> report.Verdict:
        theirs, ours = (partial(measured, one, call.loop, keys) for one in both)
        return judge(call, name, in_turn(theirs, ours, rounds))

    with locked(path / "data.mdb"):
        for call in OPENINGS:
            yield judged(call, timed, (opened(lmdb), opened(lmdbio)))
        for call in LOCKED:
            yield judged(call, timed_alone, (opened(lmdb, lock=True), opened(lmdbio, lock=True)))
        with opened(lmdb)() as theirs, opened(lmdbio)() as ours:
            for call in CALLS:
                yield judged(call, timed, (theirs, ours))


def main(words: list[str]) -> int:
    parser = command.race_parser("benchmarks.warm.run", __doc__ or "", data="warm-data", rounds=9)
    parser.add_argument("--sets", default="100,3k,110k", help="of 100,3k,110k, or all")
    parser.add_argument("--html", type=Path, metavar="FILE", help="the verdicts as a page")
    chosen = parser.parse_args(words)
    began = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    console = report.wide_console()

    def measured() -> int:
        verdicts: list[report.Verdict] = []
        for name in command.words_of(tuple(SETS), chosen.sets):
            chosen.data.mkdir(parents=True, exist_ok=True)
            with console.status(f"make and measure {name}"):
                path = make(chosen.data, name)
                verdicts += run_set(path, name, chosen.rounds)
        order = [call.words for call in (*CALLS, *LOCKED, *OPENINGS)]
        verdicts.sort(key=lambda one: order.index(one.words))
        table = report.verdict_table(verdicts, "One call on a file in memory, over py-lmdb's time")
        console.print(table.on_screen())
        console.print(report.counted(verdicts))
        found = {"machine": asdict(measure.machine(chosen.data)), "began": began}
        report.write(chosen.json, {**found, "verdicts": report.as_json(verdicts)})
        report.write(chosen.html, report.page("warm", began, "Warm calls", verdicts,
                                              table.section()))  # fmt: skip
        return report.status(verdicts)

    return command.guarded(measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
