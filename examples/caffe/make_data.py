"""Writes a data set to learn from, as Caffe's convert_imageset would.

    python make_data.py train_lmdb
    python make_data.py --sorted train_lmdb      one class after the other, as folders often lie

Ten classes of small coloured pictures: each has a pattern of its own, moved about, brighter or
darker, under noise. Keys are "00000042_class3.png", values are Datum messages, a transaction is
committed every 1,000 records, and beside the data lies the provenance file that
`lmdbio convert` makes of any data set.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import lmdb
import numpy as np

from lmdbio.bench.datasets import COMMIT_PUTS, datum
from lmdbio.convert.convert import convert

CLASSES = 10
SHAPE = (3, 32, 32)
#: Of 255 levels: how far a pattern's colours go from grey, and the noise's standard deviation.
COLOUR, NOISE = 35.0, 80.0
#: Pixels by which a pattern is moved at most, each way.
MOVES = 5


def pictures(count: int, seed: int, *, in_order: bool) -> Iterator[tuple[bytes, int]]:
    """Pixels and class of each; the classes come by chance, or one after the other."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(-COLOUR, COLOUR, (CLASSES, SHAPE[0], 4, 4))
    patterns = coarse.repeat(8, axis=2).repeat(8, axis=3)
    labels = rng.integers(0, CLASSES, count)
    for label in np.sort(labels).tolist() if in_order else labels.tolist():
        down, right = rng.integers(-MOVES, MOVES + 1, 2).tolist()
        moved = np.roll(patterns[label], (down, right), axis=(1, 2))
        light = 128 + rng.uniform(-30, 30)
        noisy = light + moved * rng.uniform(0.5, 1.5) + rng.normal(0, NOISE, SHAPE)
        yield noisy.clip(0, 255).astype(np.uint8).tobytes(), label


def write(path: Path, count: int, seed: int = 1, *, in_order: bool = False) -> Path:
    """Writes ``count`` records into the new environment ``path``, and its provenance file."""
    path.mkdir(parents=True)
    with lmdb.open(str(path), map_size=(1 << 28) + count * 16384, sync=False) as env:
        txn = env.begin(write=True)
        for index, (pixels, label) in enumerate(pictures(count, seed, in_order=in_order)):
            key = b"%08d_class%d.png" % (index, label)
            txn.put(key, datum(pixels, label, encoded=False, shape=SHAPE))
            if (index + 1) % COMMIT_PUTS == 0:
                txn.commit()
                txn = env.begin(write=True)
                print(f"\r{index + 1:,} records", end="", file=sys.stderr, flush=True)
        txn.commit()
        env.sync(True)
    print(file=sys.stderr)
    return convert(path).sidecar


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="the folder to make; it must not be there")
    parser.add_argument("--records", type=int, default=20_000, help="default %(default)s")
    parser.add_argument("--sorted", action="store_true", help="one class after the other")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    asked = parser.parse_args()
    if asked.records < 1:
        parser.error("--records must be at least 1")
    if asked.path.exists():
        parser.error(f"{asked.path} is there already")
    sidecar = write(asked.path, asked.records, asked.seed, in_order=asked.sorted)
    print(f"{asked.path}: {asked.records:,} records; {sidecar}: where each of them lies")


if __name__ == "__main__":
    main()
