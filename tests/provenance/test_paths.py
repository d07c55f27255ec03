"""Only what somebody has named is read, and only what is data.

Goal: an empty path names nothing, wherever it is given; of a folder and of a pattern, what lies
beside data is left out: provenance files, lock files, and what macOS and others hide there.

Method: a current folder that is an environment; folders of shards with strange neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio import torch
from lmdbio.cli import cli
from lmdbio.convert.convert import convert
from lmdbio.provenance import data_files
from lmdbio.provenance.paths import as_given, lies_beside

NEIGHBOURS = ("._a.lmdb", ".hidden.lmdb", ".DS_Store", "a.lmdb.prov", "a.lmdb-lock")


def make(path: Path, count: int = 3, **words: Any) -> Path:
    with lmdb.open(str(path), map_size=1 << 20, **words) as env, env.begin(write=True) as txn:
        for number in range(count):
            txn.put(b"%d" % number, b"value")
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, an environment."""
    monkeypatch.chdir(make(tmp_path))
    return tmp_path


SURFACES: dict[str, Callable[[Any], Any]] = {
    "Records": lmdbio.Records,
    "Reader": lambda path: lmdbio.Reader(path, 1),
    "Loader": lambda path: torch.Loader(path, 1),
    "Dataset": torch.Dataset,
    "convert": convert,
    "absolute": lambda path: as_given(path, absolute=True),
    "provenance": lambda path: lmdbio.Records(Path.cwd(), provenance=path),
    "output": lambda path: convert(Path.cwd(), output=path),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_an_empty_path_names_no_folder(here: Path, surface: str) -> None:
    before = sorted(here.iterdir())
    with pytest.raises(FileNotFoundError, match="an empty path"):
        SURFACES[surface]("")
    assert sorted(here.iterdir()) == before
    assert len(lmdbio.Records(".")) == len(lmdbio.Records(Path())) == 3


@pytest.mark.parametrize("surface", ["Records", "Reader", "Loader"])
def test_an_empty_path_in_a_list_names_none(here: Path, surface: str) -> None:
    with pytest.raises(FileNotFoundError, match="an empty path"):
        SURFACES[surface]([".", ""])


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("subdir", [False, True])
def test_an_empty_path_is_opened_as_by_py_lmdb(here: Path, lock: bool, subdir: bool) -> None:
    words = {"readonly": True, "lock": lock, "subdir": subdir}
    with pytest.raises(lmdb.Error) as theirs:
        lmdb.open("", **words)
    with pytest.raises(lmdb.Error) as ours:
        lmdbio.open("", **words)
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))


COMMANDS = [
    *(["ls"], ["head"], ["info"], ["verify"], ["doctor"], ["convert"], ["plan"], ["gallery"]),
    *(["bench"], ["tune"], ["export", "there"], ["get", "0"], ["cat", "0"], ["compact", "there"]),
    *(["cache", "list"], ["cache", "verify"], ["cache", "clear"], ["trace"], ["simulate"]),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_refuses_an_empty_path(here: Path, words: list[str]) -> None:
    before = sorted(here.iterdir())
    line = [*words, ""] if words[0] == "cache" else [words[0], "", *words[1:]]
    done = CliRunner().invoke(cli, line)
    assert done.exit_code == 2 and "the path is empty (an unset variable?)" in done.output
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize("option", ["--provenance", "--cache"])
def test_an_option_refuses_an_empty_path(here: Path, option: str) -> None:
    done = CliRunner().invoke(cli, ["info", ".", option, ""])
    assert done.exit_code == 2 and "the path is empty" in done.output


# --- what lies beside data -----------------------------------------------------------------


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for name in ("a.lmdb", "b.lmdb", "key-lock"):
        make(tmp_path / name, subdir=False)
        convert(tmp_path / name)
    make(tmp_path / "c.lmdb-lock", lock=False)  # a folder, which may have any name
    for name in NEIGHBOURS:
        if not (tmp_path / name).exists():
            (tmp_path / name).write_bytes(b"\0\x05\x16\x07 no data")
    (tmp_path / ".snapshot").mkdir()
    make(tmp_path / ".snapshot" / "data.mdb", subdir=False)
    return tmp_path


def test_a_pattern_leaves_out_what_lies_beside_data(shards: Path) -> None:
    inside = shards / "c.lmdb-lock" / "data.mdb"
    wanted = [shards / "a.lmdb", shards / "b.lmdb", inside, shards / "key-lock"]
    assert sorted(data_files(f"{shards}/*")) == sorted(map(str, wanted))
    assert len(lmdbio.Records(f"{shards}/*")) == 12
    with pytest.raises(FileNotFoundError, match="provenance and lock files are left out"):
        data_files(f"{shards}/*.prov")


def test_a_folder_leaves_out_what_is_hidden(shards: Path) -> None:
    inside = shards / "c.lmdb-lock" / "data.mdb"
    assert data_files(shards) == [str(shards / name) for name in ("a.lmdb", "b.lmdb", inside)]


def test_a_hidden_folder_is_read_where_it_is_named(shards: Path) -> None:
    assert len(lmdbio.Records(shards / ".snapshot")) == 3
    assert data_files(f"{shards}/.snap*/*") == [str(shards / ".snapshot" / "data.mdb")]


def test_a_pattern_of_an_environment_is_its_data_file(tmp_path: Path) -> None:
    make(tmp_path / "env")
    convert(tmp_path / "env")
    assert {one.name for one in (tmp_path / "env").iterdir()} == {
        "data.mdb", "data.mdb.prov", "lock.mdb"
    }  # fmt: skip
    assert len(lmdbio.Records(f"{tmp_path}/env/*")) == 3


def test_a_pattern_that_a_shell_has_replaced_is_the_same(shards: Path) -> None:
    paths = [str(path) for path in sorted(shards.iterdir()) if not path.name.startswith(".")]
    for command in ("info", "verify", "plan", "convert"):
        done = CliRunner().invoke(cli, [command, *paths], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    done = CliRunner().invoke(cli, ["info", str(shards / "a.lmdb.prov")])
    assert done.exit_code == 1 and isinstance(done.exception, lmdbio.Error)


def test_a_lock_file_has_data_beside_it(shards: Path) -> None:
    names = [path.name for path in shards.iterdir() if lies_beside(path)]
    shard_names = ("a.lmdb", "b.lmdb", "key-lock")
    assert sorted(names) == sorted(
        f"{name}{end}" for name in shard_names for end in ("-lock", ".prov")
    )
    assert not any(map(lies_beside, (".", "..", "/", "-lock")))
