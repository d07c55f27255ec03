"""Builds what threads and processes share under ThreadSanitizer, and lets them loose on it.

    python tests/tsan/run.py [--seconds N] [--seed S] [--no-python]

First stress.c, exchange.c and mesh.c over csrc/ alone, then the tests of threads, in a Python that
has the sanitizer preloaded and a build of the extension of its own. The interpreter itself is not
instrumented: of its own memory nothing is seen, and its lock orders what runs under it; csrc/ runs
without.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lmdb

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FLAGS = ("-fsanitize=thread", "-g", "-O1", "-fno-omit-frame-pointer", "-DLIO_ASSERTS")
#: A child of a threaded process starts threads of its own, here and in data loaders.
OPTIONS = "die_after_fork=0:report_signal_unsafe=0:halt_on_error=0:exitcode=66"
#: The tests in which threads, forks and windows meet, but those that load MPI: the hooks of its
#: libraries run in threads that the sanitizer has given up already, and die there.
TESTS = ("_core/test_engine", "_core/test_window", "reading/test_file_cache")
TESTS += ("reading/test_direct_path", "records/test_records", "records/test_gather")
TESTS += ("provenance/test_file", "dropin/test_environment", "reader/test_reader")
TESTS += ("surfaces/test_lifetimes", "remote/test_surfaces")
CHOSEN = "(thread or fork or child or window or image or under or flight) and not communicator"
REPORT = "WARNING: ThreadSanitizer"
#: Programs over csrc/ alone, and whether they read a database.
PROGRAMS = {"stress": True, "exchange": False, "mesh": False}


def unrandomised() -> list[str]:
    """The sanitizer wants memory at places that randomisation may take."""
    found = shutil.which("setarch")
    return [found, platform.machine(), "-R"] if found else []


def build(folder: Path, compiler: str = "cc") -> None:
    """Compiles csrc/ once, and the programs; ``subprocess.CalledProcessError`` where it fails."""
    objects = folder / "objects"
    objects.mkdir()
    command = [*compiler.split(), "-std=c11", "-D_GNU_SOURCE", *FLAGS]
    command += ["-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}"]
    sources = map(str, sorted((ROOT / "csrc").glob("*.c")))
    subprocess.run([*command, "-c", *sources], cwd=objects, check=True)
    made = [*map(str, sorted(objects.glob("*.o"))), "-pthread"]
    for name in PROGRAMS:
        target = ["-o", str(folder / name)]
        subprocess.run([*command, str(HERE / f"{name}.c"), *made, *target], check=True)


def database(folder: Path) -> Path:
    """Inline values and values of up to some hundred KB, on several levels of pages."""
    content = random.Random(1)
    with lmdb.open(str(folder / "data"), map_size=1 << 26, sync=False) as env:
        for start in range(0, 900, 100):
            with env.begin(write=True) as txn:
                for i in range(start, start + 100):
                    length = content.choice((0, 100, 1900, 2100, 9000, 40_000))
                    txn.put(b"%08d" % i + b"k" * 90, content.randbytes(length))
    return folder / "data" / "data.mdb"


def stress(folder: Path, seed: int, seconds: float, compiler: str = "cc") -> tuple[bool, str]:
    """Whether the programs found nothing in their shares of the time, and what they said."""
    build(folder, compiler)
    all_good, told = True, ""
    for name, reads in PROGRAMS.items():
        arguments = [str(database(folder))] if reads else []
        done = subprocess.run(
            [
                *unrandomised(),
                str(folder / name),
                *arguments,
                str(seed),
                str(seconds / len(PROGRAMS)),
            ],
            env={**os.environ, "TSAN_OPTIONS": OPTIONS},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=60 + 20 * seconds,
            check=False,
        )
        good = done.returncode == 0 and "no race" in done.stdout and REPORT not in done.stdout
        all_good = all_good and good
        told += f"{name}.c: exit status {done.returncode}\n{done.stdout}"
    return all_good, told


def runtime(compiler: str) -> Path | None:
    """The sanitizer's library, for preloading."""
    told = subprocess.run(
        [*compiler.split(), "-print-file-name=libtsan.so"],
        capture_output=True,
        text=True,
        check=False,
    )
    path = Path(told.stdout.strip())
    return path.resolve() if path.is_absolute() and path.exists() else None


def python(folder: Path, compiler: str) -> tuple[bool, str]:
    """Whether the tests of threads found nothing, and what they said."""
    library = runtime(compiler)
    if library is None:
        return True, "skipped: this compiler has no libtsan.so to preload"
    copy = folder / "lmdbio"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "_lmdbio*", "*-data", "build")
    )
    flags = {"LMDBIO_CFLAGS": " ".join(FLAGS), "LMDBIO_LDFLAGS": FLAGS[0], "CC": compiler}
    subprocess.run(
        [sys.executable, "csrc/build_extension.py"],
        cwd=copy,
        env={**os.environ, **flags},
        check=True,
        capture_output=True,
    )
    logs = folder / "report"
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "PYTHONPATH": str(copy),
        "TSAN_OPTIONS": f"{OPTIONS}:log_path={logs}",
    }
    tests = [f"tests/{name}.py" for name in TESTS]
    done = subprocess.run(
        [*unrandomised(), sys.executable, "-m", "pytest", "-q", "-k", CHOSEN, *tests],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    reports = [path.read_text(errors="replace") for path in folder.glob("report.*")]
    told = "\n".join(text for text in reports if REPORT in text)
    good = not told and done.returncode in (0, 66) and " passed" in done.stdout
    return good, f"exit status {done.returncode}\n{done.stdout[-3000:]}\n{told[:20000]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of the programs in C (60)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="random seed")
    parser.add_argument("--no-python", action="store_true", help="the programs in C alone")
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"), help="compiler (cc)")
    asked = parser.parse_args()
    print(f"seed {asked.seed}, compiler {asked.cc}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lmdbio-tsan-") as name:
        folder = Path(name)
        good, told = stress(folder, asked.seed, asked.seconds, asked.cc)
        print(told, flush=True)
        if not asked.no_python:
            also, told = python(folder, asked.cc)
            print(told)
            good = good and also
    print("clean" if good else "NOT clean")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
