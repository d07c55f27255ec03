"""Readers beside writers: what is read is of one state, and of the state that it is said to be.

Goal: no read is torn by a commit, and none of what a writer has overwritten is handed out.
Method: a process that does nothing but write meta pages, as fast as it can, each telling which
transaction it is of.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmdb

from lmdbio import _core

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
    writer = subprocess.Popen([sys.executable, "-c", METAS, str(data), "1.5"])
    looks, seen = 0, set()
    with _core.Engine(data) as engine:
        while writer.poll() is None:
            meta = _core.read_meta(engine)
            assert meta.main_db.entries == meta.txnid
            looks += 1
            seen.add(meta.txnid)
    assert writer.returncode == 0
    print(f"{looks} looks, {len(seen)} transactions seen")
    assert len(seen) > 100
