"""Readers beside writers: what is read is of one state, and of the state that it is said to be.

Goal: no read is torn by a commit, and none of what a writer has overwritten is handed out.
Method: a process that does nothing but write meta pages, as fast as it can, each telling which
transaction it is of; a short run of ``make writers``, whose random seed is today's and is printed,
and proofs that it would notice.
"""

from __future__ import annotations

import importlib
import json
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import lmdb
import pytest

from lmdbio import _core
from lmdbio.errors import MovedError
from tests.support import TESTS

WRITERS = TESTS / "writers"

#: Writes meta pages for transactions 2 and on, each into its slot, with as many entries in the
#: main database as the transaction's number.
METAS = """
import os, struct, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
body = bytearray(os.pread(fd, 136, 4096 + 16))
txnid, end = 2, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    struct.pack_into("<Q", body, 24 + 48 + 32, txnid)
    struct.pack_into("<Q", body, 128, txnid)
    os.pwrite(fd, body, 4096 * (txnid & 1) + 16)
    txnid += 1
"""


def test_a_meta_page_is_not_torn_by_the_commit_that_writes_it(tmp_path: Path) -> None:
    data = tmp_path / "data.mdb"
    with lmdb.open(str(data), subdir=False, lock=False) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    looks, seen = 0, set()
    with subprocess.Popen([sys.executable, "-c", METAS, str(data), "60"]) as writer:
        try:
            with _core.Engine(data) as engine:
                # On a busy machine both come to run seldom, and each time sees few transactions.
                while writer.poll() is None and (looks < 20_000 or len(seen) <= 1000):
                    meta = _core.read_meta(engine)
                    assert meta.main_db.entries == meta.txnid
                    looks += 1
                    seen.add(meta.txnid)
        finally:
            writer.kill()
    print(f"{looks} looks, {len(seen)} transactions seen")
    assert len(seen) > 1000


class HalfWritten:
    """A file, elsewhere, whose first answers show meta pages that a writer is in the middle of.

    Args:
        content: of the file.
        halves: the metas of the first answers; of the last of them, all others.
    """

    url = name = "half"
    validator, keeps_state = "", False

    def __init__(self, content: bytes, halves: list[bytes]) -> None:
        self._content, self._halves, self.size = content, halves, len(content)
        self.answers = 0

    def read_into(self, offset: int, into: memoryview, is_given_up: object) -> int:
        half = self._halves[min(self.answers, len(self._halves) - 1)]
        self.answers += 1
        whole = half + self._content[len(half) :]
        into[:] = whole[offset : offset + len(into)]
        return 1

    def close(self) -> None: ...


def metas(data: Path, last_pgno: int | None = None, txnid: int | None = None) -> bytes:
    """Both meta pages, with another last page, or transaction, in the newer one."""
    found = bytearray(data.read_bytes()[: 2 * 4096])
    with _core.Engine(data) as engine:
        at = _core.read_meta(engine).slot * 4096 + 16
    if last_pgno is not None:
        struct.pack_into("<Q", found, at + 120, last_pgno)
    if txnid is not None:
        struct.pack_into("<Q", found, at + 128, txnid)
    return bytes(found)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    data = tmp_path / "data.mdb"
    with lmdb.open(str(data), subdir=False, lock=False) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    return data


def test_a_meta_page_that_is_half_written_is_no_damage(small: Path) -> None:
    """The last page of before, and the root of after, which lies behind it."""
    half, whole = metas(small, last_pgno=1), small.read_bytes()
    file = HalfWritten(whole, [half, whole[:8192]])
    with _core.Engine.remote(file, 1) as engine:
        assert _core.read_meta(engine).main_db.entries == 1
    for_good = HalfWritten(whole, [half])
    with _core.Engine.remote(for_good, 1) as engine, pytest.raises(lmdb.CorruptedError):
        _core.read_meta(engine)
    assert for_good.answers <= 4  # by the first page size and by the largest, twice each


def test_meta_pages_that_never_agree_are_a_writer_s(small: Path) -> None:
    several = [metas(small, txnid=number) for number in range(2, 5000)]
    file = HalfWritten(small.read_bytes(), several)
    with _core.Engine.remote(file, 1) as engine, pytest.raises(MovedError, match="open it again"):
        _core.read_meta(engine)


# --- the soak, and whether it would notice ---------------------------------------------------


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType, ModuleType]:
    """The modules of the soak: what is there, who writes it, who reads it."""
    monkeypatch.syspath_prepend(str(WRITERS))
    names = ("world", "writer", "reading")
    world, writer, reading = (importlib.import_module(name) for name in names)
    return world, writer, reading


pytestmark = pytest.mark.filterwarnings("ignore:.*the tree is walked instead")

LAST = 45  # with a named database
SURFACES = ("open lock", "open no lock", "Records", "Reader")


@pytest.fixture(params=[1, 3])
def quiet(request: pytest.FixtureRequest, parts, tmp_path: Path):
    """A database whose writer rests, its progress, and its reader."""
    world, writer, reading = parts
    folder = tmp_path / "data"
    folder.mkdir()
    progress = writer.Progress(folder, create=True)
    with writer.open_world(folder, request.param) as env:
        for txnid in range(1, LAST + 1):
            progress.begin(txnid)
            writer.commit(env, txnid)
            progress.end(txnid)
    assert world.extras_there(LAST)
    writer.read_whole(folder, request.param, LAST)
    reader = reading.Reading(folder, tmp_path, 11, ("auto", "pread", "mmap"))
    yield request.param, folder, progress, reader
    reader.close()


def test_what_is_right_is_found_right(parts, quiet) -> None:
    _, _, _, reader = quiet
    for _ in range(40):
        reader.turn()
    assert not reader.breaches
    assert sum(count.right for count in reader.counts.values()) > 1000
    assert not any(count.errors for count in reader.counts.values())


def test_a_snapshot_older_than_what_was_committed_is_noticed(parts, quiet) -> None:
    _, _, progress, reader = quiet
    progress.begin(LAST + 1)
    reader.turn()
    assert not reader.breaches
    progress.end(LAST + 1)
    for _ in range(10):
        reader.turn()
    assert any(f"transaction {LAST}, not one of {LAST + 1}" in text for text in reader.breaches)


@pytest.mark.parametrize("wrong", ["older", "foreign", "torn", "missing", "more"])
def test_one_wrong_record_is_noticed(wrong: str, parts, quiet) -> None:
    world, writer, _ = parts
    version, folder, progress, reader = quiet
    now = LAST + 1
    there, touched = world.state(now)
    i, g = int(there[len(there) // 2]), int(touched[len(there) // 2])
    right = world.value(b"main", i, g)
    others = {
        "older": world.value(b"main", i, g - 1),
        "foreign": world.value(b"main", i + 1, g),
        "torn": right[: len(right) // 2] + right[len(right) // 2 - 1 : -1],
    }
    absent = next(j for j in range(world.RECORDS) if world.expected(now, j) is None)
    with writer.open_world(folder, version) as env, env.begin(write=True) as txn:
        writer.change(env, txn, now)
        if wrong == "missing":
            txn.delete(world.record_key(i))
        elif wrong == "more":
            txn.put(world.record_key(absent), b"never put")
        else:
            txn.put(world.record_key(i), others[wrong])
    progress.begin(now)
    progress.end(now)
    for _ in range(40):
        reader.turn()
    assert reader.breaches
    # Where a record is missing, who asks for the last one that should be there gets an IndexError.
    counted = [breach for breach in reader.breaches if "IndexError" not in breach]
    assert sum(count.wrong for count in reader.counts.values()) >= len(counted) > 0


@pytest.mark.more
@pytest.mark.parametrize("opens", [False, True])
def test_a_short_run_beside_writers(opens: bool, tmp_path: Path) -> None:
    figures, seed = tmp_path / "figures.json", str(int(time.time()) // 86400)
    asked = ["--reads", "30000", "--seconds", "6", "--seed", seed, "--json", str(figures)]
    asked += ["--opening", "--processes", "1"] * opens
    done = subprocess.run(
        [sys.executable, str(WRITERS / "run.py"), *asked],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-4000:]
    told = json.loads(figures.read_text())
    assert told["sums"]["right"] > (100 if opens else 2000) and told["sums"]["commits"] > 20
    assert (told["sums"]["wrong"], told["breaches"]) == (0, [])
    for surface in ("open lock", "open no lock", "Records") if opens else SURFACES:
        some = [one for name, one in told["surfaces"].items() if f" {surface}" in name]
        assert sum(one["sessions"] for one in some), surface
