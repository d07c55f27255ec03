"""Keys that are left out.

Goal: ``skip=`` leaves out the records of these keys and of patterns, and nothing else, with and
without a layout, an order of insertion, or a provenance file.

Method: keys of several kinds, held against the same rule in Python.
"""

from __future__ import annotations

import fnmatch
import pickle
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.convert.convert import convert
from tests.support.programs import write_ase, write_ocr

KEYS = [b"%d" % i for i in range(40)] + [b"length", b"meta-a", b"meta-b", b"meta[1]", b"\xff\x00"]


@pytest.fixture(scope="module", params=["scan", "provenance"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("skip") / "db"
    with lmdb.open(str(folder)) as env, env.begin(write=True) as txn:
        for key in KEYS:
            txn.put(key, b"value of " + key)
    if request.param == "provenance":
        convert(folder)
    return folder


@pytest.mark.parametrize(
    "skip",
    ["length", b"length", ["length", b"meta-a"], "meta-*", ["meta-?", "3*"], "meta[[]1]",
     b"\xff*", "[0-9]*", "no such key", [], "", "*"],
)  # fmt: skip
def test_keys_and_patterns_are_left_out(path: Path, skip: Any) -> None:
    several = [skip] if isinstance(skip, (str, bytes)) else skip
    patterns = [one.encode() if isinstance(one, str) else one for one in several]
    left = [
        key
        for key in sorted(KEYS)
        if not any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)
    ]
    with lmdbio.Records(path, skip=skip) as records:
        assert [records.key(i) for i in range(len(records))] == left
        assert list(records) == [b"value of " + key for key in left]
        for key in set(KEYS) - set(left):
            with pytest.raises(KeyError):
                records.index_of(key)
        assert [records.index_of(key) for key in left] == list(range(len(left)))
        assert len(records.groups) == len(left)
        with pickle.loads(pickle.dumps(records)) as other:
            assert list(other) == list(records)
    with lmdbio.Records(path, skip=iter(several)) as records:
        assert len(pickle.loads(pickle.dumps(records))) == len(left)


def test_samples_of_a_layout_are_left_out(tmp_path: Path) -> None:
    write_ocr(tmp_path / "ocr", 30)
    with lmdbio.Records(tmp_path / "ocr", layout="ocr", skip="label-00000000[3-5]") as records:
        numbers = [i for i in range(1, 31) if i not in (3, 4, 5)]
        assert [key for key, _ in map(records.key, range(len(records)))] == [
            b"image-%09d" % i for i in numbers
        ]
        assert records.index_of(b"label-000000006") == 2
    write_ase(tmp_path / "ase", 20)
    with lmdbio.Records(tmp_path / "ase", layout="auto", skip=["7"]) as records:
        assert [records.key(i) for i in range(5)] == [b"1", b"3", b"4", b"6", b"8"]
        assert len(records) == 19


def test_they_are_left_out_of_the_order_of_insertion(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "db")) as env, env.begin(write=True) as txn:
        for i in range(120):
            txn.put(b"%d" % i, b"%d" % i)
        txn.put(b"length", b"120")
    with lmdbio.Records(tmp_path / "db", order="insertion", skip=["length", "5"]) as records:
        assert list(records) == [b"%d" % i for i in range(120) if i != 5]


def test_a_reader_leaves_them_out(path: Path) -> None:
    with lmdbio.Reader(path, 9, skip=["length", "meta*", b"\xff*"], epochs=1) as reader:
        assert reader.count == 40
        values = [bytes(view) for batch in reader for view in batch]
    assert values == [b"value of " + key for key in sorted(KEYS)[:40]]
