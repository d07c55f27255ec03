"""The same records in the formats that other loaders read: written once, kept, and reused.

    python -m benchmarks.training.forms FORM SET FOLDER

writes those of the environment SET in a process of its own: some writers start others.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import lmdb

from lmdbio.bench.datasets import Dataset

__all__ = ["files_of", "folder_of", "write"]

#: Of tar files, so that each of many workers has some; of a folder of plain files.
SHARDS, FOLDER_FILES = 32, 1000
CHUNK = "64MB"  # of LitData's and Streaming's files, as their documentation has it


def values(source: Path) -> Iterator[bytes]:
    """Yield all values in key order."""
    with lmdb.open(str(source), readonly=True, lock=False) as env, env.begin() as txn:
        yield from txn.cursor().iternext(keys=False, values=True)


def count_of(source: Path) -> int:
    with lmdb.open(str(source), readonly=True, lock=False) as env:
        return int(env.stat()["entries"])


def as_files(source: Path, folder: Path) -> None:
    for index, value in enumerate(values(source)):
        below = folder / f"{index // FOLDER_FILES:05d}"
        if index % FOLDER_FILES == 0:
            below.mkdir()
        (below / f"{index:08d}").write_bytes(value)


def as_tars(source: Path, folder: Path) -> None:
    count = count_of(source)
    found, size = values(source), -(-count // SHARDS)
    for first in range(0, count, size):
        with tarfile.open(folder / f"{first // size:05d}.tar", "w") as tar:
            for index in range(first, min(first + size, count)):
                value = next(found)
                entry = tarfile.TarInfo(f"{index:08d}.bin")
                entry.size = len(value)
                tar.addfile(entry, io.BytesIO(value))


def as_mds(source: Path, folder: Path) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"value": "bytes"}, size_limit=CHUNK.lower()) as out:
        for value in values(source):
            out.write({"value": value})


@cache
def _environment(path: str) -> Any:
    return lmdb.open(path, readonly=True, lock=False)


def _value(path: str, index: int) -> bytes:
    with _environment(path).begin() as txn:
        return bytes(txn.get(b"%08d" % index))


def as_litdata(source: Path, folder: Path) -> None:
    import litdata

    litdata.optimize(
        partial(_value, str(source.absolute())),
        list(range(count_of(source))),
        str(folder),
        chunk_bytes=CHUNK,
        num_workers=1,
        mode="overwrite",
        verbose=False,
    )


def as_arrayrecord(source: Path, folder: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    # One record a group, as random access wants it.
    writer = ArrayRecordWriter(str(folder / "data.arrayrecord"), "group_size:1")
    for value in values(source):
        writer.write(value)
    writer.close()


def as_arrow(source: Path, folder: Path) -> None:
    import datasets

    rows = ({"value": value} for value in values(source))
    kept = folder / "made"
    features = datasets.Features({"value": datasets.Value("binary")})
    datasets.disable_progress_bars()
    found = datasets.Dataset.from_generator(
        lambda: rows, features=features, cache_dir=str(kept), fingerprint="lmdbio"
    )
    found.save_to_disk(str(folder / "data"))
    shutil.rmtree(kept)


WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "files": as_files,
    "tars": as_tars,
    "mds": as_mds,
    "litdata": as_litdata,
    "arrayrecord": as_arrayrecord,
    "arrow": as_arrow,
}


def folder_of(form: str, made: Dataset) -> Path:
    """Return where the records are in a format; "lmdb" is the environment itself."""
    if form == "lmdb":
        return made.path
    return made.path.with_name(f"{made.path.name}-{made.content[:12]}.{form}")


def files_of(form: str, path: Path) -> list[Path]:
    """Return the files of a format that hold records: what is to be cold."""
    if form == "lmdb":
        return [path / "data.mdb"]
    return sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)


def write(form: str, source: Path, folder: Path) -> None:
    """Write the records of an environment in a format; the folder is there when all is."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    WRITERS[form](source, part)
    part.rename(folder)


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    print(json.dumps({}))
