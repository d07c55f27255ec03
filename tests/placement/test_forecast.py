"""Goal: a forecast is what a job would count, record by record.

Method: a plain loop over the places of each epoch, with a set of records for each root, for every
placement; requests where all is planned, so that nothing is taken to be like anything else.
"""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lmdbio import _core
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import Job, Outlook
from lmdbio.placement.supply import ROW_SOURCES
from lmdbio.planning.balance import NOBODY, deal
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.shuffle import GLOBAL, Shuffle

#: Records and bytes by source, bytes that are sent.
Counted = tuple[tuple[int, ...], tuple[int, ...], int]
PAGE = 4096
OPTIONS = PlanOptions(0, 64 << 10)


def extents_of(count: int) -> _core.Extents:
    """Records of one page each, of other lengths."""
    extents = np.zeros(count, _core.EXTENT)
    extents["offset"] = np.arange(count) * PAGE + 16
    extents["length"] = 1000 + np.arange(count) % 7
    return extents


def outlook_of(job: Job, count: int) -> Outlook:
    return Outlook(extents_of(count), job, OPTIONS, PAGE)


def users_of(outlook: Outlook, job: Job, count: int, number: int) -> list[int]:
    """The root that uses each place of an epoch; batches begin anywhere in it."""
    schedule, users = job.schedule(count), []
    for place in range(count):
        iteration, position = divmod(number * count + place, job.batch)
        if job.assignment == "local":
            first = iteration * job.batch
            places = range(first, first + job.batch)
            records = [int(outlook.epoch(p // count).samples([p % count])[0]) for p in places]
            holders = [int(outlook.holder(outlook.epoch(0), np.array([r]))[0][0]) for r in records]
            shares = [len(schedule.share(r)) for r in range(job.ranks)]
            of_nodes = [sum(shares[r] for r in team) for team in schedule.teams]
            users.append(int(deal(holders, job.nodes, of_nodes)[position]))
        else:
            rank = next(r for r in range(job.ranks) if position in schedule.share(r))
            users.append(schedule.team_of(rank))
    return users


def counted(outlook: Outlook, job: Job, count: int, number: int, *, warm: bool) -> Counted:
    """The same, place by place; without requests and messages."""
    lengths = extents_of(count)["length"].tolist()
    epoch = outlook.epoch(number)
    users = users_of(outlook, job, count, number)
    records, sizes = Counter[str](), Counter[str]()
    sent = 0
    for place, record in enumerate(epoch.samples(np.arange(count)).tolist()):
        user = users[place]
        (root,), (before,) = outlook.holder(epoch, np.array([record]))
        source = "file" if not (warm and before) else "own" if root == user else "peer"
        records[source] += 1
        sizes[source] += lengths[record]
        sent += lengths[record] * (root not in (NOBODY, user))
    order = ROW_SOURCES
    return tuple(records[s] for s in order), tuple(sizes[s] for s in order), sent


shuffles = st.sampled_from([None, GLOBAL, Shuffle.groups(8), Shuffle.windows(4, 5)])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(20, 200), st.integers(1, 4), st.integers(1, 3), st.integers(1, 30), shuffles,
    st.sampled_from(["home", "mixed"]), st.sampled_from(["demand", "preload"]),
    st.integers(1, 200),
)  # fmt: skip
def test_records_and_bytes_are_those_of_a_plain_count(
    count: int, nodes: int, each: int, batch: int, shuffle: Shuffle | None, placement: str,
    warm: str, pages: int,
) -> None:  # fmt: skip
    cache = Cache(pages * 64 << 10, placement=placement, warm=warm)
    try:
        job = Job(cache, batch, nodes, nodes * each, 2, shuffle)
        outlook = outlook_of(job, count)
    except ValueError as error:
        assert "needs an order" in str(error)
        return
    found = [one for one in outlook.epochs() if one.epoch is not None]
    assert [one.epoch for one in found] == [0, 1]
    for one in found:
        is_warm = one.epoch == 1 or warm == "preload"
        by_hand = counted(outlook, job, count, one.epoch or 0, warm=is_warm)
        made = one.supplied.records, one.supplied.bytes, one.supplied.sent_bytes
        assert made == by_hand


@settings(max_examples=20, deadline=None)
@given(
    st.integers(20, 60), st.integers(1, 4), st.integers(1, 3), st.integers(1, 30),
    st.sampled_from([None, GLOBAL, Shuffle.groups(8)]), st.integers(1, 4),
)  # fmt: skip
def test_records_of_a_local_job_are_those_of_a_plain_count(
    count: int, nodes: int, each: int, batch: int, shuffle: Shuffle | None, pages: int
) -> None:
    job = Job(Cache(pages * 64 << 10), batch, nodes, nodes * each, 2, shuffle, assignment="local")
    outlook = outlook_of(job, count)
    for one in outlook.epochs():
        by_hand = counted(outlook, job, count, one.epoch or 0, warm=one.epoch == 1)
        assert (one.supplied.records, one.supplied.bytes, one.supplied.sent_bytes) == by_hand


def test_roots_send_less_where_ranks_take_what_theirs_holds() -> None:
    count = 6400
    strided, local = (
        list(outlook_of(Job(Cache("16M"), 256, 4, 8, 2, GLOBAL, assignment=name), count).epochs())
        for name in ("strided", "local")
    )
    own, peer, file, _ = local[1].supplied.records
    assert own + peer == count and file == 0
    assert peer / count < 0.05 < 0.7 < strided[1].supplied.records[1] / count
    assert local[1].messages < strided[1].messages


@pytest.mark.parametrize(
    ("placement", "assignment"), [("mixed", "local"), ("first", "local"), ("home", "blocked")]
)
def test_other_assignments_are_refused(placement: str, assignment: str) -> None:
    with pytest.raises(ValueError, match="assignment"):
        Job(
            Cache("1M", placement=placement), 32, 4, 8, 2, Shuffle.windows(64, 2),
            assignment=assignment,
        )  # fmt: skip


def test_what_all_roots_hold_is_read_once_in_large_requests() -> None:
    count = 640
    job = Job(Cache("1M"), 32, 4, 8, 3, GLOBAL)
    first, *later = outlook_of(job, count).epochs()
    assert first.supplied.records == (0, 0, count, 0)
    assert first.requests == count * PAGE / (64 << 10)
    assert first.read_bytes == int(extents_of(count)["offset"][-1]) + 1000 + (count - 1) % 7
    for one in later:
        assert one.requests == one.read_bytes == one.supplied.records[2] == 0
        assert sum(one.supplied.records) == count


def test_preloading_reads_before_the_first_epoch() -> None:
    job = Job(Cache("1M", warm="preload"), 32, 4, 8, 1, GLOBAL)
    before, first = outlook_of(job, 640).epochs()
    assert before.epoch is None and before.requests == 40
    assert first.supplied.records[2] == first.requests == 0


def test_windows_are_read_in_the_order_of_the_file_each_epoch() -> None:
    job = Job(None, 32, 4, 8, 2, Shuffle.windows(64, 2))
    for one in outlook_of(job, 640).epochs():
        # A row counts by the root that has read it.
        assert sum(one.supplied.records[:2]) == 640
        # Chunks of 64 pages are cut at 64 KiB; roots share 2 of them: half a chunk each.
        assert one.requests == 640 / 16
        assert one.read_bytes == 640 * PAGE


def test_a_mixed_cache_reads_what_it_does_not_hold() -> None:
    count = 6400
    job = Job(Cache("2M", placement="mixed"), 32, 4, 8, 2, Shuffle.windows(64, 2))
    outlook = outlook_of(job, count)
    _, later = outlook.epochs()
    held = outlook.held_bytes // PAGE
    assert 0 < held < count
    assert later.supplied.records[2] == count - held
    assert outlook.held_bytes == 4 * (2 << 20), "windows are beside it"


def test_records_that_do_not_lie_in_memory_whole_come_from_the_disk() -> None:
    count, nodes = 640, 2
    extents = extents_of(count)
    cache = Cache(128 << 10, disk="/local", disk_bytes="1G")
    outlook = outlook_of(Job(cache, 32, nodes, nodes, 3, GLOBAL), count)
    homes, own, disk = outlook.homes, 0, 0
    epoch = outlook.epoch(1)
    for place, record in enumerate(epoch.samples(np.arange(count)).tolist()):
        user, home = place % 32 // 16, int(homes.records[record])
        begin = int(homes.grains.used[homes.kept(home).start]) << homes.grains.bits
        end = int(extents["offset"][record] + extents["length"][record])
        is_in_memory = end <= begin + (128 << 10)  # no grain is left out
        own += user == home and is_in_memory
        disk += user == home and not is_in_memory
    found = list(outlook.epochs())[1].supplied.records
    assert (found[0], found[3]) == (own, disk) and own > 0 < disk
    assert sum(found) == count and found[2] == 0


def test_requests_for_what_nobody_holds_are_planned_batch_by_batch() -> None:
    """Records in file order, one rank: each batch is one request."""
    job = Job(Cache("64K"), 16, 1, 1, 2)
    first, later = outlook_of(job, 160).epochs()
    assert outlook_of(job, 160).held_bytes == 64 << 10
    assert (first.requests, later.requests) == (9 + 1, 9)


def test_a_batch_of_several_epochs_has_the_requests_of_each() -> None:
    job = Job(Cache("64K"), 1600, 1, 1, 1)
    (found,) = outlook_of(job, 160).epochs()
    assert found.requests == 160 / 16
    one_by_one = Job(Cache("64K", placement="first"), 1600, 1, 1, 1)
    assert next(outlook_of(one_by_one, 160).epochs()).requests == 160 / 16


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((Cache("1M"), 32, 3, 2), "3 nodes"),
        ((Cache("1M"), 32, 0, 2), "0 nodes"),
        ((Cache("1M"), 32, 1, 2, 0), "1 to 100,000 epochs"),
        ((Cache(disk="/d"), 32, 1, 2), "disk_bytes"),
        ((Cache("1M", placement="mixed"), 32, 1, 2, 1, GLOBAL), "needs an order by windows"),
    ],
)
def test_jobs_that_make_no_sense_are_refused(values: tuple[object, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Job(*values)  # type: ignore[arg-type]
