"""Files that are no databases are refused with py-lmdb's class and code, and in more words.

Goal: a program that tells errors apart by their classes finds those that it knows. Method: both
open bad files of each kind that py-lmdb refuses itself; it dies of others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio

#: The part of a file that is there, and what its error says.
PARTS = {0: "is empty", 1: "but zeros", 100: "page 0", 152: "page 1", 4096: "page 1"}


def write(data: Path, content: bytes) -> None:
    data.write_bytes(content)


def _bytes_of(content: Callable[[bytes], bytes]) -> Callable[[Path, bytes], None]:
    return lambda data, good: write(data, content(good))


def _part(size: int) -> Callable[[Path, bytes], None]:
    return _bytes_of(lambda good: good[:size])


#: Makes the data file of a kind, out of a good one's bytes; and what the error says.
KINDS: dict[str, tuple[Callable[[Path, bytes], None], str]] = {
    **{f"{size} bytes": (_part(size), told) for size, told in PARTS.items()},
    "zeros": (_bytes_of(lambda good: bytes(len(good))), "not an LMDB database"),
    "noise": (_bytes_of(lambda _: b"\x5a\x17" * 4096), "not an LMDB database"),
    "a folder": (lambda data, _: data.mkdir(), "is a folder"),
    "nothing": (lambda data, _: None, "No such file"),
    "a dead link": (lambda data, _: data.symlink_to("/nonexistent/x"), "No such file"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("bad_files") / "good"
    with lmdb.open(str(folder)) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    return (folder / "data.mdb").read_bytes()


def refused(package: Any, path: str, **options: bool) -> lmdb.Error:
    with pytest.raises(lmdb.Error) as caught:
        package.open(path, readonly=True, create=False, **options).close()
    return caught.value


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("subdir", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_class_and_code_are_those_of_py_lmdb(
    tmp_path: Path, good: bytes, kind: str, subdir: bool, lock: bool
) -> None:
    make, told = KINDS[kind]
    make(tmp_path / "data.mdb", good)
    path = str(tmp_path if subdir else tmp_path / "data.mdb")
    theirs = refused(lmdb, path, subdir=subdir, lock=lock)
    ours = refused(lmdbio, path, subdir=subdir, lock=lock)
    assert type(ours) is type(theirs) and ours.code == theirs.code
    assert path in str(ours) and told in str(ours)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.mdb")  # which py-lmdb waits for
    assert type(refused(lmdbio, str(tmp_path))) is lmdb.InvalidError
