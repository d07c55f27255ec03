"""Prints the layers of the import contract (pyproject.toml) as ARCHITECTURE.md shows them.

    python tests/house/layers.py            the drawing and the table, on standard output
    python tests/house/layers.py --write    into ARCHITECTURE.md, between its two markers

The contract is the one place that says which package may import which. The first line of a
package's docstring says what it knows, so a package that is moved or renamed needs no other edit.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "lmdbio"
DOCUMENT = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- layers: printed by tests/house/layers.py -->\n"
END = "<!-- end of layers -->\n"
WIDTH = 64


def contract() -> list[list[str]]:
    """The layers from the top down, each a list of packages and modules beside one another."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (
        each["layers"]
        for each in settings["tool"]["importlinter"]["contracts"]
        if each["type"] == "layers"
    )
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def rooms() -> set[str]:
    """The packages and modules that lie in lmdbio/."""
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    return packages | modules


def knows(name: str) -> str:
    """Return what the first line of a package's or module's docstring says after its name."""
    path = PACKAGE / name / "__init__.py"
    if not path.exists():
        path = PACKAGE / f"{name}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    line = text.partition("\n\n")[0].replace("\n", " ").replace("``", "`")
    head, colon, rest = line.partition(": ")
    return (rest if colon and head.strip("`").lower() == name.lower() else line).strip()


def drawing(layers: list[list[str]]) -> str:
    lines = []
    for layer in layers:
        text = " | ".join(layer)
        lines.append("    " + text.center(WIDTH).rstrip())
    return "\n\n".join(lines) + "\n"


def table(layers: list[list[str]]) -> str:
    lines = ["| layer | room | what it knows |", "|---|---|---|"]
    for number, layer in zip(range(len(layers), 0, -1), layers, strict=True):
        lines += [f"| {number} | `{name}` | {knows(name)} |" for name in layer]
    return "\n".join(lines) + "\n"


def printed() -> str:
    layers = contract()
    return f"\n{drawing(layers)}\n{table(layers)}\n"


def shown(text: str) -> str:
    """Return what stands between the markers of a document.

    Raises:
        ValueError: a marker is missing.
    """
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write into ARCHITECTURE.md")
    if not parser.parse_args().write:
        print(printed(), end="")
        return
    text = DOCUMENT.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    DOCUMENT.write_text(f"{before}{BEGIN}{printed()}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
