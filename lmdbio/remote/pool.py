"""Connections to servers, kept from one request to the next, which all files of a process share.

They are there as long as a file on a server is open: the last file takes them along.
"""

from __future__ import annotations

import os
import ssl
import threading
import weakref
from functools import lru_cache

from lmdbio.remote.connection import Connection, proxy_for, tls_context
from lmdbio.remote.url import Origin
from lmdbio.system import fork

__all__ = ["Pool", "shared_pool"]

#: Largest number of idle connections.
IDLE_MAX = 128
#: To look through the environment takes longer than much of a request.
_proxy_of = lru_cache(64)(proxy_for)


@lru_cache(4)
def _context_of(_process: int, _certificates: str | None, _folder: str | None) -> ssl.SSLContext:
    """Return a context of TLS: to read all certificates takes tens of milliseconds."""
    return tls_context()


class Pool:
    """Connections: each carries one request at a time, and is kept for the next one.

    Threads share it. A child after fork closes its copies, and the parent's stay connected.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        fork.register(self)

    def _after_fork(self) -> None:
        inherited = [*self._idle, *self._busy]
        self._lock, self._idle, self._busy = threading.Lock(), [], set()
        for connection in inherited:
            connection.abandon()

    def take(self, origin: Origin) -> Connection:
        """Return a connection to a server, which is open if it was kept."""
        proxy, context = _proxy_of(origin), None
        if origin.scheme == "https":
            named = map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR"))
            context = _context_of(os.getpid(), *named)
        route = (origin, proxy, context)
        with self._lock:
            for at in reversed(range(len(self._idle))):
                if self._idle[at].route == route:
                    connection = self._idle.pop(at)
                    break
            else:
                connection = Connection(route)
            self._busy.add(connection)
        return connection

    def give(self, connection: Connection, *, is_whole: bool) -> None:
        """Keep a connection, if its last answer was received whole, or close it."""
        surplus = None if is_whole and connection.is_open else connection
        with self._lock:
            self._busy.discard(connection)
            if surplus is None:
                self._idle.append(connection)
                surplus = self._idle.pop(0) if len(self._idle) > IDLE_MAX else None
        if surplus is not None:
            surplus.close()

    def clear(self, origin: Origin) -> None:
        """Close the idle connections to a server."""
        with self._lock:
            gone = [one for one in self._idle if one.origin == origin]
            self._idle = [one for one in self._idle if one.origin != origin]
        for connection in gone:
            connection.close()

    def __del__(self) -> None:
        for connection in getattr(self, "_idle", ()):
            connection.close()


_pool: weakref.ref[Pool] | None = None


def shared_pool() -> Pool:
    """Return the pool of this process; as long as somebody holds it, it is the same one."""
    global _pool
    found = None if _pool is None else _pool()
    if found is None:
        found = Pool()
        _pool = weakref.ref(found)
    return found
