"""A connection to an HTTP server, no call of which takes longer than a deadline allows.

    look-up of the name -> connect -> CONNECT of a proxy -> TLS     each in slices
    request -> answer, in slices; a silence and the time of all attempts have bounds

Source: RFC 9112 (HTTP/1.1), by ``http.client``, which reads from a socket that knows the bounds.
"""

from __future__ import annotations

import errno
import http.client
import io
import os
import select
import socket
import ssl
import time
from base64 import b64encode
from typing import Any, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from lmdbio.remote.retry import SLICE_S, Deadline
from lmdbio.remote.url import Origin

__all__ = ["Answer", "Connection", "basic", "proxy_for"]

#: Heads of answers are read in such pieces; the body is received where it is wanted.
BUFFER_BYTES = 8 << 10
#: So many bytes of a body wake who waits for it: to be woken for each few costs more than they do.
WAKE_BYTES = 512 << 10
#: TLS adds less than that to a body of that size.
WAKE_SLACK_BYTES = BUFFER_BYTES + (64 << 10)


def basic(user: str, password: str) -> str:
    """Return the value of a header by which a user shows who it is (RFC 7617)."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def proxy_for(origin: Origin) -> str | None:
    """Return the URL of the proxy by which the environment has a server asked; None: by none."""
    proxies = getproxies()
    found = proxies.get(origin.scheme, proxies.get("all"))
    if not found or proxy_bypass(f"{origin.host}:{origin.port}"):
        return None
    return found if "://" in found else f"http://{found}"


class _TimedSocket:
    """A socket as ``http.client`` uses it, whose calls have bounds.

    Attributes:
        deadline: deadline of the request that is under way.
    """

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        sock.settimeout(SLICE_S)
        self.sock, self.deadline = sock, deadline
        self._readers, self._is_closed = 0, False
        self._wake_bytes = 1

    def setsockopt(self, *given: Any) -> None:
        self.sock.setsockopt(*given)

    def sendall(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        silent_since = time.monotonic()
        while len(view):
            self.deadline.check()
            try:
                view = view[self.sock.send(view) :]
                silent_since = time.monotonic()
            except (TimeoutError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._refuse_silence(silent_since, "takes no byte of the request")

    def expect(self, left: int) -> None:
        """Note how many bytes of a body are yet to come: many wake a waiting thread together."""
        wake_bytes = WAKE_BYTES if left > WAKE_BYTES + WAKE_SLACK_BYTES else 1
        if wake_bytes != self._wake_bytes:
            self._wake_bytes = wake_bytes
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wake_bytes)

    def receive_into(self, into: Any) -> int:
        silent_since = time.monotonic()
        while True:
            self.deadline.check()
            try:
                return self.sock.recv_into(into)
            except (TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self.expect(0)  # a few may be there
                self._refuse_silence(silent_since, "sends nothing")

    def _refuse_silence(self, since: float, what: str) -> None:
        if time.monotonic() - since >= self.deadline.policy.stall_s:
            stall_s = self.deadline.policy.stall_s
            raise StallError(errno.ETIMEDOUT, f"the server {what} for {stall_s:g} s")

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        self._readers += 1
        return io.BufferedReader(_Received(self), BUFFER_BYTES)

    def reader_closed(self) -> None:
        self._readers -= 1
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Close it once nobody reads: an answer that ends the connection is read afterwards."""
        self._is_closed = True
        if self._readers <= 0:
            self.sock.close()


class StallError(OSError):
    """A connection brings nothing; another one may."""


class _Received(io.RawIOBase):
    """The bytes that arrive."""

    def __init__(self, timed: _TimedSocket) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        return self._timed.receive_into(into)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._timed.reader_closed()


class Answer(http.client.HTTPResponse):
    """An answer; one that only says what will come, as 103 does, is passed over.

    Source: RFC 9110, 15.2.
    """

    def __init__(self, sock: Any, *given: Any, **named: Any) -> None:
        self._timed: _TimedSocket = sock
        super().__init__(sock, *given, **named)

    def receive_into(self, into: memoryview) -> int:
        """Receive what has come of the body, or wait for some; 0 where it has ended."""
        if self.fp is None or self.chunked or self.length is None:
            return self.readinto(into)
        into = into[: self.length]
        self._timed.expect(len(into))
        came = self.fp.readinto1(into)
        self.length -= came
        if not came or not self.length:
            self._timed.expect(0)
            cast(Any, self)._close_conn()
        return came

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = cast(Any, super())._read_status()
        is_interim = 100 < status < 200 and status != http.HTTPStatus.SWITCHING_PROTOCOLS
        return version, 100 if is_interim else status, reason


class Connection(http.client.HTTPConnection):
    """A connection to one server, directly or by a proxy.

    Args:
        origin: the server.
        proxy: of ``proxy_for``.
        context: of TLS, for https.
    """

    response_class = Answer

    def __init__(self, origin: Origin, proxy: str | None, context: ssl.SSLContext | None) -> None:
        self.origin, self.proxy, self._context = origin, proxy, context
        self.deadline: Deadline | None = None
        self._opened: socket.socket | None = None
        self.proxy_headers: dict[str, str] = {}
        if proxy is None:
            super().__init__(origin.host, origin.port)
        else:
            at = urlsplit(proxy)
            if at.scheme not in ("http", ""):
                raise OSError(errno.EPROTONOSUPPORT, f"a proxy by {at.scheme} is not known")
            if at.username is not None:
                shown = basic(unquote(at.username), unquote(at.password or ""))
                self.proxy_headers["Proxy-Authorization"] = shown
            super().__init__(at.hostname or "", at.port or 3128)
            if origin.scheme == "https":
                self.set_tunnel(origin.host, origin.port, self.proxy_headers)
        own = cast(Any, self)
        own._create_connection = self._open_socket  # of http.client, which connects by it

    def is_to(self, origin: Origin, proxy: str | None, context: ssl.SSLContext | None) -> bool:
        """Return whether it leads to a server, in this way."""
        return (self.origin, self.proxy) == (origin, proxy) and self._context is context

    @property
    def is_open(self) -> bool:
        """Whether it has been connected."""
        return self.sock is not None

    def begin(self, deadline: Deadline) -> None:
        """Have the next request, and its answer, belong to a deadline."""
        self.deadline = deadline
        if self.sock is not None:
            cast(Any, self.sock).deadline = deadline

    def abandon(self) -> None:
        """Close the descriptor and nothing else, in a child after fork.

        A thread of the parent's, which is not there, may hold the lock of all that reads from it.
        """
        if self._opened is not None:
            self._opened.close()

    def connect(self) -> None:
        """Connect, and encrypt what is sent where the URL says so."""
        super().connect()
        if self.origin.scheme == "https":
            assert self._context is not None
            timed = cast(_TimedSocket, self.sock)
            tls = self._context.wrap_socket(
                timed.sock, server_hostname=self.origin.host, do_handshake_on_connect=False
            )
            self._opened = tls
            self.sock = cast(Any, _TimedSocket(tls, timed.deadline))
            self._shake_hands(tls)

    def _shake_hands(self, tls: ssl.SSLSocket) -> None:
        deadline = cast(Deadline, self.deadline)
        until = time.monotonic() + deadline.policy.connect_s
        while True:
            deadline.check()
            try:
                tls.do_handshake()
                return
            except (TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if time.monotonic() >= until:
                    told = f"no TLS connection within {deadline.policy.connect_s:g} s"
                    raise StallError(errno.ETIMEDOUT, told) from None

    def _open_socket(self, address: tuple[str, int], *_: Any) -> _TimedSocket:
        deadline = cast(Deadline, self.deadline)
        last: OSError | None = None
        for family, kind, protocol, _name, found in socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM
        ):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:  # of a family that this machine has not
                last = error
                continue
            try:
                self._opened = sock
                _connect(sock, found, deadline)
                return _TimedSocket(sock, deadline)
            except OSError as error:
                sock.close()
                last = error
                deadline.check()
            except BaseException:
                sock.close()
                raise
        raise last or OSError(errno.EADDRNOTAVAIL, "its name has no address")


def _connect(sock: socket.socket, address: Any, deadline: Deadline) -> None:
    sock.setblocking(False)
    number = sock.connect_ex(address)
    until = time.monotonic() + deadline.policy.connect_s
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    while number in (errno.EINPROGRESS, errno.EALREADY, errno.EINTR, errno.EAGAIN):
        deadline.check()
        if poll.poll(1000 * SLICE_S):
            number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        elif time.monotonic() >= until:
            told = f"no connection within {deadline.policy.connect_s:g} s"
            raise StallError(errno.ETIMEDOUT, told)
    if number:
        raise OSError(number, os.strerror(number))
