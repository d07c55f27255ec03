"""The names of ``_core``, which are loaded when they are first asked for.

Goal: the table of names says what is so, and lmdbio uses no others, though the stub has them.
Method: compare it with the modules and with all that is imported; ask in fresh processes.
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


def test_the_stub_has_the_modules_of_the_table() -> None:
    stub = ast.parse((FOLDER / "__init__.pyi").read_text("utf-8"))
    told = [node.module for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert told == sorted(f"lmdbio._core.{module}" for module in _core._NAMES)


def test_lmdbio_uses_the_names_of_the_table_alone() -> None:
    known = {*_core.__all__, *vars(_core)}
    for path in sorted(FOLDER.parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "lmdbio._core":
                assert {alias.name for alias in node.names} <= {*known, "compiled", "portable"}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "_core" or node.attr in known, f"{path}: {node.attr}"


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
