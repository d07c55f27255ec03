"""openfold3's LMDBEnv and LMDBDict, a Mapping over keys with a prefix; and its own tests."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients.client import bare
from tests.clients.racing import surroundings, version_of

DISTRIBUTION = "openfold3"
CALLS = "`begin` and `get` per entry, `cursor().set_range`, `key`, `next`; pickle"
COUNT = 3000
CACHES = "openfold3.core.data.primitives.caches.lmdb"


def write(path: str) -> None:
    import lmdb

    env = lmdb.open(path, map_size=1 << 30)
    with env.begin(write=True) as txn:
        txn.put(b"_type", b'"ProteinMonomerDatasetCache"')
        for i in range(COUNT):
            chains = {str(j): {"index": j, "template_ids": [f"t{i}"] * j} for j in range(i % 5)}
            entry = {"chains": chains, "release_date": f"2026-{i}", "token_count": i}
            txn.put(b"structure_data:%04x" % i, pickle.dumps(entry))
            if i % 3 == 0:
                txn.put(b"reference_molecule_data:%d" % i, pickle.dumps("C" * i))
    env.close()


class Reader:
    def __init__(self, path: str) -> None:
        caches = bare(CACHES)
        self.env = caches.LMDBEnv(path)
        self.structures = caches.LMDBDict(self.env, prefix="structure_data")
        self.molecules = caches.LMDBDict(self.env, prefix="reference_molecule_data")


def opened(path: str) -> Any:
    reader = Reader(path)
    reader.env.get()
    return reader


def epoch(reader: Any) -> list[Any]:
    return [*reader.structures.items(), *reader.molecules.values()]


def odd(reader: Any, path: str) -> dict[str, Any]:
    caches = bare(CACHES)

    def copied() -> Any:
        copy = pickle.loads(pickle.dumps(reader.molecules))
        reader.env.close()  # py-lmdb opens a file once in a process
        entries = dict(copy)
        copy.close()
        return entries

    return {
        "lengths": lambda: (len(reader.structures), len(reader.molecules)),
        "a prefix of none": lambda: list(caches.LMDBDict(reader.env, prefix="z")),
        "an entry that is not there": lambda: reader.structures["no"],
        "a long key": lambda: reader.structures["n" * 600],
        "another encoding": lambda: caches.LMDBDict(
            reader.env, prefix="structure_data", value_encoding="utf-8"
        )["0001"],
        "pickled": copied,
        "no such folder": lambda: caches.LMDBEnv(path + "?").get(),
        "opened twice": lambda: reader.env.get() and caches.LMDBEnv(path).get().path(),
    }


DIFFERS = {"opened twice"}


def test_the_mapping_gives_the_same_entries(race: Any) -> None:
    race()


@pytest.mark.parametrize("package", ["lmdb", "lmdbio"])
def test_its_own_tests_pass_but_for_the_one_that_wants_pickling_to_fail(
    package: str, tmp_path: Path
) -> None:
    version_of(DISTRIBUTION)
    top = importlib.util.find_spec("openfold3")
    assert top is not None and top.origin is not None
    tests = Path(top.origin).parent / "tests/core/data/primitives/caches"
    whole = subprocess.run(
        [sys.executable, "-c", "import openfold3.core.data.io.dataset_cache"],
        capture_output=True,
        text=True,
    )
    if whole.returncode:
        pytest.skip(f"openfold3 lacks what it asks for: {whole.stderr.splitlines()[-1]}")
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider"),
            *(f"--confcutdir={tests}", "--rootdir", str(tmp_path), f"--basetemp={tmp_path / 't'}"),
            str(tests / "test_lmdb.py"),
        ],
        cwd=tmp_path,
        env=surroundings(package),
        capture_output=True,
        text=True,
    )
    *_, last = ran.stdout.splitlines()
    failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED")]
    print(f"openfold3's own tests, over {package}: {last}")
    if package == "lmdb":
        assert last.startswith("11 passed"), ran.stdout
    else:
        assert last.startswith("1 failed, 10 passed"), ran.stdout
        assert "test_raw_lmdb_env_not_pickleable" in failed[0], failed
