"""A file that is cut is told from one that merely lacks free pages.

Goal: every command that describes a file refuses one that ends before its records, with file,
bytes that it has and bytes that it needs, and none refuses one that lacks free pages alone.
Method: databases by py-lmdb, cut inside of the last record, of a leaf, and behind both.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner, Result

from lmdbio import _core, cli
from lmdbio.convert.compacting import compact
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import InvalidError, ShortReadError
from lmdbio.locate.open import open_record_index
from lmdbio.locate.refusals import extents_end, refuse_cut
from lmdbio.provenance import data_file, sidecar_file
from lmdbio.tuning import tune

COUNT = 300


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LMDBIO_PROVENANCE_DIR", raising=False)


@pytest.fixture(params=[None, b"train"], ids=["main", "named"])
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """An environment of values in overflow pages; a value is the last thing in the file."""
    path = tmp_path / "train_lmdb"
    with lmdb.open(str(path), map_size=64 << 20, max_dbs=2) as env:
        db = env.open_db(request.param) if request.param else None
        for start in range(0, COUNT, 100):
            with env.begin(write=True, db=db) as txn:
                for index in range(start, start + 100):
                    txn.put(b"%08d" % index, bytes(9000))
    return path


def name_of(path: Path) -> bytes | None:
    with lmdb.open(str(path), readonly=True, lock=False) as env:
        return b"train" if env.stat()["entries"] == 1 else None


def end_of(path: Path) -> int:
    with open_record_index(path, db=name_of(path), locate="scan") as source:
        return extents_end(source.extents(np.arange(COUNT, dtype=np.uint64)))


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.cli, [str(one) for one in arguments])


def refusal(path: Path, has: int, needs: int) -> str:
    return f"{data_file(path)}: is cut: it has {has:,} bytes, its records need {needs:,}"


def test_a_cut_file_is_refused_by_all_that_describes_it(data: Path) -> None:
    name, end = name_of(data), end_of(data)
    options = ["--db", name.decode()] if name else []
    os.truncate(data_file(data), end - 1)
    told = refusal(data, end - 1, end)
    for run in (
        lambda: convert(data),
        lambda: verify(data),
        lambda: tune.measure(data, seconds=0.1),
        lambda: compact(data, data.parent / "copy"),
    ):
        with pytest.raises(ShortReadError) as caught:
            run()
        assert str(caught.value) == told
    assert not sidecar_file(data_file(data), None).exists() and not (data.parent / "copy").exists()
    assert sorted(path.name for path in data.iterdir()) == ["data.mdb", "lock.mdb"]
    assert json.loads(call("info", data, "--json").output)["cut"] == told
    assert told in call("info", data).output
    done = call("plan", data, *options, "--start", 290, "--count", 10)
    assert str(done.exception) == told
    assert call("plan", data, *options, "--count", 10).exit_code == 0


def test_verify_says_it_although_a_provenance_file_lies_beside(data: Path) -> None:
    end = end_of(data)
    convert(data)
    os.truncate(data_file(data), end - 5000)
    with pytest.raises(ShortReadError, match="is cut") as caught:
        verify(data)
    assert str(caught.value) == refusal(data, end - 5000, end)
    assert call("info", data).exit_code == 0


def test_a_file_without_pages_of_its_trees_is_called_cut(data: Path) -> None:
    os.truncate(data_file(data), 3 * 4096)
    for run in (lambda: convert(data), lambda: compact(data, data.parent / "copy")):
        with pytest.raises(
            ShortReadError, match=r"12,288 bytes, its trees need more: .*wanted \d+"
        ):
            run()
    assert json.loads(call("info", data, "--json").output)["cut"]


def test_a_file_without_free_pages_at_its_end_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "freed"
    with lmdb.open(str(path), map_size=64 << 20) as env:
        with env.begin(write=True) as txn:
            txn.put(b"keep", bytes(100))
        with env.begin(write=True) as txn:
            for index in range(40):
                txn.put(b"%08d" % index, bytes(9000))
        with env.begin(write=True) as txn:
            for index in range(40):
                txn.delete(b"%08d" % index)
        for index in range(6):  # moves the roots to the first free pages
            with env.begin(write=True) as txn:
                txn.put(b"keep", bytes(index))
    data = data_file(path)
    with _core.Engine(data) as engine:
        meta = _core.read_meta(engine)
        trees = [db.root for db in (meta.main_db, meta.free_db)]
        used = (meta.last_pgno + 1) * meta.layout.page_size
    end = (max(trees) + 1) * 4096
    assert end < used
    os.truncate(data, end)
    with _core.Engine(data) as engine:
        refuse_cut(engine, meta)
    assert convert(path).records == 1
    assert verify(path).records == 1


def test_a_sparse_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with lmdb.open(str(path), map_size=64 << 20, writemap=True) as env:
        with env.begin(write=True) as txn:
            txn.put(b"key", bytes(100))
    assert convert(path).records == 1
    assert json.loads(call("info", path, "--json").output)["cut"] is None


def test_tune_wants_an_lmdb_file(tmp_path: Path) -> None:
    file = tmp_path / "video.bin"
    file.write_bytes(bytes(64 << 20))
    with pytest.raises(InvalidError, match=r"video\.bin"):
        tune.measure(file, seconds=0.1)
