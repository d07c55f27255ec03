"""Give all tests the same surroundings on every machine, and a header that says which.

No test reads the user's settings: the variables that lmdbio looks at are unset, and what it
remembers between runs goes to a folder that ends with the session.
"""

from __future__ import annotations

import gc
import os
import platform
import shutil
import signal
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import hypothesis
import lmdb
import pytest

from lmdbio import _core
from lmdbio.dropin import known
from lmdbio.errors import IncompatibleError
from lmdbio.reading import file_cache
from lmdbio.records import routes
from tests.support import long_run

# A process that a shell starts in the background is deaf to Ctrl-C, and so are its children,
# some of which the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run beside one another; how long an example takes says nothing then.
hypothesis.settings.register_profile("beside others", deadline=None)
hypothesis.settings.load_profile("beside others")


def find_mpiexec() -> str | None:
    """Return the mpiexec beside this Python, else the one in PATH, else None."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")


def pytest_report_header() -> list[str]:
    """Return the lines that say which LMDB, kernel and MPI the tests run on."""
    version = ".".join(map(str, lmdb.version()))
    return [
        f"py-lmdb {lmdb.__version__} with LMDB {version}, {platform.release()}, "
        f"{len(os.sched_getaffinity(0))} cores",
        f"mpiexec: {find_mpiexec() or 'none, the tests marked mpi are skipped'}",
    ]


def pytest_collection_finish() -> None:
    # Torch and all else that was imported lives to the end; many tests collect garbage.
    gc.freeze()


class _Circle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.own = self


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Wait while another thread collects garbage: ``gc.collect`` does nothing meanwhile.

    There a DataLoader that an earlier test has left may wait for its workers for seconds.
    """
    circle = weakref.ref(_Circle())
    deadline = time.monotonic() + 60
    gc.collect(0)
    while circle() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
        gc.collect()


@pytest.hookimpl(tryfirst=True)  # before those that are not wanted are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the long run; skip those marked mpi where ranks cannot be started."""
    for item in items:
        module = getattr(item, "module", None)
        # By identity: what a module holds may compare with nothing, as arrays do.
        if any(value is long_run for value in getattr(module, "__dict__", {}).values()):
            item.add_marker(pytest.mark.long)
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        reason = "mpi4py is not installed"
    else:
        reason = "" if find_mpiexec() else "there is no mpiexec"
    if reason:
        for item in items:
            if item.get_closest_marker("mpi") and "mpi" not in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def no_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse O_DIRECT for every file that is opened again."""
    again = _core.Engine.again

    def refuse(self: _core.Engine, kind: str, depth: int) -> _core.Engine:
        if kind == "direct":
            raise IncompatibleError("the file system knows no O_DIRECT")
        return again(self, kind, depth)

    monkeypatch.setattr(_core.Engine, "again", refuse)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan every batch, also where the page cache holds all of it."""
    monkeypatch.setattr(routes, "GATHER_BYTES_MAX", -1)


@pytest.fixture
def off_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have file caches take files for those of a network, which they bring to memory."""
    monkeypatch.setattr(file_cache, "is_on_disk", lambda engine: False)


@pytest.fixture(params=["gathered", "planned"])
def either_way(request: pytest.FixtureRequest) -> None:
    """Run a test twice: small batches in the page cache are copied as they lie, and planned."""
    if request.param == "planned":
        request.getfixturevalue("planned")


@pytest.fixture(autouse=True)
def surroundings(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Unset what lmdbio reads of the environment, for child processes too.

    It knows nothing of what it found out in another test's surroundings.
    """
    known.forget()
    for name in list(os.environ):
        if name.startswith("LMDBIO_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the small data set of the benchmarks' tests, made once a session."""
    from lmdbio.bench import datasets
    from tests.support.benching import SMALL

    made, reused = datasets.ensure(SMALL, tmp_path_factory.mktemp("sets"))
    assert not reused
    return made
