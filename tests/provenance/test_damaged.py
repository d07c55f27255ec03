"""A provenance file is an index, never the truth: where it is damaged the tree is walked.

Goal: whatever bit of it is another, every read gives the right bytes, the log names the damage,
and ``info`` and ``doctor`` tell it; who demands the provenance file gets an error. Method: small
provenance files of every form, of both data formats, of main and named databases and of sets, in
which bits are flipped one after the other, drawn by chance (all: LMDBIO_TEST_BITS=1000000); one
bit of a block, met by all ways of reading.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio import _core
from lmdbio.cli import cli
from lmdbio.convert.convert import convert
from lmdbio.errors import IncompatibleError, MovedError, ProvenanceError
from lmdbio.planning.mode import Mode
from lmdbio.provenance import BLOCKS_AT, Provenance, file
from lmdbio.provenance.contents import LocalContents
from lmdbio.system import log
from tests.support import databases

pytestmark = pytest.mark.filterwarnings("ignore:.*the tree is walked instead")

NAME = b"many"
#: Bits of each provenance file that are flipped, at most.
BITS = int(os.environ.get("LMDBIO_TEST_BITS", "120"))


class Case(NamedTuple):
    """A database, and the form of its provenance file.

    Attributes:
        form: of ``convert``.
        name: of the database; None: the main one.
        count: records.
        shape: of their keys; empty: they follow no pattern.
        length: of the value of a record.
        dup: keys may have many values.
    """

    form: str
    name: bytes | None
    count: int
    shape: bytes
    length: Callable[[int], int]
    dup: bool = False


CASES = {
    "replay": Case("replay", None, 60, b"%06d", lambda _: 3000),
    "replay named": Case("replay", NAME, 60, b"%06d", lambda _: 3000),
    "runs": Case("runs", None, 40, b"%06d", lambda i: 3000 + i % 3),
    "explicit": Case("explicit", None, 40, b"%d", lambda i: i * 13 % 90),
    "explicit named": Case("explicit", NAME, 40, b"key-%d", lambda i: i * 13 % 90),
    "leaves": Case("leaves", None, 150, b"", lambda i: i * 13 % 90),
    "leaves named": Case("leaves", NAME, 150, b"", lambda i: i * 13 % 90),
    "dup": Case("explicit", NAME, 30, b"key-%d", lambda i: 8, dup=True),
}


class Made(NamedTuple):
    """A database with a provenance file.

    Attributes:
        folder: of the environment.
        sidecar: the provenance file.
        name: of the database.
        items: its records, in the order of their keys.
    """

    folder: Path
    sidecar: Path
    name: bytes | None
    items: list[tuple[bytes, bytes]]

    def flip(self, bit: int) -> None:
        """Flip a bit of the provenance file, back when it is called again."""
        with self.sidecar.open("r+b") as file:
            file.seek(bit // 8)
            byte = file.read(1)[0]
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))


def make(folder: Path, case: Case, version: int, **options: Any) -> Made:
    folder.parent.mkdir(exist_ok=True)
    env = databases.open_writable(folder, version)
    db = None if case.name is None else env.open_db(case.name, dupsort=case.dup)
    items = []
    for i in range(case.count):
        number = i // 4 if case.dup else i
        key = case.shape % number if case.shape else databases.value(i, 9).hex().encode()
        items.append((key, databases.value(i, case.length(i))))
    databases.write(env, items, db=db, commit_every=30)
    env.close()
    sidecar = convert(folder, databases=[case.name], form=case.form, **options).sidecar  # type: ignore[arg-type]
    return Made(folder, sidecar, case.name, sorted(items))


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(params=databases.FORMATS)
def made(request: pytest.FixtureRequest, tmp_path: Path, case: Case) -> Made:
    return make(tmp_path / "env", case, request.param)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """Returns the warnings of the log since it was asked last."""
    heard: list[str] = []
    monkeypatch.setattr(log, "_logged", set())
    logger, handler = logging.getLogger("lmdbio"), logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]

    def since() -> list[str]:
        found = heard.copy()
        heard.clear()
        log._logged.clear()
        return found

    monkeypatch.setattr(logger, "propagate", False)
    logger.addHandler(handler)
    yield since
    logger.removeHandler(handler)


def read_all(made: Made, path: Any = None, times: int = 1) -> str:
    """Read all, each way; how they were located."""
    wanted = times * [value for _, value in made.items]
    with lmdbio.Records(made.folder if path is None else path, db=made.name) as records:
        last = len(wanted) - 1
        assert records[last] == wanted[last]
        assert [bytes(one) for one in records.read(range(len(wanted)))] == wanted
        assert list(records) == wanted
        for at in (0, last):
            key = made.items[at % len(made.items)][0]
            assert records.key(at) == key
            first = records.index_of(key)
            assert made.items[first % len(made.items)][0] == key
        keys = [key for key, _ in made.items]
        sizes = [keys.count(key) for key in dict.fromkeys(keys)] * times
        assert [len(one) for one in records.groups] == sizes
        return records.located_by


@pytest.mark.more
def test_each_bit_of_it_may_be_another(made: Made, told: Callable[[], list[str]]) -> None:
    assert read_all(made) == "provenance" and not told()
    bits = 8 * made.sidecar.stat().st_size
    for bit in random.Random(bits).sample(range(bits), min(bits, BITS)):
        made.flip(bit)
        read_all(made)
        named = [text for text in told() if str(made.sidecar) in text and "walked" in text]
        assert len(named) == 1, (bit, named)
        made.flip(bit)
    assert read_all(made) == "provenance" and not told()


def test_who_demands_it_gets_an_error_or_what_is_right(made: Made) -> None:
    bits = 8 * made.sidecar.stat().st_size
    wanted = [value for _, value in made.items]
    for bit in random.Random(bits).sample(range(bits), 100):
        made.flip(bit)
        with pytest.raises(ProvenanceError, match=str(made.sidecar)):
            with lmdbio.Records(made.folder, db=made.name, locate="provenance") as records:
                assert list(records) == wanted
                assert [len(one) for one in records.groups]
        made.flip(bit)


def test_a_set_of_which_one_has_a_damaged_one(
    tmp_path: Path, told: Callable[[], list[str]]
) -> None:
    made = [make(tmp_path / str(n), CASES["explicit"], v) for n, v in enumerate((1, 3, 1))]
    paths = [one.folder for one in made]
    assert read_all(made[0], paths, 3) == "provenance" and not told()
    bits = 8 * made[1].sidecar.stat().st_size
    for bit in random.Random(7).sample(range(bits), min(bits, BITS)):
        made[1].flip(bit)
        assert read_all(made[0], paths, 3) == "scan"
        assert [text for text in told() if str(made[1].sidecar) in text and "walked" in text]
        made[1].flip(bit)


# --- one bit of a block, by all ways ------------------------------------------------------


def of_block(sidecar: Path) -> int:
    """A bit in the middle of the first block."""
    with Provenance.open(sidecar) as opened:
        return 8 * (BLOCKS_AT + int(opened.sections[0]._entry.blocks["stored"][0]) // 2)


@pytest.fixture
def damaged(tmp_path: Path, told: Callable[[], list[str]]) -> Made:
    case = CASES["explicit"]._replace(count=4000)
    made = make(tmp_path / "env", case, 1)
    made.flip(of_block(made.sidecar))
    return made


def only_once(told: Callable[[], list[str]], made: Made) -> None:
    (text,) = told()
    assert str(made.sidecar) in text and "block 0" in text and "walked instead" in text


WAYS: dict[str, Callable[[Any, list[bytes]], Any]] = {
    "one": lambda records, wanted: records[5] == wanted[5],
    "slice": lambda records, wanted: records[3:90] == wanted[3:90],
    "list": lambda records, wanted: list(records) == wanted,
    "read": lambda records, wanted: bytes(records.read([9, 3])[1]) == wanted[3],
    "values": lambda records, wanted: list(records.begin_values([7]).values()) == [wanted[7]],
    "subset": lambda records, wanted: list(records[np.array([4, 2])]) == [wanted[4], wanted[2]],
    "batches": lambda records, wanted: (
        [bytes(one[0]) for one in records.batches([[1], [2]])] == wanted[1:3]
    ),
    "key": lambda records, wanted: records.key(0) == b"0" and records[0] == wanted[0],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("engine", ["auto", "pread", "mmap", "direct"])
def test_every_way_of_reading(
    way: str, engine: str, damaged: Made, told: Callable[[], list[str]]
) -> None:
    wanted = [value for _, value in damaged.items]
    with lmdbio.Records(damaged.folder, engine=engine) as records:
        assert records.located_by == "provenance"
        for _ in range(3):
            assert WAYS[way](records, wanted)
        assert records.located_by == "scan"
    only_once(told, damaged)


def test_threads_that_meet_it_together_walk_once(
    damaged: Made, told: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, walks = [value for _, value in damaged.items], []
    walk = _core.Walk.__init__

    def counted(*args: Any, **more: Any) -> None:
        walks.append(args)
        walk(*args, **more)

    monkeypatch.setattr(_core.Walk, "__init__", counted)
    wrong: list[int] = []
    start = threading.Barrier(8)
    with lmdbio.Records(damaged.folder) as records:

        def read(number: int) -> None:
            start.wait()
            for at in range(number, len(wanted), 80):
                if records[at] != wanted[at]:
                    wrong.append(at)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert not wrong and len(walks) == 1
    only_once(told, damaged)


def test_a_reader_and_its_modes(damaged: Made, told: Callable[[], list[str]]) -> None:
    wanted = [value for _, value in damaged.items]
    with lmdbio.Reader(damaged.folder, 100, iterations=40) as reader:
        assert [bytes(view) for batch in reader for view in batch.copy()] == wanted
    only_once(told, damaged)
    with pytest.raises(ProvenanceError, match="block 0"):
        with lmdbio.Reader(damaged.folder, 100, iterations=40, mode="prov") as reader:
            for batch in reader:
                del batch
    with lmdbio.Reader(damaged.folder, 100, iterations=40, mode=Mode(locate="scan")) as reader:
        assert [bytes(view) for batch in reader for view in batch.copy()] == wanted


@pytest.mark.parametrize("bit", ["block", "groups", "directory"])
def test_numbers_of_a_cursor(bit: str, tmp_path: Path, told: Callable[[], list[str]]) -> None:
    """By ``lmdbio.open``: the numbers of keys come from the tree then."""
    dup = bit == "groups"
    made = make(tmp_path / "env", CASES["dup" if dup else "leaves"], 1)
    with Provenance.open(made.sidecar) as opened:
        section = opened.sections[0]
        where = {
            "block": of_block(made.sidecar),
            "groups": 8 * (int(section._offsets[-1]) + 12),
            "directory": 8 * (made.sidecar.stat().st_size - 9),
        }
    made.flip(where[bit])
    with lmdbio.open(str(made.folder), readonly=True, max_dbs=2) as env:
        db = env.open_db(made.name, create=False)
        with env.begin(db=db) as txn, txn.cursor() as cursor:
            for at in (0, 13, len(made.items) - 1):
                assert cursor.set_index(at)
                assert (cursor.key(), cursor.value()) == made.items[at]
                assert cursor.index() == at
    assert [text for text in told() if "walked instead" in text]


@pytest.mark.parametrize("locate", ["auto", "provenance"])
def test_an_order_that_it_alone_tells_is_an_error(locate: Any, tmp_path: Path) -> None:
    """Nobody else knows it. Its blocks of extents are another matter."""
    case = CASES["explicit"]._replace(shape=b"k%d")
    keys = [case.shape % i for i in range(case.count)]
    random.Random(3).shuffle(keys)
    made = make(tmp_path / "env", case, 1, order=keys)
    known = dict(made.items)
    with Provenance.open(made.sidecar) as opened:
        at = 8 * (int(opened.sections[0]._offsets[-1]) + 20)
    made.flip(at)
    with pytest.raises(ProvenanceError, match="block 0 of order"):
        lmdbio.Records(made.folder, order="insertion", locate=locate)
    with lmdbio.Records(made.folder, locate=locate) as records:
        assert list(records) == [value for _, value in made.items]
    made.flip(at)
    made.flip(of_block(made.sidecar))
    with lmdbio.Records(made.folder, order="insertion") as records:
        assert list(records) == [known[key] for key in keys]
    if locate == "provenance":
        return
    made.flip(8 * made.sidecar.stat().st_size - 9)  # the directory, which names the order
    with pytest.raises(IncompatibleError, match=r"may be told by .*its directory fails"):
        lmdbio.Records(made.folder, order="insertion")


def test_a_walk_that_comes_too_late_is_an_error(damaged: Made) -> None:
    """The file has moved on since it was opened: nobody knows where its records lay."""
    with lmdbio.Records(damaged.folder) as records:
        with lmdb.open(str(damaged.folder), map_size=1 << 28) as env:
            for turn in range(3):
                with env.begin(write=True) as txn:
                    txn.put(b"new", b"%d" % turn)
        for _ in range(2):
            with pytest.raises(MovedError, match="open it again"):
                records.read([1])


def test_one_that_cannot_be_read_is_passed_over_as_well(
    damaged: Made, told: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged.flip(of_block(damaged.sidecar))  # sound again
    read = LocalContents.read

    def fail(self: LocalContents, offset: int, length: int) -> bytes:
        if offset:
            raise OSError(5, "Input/output error", str(self.path))
        return read(self, offset, length)

    monkeypatch.setattr(file, "_OPEN_BYTES", BLOCKS_AT)  # of a larger one blocks are read apart
    wanted = [value for _, value in damaged.items]
    with lmdbio.Records(damaged.folder) as records:
        monkeypatch.setattr(LocalContents, "read", fail)
        assert list(records) == wanted
    (text,) = told()
    assert "cannot be read: Input/output error; the tree is walked instead" in text
    with lmdbio.Records(damaged.folder) as records:  # its directory cannot be, either
        assert records.located_by == "scan" and list(records) == wanted
    (text,) = told()
    assert "cannot be read" in text
    assert sidecar_of(damaged)["status"] == "unreadable"


# --- what commands say --------------------------------------------------------------------


def sidecar_of(made: Made) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["info", str(made.folder), "--json"])
    found: dict[str, Any] = json.loads(done.output)["sidecar"]
    return found


def test_info_and_doctor_tell_it(case: Case, tmp_path: Path) -> None:
    made = make(tmp_path / "env", case, 1)
    assert sidecar_of(made)["status"] == "good"
    bits = 8 * made.sidecar.stat().st_size
    for bit in random.Random(bits).sample(range(bits), 40):
        made.flip(bit)
        found = sidecar_of(made)
        assert found["status"] == "damaged" and str(made.sidecar) in found["reason"], bit
        made.flip(bit)
    made.flip(bit)
    name = [] if made.name is None else ["--db", made.name.decode()]
    done = CliRunner().invoke(cli, ["doctor", str(made.folder), *name, "--json"])
    findings = json.loads(done.output)["findings"]
    (finding,) = [one for one in findings if one["topic"] == "provenance"]
    assert finding["severity"] == "problem" and "file is damaged: " in finding["text"]
    assert json.loads(done.output)["command"].startswith("lmdbio convert")


def test_info_of_a_set_names_it(tmp_path: Path) -> None:
    made = [make(tmp_path / "set" / str(n), CASES["explicit"], 1) for n in range(3)]
    made[1].flip(of_block(made[1].sidecar))
    done = CliRunner().invoke(cli, ["info", str(tmp_path / "set"), "--json"])
    states = [one["sidecar"]["status"] for one in json.loads(done.output)["files"]]
    assert states == ["good", "damaged", "good"]
    done = CliRunner().invoke(cli, ["doctor", str(tmp_path / "set"), "--json"])
    told = [one["text"] for one in json.loads(done.output)["findings"]]
    assert any("1 damaged" in text for text in told)
