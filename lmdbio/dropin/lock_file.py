"""lock_file: the reader slots of a data file's lock file, as one environment comes by them."""

from __future__ import annotations

import os

from lmdbio import _core
from lmdbio.dropin.arguments import LmdbKeywords
from lmdbio.errors import closed_error
from lmdbio.remote import is_url
from lmdbio.system import reader_slots
from lmdbio.system.log import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LockFile"]


class LockFile:
    """The lock file beside a data file.

    Threads may share it. Once it is released none of them acquires anything.

    Attributes:
        wanted: ``lock=True``, no parent of this process has the file open, and it is no URL.
        slots: reader slots of the file; None: none could be had, or were asked for.

    Args:
        path: path of the environment, from any folder.
        keywords: keywords of ``lmdb.open``.
    """

    __slots__ = ("_has_ended", "_options", "_path", "slots", "wanted")

    def __init__(self, path: str, keywords: LmdbKeywords) -> None:
        self._path, self._has_ended = path, False
        self.wanted = bool(keywords.lock) and not is_url(path)
        self._options: dict[str, Any] = {
            "subdir": keywords.subdir,
            "max_readers": keywords.max_readers,
        }
        self.slots: reader_slots.Slots | None = None

    def acquire(self, engine: _core.Engine) -> reader_slots.Slots | None:
        """Get at the slots; return None where there are none to be had.

        Args:
            engine: Engine of the data file.

        Raises:
            lmdb.Error: the environment is closed.
        """
        status = os.fstat(engine.fd)
        key = status.st_dev, status.st_ino
        slots, why = reader_slots.acquire(self._path, key, **self._options)
        if self._has_ended:  # perhaps meanwhile, in another thread
            slots = None  # which the exception would hold
            raise closed_error()
        if slots is None:
            self.log_unheld(why)
        self.slots = self.slots or slots  # those of a parent tell who reads
        self.wanted = not reader_slots.are_inherited(key)
        return slots

    def release(self) -> None:
        """Give the slots back. May be called twice."""
        self._has_ended = True
        with reader_slots.guard:  # the last to go closes them, before another thread opens them
            self.slots = None

    def log_unheld(self, why: str) -> None:
        """Log that no slot is held."""
        log(
            f"{self._path}: no reader slot holds what is read, for {why}: reads look whether a "
            "writer came between, and refuse what it may have overwritten"
        )
