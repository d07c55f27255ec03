"""Helpers of the tests of environments that collect: opening, writing, and what must be left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lmdbio
from lmdbio.convert.verify import verify
from tests.support import databases

every_format = pytest.mark.parametrize("version", databases.FORMATS)


def open_collecting(path: Path, version: int = 1, **kwargs: Any) -> Any:
    kwargs.setdefault("provenance", True)
    kwargs.setdefault("map_size", 1 << 26)
    kwargs.setdefault("max_dbs", 8)
    kwargs.setdefault("lib_version", {1: 0, 3: 1}[version])
    return lmdbio.open(str(path), **kwargs)


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def put(env: Any, start: int, stop: int, length: int = 3000, db: Any = None) -> None:
    """Commits records ``start`` to ``stop``."""
    with env.begin(write=True) as txn:
        for i in range(start, stop):
            txn.put(b"%08d" % i, databases.value(i, length), db=db)


def sidecar_of(path: Path) -> Path:
    return path / "data.mdb.prov"


def assert_described(path: Path, sidecar: Path | None = None, db: bytes | None = None) -> None:
    """The provenance file is sound, of this state, used, and leads to the right bytes."""
    found = sidecar or sidecar_of(path)
    assert verify(path, found).sidecar_records > 0
    with lmdbio.Records(path, db=db, locate="provenance", provenance=found) as records:
        assert list(records) == [value for _, value in databases.content(path, db)]


def assert_kept(path: Path, count: int) -> None:
    """All records are there, for py-lmdb and for us, whatever became of the provenance file."""
    assert [key for key, _ in databases.content(path)] == [b"%08d" % i for i in range(count)]
    with lmdbio.Records(path, locate="scan") as records:
        assert list(records) == [databases.value(i, 3000) for i in range(count)]
