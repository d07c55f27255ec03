"""The judge of what the ranks saw: each sample once an epoch, in the order of seed and epoch."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from lmdbio.planning.order import Epoch
from tests.trainers.case import BATCH, EPOCHS, SEED, Case

__all__ = ["batches_of", "fault"]

Batches = list[tuple[int, list[int]]]


def batches_of(case: Case, rank: int, epoch: int) -> list[list[int]]:
    """Return a rank's batches of an epoch, by the rule that the guide states."""
    order = Epoch(case.count, SEED, epoch).samples(np.arange(case.count)).tolist()
    batches, step = [], case.processes * BATCH
    for first in range(0, case.count, step):
        rest = min(step, case.count - first)
        own = -(-rest // case.processes)  # those that are missing are the epoch's first ones
        begin = first + rank * own
        batches.append([order[place % case.count] for place in range(begin, begin + own)])
    return batches


def fault(case: Case, runs: list[list[Batches]], errors: str) -> str:
    """Return what is wrong with the batches of each run and rank; "" if nothing is."""
    refusal = case.expects not in ("exact", "once")
    if refusal and errors and re.search(case.expects, errors):
        return "" if not any(map(len, runs[0])) else "refused after batches were handed out"
    if errors:
        return errors.strip().splitlines()[-1]
    if refusal:
        return "was not refused"
    first, second = runs
    if len(first) != case.processes or (case.stop and len(second) != case.processes):
        return f"{len(first)} and {len(second)} of {case.processes} ranks had batches"
    joined = [one + two for one, two in zip(first, second or [[]] * len(first), strict=True)]
    return _exact(case, joined) if case.expects == "exact" else _once(case, joined)


def _exact(case: Case, ranks: list[Batches]) -> str:
    for rank, found in enumerate(ranks):
        for epoch in range(EPOCHS):
            had = [samples for number, samples in found if number == epoch]
            wanted = batches_of(case, rank, epoch)
            if had != wanted:
                return f"epoch {epoch}, rank {rank}: {_told(had, wanted)}; {_once(case, ranks)}"
    return ""


def _told(had: list[list[int]], wanted: list[list[int]]) -> str:
    if sorted(map(tuple, had)) == sorted(map(tuple, wanted)):
        return "the batches in another order"
    right = sum(batch in wanted for batch in had)
    return f"{len(had)} batches, {right} of the {len(wanted)} right ones"


def _once(case: Case, ranks: list[Batches]) -> str:
    orders = []
    for epoch in range(EPOCHS):
        order = [one for found in ranks for at, samples in found if at == epoch for one in samples]
        if (missing := case.count - len(set(order))) or len(order) - case.count >= _padding(case):
            most = max(Counter(order).values(), default=0)
            return (
                f"epoch {epoch}: {len(order)} samples, {missing} of {case.count} are missing, "
                f"one comes {most} times"
            )
        orders.append(order)
    if len(set(map(tuple, orders))) < EPOCHS:
        return "epochs have the same order"
    return ""


def _padding(case: Case) -> int:
    """More samples than this are not added by any trainer, that all ranks have as many."""
    return case.processes * BATCH
