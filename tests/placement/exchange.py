"""Roots bring the rows that teams await: one law of all sources, by rounds or by blocks."""

from __future__ import annotations

import itertools

import numpy as np

from lmdbio.placement.sources import BlockSources, CachedSources, HybridSources, WindowSources
from lmdbio.planning.schedule import Schedule


def check_rows(rows: BlockSources, schedule: Schedule, block: int, team: int) -> None:
    """Each row of a block comes once, and in the order of the schedule from each root."""
    assert np.array_equal(rows.records, schedule.team_records(block, team).view(np.int64))
    assert sorted(rows.order.tolist()) == list(range(len(rows.records)))
    for run in range(len(rows.roots)):
        assert (np.diff(rows.rows(run)) > 0).all()


def check_blocks(sources: CachedSources, schedule: Schedule) -> None:
    """Check the first blocks of roots that keep records."""
    roots = range(len(schedule.teams))
    for number in range(min(4, schedule.blocks or 4)):
        brought: dict[tuple[int, int], list[int]] = {}
        own: list[int] = []
        held: list[set[int]] = []
        awaited: list[set[int]] = [set() for _ in roots]
        for root in roots:
            uses = sources.uses(number, root)
            assert (np.diff(uses.records) >= 0).all() and (uses.blocks == number).all()
            own.append(uses.own)
            held.append(set(uses.records.tolist()))
            for i, team in enumerate(uses.teams.tolist()):
                places = uses.order[uses.begins[i] : uses.begins[i + 1]]
                brought[root, team] = uses.records[places].tolist()
        for team in roots:
            rows = sources.block(number, team)
            check_rows(rows, schedule, number, team)
            for run, root in enumerate(rows.roots.tolist()):
                records = rows.records[rows.rows(run)].tolist()
                if root >= 0:
                    awaited[root].update(records)
                if root == team:
                    own[team] -= len(records)
                elif root >= 0:
                    assert brought.pop((root, team)) == records
        assert not brought and not any(own)
        assert held == awaited, "no more than is used"


def check_rounds(sources: WindowSources | HybridSources, schedule: Schedule) -> None:
    """Check all blocks of a schedule that ends, and the rounds in which roots bring their rows."""
    teams = range(len(schedule.teams))
    asked: dict[tuple[int, int], list[tuple[int, int, list[int]]]] = {}
    sent: dict[tuple[int, int], list[tuple[int, int, list[int]]]] = {}
    own = 0
    for block, team in itertools.product(range(schedule.blocks or 0), teams):
        rows = sources.block(block, team)
        check_rows(rows, schedule, block, team)
        runs = list(zip(rows.rounds.tolist(), rows.roots.tolist(), strict=True))
        assert runs == sorted(set(runs))
        for run, (number, root) in enumerate(runs):
            records = rows.records[rows.rows(run)].tolist()
            if root == team:
                own += len(records)
            else:
                asked.setdefault((root, team), []).append((block, number, records))
    for one in sources.sequence.from_place(schedule.first_place):
        if one.begin >= schedule.first_place + (schedule.end or 0):
            break
        number = one.epoch * sources.sequence.per_epoch + one.number
        for root in teams:
            uses = sources.uses(one, root)
            assert (np.diff(uses.records) > 0).all()
            own -= uses.own
            if isinstance(sources, HybridSources):  # of a window a root reads all
                assert len(uses.records) == uses.own + len(uses.order), "no more than is used"
            for run, (first, end) in enumerate(itertools.pairwise(uses.begins.tolist())):
                records = uses.records[uses.order[first:end]].tolist()
                part = int(uses.blocks[run]), number, records
                sent.setdefault((root, int(uses.teams[run])), []).append(part)
    assert asked == sent and not own
