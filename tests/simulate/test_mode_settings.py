"""Goal: each value of a workload and a store can be set by its name; anything else names the key.

Method: every key once, and what is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lmdbio.simulate import MODE_KEYS, STORES, WORKLOADS, Workload, changed_reading

WORKLOAD, STORE = WORKLOADS["cifar10-large"], STORES["bebop"]
MIB = 1 << 20
SET = {
    "ranks": ("36", "ranks", 36),
    "ranks_per_node": (4, "ranks_per_node", 4),
    "roots": ("2", "roots_per_node", 2),
    "samples": ("1_000", "count", 1_000),
    "size": ("110K", "record_bytes", 110 * 1024),
    "batch": (9_216, "batch", 9_216),
    "iterations": (3, "iterations", 3),
    "assignment": ("strided", "assignment", "strided"),
    "barrier": ("no", "barrier", False),
    "servers": (4, "servers", 4),
    "stripe": ("1M", "stripe_bytes", MIB),
    "server_rate": ("1G", "server_rate", 1024.0 * MIB),
    "memory_rate": (0, "memory_rate", 0.0),
    "request": ("500us", "request_seconds", 500e-6),
    "out_of_order": ("3ms", "out_of_order_seconds", 3e-3),
    "link_rate": ("150M", "link_rate", 150.0 * MIB),
    "readahead": ("4K", "readahead_bytes", 4096),
    "readahead_windows": (5, "readahead_windows", 5),
    "request_size": ("2M", "request_bytes", 2 * MIB),
    "depth": (7, "depth", 7),
    "gap": ("64K", "gap_bytes", 1 << 16),
    "block": ("8M", "block_bytes", 8 * MIB),
    "buffer": ("1G", "buffer_bytes", 1024 * MIB),
    "early_turns": ("yes", "early_turns", True),
    "hop": ("0.5", "hop_seconds", 0.5),
    "fault": ("10ns", "fault_seconds", 1e-8),
    "wake": ("1s", "wake_seconds", 1.0),
}


def test_each_key_changes_its_value_alone() -> None:
    assert SET.keys() == MODE_KEYS.keys()
    for key, (value, field, expected) in SET.items():
        workload, store = changed_reading(WORKLOAD, STORE, {key: value})
        assert (workload == WORKLOAD) != (store == STORE), key
        changed: Any = store if workload == WORKLOAD else workload
        assert getattr(changed, field) == pytest.approx(expected), key


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("rank", 4, "rank: there is no such key; known: ranks,"),
        ("ranks", "many", "ranks: 'many' is no whole number"),
        ("ranks", 0, "ranks must be 1 to"),
        ("size", "1e305", "size: '1e305' is too large"),
        ("size", "900G", "records of up to 966,367,641,600 bytes are more than can be"),
        ("batch", 0, "batch must be 1 to"),
        ("size", "big", "size: 'big' is no size or rate"),
        ("size", 0, "size: record_bytes must be 1 to"),
        ("hop", "-1ms", "hop: '-1ms' is no time"),
        ("hop", "nan", "hop: 'nan' is no time"),
        ("barrier", "perhaps", "barrier: 'perhaps' is neither yes nor no"),
        ("assignment", "local", "assignment must be one of"),
        ("stripe", 0, "stripe: stripe_bytes must be"),
    ],
)
def test_what_makes_no_sense_is_refused(key: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        changed_reading(WORKLOAD, STORE, {key: value})


def test_records_that_were_given_are_not_changed() -> None:
    given = Workload(2, 1, 2, 1, 1, 1, lengths=np.array([5, 6]))
    with pytest.raises(ValueError, match="size: the records are those of a data set"):
        changed_reading(given, STORE, {"size": 5})


def test_another_batch_makes_as_many_iterations_as_go_once_over_all_records() -> None:
    half, _ = changed_reading(WORKLOAD, STORE, {"batch": WORKLOAD.batch // 2})
    assert half.records == WORKLOAD.records
    for values in ({"batch": 64, "iterations": 3}, {"iterations": 3, "batch": 64}):
        assert changed_reading(WORKLOAD, STORE, values)[0].iterations == 3
    one, _ = changed_reading(WORKLOAD, STORE, {"batch": 10**9})
    assert one.iterations == 1
    few, _ = changed_reading(WORKLOAD, STORE, {"samples": 10 * WORKLOAD.batch + 1})
    assert few.iterations == 10


def test_values_that_go_together_are_set_together() -> None:
    for values in (
        {"ranks": 1_000_000, "ranks_per_node": 1, "iterations": 16},
        {"iterations": 16, "ranks_per_node": 1, "ranks": 1_000_000},
    ):
        assert changed_reading(WORKLOAD, STORE, values)[0].nodes == 1_000_000
