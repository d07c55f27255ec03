"""py-lmdb is loaded when it is needed, and exceptions are its own whenever they are raised.

Goal: a program that reads, and meets no error, never loads py-lmdb, whose C extension would switch
a free-threaded Python's GIL on; ``except`` finds an exception by either package's name.
Method: fresh processes read by each surface and tell what they have loaded; others raise, catch
and load in every order. `test_first_open.py` holds the first opening to what it uses.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from lmdbio import errors
from lmdbio.convert.convert import convert
from lmdbio.system.pylmdb import StandIn

COUNT = 300
SURFACES = {
    "open": """
env = lmdbio.open(path, readonly=True, lock=False)
with env.begin() as txn:
    assert txn.get(b"000007") == b"7" * 500 and txn.get(b"none") is None
    assert lmdbio.Cursor(env.open_db(), txn).last()
    assert sum(1 for _ in txn.cursor()) == COUNT and isinstance(txn, lmdbio.Transaction)
assert not isinstance(env, lmdbio.Transaction)
env.close()
""",
    "Records": """
with lmdbio.Records(path) as records:
    assert len(records) == COUNT and records[7] == b"7" * 500
    assert len(records.read(range(0, COUNT, 7))) and records.key(8) == b"000008"
""",
    "Reader": """
options = {"batch_size": 50, "iterations": 2 * COUNT // 50, "shuffle": "global", "seed": 5}
with lmdbio.Reader(path, **options) as reader:
    assert sum(len(batch) for batch in reader) == 2 * COUNT
""",
    "Loader": """
from lmdbio.torch import Loader
for threads in (0, 2):
    with Loader(path, batch_size=32, seed=5, threads=threads) as loader:
        assert sum(len(batch) for batch in loader) == COUNT
""",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pylmdb") / "env"
    with lmdb.open(str(folder), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for index in range(COUNT):
            txn.put(b"%06d" % index, b"%d" % (index % 10) * 500)
    return folder


def run(code: str, *arguments: str | Path) -> str:
    """Run a program in which nothing is loaded, and return what it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.more
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("has_provenance", [False, True])
def test_reading_loads_no_py_lmdb(
    path: Path, tmp_path: Path, surface: str, has_provenance: bool
) -> None:
    if surface == "Loader" and importlib.util.find_spec("torch") is None:
        pytest.skip("there is no torch")
    folder = tmp_path / "env"
    shutil.copytree(path, folder)
    if has_provenance:
        convert(folder)
    code = f"import sys, lmdbio; path, COUNT = sys.argv[1], {COUNT}\n{SURFACES[surface]}\n"
    told = "print(sorted(name for name in sys.modules if name.partition('.')[0] == 'lmdb'))"
    assert run(code + told, folder) == "[]\n"


def test_each_that_stands_for_one_of_py_lmdb_s_makes_it() -> None:
    stand_ins = [
        name
        for name, one in vars(errors).items()
        if isinstance(one, StandIn) and "_theirs" in vars(one)
    ]
    assert len(stand_ins) == 11
    for name in stand_ins:
        theirs = getattr(lmdb, name)
        assert type(getattr(errors, name)("what")) is theirs
        assert issubclass(theirs, getattr(errors, name))


RAISED = (
    "from lmdbio import errors\nimport lmdbio, sys\nassert 'lmdb.cpython' not in sys.modules\n"
)


@pytest.mark.parametrize(
    "code",
    [
        # by either name, loaded after it was raised
        "try: raise errors.StaleError('x')\nexcept lmdbio.Error as error: pass",
        "try: raise errors.ShortReadError('x')\nexcept lmdbio.CorruptedError: pass",
        "try: raise errors.MovedError('x')\nexcept lmdbio.NotFoundError: 1 / 0\n"
        "except lmdbio.Error: pass",
        # or by a program that loads it itself
        "import lmdb\ntry: raise errors.PeerError('x')\nexcept lmdb.Error: pass",
        "import lmdb\ntry: raise errors.InvalidError('x')\nexcept lmdb.InvalidError: pass",
        # by the names of rooms, py-lmdb's own
        "try: lmdbio._pylmdb.lmdb.open('/nowhere', readonly=True)\nexcept errors.Error: pass",
        "try: raise errors.CorruptedError('x')\nexcept errors.ShortReadError: 1 / 0\n"
        "except errors.CorruptedError: pass",
        # derived before and after
        "class Own(errors.IncompatibleError): pass\nclass More(Own): pass\n"
        "import lmdb\ntry: raise More('x')\nexcept lmdb.IncompatibleError: pass",
        "lmdbio.Error\nclass Own(errors.Error): pass\n"
        "import lmdb\ntry: raise Own('x')\nexcept lmdb.Error: pass",
        "try: raise errors.StaleError('x')\nexcept Exception as error:\n"
        "    import lmdb\n    assert isinstance(error, lmdb.Error)",
        # of several classes, and with words of its own
        "class Mixed: pass\nclass A(errors.Error, Mixed): pass\n"
        "class B(Mixed, errors.PeerError): pass\n"
        "class C(errors.NotFoundError): pass\nclass D(C, errors.CorruptedError): pass\n"
        "class E(errors.IncompatibleError, errors.StaleError): pass\nimport lmdb\nlmdbio.Error\n"
        "assert all(issubclass(kind, lmdb.Error) for kind in (A, B, C, D, E))\n"
        "try: raise D('x')\nexcept lmdb.NotFoundError: pass",
        "class Own(errors.StaleError):\n"
        "    def __init__(self, text, *, at): super().__init__(text); self.at = at\n"
        "    def __init_subclass__(cls, kind): cls.kind = kind\n"
        "class More(Own, kind=3): pass\n"
        "try: raise More('x', at=7)\nexcept lmdbio.Error as error:\n"
        "    assert (error.at, error.kind) == (7, 3)",
        # through a pickle, and where lmdbio passes for py-lmdb
        "import pickle\nmade = pickle.dumps(errors.StaleError('x'))\n"
        "try: raise pickle.loads(made)\nexcept lmdbio.ProvenanceError: pass",
        "sys.modules['lmdb'] = lmdbio\nimport lmdb\nassert lmdb is lmdbio\n"
        "try: raise errors.NotFoundError('x')\nexcept lmdb.NotFoundError as error:\n"
        "    assert type(error).__module__ == 'lmdb'\nassert sys.modules['lmdb'] is lmdbio",
    ],
)
def test_an_exception_is_found_by_either_name(code: str) -> None:
    run(RAISED + code)


def test_exceptions_of_a_py_lmdb_that_was_there_before_are_found() -> None:
    run("import lmdb\nfrom lmdbio.errors import Error\n"
        "try: lmdb.open('/nowhere', readonly=True)\nexcept Error: pass")  # fmt: skip


def test_an_error_is_raised_where_py_lmdb_cannot_be_loaded() -> None:
    run(RAISED + "sys.path[:] = []\ntry: raise errors.InvalidError('why')\n"
        "except errors.Error as error: assert str(error) == 'why'")  # fmt: skip


def test_a_name_is_caught_where_py_lmdb_cannot_be_loaded() -> None:
    run(RAISED + "sys.path[:] = []\ntry: raise errors.InvalidError('why')\n"
        "except lmdbio.Error as error: assert str(error) == 'why'")  # fmt: skip


@pytest.mark.parametrize("pause", ["", "time.sleep(0.004 * random.random())"])
def test_threads_that_raise_first_find_it_whole(pause: str) -> None:
    """Also where each gives way to the others between any two classes."""
    run(
        RAISED
        + f"""
import random, threading, time
from lmdbio.system import pylmdb
def slow(function):
    def run(*arguments):
        {pause}
        return function(*arguments)
    return run
pylmdb._theirs, pylmdb.issubclass = slow(pylmdb._theirs), slow(issubclass)
class Mixed: pass
class Own(Mixed, errors.Error): pass
class More(errors.Error, Mixed): pass
gate, found = threading.Barrier(8), []
def fail():
    gate.wait()
    class Late(errors.MovedError): pass
    try: raise Late("x")
    except errors.Error: pass
    try: raise errors.CorruptedError("x")
    except errors.Error as error: found.append(type(error))
threads = [threading.Thread(target=fail) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
assert found == [lmdbio.CorruptedError] * 8, found
import lmdb
try: raise Own("x")
except lmdb.Error: pass
assert not pylmdb._Derived.__subclasses__()
"""
    )
