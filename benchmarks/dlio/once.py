"""One run of DLIO in this process; the last line is what it measured, as JSON.

    python -m benchmarks.dlio.once FOLDER OVERRIDE...

FOLDER gets DLIO's output; the overrides are Hydra's. Run by ``run.py``, also under mpiexec.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    out, *overrides = sys.argv[1:]
    sys.argv[1:] = [
        "--config-dir",
        str(HERE),
        f"hydra.run.dir={out}",
        f"++workload.output.folder={out}",
        f"++workload.checkpoint.checkpoint_folder={out}/checkpoints",
        *overrides,
    ]
    os.environ.setdefault("TQDM_DISABLE", "1")
    if importlib.util.find_spec("tensorflow") is None:
        # DLIO imports it for a profiler, also where PyTorch is what it runs.
        sys.modules["tensorflow"] = ModuleType("tensorflow")
    from dlio_benchmark.main import main as dlio
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    dlio()
    if rank == 0:
        told = json.loads((Path(out) / "summary.json").read_text(encoding="utf-8"))
        print(json.dumps(told["metric"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
