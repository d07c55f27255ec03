"""``lmdbio doctor``: the facts are those of the file and the machine, had in bounded time.

Method: real files of each shape, with free pages, in key order and out of it, cut, and a terabyte
long; a reader slot of a process that ended; a root folder of our own for control groups.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import lmdb
import pytest

from lmdbio.cli import doctor_facts
from lmdbio.machine.storage import Storage
from tests.cli.test_cli import answer, call, process
from tests.support import ROOT, databases
from tests.support.databases import CASES, FORMATS, Case, build
from tests.support.far import spread_out


def write(path: Path, keys: list[int], length: int = 5000, commits: int = 1) -> Path:
    with lmdb.open(str(path), map_size=1 << 28) as env:
        for turn in range(commits):
            with env.begin(write=True) as txn:
                for key in keys[turn::commits]:
                    txn.put(b"%08d" % key, databases.value(key, length))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "train_lmdb", list(range(600)))


def test_doctor_tells_findings_the_limit_and_the_next_command(data: Path) -> None:
    done = call("doctor", data)
    assert done.exit_code == 0
    assert "600 records" in done.stdout and "What limits this data set here:" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("Next: lmdbio ") and str(data) in last
    found = answer("doctor", data)
    assert found["command"].split()[0] == "lmdbio"
    assert {one["severity"] for one in found["findings"]} <= {"good", "note", "problem"}
    assert found["facts"]["data"]["entries"] == 600
    sample = found["facts"]["sample"]
    assert sample["median_bytes"] == sample["largest_bytes"] == 5000 and sample["keys"] == "%08d"


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_doctor_looks_at_every_shape(case: Case, version: int, tmp_path: Path) -> None:
    path = build(case, tmp_path, version)
    for name in (None, *case.databases):
        facts = answer("doctor", path, *([] if name is None else ["--db", name.decode()]))["facts"]
        with lmdb.open(str(path), readonly=True, lock=False, max_dbs=8) as env:
            handle = None if name is None else env.open_db(name, create=False)
            with env.begin() as txn:
                entries = txn.stat(handle)["entries"] if handle else txn.stat()["entries"]
        assert facts["data"]["entries"] == entries
        assert facts["data"]["file_bytes"] >= facts["data"]["used_bytes"] > 0


def test_free_pages_are_those_that_lmdb_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "data", list(range(600)))
    with lmdb.open(str(path), map_size=1 << 28) as env:
        with env.begin(write=True) as txn:
            for key in range(0, 600, 2):
                txn.delete(b"%08d" % key)
        with env.begin(write=True) as txn:
            txn.put(b"x", b"y")
    facts = answer("doctor", path)
    # 300 values of two pages each; the tree's own changes free some more.
    free = facts["facts"]["data"]["free_bytes"] // 4096
    assert 600 <= free < 660
    assert any(one["topic"] == "free pages" for one in facts["findings"])
    assert facts["command"].startswith("lmdbio compact ")


def test_the_order_on_disk_is_seen(tmp_path: Path) -> None:
    shuffled = list(range(3000))
    random.Random(3).shuffle(shuffled)
    for name, keys, in_order in (("in", list(range(3000)), True), ("out", shuffled, False)):
        path = write(tmp_path / name, keys)
        sample = answer("doctor", path)["facts"]["sample"]
        assert (sample["ascending"] > 0.95) == in_order
        assert (sample["adjacent"] > 0.9) == in_order
        if not in_order:
            assert 0.2 < sample["ascending"] < 0.8
            findings = answer("doctor", path)["findings"]
            assert any("in another order" in one["text"] for one in findings)


def test_the_provenance_file_is_judged(data: Path) -> None:
    def status() -> tuple[str, str]:
        found = answer("doctor", data)
        return found["facts"]["provenance"]["status"], found["command"]

    assert status()[0] == "absent"
    assert call("convert", data).exit_code == 0
    assert status()[0] == "good"
    with lmdb.open(str(data), map_size=1 << 28) as env, env.begin(write=True) as txn:
        txn.put(b"more", b"")
    assert status() == ("stale", f"lmdbio convert {data}")


def test_a_file_that_was_cut_is_a_problem(data: Path) -> None:
    os.truncate(data / "data.mdb", (data / "data.mdb").stat().st_size - 8192)
    found = answer("doctor", data)
    assert found["findings"][0]["severity"] == "problem"
    assert found["command"] == f"lmdbio verify {data}"


def test_a_file_of_a_terabyte_is_looked_at_at_once(tmp_path: Path) -> None:
    path = tmp_path / "far.mdb"
    spread_out(path, records=3000, gap_bytes=1 << 30)
    begun = time.process_time()
    found = answer("doctor", path)
    assert time.process_time() - begun < 5
    assert found["facts"]["data"]["used_bytes"] > 1 << 40
    assert found["facts"]["sample"]["records"] == 64


def test_the_slot_of_a_process_that_was_killed_is_stale(data: Path) -> None:
    code = (
        "import lmdb, sys, time\n"
        f"env = lmdb.open({str(data)!r}, readonly=True)\n"
        "txn = env.begin(); print('held', flush=True); time.sleep(600)"
    )
    with (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as first,
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as second,
    ):
        for reader in (first, second):
            assert reader.stdout is not None and reader.stdout.readline() == b"held\n"
        locks = answer("doctor", data)["facts"]["locks"]
        assert (locks["readers"], locks["stale"]) == (2, 0)
        first.kill()
        first.wait()
        # Where no process has the file open, LMDB begins a new table.
        found = answer("doctor", data)
        second.kill()
    assert (found["facts"]["locks"]["readers"], found["facts"]["locks"]["stale"]) == (2, 1)
    assert any(f["topic"] == "locks" and f["severity"] == "problem" for f in found["findings"])


def test_nothing_is_made_beside_the_data(tmp_path: Path) -> None:
    path = write(tmp_path / "data", [1, 2, 3])
    (path / "lock.mdb").unlink()
    assert call("doctor", path).exit_code == 0
    assert [one.name for one in path.iterdir()] == ["data.mdb"]


def test_locks_on_servers_are_left_alone(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_facts, "reader_table", lambda *_, **__: pytest.fail("was asked"))
    far = Storage(file_system="nfs", disk=False)
    assert doctor_facts.lock_facts(data / "data.mdb", 1, far).unseen


def test_a_table_of_readers_is_read() -> None:
    table = "    pid     thread     txnid\n   4711 7f0b6e9c4740 12\n  42 7f0b -\n"
    assert doctor_facts.read_table(table) == ([4711, 42], 12)
    assert doctor_facts.read_table("(no active readers)\n") == ([], None)


@pytest.mark.parametrize(
    ("said", "library"),
    [
        (
            "HYDRA build details:\n    Version:                                 5.0.2\n",
            "MPICH 5.0.2",
        ),
        ("mpiexec (Open MPI) 5.0.11\n\nReport bugs", "Open MPI 5.0.11"),
        ("mpirun (OpenRTE) 4.1.4", "mpirun (OpenRTE) 4.1.4"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9", "Intel MPI"),
        ("", ""),
    ],
)
def test_a_launcher_says_which_mpi_it_is_of(said: str, library: str, tmp_path: Path) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    launcher.chmod(0o755)
    assert doctor_facts.launcher_library(str(launcher)) == library
    assert doctor_facts.launcher_library(str(tmp_path / "none")) == ""


def test_a_launcher_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text("#!/bin/sh\nexec sleep 600\n")
    launcher.chmod(0o755)
    monkeypatch.setattr(doctor_facts, "LAUNCHER_SECONDS", 0.2)
    assert doctor_facts.launcher_library(str(launcher)) == ""


def test_the_quota_of_control_groups_is_the_least(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/a/b"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    assert doctor_facts.processor_quota(str(tmp_path)) is None
    (group / "cpu.max").write_text("max 100000\n")
    (group.parent / "cpu.max").write_text("150000 100000\n")
    assert doctor_facts.processor_quota(str(tmp_path)) == 1.5


def test_what_is_no_database_is_told_in_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.mdb"
    bad.write_bytes(b"no database" * 1000)
    for path in (bad, tmp_path / "gone", tmp_path):
        done = process("doctor", path)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1


@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq")
def test_the_example_with_jq_prints_the_command(data: Path) -> None:
    command = f"{sys.executable} -m lmdbio doctor {data} --json | jq -r .command"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("lmdbio ")
    assert json.loads(call("doctor", data, "--json").stdout)["data"]


# --- a transform ---------------------------------------------------------------------------

TRANSFORMS = """
import dataclasses, threading

@dataclasses.dataclass
class Sample:
    size: int

    @staticmethod
    def of(value):
        return Sample(len(value))

def failing(value):
    raise KeyError(value[:1])

def of_the_main_thread(value):
    assert threading.current_thread() is threading.main_thread()

def leaving_a_thread(value):
    if threading.current_thread() is not threading.main_thread():
        raise SystemExit(1)

left = [66]
def only_a_few_times(value):
    left[0] -= 1
    assert left[0] > 0

number = 7
if __name__ == "__main__":
    raise SystemExit(9)
"""


@pytest.fixture
def transforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(doctor_facts, "SECONDS", 1e-3)
    monkeypatch.setattr(sys, "path", sys.path[:])
    path = tmp_path / "my_transforms.py"
    path.write_text(TRANSFORMS)
    return path


def test_a_transform_is_timed_on_records_of_the_file(data: Path, transforms: Path) -> None:
    facts = answer("doctor", data, "--transform", f"{transforms}:Sample.of")["facts"]["transform"]
    assert facts["name"].endswith("my_transforms.py:Sample.of") and not facts["error"]
    assert 0 < facts["seconds"] < 1
    if len(os.sched_getaffinity(0)) > 1:
        assert facts["gain"] > 0 and facts["free_gain"] > 0
    assert not answer("doctor", data)["facts"]["transform"]["name"]


def test_a_transform_may_be_a_modules(
    data: Path, transforms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(transforms.parent)
    sys.modules.pop("my_transforms", None)
    facts = answer("doctor", data, "--transform", "my_transforms:Sample.of")["facts"]["transform"]
    assert facts["seconds"] > 0


def test_a_transform_that_raises_is_a_problem(data: Path, transforms: Path) -> None:
    found = answer("doctor", data, "--transform", f"{transforms}:failing")["findings"]
    assert found[0]["topic"] == "transform" and "raised KeyError" in found[0]["text"]


@pytest.mark.parametrize("name", ["of_the_main_thread", "leaving_a_thread", "only_a_few_times"])
def test_a_transform_that_fails_in_a_thread_is_a_problem(
    data: Path, transforms: Path, name: str
) -> None:
    found = answer("doctor", data, "--transform", f"{transforms}:{name}")["findings"]
    assert found[0]["topic"] == "transform" and ", in a thread." in found[0]["text"]


def test_ctrl_c_ends_a_transform_that_does_not_come_back(data: Path, transforms: Path) -> None:
    transforms.write_text(
        "import threading, time\n"
        "def sleeping(value):\n"
        "    if threading.current_thread() is not threading.main_thread():\n"
        "        print('asleep', flush=True)\n"
        "        time.sleep(300)\n"
    )
    words = [sys.executable, "-m", "lmdbio", "doctor", str(data), "--transform"]
    with subprocess.Popen(
        [*words, f"{transforms}:sleeping"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "asleep\n"
            child.send_signal(signal.SIGINT)
            _, text = child.communicate(timeout=20)
        finally:
            child.kill()
    assert (child.returncode, text.strip()) == (130, "lmdbio: interrupted")


def test_a_second_thread_that_cannot_be_started_is_told(data: Path, transforms: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor: no second thread is tried")
    transforms.write_text(
        "import threading\n"
        "start = threading.Thread.start\n"
        "def start_one(thread):\n"
        "    if threading.active_count() > 1:\n"
        "        raise RuntimeError('no more threads')\n"
        "    start(thread)\n"
        "threading.Thread.start = start_one\n"
        "def quick(value):\n"
        "    pass\n"
    )
    words = [sys.executable, "-m", "lmdbio", "doctor", str(data), "--transform"]
    done = subprocess.run(
        [*words, f"{transforms}:quick"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert "RuntimeError: no more threads, in a thread" in " ".join(done.stdout.split())


def test_a_file_that_leaves_when_it_is_imported_is_a_wrong_use(
    data: Path, transforms: Path
) -> None:
    transforms.write_text("raise SystemExit(5)")
    done = call("doctor", data, "--transform", f"{transforms}:f")
    assert done.exit_code == 2 and "SystemExit" in done.stderr


def test_a_transform_of_an_empty_file_cannot_be_tried(transforms: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "empty", [])
    done = call("doctor", path, "--transform", f"{transforms}:Sample.of")
    assert done.exit_code == 0 and "there is no record to try it on" in done.stdout


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("{}", "is not FILE.py:NAME or MODULE:NAME"),
        ("{}:", "is not FILE.py:NAME or MODULE:NAME"),
        ("{}:nothing", "AttributeError"),
        ("{}:number", "is no function"),
        ("no_such_module:f", "ModuleNotFoundError"),
        ("/no/such/file.py:f", "there is no file /no/such/file.py"),
    ],
)
def test_a_transform_that_is_not_there_is_a_wrong_use(
    data: Path, transforms: Path, given: str, why: str
) -> None:
    done = call("doctor", data, "--transform", given.format(transforms))
    assert done.exit_code == 2 and why in done.stderr
