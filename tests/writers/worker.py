"""Several threads of one process that read beside the writer; counts go out as lines of JSON.

python worker.py FOLDER MINE --seed S --reads N --seconds T --threads K [--opening]
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
import warnings
from pathlib import Path

from opening import Opening
from reading import RECORDS_ENGINES, Count, Drawn, Reading

import lmdbio
from lmdbio.errors import IncompatibleError

TOLD_SECONDS = 0.5


def engines(folder: Path) -> tuple[str, ...]:
    """Those that this machine and file system have."""
    found = []
    for name in RECORDS_ENGINES:
        try:
            lmdbio.open(folder, readonly=True, engine=name, lock=False).close()
        except (IncompatibleError, ValueError):
            if name in ("auto", "pread", "mmap"):
                raise
            continue
        found.append(name)
    return tuple(found)


def told(counts: dict[str, Count]) -> dict[str, dict[str, object]]:
    return {
        surface: {
            "sessions": count.sessions,
            "unheld": count.unheld,
            "right": count.right,
            "wrong": count.wrong,
            "errors": dict(count.errors),
        }
        for surface, count in list(counts.items())
    }


def say(threads: list[Drawn], **more: object) -> None:
    counts = [told(reading.counts) for reading in threads]
    breaches = [text for reading in threads for text in reading.breaches]
    print(json.dumps({"counts": counts, "breaches": breaches, **more}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("mine", type=Path, help="for provenance files")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--reads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--opening", action="store_true", help="the small environment")
    asked = parser.parse_args()
    os.environ["XDG_CACHE_HOME"] = str(asked.mine / "cache")
    warnings.simplefilter("ignore")  # a provenance file that is passed over says so
    known = engines(asked.folder)
    kind = Opening if asked.opening else Reading
    readings: list[Drawn] = []
    for number in range(asked.threads):
        own = asked.mine / str(number)
        own.mkdir(parents=True)
        readings.append(kind(asked.folder, own, asked.seed * 101 + number, known))
    end = time.monotonic() + asked.seconds

    def done() -> bool:
        right = sum(count["right"] for one in readings for count in told(one.counts).values())
        return right >= asked.reads or time.monotonic() >= end

    finished = threading.Event()

    def go(reading: Drawn) -> None:
        try:
            while not finished.is_set():
                reading.turn()
        finally:
            reading.close()

    threads = [threading.Thread(target=go, args=(one,)) for one in readings]
    for thread in threads:
        thread.start()
    while not done():
        time.sleep(TOLD_SECONDS / 5 if asked.seconds < 30 else TOLD_SECONDS)
        say(readings)
    finished.set()
    for thread in threads:
        thread.join()
    say(readings, engines=known)


if __name__ == "__main__":
    main()
