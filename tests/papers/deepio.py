"""DeepIO's cases (000)."""

from __future__ import annotations

import numpy as np

from lmdbio.planning.order import Epoch, Shard
from lmdbio.planning.randomness import randomness
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from tests.papers.checks import Given, check, reading


@check("000-rl-R0.5")
@check("000-rl-R1")
def level_of_windows(given: Given) -> float:
    """The image files are as many as images: chunks of one part of the memory."""
    count = given["n"]
    shuffle = GLOBAL if given["R"] == 1 else Shuffle.windows(2, int(count * given["R"]) // 2)
    return 100 * randomness(shuffle, count)


@check("000-run16")
@check("000-run-n")
def level_of_runs(given: Given) -> float:
    return 100 * randomness(Shuffle.runs(given["run"]), given["n"])


@check("000-minbw")
def rate_to_hide_the_reading(given: Given) -> list[float]:
    """Of the seconds that 20 iterations take at 1 M a second follows the rate for less."""
    batch, size = given["nodes"] * given["batch"], given["elem_KB"] / 1024
    alone = reading(20 * batch, size, 1.0, 0.0, batch=batch).seconds or 0.0
    rates = [alone / (20 * ms / 1000) for ms in given["t_ms"]]
    for rate, ms in zip(rates, given["t_ms"], strict=True):
        found = reading(20 * batch, size, rate, ms / 1000, batch=batch)
        assert found.stall_seconds <= 1.01 * ms / 1000, "but the first is hidden"
    return [rate / 1024 for rate in rates]


@check("000-seed")
def lists_of_a_seed(given: Given) -> str:
    count, orders = given["n"], set()
    for servers in given["servers"]:
        for number in range(3):
            epoch = Epoch(count, 5, number)
            shards = [Shard(count, 10, i, servers, even=False) for i in range(servers)]
            parts = [epoch.samples(shard.run(range(len(shard)))) for shard in shards]
            assert sorted(np.concatenate(parts).tolist()) == list(range(count))
            orders.add((number, tuple(epoch.samples(np.arange(count)).tolist())))
    assert len(orders) == 3, "the same on all servers, another one in each epoch"
    return "property"
