"""Each named database has one spelling, by which commands show it and take it.

Goal: whatever bytes a name has, the spelling that a command prints can be typed after `--db`, no
listing has a database twice, and nothing is printed that a terminal would obey.

Method: names with bytes that are no UTF-8, with control characters, backslashes and digits that
look like an escape.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio.cli import cli
from lmdbio.convert.convert import convert

#: The name, and its spelling.
NAMES = {
    b"plain": "plain",
    "größe".encode(): "größe",
    b"train\xff": "train\\xff",
    b"\xff\xfe\x80": "0xfffe80",
    b"a\x1b[31mred": "a\\x1b[31mred",
    b"two\nlines": "two\\nlines",
    b"a\\b": "a\\\\b",
    b"0xab": "0x30786162",
    b"a b": "a b",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("names") / "set"
    with lmdb.open(str(found), map_size=1 << 22, max_dbs=len(NAMES)) as env:
        for name in NAMES:
            db = env.open_db(name)
            with env.begin(write=True, db=db) as txn:
                txn.put(b"key", name)
    return found


def run(*words: str) -> Any:
    done = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert "\x1b" not in done.output
    return done


@pytest.mark.parametrize(("name", "spelling"), NAMES.items(), ids=NAMES.values())
def test_a_spelling_leads_to_its_database(path: Path, name: bytes, spelling: str) -> None:
    done = CliRunner().invoke(cli, ["get", str(path), "key", "--db", spelling, "--force"])
    assert done.stdout_bytes == name
    for command in ("ls", "head", "doctor", "plan"):
        assert run(command, str(path), "--db", spelling).exit_code == 0
    assert f"database {spelling}: 1 record" in run("ls", str(path), "--db", spelling).output


def test_bytes_that_the_shell_hands_over_are_a_spelling(path: Path) -> None:
    for name in (b"train\xff", b"\xff\xfe\x80"):
        text = name.decode("utf-8", "surrogateescape")
        assert run("ls", str(path), "--db", text).exit_code == 0
        with lmdbio.Records(path, db=text) as records:
            assert list(records) == [name]


def test_no_listing_has_a_database_twice(path: Path) -> None:
    spelled = NAMES.values()
    text = run("ls", str(path), "--limit", "3").output
    line = next(one for one in text.splitlines() if one.startswith("named databases: "))
    assert line.count("(1 record)") == 8 and line.endswith(", ...")
    listed = json.loads("[" + ",".join(run("ls", str(path), "--json").output.splitlines()) + "]")
    assert sorted(one["key"] for one in listed) == sorted(spelled)
    facts = [one for one in run("info", str(path)).output.splitlines() if "  database " in one]
    assert sorted(one.split("1 entries")[0].strip() for one in facts) == sorted(
        f"database {one}" for one in spelled
    )


def test_a_refusal_names_what_can_be_typed(path: Path) -> None:
    with pytest.raises(LookupError) as caught:
        lmdbio.Records(path)
    words = shlex.split(str(caught.value).partition("on the command line ")[2].rstrip(")"))
    assert words == ["--db", "0x30786162"]
    assert run("ls", str(path), *words).exit_code == 0
    assert "say db='0xab'" in str(caught.value)


def test_a_name_that_is_no_text_is_said_as_bytes(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 20, max_dbs=1) as env:
        env.open_db(b"\xff\xfe")
    with pytest.raises(LookupError, match=r"say db=b'\\xff\\xfe' \(on the .* --db 0xfffe\)"):
        lmdbio.Records(tmp_path)


@pytest.mark.parametrize(("text", "reason"), [("", "the name is empty"), ("a\\q", "no escape")])
@pytest.mark.parametrize("command", ["ls", "plan", "convert", "bench", "doctor"])
def test_a_name_that_is_none_is_a_wrong_use(
    path: Path, command: str, text: str, reason: str
) -> None:
    done = run(command, str(path), "--db", text)
    assert done.exit_code == 2 and reason in done.output


SURFACES: dict[str, Callable[..., Any]] = {
    "Records": lmdbio.Records,
    "Reader": lambda path, db: lmdbio.Reader(path, 1, db=db),
    "seek": lambda path, db: lmdbio.Reader(path, 1, db=db, mode="lmdb"),
    "convert": lambda path, db: convert(path, databases=[db]),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_text_names_what_its_bytes_do(path: Path, surface: str) -> None:
    SURFACES[surface](path, db="größe")
    SURFACES[surface](path, db="train\udcff")
    with pytest.raises(LookupError, match="no database named ''"):
        SURFACES[surface](path, db="")
