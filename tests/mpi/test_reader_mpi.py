"""Goal: with many ranks a Reader gives each its share, hangs nobody and never lies.

Method: programs of this folder run on 1 to 8 ranks, as one node and as several; each runs many
cases per launch and checks itself. Of those that draw their cases ``make law`` draws many more.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import data
import launch
import pytest

from lmdbio.observe import timeline
from lmdbio.placement.policy import READERS

pytestmark = pytest.mark.mpi


#: More ranks than cores take long: make test-more.
EIGHT = pytest.param("mpich", 8, marks=pytest.mark.more)
#: Under the second MPI fewer sizes do; 4 ranks are those of the test below.
SIZES = [*(("mpich", n) for n in (1, 2, 3, 5)), EIGHT, *(("openmpi", n) for n in (2, 5))]


@pytest.mark.program("shares.py", "mixed")
@pytest.mark.parametrize(("mpi", "ranks"), SIZES, indirect=["mpi"])
def test_the_union_of_shares_is_the_circular_sequence(output: str, ranks: int) -> None:
    assert "cases" in output


@pytest.mark.program("shares.py", "mixed", ranks=4)
@pytest.mark.usefixtures("nodes_of_its_own")
def test_the_union_of_shares_is_the_same_on_nodes_that_mpi_itself_makes(output: str) -> None:
    assert "cases" in output


@pytest.mark.program("shuffles.py", "mixed")
@pytest.mark.parametrize(
    ("mpi", "ranks"),
    [("mpich", 1), ("mpich", 3), EIGHT, ("openmpi", 4)],
    indirect=["mpi"],
)
def test_shuffled_epochs_have_each_record_once_in_the_order_of_the_seed(
    output: str, ranks: int
) -> None:
    assert "cases" in output


@pytest.mark.program("shuffles.py", "mixed", ranks=4)
@pytest.mark.usefixtures("nodes_of_its_own")
def test_shuffled_epochs_are_the_same_on_nodes_that_mpi_itself_makes(output: str) -> None:
    assert "cases" in output


@pytest.mark.program("caches.py", "mixed", "fixed")
@pytest.mark.parametrize(
    # Cases for each size of nodes, and one rank has one of them.
    ("ranks", "arguments"),
    [(1, (14,)), (4, (3,))],
    ids=["1", "4"],
)
def test_parts_of_the_file_that_roots_keep_are_read_once_and_serve_all(
    output: str, ranks: int, arguments: tuple[int, ...]
) -> None:
    assert "told before" in output


@pytest.mark.program("loading.py", "mixed", "fixed", "tiny", 3)
@pytest.mark.parametrize(("mpi", "ranks"), [("mpich", 3), ("openmpi", 2)], indirect=["mpi"])
def test_loaders_whose_ranks_keep_the_file_together_have_the_batches_of_any_other(
    with_torch: None, output: str, ranks: int
) -> None:
    assert "cases" in output


@pytest.mark.program("layouts.py", "folder")
@pytest.mark.parametrize("ranks", [1, 3])
def test_all_ranks_have_the_samples_of_a_layout(output: str, ranks: int) -> None:
    assert "samples of all ranks" in output


@pytest.mark.program("loading.py", "mixed", "fixed", 2, ranks=4)
@pytest.mark.usefixtures("nodes_of_its_own")
def test_such_loaders_have_them_on_nodes_that_mpi_itself_makes(
    with_torch: None, output: str
) -> None:
    assert "cases" in output


@pytest.mark.program("simulated.py", "folder", 2, ranks=4)
def test_what_is_simulated_of_a_policy_is_what_its_reader_does(output: str) -> None:
    """By twenty shapes and more: ``make law``."""
    assert output.count("as simulated") == len(READERS)


@pytest.mark.program("keeping.py", "mixed", "fixed", 3)
@pytest.mark.parametrize("ranks", [1, 5])
def test_records_that_roots_keep_are_those_of_the_rules_and_come_from_where_they_are(
    output: str, ranks: int
) -> None:
    assert "told before" in output


@pytest.mark.more
@pytest.mark.program("lagging.py", "fixed", 1, ranks=4)
def test_roots_keep_records_while_ranks_leave_lag_compute_and_fail(output: str) -> None:
    """Nodes of one rank."""
    assert "13 cases" in output


@pytest.mark.more
def test_roots_exchange_rows_while_ranks_leave_lag_run_ahead_and_compute(
    mpi: launch.Mpi, fixed: Path
) -> None:
    """Nodes of one rank; those of two are below. The last case ends MPI."""
    assert "14 cases" in mpi.run(4, "exchanging.py", fixed, 1)


def test_roots_exchange_rows_between_nodes_that_mpi_itself_makes(
    mpi: launch.Mpi, nodes_of_its_own: dict[str, str], fixed: Path
) -> None:
    assert "14 cases" in mpi.run(4, "exchanging.py", fixed, 2, env=nodes_of_its_own)


@pytest.mark.program("topologies.py", "mixed", "fixed", ranks=5)
def test_readers_on_communicators_of_every_kind_and_several_at_once(
    output: str, mpi: launch.Mpi
) -> None:
    # Two are of communicators that MPI makes.
    assert output.count(" s\n") == 12 - 2 * (mpi.name == "sockets")


@pytest.mark.program("topologies.py", "mixed", "fixed", ranks=5)
@pytest.mark.usefixtures("nodes_of_its_own")
def test_readers_on_communicators_over_nodes_that_mpi_itself_makes(output: str) -> None:
    assert output.count(" s\n") == 12


def test_letters_that_nobody_took_harm_no_later_communicator(mpi: launch.Mpi, mixed: Path) -> None:
    """A launch of its own: they may be on their way when MPI ends."""
    assert mpi.run(4, "letters.py", mixed).count("all") == 4


#: MPI library and ranks per node, of four ranks; nodes of two that MPI makes are below.
NODES = [("mpich", 4), ("mpich", 1), ("openmpi", 2)]


@pytest.mark.parametrize(("mpi", "per_node"), NODES, indirect=["mpi"])
def test_slots_are_never_overwritten_and_nobody_is_held_up(
    mpi: launch.Mpi, per_node: int, fixed: Path
) -> None:
    out = mpi.run(4, "lifetimes.py", fixed, env={"LMDBIO_RANKS_PER_NODE": str(per_node)})
    assert out.count(" s\n") == 16


def test_slots_are_never_overwritten_on_nodes_that_mpi_itself_makes(
    mpi: launch.Mpi, nodes_of_its_own: dict[str, str], fixed: Path
) -> None:
    assert mpi.run(4, "lifetimes.py", fixed, env=nodes_of_its_own).count(" s\n") == 16


@pytest.mark.program("refusals.py", "fixed", "smaller")
@pytest.mark.parametrize("ranks", [2, 4])
def test_what_cannot_begin_is_refused_on_all_ranks(
    output: str, ranks: int, mpi: launch.Mpi
) -> None:
    # One is of a file system's space, which MPI's windows need alone.
    assert output.count(": ok\n") == 6 - (mpi.name == "sockets")


@pytest.mark.program("copies.py", "fixed", "copies", ranks=4)
def test_a_node_that_has_another_copy_is_refused_by_name(output: str) -> None:
    assert output.count(": ok\n") == 6


def test_a_really_small_dev_shm_is_a_clear_error(mpi: launch.Mpi, fixed: Path) -> None:
    if mpi.name == "sockets":
        pytest.skip("windows without MPI lie in no file system")
    """A private tmpfs: enough for MPI itself, too little for the window."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare, to mount a small /dev/shm in a namespace")
    mount = 'mount -t tmpfs -o size=24m tmpfs /dev/shm && exec "$@"'
    prefix = ("unshare", "-m", "sh", "-c", mount, "sh")
    probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"cannot mount in a namespace: {probe.stderr.decode().strip()}")
    # Open MPI compares with the free space itself before it makes a window, and where another
    # process takes it in between, hangs there (seen with 5.0.11).
    for known in ("known", "unknown") if mpi.name == "mpich" else ("known",):
        out = mpi.run(2, "small_shm.py", fixed, known, prefix=prefix)
        refused = [line for line in out.splitlines() if "Error: " in line]
        assert len(refused) == 2, out
        assert ("free; take a smaller batch_size" if known == "known" else "ran out") in out
        assert out.count("works with less") == 2, out


def test_each_rank_writes_a_trace_and_together_they_tell_what_was_done(
    mpi: launch.Mpi, fixed: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        mpi.command(4, "traced.py", fixed),
        env=mpi.environment({"LMDBIO_TRACE": str(tmp_path / "t.json")}),
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
    roots = {line.process.split()[1] for line in stages if line.stage == "publish"}
    assert roots == {"0", "2"}, "one rank of each node reads"

    told = json.loads(done.stdout)
    values = [len(data.fixed_value(i % data.FIXED)) for i in range(40 * 12)]
    assert (told["records"], told["record_bytes"]) == (len(values), sum(values))
    assert told["iterations"] == 160 and told["blocks"] == 20
    published = [line for line in stages if line.stage == "publish"]
    assert sum(line.count for line in published) == 20
    assert told["planned_bytes"] == told["read_bytes"] == sum(line.amount for line in published)
    filled = [line.seconds for line in stages if line.stage in ("publish", "wait for reads")]
    assert sum(filled) == pytest.approx(told["fill_seconds"], abs=1e-4)
