"""The commands that look into a database: ls, head, get and cat.

Goal: they give the records that py-lmdb gives, named and numbered as people type them, by reading
no more than these take; they tell what is not there in one line, and are as safe on a terminal as
the bytes are not. Method: the commands, in this process and as processes, on small databases.
"""

from __future__ import annotations

import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import time
from pathlib import Path

import lmdb
import pytest

from lmdbio.cli import values
from lmdbio.locate.view import DatabaseView
from tests.cli.test_cli import call, process
from tests.inside import samples
from tests.support import ROOT
from tests.support.databases import CASES, FORMATS, build, content
from tests.support.far import spread_out


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """An environment of images and labels, with two named databases beside them."""
    path = tmp_path / "scenes"
    with lmdb.open(str(path), map_size=1 << 26, max_dbs=4) as env:
        with env.begin(write=True) as txn:
            for index in range(1, 31):
                txn.put(b"image-%09d" % index, samples.image("JPEG", 40 + index, 30))
                txn.put(b"label-%09d" % index, b"word %d" % index)
            txn.put(b"num-samples", b"30")
            txn.put(struct.pack(">I", 7), samples.MSGPACK)
            txn.put(b"odd\n\x1b[31m\\key", b"\x1b[31m red \x1b[0m")
            depth = env.open_db(b"depth", txn=txn, integerkey=True)
            for index in range(0, 90, 3):
                txn.put(struct.pack("<Q", index), b"%d" % index, db=depth)
            tags = env.open_db(b"tags", txn=txn, dupsort=True)
            for index in range(10):
                for tag in (b"a", b"b", b"c"):
                    txn.put(b"%03d" % index, tag + b"%d" % index, db=tags)
    return path


def lines(*arguments: object) -> list[dict[str, object]]:
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- ls -----------------------------------------------------------------------------------


def test_ls_lists_keys_bytes_and_types(scenes: Path) -> None:
    done = call("ls", scenes, "image-")
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[1] == ["key", "bytes", "type"]
    size = len(samples.image("JPEG", 41, 30))
    assert rows[2] == ["image-000000001", f"{size:,}", "JPEG", "41x30"]
    assert "... and more (--limit 0 lists all)" in done.stdout
    assert len(lines("ls", scenes, "image-", "--limit", 0)) == 30


def test_ls_says_how_many_more_there_are(scenes: Path) -> None:
    total = 30 + 30 + 3 + 2
    assert f"... and {total - 20:,} more (--limit 0 lists all)" in call("ls", scenes).stdout
    assert "lists all" not in call("ls", scenes, "--limit", 0).stdout
    assert "lists all" not in call("ls", scenes, "--limit", total).stdout


def test_ls_names_the_databases_beside_the_records_and_the_next_command(scenes: Path) -> None:
    done = call("ls", scenes)
    assert "named databases: depth (30 records), tags (30 records)" in done.stdout
    command = shlex.split(next(line for line in done.stdout.splitlines() if "--db" in line))
    listed = call(*command[1:])
    assert listed.exit_code == 0 and "database depth: 30 records" in listed.stdout


def test_ls_of_named_databases_alone_lists_them(tmp_path: Path) -> None:
    for version in FORMATS:
        path = tmp_path / f"v{version}"
        options = {"lib_version": 1} if version == 3 else {}
        with lmdb.open(str(path), max_dbs=3, **options) as env:
            for name in (b"one", b"two"):
                with env.begin(write=True, db=env.open_db(name)) as txn:
                    txn.put(b"k", b"v")
        done = call("ls", path)
        assert done.exit_code == 0
        assert [line.split()[0] for line in done.stdout.splitlines()[2:4]] == ["one", "two"]
        assert "database of 1 record" in done.stdout


def test_ls_keys_only_gives_keys_that_get_takes(scenes: Path) -> None:
    for db in ((), ("--db", "depth"), ("--db", "tags")):
        keys = call("ls", scenes, "--keys-only", "--limit", 0, *db).stdout.splitlines()
        expected = content(scenes, db[1].encode() if db else None)
        assert len(keys) == len(expected)
        for key, (_, value) in zip(keys, expected, strict=True):
            done = call("cat", scenes, key, *db)
            assert done.exit_code == 0
            assert value in done.stdout_bytes


@pytest.mark.more
@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ls_lists_every_shape_of_database(case: object, version: int, tmp_path: Path) -> None:
    path = build(case, tmp_path, version)  # type: ignore[arg-type]
    found = lines("ls", path, "--limit", 0)
    named = [one["key"] for one in found if one["type"] == "database"]
    if not named:
        assert [one["bytes"] for one in found] == [len(data) for _, data in content(path)]
    for name in named:
        records = lines("ls", path, "--limit", 0, "--db", name)
        expected = content(path, str(name).encode())
        assert [one["bytes"] for one in records] == [len(data) for _, data in expected]


def test_ls_of_a_prefix_that_no_key_has_says_so(scenes: Path) -> None:
    done = call("ls", scenes, "nothing")
    assert done.exit_code == 0 and "no key begins with nothing" in done.stdout
    refused = process("ls", scenes, "1", "--db", "depth")
    assert refused.returncode == 1 and "no PREFIX" in refused.stderr


def test_ls_prints_no_bytes_that_a_terminal_obeys(scenes: Path) -> None:
    for command in (("ls", scenes, "--limit", 0), ("head", scenes, "-n", 90)):
        for more in ((), ("--json",)):
            output = call(*command, *more).stdout
            assert all(line.isprintable() for line in output.splitlines())
            assert "odd\\n\\x1b[31m\\\\key" in output.replace("\\\\", "\\") or not more


# --- head ---------------------------------------------------------------------------------


def test_head_shows_values(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 24) as env, env.begin(write=True) as txn:
        txn.put(b"a-json", samples.JSON * 1)
        txn.put(b"b-image", samples.image("PNG"))
        txn.put(b"c-binary", b"\x01\xff" * 50)
        txn.put(b"d-numbers", samples.NUMBERS.astype("<f4").tobytes())
        txn.put(b"e-text", b"first\nsecond\n")
    done = call("head", tmp_path)
    assert done.exit_code == 0
    shown = done.stdout
    assert '"caption": "a dog"' in shown
    assert "PNG 37x23" in shown
    assert "0000  01 ff 01 ff" in shown
    assert "-1 -0.993311" in shown
    assert "    first\n    second\n" in shown
    one = lines("head", tmp_path, "-n", 1)
    assert len(one) == 1 and one[0]["type"] == "JSON" and one[0]["preview"]
    many = lines("head", tmp_path, "--lines", 2)
    assert all(len(record["preview"]) <= 2 for record in many)  # type: ignore[arg-type]


# --- get and cat --------------------------------------------------------------------------


def test_get_writes_the_value_and_nothing_else(scenes: Path, tmp_path: Path) -> None:
    expected = samples.image("JPEG", 47, 30)
    done = call("get", scenes, "image-000000007")
    assert done.exit_code == 0 and done.stdout_bytes == expected
    out = tmp_path / "seven.jpg"
    assert call("get", scenes, "image-000000007", "-o", out).exit_code == 0
    assert out.read_bytes() == expected
    out.write_bytes(b"older")
    assert call("get", scenes, "num-samples", "-o", out).exit_code == 0
    assert out.read_bytes() == b"30"
    assert list(tmp_path.glob(".lmdbio*")) == []


def test_get_finds_keys_however_they_are_typed(scenes: Path) -> None:
    assert call("get", scenes, "0x00000007").stdout_bytes == samples.MSGPACK
    assert b"red" in call("get", scenes, r"odd\n\x1b[31m\\key").stdout_bytes
    assert process("get", scenes, "--", "-7").stderr.count("did you mean") == 1
    assert call("get", scenes, "27", "--db", "depth").stdout_bytes == b"27"
    assert call("get", scenes, "004", "--db", "tags").stdout_bytes == b"a4"
    assert call("cat", scenes, "004", "--db", "tags").stdout_bytes == b"a4b4c4"


def test_records_are_found_by_number(scenes: Path) -> None:
    expected = content(scenes, b"tags")
    for number in (0, 4, 17, 29):
        done = call("get", scenes, "--db", "tags", "--index", number)
        assert done.stdout_bytes == expected[number][1]
    done = call("cat", scenes, "--db", "depth", "--index", 1, "--index", 0, "6")
    assert done.stdout_bytes == b"630"
    beyond = process("get", scenes, "--db", "tags", "--index", 30)
    assert beyond.returncode == 1 and "record 30 of 30" in beyond.stderr


def test_a_record_far_behind_is_found_by_the_provenance_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for index in range(500):
            txn.put(b"%05d-%d" % (index, index * 7 % 13), b"value %d" % index)
    monkeypatch.setattr(values, "FAR_RECORDS", 100)
    walked = call("get", tmp_path, "--index", 400)
    assert walked.stdout_bytes == b"value 400"
    assert call("convert", tmp_path).exit_code == 0
    monkeypatch.setattr(DatabaseView, "at", lambda *_: pytest.fail("went over the leaves"))
    for number in (100, 400, 499):
        assert call("get", tmp_path, "--index", number).stdout_bytes == b"value %d" % number
    monkeypatch.undo()
    monkeypatch.setattr(values, "FAR_RECORDS", 100)
    beyond = process("get", tmp_path, "--index", 500)
    assert beyond.returncode == 1 and "record 500 of 500" in beyond.stderr
    with lmdb.open(str(tmp_path), map_size=1 << 24) as env, env.begin(write=True) as txn:
        txn.put(b"00000", b"first of all")  # the provenance file is stale now
    assert call("get", tmp_path, "--index", 401).stdout_bytes == b"value 400"


def test_get_of_a_key_that_is_not_there_names_those_that_are_near(scenes: Path) -> None:
    for typed, said in (
        ("image-7", "did you mean image-000000007?"),
        ("007", "did you mean image-000000007?"),
        ("label-x", "the keys beside it are label-000000030 and num-samples"),
    ):
        done = process("get", scenes, typed)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr == f"lmdbio: {scenes}/data.mdb: no key {typed}: {said}\n"
    nothing = process("cat", scenes, "num-samples", "gone")
    assert nothing.returncode == 1 and nothing.stdout == ""
    wrong = process("get", scenes)
    assert wrong.returncode == 2 and "KEY, or --index N" in wrong.stderr
    assert process("get", scenes, r"a\q").returncode == 1


def test_get_and_cat_tell_size_and_type_instead(scenes: Path) -> None:
    done = call("get", scenes, "image-000000002", "--json")
    facts = json.loads(done.stdout)
    assert (facts["type"], facts["width"], facts["height"]) == ("JPEG", 42, 30)
    both = json.loads(call("cat", scenes, "num-samples", "label-000000001", "--json").stdout)
    assert [one["bytes"] for one in both] == [2, 6]


@pytest.mark.parametrize("command", ["get", "cat"])
def test_bytes_that_are_no_text_are_not_written_to_a_terminal(command: str, scenes: Path) -> None:
    status, output = on_terminal(command, scenes, "image-000000001")
    assert status == 1 and b"--force" in output and b"\xff\xd8" not in output
    status, output = on_terminal(command, scenes, "label-000000001")
    assert status == 0 and output == b"word 1"
    status, output = on_terminal(command, scenes, "image-000000001", "--force")
    assert status == 0 and output.startswith(b"\xff\xd8")


def on_terminal(*arguments: object) -> tuple[int, bytes]:
    """Run a command whose output is a terminal; return its status and all that it wrote."""
    ours, theirs = pty.openpty()
    code = "from lmdbio.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    started = subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=ROOT)
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the last of the other side has been closed
            break
        if not part:
            break
        output += part
    os.close(ours)
    return started.wait(timeout=60), output


# --- large and damaged files --------------------------------------------------------------


def test_a_file_of_a_terabyte_is_looked_into_at_once(tmp_path: Path) -> None:
    path = tmp_path / "far.mdb"
    expected = spread_out(path, records=3000, gap_bytes=1 << 30)
    assert path.stat().st_size > 1 << 40
    begun = time.process_time()
    assert len(lines("ls", path)) == 20
    assert len(lines("head", path)) == 5
    assert call("get", path, "00001500").stdout_bytes == dict(expected)[b"00001500"]
    assert call("get", path, "--index", 2999).stdout_bytes == expected[-1][1]
    # A walk would take minutes; what these take is far below this bound.
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("command", ["ls", "head", "get", "cat"])
def test_what_is_no_database_is_told_in_one_line(command: str, tmp_path: Path) -> None:
    key = ["key"] if command in ("get", "cat") else []
    bad = tmp_path / "bad.mdb"
    bad.write_bytes(b"no database" * 1000)
    short = tmp_path / "short.mdb"
    short.write_bytes(b"")
    for path in (bad, short, tmp_path / "gone", tmp_path):
        done = process(command, path, *key)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.count("\n") == 1 and str(path) in done.stderr


def test_a_file_that_was_cut_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "data.mdb"
    with lmdb.open(str(path), subdir=False, map_size=1 << 26) as env:
        with env.begin(write=True) as txn:
            for index in range(500):
                txn.put(b"%08d" % index, bytes(5000))
    os.truncate(path, 40_000)
    done = process("ls", path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and str(path) in done.stderr


def test_a_closed_pipe_ends_a_long_listing(scenes: Path) -> None:
    command = f"{sys.executable} -m lmdbio ls {scenes} --limit 0 --keys-only | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "0x00000007\n" and done.stderr == ""
