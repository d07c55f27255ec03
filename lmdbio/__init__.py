"""lmdbio: reads LMDB data sets at the storage's own speed, from a laptop to many MPI ranks.

``open`` replaces ``lmdb.open``; ``Records`` gives values by index; ``Reader`` gives every rank
its share of each batch; ``Writer`` makes a data set. Importing starts no MPI.

All of py-lmdb's names are here: its exceptions are the same objects, its classes have their
counterparts (lmdbio/system/pylmdb.py), and what is opened for writing is py-lmdb's own. So
``import lmdbio as lmdb`` serves a program that was written for py-lmdb, and
``sys.modules["lmdb"] = lmdbio``, before it is imported, one that cannot be changed.
"""

from lmdbio.errors import (
    Error,
    NotReadonlyWarning,
    PeerError,
    ProvenanceError,
    ShortReadError,
    StaleError,
)
from lmdbio.system import process as _process  # it makes its page of memory before any fork
from lmdbio.system.pylmdb import lmdb as _lmdb

__all__ = [
    "Batch",
    "Cache",
    "Cursor",
    "Environment",
    "Error",
    "Mix",
    "Mode",
    "NotReadonlyWarning",
    "PeerError",
    "ProvenanceError",
    "Reader",
    "Records",
    "ShortReadError",
    "Shuffle",
    "StaleError",
    "Stats",
    "Transaction",
    "Writer",
    "Zip",
    "_Database",
    "enable_drop_gil",
    "open",
    "trace",
    "version",
]

__version__ = "0.1.0"

#: Names that are loaded when they are first asked for, and where they lie: a program that imports
#: more than it uses begins sooner.
_LATER = {
    "Batch": "reading.batch",
    "Cache": "placement.cache",
    "Cursor": "dropin.cursor",
    "Environment": "dropin.environment",
    "Mix": "records.mix",
    "Mode": "planning.mode",
    "Reader": "reader.reader",
    "Records": "records.records",
    "Shuffle": "planning.shuffle",
    "Stats": "observe.stats",
    "Transaction": "dropin.transaction",
    "Writer": "ingest.writer",
    "Zip": "records.zipped",
    "_Database": "dropin.database",
    "open": "dropin.environment",
    "trace": "observe.tracing",
}


def __getattr__(name: str) -> object:
    if name in ("tool", "verify"):  # py-lmdb's own; versions before 3.0 have no verify
        try:
            return __import__(f"lmdb.{name}", fromlist=[name])
        except ImportError:
            pass
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(__import__(f"lmdbio.{_LATER[name]}", fromlist=[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


__path__ += _lmdb.__path__  # for modules of py-lmdb's that are not here
enable_drop_gil, version = _lmdb.enable_drop_gil, _lmdb.version
for _name in dir(_lmdb):
    if _name.endswith("Error") and _name not in globals():
        globals()[_name] = getattr(_lmdb, _name)
        __all__ += [_name]
del _name, _process
