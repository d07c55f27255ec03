"""Starts a program on several ranks that speak over sockets, and ends all when one fails.

start.py -n RANKS python PROGRAM ARGUMENT ...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    ranks, command = int(sys.argv[2]), sys.argv[3:]
    shim = str(Path(__file__).parent)
    path = os.pathsep.join([shim, os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory(prefix="lmdbio-sockets-") as folder:
        common = {"WORLD_SIZE": str(ranks), "LMDBIO_TEST_STORE": folder, "PYTHONPATH": path}
        running = [
            subprocess.Popen(command, env=os.environ | common | {"RANK": str(rank)})
            for rank in range(ranks)
        ]

        def stop(number: int, _frame: object) -> None:
            for each in running:
                each.send_signal(number)

        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        statuses: list[int | None] = [None]
        while None in statuses and not any(statuses):
            time.sleep(0.01)
            statuses = [each.poll() for each in running]
        status = next((each for each in statuses if each), 0)
        deadline = time.monotonic() + 15  # others may end by themselves, and say why
        while None in [each.poll() for each in running] and time.monotonic() < deadline:
            time.sleep(0.01)
        for each in running:
            each.kill()
            each.wait()
        return abs(status) or max(abs(each.returncode) for each in running)


if __name__ == "__main__":
    sys.exit(main())
