"""Builds what a release consists of, and checks it: the source distribution and its wheels.

    python packaging/build_wheel.py --out dist

One abi3 wheel serves CPython 3.10 and later; where a free-threaded CPython is installed, it gets a
wheel of its own, since it has no stable ABI. Each wheel is built from the source distribution, as
pip builds it for a user, and for the abi3 one the tree must give the same wheel. auditwheel strips
it and gives it the manylinux tag of the oldest glibc that its symbols allow; abi3audit holds its
symbols against the stable ABI; it must link nothing but the C library.

Needs the extra `wheel`, a C compiler, strip, and PyPI (each build has an environment of its own).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
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
from elftools.elf.sections import SymbolTableSection
from pythons import Interpreter, installed

ROOT = Path(__file__).resolve().parent.parent
#: The libraries that the extension may need: glibc (its loader and threads included) or musl.
C_LIBRARY = ("libc.so.", "libpthread.so.", "ld-linux", "libc.musl-", "ld-musl-")
#: Of the stripped extension. It has 0.33 MiB; twice that would be debugging information left in.
EXTENSION_BYTES_MAX = 700_000
#: The folders of a source distribution beside lmdbio/, to build, test and document itself.
SOURCE_FOLDERS = ("benchmarks", "csrc", "docs", "examples", "packaging", "provenance", "tests")
#: The files that setuptools adds to a source distribution.
GENERATED = ("PKG-INFO", "setup.cfg", "lmdbio.egg-info/")
#: The one tracked file that a source distribution does not need: git's own.
LEFT_OUT = {".gitignore"}


@dataclass(frozen=True, slots=True)
class Extension:
    """The face of a shared object: needed libraries, dynamic symbols and its size."""

    libraries: tuple[str, ...]
    symbols: tuple[str, ...]
    size_bytes: int


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


def build(kind: str, source: Path, out: Path, scratch: Path, python: Path | None = None) -> Path:
    """Build an "sdist" or a "wheel" of a source folder and return the file.

    setuptools packs whatever lies in build/, modules of an older tree included; so each build gets
    an empty one.
    """
    scratch.mkdir(parents=True)
    settings = scratch / "settings.cfg"
    settings.write_text(f"[build]\nbuild_base = {scratch / 'build'}\n", encoding="utf-8")
    out.mkdir(parents=True, exist_ok=True)
    # build itself runs here; another Python builds by its own pip, which isolates as well.
    if python is None:
        command = [sys.executable, "-m", "build", f"--{kind}", "--outdir", str(out), str(source)]
    else:
        command = [str(python), "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out)]
        command += [str(source)]
    before = set(out.iterdir())
    run(*command, DIST_EXTRA_CONFIG=str(settings), PIP_DISABLE_PIP_VERSION_CHECK="1")
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
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            tags = section.iter_tags("DT_NEEDED")
            libraries += [tag.needed for tag in tags]  # type: ignore[attr-defined]
        elif isinstance(section, SymbolTableSection) and section.name == ".dynsym":
            symbols += [
                f"{'undefined' if symbol['st_shndx'] == 'SHN_UNDEF' else 'defined'} {symbol.name}"
                for symbol in section.iter_symbols()
            ]
    return Extension(tuple(sorted(libraries)), tuple(sorted(symbols)), len(data))


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


def repair(wheel: Path, out: Path) -> Path:
    """Strip a wheel, and give it the manylinux tag of the oldest glibc that can load it."""
    before = set(out.iterdir())
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = (sys.executable, "-m", "auditwheel", "repair", "--strip", "--only-plat")
    run(*command, "--wheel-dir", out, wheel, PATH=tools)
    (made,) = set(out.iterdir()) - before
    return made


def check_wheel(wheel: Path) -> str:
    """Return a line about a repaired wheel that passes every check.

    Raises:
        CheckError: it needs more than the C library, was not stripped, has no manylinux or
            musllinux tag, or uses what is not in the stable ABI that its name claims.
    """
    extension = read_extension(wheel)
    foreign = [name for name in extension.libraries if not name.startswith(C_LIBRARY)]
    if foreign:
        raise CheckError(f"{wheel.name} is linked against {', '.join(foreign)}")
    if extension.size_bytes > EXTENSION_BYTES_MAX:
        raise CheckError(f"the extension has {extension.size_bytes:,} bytes: was it stripped?")
    if not re.search(r"-(many|musl)linux_\d+_\d+_\w+\.whl$", wheel.name):
        raise CheckError(f"{wheel.name} has no manylinux tag")
    if "-abi3-" in wheel.name:
        run(sys.executable, "-m", "abi3audit", "--strict", wheel)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return (
        f"{wheel.name}: {wheel.stat().st_size:,} bytes, its extension "
        f"{extension.size_bytes:,}; linked against {', '.join(extension.libraries)}; "
        f"sha256 {digest}"
    )


def release(out: Path, scratch: Path, free_threaded: list[Interpreter]) -> None:
    """Build and check all, then move it to its place: a failure leaves nothing behind there."""
    made = scratch / "made"
    sdist = build("sdist", ROOT, made, scratch / "sdist")
    check_source(sdist)
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / "unpacked", filter="data")
    (source,) = (scratch / "unpacked").iterdir()

    plain = build("wheel", source, scratch / "plain", scratch / "one")
    check_same(plain, build("wheel", ROOT, scratch / "tree", scratch / "other"))
    lines = [check_wheel(repair(plain, made))]
    for each in free_threaded:
        threaded = scratch / f"plain-{each}"
        wheel = build("wheel", source, threaded, scratch / f"three-{each}", each.path)
        lines.append(check_wheel(repair(wheel, made)))
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
