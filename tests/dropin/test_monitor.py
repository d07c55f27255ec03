"""The report of ``lmdbio run`` tells what a program read, in all its processes, however it ended.

Goal: records, bytes and openings are those of the program, whether it closes, drops or keeps what
it opens; forked processes count, and others are said not to; a program that writes nothing is
told.
Method: programs in processes of their own, and their report as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import databases

COUNT, BYTES = 300, 3000
OPENED = "env = lmdb.open(path, readonly=True, lock=False)"
READ = "txn = env.begin(); values = [txn.get(b'%08d' % i) for i in range(100)]"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    env = databases.open_writable(tmp_path / "set", 1)
    databases.write(env, ((b"%08d" % i, bytes(BYTES)) for i in range(COUNT)))
    env.close()
    return tmp_path / "set"


def ran(
    path: Path, body: str, *options: str, status: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    program = path.parent / "program.py"
    program.write_text(f"import gc, os, sys\nimport lmdb\npath = {str(path)!r}\n{body}\n")
    done = subprocess.run(
        [sys.executable, "-m", "lmdbio", "run", *options, str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=path.parent,
        env={**os.environ, "XDG_CACHE_HOME": str(path.parent / "cache"), **variables},
    )
    assert done.returncode == status, done.stderr
    return done


def report(path: Path, body: str, *options: str, status: int = 0, **variables: str) -> Any:
    """Run a program, and return its report."""
    done = ran(path, body, "--json", *options, status=status, **variables)
    return json.loads(done.stderr.splitlines()[-1])


def line(told: Any, surface: str) -> Any:
    """Return the one line of a surface."""
    (found,) = [
        way["line"]
        for file in told["files"]
        for way in file["ways"]
        if way["facts"]["surface"] == surface
    ]
    return found


@pytest.mark.parametrize(
    ("body", "opened"),
    [
        (f"{OPENED}; {READ}; txn.abort(); env.close()", 1),
        (f"{OPENED}; {READ}", 1),
        (f"{OPENED}; {READ}; del env, txn", 1),
        (f"def f():\n    {OPENED}; {READ}\nf(); gc.collect()", 1),
        (f"for _ in range(3):\n    {OPENED}\n    env.close()\n{OPENED}; {READ}", 4),
        (f"import lmdbio\n{OPENED.replace('lmdb.', 'lmdbio.')}; {READ}", 1),
        (f"import atexit\ndef f():\n    {OPENED}; {READ}\natexit.register(f)", 1),
    ],
)
def test_gets_are_counted_however_it_ends(path: Path, body: str, opened: int) -> None:
    told = report(path, body)
    (file,) = told["files"]
    assert file["file"] == str(path / "data.mdb")
    found = line(told, "lmdbio.open")
    assert found["opened"] == opened
    assert found["stats"]["records"] == 100
    assert found["stats"]["record_bytes"] == 100 * BYTES
    assert 0 < found["open_seconds"] < told["seconds"]
    assert file["before"]["bytes"] == (path / "data.mdb").stat().st_size


def test_records_and_readers_are_counted(path: Path) -> None:
    body = (
        "import lmdbio\nrecords = lmdbio.Records(path); records.read(range(50)); records[7]\n"
        "with lmdbio.Reader(path, 10, iterations=3) as reader:\n"
        "    assert list(map(len, reader)) == [10] * 3"
    )
    told = report(path, body)
    assert line(told, "Records")["stats"]["records"] == 51
    assert line(told, "Reader")["stats"]["records"] == 30
    advice = " ".join(told["files"][0]["advice"])
    assert "lmdbio convert" in advice


def test_no_descriptor_stays_open_for_the_report(path: Path) -> None:
    body = (
        f"for _ in range(50):\n    {OPENED}\n    {READ}\n    del env, txn\n"
        "assert len(os.listdir('/proc/self/fd')) < 20"
    )
    assert line(report(path, body), "lmdbio.open")["opened"] == 50


@pytest.mark.parametrize(
    ("end", "status"), [("1 / 0", 1), ("sys.exit(7)", 7), ("raise OSError(2, 'gone')", 1)]
)
def test_the_status_is_kept_and_the_report_comes_last(path: Path, end: str, status: int) -> None:
    assert report(path, f"{OPENED}; {READ}; {end}", status=status)["files"]


# --- forked and other processes

FORK = f"""
import multiprocessing
def work(number):
    {OPENED}; {READ}
    return len(values)
"""


@pytest.mark.parametrize(
    "body",
    [
        f"{FORK}\nall = [multiprocessing.get_context('fork').Process(target=work, args=(n,))"
        " for n in range(3)]\nfor one in all: one.start()\nfor one in all: one.join()",
        f"{FORK}\nwith multiprocessing.get_context('fork').Pool(3) as pool:\n"
        "    pool.map(work, range(3), 1); pool.close(); pool.join()",
        f"{FORK}\nfor _ in range(3):\n    child = os.fork()\n"
        "    if not child: work(0); sys.exit()\n    os.waitpid(child, 0)",
        f"{FORK}\n{OPENED}\nfor _ in range(3):\n    child = os.fork()\n"
        f"    if not child: {READ}; sys.exit()\n    os.waitpid(child, 0)",
    ],
)
def test_forked_processes_are_counted(path: Path, body: str) -> None:
    told = report(path, body)
    assert told["forked"] == told["counted"] == 3
    assert line(told, "lmdbio.open")["stats"]["records"] == 300
    assert not told["spawns"]


def test_what_a_parent_had_read_is_not_counted_again(path: Path) -> None:
    body = (
        f"{OPENED}; {READ}\nchild = os.fork()\nif child: os.waitpid(child, 0)\n"
        "else:\n    txn = env.begin(); txn.get(b'00000001')\n"
    )
    found = line(report(path, body), "lmdbio.open")
    assert found["stats"]["records"] == 101
    assert found["opened"] == 1


def test_a_child_that_does_not_end_by_itself_is_said_to_be_missing(path: Path) -> None:
    body = f"child = os.fork()\nif child: os.waitpid(child, 0)\nelse: {OPENED}; os._exit(0)"
    told = report(path, body)
    assert (told["forked"], told["counted"]) == (1, 0)


def test_a_child_of_a_child_is_counted(path: Path) -> None:
    body = (
        f"if not os.fork():\n    if not os.fork(): {OPENED}; {READ}\n    else: os.wait()\n"
        "else: os.wait()"
    )
    told = report(path, body)
    assert (told["forked"], told["counted"]) == (2, 2)
    assert line(told, "lmdbio.open")["stats"]["records"] == 100


def test_spawned_processes_are_said_to_be_missing(path: Path) -> None:
    body = (
        f"{FORK}\nif __name__ == '__main__':\n    one = multiprocessing.get_context('spawn')"
        ".Process(target=int)\n    one.start(); one.join()"
    )
    assert report(path, body)["spawns"]


def test_a_program_may_close_all_descriptors(path: Path) -> None:
    """A daemon does; what it opens then may have the number of the file with the accounts."""
    body = (
        "os.closerange(3, 100)\nnames = [open(f'{path}.{n}', 'wb+') for n in range(30)]\n"
        f"child = os.fork()\nif child: os.waitpid(child, 0)\n{OPENED}; {READ}"
    )
    told = report(path, body)
    assert (told["forked"], told["counted"]) == (1, 0)
    assert line(told, "lmdbio.open")["stats"]["records"] == 100
    assert not any((path.parent / f"set.{n}").stat().st_size for n in range(30))


# --- opened for writing


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("env = lmdb.open(path); txn = env.begin(); txn.get(b'1')", True),
        ("env = lmdb.open(path); t = env.begin(write=True); t.put(b'1', b'2'); t.commit()", False),
        ("lmdb.open(path + '.new')", False),
        (
            "child = os.fork()\nif child: os.waitpid(child, 0)\nlmdb.open(path).close()\n",
            True,
        ),
        (
            "lmdb.open(path).close(); child = os.fork()\nif child: os.waitpid(child, 0)\nelse:\n"
            "    env = lmdb.open(path); t = env.begin(write=True); t.put(b'1', b'2'); t.commit()",
            False,
        ),
    ],
)
def test_a_program_that_writes_nothing_is_told(path: Path, body: str, is_told: bool) -> None:
    done = ran(path, body, "--json")
    told = json.loads(done.stderr.splitlines()[-1])
    advice = " ".join(text for file in told["files"] for text in file["advice"])
    assert ("--readonly" in advice) == is_told
    assert "NotReadonlyWarning" not in done.stderr  # the report has said so
    assert line(told, "lmdb.open")["stats"]["records"] == 0


def test_readonly_has_lmdbio_read(path: Path) -> None:
    body = "env = lmdb.open(path); txn = env.begin(); txn.get(b'00000001')"
    told = report(path, body, "--readonly")
    assert line(told, "lmdbio.open")["stats"]["records"] == 1
    write = "try: lmdb.open(path).begin(write=True)\nexcept lmdb.ReadonlyError as e: print(e)"
    assert "lmdbio run --readonly" in ran(path, write, "--readonly").stdout


# --- the text


def test_the_text_says_it_all(path: Path) -> None:
    told = ran(path, f"{OPENED}; {READ}; print('mine')")
    assert told.stdout == "mine\n"
    assert str(path / "data.mdb") in told.stderr
    (row,) = [row for row in told.stderr.splitlines() if row.startswith("lmdbio.open (pread)")]
    assert row.split()[2:4] == ["1", "100"]
    assert "Traceback" not in told.stderr


def test_quiet_prints_nothing(path: Path) -> None:
    assert ran(path, f"{OPENED}; {READ}", "--quiet").stderr == ""


@pytest.mark.parametrize(
    "body",
    ["pass", "sys.stderr.close()", "sys.stdout.close()", f"{OPENED}; os.rename(path, path + 'x')"],
)
def test_it_ends_well_where_there_is_little_to_tell(path: Path, body: str) -> None:
    told = ran(path, body)
    assert "Traceback" not in told.stderr
    if body == "pass":
        assert "nothing was opened" in told.stderr


def test_a_rank_says_which_it_is(path: Path) -> None:
    assert "lmdbio run, rank 3: " in ran(path, "pass", PMI_RANK="3").stderr


@pytest.mark.more
def test_torchs_workers_are_counted(path: Path) -> None:
    pytest.importorskip("torch")
    body = """
from torch.utils.data import DataLoader, Dataset
class Set(Dataset):
    env = None
    def __len__(self): return 100
    def __getitem__(self, index):
        if self.env is None:
            self.env = lmdb.open(path, readonly=True, lock=False)
        with self.env.begin() as txn: return len(txn.get(b"%08d" % index))
for epoch in range(2):
    loader = DataLoader(Set(), 10, num_workers=2, multiprocessing_context="fork")
    assert sum(map(sum, loader)) == 300000
"""
    told = report(path, body)
    assert line(told, "lmdbio.open")["stats"]["records"] == 200
    assert line(told, "lmdbio.open")["opened"] == told["counted"] == 4
