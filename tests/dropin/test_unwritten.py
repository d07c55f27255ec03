"""A program that opens for writing and only reads is told so once, and no other program is.

Goal: one warning for each path, at the end of the process however it ends and whichever process
opened it; none for a program that creates, writes or removes; the environment is py-lmdb's own,
and dies as that does. With ``LMDBIO_READONLY=1`` lmdbio reads for such a program, and refuses to
write with the reason. Method: programs in processes of their own, judged by what they print.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

import lmdb
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.dropin import unwritten
from lmdbio.machine import calibration, storage
from lmdbio.machine.calibration import Calibration, Sample
from tests.support import databases, long_run

TOLD = re.compile(r"^(\S+):(\d+): NotReadonlyWarning: (.+)$", re.MULTILINE)
READ = "env = lmdb.open(path); txn = env.begin(); txn.get(b'00000001'); txn.abort()"
WRITE = "t = env.begin(write=True); t.put(b'1', b'2'); t.commit()"


@pytest.fixture(params=long_run.one_of(*databases.FORMATS))
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    env = databases.open_writable(tmp_path / "set", request.param)
    databases.write(env, databases.records(50, lambda i: 100))
    env.close()
    return tmp_path / "set"


def run(
    path: Path, body: str, *, status: int = 0, stdout: str = "", **variables: str
) -> list[tuple[str, ...]]:
    """Run a program; return file, line and text of each of its warnings."""
    program = path.parent / "program.py"
    program.write_text(
        "import os, sys, warnings\nimport lmdbio as lmdb\nimport lmdb as theirs\n"
        f"path = {str(path)!r}\n{body}\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        cwd=path.parent,
        env={**os.environ, "XDG_CACHE_HOME": str(path.parent / "cache"), **variables},
    )
    assert done.returncode == status, done.stderr
    assert done.stdout == stdout
    return TOLD.findall(done.stderr)


@pytest.mark.parametrize(
    "body",
    [
        READ,
        f"{READ}; env.close()",
        f"for _ in range(3): {READ}; env.close()",
        f"with lmdb.open(path) as env, env.begin() as txn: txn.get(b'1')\n{READ}; env.close()",
        f"{READ}; txn = env.begin(write=True); txn.put(b'1', b'2'); txn.abort()",
        f"path = os.fsencode(path)\n{READ}",
        f"path = 'set'\n{READ}\nos.chdir('/')",
        f"path += '/data.mdb'\n{READ.replace('path', 'path, subdir=False')}",
        f"{READ}; theirs.open(path + '.other').close()",
        f"from threading import Thread\ndef read():\n    {READ}\nThread(target=read).start()",
    ],
)
def test_a_program_that_only_reads_is_told_once(path: Path, body: str) -> None:
    ((file, line, text),) = run(path, body)
    assert file == str(path.parent / "program.py")
    source = Path(file).read_text().splitlines()[int(line) - 1]
    assert "lmdb.open(" in source
    assert "set" in text
    assert "readonly=True lets lmdbio read" in text


@pytest.mark.parametrize(("end", "status"), [("raise OSError", 1), ("sys.exit(3)", 3)])
def test_however_it_ends(path: Path, end: str, status: int) -> None:
    assert len(run(path, f"{READ}\n{end}", status=status)) == 1


@pytest.mark.parametrize(
    "body",
    [
        f"{READ}; {WRITE}",
        f"{READ}; env.close(); env = lmdb.open(path); {WRITE}",
        "path += '.new'; env = lmdb.open(path)",
        f"env = lmdb.open(path + '.new'); {WRITE}",
        "env = lmdb.open(path, max_dbs=1); env.open_db(b'new')",
        f"{READ.replace('path', 'path, readonly=True')}",
        f"{READ.replace('path', 'path, provenance=True')}; env.close()",
        f"{READ}; env.close(); import shutil; shutil.rmtree(path)",
        f"{READ}; env.close(); import shutil; shutil.copytree(path, path + '2');"
        " shutil.rmtree(path); os.rename(path + '2', path)",
        f"{READ}; env.close(); env = theirs.open(path); {WRITE}",
        f"warnings.filterwarnings('ignore', category=lmdb.NotReadonlyWarning); {READ}",
        "env = theirs.open(path)",
        "try: lmdb.open(path + '/nowhere/at/all')\nexcept OSError: pass",
    ],
)
def test_no_other_program_hears_of_it(path: Path, body: str) -> None:
    assert run(path, body) == []


def test_several_paths_of_one_line_are_one_warning(path: Path) -> None:
    body = (
        "import shutil\nfor n in range(9): shutil.copytree(path, f'{path}{n}')\n"
        "for n in range(9):\n    lmdb.open(f'{path}{n}').close()\n"
    )
    ((_, _, text),) = run(path, body)
    assert text.startswith(f"{path}0, {path}1, {path}2 and 6 more: opened for writing")


FORKS = """
import multiprocessing
context = multiprocessing.get_context("fork")
def work(number):
    env = lmdb.open(path)
    with env.begin() as txn:
        assert len(txn.get(b"00000001")) == 100
def works():
    return [context.Process(target=work, args=(n,)) for n in range(4)]
"""


@pytest.mark.parametrize("before", ["", "lmdb.open(path).close()", "lmdb.open"])
def test_forked_workers_and_their_parent_tell_it_once(path: Path, before: str) -> None:
    """A DataLoader's workers open their data sets themselves, each epoch anew."""
    body = (
        f"{FORKS}\n{before}\nfor one in works() + works():\n"
        "    one.start(); one.join(); assert one.exitcode == 0\n"
    )
    assert len(run(path, body)) == 1


def test_a_child_that_ends_as_the_parent_does_tells_nothing_of_the_parents(path: Path) -> None:
    body = f"{READ}; env.close()\nchild = os.fork()\nif child: os.waitpid(child, 0)\n"
    assert len(run(path, body)) == 1


def test_the_environment_is_py_lmdbs_and_is_not_kept(path: Path) -> None:
    env = lmdbio.open(str(path))
    assert type(env) is lmdb.Environment
    dead = weakref.ref(env)
    env.close()
    del env
    gc.collect()
    assert dead() is None
    assert [one.path for one in unwritten.take() if one.path == str(path)] == [str(path)]


def test_what_was_measured_of_the_storage_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(path.parent / "cache"))
    with _core.Engine(path / "data.mdb") as engine:
        which = calibration.identity(storage.inspect(engine, cached=False, thorough=True))
    size = 128 << 10
    samples = (
        Sample("pread", "random", size, 1, 100, 100 * size / (20 << 20)),
        Sample("direct", "random", size, 32, 100, 100 * size / (300 << 20)),
        Sample("direct", "random", 4096, 32, 100, 100 * 4096 / (900 << 20)),
    )
    assert run(path, READ)[0][2].count("lmdbio tune") == 0
    calibration.store(Calibration(which, 1.0, samples))
    ((_, _, text),) = run(path, READ)
    assert text.endswith(
        "lmdbio tune measured 20 MiB/s on its storage by one request of 131,072 bytes at a time, "
        "and 300 MiB/s by 32"
    )


# --- LMDBIO_READONLY


def test_what_does_not_say_readonly_is_read_by_lmdbio(path: Path) -> None:
    body = f"{READ}; print(env.flags()['readonly'], type(env) is theirs.Environment)"
    assert run(path, body, stdout="True False\n", LMDBIO_READONLY="1") == []
    assert len(run(path, body, stdout="False True\n", LMDBIO_READONLY="0")) == 1


def test_what_says_readonly_itself_is_left_alone(path: Path) -> None:
    body = (
        "with lmdb.open(path, readonly=False).begin(write=True) as txn: txn.put(b'1', b'2')\n"
        "with lmdb.open(path + '.new', provenance=True) as env: pass\n"
    )
    assert run(path, body, LMDBIO_READONLY="1") == []


@pytest.mark.parametrize(
    "write",
    [
        "env.begin(write=True)",
        "env.open_db(b'new')",
        "env.sync()",
        "lmdb.open(path + '.new')",
    ],
)
def test_a_write_is_refused_with_the_reason(path: Path, write: str) -> None:
    body = (
        f"env = lmdb.open(path, max_dbs=1)\ntry: {write}\n"
        "except lmdb.ReadonlyError as error: print('LMDBIO_READONLY=1' in str(error))\n"
    )
    run(path, body, stdout="True\n", LMDBIO_READONLY="1")
    assert not (path.parent / "set.new").exists()


def test_nonsense_is_refused(path: Path) -> None:
    body = "try: lmdb.open(path)\nexcept ValueError as error: print(error)"
    told = "LMDBIO_READONLY must be 0 or 1, not 'yes'\n"
    run(path, body, stdout=told, LMDBIO_READONLY="yes")
