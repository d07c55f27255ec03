"""Builds the fuzzers with sanitizers, makes seeds with py-lmdb and runs them.

    python tests/fuzz/run.py [--count N] [--seed S]

fuzz.c mutates databases: a fault leaves its seed and number on the terminal; running with them
again repeats it. tests/tsan/mesh.c sends random greetings and frames to the ranks of a job.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lmdb
import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# No single request above 64 MiB: every length in a file of some KiB that leads to one was not
# checked. (The visited bitmap and a walk's chunks are bounded by the file.)
OPTIONS = "max_allocation_size_mb=64:allocator_may_return_null=0:detect_leaks=1:abort_on_error=1"
#: Sanitizers, and the assertions of csrc/contract.h: both find our own mistakes.
FLAGS = (
    "-O0",  # as fast as -O1 under the sanitizers, and built in half the time
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-DLIO_ASSERTS",
)
PROGRAMS = ("fuzz.c", "../tsan/mesh.c")
#: Mutations for each second that strangers have to speak to ranks.
COUNT_PER_SECOND = 20_000


def build(folder: Path, compiler: str = "cc") -> None:
    """Compiles csrc/ with AddressSanitizer and UndefinedBehaviorSanitizer, and the programs."""
    command = [*compiler.split(), "-std=c11", "-D_GNU_SOURCE", *FLAGS]
    command += ["-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}"]
    sources = map(str, sorted((ROOT / "csrc").glob("*.c")))
    subprocess.run([*command, "-c", *sources], cwd=folder, check=True)
    made = [*map(str, sorted(folder.glob("*.o"))), "-pthread"]
    for name in PROGRAMS:
        target = ["-o", str(folder / Path(name).stem)]
        subprocess.run([*command, str(HERE / name), *made, *target], check=True)


def _database(folder: Path, name: str, lib_version: int, fill: object, **kwargs: object) -> Path:
    place = folder / f"{name}-{lib_version}"
    version = {"lib_version": 1} if lib_version == 3 else {}
    env = lmdb.open(str(place), map_size=1 << 22, max_dbs=4, **version)
    fill(env)  # type: ignore[operator]
    env.close()
    target = folder / f"{name}-{lib_version}.mdb"
    # Cut what the writer reserved beyond the last page: mutations should hit pages in use.
    shutil.copyfile(place / "data.mdb", target)
    shutil.rmtree(place)
    return target


def _mixed(env: lmdb.Environment) -> None:
    content = random.Random(1)
    for start in (0, 20):
        with env.begin(write=True) as txn:
            for i in range(start, start + 20):
                length = content.choice((0, 5, 80, 700, 2500, 4080, 4081, 9000))
                txn.put(b"%08d" % i, content.randbytes(length))


def _tree(env: lmdb.Environment) -> None:
    content = random.Random(2)
    with env.begin(write=True) as txn:
        for i in range(60):
            txn.put(b"%08d" % i + b"k" * 480, content.randbytes(30))


def _named(env: lmdb.Environment) -> None:
    db = env.open_db(b"named")
    other = env.open_db(b"dups", dupsort=True)
    fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True, integerdup=True)
    with env.begin(write=True) as txn:
        for i in range(25):
            txn.put(b"%06d" % i, bytes([i]) * 100 * i, db=db)
            txn.put(b"key%d" % (i % 3), b"%04d" % i * 20, db=other)
            txn.put(b"key%d" % (i % 3), struct.pack("<I", i), db=fixed)


def _duplicates(env: lmdb.Environment) -> None:
    db = env.open_db(b"named", dupsort=True)
    with env.begin(write=True) as txn:
        for i in range(120):
            txn.put(b"key%d" % (i % 4), b"%06d" % i * (1 + i % 9), db=db)


def seeds(folder: Path) -> list[Path]:
    """Small databases of both formats, and raw sidecar blocks of both forms."""
    made = [
        _database(folder, name, version, fill)
        for version in (1, 3)
        for name, fill in (
            ("mixed", _mixed),
            ("tree", _tree),
            ("named", _named),
            ("duplicates", _duplicates),
        )
    ]
    return made + _blocks(folder)


def _blocks(folder: Path) -> list[Path]:
    from lmdbio import _core

    content = np.random.default_rng(3)
    made = []
    for version in (1, 3):
        layout = _core.Layout(version, 4096, 16 if version == 1 else 24, 0, 1 << 16)
        runs = np.empty(500, _core.EXTENT)
        runs["length"] = content.integers(2100, 9000, 500)
        pages = (runs["length"] + np.uint64(layout.header_size + 4095)) // np.uint64(4096)
        first = 2 + np.cumsum(pages) - pages + np.arange(500, dtype=np.uint64) // 100 * 3
        runs["offset"] = first * np.uint64(4096) + np.uint64(layout.header_size)
        free = np.empty(300, _core.EXTENT)
        free["length"] = content.integers(0, 2000, 300)
        free["offset"] = content.integers(8192, 1 << 27, 300)
        for name, extents in (("runs", runs), ("explicit", free)):
            block = _core.encode_block(layout, extents)
            head = struct.pack("<BIII", block.form, block.records, version, 4096)
            path = folder / f"{name}-{version}.block"
            path.write_bytes(head + block.raw)
            made.append(path)
    return made


def run(count: int, seed: int, *, compiler: str = "cc") -> subprocess.CompletedProcess[str]:
    """Builds and runs; the caller judges the return code and shows the output."""
    with tempfile.TemporaryDirectory(prefix="lmdbio-fuzz-") as name:
        folder = Path(name)
        build(folder, compiler)
        environment = {
            **os.environ,
            "ASAN_OPTIONS": OPTIONS,
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        done = subprocess.run(
            [str(folder / "fuzz"), str(seed), str(count), *map(str, seeds(folder))],
            env=environment,
            capture_output=True,
            text=True,
        )
        # A message may be larger: a rank of the job has said so.
        environment["ASAN_OPTIONS"] = OPTIONS.replace("=64", "=1100")
        strangers = subprocess.run(
            [str(folder / "mesh"), str(seed), str(count / COUNT_PER_SECOND)],
            env=environment,
            capture_output=True,
            text=True,
        )
    done.returncode = done.returncode or strangers.returncode
    done.stdout += strangers.stdout
    done.stderr += strangers.stderr
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000, help="mutations (200000)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="random seed")
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"), help="compiler (cc)")
    arguments = parser.parse_args()
    began = time.monotonic()
    print(
        f"seed {arguments.seed}, {arguments.count} mutations, compiler {arguments.cc}", flush=True
    )
    done = run(arguments.count, arguments.seed, compiler=arguments.cc)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    print(f"{time.monotonic() - began:.0f} s, exit {done.returncode}")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
