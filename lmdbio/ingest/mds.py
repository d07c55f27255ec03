"""Samples in a folder that MosaicML Streaming's ``MDSWriter`` writes.

    index.json               the shards, in order, and their columns
    shard.00000.mds          count, count + 1 offsets, the columns again, samples: all u32
    shard.00000.mds.zstd     the same, compressed

    sample:  the size of each column that has no fixed one, u32; then all columns

One shard is in memory. Source: MosaicML Streaming, "Dataset Format", and ``format/mds``.
"""

from __future__ import annotations

import bz2
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from lmdbio.errors import Error
from lmdbio.ingest.reading import BATCH_SAMPLES_MAX
from lmdbio.ingest.sources import Batch, Sample, states_of
from lmdbio.ingest.table import usual_columns
from lmdbio.system.zstd import zstd

__all__ = ["Mds"]

INDEX = "index.json"
#: Of a shard, in the index.
FIELDS = ("column_names", "column_encodings", "column_sizes", "samples", "raw_data", "zip_data")
#: Encodings whose bytes are the value as others write it, and those that are numbers.
PLAIN = ("bytes", "jpeg", "png", "str", "json", "str_int", "str_float", "str_decimal")
NUMBER = re.compile(r"u?int(8|16|32|64)?")
#: Each makes an object whose ``decompress`` gives so many bytes at most.
UNPACK: Mapping[str, Callable[[], Any]] = {
    "zstd": zstd.ZstdDecompressor,
    "gz": partial(zlib.decompressobj, 16 + zlib.MAX_WBITS),
    "bz2": bz2.BZ2Decompressor,
}


class Mds:
    """The shards of a folder; see ``Source``.

    Args:
        folder: path of the folder.
        columns: argument of ``Tables``.

    Raises:
        ValueError: a column is not there, or none has bytes; or only Streaming reads it.
        Error, OSError: a file cannot be read.
    """

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        index = folder / INDEX
        self._shards = [shard for shard in _shards(index) or () if shard["samples"]]
        if not self._shards:
            raise ValueError(f"{folder}: has no samples")
        known = self._encodings(self._shards[0])
        if any(self._encodings(shard) != known for shard in self._shards):
            raise ValueError(f"{index}: shards have different columns")
        self._columns = tuple(columns) or usual_columns(folder, known)
        for name in self._columns:
            encoding = known.get(name, "").partition(":")[0]
            if encoding not in PLAIN and not NUMBER.fullmatch(encoding):
                has = ", ".join(f"{one} ({kind})" for one, kind in known.items())
                what = f"stores {name!r} as {encoding}" if encoding else f"has no column {name!r}"
                raise ValueError(f"{folder}: {what}: name bytes, text or whole numbers, of {has}")
        self._folder = folder
        self.metadata: Mapping[bytes, bytes] = {}
        self.total, self.unit = sum(shard["samples"] for shard in self._shards), "samples"
        self.facts: Mapping[str, str] = {
            **states_of([index, *(self._file(shard)[0] for shard in self._shards)]),
            "columns": " ".join(self._columns),
        }

    @staticmethod
    def describes(folder: Path) -> bool:
        """Return whether a folder holds such shards."""
        return _shards(folder / INDEX) is not None

    @staticmethod
    def _encodings(shard: Mapping[str, Any]) -> dict[str, str]:
        return dict(zip(shard["column_names"], shard["column_encodings"], strict=True))

    def _file(self, shard: Mapping[str, Any]) -> tuple[Path, Callable[[bytes], bytes]]:
        """Return the file of a shard that is there, and the function that unpacks it."""
        raw, packed = self._folder / shard["raw_data"]["basename"], shard["zip_data"]
        if packed is None or raw.exists():
            return raw, bytes
        kind = str(shard["compression"]).partition(":")[0]
        if kind not in UNPACK:
            raise ValueError(f"{raw}: is compressed by {kind}, not {', '.join(UNPACK)}: unpack it")
        size = shard["raw_data"]["bytes"]
        return self._folder / packed["basename"], partial(_unpacked, UNPACK[kind], size)

    def batches(self, first: int) -> Iterator[Batch]:
        """Iterate over the samples from number ``first`` on; see ``Source``."""
        done = 0
        for shard in self._shards:
            skipped, done = max(0, first - done), done + shard["samples"]
            if skipped >= shard["samples"]:
                continue
            file, unpack = self._file(shard)
            content = file.read_bytes()
            try:
                samples = list(self._samples(shard, unpack(content), skipped))
            except (
                ValueError,
                EOFError,
                OSError,
                struct.error,
                zlib.error,
                zstd.ZstdError,
            ) as error:
                raise Error(f"{file}: is damaged: {error}") from error
            for start in range(0, len(samples), BATCH_SAMPLES_MAX):
                run = samples[start : start + BATCH_SAMPLES_MAX]
                yield Batch(run, done - len(samples) + start + len(run))

    def _samples(self, shard: Mapping[str, Any], content: bytes, skipped: int) -> Iterator[Sample]:
        """Yield the samples of a shard, but for the first ones.

        Raises:
            ValueError, struct.error: it is damaged.
        """
        encodings, sizes = self._encodings(shard), shard["column_sizes"]
        count, *offsets = struct.unpack_from(f"<{shard['samples'] + 2}I", content)
        if count != shard["samples"] or offsets[-1] != len(content):
            raise ValueError("it has other samples than the index says")
        head = struct.Struct(f"<{sizes.count(None)}I")
        for start, end in list(pairwise(offsets))[skipped:]:
            own, places = iter(head.unpack_from(content, start)), {}
            at = start + head.size
            for name, size in zip(encodings, sizes, strict=True):
                begin, at = at, at + (next(own) if size is None else size)
                places[name] = slice(begin, at)
            if at != end:
                raise ValueError("a sample has another size than it says")
            parts = [_as_bytes(content[places[name]], encodings[name]) for name in self._columns]
            yield cast(Sample, tuple(parts))


def _shards(index: Path) -> list[dict[str, Any]] | None:
    """Return what an index says of its shards; None: it is none of MDS.

    Raises:
        Error: it lacks something.
    """
    try:
        found = json.loads(index.read_bytes())["shards"]
        kinds = {shard["format"] for shard in found}
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    if kinds != {"mds"}:
        return None
    missing = next((name for shard in found for name in FIELDS if name not in shard), None)
    if missing:
        raise Error(f"{index}: a shard has no {missing}: the index is damaged")
    if not all(_has_size(shard["raw_data"]) for shard in found):
        raise Error(f"{index}: a shard has no size that may be: the index is damaged")
    return list(found)


def _has_size(raw: Any) -> bool:
    """Return whether an index says how many bytes a shard has, whose offsets are u32."""
    size = raw.get("bytes") if isinstance(raw, dict) else None
    return isinstance(size, int) and 0 <= size < 2**32


def _unpacked(kind: Callable[[], Any], size: int, packed: bytes) -> bytes:
    """Return the bytes of a shard, ``size`` by the index: a few packed ones may stand for many.

    Raises:
        ValueError: they are others.
    """
    found: bytes = kind().decompress(packed, size + 1)
    if len(found) != size:
        has = f"more than {size}" if len(found) > size else len(found)
        raise ValueError(f"it unpacks to {has} bytes, not {size} as the index says")
    return found


def _as_bytes(stored: bytes, encoding: str) -> bytes:
    """Return a value as others write it: numbers as text."""
    if not NUMBER.fullmatch(encoding):
        return stored
    return b"%d" % int.from_bytes(stored, "little", signed=encoding[0] != "u")
