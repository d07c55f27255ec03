"""Sources without the compiled extension say so.

Goal: Python started in a clone after `pip install .` imports the clone; the error names the folder
and the ways out, on the command line in one line. Method: a copy of the sources alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the sources, and nothing that was compiled."""
    leave = shutil.ignore_patterns("_lmdbio*", "__pycache__")
    shutil.copytree(ROOT / "lmdbio", tmp_path / "clone" / "lmdbio", ignore=leave)
    (tmp_path / "clone" / "csrc").mkdir()
    return tmp_path / "clone"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    env = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(
        command, cwd=folder, env=env, text=True, capture_output=True, check=False
    )


def test_importing_names_the_folder_and_the_ways_out(clone: Path) -> None:
    done = run(clone, "-c", "import lmdbio; lmdbio.Records")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {clone} is the source folder")
    assert "pip install -e ." in last and "another folder" in last


def test_the_command_says_it_in_one_line(clone: Path) -> None:
    done = run(clone, "-m", "lmdbio", "info", ".")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"lmdbio: {clone} is the source folder")


def test_an_installation_without_it_is_not_called_a_source_folder(clone: Path) -> None:
    (clone / "csrc").rmdir()
    done = run(clone, "-m", "lmdbio", "info", ".")
    assert f"the C core is not here: {clone} has lmdbio without it: pip install" in done.stderr
    assert "the command info needs lmdbio's C core" in done.stderr.splitlines()[-1]
