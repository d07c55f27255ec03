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
from pathlib import Path

import pytest

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
