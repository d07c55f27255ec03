"""lmdbio: reads LMDB data sets at the storage's own speed, from a laptop to many MPI ranks.

``open`` replaces ``lmdb.open``; ``Records`` gives values by index; ``Reader`` gives every rank
its share of each batch. Importing starts no MPI.

All of py-lmdb's names are here: its exceptions are the same objects, its classes have their
counterparts (lmdbio/counterpart.py), and what is opened for writing is py-lmdb's own. So
``import lmdbio as lmdb`` serves a program that was written for py-lmdb, and
``sys.modules["lmdb"] = lmdbio``, before it is imported, one that cannot be changed.
"""

from __future__ import annotations

from lmdbio.batch import Batch
from lmdbio.env import Cursor, Environment, Transaction, _Database, open
from lmdbio.errors import Error, PeerError, ProvenanceError, ShortReadError, StaleError
from lmdbio.joined import JoinedRecords
from lmdbio.mode import Mode
from lmdbio.pylmdb import lmdb as _lmdb
from lmdbio.reader import Reader
from lmdbio.records import Records
from lmdbio.stats import Stats
from lmdbio.tracing import trace

__all__ = [
    "Batch",
    "Cursor",
    "Environment",
    "Error",
    "JoinedRecords",
    "Mode",
    "PeerError",
    "ProvenanceError",
    "Reader",
    "Records",
    "ShortReadError",
    "StaleError",
    "Stats",
    "Transaction",
    "_Database",
    "enable_drop_gil",
    "open",
    "trace",
    "version",
]

__version__ = "0.1.0"

enable_drop_gil, version = _lmdb.enable_drop_gil, _lmdb.version
for _name in dir(_lmdb):
    if _name.endswith("Error") and _name not in globals():
        globals()[_name] = getattr(_lmdb, _name)
        __all__ += [_name]
del _name
