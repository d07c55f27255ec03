"""settings: a scenario with values of one's own, by name, in units. Pure.

Sizes and rates are numbers of M, or text with a unit: "512M", "10G" (1 G is 1,024 M), "1.5T",
"3088B".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lmdbio.planning.environment import Curve, Environment, Tier
from lmdbio.simulate.scenario import Data, Scenario

__all__ = ["KEYS", "amount", "changed", "flat", "whole"]

#: The keys that can be set, each with its meaning.
KEYS = {
    "nodes": "nodes of the cluster",
    "compute": "M per second that a node uses up",
    "preprocess": "M per second that a thread makes ready",
    "network": "M per second between two nodes",
    "file_network": "M per second between a node and the file system",
    "file_system.rate": "M per second of the file system, for all its clients together",
    "file_system.request": "seconds that a request takes the file system beside its bytes, in a "
    "Reader's job",
    "staging.capacity, .threads, .rate": "the buffer out of which a node computes",
    "tierN.capacity, .threads, .rate": "memory or a disk of each node, tier1 the fastest; rates "
    "are those of all its threads together",
    "samples, size, deviation": "of the data set: how many; their sizes are normally distributed",
    "epochs, batch": "of the training; a batch is of all nodes",
    "seed": "of sizes and orders",
}
_UNITS = {"M": 1.0, "G": 1024.0, "T": 1024.0**2, "K": 1 / 1024, "B": 1 / 1024**2}
_NUMBERS = ("compute", "preprocess", "network", "file_network")


def amount(value: Any, key: str) -> float:
    """Return a size or rate in M.

    Raises:
        ValueError: it is none; names ``key``.
    """
    text = str(value).strip().upper()
    if text.endswith(("IB", "KB", "MB", "GB", "TB")):
        text = text.removesuffix("B").removesuffix("I")
    factor = _UNITS.get(text[-1:], 0.0)
    try:
        found = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        found = float("nan")
    if not 0 <= found < float("inf"):
        raise ValueError(f"{key}: {value!r} is no size or rate (such as 512M, 10G, 2000)")
    return found


def whole(value: Any, key: str) -> int:
    """Return a whole number.

    Raises:
        ValueError: it is none; names ``key``.
    """
    try:
        return int(str(value).replace("_", ""))
    except ValueError:
        raise ValueError(f"{key}: {value!r} is no whole number") from None


def _seconds(value: Any, key: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{key}: {value!r} is no number of seconds") from None


def _rate(value: Any, key: str) -> Curve:
    if not isinstance(value, Mapping):
        return Curve.of(amount(value, key))
    points = {whole(n, key): amount(rate, key) for n, rate in value.items()}
    if len(points) < len(value):
        raise ValueError("a number has two rates")
    return Curve.of(points)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Return the keys and values of nested tables, tables that are rates as they are."""
    for key, value in values.items():
        if isinstance(value, Mapping) and key != "rate":
            if not value:
                raise ValueError(f"{prefix}{key}: the table is empty")
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def changed(scenario: Scenario, key: str, value: Any) -> Scenario:
    """Return a scenario in which one value is another.

    Args:
        scenario: Scenario, which is not changed.
        key: one of ``KEYS``.
        value: a number, text with a unit, or for rates a table of points.

    Raises:
        ValueError: there is no such key, or the value makes no sense; names the key.
    """
    try:
        return _changed(scenario, key, value)
    except ValueError as error:
        raise ValueError(f"{key}: {str(error).removeprefix(f'{key}: ')}") from error


def _changed(scenario: Scenario, key: str, value: Any) -> Scenario:
    environment, data, training = scenario.environment, scenario.data, scenario.training
    if key == "seed":
        return replace(scenario, seed=whole(value, key))
    if key in ("samples", "size", "deviation"):
        if not isinstance(data, Data):
            raise ValueError("the records are those of a data set that was given")
        return replace(scenario, data=_data(data, key, value))
    if key in ("epochs", "batch"):
        return replace(scenario, training=replace(training, **{key: whole(value, key)}))
    return replace(scenario, environment=_environment(environment, key, value))


def _data(data: Data, key: str, value: Any) -> Data:
    if key == "samples":
        return replace(data, count=whole(value, key))
    if key == "size":
        return replace(data, mean=amount(value, key))
    return replace(data, deviation=amount(value, key))


def _environment(environment: Environment, key: str, value: Any) -> Environment:
    if key == "nodes":
        return replace(environment, nodes=whole(value, key))
    if key in _NUMBERS:
        changes: dict[str, Any] = {key: amount(value, key)}
        return replace(environment, **changes)
    if key == "file_system.rate":
        return replace(environment, file_system=_rate(value, key))
    if key == "file_system.request":
        return replace(environment, file_request=_seconds(value, key))
    place, dot, field = key.partition(".")
    number = place.removeprefix("tier")
    if dot and place == "staging":
        return replace(environment, staging=_tier(environment.staging, field, value, key))
    if dot and place.startswith("tier") and number.isdecimal() and int(number) > 0:
        return replace(
            environment, tiers=_tiers(environment.tiers, int(number), field, value, key)
        )
    raise ValueError(f"{key}: there is no such key; known: {', '.join(KEYS)}")


def _tiers(
    tiers: tuple[Tier, ...], number: int, field: str, value: Any, key: str
) -> tuple[Tier, ...]:
    if number > len(tiers) + 1:
        raise ValueError(
            f"{key}: there are {len(tiers)} tiers; the next one is tier{len(tiers) + 1}"
        )
    new = Tier(0.0, 1, Curve.of(1.0))
    kept = [*tiers, new] if number > len(tiers) else list(tiers)
    kept[number - 1] = _tier(kept[number - 1], field, value, key)
    return tuple(kept)


def _tier(tier: Tier, field: str, value: Any, key: str) -> Tier:
    if field == "capacity":
        return replace(tier, capacity=amount(value, key))
    if field == "threads":
        return replace(tier, threads=whole(value, key))
    if field == "rate":
        return replace(tier, reads=_rate(value, key))
    raise ValueError(f"{key}: a tier has capacity, threads and rate")
