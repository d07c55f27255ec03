"""Reads thousands of files as one data set, beside one file of the same records.

    python -m benchmarks.shards.run [--files 5000] [--sizes 3000] [--rounds 9]

Both data sets are made in --data (or reused). The process may have 256 descriptors. The set is
opened, its values are held against py-lmdb's, and then batches of 256 records at random are read
from both by turns: out of the page cache, as copies of records (``readahead=False``), and cold,
where each round drops the page cache, opens, and reads.
A ratio is of one round, and the median of all rounds is judged.

To drop the page cache takes root; else there are no cold figures. The exit status is 0 if all
bounds were reached, 1 if one was not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

import lmdbio
from benchmarks import command, race, report
from lmdbio.bench import measure

RECORDS_EACH, BATCH = 100, 256
#: Descriptors that the process may have, and those that files may take of them.
DESCRIPTORS, DESCRIPTORS_MAX, OPEN_SECONDS_MAX, SHARE = 256, 200, 5.0, 0.8
#: Records that are compared with py-lmdb's, and read in each round.
COMPARED, WARM, COLD = 20_000, 100_000, 25_600
#: Rounds that open, map and touch all files first, and that no ratio counts.
TOUCHING = 9
DROP = Path("/proc/sys/vm/drop_caches")
SEED = 5


def write(path: Path, keys: Sequence[bytes], values: Iterator[bytes], size: int) -> None:
    """Write one file."""
    map_size = 2 * len(keys) * (size + 8192) + (1 << 20)
    with lmdb.open(str(path), subdir=False, map_size=map_size, lock=False, sync=False) as env:
        for first in range(0, len(keys), 1000):
            with env.begin(write=True) as txn:
                for key in keys[first : first + 1000]:
                    txn.put(key, next(values), append=True)


def make(folder: Path, files: int, size: int) -> tuple[Path, Path]:
    """Write both data sets, unless they are there; return the set's folder, and the one file."""
    path = folder / f"shards-{files}-{size}"
    if not path.exists():
        content = np.random.default_rng(SEED).bytes(1 << 22)

        def values() -> Iterator[bytes]:
            for number in range(files * RECORDS_EACH):
                at = number * 7919 % (len(content) - size)
                yield b"%015d " % number + content[at : at + size - 16]

        draft = path.with_suffix(".part")
        (draft / "set").mkdir(parents=True)
        each = values()
        for file in range(files):
            write(draft / "set" / f"data.{file:04d}.lmdb",
                  [b"%08d" % i for i in range(RECORDS_EACH)], each, size)  # fmt: skip
        write(draft / "one.mdb", [b"%012d" % i for i in range(files * RECORDS_EACH)],
              values(), size)  # fmt: skip
        os.sync()
        draft.rename(path)
    return path / "set", path / "one.mdb"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def hold_against_lmdb(records: lmdbio.Records, folder: Path) -> None:
    """Compare records at random with the values that py-lmdb has.

    Raises:
        Failed: one is another.
    """
    files = sorted(folder.iterdir())
    chosen = sorted(random.Random(SEED).sample(range(len(records)), min(COMPARED, len(records))))
    found = [bytes(view) for batch in records.batches(chosen, 1000) for view in batch]
    values = iter(found)
    at = 0
    while at < len(chosen):
        file = chosen[at] // RECORDS_EACH
        with lmdb.open(str(files[file]), subdir=False, readonly=True, lock=False) as env:
            with env.begin() as txn:
                while at < len(chosen) and chosen[at] // RECORDS_EACH == file:
                    if txn.get(b"%08d" % (chosen[at] % RECORDS_EACH)) != next(values):
                        raise command.Failed(f"record {chosen[at]} is another one")
                    at += 1


def rate(records: lmdbio.Records, seed: int, count: int) -> float:
    """Return the records a second of batches at random."""
    rng = np.random.default_rng(seed)
    chosen = [rng.integers(0, len(records), BATCH) for _ in range(count // BATCH)]
    begun = time.perf_counter()
    for indices in chosen:
        records.read(indices)
    return len(chosen) * BATCH / (time.perf_counter() - begun)


def warm(paths: Sequence[Path], rounds: int) -> list[list[float]]:
    """Return the rates of each data set in each round, out of the page cache."""
    for path in paths:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            file.read_bytes()
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(lmdbio.Records(p, readahead=False)) for p in paths]
        contestants = [partial(rate, records, count=WARM) for records in opened]
        rates = race.by_turns(TOUCHING + rounds, *contestants)
    return [found[TOUCHING:] for found in rates]


def cold(paths: Sequence[Path], rounds: int) -> list[list[float]]:
    """The same with nothing in the page cache before each data set is opened."""

    def contestant(path: Path, seed: int) -> float:
        os.sync()
        DROP.write_text("3")
        with lmdbio.Records(path, readahead=False) as records:
            return rate(records, seed, COLD)

    return race.by_turns(rounds, *(partial(contestant, path) for path in paths))


def judge(words: str, where: str, rates: Sequence[list[float]]) -> report.Verdict:
    """Judge the share that a set reaches of one file."""
    return race.judged(words, where, rates, least=SHARE, unit="records/s")


def measured(folder: Path, files: int, size: int, rounds: int) -> Iterator[report.Verdict]:
    """Measure one size of records."""
    paths, where = make(folder, files, size), f"{files:,} files of {RECORDS_EACH} x {size:,} bytes"
    begun, before = time.perf_counter(), descriptors()
    with lmdbio.Records(paths[0]) as records:
        took = time.perf_counter() - begun
        if len(records) != files * RECORDS_EACH:
            raise command.Failed(f"{len(records):,} records")
        hold_against_lmdb(records, paths[0])
        most = descriptors() - before
    yield report.judged("seconds to open the set", where, took, most=OPEN_SECONDS_MAX)
    yield report.judged("descriptors, of 256 that the process may have", where, most,
                        most=DESCRIPTORS_MAX)  # fmt: skip
    yield report.judged("values equal py-lmdb's", where, min(COMPARED, files * RECORDS_EACH))
    words = "batches at random, beside one file"
    yield judge(words, f"{where}, in the page cache", warm(paths, rounds))
    if os.access(DROP, os.W_OK):
        yield judge(words, f"{where}, cold", cold(paths, rounds))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.race_parser("benchmarks.shards.run", __doc__ or "", data="shards-data",
                                 rounds=9)  # fmt: skip
    parser.add_argument("--files", type=int, default=5000, help="of the set (5000)")
    parser.add_argument("--sizes", default="3000", help="bytes of records, with commas (3000)")
    given = parser.parse_args(arguments)
    return command.guarded(lambda: run(given))


def run(given: argparse.Namespace) -> int:
    """Measure what the arguments ask for, and tell."""
    began = datetime.now(timezone.utc).isoformat(timespec="seconds")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    given.data.mkdir(parents=True, exist_ok=True)
    verdicts: list[report.Verdict] = []
    console = report.wide_console()
    for size in map(int, given.sizes.split(",")):
        for verdict in measured(given.data, given.files, size, given.rounds):
            verdicts.append(verdict)
            console.print(f"{verdict.words}: {verdict.where}: {verdict.text}", highlight=False)
    console.print(report.verdict_table(verdicts).on_screen())
    machine: Any = measure.machine(given.data)
    report.write(given.json, {"began": began, "machine": str(machine),
                              "verdicts": report.as_json(verdicts)})  # fmt: skip
    return report.status(verdicts)


if __name__ == "__main__":
    sys.exit(main())
