"""lock_file: the reader slots of a data file's lock file, as one environment comes by them."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from lmdbio import _core
from lmdbio.dropin.arguments import LmdbKeywords
from lmdbio.pylmdb import reader_slots
from lmdbio.system.log import tell

__all__ = ["LockFile"]


class LockFile:
    """The lock file beside a data file.

    Threads may share it: each gives back what it has acquired, or leaves it to ``release``.

    Attributes:
        wanted: ``lock=True``, and no parent of this process has the file open.
        slots: None: none could be had, or were asked for.

    Args:
        path: of the environment, as the caller gave it.
        keywords: of ``lmdb.open``.
    """

    __slots__ = ("_acquired", "_options", "_path", "slots", "wanted")

    def __init__(self, path: str, keywords: LmdbKeywords) -> None:
        self._path, self.wanted = path, bool(keywords.lock)
        self._options: dict[str, Any] = {
            "subdir": keywords.subdir,
            "max_readers": keywords.max_readers,
        }
        self.slots: reader_slots.Slots | None = None
        self._acquired: list[reader_slots.Slots] = []  # to be given back

    def acquire(self, engine: _core.Engine) -> reader_slots.Slots | None:
        """Get at the slots; return None where there are none to be had.

        Args:
            engine: of the data file.
        """
        status = os.fstat(engine.fd)
        key = status.st_dev, status.st_ino
        slots, why = reader_slots.acquire(self._path, key, **self._options)
        if slots is None:
            self.tell_unheld(why)
        else:
            self._acquired.append(slots)
        self.slots = self.slots or slots  # those of a parent tell who reads
        self.wanted = not reader_slots.are_inherited(key)
        return slots

    def release(self) -> None:
        """Give the slots back. May be called twice, and by the garbage collector."""
        self.slots = None
        with suppress(IndexError):
            while True:
                self._acquired.pop().release()

    def tell_unheld(self, why: str) -> None:
        """Tell who listens that no slot is held."""
        tell(
            f"{self._path}: no reader slot holds what is read, for {why}: reads look whether a "
            "writer came between, and refuse what it may have overwritten"
        )
