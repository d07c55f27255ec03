"""A part of lmdbio that lacks a package says which one, and which extra brings it.

Method: processes that cannot import the package, though it may be installed here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from tests.support import ROOT

TEXT = "needs {package}, which is not installed: pip install 'lmdbio[{extra}]'"


def without(module: str, code: str) -> str:
    """Return what a program writes to standard error that cannot import a module."""
    hidden = f"import sys; sys.modules[{module!r}] = None\n{code}"
    return subprocess.run(
        [sys.executable, "-c", hidden], text=True, capture_output=True, check=False, cwd=ROOT
    ).stderr


@pytest.mark.parametrize(
    ("module", "package", "extra", "code"),
    [
        ("torch", "PyTorch", "torch", "import lmdbio.torch"),
        ("mpi4py", "mpi4py", "mpi", "import lmdbio; lmdbio.Reader({path!r}, 1, comm=object())"),
    ],
    ids=["torch", "mpi4py"],
)
def test_python_is_told_what_is_missing(
    tmp_path: Path, module: str, package: str, extra: str, code: str
) -> None:
    with lmdb.open(str(tmp_path / "set")) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    told = without(module, code.format(path=str(tmp_path / "set"))).splitlines()[-1]
    assert told.startswith("lmdbio.errors.MissingExtraError: ")
    assert told.endswith(TEXT.format(package=package, extra=extra))


def test_it_is_caught_as_a_missing_module_of_that_name() -> None:
    code = (
        "try:\n    import lmdbio.torch\n"
        "except ModuleNotFoundError as e:\n    sys.stderr.write(e.name)\n"
    )
    assert without("torch", code) == "torch"


def test_the_command_line_has_its_usual_prefix() -> None:
    code = (
        "import lmdbio.cli.bench as bench; bench.find_spec = lambda _: None\n"
        "sys.argv = ['lmdbio', 'demo', '--data', '/nowhere']\n"
        "from lmdbio.cli import main; main()"
    )
    told = "lmdbio: lmdbio demo " + TEXT.format(package="Pillow", extra="demo")
    assert without("PIL", code) == told + "\n"
