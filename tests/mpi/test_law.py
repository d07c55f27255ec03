"""Goal: the law: for one assignment every legal mode gives every rank the same bytes in the same
order, whatever the nodes.

Method: law.py composes all modes there are. Here each of them is run once, under one of two MPIs,
on one of several topologies and assignments; ``make law`` runs all of them on all.
"""

from __future__ import annotations

from pathlib import Path

import launch
import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.alone]

#: (ranks, ranks per node): alone; nodes of one; nodes of unequal size; two nodes.
TOPOLOGIES = ((1, 1), (2, 1), (3, 2), (4, 2))
LAUNCHES = [(one, a) for one in TOPOLOGIES for a in ("strided", "blocked")]


@pytest.mark.parametrize(
    "number", range(len(LAUNCHES)), ids=[f"{p} ranks by {n}, {a}" for (p, n), a in LAUNCHES]
)
def test_every_mode_gives_every_rank_the_same(number: int, mpi: launch.Mpi, mixed: Path) -> None:
    (ranks, per_node), assignment = LAUNCHES[number]
    part, parts = launch.NAMES.index(mpi.name) * len(LAUNCHES) + number, 2 * len(LAUNCHES)
    out = mpi.run(ranks, "law.py", mixed, assignment, per_node, part, parts)
    assert f"{len(range(part, 648, parts))} of 648 cases" in out


@pytest.mark.parametrize("mode", ["turns", "dm"])
def test_a_main_thread_that_keeps_pythons_lock_holds_nobody_up_for_ever(
    mode: str, mpi: launch.Mpi, fixed: Path
) -> None:
    assert mpi.run(3, "busy.py", fixed, mode).count("ok") == 3
