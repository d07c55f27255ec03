"""forked: what a child process must make anew, since the thread that held it is not there.

``os.fork`` copies one thread. A lock that another one held stays held in the child for ever,
and what it guarded stays half changed. Objects with such a lock register here.
"""

from __future__ import annotations

import os

from lmdbio.system.slim import local, ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Forked(Protocol):
        """A registered object. ``_before_fork`` may be missing, and the parent's side with it."""

        def _after_fork(self) -> None:
            """In the child, before it has a second thread."""


__all__ = ["register"]


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


def _before() -> None:
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


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
