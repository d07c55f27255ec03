"""Goal: what is simulated can be set by its name, in units; anything else names the key.

Method: every key once, and what is wrong: of a scenario, then of a workload and a store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lmdbio.simulate import (
    SCENARIOS,
    STORES,
    WORKLOADS,
    Curve,
    Workload,
    changed,
    changed_reading,
    flat,
)
from lmdbio.simulate.settings import MODE_KEYS, amount

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


@pytest.mark.parametrize(
    ("key", "value", "path", "found"),
    [
        ("file_system.rate", {"4": 30}, "environment.file_system", Curve.of({4: 30})),
        ("nodes", "8", "environment.nodes", 8),
        ("compute", "0.5G", "environment.compute", 512),
        ("preprocess", 250, "environment.preprocess", 250),
        ("network", "1G", "environment.network", 1024),
        ("file_network", "500M", "environment.file_network", 500),
        ("file_system.request", "0.5e-3", "environment.file_request", 0.0005),
        ("staging.capacity", "4G", "environment.staging.capacity", 4096),
        ("staging.threads", 3, "environment.staging.threads", 3),
        ("samples", "1_000", "data.count", 1000),
        ("size", "512K", "data.mean", 0.5),
        ("deviation", 0, "data.deviation", 0),
        ("epochs", "7", "training.epochs", 7),
        ("batch", "40", "training.batch", 40),
        ("seed", "-3", "seed", -3),
    ],
)  # fmt: skip
def test_each_key_changes_its_value_alone(key: str, value: Any, path: str, found: Any) -> None:
    before = SCENARIOS[1]
    after: Any = changed(before, key, value)
    for name in path.split("."):
        after = getattr(after, name)
    assert after == found
    assert before == SCENARIOS[1]


def test_tiers_are_changed_and_added_in_order() -> None:
    scenario = changed(SCENARIOS[1], "tier2.rate", "100M")
    assert scenario.environment.tiers[1].read_rate == 100
    more = changed(changed(scenario, "tier3.capacity", "1T"), "tier3.threads", 4)
    assert more.environment.tiers[2].capacity == 1024 * 1024
    assert more.environment.tiers[2].threads == 4
    with pytest.raises(ValueError, match="next one is tier3"):
        changed(scenario, "tier4.capacity", 1)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("node", 4, "node: there is no such key"),
        ("tier0.capacity", 4, "no such key"),
        ("tierx.capacity", 4, "no such key"),
        ("tier1.size", 4, "tier1.size: a tier has"),
        ("tier1.capacity", "ten", "tier1.capacity: 'ten'"),
        ("tier1.capacity", "-1G", "'-1G'"),
        ("tier1.capacity", "nan", "'nan'"),
        ("tier1.capacity", "infT", "'infT'"),
        ("nodes", "2.5", "nodes: '2.5' is no whole number"),
        ("nodes", "0", "nodes: there must be 1 to"),
        ("samples", 0, "samples: there must be 1 to"),
        ("size", 0, "size: the size of records must be"),
        ("deviation", "1e18", "deviation: a deviation of"),
        ("compute", 0, "compute: compute must be"),
        ("file_system.rate", {}, "file_system.rate: a rate needs"),
        ("file_system.rate", {"1": 5, "01": 7}, "a number has two rates"),
        ("tier1.threads", 10**10, "tier1.threads: threads must be"),
        ("file_system.rate", 0, "file_system.rate: a rate must be"),
        ("file_system.rate", 5e-324, "a rate must be"),
    ],
)
def test_what_makes_no_sense_is_refused(key: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        changed(SCENARIOS[1], key, value)


def test_units_are_powers_of_two_and_tables_become_keys() -> None:
    assert [amount(text, "k") for text in ("10G", "1.5GiB", "2T", "7", 7, "512 M")] == [
        10240, 1536, 2 * 1024**2, 7, 7, 512,
    ]  # fmt: skip
    assert [amount(text, "k") for text in ("1048576B", "512 b", "3kb")] == [1, 2**-11, 3 / 1024]
    for text in ("B", "GiB", "-3B"):
        with pytest.raises(ValueError, match="k: '"):
            amount(text, "k")
    values = {"nodes": 2, "tier1": {"capacity": "1G", "rate": {"1": 5}}}
    assert dict(flat(values)) == {"nodes": 2, "tier1.capacity": "1G", "tier1.rate": {"1": 5}}


def test_each_key_of_modes_changes_its_value_alone() -> None:
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
def test_what_makes_no_sense_of_modes_is_refused(key: str, value: Any, words: str) -> None:
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
