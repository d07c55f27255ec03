"""lmdbio: reads LMDB data sets at the storage's own speed, from a laptop to many MPI ranks.

``open`` replaces ``lmdb.open``; ``Records`` gives values by index; ``Reader`` gives every rank
its share of each batch. Importing starts no MPI.

py-lmdb's exceptions are found here under their own names, so that ``import lmdbio as lmdb``
serves a program that reads.
"""

from __future__ import annotations

import lmdb as _lmdb

from lmdbio.batch import Batch
from lmdbio.env import Cursor, Environment, Transaction, open
from lmdbio.errors import Error, PeerError, ProvenanceError, ShortReadError, StaleError
from lmdbio.mode import Mode
from lmdbio.reader import Reader
from lmdbio.records import Records
from lmdbio.stats import Stats
from lmdbio.tracing import trace

__all__ = [
    "Batch",
    "Cursor",
    "Environment",
    "Error",
    "Mode",
    "PeerError",
    "ProvenanceError",
    "Reader",
    "Records",
    "ShortReadError",
    "StaleError",
    "Stats",
    "Transaction",
    "open",
    "trace",
    "version",
]

__version__ = "0.1.0"

version = _lmdb.version
for _name in dir(_lmdb):
    if _name.endswith("Error") and _name not in globals():
        globals()[_name] = getattr(_lmdb, _name)
        __all__ += [_name]
del _name
