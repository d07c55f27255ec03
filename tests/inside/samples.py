"""Values of each kind, small, and made here: what tests of ``inside`` look at."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import wave
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import zstandard
from PIL import Image


def image(kind: str, width: int = 37, height: int = 23, **options: Any) -> bytes:
    """Return an image file of a size, by Pillow."""
    pixels = np.arange(width * height * 3, dtype=np.uint32).reshape(height, width, 3)
    into = io.BytesIO()
    Image.fromarray((pixels * 7 % 256).astype(np.uint8), "RGB").save(into, kind, **options)
    return into.getvalue()


def jpeg_with_exif() -> bytes:
    """Return a JPEG file whose size stands behind 60 KB of a preview."""
    plain = image("JPEG")
    segment = b"\xff\xe1" + struct.pack(">H", 60_002) + bytes(60_000)
    return plain[:2] + segment + plain[2:]


def varint(number: int) -> bytes:
    out = b""
    while True:
        number, low = number >> 7, number & 127
        out += bytes([low | (128 if number else 0)])
        if not number:
            return out


def datum(
    shape: tuple[int, int, int],
    data: bytes = b"",
    label: int | None = None,
    floats: list[float] | None = None,
    *,
    encoded: bool = False,
    packed: bool = False,
) -> bytes:
    """Return a Datum as protobuf writes it."""
    out = b"".join(bytes([8 * n]) + varint(size) for n, size in enumerate(shape, 1) if size)
    if data:
        out += b"\x22" + varint(len(data)) + data
    if label is not None:
        out += b"\x28" + varint(label % (1 << 64))
    if floats is not None and packed:
        raw = struct.pack(f"<{len(floats)}f", *floats)
        out += b"\x32" + varint(len(raw)) + raw
    elif floats is not None:
        out += b"".join(b"\x35" + struct.pack("<f", one) for one in floats)
    return out + (b"\x38\x01" if encoded else b"")


def npy(array: Any) -> bytes:
    into = io.BytesIO()
    np.save(into, array)
    return into.getvalue()


def npz() -> bytes:
    into = io.BytesIO()
    np.savez(into, a=np.arange(4))
    return into.getvalue()


def zipped(name: str, content: bytes = b"content") -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr(name, content)
    return into.getvalue()


def sound() -> bytes:
    into = io.BytesIO()
    with wave.open(into, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(400))
    return into.getvalue()


def lz4_frame(*blocks: tuple[bool, bytes], flags: int = 0x60) -> bytes:
    """Return an lz4 frame of blocks that are plain (True) or compressed already."""
    out = b"\x04\x22\x4d\x18" + bytes((flags, 0x40, 0))
    for is_plain, block in blocks:
        out += struct.pack("<I", len(block) | (1 << 31 if is_plain else 0)) + block
    return out + bytes(4)


PHOTO = image("JPEG", quality=95)
PIXELS = np.arange(23 * 37 * 3, dtype=np.uint8).reshape(23, 37, 3)
#: 4 literals "abcd", 12 bytes from 4 back, then 5 literals: "abcdabcdabcdabcdxyz!!".
LZ4_BLOCK = b"\x48abcd\x04\x00\x50xyz!!"
LZ4_TEXT = b"abcd" * 4 + b"xyz!!"
TEXT = b"a text of some words, and more of them\n" * 4
JSON = json.dumps({"caption": "a dog", "boxes": [[1, 2, 3, 4]]}).encode()
MSGPACK = b"\x83\xa2id\x01\xa5label\xa3cat\xa5score\xca\x3f\x80\0\0"
NUMBERS = np.linspace(-1, 1, 300)


def packed_bytes(value: bytes) -> bytes:
    """Return bytes as msgpack writes them, large ones."""
    return b"\xc6" + struct.pack(">I", len(value)) + value


def embedded_pictures() -> Iterator[tuple[str, str, bytes]]:
    """Yield title of the kind, a part of its detail, and a value that holds a JPEG file or pixels.

    The file is ``PHOTO``, as programs store it beside its label.
    """
    for protocol in range(2, 6):
        about = f"protocol {protocol}, not loaded"
        for value in ((PHOTO, 7), [PHOTO, 7], {"image": PHOTO, "label": 7}, {"y": 7, "x": PHOTO}):
            yield "pickle of JPEG", f"{about}, label 7", pickle.dumps(value, protocol)
        yield "pickle of JPEG", about, pickle.dumps((PHOTO, "a dog", None), protocol)
        yield "pickle of JPEG", about, pickle.dumps([(PHOTO, 7), (PHOTO, 8)], protocol)
        if protocol > 2:  # NumPy writes text there, whose pixels nobody wants to count
            encoded = np.frombuffer(PHOTO, np.uint8)
            yield "pickle of JPEG", about, pickle.dumps((encoded, 7), protocol)
            yield "pickle of JPEG", about, pickle.dumps({"img": encoded[:, None]}, protocol)
            yield "pickle of pixels", about, pickle.dumps((PIXELS, 7), protocol)
            others = {"ok": True, "number": np.int64(3), "x": PIXELS, "sex": "F"}
            yield "pickle of pixels", about, pickle.dumps(others, protocol)
            yield "pickle of pixels", about, pickle.dumps({"x": PIXELS.copy(), "y": 7}, protocol)
    # As Python 2 wrote them: text that is bytes.
    old = b"\x80\x02T" + struct.pack("<i", len(PHOTO)) + PHOTO + b"q\0K\x07\x86q\1."
    yield "pickle of JPEG", "protocol 2, not loaded, label 7", old
    photo = packed_bytes(PHOTO)
    yield "msgpack of JPEG", "map of 2: image, label", b"\x82\xa5image" + photo + b"\xa5label\x07"
    yield "msgpack of JPEG", "array of 2", b"\x92" + photo + b"\x07"
    yield "protobuf of JPEG", "field 1", b"\x0a" + varint(len(PHOTO)) + PHOTO
    for label in (0, 1, 7, 8, 10, 0x80, 0x92, 0xFF):
        yield "binary of JPEG", f"label {label}", bytes((label,)) + PHOTO
    yield "binary of JPEG", "from byte 4", struct.pack("<i", 7) + PHOTO
    yield "binary of JPEG", "from byte 30", b'{"label": 7, "name": "a dog"}\n' + PHOTO
    yield "zlib of pickle of JPEG", "", zlib.compress(pickle.dumps((PHOTO, 7), 4))
    yield "zlib of pickle of JPEG", "", zlib.compress(pickle.dumps((PHOTO, 7), 2))
    yield "PyTorch file of JPEG", "", zipped("archive/data.pkl", pickle.dumps((PHOTO, 7), 4))


class Marked:
    """A class whose pickle would call something: ``called`` must stay empty."""

    called: ClassVar[list[str]] = []

    def __reduce__(self) -> Any:
        return Marked.called.append, ("called",)


#: name of the kind, detail, extension, the value.
GOOD: tuple[tuple[str, str, str, bytes], ...] = (
    ("JPEG", "37x23", "jpg", image("JPEG")),
    ("JPEG", "37x23", "jpg", image("JPEG", progressive=True)),
    ("JPEG", "37x23", "jpg", jpeg_with_exif()),
    ("PNG", "37x23", "png", image("PNG")),
    ("GIF", "37x23", "gif", image("GIF")),
    ("WebP", "37x23", "webp", image("WEBP")),
    ("WebP", "37x23", "webp", image("WEBP", lossless=True)),
    ("WebP", "37x23", "webp", image("WEBP", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0")),
    ("BMP", "37x23", "bmp", image("BMP")),
    ("TIFF", "37x23", "tif", image("TIFF")),
    ("Datum", "3x4x5, label 7", "datum", datum((3, 4, 5), bytes(range(60)), 7)),
    ("Datum", "1x2x2, label -1", "datum", datum((1, 2, 2), b"\1\2\3\4", -1)),
    ("Datum", "float32 6x1x1, label 0", "datum", datum((6, 1, 1), label=0, floats=[0.5] * 6)),
    ("Datum", "float32 2x3x4", "datum", datum((2, 3, 4), floats=[1.0] * 24, packed=True)),
    ("Datum of JPEG", "label 3", "datum", datum((0, 0, 0), image("JPEG"), 3, encoded=True)),
    ("npy", "float32 3x4", "npy", npy(np.zeros((3, 4), np.float32))),
    ("npy", "int64 scalar", "npy", npy(np.int64(3))),
    ("npz", "", "npz", npz()),
    ("PyTorch file", "a pickle, not loaded", "pt", zipped("archive/data.pkl")),
    ("zip", "", "zip", zipped("readme.txt")),
    ("pickle", "protocol 4, not loaded", "pkl", pickle.dumps([1, 2, 3], 4)),
    ("pickle", "protocol 2, not loaded: collections.OrderedDict", "pkl",
     b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01."),
    ("pickle", "protocol 0 or 1, not loaded", "pkl", pickle.dumps({"a": 1}, 0)),
    ("msgpack", "map of 3: id, label, score", "msgpack", MSGPACK),
    ("msgpack", "array of 3", "msgpack", b"\x93\x01\xa3abc\xc0"),
    ("JSON", "object of 2", "json", JSON),
    ("JSON", "list of 3", "json", b" [1, 2, 3]"),
    ("XML", "", "xml", b"<?xml version='1.0'?><a/>"),
    ("integer text", "123456", "txt", b"123456"),
    ("number text", "-0.25", "txt", b"-0.25\n"),
    ("text", '"Stra\xc3\x9fe"'.encode("latin-1").decode(), "txt", "Straße".encode()),
    ("text", "4 lines", "txt", TEXT),
    ("zlib of JSON", "", "zz", zlib.compress(JSON)),
    ("gzip of text", "", "txt.gz", gzip.compress(TEXT)),
    ("zstd of text", "", "txt.zst", zstandard.compress(TEXT)),
    ("bz2 of text", "", "txt.bz2", bz2.compress(TEXT)),
    ("xz of text", "", "txt.xz", lzma.compress(TEXT)),
    ("lz4 of text", "", "txt.lz4", lz4_frame((False, LZ4_BLOCK))),
    ("gzip of zlib of JSON", "", "zz.gz", gzip.compress(zlib.compress(JSON))),
    ("WAV", "16,000 Hz, 2 x 16 bits", "wav", sound()),
    ("FLAC", "", "flac", b"fLaC\0\0\0\x22" + bytes(34)),
    ("MP3", "", "mp3", (b"\xff\xfb\x90\x64" + bytes(413)) * 2),
    ("MP3", "", "mp3", b"ID3\x04" + bytes(40)),
    ("MP4", "video", "mp4", b"\0\0\0\x20ftypisom" + bytes(20)),
    ("float32?", "x 300", "raw", NUMBERS.astype("<f4").tobytes()),
    ("float64?", "x 300", "raw", NUMBERS.tobytes()),
    ("int64?", "x 40", "raw", np.arange(40).tobytes()),
    ("int32?", "x 40", "raw", np.arange(40, dtype="<i4").tobytes()),
    ("protobuf", "fields 1, 2, 3", "pb", b"\x08\x96\x01\x12\x03a\xffb\x1d\0\0\x80\x3f"),
    ("empty", "", "empty", b""),
)  # fmt: skip
#: title, part of the detail, the value.
EMBEDDED = tuple(embedded_pictures())
#: Values that begin as one of those, and are none.
BAD: tuple[bytes, ...] = (
    b"BM, a text that begins with two letters of an image file",
    b"\x78\x9cno zlib at all",
    b"\x80\x04 no pickle, for it ends otherwise",
    b"{ no JSON }",
    b"cats\ndogs\nand a full stop.",
    b"\xff\xfe" + "UTF-16".encode("utf-16-le"),
    b"PK, a text",
    b"\x93NUMPY",
    b"RIFF\0\0\0\0ABCD",
    b"\xff\xfb\x90\x64" + b"\x9e" * 800,
)
