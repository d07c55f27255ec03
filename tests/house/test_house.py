"""The house keeps its own rules.

Goal: what STYLE and ARCHITECTURE say about rooms, seams and words stays true.
Method: read the sources themselves; import the package in a bare process; compile each header
alone. No list of files is kept here, so that a new file is judged as well.
"""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lmdbio._core._lmdbio import lib

import lmdbio
from lmdbio import cli

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "lmdbio"
CSRC = ROOT / "csrc"

#: A C file includes only what stands before it.
C_ROOMS = (
    "contract",
    "status",
    "extent",
    "stranger",
    "format",
    "buffer",
    "plan",
    "checksum",
    "storage",
    "trace",
    "thread",
    "remote",
    "engine",
    "locate",
    "pages",
    "tree",
    "readahead",
    "duplicates",
    "cursor",
    "bookmark",
    "prefetch",
    "scan",
    "datum",
    "provenance",
    "replay",
    "keys",
    "items",
    "order",
    "sources",
    "clock",
    "rows",
    "copier",
    "window",
    "exchange",
    "mesh",
)

MODULES = sorted(PACKAGE.rglob("*.py"))
ALL_HEADERS = sorted(CSRC.glob("*.h"))
#: A header whose first comment says so is its room's own and not part of the binding.
PRIVATE = re.compile(r"\A/\*(?:(?!\*/).)*?\bPrivate to\b", re.DOTALL)
HEADERS = [path for path in ALL_HEADERS if not PRIVATE.search(path.read_text(encoding="utf-8"))]
TEXTS = sorted(
    path
    for pattern in (
        "*",
        ".ci/*",
        "csrc/*",
        "lmdbio/**/*",
        "tests/**/*",
        "benchmarks/**/*",
        "examples/**/*",
        "provenance/*",
        "packaging/**/*",
    )
    for path in ROOT.glob(pattern)
    if path.suffix in {".py", ".c", ".h", ".md", ".toml"}
    or path.name in {"Makefile", "run", "long"}
    if "_lmdbio" not in path.name
)


def room(path: Path) -> str:
    """The room of a module: the package's part below lmdbio."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@functools.cache  # several tests ask for it of all modules
def imported(path: Path) -> list[str]:
    """The full names of all modules that a module imports, wherever in it."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


def test_every_room_of_csrc_is_drawn_in_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for header in HEADERS:
        assert re.search(rf"\b{header.stem}\b", text), f"ARCHITECTURE.md does not name {header}"


def test_only_core_touches_the_extension() -> None:
    users = {room(path) for path in MODULES if "lmdbio._core._lmdbio" in " ".join(imported(path))}
    assert users == {"_core"}


def test_only_share_imports_mpi4py() -> None:
    users = {
        room(path)
        for path in MODULES
        if any(name.split(".")[0] == "mpi4py" for name in imported(path))
    }
    assert users == {"share"}


def test_c_files_include_only_earlier_rooms() -> None:
    for path in [*ALL_HEADERS, *CSRC.glob("*.c")]:
        own = path.stem.partition("_")[0]
        if own == "lmdbio":
            continue
        assert own in C_ROOMS, f"{own} has no place in the order of rooms"
        place = C_ROOMS.index(own)
        for name in re.findall(r'#include "(\w+)\.h"', path.read_text(encoding="utf-8")):
            other = name.partition("_")[0]
            assert other == own or C_ROOMS.index(other) < place, f"{path} must not use {name}"


def test_the_c_core_needs_neither_python_nor_mpi() -> None:
    for path in [*ALL_HEADERS, *CSRC.glob("*.c")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"#include\s*[<\"](Python|mpi)\.h", text), path


def test_the_public_header_includes_every_room() -> None:
    text = (CSRC / "lmdbio.h").read_text(encoding="utf-8")
    rooms = {path.stem for path in HEADERS} - {"lmdbio"}
    assert set(re.findall(r'#include "(\w+)\.h"', text)) == rooms


def test_the_binding_has_every_function_of_the_headers() -> None:
    declared = set()
    for header in HEADERS:
        text = header.read_text(encoding="utf-8")
        text = re.sub(r"/\* cdef: skip \*/.*?/\* cdef: resume \*/", "", text, flags=re.DOTALL)
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        declared |= set(re.findall(r"\b(lio_\w+)\(", text))
    assert len(declared) > 10
    assert not {name for name in declared if not hasattr(lib, name)}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler named cc")
@pytest.mark.parametrize("header", ALL_HEADERS, ids=lambda path: path.name)
def test_each_header_compiles_alone(header: Path) -> None:
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-"]
    text = f'#include "{header.name}"\n#include "{header.name}"\n'
    done = subprocess.run(
        [*command, f"-I{CSRC}"], input=text, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["lmdbio", "lmdbio.cli"])
def test_importing_starts_no_mpi_and_loads_nothing_heavy(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "heavy = {'mpi4py', 'PIL', 'torch', 'lmdbio.bench'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == ""


def test_modules_say_what_they_are_for() -> None:
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_public_names_exist() -> None:
    for name in ("open", "Records", "Reader", "Batch", "Mode", "Error"):
        assert hasattr(lmdbio, name), name
    for name in getattr(lmdbio, "__all__", ()):
        assert hasattr(lmdbio, name), name


def test_no_text_has_unfinished_work_or_someones_paths() -> None:
    # Built from pieces, so that this file passes its own test.
    words = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))
    homes = "|".join(("ho" + "me", "ro" + "ot", "wo" + "rk", "Us" + "ers"))
    wrong = re.compile(rf"\b({words})\b|(?<![\w.~*)-])/({homes})/\w|(issue|PR) #\d")
    for path in TEXTS:
        found = wrong.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path}: {found.group() if found else ''}"


def test_the_documents_name_only_commands_and_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"```.*?\n(.*?)```", text, re.DOTALL))
        code += "\n".join(re.findall(r"`([^`\n]+)`", text))
        commands = set(re.findall(r"(?:^|\s)(?<!import )lmdbio ([a-z]+)", code, re.MULTILINE))
        assert commands <= set(cli.COMMANDS), f"{name}: {commands}"
        assert set(re.findall(r"\bmake ([a-z-]+)", code)) <= targets, name


@pytest.mark.parametrize("target", ["demo", "test", "docs", "wheel"])
def test_a_target_that_users_type_does_not_echo_its_recipe(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    assert all(line.startswith("\t@") for line in recipe[1].splitlines())


def test_ci_runs_the_test_command_of_the_readme() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == "make test"
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_a_source_distribution_has_every_folder_of_the_house() -> None:
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    sources = {path.relative_to(ROOT).parts[0] for path in TEXTS if path.parent != ROOT}
    for folder in sources - {"lmdbio", ".ci"} | {"provenance"}:
        assert f"graft {folder}" in manifest
