"""pylmdb: py-lmdb itself, also where ``sys.modules["lmdb"]`` says lmdbio.

A program that says ``import lmdb`` after that gets lmdbio, so that rooms that are loaded late
would call themselves. This one is loaded first.
"""

from __future__ import annotations

import contextlib
import importlib

import lmdb

# Its extension asks for this one when it opens a file.
with contextlib.suppress(ImportError):
    importlib.import_module("lmdb._envid")

__all__ = ["lmdb"]
