"""Goal: of a URL each root of a node fetches, and its ranks share.

Method: as in test_reader_mpi.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import launch
import pytest

from lmdbio.convert.convert import convert
from lmdbio.remote.http import HEAD_BYTES
from tests.support.range_server import Fault, RangeServer

pytestmark = [pytest.mark.mpi, pytest.mark.alone]

#: Roots of two nodes.
ROOTS = 2
#: How long a server is silent, and the share of a core that ranks may take meanwhile.
SILENT_S, CORE_MAX = 20, {"root": 0.04, "rank": 0.005}


@pytest.fixture
def server(mixed: Path, tmp_path: Path) -> Iterator[RangeServer]:
    with RangeServer({"/data.mdb": (mixed / "data.mdb").read_bytes()}) as server:
        convert(server.url("/data.mdb"), output=tmp_path / "x.prov")
        server.files["/data.mdb.prov"] = (tmp_path / "x.prov").read_bytes()
        yield server


def test_roots_fetch_and_ranks_share_on_two_nodes(
    mpi: launch.Mpi, nodes_of_its_own: dict[str, str], server: RangeServer
) -> None:
    told = mpi.run(4, "remote.py", server.url("/data.mdb"), 2, env=nodes_of_its_own)
    assert told.count("6 cases") == 4


def test_one_root_fetches_for_all_ranks_of_a_node(mpi: launch.Mpi, server: RangeServer) -> None:
    assert mpi.run(3, "remote.py", server.url("/data.mdb"), 1).count("6 cases") == 3


def test_a_server_that_refuses_ends_the_job_with_its_reason(
    mpi: launch.Mpi, nodes_of_its_own: dict[str, str], server: RangeServer
) -> None:
    server.plan = lambda asked: Fault(status=403) if (asked.first or 0) > 100_000 else None
    url = server.url("/data.mdb")
    told = mpi.run(4, "remote.py", url, 2, env=nodes_of_its_own, expect=None)
    assert "status 403" in told and "cases" not in told


def test_each_byte_leaves_the_server_once_for_all_nodes_and_epochs(
    mpi: launch.Mpi, server: RangeServer
) -> None:
    server.asked.clear()  # what converting has read
    mpi.run(4, "fetching.py", server.url("/data.mdb"))
    data = [one for one in server.asked if one.path == "/data.mdb"]
    heads = [one for one in data if one.first == 0 and one.last == HEAD_BYTES - 1]
    others = sum((one.last or 0) + 1 - (one.first or 0) for one in data if one not in heads)
    assert len(heads) <= 2 * ROOTS, "each root looks at the state, and opens"
    assert others <= 1.02 * len(server.files["/data.mdb"])
    assert len(server.asked) - len(data) <= ROOTS, "the provenance file is fetched again"


def test_ranks_that_wait_for_a_silent_server_take_hardly_any_processor(
    mpi: launch.Mpi, server: RangeServer
) -> None:
    server.plan = lambda asked: Fault(delay_s=SILENT_S) if (asked.first or 0) > 300_000 else None
    told = mpi.run(4, "fetching.py", server.url("/data.mdb"))
    waits = re.findall(r"waited: (root|rank) ([\d.]+) ([\d.]+)", told)
    assert sorted(who for who, _, _ in waits) == ["rank", "rank", "root", "root"], told
    assert all(float(seconds) > SILENT_S / 2 for _, _, seconds in waits), told
    assert all(float(share) < CORE_MAX[who] for who, share, _ in waits), told


def test_roots_compare_samples_where_the_server_tells_no_state(
    mpi: launch.Mpi, nodes_of_its_own: dict[str, str], server: RangeServer
) -> None:
    server.etags["/data.mdb"] = ""
    server.plan = lambda asked: Fault(headers={"Last-Modified": None})
    told = mpi.run(4, "remote.py", server.url("/data.mdb"), 2, env=nodes_of_its_own)
    assert told.count("6 cases") == 4
