"""Builds what a release consists of, and checks it: the source distribution and its wheels.

    python packaging/build_wheel.py --out dist

One abi3 wheel for each of `MACHINES` serves CPython 3.10 and later and the glibc of the oldest
clusters: zig's C compiler (PyPI's ziglang) brings the C library of each machine in each version.
Where it is not installed, this machine's compiler builds for this machine and its glibc. Where a
free-threaded CPython is installed, it gets a wheel of its own, since it has no stable ABI.

The pure wheel (py3-none-any) lacks the C core, and reads through py-lmdb: pip takes it where no
other fits, as on macOS and Windows. It has the same modules as the others.

Each wheel is built from the source distribution, as pip builds it for a user, and the tree must
give the same wheel. auditwheel gives it the manylinux tag of the oldest glibc that its symbols
allow; abi3audit holds its symbols against the stable ABI; it must link nothing but the C library.

Needs the extra `wheel`, a C compiler, and PyPI (each build has an environment of its own). The
headers of Debian's own Python are of one machine: another Python (pyenv's) builds for others.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection
from pythons import Interpreter, installed

ROOT = Path(__file__).resolve().parent.parent
#: The machines of clusters, and their oldest glibc: RHEL 7's, as of most wheels on PyPI.
MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 17)
#: The libraries that the extension may need: glibc (its loader and threads included) or musl.
C_LIBRARY = ("libc.so.", "libpthread.so.", "ld-linux", "libc.musl-", "ld-musl-")
#: Of the stripped extension: clang, which inlines more than gcc, makes 0.79 MiB of it.
EXTENSION_BYTES_MAX = 900_000
#: The sections that a linker keeps where it does not strip.
UNSTRIPPED = (".symtab", ".debug_")
#: The folders of a source distribution beside lmdbio/, to build, test and document itself.
SOURCE_FOLDERS = ("benchmarks", "csrc", "docs", "examples", "packaging", "provenance", "tests")
#: The files that setuptools adds to a source distribution.
GENERATED = ("PKG-INFO", "setup.cfg", "lmdbio.egg-info/")
#: The one tracked file that a source distribution does not need: git's own.
LEFT_OUT = {".gitignore"}


@dataclass(frozen=True, slots=True)
class Extension:
    """The face of a shared object: needed libraries, dynamic symbols, newest glibc, its size."""

    libraries: tuple[str, ...]
    symbols: tuple[str, ...]
    glibc: tuple[int, ...]
    size_bytes: int
    is_stripped: bool


@dataclass(frozen=True, slots=True)
class Target:
    """A machine that a wheel is for.

    Attributes:
        machine: name of the machine, as `uname -m` says it; "any": every one, without the core.
        compiler: command of a C compiler with the libraries of `GLIBC`; "": this machine's own.
    """

    machine: str
    compiler: str = ""

    def environment(self) -> dict[str, str]:
        """Return the variables under which setuptools builds for it, stripped."""
        if self == PURE:
            return {"LMDBIO_CORE": "0"}
        named = {"CC": self.compiler, "LDSHARED": f"{self.compiler} -shared"}
        return {"LMDBIO_LDFLAGS": "-s", **(named if self.compiler else {})}


PURE = Target("any")


def targets() -> list[Target]:
    """Return the machines that wheels can be built for here."""
    zig = importlib.util.find_spec("ziglang")
    if zig is None or zig.origin is None:
        return [Target(platform.machine())]
    command = f"{Path(zig.origin).with_name('zig')} cc -target"
    version = ".".join(map(str, GLIBC))
    return [Target(each, f"{command} {each}-linux-gnu.{version}") for each in MACHINES]


class CheckError(Exception):
    """A part of the release failed to build, or failed a check."""


def run(*command: str | Path, **environment: str) -> str:
    """Run a command in the repository and return what it printed; its errors go to the terminal.

    Raises:
        CheckError: it failed.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CheckError(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def build(
    source: Path, out: Path, scratch: Path, target: Target | None, python: Path | None = None
) -> Path:
    """Build a wheel for a target, or None: the source distribution, of a source folder.

    setuptools packs whatever lies in build/, modules of an older tree included; so each build gets
    an empty one.
    """
    scratch.mkdir(parents=True)
    settings = scratch / "settings.cfg"
    text = f"[build]\nbuild_base = {scratch / 'build'}\n"
    if target not in (None, PURE):
        text += f"[bdist_wheel]\nplat_name = linux_{target.machine}\n"
    settings.write_text(text, encoding="utf-8")
    out.mkdir(parents=True, exist_ok=True)
    # build itself runs here; another Python builds by its own pip, which isolates as well.
    if python is None:
        kind = "--sdist" if target is None else "--wheel"
        command = [sys.executable, "-m", "build", kind, "--outdir", str(out), str(source)]
    else:
        command = [str(python), "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out)]
        command += [str(source)]
    before = set(out.iterdir())
    environment = {} if target is None else target.environment()
    run(
        *command,
        DIST_EXTRA_CONFIG=str(settings),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        **environment,
    )
    (made,) = set(out.iterdir()) - before
    return made


def check_source(sdist: Path) -> None:
    """Hold a source distribution against what git tracks, or against the folders it must have.

    Raises:
        CheckError: it lacks a file, or has one that the repository does not know.
    """
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if "/" in name}
        files = {
            member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()
        }
    files = {name for name in files if not name.startswith(GENERATED)}
    missing = [folder for folder in ("lmdbio", *SOURCE_FOLDERS) if folder not in names]
    if missing:
        raise CheckError(f"{sdist.name} lacks {', '.join(missing)}")
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return
    tracked = {name for name in run("git", "ls-files").splitlines() if (ROOT / name).is_file()}
    new = set(run("git", "ls-files", "--others", "--exclude-standard").splitlines())
    lacking, foreign = tracked - LEFT_OUT - files, files - tracked - new
    if lacking or foreign:
        raise CheckError(
            f"{sdist.name} lacks {sorted(lacking)}, and has {sorted(foreign)}, which git ignores"
        )


def read_extension(wheel: Path) -> Extension:
    """Return what the one shared object of a wheel needs and shows.

    Raises:
        CheckError: there is not exactly one.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".so")]
        if len(names) != 1:
            raise CheckError(f"{wheel.name} has {len(names)} shared objects, not one")
        data = archive.read(names[0])
    elf = ELFFile(io.BytesIO(data))
    libraries, symbols = [], []
    versions: list[tuple[int, ...]] = [(0,)]
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            tags = section.iter_tags("DT_NEEDED")
            libraries += [tag.needed for tag in tags]  # type: ignore[attr-defined]
        elif isinstance(section, GNUVerNeedSection):
            named = [each.name for _, needed in section.iter_versions() for each in needed]
            parts = [name.removeprefix("GLIBC_") for name in named if name.startswith("GLIBC_")]
            versions += [tuple(map(int, part.split("."))) for part in parts]
        elif isinstance(section, SymbolTableSection) and section.name == ".dynsym":
            symbols += [
                f"{'undefined' if symbol['st_shndx'] == 'SHN_UNDEF' else 'defined'} {symbol.name}"
                for symbol in section.iter_symbols()
            ]
    is_stripped = not any(each.name.startswith(UNSTRIPPED) for each in elf.iter_sections())
    found = tuple(sorted(libraries)), tuple(sorted(symbols)), max(versions)
    return Extension(*found, len(data), is_stripped)


def names_in(wheel: Path) -> list[str]:
    """Return the names of a wheel's files, sorted."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def check_same(one: Path, other: Path) -> None:
    """Hold two wheels of one source against each other: their files and the extension's symbols.

    Raises:
        CheckError: they differ.
    """
    differing = set(names_in(one)) ^ set(names_in(other))
    if differing:
        raise CheckError(f"only one of tree and source distribution packs {sorted(differing)}")
    if read_extension(one).symbols != read_extension(other).symbols:
        raise CheckError("tree and source distribution build extensions of different symbols")


def check_pure(pure: Path, compiled: Path) -> str:
    """Return a line about the wheel without the core, held against one with it.

    Raises:
        CheckError: it is for one system, or the two differ in more than the extension.
    """
    if not pure.name.endswith("-py3-none-any.whl"):
        raise CheckError(f"{pure.name} is not for every system")
    differing = {
        name for name in set(names_in(pure)) ^ set(names_in(compiled)) if not name.endswith(".so")
    }
    if differing or any(name.endswith(".so") for name in names_in(pure)):
        raise CheckError(f"{pure.name} has a shared object, or other files: {sorted(differing)}")
    digest = hashlib.sha256(pure.read_bytes()).hexdigest()
    return f"{pure.name}: {pure.stat().st_size:,} bytes, reads through py-lmdb; sha256 {digest}"


def repair(wheel: Path, out: Path) -> Path:
    """Give a wheel the manylinux tag of the oldest glibc that can load it."""
    before = set(out.iterdir())
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = (sys.executable, "-m", "auditwheel", "repair", "--only-plat")
    run(*command, "--wheel-dir", out, wheel, PATH=tools)
    (made,) = set(out.iterdir()) - before
    return made


def check_wheel(wheel: Path, target: Target) -> str:
    """Return a line about a repaired wheel that passes every check.

    Raises:
        CheckError: it needs more than the C library, or a newer one than its name says, was not
            stripped, has no manylinux or musllinux tag, or uses what is not in the stable ABI
            that its name claims.
    """
    extension = read_extension(wheel)
    foreign = [name for name in extension.libraries if not name.startswith(C_LIBRARY)]
    if foreign:
        raise CheckError(f"{wheel.name} is linked against {', '.join(foreign)}")
    if not extension.is_stripped:
        raise CheckError(f"{wheel.name}: the extension is not stripped")
    if extension.size_bytes > EXTENSION_BYTES_MAX:
        raise CheckError(f"{wheel.name}: the extension has {extension.size_bytes:,} bytes")
    tag = re.search(r"[-.](many|musl)linux_(\d+)_(\d+)_\w+\.whl$", wheel.name)
    if tag is None:
        raise CheckError(f"{wheel.name} has no manylinux tag")
    newest = ".".join(map(str, extension.glibc))
    if extension.glibc > (GLIBC if target.compiler else (int(tag[2]), int(tag[3]))):
        raise CheckError(f"{wheel.name} needs symbols of glibc {newest}")
    if "-abi3-" in wheel.name:
        run(sys.executable, "-m", "abi3audit", "--strict", wheel)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return (
        f"{wheel.name}: {wheel.stat().st_size:,} bytes, its extension "
        f"{extension.size_bytes:,}; linked against {', '.join(extension.libraries)}, symbols of "
        f"glibc {newest} at most; "
        f"sha256 {digest}"
    )


def release(out: Path, scratch: Path, free_threaded: list[Interpreter]) -> None:
    """Build and check all, then move it to its place: a failure leaves nothing behind there."""
    made = scratch / "made"
    sdist = build(ROOT, made, scratch / "sdist", None)
    check_source(sdist)
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / "unpacked", filter="data")
    (source,) = (scratch / "unpacked").iterdir()

    lines = []
    for target in targets():
        name = target.machine
        wheel = build(source, scratch / f"plain-{name}", scratch / name, target)
        lines.append(check_wheel(repair(wheel, made), target))
        if name != platform.machine():
            continue
        check_same(wheel, build(ROOT, scratch / "tree", scratch / "other", target))
        lines.append(check_pure(build(source, made, scratch / "pure", PURE), wheel))
        for each in free_threaded:
            threaded = build(
                source, scratch / f"plain-{each}", scratch / f"{each}", target, each.path
            )
            lines.append(check_wheel(repair(threaded, made), target))
    if not target.compiler:
        lines.append("ziglang is not installed here: no wheel of another machine or older glibc")
    if not free_threaded:
        lines.append("no free-threaded CPython is installed here: its wheel was not built")

    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("lmdbio-*.whl"), *out.glob("lmdbio-*.tar.gz")]:
        old.unlink()
    for path in made.iterdir():
        shutil.move(path, out / path.name)
    print(f"{sdist.name}: {(out / sdist.name).stat().st_size:,} bytes", *lines, sep="\n")


def main() -> None:
    """Parse the arguments and build the release."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder (dist)")
    out = parser.parse_args().out.resolve()
    free_threaded = [each for each in installed() if each.free_threaded]
    # The same commit gives the same bytes: times in archives are the commit's.
    with contextlib.suppress(CheckError, FileNotFoundError):
        os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "log", "-1", "--format=%ct").strip())
    with tempfile.TemporaryDirectory(prefix="lmdbio-wheel-") as scratch:
        try:
            release(out, Path(scratch), free_threaded)
        except CheckError as error:
            raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
