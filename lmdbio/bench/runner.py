"""One run of ``lmdbio bench``, in a process of its own, with as many again as the run asks for.

    python -m lmdbio.bench.runner ORDER           ORDER and the answer are JSON

The processes of a run get everything ready, wait for each other, and begin together. The time
is the slowest one's, from before it opens the file to its last value.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from lmdbio import share
from lmdbio.bench import layout as layouts, measure, plain, readers
from lmdbio.bench.layout import Layout
from lmdbio.bench.readers import Check, Lap, Part, Totals
from lmdbio.bench.shards import Shards
from lmdbio.bench.trials import Trial, Workload
from lmdbio.planning.mode import Mode
from lmdbio.provenance import data_files, find_sidecar

__all__ = ["Order", "Outcome", "ranks_by_mpi", "run"]

#: Batches under way beside the one in use, for ``Records.batches``.
AHEAD = 3


@dataclass(frozen=True, slots=True)
class Order:
    """One run to be made.

    Attributes:
        workload, trial: records that are read, and the contestant that reads them.
        keys: a file with the key of each record, one per line in hexadecimal, for readers that
            look records up by key; "" for accesses in order.
        warm: whether the page cache is left as it is.
        verify: hash what is read instead of timing it.
        consume: whether every byte is looked at, by adding up checksums.
        command: command line of fio or ior; empty for the others.
        summary: the file in which ior leaves its JSON.
        drop_all: a cold run finds nothing at all there, as far as this user may bring that about.
    """

    workload: Workload
    trial: Trial
    keys: str = ""
    warm: bool = False
    verify: bool = False
    consume: bool = False
    command: tuple[str, ...] = ()
    summary: str = ""
    drop_all: bool = False

    @classmethod
    def parse(cls, text: str) -> Order:
        fields = json.loads(text)
        fields["workload"] = Workload(**fields["workload"])
        fields["trial"] = Trial(**fields["trial"])
        fields["command"] = tuple(fields["command"])
        return cls(**fields)

    @property
    def layout(self) -> Layout:
        made = self.workload.layout(self.trial.transfer)
        assert made is not None
        return made

    @property
    def consumes(self) -> bool:
        """Whether the run adds up values by checksum; a reader of plain bytes has none."""
        one = self.trial.contestant
        return not one.raw and not self.verify and (self.consume or one.buffers)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        sample: time and counters; its ``records`` are requests where bytes were read. None
            after verifying.
        switches: context switches; None: not known.
        laps: seconds of each batch, for random access.
        digest: sum of hashes of every record read, or of checksums: the same whatever the order in
            which they came; 0 where neither was asked for.
        nodes: number of nodes that MPI's ranks ran on.
    """

    sample: measure.Sample | None = None
    switches: int | None = 0
    laps: tuple[float, ...] = ()
    digest: int = 0
    nodes: int = 1

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Outcome:
        sample = fields["sample"] and measure.Sample(**fields["sample"])
        laps = tuple(fields["laps"])
        return cls(sample, fields["switches"], laps, int(fields["digest"]), fields["nodes"])


class Digest:
    """A sum of hashes, each of a record's index and value: ranks may add theirs."""

    def __init__(self) -> None:
        self.sum = 0

    def __call__(self, index: int, value: Any) -> None:
        hashed = hashlib.blake2b(index.to_bytes(8, "little"), digest_size=8)
        hashed.update(value)
        self.sum = (self.sum + int.from_bytes(hashed.digest(), "little")) % 2**64


def prepare(
    order: Order, rank: int, check: Check | None, lap: Lap | None, comm: Any = None
) -> Callable[[], Totals]:
    """Do what is not timed, the loading of modules included; the function returned is timed.

    Args:
        order: run to be made.
        rank: process of the run.
        check, lap: see ``readers.consume``.
        comm: MPI's ranks, of a Reader that has several.
    """
    work, one = order.workload, order.trial.contestant
    if one.kind == "plain":
        layout = order.layout
        return plain.reading(
            layout.offsets(rank), layout.transfer, work.data_file, direct=one.direct, lap=lap,
            lap_requests=max(1, work.batch_bytes // work.processes // layout.transfer),
        )  # fmt: skip
    if one.kind in ("lmdb", "open"):
        parts = environment(order, rank)
    else:
        parts = surface(order, rank, comm)
    mean = work.value_bytes // max(1, work.count)
    weigh = readers.checksum(mean) if order.consumes else len
    return lambda: readers.consume(parts(), weigh, check=check, lap=lap, arrays=one.arrays)


def surface(order: Order, rank: int, comm: Any) -> Callable[[], Iterator[Part]]:
    """``Records`` or ``Reader``.

    Their modules are loaded here, as py-lmdb's are: a name of lmdbio's brings them when it is
    first used, which takes 50 to 110 ms.
    """
    import lmdbio

    work, one = order.workload, order.trial.contestant
    if one.kind == "reader":
        mode: Mode | str = "auto"
        if one.engine != "auto":  # the mode that "auto" would choose, with another engine
            found = Mode.resolve("auto", provenance=work.located_by == "provenance")
            mode = replace(found, engine=one.engine)
        options: dict[str, Any] = {"iterations": work.iterations, "mode": mode, "comm": comm}
        _ = lmdbio.Reader
        return partial(readers.by_reader, work.path, work.batch, db=work.db or None, **options)
    _ = lmdbio.Records
    options = {"engine": one.engine, "db": work.db or None}
    batches = work.batches(rank)
    if one.kind == "records":
        return partial(readers.by_sequence, work.path, work.runs(rank), **options)
    if one.kind == "slices":
        slices = [range(int(part[0]), int(part[-1]) + 1) for part in batches]
        return partial(readers.by_sequence, work.path, slices, sliced=True, **options)
    # A part of an epoch stands for a set that finds no room in memory, unless it is there.
    room = work.whole or order.warm or work.access != "random"
    options |= {"readahead": None if room else False, "ahead": AHEAD * (one.kind == "batches")}
    return partial(readers.by_batch, work.path, batches, **options)


def environment(order: Order, rank: int) -> Callable[[], Iterator[Part]]:
    """py-lmdb, or lmdbio in its clothes."""
    work, one = order.workload, order.trial.contestant
    options: dict[str, Any] = {"readahead": one.readahead, "buffers": one.buffers}
    module: Any
    if one.kind == "lmdb":
        import lmdb as module
    else:
        import lmdbio as module

        options["engine"] = one.engine
        _ = module.open
    by_cursor: Callable[..., Iterator[Part]] = partial(readers.by_cursor, module, work.path)
    by_key: Callable[..., Iterator[Part]] = partial(readers.by_key, module, work.path)
    if work.files > 1:
        many = Shards(work.path, work.db)
        by_cursor, by_key = many.by_cursor, many.by_key
    else:
        options["db"] = work.db
    if work.access != "random":
        return partial(by_cursor, work.runs(rank), **options)
    text = Path(order.keys).read_text(encoding="ascii").split()
    known = dict(zip(work.indices().tolist(), map(bytes.fromhex, text), strict=True))
    batches = [[(index, known[index]) for index in part.tolist()] for part in work.batches(rank)]
    return partial(by_key, batches, **options)


def drop(order: Order) -> bool:
    """Makes the run a cold one, unless it is to be warm; says whether it is."""
    if order.warm:
        return False
    dropped = measure.drop_all if order.drop_all else measure.drop_file
    work = order.workload
    files = [work.data_file] if work.files == 1 else data_files(work.path)
    for sidecar in map(find_sidecar, map(Path, files)):
        if sidecar.exists():
            measure.drop_file(sidecar)
    cold = [dropped(Path(file)) for file in files]
    return all(cold)


def ready(order: Order, rank: int, comm: Any = None) -> Callable[[bool], Outcome]:
    """Do what is not timed; the function returned reads, and is told whether the run is cold."""
    stamps: list[float] = []
    is_random = order.workload.access == "random"
    digest = Digest() if order.verify else None
    lap = (lambda: stamps.append(time.perf_counter())) if is_random else None
    read = prepare(order, rank, digest, lap, comm)

    def run(cold: bool) -> Outcome:
        if digest is not None:
            read()
            return Outcome(digest=digest.sum)
        switches = measure.switches()
        stamps.append(time.perf_counter())
        sample = measure.timed(read, Path(order.workload.data_file), cold=cold)
        laps = tuple(end - begun for begun, end in pairwise(stamps))
        return Outcome(sample, measure.switches() - switches, laps)

    return run


def child(order: Order, rank: int, pipe: Any) -> None:
    """Process ``rank`` of a run: says that it is ready, waits, reads, tells what it cost."""
    try:
        run = ready(order, rank)
        pipe.send(None)
        pipe.send(run(pipe.recv()))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def received(pipe: Any) -> Any:
    """Return what a process says.

    Raises:
        RuntimeError: it failed.
    """
    try:
        reported = pipe.recv()
    except EOFError:
        raise RuntimeError("a process ended without a word") from None
    if isinstance(reported, str):
        raise RuntimeError(reported)
    return reported


def run_processes(order: Order) -> Outcome:
    """A run of processes that know nothing of each other."""
    system = multiprocessing.get_context("fork")
    pipes = []
    for rank in range(order.workload.processes):
        ours, theirs = system.Pipe()
        system.Process(target=child, args=(order, rank, theirs), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    for pipe in pipes:
        received(pipe)
    cold = drop(order)
    for pipe in pipes:
        pipe.send(cold)
    return joined([received(pipe) for pipe in pipes])


def joined(reported: list[Outcome]) -> Outcome:
    """Return one outcome of many processes'."""
    samples = [one.sample for one in reported if one.sample is not None]
    return Outcome(
        merge(samples) if samples else None,
        sum(one.switches or 0 for one in reported),
        tuple(lap for one in reported for lap in one.laps),
        sum(one.digest for one in reported) % 2**64,
    )


def merge(samples: list[measure.Sample]) -> measure.Sample:
    """Return one sample of many processes': the slowest one's time, everyone's work.

    They begin together: while the slowest reads, the device serves all of them.
    """

    def total(name: str) -> int | None:
        values = [getattr(sample, name) for sample in samples]
        return None if None in values else sum(values)

    return replace(
        max(samples, key=lambda sample: sample.seconds),
        cpu_seconds=sum(sample.cpu_seconds for sample in samples),
        records=sum(sample.records for sample in samples),
        value_bytes=sum(sample.value_bytes for sample in samples),
        fetched_bytes=total("fetched_bytes"),
        read_calls=total("read_calls"),
        major_faults=sum(sample.major_faults for sample in samples),
        cold=samples[0].cold,
        # Shared memory counts once for each rank that touched it: a bound from above.
        peak_bytes=total("peak_bytes"),
    )


def run_ranks(order: Order) -> Outcome | None:
    """A run of MPI's ranks; rank 0 has the outcome.

    Clocks run from one barrier, until each rank has its last value.
    """
    comm = share.world()
    run = ready(order, comm.rank, comm)
    cold = drop(order) if comm.rank == 0 else False
    comm.Barrier()
    outcome = run(cold)
    # A rank that waits in MPI keeps a core busy, which the others still need.
    ended = comm.Ibarrier()
    while not ended.Test():
        time.sleep(0.001)
    reported, nodes = comm.gather(outcome), share.count_nodes(comm)
    return None if reported is None else replace(joined(reported), nodes=nodes)


def run_command(order: Order) -> Outcome:
    """fio or ior. Counters are those of all its processes; times are its own.

    Raises:
        RuntimeError: it failed, or read something else than it was asked for.
    """
    data, wanted = Path(order.workload.data_file), order.layout
    # Loads the program, which is not to be counted with what it reads.
    subprocess.run([order.command[0], "--version"], capture_output=True, check=False)
    cold, said = drop(order), ""
    before = os.times()

    def read() -> Totals:
        nonlocal said
        done = subprocess.run(order.command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise RuntimeError(" ".join([*words, f"(exit status {done.returncode})"]))
        said = done.stdout
        return wanted.requests, wanted.bytes

    sample = measure.timed(read, data, cold=cold)
    after = os.times()
    if order.trial.contestant.kind == "ior":
        # MPI's start is in the processor's time, not in the time that ior tells.
        busy = sum(after[2:4]) - sum(before[2:4])
        seconds = layouts.ior_seconds(Path(order.summary).read_text(encoding="utf-8"))
        return Outcome(replace(sample, seconds=seconds, cpu_seconds=busy), None)
    found = layouts.fio_figures(said)
    if found["bytes"] != wanted.bytes:
        raise RuntimeError(f"fio read {found['bytes']} bytes instead of {wanted.bytes}")
    sample = replace(
        sample,
        seconds=found["seconds"], cpu_seconds=found["cpu_seconds"], records=found["requests"],
    )  # fmt: skip
    return Outcome(sample, found["switches"])


def weighed(order: Order, outcome: Outcome | None) -> Outcome | None:
    """Of a run that added up checksums: these are the digest, and the bytes are the workload's."""
    if outcome is None or outcome.sample is None or not order.consumes:
        return outcome
    total = outcome.sample.value_bytes % 2**64
    sample = replace(outcome.sample, value_bytes=order.workload.value_bytes)
    return replace(outcome, sample=sample, digest=total)


def ranks_by_mpi(order: Order) -> bool:
    """Whether the processes of a run are MPI's ranks."""
    return order.trial.contestant.kind == "reader" and order.workload.processes > 1


def run(order: Order) -> Outcome | None:
    """Does a run; None on ranks other than 0."""
    if order.command:
        return run_command(order)
    outcome = run_ranks(order) if ranks_by_mpi(order) else run_processes(order)
    return weighed(order, outcome)


def main(argument: str) -> None:
    outcome = run(Order.parse(argument))
    if outcome is not None:
        print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except RuntimeError as failed:
        sys.exit(str(failed))
