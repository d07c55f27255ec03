"""Goal: of a URL each root of a node fetches, and its ranks share.

Method: as in test_reader_mpi.
"""

from __future__ import annotations

import launch
import pytest

from tests.support.range_server import RangeServer

pytestmark = pytest.mark.mpi


@pytest.mark.program("remote.py", "url", 2, ranks=4)
@pytest.mark.usefixtures("nodes_of_its_own")
def test_roots_fetch_and_ranks_share_on_two_nodes(output: str) -> None:
    assert output.count("6 cases") == 4


@pytest.mark.program("remote.py", "url", 1, ranks=3)
def test_one_root_fetches_for_all_ranks_of_a_node(output: str) -> None:
    assert output.count("6 cases") == 3


@pytest.mark.program("remote.py", "stateless_url", 2, ranks=4)
@pytest.mark.usefixtures("nodes_of_its_own")
def test_roots_compare_samples_where_the_server_tells_no_state(output: str) -> None:
    assert output.count("6 cases") == 4


def test_a_server_that_refuses_ends_the_job_with_its_reason(
    mpi: launch.Mpi, nodes_of_its_own: dict[str, str], server: RangeServer
) -> None:
    url = server.url("/refused/data.mdb")
    told = mpi.run(4, "remote.py", url, 2, env=nodes_of_its_own, expect=None)
    assert "status 403" in told and "cases" not in told
