"""A program that opens a file, gets a value and iterates loads what it uses, and nothing else.

Goal: the first opening of a process costs about what py-lmdb's does, and reading then needs no
file but the data file. Method: fresh processes tell what they have loaded, and go on without
descriptors. By names: how long it takes, `benchmarks/warm/start.py` says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

import lmdbio

COUNT = 3000
READ = f"""if True:
    import sys
    import lmdbio
    env = lmdbio.open(sys.argv[1], readonly=True, lock=lock)
    with env.begin(buffers=buffers) as txn:
        assert bytes(txn.get(b"000007")) == b"7" * 2000
        with txn.cursor() as cursor:
            assert cursor.set_range(b"000100") and bytes(cursor.key()) == b"000100"
            assert sum(1 for _ in cursor) == {COUNT} - 100
        assert env.stat()["entries"] == {COUNT}
"""
#: Modules that take long to load: the standard library's, others', and rooms that are not used.
HEAVY = {
    *(
        "asyncio",
        "collections",
        "contextlib",
        "ctypes",
        "dataclasses",
        "enum",
        "functools",
        "hashlib",
    ),
    *("html", "http", "inspect", "json", "logging", "pathlib", "platform", "re", "socket", "ssl"),
    *("struct", "subprocess", "tempfile", "threading", "typing", "urllib", "weakref", "zlib"),
    *("click", "numpy", "rich", "backports.zstd"),
    *("lmdbio.reading.batch", "lmdbio.cache", "lmdbio.cli", "lmdbio.convert", "lmdbio.inside"),
    *("lmdbio.layouts", "lmdbio.locate", "lmdbio.machine.calibration", "lmdbio.observe.stats"),
    *("lmdbio.planning", "lmdbio.provenance", "lmdbio.reader", "lmdbio.records"),
    *("lmdbio.remote.url", "lmdbio._core.arrays", "lmdbio._core.remote"),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first_open") / "env"
    with lmdb.open(str(folder), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for index in range(COUNT):
            txn.put(b"%06d" % index, b"%d" % index * 2000 if index < 10 else b"x" * 2000)
    return folder


def run(code: str, path: Path, tmp_path: Path, *options: str) -> str:
    """Run a program that finds no calibration, and that nothing has loaded modules for."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environ.pop("LMDBIO_TRACE", None)
    command = [sys.executable, *options, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("lock", [False, True])
def test_nothing_is_loaded_that_is_not_used(
    path: Path, tmp_path: Path, lock: bool, buffers: bool
) -> None:
    # An editable installation has a finder that loads half of the standard library: -S.
    paths = [str(Path(lmdbio.__file__).parents[1]), *sys.path]
    begin = f"import sys; sys.path[:0] = {paths}; before = set(sys.modules)"
    told = "print(*(name for name in sys.modules if name not in before))"
    loaded = set(
        run(f"{begin}; {lock=}; {buffers=}\n{READ}\n{told}", path, tmp_path, "-S").split()
    )
    assert "lmdbio.dropin.environment" in loaded
    assert not {
        name
        for name in HEAVY
        if name in loaded or any(one.startswith(f"{name}.") for one in loaded)
    }


def test_a_program_without_descriptors_left_reads_on(path: Path, tmp_path: Path) -> None:
    code = READ.replace("with env.begin", """import os
    fds = []
    try:
        while True:
            fds.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    with env.begin""", 1)  # fmt: skip
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
    run(f"{limit}lock, buffers = True, False\n{code}", path, tmp_path)


def test_a_trace_is_taken_that_the_environment_asks_for(path: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    code = (
        f"import os; os.environ['LMDBIO_TRACE'] = {str(trace)!r}\nlock = buffers = False\n{READ}"
    )
    run(code, path, tmp_path)
    assert "lmdbio" in trace.read_text() and "data.mdb" in trace.read_text()


def test_threads_that_open_first_find_all_there(path: Path, tmp_path: Path) -> None:
    code = """if True:
        import sys, threading
        import lmdbio
        gate, failed = threading.Barrier(6), []
        def read():
            gate.wait()
            try:
                with lmdbio.open(sys.argv[1], readonly=True) as env, env.begin() as txn:
                    assert sum(1 for _ in txn.cursor()) == %d
            except BaseException as error:
                failed.append(repr(error))
        threads = [threading.Thread(target=read) for _ in range(6)]
        for each in threads: each.start()
        for each in threads: each.join()
        assert not failed, failed
    """
    run(code % COUNT, path, tmp_path)


def test_a_child_counts_what_it_reads_itself(path: Path, tmp_path: Path) -> None:
    code = """if True:
        import os, sys
        import lmdbio
        env = lmdbio.open(sys.argv[1], readonly=True, lock=False)
        with env.begin() as txn: list(txn.cursor().iternext(values=True))
        before = env.stats()
        child = os.fork()
        if child == 0:
            try:
                assert env.stats().records == 0 and env.stats().read_bytes == 0, env.stats()
                with env.begin() as txn: txn.get(b"000007")
                env.close()
                assert 0 <= env.stats().page_bytes < before.page_bytes + before.read_bytes
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert env.stats() == before, (env.stats(), before)
    """
    run(code, path, tmp_path)


def test_a_program_that_ends_with_all_open_ends_quietly(path: Path, tmp_path: Path) -> None:
    code = (
        f"{'lock, buffers = True, False'}\n{READ}\n    it = iter(env.begin().cursor()); next(it)"
    )
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-X", "dev", "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert (done.returncode, done.stderr) == (0, "")
