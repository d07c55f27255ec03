"""Writes the LMDB files of a DLIO workload, of random bytes.

    python -m benchmarks.dlio.make_data benchmarks/dlio/workload/resnet50_lmdb.yaml

As many files, samples and bytes as the workload's ``dataset`` says, into its ``data_folder``: data
sets of ``lmdbio.bench.datasets``, and a link to each of them under a name that DLIO looks for.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import lmdb
import yaml
from rich.console import Console

from lmdbio.bench import datasets
from lmdbio.bench.datasets import Recipe


def key_of(sample: int) -> bytes:
    """Of a sample of a file."""
    return b"%08d" % sample


@dataclass(frozen=True, slots=True)
class Data:
    """The files that a workload reads.

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


def ensure(data: Data, console: Console) -> None:
    """Write the files that are not there, or have other samples.

    Raises:
        OSError: there is no room.
    """
    for name in ("train", "valid"):  # DLIO lists both, also where it evaluates nothing
        (data.folder / name).mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(data.paths):
        size = data.samples * data.sample_bytes
        recipe = Recipe(path.stem, "fixed", size, seed=number, record_bytes=data.sample_bytes)
        made = datasets.prepare(recipe, data.folder / "sets", console)
        path.unlink(missing_ok=True)
        path.symlink_to(made.data_file.absolute())


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
        ensure(data, Console(stderr=True))
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
