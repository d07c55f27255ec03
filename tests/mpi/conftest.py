"""Fixtures of the tests on several ranks: the MPIs, their data sets, and a look at what stays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import data
import launch
import pytest
import together

from lmdbio.convert.convert import convert
from tests.support.range_server import Asked, Fault, RangeServer

SHM = Path("/dev/shm")
#: How the files of shared windows are called: MPICH's, and Open MPI's.
WINDOWS = ("mpich_shar_", "osc_sm", "osc_rdma")
#: Prefixes of files that they leave there when a job is torn down.
LEFT_BY_MPI = ("mpich_shm_", "sm_segment", "vader_segment", "ucx_shm")
#: How long ranks of a job that was torn down may be there after its launcher, seconds.
ENDING_SECONDS_MAX = 5


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests under all MPIs but the first, and those of nodes that MPI itself makes.

    ``make test`` runs the others, whose nodes are played.
    """
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        is_another = parameters.get("mpi", launch.NAMES[0]) in launch.NAMES[1:]
        if is_another or "nodes_of_its_own" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.more)


@pytest.fixture(scope="session", params=launch.NAMES)
def mpi(request: pytest.FixtureRequest) -> launch.Mpi:
    """Each MPI in turn."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    try:
        return launch.find(request.param)
    except launch.NotThereError as error:
        pytest.skip(str(error))


@pytest.fixture
def nodes_of_its_own(mpi: launch.Mpi) -> dict[str, str]:
    """Environment in which MPI itself tells its ranks that they run on two nodes."""
    if mpi.name != "mpich":
        pytest.skip(f"{launch.VENDORS[mpi.name]} makes no nodes of one machine")
    return launch.TWO_NODES


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a sidecar: "auto" reads by provenance, the other modes by a scan."""
    values = [data.mixed_value(i) for i in range(data.MIXED)]
    path = data.write(tmp_path_factory.mktemp("mixed") / "db", values)
    convert(path)
    return path


@pytest.fixture(scope="session")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = [data.fixed_value(i) for i in range(data.FIXED)]
    return data.write(tmp_path_factory.mktemp("fixed") / "db", values)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fewer records than ranks."""
    values = [data.mixed_value(i) for i in range(3)]
    return data.write(tmp_path_factory.mktemp("tiny") / "db", values)


@pytest.fixture(scope="session")
def smaller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first records of the fixed ones."""
    values = [data.fixed_value(i) for i in range(10)]
    return data.write(tmp_path_factory.mktemp("smaller") / "db", values)


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with copies of the fixed ones, one of which is exact."""
    return data.write_copies(tmp_path_factory.mktemp("copies"))


def _served_otherwise(asked: Asked) -> Fault | None:
    """In one folder no answer tells the state; in others the end is refused, or late."""
    if asked.path.startswith("/stateless/"):
        return Fault(headers={"Last-Modified": None})
    if asked.path.startswith("/silent/") and (asked.first or 0) > 300_000:
        return Fault(delay_s=data.SILENT_SECONDS)
    is_refused = asked.path.startswith("/refused/") and (asked.first or 0) > 100_000
    return Fault(status=403) if is_refused else None


@pytest.fixture(scope="session")
def server(mixed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeServer]:
    """The mixed ones in five folders of a server, with a provenance file in each."""
    with RangeServer({"/data.mdb": (mixed / "data.mdb").read_bytes()}) as server:
        sidecar = tmp_path_factory.mktemp("served") / "x.prov"
        convert(server.url("/data.mdb"), output=sidecar)
        server.files["/data.mdb.prov"] = sidecar.read_bytes()
        for folder in ("/stateless", "/refused", "/silent", "/once"):
            server.files |= {f"{folder}{path}": server.files[path] for path in [*server.files][:2]}
        server.etags["/stateless/data.mdb"] = ""
        server.plan = _served_otherwise
        yield server


@pytest.fixture(scope="session")
def url(server: RangeServer) -> str:
    return server.url("/data.mdb")


@pytest.fixture(scope="session")
def stateless_url(server: RangeServer) -> str:
    return server.url("/stateless/data.mdb")


@pytest.fixture(scope="session")
def with_torch() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="session")
def launches() -> together.Launches:
    """Run the programs of all tests."""
    return together.Launches()


@pytest.fixture
def output(request: pytest.FixtureRequest, mpi: launch.Mpi, launches: together.Launches) -> str:
    """Return what the program of this test has printed, all of its ranks together."""
    return launches.output(request, mpi)


def _mapped() -> str:
    """Return the mappings of all processes."""
    texts = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            texts.append(maps.read_text(encoding="ascii", errors="replace"))
        except OSError:
            continue
    return "\n".join(texts)


@pytest.fixture(scope="session")
def shared_before() -> set[str]:
    """Names of files that lay in /dev/shm before the first test."""
    return {path.name for path in SHM.iterdir()}


@pytest.fixture(autouse=True)
def nothing_stays_in_shared_memory(shared_before: set[str]) -> Iterator[None]:
    """No window does; what an MPI itself leaves behind when a job is torn down is removed."""
    yield
    deadline = time.monotonic() + ENDING_SECONDS_MAX
    while True:
        left = [path for path in SHM.iterdir() if path.name not in shared_before]
        windows = [path.name for path in left if path.name.startswith(WINDOWS)]
        if not windows or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert not windows
    if left:
        mapped = _mapped()
        for path in left:
            if path.name.startswith(LEFT_BY_MPI) and path.name not in mapped:
                path.unlink(missing_ok=True)
