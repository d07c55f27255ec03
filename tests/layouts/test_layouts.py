"""Layouts are told from a few keys, and refused where the keys contradict them.

Goal: what is asked for is there, or an error names the file and the reason; a look reads a few
pages of a large database; what is not asked for costs nothing.

Method: databases whose keys lack a number, have one too many, or say another number of samples;
the engine's counts; layouts of one's own.
"""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

import lmdbio
from lmdbio import _core
from lmdbio.cli import cli
from lmdbio.convert.convert import convert
from lmdbio.layouts import KNOWN, Keys, Selection
from lmdbio.layouts.numbered import Numbers, find_numbers
from lmdbio.layouts.wanted import Wanted
from lmdbio.locate.open_database import OpenFile
from lmdbio.locate.samples import find_samples
from tests.support import long_run
from tests.support.programs import PROGRAMS, write_ocr

VALUE = b"value"


def write(path: Path, keys: list[bytes] | dict[bytes, bytes], **words: Any) -> Path:
    items = keys if isinstance(keys, dict) else dict.fromkeys(keys, VALUE)
    with lmdb.open(str(path), map_size=1 << 28, max_dbs=2) as env:
        db = env.open_db(b"named", **words) if words else None
        with env.begin(write=True, db=db) as txn:
            for key, value in items.items():
                txn.put(key, value)
    return path


def plain(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def ocr(images: range, labels: range, told: bytes) -> dict[bytes, bytes]:
    keys = [b"image-%09d" % i for i in images] + [b"label-%09d" % i for i in labels]
    return {**dict.fromkeys(keys, VALUE), b"num-samples": told}


def ocp(count: int, told: bytes) -> dict[bytes, bytes]:
    return {**dict.fromkeys(plain(*range(count)), VALUE), b"length": told}


def ase(ids: list[int], following: Any, deleted: Any = None) -> dict[bytes, bytes]:
    def encoded(value: Any) -> bytes:
        return zlib.compress(json.dumps(value).encode())

    items = {**dict.fromkeys(plain(*ids), VALUE), b"nextid": encoded(following)}
    return items if deleted is None else {**items, b"deleted_ids": encoded(deleted)}


@pytest.mark.parametrize(
    ("layout", "items", "reason"),
    [
        ("ocp", [*plain(0, 1, 3), b"length"], "no key b'2', though there is b'3'"),
        ("ocp", [*plain(1, 2), b"length"], "has the keys b'length', b'0'"),
        ("ocp", plain(0, 1), "has the keys b'length', b'0'"),
        ("folder2lmdb", [*plain(0, 2), b"__keys__"], "no key b'1'"),
        ("tensorpack", [b"00000000", b"00000002", b"__keys__"], "no key b'00000001'"),
        (
            "deepmd",
            [b"%012d" % i for i in (0, 1, 3)] + [b"__metadata__"],
            "no key b'000000000002'",
        ),
        ("numbers", plain(0, 1, 3), "its first key is b'0', its last one b'3'"),
        ("ocr", ocr(range(1, 4), range(1, 4), b"4"), r"are 4 .* is b'image-000000003'"),
        ("ocp", ocp(37, pickle.dumps(40)), "b'length' says that there are 40 .* is b'36'"),
        ("ocp", ocp(37, b"odd"), "b'length' says that there are b'odd' .* is b'36'"),
        ("tape", {**dict.fromkeys(plain(0), VALUE), b"num_examples": b"2"}, "are 2 .* is b'0'"),
        ("ocr", ocr(range(1, 4), range(1, 4), b"x"), "are b'x'"),
        ("ocr", ocr(range(0), range(0), b"4"), "are 4 samples, and there is none"),
        ("ocr", ocr(range(1, 4), range(1, 3), b"3"), "no key b'label-000000003', .*b'image-0"),
        ("ocr", ocr(range(1, 3), range(1, 4), b"3"), "no key b'image-000000003', .*b'label-0"),
        ("ocr", ocr(range(2, 4), range(2, 4), b"2"), "num-samples', b'image-000000001'"),
        ("ase", ase([1, 2, 4], 5), "no key b'3'"),
        ("ase", ase([1, 2, 4], 4, [3]), "key b'4', which b'nextid'"),
        ("ase", ase([1, 2, 3], 4, [3]), "key b'3', which b'nextid'"),
        ("ase", ase([1, 2], 4_000_000_000), "go up to 3,999,999,999, and there are 2 rows"),
        ("ase", ase([1, 2], 3, "none"), "no list of ids"),
        ("ase", ase([1, 2, 3], 4, [2, 9, "x", -(2**70), 3.5]), "key b'2', which b'nextid'"),
        ("ase", {b"1": VALUE, b"nextid": zlib.compress(b"[" * 10**5)}, "has the key b'nextid'"),
        ("ase", ase([1, 2], "3"), "has the key b'nextid'"),
        ("ase", {b"1": VALUE, b"nextid": b"no zlib"}, "has the key b'nextid'"),
        ("lsun", [b"a" * 39, b"b" * 40], "40 hexadecimal digits"),
        ("caffe", [b"00000000", b"00000001"], "values are Datum"),
    ],
)
def test_a_file_that_contradicts_its_layout_is_refused(
    tmp_path: Path, layout: str, items: Any, reason: str
) -> None:
    path = write(tmp_path / "db", items)
    for locate in ("scan", "provenance"):
        with pytest.raises(lmdbio.IncompatibleError, match=reason) as caught:
            lmdbio.Records(path, layout=layout, locate=locate)
        assert str(path) in str(caught.value) and repr(layout) in str(caught.value)
        if locate == "scan":
            convert(path)


def test_a_hole_is_an_error_where_the_layout_was_found_by_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "db", [*plain(0, 1, 3), b"length"])
    with pytest.raises(lmdbio.IncompatibleError, match="no key b'2'"):
        lmdbio.Records(path, layout="auto")
    assert len(lmdbio.Records(path)) == 4


def test_what_nobody_knows_has_all_records_as_samples(tmp_path: Path) -> None:
    keys = [b"a", b"b", *plain(*range(12, 40))]
    with lmdbio.Records(write(tmp_path / "db", keys), layout="auto") as records:
        assert [records.key(i) for i in range(len(records))] == sorted(keys)
    with lmdbio.Records(write(tmp_path / "none", []), layout="auto") as records:
        assert len(records) == 0


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "db", plain(0, 1))
    for words, error, reason in (
        ({"layout": "no such"}, ValueError, "'auto', 'ase', 'ocr'.*'no such'"),
        ({"layout": 3}, TypeError, "Layout with name and find"),
        ({"layout": "numbers", "order": "insertion"}, ValueError, "insertion.*one of them"),
        ({"skip": [3]}, TypeError, "bytes or str, not int"),
    ):
        with pytest.raises(error, match=reason):
            lmdbio.Records(path, **words)  # type: ignore[arg-type]
        with pytest.raises(error, match=reason):
            lmdbio.Reader(path, 1, **words)  # type: ignore[arg-type]
    for mode in ("lmdb", "dm"):
        with pytest.raises(lmdbio.IncompatibleError, match="layout= and skip="):
            lmdbio.Reader(path, 1, mode=mode, skip="0")


@pytest.mark.parametrize("words", [{"dupsort": True}, {"integerkey": True}, {"reverse_key": True}])
def test_keys_of_other_kinds_have_no_layout(tmp_path: Path, words: dict[str, bool]) -> None:
    keys = [i.to_bytes(4, sys.byteorder) for i in range(9)]
    path = write(tmp_path / "db", keys, **words)
    with lmdbio.Records(path, db=b"named", layout="auto") as records:
        assert len(records) == 9
    for asked in ({"layout": "numbers"}, {"skip": [b"0"]}):
        with pytest.raises(lmdbio.IncompatibleError, match="database 'named'"):
            lmdbio.Records(path, db=b"named", **asked)  # type: ignore[arg-type]


# --- layouts of one's own ------------------------------------------------------------------


@dataclass(frozen=True)
class Backwards:
    """All records, the last one first."""

    name: str = "backwards"
    shift: int = 0

    def find(self, keys: Keys) -> Selection | None:
        if not keys.has(b"0"):
            return None
        return Selection(self.name, keys.count, order=self.order)

    def order(self, keys: Keys) -> Any:
        assert [key for some in keys.all() for key in some] == sorted(plain(*range(keys.count)))
        assert keys.index(keys.first) == 0 and keys.index(keys.last) == keys.count - 1
        return np.arange(keys.count)[::-1] + self.shift


def test_a_layout_of_ones_own_says_which_records_are_samples(tmp_path: Path) -> None:
    path = write(tmp_path / "db", plain(*range(30)))
    with lmdbio.Records(path, layout=Backwards()) as records:
        assert [records.key(i) for i in range(30)] == sorted(plain(*range(30)))[::-1]
    with lmdbio.Reader(path, 30, layout=Backwards(), epochs=1) as reader:
        assert reader.count == 30
    with pytest.raises(lmdbio.IncompatibleError, match="'backwards' gives int64 of shape"):
        lmdbio.Records(path, layout=Backwards(shift=1))
    with pytest.raises(lmdbio.IncompatibleError, match="has not the layout 'backwards'"):
        lmdbio.Records(write(tmp_path / "other", [b"a"]), layout=Backwards())


# --- numbers -------------------------------------------------------------------------------


@settings(max_examples=long_run.cases(60))
@given(
    numbers=st.sets(st.integers(0, 1300), max_size=200),
    run=st.tuples(st.integers(0, 2), st.integers(0, 300)),
    others=st.sets(st.binary(min_size=1, max_size=6), max_size=8),
    shape=st.sampled_from([Numbers(), Numbers(b"", 4), Numbers(b"1"), Numbers(b"i-", 2)]),
)
def test_numbers_are_found_by_patterns_as_in_all_keys(
    tmp_path_factory: pytest.TempPathFactory,
    numbers: set[int],
    run: tuple[int, int],
    others: set[bytes],
    shape: Numbers,
) -> None:
    keys = others | {shape.key(n) for n in numbers | set(range(run[0], sum(run)))}
    path = write(tmp_path_factory.mktemp("numbers") / "db", sorted(keys))
    wanted = {n: at for at, key in enumerate(sorted(keys)) if (n := shape.number(key)) is not None}

    @dataclass
    class Asking:
        name = "asking"

        def find(self, keys: Keys) -> Selection:
            return Selection("asking", order=lambda keys: find_numbers(keys, [shape])[0].records)

    with lmdbio.Records(path, layout=Asking()) as records:
        wanted_keys = [sorted(keys)[wanted[n]] for n in sorted(wanted)]
        assert [records.key(i) for i in range(len(records))] == wanted_keys


def test_a_number_of_more_digits_than_its_width_has_them_all() -> None:
    shape = Numbers(width=3)
    assert [shape.number(key) for key in (b"007", b"0007", b"1000", b"07", b"x07")] == [
        7, None, 1000, None, None
    ]  # fmt: skip


# --- a look --------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_look_reads_a_few_pages(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "data.lmdb"
    program.write(path, 9000)
    file = path / "data.mdb" if path.is_dir() else path
    with _core.Engine(str(file)) as engine:
        meta = _core.read_meta(engine)
        before = engine.counts().bytes
        found = find_samples(OpenFile(engine, meta, meta.main_db), None, Wanted("auto")).selection
        assert found is not None and found.layout == program.layout
        assert found.samples == 9000 and sorted(found.metadata) == sorted(program.metadata)
        assert engine.counts().bytes - before < 160_000 < meta.main_db.leaf_pages * 4096


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_info_names_the_layout(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "data.lmdb"
    program.write(path, 20)
    text = CliRunner().invoke(cli, ["info", str(path)]).output
    line = next(line for line in text.splitlines() if line.startswith("  layout"))
    assert f'layout="{program.layout}"' in line and "20 samples" in line
    assert all(key.decode() in line for key in program.metadata)
    told = json.loads(CliRunner().invoke(cli, ["info", str(path), "--json"]).output)
    facts = told["databases"][0]["layout"]
    assert (facts["name"], facts["samples"]) == (program.layout, 20)
    assert sorted(facts["metadata"]) == sorted(key.decode() for key in program.metadata)
    assert facts["argument"] == f'layout="{program.layout}"'


def test_info_says_that_there_is_none(tmp_path: Path) -> None:
    text = CliRunner().invoke(cli, ["info", str(write(tmp_path / "db", [b"a", b"b"]))]).output
    assert re.search("layout +none that is known", text)
    write_ocr(tmp_path / "cut", 900)
    with (tmp_path / "cut" / "data.mdb").open("r+b") as file:
        file.truncate(9000)
    done = CliRunner().invoke(cli, ["info", str(tmp_path / "cut")])
    assert done.exit_code == 0 and "is cut" in done.output


def test_layouts_are_loaded_where_one_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "db", plain(*range(9)))
    code = (
        "import sys, lmdbio; lmdbio.Records(sys.argv[1]);"
        "assert not [name for name in sys.modules if name.startswith('lmdbio.layouts')];"
        "print(len(lmdbio.Records(sys.argv[1], layout='auto')))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.stdout.strip() == "9", done.stderr


def test_layouts_have_the_names_that_they_are_known_by() -> None:
    assert all(name == one.name for name, one in KNOWN.items())
    assert {program.layout for program in PROGRAMS} | {"names", "unimol"} == set(KNOWN)
