"""Tests of a Reader with a disk: its counts, its memory, and the folder.

Method: one process and a small file; of memory, a file that is larger than the budgets.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from lmdbio import Cache
from lmdbio.cache import CacheFile, SourceState, find
from lmdbio.reader.reader import Reader
from lmdbio.system.file_identity import FileIdentity
from tests.cache.support import COUNT, GRAIN


def test_rows_come_from_memory_and_disk_as_the_tiers_say(path: Path, folder: Path) -> None:
    cache = Cache(60 * GRAIN, str(folder))
    with Reader(path, 7, cache=cache, shuffle="global", seed=2, epochs=3) as reader:
        told = sum(len(batch) for batch in reader)
    counts = {
        epoch: {name: rows for name, (rows, _) in sources.items()}
        for epoch, sources in reader.sources().items()
    }
    assert counts[0] == {"file": COUNT} and told == 3 * COUNT
    assert counts[1] == counts[2] and set(counts[1]) == {"own", "disk"}
    assert sum(counts[1].values()) == COUNT
    with Reader(path, 7, cache=cache, shuffle="global") as reader:
        assert "(some in both)" in reader.caching.text


def test_a_folder_that_is_not_there_or_no_folder_is_an_error(path: Path, tmp_path: Path) -> None:
    for wrong in (tmp_path / "nowhere", path / "data.mdb"):
        with pytest.raises(OSError, match=str(wrong)):
            Reader(path, 7, cache=Cache(disk=str(wrong)))


def test_a_file_in_which_nothing_was_kept_is_removed(path: Path, folder: Path) -> None:
    with lmdb.open(str(path)) as env:
        assert env.stat()["entries"] == COUNT
    with pytest.raises(ValueError, match="window"):
        Reader(path, 7, cache=Cache(disk=str(folder)), memory_bytes_max=1000)
    for entry in find(folder):
        assert not entry.is_open and entry.kept_bytes == 0


def test_a_taken_file_is_not_another_jobs(path: Path, folder: Path) -> None:
    file = path / "data.mdb"
    state = SourceState.of([str(file)], FileIdentity.of(file.stat()), b"metas")
    one, two = CacheFile.take(folder, state), CacheFile.take(folder, state)
    assert one.path != two.path
    one.close()
    two.close()
    assert not list(folder.iterdir())


# --- memory

PEAK = """
import sys, lmdbio
from lmdbio import Cache
def of_status(name):
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith(name))
def read(**words):
    with lmdbio.Reader(sys.argv[1], 16, shuffle=sys.argv[4], **words) as reader:
        for batch in reader:
            pass
    return reader
read(cache=Cache("1M", sys.argv[2], "1M"), iterations=2)  # loads what is loaded once
before = of_status("VmRSS")
windows = read(cache=sys.argv[3], memory_bytes_max="96M", epochs=3).windows.text
assert "each byte is read once" in windows or "mixed" not in sys.argv[3], windows
print(of_status("VmHWM") - before)
"""


@pytest.mark.more
@pytest.mark.parametrize(
    ("memory", "cache", "shuffle"),
    [
        (0, "disk={}", "global"),
        (24, "memory=24M,disk={}", "global"),
        (24, "memory=24M", "global"),
        (24, "memory=24M,placement=mixed", "windows:20x5"),
    ],
)
def test_memory_stays_within_both_budgets(
    tmp_path: Path, folder: Path, memory: int, cache: str, shuffle: str
) -> None:
    """Law 7 of the design: the most that a process has had, within a tenth."""
    path = tmp_path / "large"
    with lmdb.open(str(path), map_size=1 << 30) as env, env.begin(write=True) as txn:
        for i in range(2000):
            txn.put(b"%04d" % i, bytes([i % 251]) * 100_000)
    words = [str(path), str(folder), cache.format(folder), shuffle]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *words], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) <= 1.1 * (memory + 96) * 2**20
