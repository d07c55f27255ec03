"""Replays a thousand random databases of each format, and compares every record.

    python tests/fuzz/replay.py [--count N] [--seed S]

Ends with 1 when a record lies elsewhere; the seed and the number on the terminal repeat it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support import histories


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="databases of each format (1000)")
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0x7FFFFFFF)
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    wrong = 0
    for version in (1, 3):
        records = 0
        for turn in track(range(asked.count), f"format {version}", transient=True):
            folder = Path(tempfile.mkdtemp(prefix="lmdbio-replay-"))
            try:
                rng = random.Random(f"{asked.seed}/{version}/{turn}")
                made = histories.make(rng, folder / "env", version)
            finally:
                shutil.rmtree(folder)
            records += made.history.count
            found = histories.differences(made)
            if found:
                wrong += 1
                print(f"WRONG {turn}: {made.told}: {'; '.join(found)}")
        print(f"format {version}: {asked.count} databases, {records:,} records")
    print(f"{wrong} not as replayed")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
