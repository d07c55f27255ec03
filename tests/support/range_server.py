"""An HTTP server for tests, which serves ranges of bytes in memory, and fails as a plan says.

    with RangeServer({"/data.mdb": content}) as server:
        server.plan = lambda request: Fault(status=503)
        lmdbio.Records(server.url("/data.mdb"))

A plan is asked once a request, under a lock, and returns how to answer it.
"""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Fault:
    """How a request is answered; as it stands here, as it should be.

    Attributes:
        delay_s: before the answer begins.
        status: instead of the right one.
        headers: besides the right ones, or in their place; None: left out.
        cut: the connection ends after so many bytes of the body.
        reset: by a reset.
        stall_s: of silence after the bytes of ``cut``.
        whole: the range is disregarded.
        refuse: the connection is closed before any byte.
        body: instead of the right one.
        early: an answer that only says what will come is sent before it.
    """

    delay_s: float = 0
    status: int | None = None
    headers: dict[str, str | None] = field(default_factory=dict)
    cut: int | None = None
    reset: bool = False
    stall_s: float = 0
    whole: bool = False
    refuse: bool = False
    body: bytes | None = None
    early: bool = False


@dataclass(frozen=True)
class Asked:
    """A request as it came.

    Attributes:
        number: from 0 on.
        path: with the query.
        headers: in lower case.
        first, last: bytes asked for; None: it asks for no range.
        port: of the client, which tells connections apart.
    """

    number: int
    path: str
    headers: dict[str, str]
    first: int | None
    last: int | None
    port: int


class RangeServer:
    """A server in a thread of its own.

    Args:
        files: content by path.
        latency_s: of each answer.
        context: of TLS.

    Attributes:
        plan: says what goes wrong with a request; None: nothing.
        asked: all requests so far.
        etags: by path; those of others follow from their content. "": none is told.
    """

    def __init__(
        self,
        files: dict[str, bytes | bytearray],
        *,
        latency_s: float = 0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.files, self.latency_s, self.etags = files, latency_s, dict[str, str]()
        self.modified = "Fri, 27 Nov 2026 09:00:00 GMT"
        self.plan: Callable[[Asked], Fault | None] | None = None
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        self._server = _Quiet(("127.0.0.1", 0), _handler_of(self), False)
        self._server.daemon_threads, self._server.block_on_close = True, False
        self._server.request_queue_size = 512
        self._server.server_bind()
        self._server.server_activate()
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._scheme = "http" if context is None else "https"
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}{path}"

    def etag(self, path: str) -> str:
        if path not in self.etags:
            content = bytes(self.files[path])
            self.etags[path] = f'"{hashlib.blake2b(content, digest_size=8).hexdigest()}"'
        return self.etags[path]

    def note(self, handler: Any) -> tuple[Asked, Fault]:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        first, last = (int(found[1]), int(found[2])) if found else (None, None)
        with self._lock:
            port = handler.client_address[1]
            asked = Asked(len(self.asked), handler.path, headers, first, last, port)
            self.asked.append(asked)
            fault = (self.plan(asked) if self.plan is not None else None) or Fault()
        return asked, fault

    def sleep(self, seconds: float) -> None:
        """Be silent, but not longer than the server lives."""
        if seconds > 0:
            self._ending.wait(seconds)

    def close(self) -> None:
        self._ending.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> RangeServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that go in the middle."""


def _handler_of(server: RangeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 0
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            try:
                _answer(server, self)
            except OSError:  # the client has gone
                self.close_connection = True

    return Handler


def _right_answer(
    server: RangeServer, asked: Asked, fault: Fault
) -> tuple[int, dict[str, str], memoryview]:
    path = asked.path.partition("?")[0]
    if path not in server.files:
        return 404, {}, memoryview(b"not here")
    content = memoryview(server.files[path])
    headers = {"Last-Modified": server.modified, "Accept-Ranges": "bytes"}
    etag = server.etag(path)
    if etag:
        headers["ETag"] = etag
    wanted = asked.headers.get("if-match")
    if wanted is not None and wanted != etag:
        return 412, headers, memoryview(b"")
    if asked.first is None or asked.last is None or fault.whole:
        return 200, headers, content
    if asked.first >= len(content):
        headers["Content-Range"] = f"bytes */{len(content)}"
        return 416, headers, memoryview(b"")
    last = min(asked.last, len(content) - 1)
    headers["Content-Range"] = f"bytes {asked.first}-{last}/{len(content)}"
    return 206, headers, content[asked.first : last + 1]


def _answer(server: RangeServer, handler: Any) -> None:
    asked, fault = server.note(handler)
    server.sleep(server.latency_s + fault.delay_s)
    if fault.refuse:
        handler.close_connection = True
        return
    status, headers, body = _right_answer(server, asked, fault)
    if fault.body is not None:
        body = memoryview(fault.body)
    if fault.status is not None:
        status, body = fault.status, memoryview(fault.body or b"")
    told: dict[str, str | None] = {"Content-Length": str(len(body)), **headers, **fault.headers}
    if fault.early:
        handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n")
    handler.send_response(status)
    for name, value in told.items():
        if value is not None:
            handler.send_header(name, value)
    handler.end_headers()
    if fault.cut is None and not fault.stall_s and not fault.reset:
        handler.wfile.write(body)
        return
    handler.wfile.write(body[: fault.cut or 0])
    server.sleep(fault.stall_s)
    if fault.reset:
        linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    if fault.cut is not None or fault.reset:
        handler.close_connection = True
        if fault.reset:
            handler.connection.close()
    else:
        handler.wfile.write(body)
