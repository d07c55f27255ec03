"""Programs that end with everything open.

Goal: nothing is told at exit, whatever is alive and in whatever order it dies. Method: programs of
their own keep what lmdbio makes until the interpreter ends. Some keep it longer than the globals
of lmdbio's modules: so does a module that has ``__main__`` among the globals of a function that C
remembers (dill, which torch and datasets load, is one).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from lmdbio.convert.convert import convert
from tests.support.range_server import RangeServer

KEEPER = """
import copyreg, __main__ as kept
class Some: pass
copyreg.pickle(Some, lambda some: (Some, ()))
"""
READING = """
env = lmdbio.open(a, readonly=True)
txn = env.begin()
cursor = txn.cursor()
iterator = iter(cursor)
items = [next(iterator) for _ in range(5)]
view = env.begin(buffers=True).get(b"00000003")
unlocked = lmdbio.open(a, readonly=True, lock=False).begin()
env.itself = env
records = lmdbio.Records(a)
batch, walk, part = records.read([1, 2]), iter(records), records[[3, 4]]
described = lmdbio.Records(b)
described[7], next(walk)
joined = lmdbio.Records([a, b])
others = joined.read([1, 700])
mix = lmdbio.Mix({"a": records, "b": described}, weights={"a": 0.5, "b": 0.5})
mix[0]
"""
READERS = """
readers = [lmdbio.Reader(a, 8), lmdbio.Reader(b, 8, cache="memory=1M", shuffle=True, epochs=3)]
iterators = [iter(reader) for reader in readers]
views = [next(iterator)[0] for iterator in iterators for _ in range(2)]
dead = lmdbio.Reader(a, 8)
first = next(iter(dead))
del dead
"""
ELSEWHERE = """
far = lmdbio.Records(url)
far[1]
away = lmdbio.open(url, readonly=True)
txn = away.begin()
txn.get(b"00000003")
"""
WRITING = """
env = lmdbio.open(new, map_size=1 << 24, provenance=True)
txn = env.begin(write=True)
txn.put(b"a", b"b")
txn.commit()
"""
LOADING = """
import lmdbio.torch
loaders = [lmdbio.torch.Loader(a, batch_size=8, shuffle=True, seed=1, collate_fn=list, **more)
           for more in ({}, {"threads": 2}, {"cache": "memory=4M"})]
iterators = [iter(loader) for loader in loaders]
batches = [next(iterator) for iterator in iterators]
"""
PROGRAMS = {
    "reading": READING,
    "readers": READERS,
    "elsewhere": ELSEWHERE,
    "writing": WRITING,
    "loading": LOADING,
    "traced": "trace = lmdbio.trace(new + '.json')" + READING + READERS,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        with lmdb.open(str(tmp_path / name), map_size=1 << 24) as env:
            with env.begin(write=True) as txn:
                for i in range(500):
                    txn.put(b"%08d" % i, bytes(500 + i))
    convert(tmp_path / "b")
    (tmp_path / "keeper.py").write_text(KEEPER, encoding="utf-8")
    return tmp_path


def told_at_the_end(path: Path, program: str, *options: str, url: str = "") -> str:
    a, b, new = (str(path / name) for name in ("a", "b", "new"))
    code = f"import sys, lmdbio\na, b, new, url = {a!r}, {b!r}, {new!r}, {url!r}\n{program}"
    (path / "program.py").write_text(code, encoding="utf-8")
    words = [sys.executable, *options, str(path / "program.py")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.more
@pytest.mark.parametrize("keeper", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_told_when_a_program_ends(path: Path, name: str, keeper: bool) -> None:
    program = "import keeper\n" * keeper + PROGRAMS[name]
    with RangeServer({"/data.mdb": (path / "a/data.mdb").read_bytes()}) as server:
        assert told_at_the_end(path, program, url=server.url("/data.mdb")) == ""


def test_a_report_of_a_run_ends_with_it(path: Path) -> None:
    told = told_at_the_end(path, "import keeper\n" + READING, "-m", "lmdbio", "run")
    assert "lmdbio.open" in told
    assert "Exception" not in told


def test_what_was_written_and_never_closed_is_told_once(path: Path) -> None:
    told = told_at_the_end(path, "import keeper\n" + WRITING, "-W", "default")
    assert told.count("was never closed: no provenance file is written") == 1
    assert "Exception" not in told
