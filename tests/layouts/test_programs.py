"""Samples are what the program reads that wrote the file.

Goal: for each known layout the samples, their number and their order are those of the program's
own reader, whichever way records are found, and in whichever way they are read.

Method: files as the programs write them (tests/support/programs.py), read by py-lmdb as the
programs read, and by Records and Reader.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmdbio
from lmdbio.convert.convert import convert
from tests.support.programs import NAMES, PROGRAMS, Program

#: Numbers of one to three digits, whose order as text is another one.
COUNTS = (1, 9, 12, 130)
ALL = (*PROGRAMS, NAMES)


@pytest.fixture(scope="module", params=ALL, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    one: Program = request.param
    return one


@pytest.fixture(scope="module")
def written(program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("program")
    paths = {count: folder / f"{count}.lmdb" for count in COUNTS}
    for count, path in paths.items():
        program.write(path, count)
    return paths


def plain(sample: Any) -> Any:
    return tuple(map(bytes, sample)) if isinstance(sample, tuple) else bytes(sample)


@pytest.mark.parametrize("count", COUNTS)
def test_samples_are_those_of_the_program(
    program: Program, written: dict[int, Path], count: int
) -> None:
    samples = program.read(written[count])
    assert len(samples) == count
    names = ["auto", program.layout, *(["unimol"] if program.name == "Uni-Mol" else [])]
    for layout in names:
        with lmdbio.Records(written[count], layout=layout) as records:
            found = program.layout if program in PROGRAMS else None
            assert records.layout == (found if layout == "auto" else layout)
            assert len(records) == count
            assert list(records) == samples
            assert [records[i] for i in range(-count, count)] == samples * 2
            assert records[1:] == samples[1:] and records[::-2] == samples[::-2]
            order = np.random.default_rng(count).permutation(np.arange(count).repeat(2))
            assert list(map(plain, records.read(order))) == [samples[i] for i in order]
            assert list(records.values(order)) == [samples[i] for i in order]
            found = [plain(one) for batch in records.batches(order, 7) for one in batch]
            assert found == [samples[i] for i in order]
            with pytest.raises(IndexError, match=f"of {count}"):
                records[count]
            with pytest.raises(IndexError, match=f"of {count}"):
                records.read([count])


def test_keys_lead_to_samples_and_back(program: Program, written: dict[int, Path]) -> None:
    count = COUNTS[-1]
    with lmdbio.Records(written[count], layout=program.layout) as records:
        everything = lmdbio.Records(written[count])
        for i in range(count):
            keys = records.key(i)
            for column, key in enumerate(keys if isinstance(keys, tuple) else (keys,)):
                value = everything[everything.index_of(key)]
                assert value == (records[i][column] if isinstance(keys, tuple) else records[i])
                assert records.index_of(key) == i
        for key in program.metadata:
            assert everything.index_of(key) >= 0
            with pytest.raises(KeyError):
                records.index_of(key)
        columns = len(records[0]) if isinstance(records[0], tuple) else 1
        assert len(records.groups) == count * columns
        assert sorted(group.start for group in records.groups) == sorted([*range(count)] * columns)


def test_a_provenance_file_finds_them_without_a_page_of_keys(
    program: Program, tmp_path: Path
) -> None:
    path, count = tmp_path / "data.lmdb", 900
    program.write(path, count)
    samples = program.read(path)
    convert(path)
    with lmdbio.Records(path, layout="auto", locate="provenance") as records:
        assert len(records) == count
        opened = records.stats().page_requests
        assert list(records.values(np.arange(count))) == samples
        assert records[count - 1] == samples[-1]
    with lmdbio.Records(path, locate="provenance") as plainly:
        plain_requests = plainly.stats().page_requests
        pages = plainly._source.meta.main_db.leaf_pages
    if program.layout not in ("ase",):  # whose deleted rows break the pattern
        assert opened - plain_requests < min(40, pages)


def test_it_can_be_pickled(program: Program, written: dict[int, Path]) -> None:
    with lmdbio.Records(written[12], layout="auto", skip=[b"nothing"]) as records:
        with pickle.loads(pickle.dumps(records)) as other:
            assert type(other) is type(records)
            assert list(other) == list(records)


def test_a_reader_has_the_same_samples(program: Program, written: dict[int, Path]) -> None:
    samples = program.read(written[130])
    if isinstance(samples[0], tuple):
        with pytest.raises(lmdbio.IncompatibleError, match=f"{len(samples[0])} records each"):
            lmdbio.Reader(written[130], 8, layout=program.layout)
        return
    for words in ({}, {"shuffle": "global", "seed": 3}, {"cache": "memory=4M"}):
        with lmdbio.Reader(written[130], 16, layout=program.layout, epochs=1, **words) as reader:
            assert reader.count == len(samples)
            seen = {}
            for batch in reader:
                for index, view in zip(batch.indices.tolist(), batch, strict=True):
                    seen[index] = bytes(view)
            assert seen == dict(enumerate(samples))


def test_without_a_layout_each_record_is_a_sample(
    program: Program, written: dict[int, Path]
) -> None:
    with lmdbio.Records(written[12]) as records:
        assert records.layout is None
        assert list(records) == [value for _, value in sorted_items(written[12])]


def sorted_items(path: Path) -> list[tuple[bytes, bytes]]:
    import lmdb

    with lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False) as env:
        with env.begin() as txn:
            return list(txn.cursor())


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.metadata], ids=lambda p: p.name)
def test_a_set_without_samples_is_one(program: Program, tmp_path: Path) -> None:
    program.write(tmp_path / "none.lmdb", 0)
    with lmdbio.Records(tmp_path / "none.lmdb", layout=program.layout) as records:
        assert len(records) == 0 and list(records) == []
