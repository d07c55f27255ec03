"""lmdbio: reads LMDB data sets at the storage's own speed, from a laptop to many MPI ranks.

``open`` replaces ``lmdb.open``; ``Records`` gives values by index; ``Reader`` gives every rank
its share of each batch; ``Writer`` makes a data set. Importing starts no MPI.

All of py-lmdb's names are here: its exceptions are the same objects, its classes have their
counterparts (lmdbio/system/pylmdb.py), and what is opened for writing is py-lmdb's own. So
``import lmdbio as lmdb`` serves a program that was written for py-lmdb, and
``sys.modules["lmdb"] = lmdbio``, before it is imported, one that cannot be changed.
"""

from lmdbio.system import (
    process as _process,  # it makes its page of memory before any fork
    pylmdb as _pylmdb,
)

__version__ = "0.1.0"

#: Names that are loaded when they are first asked for, and where they lie: a program that imports
#: more than it uses begins sooner. Besides them there are py-lmdb's exceptions and functions.
_LATER = {
    "Batch": "reading.batch",
    "Cache": "placement.cache",
    "Cursor": "dropin.cursor",
    "Environment": "dropin.environment",
    "Mix": "records.mix",
    "Mode": "planning.mode",
    "NotReadonlyWarning": "errors",
    "PeerError": "errors",
    "ProvenanceError": "errors",
    "Reader": "reader.reader",
    "Records": "records.records",
    "ShortReadError": "errors",
    "Shuffle": "planning.shuffle",
    "StaleError": "errors",
    "Stats": "observe.stats",
    "Transaction": "dropin.transaction",
    "Writer": "ingest.writer",
    "Zip": "records.zipped",
    "_Database": "dropin.database",
    "open": "dropin.environment",
    "trace": "observe.tracing",
}


_FUNCTIONS = ("enable_drop_gil", "version")


def __getattr__(name: str) -> object:
    if name == "__all__":
        errors = (each for each in dir(_pylmdb.lmdb) if each.endswith("Error"))
        return sorted({*_LATER, *_FUNCTIONS, *errors})
    if name in ("tool", "verify"):  # py-lmdb's own; versions before 3.0 have no verify
        try:
            return __import__(f"lmdb.{name}", fromlist=[name])
        except ImportError:
            pass
    if name in _LATER:
        found = getattr(__import__(f"lmdbio.{_LATER[name]}", fromlist=[name]), name)
    elif name.endswith("Error") and (spare := _pylmdb.spare(name)) is not None:
        return spare
    elif name in _FUNCTIONS or (name.endswith("Error") and hasattr(_pylmdb.lmdb, name)):
        found = getattr(_pylmdb.lmdb, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    every = [*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))]  # type: ignore[misc]
    return sorted(every)


__path__ += _pylmdb.folders()  # for modules of py-lmdb's that are not here
del _process
