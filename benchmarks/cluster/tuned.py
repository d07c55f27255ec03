"""``lmdbio tune`` on the mounts of an emulated cluster, by ranks of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster import cluster
from benchmarks.command import Failed
from benchmarks.pfs import pfs
from lmdbio.bench import processes
from lmdbio.share import RANKS_PER_NODE

#: Of memory that caches take.
CACHE_FOLDER = "/dev/shm"


@contextlib.contextmanager
def kept_apart() -> Iterator[None]:
    """Keep what is measured in a folder of its own, which all ranks find, and remove it."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory(prefix="tuned-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield
        finally:
            del os.environ["XDG_CACHE_HOME"]
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before


def tune(store: pfs.Store, dataset: str, seconds: float) -> None:
    """Measure a store, by one rank on each node, as a user would before a job.

    Raises:
        Failed: it cannot be measured.
    """
    words = [processes.mpiexec() or "mpiexec"]
    for number, mount in enumerate(store.mounts):
        path = str(Path(mount) / dataset)
        words += [":"] * bool(number) + ["-n", "1", sys.executable, "-m", "lmdbio", "tune", path]
        words += ["--seconds", str(seconds), "--cache-dir", CACHE_FOLDER]
    done = subprocess.run(
        words,
        env=cluster.environment() | {RANKS_PER_NODE: "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60 + 30 * seconds,
    )
    if done.returncode:
        raise Failed(f"lmdbio tune: {done.stderr.strip() or done.stdout.strip()}")
