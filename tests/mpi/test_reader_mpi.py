"""Goal: with many ranks a Reader gives each its share, hangs nobody and never lies.

Method: programs of this folder run on 1 to 8 ranks, as one node and as several; each runs many
cases per launch and checks itself. Failures and interrupts are judged from outside, by what
each rank wrote down and by the clock.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import data
import launch
import pytest

from lmdbio import timeline
from lmdbio.convert import convert

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a sidecar: "auto" reads by provenance, the other modes by a scan."""
    values = [data.mixed_value(i) for i in range(data.MIXED)]
    path = data.write(tmp_path_factory.mktemp("mixed") / "db", values)
    convert(path)
    return path


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = [data.fixed_value(i) for i in range(data.FIXED)]
    return data.write(tmp_path_factory.mktemp("fixed") / "db", values)


SHM = Path("/dev/shm")


def mapped_somewhere(name: str) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if name in maps.read_text(encoding="ascii", errors="replace"):
                return True
        except OSError:
            continue
    return False


@pytest.fixture(autouse=True)
def nothing_stays_in_shared_memory() -> Iterator[None]:
    """No window does; what MPICH itself leaves behind when a job is torn down is removed."""
    before = {path.name for path in SHM.iterdir()}
    yield
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:  # ranks of a job that was torn down may still be ending
        left = [path for path in SHM.iterdir() if path.name not in before]
        if not any(mapped_somewhere(path.name) for path in left):
            break
        time.sleep(0.05)
    assert not [path for path in left if "shar" in path.name]
    for path in left:
        if path.name.startswith("mpich_shm_") and not mapped_somewhere(path.name):
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_the_union_of_shares_is_the_circular_sequence(ranks: int, mixed: Path) -> None:
    assert "cases" in launch.run(ranks, "shares.py", mixed)


def test_the_union_of_shares_is_the_same_on_nodes_that_mpi_itself_makes(mixed: Path) -> None:
    assert "cases" in launch.run(4, "shares.py", mixed, env=launch.TWO_NODES)


@pytest.mark.parametrize(
    ("ranks", "env"),
    [(2, {}), (4, {}), (4, launch.TWO_NODES), (4, {"LMDBIO_RANKS_PER_NODE": "1"})],
    ids=["2 ranks", "4 ranks", "2 nodes of 2", "4 nodes of 1"],
)
def test_slots_are_never_overwritten_and_nobody_is_held_up(
    ranks: int, env: dict[str, str], fixed: Path
) -> None:
    out = launch.run(ranks, "lifetimes.py", fixed, env=env)
    assert out.count(" s\n") == 10


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_cannot_begin_is_refused_on_all_ranks(
    ranks: int, fixed: Path, tmp_path: Path
) -> None:
    smaller = data.write(tmp_path / "smaller", [data.fixed_value(i) for i in range(10)])
    assert launch.run(ranks, "refusals.py", fixed, smaller).count(": ok\n") == 7


def endings(folder: Path, ranks: int) -> list[tuple[float, int, str]]:
    told = []
    for rank in range(ranks):
        when, pid, how = (folder / f"rank{rank}").read_text().strip().split(" ", 2)
        told.append((float(when), int(pid), how))
    return told


@pytest.mark.parametrize("failing", [0, 3], ids=["a root", "no root"])
@pytest.mark.parametrize("manner", ["with", "holds", "uncaught"])
def test_an_exception_in_one_rank_reaches_the_others_within_a_second(
    manner: str, failing: int, fixed: Path, tmp_path: Path
) -> None:
    expect = None if manner == "uncaught" else 0
    out = launch.run(4, "failing.py", fixed, manner, failing, tmp_path, expect=expect, plain=True)
    told = endings(tmp_path, 4)
    for rank, (when, _pid, how) in enumerate(told):
        if rank == failing:
            assert how == "failed"
        else:
            cause = "BufferError" if manner == "holds" else "Fire: the rank is on fire"
            assert how.startswith(f"PeerError: rank {failing} failed: {cause}"), (rank, how, out)
            assert 0 <= when - told[failing][0] < 1.0
    if manner != "uncaught":
        assert out.count("goes on") == 4


def test_windows_of_readers_that_failed_are_freed_with_the_next_one(fixed: Path) -> None:
    out = launch.run(2, "leftovers.py", fixed)
    told = [line.split() for line in out.splitlines() if line.startswith("most ")]
    assert len(told) == 2, out
    for _, most, _, first, _, last in told:
        # The last one's window, and that of the view that is held.
        assert 0 < int(first) <= int(last) <= int(most) <= 4 * int(first), out


def test_ctrl_c_ends_all_ranks(fixed: Path, tmp_path: Path) -> None:
    job = subprocess.Popen(
        launch.command(4, "failing.py", fixed, "forever", -1, tmp_path, plain=True),
        env=launch.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        assert job.stdout is not None
        for line in job.stdout:
            if "reading" in line:
                break
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        time.sleep(0.2)
        begun = time.monotonic()
        job.send_signal(signal.SIGINT)
        out, _ = job.communicate(timeout=15)
        assert time.monotonic() - begun < 10, out
        assert job.returncode != 0
        assert children and not any(Path(f"/proc/{pid}").exists() for pid in children)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def test_a_really_small_dev_shm_is_a_clear_error(fixed: Path) -> None:
    """A private tmpfs: enough for MPI itself, too little for the window."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare, to mount a small /dev/shm in a namespace")
    mount = 'mount -t tmpfs -o size=24m tmpfs /dev/shm && exec "$@"'
    prefix = ("unshare", "-m", "sh", "-c", mount, "sh")
    probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"cannot mount in a namespace: {probe.stderr.decode().strip()}")
    for known in ("known", "unknown"):
        out = launch.run(2, "small_shm.py", fixed, known, prefix=prefix)
        refused = [line for line in out.splitlines() if "Error: " in line]
        assert len(refused) == 2, out
        assert ("free; take a smaller batch_size" if known == "known" else "ran out") in out
        assert out.count("works with less") == 2, out


def test_each_rank_writes_a_trace_and_together_they_tell_what_was_done(
    fixed: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        launch.command(4, "traced.py", fixed),
        env=launch.environment({"LMDBIO_TRACE": str(tmp_path / "t.json")}),
        capture_output=True,
        text=True,
        timeout=launch.TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"t.r{rank}.json" for rank in range(4)]
    traces = [timeline.load(file) for file in files]
    assert [timeline.check(trace) for trace in traces] == [[]] * 4
    merged = timeline.merge(traces)
    assert timeline.check(merged) == []
    stages = timeline.stages(merged)
    assert {line.process.split()[1] for line in stages} == {"0", "1", "2", "3"}
    roots = {line.process.split()[1] for line in stages if line.stage == "fill"}
    assert roots == {"0", "2"}, "one rank of each node reads"

    told = json.loads(done.stdout)
    values = [len(data.fixed_value(i % data.FIXED)) for i in range(40 * 12)]
    assert (told["records"], told["record_bytes"]) == (len(values), sum(values))
    assert told["iterations"] == 160 and told["blocks"] == 20
    fills = [line for line in stages if line.stage == "fill"]
    assert sum(line.count for line in fills) == 20
    assert sum(line.seconds for line in fills) == pytest.approx(told["fill_seconds"], abs=1e-4)
    assert told["planned_bytes"] == told["read_bytes"] == sum(line.amount for line in fills)
