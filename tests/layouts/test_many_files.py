"""Samples of several files that are read as one.

Goal: each file's samples are those that it has alone, file after file, whatever its metadata;
files of which only some have a layout, or whose samples are of more records, are refused.

Method: shards as the programs write them, of several sizes, joined as a list and as a folder.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmdbio
from lmdbio.convert.convert import convert
from tests.support.programs import PROGRAMS, Program, write_ase, write_names, write_ocp, write_ocr

SIZES = (30, 1, 0, 12)


@pytest.fixture(
    scope="module", params=[p for p in PROGRAMS if p.metadata], ids=lambda program: program.name
)
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    program: Program = request.param
    folder = tmp_path_factory.mktemp("shards")
    for number, size in enumerate(SIZES):
        program.write(folder / f"{number}.lmdb", size)
    return program, folder


@pytest.mark.parametrize("converted", [False, True])
def test_samples_count_on_from_file_to_file(shards: Any, converted: bool, tmp_path: Path) -> None:
    program, folder = shards
    paths = [folder / f"{number}.lmdb" for number in range(len(SIZES))]
    alone = [program.read(path) for path in paths]
    samples = [sample for part in alone for sample in part]
    words: dict[str, Any] = {}
    if converted:
        for path in paths:
            convert(path, output=tmp_path)
        words = {"provenance": tmp_path, "locate": "provenance"}
    with lmdbio.Records(paths, layout="auto", **words) as records:
        assert len(records) == len(samples) and records.layout == program.layout
        assert list(records) == samples and records[-1] == samples[-1]
        order = np.random.default_rng(0).permutation(len(samples))
        assert list(records.values(order)) == [samples[i] for i in order]
        at = 0
        for path, part in zip(paths, alone, strict=True):
            for i in range(len(part)):
                file, index = records.file_of(at)
                assert Path(file).is_relative_to(path) and index == i
                with lmdbio.Records(path, layout=program.layout) as one:
                    assert records.key(at) == one.key(i)
                at += 1
        first = records.key(0)
        assert records.index_of(first[0] if isinstance(first, tuple) else first) == 0
        columns = len(first) if isinstance(first, tuple) else 1
        assert sorted(g.start for g in records.groups) == sorted([*range(at)] * columns)
        with pytest.raises(KeyError):
            records.index_of(program.metadata[0])
        with pickle.loads(pickle.dumps(records)) as other:
            assert list(other) == samples
        with pytest.raises(IndexError):
            records.file_of(len(samples))
    if isinstance(samples[0], bytes):
        place = words.get("provenance")
        with lmdbio.Reader(paths, 7, layout="auto", epochs=1, provenance=place) as reader:
            assert [bytes(view) for batch in reader for view in batch] == samples


def test_keys_are_left_out_of_all_files(tmp_path: Path) -> None:
    for number, size in enumerate((5, 8)):
        write_ocp(tmp_path / f"{number}.lmdb", size)
    with lmdbio.Records(tmp_path, skip="length") as records:
        assert len(records) == 13
        assert [records.key(i) for i in range(13)] == [b"%d" % i for n in (5, 8) for i in range(n)]


def test_files_of_which_one_has_no_layout_are_refused(tmp_path: Path) -> None:
    write_ocp(tmp_path / "0.lmdb", 5)
    write_names(tmp_path / "1.lmdb", 5)
    write_ocr(tmp_path / "2.lmdb", 5)
    write_ase(tmp_path / "3.lmdb", 5)
    zero, one, two, three = (tmp_path / f"{number}.lmdb" for number in range(4))
    with pytest.raises(lmdbio.IncompatibleError, match=r"1.lmdb.*no layout that is known.*0.lmdb"):
        lmdbio.Records([zero, one], layout="auto")
    with pytest.raises(lmdbio.IncompatibleError, match=r"'ocr' of 2 records a sample.*'ocp'"):
        lmdbio.Records([zero, two], layout="auto")
    with pytest.raises(lmdbio.IncompatibleError, match=r"3.lmdb.*has not the layout 'ocp'"):
        lmdbio.Records([zero, three], layout="ocp")
    with lmdbio.Records([zero, three], layout="auto") as records:
        assert len(records) == 10
