"""The law, over all modes, all topologies and assignments, and many more jobs of roots that keep
records than the tests draw, under each MPI that is there: some fifteen minutes."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import data
import launch
from test_law import LAUNCHES

from lmdbio.convert.convert import convert

SECONDS_MAX = 1800
#: Programs that draw jobs: ranks, and how many, of each size of nodes or of each policy.
DRAWN = {
    "caches.py": (4, 60),
    "keeping.py": (5, 60),
    "loading.py": (3, 20),
    "simulated.py": (4, 60),
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="lmdbio-law-") as folder:
        values = [data.mixed_value(i) for i in range(data.MIXED)]
        path = data.write(Path(folder) / "db", values)
        convert(path)
        fixed = data.write(
            Path(folder) / "fixed", [data.fixed_value(i) for i in range(data.FIXED)]
        )
        tiny = data.write(Path(folder) / "tiny", values[:3])
        for name in launch.NAMES:
            try:
                mpi = launch.find(name)
            except launch.NotThereError as error:
                print(f"{name}: left out: {error}")
                continue
            for (ranks, per_node), assignment in LAUNCHES:
                begun = time.monotonic()
                out = mpi.run(
                    ranks, "law.py", path, assignment, per_node, 0, 1, timeout=SECONDS_MAX
                )
                print(
                    f"{name}, {ranks} ranks by {per_node}, {assignment}: {out.strip()} "
                    f"in {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
            for program, (ranks, count) in DRAWN.items():
                begun = time.monotonic()
                (Path(folder) / name).mkdir(exist_ok=True)
                sets = [path, fixed]
                if program == "simulated.py":
                    sets = [Path(folder) / name]
                elif program == "loading.py":
                    sets.append(tiny)
                out = mpi.run(ranks, program, *sets, count, timeout=SECONDS_MAX)
                print(
                    f"{name}, {program}: {out.strip().splitlines()[-1]} "
                    f"in {time.monotonic() - begun:.0f} s",
                    flush=True,
                )


main()
