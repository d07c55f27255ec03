"""Datum and .npy as whole batches.

Goal: they come out as NumPy has them; bytes that are none of these are an error that names record
and file, or right, and never a crash. Method: values are made by NumPy and by a writer of protocol
buffers of this file's own. Bytes are changed at random, seeds in the tests' names, and held
against other readers: ``numpy.load``, and one of messages in Python.
"""

from __future__ import annotations

import io
import math
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmdbio
from lmdbio import _core
from lmdbio.torch import Array, Datum, Loader, Npy, RecordErrors
from tests.torch.test_decoders import native_of, written, wrote


def of_one(memory: np.ndarray, size: int) -> lmdbio.Batch:
    """A batch of one record, at the beginning of the memory."""
    zero = np.zeros(1, np.uint64)
    lengths = np.array([size], np.uint64)
    return lmdbio.Batch(memory, indices=zero, offsets=zero, lengths=lengths)


# --- Datum -------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def datum(
    pixels: np.ndarray[Any, Any], label: int, *, packed: bool = False, encoded: bytes = b""
) -> bytes:
    shape = b"".join(field(i + 1, side) for i, side in enumerate(pixels.shape))
    if encoded:
        return field(4, encoded) + field(5, label) + field(7, 1)
    if pixels.dtype == np.uint8:
        return shape + field(4, pixels.tobytes()) + field(5, label)
    if packed:
        return shape + field(5, label) + field(6, pixels.tobytes())
    return shape + field(5, label) + b"".join(field(6, float(x)) for x in pixels.ravel())


def read_datum(value: bytes) -> tuple[tuple[int, ...], bytes, int] | None:
    """Shape, bytes of data or of float_data, and label; None: it is none that is not encoded."""
    at, numbers, data, floats = 0, dict.fromkeys((1, 2, 3, 5, 7), 0), b"", b""

    def one() -> int | None:
        nonlocal at
        found = 0
        for i in range(10):
            if at >= len(value):
                return None
            byte, at = value[at], at + 1
            found |= (byte & 127) << 7 * i
            if byte < 128:
                return found & (2**64 - 1)
        return None

    while at < len(value):
        tag = one()
        if tag is None or not 0 < tag >> 3 < 2**29 or tag & 7 not in (0, 1, 2, 5):
            return None
        number, kind = tag >> 3, tag & 7
        size = {1: 8, 5: 4}.get(kind) if kind in (1, 5) else one()
        if size is None:
            return None
        if kind == 0:
            if number in (4, 6):
                return None
            if number in numbers:
                numbers[number] = (size + 2**31) % 2**32 - 2**31 if number != 7 else size
            continue
        if size > len(value) - at or number in numbers:
            return None
        content, at = value[at : at + size], at + size
        if number == 4:
            if kind != 2:
                return None
            data = content
        elif number == 6:
            if kind == 1 or len(content) % 4:
                return None
            floats += content
    shape = numbers[1], numbers[2], numbers[3]
    pixels = math.prod(shape)
    if not value or numbers[7] or min(shape) <= 0 or (data and floats):
        return None
    if (len(floats) // 4 if floats else len(data)) != pixels:
        return None
    return shape, data or floats, numbers[5]


@pytest.mark.parametrize("kind", ["bytes", "floats", "packed"])
def test_datums_are_images_and_labels(tmp_path: Path, kind: str) -> None:
    chance = np.random.default_rng(5)
    shape = (3, 9, 7)
    images = chance.integers(0, 256, (60, *shape)).astype("u1" if kind == "bytes" else "<f4")
    values = [datum(one, i - 5, packed=kind == "packed") for i, one in enumerate(images)]
    path = written(tmp_path / "db", values)
    for words in ({}, {"readahead": True}):
        with Loader(path, 25, decode=Datum(), shuffle=True, keys=True, **words) as loader:
            for keys, (made, labels) in loader:
                order = [int(key) for key in keys]
                assert labels.dtype == torch.int64 and labels.tolist() == [i - 5 for i in order]
                assert made.dtype == (torch.uint8 if kind == "bytes" else torch.float32)
                assert np.array_equal(made.numpy(), images[order])


def test_a_datum_is_read_as_others_read_messages(tmp_path: Path) -> None:
    pixels = np.arange(6, dtype="u1").reshape(1, 2, 3)
    other = field(9, b"unknown") + field(12, 1.5) + field(13, 7) + varint(14 << 3 | 1) + bytes(8)
    values = [
        datum(pixels, 3),
        datum(pixels, 9) + field(5, 4),  # the last label counts
        field(4, b"old") + datum(pixels, 5),  # and the last data
        other + datum(pixels, 6) + other,
        b"".join(field(i, n) for i, n in ((5, 7), (3, 3), (2, 2), (1, 1))) + field(4, bytes(6)),
    ]
    path = written(tmp_path / "db", values)
    with Loader(path, 5, decode=Datum()) as loader:
        images, labels = next(iter(loader))
    assert labels.tolist() == [3, 4, 5, 6, 7]
    assert np.array_equal(images[:4].numpy(), np.stack([pixels] * 4)) and not images[4].any()


def test_datums_that_cannot_be_decoded_say_why(tmp_path: Path) -> None:
    pixels = np.arange(6, dtype="u1").reshape(1, 2, 3)
    good = datum(pixels, 3)
    for i, (value, why) in enumerate(
        [
            (good[:-3], "is no Datum, or one that is cut"),
            (b"", "is no Datum"),
            (good + b"\x00", "is no Datum"),
            (good + field(1, 2), r"of shape \(2, 2, 3\) with 6 bytes and 0 floats"),
            (good + field(6, 1.0), "with 6 bytes and 1 floats"),
            (field(4, b"") + field(5, 1), r"of shape \(0, 0, 0\) with 0 bytes"),
            (good + field(1, -1) + field(2, -2), r"shape \(-1, -2, 3\)"),
            (
                datum(pixels, 1, encoded=b"jpeg"),
                "holds an encoded image: write decode=Datum\\(enc",
            ),
        ]
    ):
        path = written(tmp_path / str(i), [good, value])
        with Loader(path, 2, decode=Datum()) as loader:
            with pytest.raises(ValueError, match=f"record 1 .*{why}") as caught:
                next(iter(loader))
        assert f"sample 1, key 00000001, file {path}" in wrote(caught.value)
    wide = datum(pixels.reshape(1, 3, 2), 1)
    path = written(tmp_path / "wide", [good, wide])
    with Loader(path, 2, decode=Datum()) as loader:
        with pytest.raises(ValueError, match=r"differ, record 0 \(1, 2, 3\) uint8 and record 1"):
            next(iter(loader))


def test_encoded_datums_have_a_decoder_of_their_own(tmp_path: Path) -> None:
    pixels = np.zeros((1, 1, 1), "u1")
    values = [datum(pixels, i, encoded=b"%03d" % i) for i in range(20)]
    path = written(tmp_path / "db", values)
    with Loader(path, 8, decode=Datum(Array("u1", 3)), shuffle=True) as loader:
        for texts, labels in loader:
            assert [int(bytes(text.tolist())) for text in texts] == labels.tolist()
    path = written(tmp_path / "other", [*values, datum(pixels, 5)])
    with Loader(path, 21, decode=Datum(Array("u1", 3))) as loader:
        with pytest.raises(ValueError, match=r"record 20 .* not encoded"):
            next(iter(loader))


@pytest.mark.parametrize("seed", range(4))
def test_changed_datums_are_right_or_an_error(seed: int) -> None:
    """Goal: C reads what Python reads, of any bytes; nothing is read beyond a value's end."""
    chance = random.Random(seed)
    pixels = np.frombuffer(chance.randbytes(12), "u1").reshape(3, 2, 2)
    bases = [
        datum(pixels, 300),
        datum(pixels.astype("<f4"), -1),
        datum(pixels.astype("<f4"), 70000, packed=True),
        field(9, b"x" * 200) + datum(pixels, 1),
    ]
    right = 0
    for _ in range(1500):
        value = bytearray(chance.choice(bases))
        for _ in range(chance.choice([0, 1, 1, 2, 5])):
            at = chance.randrange(len(value)) if chance.random() < 0.3 else chance.randrange(12)
            kind = chance.randrange(4)
            if kind == 0:
                value[at] = chance.randrange(256)
            elif kind == 1:
                value[at] ^= 1 << chance.randrange(8)
            elif kind == 2:
                del value[at:]
                value += b"\xff" * chance.randrange(12)
            else:
                value[at:at] = chance.randbytes(chance.randrange(4))
            if len(value) < 12:
                break
        wanted = read_datum(bytes(value))
        memory = np.frombuffer(bytes(value) or b"\x00", np.uint8).copy()
        batch = of_one(memory, len(value))
        try:
            images, labels = Datum()(batch)
        except RecordErrors as error:
            assert wanted is None, (bytes(value), error)
            continue
        assert wanted is not None, bytes(value)
        assert tuple(images.shape[1:]) == wanted[0] and images.numpy().tobytes() == wanted[1]
        assert labels.tolist() == [wanted[2]]
        right += 1
    assert right > 200


# --- .npy --------------------------------------------------------------------------------


def npy(array: np.ndarray[Any, Any], version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore:Stored array in format")
@pytest.mark.parametrize("dtype", ["u1", "?", "<i8", ">i4", "<f4", ">f8", "<c16"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 0, 3), (3, 2, 4)])
def test_npy_files_are_arrays(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    chance = np.random.default_rng(3)
    arrays = [chance.integers(0, 100, shape).astype(dtype) for _ in range(30)]
    for order in ("C", "F"):
        for version in ((1, 0), (2, 0), (3, 0)):
            values = [npy(np.array(one, order=order), version) for one in arrays]
            path = written(tmp_path / f"{order}{version[0]}", values)
            with Loader(path, 30, decode=Npy()) as loader:
                made = next(iter(loader))
            wanted = np.stack(arrays)
            assert made.is_contiguous() and made.shape == wanted.shape
            assert np.array_equal(made.numpy(), wanted)


def test_headers_may_differ_as_long_as_arrays_are_alike(tmp_path: Path) -> None:
    one = np.arange(6, dtype="<f4").reshape(2, 3)
    values = [npy(one, (1, 0)), npy(one + 1, (2, 0)), npy(one + 2, (1, 0))]
    path = written(tmp_path / "db", values)
    with Loader(path, 3, decode=Npy()) as loader:
        assert np.array_equal(next(iter(loader)).numpy(), np.stack([one, one + 1, one + 2]))
    path = written(tmp_path / "differ", [npy(one), npy(one), npy(one.T.copy())])
    with Loader(path, 3, decode=Npy()) as loader:
        with pytest.raises(ValueError, match=r"record 0 float32 of shape \(2, 3\) and record 2"):
            next(iter(loader))


class Evil:
    """Would tell of itself if anybody loaded its pickle."""

    loaded = False

    def __reduce__(self) -> tuple[Any, ...]:
        return setattr, (Evil, "loaded", True)


def test_values_that_are_no_arrays_say_why(tmp_path: Path) -> None:
    good = npy(np.zeros(4, "u1"))
    objects = npy(np.array([Evil()], object))
    for i, (value, why) in enumerate(
        [
            (b"", "is no .npy file"),
            (b"\x93NUMPY", "of a version that is not known"),
            (good[:20], "with a header of 128 bytes, and has 20"),
            (good[:-1], r"of 131 bytes: uint8 of shape \(4,\) takes 132"),
            (good + b"x", "of 133 bytes"),
            (objects, "pickled: they are not loaded"),
            (npy(np.zeros(2, [("a", "u1")])), "torch has no dtype"),
            (good.replace(b"(4,)", b"-4,)"), "header cannot be read"),
        ]
    ):
        path = written(tmp_path / str(i), [good, value])
        with Loader(path, 2, decode=Npy()) as loader:
            with pytest.raises(ValueError, match=f"record 1 .*{why}"):
                next(iter(loader))
    assert not Evil.loaded


@pytest.mark.parametrize("seed", range(4))
def test_changed_npy_files_are_right_or_an_error(seed: int) -> None:
    chance = random.Random(seed)
    bases = [npy(np.arange(12, dtype=kind).reshape(3, 4)) for kind in ("u1", ">f4", "<i8")]
    alphabet = b"{}'()<>|:,0123456789ufi bTrueFals"
    right = 0
    for _ in range(400):
        value = bytearray(chance.choice(bases))
        for _ in range(chance.choice([0, 1, 1, 2])):
            at = chance.randrange(6, 128 if chance.random() < 0.8 else 160)
            if at < len(value):
                byte = chance.randrange(256)
                value[at] = chance.choice(alphabet) if chance.random() < 0.7 else byte
            if chance.random() < 0.1:
                del value[chance.randrange(len(value)) :]
        memory = np.frombuffer(bytes(value) + b"\x00", np.uint8).copy()
        batch = of_one(memory, len(value))
        try:
            made = Npy()(batch)
        except RecordErrors:
            continue
        file = io.BytesIO(bytes(value))
        wanted = np.load(file, allow_pickle=False)
        assert file.tell() == len(value)
        native = native_of(wanted)
        assert made[0].numpy().tobytes() == native.tobytes() and made.shape[1:] == wanted.shape
        right += 1
    assert right > 50


def test_parsing_counts_what_is_whole() -> None:
    values = [datum(np.zeros((1, 1, 1), "u1"), 1), b"\xff"]
    memory = np.frombuffer(b"".join(values), np.uint8)
    offsets = np.array([0, len(values[0])], np.uint64)
    lengths = np.array([len(value) for value in values], np.uint64)
    found = _core.parse_datums(memory, offsets, lengths)
    assert found["is_whole"].tolist() == [1, 0] and found["label"].tolist() == [1, 0]
    into = np.zeros(2, "<f4")
    assert _core.copy_datum_floats(memory, offsets, lengths, 1, into.ctypes.data) == 0
