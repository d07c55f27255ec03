"""Import: from a source to a data set, continued where it was broken off.

source -> batches -> Writer, which brings the one before to the disk meanwhile -> data set
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lmdbio.errors import Error
from lmdbio.ingest import archive, table
from lmdbio.ingest.archive import Archives
from lmdbio.ingest.folder import Folder
from lmdbio.ingest.growing import size_of
from lmdbio.ingest.mds import Mds
from lmdbio.ingest.saved import Saved
from lmdbio.ingest.sources import IMAGES, Source
from lmdbio.ingest.table import Tables
from lmdbio.ingest.writer import BATCH_BYTES_MAX, Writer
from lmdbio.provenance.freshness import Progress
from lmdbio.provenance.paths import DATA

__all__ = ["ImportReport", "import_samples", "open_source"]

#: More of them make no sample of a value and a label.
COLUMNS_MAX = 2
ENDINGS = (*archive.ENDINGS, *table.ENDINGS)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of ``import_samples``.

    Attributes:
        target: path of the data set.
        samples: number of samples.
        resumed_samples: part of ``samples`` that an earlier run had written.
        sample_bytes: size of the samples that this run has written.
        file_bytes: size of the data file.
        metadata: keys of records that are no samples.
        seconds: duration of the import.
    """

    target: Path
    samples: int
    resumed_samples: int
    sample_bytes: int
    file_bytes: int
    metadata: tuple[bytes, ...]
    seconds: float


def open_source(paths: Sequence[str | os.PathLike[str]], columns: Sequence[str] = ()) -> Source:
    """Find out the kind of a source, and list what is in it.

    Args:
        paths: a folder of images, of folders of images, of archives or tables, of Hugging Face's
            ``save_to_disk`` or of MosaicML's MDS shards; or archives, or tables.
        columns: members of archives, or columns of tables, that are the value and the label of a
            sample, in this order; empty: the usual ones.

    Raises:
        FileNotFoundError: a path is not there.
        ValueError: the paths are of no kind, or of several; or the source has no samples.
        MissingExtraError: it takes a package that is not installed.
        Error, OSError: the source cannot be read.
    """
    if len(columns) > COLUMNS_MAX:
        raise ValueError(f"a sample has a value and a label, and {len(columns)} are named")
    for kind in (Saved, Mds) if len(paths) == 1 else ():
        if kind.describes(folder := Path(paths[0])):
            return kind(folder, columns)
    files = [file for path in paths for file in _files(Path(path))]
    if all(file.name.endswith(archive.ENDINGS) for file in files):
        return Archives(files, columns)
    if all(file.name.endswith(table.ENDINGS) for file in files):
        return Tables(files, columns)
    if len(files) == 1 and files[0].is_dir():
        if columns:
            raise ValueError(f"{files[0]}: images in folders have no columns: leave out --column")
        return Folder(files[0])
    known = ", ".join(ENDINGS)
    other = next((file for file in files if not file.name.endswith(ENDINGS)), files[-1])
    raise ValueError(f"{other}: a source is one folder of images, or files of one kind: {known}")


def _files(path: Path) -> list[Path]:
    """Return the archives or tables that a folder has, or else the path itself.

    Raises:
        ValueError: the folder has images or folders beside them, which would be lost.
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if not path.is_dir():
        return [path]
    files, other = list[Path](), ""
    with os.scandir(path) as entries:  # of millions of images, no list is made
        for entry in entries:
            if entry.name.endswith(ENDINGS):
                files.append(path / entry.name)
            elif _is_sample(entry):
                other = entry.name
    if files and other:
        raise ValueError(
            f"{path}: has {files[0].name} and {other}: a source is of one kind; name the files, "
            "or move one of them away"
        )
    return sorted(files) or [path]


def _is_sample(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a folder is an image, or may have some."""
    if entry.name.rpartition(".")[2].lower() in IMAGES:
        return True
    return entry.is_dir() and not entry.name.startswith(".")


def import_samples(
    paths: Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str] = (),
    batch_bytes_max: int = BATCH_BYTES_MAX,
    progress: Progress | None = None,
) -> ImportReport:
    """Make a data set of a source's samples.

    A run that ends early, even by SIGKILL, leaves TARGET.part, and the next one of the same source
    goes on with it.

    Args:
        paths, columns: the source, as in ``open_source``.
        target: folder to be made.
        batch_bytes_max: size of the samples of a transaction, bytes.
        progress: function of (done, in all, unit).

    Raises:
        Error: the source is damaged, or has changed since an earlier run.
        ValueError, FileExistsError, OSError: as ``open_source`` and ``Writer``.
    """
    begun = time.monotonic()
    goal = Path(target).absolute().parent.resolve()
    for path in map(Path, paths):
        if path.is_dir() and goal.is_relative_to(path.resolve()):
            raise ValueError(f"{target}: lies inside of {path}, to which nothing is written")
    source = open_source(paths, columns)
    with Writer(target, resume=source.facts, batch_bytes_max=batch_bytes_max) as writer:
        resumed, size = writer.samples, 0
        for key, value in source.metadata.items() if not resumed else ():
            writer.put(key, value)
        for batch in source.batches(resumed):
            writer.add_many(batch.samples)
            size += size_of(batch.samples)
            if progress is not None:
                progress(batch.done, source.total, source.unit)
        if not writer.samples:
            raise Error(f"{paths[0]}: has no samples")
    return ImportReport(
        target=Path(target),
        samples=writer.samples,
        resumed_samples=resumed,
        sample_bytes=size,
        file_bytes=(Path(target) / DATA).stat().st_size,
        metadata=tuple(source.metadata),
        seconds=time.monotonic() - begun,
    )
