"""Installs a wheel as a user does who has no compiler and no MPI, on every Python of this machine.

    python packaging/try_wheel.py dist/*.whl
    python packaging/try_wheel.py --this-python dist/*.whl

Each Python gets a fresh virtual environment. Nothing but that environment is in PATH, CC is a
program that fails, and pip may take wheels alone, so a dependency that must be compiled is found
as well. All that comes beside NumPy must be small. `packaging/check_installed.py` then reads a
database there. Needs PyPI for what lmdbio depends on.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from pythons import Interpreter, installed

CHECK = Path(__file__).with_name("check_installed.py")
#: Of all that lmdbio brings but NumPy: 20 MB with what Python then compiles.
DEPENDENCIES_BYTES_MAX = 12_000_000
#: The variables that the bare environment keeps: where pip finds PyPI, and its cache.
KEPT = ("HOME", "LANG", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "TMPDIR", "XDG_CACHE_HOME")
KEPT_PREFIXES = ("PIP_", "http", "HTTP", "no_proxy", "NO_PROXY")


class TrialError(Exception):
    """An installation failed, or what was installed does not work."""


def run(command: list[str], environment: dict[str, str], folder: str) -> str:
    """Run a command in a folder that holds no lmdbio, and return what it printed.

    Raises:
        TrialError: it failed.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise TrialError(f"{' '.join(command)}:\n{done.stdout}")
    return done.stdout


def matching(wheels: list[Path], python: Interpreter) -> Path | None:
    """Return the wheel for a Python: abi3, or for a free-threaded one that of its version."""
    tag = f"-cp{python.version[0]}{python.version[1]}t-" if python.free_threaded else "-abi3-"
    here = [wheel for wheel in wheels if wheel.stem.endswith(platform.machine())]
    return next((wheel for wheel in here if tag in wheel.name), None)


def weigh(packages: Path) -> int:
    """Return the bytes of what lies in a folder of packages beside NumPy and lmdbio."""
    return sum(
        path.stat().st_size
        for path in packages.rglob("*")
        if path.is_file() and not str(path.relative_to(packages)).startswith(("numpy", "lmdbio"))
    )


def attempt(wheel: Path, python: Interpreter) -> str:
    """Install a wheel into a fresh environment of one Python, check it, and say what was there.

    Raises:
        TrialError: it cannot be installed, brings too much, or does not work.
    """
    with tempfile.TemporaryDirectory(prefix="lmdbio-try-") as folder:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in KEPT or name.startswith(KEPT_PREFIXES)
        }
        bare = {**kept, "PATH": f"{folder}/env/bin", "CC": "/bin/false", "PIP_NO_INPUT": "1"}
        inside = f"{folder}/env/bin/python"
        run([str(python.path), "-I", "-m", "venv", "--without-pip", f"{folder}/env"], bare, folder)
        # This Python's pip works for the other: Debian's Python has none of its own to give.
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", inside]
        # Python compiles what is imported; nobody imports the rest before it is removed.
        options = "--quiet", "--no-compile", "--only-binary", ":all:"
        run([*pip, "install", *options, str(wheel)], bare, folder)
        (packages,) = Path(folder, "env/lib").glob("python*/site-packages")
        size_bytes = weigh(packages)
        if size_bytes > DEPENDENCIES_BYTES_MAX:
            raise TrialError(f"{wheel.name} brings {size_bytes:,} bytes beside NumPy")
        return f"{run([inside, str(CHECK)], bare, folder).strip()}, beside {size_bytes:,} bytes"


def main() -> None:
    """Parse the arguments and try each Python in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--this-python", action="store_true", help="not on the others")
    parser.add_argument("wheels", type=Path, nargs="+")
    arguments = parser.parse_args()
    wheels = [wheel.resolve() for wheel in arguments.wheels]
    here = (sys.version_info[:3], bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
    failed = False
    for python in installed():
        if arguments.this_python and (python.version, python.free_threaded) != here:
            continue
        pure = [wheel for wheel in wheels if wheel.stem.endswith("-none-any")]
        for wheel in filter(None, [matching(wheels, python), *pure]):
            try:
                print(f"Python {python}: {attempt(wheel, python)}", flush=True)
            except TrialError as error:
                failed = True
                print(f"Python {python}: FAILED: {error}", flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
