"""unwritten: environments that were opened for writing, and to which nothing was written.

py-lmdb's default is ``readonly=False``, and then py-lmdb itself reads. A program that only reads
gains nothing from lmdbio so, and nothing tells it. So each path gets one warning when the process
ends, for only then is it known that nothing was written:

    open   the data file (device, inode), its newest transaction, and the line of the program
    end    the same file, the same transaction, and records in it  ->  NotReadonlyWarning

Nothing is held of the environment, which is py-lmdb's own. A program that creates a database,
writes to it, or removes it, gets no warning; nor does one beside which another program wrote.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from lmdbio import _core
from lmdbio.dropin.arguments import LmdbKeywords
from lmdbio.errors import Error, NotReadonlyWarning
from lmdbio.machine.choice import rate_text
from lmdbio.reading.engines import find_calibration
from lmdbio.system.process import at_end, is_first
from lmdbio.system.warn import Place, caller, warn_of

__all__ = ["Opened", "gain_of", "leave", "measured", "note", "take"]

#: Paths that are remembered at most, and named in one warning.
PATHS_MAX, NAMED_MAX = 4096, 3
#: Measured: docs/benchmarks/results.md, docs/guides/lmdb.md.
GAIN = (
    "in order, lmdbio was measured at 1.5 to 3 times py-lmdb's rate where the page cache had "
    "nothing of the file (disks of two machines); where it has all of it, gets gain nothing"
)


class Opened(NamedTuple):
    """An environment, as it was when this process first opened it for writing.

    Attributes:
        path: path as the program gave it.
        file: the data file, absolute.
        inode: device and number of the file.
        txnid: the newest transaction.
        place: the line that opened it.
        pid: number of the process.
    """

    path: str
    file: str
    inode: tuple[int, int]
    txnid: int
    place: Place
    pid: int

    def is_as_it_was(self) -> bool:
        """Return whether the file is there, with records, and nothing was committed since."""
        try:
            with _core.Engine(self.file) as engine:
                status, meta = os.fstat(engine.fd), _core.read_meta(engine)
        except (OSError, Error):
            return False
        is_same = (status.st_dev, status.st_ino) == self.inode and meta.txnid == self.txnid
        return is_same and meta.main_db.entries > 0


#: By path as it was given: a program may open one for each record.
_noted: dict[Any, Opened] = {}
#: The process that has asked to be called at its end.
_pid = 0
#: Somebody else reports them.
_is_left = False


def note(path: str | bytes, environment: Any, keywords: LmdbKeywords) -> None:
    """Note that py-lmdb's environment has just been opened for writing, the first time alone.

    Args:
        path: path as the program gave it.
        environment: environment of py-lmdb.
        keywords: keywords that it was opened with.
    """
    if path not in _noted and len(_noted) < PATHS_MAX:
        _note(path, environment, keywords)


def _note(path: str | bytes, environment: Any, keywords: LmdbKeywords) -> None:
    global _pid
    file = Path(keywords.data_file(os.fsdecode(path))).absolute()
    try:
        status = file.stat()
    except OSError:  # it has gone already
        return
    inode, txnid = (status.st_dev, status.st_ino), int(environment.info()["last_txnid"])
    _noted[path] = Opened(os.fsdecode(path), str(file), inode, txnid, caller(), os.getpid())
    if _pid != os.getpid():
        _pid = os.getpid()
        at_end(_warn)


def leave() -> None:
    """Warn of none, here and in processes forked from here: the caller takes and reports them."""
    global _is_left
    _is_left = True


def take() -> list[Opened]:
    """Return all that this process has noted; of these, it warns no more."""
    mine = [one for one in _noted.values() if one.pid == os.getpid()]
    for path in [path for path, one in _noted.items() if one.pid == os.getpid()]:
        del _noted[path]
    return mine


def _warn() -> None:
    """Warn of each line that opened what was not written to then."""
    found: dict[Place, list[Opened]] = {}
    for one in () if _is_left else take():
        if one.is_as_it_was() and is_first(one.file):
            found.setdefault(one.place, []).append(one)
    for place, opened in found.items():
        warn_of(place, _text(opened), NotReadonlyWarning)


def _text(opened: list[Opened]) -> str:
    names = ", ".join(one.path for one in opened[:NAMED_MAX])
    more = f" and {len(opened) - NAMED_MAX:,} more" if len(opened) > NAMED_MAX else ""
    return (
        f"{names}{more}: opened for writing (readonly=False is the default), and nothing was "
        "written: py-lmdb read, not lmdbio. Where the program begins no write transaction, "
        f"readonly=True lets lmdbio read: {gain_of(opened[0].file)}"
    )


def gain_of(file: str) -> str:
    """Return what is known of the gain where lmdbio reads: in general, and of its storage."""
    rates = measured(file)
    return f"{GAIN}; {rates}" if rates else GAIN


def measured(file: str) -> str:
    """Return what ``lmdbio tune`` has measured of a file's storage; "": nothing."""
    try:
        with _core.Engine(file) as engine:
            stored = find_calibration(engine)
    except (OSError, Error, RuntimeError):
        return ""
    if stored is None or stored.calibration is None:
        return ""
    samples = [one for one in stored.calibration.samples if one.pattern == "random"]
    size = max((one.request_bytes for one in samples if one.depth == 1), default=0)
    alike = [one for one in samples if one.request_bytes == size]
    best = max(alike, key=lambda one: one.rate, default=None)
    if best is None or best.depth == 1:
        return ""
    alone = max((one for one in alike if one.depth == 1), key=lambda one: one.rate)
    return (
        f"lmdbio tune measured {rate_text(alone)} on its storage by one request of {size:,} bytes "
        f"at a time, and {rate_text(best)} by {best.depth}"
    )
