"""The modelled parallel file system keeps to its model, and leaves nothing behind.

Goal: reads take the time that the constants say, whoever reads and how; the tool's ways to end.
Method: the arithmetic is there twice, in C (model.c) and in the simulator. First both are
compared exactly, read by read, on random traffic with a clock that is only a number. Then fio
reads through real mounts, and its time is compared with the prediction for the very reads that
it logged.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import lmdb
import pytest

import lmdbio
from benchmarks.command import Missing
from benchmarks.pfs import pfs
from tests.support import ROOT, pfs_model as predict

PFS = ROOT / "benchmarks" / "pfs"

MIB = 1 << 20
PR_SET_TIMERSLACK = 29
#: Measured over predicted. The time of FUSE and the processor comes on top of the model.
FASTER, SLOWER = 0.93, 1.10
#: A read of fio's wakes its mount's receiver, one of the store's threads twice (it has come, it is
#: due), and fio.
WAKES = 4

needs_mount = pytest.mark.usefixtures("mountable")
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="there is no fio")
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler cc")


@pytest.fixture(scope="module")
def mountable(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where nothing can be mounted; some containers have all it takes and forbid it."""
    try:
        with pfs.mounted(tmp_path_factory.mktemp("empty"), constants=pfs.constants()):
            pass
    except Missing as error:
        pytest.skip(str(error))


# --- the arithmetic, by hand ---------------------------------------------------------------


def ordered(length: int, count: int) -> list[tuple[int, int]]:
    return [(i * length, length) for i in range(count)]


@pytest.mark.parametrize(
    ("changed", "clients", "expected"),
    [
        # One read: latency, then the slower of server and link.
        ({}, [predict.Client([(0, MIB)])], 0.5e-3 + MIB / 100e6),
        ({"client_mb_s": 50}, [predict.Client([(0, MIB)])], 0.5e-3 + MIB / 50e6),
        # One after the other: nothing overlaps.
        ({}, [predict.Client(ordered(MIB, 64))], 64 * (0.5e-3 + MIB / 100e6)),
        # Out of order: each read moves first.
        (
            {},
            [predict.Client([(8 * MIB, 4096), (0, 4096), (16 * MIB, 4096)])],
            3 * (0.5e-3 + 2e-3 + 4096 / 100e6),
        ),
        # A read over a stripe's end is served by two servers at once, its pieces share the link.
        ({"client_mb_s": 1e6}, [predict.Client([(0, 2 * MIB)])], 0.5e-3 + MIB / 100e6),
        ({"client_mb_s": 100}, [predict.Client([(0, 2 * MIB)])], 0.5e-3 + 2 * MIB / 100e6),
        # Deep enough, the link is busy all the time, but for the first answer's way.
        ({}, [predict.Client(ordered(MIB, 64), depth=8)], 0.5e-3 + MIB / 100e6 + 63 * MIB / 150e6),
        # Two links in front of one server: the server is busy all the time.
        (
            {"servers": 1},
            [predict.Client(ordered(MIB, 8), 4, mount=i, path=f"{i}") for i in range(2)],
            0.5e-3 + 16 * MIB / 100e6,
        ),
    ],
)
def test_the_prediction_is_what_one_works_out_by_hand(
    changed: dict[str, float], clients: list[predict.Client], expected: float
) -> None:
    constants = {**pfs.constants(), **changed}
    assert max(predict.seconds(constants, clients)) == pytest.approx(expected, rel=1e-3)


def test_constants_are_overridden_by_name_value_or_factor() -> None:
    usual = pfs.constants()
    changed = pfs.constants(["server_mb_s=50", "out_of_order_ms=x2"])
    assert changed == {
        **usual,
        "server_mb_s": 50,
        "out_of_order_ms": 2 * usual["out_of_order_ms"],
    }
    for wrong in ("speed=1", "servers", "servers=many", "servers=x"):
        with pytest.raises(ValueError, match=wrong):
            pfs.constants([wrong])


# --- C against Python ----------------------------------------------------------------------


class Constants(ctypes.Structure):
    _fields_ = (
        ("servers", ctypes.c_uint32),
        ("mounts", ctypes.c_uint32),
        ("stripe_bytes", ctypes.c_uint64),
        ("server_bytes_s", ctypes.c_double),
        ("client_bytes_s", ctypes.c_double),
        ("request_ns", ctypes.c_uint64),
        ("out_of_order_ns", ctypes.c_uint64),
    )


class Request(ctypes.Structure):
    _fields_ = (
        ("mount", ctypes.c_uint32),
        ("pieces_waiting", ctypes.c_uint32),
        ("done", ctypes.c_uint64),
        ("pieces", ctypes.c_uint64),
        ("piece", ctypes.c_void_p),
    )


class Due(ctypes.Structure):
    _fields_ = (("answer", ctypes.c_uint64), ("known", ctypes.c_uint64))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """model.c alone, loaded into this process."""
    path = tmp_path_factory.mktemp("model") / "model.so"
    command = ["cc", "-std=c11", "-O1", "-shared", "-fPIC", str(PFS / "model.c"), "-o", str(path)]
    subprocess.run(command, check=True)
    native = ctypes.CDLL(str(path))
    native.pfs_model_open.restype = ctypes.c_void_p
    native.pfs_layout_open.restype = ctypes.c_void_p
    native.pfs_layout_open.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
    native.pfs_layout_close.argtypes = (ctypes.c_void_p,)
    native.pfs_model_close.argtypes = (ctypes.c_void_p,)
    native.pfs_model_due.restype = Due
    native.pfs_model_due.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
    native.pfs_model_submit.argtypes = (
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_void_p,
    )
    return native


class ModelInC:
    """Closed-loop clients on model.c: it is asked only when it said that it would know more."""

    def __init__(
        self, native: ctypes.CDLL, constants: dict[str, float], clients: Sequence[predict.Client]
    ) -> None:
        self.native = native
        given = Constants(
            int(constants["servers"]),
            1 + max(client.mount for client in clients),
            int(constants["stripe_kib"]) * 1024,
            constants["server_mb_s"] * 1e6,
            constants["client_mb_s"] * 1e6,
            round(constants["request_ms"] * 1e6),
            round(constants["out_of_order_ms"] * 1e6),
        )
        self.model = native.pfs_model_open(ctypes.byref(given))
        self.layouts = {
            client.path: native.pfs_layout_open(
                self.model, predict.first_server(client.path, given.servers)
            )
            for client in clients
        }
        self.clients = clients

    def submit(self, now: int, client: predict.Client, read: tuple[int, int]) -> Request:
        room = (ctypes.c_char * (64 * 64))()
        request = Request(piece=ctypes.addressof(room))
        request.room = room
        self.native.pfs_model_submit(
            self.model, now, client.mount, self.layouts[client.path], *read, ctypes.byref(request)
        )
        return request

    def seconds(self) -> list[float]:
        ends = [0.0] * len(self.clients)
        waiting = [list(reversed(client.reads)) for client in self.clients]
        flying = []
        for i, client in enumerate(self.clients):
            for _ in range(min(client.depth, len(waiting[i]))):
                flying.append((i, self.submit(0, client, waiting[i].pop())))
        now = 0
        while flying:
            dues = [
                self.native.pfs_model_due(self.model, now, ctypes.byref(request))
                for _, request in flying
            ]
            # Known answers before questions at the same time, in order of submission.
            now, asked, at = min(
                (due.known or due.answer, bool(due.known), at) for at, due in enumerate(dues)
            )
            if asked:
                continue
            i, _ = flying.pop(at)
            ends[i] = now / 1e9
            if waiting[i]:
                flying.append((i, self.submit(now, self.clients[i], waiting[i].pop())))
        return ends

    def close(self) -> None:
        for layout in self.layouts.values():
            self.native.pfs_layout_close(layout)
        self.native.pfs_model_close(self.model)


@needs_cc
@pytest.mark.parametrize("seed", range(20))
def test_the_c_model_and_the_prediction_agree(model: ctypes.CDLL, seed: int) -> None:
    chance = random.Random(seed)
    constants = pfs.constants(
        [
            f"servers={chance.randint(1, 6)}",
            f"stripe_kib={chance.choice([64, 100, 1024])}",
            f"client_mb_s={chance.choice([40, 150, 1000])}",
            f"out_of_order_ms={chance.choice([0, 0.3, 2])}",
        ]
    )
    clients = [
        predict.Client(
            # Odd lengths, so that no two events fall on one moment by design.
            [(chance.randrange(1 << 26), chance.randrange(1, MIB)) for _ in range(40)],
            depth=chance.randint(1, 6),
            mount=chance.randrange(2),
            path=chance.choice("abc"),
        )
        for _ in range(3)
    ]
    # The only difference is that the C rounds each duration to a nanosecond.
    in_c = ModelInC(model, constants, clients)
    try:
        measured = in_c.seconds()
    finally:
        in_c.close()
    assert measured == pytest.approx(predict.seconds(constants, clients), abs=1e-6)


# --- fio against the prediction ------------------------------------------------------------


@dataclass(frozen=True)
class FioJob:
    rw: str
    bs: int
    depth: int
    size: int
    mount: int = 0

    @property
    def turns(self) -> int:
        """Reads one after the other."""
        return -(-self.size // (self.bs * self.depth))


class Waking:
    """How late this machine wakes who sleeps: `late_s`, the mean while it is entered.

    A host that lends its processors to others wakes late for minutes, which is no fault of a
    program that counted on waking in time.
    """

    SLEEP_S = 2e-3

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._late: list[float] = []
        self._thread = threading.Thread(target=self._sleep)

    def __enter__(self) -> Waking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sleep(self) -> None:
        # As the store's threads do: without it the kernel ends any sleep 50 us late.
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        while not self._ended.is_set():
            begun = time.perf_counter()
            time.sleep(self.SLEEP_S)
            self._late.append(time.perf_counter() - begun - self.SLEEP_S)

    @property
    def late_s(self) -> float:
        return sum(self._late) / max(len(self._late), 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of 64 MiB."""
    path = tmp_path_factory.mktemp("pfs")
    for name in ("data0", "data1"):
        (path / name).write_bytes(random.Random(name).randbytes(MIB) * 64)
    return path


def fio(store: pfs.Store, jobs: Sequence[FioJob], logs: Path) -> list[float]:
    """Runs the jobs at once; each one's seconds."""
    command = ["fio", "--readonly", "--thread", "--output-format=json", "--direct=1"]
    command += ["--ioengine=libaio", "--invalidate=0"]
    for i, job in enumerate(jobs):
        command += [f"--name=job{i}", f"--filename={store.mounts[job.mount]}/data{job.mount}"]
        command += [f"--rw={job.rw}", f"--bs={job.bs}", f"--iodepth={job.depth}"]
        command += [f"--io_size={job.size}", f"--write_iolog={logs / f'job{i}'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    reports = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    assert [report["read"]["io_bytes"] for report in reports] == [job.size for job in jobs]
    return [report["read"]["runtime"] / 1e3 for report in reports]


def logged(log: Path, job: FioJob) -> predict.Client:
    words = [line.split() for line in log.read_text(encoding="ascii").splitlines()[1:]]
    reads = [(int(word[3]), int(word[4])) for word in words if word[2] == "read"]
    return predict.Client(reads, job.depth, job.mount, f"data{job.mount}")


SEQUENTIAL = FioJob("read", MIB, 1, 48 * MIB)
RANDOM = FioJob("randread", 128 * 1024, 1, 24 * MIB)


@needs_mount
@needs_fio
@pytest.mark.parametrize(
    ("overrides", "jobs"),
    [
        pytest.param([], [SEQUENTIAL], id="ordered 1 MiB, depth 1"),
        pytest.param([], [FioJob("read", MIB, 8, 64 * MIB)], id="ordered 1 MiB, depth 8"),
        pytest.param([], [RANDOM], id="random 128 KiB, depth 1"),
        pytest.param(
            [], [FioJob("randread", 128 * 1024, 16, 64 * MIB)], id="random 128 KiB, depth 16"
        ),
        pytest.param(
            ["out_of_order_ms=x2"], [RANDOM], id="random 128 KiB, depth 1, seeks cost double"
        ),
        pytest.param(
            [],
            [FioJob("read", MIB, 8, 64 * MIB, mount) for mount in range(2)],
            id="two mounts, ordered 1 MiB, depth 8: links are full",
        ),
        pytest.param(
            ["server_mb_s=40"],
            [FioJob("read", MIB, 8, 64 * MIB, mount) for mount in range(2)],
            id="two mounts, ordered 1 MiB, depth 8: servers are full",
        ),
    ],
)
def test_fio_takes_the_predicted_time(
    folder: Path, tmp_path: Path, overrides: list[str], jobs: list[FioJob]
) -> None:
    constants = pfs.constants(overrides)
    turns = max(job.turns for job in jobs)
    low = high = 0.0
    # Another process on this machine may take the processor meanwhile: the best of three.
    for tried in range(3):
        mounts = 1 + max(job.mount for job in jobs)
        with pfs.mounted(folder, mounts=mounts, constants=constants) as store:
            logs = tmp_path / f"try{tried}"
            logs.mkdir()
            with Waking() as waking:
                measured = max(fio(store, jobs, logs))
        clients = [logged(logs / f"job{i}", job) for i, job in enumerate(jobs)]
        predicted = max(predict.seconds(constants, clients))
        machine = turns * WAKES * waking.late_s
        low, high = measured / predicted, (measured - machine) / predicted
        late = 1e3 * store.last["late_s"] / store.last["answers"]
        print(
            f"predicted {predicted:.3f} s, measured {measured:.3f} s, answers late {late:.3f} ms; "
            f"the machine wakes late {1e3 * waking.late_s:.3f} ms, {machine:.3f} s in all"
        )
        if FASTER < low < SLOWER:
            break
    assert low > FASTER
    assert high < SLOWER
    links = [mount["link"] for mount in store.last["mounts"]]
    assert [link["bytes"] for link in links] == [job.size for job in jobs]
    seen = sum(server["bytes"] for mount in store.last["mounts"] for server in mount["servers"])
    assert seen == sum(job.size for job in jobs)


# --- what is shown ---------------------------------------------------------------------------

#: Costs next to nothing, for tests of what is shown and not of when.
FREE = ["request_ms=0", "out_of_order_ms=0", "server_mb_s=100000", "client_mb_s=100000"]


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[tuple[Path, pfs.Store]]:
    """A folder with a database, a folder within it and a link; and the same, mounted twice."""
    folder = tmp_path / "folder"
    (folder / "within").mkdir(parents=True)
    (folder / "within" / "small").write_bytes(b"small")
    (folder / "link").symlink_to("within/small")
    (folder / "large").write_bytes(random.Random(1).randbytes(5 * MIB + 12345))
    with lmdb.open(str(folder / "db"), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for i in range(500):
            txn.put(f"{i:06}".encode(), random.Random(i).randbytes(3000))
    with pfs.mounted(folder, mounts=2, constants=pfs.constants(FREE)) as store:
        yield folder, store


@needs_mount
def test_the_folder_is_shown_as_it_is(shown: tuple[Path, pfs.Store]) -> None:
    folder, store = shown
    for mount in store.mounts:
        assert {path.name for path in mount.iterdir()} == {p.name for p in folder.iterdir()}
        for name in ("large", "link", "within/small"):
            assert (mount / name).read_bytes() == (folder / name).read_bytes()
        assert not (mount / "link").is_symlink()
        with pytest.raises(FileNotFoundError):
            (mount / "none").stat()
        with pytest.raises(OSError, match="Read-only"):
            (mount / "large").write_bytes(b"")


@needs_mount
def test_each_mount_has_a_page_cache_that_begins_cold(shown: tuple[Path, pfs.Store]) -> None:
    _, store = shown
    size = (store.mounts[0] / "large").stat().st_size
    for mount in store.mounts:
        before = [each["link"]["bytes"] for each in store.counters()["mounts"]]
        (mount / "large").read_bytes()
        (mount / "large").read_bytes()
        after = [each["link"]["bytes"] for each in store.counters()["mounts"]]
        expected = [size if place == mount else 0 for place in store.mounts]
        assert [b - a for a, b in zip(before, after, strict=True)] == expected


@needs_mount
def test_py_lmdb_and_lmdbio_read_a_database_there(shown: tuple[Path, pfs.Store]) -> None:
    folder, store = shown
    with lmdbio.Records(folder / "db") as there, lmdbio.Records(store.mounts[0] / "db") as here:
        assert list(here) == list(there)
    with lmdb.open(str(store.mounts[0] / "db"), readonly=True, lock=False) as env:
        with env.begin() as txn:
            assert sum(1 for _ in txn.cursor()) == 500


@needs_mount
def test_what_may_be_cut_elsewhere_is_not_copied_out_of_a_mapping(
    shown: tuple[Path, pfs.Store],
) -> None:
    """Of a page that ends too early a mapping shows zeros, and nothing tells."""
    _, store = shown
    for engine in ("auto", "mmap"):
        with lmdbio.open(
            str(store.mounts[0] / "db"), readonly=True, lock=False, engine=engine
        ) as env:
            with env.begin() as txn:
                for turn in range(2):
                    before = calls()
                    for i in range(500):
                        assert txn.get(f"{i:06}".encode()) == random.Random(i).randbytes(3000)
                    assert turn == 0 or calls() - before >= 500


def calls() -> int:
    """Calls for reading that this process has made."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("syscr")).split()[1])


@needs_mount
def test_the_parts_of_one_large_direct_read_are_in_flight_together(folder: Path) -> None:
    slow = pfs.constants([*FREE, "request_ms=200"])
    with pfs.mounted(folder, constants=slow) as store, mmap.mmap(-1, 8 * MIB) as buffer:
        file = os.open(store.mounts[0] / "data0", os.O_RDONLY | os.O_DIRECT)
        start = time.monotonic()
        assert os.preadv(file, [buffer], 0) == 8 * MIB
        took = time.monotonic() - start
        os.close(file)
        assert store.counters()["mounts"][0]["link"]["requests"] == 8
    assert 0.2 <= took < 0.6


@needs_mount
@pytest.mark.parametrize("kib", [32, 128, 1024])
def test_readahead_is_as_set(folder: Path, kib: int) -> None:
    constants = pfs.constants([*FREE, f"readahead_kib={kib}"])
    with pfs.mounted(folder, constants=constants) as store:
        # In small steps: the kernel reads ahead further for a read that is larger than that.
        with (store.mounts[0] / "data0").open("rb", buffering=4096) as file:
            while file.read(4096):
                pass
        requests = store.counters()["mounts"][0]["link"]["requests"]
    # The first windows are smaller, until the kernel has seen that it goes on.
    assert requests == pytest.approx(64 * MIB / (kib * 1024), rel=0.1)


# --- the command -----------------------------------------------------------------------------


def run(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.pfs.run", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def mounted_below(parent: str) -> bool:
    return parent in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


@needs_mount
def test_the_command_finds_its_mounts_and_gives_its_status(folder: Path, tmp_path: Path) -> None:
    script = 'test "$PFS_MOUNTS $PFS_MOUNT1" = "2 $1" && cat "$1/data0" | wc -c; echo $1; exit 7'
    words = ["--mounts", "2", "--json", str(tmp_path / "json"), "--set", "server_mb_s=x9"]
    process = run(*words, str(folder), "--", "sh", "-c", script, "sh", "{mount1}")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    size, mount = out.split()
    assert int(size) == 64 * MIB
    assert not Path(mount).exists()
    report = json.loads((tmp_path / "json").read_text(encoding="utf-8"))
    assert report["constants"]["server_mb_s"] == 9 * pfs.constants()["server_mb_s"]
    assert [each["link"]["bytes"] for each in report["mounts"]] == [0, 64 * MIB]


@needs_mount
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_command_and_mounts(folder: Path, number: signal.Signals) -> None:
    # The command has a file open and a read under way.
    slow = ["--set", "server_mb_s=1"]
    script = 'echo "$PFS_MOUNT0"; exec 3<"$PFS_MOUNT0/data0"; cat <&3 >/dev/null'
    process = run(*slow, str(folder), "--", "sh", "-c", script)
    assert process.stdout is not None
    mount = process.stdout.readline().strip()
    assert mounted_below(mount)
    time.sleep(0.2)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    deadline = time.monotonic() + 10
    while mounted_below(mount) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not mounted_below(mount)
    if number == signal.SIGKILL:  # only then nobody is left to do it
        Path(mount).rmdir()
        Path(mount).parent.rmdir()
    assert not Path(mount).parent.exists()


def test_what_lacks_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "a-compiler-that-is-not-there")
    process = run(str(tmp_path), "--", "true")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 69
    assert len(err.splitlines()) == 1
    assert "fuse" in err or "a-compiler-that-is-not-there" in err
