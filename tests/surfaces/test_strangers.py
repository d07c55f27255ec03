"""A file that is handed over by mistake is named for what it is.

Goal: whoever opens a file that is no LMDB database, through whichever door, is told what it is, as
far as its first bytes tell, and what to do; a file of LMDB's that is not read here is named, too.

Method: files as other programs write them, and their first bytes where a program is not at hand.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
import zstandard
from click.testing import CliRunner

import lmdbio
from lmdbio.cli import cli
from lmdbio.convert.convert import convert
from tests.support.range_server import RangeServer

PAGE = 4096
TEXT = b"what is inside " * 999


def sqlite(path: Path) -> bytes:
    with sqlite3.connect(path / "it.sqlite") as db:
        db.execute("create table t (a)")
    return (path / "it.sqlite").read_bytes()


def packed(write: Callable[[Any], Any]) -> Callable[[Path], bytes]:
    def made(_: Path) -> bytes:
        file = io.BytesIO()
        write(file)
        return file.getvalue()

    return made


def zipped(file: Any) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.mdb", TEXT)


def tarred(file: Any) -> None:
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(__file__, "data.mdb")


def provenance_file(path: Path) -> bytes:
    return Path(convert(written(path)).sidecar).read_bytes()


def lock_file(path: Path) -> bytes:
    return (written(path) / "lock.mdb").read_bytes()


def written(path: Path) -> Path:
    with lmdb.open(str(path / "env"), map_size=1 << 20) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    return path / "env"


def at(offset: int, mark: bytes) -> bytes:
    return bytes(1) * offset + mark + bytes(PAGE)


POINTER = b"""version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 12345
"""

#: Words of its name, and the file.
STRANGERS: dict[str, tuple[str, bytes | Callable[[Path], bytes]]] = {
    "LFS": ("pointer of Git LFS: git lfs pull", POINTER),
    "HTML": ("an HTML page", b"\n <!DOCTYPE HTML><html><title>403</title>" + TEXT),
    "html": ("an HTML page", b"\xef\xbb\xbf<html lang=en>"),
    "XML": ("an XML file, perhaps what a server", b'<?xml version="1.0"?><Error/>'),
    "JSON": ("a JSON file", b'{"message": "Not Found"}'),
    "text": ("a text", b"Not found\n"),
    "zip": ("a zip archive", packed(zipped)),
    "npz": ("a zip archive (or a file of NumPy's", packed(lambda f: np.savez(f, np.arange(3)))),
    "tar": ("a tar archive", packed(tarred)),
    "gzip": ("compressed by gzip", gzip.compress(TEXT)),
    "zstd": ("compressed by zstd", zstandard.compress(TEXT)),
    "xz": ("compressed by xz", lzma.compress(TEXT)),
    "bzip2": ("compressed by bzip2", bz2.compress(TEXT)),
    "lz4": ("compressed by lz4", b"\x04\x22\x4d\x18" + bytes(99)),
    "7z": ("a 7z archive", b"7z\xbc\xaf\x27\x1c" + bytes(99)),
    "SQLite": ("an SQLite database", sqlite),
    "HDF5": ("an HDF5 file", b"\x89HDF\r\n\x1a\n" + bytes(PAGE)),
    "Parquet": ("a Parquet file", b"PAR1" + bytes(PAGE)),
    "Arrow": ("an Arrow file", b"ARROW1\0\0" + bytes(PAGE)),
    "Berkeley DB": ("a Berkeley DB database", at(12, b"\x62\x31\x05\x00")),
    "GDBM": ("a GDBM database", b"\xcf\x9a\x57\x13" + bytes(PAGE)),
    "libmdbx": ("a database of libmdbx", at(20, b"\x03\x11\x4c\xef\xbd\x9d\x65\x59")),
    "LevelDB": ("LevelDB or RocksDB", b"MANIFEST-000004\n"),
    "npy": ("an array of NumPy's", packed(lambda f: np.save(f, np.arange(3)))),
    "pickle": ("a pickle", pickle.dumps(list(range(99)))),
    "JPEG": ("a JPEG image", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(99)),
    "AppleDouble": ("macOS", b"\0\5\x16\7\0\2\0\0Mac OS X" + bytes(99)),
    "provenance": ("a provenance file of lmdbio", provenance_file),
    "lock": ("LMDB's lock file", lock_file),
    "zeros": ("zeros, as a file has them whose copy", bytes(3 * PAGE)),
}


def records(path: Path) -> Any:
    return lmdbio.Records(path)


def opened(path: Path) -> Any:
    return lmdbio.open(str(path), subdir=False, readonly=True, lock=False)


DOORS: dict[str, Callable[[Path], Any]] = {
    "Records": records,
    "Reader": lambda path: lmdbio.Reader(path, 1),
    "seek": lambda path: lmdbio.Reader(path, 1, mode="lmdb"),
    "open": opened,
    "convert": convert,
}


def make(kind: str, folder: Path) -> Path:
    content = STRANGERS[kind][1]
    path = folder / "it.lmdb"
    path.write_bytes(content if isinstance(content, bytes) else content(folder))
    return path


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_is_named(tmp_path: Path, kind: str) -> None:
    path = make(kind, tmp_path)
    for door in (records, opened):
        with pytest.raises(lmdb.InvalidError) as caught:
            door(path)
        assert f"{path}: not an LMDB database, but " in str(caught.value)
        assert STRANGERS[kind][0] in str(caught.value)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_names_it(tmp_path: Path, door: str) -> None:
    with pytest.raises(lmdb.InvalidError, match="but a pointer of Git LFS: git lfs pull"):
        DOORS[door](make("LFS", tmp_path))


@pytest.mark.parametrize("command", ["info", "ls", "verify", "doctor", "plan", "convert"])
def test_every_command_names_it(tmp_path: Path, command: str) -> None:
    done = CliRunner().invoke(cli, [command, str(make("HTML", tmp_path))])
    assert "but an HTML page" in str(done.exception)


def test_what_a_server_answers_is_named() -> None:
    page = b"<!doctype html><title>Sign in</title>"
    with RangeServer({"/it": page}) as server:
        with pytest.raises(
            lmdb.InvalidError, match="an HTML page, perhaps what a server answered"
        ):
            lmdbio.Records(server.url("/it"))


def test_what_nobody_knows_is_no_lmdb_database(tmp_path: Path) -> None:
    (tmp_path / "it.lmdb").write_bytes(bytes(range(1, 256)) * 99)
    with pytest.raises(lmdb.InvalidError, match="not an LMDB database: the magic number"):
        records(tmp_path / "it.lmdb")
    (tmp_path / "none.lmdb").touch()
    with pytest.raises(lmdb.InvalidError, match="the file is empty"):
        records(tmp_path / "none.lmdb")


def test_a_damaged_second_meta_page_makes_no_stranger(tmp_path: Path) -> None:
    path = written(tmp_path) / "data.mdb"
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(b"PAR1" + bytes(PAGE - 4))
    with pytest.raises(lmdb.Error) as caught:
        records(path)
    assert "Parquet" not in str(caught.value)


@pytest.mark.parametrize("version", [0, 1])
def test_the_format_of_lmdb_js_is_named(tmp_path: Path, version: int) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 20, lib_version=version) as env:
        with env.begin(write=True) as txn:
            txn.put(b"key", b"value")
    path = tmp_path / "data.mdb"
    data = bytearray(path.read_bytes())
    magic = b"\xde\xc0\xef\xbe"
    for page in (0, PAGE):
        place = data.index(magic, page) + len(magic)
        data[place : place + 4] = b"\2\0\0\0"
    path.write_bytes(data)
    with pytest.raises(lmdb.VersionMismatchError, match="format 2, which lmdb-js writes"):
        records(path)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("CURRENT", "a LevelDB or RocksDB database"),
        ("mdbx.dat", "a libmdbx database"),
        ("dataset_info.json", "a data set of Hugging Face's datasets"),
        (".zgroup", "a Zarr store"),
    ],
)
def test_a_folder_of_another_library_is_named(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError, match=f"it has no data.mdb, .*: it is {what}"):
        records(tmp_path)
