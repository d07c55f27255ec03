"""Without its C core lmdbio gives the same bytes, orders and states, and refuses what it cannot.

Goal: a program that is tried on macOS or Windows does on a cluster what it did there. Method: one
program (surfaces.py) runs with the core, without it (``LMDBIO_CORE=0``), and without all that
Windows' Python lacks; what it prints is equal. A state of either is gone on with by the other.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.support import ROOT

HERE = Path(__file__).parent
SURFACES = str(HERE / "surfaces.py")


def run(*arguments: str, core: str = "", fails: bool = False) -> subprocess.CompletedProcess[str]:
    """Run Python with the core (""), or without it ("0")."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LMDBIO_CORE": core},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done


def told(*arguments: str, core: str = "") -> Any:
    """Return what surfaces.py prints."""
    return json.loads(run(*arguments, core=core).stdout.splitlines()[-1])


def write(path: Path, records: dict[bytes, bytes]) -> None:
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for key, value in records.items():
            txn.put(key, value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data sets: plain ones, pairs, many values of a key, and what is none."""
    made = tmp_path_factory.mktemp("portable")
    plain = {b"%08d" % i: b"%08d" % i + bytes([i % 251]) * (37 * i % 6000) for i in range(203)}
    write(made / "plain", plain)
    write(made / "more", {b"m%05d" % i: b"%08d" % i * (i % 5 + 1) for i in range(31)})
    pairs = {b"image-%09d" % i: b"picture %d" % i for i in range(1, 24)}
    pairs |= {b"label-%09d" % i: b"%d" % (i % 3) for i in range(1, 24)}
    write(made / "pairs", pairs | {b"num-samples": b"23"})
    with lmdb.open(str(made / "many"), map_size=1 << 24, max_dbs=2) as env:
        many = env.open_db(b"many", dupsort=True)
        env.open_db(b"other")
        with env.begin(write=True) as txn:
            for i in range(90):
                txn.put(b"%02d" % (i % 7), b"%08d" % (i * 7919 % 1000), db=many)
    data = (made / "plain/data.mdb").read_bytes()
    for name, content in {
        "text": b"no database" * 99,
        "cut": data[:40960],
        "page": data[:4096],
    }.items():
        (made / name).mkdir()
        (made / name / "data.mdb").write_bytes(content)
    return made


@pytest.fixture(scope="module")
def with_core(folder: Path) -> Any:
    return told(SURFACES, str(folder))


@pytest.mark.more
def test_bytes_orders_and_states_are_those_of_the_core(folder: Path, with_core: Any) -> None:
    without = told(SURFACES, str(folder), core="0")
    for name, found in with_core.items():
        assert without[name] == found, name
    assert without.keys() == with_core.keys()


@pytest.mark.more
def test_nothing_is_asked_of_the_system_that_windows_has_not(folder: Path, with_core: Any) -> None:
    program = (str(HERE / "elsewhere.py"), SURFACES, str(folder))
    assert told(*program, core="0") == with_core


@pytest.mark.more
@pytest.mark.parametrize(("first", "then"), [("", "0"), ("0", "")])
def test_a_state_goes_on_where_the_core_is_or_is_not(
    folder: Path, with_core: Any, first: str, then: str
) -> None:
    begun = told(SURFACES, str(folder), core=first) if first else with_core
    (epochs, states) = begun["loader global 0 of 1"]
    fifth = told(SURFACES, str(folder), json.dumps({**states[0], "used": 0}), core=first)
    went_on = told(SURFACES, str(folder), json.dumps(states[2]), core=then)
    assert went_on == [fifth[0][3:], fifth[1]]
    assert epochs[2:5] == fifth[0][:3]


def test_it_says_once_that_py_lmdb_reads_and_why(folder: Path) -> None:
    program = (
        f"import lmdbio\nfor _ in range(3):\n    lmdbio.Records({str(folder / 'plain')!r})[0]\n"
    )
    done = run("-c", program, core="0")
    (line,) = re.findall(".*UserWarning.*", done.stderr)
    assert line.startswith("<string>:3: UserWarning: lmdbio reads through py-lmdb")
    assert line.endswith("LMDBIO_CORE=0 leaves it out")
    assert run("-c", program).stderr == ""


@pytest.mark.more
@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("lmdbio.Reader(path, batch_size=4)", "lmdbio.Reader"),
        ("lmdbio.Records('https://example.org/a.mdb')", "https://example.org/a.mdb, a URL,"),
        ("lmdbio.open('s3://bucket/a.mdb', readonly=True)", "s3://bucket/a.mdb, a URL,"),
        ("lmdbio.open(path, provenance=True)", "provenance="),
        ("lmdbio.Records(path, order='insertion')", 'order="insertion"'),
        ("lmdbio.Records(path, locate='provenance')", 'locate="provenance"'),
        ("lmdbio.torch.Loader(path, cache='memory=1M')", "cache= of a Loader"),
        ("lmdbio.torch.Loader(path, processes=2)", "processes= of a Loader"),
        ("lmdbio.trace(folder + '/trace.json')", "ring.start"),
        (
            "next(iter(lmdbio.torch.Loader(path, decode=lmdbio.torch.Datum())))",
            "parse_datums",
        ),
    ],
)
def test_what_needs_the_core_says_so(folder: Path, tmp_path: Path, call: str, what: str) -> None:
    modules = "lmdbio, lmdbio.torch, sys" if "torch" in call else "lmdbio, sys"
    program = f"import {modules}\npath, folder = sys.argv[1:]\n"
    paths = str(folder / "plain"), str(tmp_path)
    done = run("-W", "ignore", "-c", program + call, *paths, core="0", fails=True)
    (line,) = re.findall("^ImportError: .*", done.stderr, re.M)  # notes may follow
    assert line.startswith(f"ImportError: {what} needs lmdbio's C core, which is not here: ")
    assert "Here work lmdbio.open, Records" in line


@pytest.mark.parametrize("command", ["info", "doctor", "convert"])
def test_a_command_says_so_in_one_line(folder: Path, command: str) -> None:
    done = run("-m", "lmdbio", command, str(folder / "plain"), core="0", fails=True)
    assert done.stderr.splitlines()[-1].startswith(f"lmdbio: the command {command} needs lmdbio's")
    assert "Traceback" not in done.stderr
    assert "Usage" in run("-m", "lmdbio", "--help", core="0").stdout


def test_what_was_written_meanwhile_is_never_handed_out(tmp_path: Path) -> None:
    write(tmp_path / "db", {b"%04d" % i: b"first %d" % i for i in range(50)})
    program = """
import lmdbio, subprocess, sys
records = lmdbio.Records(sys.argv[1])
write = '''
import lmdb, sys
with lmdb.open(sys.argv[1]) as env, env.begin(write=True) as txn:
    for i in range(50):
        txn.put(b"%04d" % i, b"second")
'''
subprocess.run([sys.executable, "-c", write, sys.argv[1]], check=True)
assert records[3] == b"first 3", records[3]
subprocess.run([sys.executable, "-c", write, sys.argv[1]], check=True)
for call in (lambda: records[3], lambda: records.read([3]), lambda: list(records)):
    try:
        print(call())
    except lmdbio.Error as error:
        print("refused", "changed while it was read" in str(error))
"""
    done = run("-c", program, str(tmp_path / "db"), core="0")
    assert done.stdout.split("\n")[:3] == ["refused True"] * 3


def test_a_file_is_open_in_several_objects_and_forked_processes(folder: Path) -> None:
    path = str(folder / "plain")
    program = f"""
import lmdbio, os
one, two = lmdbio.Records({path!r}), lmdbio.Records({path!r})
value, child = one[5], os.fork()
if not child:
    os._exit(not (one[5] == two[5] == lmdbio.Records({path!r})[5] == value))
one.close()
print(os.waitpid(child, 0)[1], two[5] == value)
two.close()
with lmdbio.open({path!r}, readonly=True) as env:
    try:
        lmdbio.Records({path!r})
    except lmdbio.Error as error:
        print("is open in this process" in str(error))
print(lmdbio.Records({path!r})[5] == value)
"""
    assert run("-c", program, core="0").stdout.split() == ["0", "True", "True", "True"]


def test_a_writer_writes_the_same_data_set_without_its_provenance_file(tmp_path: Path) -> None:
    program = """
import lmdbio, sys
with lmdbio.Writer(sys.argv[1]) as writer:
    for i in range(40):
        writer.add(b"value %d" % i, i)
    writer.put(b"about", b"me")
"""
    for name, core in (("with", ""), ("without", "0")):
        run("-c", program, str(tmp_path / name), core=core)
    found = []
    for name in ("with", "without"):
        with lmdb.open(str(tmp_path / name), readonly=True, lock=False) as env, env.begin() as txn:
            found.append(list(txn.cursor()))
    assert found[0] == found[1] and len(found[0]) == 82
    assert (tmp_path / "with/data.mdb.prov").exists()
    assert not (tmp_path / "without/data.mdb.prov").exists()
