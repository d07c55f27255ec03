"""The patterns in examples/patterns, over small data sets of their kind, beside py-lmdb.

Goal: each gives what a reader over py-lmdb gives; in workers, in batches, and pickled.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

from tests.support import ROOT, databases

PATTERNS = ROOT / "examples" / "patterns"
CAFFE = PATTERNS.with_name("caffe")


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PATTERNS))
    monkeypatch.syspath_prepend(str(CAFFE))


def jpeg(i: int) -> bytes:
    pixels = np.random.default_rng(i).integers(0, 256, (8 + i % 5, 12, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    with databases.open_writable(tmp_path / "pictures", 1) as env:
        databases.write(env, [(b"%08x" % (i * 7919), jpeg(i)) for i in range(60)])
    return tmp_path / "pictures"


def content(path: Path) -> list[tuple[bytes, bytes]]:
    return databases.content(path)


def same_items(batch: list[Any]) -> list[Any]:
    return batch


@pytest.mark.parametrize("workers", [0, 2])
def test_lsun_gives_the_images_of_all_keys(pictures: Path, workers: int) -> None:
    from lsun import LSUN

    images = LSUN(str(pictures), transform=np.asarray)
    wanted = [np.asarray(Image.open(io.BytesIO(value))) for _, value in content(pictures)]
    loader = DataLoader(images, batch_size=7, num_workers=workers, collate_fn=same_items)
    seen = [image for batch in loader for image in batch]
    assert len(seen) == len(wanted) == len(images)
    assert all(np.array_equal(one, other) for one, other in zip(seen, wanted, strict=True))
    assert np.array_equal(images[3], wanted[3])
    assert images.key(3) == content(pictures)[3][0].decode()


@pytest.mark.more
@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (1, "spawn")])
def test_readers_may_open_lazily_or_at_once(
    pictures: Path, workers: int, method: str | None
) -> None:
    from lazy_open import Eager, Lazy

    wanted = [value for _, value in content(pictures)]
    for kind in (Lazy, Eager):
        loader = DataLoader(
            kind(str(pictures)),
            batch_size=16,
            num_workers=workers,
            collate_fn=same_items,
            multiprocessing_context=method,
            persistent_workers=bool(workers),
        )
        for _ in range(2):
            assert [value for batch in loader for value in batch] == wanted


@pytest.fixture
def molecules(tmp_path: Path) -> list[str]:
    paths = []
    for file, count in enumerate((130, 3, 11)):
        path = tmp_path / f"data.{file:04d}.lmdb"
        env = lmdb.open(str(path), subdir=False, map_size=1 << 26, meminit=False)
        with env.begin(write=True) as txn:
            for i in range(count):
                sample = {"file": file, "i": i, "pos": np.arange(3 * (i + 1)).reshape(-1, 3)}
                txn.put(b"%d" % i, pickle.dumps(sample))
            if file != 1:
                txn.put(b"length", pickle.dumps(count))
        env.close()
        paths.append(str(path))
    return paths


def test_samples_of_many_files_come_in_their_order(molecules: list[str]) -> None:
    from chemistry import Molecules

    data = Molecules(molecules)
    wanted = [(file, i) for file, count in enumerate((130, 3, 11)) for i in range(count)]
    assert len(data) == len(wanted)
    assert [(data[i]["file"], data[i]["i"]) for i in range(len(data))] == wanted
    batch = pickle.loads(pickle.dumps(data)).__getitems__([143, 0, 131, 9])
    assert [(one["file"], one["i"]) for one in batch] == [wanted[i] for i in (143, 0, 131, 9)]
    assert np.array_equal(batch[3]["pos"], np.arange(30).reshape(-1, 3))
    assert [data.file_of(i) for i in (0, 130, 143)] == molecules


def test_a_backend_finds_files_by_their_names(pictures: Path) -> None:
    from mmengine_backend import LmdbioBackend

    backend = pickle.loads(pickle.dumps(LmdbioBackend(pictures)))
    key, value = content(pictures)[5]
    assert backend.get(key.decode()) == value
    with pytest.raises(FileNotFoundError, match="no key 'nothing'"):
        backend.get("nothing")


def test_datums_come_in_a_circle(tmp_path: Path) -> None:
    from datum_loop import loop

    from lmdbio.bench.datasets import datum

    pixels = np.random.default_rng(0).integers(0, 256, (30, 3, 4, 4), np.uint8)
    with databases.open_writable(tmp_path / "db", 1) as env:
        records = [
            (b"%08d" % i, datum(pixels[i].tobytes(), i % 10, encoded=False, shape=(3, 4, 4)))
            for i in range(30)
        ]
        databases.write(env, records)
    images, total = loop(str(tmp_path / "db"), 8, 10)
    assert images == 80
    seen = np.arange(80) % 30
    assert total == pytest.approx(pixels[seen].mean(axis=(1, 2, 3)).sum())


def test_dali_s_source_gives_every_file_once(pictures: Path) -> None:
    from dali_source import Batches

    wanted = sorted(value for _, value in content(pictures))
    seen = []
    for rank in range(2):
        source = Batches(str(pictures), 6, seed=1, rank=rank, ranks=2)
        batches = list(source)
        assert len(batches) == len(source) == 5
        seen += [one.tobytes() for batch in batches for one in batch]
        assert [one.tobytes() for one in next(iter(source))] != [
            one.tobytes() for one in batches[0]
        ], "another order each epoch"
    assert sorted(seen) == wanted


def test_grain_reads_records(pictures: Path) -> None:
    pytest.importorskip("grain")
    from grain_source import batches

    epoch = batches(str(pictures), 6, len, seed=3, epochs=1)
    seen = [int(one) for batch in epoch for one in batch]
    wanted = sorted(len(value) for _, value in content(pictures))
    assert sorted(seen) == wanted and len(wanted) % 7
    shares = [
        list(batches(str(pictures), 1, len, seed=3, epochs=1, rank=rank, ranks=7))
        for rank in range(7)
    ]
    assert {len(share) for share in shares} == {len(wanted) // 7}, "ranks step together"
