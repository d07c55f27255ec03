"""Goal: the law: for one assignment every legal mode gives every rank the same bytes in the same
order, whatever the nodes.

Method: law.py composes all modes there are. Here each of them is run once, on one of several
topologies and assignments; ``make law`` runs all of them on all.
"""

from __future__ import annotations

from pathlib import Path

import data
import launch
import pytest

from lmdbio.convert import convert

pytestmark = pytest.mark.mpi

#: (ranks, ranks per node): alone; nodes of one; two nodes; nodes of unequal size.
TOPOLOGIES = ((1, 1), (2, 1), (4, 2), (5, 2))
LAUNCHES = [(one, a) for one in TOPOLOGIES for a in ("strided", "blocked")]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = [data.mixed_value(i) for i in range(data.MIXED)]
    path = data.write(tmp_path_factory.mktemp("law") / "db", values)
    convert(path)
    return path


@pytest.mark.parametrize(
    "number", range(len(LAUNCHES)), ids=[f"{p} ranks by {n}, {a}" for (p, n), a in LAUNCHES]
)
def test_every_mode_gives_every_rank_the_same(number: int, mixed: Path) -> None:
    (ranks, per_node), assignment = LAUNCHES[number]
    out = launch.run(ranks, "law.py", mixed, assignment, per_node, number, len(LAUNCHES))
    assert "45 of 360 cases" in out


@pytest.mark.parametrize("mode", ["turns", "dm"])
def test_a_main_thread_that_keeps_pythons_lock_holds_nobody_up_for_ever(
    mode: str, tmp_path: Path
) -> None:
    values = [data.fixed_value(i) for i in range(data.FIXED)]
    path = data.write(tmp_path / "db", values)
    assert launch.run(3, "busy.py", path, mode).count("ok") == 3
