"""HttpFile: a file on an HTTP server, read by ranges.

    range -> connection from the pool -> answer, judged (``answer``) -> bytes, straight into memory
          -> pool;   a request that failed is retried from the missing byte on (``retry``)

Invariants:
  - bytes are those of the state that the file was opened in, as far as the server tells: by its
    ETag, which it is asked to hold each range against (``If-Match``), or by date and size, which
    prove less, so that the meta pages are looked at besides;
  - an exception names the file, without what is secret in its URL, and the reason;
  - credentials go to the server of the URL alone, never to the target of a redirect.

Source: RFC 9110 and RFC 9112.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import netrc
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import cast
from urllib.parse import urljoin, urlsplit

from lmdbio.errors import Error
from lmdbio.remote.answer import RETRIED, FileState, judge_range, refuse_status, retry_after
from lmdbio.remote.connection import Answer, Connection, Pool, StallError, basic, shared_pool
from lmdbio.remote.retry import AbandonedError, Deadline, RetryableError, RetryPolicy, never
from lmdbio.remote.url import Target, redacted, scheme_of
from lmdbio.system import fork

__all__ = ["HttpFile"]

#: Environment variable: headers for the server of a URL, one a line ("Authorization: Bearer x").
HEADERS = "LMDBIO_HTTP_HEADERS"
#: Length of the first request, which holds both meta pages, and small files whole.
HEAD_BYTES = 64 << 10
REDIRECTS_MAX = 10
#: Age at which a refused signature is renewed.
SIGNED_S_MIN = 10.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: Largest unwanted body that is received, so that the connection can be kept.
DRAIN_BYTES_MAX = 64 << 10
#: Most requests go to one of a few.
_target_of = lru_cache(64)(Target.of)


class HttpFile:
    """A file on an HTTP server, open.

    Attributes:
        url, name, size, validator, keeps_state: attributes of ``_core.RemoteFile``.
        target_url: place of the file after redirects.
        state: state that it was opened in; None: it is being opened.

    Args:
        url: URL of http or https, with a user and password for basic authentication, if need be.
        policy: bounds of requests; None: as the environment says.
        sign: function that returns the HTTP URL under which ``url``, of a bucket, is read for some
            time.

    Raises:
        FileNotFoundError, PermissionError, OSError: it cannot be opened.
        ValueError: it is no URL, or a variable of the environment makes no sense.
    """

    def __init__(
        self,
        url: str,
        policy: RetryPolicy | None = None,
        *,
        sign: Callable[[], str] | None = None,
    ) -> None:
        self.url, self.name, self._sign = url, redacted(url), sign
        self.policy = policy or RetryPolicy.from_env()
        self._pool: Pool | None = shared_pool()
        self._resolving = threading.Lock()
        fork.register(self)
        # A redirect, or a signature, may expire.
        self.target_url = url if sign is None else sign()
        self._resolved_s = time.monotonic()
        self._headers = _own_headers(_target_of(url)) if sign is None else {}
        self.state: FileState | None = None
        self._head = b""
        head = bytearray(HEAD_BYTES)
        got, _ = self._read(0, memoryview(head), never)
        assert self.state is not None
        self.size: int = self.state.size
        self.validator: str = self.state.validator
        # A date is one of a second, and servers remember it: it tells of most changes, not of all.
        self.keeps_state: bool = self.state.is_strong
        if self.keeps_state:  # else the meta pages are looked at again and again
            self._head = bytes(head[:got])

    def read_into(
        self, offset: int, into: memoryview, is_given_up: Callable[[], bool] = never
    ) -> int:
        """Fill memory with bytes of the file; see ``_core.RemoteFile``."""
        if offset + len(into) <= len(self._head):
            into[:] = self._head[offset : offset + len(into)]
            return 0
        return self._read(offset, into, is_given_up)[1]

    def forget_head(self) -> None:
        """Free the memory that has the head of the file."""
        self._head = b""

    def close(self) -> None:
        """Release the connections. May be called twice."""
        self._pool = None

    def _after_fork(self) -> None:
        self._resolving = threading.Lock()

    # --- a read, with all its attempts

    def _read(
        self, offset: int, into: memoryview, is_given_up: Callable[[], bool]
    ) -> tuple[int, int]:
        """Return the number of bytes that have come, and that of requests."""
        what = f"bytes {offset}-{offset + len(into) - 1}"
        deadline = Deadline(self.policy, self.name, what, is_given_up)
        at = requests = 0
        while at < len(into):
            requests += 1
            asked = _Range(self, deadline, offset + at, into[at:])
            try:
                asked.fetch()
            except (AbandonedError, MemoryError):
                raise
            except Error as error:
                raise Error(f"{self.name}: {error}") from None
            except Exception as error:
                self._judge_failure(deadline, error, asked)
            at += asked.received
            if asked.is_last:
                break
        return at, requests

    def _judge_failure(self, deadline: Deadline, error: Exception, asked: _Range) -> None:
        """Wait for the next attempt, or raise the error that ends the read."""
        if asked.received:
            deadline.progressed()
        if isinstance(error, OSError) and error.filename == self.name:
            raise error from None  # raised by the deadline
        if asked.is_stale:
            return  # the server had closed an idle connection: at once by a new one
        if isinstance(error, _StatusError):
            path = urlsplit(self.url).path
            number, reason = refuse_status(error.status, error.reason, path)
            # Where a redirect led to, or a signature, may have expired: ask anew.
            may_expire = error.status in (400, 401, 403, 404, 410) and not asked.has_followed
            may_retry = may_expire and self._resolve_again(asked.url)
        else:
            if self._sign is None and not isinstance(error, RetryableError):
                self._resolve_again(asked.url)  # it may redirect to another place by now
            number, reason, may_retry = _judge_error(error)
        if not may_retry:
            raise deadline.error(number, reason) from None
        after_s = error.after_s if isinstance(error, RetryableError) else None
        attempts = None
        if isinstance(error, ConnectionRefusedError) and self.state is None:
            attempts = min(self.policy.attempts, self.policy.refused_attempts)
        deadline.failed(reason, number, after_s, attempts)

    # --- redirects and credentials

    def _resolve_again(self, refused_url: str) -> bool:
        """Renew the place of the file; false: the place that was refused is already new.

        Args:
            refused_url: URL of the failed request. Another thread may have come first.
        """
        with self._resolving:
            if refused_url != self.target_url:
                return True
            if self._sign is None:
                self.target_url = self.url
                return refused_url != self.url
            if time.monotonic() < self._resolved_s + SIGNED_S_MIN:
                return False
            self.target_url, self._resolved_s = self._sign(), time.monotonic()
            return True

    def follow(self, location: str, base: str) -> None:
        """Follow a redirect from ``base``.

        Raises:
            OSError: it leads to no URL of HTTP, or from https to http.
        """
        if not location:
            raise OSError(errno.EIO, "redirect without a Location")
        try:
            target = urljoin(base, location)
            if scheme_of(target) not in ("http", "https"):
                raise OSError(errno.EIO, f"redirect to {redacted(target)}, which is not HTTP")
            _target_of(target)
        except ValueError:
            text = f"redirect to an invalid URL: {redacted(location)}"
            raise OSError(errno.EIO, text) from None
        if scheme_of(base) == "https" and scheme_of(target) != "https":
            raise OSError(errno.EACCES, f"redirect from https to {redacted(target)}")
        self.target_url = target

    @property
    def pool(self) -> Pool:
        """Connections of this process.

        Raises:
            ValueError: the file is closed.
        """
        pool = self._pool
        if pool is None:
            raise ValueError(f"{self.name}: is closed")
        return pool

    def headers_for(self, target: Target) -> dict[str, str]:
        """Return the headers with the credentials for a server."""
        if self._sign is not None:
            return {}
        own = _target_of(self.url)
        if target.origin != own.origin:
            if target.user is None:
                return {}
            return {"Authorization": basic(target.user, target.password or "")}
        return self._headers


def _judge_error(error: Exception) -> tuple[int, str, bool]:
    """Return number and text of an attempt's error, and whether another attempt may succeed."""
    if isinstance(error, RetryableError):
        return errno.EIO, str(error), True
    if isinstance(error, socket.gaierror):
        text = f"host not found: {error.strerror}"
        return errno.EHOSTUNREACH, text, error.errno == socket.EAI_AGAIN
    if isinstance(error, ConnectionRefusedError):
        return errno.ECONNREFUSED, "no server listens at this host and port", True
    if isinstance(error, ssl.SSLCertVerificationError):
        return errno.EACCES, f"certificate is not trusted: {error}", False
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return errno.EPROTO, "this port speaks no TLS: http:// instead of https://?", False
    if isinstance(error, OSError):
        number = error.errno or errno.EIO
        may_retry = isinstance(error, _PASSING) or number in _UNREACHABLE
        return number, error.strerror or str(error), may_retry
    if isinstance(error, http.client.HTTPException):
        return errno.EIO, f"invalid HTTP answer ({type(error).__name__}: {error})", True
    raise error


#: Errors of the system after which another attempt may succeed, and their numbers.
_PASSING = (ConnectionError, StallError, ssl.SSLError)
_UNREACHABLE = frozenset(
    {
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.EADDRNOTAVAIL,
        errno.ETIMEDOUT,
        errno.EMFILE,
        errno.ENFILE,
    }
)


class _StatusError(Exception):
    """A server refuses."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status)
        self.status, self.reason = status, reason


class _Range:
    """One request for a range, and its answer.

    Attributes:
        url: URL that was asked, after redirects.
        received: number of bytes that have come.
        is_last: whether the file ends with them.
        has_followed: whether a redirect led to ``url`` just now.
        is_stale: whether the connection was kept, and the server had closed it in the meantime.
    """

    def __init__(self, file: HttpFile, deadline: Deadline, offset: int, into: memoryview) -> None:
        self._file, self._deadline = file, deadline
        self._first, self._into, self.url = offset, into, ""
        self.received, self.is_last, self.is_stale = 0, False, False
        self.has_followed = False

    def fetch(self) -> None:
        """Ask, follow redirects, and receive."""
        for _ in range(REDIRECTS_MAX + 1):
            self.url = url = self._file.target_url
            target = _target_of(url)
            connection, answer = self._file.pool.take(target.origin), None
            try:
                answer = self._ask(connection, target)
                if answer.status not in REDIRECTS:
                    self._receive(answer)
                    return
                _drain(answer)
                self._file.follow(answer.headers.get("Location", ""), url)
                self.has_followed = True
            except (_StatusError, RetryableError):
                if answer is not None:
                    _drain(answer)
                raise
            finally:
                is_whole = answer is not None and answer.isclosed()
                if answer is not None:
                    answer.close()
                self._file.pool.give(connection, is_whole=is_whole)
        raise OSError(errno.ELOOP, f"more than {REDIRECTS_MAX} redirects")

    def _ask(self, connection: Connection, target: Target) -> Answer:
        was_open = connection.is_open
        connection.begin(self._deadline)
        last = self._first + len(self._into) - 1
        headers = {
            "Accept-Encoding": "identity",
            "Range": f"bytes={self._first}-{last}",
            "User-Agent": "lmdbio",
            **self._file.headers_for(target),
        }
        state = self._file.state
        if state is not None and state.is_strong:
            headers["If-Match"] = state.etag
        path = target.path
        if connection.proxy is not None and target.origin.scheme == "http":
            path = f"http://{target.origin.authority}{path}"
            headers.update(connection.proxy_headers)
        try:
            connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
            connection.putheader("Host", target.origin.authority)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            return cast(Answer, connection.getresponse())
        except (ConnectionError, ssl.SSLError):
            if was_open:
                self.is_stale = True
                self._file.pool.clear(target.origin)  # the others have been kept as long
            raise

    def _receive(self, answer: Answer) -> None:
        status, state = answer.status, self._file.state
        if status == 412:
            raise Error("changed while it was read (status 412); open it again")
        if status in RETRIED:
            reason = refuse_status(status, answer.reason)[1]
            raise RetryableError(reason, retry_after(_headers_of(answer)))
        if status not in (200, 206, 416):
            raise _StatusError(status, answer.reason)
        last = self._first + len(self._into) - 1
        found, last = judge_range(status, _headers_of(answer), self._first, last, state)
        if state is None:
            self._file.state = found
        wanted = last - self._first + 1
        into = self._into[:wanted]
        while self.received < wanted:
            came = answer.receive_into(into[self.received :])
            if not came:
                raise RetryableError(f"body ends after {self.received} of {wanted} bytes")
            self.received += came
        self.is_last = last == found.size - 1
        self._deadline.progressed()


def _own_headers(target: Target) -> dict[str, str]:
    """Return the headers with the credentials for the server of a URL.

    Raises:
        ValueError: the variable of the environment has no headers.
    """
    headers = {}
    for line in os.environ.get(HEADERS, "").splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"{HEADERS} must have lines such as 'Authorization: Bearer x'")
        headers[name.strip()] = value.strip()
    if target.user is not None:
        headers["Authorization"] = basic(target.user, target.password or "")
    elif not any(name.lower() == "authorization" for name in headers):
        known = _from_netrc(target.origin.host)
        if known is not None:
            headers["Authorization"] = basic(*known)
    return headers


def _from_netrc(host: str) -> tuple[str, str] | None:
    """Return user and password of a host, as ~/.netrc has them, or the file that $NETRC names."""
    named = os.environ.get("NETRC")
    try:
        file = Path(named) if named else Path("~/.netrc").expanduser()
        if not file.is_file():
            return None
        found = netrc.netrc(str(file)).hosts.get(host)
    except (OSError, RuntimeError, netrc.NetrcParseError):
        return None
    return None if found is None else (found[0], found[2] or "")


def _headers_of(answer: http.client.HTTPResponse) -> dict[str, str]:
    """Return the headers; those that come twice, and differ, as one list (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for name, value in answer.headers.raw_items():  # which looks for no encoded words
        name = name.lower()
        known = found.setdefault(name, value)
        if known != value:
            found[name] = f"{known}, {value}"
    return found


def _drain(answer: http.client.HTTPResponse) -> None:
    """Receive an unwanted body, if it is short, so that the connection can be kept."""
    if answer.length is not None and answer.length <= DRAIN_BYTES_MAX:
        with contextlib.suppress(OSError, http.client.HTTPException, AbandonedError):
            answer.read()
