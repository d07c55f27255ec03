"""aio: py-lmdb's asyncio wrappers (``lmdb.aio``), over either package's environments.

py-lmdb's module calls the methods of the classes that it was loaded beside. So it is loaded once
beside py-lmdb's and once beside lmdbio's, and what an environment is of decides.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from lmdbio.system.pylmdb import Counterpart, lmdb

__all__ = ["AsyncCursor", "AsyncEnvironment", "AsyncTransaction", "wrap"]


def _beside(package: str) -> ModuleType:
    """py-lmdb's module, whose relative imports lead to ``package``."""
    path = Path(lmdb.__file__).with_name("aio.py")
    spec = importlib.util.spec_from_file_location(f"{package}._py_lmdb_aio", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.modules.setdefault("lmdbio._py_lmdb", lmdb)  # under a name that stays its own
_theirs, _ours = _beside("lmdbio._py_lmdb"), _beside("lmdbio")


for _name in ("AsyncEnvironment", "AsyncTransaction", "AsyncCursor"):
    getattr(_ours, _name)._stands_for = getattr(_theirs, _name)


class AsyncEnvironment(metaclass=Counterpart, of=_theirs.AsyncEnvironment):
    """An asynchronous environment, which ``wrap`` gives for an environment of either package."""

    def __new__(cls, env: Any, executor: Any = None) -> Any:
        """Return what ``wrap`` returns."""
        return wrap(env, executor)


class AsyncTransaction(metaclass=Counterpart, of=_theirs.AsyncTransaction):
    """A transaction whose calls are awaited."""


class AsyncCursor(metaclass=Counterpart, of=_theirs.AsyncCursor):
    """A cursor whose calls are awaited."""


def wrap(env: Any, executor: Any = None) -> Any:
    """An environment whose calls are awaited, and run in ``executor`` (None: the loop's own)."""
    module = _theirs if isinstance(env, lmdb.Environment) else _ours
    return module.wrap(env, executor)
