"""The modelled parallel file system, mounted for as long as a ``with`` lasts.

    with pfs.mounted(folder, mounts=2) as store:
        ...  # store.mounts[0] and [1] show the folder: two nodes, each with a page cache
        store.counters()

The model stands in model.h, the constants in model.conf. The program that serves the
mounts ends and unmounts when this process does, however that happens.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.command import Failed, Missing
from benchmarks.page_cache import held_in_memory
from lmdbio.system import procfs

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "pfs"
CONSTANTS = HERE / "model.conf"
#: The least and the greatest of each constant, in the order in which the program takes them;
#: whole numbers alone where these are.
RANGES: Mapping[str, tuple[float, float]] = {
    "servers": (1, 32), "stripe_kib": (4, 1 << 20), "server_mb_s": (0.01, 1e6),
    "request_ms": (0.0, 1e4), "out_of_order_ms": (0.0, 1e4), "client_mb_s": (0.01, 1e6),
    "readahead_kib": (0, 1 << 20), "in_flight": (1, 256), "page_cache": (0, 1),
}  # fmt: skip
#: The extended attribute of a mount point that holds the counters.
COUNTERS = "user.pfs"
SECONDS_TO_END = 10.0


# --- constants ----------------------------------------------------------------------------


def constants(overrides: Iterable[str] = (), path: Path = CONSTANTS) -> dict[str, float]:
    """The constants of model.conf, each override NAME=VALUE or NAME=xFACTOR applied.

    Raises:
        ValueError: an override names no constant, or gives no number or one out of range.
    """
    lines = (line.partition("#")[0] for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.partition("=") for line in lines if line.strip())
    found = {name.strip(): float(value) for name, _, value in pairs}
    for text in overrides:
        name, _, value = text.partition("=")
        if name not in found:
            raise ValueError(f"{text}: there are {', '.join(found)}")
        try:
            factor = found[name] if value.startswith("x") else 1.0
            found[name] = float(value.removeprefix("x")) * factor
        except ValueError:
            raise ValueError(f"{text}: give {name}=NUMBER or {name}=xFACTOR") from None
    for name, (least, most) in RANGES.items():
        whole = isinstance(least, int)
        if not least <= found[name] <= most or (whole and found[name] % 1):
            kind = "a whole number" if whole else "a number"
            raise ValueError(f"{name}={found[name]:g}: it is {kind} from {least:g} to {most:g}")
    return found


# --- building -----------------------------------------------------------------------------


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def _fuse_flags(which: str) -> list[str]:
    """Return what pkg-config says of libfuse3, or where distributions put it."""
    if shutil.which("pkg-config"):
        done = subprocess.run(["pkg-config", which, "fuse3"], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split()
    return {"--cflags": ["-I/usr/include/fuse3"], "--libs": ["-lfuse3"]}[which]


def missing() -> str | None:
    """Say what this machine lacks to build and mount the store, None if nothing."""
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse (modprobe fuse; in a container, --device /dev/fuse)"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse may not be opened (run as root)"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "there is no fusermount3 (run as root; Debian: apt-get install fuse3)"
    if shutil.which(_compiler()[0]) is None:
        return f"there is no C compiler {_compiler()[0]} (Debian: apt-get install gcc libc6-dev)"
    probe = "#define FUSE_USE_VERSION 312\n#include <fuse_lowlevel.h>\n"
    command = [*_compiler(), *_fuse_flags("--cflags"), "-D_GNU_SOURCE", "-E", "-x", "c", "-"]
    if subprocess.run(command, input=probe, capture_output=True, text=True).returncode != 0:
        return "there are no headers of libfuse 3 (Debian: apt-get install libfuse3-dev fuse3)"
    return None


def build() -> Path:
    """The program, compiled unless these very sources were, with these very flags.

    ``CC`` and ``CFLAGS`` are taken from the environment.

    Raises:
        Missing: see ``missing``.
        Failed: it does not compile.
    """
    lacking = missing()
    if lacking:
        raise Missing(lacking)
    flags = ["-std=c11", "-O2", "-g", "-D_GNU_SOURCE", "-pthread"]
    flags += shlex.split(os.environ.get("CFLAGS", ""))
    sources = sorted(HERE.glob("*.c"))
    identity = hashlib.sha256(repr((_compiler(), flags)).encode())
    for source in sorted(HERE.glob("*.[ch]")):
        identity.update(source.read_bytes())
    program = BUILD / f"pfs-{identity.hexdigest()[:16]}"
    if program.exists():
        return program
    BUILD.mkdir(parents=True, exist_ok=True)
    # Under its name it is always whole, also when two build at once.
    part = program.with_suffix(f".{os.getpid()}")
    command = [*_compiler(), *flags, *_fuse_flags("--cflags"), *map(str, sources)]
    command += ["-o", str(part), *_fuse_flags("--libs"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        part.unlink(missing_ok=True)
        raise Failed(f"it does not compile:\n{done.stderr}")
    part.replace(program)
    return program


# --- the folder behind it -----------------------------------------------------------------


def contents(folder: Path) -> list[Path]:
    """Return every file below a folder that is not empty, links followed."""
    found = (Path(top, name) for top, _, names in os.walk(folder, followlinks=True)
             for name in names)  # fmt: skip
    return [path for path in found if path.is_file() and path.stat().st_size > 0]


def too_large(folder: Path) -> str | None:
    """Say why the folder cannot be held in memory, None if it can.

    Half of the free memory is the limit, since each mount has a page cache as well.
    """
    size = sum(path.stat().st_size for path in contents(folder))
    free = 1024 * (procfs.statistic("/proc/meminfo", "MemAvailable:") or 0)
    if size <= free // 2:
        return None
    return (
        f"{folder} has {size / 1e6:.0f} MB, more than half of the {free / 1e6:.0f} MB of free "
        "memory: it is read from its own storage, which may show"
    )


# --- mounting -----------------------------------------------------------------------------


@dataclass
class Store:
    """A mounted store, which shows ``folder``."""

    folder: Path
    constants: Mapping[str, float]
    mounts: list[Path]
    process: subprocess.Popen[str]
    #: The counters at its end; empty before.
    last: dict[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The store in words."""
        values = ", ".join(f"{name} {value:g}" for name, value in self.constants.items())
        return f"modelled parallel file system ({values})"

    def counters(self) -> dict[str, Any]:
        """All counters at this moment. Passes by the model."""
        return self.last or counters(self.mounts[0])


def counters(mount: Path | str) -> dict[str, Any]:
    """Return everything that the store has counted up to now, by one of its mounts."""
    found: dict[str, Any] = json.loads(os.getxattr(mount, COUNTERS))
    return found


@contextlib.contextmanager
def mounted(
    folder: Path, *, mounts: int = 1, constants: Mapping[str, float], program: Path | None = None
) -> Iterator[Store]:
    """Shows ``folder`` at so many mount points, all before the same modelled servers.

    Args:
        folder: must not change meanwhile. It is held in memory if that has room for it.
        mounts: emulated nodes; each has a page cache, cold at first, and a link.
        constants: see ``constants``.
        program: what to run instead of ``build()``.

    Raises:
        Missing, Failed: it cannot be mounted.
    """
    program = program or build()
    warning = too_large(folder)
    if warning:
        print(f"pfs: {warning}", file=sys.stderr)
    parent = Path(tempfile.mkdtemp(prefix="pfs-"))
    places = [parent / f"mount{i}" for i in range(mounts)]
    held = contextlib.nullcontext() if warning else held_in_memory(contents(folder))
    with held, contextlib.ExitStack() as stack:
        # Never recursively: if something is still mounted, it is not ours to delete.
        stack.callback(_remove, [*places, parent])
        for place in places:
            place.mkdir()
        store = Store(folder, dict(constants), places, _start(program, folder, places, constants))
        try:
            for place in places:
                _set_readahead(place, int(constants["readahead_kib"]))
            yield store
        finally:
            store.last = _end(store.process, places)


def _remove(folders: list[Path]) -> None:
    """Remove folders that are empty, up to the first one that is not."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _start(
    program: Path, folder: Path, places: list[Path], constants: Mapping[str, float]
) -> subprocess.Popen[str]:
    settings = [f"{constants[name]:.15g}" for name in RANGES]
    process = subprocess.Popen(
        [str(program), *settings, str(folder.resolve()), *map(str, places)],
        stdin=subprocess.PIPE,  # its end is the program's, whatever happens to this process
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the command, which would lose its files
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() == "ready\n":
            return process
        _, words = process.communicate(timeout=SECONDS_TO_END)
    except BaseException:
        with contextlib.suppress(Failed):
            _end(process, places)
        raise
    said = words.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
    # The sandbox of some containers has /dev/fuse but forbids to mount.
    refused = "not permitted" in said[0] or "Permission denied" in said[0]
    raise (Missing if refused else Failed)(f"not mounted: {said[0]}")


def _set_readahead(place: Path, kib: int) -> None:
    """The kernel takes a mount's wish only below its own default; the mount's own setting it
    takes at any value."""
    device = place.stat().st_dev
    knob = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    try:
        if int(knob.read_text()) != kib:
            knob.write_text(f"{kib}\n")
    except OSError as error:
        print(f"pfs: readahead is not {kib} KiB: {error}", file=sys.stderr)


def _end(process: subprocess.Popen[str], places: list[Path]) -> dict[str, Any]:
    """Ends the program, and with it the mounts; returns its last counters."""
    try:
        out, words = process.communicate(timeout=SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        out, words = process.communicate()
    if words.strip():
        print(f"pfs: {words.strip()}", file=sys.stderr)
    if process.returncode == 0:
        last: dict[str, Any] = json.loads(out.splitlines()[-1])
        return last
    unmount = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
    for place in places:
        subprocess.run([*unmount, str(place)], capture_output=True)
    raise Failed(f"the store ended with status {process.returncode}")
