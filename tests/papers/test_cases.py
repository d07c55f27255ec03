"""Goal: what the papers print is what this code gives.

Method: each case of cases.json (facts of the papers, with where they stand and how near is near
enough) has one function here, by its id. A case without a function, or a function without a case,
fails.

    000 DeepIO    001 asynchronous I/O    002 locality-aware loading    003 HDMLP    004 LMDBIO
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

# Each module notes its checks.
from tests.papers import async_io, deepio, hdmlp, lmdbio, locality_aware  # noqa: F401
from tests.papers.checks import CHECKS, near

CASES = {
    case["id"]: case for case in json.loads(Path(__file__).with_name("cases.json").read_text())
}


#: Simulations of half a minute.
LARGE = [name for name in CASES if name.startswith("004-micro-DM")]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.more] * (name in LARGE)) for name in CASES]
)
def test_case(name: str) -> None:
    case = CASES[name]
    found = CHECKS[name](case["inputs"])
    assert near(found, case["expected"], case["tolerance"]), found


def test_each_case_has_a_check_and_each_check_a_case() -> None:
    assert CASES.keys() == CHECKS.keys()


def test_what_is_not_near_is_told() -> None:
    assert not near([1.0], [1.1], {"rel": 0.05}) and near([1.0], [1.04], {"rel": 0.05})
    assert not near({"a": 1}, {"b": 1}, "exact") and not near([1, 2], [1], "exact")
    assert near(2.0, 2.0, "bound") and not near(2.01, 2.0, "bound")
    assert near(1.5, 1.0, {"factor": 1.6}) and not near(0.6, 1.0, {"factor": 1.6})
