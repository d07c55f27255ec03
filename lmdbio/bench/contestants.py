"""The readers that are compared, each run in a process (or ranks) of its own.

    python -m lmdbio.bench.contestants JOB        JOB and the answer are JSON

py-lmdb and ``lmdbio.open`` run one and the same function, ``in_order``, which is handed the
module. A job either times a reader on a cold file or verifies it: compares the digest of every
value with the one that py-lmdb gave, and sees that no record is missing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio.bench import datasets, measure, readers
from lmdbio.bench.readers import Check, Totals

__all__ = ["BATCH", "CONTESTANTS", "IN_ORDER", "SHUFFLED", "Answer", "Contestant", "Job"]

#: Records of a batch, over all ranks.
BATCH = 256
IN_ORDER, SHUFFLED = "in order", "shuffled"

Indices = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Job:
    """One run.

    Attributes:
        contestant: a name in CONTESTANTS.
        path: the environment's folder.
        order: IN_ORDER or SHUFFLED.
        count: records to read, the first of that order.
        total: records in the data set.
        digests, keys: files, see ``datasets.Dataset``.
        readahead: as for ``lmdb.open``.
        verify: compare instead of timing.
        seed: of the shuffle.
    """

    contestant: str
    path: str
    order: str
    count: int
    total: int
    digests: str
    keys: str
    readahead: bool = True
    verify: bool = False
    seed: int = 1

    @property
    def data_file(self) -> Path:
        return Path(self.path) / "data.mdb"

    def indices(self) -> Indices:
        """The records to read, in this order."""
        every = np.arange(self.total, dtype=np.uint64)
        if self.order == SHUFFLED:
            np.random.default_rng(self.seed).shuffle(every)
        return every[: self.count]

    def batches(self) -> list[Indices]:
        """The same, a batch at a time."""
        wanted = self.indices()
        return [wanted[start : start + BATCH] for start in range(0, len(wanted), BATCH)]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run says: a sample, or the number of values compared; or what was wrong."""

    sample: dict[str, Any] | None = None
    verified: int = 0
    wrong: str | None = None
    nodes: int = 1


class Verifier:
    """Compares values with py-lmdb's digests and keeps count of the records seen.

    It goes on after a difference, so that ranks that read together end together.
    """

    def __init__(self, job: Job) -> None:
        self.digests = np.load(job.digests)
        self.seen = np.zeros(job.total, bool)
        self.compared = 0
        self.wrong: str | None = None

    def __call__(self, index: int, key: Any, value: Any) -> None:
        self.compared += 1
        self.seen[index] = True
        if key is not None and datasets.digest(key) != self.digests[index, 0].tobytes():
            self.wrong = self.wrong or f"record {index}: the key differs from py-lmdb's"
        if datasets.digest(value) != self.digests[index, 1].tobytes():
            self.wrong = self.wrong or f"record {index}: the value differs from py-lmdb's"


def in_order(module: Any, job: Job, check: Check | None) -> Totals:
    """A loader's loop as it stands in many a repository; ``module`` is lmdb or lmdbio."""
    share = [range(job.count)]
    return readers.by_cursor(module, job.path, share, check, readahead=job.readahead)


def by_key(module: Any, job: Job, check: Check | None) -> Callable[[], Totals]:
    """A map-style data set: a list of keys in memory, ``get`` for each record of a batch."""
    keys = Path(job.keys).read_bytes().split(b"\n")
    batches = [[(index, keys[index]) for index in batch.tolist()] for batch in job.batches()]
    return lambda: readers.by_key(module, job.path, batches, check, readahead=job.readahead)


def by_records(job: Job, check: Check | None) -> Callable[[], Totals]:
    """``Records.read``, a batch of indices at a time."""
    batches = job.batches()
    # The beginning of an epoch stands for a set that finds no room in memory.
    readahead = None if job.count == job.total else False
    return lambda: readers.by_batch(job.path, batches, check, readahead=readahead)


def by_ranks(comm: Any, job: Job, check: Check | None) -> Totals:
    """``Reader`` on every rank; the batch is global, each rank sees its share."""
    return readers.by_reader(job.path, BATCH, -(-job.count // BATCH), check, comm=comm)


def lmdb_in_order(job: Job, check: Check | None) -> Callable[[], Totals]:
    import lmdb

    return lambda: in_order(lmdb, job, check)


def lmdbio_in_order(job: Job, check: Check | None) -> Callable[[], Totals]:
    import lmdbio

    return lambda: in_order(lmdbio, job, check)


def lmdb_by_key(job: Job, check: Check | None) -> Callable[[], Totals]:
    import lmdb

    return by_key(lmdb, job, check)


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to read.

    Attributes:
        title: as the table shows it.
        order: what it takes part in.
        prepare: does what is not timed, returns what is; None for a job of several ranks.
        ranks, nodes: MPI ranks, and the nodes that one machine pretends to be.
    """

    title: str
    order: str
    prepare: Callable[[Job, Check | None], Callable[[], Totals]] | None
    ranks: int = 1
    nodes: int = 1


CONTESTANTS = {
    "lmdb-order": Contestant("py-lmdb, cursor", IN_ORDER, lmdb_in_order),
    "open-order": Contestant("lmdbio.open, same code", IN_ORDER, lmdbio_in_order),
    "reader-order": Contestant(
        "lmdbio.Reader, 4 ranks on 2 nodes", IN_ORDER, None, ranks=4, nodes=2
    ),
    "lmdb-shuffled": Contestant("py-lmdb, get per key", SHUFFLED, lmdb_by_key),
    "records-shuffled": Contestant("lmdbio.Records.read", SHUFFLED, by_records),
}


def run(job: Job) -> Answer:
    """Runs a job of one process."""
    prepare = CONTESTANTS[job.contestant].prepare
    assert prepare is not None
    if not job.verify:
        read = prepare(job, None)
        cold = measure.drop_cache(job.data_file)
        return Answer(sample=measure.timed(read, job.data_file, cold=cold).as_json())
    verifier = Verifier(job)
    prepare(job, verifier)()
    return Answer(verified=verifier.compared, wrong=verifier.wrong or missing(job, verifier.seen))


def missing(job: Job, seen: npt.NDArray[np.bool_]) -> str | None:
    """Says which of the records to read was not seen, None if all were."""
    unseen = np.flatnonzero(~seen[job.indices()])
    return f"{len(unseen)} of {job.count} records were not handed out" if len(unseen) else None


def run_ranks(job: Job) -> Answer | None:
    """Runs a job on every rank of MPI; rank 0 has the answer."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    nodes = comm.allreduce(int(node.rank == 0))
    node.Free()
    if job.verify:
        verifier = Verifier(job)
        by_ranks(comm, job, verifier)
        told = comm.gather((verifier.compared, verifier.wrong, verifier.seen))
        if told is None:
            return None
        seen = np.logical_or.reduce([seen for _, _, seen in told])
        first = next((wrong for _, wrong, _ in told if wrong), None)
        compared = sum(compared for compared, _, _ in told)
        return Answer(verified=compared, wrong=first or missing(job, seen), nodes=nodes)

    merged = timed_ranks(
        comm,
        job.data_file,
        lambda: by_ranks(comm, job, None),
        lambda: measure.drop_cache(job.data_file),
    )
    return None if merged is None else Answer(sample=merged.as_json(), nodes=nodes)


def timed_ranks(
    comm: Any, data_file: Path, read: Callable[[], Totals], drop: Callable[[], bool]
) -> measure.Sample | None:
    """Times ``read`` on all ranks, after ``drop`` on rank 0, which has the answer.

    The clock runs from one barrier to the moment when the last rank has its last value.
    """
    cold = drop() if comm.rank == 0 else False
    comm.Barrier()
    device = measure.device_counters(data_file)
    sample = measure.timed(read, data_file, cold=cold)
    # A rank that waits in MPI keeps a core busy, which the others still need.
    ended = comm.Ibarrier()
    while not ended.Test():
        time.sleep(0.001)
    served = measure.device_counters(data_file)
    samples = comm.gather(sample)
    if samples is None:
        return None
    merged = merge(samples)
    if device and served:
        merged = replace(
            merged, device_requests=served[0] - device[0], device_bytes=served[1] - device[1]
        )
    return merged


def merge(samples: list[measure.Sample]) -> measure.Sample:
    """One sample of many ranks': the slowest one's time, everyone's work."""

    def total(name: str) -> int | None:
        values = [getattr(sample, name) for sample in samples]
        return None if None in values else sum(values)

    return replace(
        samples[0],
        seconds=max(sample.seconds for sample in samples),
        cpu_seconds=sum(sample.cpu_seconds for sample in samples),
        records=sum(sample.records for sample in samples),
        value_bytes=sum(sample.value_bytes for sample in samples),
        fetched_bytes=total("fetched_bytes"),
        read_calls=total("read_calls"),
        major_faults=sum(sample.major_faults for sample in samples),
        # Shared memory counts once for each rank that touched it: a bound from above.
        peak_bytes=total("peak_bytes"),
    )


def main(argument: str) -> None:
    job = Job(**json.loads(argument))
    many = CONTESTANTS[job.contestant].ranks > 1
    answer = run_ranks(job) if many else run(job)
    if answer is not None:
        print(json.dumps(asdict(answer)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
