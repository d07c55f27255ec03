"""thumbnails: small pictures of values. Pure.

Pillow shrinks image files where it is installed; without it they are taken as they are, as far as
a browser shows them. Arrays are drawn here.
"""

from __future__ import annotations

import base64
import io
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from lmdbio.inside.glimpse import Glimpse
from lmdbio.inside.kinds import Kind
from lmdbio.inside.packed import unpack
from lmdbio.inside.pictures import pixels_of, write_png
from lmdbio.inside.wire import find_datum

__all__ = ["VALUE_BYTES_MAX", "Thumbnail", "has_pillow", "thumbnail"]

#: Values above this, as they lie or unpacked, are shown by a card.
VALUE_BYTES_MAX = 16 << 20
#: An image file may claim to have more pixels than memory holds.
PIXELS_MAX = 48 << 20
QUALITY = 80
#: Image files that browsers show.
_SHOWN = {
    "JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif", "WebP": "image/webp",
    "BMP": "image/bmp", "AVIF": "image/avif",
}  # fmt: skip


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
        if pillow:
            return _shrunk(content, side)
        mime = _SHOWN.get(of.name)
        if mime is None or len(content) > plain_bytes_max:
            return None
        return Thumbnail(mime, content, *(of.size or (0, 0)))
    pixels = pixels_of(value, kind, side)
    if pixels is None:
        return None
    return Thumbnail("image/png", write_png(pixels), pixels.shape[1], pixels.shape[0])


def _image_file(value: bytes, kind: Kind) -> tuple[bytes, Kind] | None:
    """Return the image file that a value is or holds, and its kind."""
    while kind.picture is not None:
        if kind.picture is kind:
            return value, kind
        if kind.name == "Datum":
            datum = find_datum(Glimpse.whole_of(value))
            if datum is None or datum.data is None:
                return None
            value = value[datum.data[0] : datum.data[1]]
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
