"""Checks of cases by their ids, and how near is near enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lmdbio.placement.forecast import Job
from lmdbio.simulate import Curve, Data, Environment, Outcome, Tier, run_reader

__all__ = ["CHECKS", "Given", "check", "near", "reading"]

#: More than anything needs, M a second.
FREE = 1e15

#: A case's inputs, or figures by name.
Given = dict[str, Any]
CHECKS: dict[str, Callable[[Given], Any]] = {}


def check(name: str) -> Callable[[Callable[[Given], Any]], Callable[[Given], Any]]:
    def noted(function: Callable[[Given], Any]) -> Callable[[Given], Any]:
        assert name not in CHECKS
        CHECKS[name] = function
        return function

    return noted


def reading(count: int, size: float, rate: float, compute: float, *, batch: int = 1) -> Outcome:
    """Read records of so many M, of which a node reads one batch while it computes with another.

    Args:
        rate: rate of the file system, M a second; nothing else holds anything back.
        compute: seconds of computing with each batch.
    """
    free, records = Curve.of(FREE), Data(count, size).located(0)
    staging = Tier(batch * size, 1, free)
    node = Environment(1, FREE, FREE, FREE, FREE, Curve.of(rate), staging)
    job = Job(None, batch, 1, 1, epochs=1, ends=True)
    return run_reader(records.extents, job, node, records.options, compute_seconds=compute)


def near(found: Any, expected: Any, tolerance: Any) -> bool:
    """Whether all of what was found is as near as a case wants it."""
    if isinstance(found, dict):
        return found.keys() == expected.keys() and all(
            near(found[key], expected[key], tolerance) for key in found
        )
    if isinstance(found, list):
        wanted = expected if isinstance(expected, list) else [expected] * len(found)
        return len(found) == len(wanted) and all(
            map(near, found, wanted, [tolerance] * len(found))
        )
    if tolerance == "bound":
        return bool(found <= expected)
    if isinstance(tolerance, str) or not isinstance(found, int | float):
        return bool(found == expected)
    if "factor" in tolerance:
        return bool(expected / tolerance["factor"] <= found <= expected * tolerance["factor"])
    return bool(
        abs(found - expected)
        <= max(tolerance.get("abs", 0.0), tolerance.get("rel", 0.0) * abs(expected))
    )
