"""Program: runs other programs of this folder one after another. Argument: the file of their list.

The list is JSON: of each program its path, its arguments, and the file that its ranks' output goes
to. A file beside that one, with the suffix ``.done``, says that all its ranks have come to its
end. A program finds the constants of lmdbio's modules as they were imported: what an earlier one
has set is set back. The first one that fails ends the job.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import runpy
import sys
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpi4py import MPI


def import_what(program: str) -> None:
    """Import the modules of lmdbio that a program imports, before it can set anything there."""
    for node in ast.walk(ast.parse(Path(program).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lmdbio"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")


@contextlib.contextmanager
def constants_as_they_were() -> Iterator[None]:
    before = [
        (module, {name: value for name, value in vars(module).items() if name.isupper()})
        for package, module in sys.modules.items()
        if package.partition(".")[0] == "lmdbio"
    ]
    yield  # an error ends the job
    for module, constants in before:
        vars(module).update(constants)


@contextlib.contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Have all that this process prints appended to a file, which is that of all ranks."""
    kept = [os.dup(number) for number in (1, 2)]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(file, number)
    os.close(file)
    yield  # an error ends the job, and goes to that file as well
    sys.stdout.flush()
    sys.stderr.flush()
    for number, old in zip((1, 2), kept, strict=True):
        os.dup2(old, number)
        os.close(old)


def run(program: str, arguments: list[str], output: Path) -> None:
    import_what(program)
    with (
        output_to(output),
        constants_as_they_were(),
        unittest.mock.patch.object(sys, "argv", [program, *arguments]),
        unittest.mock.patch.dict(os.environ),
    ):
        runpy.run_path(program, run_name="__main__")


def main() -> None:
    listed: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for one in listed:
        output = Path(one["output"])
        run(one["program"], one["arguments"], output)
        MPI.COMM_WORLD.Barrier()
        if MPI.COMM_WORLD.rank == 0:
            output.with_suffix(".done").touch()


main()
