"""Goal: commands take many files as one data set, and tell of each what is wrong with it.

Method: a folder of small files of both formats, some of them damaged; the same commands on the
folder, on a pattern and on all paths.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import lmdb
import pytest

from lmdbio import Reader, Records
from lmdbio.convert.convert import convert
from tests.cli.test_cli import answer, call, process
from tests.support import ROOT, databases, long_run
from tests.support.range_server import RangeServer

COUNTS = (30, 0, 12, 50)


def value(file: int, i: int) -> bytes:
    return b"%d/%d " % (file, i) * (1 + i * 61 % 800)


def write(path: Path, count: int, file: int = 0) -> None:
    version = databases.FORMATS[file % 2]
    with databases.open_writable(path, version, subdir=False, map_size=1 << 24) as env:
        databases.write(env, [(b"%03d" % i, value(file, i)) for i in range(count)])


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    folder.mkdir()
    for file, count in enumerate(COUNTS):
        write(folder / f"part-{file}.lmdb", count, file)
    return folder


@pytest.fixture
def files(shards: Path) -> list[str]:
    return [str(shards / f"part-{file}.lmdb") for file in range(len(COUNTS))]


def spoil(path: str) -> None:
    Path(path).write_bytes(b"no database" * 1000)


def test_a_folder_a_pattern_and_paths_are_converted_and_what_is_good_is_left_alone(
    shards: Path, files: list[str]
) -> None:
    first = answer("convert", shards)
    assert [one["data"] for one in first] == files
    assert [one["records"] for one in first] == list(COUNTS)
    with Records(shards, locate="provenance") as records:
        assert len(records) == sum(COUNTS)
    for source in ([shards], [f"{shards}/*.lmdb"], files):
        assert [one["up_to_date"] for one in answer("convert", *source)] == [True] * 4
        assert call("convert", *source).output.count("is up to date") == 4
    write(Path(files[2]), 13, 2)
    again = answer("convert", shards)
    assert [one.get("records") for one in again] == [None, None, 13, None]
    assert all("records" in one for one in answer("convert", shards, "--no-update"))
    assert all("records" in one for one in answer("convert", shards, "--form", "explicit"))
    assert process("convert", shards, "--output", shards / "one.prov").returncode == 2


def test_files_that_fail_are_named_and_the_others_converted_and_verified(
    shards: Path, files: list[str]
) -> None:
    spoil(files[1])
    os.truncate(files[3], 12288)
    for command in ("convert", "verify"):
        done = process(command, shards, shards / "gone.lmdb", "--json")
        assert done.returncode == 1
        reports = json.loads(done.stdout)
        failed = [one["data"] for one in reports if "error" in one]
        assert failed == [files[1], files[3], str(shards / "gone.lmdb")]
        assert [one["records"] for one in reports if "error" not in one] == [30, 12]
        lines = done.stderr.splitlines()
        assert len(lines) == 3
        for name, line in zip(failed, lines, strict=True):
            assert name in line
    assert Path(f"{files[0]}.prov").exists() and not Path(f"{files[3]}.prov").exists()


def test_all_files_are_verified_with_their_provenance_files(
    shards: Path, files: list[str]
) -> None:
    for file in files[:2]:
        convert(file)
    found = answer("verify", shards)
    assert [one["records"] for one in found] == list(COUNTS)
    assert [one["sidecar"] is not None for one in found] == [True, True, False, False]
    assert call("verify", *files).output.count(": sound") == 4
    sidecar = Path(f"{files[0]}.prov")
    databases.overwrite(sidecar, sidecar.read_bytes()[:-8] + bytes(8))
    done = process("verify", shards)
    assert done.returncode == 1 and str(sidecar) in done.stderr and done.stdout.count("sound") == 3


def test_many_files_are_summed_up(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path / f"{number:02}.lmdb", 5)
    text = call("verify", tmp_path).output
    assert text.splitlines()[0] == "12 files: 12 sound" and "failed" not in text
    assert call("convert", tmp_path).output.splitlines()[0] == "12 files"
    spoil(tmp_path / "03.lmdb")
    assert process("verify", tmp_path).stdout.splitlines()[0] == "12 files: 11 sound"
    done = process("convert", tmp_path)
    assert [line.split() for line in done.stdout.splitlines()[2:]] == [
        ["up", "to", "date", "11"],
        ["failed", "1"],
    ]


def test_info_sums_up_and_names_what_is_not_good(shards: Path, files: list[str]) -> None:
    for file in files[:2]:
        convert(file)
    write(Path(files[0]), 31)
    found = answer("info", shards)
    assert (found["records"], found["failed"], len(found["files"])) == (93, 0, 4)
    assert found["file_bytes"] == sum(Path(file).stat().st_size for file in files)
    states = [one["sidecar"]["status"] for one in found["files"]]
    assert states == ["stale", "good", "absent", "absent"]
    assert found["storage"]["direct"] is False
    assert {found["choices"][use]["engine"] for use in ("stream", "batch")} == {"pread"}
    told = call("info", *files).output
    assert "4 files, read as one data set" in told and f"{files[0]}.prov: stale" in told
    assert "absent (2)" in told and "LMDB data version 1 (2)" in told
    largest = max(files, key=lambda file: Path(file).stat().st_size)
    assert any(largest in line for line in told.splitlines() if line.startswith("  largest"))
    spoil(files[2])
    done = process("info", shards)
    assert done.returncode == 1 and f"{files[2]}: not an LMDB" in done.stdout
    done = process("info", f"{shards}/*.lmdb", "--json")
    found = json.loads(done.stdout)
    assert (found["records"], found["failed"], done.returncode) == (81, 1, 1)
    spoil(files[0])
    spoil(files[1])
    spoil(files[3])
    done = process("info", shards)
    assert done.returncode == 1 and done.stdout.count("not an LMDB") == 4


def test_info_counts_layouts_and_named_databases(tmp_path: Path) -> None:
    for file in range(3):
        with lmdb.open(str(tmp_path / f"{file}.lmdb"), subdir=False, max_dbs=2) as env:
            if file == 2:
                db = env.open_db(b"train")
                databases.write(env, [(b"%d" % i, b"value") for i in range(5)], db=db)
            else:
                records = [(b"%d" % i, b"value") for i in range(4)]
                databases.write(env, [*records, (b"length", b"4")])
    told = call("info", tmp_path).output
    assert "ocp" in told and "train" in told and "records           15" in told


def test_reads_are_planned_and_simulated_over_all_files(shards: Path, files: list[str]) -> None:
    plan = answer("plan", shards, "--start", 25, "--count", 20)
    assert plan["records"] == sum(COUNTS) and plan["ranks"][0]["records"] == 20
    assert answer("plan", *files, "--start", 25, "--count", 20) == plan
    done = process("simulate", shards, "--epochs", 2, "--cache", "memory=1M", "--json", "-")
    assert done.returncode == 0, done.stderr


def test_cache_files_of_a_set_are_found(shards: Path, files: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    with Reader(shards, 8, epochs=1, shuffle="global", cache=f"disk={folder}") as reader:
        assert sum(len(batch) for batch in reader) == sum(COUNTS)
    (kept,) = answer("info", shards, "--cache", folder)["cache"]["files"]
    assert kept["state"] == "current" and kept["source"] == os.path.realpath(files[0])


def test_records_are_listed_and_got_file_by_file(shards: Path, files: list[str]) -> None:
    lines = call("ls", shards, "--limit", 0, "--json").output.splitlines()
    assert [json.loads(line)["file"] for line in lines] == [
        files[file] for file, count in enumerate(COUNTS) for _ in range(count)
    ]
    told = call("ls", shards, "--limit", 30).output
    assert "3 more files" in told and files[2] not in told
    keys = call("ls", f"{shards}/*.lmdb", "01", "--limit", 0, "--keys-only").output.split()
    tens = [f"{i:03}" for i in range(10, 20)]
    assert keys == [*tens, *tens[:2], *tens]
    assert call("ls", shards, "x").output == "4 files: no key begins with x\n"
    told = call("ls", shards, files[0]).output  # as a shell expands a pattern of two files
    assert told.endswith("(it is a path: quote a pattern of files)\n")
    assert call("head", shards, "-n", 35).output.count("text") >= 35
    assert call("get", shards, "040").stdout_bytes == value(3, 40)
    several = call("cat", shards, "--index", 31, "--index", 42, "040", "003").stdout_bytes
    assert several == b"".join([value(3, 40), value(0, 3), value(2, 1), value(3, 0)])
    done = process("get", shards, "--index", sum(COUNTS))
    assert done.returncode == 1 and "record 50 of 50" in done.stderr
    done = process("get", shards, "nowhere")
    assert done.returncode == 1 and "no key nowhere in any of 4 files" in done.stderr


def test_records_of_each_file_are_exported_to_a_folder_of_its_own(
    shards: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert answer("export", shards, out)["files"] == sum(COUNTS)
    for file, count in enumerate(COUNTS):
        written = sorted((out / f"part-{file}").iterdir())
        assert [one.read_bytes() for one in written] == [value(file, i) for i in range(count)]
    assert answer("export", shards, tmp_path / "some.tar", "--limit", 33)["files"] == 33


def test_a_gallery_is_of_records_of_all_files(shards: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for options, count in (((), 92), (("--limit", 23), 23), (("--limit", 40, "--first"), 40),
                           (("--limit", 20, "--random", 3), None)):  # fmt: skip
        found = answer("gallery", f"{shards}/*.lmdb", "-o", page, *options)
        assert found["records"] == count or (count is None and 10 < found["records"] <= 20)
        text = page.read_text()
        assert "part-0.lmdb and 3 more" in text
        # Values begin with the number of their file.
        files = [bool(re.search(rf"\b{file}/\d+ ", text)) for file in range(4)]
        assert files == [True, False, True, True] or options[-1:] == ("--first",)


def test_the_doctor_looks_into_the_largest_and_at_all_provenance_files(
    shards: Path, files: list[str]
) -> None:
    convert(files[3])
    found = answer("doctor", shards)
    assert found["facts"]["path"] == files[3]
    assert "3 absent, 1 good" in found["findings"][0]["text"]
    Path(f"{files[0]}.prov").write_bytes(b"no provenance file")
    found = answer("doctor", shards)
    assert found["command"] == f"lmdbio convert {shards}"
    spoil(files[1])
    found = answer("doctor", *files)
    assert any(files[1] in one["text"] for one in found["findings"])
    assert found["command"] == f"lmdbio verify {' '.join(files)}"


@pytest.mark.parametrize("command", [("compact", "{}", "copy"), ("pull", "{}", "copy")])
def test_commands_for_one_file_say_so(command: tuple[str, ...], shards: Path) -> None:
    for source in (str(shards), f"{shards}/*.lmdb"):
        done = process(*(word.format(source) for word in command))
        assert done.returncode in (1, 2) and done.stderr.count("\n") <= 5, done.stderr


def test_thousands_of_files_are_told_soon(tmp_path: Path) -> None:
    write(tmp_path / "part-0000.lmdb", 20)
    convert(tmp_path / "part-0000.lmdb")
    content = (tmp_path / "part-0000.lmdb").read_bytes()
    files = long_run.cases(2000, 1100)
    for file in range(1, files):
        (tmp_path / f"part-{file:04}.lmdb").write_bytes(content)
    begun = time.process_time()
    found = answer("info", tmp_path)
    assert len(found["files"]) == files and found["records"] == 20 * files
    assert time.process_time() - begun < 6 * files / 2000


def test_ctrl_c_ends_a_conversion_of_many_files(tmp_path: Path) -> None:
    write(tmp_path / "part-0000.lmdb", 20)
    for file in range(1, 1500):
        os.link(tmp_path / "part-0000.lmdb", tmp_path / f"part-{file:04}.lmdb")
    code = "from lmdbio.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "convert", str(tmp_path)], cwd=ROOT, stderr=subprocess.PIPE
    ) as running:
        while len(list(tmp_path.glob("*.prov"))) < 3:
            assert running.poll() is None
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert running.returncode == 130 and told.strip() == b"lmdbio: interrupted"
    others = (".lmdb", "-lock")
    made = [path.name for path in tmp_path.iterdir() if not path.name.endswith(others)]
    assert 3 <= len(made) < 1500 and all(name.endswith(".lmdb.prov") for name in made)


def test_several_urls_are_told_and_verified_as_paths_are(files: list[str], tmp_path: Path) -> None:
    contents = {f"/{Path(file).name}": Path(file).read_bytes() for file in files}
    with RangeServer(contents) as server:
        urls = [server.url(name) for name in contents]
        made = answer("convert", *urls, "--output", tmp_path / "made")
        assert [one["records"] for one in made] == list(COUNTS)
        found = answer("info", *urls, "--provenance", tmp_path / "made")
        assert found["records"] == sum(COUNTS) and found["storage"]["remote"]
        assert [one["sidecar"]["status"] for one in found["files"]] == ["good"] * 4
        assert f"{sum(COUNTS)}" in call("info", *urls).output
        assert len(answer("verify", *urls)) == 4
