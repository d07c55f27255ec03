"""Loaders under torchrun: ranks cache together by default, and a restarted job goes on.

Goal: the batches are those of a Loader without a cache; ranks that cannot cache together, or do
not come, are told why; a job that a rank's death ends starts anew, and counts each sample once.

Method: programs that check themselves, and, of restarted ones, what their commits say.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lmdbio.convert.convert import convert
from lmdbio.share.sockets import SocketTransport
from lmdbio.tuning.job import MESSAGES_BYTES
from tests.support import ROOT, databases, long_run

pytest.importorskip("torch")
COUNT, EPOCHS = 240, 3
HERE = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
#: Each attempt has a store of its own: torch 2.13 lets all attempts meet in one, in which gloo may
#: read the addresses of dead ranks. And each rank is a node.
ANEW = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "LMDBIO_RANKS_PER_NODE": "1"}
SECONDS_MAX, INTERRUPTED_SECONDS_MAX = 300, 10


def value(i: int) -> bytes:
    return b"%06d" % i * (1 + i * 83 % 700)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torchrun") / "db"
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, value(i)) for i in range(COUNT)])
    return path


@contextlib.contextmanager
def started(command: Sequence[str], **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start torchrun; at the end, end it with its ranks."""
    job = subprocess.Popen(
        [*TORCHRUN, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**ENVIRONMENT, **variables},
    )  # fmt: skip
    try:
        yield job
    finally:
        ranks = children(job)
        job.kill()
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)
        job.communicate()


def children(job: subprocess.Popen[str]) -> list[int]:
    """Return the ranks that a torchrun which is alive has started."""
    with contextlib.suppress(OSError):
        return list(map(int, Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()))
    return []


def run(command: Sequence[str], **variables: str) -> str:
    """Return what the ranks of a job write that ends well."""
    with started(command, **variables) as job:
        out, _ = job.communicate(timeout=SECONDS_MAX)
        assert job.returncode == 0, out
        return out


@pytest.mark.more
def test_ranks_cache_together_where_they_can(folder: Path) -> None:
    out = run(
        ["--standalone", "--nproc-per-node=2", str(HERE / "sharing_ranks.py"), str(folder)],
        LMDBIO_RANKS_PER_NODE="1",
    )
    assert out.count("passed: ") == 12, out


@pytest.mark.more
def test_tune_measures_by_ranks_of_torchrun_what_it_does_by_those_of_mpiexec(
    tmp_path: Path,
) -> None:
    """Two nodes of two ranks: each node's first one reads, and sends to the other's."""
    path = tmp_path / "db"
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, databases.value(i, 8000)) for i in range(1200)])
    convert(path)
    tune = ["-m", "lmdbio", "tune", str(path), "--seconds", "0.05", "--json"]
    out = run(
        ["--standalone", "--nproc-per-node=4", *tune],
        LMDBIO_RANKS_PER_NODE="2", XDG_CACHE_HOME=str(tmp_path),
    )  # fmt: skip
    told = json.loads(out)  # the first rank alone says anything
    assert not told["turns"]["reason"]
    for job in told["turns"]["staggerings"]:
        assert (job["nodes"], job["roots"]) == (2, 2)
        assert all(min(sample["rates"]) > 0 for sample in job["samples"])
    assert [one["readers"] for one in told["readers"]] == [2, 2]
    assert [int(size) for size in told["network"]["mib_per_second"]] == list(MESSAGES_BYTES)
    assert min(told["network"]["mib_per_second"].values()) > 0
    assert len(list((tmp_path / "lmdbio" / "tuned").iterdir())) == 2, "of storage and network"


def judge(commits: Path) -> list[tuple[int, int]]:
    """Check that each sample was committed once an epoch; return ranks and attempt of each."""
    last, state = json.loads((commits / "state.json").read_text())
    assert state["epoch"] == EPOCHS and state["used"] == 0
    found: dict[int, Counter[int]] = {epoch: Counter() for epoch in range(EPOCHS)}
    jobs = []
    for number in range(1, last + 1):
        ranks, attempt, _ = json.loads((commits / f"{number}-0.json").read_text())
        jobs.append((ranks, attempt))
        for rank in range(ranks):
            said = json.loads((commits / f"{number}-{rank}.json").read_text())
            assert said[:2] == [ranks, attempt]
            for epoch, samples in said[2]:
                for name, digest in samples:
                    assert digest == hashlib.sha256(value(int(name))).hexdigest()
                    found[epoch][int(name)] += 1
    assert found == {epoch: Counter(range(COUNT)) for epoch in range(EPOCHS)}
    return jobs


#: Tests of restarts start their ranks several times.
restarts = pytest.mark.skipif(
    not long_run.IS_LONG, reason="half a minute, mostly of imports: make test-long runs it"
)


@restarts
def test_a_job_whose_ranks_are_killed_goes_on_where_it_has_committed(
    folder: Path, tmp_path: Path
) -> None:
    program = [str(HERE / "restarted_ranks.py"), str(folder), str(tmp_path), str(EPOCHS)]
    torchrun = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", "--monitor-interval=0.1"]
    run([*torchrun, *program, "0:1:42"], **ANEW)
    jobs = judge(tmp_path)
    assert jobs[:8] == [(2, 0)] * 8 and set(jobs[8:]) == {(2, 1)}


@restarts
def test_a_job_goes_on_with_fewer_ranks_when_a_machine_is_lost(
    folder: Path, tmp_path: Path
) -> None:
    """Two torchruns stand for machines; the second one ends without a word, with its rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    program = [str(HERE / "restarted_ranks.py"), str(folder), str(tmp_path), str(EPOCHS), "--slow"]
    torchrun = ["--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--monitor-interval=0.1"]
    torchrun += ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=job"]
    waits = "join_timeout=120,last_call_timeout=10,keep_alive_interval=1,keep_alive_max_attempt=3"
    first, second = (
        [*torchrun, f"--rdzv-conf={waits},is_host={host}", *program] for host in (1, 0)
    )
    with started(first, **ANEW) as staying, started(second, **ANEW) as leaving:
        deadline = time.monotonic() + SECONDS_MAX
        while not (tmp_path / "4-1.json").exists():  # of the second rank's fourth commit
            assert time.monotonic() < deadline and staying.poll() is None
            time.sleep(0.05)
        ranks = children(leaving)
        leaving.kill()
        for rank in ranks:
            os.kill(rank, signal.SIGKILL)
        out, _ = staying.communicate(timeout=SECONDS_MAX)
        assert staying.returncode == 0, out
    jobs = judge(tmp_path)
    assert [ranks for ranks, _ in jobs[:3]] == [2] * 3 and jobs[-1][0] == 1


def test_ctrl_c_ends_the_wait_for_a_rank_that_does_not_come() -> None:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    begun = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        SocketTransport(1, 2, store)
    assert time.monotonic() - begun < INTERRUPTED_SECONDS_MAX
    store.set("others", "use it on")
    assert store.get("others") == b"use it on"
