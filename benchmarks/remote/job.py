"""The program of ranks that read a URL, by one Reader with a cache or each rank for itself.

    python -m benchmarks.remote.job TRANSPORT URL RANKS_PER_NODE BATCH EPOCHS [CACHE]

``launch.command`` starts it. With CACHE all ranks make one Reader, whose roots cache the file;
without, each rank reads its share of each batch by ``Records``. Rank 0 prints a line of JSON:
seconds from opening to the last record, records, and a sum of their CRCs, which are those of
all ranks.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

import lmdbio
from benchmarks.cluster.launch import meet
from lmdbio import share
from lmdbio.planning.order import split_share

SEED = 5


def by_reader(
    url: str, batch: int, epochs: int, look: Callable[[Any], None], **words: Any
) -> None:
    """Read all epochs with the other ranks."""
    with lmdbio.Reader(url, batch, shuffle="global", seed=SEED, epochs=epochs, **words) as reader:
        for one in reader:
            for record in one:
                look(record)


def by_itself(
    url: str, batch: int, epochs: int, look: Callable[[Any], None], job: share.Job
) -> None:
    """Read this rank's share of each batch, as ranks do that know nothing of each other."""
    with lmdbio.Records(url) as records:
        for epoch in range(epochs):
            order = np.random.default_rng((SEED, epoch)).permutation(len(records))
            batches = np.split(order, range(batch, len(order), batch))
            shares = [split_share(len(one), job.size, job.rank) for one in batches]
            own = [one[each.start : each.stop] for one, each in zip(batches, shares, strict=True)]
            for values in records.batches(np.concatenate(own), max(1, batch // job.size)):
                for record in values:
                    look(record)


def main() -> None:
    """Read, and tell what it took."""
    transport, url, *numbers = sys.argv[1:6]
    per_node, batch, epochs = map(int, numbers)
    comm = meet((transport,))[transport]
    job = share.connect(comm)
    job.free()
    count = total = 0

    def look(record: Any) -> None:
        nonlocal count, total
        count, total = count + 1, total + zlib.crc32(record)

    job.together(lambda: None)
    begun = time.monotonic()
    if len(sys.argv) > 6:
        by_reader(url, batch, epochs, look, comm=comm, cache=sys.argv[6], ranks_per_node=per_node)
    else:
        by_itself(url, batch, epochs, look, job)
    ended = time.monotonic()
    told = job.together(lambda: (begun, ended, count, total))
    if job.rank == 0:
        begins, ends, counts, sums = zip(*told, strict=True)
        found = {"seconds": max(ends) - min(begins), "records": sum(counts), "sum": sum(sums)}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
