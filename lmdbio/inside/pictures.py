"""pictures: small pictures of values: image files, and arrays that are drawn here. Pure.

Pillow shrinks image files where it is installed; without it they are taken as they are, as far as
a browser shows them. A Datum of Caffe's holds planes of blue, green and red; a .npy value an array
of two dimensions, or of three with one, three or four channels first or last. The picture of a
pickle, and of other values that hold one, is theirs (``embedded``).
"""

from __future__ import annotations

import base64
import io
import struct
import warnings
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio.inside.arrays import find_npy
from lmdbio.inside.embedded import find_embedded
from lmdbio.inside.excerpt import Excerpt
from lmdbio.inside.kinds import PIXELS, Kind, kind_of
from lmdbio.inside.packed import unpack
from lmdbio.inside.wire import Datum, find_datum

__all__ = ["VALUE_BYTES_MAX", "Thumbnail", "has_pillow", "pixels_of", "thumbnail", "write_png"]

Array = npt.NDArray[Any]
#: uint8, shape (height, width) for grey or (height, width, 3) for red, green and blue.
Pixels = npt.NDArray[np.uint8]
#: Values above this, as they lie or unpacked, are shown by a card.
VALUE_BYTES_MAX = 16 << 20
#: An image file may claim to have more pixels than memory holds.
PIXELS_MAX = 48 << 20
QUALITY = 80
#: Image files that browsers show.
_DISPLAYED = {
    "JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif", "WebP": "image/webp",
    "BMP": "image/bmp", "AVIF": "image/avif",
}  # fmt: skip
#: Larger pictures lose rows and columns before anything is computed.
SIDE_MAX = 256
#: A picture of one row, or of one column, shows nothing.
SIDE_MIN = 2


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture.

    Attributes:
        mime: type of the file.
        content: content of the file.
        width, height: pixels; 0: not known.
    """

    mime: str
    content: bytes
    width: int
    height: int

    @property
    def uri(self) -> str:
        """The picture within an address, as a page embeds it."""
        return f"data:{self.mime};base64,{base64.b64encode(self.content).decode('ascii')}"


def has_pillow() -> bool:
    """Say whether Pillow can shrink image files."""
    return find_spec("PIL") is not None


def thumbnail(
    value: bytes, kind: Kind, side: int, *, pillow: bool, plain_bytes_max: int = 0
) -> Thumbnail | None:
    """Return a small picture of a value; None: there is none to be had.

    Args:
        value: value, all of it.
        kind: Kind of the value.
        side: largest side of the picture, pixels.
        pillow: whether image files are shrunk by Pillow.
        plain_bytes_max: largest size of an image file that is taken as it is, without Pillow.
    """
    inner = _image_file(value, kind)
    if inner is not None:
        content, of = inner
        if of.size is not None and of.size[0] * of.size[1] > PIXELS_MAX:
            return None
        if of.name == PIXELS and of.size is not None:
            width, height = of.size
            return _png(_fewer(np.frombuffer(content, np.uint8).reshape(height, width, 3), side))
        if pillow:
            return _shrunk(content, side)
        mime = _DISPLAYED.get(of.name)
        if mime is None or len(content) > plain_bytes_max:
            return None
        return Thumbnail(mime, content, *(of.size or (0, 0)))
    pixels = pixels_of(value, kind, side)
    return None if pixels is None else _png(pixels)


def _image_file(value: bytes, kind: Kind) -> tuple[bytes, Kind] | None:
    """Return the image file, or the plain pixels, that a value is or holds, and their kind."""
    while kind.picture is not None:
        if kind.picture is kind:
            return value, kind
        if kind.name == "Datum":
            datum = find_datum(Excerpt.whole_of(value))
            if datum is None or datum.data is None:
                return None
            value = value[datum.data[0] : datum.data[1]]
        elif kind.group != "packed":
            picture = find_embedded(Excerpt.whole_of(value), kind.name)
            return None if picture is None else (picture.content(value), kind_of(picture, value))
        else:
            unpacked = unpack(kind.name, value, VALUE_BYTES_MAX)
            if unpacked is None or not unpacked.is_whole:
                return None
            value = unpacked.head
        if kind.inner is None:
            return None
        kind = kind.inner
    return None


def _shrunk(content: bytes, side: int) -> Thumbnail | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a file that is odd, and shown all the same
            return _by_pillow(content, side)
    except Exception:  # Pillow's plugins raise whatever a damaged file makes them
        return None


def _by_pillow(content: bytes, side: int) -> Thumbnail | None:
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        if image.width * image.height > PIXELS_MAX:
            return None
        image.draft("RGB", (side, side))  # JPEG files are decoded no larger than needed
        image.thumbnail((side, side))
        has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
        made: Any = image.convert("RGBA" if has_alpha else "RGB")
    into = io.BytesIO()
    if has_alpha or made.width * made.height <= 64 * 64:
        made.save(into, "PNG", optimize=True)
        return Thumbnail("image/png", into.getvalue(), made.width, made.height)
    made.save(into, "JPEG", quality=QUALITY, optimize=True)
    return Thumbnail("image/jpeg", into.getvalue(), made.width, made.height)


# --- arrays -------------------------------------------------------------------------------


def pixels_of(value: bytes, kind: Kind, side_max: int = SIDE_MAX) -> Pixels | None:
    """Return a picture of a value that holds an array; None: it is none that makes a picture.

    Args:
        value: value, all of it.
        kind: Kind of the value.
        side_max: largest side of the picture, pixels: every so many rows and columns are taken.
    """
    array = None
    if kind.name == "Datum":
        array = _of_datum(value)
    elif kind.name == "npy":
        array = _of_npy(value)
    if array is None or min(array.shape[:2]) < SIDE_MIN:
        return None
    return _fewer(array, side_max)


def _fewer(array: Array, side_max: int) -> Pixels:
    """Return every so many rows and columns of an array, as shades."""
    step = -(-max(array.shape[:2]) // side_max)
    return _as_bytes(array[::step, ::step])


def _of_datum(value: bytes) -> Array | None:
    datum = find_datum(Excerpt.whole_of(value))
    if datum is None or datum.is_encoded:
        return None
    if datum.data is not None:
        planes: Array = np.frombuffer(value[datum.data[0] : datum.data[1]], np.uint8)
    else:
        planes = _floats(datum, value)
    if len(planes) != np.prod(datum.shape, dtype=np.float64) or not len(planes):
        return None
    image: Array = planes.reshape(datum.shape)
    if datum.channels == 3:  # in OpenCV's order, in which Caffe's own tool writes them
        return np.moveaxis(image[::-1], 0, -1)
    first: Array = image[0]
    return first


def _floats(datum: Datum, value: bytes) -> Array:
    parts = []
    for run in datum.runs:
        raw = value[run.start : run.stop]
        if run.wire == 5:  # a tag stands before each of them
            rows = np.frombuffer(raw + b"\0", np.uint8)[: 5 * run.value].reshape(-1, 5)
            parts.append(np.ascontiguousarray(rows[:, :4]).view("<f4").reshape(-1))
        else:
            parts.append(np.frombuffer(raw[: len(raw) // 4 * 4], "<f4"))
    return np.concatenate(parts) if parts else np.empty(0, "<f4")


def _of_npy(value: bytes) -> Array | None:
    header = find_npy(value)
    if header is None or header.dtype is None or header.shape is None:
        return None
    if header.dtype.kind not in "biuf" or not 2 <= len(header.shape) <= 4:
        return None
    count = 1
    for size in header.shape:
        count *= size
    if not 0 < count <= (len(value) - header.data) // max(1, header.dtype.itemsize):
        return None
    flat = np.frombuffer(value, header.dtype, count, header.data)
    array: Array = flat.reshape(header.shape, order="F" if header.fortran else "C")
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 2:
        return array
    return _last_channels(array) if array.ndim == 3 else None


def _last_channels(array: Array) -> Array | None:
    """Return an image of two dimensions, or of three with 3 channels last; None: it is none."""
    if array.shape[0] in (1, 3, 4) and array.shape[2] not in (3, 4):
        array = array.transpose(1, 2, 0)
    if array.shape[2] == 1:
        return array[..., 0]
    if array.shape[2] in (3, 4):
        return array[..., :3]
    return array[0] if array.shape[0] <= 64 else None  # channels of a feature map: the first one


def _as_bytes(array: Array) -> Pixels:
    """Return numbers as shades, from the least of them to the largest."""
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array).view(np.uint8)
    values = array.astype(np.float64)
    is_finite = np.isfinite(values)
    if not is_finite.any():
        return np.zeros(values.shape, np.uint8)
    low, high = float(values[is_finite].min()), float(values[is_finite].max())
    if array.dtype.kind in "iu" and low >= 0 and high <= 255:
        low, high = 0.0, 255.0
    with np.errstate(over="ignore", invalid="ignore"):
        shades = (np.where(is_finite, values, low) - low) / ((high - low) or 1.0) * 255
    return np.nan_to_num(shades, nan=0.0, posinf=255.0).clip(0, 255).astype(np.uint8)


def _png(pixels: Pixels) -> Thumbnail:
    return Thumbnail("image/png", write_png(pixels), pixels.shape[1], pixels.shape[0])


def write_png(pixels: Pixels) -> bytes:
    """Return a picture as a PNG file."""
    height, width = pixels.shape[:2]
    color = 0 if pixels.ndim == 2 else 2
    rows = np.zeros((height, 1 + width * (1 if color == 0 else 3)), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)  # each behind its filter, 0: none
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in (
            (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")
        )
    )  # fmt: skip
