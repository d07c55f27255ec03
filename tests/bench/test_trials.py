"""Trials say which reader reads what, in which order: all the same records, or as many bytes.

Goal: no record twice and none left out, whatever the access and the number of processes; plain
reads as IOR lays them out.
Method: tables; nothing is read.
"""

from __future__ import annotations

import numpy as np
import pytest

from lmdbio.bench import layout, trials
from lmdbio.bench.trials import CONTESTANTS
from tests.support.benching import workload


@pytest.mark.parametrize("access", trials.ACCESSES)
@pytest.mark.parametrize("processes", [1, 3, 8])
def test_the_processes_share_the_records_without_gap_or_repeat(
    access: str, processes: int
) -> None:
    work = workload(access, processes)
    parts = [np.concatenate(work.batches(rank)) for rank in range(processes)]
    every = np.concatenate(parts)
    assert len(every) == len(set(every.tolist())) == work.count
    assert set(every.tolist()) == set(work.indices().tolist())
    if access != "random":
        assert every.max() == work.count - 1
        for rank, part in enumerate(parts):
            assert [i for run in work.runs(rank) for i in run] == part.tolist()


def test_strided_is_caffes_order_and_sequential_one_run_each() -> None:
    work = workload("strided", 4)
    assert [len(part) for part in work.batches(1)] == [16] * 10
    assert work.runs(1)[:2] == [range(16, 32), range(80, 96)]
    assert workload("sequential", 4).runs(1) == [range(160, 320)]


@pytest.mark.parametrize(
    ("extents", "pages"),
    [
        ([], 0),
        ([(0, 0)], 0),
        ([(16, 100), (200, 3000)], 1),
        ([(4096, 4097)], 2),
        ([(4000, 200)], 2),
        ([(8192, 100), (0, 100), (8400, 9000)], 4),
        ([(0, 40_000), (4096, 100)], 10),
    ],
)
def test_pages_are_counted_once(extents: list[tuple[int, int]], pages: int) -> None:
    table = np.array(extents, np.uint64).reshape(-1, 2)
    assert trials.page_bytes(table[:, 0], table[:, 1]) == pages * 4096


@pytest.mark.parametrize(
    ("total", "file_bytes", "batch", "bytes_max", "records"),
    [
        (1000, 1 << 20, 100, 1 << 30, 1000),
        (1050, 1 << 20, 100, 1 << 30, 1000),
        (1000, 1 << 20, 100, 1 << 19, 500),
        (1000, 1 << 20, 100, 1, 100),
        (50, 1 << 20, 50, 1 << 30, 50),
    ],
)
def test_a_part_of_a_data_set_is_whole_batches(
    total: int, file_bytes: int, batch: int, bytes_max: int, records: int
) -> None:
    assert trials.records_wanted(total, file_bytes, batch, bytes_max) == records


@pytest.mark.parametrize("access", trials.ACCESSES)
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("transfer", [4096, 65536])
def test_plain_reads_stay_inside_and_never_meet(
    access: str, processes: int, transfer: int
) -> None:
    work = workload(access, processes)
    made = work.layout(transfer)
    assert made is not None
    offsets = [offset for rank in range(processes) for offset in made.offsets(rank)]
    assert len(offsets) == len(set(offsets)) == made.requests
    assert made.requests * transfer == made.bytes <= work.page_bytes
    assert made.bytes > work.page_bytes - processes * max(made.block, transfer)
    assert all(offset % transfer == 0 for offset in offsets)
    assert max(offsets) + transfer <= work.file_bytes


def test_a_stride_has_iors_blocks() -> None:
    made = workload("strided", 4).layout(4096)
    assert made == layout.Layout(4096, 16 * 4096, 10, 4)
    assert list(made.offsets(1))[:2] == [16 * 4096, 17 * 4096]
    assert list(made.offsets(1))[16] == 80 * 4096


def test_a_transfer_that_does_not_fit_is_left_out_and_one_that_is_odd_refused() -> None:
    assert workload("sequential").layout(64 << 20) is None
    with pytest.raises(ValueError, match="multiple"):
        workload("sequential").layout(1000)
    made = trials.make_trials(workload("sequential"), ["plain-pread"], [4096, 64 << 20])
    assert [bool(trial.skipped) for trial in made] == [False, True]


def test_contestants_are_chosen_by_name_group_and_pattern() -> None:
    assert trials.choose(["read", "lmdb"]) == ["lmdb", "read"]
    assert trials.choose(["lmdb*"]) == ["lmdb", "lmdb-noreadahead", "lmdb-buffers"]
    assert trials.choose(["all"]) == list(CONTESTANTS)
    assert set(trials.choose(["raw"])) >= {"plain-pread", "fio-direct", "ior-direct"}
    with pytest.raises(ValueError, match="'nobody'"):
        trials.choose(["nobody"])


def test_who_cannot_take_part_is_named_with_the_reason() -> None:
    missing = {"fio-direct": "fio is not installed"}
    names = ["lmdb", "records", "fio-direct", "ior-direct"]
    made = trials.make_trials(workload("random"), names, [4096], missing)
    assert [trial.skipped for trial in made] == [
        "", "reads in order only", "fio is not installed", "takes a whole file at random",
    ]  # fmt: skip


def test_figures_of_fio_and_ior_that_are_none_are_refused() -> None:
    for text in ("", "{}", '{"jobs": []}', "fio: error"):
        with pytest.raises(ValueError, match="fio gave no figures"):
            layout.fio_figures(text)
        with pytest.raises(ValueError, match="ior gave no figures"):
            layout.ior_seconds(text)
