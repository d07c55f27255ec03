"""Goal: many files, and damaged provenance files, make no difference on many ranks.

Method: as in test_reader_mpi.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.program("sets.py", "folder", 2, ranks=4)
@pytest.mark.usefixtures("nodes_of_its_own")
def test_files_are_read_as_one_on_nodes_that_mpi_itself_makes(output: str) -> None:
    assert "12 cases" in output


@pytest.mark.program("sets.py", "folder")
@pytest.mark.parametrize(
    ("mpi", "ranks", "arguments"),
    [("mpich", 3, (2,)), ("openmpi", 1, (1,)), ("openmpi", 3, (2,))],
    ids=["mpich-3", "openmpi-1", "openmpi-3"],
    indirect=["mpi"],
)
def test_files_are_read_as_one_on_nodes_of_two_ranks(
    output: str, ranks: int, arguments: tuple[int, ...]
) -> None:
    assert "12 cases" in output


@pytest.mark.program("damaged.py", "folder")
@pytest.mark.parametrize(("mpi", "ranks"), [("mpich", 4), ("openmpi", 3)], indirect=["mpi"])
def test_a_provenance_file_that_is_damaged_on_one_node_harms_no_rank(
    output: str, ranks: int
) -> None:
    assert "20 cases" in output
