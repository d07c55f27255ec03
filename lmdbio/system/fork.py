"""fork: what a child process must make anew, since the thread that held it is not there.

``os.fork`` copies one thread. A lock that another one held stays held in the child for ever,
and what it guarded stays half changed. Objects with such a lock register here.

Python's own locks of the modules that are being loaded are such locks, too, and nobody makes them
anew: a child that loads the same module would wait for ever. We load modules when they are first
used, so a fork waits for threads that do.
"""

from __future__ import annotations

import os
import sys
from time import monotonic, sleep

from lmdbio.system.slim import get_ident, local, ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Forked(Protocol):
        """A registered object. ``_before_fork`` may be missing, and the parent's side with it."""

        def _after_fork(self) -> None:
            """In the child, before it has a second thread."""


__all__ = ["register"]

#: A fork waits for what our threads load: our modules and those of Python and NumPy; others might
#: be whole programs. It waits no longer than this, since what they load may need what we hold.
LOADED = frozenset({"lmdbio", "numpy"}) | sys.stdlib_module_names
WAIT_SECONDS_MAX, POLL_SECONDS = 10.0, 0.001

#: The dead are taken out by no line of Python, in which a signal's exception would be lost.
_alive: dict[ref[Any], None] = {}
_held = local()


def register(owner: Forked) -> None:
    """Calls ``owner._after_fork()`` in each child, as long as ``owner`` lives.

    If it has ``_before_fork()`` and ``_after_fork_in_parent()``, they are called as well: in
    between, it is locked by the thread that forks, so that the child finds it whole.
    """
    _alive[ref(owner, _alive.pop)] = None


def _owners() -> list[Any]:
    # Copying a dictionary cannot be interrupted by another thread.
    return [owner for reference in list(_alive) if (owner := reference()) is not None]


def _others_load() -> bool:
    """Whether threads load modules, and this one does not, which would not end while it waits."""
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    owners = {
        getattr(reference(), "owner", None)
        for name, reference in list(locks.items())
        if str(name).partition(".")[0] in LOADED
    }
    return get_ident() not in owners and bool(owners - {None})


def _before() -> None:
    ends = monotonic() + WAIT_SECONDS_MAX
    _hold()
    while _others_load() and monotonic() < ends:
        _in_parent()
        sleep(POLL_SECONDS)
        _hold()


def _hold() -> None:
    _held.owners = [owner for owner in _owners() if hasattr(owner, "_before_fork")]
    for owner in _held.owners:
        owner._before_fork()


def _in_parent() -> None:
    for owner in _held.__dict__.pop("owners", ()):
        owner._after_fork_in_parent()


def _in_child() -> None:
    _held.__dict__.pop("owners", None)
    for owner in _owners():
        owner._after_fork()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
