"""Shows that an installed lmdbio works, with nothing but what its installation brought.

    python packaging/check_installed.py

Writes a small database with py-lmdb, reads it by each surface, and runs the command. Where the C
core is not there, it reads by those surfaces that work without it, and a Reader has to say so. Run
it by the Python that lmdbio was installed into; `packaging/try_wheel.py` and cibuildwheel do.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

# The folder of this file must not hide what is installed, nor must the tree lend its lmdbio.
sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent]

import lmdb  # noqa: E402

import lmdbio  # noqa: E402
from lmdbio import _core  # noqa: E402

RECORDS = {b"%08d" % i: bytes([i % 251]) * (1 + 37 * i % 9000) for i in range(500)}


def write(folder: str) -> None:
    """Write the records with py-lmdb."""
    with lmdb.open(folder, map_size=1 << 26) as env, env.begin(write=True) as txn:
        for key, value in RECORDS.items():
            txn.put(key, value)


def read(folder: str) -> None:
    """Hold what each surface reads against what was written.

    Raises:
        AssertionError: a surface gave other bytes.
    """
    values = list(RECORDS.values())
    with lmdbio.open(folder, readonly=True, lock=False) as env, env.begin() as txn:
        assert dict(txn.cursor()) == RECORDS
        assert txn.get(b"%08d" % 77) == values[77]
    with lmdbio.Records(folder) as records:
        assert len(records) == len(values)
        assert records[123] == values[123]
        assert [bytes(each) for each in records.read([400, 3, 77])] == [
            values[i] for i in (400, 3, 77)
        ]
    if _core.absence:
        refuse(folder)
        return
    seen = []
    with lmdbio.Reader(folder, batch_size=50, iterations=len(values) // 50) as reader:
        for batch in reader:
            seen += [bytes(each) for each in batch]
    assert seen == values


def refuse(folder: str) -> None:
    """Hold what needs the C core against what it has to say.

    Raises:
        AssertionError: it says something else, or nothing.
    """
    try:
        lmdbio.Reader(folder, batch_size=50)
    except ImportError as error:
        assert "lmdbio.Reader needs lmdbio's C core" in str(error), error
    else:
        raise AssertionError("there is a Reader without the C core")


def run(*arguments: str) -> str:
    """Return what the installed command prints.

    Raises:
        AssertionError: it failed.
    """
    command = [str(Path(sysconfig.get_path("scripts")) / "lmdbio"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def main() -> None:
    """Check the installation that this Python sees."""
    version = importlib.metadata.version("lmdbio")
    assert version == lmdbio.__version__
    assert Path(lmdbio.__file__).is_relative_to(sysconfig.get_path("platlib")), lmdbio.__file__
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        read(folder)
        assert "Usage" in run("--help")
        for command in () if _core.absence else ("convert", "verify", "info"):
            run(command, folder)
        read(folder)
    assert "mpi4py" not in sys.modules
    print(
        f"lmdbio {version} on Python {sys.version.split()[0]} with py-lmdb {lmdb.__version__}"
        + (", which reads" if _core.absence else "")
    )


if __name__ == "__main__":
    main()
