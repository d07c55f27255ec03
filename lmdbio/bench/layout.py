"""Plain reads of a file, as IOR lays them out, and the commands of fio and ior for them. Pure.

    file      | segment 0                   | segment 1                   | ...
    segment   | block of p0 | of p1 | of p2 |
    block     | transfer | transfer | ...

Process p reads its block of each segment, a transfer at a time. One segment gives each process
one contiguous part; many segments are the stride of Caffe's ranks. ``random`` takes as many
transfers from all over the file instead, no two the same.

Source: IOR's options -b, -t, -s, -z; fio's zonemode=strided.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Layout", "fio_command", "fio_figures", "ior_command", "ior_seconds", "lay_out"]

#: The grain that O_DIRECT asks for at most, of offsets and sizes.
GRAIN = 4096


@dataclass(frozen=True, slots=True)
class Layout:
    """The bytes that each process reads, and in which pieces.

    Attributes:
        transfer: bytes of a request.
        block: bytes that a process reads in one piece of the file.
        segments: rounds of blocks.
        processes: number of processes that read.
        span: bytes of the file that a random layout chooses from; 0: not random.
        seed: seed of that choice.
    """

    transfer: int
    block: int
    segments: int
    processes: int
    span: int = 0
    seed: int = 1

    @property
    def bytes(self) -> int:
        """Read by all processes together."""
        return self.block * self.segments * self.processes

    @property
    def requests(self) -> int:
        return self.bytes // self.transfer

    def offsets(self, rank: int) -> Iterator[int]:
        """Where each transfer of process ``rank`` begins, in its order."""
        if self.span:
            places = np.random.default_rng(self.seed)
            chosen = places.choice(self.span // self.transfer, self.requests, replace=False)
            yield from (chosen[rank :: self.processes] * self.transfer).tolist()
            return
        for segment in range(self.segments):
            first = (segment * self.processes + rank) * self.block
            yield from range(first, first + self.block, self.transfer)


def lay_out(
    access: str,
    transfer: int,
    *,
    wanted_bytes: int,
    file_bytes: int,
    share_bytes: int,
    processes: int,
    seed: int = 1,
) -> Layout | None:
    """The layout that reads about ``wanted_bytes``, None where a transfer is too large for it.

    Args:
        access: "sequential", "strided" or "random".
        transfer: a multiple of 4 KiB.
        wanted_bytes: size of all reads, bytes; rounded down to what comes out even.
        file_bytes: size of the file that random transfers are taken from.
        share_bytes: the share of a batch that one process reads: the block of a stride.
        processes: number of processes that read.
        seed: seed of the random choice.

    Raises:
        ValueError: a transfer that O_DIRECT may refuse.
    """
    if transfer < GRAIN or transfer % GRAIN:
        raise ValueError(f"a transfer is a multiple of {GRAIN} bytes, not {transfer}")
    each = wanted_bytes // processes
    if access == "random":
        made = Layout(transfer, transfer, each // transfer, processes, file_bytes, seed)
    elif access == "strided":
        block = max(transfer, share_bytes // transfer * transfer)
        made = Layout(transfer, block, each // block, processes)
    else:
        made = Layout(transfer, each // transfer * transfer, 1, processes)
    return made if made.bytes else None


def fio_command(
    layout: Layout, path: str, *, direct: bool, depth: int = 1, queue: str = "libaio"
) -> list[str]:
    """fio, reading the same: synchronously, or by ``queue`` with ``depth`` requests in flight."""
    engine = ["--ioengine=psync"] if depth == 1 else [f"--ioengine={queue}", f"--iodepth={depth}"]
    each = layout.bytes // layout.processes
    command = [
        "fio", "--name=lmdbio", f"--filename={path}", "--readonly", "--invalidate=0",
        f"--bs={layout.transfer}", f"--direct={int(direct)}", *engine,
        f"--numjobs={layout.processes}", "--group_reporting", "--output-format=json",
    ]  # fmt: skip
    if layout.span:
        places = [f"--size={layout.span // layout.transfer * layout.transfer}"]
        return [
            *command,
            "--rw=randread",
            *places,
            f"--io_size={each}",
            f"--randseed={layout.seed}",
        ]
    if layout.segments > 1:
        stride = layout.block * layout.processes
        places = ["--zonemode=strided", f"--zonesize={layout.block}", f"--zonerange={stride}"]
        # From its own offset on, the last block of a process ends one stride minus its place.
        places += [f"--size={(layout.segments - 1) * stride + layout.block}"]
    else:
        places = [f"--size={each}"]
    if layout.processes > 1:
        places.append(f"--offset_increment={layout.block}")
    return [*command, "--rw=read", *places, f"--io_size={each}"]


def fio_figures(text: str) -> dict[str, Any]:
    """From fio's JSON: bytes, requests, seconds, CPU seconds and context switches.

    Raises:
        ValueError: that is not fio's JSON.
    """
    try:
        # Warnings may stand before it.
        job = json.loads(text[text.index("{") :])["jobs"][0]
        read = job["read"]
        # Milliseconds, rounded down.
        seconds = max(read["runtime"], 1) / 1000
        busy = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
        return {
            "bytes": int(read["io_bytes"]),
            "requests": int(read["total_ios"]),
            "seconds": seconds,
            "cpu_seconds": busy,
            "switches": int(job["ctx"]),
        }
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError("fio gave no figures") from error


def ior_command(
    layout: Layout, path: str, summary: str, mpiexec: str | None, *, direct: bool
) -> list[str]:
    """IOR 3.3 or later, reading the same.

    Args:
        layout: Layout that is read; not a random one.
        path: the file. ``-k`` keeps it: without it IOR removes what it has read.
        summary: file for IOR's JSON; its warnings go elsewhere then.
        mpiexec: launcher of the processes; None: one process without it.
        direct: whether to read past the page cache (O_DIRECT).
    """
    command = [] if mpiexec is None else [mpiexec, "-n", str(layout.processes)]
    command += ["ior", "-a", "POSIX", "-r", "-E", "-k", "-g", "-i", "1"]
    command += ["-t", str(layout.transfer), "-b", str(layout.block), "-s", str(layout.segments)]
    command += ["--posix.odirect"] if direct else []
    return [*command, "-o", path, "-O", "summaryFormat=JSON", "-O", f"summaryFile={summary}"]


def ior_seconds(text: str) -> float:
    """From IOR's JSON: how long its read took, opening and closing included.

    Raises:
        ValueError: that is not IOR's JSON.
    """
    try:
        return next(
            float(found["totalTime"])
            for found in dictionaries(json.loads(text))
            if found.get("access") == "read" and float(found.get("totalTime", 0)) > 0
        )
    except (StopIteration, TypeError, ValueError) as error:
        raise ValueError("ior gave no figures") from error


def dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    """All dictionaries in a JSON value: IOR's versions nest their results differently."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from dictionaries(item)
