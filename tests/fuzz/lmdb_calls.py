"""Makes the same drawn calls on py-lmdb and on lmdbio (tests/support/calls.py), very many of them.

    python tests/fuzz/lmdb_calls.py [--calls N] [--seed S] [--warm | --cold]

Every other round puts our file out of the page cache between the calls, for which the folder of
temporary files must lie on a disk: where the kernel keeps a file, the program refuses to begin.
A difference is shown as the shortest program that has it; its seed repeats the run. One that
depends on what the storage was slow at may not come again when its program is made shorter: then
the first assertion shown is it. Should
py-lmdb die of a signal, faulthandler says where.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from hypothesis import HealthCheck, seed, settings  # noqa: E402
from hypothesis.stateful import run_state_machine_as_test  # noqa: E402

from tests.support import cold  # noqa: E402
from tests.support.calls import OPERATIONS, ColdMachine, Machine, folder  # noqa: E402

#: Of one round, after which progress is shown.
EXAMPLES = 300
LIMITS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=60,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000, help="on each side (1,000,000)")
    parser.add_argument("--seed", type=int, help="of the draws")
    parser.add_argument("--warm", action="store_true", help="files stay in the page cache")
    parser.add_argument("--cold", action="store_true", help="they are put out in every round")
    asked = parser.parse_args()
    kinds = [Machine] * (not asked.cold) + [ColdMachine] * (not asked.warm)
    why = cold.why_warm(folder()) if ColdMachine in kinds else ""
    if why or not kinds:
        parser.error(why or "either --warm or --cold")
    faulthandler.enable()
    first = random.randrange(1 << 30) if asked.seed is None else asked.seed
    print(f"seed {first}", flush=True)
    begun, rounds = time.monotonic(), 0
    while OPERATIONS["calls"] < asked.calls:
        drawn = type(f"Machine{rounds}", (kinds[rounds % len(kinds)],), {})
        run_state_machine_as_test(seed(first + rounds)(drawn), settings=LIMITS)
        rounds += 1
        seconds = time.monotonic() - begun
        counted = ", ".join(f"{count:,} {what}" for what, count in OPERATIONS.items())
        print(f"{rounds * EXAMPLES:,} databases, {counted}, {seconds:.0f} s", flush=True)
    if OPERATIONS["left in"] * 10 > OPERATIONS["put out"]:
        sys.exit("files that were put out were there all the same: this was no test of cold files")
    print("no difference")


if __name__ == "__main__":
    main()
