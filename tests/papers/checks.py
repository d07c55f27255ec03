"""Checks of cases by their ids, and how near is near enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["CHECKS", "Given", "check", "near"]

#: A case's inputs, or figures by name.
Given = dict[str, Any]
CHECKS: dict[str, Callable[[Given], Any]] = {}


def check(name: str) -> Callable[[Callable[[Given], Any]], Callable[[Given], Any]]:
    def noted(function: Callable[[Given], Any]) -> Callable[[Given], Any]:
        assert name not in CHECKS
        CHECKS[name] = function
        return function

    return noted


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
