"""settings: scenarios, workloads and stores with values of one's own, by name, in units. Pure.

Sizes and rates are numbers of M, or text with a unit: "512M", "10G" (1 G is 1,024 M), "1.5T",
"3088B". Times are numbers of seconds, or text with a unit: "2ms", "500us".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lmdbio.planning.environment import Curve, Tier
from lmdbio.simulate.scenario import Located, Scenario
from lmdbio.simulate.store import BYTES_MAX, Store
from lmdbio.simulate.workload import Workload

__all__ = ["MODE_KEYS", "amount", "changed", "changed_reading", "flat"]

MIB = 1 << 20
_UNITS = {"M": 1.0, "G": 1024.0, "T": 1024.0**2, "K": 1 / 1024, "B": 1 / 1024**2}
_SECONDS = {"MS": 1e-3, "US": 1e-6, "NS": 1e-9, "S": 1.0}
_FLAGS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


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


def _whole(value: Any, key: str) -> int:
    try:
        return int(str(value).replace("_", ""))
    except ValueError:
        raise ValueError(f"{key}: {value!r} is no whole number") from None


def _seconds(value: Any, key: str) -> float:
    text = str(value).strip().upper()
    unit = next((unit for unit in _SECONDS if text.endswith(unit)), "")
    try:
        found = float(text.removesuffix(unit)) * _SECONDS.get(unit, 1.0)
    except ValueError:
        found = float("nan")
    if not 0 <= found < float("inf"):
        raise ValueError(f"{key}: {value!r} is no time (such as 2ms, 500us, 0.5)")
    return found


def _curve(value: Any, key: str) -> Curve:
    if not isinstance(value, Mapping):
        return Curve.of(amount(value, key))
    points = {_whole(n, key): amount(rate, key) for n, rate in value.items()}
    if len(points) < len(value):
        raise ValueError("a number has two rates")
    return Curve.of(points)


def _bytes(value: Any, key: str) -> int:
    size = amount(value, key) * MIB
    if size > BYTES_MAX:
        raise ValueError(f"{key}: {value!r} is too large")
    return round(size)


def _byte_rate(value: Any, key: str) -> float:
    return amount(value, key) * MIB


def _flag(value: Any, key: str) -> bool:
    flag = _FLAGS.get(str(value).strip().casefold())
    if flag is None:
        raise ValueError(f"{key}: {value!r} is neither yes nor no")
    return flag


def _word(value: Any, key: str) -> str:  # noqa: ARG001 (as of the others)
    return str(value).strip()


class _Key(NamedTuple):
    """A value that can be set.

    Attributes:
        path: names of the fields that lead to it, with dots.
        parse: function from what was given, and the key, to the value.
    """

    path: str
    parse: Callable[[Any, str], Any]


_KEYS = {
    "nodes": _Key("environment.nodes", _whole),
    "compute": _Key("environment.compute", amount),
    "preprocess": _Key("environment.preprocess", amount),
    "network": _Key("environment.network", amount),
    "file_network": _Key("environment.file_network", amount),
    "file_system.rate": _Key("environment.file_system", _curve),
    "file_system.request": _Key("environment.file_request", _seconds),
    "samples": _Key("data.count", _whole),
    "size": _Key("data.mean", amount),
    "deviation": _Key("data.deviation", amount),
    "epochs": _Key("training.epochs", _whole),
    "batch": _Key("training.batch", _whole),
    "seed": _Key("seed", _whole),
}
_TIER_KEYS = {
    "capacity": _Key("capacity", amount),
    "threads": _Key("threads", _whole),
    "rate": _Key("reads", _curve),
}
#: The keys of a job whose modes are simulated.
MODE_KEYS = {
    "ranks": _Key("workload.ranks", _whole),
    "ranks_per_node": _Key("workload.ranks_per_node", _whole),
    "roots": _Key("workload.roots_per_node", _whole),
    "samples": _Key("workload.count", _whole),
    "size": _Key("workload.record_bytes", _bytes),
    "batch": _Key("workload.batch", _whole),
    "iterations": _Key("workload.iterations", _whole),
    "assignment": _Key("workload.assignment", _word),
    "barrier": _Key("workload.barrier", _flag),
    "servers": _Key("store.servers", _whole),
    "stripe": _Key("store.stripe_bytes", _bytes),
    "server_rate": _Key("store.server_rate", _byte_rate),
    "memory_rate": _Key("store.memory_rate", _byte_rate),
    "request": _Key("store.request_seconds", _seconds),
    "out_of_order": _Key("store.out_of_order_seconds", _seconds),
    "link_rate": _Key("store.link_rate", _byte_rate),
    "readahead": _Key("store.readahead_bytes", _bytes),
    "readahead_windows": _Key("store.readahead_windows", _whole),
    "request_size": _Key("store.request_bytes", _bytes),
    "depth": _Key("store.depth", _whole),
    "gap": _Key("store.gap_bytes", _bytes),
    "block": _Key("store.block_bytes", _bytes),
    "buffer": _Key("store.buffer_bytes", _bytes),
    "early_turns": _Key("store.early_turns", _flag),
    "hop": _Key("store.hop_seconds", _seconds),
    "fault": _Key("store.fault_seconds", _seconds),
    "wake": _Key("store.wake_seconds", _seconds),
}


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
        key: key of the value; "tier1.capacity" and the like reach the first tier, or add it.
        value: a number, text with a unit, or for rates a table of points.

    Raises:
        ValueError: there is no such key, or the value makes no sense; names the key.
    """
    try:
        found = _scenario_key(scenario, key)
        made = _replaced(scenario, found.path.split("."), found.parse(value, key))
    except ValueError as error:
        raise ValueError(f"{key}: {str(error).removeprefix(f'{key}: ')}") from error
    assert isinstance(made, Scenario)
    return made


def _scenario_key(scenario: Scenario, key: str) -> _Key:
    """Return what a key of a scenario reaches."""
    place, dot, field = key.partition(".")
    number, tiers = place.removeprefix("tier"), len(scenario.environment.tiers)
    is_tier = place.startswith("tier") and number.isdecimal() and int(number) > 0
    if dot and (place == "staging" or is_tier):
        found = _TIER_KEYS.get(field)
        if found is None:
            raise ValueError("a tier has capacity, threads and rate")
        if is_tier and int(number) > tiers + 1:
            raise ValueError(f"there are {tiers} tiers; the next one is tier{tiers + 1}")
        where = f"tiers.{int(number) - 1}" if is_tier else place
        return found._replace(path=f"environment.{where}.{found.path}")
    if key not in _KEYS:
        every = (*_KEYS, "staging.capacity", "tier1.capacity and the like")
        raise _unknown(key, every)
    if isinstance(scenario.data, Located) and key in ("samples", "size", "deviation"):
        raise ValueError("the records are those of a data set that was given")
    return _KEYS[key]


def _unknown(key: str, known: Sequence[str]) -> ValueError:
    return ValueError(f"{key}: there is no such key; known: {', '.join(known)}")


def _replaced(whole: Any, path: Sequence[str], value: Any) -> Any:
    """Return a value, or a tuple of tiers, in which one field is another."""
    if not path:
        return value
    name, *rest = path
    if isinstance(whole, tuple):
        parts = list(whole)
        if int(name) == len(parts):
            parts.append(Tier(0.0, 1, Curve.of(1.0)))
        parts[int(name)] = _replaced(parts[int(name)], rest, value)
        return tuple(parts)
    return replace(whole, **{name: _replaced(getattr(whole, name), rest, value)})


def changed_reading(
    workload: Workload, store: Store, values: Mapping[str, Any]
) -> tuple[Workload, Store]:
    """Return a workload and a store in which some values are others.

    Another batch or number of samples makes as many iterations as go once over all records, unless
    these are among the values as well.

    Args:
        workload, store: Workload and Store, which are not changed.
        values: values by keys of ``MODE_KEYS``: numbers, or text with a unit.

    Raises:
        ValueError: there is no such key, or a value makes no sense; names the key.
    """
    changes: dict[str, dict[str, Any]] = {"workload": {}, "store": {}}
    for key, value in values.items():
        if key not in MODE_KEYS:
            raise _unknown(key, list(MODE_KEYS))
        if workload.lengths is not None and key in ("samples", "size"):
            raise ValueError(f"{key}: the records are those of a data set that was given")
        whole, field = MODE_KEYS[key].path.split(".")
        changes[whole][field] = MODE_KEYS[key].parse(value, key)
    of_workload = changes["workload"]
    if {"count", "batch"} & of_workload.keys() and "iterations" not in of_workload:
        count = of_workload.get("count", workload.count)
        batch = of_workload.get("batch", workload.batch)
        of_workload["iterations"] = max(1, count // max(1, batch))
    try:
        return replace(workload, **of_workload), replace(store, **changes["store"])
    except ValueError as error:
        raise ValueError(_named(str(error), values)) from error


def _named(text: str, values: Mapping[str, Any]) -> str:
    """Return a message that begins with the key of its field, where that has another name."""
    for key in values:
        field = MODE_KEYS[key].path.partition(".")[2]
        if text.startswith(f"{field} ") and field != key:
            return f"{key}: {text}"
    return text
