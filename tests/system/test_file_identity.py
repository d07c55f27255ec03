"""Two looks at a file: what says that it is the same, and what says that it has changed.

Goal: roots, provenance files and remembered checks judge by one value.
Method: files made here, and identities with one field changed.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lmdbio.system.file_identity import FileIdentity


@pytest.fixture
def known(tmp_path: Path) -> FileIdentity:
    (tmp_path / "file").write_bytes(b"some bytes")
    return FileIdentity.of((tmp_path / "file").stat())


def test_two_looks_at_a_file_that_nobody_wrote_to_are_equal(
    known: FileIdentity, tmp_path: Path
) -> None:
    again = FileIdentity.of((tmp_path / "file").stat())
    assert again == known and again.mark() == known.mark() and known.size == 10
    assert known.differences(again) == ()


def test_a_write_changes_it_and_leaves_the_inode(known: FileIdentity, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"others")
    os.utime(file, ns=(0, 0))
    now = FileIdentity.of(file.stat())
    assert now.is_same_inode(known) and not now.is_same_file(known)
    assert "mtime_ns" in known.differences(now) and now.mark() != known.mark()


def test_a_file_put_in_its_place_is_another_inode(known: FileIdentity, tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"some bytes")
    (tmp_path / "new").replace(tmp_path / "file")
    assert not FileIdentity.of((tmp_path / "file").stat()).is_same_inode(known)


@pytest.mark.parametrize(
    ("field", "is_same"),
    [("ino", False), ("size", False), ("mtime_ns", False), ("dev", True), ("ctime_ns", True)],
)
def test_nodes_that_number_their_devices_differently_see_one_file(
    known: FileIdentity, field: str, is_same: bool
) -> None:
    assert replace(known, **{field: getattr(known, field) + 1}).is_same_file(known) == is_same


@pytest.mark.parametrize("field", ["ino", "size", "mtime_ns", "dev", "ctime_ns"])
def test_what_is_remembered_is_of_one_state_of_one_file(known: FileIdentity, field: str) -> None:
    other = replace(known, **{field: getattr(known, field) + 1})
    assert other.mark() != known.mark()
    assert replace(known, host=bytes(16)).mark() != known.mark()
