"""Samples in Parquet files, such as Hugging Face's: a column of values, and one of labels.

    image: {bytes, path} or binary, label: a number or text     -> pairs

pyarrow reads: ``pip install 'lmdbio[parquet]'``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmdbio.errors import Error, MissingExtraError
from lmdbio.ingest.reading import BATCH_BYTES, BATCH_SAMPLES_MAX
from lmdbio.ingest.sources import Batch, Sample, states_of

__all__ = [
    "ENDINGS",
    "Tables",
    "arrow",
    "check_columns",
    "rows_at_once",
    "samples_of",
    "usual_columns",
]

ENDINGS = (".parquet",)
#: Bytes of a column that are read at once.
BUFFER_BYTES = 1 << 20
#: Columns that are labels, if nobody names any; the first of them that is there.
LABELS = ("label", "labels", "cls", "class", "fine_label", "text", "caption")


#: Words in the type of a column that holds bytes.
BYTES = ("binary", "bytes", "jpeg", "png")


def arrow(part: str) -> Any:
    """Return pyarrow, with a part of it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        importlib.import_module(f"pyarrow.{part}")
    except ModuleNotFoundError:
        name = "lmdbio import of Parquet and Arrow files"
        raise MissingExtraError(name, "pyarrow", "pyarrow", "parquet") from None
    return importlib.import_module("pyarrow")


class Tables:
    """Files of one table, one after the other; see ``Source``.

    Args:
        files: paths of the files.
        columns: names of the columns that are the value and the label of a sample; empty: the
            first column of bytes, and one of ``LABELS`` if there is one.

    Raises:
        MissingExtraError: there is no pyarrow.
        ValueError: a column is not there, or none has bytes.
        Error, OSError: a file cannot be read.
    """

    def __init__(self, files: Sequence[Path], columns: Sequence[str]) -> None:
        self._files, self._columns = files, tuple(columns)
        self.metadata: Mapping[bytes, bytes] = {}
        self.total, self.unit = 0, "samples"
        for file in files:
            table = self._open(file)
            self._columns = check_columns(file, table.schema_arrow, self._columns)
            self.total += table.metadata.num_rows
        self.facts: Mapping[str, str] = {
            **states_of(files),
            "columns": " ".join(self._columns),
        }

    @staticmethod
    def _open(file: Path) -> Any:
        parquet = arrow("parquet").parquet
        try:
            # A row group may be as large as the file, and is not read beforehand. It is not mapped
            # either: who cut the file meanwhile would end this process.
            return parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES)
        except OSError:
            raise
        except Exception as error:  # pyarrow's own, of what is no Parquet file
            raise Error(f"{file}: {error}") from error

    def batches(self, first: int) -> Iterator[Batch]:
        """Iterate over the rows from number ``first`` on; see ``Source``."""
        done = 0
        for file in self._files:
            table, before = self._open(file), done
            for number in range(table.num_row_groups):
                group = table.metadata.row_group(number)
                if done + group.num_rows <= first:
                    done += group.num_rows
                    continue
                rows = rows_at_once(group.total_byte_size, group.num_rows)
                for part in table.iter_batches(rows, [number], list(self._columns)):
                    samples = samples_of(file, done - before, part, self._columns)
                    yield Batch(samples[max(0, first - done) :], done + len(samples))
                    done += len(samples)


def rows_at_once(size: int, rows: int) -> int:
    """Return how many rows make a batch, of some that have so many bytes."""
    return min(BATCH_SAMPLES_MAX, max(1, BATCH_BYTES * rows // max(1, size)))


def samples_of(file: Path, first: int, part: Any, columns: Sequence[str]) -> list[Sample]:
    """Return rows as samples.

    Args:
        file: path of their file, for messages.
        first: number of the first row in the file.
        part: the rows, a RecordBatch.
        columns: names of the columns.

    Raises:
        ValueError: a row lacks a value.
    """
    values = [
        [_as_value(file, name, first + at, value) for at, value in enumerate(column)]
        for name in columns
        for column in [part.column(part.schema.names.index(name)).to_pylist()]
    ]
    return list(zip(*values, strict=True))


def check_columns(file: Path, schema: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are asked for, or the usual ones of a schema.

    Raises:
        ValueError: one is not there; or none holds bytes.
    """
    kinds = {field.name: str(field.type) for field in schema}
    found = tuple(columns) or usual_columns(file, kinds)
    missing = next((name for name in found if name not in kinds), None)
    if missing is not None:
        raise ValueError(f"{file}: has no column {missing!r}, but {', '.join(kinds)}")
    return found


def usual_columns(file: Path, kinds: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that hold bytes, and labels.

    Args:
        file: path of their file, for messages.
        kinds: type of each column, by its name.

    Raises:
        ValueError: none holds bytes.
    """
    bytes_of = [name for name, kind in kinds.items() if any(word in kind for word in BYTES)]
    if not bytes_of:
        raise ValueError(
            f"{file}: no column holds bytes, of {', '.join(kinds)}: name its value, and its "
            "label, by --column"
        )
    return bytes_of[0], *[one for one in LABELS if one in kinds][:1]


def _as_value(file: Path, column: str, row: int, value: Any) -> bytes:
    """Return a value as bytes.

    Raises:
        ValueError: it has none.
    """
    if isinstance(value, dict):
        value = value.get("bytes")
    if isinstance(value, str | int):
        return str(value).encode()
    if not isinstance(value, bytes):
        kind = "is empty" if value is None else f"is of type {type(value).__name__}"
        raise ValueError(
            f"{file}: {column!r} of row {row} {kind}: bytes, text and whole numbers are imported"
        )
    return value
