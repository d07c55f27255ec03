"""An HTTP server of one folder's files that answers ranges after a set time, by ``sendfile``.

    python -m benchmarks.remote.server FOLDER [--latency SECONDS]

The port is the first line of its output. ``/counts`` answers at once, as JSON, how many other
requests it has had, and how many bytes of files it has sent. It ends when its standard input does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder: Path
    latency_s: float
    counts: dict[str, int]
    counting: threading.Lock

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def count(self, name: str, amount: int) -> None:
        with self.counting:
            self.counts[name] += amount

    def do_GET(self) -> None:
        if self.path == "/counts":
            self.answer("application/json", json.dumps(self.counts))
            return
        self.count("requests", 1)
        time.sleep(self.latency_s)
        path = self.folder / self.path.lstrip("/")
        if path == self.folder:  # rclone asks for the names
            names = [one.name for one in path.iterdir()]
            self.answer("text/html", "".join(f'<a href="{name}">{name}</a>' for name in names))
            return
        if not path.is_file():
            self.send_error(404)
            return
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            size = status.st_size
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            first, last = (int(asked[1]), min(int(asked[2]), size - 1)) if asked else (0, size - 1)
            self.send_response(206 if asked else 200)
            self.send_header("ETag", f'"{status.st_mtime_ns:x}-{size:x}"')
            self.send_header("Content-Length", str(last + 1 - first))
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.end_headers()
            self.wfile.flush()
            if self.command == "HEAD":
                return
            while first <= last:
                sent = os.sendfile(
                    self.connection.fileno(), file.fileno(), first, last + 1 - first
                )
                if not sent:
                    break
                first += sent
                self.count("bytes", sent)

    def answer(self, kind: str, text: str) -> None:
        """Answer with a text."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that go in the middle."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency", type=float, default=0.0)
    given = parser.parse_args()
    Handler.folder, Handler.latency_s = given.folder, given.latency
    Handler.counts, Handler.counting = {"requests": 0, "bytes": 0}, threading.Lock()
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
