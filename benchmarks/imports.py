"""What importing lmdbio costs beyond NumPy.

    python -m benchmarks.imports
    python -m benchmarks.imports --rounds 50

Interpreters take turns, each a process of its own with a warm page cache, in which MPI, torch and
matplotlib cannot be imported, as where they are not installed. The exit status is 1 if more than
0.2 s come on top of NumPy's import.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

BEYOND_SECONDS_MAX = 0.2
ROOT = Path(__file__).resolve().parent.parent
#: What is imported first, and what then.
WITHOUT = "import sys; sys.modules.update(dict.fromkeys(['mpi4py', 'torch', 'matplotlib'])); "
CONTESTANTS = {
    "numpy": "import numpy",
    "numpy, lmdbio": "import numpy, lmdbio",
    "... and open, Records, Reader": (
        "import numpy, lmdbio; lmdbio.open, lmdbio.Records, lmdbio.Reader"
    ),
}


def seconds(code: str) -> float:
    """Of one interpreter, from its start to its end."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", WITHOUT + code], check=True, cwd=ROOT)
    return time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.imports",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=25, metavar="N", help="runs of each (25)")
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error("--rounds must be at least 1")
    taken: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for code in CONTESTANTS.values():
        seconds(code)  # compiles, and fills the page cache
    for _ in range(asked.rounds):
        for name, code in CONTESTANTS.items():
            taken[name].append(seconds(code))
    base = taken["numpy"]
    beyond = 0.0
    for name, all_of_it in taken.items():
        beyond = statistics.median(one - two for one, two in zip(all_of_it, base, strict=True))
        print(
            f"{name:30} {statistics.median(all_of_it):.3f} s "
            f"({min(all_of_it):.3f}-{max(all_of_it):.3f}), {beyond:+.3f} s beyond numpy"
        )
    return 0 if beyond <= BEYOND_SECONDS_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
