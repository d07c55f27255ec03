"""Goal: people see what jobs keep on a disk, whether it is good, and get the room back.

Method: a Reader fills a cache file; the commands list, verify and clear it, whole, damaged,
outdated and in use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest
from click.testing import CliRunner, Result

import lmdbio
from lmdbio.cli import cli

COUNT = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for i in range(COUNT):
            txn.put(b"%04d" % i, os.urandom(3000))
    return tmp_path / "db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture
def file(path: Path, folder: Path) -> Path:
    with lmdbio.Reader(path, 10, cache=lmdbio.Cache(disk=folder), epochs=1) as reader:
        assert sum(map(len, reader)) == COUNT
    (made,) = folder.iterdir()
    return made


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result


def told(*words: object, code: int = 0) -> Any:
    return json.loads(run(*words, "--json", code=code).stdout)


def damage(file: Path) -> None:
    with file.open("r+b") as cache:
        cache.seek(-4096 * 20, os.SEEK_END)
        cache.write(os.urandom(100))


def test_a_list_says_of_which_data_and_how_much(path: Path, folder: Path, file: Path) -> None:
    text = run("cache", "list", folder).stdout
    assert file.name in text and "current" in text and f"% of {path}/data.mdb" in text
    (entry,) = told("cache", "list", folder)
    assert entry["source"] == str(path / "data.mdb") and entry["state"] == "current"
    assert 0 < entry["kept_bytes"] <= entry["source_bytes"] and not entry["is_open"]


def test_an_empty_folder_and_none_are_told(folder: Path, tmp_path: Path) -> None:
    for command in ("list", "verify"):
        assert "no cache files" in run("cache", command, folder).stdout
        assert told("cache", command, folder) == []
    assert isinstance(run("cache", "list", tmp_path / "nowhere", code=1).exception, OSError)


def test_the_variable_names_the_folder(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMDBIO_CACHE_DIR", str(folder))
    assert file.name in run("cache", "list").stdout


def test_verify_finds_a_damaged_page(folder: Path, file: Path) -> None:
    assert "0 damaged" in run("cache", "verify", folder).stdout
    damage(file)
    assert "1 damaged" in run("cache", "verify", folder, code=1).stdout
    assert told("cache", "verify", folder, code=1)[0]["damaged"] == 1
    file.write_bytes(b"something else")
    assert "no cache file" in run("cache", "verify", folder, code=1).stdout


def test_clear_removes_what_is_of_no_use_and_with_all_everything(
    path: Path, folder: Path, file: Path
) -> None:
    assert "kept, current" in run("cache", "clear", folder).stdout and file.exists()
    with lmdb.open(str(path), map_size=1 << 28) as env, env.begin(write=True) as txn:
        txn.put(b"0000", b"another")
    assert "outdated" in run("cache", "list", folder).stdout
    assert "1 file removed" in run("cache", "clear", folder).stdout and not file.exists()
    with lmdbio.Reader(path, 10, cache=lmdbio.Cache(disk=folder)) as reader:
        next(reader)
        assert told("cache", "clear", folder, "--all")[0]["kept"] == "in use"
    assert "1 file removed" in run("cache", "clear", folder, "--all").stdout
    assert not list(folder.iterdir())


def test_other_files_of_the_folder_stay(folder: Path, file: Path) -> None:
    (folder / "precious.bin").write_bytes(b"mine")
    run("cache", "clear", folder, "--all")
    assert [one.name for one in folder.iterdir()] == ["precious.bin"]


def test_info_tells_the_files_of_its_data_set(
    path: Path, folder: Path, file: Path, tmp_path: Path
) -> None:
    assert file.name in run("info", path, "--cache", folder).stdout
    files: Callable[[Path], Any] = lambda data: told("info", data, "--cache", folder)["cache"]  # noqa: E731
    assert [one["path"] for one in files(path)["files"]] == [str(file)]
    with lmdb.open(str(tmp_path / "other")) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    assert files(tmp_path / "other")["files"] == []
    assert "no file in" in run("info", tmp_path / "other", "--cache", folder).stdout
