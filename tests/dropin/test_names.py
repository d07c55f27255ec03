"""``import lmdbio as lmdb``: all that a program written for py-lmdb looks for is there.

Goal: every name of py-lmdb's, every method and every parameter, in its place and with its default;
classes that take either package's objects; programs that nobody changed.
Method: py-lmdb's own stubs, which say what its C extension has, are read beside the signatures of
lmdbio's classes; programs run in processes of their own. test_differential.py
compares what the calls do.
"""

from __future__ import annotations

import ast
import inspect
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from tests.support import databases

CLASSES = ("Environment", "Transaction", "Cursor", "_Database")
STUBS = ast.parse(Path(lmdb.__file__).with_suffix(".pyi").read_text())


def methods(name: str) -> list[tuple[str, ast.FunctionDef]]:
    (found,) = [one for one in STUBS.body if isinstance(one, ast.ClassDef) and one.name == name]
    return [(one.name, one) for one in found.body if isinstance(one, ast.FunctionDef)]


METHODS = [(name, method, node) for name in CLASSES for method, node in methods(name)]


def parameters(node: ast.FunctionDef) -> dict[str, Any]:
    """Names and defaults, without ``self`` or ``cls``."""
    positional = [*node.args.posonlyargs, *node.args.args][1:]
    defaults: list[Any] = [inspect.Parameter.empty] * (len(positional) - len(node.args.defaults))
    defaults += [ast.literal_eval(one) for one in node.args.defaults]
    told = dict(zip([one.arg for one in positional], defaults, strict=True))
    for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        told[one.arg] = inspect.Parameter.empty if default is None else ast.literal_eval(default)
    return told


def test_every_name_is_there() -> None:
    assert set(lmdb.__all__) <= set(lmdbio.__all__)
    assert all(hasattr(lmdbio, name) for name in lmdbio.__all__)
    assert {name for name in dir(lmdbio) if not name.startswith("__")} == set(lmdbio.__all__)
    for name in lmdb.__all__:
        if name.endswith("Error"):
            assert getattr(lmdbio, name) is getattr(lmdb, name), name


def test_open_is_the_class() -> None:
    assert lmdbio.open is lmdbio.Environment


@pytest.mark.parametrize(
    ("name", "method", "node"), METHODS, ids=[f"{name}.{method}" for name, method, _ in METHODS]
)
def test_every_method_takes_what_py_lmdb_s_takes(
    name: str, method: str, node: ast.FunctionDef
) -> None:
    ours = inspect.signature(getattr(getattr(lmdbio, name), method))
    known = list(ours.parameters.values())
    if known and known[0].name in ("self", "cls"):
        known = known[1:]
    if node.args.vararg is not None:  # __exit__
        assert any(one.kind is one.VAR_POSITIONAL for one in known)
        return
    wanted = parameters(node)
    names = [one.name for one in known if one.kind is one.POSITIONAL_OR_KEYWORD]
    order = [one for one in names if one in wanted]
    assert set(order) == set(wanted)
    assert names[: len(order)] == order, "nothing comes between them"
    is_overloaded = sum(m == method for n, m, _ in METHODS if n == name) > 1
    for one in known:
        if one.name in wanted and not is_overloaded:
            # None: not said, which is another thing here than the default that py-lmdb has.
            unsaid = one.name in ("lib_version", "readonly")
            default = None if unsaid else wanted[one.name]
            # py-lmdb's own stubs demand what it takes as empty where it is left out.
            assert one.default == default or (default is one.empty and one.default == b""), (
                one.name
            )


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_says_what_it_does(name: str) -> None:
    for method, function in inspect.getmembers(getattr(lmdbio, name), inspect.isfunction):
        assert method.startswith("_") or inspect.getdoc(function), f"{name}.{method}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with lmdb.open(str(tmp_path / "db"), max_dbs=2) as env:
        databases.write(env, [(b"%03d" % i, b"value %d" % i) for i in range(100)])
    return tmp_path / "db"


def test_either_package_s_objects_pass(folder: Path, tmp_path: Path) -> None:
    reading = lmdbio.open(str(folder), readonly=True)
    writing = lmdbio.open(str(tmp_path / "new"))
    assert type(writing) is lmdb.Environment
    for env in (reading, writing):
        txn = env.begin()
        database = env.open_db()
        assert isinstance(env, lmdbio.Environment)
        assert isinstance(txn, lmdbio.Transaction)
        assert isinstance(database, lmdbio._Database)
        assert isinstance(txn.cursor(), lmdbio.Cursor)
        for other in (lmdbio.Cursor, lmdbio.Transaction, lmdbio.Records):
            assert not isinstance(env, other)
        assert type(lmdbio.Transaction(env)) is type(txn)
        assert type(lmdbio.Cursor(database, txn)) is type(txn.cursor())
        env.close()
    assert issubclass(lmdb.Cursor, lmdbio.Cursor)
    assert not issubclass(lmdb.Cursor, lmdbio.Transaction)


@pytest.mark.parametrize(
    "call",
    [
        "{m}.Environment()",
        "{m}.Environment(1)",
        "{m}.Environment('x', nonsense=1)",
        "{m}.Environment('x', path='y')",
        "{m}.Environment('x', *range(20))",
        "{m}.open('nowhere', readonly=True)",
        "{m}.open('nowhere', readonly=True, lib_version=7)",
        "{m}.open({folder!r}, readonly=True, lib_version=7)",
        "{m}.open({folder!r}, readonly=True, lib_version=1)",
        "{m}.Transaction()",
        "{m}.Transaction(1)",
        "{m}.Transaction(env, 1)",
        "{m}.Transaction(env, write=True)",
        "{m}.Transaction(env, None, txn)",
        "{m}.Cursor()",
        "{m}.Cursor(None, txn)",
        "{m}.Cursor(db, None)",
        "{m}.Cursor(txn, db)",
        "{m}.Cursor(db)",
        "{m}._Database()",
        "{m}.open({folder!r}, readonly=True, map_size=-1)",
        "{m}.open({folder!r}, readonly=True, max_dbs=-1)",
        "{m}.open({folder!r}, readonly=True, max_readers='x')",
        "{m}.open({folder!r}, readonly=True, mode='x')",
        "env.open_db(b'no', txn=5)",
        "type('Mine', ({m}.Environment,), {{}})",
        "__import__('pickle').dumps(txn)",
        "__import__('pickle').dumps(txn.cursor())",
    ],
)
def test_constructors_refuse_alike(call: str, folder: Path) -> None:
    raised = []
    other = shutil.copytree(folder, folder.with_name("other"))
    for module in (lmdb, lmdbio):
        with module.open(str(folder), readonly=True) as env, env.begin() as txn:
            names = {"m": module, "env": env, "txn": txn, "db": env.open_db()}
            with pytest.raises((TypeError, OverflowError, lmdb.Error)) as caught:
                eval(call.format(m="m", folder=str(other)), names)
        raised.append((type(caught.value), getattr(caught.value, "code", None)))
    assert raised[0] == raised[1]


def test_what_leaves_a_provenance_file_passes_as_well(tmp_path: Path) -> None:
    with lmdbio.open(tmp_path / "db", provenance=True) as env:
        assert isinstance(env, lmdbio.Environment)
        with lmdbio.Transaction(env, write=True) as txn:
            assert txn.put(b"a", b"b")
    assert env.provenance_report


def test_a_handle_is_pickled_with_its_environment(folder: Path) -> None:
    with lmdbio.open(folder, readonly=True) as env:
        other, handle = pickle.loads(pickle.dumps((env, env.open_db())))
    with other, other.begin(db=handle) as txn:
        assert txn.get(b"007") == b"value 7"


def test_the_command_is_lmdbio_s() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lmdbio", "--help"], capture_output=True, text=True, timeout=60
    )
    assert "convert" in done.stdout


def test_a_path_may_be_a_path(folder: Path, tmp_path: Path) -> None:
    with lmdbio.open(folder, readonly=True) as env:
        assert env.path() == str(folder)
    with lmdbio.open(tmp_path / "new") as env:
        assert env.path() == str(tmp_path / "new")


def test_how_to_read_is_of_reading(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="readonly=True"):
        lmdbio.open(tmp_path / "db", engine="direct")
    assert not (tmp_path / "db").exists()


PROGRAM = """
import asyncio, pickle, sys
import lmdb
import lmdb.aio
from lmdb import Environment, NotFoundError
from lmdb.aio import wrap

def load(env, key):
    assert isinstance(env, lmdb.Environment)
    with lmdb.Transaction(env, buffers=False) as txn:
        assert isinstance(txn, lmdb.Transaction)
        return txn.get(key)

path = sys.argv[1]
env = lmdb.open(path, map_size=1 << 24, max_dbs=4)
named = env.open_db(b"named")
with env.begin(write=True) as txn:
    for i in range(50):
        txn.put(b"%04d" % i, b"value %d" % i)
        txn.put(b"%04d" % i, b"named %d" % i, db=named)
assert load(env, b"0007") == b"value 7"
env.close()

env = lmdb.Environment(path, readonly=True, max_dbs=4)
assert load(env, b"0007") == b"value 7"
named = env.open_db(b"named", create=False)
try:
    env.open_db(b"missing", create=False)
except NotFoundError as error:
    assert error.code == -30798
with env.begin(db=named) as txn:
    cursor = lmdb.Cursor(named, txn)
    assert isinstance(cursor, lmdb.Cursor) and cursor.last()
    print(cursor.item())

async def main():
    async with wrap(lmdb.open(sys.argv[1] + "-2")).begin(write=True) as txn:
        assert await txn.put(b"k", b"v")
    aenv = wrap(env)
    assert isinstance(aenv, lmdb.aio.AsyncEnvironment)
    async with aenv.begin(db=named) as txn:
        async with txn.cursor() as cursor:
            return await cursor.iternext()

assert len(asyncio.run(main())) == 50
with lmdb.open(sys.argv[1] + "-3", **PROVENANCE) as env3:
    with env3.begin(write=True) as txn:
        txn.put(b"a", b"b")
print(type(env).__module__)
"""


@pytest.mark.parametrize(
    ("before", "module"),
    [
        ("PROVENANCE = {}", "builtins"),
        (
            "import sys, lmdbio; sys.modules['lmdb'] = lmdbio; PROVENANCE = {'provenance': True}",
            "lmdbio.dropin.environment",
        ),
    ],
)
def test_a_program_that_nobody_changed_runs(before: str, module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", before + textwrap.dedent(PROGRAM), str(tmp_path / "db")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"(b'0049', b'named 49')\n{module}\n"


TOOLS = """
import os, sys
PACKAGE
path = sys.argv[1]
with lmdb.open(path) as env, env.begin(write=True) as txn:
    txn.put(b"k", b"v")
from lmdb import tool, verify
import lmdb.tool, lmdb.verify
assert lmdb.tool is tool and lmdb.verify is verify
assert verify.verify(path) == []
tool.main(["-e", path, "get", "k"])
"""


@pytest.mark.parametrize(
    "package",
    [
        "import lmdb",
        "import lmdbio; sys.modules['lmdb'] = lmdbio; import lmdb",
        "import lmdbio as lmdb; sys.modules['lmdb'] = lmdb",
    ],
)
def test_py_lmdb_s_tools_are_there(package: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOOLS.replace("PACKAGE", package), str(tmp_path / "db")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "v" in done.stdout


def test_py_lmdb_s_tools_are_lmdbio_s_by_its_own_name() -> None:
    from lmdbio import tool, verify

    assert (tool.__name__, verify.__name__) == ("lmdb.tool", "lmdb.verify")
    assert tool.lmdb is lmdb
    assert not hasattr(lmdbio, "nonsense")


LOADED = """
import sys, lmdbio
print(sorted(name for name in ("mpi4py", "torch", "rich", "click", "cffi")
             if name in sys.modules))
"""


def test_importing_loads_no_more_than_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_none_of_the_rest_needs_to_be_installed(folder: Path, tmp_path: Path) -> None:
    """MPI and torch cannot be found; reading works all the same."""
    for name in ("mpi4py", "torch"):
        (tmp_path / "missing" / name).mkdir(parents=True)
        (tmp_path / "missing" / name / "__init__.py").write_text("raise ImportError('missing')")
    program = (
        "import sys, lmdbio; env = lmdbio.open(sys.argv[1], readonly=True)\n"
        "print(env.begin().get(b'007'), lmdbio.Records(sys.argv[1])[8])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "missing")},
    )
    assert done.stdout == "b'value 7' b'value 8'\n", done.stderr
