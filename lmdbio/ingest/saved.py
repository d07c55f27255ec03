"""Samples in a folder that Hugging Face's ``Dataset.save_to_disk`` writes: Arrow's streams.

    state.json                                           the names of the files, in order
    data-00000-of-00002.arrow, data-00001-of-00002...    streams of batches of rows

A file ends with a mark: one that was cut between two batches lacks it. pyarrow reads.

Source: datasets, ``Dataset.save_to_disk``; Arrow's columnar format, "IPC Streaming Format".
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmdbio.errors import Error
from lmdbio.ingest.sources import Batch, states_of
from lmdbio.ingest.table import arrow, check_columns, rows_at_once, samples_of

__all__ = ["Saved"]

STATE, SPLITS = "state.json", "dataset_dict.json"
END = b"\xff\xff\xff\xff\0\0\0\0"


class Saved:
    """A data set that was saved to a folder; see ``Source``.

    Args:
        folder: path of the folder.
        columns: argument of ``Tables``.

    Raises:
        MissingExtraError: there is no pyarrow.
        ValueError: it has several splits, or an order beside its rows; or as ``Tables``.
        Error, OSError: a file cannot be read.
    """

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        if (folder / SPLITS).is_file():
            names = _read(folder / SPLITS, "splits") or ["train"]
            raise ValueError(
                f"{folder}: has several splits: name one, such as {folder / names[0]}"
            )
        if _read(folder / STATE, "_indices_data_files", []):
            raise ValueError(
                f"{folder}: an early version of datasets has saved it with an order beside its "
                "rows: load_from_disk() it, and save_to_disk() it elsewhere"
            )
        self._files = [folder / one["filename"] for one in _read(folder / STATE, "_data_files")]
        if not self._files:
            raise ValueError(f"{folder}: has no samples")
        with _opened(self._files[0]) as (_, stream):
            self._columns = check_columns(self._files[0], stream.schema, columns)
        self._sizes = [file.stat().st_size for file in self._files]
        self.metadata: Mapping[bytes, bytes] = {}
        self.total, self.unit = sum(self._sizes) >> 20, "MiB"
        self.facts: Mapping[str, str] = {
            **states_of([*self._files, folder / STATE]),
            "columns": " ".join(self._columns),
        }

    @staticmethod
    def describes(folder: Path) -> bool:
        """Return whether a folder holds a saved data set, or several."""
        return _read(folder / STATE, "_data_files") is not None or (folder / SPLITS).is_file()

    def batches(self, first: int) -> Iterator[Batch]:
        """Iterate over the rows from number ``first`` on; see ``Source``."""
        done = before = 0
        for file, size in zip(self._files, self._sizes, strict=True):
            row = 0
            with _opened(file) as (raw, stream):
                for part in stream:
                    rows = rows_at_once(part.nbytes, part.num_rows)
                    for start in range(max(0, first - done), part.num_rows, rows):
                        run = part.slice(start, rows)
                        samples = samples_of(file, row + start, run, self._columns)
                        yield Batch(samples, before + raw.seek(0, os.SEEK_CUR) >> 20)
                    row, done = row + part.num_rows, done + part.num_rows
                if raw.read(1) or raw.read_at(len(END), size - len(END)) != END:
                    raise Error(f"{file}: has no end, or more behind it: it is cut, or damaged")
            before += size


def _read(file: Path, name: str, default: Any = None) -> Any:
    """Return a field of a JSON file; the default: it is not there."""
    try:
        return json.loads(file.read_bytes()).get(name, default)
    except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError):
        return default


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, Any]]:
    """Open a file, and the stream in it.

    Raises:
        Error: it is damaged.
    """
    pyarrow = arrow("ipc")
    with pyarrow.OSFile(str(file)) as raw:  # not mapped: a file that is cut would end the process
        try:
            yield raw, pyarrow.ipc.open_stream(raw)
        except (pyarrow.ArrowException, OSError) as error:
            raise Error(f"{file}: {error}") from error
