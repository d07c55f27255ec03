"""Builds interpose.c, and drives it in a process that was started with it preloaded."""

from __future__ import annotations

import ctypes
import os
import subprocess
from enum import IntEnum
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Environment variable: where the library lies that this process was started with.
PRELOADED = "FAULTS_INTERPOSER"


class Call(IntEnum):
    """The calls that can be made to fail (``enum call`` of interpose.c)."""

    READ = 0
    READ_DIRECT = 1
    PEEK = 2
    OPEN = 3
    OPEN_DIRECT = 4
    MAP = 5
    ADVISE = 6
    STATVFS = 7
    STAT = 8
    THREAD = 9
    CACHESTAT = 10
    URING = 11
    MEMORY = 12
    WRITE = 13
    SYNC = 14
    POPULATE = 15
    URING_ENTER = 16


class Act(IntEnum):
    """How it fails (``enum act``)."""

    NONE = 0
    FAIL = 1
    SHORT = 2
    END = 3
    DELAY = 4
    NOTHING = 5
    CUT = 6


def build(folder: Path, compiler: str = "cc") -> Path:
    """Compiles the library; ``subprocess.CalledProcessError`` where that cannot be done."""
    library = folder / "interpose.so"
    command = [
        *compiler.split(),
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O2",
        "-fno-builtin",
        "-fvisibility=hidden",
        "-fPIC",
        "-shared",
        "-Wall",
        "-Wextra",
        "-Werror",
        str(HERE / "interpose.c"),
        "-o",
        str(library),
        "-ldl",
        "-pthread",
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


def environment(library: Path) -> dict[str, str]:
    """For a process that shall have the library preloaded."""
    before = os.environ.get("LD_PRELOAD", "")
    preload = f"{library}:{before}" if before else str(library)
    return {**os.environ, "LD_PRELOAD": preload, PRELOADED: str(library)}


def lmdb_library() -> str:
    """py-lmdb's extension."""
    import lmdb.cpython

    return str(lmdb.cpython.__file__)


class Interposer:
    """The library that this process was started with.

    Args:
        folder: below it, opening files can fail.
    """

    def __init__(self, folder: Path) -> None:
        self._lib = lib = ctypes.CDLL(os.environ[PRELOADED])
        lib.faults_arm.argtypes = [ctypes.c_int] * 3 + [ctypes.c_uint64] * 3
        lib.faults_arm.restype = None
        lib.faults_seen.restype = lib.faults_done.restype = ctypes.c_uint64
        told = lib.faults_folder(os.fsencode(folder)), lib.faults_library(b"_lmdbio.")
        # py-lmdb keeps the reader slots; how it takes faults is not what is tested here.
        if any(told) or lib.faults_spare(os.fsencode(Path(lmdb_library()).name)):
            raise RuntimeError(f"cannot watch {folder}, the extension and py-lmdb")

    def watch(self, *files: Path) -> None:
        """Reads of these files, and of no others, can fail from now on."""
        self._lib.faults_forget_files()
        for path in files:
            if self._lib.faults_file(os.fsencode(path)):
                raise RuntimeError(f"cannot watch {path}")

    def arm(
        self, call: Call, act: Act, error: int = 0, first: int = 0, every: int = 0, limit: int = 0
    ) -> None:
        """Makes a rule (interpose.c). It counts calls from now on."""
        self._lib.faults_arm(call, act, error, first, every, limit)

    def make_whole(self) -> None:
        """Ends what ``Act.CUT`` did to a file."""
        self._lib.faults_whole()

    def seen(self, call: Call) -> int:
        """Calls since the rule was made."""
        return int(self._lib.faults_seen(call))

    def done(self, call: Call) -> int:
        """Those of them that failed."""
        return int(self._lib.faults_done(call))
