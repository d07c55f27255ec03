"""Goal: the budget respects machine and control groups; the bound on slots is never too low.

Method: the budget reads a made-up /proc and /sys; the bound is compared with the buffers of
real plans over every run of made-up records.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio import _core
from lmdbio.machine import budget
from lmdbio.machine.bounds import FootprintBound, LengthBound
from lmdbio.machine.budget import available_bytes, budget_bytes
from tests.support import long_run

GIB = 2**30


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return root


MEMINFO = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {64 * GIB // 1024} kB\n"}
V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"

MACHINES = {
    "no control groups": ({}, 64 * GIB),
    "v2, the job's own limit": (
        {
            "proc/self/cgroup": "0::/job\n",
            f"{V2}/job/memory.max": f"{8 * GIB}\n",
            f"{V2}/job/memory.current": f"{3 * GIB}\n",
            f"{V2}/job/memory.stat": f"anon 5\ninactive_file {GIB}\n",
        },
        6 * GIB,
    ),
    "v2, a group whose name ends in a blank": (
        {
            "proc/self/cgroup": "0::/job \n",
            f"{V2}/job /memory.max": f"{4 * GIB}\n",
            f"{V2}/job /memory.current": f"{GIB}\n",
        },
        3 * GIB,
    ),
    "v2, a number that is none": (
        {
            "proc/self/cgroup": "0::/job\n",
            f"{V2}/job/memory.max": "9" * 5000 + "\n",
            f"{V2}/job/memory.current": "0\n",
        },
        64 * GIB,
    ),
    "v2, a limit further up": (
        {
            "proc/self/cgroup": "0::/slice/job\n",
            f"{V2}/slice/memory.max": f"{4 * GIB}\n",
            f"{V2}/slice/memory.current": "0\n",
            f"{V2}/slice/job/memory.max": "max\n",
            f"{V2}/slice/job/memory.current": "0\n",
        },
        4 * GIB,
    ),
    "v2 in a container whose own path is not mounted": (
        {
            "proc/self/cgroup": "0::/outside/the/container\n",
            f"{V2}/memory.max": f"{2 * GIB}\n",
            f"{V2}/memory.current": f"{GIB}\n",
        },
        GIB,
    ),
    "a name that is no text, with breaks in it": (
        {
            "proc/self/cgroup": "0::/j\udcffb\u2028c\x0cd\ne\n",
            f"{V2}/j\udcffb\u2028c\x0cd/memory.max": f"{GIB}\n",
            f"{V2}/j\udcffb\u2028c\x0cd/memory.current": "0\n",
        },
        GIB,
    ),
    "v1": (
        {
            "proc/self/cgroup": "9:cpu:/x\n4:memory:/job\n0::/\n",
            f"{V1}/job/memory.limit_in_bytes": f"{5 * GIB}\n",
            f"{V1}/job/memory.usage_in_bytes": f"{GIB}\n",
            f"{V1}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{V1}/memory.usage_in_bytes": "123\n",
        },
        4 * GIB,
    ),
    "over its limit already": (
        {
            "proc/self/cgroup": "0::/\n",
            f"{V2}/memory.max": f"{GIB}\n",
            f"{V2}/memory.current": f"{2 * GIB}\n",
        },
        0,
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_available_memory_is_the_least_of_machine_and_control_groups(
    name: str, tmp_path: Path
) -> None:
    files, expected = MACHINES[name]
    assert available_bytes(machine(tmp_path, MEMINFO | files)) == expected


def test_the_default_budget_is_2500_mb_or_a_quarter_of_what_there_is(tmp_path: Path) -> None:
    assert budget_bytes(None, {}, machine(tmp_path, MEMINFO)) == budget.DEFAULT_BYTES_MAX
    small = machine(tmp_path, {"proc/meminfo": "MemAvailable: 4000 kB\n"})
    assert budget_bytes(None, {}, small) == 1_024_000
    assert 0 < budget_bytes(None, {}) <= budget.DEFAULT_BYTES_MAX


def test_the_keyword_wins_over_the_variable_over_the_default() -> None:
    environ = {budget.ENVIRONMENT: "64M"}
    assert budget_bytes(None, environ) == 64 * 2**20
    assert budget_bytes(1000, environ) == 1000
    with pytest.raises(ValueError, match="memory_bytes_max"):
        budget_bytes(0, environ)
    assert budget_bytes("2G", environ) == 2 << 30
    assert budget_bytes(2e9, environ) == 2_000_000_000
    with pytest.raises(ValueError, match="memory_bytes_max must be a positive number of bytes"):
        budget_bytes("lots", environ)
    for wrong in (1.5, True, [], b"2G"):
        with pytest.raises(TypeError, match="whole number of bytes, or text such as '2G'"):
            budget_bytes(wrong, environ)


def planned(extents: np.ndarray, alignment: int) -> int:
    plan = _core.make_plan(extents, gap_bytes_max=0, request_bytes_max=2**20, alignment=alignment)
    return plan.totals.buffer_bytes


@settings(max_examples=long_run.cases(150), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 9_000)), min_size=1, max_size=25),
    st.sampled_from([1, 512, 4096]),
    st.sampled_from([1, 3, 10]),
    st.integers(1, 30),
)
def test_no_plan_of_consecutive_records_exceeds_the_bound(
    records: list[tuple[int, int]], alignment: int, cells: int, length: int
) -> None:
    extents = np.array(records, _core.EXTENT)
    count = len(extents)
    bound = FootprintBound(count, alignment)
    if cells > 1:  # as for a data set with very many records
        bound._cell = min(cells, count)
        bound._sums = np.zeros(-(-count // bound._cell), np.int64)
    half = count // 2
    bound.add(extents[:half])
    bound.add(extents[half:])
    for first in range(count):
        some = extents[(first + np.arange(length)) % count]
        assert planned(some, alignment) <= bound.run(length)
        twice = extents[(first + np.r_[0:length, length + 3 : 2 * length + 3]) % count]
        assert planned(twice, alignment) <= bound.runs((length,), 2)
    assert planned(extents, alignment) <= bound.total
    chance = np.random.default_rng(length)
    for _ in range(5):  # records from anywhere
        some = extents[chance.permutation(count)[:length]]
        assert planned(some, alignment) <= bound.any(len(some))
    assert bound.any(count) == bound.total and bound.any(0) == 0


def test_the_bound_is_tight_for_records_in_a_row() -> None:
    size, count = 3000, 1000
    extents = np.zeros(count, _core.EXTENT)
    extents["offset"] = np.arange(count) * size
    extents["length"] = size
    bound = FootprintBound(count, 1)
    bound.add(extents)
    assert bound.run(10) == 10 * size and bound.total == count * size
    assert bound.runs((10, 5), 4) == bound.any(60) == 60 * size
    small = FootprintBound(count, 4096)
    extents["offset"], extents["length"] = np.arange(count) * 40, 40  # as in leaf pages
    small.add(extents)
    # Two pages, and a third where the run goes from the last record to the first.
    assert small.run(100) == 3 * 4096 and small.total == 40 * count // 4096 * 4096 + 4096


def test_a_bound_over_extents_not_yet_seen_is_refused() -> None:
    bound = FootprintBound(10, 1)
    with pytest.raises(RuntimeError, match="0 of 10"):
        bound.run(1)
    with pytest.raises(RuntimeError, match="0 of 10"):
        bound.any(1)


@settings(max_examples=long_run.cases(200), deadline=None)
@given(
    st.lists(st.integers(0, 9000) | st.integers(0, 2**40), min_size=1, max_size=40),
    st.sampled_from([1, 8]),
    st.integers(0, 50),
)
def test_copied_records_never_exceed_the_bound_and_hardly_fall_short_of_it(
    lengths: list[int], alignment: int, count: int
) -> None:
    extents = np.zeros(len(lengths), _core.EXTENT)
    extents["length"] = lengths
    bound = LengthBound(alignment)
    assert bound.any(count) == 0
    half = len(lengths) // 2
    bound.add(extents[:half])
    bound.add(extents[half:])
    rounded = sorted((-(-length // alignment) * alignment for length in lengths), reverse=True)
    need = sum(rounded[:count])
    assert need <= bound.any(count) <= need * (1 + 1 / 64) + 1


def test_a_recent_budget_is_asked_for_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    now = [1e6]
    monkeypatch.setattr(budget.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(budget, "available_bytes", lambda: asked.append(now[0]) or 4_096_000)
    monkeypatch.setattr(budget, "_recent", (0.0, 0))
    for seconds in (0.0, 0.5, 0.99, 1.01):
        now[0] = 1e6 + seconds
        assert budget_bytes(None, {}, recent=True) == 1_024_000
    assert asked == [1e6, 1e6 + 1.01]
    assert budget_bytes(None, {budget.ENVIRONMENT: "64M"}, recent=True) == 64 << 20
