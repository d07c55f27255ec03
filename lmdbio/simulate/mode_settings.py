"""mode_settings: a workload and a store with values of one's own, by name, in units. Pure.

Sizes and rates are numbers of M, or text with a unit ("512K", "10G", 1 G is 1,024 M); times are
numbers of seconds, or text with one ("2ms", "500us").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from lmdbio.simulate.settings import amount, whole
from lmdbio.simulate.store import BYTES_MAX, Store
from lmdbio.simulate.workload import Workload

__all__ = ["MODE_KEYS", "changed_reading"]

MIB = 1 << 20


class _Key(NamedTuple):
    """A value that can be set: which one, what it is given in, and what it means."""

    of: str
    field: str
    unit: str
    meaning: str


_KEYS = {
    "ranks": _Key("workload", "ranks", "number", "ranks of the job"),
    "ranks_per_node": _Key("workload", "ranks_per_node", "number", "ranks of a node"),
    "roots": _Key("workload", "roots_per_node", "number", "of a node; 0: as a mode has them"),
    "samples": _Key("workload", "count", "number", "records in the data set"),
    "size": _Key("workload", "record_bytes", "bytes", "of a record"),
    "batch": _Key("workload", "batch", "number", "records of an iteration, over all ranks"),
    "iterations": _Key("workload", "iterations", "number", "how many"),
    "assignment": _Key("workload", "assignment", "word", "blocked or strided"),
    "barrier": _Key("workload", "barrier", "flag", "ranks wait for one another after a block"),
    "servers": _Key("store", "servers", "number", "servers that a file is striped over"),
    "stripe": _Key("store", "stripe_bytes", "bytes", "consecutive bytes on one server"),
    "server_rate": _Key("store", "server_rate", "rate", "of a server's disks"),
    "memory_rate": _Key(
        "store", "memory_rate", "rate", "of what a server has in memory; 0: it keeps nothing"
    ),
    "request": _Key("store", "request_seconds", "seconds", "of each request; they overlap"),
    "out_of_order": _Key(
        "store", "out_of_order_seconds", "seconds", "before a piece out of order, of a server"
    ),
    "link_rate": _Key("store", "link_rate", "rate", "of each node"),
    "readahead": _Key("store", "readahead_bytes", "bytes", "of a readahead window"),
    "readahead_windows": _Key("store", "readahead_windows", "number", "in flight for a reader"),
    "request_size": _Key("store", "request_bytes", "bytes", "of an explicit read, at most"),
    "depth": _Key("store", "depth", "number", "explicit reads of a root that are in flight"),
    "gap": _Key("store", "gap_bytes", "bytes", "unneeded, that a read may take along"),
    "block": _Key("store", "block_bytes", "bytes", "that a root coalesces, about"),
    "buffer": _Key("store", "buffer_bytes", "bytes", "that a root has for a block"),
    "early_turns": _Key(
        "store", "early_turns", "flag", "a token is handed on when all of a block is asked for"
    ),
    "hop": _Key("store", "hop_seconds", "seconds", "until a token is at the next root"),
    "fault": _Key("store", "fault_seconds", "seconds", "of a process, to map a page"),
    "wake": _Key("store", "wake_seconds", "seconds", "of a node, to wake a process in vain"),
}  # fmt: skip
#: The keys that can be set, each with its meaning.
MODE_KEYS = {key: found.meaning for key, found in _KEYS.items()}
_SECONDS = {"MS": 1e-3, "US": 1e-6, "NS": 1e-9, "S": 1.0}
_FLAGS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


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
        found = _KEYS.get(key)
        if found is None:
            raise ValueError(f"{key}: there is no such key; known: {', '.join(MODE_KEYS)}")
        if workload.lengths is not None and key in ("samples", "size"):
            raise ValueError(f"{key}: the records are those of a data set that was given")
        changes[found.of][found.field] = _read(value, found.unit, key)
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
        field = _KEYS[key].field
        if text.startswith(f"{field} ") and field != key:
            return f"{key}: {text}"
    return text


def _read(value: Any, unit: str, key: str) -> Any:
    if unit == "number":
        return whole(value, key)
    if unit == "bytes":
        size = amount(value, key) * MIB
        if size > BYTES_MAX:
            raise ValueError(f"{key}: {value!r} is too large")
        return round(size)
    if unit == "rate":
        return amount(value, key) * MIB
    if unit == "seconds":
        return _seconds(value, key)
    if unit == "flag":
        flag = _FLAGS.get(str(value).strip().casefold())
        if flag is None:
            raise ValueError(f"{key}: {value!r} is neither yes nor no")
        return flag
    return str(value).strip()


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
