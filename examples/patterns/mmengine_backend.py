"""MMEngine's storage backend over lmdbio: the name of a file is a key.

    dict(type="LoadImageFromFile", backend_args=dict(backend="lmdbio", db_path="train_lmdb"))

MMEngine's own ``LmdbBackend`` opens its environment when it is first asked, as py-lmdb wants it.
This one can be opened before workers are forked, and pickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdbio

try:
    from mmengine.fileio import BaseStorageBackend, register_backend
except ImportError:  # shown, and tested, without it
    BaseStorageBackend = object

    def register_backend(name: str, backend: type) -> None:
        del name, backend


__all__ = ["LmdbioBackend"]


class LmdbioBackend(BaseStorageBackend):
    """Values of one environment.

    Args:
        db_path: of the environment.
        options: of ``lmdbio.open``, as ``engine="direct"``.
    """

    def __init__(self, db_path: str | Path, **options: Any) -> None:
        self.db_path = str(db_path)
        self._env = lmdbio.open(self.db_path, readonly=True, lock=False, **options)

    def get(self, filepath: str | Path) -> bytes:
        """The value under a key.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._env.begin() as txn:
            value: bytes | None = txn.get(str(filepath).encode())
        if value is None:
            raise FileNotFoundError(f"{self.db_path}: no key {str(filepath)!r}")
        return value

    def get_text(self, filepath: str | Path, encoding: str = "utf-8") -> str:
        return self.get(filepath).decode(encoding)


register_backend("lmdbio", LmdbioBackend)
