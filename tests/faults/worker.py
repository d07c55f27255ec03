"""Program: the soak of some surfaces in one process, started by run.py with interpose.c.

Prints one line of JSON per cell and round, and one at the end; faults strike this process alone.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

from cell import BrokenError, Cell, Fault
from interposer import Act, Call, Interposer
from kinds import KINDS, Cut, FewDescriptors, Kind, LittleSpace, Scripted, wait_until
from oracle import Oracle, write
from surfaces import SURFACES, prepare

#: Uses without a fault, after which a kind is none of a surface.
IDLE_USES = 6
#: Uses without faults in which the calls to fail are looked for.
MEASURED_USES = 5
#: No use may take longer, seconds: then it hangs.
USE_SECONDS_MAX = 120
SHM = Path("/dev/shm")


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd",
        "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


_libc = ctypes.CDLL(None)
_libc.mallinfo2.restype = _Mallinfo


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def shared_memory() -> tuple[int, int]:
    """Mappings of shared memory, of files without a name too: how many, and their bytes."""
    count = size = 0
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if f"{SHM}/" in line:
            start, _, end = line.split(maxsplit=1)[0].partition("-")
            count, size = count + 1, size + int(end, 16) - int(start, 16)
    return count, size


def held() -> dict[str, int]:
    """Return what this process holds: exact, and the same again when nothing leaked."""
    gc.collect()
    count = threading.active_count
    wait_until(lambda: len(os.listdir("/proc/self/task")) <= count())  # noqa: PTH208
    _libc.malloc_trim(0)
    told = _libc.mallinfo2()
    mappings, shared = shared_memory()
    statm = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208
        "shared mappings": mappings,
        "children": len(children()),
        "heap": int(told.uordblks + told.hblkhd),
        "objects": sys.getallocatedblocks(),
        "shared memory": shared,
        "resident": int(statm[1]) * os.sysconf("SC_PAGE_SIZE"),
    }


def settle() -> None:
    """Lets Python's table of interned strings grow now: it does so by half a megabyte at once,
    at some moment or other, and that would be taken for a leak."""
    for _ in range(2):
        names = [sys.intern(f"settle-{i}") for i in range(1 << 16)]
        del names


class Worker:
    """Uses surfaces under faults until there were enough failures."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._oracles: dict[str, tuple[Oracle, list[Path]]] = {}
        for name in sorted({database for _, database, _ in SURFACES.values()}):
            oracle = write(folder, name)
            self._oracles[name] = oracle, prepare(oracle)
        self._interposer = Interposer(folder)
        self._strays: list[str] = []
        sys.unraisablehook = lambda told: self._stray(told.exc_value, told.object)
        threading.excepthook = lambda told: self._stray(told.exc_value, told.thread)

    def _stray(self, error: BaseException | None, where: object) -> None:
        self._strays.append(f"{type(error).__name__}: {error}, in {where!r}")

    def _fault(self, kind: Kind, oracle: Oracle, rng: random.Random) -> Fault:
        if kind.rules:
            return Scripted(kind, self._interposer, rng)
        if kind.name.startswith("file cut"):
            return Cut(rng, oracle.file)
        return FewDescriptors(rng) if "descriptors" in kind.name else LittleSpace(rng)

    def cell(self, surface: str, kind: Kind, count: int, turn: int) -> dict[str, Any]:
        """``count`` failures, or as many as there are; what became of them."""
        use, database, cold = SURFACES[surface]
        oracle, files = self._oracles[database]
        rng = random.Random(f"{self._seed}/{surface}/{kind.name}/{turn}")
        self._interposer.watch(*files)
        fault = self._fault(kind, oracle, rng)
        cell = Cell(kind, fault, [self._folder])
        cacheless = cold and all(rule.call != Call.CACHESTAT for rule in kind.rules)
        if cacheless:
            self._interposer.arm(Call.CACHESTAT, Act.NOTHING, every=1)
        before = len(self._strays)
        uses = struck_uses = failures = idle = 0
        try:
            for _ in range(MEASURED_USES):  # each draws an engine, which may lack these calls
                fault.disarm()
                use(Cell(kind, _Never(), [self._folder]), oracle, rng)
                fault.measure()
                if fault.span:
                    break
            while failures < count and idle < IDLE_USES and fault.span:
                faulthandler.dump_traceback_later(USE_SECONDS_MAX, exit=True)
                struck = cell.injected
                cell.arm()
                try:
                    use(cell, oracle, rng)
                except BrokenError:
                    pass
                finally:
                    cell.disarm()
                faulthandler.cancel_dump_traceback_later()
                uses += 1
                now = cell.injected
                # An unnoticed fault strikes at every call: a use is one failure that was borne.
                struck_uses += now != struck
                failures = struck_uses if kind.borne else cell.raised
                idle = idle + 1 if now == struck else 0
                if now != struck and not kind.borne and cell.raised == 0 and uses >= 8 * count:
                    break  # it strikes, and is borne all the same
        except Exception as error:
            cell.breach(f"without a fault: {type(error).__name__}: {error}")
        finally:
            fault.disarm()
            self._interposer.arm(Call.CACHESTAT, Act.NONE)
        for text in self._strays[before:]:
            cell.breach(f"raised where nobody sees it: {text}")
        return {
            "surface": surface,
            "kind": kind.name,
            "uses": uses,
            "failures": failures,
            "injected": cell.injected,
            "raised": cell.raised,
            "recovered": cell.recovered,
            "compared": cell.compared,
            "wrong": cell.wrong,
            "breaches": cell.breaches,
        }


class _Never:
    """No faults."""

    span = 0

    def measure(self) -> None:
        pass

    def arm(self, share: int = 1) -> None:
        pass

    def disarm(self) -> None:
        pass

    def injected(self, raised: int) -> int:
        return raised


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True, help="failures per cell and round")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--surface", action="append", choices=list(SURFACES))
    parser.add_argument("--kind", action="append", choices=[kind.name for kind in KINDS])
    asked = parser.parse_args()
    os.environ["XDG_CACHE_HOME"] = str(asked.folder / "cache")
    settle()
    worker = Worker(asked.folder, asked.seed)
    for turn in range(asked.rounds):
        for surface in asked.surface or SURFACES:
            for kind in KINDS:
                if kind.only and surface not in kind.only:
                    continue
                if asked.kind and kind.name not in asked.kind:
                    continue
                told = worker.cell(surface, kind, asked.count, turn)
                print(json.dumps({"cell": told}), flush=True)
        print(json.dumps({"held": held()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
