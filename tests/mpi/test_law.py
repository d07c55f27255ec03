"""Goal: the law: for one assignment every legal mode gives every rank the same bytes in the same
order, whatever the nodes.

Method: law.py composes all modes there are. Here each of them is run once, under one of two MPIs,
on one of several topologies and assignments; ``make law`` runs all of them on all.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import launch
import pytest

pytestmark = pytest.mark.mpi

#: (ranks, ranks per node): alone; nodes of one; nodes of unequal size; two nodes.
TOPOLOGIES = ((1, 1), (2, 1), (3, 2), (4, 2))
LAUNCHES = [(one, a) for one in TOPOLOGIES for a in ("strided", "blocked")]


def part_of(mpi: str, number: int) -> int:
    return launch.NAMES.index(mpi) * len(LAUNCHES) + number


@pytest.mark.program("law.py", "mixed")
@pytest.mark.parametrize(
    ("number", "ranks", "arguments"),
    [
        (number, ranks, (assignment, per_node, partial(part_of, number=number), 2 * len(LAUNCHES)))
        for number, ((ranks, per_node), assignment) in enumerate(LAUNCHES)
    ],
    ids=[f"{p} ranks by {n}, {a}" for (p, n), a in LAUNCHES],
)
def test_every_mode_gives_every_rank_the_same(
    mpi: launch.Mpi, output: str, number: int, ranks: int, arguments: tuple[Any, ...]
) -> None:
    wanted = range(part_of(mpi.name, number), 648, 2 * len(LAUNCHES))
    assert f"{len(wanted)} of 648 cases" in output


@pytest.mark.program("busy.py", "fixed", ranks=3)
@pytest.mark.parametrize("arguments", [("turns",), ("dm",)], ids=["turns", "dm"])
def test_a_main_thread_that_keeps_pythons_lock_holds_nobody_up_for_ever(
    output: str, arguments: tuple[str, ...]
) -> None:
    assert output.count("ok") == 3
