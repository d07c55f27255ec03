"""lmdbio: reads LMDB data sets at the storage's own speed, from a laptop to many MPI ranks.

``open`` replaces ``lmdb.open``; ``Records`` gives values by index; ``Reader`` gives every rank
its share of each batch. Importing starts no MPI.
"""

from __future__ import annotations

from lmdbio.batch import Batch
from lmdbio.errors import Error, PeerError, ProvenanceError, ShortReadError, StaleError
from lmdbio.mode import Mode
from lmdbio.reader import Reader
from lmdbio.records import Records

__all__ = [
    "Batch",
    "Error",
    "Mode",
    "PeerError",
    "ProvenanceError",
    "Reader",
    "Records",
    "ShortReadError",
    "StaleError",
]

__version__ = "0.1.0"
