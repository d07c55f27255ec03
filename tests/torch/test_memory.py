"""Goal: loaders that run for many epochs take no more memory than the budget and what is in use.

Method: twenty shuffled epochs over a data set several times the budget, in a process of its own;
what it has in memory (anonymous, mapped from files, shared) is looked at after each epoch. Flat:
the last ten epochs against the ten before. Within: over what the process had before it opened the
files, the budget, the batches that are under way, and what Python and its threads keep.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from lmdbio.reading import file_cache
from lmdbio.torch import Dataset
from tests.support import databases

BUDGET = 32 << 20
RECORD_BYTES, COUNT, BATCH = 100_000, 1500, 32
#: Arenas of threads, and rounding.
SLACK = 24 << 20

PROGRAM = """
import json, sys
from lmdbio.torch import Dataset, BatchSampler, Loader
from torch.utils.data import DataLoader

def resident():
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return sum(int(lines[name].split()[0]) << 10 for name in ("RssAnon", "RssFile", "RssShmem"))

kind, path, batch, budget = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
before = resident()
if kind == "threads":
    loader = Loader(path, batch, shuffle=True, transform=len, memory_bytes_max=budget)
else:
    data = Dataset(path, len, memory_bytes_max=budget)
    loader = DataLoader(data, batch_sampler=BatchSampler(data, batch, shuffle=True))
seen = []
for _ in range(20):
    assert sum(map(len, loader)) == COUNT
    seen.append(resident() - before)
print(json.dumps(seen))
""".replace("COUNT", str(COUNT))


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["threads", "dataset"])
def test_memory_stays_flat_and_within_the_budget(tmp_path: Path, kind: str) -> None:
    with databases.open_writable(tmp_path / "db", 1) as env:
        records = ((b"%08d" % i, databases.value(i, RECORD_BYTES)) for i in range(COUNT))
        databases.write(env, records)
    assert COUNT * RECORD_BYTES > 4 * BUDGET
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(tmp_path / "db"), str(BATCH), str(BUDGET)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr
    seen = json.loads(told.stdout)
    print([f"{size >> 20} MiB" for size in seen])
    under_way = 12 * BATCH * RECORD_BYTES  # threads and batches ahead, and those that are freed
    assert max(seen) < BUDGET + under_way + SLACK, seen
    assert max(seen[10:]) < max(seen[:10]) + SLACK // 4, seen


class Place(Dataset):
    """A data set whose samples say where this process keeps the file."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        super().__getitems__(indices)
        return [self.records._routes.file_cache.place] * len(indices)


@pytest.mark.usefixtures("off_disk", "planned")
@pytest.mark.parametrize(
    ("workers", "room", "place"),
    [(0, 1 << 40, "memory"), (2, 1 << 40, "page cache"), (2, 0, "memory"), (8, 0, "nowhere")],
)
def test_workers_share_one_copy_of_a_file_and_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, room: int, place: str
) -> None:
    monkeypatch.setattr(file_cache, "cached_bytes_max", lambda: room)
    path = tmp_path / "data"
    with databases.open_writable(path, 64) as env:
        databases.write(env, ((b"%04d" % i, bytes(3000)) for i in range(300)))
    size = (path / "data.mdb").stat().st_size
    data = Place(path, memory_bytes_max=3 * size)
    loader = DataLoader(
        data, batch_size=50, shuffle=True, num_workers=workers, collate_fn=list,
        multiprocessing_context="fork" if workers else None,
    )  # fmt: skip
    assert {one for batch in loader for one in batch} == {place}
