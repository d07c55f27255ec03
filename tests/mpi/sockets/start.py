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
        status = 0
        while any(each.poll() is None for each in running) and not status:
            time.sleep(0.01)
            status = next((each.returncode for each in running if each.returncode), 0)
        deadline = time.monotonic() + 15  # others may end by themselves, and say why
        while any(each.poll() is None for each in running) and time.monotonic() < deadline:
            time.sleep(0.01)
        for each in running:
            each.kill()
            each.wait()
        return abs(status) or max(abs(each.returncode) for each in running)


if __name__ == "__main__":
    sys.exit(main())
