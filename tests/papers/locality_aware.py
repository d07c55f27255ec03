"""Cases of locality-aware loading (002)."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest

from lmdbio.planning.deal import balance, deal
from lmdbio.planning.order import Epoch
from tests.papers.checks import Given, check


@check("002-model")
def equations_of_loading(given: Given) -> Given:
    samples, learners, cached = given["D"], given["p"], given["alpha"]
    training, read = samples / (learners * given["V"]), samples / given["R"]
    preprocessing = samples / (learners * given["U"])
    remote = (learners - 1) / learners
    return {
        "training": training,
        "io": read,
        "preprocess": preprocessing,
        "loading": read + preprocessing,
        "crossover_p": given["R"] / given["V"],
        "true_cost": max(training, read),
        "dist_cache_io": (1 - cached) * read + cached * samples / given["Rc"] * remote,
        "locality_io": (1 - cached) * read + cached * samples / given["Rb"] * given["beta"],
    }


@check("002-imb64")
def share_that_is_moved(given: Given) -> list[float]:
    """Of batches without replacement out of a data set that is held in even parts."""
    found = []
    for learners in given["p"]:
        batch = learners * given["local_batch"]
        holder = np.repeat(np.arange(learners), 20 * given["local_batch"])
        moved = []
        for number in range(max(12, 2000 // learners)):
            epoch = Epoch(len(holder), 3, number)
            held = np.bincount(holder[epoch.samples(np.arange(batch))], minlength=learners)
            moves = balance(held.tolist(), [given["local_batch"]] * learners)
            moved.append(100 * sum(move.records for move in moves) / batch)
        found.append(median(moved))
    return found


@check("002-fig5")
def the_example(given: Given) -> Given:
    counts = given["counts"]
    moves = balance(counts, [sum(counts) // len(counts)] * len(counts))
    volume = sum(move.records for move in moves)
    return {
        "schedule": [list(move) for move in moves],
        "volume": volume,
        "fraction": volume / sum(counts),
    }


@check("002-alg1-prop")
def balances_hold(given: Given) -> str:
    chance = np.random.default_rng(4)
    for _ in range(given["trials"]):
        learners = int(chance.integers(given["p"][0], given["p"][1] + 1))
        share = int(chance.integers(given["lb"][0], given["lb"][1] + 1))
        held = np.bincount(
            chance.integers(0, learners, learners * share), minlength=learners
        ).tolist()
        moves = balance(held, [share] * learners)
        off = sum(count != share for count in held)
        assert sum(move.records for move in moves) == sum(max(0, share - n) for n in held)
        assert math.ceil(off / 2) <= len(moves) <= max(0, off - 1)
        for move in moves:
            held[move.source] -= move.records
            held[move.target] += move.records
        assert held == [share] * learners
    return "holds"


@check("002-theorem1")
def the_same_batches(given: Given) -> str:
    count, batch = given["F"], given["B"]
    gradients = np.random.default_rng(1).normal(size=count)
    for learners in given["p"]:
        holder = np.arange(count) * learners // count
        for first in range(0, count, batch):
            records = Epoch(count, 2).samples(np.arange(first, first + batch))
            taken = deal(holder[records], learners)
            dealt = [records[taken == learner] for learner in range(learners)]
            assert {len(part) for part in dealt} == {batch // learners}
            assert sorted(np.concatenate(dealt).tolist()) == sorted(records.tolist())
            assert sum(gradients[part].sum() for part in dealt) == pytest.approx(
                gradients[records].sum(), rel=1e-9
            )
    return "property"
