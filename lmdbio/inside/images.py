"""images: image files by their first bytes, and their sizes by their headers. Pure.

The first bytes of a value are enough to call it an image. Those at another place of it are not:
there the header has to be sound, and a bounded number of places is tried.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from itertools import islice

from lmdbio.inside.excerpt import Excerpt

__all__ = ["Size", "find_image", "is_sound", "search_image"]

Size = tuple[int, int]

#: JPEG's frame headers; C4, C8 and CC among them are tables and an extension.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
#: Markers without a length: padding, restarts, the beginning.
_BARE = frozenset((0x01, *range(0xD0, 0xD9)))
#: Segments of a JPEG file, and tags of a TIFF file, that are looked at.
SEGMENTS_MAX, TAGS_MAX = 256, 256
#: Places of a value that begin like an image file, and are looked at; the first bytes of a value,
#: with the header before an image: to search more of each takes longer than to read it.
PLACES_MAX, SEARCHED_BYTES = 16, 8 << 10
#: First bytes of the files that are searched for; JPEG's begin by a table, APPn or a comment.
_SIGNATURE = re.compile(
    rb"\xff\xd8\xff[\xc4\xdb\xdd\xe0-\xef\xfe]|\x89PNG\r\n\x1a\n|GIF8[79]a|RIFF.{4}WEBPVP8[ LX]",
    re.DOTALL,
)
_PADDING = re.compile(rb"\xff\xff+")


def find_image(excerpt: Excerpt) -> tuple[str, str, Size | None] | None:
    """Return name, file extension and (width, height) of an image; None: it is none.

    The size is None where its header does not tell it, or lies beyond the excerpt.
    """
    head = excerpt.head
    for begins, name, extension, find_size in _KINDS:
        if begins(head, excerpt.length):
            return name, extension, find_size(head)
    return None


def search_image(excerpt: Excerpt) -> int | None:
    """Return where an image file begins within a value; None: none was found."""
    head = excerpt.head
    for found in islice(_SIGNATURE.finditer(head, 0, SEARCHED_BYTES), PLACES_MAX):
        at = found.start()
        length = None if excerpt.length is None else excerpt.length - at
        if is_sound(Excerpt(head[at:], length)):
            return at
    return None


def is_sound(excerpt: Excerpt) -> bool:
    """Say whether a JPEG, PNG, GIF or WebP file begins here, whose header holds."""
    head, found = excerpt.head, find_image(excerpt)
    if found is None or found[2] is None or not all(found[2]):
        return False
    match found[0]:
        case "JPEG":  # its segments led to its size
            return True
        case "PNG":
            return zlib.crc32(head[12:29]) == int.from_bytes(head[29:33], "big")
        case "GIF":  # behind a table of colors comes an image, or an extension
            table = 3 << (head[10] & 7) + 1 if len(head) > 10 and head[10] & 0x80 else 0
            return head[13 + table : 14 + table] in (b",", b"!")
        case "WebP":
            size = 8 + int.from_bytes(head[4:8], "little")
            return excerpt.length is None or size <= excerpt.length
    return False


def _of_jpeg(head: bytes) -> Size | None:
    at = 2
    for _ in range(SEGMENTS_MAX):
        if (padding := _PADDING.match(head, at)) is not None:
            at = padding.end() - 1
        if at + 9 > len(head) or head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker in _BARE:
            at += 2
            continue
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        at += 2 + int(struct.unpack_from(">H", head, at + 2)[0])
    return None


def _of_png(head: bytes) -> Size | None:
    if head[12:16] != b"IHDR" or len(head) < 24:
        return None
    width, height = struct.unpack_from(">II", head, 16)
    return width, height


def _of_gif(head: bytes) -> Size | None:
    return struct.unpack_from("<HH", head, 6) if len(head) >= 10 else None


def _of_webp(head: bytes) -> Size | None:
    form, body = head[12:16], head[20:30]
    if len(body) < 10:
        return None
    if form == b"VP8X":
        return (int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1)
    if form == b"VP8L" and body[0] == 0x2F:
        bits = int.from_bytes(body[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", body, 6)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _of_bmp(head: bytes) -> Size | None:
    if len(head) < 26:
        return None
    if head[14:18] == b"\x0c\0\0\0":
        return struct.unpack_from("<HH", head, 18)
    width, height = struct.unpack_from("<ii", head, 18)
    return abs(width), abs(height)


def _of_tiff(head: bytes) -> Size | None:
    order = "<" if head[:1] == b"I" else ">"
    if len(head) < 8:
        return None
    (at,) = struct.unpack_from(f"{order}I", head, 4)
    if at + 2 > len(head):
        return None
    found: dict[int, int] = {}
    for number in range(min(TAGS_MAX, struct.unpack_from(f"{order}H", head, at)[0])):
        entry = head[at + 2 + 12 * number : at + 14 + 12 * number]
        if len(entry) < 12:
            break
        tag, kind = struct.unpack_from(f"{order}HH", entry)
        if tag in (256, 257) and kind in (3, 4):
            found[tag] = struct.unpack_from(order + ("H" if kind == 3 else "I"), entry, 8)[0]
    return (found[256], found[257]) if len(found) == 2 else None


def _unknown(head: bytes) -> None:
    del head


def _is_webp(head: bytes, length: int | None) -> bool:
    del length
    return head[:4] == b"RIFF" and head[8:12] == b"WEBP"


def _is_bmp(head: bytes, length: int | None) -> bool:
    """Two letters are not enough: the header also tells the length of the file."""
    if head[:2] != b"BM" or len(head) < 26:
        return False
    size, _, start = struct.unpack_from("<III", head, 2)
    return start < size and (length is None or size == length)


def _begins(*firsts: bytes) -> Callable[[bytes, int | None], bool]:
    return lambda head, _: head.startswith(firsts)


def _is_heif(*brands: bytes) -> Callable[[bytes, int | None], bool]:
    return lambda head, _: head[4:8] == b"ftyp" and head[8:12] in brands


_KINDS: tuple[
    tuple[Callable[[bytes, int | None], bool], str, str, Callable[[bytes], Size | None]], ...
] = (
    (_begins(b"\xff\xd8\xff"), "JPEG", "jpg", _of_jpeg),
    (_begins(b"\x89PNG\r\n\x1a\n"), "PNG", "png", _of_png),
    (_begins(b"GIF87a", b"GIF89a"), "GIF", "gif", _of_gif),
    (_is_webp, "WebP", "webp", _of_webp),
    (_is_bmp, "BMP", "bmp", _of_bmp),
    (_begins(b"II*\0", b"MM\0*"), "TIFF", "tif", _of_tiff),
    (_begins(b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"), "JPEG 2000", "jp2", _unknown),
    (_begins(b"\xff\x0a", b"\0\0\0\x0cJXL \r\n\x87\n"), "JPEG XL", "jxl", _unknown),
    (_is_heif(b"avif", b"avis"), "AVIF", "avif", _unknown),
    (_is_heif(b"heic", b"heix", b"mif1"), "HEIF", "heic", _unknown),
)
