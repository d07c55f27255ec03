"""The program of each rank: reads as a plan says, run after run, and tells what each one cost.

    mpiexec -n RANKS python -m mpi4py rank.py PLAN.json
    torchrun --nproc-per-node RANKS rank.py PLAN.json       where no Reader speaks over MPI

Rank 0 writes one line of JSON for each run. Before a run it puts the data out of the page cache
of every mount; while one is under way nothing else happens, and a rank that is done sleeps:
MPI's own barriers spin, and would take the processors from those who still read.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.cluster import counters, others, simulated, ways
from benchmarks.cluster.launch import meet
from benchmarks.cluster.task import Task
from benchmarks.pfs import pfs
from lmdbio import share
from lmdbio.bench import trials
from lmdbio.bench.measure import drop_all, drop_file, resident_share
from lmdbio.locate.open import open_record_index

CRC_MODULUS = 2**64


# --- what a run costs ----------------------------------------------------------------------


def used() -> dict[str, float]:
    """Of this process up to now, all threads; and of this thread."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_s": own.ru_utime + own.ru_stime,
        "thread_cpu_s": time.thread_time(),
        "voluntary": own.ru_nvcsw,
        "involuntary": own.ru_nivcsw,
        "major_faults": own.ru_majflt,
        "now": time.monotonic(),
    }


@contextlib.contextmanager
def spent(into: dict[str, float]) -> Iterator[None]:
    before = used()
    try:
        yield
    finally:
        after = used()
        into |= {name: after[name] - before[name] for name in after}


def switches_of_others() -> int:
    """Context switches of all threads of this process but the main one: a root reads while it
    still opens."""
    total = 0
    for status in Path("/proc/self/task").glob("[0-9]*/status"):
        if int(status.parent.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it has ended
            lines = status.read_text(encoding="ascii").splitlines()
            total += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return total


class Sums:
    """Of all records' bytes, in any order."""

    def __init__(self) -> None:
        self.sum = 0

    def look(self, record: Any) -> None:
        self.sum = (self.sum + zlib.crc32(record)) % CRC_MODULUS


# --- what was needed -----------------------------------------------------------------------


@cache
def extents(path: str) -> npt.NDArray[Any]:
    """Of all records, read past the mounts."""
    source = open_record_index(path, locate="auto", check="fast")
    try:
        found: npt.NDArray[Any] = source.extents(np.arange(source.count, dtype=np.uint64))
        return np.array(found)
    finally:
        source.close()


def page_bytes(path: str, indices: npt.NDArray[np.uint64]) -> int:
    """Return bytes of the pages that hold these records, again in each epoch that has them."""
    found, (records, times) = extents(path), np.unique(indices, return_counts=True)
    size = 0
    for epoch in range(int(times.max())):
        again = found[records[times > epoch]]
        size += trials.page_bytes(again["offset"], np.maximum(again["length"], 1))
    return size


# --- one run -------------------------------------------------------------------------------


class Ranks:
    """The ranks of one shape, before the mounts of one store.

    Args:
        plan: "mounts", "ranks_per_node", "folder" (what the mounts show), "drop_all",
            "barrier", "reader" (options), "constants" (of the store), "tuned" (rates were
            measured there), "group" (a control group that bounds the memory of all ranks; "":
            none), "transports", "cells" and "runs".
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.comms = meet(plan["transports"])
        self.job = share.connect(next(iter(self.comms.values())))
        self.job.free()  # nodes are emulated
        self.rank, self.size = self.job.rank, self.job.size
        self.per_node: int = plan["ranks_per_node"]
        self.mount = Path(plan["mounts"][self.rank // self.per_node])

    def together(self) -> None:
        """Wait for all ranks; nobody spins."""
        self.job.together(lambda: None)

    def make_cold(self, dataset: str) -> float:
        """Puts a data set out of the page cache of every mount; the share that is still in."""
        drop = drop_all if self.plan["drop_all"] else drop_file
        shares = []
        for mount in self.plan["mounts"]:
            files = [file for file in (Path(mount) / dataset).iterdir() if file.is_file()]
            for file in files:
                drop(file)
            shares += [resident_share(file) for file in files if file.name == "data.mdb"]
        return max(shares)

    def task(self, run: Mapping[str, Any], cell: Mapping[str, Any]) -> Task:
        return Task(
            path=str(self.mount / cell["dataset"]),
            lane=run["lane"],
            cell=cell,
            comm=self.comms[run["lane"]["transport"] or next(iter(self.comms))],
            rank=self.rank,
            size=self.size,
            ranks_per_node=self.per_node,
            bytes_max=run["bytes_max"],
            step=partial(self.step, cell["compute_ms"] / 1e3, is_busy=run["lane"]["is_busy"]),
            options=self.plan["reader"],
        )

    def step(self, compute_s: float, *, is_busy: bool) -> None:
        """Do what training would do after an iteration: compute, and wait for the others."""
        if is_busy:
            end = time.monotonic() + compute_s
            while time.monotonic() < end:
                pass
        elif compute_s:
            time.sleep(compute_s)
        if self.plan["barrier"]:
            self.together()

    def perform(self, run: Mapping[str, Any]) -> dict[str, Any] | None:
        """One run, by all ranks; what came of it, on rank 0."""
        cell = self.plan["cells"][run["cell"]]
        resident = self.make_cold(cell["dataset"]) if self.rank == 0 else 0.0
        way = ways.make(self.task(run, cell))
        sums = Sums()
        own, traffic = self.measure(way, sums.look if run["verifies"] else None)
        own |= {"sum": sums.sum, "node": self.rank // self.per_node}
        indices = np.concatenate(way.account.indices or [np.empty(0, np.uint64)])
        told = self.job.together(lambda: (own, indices))
        if self.rank:
            return None
        needed = self.needed(cell, [places for _, places in told])
        result = summary([one for one, _ in told], traffic, needed) | {"resident": resident}
        if run["lane"]["policy"] and not result["error"]:
            result["simulated"] = self.simulated(run["lane"], cell)
        return result

    def simulated(self, lane: Mapping[str, Any], cell: Mapping[str, Any]) -> dict[str, Any]:
        """The expectation of a run, before it."""
        found = extents(str(Path(self.plan["folder"]) / cell["dataset"]))
        size = self.plan["reader"]["request_bytes_max"]
        if self.plan["tuned"]:
            path = str(self.mount / cell["dataset"])
            return simulated.predict(lane, cell, found, path, size)
        return simulated.simulate(lane, cell, found, self.plan["constants"], size)

    def measure(
        self, way: ways.Way, look: Callable[[Any], None] | None
    ) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
        """This rank's part, and the store's counters before and after."""
        whole: dict[str, float] = {}
        own: dict[str, Any] = {"error": ""}
        switched = switches_of_others()
        self.together()
        traffic = self.counted()
        self.together()
        begun = opened = time.monotonic()
        try:
            way.open()
            opened = time.monotonic()
            own["early_switches"] = max(0, switches_of_others() - switched)
            with spent(whole):
                way.read(look)
        except Exception as error:
            own["error"] = f"{type(error).__name__}: {error}"
        ended = time.monotonic()
        self.together()
        traffic += self.counted()
        if not own["error"]:
            way.close()
        account = asdict(way.account)
        del account["indices"]
        times = {"begun": begun, "opened": opened, "ended": ended}
        return own | {"rank": self.rank, "phase": whole} | times | account, traffic

    def counted(self) -> list[Mapping[str, Any]]:
        """Return the store's counters, on rank 0."""
        return [pfs.counters(self.plan["mounts"][0])] if self.rank == 0 else []

    def needed(
        self, cell: Mapping[str, Any], indices: Sequence[npt.NDArray[np.uint64]]
    ) -> list[int]:
        """Bytes of the pages that each node's records lie in."""
        path = str(Path(self.plan["folder"]) / cell["dataset"])
        nodes = [
            np.concatenate(indices[first : first + self.per_node])
            for first in range(0, self.size, self.per_node)
        ]
        return [page_bytes(path, node) if len(node) else 0 for node in nodes]


def summary(
    ranks: list[dict[str, Any]], traffic: list[Mapping[str, Any]], needed: list[int]
) -> dict[str, Any]:
    """A run, from what each rank tells. Times are from when the first rank began."""
    errors = [one["error"] for one in ranks if one["error"]]
    if errors:
        return {"error": errors[0]}
    begun = min(one["begun"] for one in ranks)
    opened = min(one["read_since"] or one["opened"] for one in ranks)
    ended = max(one["ended"] for one in ranks)
    for one in ranks:
        phase = one["phase"]
        one["skew_s"] = ended - one["ended"]
        one["open_s"] = one["opened"] - one["begun"]
        one["read_s"] = phase["now"]
        one["sleep_s"] = max(0.0, phase["now"] - phase["thread_cpu_s"])
        for name in ("begun", "opened", "ended", "read_since", "error"):
            del one[name]
    return {
        "error": "",
        "seconds": ended - begun,
        "reading_s": ended - opened,
        "records": sum(one["records"] for one in ranks),
        "value_bytes": sum(one["bytes"] for one in ranks),
        "sum": sum(one["sum"] for one in ranks) % CRC_MODULUS,
        "needed": needed,
        "ranks": ranks,
    } | counters.between(*traffic)


def main() -> None:
    """Do the runs of the plan that the program was given, and tell what came of each."""
    ranks = Ranks(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    if any(run["lane"]["kind"] in others.KINDS for run in ranks.plan["runs"]):
        import torch  # noqa: F401 (neither its time nor its memory counts)
    if ranks.plan["group"]:
        (Path(ranks.plan["group"]) / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    for number, run in enumerate(ranks.plan["runs"]):
        result = ranks.perform(run)
        if result is not None:
            print(json.dumps({"run": number} | result), flush=True)
        ranks.together()


if __name__ == "__main__":
    main()
