"""Goal: samples of a layout are those of the released program, where it is installed.

Method: the data sets of this folder's clients, made by their writers; their readers say which
samples there are, and in which order.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import lmdbio
from tests.clients import (
    test_ase_db_backends as ase,
    test_deepmd_kit as deepmd,
    test_mmocr as mmocr,
    test_tensorpack as tensorpack,
    test_torchvision as torchvision,
    test_unimol_tools as unimol,
)
from tests.clients.client import digest
from tests.clients.racing import version_of, write


def written(client: Any, folder: Path) -> str:
    version_of(client.DISTRIBUTION)
    write(client, folder / "data")
    return str(folder / "data")


def keys(records: lmdbio.Records) -> list[bytes]:
    return [records.key(i) for i in range(len(records))]


def test_images_of_lsun_are_those_of_torchvision(tmp_path: Path) -> None:
    path = written(torchvision, tmp_path)
    with lmdbio.Records(path, layout="lsun") as records:
        assert keys(records) == torchvision.opened(path).keys


def test_rows_are_those_of_ase(tmp_path: Path) -> None:
    path = written(ase, tmp_path)
    with lmdbio.Records(path, layout="ase") as records:
        assert list(map(int, keys(records))) == list(ase.opened(path).ids)


def test_points_are_those_of_tensorpack(tmp_path: Path) -> None:
    path = written(tensorpack, tmp_path)
    from tensorpack.dataflow import LMDBData

    with lmdbio.Records(path, layout="tensorpack") as records:
        flow = LMDBData(path, shuffle=False)
        flow.reset_state()
        assert list(zip(keys(records), records, strict=True)) == list(map(tuple, flow))


def test_molecules_are_those_of_unimol_tools(tmp_path: Path) -> None:
    path = written(unimol, tmp_path)
    reader = unimol.opened(path)
    with lmdbio.Records(path, layout="unimol") as records:
        assert len(records) == len(reader)
        for i in range(0, len(records), 97):
            assert digest(pickle.loads(records[i])) == digest(reader[i])


def test_frames_are_as_many_as_those_of_deepmd_kit(tmp_path: Path) -> None:
    path = written(deepmd, tmp_path)
    with lmdbio.Records(path, layout="deepmd") as records:
        assert len(records) == len(deepmd.opened(path))
        assert keys(records) == [b"%012d" % i for i in range(len(records))]


def test_a_file_that_lacks_an_image_is_refused_as_mmocr_has_none_there(tmp_path: Path) -> None:
    path = written(mmocr, tmp_path)
    with pytest.raises(lmdbio.IncompatibleError, match="no key b'image-000000012'"):
        lmdbio.Records(path, layout="ocr")
