"""Goal: each value of a scenario can be set by its name, in units; anything else names the key.

Method: every key once, and what is wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from lmdbio.simulate import SCENARIOS, Curve, changed, flat
from lmdbio.simulate.settings import amount


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
