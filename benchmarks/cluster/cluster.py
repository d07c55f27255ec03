"""A cluster on one machine: a mount for each emulated node, and the ranks that read there.

    with pfs.mounted(folder, mounts=4, constants=constants) as store:
        for told in run_ranks(store, 16, plan, seconds_max=60):
            ...

However a ``with`` ends, nothing stays mounted or running.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cluster import launch
from benchmarks.command import Failed
from benchmarks.pfs import pfs
from lmdbio.bench import processes

RANK = "benchmarks.cluster.rank"


def missing(transports: Sequence[str] = ("mpi",)) -> str | None:
    """Say what this machine lacks for a cluster, None if nothing.

    Args:
        transports: transports of its ranks.
    """
    return launch.lacking(transports) or pfs.missing()


@contextlib.contextmanager
def own_folder(prefix: str) -> Iterator[None]:
    """Keep temporary files of ranks and stores in one place, which goes whatever happens.

    Args:
        prefix: beginning of the folder's name.
    """
    with tempfile.TemporaryDirectory(prefix=prefix) as work:
        tempfile.tempdir = work
        try:
            yield
        finally:
            tempfile.tempdir = None


# --- ranks ---------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return the variables of ranks: they see this very package, have no thread pools of numpy's
    beside them, leave what they leave in ``own_folder`` (torchrun a folder of logs), and
    ``ranks_per_node`` alone makes nodes of them."""
    found = processes.inherited() | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    found["TMPDIR"] = tempfile.gettempdir()
    found.pop("LMDBIO_RANKS_PER_NODE", None)
    return found


def run_ranks(
    store: pfs.Store,
    ranks: int,
    plan: Mapping[str, Any],
    *,
    seconds_max: float,
    waiting: Callable[[int, float], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Starts the ranks; what they tell of each run of the plan, as it comes.

    Args:
        store: where they read.
        ranks: how many.
        plan: see ``rank.Ranks``; mounts and folder are filled in.
        seconds_max: without a word after so long, they have hung.
        waiting: called about once a second with the number of the run that is under way, and the
            seconds that it has taken.

    Raises:
        Failed: they ended with an error or hung; what was told before stays good.
    """
    whole = dict(plan) | {
        "mounts": [str(mount) for mount in store.mounts],
        "folder": str(store.folder),
        "ranks_per_node": ranks // len(store.mounts),
    }
    with tempfile.TemporaryDirectory(prefix="cluster-") as work:
        file, errors = Path(work) / "plan.json", Path(work) / "errors"
        file.write_text(json.dumps(whole), encoding="utf-8")
        with errors.open("w+", encoding="utf-8", errors="replace") as stderr:
            process = subprocess.Popen(
                launch.command(ranks, ["-m", RANK, str(file)], plan["transports"]),
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                yield from told(process, len(plan["runs"]), seconds_max, waiting)
                code = process.wait(processes.SECONDS_TO_END * 5)
            except subprocess.TimeoutExpired as error:
                raise Failed("the ranks do not end") from error
            finally:
                if process.poll() is None:  # hung, or Ctrl-C
                    end(process)
                if process.stdout is not None:
                    process.stdout.close()
        if code != 0:
            said = [line for line in errors.read_text(errors="replace").splitlines() if line]
            raise Failed(f"the ranks ended with status {code}: {' | '.join(said[-3:])}")


def told(
    process: subprocess.Popen[bytes],
    runs: int,
    seconds_max: float,
    waiting: Callable[[int, float], None] | None,
) -> Iterator[dict[str, Any]]:
    """The lines of JSON that a process writes, until it has told of all runs or ends."""
    assert process.stdout is not None
    descriptor, rest, count = process.stdout.fileno(), b"", 0
    begun = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while count < runs:
            passed = time.monotonic() - begun
            if passed > seconds_max:
                raise Failed(f"nothing came for {seconds_max:g} s (the limit)")
            if not selector.select(timeout=1.0):
                if waiting is not None:
                    waiting(count, passed)
                continue
            read = os.read(descriptor, 1 << 20)
            if not read:
                break
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                if line.startswith(b"{"):
                    yield json.loads(line)
                    count += 1
                    begun = time.monotonic()


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the launcher and every rank, whatever session they are in."""
    with contextlib.suppress(OSError):
        processes.end(process)
