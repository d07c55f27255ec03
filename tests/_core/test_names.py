"""The names of ``_core``, which are loaded when they are first asked for.

Goal: the table of names and the stub with their types say the same, and what they say is so.
Method: compare both with one another and with the modules; ask for names in fresh processes.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from lmdbio import _core

FOLDER = Path(_core.__file__).parent
TABLE = {(module, name) for module, names in _core._NAMES.items() for name in names}


def test_the_stub_has_the_names_of_the_table() -> None:
    stub = ast.parse((FOLDER / "__init__.pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    told = [(str(node.module), alias) for node in imports for alias in node.names]
    assert {(module.removeprefix("lmdbio._core."), alias.name) for module, alias in told} == TABLE
    assert all(alias.asname == alias.name for _, alias in told)  # else it is no name of the stub
    assert len(told) == len(TABLE) == len(_core.__all__)


@pytest.mark.parametrize("name", _core.__all__)
def test_a_name_is_its_modules(name: str) -> None:
    module = import_module(f"lmdbio._core.{_core._LATER[name]}")
    assert getattr(_core, name) is getattr(module, name)


def test_no_name_is_a_modules_name() -> None:
    # A program that imports the module would find it under the name.
    modules = {path.stem for path in FOLDER.glob("*.py")}
    assert not modules & set(_core.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Cursors'"):
        _ = _core.Cursors


def test_the_names_are_listed_before_they_are_loaded() -> None:
    code = "from lmdbio import _core; assert set(_core.__all__) <= set(dir(_core))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_that_ask_first_get_the_same() -> None:
    code = """if True:
        import threading
        from lmdbio import _core
        gate, found = threading.Barrier(8), []
        def ask(name):
            gate.wait()
            found.append((name, getattr(_core, name)))
        names = ["Engine", "Cursor", "Values", "Items", "Plan", "Engine", "Cursor", "Walk"]
        threads = [threading.Thread(target=ask, args=(name,)) for name in names]
        for each in threads: each.start()
        for each in threads: each.join()
        assert len(found) == 8, found
        assert all(one is getattr(_core, name) for name, one in found)
    """
    subprocess.run([sys.executable, "-c", code], check=True)
