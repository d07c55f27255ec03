"""Data sets as the programs write them whose layouts are known, and the samples that they read.

Each writer puts the keys and the metadata that the program's own writer puts, in its order; each
reader goes the way of the program's own reader, up to the bytes that it would decode. Values are
of the kind that the program has (pickles, Datum, compressed JSON), as far as a layout looks.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb

MAP_BYTES = 1 << 28


def content(i: int) -> bytes:
    """A value, some of them longer than a page."""
    return b"sample %d " % i * (1 + i * 131 % 700)


def opened(path: Path, **keywords: Any) -> lmdb.Environment:
    return lmdb.open(str(path), map_size=MAP_BYTES, sync=False, **keywords)


def reading(path: Path) -> lmdb.Environment:
    return lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False)


@dataclass(frozen=True)
class Program:
    """A program that writes LMDB data sets.

    Attributes:
        layout: of its files.
        write: makes a file of so many samples.
        read: returns the samples that the program's reader decodes, in its order.
        metadata: keys of no sample.
    """

    name: str
    layout: str
    write: Callable[[Path, int], None]
    read: Callable[[Path], list[Any]]
    metadata: tuple[bytes, ...] = ()


# --- LSUN: its export has the hash of an image as the key -----------------------------------


def write_lsun(path: Path, count: int) -> None:
    with opened(path) as env, env.begin(write=True) as txn:
        for i in range(count):
            txn.put(hashlib.sha1(b"%d" % i).hexdigest().encode(), content(i))


def read_all_keys(path: Path) -> list[Any]:
    """torchvision's LSUNClass: all keys, in their order, kept beside the file."""
    with reading(path) as env, env.begin(write=False) as txn:
        keys = list(txn.cursor().iternext(keys=True, values=False))
        return [txn.get(key) for key in keys]


# --- text recognition: deep-text-recognition-benchmark's create_lmdb_dataset.py -------------


def write_ocr(path: Path, count: int) -> None:
    with opened(path) as env:
        cache: dict[bytes, bytes] = {}
        for i in range(1, count + 1):
            cache[b"image-%09d" % i] = content(i)
            cache[b"label-%09d" % i] = b"label of %d" % i
            if i % 1000 == 0:
                _put_all(env, cache)
                cache = {}
        cache[b"num-samples"] = str(count).encode()
        _put_all(env, cache)


def _put_all(env: lmdb.Environment, cache: dict[bytes, bytes]) -> None:
    with env.begin(write=True) as txn:
        for key, value in cache.items():
            txn.put(key, value)


def read_ocr(path: Path) -> list[Any]:
    """mmocr's and parseq's data sets: numbers from 1 on, as many as ``num-samples`` says."""
    with reading(path) as env, env.begin(write=False) as txn:
        count = int(txn.get(b"num-samples"))
        return [
            (txn.get(b"image-%09d" % i), txn.get(b"label-%09d" % i)) for i in range(1, count + 1)
        ]


def write_unlabelled(path: Path, count: int) -> None:
    with opened(path) as env:
        images = {b"image-%09d" % i: content(i) for i in range(1, count + 1)}
        _put_all(env, {**images, b"num-samples": str(count).encode()})


def read_unlabelled(path: Path) -> list[Any]:
    """parseq's, with ``unlabelled=True``."""
    with reading(path) as env, env.begin(write=False) as txn:
        return [txn.get(b"image-%09d" % i) for i in range(1, int(txn.get(b"num-samples")) + 1)]


# --- text super-resolution: TextZoom, as its readers (lmdbDataset_real) read it --------------


def write_textzoom(path: Path, count: int) -> None:
    with opened(path) as env:
        cache: dict[bytes, bytes] = {}
        for i in range(1, count + 1):
            cache[b"image_hr-%09d" % i] = content(i)
            cache[b"image_lr-%09d" % i] = content(i)[::2]
            cache[b"label-%09d" % i] = b"label of %d" % i
        _put_all(env, {**cache, b"num-samples": str(count).encode()})


def read_textzoom(path: Path) -> list[Any]:
    """Images of high and of low resolution, and the label, from 1 on."""
    with reading(path) as env, env.begin(write=False) as txn:
        stems = (b"image_hr-%09d", b"image_lr-%09d", b"label-%09d")
        count = int(txn.get(b"num-samples"))
        return [tuple(txn.get(stem % i) for stem in stems) for i in range(1, count + 1)]


# --- numbers as text ------------------------------------------------------------------------


def write_ocp(path: Path, count: int) -> None:
    """OCP's preprocess_ef.py: pickled graphs, and their number under ``length``."""
    with opened(path, subdir=False) as env:
        for i in range(count):
            with env.begin(write=True) as txn:
                txn.put(f"{i}".encode("ascii"), pickle.dumps(content(i), protocol=-1))
        with env.begin(write=True) as txn:
            txn.put(b"length", pickle.dumps(count, protocol=-1))


def read_ocp(path: Path) -> list[Any]:
    """fairchem's LmdbDataset: ``length``, else the number of all entries."""
    with reading(path) as env, env.begin() as txn:
        length = txn.get(b"length")
        count = env.stat()["entries"] if length is None else pickle.loads(length)
        return [txn.get(f"{i}".encode("ascii")) for i in range(count)]


def write_tape(path: Path, count: int) -> None:
    """TAPE's lmdb_dataset: pickled proteins, and their number under ``num_examples``."""
    with opened(path) as env, env.begin(write=True) as txn:
        for i in range(count):
            txn.put(str(i).encode(), pickle.dumps({"primary": content(i), "id": str(i)}))
        txn.put(b"num_examples", pickle.dumps(count))


def read_tape(path: Path) -> list[Any]:
    """LMDBDataset: as many as ``num_examples`` says."""
    with reading(path) as env, env.begin(write=False) as txn:
        return [txn.get(str(i).encode()) for i in range(pickle.loads(txn.get(b"num_examples")))]


def write_folder2lmdb(path: Path, count: int) -> None:
    with opened(path) as env:
        txn = env.begin(write=True)
        for i in range(count):
            txn.put(f"{i}".encode("ascii"), pickle.dumps((content(i), i % 10)))
            if i % 500 == 0:
                txn.commit()
                txn = env.begin(write=True)
        txn.commit()
        keys = [f"{k}".encode("ascii") for k in range(count)]
        with env.begin(write=True) as txn:
            txn.put(b"__keys__", pickle.dumps(keys))
            txn.put(b"__len__", pickle.dumps(len(keys)))


def read_listed(path: Path) -> list[Any]:
    """ImageFolderLMDB, and tensorpack's LMDBData: the keys of ``__keys__``."""
    with reading(path) as env, env.begin(write=False) as txn:
        return [txn.get(key) for key in pickle.loads(txn.get(b"__keys__"))]


def write_unimol(path: Path, count: int) -> None:
    with opened(path, subdir=False) as env, env.begin(write=True) as txn:
        for i in range(count):
            txn.put(f"{i}".encode("ascii"), pickle.dumps({"atoms": content(i)}))


def read_unimol(path: Path) -> list[Any]:
    """unimol_tools' LMDBDataset: as many as there are entries, each by its number."""
    with reading(path) as env, env.begin() as txn:
        return [txn.get(f"{i}".encode("ascii")) for i in range(txn.stat()["entries"])]


def write_from_one(path: Path, count: int) -> None:
    with opened(path) as env, env.begin(write=True) as txn:
        for i in range(1, count + 1):
            txn.put(b"%d" % i, content(i))


def read_from_one(path: Path) -> list[Any]:
    with reading(path) as env, env.begin() as txn:
        return [txn.get(b"%d" % i) for i in range(1, txn.stat()["entries"] + 1)]


# --- numbers with zeros before them ---------------------------------------------------------


def write_tensorpack(path: Path, count: int) -> None:
    """LMDBSerializer.save."""
    with opened(path, subdir=False) as env:
        with env.begin(write=True) as txn:
            for i in range(count):
                txn.put(f"{i:08}".encode("ascii"), content(i))
        keys = [f"{k:08}".encode("ascii") for k in range(count)]
        with env.begin(write=True) as txn:
            txn.put(b"__keys__", pickle.dumps(keys))


def write_deepmd(path: Path, count: int) -> None:
    """dpdata's ``to("lmdb")``: a map of msgpack beside the frames."""
    with opened(path) as env, env.begin(write=True) as txn:
        for i in range(count):
            txn.put(format(i, "012d").encode(), content(i))
        number = b"\xce" + count.to_bytes(4, "big")
        about = b"\x82\xa7nframes" + number + b"\xadframe_idx_fmt\xa4012d"
        txn.put(b"__metadata__", about)


def read_deepmd(path: Path) -> list[Any]:
    """LmdbDataReader: ``nframes`` of the metadata, and the format that it says."""
    with reading(path) as env, env.begin() as txn:
        about = txn.get(b"__metadata__")
        at = about.index(b"nframes") + 8
        count = int.from_bytes(about[at : at + 4], "big")
        return [txn.get(format(i, "012d").encode()) for i in range(count)]


# --- Caffe ----------------------------------------------------------------------------------


def datum(data: bytes, label: int) -> bytes:
    """A Datum of one row of so many bytes."""
    fields = b"".join(bytes([number << 3, 1]) for number in (1, 2))
    return fields + b"\x18" + varint(len(data)) + b"\x22" + varint(len(data)) + data + bytes(
        [5 << 3, label]
    )  # fmt: skip


def varint(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + varint(high) if high else bytes([low])


def write_caffe(path: Path, count: int) -> None:
    """convert_imageset: a number and a file name, a commit every 1,000."""
    _write_datums(path, [b"%08d_class%d/%d.jpg" % (i, i % 3, i) for i in range(count)])


def write_caffe_numbers(path: Path, count: int) -> None:
    """convert_mnist_data."""
    _write_datums(path, [b"%08d" % i for i in range(count)])


def _write_datums(path: Path, keys: list[bytes]) -> None:
    with opened(path) as env:
        for first in range(0, len(keys), 1000):
            with env.begin(write=True) as txn:
                for i, key in enumerate(keys[first : first + 1000], first):
                    txn.put(key, datum(content(i), i % 10))


def read_caffe(path: Path) -> list[Any]:
    """DataReader: a cursor from the first record on."""
    with reading(path) as env, env.begin() as txn:
        return [value for _, value in txn.cursor()]


# --- ase ------------------------------------------------------------------------------------


def write_ase(path: Path, count: int) -> None:
    """LMDBDatabase: a row, and the next id, at a time; then some rows are deleted."""

    def encoded(value: Any) -> bytes:
        return zlib.compress(json.dumps(value).encode())

    gone = [2, 5] if count >= 5 else []
    with opened(path, subdir=False) as env:
        with env.begin(write=True) as txn:
            txn.put(b"metadata", encoded({"format": "test"}))
            for i in range(1, count + len(gone) + 1):
                txn.put(b"%d" % i, zlib.compress(content(i)))
                txn.put(b"nextid", encoded(i + 1))
            if not count + len(gone):
                txn.put(b"nextid", encoded(1))
        with env.begin(write=True) as txn:
            for i in gone:
                txn.delete(b"%d" % i)
            if gone:
                txn.put(b"deleted_ids", encoded(gone))


def read_ase(path: Path) -> list[Any]:
    """``_load_ids`` and ``get``: ids below the next one that are not deleted."""

    def decoded(value: bytes | None, default: Any) -> Any:
        return default if value is None else json.loads(zlib.decompress(value))

    with reading(path) as env, env.begin() as txn:
        gone = set(decoded(txn.get(b"deleted_ids"), []))
        following = decoded(txn.get(b"nextid"), 1)
        return [txn.get(b"%d" % i) for i in range(1, following) if i not in gone]


# --- names ----------------------------------------------------------------------------------


def write_names(path: Path, count: int) -> None:
    """BasicSR's create_lmdb: names of files; a text file beside it lists them."""
    with opened(path) as env, env.begin(write=True) as txn:
        for i in range(count):
            txn.put(f"img{i:05d}_s{i % 7:03d}".encode("ascii"), content(i))


PROGRAMS = (
    Program("torchvision LSUN", "lsun", write_lsun, read_all_keys),
    Program("mmocr", "ocr", write_ocr, read_ocr, (b"num-samples",)),
    Program("parseq", "ocr", write_unlabelled, read_unlabelled, (b"num-samples",)),
    Program("TextZoom", "textzoom", write_textzoom, read_textzoom, (b"num-samples",)),
    Program("TAPE", "tape", write_tape, read_tape, (b"num_examples",)),
    Program("fairchem", "ocp", write_ocp, read_ocp, (b"length",)),
    Program("folder2lmdb", "folder2lmdb", write_folder2lmdb, read_listed,
            (b"__keys__", b"__len__")),
    Program("Uni-Mol", "numbers", write_unimol, read_unimol),
    Program("from 1 on", "numbers", write_from_one, read_from_one),
    Program("tensorpack", "tensorpack", write_tensorpack, read_listed, (b"__keys__",)),
    Program("deepmd-kit", "deepmd", write_deepmd, read_deepmd, (b"__metadata__",)),
    Program("Caffe", "caffe", write_caffe, read_caffe),
    Program("Caffe MNIST", "caffe", write_caffe_numbers, read_caffe),
    Program("ase", "ase", write_ase, read_ase, (b"nextid", b"deleted_ids", b"metadata")),
)  # fmt: skip
#: Found by name alone.
NAMES = Program("BasicSR", "names", write_names, read_all_keys)
