"""``lmdbio export``: a file for each record, in a folder or in an archive.

Goal: every value is there once, whole, under a safe name; nothing is replaced unasked, and a
failure leaves no part of a file. Method: every shape of database, odd keys, a disk that fails.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import lmdb
import pytest

from lmdbio.cli import export
from tests.cli.test_cli import answer, call, process
from tests.inside import samples
from tests.support.databases import CASES, FORMATS, Case, build, content


@pytest.fixture
def images(tmp_path: Path) -> Path:
    path = tmp_path / "images_lmdb"
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for index in range(12):
            txn.put(b"image-%04d" % index, samples.image("JPEG", 30 + index, 20))
            txn.put(b"label-%04d" % index, b"%d" % index)
        txn.put(b"../escape", b"text")
        txn.put(b"\x00\x01", samples.MSGPACK)
    return path


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.more
@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_value_of_every_shape_is_exported(case: Case, version: int, tmp_path: Path) -> None:
    path = build(case, tmp_path, version)
    for name in (None, *case.databases):
        options = [] if name is None else ["--db", name.decode()]
        expected = content(path, name)
        for kind in ("folder", "tar"):
            out = tmp_path / f"{kind}-{name}.{kind}"
            report = answer("export", path, out, *options)
            plain = len(expected) - report["databases"]
            assert report["files"] == plain
            if kind == "folder":
                values = list(written(out).values())
            else:
                with tarfile.open(out) as archive:
                    values = [archive.extractfile(m).read() for m in archive]  # type: ignore
            left = sorted(
                data for key, data in expected if key.rstrip(b"\0") not in case.databases
            )
            assert sorted(values) == (left if name is None else sorted(d for _, d in expected))


def test_files_have_endings_by_their_types(images: Path, tmp_path: Path) -> None:
    done = call("export", images, tmp_path / "out")
    assert done.exit_code == 0
    files = written(tmp_path / "out")
    assert files["image-0003.jpg"] == samples.image("JPEG", 33, 20)
    assert files["label-0003.txt"] == b"3"
    assert files["%2E.%2Fescape.txt"] == b"text"
    assert files["0x0001.msgpack"] == samples.MSGPACK
    assert len(files) == 26
    assert "26 files" in done.stdout and "12 JPEG" in done.stdout
    assert not (tmp_path / "escape").exists()


def test_keys_that_match_are_exported_and_no_more_than_the_limit(
    images: Path, tmp_path: Path
) -> None:
    for pattern, limit, expected in (
        ("image-*", None, 12),
        ("*-0003", None, 2),
        ("image-*", 5, 5),
        ("0x*", None, 1),
        ("0*", None, 1),
        ("image-000[12]", None, 2),
        ("nothing*", None, 0),
        ("*", None, 26),
    ):
        out = tmp_path / f"out-{pattern.replace('/', '')}-{limit}"
        more = [] if limit is None else ["--limit", limit]
        report = answer("export", images, out, "--match", pattern, *more)
        assert report["files"] == expected == len(written(out))


def test_nothing_is_replaced_without_force(images: Path, tmp_path: Path) -> None:
    out, archive = tmp_path / "out", tmp_path / "out.tar"
    for target in (out, archive):
        assert process("export", images, target).returncode == 0
        again = process("export", images, target)
        assert again.returncode == 1 and "--force" in again.stderr and str(target) in again.stderr
        assert again.stderr.count("\n") == 1
    (out / "label-0003.txt").write_bytes(b"mine")
    (out / "other").write_bytes(b"mine too")
    assert call("export", images, out, "--force").exit_code == 0
    assert call("export", images, archive, "--force").exit_code == 0
    files = written(out)
    assert files["label-0003.txt"] == b"3" and files["other"] == b"mine too"
    assert list(tmp_path.rglob(".lmdbio*")) == []


def test_a_file_system_without_links_replaces_nothing_either(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    out = tmp_path / "out"
    out.mkdir()
    (out / "label-0011.txt").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        call("export", images, out)
    assert written(out)["label-0011.txt"] == b"mine"
    assert written(out)["image-0003.jpg"] == samples.image("JPEG", 33, 20)


def test_a_disk_that_fails_leaves_no_part_of_a_file(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def fail_later(pieces: object) -> object:
        made.append(1)
        if len(made) == 4:
            raise OSError(28, "No space left on device")
        return pieces

    monkeypatch.setattr(export, "memoryview", fail_later, raising=False)
    out = tmp_path / "out"
    with pytest.raises(OSError, match="No space left on device") as caught:
        call("export", images, out)
    assert str(out) in str(caught.value.filename)
    monkeypatch.undo()
    files = written(out)
    assert len(files) == 3
    assert all(not name.startswith(".") for name in files)


def test_an_archive_is_the_same_each_time_and_whole_or_not_there(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "1.tar", tmp_path / "2"
    call("export", images, first)
    call("export", images, "--tar", second)
    assert first.read_bytes() == second.read_bytes()
    monkeypatch.setattr(export._Pieces, "readinto", _fail)
    with pytest.raises(OSError, match="cannot write the archive") as caught:
        call("export", images, tmp_path / "3.tar")
    assert caught.value.filename == str(tmp_path / "3.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.tar", "2", "images_lmdb"]


def _fail(*_: object) -> bytes:
    raise OSError(5, "failed")


def test_large_values_are_exported_in_pieces(tmp_path: Path) -> None:
    value = bytes(range(256)) * (3 << 12)
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 26) as env, env.begin(write=True) as txn:
        txn.put(b"large", value)
    call("export", tmp_path / "db", tmp_path / "out")
    assert written(tmp_path / "out") == {"large.bin": value}
    call("export", tmp_path / "db", tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar") as archive:
        assert archive.extractfile("large.bin").read() == value  # type: ignore[union-attr]


def test_wrong_uses_are_told(images: Path, tmp_path: Path) -> None:
    assert process("export", images).returncode == 2
    assert process("export", images, "a", "--tar", "b").returncode == 2
    file = tmp_path / "file"
    file.write_bytes(b"")
    done = process("export", images, file)
    assert done.returncode == 1 and done.stderr == f"lmdbio: {file}: is no folder\n"
    report = json.loads(call("export", images, tmp_path / "n", "--json").stdout)
    assert report["to"] == str(tmp_path / "n") and report["types"]["JPEG"] == 12
