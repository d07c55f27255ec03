"""Goal: many files are read within the limits of a process, whatever files they are.

Method: limits are set in child processes, on a few hundred small files; every value is compared.
"""

from __future__ import annotations

import itertools
import lzma
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from lmdbio import Records
from lmdbio.convert.convert import convert
from lmdbio.errors import Error
from tests.support import ROOT, databases, long_run
from tests.surfaces.test_older import OLDER, stories

FILES, EACH = 300, 6
#: More than the usual limit of descriptors.
THOUSANDS = long_run.cases(2000, 1100)


def value(file: int, i: int) -> bytes:
    return b"%d/%d " % (file, i) * (1 + (file + 97 * i) % 700)


def write(path: Path, file: int, count: int = EACH, version: int = 1, **how: Any) -> Path:
    with databases.open_writable(
        path, version, subdir=False, map_size=1 << 22, lock=False, **how
    ) as env:
        databases.write(env, [(b"%04d" % i, value(file, i)) for i in range(count)])
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    for file in range(FILES):
        write(folder / f"part-{file:03}.lmdb", file)
    return folder


CHECK = f"""
import resource, sys
import numpy as np
import lmdbio
FILES, EACH = {FILES}, {EACH}
def value(file, i):
    return b"%d/%d " % (file, i) * (1 + (file + 97 * i) % 700)
def check(records):
    assert len(records) == FILES * EACH
    draw = np.random.default_rng(1)
    for indices in [*draw.integers(0, len(records), (20, 200)), np.arange(len(records))]:
        for index, one in zip(indices.tolist(), records.read(indices), strict=True):
            assert bytes(one) == value(index // EACH, index % EACH)
    assert records[-1] == value(FILES - 1, EACH - 1) and records.key(700) == b"%04d" % (700 % EACH)
"""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHECK + code, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_many_more_files_than_descriptors_are_read(many: Path) -> None:
    code = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with lmdbio.Records(sys.argv[1]) as records:
    check(records)
with lmdbio.Reader(sys.argv[1], 50, shuffle="global", epochs=2) as reader:
    for batch in reader:
        for index, one in zip(batch.indices.tolist(), batch, strict=True):
            assert bytes(one) == value(index // EACH, index % EACH)
"""
    done = run(code, many)
    assert done.returncode == 0, done.stderr


def test_a_process_without_descriptors_is_told_the_limit(many: Path) -> None:
    code = """
import os
paths = [f"{sys.argv[1]}/part-{file:03}.lmdb" for file in range(FILES)]
lmdbio.Records(paths[:2]).close()
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (max(kept) + 1, hard))
lmdbio.Records(paths)
"""
    done = run(code, many)
    assert done.returncode == 1 and "ulimit -n" in done.stderr.splitlines()[-1], done.stderr


def test_little_address_space_is_enough_or_an_error(many: Path) -> None:
    """300 files would be mapped by 300 areas; what cannot be is read by calls."""
    code = """
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
records = lmdbio.Records(sys.argv[1], memory_bytes_max="16M")
resource.setrlimit(resource.RLIMIT_AS, (used() + (int(sys.argv[2]) << 20),) * 2)
try:
    check(records)
except (MemoryError, OSError) as error:
    print("refused", error)
"""
    for mib in (64, 256):
        done = run(code, many, mib)
        assert done.returncode == 0, done.stderr
    assert "refused" not in done.stdout


@pytest.mark.more
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_read_many_files(many: Path, method: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch.utils.data import DataLoader

    from lmdbio.torch import Dataset

    data = Dataset(many)
    assert bytes(data[5]) == value(0, 5)  # so that something is open before the fork
    loader = DataLoader(
        data, batch_size=50, multiprocessing_context=method, collate_fn=list,
        # One that is spawned takes seconds to begin, and the other ones are tried by forks.
        num_workers=1 if method == "spawn" else 2, persistent_workers=method == "spawn",
    )  # fmt: skip
    for _ in range(2):
        found = [bytes(one) for batch in loader for one in batch]
        assert found == [value(file, i) for file in range(FILES) for i in range(EACH)]


@pytest.mark.more
def test_thousands_of_files_are_pickled_small_and_soon(many: Path, tmp_path: Path) -> None:
    content = (many / "part-001.lmdb").read_bytes()
    paths = [tmp_path / f"part-{file:04}.lmdb" for file in range(THOUSANDS)]
    for path in paths:
        path.write_bytes(content)
    for source in (tmp_path, paths):  # of a folder those that it had are told
        with Records(source) as records:
            assert len(records) == THOUSANDS * EACH
            begun = time.process_time()
            told = pickle.dumps(records)
            assert time.process_time() - begun < THOUSANDS / 2000
            assert len(told) < THOUSANDS * (len(str(tmp_path)) + 30)
        with pickle.loads(told) as again:
            assert again[THOUSANDS * EACH - 1] == value(1, EACH - 1)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no second file system is known")
def test_files_of_two_file_systems_are_one_data_set(many: Path) -> None:
    there = Path("/dev/shm") / f"lmdbio-many-{os.getpid()}.lmdb"
    here = sorted(many.iterdir())[:4]
    if many.stat().st_dev == there.parent.stat().st_dev:
        pytest.skip("the tests lie on /dev/shm themselves")
    try:
        write(there, 77)
        with Records([*here[:2], there, *here[2:]]) as records:
            for _ in range(3):
                batch = records.read(np.arange(len(records)))
                assert [bytes(one) for one in batch] == [
                    value(file, i) for file in (0, 1, 77, 2, 3) for i in range(EACH)
                ]
    finally:
        there.unlink(missing_ok=True)


def test_links_and_files_that_come_twice_are_files_like_others(many: Path, tmp_path: Path) -> None:
    first, second = sorted(many.iterdir())[:2]
    (tmp_path / "a.lmdb").symlink_to(first)
    (tmp_path / "b.lmdb").symlink_to(second)
    os.link(first, tmp_path / "c.lmdb")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "d.lmdb").symlink_to(first)
    wanted = [value(file, i) for file in (0, 1, 0) for i in range(EACH)]
    with Records(tmp_path) as records:
        assert list(records) == wanted and records.files[0] == str(tmp_path / "a.lmdb")
    with Records([first, tmp_path / "a.lmdb", first]) as records:
        assert list(records) == wanted[:EACH] * 3
        assert [bytes(one) for one in records.read([0, EACH, 2 * EACH])] == [wanted[0]] * 3


def test_formats_and_pages_of_all_sizes_are_one_data_set(tmp_path: Path) -> None:
    paths, wanted = [], []
    for number, sample in enumerate(stories.SAMPLES):
        path = tmp_path / f"{number}.lmdb"
        path.write_bytes(lzma.decompress((OLDER / "samples" / sample.file).read_bytes()))
        try:
            with Records(path) as alone:
                wanted += list(alone)
        except LookupError:  # of named databases
            continue
        paths += [path, write(tmp_path / f"empty{number}.lmdb", 0, 0, 1 + 2 * (number % 2))]
    sizes = {sample.page_bytes for sample in stories.SAMPLES}
    assert len(sizes) > 2 and len(paths) > 8
    with Records(paths) as records:
        assert list(records) == wanted
        draw = np.random.default_rng(1)
        for indices in draw.integers(0, len(wanted), (10, 100)):
            assert [bytes(one) for one in records.read(indices)] == [wanted[i] for i in indices]
        for index in draw.integers(0, len(wanted), 50).tolist():
            file, there = records.file_of(index)
            with Records(file) as alone:
                assert alone[there] == wanted[index] and alone.key(there) == records.key(index)
    for path in paths[::3]:
        convert(path)
    with Records(paths) as records:
        assert list(records) == wanted


def test_named_databases_and_keys_of_many_values_are_those_of_each_file(tmp_path: Path) -> None:
    paths, wanted = [], []
    for file in range(5):
        path = tmp_path / f"{file}.lmdb"
        with lmdb.open(str(path), subdir=False, max_dbs=3, map_size=1 << 22) as env:
            many, plain = env.open_db(b"many", dupsort=True), env.open_db(b"plain")
            with env.begin(write=True) as txn:
                for i in range(9 * file):
                    txn.put(b"%03d" % (i % 4), b"%d %03d" % (file, i), db=many)
                txn.put(b"key", b"plain %d" % file, db=plain)
            with env.begin(db=many) as txn:
                wanted.append([bytes(one) for _, one in txn.cursor()])
        paths.append(path)
    every = [one for values in wanted for one in values]
    for _ in range(2):
        with Records(paths, db="many") as records:
            assert list(records) == every
            groups = [[records[i] for i in group] for group in records.groups]
            assert list(itertools.chain(*groups)) == every and len(groups) == 16
            assert records.index_of(b"001") == 3
        with Records(paths, db=b"plain") as records:
            assert list(records) == [b"plain %d" % file for file in range(5)]
        for path in paths[1:]:
            convert(path, databases="all")
    with pytest.raises(LookupError, match=r"0\.lmdb: holds only named databases"):
        Records(paths)
    with pytest.raises(LookupError, match="nowhere"):
        Records(paths, db="nowhere")


def test_one_that_is_gone_damaged_or_replaced_is_named(many: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"{file}.lmdb" for file in range(3)]
    for file, path in enumerate(paths):
        shutil.copy(many / f"part-00{file}.lmdb", path)
    records = Records(paths)
    with records:
        assert records[0] == value(0, 0)
        paths[2].unlink()
        with pytest.raises(OSError, match=r"2\.lmdb"):
            for _ in range(2):
                records.read(np.arange(len(records)))
    paths[2].write_bytes(b"no database" * 1000)
    with pytest.raises(Error, match=r"2\.lmdb: not an LMDB"):
        Records(paths)
