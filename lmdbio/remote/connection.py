"""Connections to HTTP servers, each wait of which obeys a deadline, and those that are idle.

    name lookup -> connect -> CONNECT to a proxy -> TLS     each in slices
    request -> answer, in slices; a silence and the time of all attempts have bounds
    pool: idle connections, which all files of a process share; the last file closes them

Source: RFC 9112 (HTTP/1.1), by ``http.client``, on sockets that know the deadline.
"""

from __future__ import annotations

import errno
import http.client
import os
import select
import socket
import ssl
import threading
import time
import weakref
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from lmdbio.remote.retry import SLICE_S, Deadline
from lmdbio.remote.url import Origin
from lmdbio.system import fork

__all__ = ["Answer", "Connection", "Pool", "StallError", "basic", "shared_pool"]

#: Size of the buffer that heads are read through; bodies are received where they are wanted.
BUFFER_BYTES = 8 << 10
#: Number of bytes of a body that wake a thread: a wake-up for each few costs more than they do.
WAKE_BYTES = 512 << 10
#: Upper bound of the bytes that the buffer and TLS hold back of a body of that size.
WAKE_SLACK_BYTES = BUFFER_BYTES + (64 << 10)

#: Largest number of idle connections.
IDLE_MAX = 128
#: Failures of a wait, before the number of seconds.
SENDS_NOTHING = "the server sends nothing for"
TAKES_NOTHING = "the server takes no byte of the request for"

#: The server, the URL of the proxy that leads to it (None: none), the context of TLS for https.
Route: TypeAlias = tuple[Origin, str | None, ssl.SSLContext | None]
Result = TypeVar("Result")


def basic(user: str, password: str) -> str:
    """Return the value of a header for basic authentication (RFC 7617)."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@lru_cache(64)  # to look through the environment takes longer than much of a request
def _proxy_of(origin: Origin) -> str | None:
    """Return the URL of the proxy that the environment names for a server; None: none."""
    proxies = getproxies()
    found = proxies.get(origin.scheme, proxies.get("all"))
    if not found or proxy_bypass(f"{origin.host}:{origin.port}"):
        return None
    return found if "://" in found else f"http://{found}"


@lru_cache(4)  # to read all certificates takes tens of milliseconds
def _context_of(_process: int, _certificates: str | None, _folder: str | None) -> ssl.SSLContext:
    """Return a context of TLS whose sockets obey deadlines."""
    context = ssl.create_default_context()
    context.sslsocket_class = _TLSSocket
    return context


class StallError(OSError):
    """A connection brings nothing; another one may."""


class _Socket(socket.socket):
    """A socket whose waits obey a deadline.

    Attributes:
        deadline: deadline of the request that is under way.
    """

    deadline: Deadline
    _wake_bytes = 1

    def connect(self, address: Any) -> None:
        self.setblocking(False)
        number = self.connect_ex(address)
        poll = select.poll()
        poll.register(self, select.POLLOUT)

        def settled() -> int:
            if not poll.poll(1000 * SLICE_S):
                raise TimeoutError
            return self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

        if number in (errno.EINPROGRESS, errno.EALREADY, errno.EINTR, errno.EAGAIN):
            connect_s = self.deadline.policy.connect_s
            number = self._in_slices(settled, connect_s, "no connection within")
        if number:
            raise OSError(number, os.strerror(number))
        self.settimeout(SLICE_S)

    def makefile(self, mode: Any = "rb", *_: Any, **__: Any) -> Any:
        return super().makefile(mode, BUFFER_BYTES)

    def sendall(self, data: Any, *_: Any) -> None:
        stall_s, view = self.deadline.policy.stall_s, memoryview(data).cast("B")
        while len(view):
            view = view[self._in_slices(super().send, stall_s, TAKES_NOTHING, view) :]

    def recv_into(self, into: Any, *_: Any) -> int:
        stall_s = self.deadline.policy.stall_s
        return self._in_slices(super().recv_into, stall_s, SENDS_NOTHING, into)

    def expect(self, left: int) -> None:
        """Note how many bytes of a body are yet to come: many wake a waiting thread together."""
        wake_bytes = WAKE_BYTES if left > WAKE_BYTES + WAKE_SLACK_BYTES else 1
        if wake_bytes != self._wake_bytes:
            self._wake_bytes = wake_bytes
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wake_bytes)

    def _in_slices(
        self, call: Callable[..., Result], limit_s: float, failure: str, *given: Any
    ) -> Result:
        """Repeat a call that times out after a slice, until it returns or a bound is reached."""
        since = time.monotonic()
        while True:
            self.deadline.check()
            try:
                return call(*given)
            except (TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self.expect(0)  # a few may be there
                if time.monotonic() - since >= limit_s:
                    text = f"{failure} {limit_s:g} s"
                    raise StallError(errno.ETIMEDOUT, text) from None


class _TLSSocket(_Socket, ssl.SSLSocket):
    """A socket of TLS whose waits obey a deadline."""

    def do_handshake(self, block: bool = False) -> None:
        connect_s = self.deadline.policy.connect_s
        self._in_slices(super().do_handshake, connect_s, "no TLS connection within", block)


class Answer(http.client.HTTPResponse):
    """An answer; interim ones, such as 103, are skipped (RFC 9110, 15.2)."""

    def __init__(self, sock: _Socket, *given: Any, **named: Any) -> None:
        self._socket = sock
        super().__init__(sock, *given, **named)

    def receive_into(self, into: memoryview) -> int:
        """Receive the part of the body that is there, or wait for some; 0 at its end."""
        if self.fp is None or self.chunked or self.length is None:
            return self.readinto(into)
        into = into[: self.length]
        self._socket.expect(len(into))
        came = self.fp.readinto1(into)
        self.length -= came
        if not came or not self.length:
            self._socket.expect(0)
            self._close_conn()  # type: ignore[attr-defined]
        return came

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        is_interim = 100 < status < 200 and status != http.HTTPStatus.SWITCHING_PROTOCOLS
        return version, 100 if is_interim else status, reason


class Connection(http.client.HTTPConnection):
    """A connection to one server, directly or through a proxy.

    Args:
        route: way to the server.
    """

    response_class = Answer
    sock: Any

    def __init__(self, route: Route) -> None:
        self.route = route
        self.origin, self.proxy, self._context = route
        self.deadline: Deadline | None = None
        self._opened: _Socket | None = None
        self.proxy_headers: dict[str, str] = {}
        if self.proxy is None:
            super().__init__(self.origin.host, self.origin.port)
        else:
            at = urlsplit(self.proxy)
            if at.scheme not in ("http", ""):
                raise OSError(errno.EPROTONOSUPPORT, f"unsupported scheme of a proxy: {at.scheme}")
            if at.username is not None:
                credentials = basic(unquote(at.username), unquote(at.password or ""))
                self.proxy_headers["Proxy-Authorization"] = credentials
            super().__init__(at.hostname or "", at.port or 3128)
            if self._context is not None:
                self.set_tunnel(self.origin.host, self.origin.port, self.proxy_headers)
        self._create_connection = self._open_socket  # http.client connects by it

    @property
    def is_open(self) -> bool:
        """Whether it has been connected."""
        return self.sock is not None

    def begin(self, deadline: Deadline) -> None:
        """Have the next request, and its answer, obey a deadline."""
        self.deadline = deadline
        if self.sock is not None:
            self.sock.deadline = deadline

    def abandon(self) -> None:
        """Close the descriptor and nothing else, in a child after fork.

        A thread of the parent, which the child lacks, may hold the lock of a reader of the socket.
        """
        if self._opened is not None and (number := self._opened.detach()) >= 0:
            os.close(number)

    def connect(self) -> None:
        """Connect, and encrypt if the URL says so."""
        super().connect()
        if self._context is not None:
            tls = self._context.wrap_socket(
                self.sock, server_hostname=self.origin.host, do_handshake_on_connect=False
            )
            self.sock = self._opened = cast(_TLSSocket, tls)
            self._opened.deadline = cast(Deadline, self.deadline)
            self._opened.do_handshake()

    def _open_socket(self, address: tuple[str, int], *_: Any) -> _Socket:
        deadline = cast(Deadline, self.deadline)
        last: OSError | None = None
        for family, kind, protocol, _name, found in socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM
        ):
            try:
                sock = _Socket(family, kind, protocol)
            except OSError as error:  # of a family that this machine lacks
                last = error
                continue
            self._opened, sock.deadline = sock, deadline
            try:
                sock.connect(found)
                return sock
            except BaseException as error:
                sock.close()
                if not isinstance(error, OSError):
                    raise
                last = error
                deadline.check()
        raise last or OSError(errno.EADDRNOTAVAIL, "its name has no address")


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
