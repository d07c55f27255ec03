"""Goal: a forecast says what a job would read and send.

Method: small jobs whose figures are known; requests where all is planned, so that nothing is taken
to be like anything else. Records and bytes of random jobs are in test_laws.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from lmdbio import _core
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import Job, Outlook
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.shuffle import GLOBAL, Shuffle

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


def test_nothing_is_read_before_the_first_epoch_where_there_is_no_room() -> None:
    job = Job(Cache(100, warm="preload"), 32, 1, 1, 1, GLOBAL)
    (first,) = outlook_of(job, 640).epochs()
    assert first.epoch == 0


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
        begin = int(homes.grains.used[homes.owned(home).start]) << homes.grains.bits
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
        ((Cache("1M", placement="mixed"), 32, 1, 2, 1, GLOBAL), "records that come in windows"),
    ],
)
def test_jobs_that_make_no_sense_are_refused(values: tuple[object, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Job(*values)  # type: ignore[arg-type]


def test_all_is_read_beforehand_in_large_requests() -> None:
    job = Job(Cache("1M", placement="first", warm="preload"), 32, 4, 8, 1, GLOBAL)
    before, first = outlook_of(job, 640).epochs()
    assert before.epoch is None and 0 < before.requests <= 640
    assert first.requests == first.supplied.records[2] == 0


def test_uses_that_cannot_be_counted_are_refused() -> None:
    job = Job(Cache("1M", placement="frequency"), 32, 4, 8, 10**5, GLOBAL)
    with pytest.raises(ValueError, match=r"64,000 records .*: 6,400,256,000 steps"):
        next(outlook_of(job, 64_000).epochs())
