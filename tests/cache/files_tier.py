"""A third tier, with all that a new tier needs: each grain in a file of its own, in a folder."""

from __future__ import annotations

import ctypes
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from lmdbio import _core
from lmdbio.cache import CacheFile, CacheLimits, TierReads, TierWrite
from lmdbio.cache.grains import GrainMap
from lmdbio.cache.table import GrainTable
from lmdbio.cache.tier import Take


class Done:
    """Reads that had ended when they began."""

    def poll(self, timeout_ms: int = 0) -> bool:
        return True

    def left(self) -> float:
        return 0.0

    def close(self) -> None:
        """Nothing is under way."""


class FilesTier:
    """Grains in files that begin with their checksums."""

    is_away = False

    def __init__(self, folder: Path, grains: GrainMap, places: range, limits: CacheLimits) -> None:
        self._folder, self._grains, self.places, self.limits = folder, grains, places, limits
        self.is_over = self.is_full = False
        self.damaged_pages = 0

    def _path(self, grain: int) -> Path:
        return self._folder / f"grain-{self._grains.begins[grain]}"

    @property
    def kept_bytes(self) -> int:
        return sum(path.stat().st_size - 4 for path in self._folder.glob("grain-*"))

    def left(self) -> Any:
        return np.array([self._path(grain).exists() for grain in self.places], np.bool_)

    def _bytes(self, grain: int) -> bytes | None:
        """Return the bytes of a grain; None: they are damaged."""
        raw = self._path(grain).read_bytes()
        if zlib.crc32(raw[4:]) == int.from_bytes(raw[:4], "little"):
            return raw[4:]
        self.damaged_pages += 1
        return None

    def _reads(self, addresses: Any, parts: list[list[tuple[int, slice]]]) -> TierReads:
        """Return reads of parts of grains, one behind the other, to each address."""
        found = [[(self._bytes(grain), grain, part) for grain, part in one] for one in parts]
        wrong = [any(content is None for content, _, _ in one) for one in found]
        damaged = sorted({g for one in found for content, g, _ in one if content is None})

        def begin() -> Done:
            for address, one, is_wrong in zip(addresses.tolist(), found, wrong, strict=True):
                content = b"".join(b"" if is_wrong else whole[part] for whole, _, part in one)
                ctypes.memmove(int(address), content, len(content))
            return Done()

        judged = np.array(wrong, np.bool_), np.array(damaged, np.int64)
        return TierReads(self, addresses.astype(np.uint64), begin, lambda _: judged)

    def read(self, grains: Any, addresses: Any, memory: _core.Memory) -> TierReads:
        return self._reads(addresses, [[(grain, slice(None))] for grain in grains.tolist()])

    def room_for(self, extents: Any) -> int:
        return int(extents["length"].sum())

    def read_rows(self, extents: Any, take: Take) -> TierReads:
        _, address = take(self.room_for(extents))
        ends = np.cumsum(extents["length"])
        parts = []
        for offset, length in zip(
            *(extents[name].tolist() for name in ("offset", "length")), strict=True
        ):
            begins, size = self._grains.begins, self._grains.size
            first = int(np.searchsorted(begins, offset, side="right")) - 1
            last = int(np.searchsorted(begins, offset + length - 1, side="right")) - 1
            parts.append(
                [
                    (
                        grain,
                        slice(
                            max(0, offset - begins[grain]),
                            min(size, offset + length - begins[grain]),
                        ),
                    )
                    for grain in range(first, last + 1)
                ]
            )
        return self._reads(ends - extents["length"] + np.uint64(address), parts)

    def write(self, grains: Any, addresses: Any, memory: _core.Memory) -> list[TierWrite]:
        for grain, address in zip(grains.tolist(), addresses.tolist(), strict=True):
            begin = int(self._grains.begins[grain])
            size = min(self._grains.size, self._grains.limit - begin)
            raw = ctypes.string_at(address, size)
            self._path(grain).write_bytes(zlib.crc32(raw).to_bytes(4, "little") + raw)
        return [TierWrite.ended(grains, has_written=True)]

    def note_failure(self, error: object) -> None:
        self.is_over = self.is_full = True

    was_stuck = False

    def note_stuck(self) -> None:
        """Nobody is asked: it always answers."""

    def close(self) -> None:
        """Nothing is open."""


def on_files(file: CacheFile, *, limits: CacheLimits, is_direct: bool = False) -> Any:
    """Open the tier in the folder of a cache file, which is not needed."""

    def open_tier(table: GrainTable) -> FilesTier:
        file.close()
        return FilesTier(Path(file.path).parent, table.map, table.tiers.disk, limits)

    return open_tier
