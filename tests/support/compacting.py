"""Helpers of the tests of compacting copies: a source that is worth it, and looks at files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lmdb

from lmdbio import _core
from tests.support.databases import open_writable, records, value, write

MAIN = "from lmdbio.cli import main; main()"


def meta_of(path: Path) -> _core.Meta:
    with _core.Engine(path / "data.mdb" if path.is_dir() else path) as engine:
        return _core.read_meta(engine)


def everything(path: Path) -> dict[bytes | None, Any]:
    """All databases with their flags and records, as py-lmdb reads them."""
    options = {"subdir": path.is_dir(), "readonly": True, "lock": False, "max_dbs": 8}
    with lmdb.open(str(path), **options) as env:
        names: list[bytes | None] = [None, *env.dbs()]
        found: dict[bytes | None, Any] = {}
        for name in names:
            db = env.open_db(name, create=False)
            with env.begin(db=db) as txn:
                # The main database's values are roots of the others, which do move.
                values = [item for item in txn.cursor() if item[0].rstrip(b"\0") not in names]
                with_flags = {k: v for k, v in db.flags(txn).items() if k != "create"}
                found[name] = with_flags, values
        return found


def left_in(folder: Path) -> list[str]:
    """Drafts that somebody left."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".lmdbio")]


def state(path: Path) -> dict[str, tuple[int, int, int]]:
    """Return what a write to a folder or file changes; a lock file has readers' slots."""
    files = [path, *path.iterdir()] if path.is_dir() else [path]
    files = [each for each in files if each.name != "lock.mdb"]
    return {
        str(each): (each.lstat().st_mtime_ns, each.lstat().st_size, each.lstat().st_ino)
        for each in files
    }


def fragmented(path: Path, version: int = 1, count: int = 1200, **options: Any) -> Path:
    """Records put in random order, of which a third was deleted and others grew."""
    chance = random.Random(7)
    made = records(count, lambda i: 200 + i * 37 % 5000)
    chance.shuffle(made)
    with open_writable(path, version, **options) as env:
        write(env, made)
        for _ in range(4):
            with env.begin(write=True) as txn:
                for key, _data in chance.sample(made, count // 12):
                    txn.delete(key)
                for key, _data in chance.sample(made, count // 24):
                    txn.put(key, value(key, chance.randrange(9000)))
    return path
