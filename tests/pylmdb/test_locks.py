"""The locks of a program that has a file open through py-lmdb itself, beside lmdbio.

Goal: lmdbio opened and closed in the same process takes no lock away, whatever the version of
py-lmdb: the program's snapshot stays, and it goes on writing beside other processes. Method:
another process clears slots without a lock behind them, and commits until pages are used again.
``make pylmdb`` runs this under several versions of py-lmdb.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.system import reader_slots

COUNT = 50
KEYS = [b"%04d" % i for i in range(COUNT)]
COMMITS = 8

#: Clears what seems dead, and writes all records anew, time and again.
WRITER = """
import lmdb, sys
with lmdb.open(sys.argv[1], map_size=1 << 24) as env:
    cleared = env.reader_check()
    for turn in range(int(sys.argv[2])):
        with env.begin(write=True) as txn:
            for i in range(int(sys.argv[3])):
                txn.put(b"%04d" % i, b"%d" % turn * 600)
print(cleared)
"""


def write_elsewhere(path: str, turns: int = COMMITS) -> int:
    """Commit in another process; return how many slots it took for those of dead readers."""
    words = [sys.executable, "-c", WRITER, path, str(turns), str(COUNT)]
    return int(subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=60).stdout)


@pytest.fixture
def path(tmp_path: Path) -> str:
    write_elsewhere(str(tmp_path), 1)
    return str(tmp_path)


@pytest.fixture
def theirs(path: str) -> Iterator[Any]:
    with lmdb.open(path, map_size=1 << 24) as env:
        yield env


def read_by_lmdbio(path: str) -> None:
    """Open, read, and close, as a library does of which the program knows nothing."""
    with lmdbio.open(path, readonly=True) as env, env.begin() as txn:
        assert len(list(txn.cursor())) >= COUNT
    with lmdbio.Records(path) as records:
        assert len(records) >= COUNT


def test_a_snapshot_of_the_program_outlives_lmdbio_beside_a_writer(path: str, theirs: Any) -> None:
    with theirs.begin() as txn:
        before = dict(txn.cursor())
        read_by_lmdbio(path)
        assert write_elsewhere(path) == 0
        assert dict(txn.cursor()) == before


def test_the_program_goes_on_writing_beside_other_processes(path: str, theirs: Any) -> None:
    for turn in range(3):
        read_by_lmdbio(path)
        write_elsewhere(path, 2)
        with theirs.begin(write=True) as txn:
            txn.put(b"own", b"%d" % turn)
    with theirs.begin() as txn:
        assert txn.get(b"own") == b"2"
        assert txn.get(KEYS[0]) == b"1" * 600


def test_the_lock_of_a_write_transaction_keeps_other_writers_out(path: str, theirs: Any) -> None:
    with theirs.begin(write=True) as txn:
        txn.put(b"own", b"1")
        read_by_lmdbio(path)
        words = [sys.executable, "-c", WRITER, path, "1", str(COUNT)]
        with pytest.raises(subprocess.TimeoutExpired):  # it waits for the program
            subprocess.run(words, check=True, timeout=2, stdout=subprocess.DEVNULL)
        txn.put(b"own", b"2")
    with theirs.begin() as txn:
        assert txn.get(b"own") == b"2"


def test_what_lmdbio_reads_stays_or_is_refused_when_the_program_closes(path: str) -> None:
    with lmdbio.open(path, readonly=True) as ours:
        with ours.begin() as txn:
            before = {key: txn.get(key) for key in KEYS}
            try:
                lmdb.open(path, map_size=1 << 24).close()
            except lmdb.Error as error:
                assert "already open" in str(error)
            write_elsewhere(path)
            try:
                assert {key: txn.get(key) for key in KEYS} == before
            except lmdb.Error as error:
                assert "no longer protected" in str(error)
        with ours.begin() as txn:
            assert txn.get(KEYS[0]) == b"%d" % (COMMITS - 1) * 600


def test_slots_are_taken_where_py_lmdb_refuses_to_open_a_file_twice(
    path: str, theirs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lmdbio")
    try:
        lmdb.open(path, map_size=1 << 24).close()
    except lmdb.Error:
        refuses = True
    else:
        refuses = False
    assert refuses == reader_slots.refuses_twice()
    theirs.close()
    with lmdbio.open(path, readonly=True) as env, env.begin() as txn:
        assert txn.get(KEYS[0]) is not None
        assert (txn._slot is not None) == refuses
    assert ("would drop the locks" in caplog.text) != refuses
