"""Keeps the pages of a snapshot from being overwritten: reader slots, through py-lmdb.

A writer reuses the pages of snapshot S from transaction S + 3 on, unless a reader slot in the
lock file says that S is still read. Slots are taken by py-lmdb itself, so that its rules hold
for both. The facts to know of it:

* Closing *any* descriptor of the lock file drops the process's fcntl lock on it; hence this
  module never opens the lock file itself.
* py-lmdb refuses to open a file twice in one process, so all of ours share one environment per
  file (``Slots``), open while any of our environments on it is. Before its version 2.0 it did not
  refuse: what this process has open in py-lmdb itself would lose its locks, so no slot is taken.
* A transaction holds a slot until nothing refers to it; ``abort()`` alone keeps the slot for
  another one. With ``max_spare_txns`` an environment keeps one besides; ours keeps none.
* In a child a slot of an inherited environment is taken in the parent's name, ends with the
  parent (``reader_check``), and is never given back by py-lmdb. To end an inherited transaction,
  or to close its environment, clears the parent's slots. Hence a child takes none, and keeps what
  it inherited until it exits.

The file is parsed (``_core.read_meta``) before py-lmdb sees it: it dies by SIGBUS on a file
that is cut inside its meta pages.

An environment is open as long as an object holds its ``Slots``, and nothing else is written down:
an owner that dies, is collected or is interrupted in the middle of anything gives it back.
"""

from __future__ import annotations

import errno
import os
import sys

from lmdbio.system import pylmdb
from lmdbio.system.slim import RLock, partial, ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Slots", "acquire", "are_inherited", "guard", "keep_inherited", "refuses_twice"]

#: Refusals that mean "no lock file can be had here", where py-lmdb would give up.
_NO_LOCK_FILE = {
    errno.EACCES,
    errno.EROFS,
    errno.EPERM,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.ENOLCK,
}

#: Bytes that py-lmdb may map: address space alone, and what its users commonly ask for. When the
#: file has outgrown it, no slot can be had. Less than 64 bits of it allow only the default.
MAP_BYTES = 1 << 40 if sys.maxsize > 1 << 32 else 10485760

#: Held by a thread that opens an environment, or closes one on purpose: the next thread finds it
#: open, or closed. A signal's handler or the garbage collector may come back here in the middle.
guard = RLock()
_shared: dict[tuple[int, int], ref[Slots]] = {}
#: Slots and transactions inherited through fork: neither ended nor collected.
_inherited: list[Any] = []


def _after_fork() -> None:
    global guard
    guard = RLock()
    _inherited.extend(slots for known in _shared.values() if (slots := known()) is not None)


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_after_fork)


class Slots:
    """One py-lmdb environment, for the reader slots of one file; closed when nobody holds this.

    A slot is a read transaction of it, held as long as that lives.

    Attributes:
        env: the environment: for what only the lock file knows.
        take: method ``begin`` of the environment, for C.
    """

    __slots__ = ("__weakref__", "_pid", "env", "take")

    def __init__(self, env: Any) -> None:
        self.env, self.take = env, env.begin
        self._pid = os.getpid()

    @property
    def inherited(self) -> bool:
        """Whether the parent of this process opened it."""
        return self._pid != os.getpid()

    def begin(self) -> Any:
        """Takes a slot on the newest snapshot.

        Raises:
            lmdb.ReadersFullError: all slots are taken.
            lmdb.MapResizedError: the file has outgrown ``MAP_BYTES``.
        """
        return self.take()


def _find(key: tuple[int, int]) -> Slots | None:
    known = _shared.get(key)
    return None if known is None else known()


def refuses_twice() -> bool:
    """Return whether py-lmdb refuses to open a file twice in one process."""
    return int(pylmdb.lmdb.__version__.partition(".")[0]) >= 2


def acquire(path: str, key: tuple[int, int], **options: Any) -> tuple[Slots | None, str]:
    """The slots of the file with ``key`` = (device, inode), for as long as they are held.

    Args:
        path: path of the environment.
        key: key of the data file, which the caller has found sound.
        options: keywords of ``lmdb.open``, for when it is not yet open.

    Returns:
        They, and "". None, and why, where there are none to be had: the file system knows no
        lock files, or the process, or the parent that it was forked from, has the file open in
        py-lmdb itself.
    """
    if not refuses_twice():
        return None, (
            f"py-lmdb {pylmdb.lmdb.__version__} would drop the locks of whoever else has it open "
            "in this process (2.0 and later would not)"
        )
    with guard:
        slots = _find(key)
        if slots is None:
            env, why = _open(path, **options)
            if env is None:
                return None, why
            slots = Slots(env)
            # By no line of Python, in which a signal's exception would be lost: pop takes the dead
            # reference for what to return where there is no such key.
            _shared[key] = ref(slots, partial(_shared.pop, key))
    if slots.inherited:
        return None, "the process that this one was forked from has it open"
    return slots, ""


def are_inherited(key: tuple[int, int]) -> bool:
    """Whether the slots of this file, as of ``acquire``, are a parent's: no child gets any."""
    slots = _find(key)
    return slots is not None and slots.inherited


def keep_inherited(slot: Any) -> None:
    """Leaves a slot to the parent of this process, which holds it."""
    _inherited.append(slot)


def _open(path: str, *, map_bytes: int = MAP_BYTES, **options: Any) -> tuple[Any, str]:
    """Return py-lmdb's environment, and ""; None, and why, where it cannot lock."""
    options.update(readonly=True, lock=True, create=False, readahead=False, max_spare_txns=0)
    try:
        return pylmdb.lmdb.open(os.fsencode(path), map_size=map_bytes, **options), ""
    except (pylmdb.lmdb.Error, MemoryError) as error:
        if isinstance(error, MemoryError) or getattr(error, "code", 0) == errno.ENOMEM:
            if map_bytes != 1:
                return _open(path, map_bytes=1, **options)
            return None, "py-lmdb finds no address space to map it (ulimit -v)"
        if getattr(error, "code", 0) in _NO_LOCK_FILE:
            return None, f"no lock file can be had ({getattr(error, 'reason', error)})"
        if "already open in this process" in str(error):
            return None, "this process has it open in py-lmdb itself"
        raise
