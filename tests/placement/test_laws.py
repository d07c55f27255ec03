"""Goal: one law for every placement, those of tests included: owners, sources and counts agree.

Method: random jobs of every placement, and of one that is made here of a rule and its word: no
other object is needed. Each row of each block comes from one source; a record has one owner, but
where a placement gives it several; and the rows of all blocks, counted by epoch and source, are
those of the forecast.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio import Reader, _core
from lmdbio.locate.open import open_record_index
from lmdbio.placement.base import Placement
from lmdbio.placement.cache import PLACEMENTS, Cache
from lmdbio.placement.forecast import ROW_SOURCES, Job, Outlook
from lmdbio.placement.owners import OwnedRecords, RecordSources, own_first
from lmdbio.placement.sources import (
    CachedSources,
    HomeSources,
    HybridSources,
    WindowSources,
    row_epochs,
)
from lmdbio.planning.deal import NOBODY
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from tests.reader.support import write
from tests.support import long_run

EPOCHS, PAGE = 3, 4096
OPTIONS = PlanOptions(0, 64 << 10)
WINDOWS = Shuffle.windows(4, 3)


def keep_next_door(
    schedule: Schedule, sizes: np.ndarray, rooms: Sequence[int]
) -> list[OwnedRecords]:
    """Give a root what it would keep by "first", as far as its number is even."""
    kept = own_first(schedule, sizes, rooms)
    nothing = OwnedRecords(kept[0].records[:0], kept[0].epochs[:0])
    return [nothing if root % 2 else one for root, one in enumerate(kept)]


@pytest.fixture(autouse=True, scope="module")
def _new() -> object:
    PLACEMENTS["even"] = Placement("even", keep_next_door, text="records of even roots")
    yield
    del PLACEMENTS["even"]


def extents_of(count: int) -> _core.Extents:
    extents = np.zeros(count, _core.EXTENT)
    extents["offset"] = np.arange(count) * PAGE + 16
    extents["length"] = (np.arange(count) * 37) % 3000 + 1
    return extents


def sources_of(
    outlook: Outlook, cache: Cache | None
) -> CachedSources | HybridSources | WindowSources:
    """Return what a Reader asks where rows come from, made of what the forecast says."""
    schedule = outlook.schedule
    if cache is None:
        assert schedule.epochs is not None
        return WindowSources(schedule, schedule.epochs)
    is_warm = cache.warming.is_before
    if cache.rule.ownership is not None:
        return RecordSources(schedule, outlook._owners)
    home = HomeSources(schedule, outlook.homes, is_warm)
    return home if outlook.rounds(outlook.epoch(0)) is None else HybridSources(home)


Counts = tuple[tuple[int, ...], tuple[int, ...], int]


def counted(outlook: Outlook, job: Job, lengths: list[int]) -> list[Counts]:
    """Count the rows of all blocks by epoch and source, as the roots of a Reader do.

    Records and bytes by source, and bytes that roots send each other.
    """
    schedule, sources = outlook.schedule, sources_of(outlook, job.cache)
    records, sizes = (np.zeros((EPOCHS, len(ROW_SOURCES)), np.int64) for _ in range(2))
    sent, read = [0] * EPOCHS, set[tuple[int, int]]()  # what roots have read of what they keep
    for block, team in itertools.product(range(schedule.blocks or 0), range(job.nodes)):
        rows = sources.block(block, team)
        assert sorted(rows.order.tolist()) == list(range(len(rows.records)))
        assert rows.records.tolist() == schedule.team_records(block, team).tolist()
        passing = sources.passing(rows.records)
        ends = row_epochs(schedule, block, team)
        epochs = np.repeat([e for e, _ in ends], np.diff([0, *(end for _, end in ends)]))
        for run, root in enumerate(rows.roots.tolist()):
            for row in rows.rows(run).tolist():
                record, epoch = int(rows.records[row]), int(epochs[row])
                is_there = sources.is_there(epoch) and (passing is None or not passing[row])
                if isinstance(sources, RecordSources) and root == team:
                    is_there = job.cache.warm == "preload" or (root, record) in read
                    read.add((root, record))
                source = "file" if root < 0 or not is_there else "own" if root == team else "peer"
                records[epoch, ROW_SOURCES.index(source)] += 1
                sizes[epoch, ROW_SOURCES.index(source)] += lengths[record]
                sent[epoch] += lengths[record] * (root not in (NOBODY, team))
    return [*zip(map(tuple, records.tolist()), map(tuple, sizes.tolist()), sent, strict=True)]


@settings(max_examples=long_run.cases(25), deadline=None)
@given(
    st.integers(12, 60), st.integers(1, 4), st.integers(1, 2), st.integers(1, 30),
    st.integers(1, 200_000), st.sampled_from(["demand", "preload"]), st.integers(0, 99),
    st.sampled_from([None, GLOBAL, Shuffle.groups(8)]),
)  # fmt: skip
@pytest.mark.parametrize("name", [*PLACEMENTS, "even", "local", "slices"])
def test_rows_of_all_blocks_are_those_of_the_forecast(
    name: str, count: int, nodes: int, each: int, batch: int, memory: int, warm: str, seed: int,
    shuffle: Shuffle | None,
) -> None:  # fmt: skip
    local, kind = name == "local", "home" if name == "local" else name
    cache = None if name == "slices" else Cache(memory, placement=kind, warm=warm)
    if cache is None or cache.rule.streams:
        shuffle = WINDOWS
    words = {"assignment": "local" if local else "strided", "seed": seed}
    job = Job(cache, batch, nodes, nodes * each, EPOCHS, shuffle, ends=True, **words)
    outlook = Outlook(extents_of(count), job, OPTIONS, PAGE)
    told = [one.supplied for one in outlook.epochs() if one.epoch is not None]
    made = counted(outlook, job, extents_of(count)["length"].tolist())
    assert made == [(one.records, one.bytes, one.sent_bytes) for one in told]


@pytest.mark.parametrize("name", ["even", "first", "home"])
def test_a_reader_executes_what_was_forecast(tmp_path: Path, name: str) -> None:
    count, cache = 60, Cache(60_000, placement=name)
    path = write(tmp_path / "db", [bytes([i]) * ((i * 37) % 3000 + 1) for i in range(count)])
    with Reader(path, 7, cache=cache, shuffle="global", seed=3, epochs=EPOCHS) as reader:
        assert sum(len(batch) for batch in reader) == EPOCHS * count
    with open_record_index(str(path)) as index:
        extents = index.extents(np.arange(count, dtype=np.uint64))
    job = Job(cache, 7, 1, 1, EPOCHS, GLOBAL, ends=True, seed=3)
    told = Outlook(extents, job, OPTIONS, PAGE).epochs()
    found = reader.sources()
    for one in told:
        counts = {source: records for source, (records, _) in found[one.epoch or 0].items()}
        assert tuple(counts.get(source, 0) for source in ROW_SOURCES) == one.supplied.records


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 300_000))
@pytest.mark.parametrize("name", ["home", "mixed", "first", "even"])
def test_a_record_has_one_owner_at_most_whoever_asks(
    name: str, count: int, nodes: int, memory: int
) -> None:
    cache = Cache(memory, placement=name, warm="preload")
    shuffle = WINDOWS if cache.rule.streams else None
    job = Job(cache, count, nodes, nodes, 1, shuffle)
    outlook = Outlook(extents_of(count), job, OPTIONS, PAGE)
    every = np.arange(count)
    if cache.rule.ownership is None:
        owners = [outlook.homes.owner_of(every)]
    else:
        owners = [outlook._owners.owner_of(every, 1, np.full(count, i)) for i in range(nodes)]
    for one in owners:
        assert one.tolist() == owners[0].tolist()
        assert set(one.tolist()) <= {NOBODY, *range(nodes)}
    plenty = replace(job, cache=replace(cache, memory=1 << 40))
    if name != "even":
        found = Outlook(extents_of(count), plenty, OPTIONS, PAGE)
        assert found.held_bytes >= int(extents_of(count)["length"].sum())
