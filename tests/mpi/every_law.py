"""The law, over all modes, all topologies and assignments, under each MPI that is there: some
eight minutes."""

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


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="lmdbio-law-") as folder:
        values = [data.mixed_value(i) for i in range(data.MIXED)]
        path = data.write(Path(folder) / "db", values)
        convert(path)
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


main()
