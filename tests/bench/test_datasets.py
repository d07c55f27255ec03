"""The data sets of the benchmarks are what they are meant to be, and reused only when intact.

Goal: what Caffe's converter would write; records of one size where that is asked for; a damaged
or different set is written again.
Method: small sets, parsed by a few lines of protobuf and read by py-lmdb.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lmdb
import numpy as np
import pytest

from lmdbio.bench import datasets
from lmdbio.bench.datasets import Dataset, Recipe
from lmdbio.locate.open import open_record_index
from tests.support.benching import SMALL


def parse_message(message: bytes) -> dict[int, int | bytes]:
    """Fields of a protobuf message: varints (wire type 0) and bytes (2)."""
    fields: dict[int, int | bytes] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        result = shift = 0
        while True:
            byte = message[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while at < len(message):
        field, wire = divmod(varint(), 8)
        if wire == 0:
            fields[field] = varint()
        else:
            assert wire == 2
            length = varint()
            fields[field] = message[at : at + length]
            at += length
    assert at == len(message)
    return fields


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31, 2**63])
def test_numbers_are_base_128(number: int) -> None:
    assert parse_message(b"\x08" + datasets.varint(number)) == {1: number}


def test_raw_images_are_datum_messages_with_a_shape() -> None:
    message = datasets.datum(b"p" * 3072, 7, encoded=False, shape=(3, 32, 32))
    assert parse_message(message) == {1: 3, 2: 32, 3: 32, 4: b"p" * 3072, 5: 7, 7: 0}


def test_encoded_images_are_distinct_jpeg_files_of_realistic_sizes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    made, _ = datasets.ensure(Recipe("jpeg", "jpeg", 20_000_000), tmp_path)
    sizes, files = [], set()
    with lmdb.open(str(made.path), readonly=True, lock=False) as env, env.begin() as txn:
        for index, (key, value) in enumerate(txn.cursor()):
            assert key.startswith(b"%08d_n" % index)
            assert key.endswith(b".JPEG")
            fields = parse_message(value)
            assert set(fields) == {4, 5, 7}
            assert fields[7] == 1
            data = fields[4]
            assert isinstance(data, bytes)
            sizes.append(len(data))
            files.add(data)
            if index < 5:
                picture = image.open(io.BytesIO(data))
                picture.load()
                assert picture.format == "JPEG"
    assert len(files) == len(sizes) == made.count
    assert 80_000 < np.median(sizes) < 140_000
    assert min(sizes) > 18_000
    assert len(set(sizes)) > 0.9 * len(sizes)


def test_a_transaction_is_committed_every_1000_puts(small: Dataset) -> None:
    with lmdb.open(str(small.path), readonly=True, lock=False) as env:
        # Opening commits nothing; the last, incomplete thousand has a commit of its own.
        assert env.info()["last_txnid"] == -(-small.count // datasets.COMMIT_PUTS)
        assert env.stat()["entries"] == small.count


def test_an_intact_data_set_is_reused_and_a_damaged_one_written_again(tmp_path: Path) -> None:
    recipe = replace(SMALL, value_bytes_min=400_000)
    made, _ = datasets.ensure(recipe, tmp_path)
    again, reused = datasets.ensure(recipe, tmp_path)
    assert reused
    assert again == made
    with made.data_file.open("r+b") as file:
        file.seek(made.file_bytes // 2)
        byte = file.read(1)
        file.seek(made.file_bytes // 2)
        file.write(bytes([byte[0] ^ 0xFF]))
    third, reused = datasets.ensure(recipe, tmp_path)
    assert not reused
    assert third.content == made.content


def test_a_record_that_was_lost_in_writing_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(recipe: Recipe) -> Iterator[tuple[bytes, bytes]]:
        for key, value in datasets.fixed_records(recipe):
            yield min(key, b"%08d" % 5), value

    monkeypatch.setitem(datasets.RECORDS, "twice", twice)
    recipe = Recipe("twice", "twice", 8000, record_bytes=1000)
    with pytest.raises(ValueError, match="reads 6 records of 6,000 bytes, 8 of 8,000 were"):
        datasets.ensure(recipe, tmp_path)
    assert datasets.existing(recipe, tmp_path / "twice") is None


def test_another_recipe_or_a_lost_manifest_means_writing(tmp_path: Path) -> None:
    recipe = replace(SMALL, value_bytes_min=100_000)
    made, _ = datasets.ensure(recipe, tmp_path)
    assert datasets.existing(replace(recipe, seed=2), made.path) is None
    assert datasets.existing(replace(recipe, value_bytes_min=200_000), made.path) is None
    datasets.manifest(made.path).write_text("{", encoding="utf-8")
    assert datasets.existing(recipe, made.path) is None


def test_records_of_one_size_are_numbered_and_no_two_are_equal(tmp_path: Path) -> None:
    recipe = Recipe("fixed", "fixed", 300_000, record_bytes=1001)
    made, _ = datasets.ensure(recipe, tmp_path)
    assert datasets.existing(recipe, made.path) == made
    assert datasets.existing(replace(recipe, record_bytes=1000), made.path) is None
    with lmdb.open(str(made.path), readonly=True, lock=False) as env, env.begin() as txn:
        values = list(txn.cursor())
    assert len(values) == made.count == 300
    assert len({value for _, value in values}) == made.count
    for index, (key, value) in enumerate(values):
        assert key == b"%08d" % index
        assert int.from_bytes(value[:8], "little") == index
        assert len(value) == 1001


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / SMALL.name / "thesis.tex"
    mine.parent.mkdir()
    mine.write_text("thesis")
    with pytest.raises(OSError, match=r"small: has thesis\.tex"):
        datasets.ensure(replace(SMALL, value_bytes_min=100_000), tmp_path)
    assert mine.read_text() == "thesis"
    assert sorted(path.name for path in mine.parent.iterdir()) == ["thesis.tex"]


@pytest.mark.parametrize("order", ["key", "random", "text"])
def test_a_set_lies_on_disk_in_the_order_in_which_it_was_put(tmp_path: Path, order: str) -> None:
    recipe = Recipe("fixed", "fixed", 6_000_000, record_bytes=3000, order=order)
    made, reused = datasets.ensure(recipe, tmp_path)
    assert (made.count, reused) == (2000, False)
    assert datasets.ensure(recipe, tmp_path) == (made, True)
    with open_record_index(made.path) as index:
        places = index.extents(np.arange(2000, dtype=np.uint64))["offset"]
    with lmdb.open(str(made.path), readonly=True, lock=False) as env, env.begin() as txn:
        numbers = [int.from_bytes(value[:8], "little") for _, value in txn.cursor()]
    by_text = sorted(range(2000), key=str)
    assert numbers == (by_text if order == "text" else list(range(2000)))
    ascending = np.mean(np.diff(places.astype(np.int64)) > 0)
    low, high = {"key": (0.99, 1), "random": (0.4, 0.6), "text": (0.75, 0.95)}[order]
    assert low <= ascending <= high
