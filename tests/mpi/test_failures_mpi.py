"""Goal: a rank that fails, or is killed, takes all others with it, soon and by name.

Method: failing.py lets ranks fail in every way, one Reader after another, and the job goes on;
ending.py is a job that an exception, a signal or Ctrl-C ends, judged from outside by what each
rank wrote down, by the clock, and by what is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import launch
import pytest

pytestmark = pytest.mark.mpi

RANKS = 4
#: The job is over, its processes too, so long after a rank was killed at the latest, seconds.
ENDING_SECONDS_MAX = 5


@pytest.mark.program("failing.py", "fixed", 4, 3, 1, ranks=RANKS)
def test_a_rank_that_fails_is_named_on_all_ranks_of_all_nodes(output: str) -> None:
    """One node, nodes that are unequal, and a node for each rank."""
    assert "24 cases" in output


@pytest.mark.program("failing.py", "fixed", 2, ranks=RANKS)
@pytest.mark.usefixtures("nodes_of_its_own")
def test_a_rank_that_fails_is_named_on_nodes_that_mpi_itself_makes(output: str) -> None:
    assert "8 cases" in output


def endings(folder: Path) -> list[tuple[float, int, str]]:
    """When each rank wrote last, its process, and how it fares."""
    told = []
    for rank in range(RANKS):
        when, pid, how = (folder / f"rank{rank}").read_text().strip().split(" ", 2)
        told.append((float(when), int(pid), how))
    return told


@pytest.mark.parametrize(
    ("failing", "per_node"), [(0, 4), (3, 4), (1, 2)], ids=["a root", "no root", "of 2 nodes"]
)
def test_an_exception_that_nobody_catches_reaches_the_others(
    mpi: launch.Mpi, failing: int, per_node: int, fixed: Path, tmp_path: Path
) -> None:
    out = mpi.run(RANKS, "ending.py", fixed, failing, tmp_path, per_node, expect=None, plain=True)
    told = endings(tmp_path)
    for rank, (when, _pid, how) in enumerate(told):
        if rank == failing:
            assert how == "failed"
        else:
            cause = f"PeerError: rank {failing} failed: Fire: the rank is on fire"
            assert how.startswith(cause), (rank, how, out)
            assert 0 <= when - told[failing][0] < ENDING_SECONDS_MAX


@contextmanager
def reading(
    mpi: launch.Mpi, fixed: Path, folder: Path, per_node: int
) -> Iterator[subprocess.Popen[str]]:
    """A job in mid-epoch, in a session of its own; it does not outlive the test."""
    job = subprocess.Popen(
        mpi.command(RANKS, "ending.py", fixed, -1, folder, per_node, plain=True),
        env=mpi.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        assert job.stdout is not None
        said = []
        for line in job.stdout:
            said.append(line)
            if "reading" in line:
                break
        else:
            raise AssertionError("".join(said))
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        for note in folder.iterdir():
            pid = int(note.read_text().split()[1])
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def wait_for_the_end(job: subprocess.Popen[str], folder: Path, seconds: float) -> None:
    """Until the job and all its ranks are gone, which must be soon, and told by its status."""
    begun = time.monotonic()
    out, _ = job.communicate(timeout=3 * seconds)
    while any(alive(pid) for _, pid, _ in endings(folder)):
        assert time.monotonic() - begun < seconds, (endings(folder), out)
        time.sleep(0.02)
    assert time.monotonic() - begun < seconds, out
    assert job.returncode != 0, out


def test_ctrl_c_ends_all_ranks(mpi: launch.Mpi, fixed: Path, tmp_path: Path) -> None:
    with reading(mpi, fixed, tmp_path, RANKS) as job:
        time.sleep(0.1)
        job.send_signal(signal.SIGINT)
        wait_for_the_end(job, tmp_path, 2 * ENDING_SECONDS_MAX)


@pytest.mark.parametrize(
    ("killed", "per_node"), [(0, 4), (3, 4), (2, 2)], ids=["a root", "no root", "of 2 nodes"]
)
def test_a_killed_rank_ends_the_job_and_nothing_is_left(
    mpi: launch.Mpi, killed: int, per_node: int, fixed: Path, tmp_path: Path
) -> None:
    """The fixture of all these tests looks for what is left in shared memory."""
    with reading(mpi, fixed, tmp_path, per_node) as job:
        os.kill(endings(tmp_path)[killed][1], signal.SIGKILL)
        wait_for_the_end(job, tmp_path, ENDING_SECONDS_MAX)


def test_windows_of_readers_that_failed_are_freed_with_the_next_one(
    mpi: launch.Mpi, fixed: Path
) -> None:
    out = mpi.run(2, "leftovers.py", fixed)
    told = [line.split() for line in out.splitlines() if line.startswith("most ")]
    assert len(told) == 2, out
    for _, most, _, first, _, last in told:
        # The last one's window, and that of the view that is held.
        assert 0 < int(first) <= int(last) <= int(most) <= 4 * int(first), out


def test_an_interrupt_while_a_reader_is_made_is_told_to_all(mpi: launch.Mpi, fixed: Path) -> None:
    """A launch of its own: MPI ends with all that the failed Readers have left."""
    assert mpi.run(3, "interrupted.py", fixed).count("all") == 3


@pytest.mark.parametrize("who", ["all", "some"])
def test_a_communicator_that_is_freed_leaves_nothing_and_keeps_nobody_waiting(
    mpi: launch.Mpi, who: str, mixed: Path
) -> None:
    """A launch of its own: letters on freed communicators may be there when MPI ends."""
    if mpi.name == "sockets":
        pytest.skip("no communicator of MPI's is freed without MPI")
    assert mpi.run(3, "freed.py", mixed, who).count("all") == 3
