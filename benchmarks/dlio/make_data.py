"""Writes the LMDB files of a DLIO workload, of random bytes.

    python -m benchmarks.dlio.make_data benchmarks/dlio/workload/resnet50_lmdb.yaml

As many files, samples and bytes as the workload's ``dataset`` says, into its ``data_folder``.
Files that are whole are kept; one that is being written has another name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import yaml
from rich.progress import Progress

import lmdbio

__all__ = ["Data", "ensure", "key_of"]

#: As Caffe's converter commits.
COMMIT_PUTS = 1000


def key_of(sample: int) -> bytes:
    """Of a sample of a file."""
    return b"%08d" % sample


@dataclass(frozen=True, slots=True)
class Data:
    """What a workload reads.

    Attributes:
        folder: of all files; those for training are in ``train`` below it.
        files: how many.
        samples: of a file.
        sample_bytes: of each.
        ending: of their names.
    """

    folder: Path
    files: int
    samples: int
    sample_bytes: int
    ending: str

    @classmethod
    def of(cls, workload: Path, folder: Path | None = None) -> Data:
        """As a workload's YAML file says.

        Raises:
            OSError: it cannot be read.
            ValueError: it is no workload.
        """
        try:
            said = yaml.safe_load(workload.read_text(encoding="utf-8"))["dataset"]
            found = cls(
                Path(said["data_folder"]) if folder is None else folder,
                int(said["num_files_train"]),
                int(said["num_samples_per_file"]),
                int(said["record_length"]),
                str(said["format"]),
            )
            if min(found.files, found.samples, found.sample_bytes) < 1:
                raise ValueError("no files, no samples, or samples of no bytes")
            return found
        except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{workload}: no workload of DLIO's ({error})") from error

    @property
    def paths(self) -> list[Path]:
        train = self.folder / "train"
        return [train / f"part-{i:03d}.lmdb.{self.ending}" for i in range(self.files)]

    @property
    def size(self) -> int:
        """Bytes of all samples."""
        return self.files * self.samples * self.sample_bytes


def ensure(data: Data, wrote: Callable[[int], Any] = lambda size: None) -> None:
    """Writes the files that are not there, or have other samples.

    Args:
        wrote: told the bytes of each sample.
    """
    for name in ("train", "valid"):  # DLIO lists both, also where it evaluates nothing
        (data.folder / name).mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(data.paths):
        if path.exists() and _fits(path, data):
            wrote(data.samples * data.sample_bytes)
            continue
        part = path.with_suffix(".part")  # not an ending that DLIO looks for
        part.unlink(missing_ok=True)
        try:
            _write(part, data, number, wrote)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _fits(path: Path, data: Data) -> bool:
    try:
        with lmdbio.Records(path, subdir=False) as records:  # a file that was cut is an error
            return (
                len(records) == data.samples
                and records.key(-1) == key_of(data.samples - 1)
                and len(records[-1]) == data.sample_bytes
            )
    except (lmdb.Error, OSError):
        return False


def _write(path: Path, data: Data, seed: int, wrote: Callable[[int], Any]) -> None:
    draw = np.random.default_rng(seed)
    room = 2 * data.samples * (data.sample_bytes + 8192) + (16 << 20)
    with lmdb.open(str(path), subdir=False, lock=False, map_size=room) as env:
        for first in range(0, data.samples, COMMIT_PUTS):
            with env.begin(write=True) as txn:
                for sample in range(first, min(first + COMMIT_PUTS, data.samples)):
                    txn.put(key_of(sample), draw.bytes(data.sample_bytes), append=True)
                    wrote(data.sample_bytes)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("workload", type=Path, help="a YAML file")
    add("--folder", type=Path, help="instead of the workload's data_folder")
    asked = parser.parse_args()
    try:
        data = Data.of(asked.workload, asked.folder)
        with Progress(transient=True) as bar:
            task = bar.add_task("write", total=data.size)
            ensure(data, lambda size: bar.advance(task, size))
    except KeyboardInterrupt:
        return 130
    except (OSError, ValueError, lmdb.Error) as error:
        print(f"make_data.py: {error}", file=sys.stderr)
        return 1
    print(f"{data.files} files of {data.samples:,} samples of {data.sample_bytes:,} bytes in "
          f"{data.folder / 'train'}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
