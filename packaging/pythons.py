"""Finds the Pythons of this machine that lmdbio supports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The oldest Python that pyproject.toml allows.
OLDEST = (3, 10)
#: Printed by each candidate: a name says little about what a pyenv shim or a link really starts.
QUESTION = """
import json, sys, sysconfig
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "cpython": sys.implementation.name == "cpython",
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A CPython: where it is, which version, and whether it was built without the GIL."""

    path: Path
    version: tuple[int, int, int]
    free_threaded: bool

    def __str__(self) -> str:
        version = ".".join(map(str, self.version))
        return f"{version}t" if self.free_threaded else version


def candidates() -> Iterator[Path]:
    """Yield what may be a Python: this one, those of pyenv and uv, and those in PATH."""
    yield Path(sys.executable)
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv"))
    yield from sorted(pyenv.glob("versions/*/bin/python"))
    yield from sorted((home / ".local/share/uv/python").glob("*/bin/python"))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and Path(folder) != pyenv / "shims":
            yield from sorted(Path(folder).glob("python3"))
            yield from sorted(Path(folder).glob("python3.[0-9]*[0-9t]"))


def installed() -> list[Interpreter]:
    """Return one interpreter for each version and kind that is here, the oldest first."""
    found: dict[tuple[tuple[int, int, int], bool], Interpreter] = {}
    asked = set()
    for path in candidates():
        if path.resolve() in asked:
            continue
        asked.add(path.resolve())
        done = subprocess.run(
            [path, "-I", "-c", QUESTION], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            continue  # a shim without a version behind it, or Python 2
        facts = json.loads(done.stdout)
        major, minor, micro = facts["version"]
        if facts["cpython"] and (major, minor) >= OLDEST:
            key = ((major, minor, micro), facts["free_threaded"])
            found.setdefault(key, Interpreter(path, *key))
    return [found[key] for key in sorted(found)]


if __name__ == "__main__":
    for interpreter in installed():
        print(interpreter, interpreter.path)
