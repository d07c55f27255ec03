"""Goal: of a URL each root of a node fetches, and its ranks share.

Method: as in test_reader_mpi.
"""

from __future__ import annotations

import re

import launch
import pytest
from data import SILENT_SECONDS

from lmdbio.remote.http import HEAD_BYTES
from tests.support.range_server import RangeServer

pytestmark = pytest.mark.mpi

#: Roots of two nodes.
ROOTS = 2
#: The share of a core that ranks may take while a server is silent.
CORE_MAX = {"root": 0.04, "rank": 0.005}


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


def test_each_byte_leaves_the_server_once_for_all_nodes_and_epochs(
    mpi: launch.Mpi, server: RangeServer
) -> None:
    before = len(server.asked)
    mpi.run(4, "fetching.py", server.url("/once/data.mdb"))
    asked = server.asked[before:]
    data = [one for one in asked if one.path == "/once/data.mdb"]
    heads = [one for one in data if one.first == 0 and one.last == HEAD_BYTES - 1]
    others = sum((one.last or 0) + 1 - (one.first or 0) for one in data if one not in heads)
    assert data and len(heads) <= 2 * ROOTS, "each root looks at the state, and opens"
    assert others <= 1.02 * len(server.files["/once/data.mdb"])
    assert len(asked) - len(data) <= ROOTS, "the provenance file is fetched again"


@pytest.mark.more
def test_ranks_that_wait_for_a_silent_server_take_hardly_any_processor(
    mpi: launch.Mpi, server: RangeServer
) -> None:
    told = mpi.run(4, "fetching.py", server.url("/silent/data.mdb"))
    waits = re.findall(r"waited: (root|rank) ([\d.]+) ([\d.]+)", told)
    assert sorted(who for who, _, _ in waits) == ["rank", "rank", "root", "root"], told
    assert all(float(seconds) > SILENT_SECONDS / 2 for _, _, seconds in waits), told
    assert all(float(share) < CORE_MAX[who] for who, share, _ in waits), told
