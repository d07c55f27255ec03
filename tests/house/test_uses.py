"""The `__init__` of a package names the rooms that it uses: those that it imports.

Goal: the sentence that begins with "Uses" is true. `errors` and `system`, which any room may use,
need not be named. Method: read the imports of all modules of the package, wherever they stand.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.layers import PACKAGE, rooms
from tests.house.test_house import imported

PACKAGES = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))
ANYWHERE = {"errors", "system"}


def named(package: Path) -> set[str]:
    """Return the rooms in the sentence of a package."""
    source = (package / "__init__.py").read_text(encoding="utf-8")
    text = (ast.get_docstring(ast.parse(source)) or "").replace("\n", " ")
    _, uses, rest = text.partition("Uses ")
    assert uses, f"{package} says not what it uses"
    # Of what uses it in turn, another clause speaks.
    sentence = re.split(r"\.\s|\.$|; only ", rest)[0]
    names = {name.partition(".")[0] for name in re.findall(r"``([\w.]+)``", sentence)}
    return names & rooms()


def used(package: Path) -> set[str]:
    """Return the other rooms that the modules of a package import."""
    names = (name.split(".") for path in package.rglob("*.py") for name in imported(path))
    found = {parts[1] for parts in names if parts[0] == "lmdbio" and len(parts) > 1}
    return (found & rooms()) - {package.name}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_package_uses_what_it_says(package: Path) -> None:
    assert named(package) - ANYWHERE == used(package) - ANYWHERE
