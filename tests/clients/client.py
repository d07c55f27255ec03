"""Modules of a client that do not bring all of it, and its values as text.

Used in the process of a client. A client is a module of this folder, a test as well, with

* ``DISTRIBUTION``, ``CALLS``: what must be installed, and what of py-lmdb it calls, for the table;
* ``write(path)``: makes the data set, with py-lmdb or with the client's own writer;
* ``opened(path)``: imports the client, and returns its reader;
* ``epoch(reader)``: reads all of it, as the client's users do; this is compared, and timed;
* ``odd(reader, path)``: calls at the edges by name, whose ends are compared;
* ``DIFFERS``: those of them that py-lmdb refuses, and lmdbio does, as docs/guides/lmdb.md says.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import types
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any


def bare(name: str) -> Any:
    """Import a module of a client; the packages above it are there, their ``__init__`` is not run.

    That is what imports the whole of the client, with all that it asks for; the module and
    whatever it imports itself are the released ones.
    """
    *above, _ = name.split(".")
    path = None
    for i in range(len(above)):
        package = ".".join(above[: i + 1])
        if package not in sys.modules:
            spec = PathFinder.find_spec(package, path)
            if spec is None or spec.submodule_search_locations is None:
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)
            module = types.ModuleType(package)
            module.__path__ = list(spec.submodule_search_locations)
            module.__spec__ = spec
            sys.modules[package] = module
            if i:
                setattr(sys.modules[".".join(above[:i])], above[i], module)
        path = sys.modules[package].__path__
    return importlib.import_module(name)


def absent(*names: str) -> None:
    """Let these modules be imported, empty, where they are not installed."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            module = types.ModuleType(name)
            module.__path__ = []
            sys.modules[name] = module
            above, _, last = name.rpartition(".")
            if above:
                setattr(sys.modules[above], last, module)


def plain(value: Any) -> Any:
    """Return what tells a value from another, types too; equal for values that are."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if value is None or isinstance(value, bool | int | float | complex | str):
        return kind, repr(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return kind, len(value), hashlib.sha256(value).hexdigest()
    if isinstance(value, dict):
        return kind, [(plain(key), plain(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return kind, [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(plain(one)) for one in value)
    if hasattr(value, "numpy"):  # torch
        value = value.numpy()
    if hasattr(value, "dtype"):
        return kind, str(value.dtype), value.shape, plain(value.tobytes())
    if hasattr(value, "tobytes"):  # an image
        return kind, value.mode, value.size, plain(value.tobytes())
    return kind, plain(vars(value))


def digest(value: Any) -> str:
    """Return a digest of a value, the same in every process."""
    return hashlib.sha256(repr(plain(value)).encode()).hexdigest()


def end(call: Callable[[], Any]) -> list[str]:
    """Return how a call ends: with a value, or an exception and its words.

    Not those about a keyword that is none: they are Python's in one package, C's in the other.
    """
    try:
        return ["value", digest(call())]
    except Exception as error:
        kind = type(error)
        words = "" if "keyword argument" in str(error) else str(error)
        return ["error", f"{kind.__module__}.{kind.__qualname__}", words]
