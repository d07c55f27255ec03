"""Connections of one file, or several, to their servers, kept from one request to the next."""

from __future__ import annotations

import ssl
import threading
from functools import lru_cache

from lmdbio.remote.connection import Connection, proxy_for
from lmdbio.remote.url import Target
from lmdbio.system import fork

__all__ = ["Pool"]

#: Connections that are kept for the next request.
IDLE_MAX = 128
#: To look through the environment takes longer than much of a request.
_proxy_of = lru_cache(64)(proxy_for)


class Pool:
    """Connections of one file: each carries one request at a time, and is kept for the next one.

    Threads share it. A child after fork closes its copies, and the parent's stay connected.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._context: ssl.SSLContext | None = None
        self._is_closed = False
        fork.register(self)

    def _after_fork(self) -> None:
        inherited = [*self._idle, *self._busy]
        self._lock, self._idle, self._busy, self._context = threading.Lock(), [], set(), None
        for connection in inherited:
            connection.abandon()

    def take(self, target: Target) -> tuple[Connection, bool]:
        """Return a connection to a server, and whether it was kept."""
        proxy = _proxy_of(target.origin)
        with self._lock:
            for at in range(len(self._idle) - 1, -1, -1):
                found = self._idle[at]
                if (found.origin, found.proxy) == (target.origin, proxy):
                    del self._idle[at]
                    self._busy.add(found)
                    return found, True
            if target.origin.scheme == "https" and self._context is None:
                self._context = ssl.create_default_context()
            made = Connection(target.origin, proxy, self._context)
            self._busy.add(made)
        return made, False

    def give(self, connection: Connection, *, is_whole: bool) -> None:
        """Keep a connection, if its last answer was received whole, or close it."""
        with self._lock:
            self._busy.discard(connection)
            is_kept = is_whole and connection.is_open and not self._is_closed
            is_kept = is_kept and len(self._idle) < IDLE_MAX
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()

    def clear(self) -> None:
        """Close those that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Keep none any more."""
        self._is_closed = True
        self.clear()
