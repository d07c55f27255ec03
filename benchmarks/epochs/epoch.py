"""One shuffled epoch, in a process of its own.

    python -m benchmarks.epochs.epoch JOB           JOB and the answer are JSON

Each way opens the file, hands out every value once, in batches, and looks at its length. Seconds
are those from before it opens to the last value; imports are made before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import lmdbio
from lmdbio.bench import measure

BATCH = 256

Batches = Iterable[Iterable[Any]]


def py_lmdb(job: dict[str, Any], *, readahead: bool) -> Batches:
    import lmdb

    with lmdb.open(job["path"], readonly=True, lock=False, readahead=readahead) as env:
        with env.begin() as txn:
            keys = job["keys"]
            for part in parts(job):
                yield [txn.get(keys[index]) for index in part.tolist()]


def order(job: dict[str, Any]) -> npt.NDArray[np.int64]:
    return np.random.default_rng(job["seed"]).permutation(job["count"])


def parts(job: dict[str, Any]) -> list[npt.NDArray[np.int64]]:
    return np.split(order(job), range(BATCH, job["count"], BATCH))


def records(job: dict[str, Any]) -> Batches:
    with lmdbio.Records(job["path"], memory_bytes_max=job["memory"]) as opened:
        yield from opened.batches(order(job), BATCH)


def values(job: dict[str, Any]) -> Batches:
    with lmdbio.Records(job["path"], memory_bytes_max=job["memory"]) as opened:
        opened.expect(job["count"])
        for part in parts(job):
            yield list(opened.values(part))


def loader(job: dict[str, Any], *, buffers: bool) -> Batches:
    from lmdbio.torch import Loader

    with Loader(
        job["path"],
        BATCH,
        shuffle=True,
        seed=job["seed"],
        collate_fn=list,
        buffers=buffers,
        memory_bytes_max=job["memory"],
    ) as batches:
        yield from batches


WAYS: dict[str, Callable[[dict[str, Any]], Batches]] = {
    "lmdb": partial(py_lmdb, readahead=True),
    "lmdb-random": partial(py_lmdb, readahead=False),
    "records": records,
    "values": values,
    "loader": partial(loader, buffers=False),
    "loader-buffers": partial(loader, buffers=True),
}


def main() -> None:
    job = json.loads(sys.argv[1])
    if job["way"].startswith("loader"):
        import lmdbio.torch  # noqa: F401 (imports are not timed)
    job["keys"] = Path(job["keys"]).read_bytes().split(b"\n")[: job["count"]]
    begun, cpu = time.perf_counter(), time.process_time()
    count = size = 0
    for batch in WAYS[job["way"]](job):
        lengths = list(map(len, batch))
        count += len(lengths)
        size += sum(lengths)
    told = {
        "seconds": time.perf_counter() - begun,
        "cpu_seconds": time.process_time() - cpu,
        "records": count,
        "value_bytes": size,
        "peak_bytes": measure.status_bytes("VmHWM"),  # getrusage knows the parent's peak, too
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
