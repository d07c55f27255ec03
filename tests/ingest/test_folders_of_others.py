"""``lmdbio import`` of folders that Hugging Face's datasets and MosaicML Streaming have written.

Goal: values, labels and order are theirs, also where an import goes on in the middle; a folder
that lacks something, or is damaged, is refused by name. Method: folders written here as both
packages document them, by pyarrow and by ``struct``; tests/frameworks has the packages themselves
write.
"""

from __future__ import annotations

import bz2
import gzip
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lmdbio.errors import Error
from lmdbio.ingest.importing import import_samples, open_source
from lmdbio.system.zstd import zstd
from tests.ingest.test_importing import Pair, image, pairs
from tests.ingest.test_writer import names

SAMPLES = [(image(number), number % 7) for number in range(300)]
WANTED = [(value, b"%d" % label) for value, label in SAMPLES]


def from_the_middle(folder: Path, columns: Sequence[str] = ()) -> list[Any]:
    """Return the samples from a number on, as a run gives them that goes on there."""
    return [one for batch in open_source([folder], columns).batches(117) for one in batch.samples]


# --- datasets --------------------------------------------------------------------------------


def saved(folder: Path, files: int = 2, rows: int = 70) -> Path:
    """Write a data set as ``save_to_disk`` does."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow, which reads Arrow, is not installed")
    folder.mkdir()
    each = -(-len(SAMPLES) // files)
    listed = []
    for number in range(files):
        part = SAMPLES[number * each : number * each + each]
        listed.append({"filename": f"data-{number:05d}-of-{files:05d}.arrow"})
        table = arrow.table(
            {
                "label": [label for _, label in part],
                "image": [{"bytes": value, "path": None} for value, _ in part],
            }
        )
        with arrow.OSFile(str(folder / listed[-1]["filename"]), "wb") as file:
            with arrow.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table, max_chunksize=rows)
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(json.dumps({"_data_files": listed}))
    (folder / "cache-1.arrow").write_bytes(b"another's")
    return folder


def test_a_saved_data_set_is_imported(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    report = import_samples([folder], tmp_path / "set")
    assert pairs(tmp_path / "set") == WANTED and report.samples == len(SAMPLES)
    assert from_the_middle(folder) == WANTED[117:]
    assert from_the_middle(folder, ["label"]) == [(label,) for _, label in WANTED[117:]]


def cut(size: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "data-00001-of-00002.arrow"
        path.write_bytes(path.read_bytes()[:size])

    return change


def indices(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text())
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    (folder / "state.json").write_text(json.dumps(state))


def splits(folder: Path) -> None:
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (cut(-8), r"data-00001-of-00002.arrow: has no end"),
        (cut(-100), r"data-00001-of-00002.arrow: "),
        (cut(20_000), r"data-00001-of-00002.arrow: "),
        (cut(0), r"data-00001-of-00002.arrow: "),
        (indices, "with an order beside its rows: load_from_disk"),
        (splits, "has several splits: name one, such as .*/train"),
        (lambda folder: (folder / "state.json").write_text('{"_data_files": []}'), "no samples"),
    ],
)
def test_a_saved_data_set_that_is_not_whole_is_refused(
    tmp_path: Path, change: Callable[[Path], None], text: str
) -> None:
    folder = saved(tmp_path / "saved")
    change(folder)
    with pytest.raises((Error, ValueError), match=text):
        import_samples([folder], tmp_path / "set")
    with pytest.raises((Error, ValueError)):
        import_samples([folder], tmp_path / "set", columns=["image", "nothing"])
    assert "set" not in names(tmp_path)


# --- MosaicML --------------------------------------------------------------------------------

PACKERS = {"zstd": zstd.compress, "gz": gzip.compress, "bz2": bz2.compress}
COLUMNS = {"image": ("jpeg:90", None), "label": ("int", 8), "note": ("str", None)}


def stored(sample: tuple[bytes, int]) -> bytes:
    """Return a sample as Streaming stores it."""
    value, label = sample
    note = f"note of {label}".encode()
    return struct.pack("<2I", len(value), len(note)) + value + struct.pack("<q", label) + note


def mds(folder: Path, compression: str | None = None, shards: int = 3) -> Path:
    """Write shards as ``MDSWriter`` does."""
    folder.mkdir()
    each = -(-len(SAMPLES) // shards)
    listed: list[Mapping[str, Any]] = []
    for number in range(shards):
        samples = [stored(one) for one in SAMPLES[number * each : number * each + each]]
        description, offsets = b'{"columns": "again"}', [0]
        for sample in samples:
            offsets.append(offsets[-1] + len(sample))
        begin = 4 + 4 * len(offsets) + len(description)
        head = struct.pack(f"<{len(offsets) + 1}I", len(samples), *(begin + at for at in offsets))
        content, name = head + description + b"".join(samples), f"shard.{number:05d}.mds"
        packed = None
        if compression is None:
            (folder / name).write_bytes(content)
        else:
            kind = compression.partition(":")[0]
            packed = {"basename": f"{name}.{kind}"}
            pack: Callable[[bytes], bytes] = PACKERS.get(kind, bytes)
            (folder / packed["basename"]).write_bytes(pack(content))
        listed.append(
            {
                "format": "mds",
                "column_names": list(COLUMNS),
                "column_encodings": [encoding for encoding, _ in COLUMNS.values()],
                "column_sizes": [size for _, size in COLUMNS.values()],
                "compression": compression,
                "samples": len(samples),
                "raw_data": {"basename": name, "bytes": len(content)},
                "zip_data": packed,
            }
        )
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": listed}))
    return folder


@pytest.mark.parametrize("compression", [None, "zstd:7", "gz", "bz2:3"])
def test_shards_of_mosaicml_are_imported(tmp_path: Path, compression: str | None) -> None:
    folder = mds(tmp_path / "mds", compression)
    import_samples([folder], tmp_path / "set")
    assert pairs(tmp_path / "set") == WANTED
    assert from_the_middle(folder) == WANTED[117:]
    notes = [(b"note of " + label, value) for value, label in WANTED[117:]]
    assert from_the_middle(folder, ["note", "image"]) == notes


def damaged(at: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = bytearray((folder / "shard.00001.mds").read_bytes())
        content[at] ^= 0x7F
        (folder / "shard.00001.mds").write_bytes(content)

    return change


def changed(**fields: Any) -> Callable[[Path], None]:
    """Return a function that changes fields of the second shard in the index."""

    def change(folder: Path) -> None:
        index = json.loads((folder / "index.json").read_text())
        index["shards"][1] |= fields
        (folder / "index.json").write_text(json.dumps(index))

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (damaged(0), r"shard.00001.mds: is damaged: it has other samples"),
        (damaged(5), r"shard.00001.mds: is damaged"),
        (damaged(400), r"shard.00001.mds: is damaged"),
        (damaged(4 * 102 + 20), r"shard.00001.mds: is damaged: a sample has another size"),
        (lambda folder: (folder / "shard.00001.mds").write_bytes(b""), "is damaged"),
        (lambda folder: (folder / "shard.00001.mds").unlink(), "No such file.*shard.00001.mds"),
        (changed(column_encodings=["png", "int", "str"]), "shards have different columns"),
        (changed(zip_data={"basename": "x"}, compression="br",
                 raw_data={"basename": "away", "bytes": 1}),
         "away: is compressed by br, not zstd, gz, bz2"),
        (changed(samples=99), "is damaged"),
        (changed(raw_data={"basename": "shard.00001.mds"}), "index.json: a shard has no size"),
        (changed(raw_data=None), "index.json: a shard has no size"),
        (changed(raw_data={"basename": "shard.00001.mds", "bytes": 2**40}), "a shard has no size"),
    ],
)  # fmt: skip
def test_shards_that_are_not_whole_are_refused(
    tmp_path: Path, change: Callable[[Path], None], text: str
) -> None:
    folder = mds(tmp_path / "mds")
    change(folder)
    with pytest.raises((Error, ValueError, OSError), match=text):
        import_samples([folder], tmp_path / "set")
    assert "set" not in names(tmp_path)


@pytest.mark.parametrize("compression", ["zstd", "gz", "bz2"])
@pytest.mark.parametrize("more", [-1, 1, 64 << 20])
def test_a_shard_unpacks_to_no_more_than_the_index_says(
    tmp_path: Path, compression: str, more: int
) -> None:
    folder = mds(tmp_path / "mds", compression)
    packed = folder / f"shard.00001.mds.{compression}"
    size = json.loads((folder / "index.json").read_text())["shards"][1]["raw_data"]["bytes"]
    packed.write_bytes(PACKERS[compression](bytes(size + more)))
    text = f"more than {size}" if more > 0 else f"{size - 1}"
    with pytest.raises(Error, match=f"{packed.name}: is damaged: it unpacks to {text} bytes"):
        import_samples([folder], tmp_path / "set")


@pytest.mark.parametrize(
    ("encoding", "columns", "text"),
    [
        ("pil", ["image"], r"stores 'image' as pil: name bytes, text or .*note \(str\)"),
        ("pkl", [], "no column holds bytes, of image, label, note"),
        ("jpeg", ["picture"], "has no column 'picture'"),
    ],
)
def test_columns_that_streaming_alone_reads_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, columns: list[str], text: str
) -> None:
    monkeypatch.setitem(COLUMNS, "image", (encoding, None))
    with pytest.raises(ValueError, match=text):
        import_samples([mds(tmp_path / "mds")], tmp_path / "set", columns=columns)


def test_an_index_of_something_else_is_let_be(tmp_path: Path) -> None:
    given: list[Pair] = [(b"1.jpg", image(1)), (b"2.jpg", image(2))]
    for name, value in given:
        (tmp_path / "source").mkdir(exist_ok=True)
        (tmp_path / "source" / name.decode()).write_bytes(value)
    for number, text in enumerate(
        ("[]", '{"shards": []}', '{"shards": [{"format": "json"}]}', "")
    ):
        (tmp_path / "source" / "index.json").write_text(text)
        import_samples([tmp_path / "source"], tmp_path / str(number))
        assert pairs(tmp_path / str(number)) == [value for _, value in given]
