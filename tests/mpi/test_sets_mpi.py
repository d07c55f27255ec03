"""Goal: many files, and damaged provenance files, make no difference on many ranks.

Method: as in test_reader_mpi.
"""

from __future__ import annotations

from pathlib import Path

import launch
import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.alone]


def test_files_are_read_as_one_on_nodes_that_mpi_itself_makes(
    mpi: launch.Mpi, nodes_of_its_own: dict[str, str], tmp_path: Path
) -> None:
    assert "12 cases" in mpi.run(4, "sets.py", tmp_path, 2, env=nodes_of_its_own)


@pytest.mark.parametrize(("mpi", "ranks"), [("mpich", 1), ("openmpi", 3)], indirect=["mpi"])
def test_files_are_read_as_one_on_nodes_of_two_ranks(
    mpi: launch.Mpi, ranks: int, tmp_path: Path
) -> None:
    assert "12 cases" in mpi.run(ranks, "sets.py", tmp_path, min(2, ranks))


@pytest.mark.parametrize(("mpi", "ranks"), [("mpich", 4), ("openmpi", 3)], indirect=["mpi"])
def test_a_provenance_file_that_is_damaged_on_one_node_harms_no_rank(
    mpi: launch.Mpi, ranks: int, tmp_path: Path
) -> None:
    assert "20 cases" in mpi.run(ranks, "damaged.py", tmp_path)
