"""A user without a compiler and without MPI can install lmdbio.

Goal: what `make wheel` builds is complete, links the C library alone, and works where it is
installed.
Method: build the release of this tree, then install it into a fresh environment of this Python.
`make test-wheel` does so on every Python of the machine.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT

MISSING = [name for name in ("auditwheel", "abi3audit") if importlib.util.find_spec(name) is None]
MISSING += ["cc"] * (shutil.which("cc") is None)
#: pip's words where it cannot ask PyPI.
UNREACHABLE = ("Failed to establish a new connection", "Temporary failure in name resolution")

#: A compiler that translates no text a second time: that of the source distribution is the tree's,
#: and the flags are those of one Python.
COMPILER = """#!/bin/sh
for word; do
    case $last in -o) out=$word ;; esac
    case $word in -c) compiles=1 ;; esac
    last=$word
done
[ "$compiles" ] || exec cc "$@"
cc "$@" -E -P || exit
text=$(sha256sum < "$out")
made=$(dirname "$0")/${text%% *}.o
[ -e "$made" ] && exec cp "$made" "$out"
cc "$@" && cp "$out" "$made"
"""


def run(script: str, *arguments: str | Path, **more: str) -> str:
    """Run one of packaging/'s programs; skips the test where PyPI cannot be reached."""
    done = subprocess.run(
        [sys.executable, ROOT / "packaging" / script, *arguments],
        env=os.environ | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0 and any(words in done.stdout for words in UNREACHABLE):
        pytest.skip("PyPI cannot be reached")
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.more
@pytest.mark.skipif(bool(MISSING), reason=f"there is no {', no '.join(MISSING)}")
def test_the_wheel_works_without_compiler_and_mpi(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER, encoding="ascii")
    compiler.chmod(0o755)
    told = run("build_wheel.py", "--out", tmp_path, CC=str(compiler))
    (pure,) = tmp_path.glob("*-py3-none-any.whl")
    wheels = {wheel.stem.rpartition("linux_")[2]: wheel for wheel in tmp_path.glob("*-abi3-*.whl")}
    assert all(wheel.name in told for wheel in wheels.values())
    if importlib.util.find_spec("ziglang") is None:
        assert "ziglang is not installed" in told
        (wheel,) = wheels.values()
    else:
        assert set(wheels) == {"2_17_x86_64", "2_17_aarch64"}
        wheel = wheels[f"2_17_{platform.machine()}"]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"lmdbio"}
    assert {"lmdbio/py.typed", "lmdbio/__init__.pyi"} <= set(names)
    endings = {Path(name).suffix for name in names if "." in name and ".dist-info/" not in name}
    assert endings == {".py", ".pyi", ".so", ".typed"}
    version = ".".join(map(str, sys.version_info[:3]))
    tried = run("try_wheel.py", "--this-python", wheel, pure)
    compiled, portable = re.findall(
        rf"lmdbio {wheel.name.split('-')[1]} on Python {version} .*", tried
    )
    assert "which reads" in portable and "which reads" not in compiled
