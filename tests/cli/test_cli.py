"""The command line: answers, JSON, exit status, and one clear line for what goes wrong.

Method: most cases call the commands in this process; exit status, broken pipe and Ctrl-C are
tried on real processes. Databases are small and written by py-lmdb.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner, Result

import lmdbio
from lmdbio import _core, cli
from lmdbio.cli import bench
from lmdbio.cli.plan import covered
from lmdbio.share import LAUNCHED
from lmdbio.tuning import tune as tuning
from tests.support import ROOT, forked

COMMANDS = sorted(cli.COMMANDS)
RECORDS = 700


def value(index: int) -> bytes:
    return bytes([index % 251]) * (3000 + index % 7)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An environment of 700 records of about 3 KB, committed in pieces."""
    path = tmp_path / "train_lmdb"
    with lmdb.open(str(path), map_size=64 << 20) as env:
        for start in range(0, RECORDS, 100):
            with env.begin(write=True) as txn:
                for index in range(start, start + 100):
                    txn.put(b"%08d" % index, value(index))
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.cli, [str(one) for one in arguments], catch_exceptions=False)


def answer(*arguments: object) -> Any:
    """Return what a command says with --json."""
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def process(
    *arguments: object, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return forked.run(cli.main, ["lmdbio", *map(str, arguments)], folder=ROOT, env=env)


def test_every_command_explains_itself_with_examples() -> None:
    for name in COMMANDS:
        done = call(name, "--help")
        assert done.exit_code == 0
        assert f"lmdbio {name}" in done.output
        assert "Examples:" in done.output
        assert "--json" in done.output


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_whose_json_names_a_provenance_file_say_how(name: str) -> None:
    if name not in ("convert", "verify", "compact", "pull", "info", "demo"):
        assert '"sidecar" there' not in call(name, "--help").output
        return
    assert '(the provenance file is "sidecar" there)' in " ".join(
        call(name, "--help").output.split()
    )


def test_convert_writes_the_sidecar_beside_the_data_and_says_so(data: Path) -> None:
    done = call("convert", data)
    assert done.exit_code == 0
    assert (data / "data.mdb.prov").exists()
    assert str(data / "data.mdb.prov") in done.output
    assert f"{RECORDS:,}" in done.output


def test_convert_takes_several_paths_and_a_folder(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "val_lmdb"
    shutil.copytree(data, other)
    out = tmp_path / "sidecars"
    out.mkdir()
    reports = answer("convert", data, other, "--output", out)
    assert [report["records"] for report in reports] == [RECORDS, RECORDS]
    assert len(list(out.iterdir())) == 2
    assert not (data / "data.mdb.prov").exists()


def test_convert_of_several_paths_into_one_file_is_a_wrong_use(data: Path, tmp_path: Path) -> None:
    done = process("convert", data, data, "--output", tmp_path / "one.prov")
    assert done.returncode == 2
    assert "--output" in done.stderr


def test_convert_goes_on_past_what_cannot_be_converted(data: Path, tmp_path: Path) -> None:
    bad, last = tmp_path / "bad.mdb", tmp_path / "last"
    bad.write_bytes(b"no database" * 1000)
    shutil.copytree(data, last)
    gone = tmp_path / "gone"
    done = process("convert", data, bad, gone, last, "--json")
    assert done.returncode == 1
    first, *failed, fourth = json.loads(done.stdout)
    assert first["records"] == fourth["records"] == RECORDS
    assert [one["data"] for one in failed] == [str(bad), str(gone)]
    assert done.stderr.splitlines() == [f"lmdbio: {one['error']}" for one in failed]
    assert str(bad) in failed[0]["error"] and str(gone) in failed[1]["error"]
    assert (last / "data.mdb.prov").exists()
    done = process("convert", bad, data, "--no-update")
    assert done.returncode == 1 and str(bad) in done.stderr and f"{RECORDS:,}" in done.stdout
    alone = process("convert", bad, "--json")
    assert alone.returncode == 1 and not alone.stdout and str(bad) in alone.stderr


def test_convert_keep_does_not_replace(data: Path) -> None:
    assert call("convert", data).exit_code == 0
    before = (data / "data.mdb.prov").stat()
    done = process("convert", data, "--keep")
    assert done.returncode == 1
    assert "data.mdb.prov" in done.stderr
    assert (data / "data.mdb.prov").stat().st_ino == before.st_ino


def test_convert_update_makes_what_is_missing_or_stale_alone(data: Path, tmp_path: Path) -> None:
    other, sidecar = tmp_path / "other", data / "data.mdb.prov"
    shutil.copytree(data, other)
    assert answer("convert", data)[0]["records"] == RECORDS
    before = sidecar.stat()
    first, second = answer("convert", data, other, "--update")
    assert first == {
        "data": str(data / "data.mdb"), "sidecar": str(sidecar), "up_to_date": True
    }  # fmt: skip
    assert second["records"] == RECORDS and "up_to_date" not in second
    after = sidecar.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with lmdb.open(str(data), map_size=1 << 26) as env, env.begin(write=True) as txn:
        txn.put(b"one more", b"")
    told = call("convert", data, other, "--update").output
    assert told.count("is up to date") == 1 and f"{RECORDS + 1:,}" in told
    assert process("convert", data, "--update", "--form", "runs").returncode == 2


def test_convert_update_mends_what_is_damaged_and_loses_no_order(data: Path) -> None:
    sidecar, keys = data / "data.mdb.prov", data.parent / "keys"
    answer("convert", data, "--form", "runs")
    content = bytearray(sidecar.read_bytes())
    content[70] ^= 1  # in the first block
    sidecar.write_bytes(content)
    assert answer("convert", data, "--update")[0]["records"] == RECORDS
    order = [b"%08d" % (index * 11 % RECORDS) for index in range(RECORDS)]
    keys.write_bytes(b"\n".join(order))
    assert answer("convert", data, "--order", keys)[0]["records"] == RECORDS
    assert answer("convert", data, "--update")[0]["up_to_date"]
    with lmdb.open(str(data), map_size=1 << 26) as env, env.begin(write=True) as txn:
        txn.put(b"one more", b"")
    before = sidecar.read_bytes()
    done = process("convert", data, "--update")
    assert done.returncode == 1 and "--order" in done.stderr and str(sidecar) in done.stderr
    assert sidecar.read_bytes() == before


def test_convert_names_a_database_that_is_not_there(data: Path) -> None:
    done = process("convert", data, "--db", "nope")
    assert done.returncode == 1
    assert "nope" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_verify_tells_what_it_read(data: Path) -> None:
    call("convert", data)
    report = answer("verify", data)
    assert report["records"] == RECORDS
    assert report["sidecar_records"] == RECORDS
    assert "sound" in call("verify", data).output


def test_verify_fails_on_a_damaged_database(data: Path) -> None:
    file = data / "data.mdb"
    with _core.Engine(file) as engine:
        meta = _core.read_meta(engine)
    page = meta.layout.page_size
    with file.open("r+b") as out:
        out.seek(meta.main_db.root * page)
        out.write(b"\xff" * page)
    done = process("verify", data)
    assert done.returncode == 1
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


def test_verify_fails_on_a_damaged_sidecar(data: Path) -> None:
    call("convert", data)
    sidecar = data / "data.mdb.prov"
    content = bytearray(sidecar.read_bytes())
    content[len(content) // 2] ^= 1
    sidecar.write_bytes(content)
    done = process("verify", data)
    assert done.returncode == 1
    assert str(sidecar) in done.stderr


def test_info_tells_what_py_lmdb_tells(data: Path) -> None:
    found = answer("info", data)
    with lmdb.open(str(data), readonly=True, lock=False) as env:
        stat, about = env.stat(), env.info()
    main = found["databases"][0]
    assert main["entries"] == stat["entries"] == RECORDS
    assert main["depth"] == stat["depth"]
    assert main["overflow_pages"] == stat["overflow_pages"]
    assert found["meta"]["txnid"] == about["last_txnid"]
    assert found["meta"]["last_pgno"] == about["last_pgno"]
    assert found["meta"]["layout"]["page_size"] == stat["psize"]


def test_info_tells_every_choice_and_its_reason(data: Path, monkeypatch) -> None:
    monkeypatch.setenv("LMDBIO_GAP_BYTES", "12K")
    found = answer("info", data)
    assert set(found["choices"]) == {"stream", "batch", "single"}
    for choice in found["choices"].values():
        assert choice["gap_bytes_max"] == 12 << 10
        assert choice["reasons"]["gap_bytes_max"]["origin"] == "environment"
        assert choice["reasons"]["engine"] == {
            "origin": "facts",
            "text": choice["reasons"]["engine"]["text"],
        }
    assert found["storage"]["size_bytes"] == found["file_bytes"]
    assert found["tuned"]["calibration"] is None
    text = call("info", data).output
    for word in ("storage", "O_DIRECT", "Reader", "Records", "lmdbio.open", "LMDBIO_GAP_BYTES"):
        assert word in text
    assert found["auto_mode"]["mode"] == "LMM-DIO, in blocks"
    assert "page cache" in found["auto_cache"]["reason"]["text"]
    assert found["hint"] in text and not found["auto_cache"]["memory_bytes"]


def test_info_tells_of_the_job_that_it_runs_in(data: Path, monkeypatch) -> None:
    for name in (*LAUNCHED, "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert answer("info", data)["job"] is None and "\n  job " not in call("info", data).output
    ranks = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
    for name, text in {**ranks, "MASTER_ADDR": "localhost", "LMDBIO_HOST": "10.0.0.5"}.items():
        monkeypatch.setenv(name, text)
    text = call("info", data).output
    assert "\n  job  " in text and "8 ranks that torchrun has started on 2 machines" in text
    assert "they use sockets, and would reach this one at 10.0.0.5" in answer("info", data)["job"]
    monkeypatch.setenv("LMDBIO_HOST", "127.0.0.1")
    assert "the others would not reach this one" in answer("info", data)["job"]
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert answer("info", data)["job"] is None


def test_info_refuses_a_variable_that_makes_no_sense(data: Path) -> None:
    done = process("info", data, env={**os.environ, "LMDBIO_ENGINE": "warp"})
    assert done.returncode == 1
    assert "LMDBIO_ENGINE must be one of" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_tune_measures_keeps_and_forgets(data: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dry = answer("tune", data, "--seconds", "0.1", "--dry-run")
    assert dry["samples"]
    assert dry["kept"] is None
    assert answer("info", data)["tuned"]["calibration"] is None
    done = call("tune", data, "--seconds", "0.1")
    assert done.exit_code == 0
    assert "kept in" in done.output
    tuned = answer("info", data)["tuned"]
    assert tuned["calibration"]["identity"] == dry["identity"]
    assert tuned["file"] in call("info", data).output
    Path(tuned["file"]).write_text("{}")
    assert "run lmdbio tune again" in call("info", data).output
    assert answer("tune", data, "--forget") == {"identity": dry["identity"], "forgotten": True}
    assert "nothing was kept" in call("tune", data, "--forget").output


def test_tune_measures_a_folder_for_caches_and_leaves_nothing_there(
    data: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "FOLDER_BYTES", 64 << 20)
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK) or shutil.disk_usage(folder).free < 4 * (64 << 20):
        pytest.skip("there is no other file system with some room")
    words = "tune", data, "--seconds", "0.2", "--cache-dir", folder
    before = set(folder.iterdir())
    all_found = answer(*words)
    memory = all_found["memory"]
    assert memory["mib_per_second"]["1"] > 100 and Path(memory["kept"]).is_file()
    found = all_found["cache_dir"]
    assert found["identity"].startswith("tmpfs") and found["samples"]
    assert {path for path in set(folder.iterdir()) - before if "lmdbio" in path.name} == set()
    forgotten = [one["forgotten"] for one in answer(*words, "--forget")]
    assert forgotten == [True, True, True, False], "no job has measured the network"
    here = "tune", data, "--seconds", "0.1", "--cache-dir", data
    text = call(*here).output
    assert "which is measured" in text and "memory: MiB/s copied by threads 1: " in text
    assert answer(*here)["cache_dir"] is None
    monkeypatch.setattr(tuning, "FOLDER_BYTES_MIN", 1 << 50)
    with pytest.raises(ValueError, match="are free, too few"):
        call(*words)


def test_info_lists_named_databases(tmp_path: Path) -> None:
    path = tmp_path / "named"
    with lmdb.open(str(path), max_dbs=3) as env:
        for name in (b"train", b"val"):
            db = env.open_db(name)
            with env.begin(write=True, db=db) as txn:
                txn.put(b"key", b"x" * len(name))
    found = answer("info", path)
    assert [db["name"] for db in found["databases"]] == [None, "train", "val"]
    assert "database val" in call("info", path).output


def test_info_tells_absent_good_stale_unproven_and_damaged_sidecars(
    data: Path, tmp_path: Path
) -> None:
    def status(path: Path) -> str:
        found: str = answer("info", path)["sidecar"]["status"]
        assert found in call("info", path).output
        return found

    assert status(data) == "absent"
    call("convert", data)
    assert status(data) == "good"
    copy = tmp_path / "copy"
    shutil.copytree(data, copy, copy_function=shutil.copy)
    assert status(copy) == "unproven"
    assert answer("info", copy)["sidecar"]["deep_check"]["due"] is True
    with lmdb.open(str(copy), map_size=64 << 20) as env, env.begin(write=True) as txn:
        txn.put(b"more", b"of it")
    assert status(copy) == "stale"
    (data / "data.mdb.prov").write_bytes(b"something else")
    assert status(data) == "damaged"


def test_plan_reads_cover_exactly_the_records_and_count_the_waste(data: Path) -> None:
    with lmdb.open(str(data), readonly=True, lock=False) as env, env.begin() as txn:
        values = [bytes(found) for _, found in txn.cursor()]
    wanted = [3, 690, 17, 18, 19]
    found = answer("plan", data, "--indices", "3,690,17-19", "--gap-bytes", 0)
    (rank,) = found["ranks"]
    assert rank["records"] == len(wanted)
    assert rank["record_bytes"] == sum(len(values[index]) for index in wanted)
    reads = rank["reads"]
    assert sum(read["records"] for read in reads) == len(wanted)
    assert sum(read["waste"] for read in reads) == rank["waste_bytes"]
    assert sum(read["length"] for read in reads) == rank["buffer_bytes"]
    content = (data / "data.mdb").read_bytes()
    fetched = [content[read["offset"] : read["offset"] + read["length"]] for read in reads]
    for index in wanted:
        assert any(values[index] in piece for piece in fetched), index


def test_plan_is_the_same_with_and_without_a_sidecar(data: Path) -> None:
    walked = answer("plan", data, "--count", 50)
    call("convert", data)
    located = answer("plan", data, "--count", 50)
    assert "walking" in walked["located_by"]
    assert located["located_by"] == "the provenance file"
    assert walked["ranks"] == located["ranks"]


def test_plan_shows_each_ranks_share_of_a_circular_batch(data: Path) -> None:
    found = answer("plan", data, "--batch-size", 10, "--ranks", 4, "--iteration", 70)
    assert [rank["records"] for rank in found["ranks"]] == [2, 3, 2, 3]
    again = answer("plan", data, "--batch-size", 10, "--ranks", 4, "--iteration", 0)
    assert found["ranks"] == again["ranks"]  # 70 batches of 10 are once around


def test_plan_prints_a_row_for_each_read_and_hides_many(data: Path) -> None:
    every = "--gap-bytes", 0, "--request-bytes", 4096, "--count", 100
    assert "--all" in call("plan", data, *every).output
    shown = call("plan", data, *every, "--all").output
    assert "more reads" not in shown
    assert len(shown.splitlines()) >= 100 + 3


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (["--indices", "5-2"], 2, "backwards"),
        (["--indices", "x"], 2, "neither"),
        (["--indices", "-5"], 2, "neither"),
        (["--indices", "5-"], 2, "neither"),
        (["--indices", "0-99999999999999"], 1, "record 99999999999999"),
        (["--indices", str(10**30)], 1, f"record {10**30}"),
        (["--indices", "1", "--count", "2"], 2, "--indices"),
        (["--ranks", "2"], 2, "--batch-size"),
        (["--indices", "700"], 1, "record 700"),
        (["--start", "700"], 1, "record 700"),
        (["--start", "600", "--count", "101"], 1, "record 700"),
        (["--alignment", "3"], 2, "--alignment"),
        (["--request-bytes", "512"], 2, "--request-bytes"),
        (["--db", "nope"], 1, "nope"),
    ],
)
def test_plan_refuses_what_makes_no_sense(
    data: Path, arguments: list[str], status: int, word: str
) -> None:
    done = process("plan", data, *arguments)
    assert done.returncode == status, done.stderr
    assert word in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_plan_tells_what_an_epoch_in_an_order_takes(data: Path) -> None:
    """Each order says what is read together, and how much chance it has."""
    whole = answer("plan", data, "--batch-size", 60, "--shuffle", "windows:1x1")
    assert whole["randomness"] == 1 == whole["meeting"]
    count = whole["records"]
    for order, together in (
        ("global", 7), (f"groups:{count // 4}", count // 4), ("windows:3x5", 15), ("runs:4", 7),
    ):  # fmt: skip
        found = answer("plan", data, "--batch-size", 7, "--shuffle", order)
        assert found["shuffle"] == order and found["together"] == together
        assert found["buffers"] == -(-count // together)
        assert 0 < found["randomness"] <= 1 and found["read_over_needed"] >= 1
        assert found["requests"] >= found["buffers"] // 2
        assert (found["epochs_without_repeat"] is not None) == order.startswith("groups")
    text = call("plan", data, "--shuffle", "groups:5").output
    assert " % of a whole permutation" in text and "S < N/G holds" in text
    for name in ("group", "windows"):  # with the sizes of a Reader
        assert f"order {name}" in " ".join(call("plan", data, "--shuffle", name).output.split())
    for wrong in ("runs", "windows:4", "runs:x", "groups:0", "global:3"):
        assert call("plan", data, "--shuffle", wrong).exit_code == 2


def test_covered_bytes_equal_a_byte_by_byte_count() -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        extents = np.zeros(8, _core.EXTENT)
        extents["offset"] = rng.integers(0, 60, 8)
        extents["length"] = rng.integers(0, 12, 8)
        mask = np.zeros(100, bool)
        for extent in extents:
            mask[int(extent["offset"]) : int(extent["offset"]) + int(extent["length"])] = True
        points = np.arange(100)
        expected = [int(mask[:point].sum()) for point in points]
        assert covered(extents, points).tolist() == expected


@pytest.mark.parametrize("name", ["convert", "info", "plan", "verify"])
@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "text", "cut"])
def test_what_is_no_database_gives_one_line_with_its_name(
    name: str, kind: str, tmp_path: Path, data: Path
) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("not a database\n" * 1000, encoding="utf-8")
    elif kind == "cut":
        path.write_bytes((data / "data.mdb").read_bytes()[:9000])
    done = CliRunner().invoke(cli.cli, [name, str(path)])
    # Cut after its metas, a file still has something to tell.
    if (name, kind) != ("info", "cut"):
        assert isinstance(done.exception, cli.EXPECTED), done.output
        assert str(path) in cli.one_line(done.exception)
        assert "\n" not in cli.one_line(done.exception)


def test_a_missing_argument_is_a_wrong_use() -> None:
    done = process("info")
    assert done.returncode == 2
    assert "PATH" in done.stderr


def test_an_error_goes_to_standard_error_and_exits_with_1(tmp_path: Path) -> None:
    done = process("info", tmp_path / "nothing", "--json")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("lmdbio: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_has_enough_causes_no_traceback(data: Path) -> None:
    command = [sys.executable, "-c", "from lmdbio.cli import main; main()"]
    arguments = ["plan", str(data), "--count", "700", "--json"]
    child = subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()
    assert child.wait(60) == 1
    assert err == b""


def test_ctrl_c_ends_with_a_word_and_130(tmp_path: Path) -> None:
    code = (
        "import time\nfrom lmdbio import cli; from lmdbio.convert import verify\n"
        "def slow(*_, **__):\n    print('ready', flush=True)\n    time.sleep(30)\n"
        "verify.verify = slow\ncli.main()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, "verify", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    begun = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert time.monotonic() - begun < 10
    assert child.returncode == 130
    assert err.strip() == "lmdbio: interrupted"


def test_info_names_what_differs_in_a_stale_sidecar_and_promises_no_deep_check(
    data: Path,
) -> None:
    call("convert", data)
    with lmdb.open(str(data), map_size=64 << 20) as env, env.begin(write=True) as txn:
        txn.put(b"more", b"of it")
    sidecar = answer("info", data)["sidecar"]
    assert sidecar["status"] == "stale"
    assert "when converted" in sidecar["reason"]
    assert "deep_check" not in sidecar
    assert "deep check" not in call("info", data).output


def test_info_names_the_flags_of_databases(tmp_path: Path) -> None:
    path = tmp_path / "named"
    with lmdb.open(str(path), max_dbs=1) as env:
        env.open_db(b"pairs", dupsort=True)
    (line,) = (line for line in call("info", path).output.splitlines() if "pairs" in line)
    assert line.endswith(", dupsort")


@pytest.mark.usefixtures("planned")
def test_plan_shows_the_reads_that_records_would_make(data: Path) -> None:
    wanted = [3, 690, 17, 18, 19]
    (rank,) = answer("plan", data, "--indices", "3,690,17-19")["ranks"]
    with lmdbio.Records(data, locate="scan", readahead=False) as records:
        records.read(wanted)
        made = records.stats()
    assert (rank["requests"], rank["buffer_bytes"]) == (made.requests, made.read_bytes)


CLOSED = "lmdbio: standard output: is closed\n"


@pytest.mark.more
@pytest.mark.parametrize(
    "words",
    [
        *(["info"], ["info", "--json"], ["ls"], ["head"], ["verify"], ["plan"], ["doctor"]),
        *(["get", "--index", "0"], ["cat", "--index", "0"], ["--version"], ["ls", "--help"]),
    ],
    ids=" ".join,
)
def test_a_closed_standard_output_is_no_success(data: Path, words: list[str]) -> None:
    path = [] if words[-1] in ("--version", "--help") else [str(data)]
    line = shlex.join([sys.executable, "-m", "lmdbio", *words[:1], *path, *words[1:]])
    done = subprocess.run(
        ["sh", "-c", line + " >&-"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, CLOSED)


def test_a_program_has_a_closed_standard_output_as_python_has_it(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text("import sys; print('x'); sys.exit(7 * (sys.stdout is None))")
    line = f"{sys.executable} -m lmdbio run --quiet {tmp_path / 'it.py'} >&-"
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 7 and not done.stderr


@pytest.mark.parametrize("is_ignored", [False, True])
def test_an_interrupt_while_a_command_is_imported_ends_in_one_line(
    data: Path, tmp_path: Path, is_ignored: bool
) -> None:
    """A module that it imports waits to be interrupted."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Wait:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'lmdbio.locate.file_set':\n"
        "            sys.stderr.write('importing\\n')\n"
        f"            time.sleep({1 if is_ignored else 60})\n"
        "sys.meta_path.insert(0, Wait())\n"
    )
    words = [sys.executable, "-m", "lmdbio", "info", str(data)]
    line = f"trap '' INT; exec {shlex.join(words)}" if is_ignored else f"exec {shlex.join(words)}"
    env = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    with subprocess.Popen(
        ["bash", "-c", line], cwd=ROOT, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as begun:
        assert begun.stderr is not None
        assert begun.stderr.readline() == b"importing\n"
        begun.send_signal(signal.SIGINT)
        shown, told = begun.communicate(timeout=60)
    if is_ignored:
        assert begun.returncode == 0 and str(data).encode() in shown and not told
    else:
        assert (begun.returncode, shown, told) == (130, b"", b"lmdbio: interrupted\n")


def test_the_demonstration_names_what_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> Any:
        return None if name == "PIL" else find_spec(name)

    monkeypatch.setattr(bench, "find_spec", absent)
    done = CliRunner().invoke(cli.cli, ["demo", "--data", str(tmp_path / "data")])
    assert done.exit_code == 1
    assert isinstance(done.exception, cli.EXPECTED)
    assert "needs Pillow" in str(done.exception)
    assert "lmdbio[demo]" in str(done.exception)
    assert not (tmp_path / "data").exists()
