"""``lmdbio run PROGRAM`` does as ``python PROGRAM``, but that ``import lmdb`` gives lmdbio.

Goal: output, exit status, tracebacks, ``sys.argv``, ``sys.path`` and ``__main__`` are python's,
for scripts, modules, folders and zip files. Method: each program is run once by each, and what
they print is compared byte by byte.
"""

from __future__ import annotations

import os
import py_compile
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import lmdbio

SHOW = """
import os, sys
names = {k: v for k, v in globals().items() if k not in ("__builtins__", "__loader__",
         "__annotations__", "__spec__")}
print(sys.argv, sys.path[0], sys.stdin.read(), type(__builtins__), type(__loader__))
print(sorted((k, str(v)) for k, v in names.items()))
print(__spec__ and (__spec__.name, __spec__.origin, __spec__.parent))
print(sys.modules["__main__"].__dict__ is globals(), len(sys.path), __name__)
"""


def commands(*arguments: str) -> tuple[list[str], list[str]]:
    """Return the command of python and that of lmdbio."""
    run = [sys.executable, "-m", "lmdbio", "run", "--quiet"]
    return [sys.executable, *arguments], [*run, *arguments]


def done(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, input="said", capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(lmdbio.__file__).parents[1]), **variables},
    )  # fmt: skip


def same(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program both ways, and return what both did."""
    first, second = (done(command, folder, **variables) for command in commands(*arguments))
    assert second.stdout == first.stdout
    assert second.stderr == first.stderr
    assert second.returncode == first.returncode
    return second


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one program in every form."""
    for name in ("script.py", "package/__main__.py", "package/module.py", "held/__main__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SHOW)
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "held" / "__main__.py")
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as zipped:
        zipped.write(tmp_path / "script.py", "__main__.py")
    py_compile.compile(str(tmp_path / "script.py"), str(tmp_path / "compiled.pyc"))
    return tmp_path


@pytest.mark.more
@pytest.mark.parametrize("safe", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["script.py"],
        ["script.py", "--quiet", "-m", "--", "a b"],
        ["./held/../script.py", "x"],
        ["link.py"],
        ["compiled.pyc", "x"],
        ["held"],
        ["held", "--json"],
        ["zipped.zip", "x"],
        ["-m", "package", "--help"],
        ["-m", "package.module", "-x"],
    ],
)
def test_a_program_finds_all_as_python_gives_it(
    folder: Path, arguments: list[str], safe: str
) -> None:
    if safe and sys.version_info < (3, 11):
        pytest.skip("Python has no safe path yet")
    told = done(commands(*arguments)[0], folder, PYTHONSAFEPATH=safe)
    if told.returncode:
        assert safe
        assert arguments[0] == "-m"
        pytest.skip("a safe path does not lead to this module")
    assert "said" in same(folder, *arguments, PYTHONSAFEPATH=safe).stdout


@pytest.mark.more
@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('a last word')", 1),
        ("raise SystemExit(True)", 1),
        ("raise ValueError('wrong')", 1),
        ("raise OSError(2, 'gone', 'x')", 1),
        ("def f():\n    raise KeyError('k')\ntry:\n    f()\nexcept KeyError:\n    1 / 0", 1),
        (
            "def f():\n    1 / 0\ntry:\n    f()\nexcept Exception as e:\n    raise OSError from e",
            1,
        ),
        ("raise BrokenPipeError", 1),
        ("import click; raise click.ClickException('mine')", 1),
        ("if True print(1)", 1),
        ("x = '\\udc80'\nprint(ascii(x))\n\t y", 1),
        ("import nowhere_at_all", 1),
        ("import sys; sys.excepthook = lambda *a: print(a[0]); 1 / 0", 1),
        ("import atexit; atexit.register(print, 'at exit'); 1 / 0", 1),
        ("import threading; threading.Thread(target=lambda: 1 / 0, name='t').start()", 0),
        ("import warnings; warnings.warn('beware')", 0),
        ("import os; print('lost'); os._exit(5)", 5),
        ("import sys; sys.stdout.close()", 0),
    ],
)
def test_a_program_ends_as_by_python(tmp_path: Path, source: str, status: int) -> None:
    (tmp_path / "program.py").write_text(source)
    assert same(tmp_path, "program.py").returncode == status


def test_an_error_in_a_module_has_none_of_our_frames(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def f():\n    1 / 0\nf()\n")
    told = done(commands("-m", "program")[1], tmp_path)
    assert told.returncode == 1
    assert told.stderr.count("File ") == told.stderr.count("program.py") == 2


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_processes_of_multiprocessing_find_the_program(tmp_path: Path, how: str) -> None:
    source = f"""
import multiprocessing, pickle
class Point:
    def __init__(self, x): self.x = x
def double(point): return Point(2 * point.x)
if __name__ == "__main__":
    with multiprocessing.get_context({how!r}).Pool(2) as pool:
        print([p.x for p in pool.map(double, [Point(1), Point(2)])])
    print(pickle.loads(pickle.dumps(Point(3))).x)
"""
    (tmp_path / "program.py").write_text(source)
    assert same(tmp_path, "program.py").stdout == "[2, 4]\n3\n"
    assert same(tmp_path, "-m", "program").stdout == "[2, 4]\n3\n"


def test_ctrl_c_ends_it_with_pythons_traceback(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import time\nprint('on', flush=True)\n"
        "try:\n    time.sleep(60)\nfinally:\n    print('off')\n"
    )
    with subprocess.Popen(
        commands("program.py")[1], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": str(Path(lmdbio.__file__).parents[1])},
    ) as program:  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == "on\n"
        time.sleep(0.1)
        program.send_signal(signal.SIGINT)
        stdout, stderr = program.communicate(timeout=30)
    assert program.returncode == 130
    assert stdout == "off\n"
    assert stderr.endswith("KeyboardInterrupt\n")
    assert stderr.count("File ") == 1


def test_lmdb_is_lmdbio(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import lmdb, lmdbio\nfrom lmdb import open as opens\nprint(lmdb is lmdbio, opens)\n"
    )
    told = done(commands("program.py")[1], tmp_path)
    assert told.stdout.startswith("True <class 'lmdbio.dropin")
    assert told.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.py"], "nowhere.py: No such file or directory"),
        (["."], "there is no __main__.py in this folder"),
        (["-m", "nowhere"], "nowhere: there is no such module"),
        (["-m", "nowhere.at.all"], "nowhere.at.all: this module cannot be found"),
        (["-m", "sys"], "no Python code to run"),
        ([], "Missing argument 'PROGRAM'"),
        (["--nonsense", "x.py"], "No such option"),
    ],
)
def test_a_program_that_is_not_there_is_a_wrong_use(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    found = done(commands(*arguments)[1], tmp_path)
    assert found.returncode == 2
    assert told in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("option", [[], ["-m"]])
def test_an_empty_name_is_no_program(folder: Path, option: list[str]) -> None:
    (folder / "__main__.py").write_text("print('ran')")
    found = done([sys.executable, "-m", "lmdbio", "run", "--quiet", *option, "", "x"], folder)
    assert found.returncode == 2 and not found.stdout
    assert "its name is empty (an unset variable?)" in found.stderr
