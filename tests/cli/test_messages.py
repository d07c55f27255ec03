"""The command line says what is wrong in plain words, and only what is true.

Method: commands on small environments by py-lmdb, in this process; warnings, and what is piped, on
real processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest
from click.testing import CliRunner, Result

from lmdbio import cli
from tests.support import ROOT


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LMDBIO_PROVENANCE_DIR", raising=False)


def make(path: Path, count: int) -> Path:
    with lmdb.open(str(path), map_size=64 << 20) as env, env.begin(write=True) as txn:
        for number in range(count):
            txn.put(b"%08d" % number, bytes(300))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make(tmp_path / "train_lmdb", 100)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.cli, [str(one) for one in arguments])


def process(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from lmdbio.cli import main; main()", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, text=True, capture_output=True, check=False, env=os.environ | env
    )


# --- provenance files --------------------------------------------------------------------


def test_a_folder_for_provenance_files_is_made(data: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "val_lmdb", 10)
    assert call("convert", data, "--output", f"{tmp_path}/new/one/").exit_code == 0
    assert call("convert", data, other, "--output", tmp_path / "both").exit_code == 0
    assert call("convert", data, "--output", tmp_path / "deep" / "file.prov").exit_code == 0
    made = [len(list((tmp_path / name).iterdir())) for name in ("new/one", "both", "deep")]
    assert made == [1, 2, 1]
    assert call("verify", data, "--provenance", tmp_path / "both").exit_code == 0


def test_people_read_of_a_provenance_file(data: Path) -> None:
    told = [call(*words).output for words in (("convert", data), ("info", data), ("verify", data))]
    assert all("  provenance file" in text and "sidecar" not in text for text in told)


def test_a_provenance_file_that_was_named_must_be_there(data: Path, tmp_path: Path) -> None:
    done = call("plan", data, "--provenance", tmp_path / "missing")
    assert done.exit_code == 1 and "missing" in str(done.exception)
    assert call("plan", data).exit_code == 0


def test_what_a_foreign_provenance_file_says_is_not_told_of_this_data(
    data: Path, tmp_path: Path
) -> None:
    other = make(tmp_path / "other_lmdb", 777)
    assert call("convert", other).exit_code == 0
    foreign = other / "data.mdb.prov"
    told = call("info", data, "--provenance", foreign).output
    assert "stale" in told and "777 records" not in told and "replayed" not in told
    found: Any = json.loads(call("info", data, "--provenance", foreign, "--json").output)
    assert found["sidecar"]["status"] == "stale" and "databases" not in found["sidecar"]


def test_form_runs_says_what_it_is_for(data: Path) -> None:
    told = str(call("convert", data, "--form", "runs").exception)
    assert "begin a page of their own" in told and "take form leaves" in told


# --- traces ------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"text", b"\xde\xad", b"[1, 2]", b"{}"])
def test_a_file_that_is_no_trace_is_called_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    told = str(call("trace", tmp_path / "file").exception)
    assert "no trace" in told and "codec" not in told and "column" not in told


# --- warnings and pipes ------------------------------------------------------------------


def test_a_warning_is_one_line_without_source(data: Path) -> None:
    done = process("plan", data, LMDBIO_TRACE="/nowhere/trace.json")
    assert done.returncode == 0
    assert done.stderr == (
        "lmdbio: /nowhere/trace.json: no trace can be written there: No such file or directory\n"
    )


@pytest.mark.parametrize("command", ["plan", "info"])
def test_piped_tables_end_without_blanks(data: Path, command: str) -> None:
    lines = process(command, data).stdout.splitlines()
    assert len(lines) > 3
    assert all(line == line.rstrip() for line in lines)
