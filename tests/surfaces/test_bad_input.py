"""Files that are not, or no longer, what they should be.

Goal: every kind of bad input gives an exception of py-lmdb's family or an OSError that names
the file and the reason; never a crash, a hang or bytes. Method: take good databases, break
them in one known way each, and go through every door: Records, open, convert, verify.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import lmdb
import pytest

import lmdbio
from lmdbio.convert.convert import convert
from tests.support import databases

PAGE = 4096
META_AT = {1: 16, 3: 24}


def make(folder: Path, version: int, records: int = 400) -> Path:
    """A data file with branch, leaf and overflow pages."""
    env = databases.open_writable(folder / "env", version)
    databases.write(env, ((b"%08d" % i, bytes([i % 251]) * 3000) for i in range(records)))
    env.close()
    path = folder / "env" / "data.mdb"
    size = (meta(path)["last_pgno"] + 1) * PAGE
    os.truncate(path, size)  # what the writer reserved beyond the last page
    return path


def meta(path: Path) -> dict[str, int]:
    with lmdbio._core.Engine(path) as engine:
        found = lmdbio._core.read_meta(engine)
    return {
        "slot": found.slot,
        "last_pgno": found.last_pgno,
        "root": found.main_db.root,
        "version": found.layout.version,
    }


def poke(path: Path, offset: int, layout: str, *values: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack(layout, *values))


def peek(path: Path, offset: int, layout: str) -> tuple[int, ...]:
    with path.open("rb") as file:
        file.seek(offset)
        return struct.unpack(layout, file.read(struct.calcsize(layout)))


def by_records(path: Path) -> None:
    with lmdbio.Records(path, locate="scan") as records:
        for value in records:
            assert len(value) == 3000


def by_open(path: Path) -> None:
    with lmdbio.open(str(path), subdir=False, readonly=True, lock=False) as env:
        with env.begin() as txn:
            for _key, value in txn.cursor():
                assert len(value) == 3000


def by_convert(path: Path) -> None:
    convert(path)


DOORS = [by_records, by_open, by_convert]


def refused(path: Path, reason: str, doors=DOORS, kind=(lmdb.Error, OSError)) -> None:
    for door in doors:
        with pytest.raises(kind) as caught:
            door(path)
        assert str(path) in str(caught.value), (door.__name__, caught.value)
        assert reason in str(caught.value), (door.__name__, caught.value)
    assert not list(path.parent.glob("*.prov*")), "a sidecar, or a part of one, was left"


def test_a_missing_file_is_named(tmp_path):
    refused(tmp_path / "nothing", "o such")


def test_a_folder_without_a_database_is_named(tmp_path):
    refused(tmp_path, "", [by_records, by_convert])
    with pytest.raises((lmdb.Error, OSError), match=str(tmp_path)):
        lmdbio.open(str(tmp_path), readonly=True, lock=False)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"x", "not an LMDB database"),
        (b"\x89PNG" + bytes(10000), "not an LMDB database"),
        (bytes(100000), "not an LMDB database"),
    ],
)
def test_what_is_not_lmdb_is_told(tmp_path, content, reason):
    path = tmp_path / "data.mdb"
    path.write_bytes(content)
    refused(path, reason, [by_records, by_convert], lmdb.InvalidError)
    refused(path, reason, [by_open], lmdb.InvalidError if content else lmdb.Error)  # as py-lmdb


@pytest.mark.parametrize("version", databases.FORMATS)
def test_a_file_cut_inside_its_metas_is_told(tmp_path, version):
    path = make(tmp_path, version)
    for size in (20, 100, PAGE, PAGE + 100):
        os.truncate(path, size)
        refused(path, "")


@pytest.mark.parametrize("version", databases.FORMATS)
def test_a_truncated_database_is_told_with_offset_and_bytes(tmp_path, version):
    path = make(tmp_path, version)
    os.truncate(path, 100 * PAGE)
    refused(path, "")
    with pytest.raises(lmdb.Error, match=r"wanted \d+ bytes at offset \d+, got \d+"):
        by_records(path)


def test_files_of_32_bit_machines_are_told_apart(tmp_path):
    path = tmp_path / "data.mdb"
    head = bytearray(2 * PAGE)
    head[6:8] = struct.pack("<H", 8)
    head[12:16] = struct.pack("<I", 0xBEEFC0DE)
    path.write_bytes(head)
    refused(path, "32-bit", kind=lmdb.VersionMismatchError)


@pytest.mark.parametrize("version", databases.FORMATS)
def test_files_of_the_other_byte_order_are_told_apart(tmp_path, version):
    path = make(tmp_path, version)
    for page in (0, 1):
        poke(path, page * PAGE + META_AT[version], ">I", 0xBEEFC0DE)
    refused(path, "byte order", kind=lmdb.VersionMismatchError)


@pytest.mark.parametrize(("version", "written"), [(1, 2), (1, 3), (3, 1), (3, 999)])
def test_unknown_data_formats_are_told_apart(tmp_path, version, written):
    path = make(tmp_path, version)
    for page in (0, 1):
        poke(path, page * PAGE + META_AT[version] + 4, "<I", written)
    refused(path, "format", kind=lmdb.VersionMismatchError)


def test_encrypted_files_are_told_apart(tmp_path):
    path = make(tmp_path, 3)
    for page in (0, 1):
        at = page * PAGE + META_AT[3] + 24 + 4
        poke(path, at, "<H", peek(path, at, "<H")[0] | 0x2000)
    refused(path, "encrypted", kind=lmdb.VersionMismatchError)


@pytest.mark.parametrize("version", databases.FORMATS)
def test_a_cycle_in_the_tree_ends(tmp_path, version):
    path = make(tmp_path, version)
    root, header = meta(path)["root"], META_AT[version]
    lower = peek(path, root * PAGE + header - 4, "<H")[0] + (header if version == 3 else 0)
    node = peek(path, root * PAGE + header + 2, "<H")[0] + (header if version == 3 else 0)
    assert lower > header + 2
    poke(path, root * PAGE + node, "<I", root)  # the second child is the root itself
    refused(path, "")


@pytest.mark.parametrize("version", databases.FORMATS)
def test_a_page_reached_twice_is_told(tmp_path, version):
    path = make(tmp_path, version)
    root, header = meta(path)["root"], META_AT[version]
    base = root * PAGE + (header if version == 3 else 0)
    first, second = peek(path, root * PAGE + header, "<HH")
    child = peek(path, base + first, "<I")[0]
    poke(path, base + second, "<I", child)
    refused(path, "reached twice", [by_records, by_convert])


@pytest.mark.parametrize("version", databases.FORMATS)
@pytest.mark.parametrize("page", [2**31, 2**47])
def test_values_beyond_the_file_are_told(tmp_path, version, page):
    path = make(tmp_path, version, records=1)
    root, header = meta(path)["root"], META_AT[version]
    node = peek(path, root * PAGE + header, "<H")[0] + (header if version == 3 else 0)
    poke(path, root * PAGE + node + 8 + 8, "<Q", page)  # node header, key of 8 bytes, pgno
    refused(path, "outside the")


@pytest.mark.parametrize("version", databases.FORMATS)
def test_a_length_beyond_the_file_is_told(tmp_path, version):
    path = make(tmp_path, version, records=1)
    root, header = meta(path)["root"], META_AT[version]
    node = peek(path, root * PAGE + header, "<H")[0] + (header if version == 3 else 0)
    poke(path, root * PAGE + node, "<HH", 0xFFFF, 0xFFFF)
    refused(path, "")


@pytest.mark.parametrize("version", databases.FORMATS)
def test_a_root_outside_the_file_is_told(tmp_path, version):
    path = make(tmp_path, version)
    for page in (0, 1):
        at = page * PAGE + META_AT[version] + 24 + 48 + 40
        poke(path, at, "<Q", 2**40)
    refused(path, "root page")


def test_a_missing_named_database_is_named(tmp_path):
    path = make(tmp_path, 1)
    with pytest.raises(LookupError, match="gone"):
        lmdbio.Records(path, db="gone")


@pytest.mark.parametrize("version", [1, 3])
def test_meta_pages_that_vanish_while_a_file_is_open_are_noticed(
    tmp_path: Path, version: int
) -> None:
    path = make(tmp_path, version)
    with lmdbio.Records(path, engine="pread") as records:
        assert len(records[0]) == 3000
        poke(path, META_AT[version], "<I", 0)
        with pytest.raises(lmdb.InvalidError, match=r"data\.mdb.*magic"):
            records.read([1])
    poke(path, META_AT[version], "<I", 0xBEEFC0DE)
    with lmdbio.open(str(path.parent), readonly=True, lock=False) as env, env.begin() as txn:
        poke(path, META_AT[version], "<I", 0)
        with pytest.raises(lmdb.InvalidError, match=r"data\.mdb.*magic"):
            txn.get(b"00000399")
