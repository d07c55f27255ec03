"""The layers: one import contract, held by the code and shown by ARCHITECTURE.md.

Goal: every package has its place, none imports upwards, and the document says so.
Method: import-linter judges the package, and copies of it into which a fault was put.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import layers
from tests.support import ROOT


def judge(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter's verdict on the lmdbio of a folder."""
    command = "from importlinter.cli import lint_imports_command as judge; judge()"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-cache", "--config", "pyproject.toml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with the package's sources and its contract."""
    shutil.copytree(
        ROOT / "lmdbio", tmp_path / "lmdbio", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_import_contract_holds() -> None:
    verdict = judge(ROOT)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert "1 kept, 0 broken" in verdict.stdout


def test_a_package_without_a_place_breaks_the_contract(copied: Path) -> None:
    new = copied / "lmdbio" / "attic"
    new.mkdir()
    (new / "__init__.py").write_text('"""attic: has no place."""\n')
    verdict = judge(copied)
    assert verdict.returncode == 1
    assert "attic" in verdict.stdout


@pytest.mark.parametrize(
    ("module", "upwards"),
    [
        ("system/fork.py", "from lmdbio.errors import Error"),
        ("planning/reads.py", "from lmdbio.machine.choice import choose"),
        ("locate/open.py", "from lmdbio.reading.blocks import Blocks"),
        ("records/records.py", "from lmdbio.reader.reader import Reader"),
        ("convert/verify.py", "import lmdbio.cli.convert"),
    ],
)
def test_an_upward_or_sideway_import_breaks_the_contract(
    copied: Path, module: str, upwards: str
) -> None:
    path = copied / "lmdbio" / module
    assert path.exists()
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{upwards}\n", encoding="utf-8")
    verdict = judge(copied)
    assert verdict.returncode == 1
    assert "0 kept, 1 broken" in verdict.stdout


def test_the_contract_names_exactly_what_is_there() -> None:
    named = [name for layer in layers.contract() for name in layer]
    assert sorted(named) == sorted(layers.rooms())


def test_architecture_shows_the_contract() -> None:
    text = layers.DOCUMENT.read_text(encoding="utf-8")
    assert layers.shown(text) == layers.printed(), "run python tests/house/layers.py --write"


def test_every_package_says_what_it_knows_and_may_use() -> None:
    for path in (ROOT / "lmdbio").glob("*/__init__.py"):
        name = path.parent.name
        said = layers.knows(name)
        assert said, name
        assert len(said) <= 100, f"{name}: one short sentence"
        assert re.search(r"\bUses\b", path.read_text(encoding="utf-8")), f"{name}: may use what?"


def test_few_modules_lie_beside_the_packages() -> None:
    modules = [*(ROOT / "lmdbio").glob("*.py"), *(ROOT / "lmdbio").glob("*.pyi")]
    assert len(modules) <= 6, modules


IMPURE = {
    "asyncio", "datetime", "glob", "io", "mpi4py", "multiprocessing", "os", "pathlib", "random",
    "secrets", "shutil", "socket", "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip


@pytest.mark.parametrize("package", ["planning", "placement", "simulate", "doctor"])
def test_pure_packages_know_no_file_clock_mpi_or_chance(package: str) -> None:
    for path in sorted((ROOT / "lmdbio" / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            name.partition(".")[0]
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not names & IMPURE, path
        called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not called & {"random", "fromfile", "tofile", "memmap", "load", "save"}, path
        assert not {"open", "print", "input"} & {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }, path
