"""pylmdb: py-lmdb itself, also where ``sys.modules["lmdb"]`` says lmdbio.

A program that says ``import lmdb`` after that gets lmdbio, so that rooms that are loaded late
would call themselves. This one is loaded first.
"""

from __future__ import annotations

import lmdb

__all__ = ["lmdb"]
