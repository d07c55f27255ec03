"""``lmdbio import`` of folders that released packages write: Hugging Face's datasets, MosaicML's.

Goal: each sample has the value and the label that the package itself gives. Method: the package
writes a folder and reads it; so does lmdbio.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

import lmdbio
from lmdbio.ingest.importing import import_samples


def images(count: int) -> list[bytes]:
    made = []
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 255, (20 + number % 9, 16, 3), np.uint8)
        file = io.BytesIO()
        PIL.Image.fromarray(pixels).save(file, "JPEG")
        made.append(file.getvalue())
    return made


def imported(source: Path, target: Path) -> list[Any]:
    import_samples([source], target)
    return list(lmdbio.Records(target, layout="auto"))


def test_save_to_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="make frameworks installs datasets")
    values = images(150)
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])}
    )
    columns = {
        "image": [{"bytes": value, "path": None} for value in values],
        "label": [number % 3 for number in range(150)],
    }
    made = datasets.Dataset.from_dict(columns, features=features)
    wanted = [(value, b"%d" % (number % 3)) for number, value in enumerate(values)]
    made.save_to_disk(tmp_path / "plain", num_shards=3)
    assert imported(tmp_path / "plain", tmp_path / "one") == wanted
    order = np.random.default_rng(7).permutation(150)
    made.select(order).save_to_disk(tmp_path / "shuffled")
    assert imported(tmp_path / "shuffled", tmp_path / "two") == [wanted[at] for at in order]
    datasets.DatasetDict(train=made).save_to_disk(tmp_path / "splits")
    assert imported(tmp_path / "splits" / "train", tmp_path / "three") == wanted
    with pytest.raises(ValueError, match=r"several splits: name one, such as .*splits/train"):
        import_samples([tmp_path / "splits"], tmp_path / "four")


@pytest.mark.parametrize("compression", [None, "zstd:7", "gz"])
def test_mds_writer(tmp_path: Path, compression: str | None) -> None:
    streaming = pytest.importorskip(
        "streaming", reason="mosaicml-streaming is not installed beside the frameworks"
    )
    values = images(150)
    columns = {"image": "bytes", "label": "int", "size": "uint16", "text": "str"}
    with streaming.MDSWriter(
        out=str(tmp_path / "mds"), columns=columns, compression=compression, size_limit=1 << 15
    ) as out:
        for number, value in enumerate(values):
            more = {"size": np.uint16(len(value)), "text": f"ü {number}"}
            out.write({"image": value, "label": number - 75} | more)
    assert len(list((tmp_path / "mds").glob("shard.*"))) > 2
    wanted = [(value, b"%d" % (number - 75)) for number, value in enumerate(values)]
    assert imported(tmp_path / "mds", tmp_path / "set") == wanted
