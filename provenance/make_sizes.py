"""Makes databases as data sets are made, and tells how large their provenance files are.

    python provenance/make_sizes.py [--scale S] [--folder FOLDER]

Databases are written by py-lmdb into a folder that vanishes again, one at a time; at scale 1 the
largest takes 1.5 GB, and all of them a few minutes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lmdb
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lmdbio.convert.convert import convert

BYTES_MAX = 1 << 37


@dataclass(frozen=True, slots=True)
class Case:
    """A data set: how many records of which sizes, and how they were put."""

    name: str
    count: int
    mean: int
    spread: int = 0
    every: int = 1000
    shuffled: bool = False
    keys: str = "{:08}"
    compacted: bool = False


CASES = (
    Case("records of 3 KB", 250_000, 3085),
    Case("records of 3 KB, shuffled", 250_000, 3085, shuffled=True),
    Case("records of 3 KB, shuffled, compacted", 250_000, 3085, shuffled=True, compacted=True),
    Case("records of 3 KB, keys str(i)", 250_000, 3085, keys="{}"),
    Case("records of 200 bytes", 1_000_000, 200),
    Case("records of 20 to 1,000 bytes", 1_000_000, 500, 400),
    Case("JPEG files", 100_000, 11_000, 4_000),
    Case("JPEG files, shuffled", 100_000, 11_000, 4_000, shuffled=True),
)


def items(case: Case, count: int) -> Iterator[tuple[bytes, bytes]]:
    rng = np.random.default_rng(1)
    lengths = np.full(count, case.mean)
    if case.spread:
        lengths = np.clip(rng.normal(case.mean, case.spread, count), 20, None).astype(int)
    order = list(range(count))
    if case.shuffled:
        random.Random(1).shuffle(order)
    for i in order:
        yield case.keys.format(i).encode(), bytes(int(lengths[i]))


def make(case: Case, count: int, folder: Path) -> None:
    whole = folder / "whole" if case.compacted else folder
    whole.mkdir(exist_ok=True)
    with lmdb.open(str(whole), map_size=BYTES_MAX, sync=False, lock=False) as env:
        txn = env.begin(write=True)
        for number, (key, value) in enumerate(items(case, count), 1):
            txn.put(key, value)
            if number % case.every == 0:
                txn.commit()
                txn = env.begin(write=True)
        txn.commit()
        if case.compacted:
            env.copy(str(folder), compact=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of records (1)")
    parser.add_argument("--folder", type=Path, help="where to write (a temporary folder)")
    asked = parser.parse_args()
    table = Table("data set", "records", "form", "bytes", "bytes a record", box=None)
    for case in track(CASES, "make", transient=True):
        count = max(1, int(case.count * asked.scale))
        with tempfile.TemporaryDirectory(dir=asked.folder, prefix="lmdbio-sizes-") as folder:
            make(case, count, Path(folder))
            report = convert(folder)
        forms = {
            "replay": report.replayed,
            "runs": report.blocks_runs,
            "leaves": report.blocks_leaves,
            "explicit": report.blocks_explicit,
        }
        held = ", ".join(form for form, blocks in forms.items() if blocks)
        each = f"{report.sidecar_bytes / count:.4f}"
        table.add_row(case.name, f"{count:,}", held, f"{report.sidecar_bytes:,}", each)
    Console().print(table)


if __name__ == "__main__":
    main()
