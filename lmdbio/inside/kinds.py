"""kinds: the kind of a value, guessed from its first and its last bytes. Pure.

    magic numbers  >  compression, and what is inside  >  text  >  Datum, msgpack, protobuf
      >  numbers that look like some  >  binary;  and the picture in objects and in binary

Nothing is decoded but lengths and headers, and nothing is run.
"""

from __future__ import annotations

import codecs
import json
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from lmdbio.inside.arrays import find_npy, guess_numbers
from lmdbio.inside.embedded import Embedded, find_embedded
from lmdbio.inside.excerpt import Excerpt
from lmdbio.inside.images import Size, find_image
from lmdbio.inside.packed import find_packing, unpack
from lmdbio.inside.wire import find_datum, find_msgpack, find_protobuf

__all__ = ["PIXELS", "UNPACKED_BYTES_MAX", "Kind", "guess", "kind_of"]

#: Of a compressed value, so much is unpacked to see what is inside; so deep, one in another.
UNPACKED_BYTES_MAX, DEPTH_MAX = 64 << 10, 3
#: Opcodes of a pickle that are looked at for the name of the first class in it.
OPCODES_MAX = 200
#: The kind of plain pixels: rows of red, green and blue, a byte each.
PIXELS = "pixels"
#: A text of so many characters is its own detail.
QUOTED_MAX = 40


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a value.

    Attributes:
        name: name of the kind, such as "JPEG" or "Datum".
        group: "image", "array", "text", "sound", "packed", "objects", "binary" or "empty".
        detail: a size, a shape, a label; "": nothing is known.
        extension: extension of a file that holds such a value, without its dot.
        size: (width, height) of an image.
        inner: Kind of the content of a compressed value or a Datum, or of the picture in a value.
    """

    name: str
    group: str = "binary"
    detail: str = ""
    extension: str = "bin"
    size: Size | None = None
    inner: Kind | None = None

    @property
    def title(self) -> str:
        """The kind without the details of one value, by which values are counted."""
        return f"{self.name} of {self.inner.title}" if self.inner is not None else self.name

    def __str__(self) -> str:
        if self.inner is not None:
            return ", ".join(filter(None, (f"{self.name} of {self.inner}", self.detail)))
        return " ".join(filter(None, (self.name, self.detail)))

    @property
    def picture(self) -> Kind | None:
        """The image file that a value is, or holds; None: it is none."""
        if self.group == "image" and self.name != "Datum":
            return self
        return self.inner.picture if self.inner is not None else None


EMPTY = Kind("empty", "empty", extension="empty")
BINARY = Kind("binary")


def guess(excerpt: Excerpt, depth: int = 0) -> Kind:
    """Return the kind of a value.

    Args:
        excerpt: Excerpt of the value: its first and its last bytes.
        depth: number of compressions that it was in.
    """
    if not excerpt.head:
        return EMPTY
    found = find_image(excerpt)
    if found is not None:
        name, extension, size = found
        detail = "{}x{}".format(*size) if size is not None else ""
        return Kind(name, "image", detail, extension, size)
    packing = find_packing(excerpt.head)
    if packing is not None and depth < DEPTH_MAX:
        kind = _packed(packing, excerpt, depth)
        if kind is not None:
            return kind
    kind = next((kind for find in _FINDERS if (kind := find(excerpt)) is not None), BINARY)
    return _with_picture(kind, excerpt) if kind is BINARY or kind.group == "objects" else kind


def _with_picture(kind: Kind, excerpt: Excerpt) -> Kind:
    """Return the kind of a value with the picture that it holds, if it does."""
    picture = find_embedded(excerpt, kind.name)
    if picture is None:
        return kind
    label = f"label {picture.label}" if picture.label is not None else ""
    if kind is BINARY and not label:
        label = f"from byte {picture.start}"
    detail = ", ".join(filter(None, (kind.detail, label)))
    return replace(kind, detail=detail, inner=kind_of(picture, excerpt.head))


def kind_of(picture: Embedded, value: bytes) -> Kind:
    """Return the kind of the picture in a value.

    Args:
        picture: Embedded of the value.
        value: value, or its first bytes.
    """
    if picture.pixels is not None:
        return Kind(PIXELS, "image", "{}x{}".format(*picture.pixels), "raw", picture.pixels)
    length = None if picture.stop is None or picture.is_text else picture.stop - picture.start
    return guess(Excerpt(picture.content(value), length), DEPTH_MAX)


def _packed(packing: str, excerpt: Excerpt, depth: int) -> Kind | None:
    extension = {"gzip": "gz", "zstd": "zst", "zlib": "zz"}.get(packing, packing)
    unpacked = unpack(packing, excerpt.head, UNPACKED_BYTES_MAX)
    if unpacked is None:
        return None if packing == "zlib" else Kind(packing, "packed", extension=extension)
    inner = guess(unpacked, depth + 1)
    if packing != "zlib":
        extension = f"{inner.extension}.{extension}"
    return Kind(packing, "packed", extension=extension, inner=inner)


# --- magic numbers ------------------------------------------------------------------------

#: First bytes, the kind.
_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"fLaC", Kind("FLAC", "sound", extension="flac")),
    (b"OggS", Kind("Ogg", "sound", extension="ogg")),
    (b"ID3", Kind("MP3", "sound", extension="mp3")),
    (b"\x89HDF\r\n\x1a\n", Kind("HDF5", "array", extension="h5")),
    (b"PAR1", Kind("Parquet", "array", extension="parquet")),
    (b"ARROW1\0\0", Kind("Arrow", "array", extension="arrow")),
    (b"\xff\xff\xff\xff", Kind("Arrow", "array", "stream", "arrows")),
    (b"%PDF-", Kind("PDF", "binary", extension="pdf")),
    (b"SQLite format 3\0", Kind("SQLite", "binary", extension="sqlite")),
    (b"\x1a\x45\xdf\xa3", Kind("Matroska", "sound", "video", "mkv")),
)
#: Arrow's stream begins with an end mark of old readers, and the length of a small schema.
_ARROW = re.compile(rb"\xff\xff\xff\xff..[\0-\x0f]\0\x10\0\0\0", re.DOTALL)
_MP3_SECOND = frozenset((0xFA, 0xFB, 0xF2, 0xF3, 0xE2, 0xE3))
#: Of an MP3 frame, by whether it is of MPEG 1: kilobits a second; samples a second
#: (half of them in MPEG 2, a quarter in 2.5).
_MP3_RATES = {
    True: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MP3_SAMPLES = (44_100, 48_000, 32_000)


def _of_magic(excerpt: Excerpt) -> Kind | None:
    head = excerpt.head
    for first, kind in _MAGIC:
        if head.startswith(first):
            if first == b"\xff\xff\xff\xff" and not _ARROW.match(head):
                continue
            return kind
    if head[:4] == b"RIFF" and head[8:12] in (b"WAVE", b"AVI "):
        return _of_wave(head) if head[8:12] == b"WAVE" else Kind("AVI", "sound", "video", "avi")
    if head[4:8] == b"ftyp":
        return Kind("MP4", "sound", "video", "mp4")
    if _is_mp3(head):
        return Kind("MP3", "sound", extension="mp3")
    return None


def _is_mp3(head: bytes) -> bool:
    """Say whether an MP3 frame begins here, and another one behind it."""
    if len(head) < 4 or head[0] != 0xFF or head[1] not in _MP3_SECOND:
        return False
    rate, samples, is_first = head[2] >> 4, head[2] >> 2 & 3, head[1] >= 0xFA
    if not 0 < rate < 15 or samples == 3:
        return False
    a_second = _MP3_SAMPLES[samples] >> (0 if is_first else 1 if head[1] >= 0xF2 else 2)
    factor = 144_000 if is_first else 72_000
    length = factor * _MP3_RATES[is_first][rate - 1] // a_second + (head[2] >> 1 & 1)
    return head[length : length + 1] == b"\xff" and head[length + 1 : length + 2] == head[1:2]


def _of_wave(head: bytes) -> Kind:
    at = head.find(b"fmt ", 12, 4096)
    if at < 0 or at + 24 > len(head):
        return Kind("WAV", "sound", extension="wav")
    channels = int.from_bytes(head[at + 10 : at + 12], "little")
    rate = int.from_bytes(head[at + 12 : at + 16], "little")
    bits = int.from_bytes(head[at + 22 : at + 24], "little")
    return Kind("WAV", "sound", f"{rate:,} Hz, {channels} x {bits} bits", "wav")


def _of_npy(excerpt: Excerpt) -> Kind | None:
    header = find_npy(excerpt.head)
    return None if header is None else Kind("npy", "array", header.text, "npy")


def _of_zip(excerpt: Excerpt) -> Kind | None:
    head = excerpt.head
    if not head.startswith(b"PK\x03\x04") or len(head) < 30:
        return None
    name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    if name.endswith(b".npy"):
        return Kind("npz", "array", extension="npz")
    if name.endswith((b"/data.pkl", b"/version", b"/byteorder")):
        return Kind("PyTorch file", "objects", "a pickle, not loaded", "pt")
    return Kind("zip", "packed", extension="zip")


def _of_safetensors(excerpt: Excerpt) -> Kind | None:
    size = int.from_bytes(excerpt.head[:8], "little")
    if excerpt.head[8:10] != b'{"' or not 2 <= size < 100 << 20:
        return None
    fits = excerpt.length is None or size + 8 <= excerpt.length
    return Kind("safetensors", "array", extension="safetensors") if fits else None


# --- pickles ------------------------------------------------------------------------------

_OLD_PICKLE = re.compile(rb"\(([dl]p\d+\n|[dl]q\x00)|c[\w.]+\n[\w.]+\n|[\]}]q\x00")


def _of_pickle(excerpt: Excerpt) -> Kind | None:
    head = excerpt.head
    if excerpt.last not in (b".", b""):
        return None
    if head[0] == 0x80 and len(head) > 2 and 2 <= head[1] <= 5:
        protocol = f"protocol {head[1]}"
    elif _OLD_PICKLE.match(head) and excerpt.is_whole and _is_old_pickle(head):
        protocol = "protocol 0 or 1"
    else:
        return None
    name = _first_class(head)
    detail = f"{protocol}, not loaded" + (f": {name}" if name else "")
    return Kind("pickle", "objects", detail, "pkl")


def _is_old_pickle(value: bytes) -> bool:
    """Say whether all of a value is a pickle: the first ones look like many a text."""
    try:
        end = -1
        for _, _, at in islice(pickletools.genops(value), 100 * OPCODES_MAX):
            end = at or 0
    except Exception:  # of pickletools, which reads what anybody may have written
        return False
    return end == len(value) - 1


def _first_class(head: bytes) -> str:
    """Return the first class or function that a pickle names; "": none, or too far behind."""
    texts: list[str] = []
    try:
        for step, (code, value, _) in enumerate(pickletools.genops(head[:4096])):
            if code.name in ("GLOBAL", "INST"):
                return _name(".".join(str(value).split(" ")))
            if code.name == "STACK_GLOBAL":
                return _name(".".join(texts[-2:]))
            if "UNICODE" in code.name:
                texts.append(str(value))
            if step > OPCODES_MAX:
                break
    except Exception:  # of pickletools, which reads what anybody may have written
        return ""
    return ""


def _name(text: str) -> str:
    return text if re.fullmatch(r"[\w.]{1,80}", text) else ""


# --- text ---------------------------------------------------------------------------------

_NUMBER = re.compile(r"\s*[-+]?(\d+)\s*|\s*[-+]?\d*\.?\d+([eE][-+]?\d+)?\s*")
#: Blanks that texts have; any other control character is none of theirs.
_BLANKS = str.maketrans("", "", "\t\n\r\f\v")


def text_of(excerpt: Excerpt) -> str | None:
    """Return the head as text; None: it is no UTF-8 text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(excerpt.head, excerpt.is_whole)
    except UnicodeDecodeError:
        return None
    displayed = text.translate(_BLANKS)
    has_controls = any(character < " " or "\x7f" <= character < "\xa0" for character in displayed)
    return None if has_controls or not text else text


def _of_text(excerpt: Excerpt) -> Kind | None:
    text = text_of(excerpt)
    if text is None:
        return None
    if excerpt.is_whole and len(text) <= 64 and (number := _NUMBER.fullmatch(text)):
        name = "integer text" if number[1] else "number text"
        return Kind(name, "text", text.strip(), "txt")
    begun = text.lstrip()[:1]
    if begun and begun in "{[":
        detail = _json_detail(text, whole=excerpt.is_whole)
        if detail is not None:
            return Kind("JSON", "text", detail, "json")
    if text.lstrip()[:5].lower() in ("<?xml", "<html", "<!doc", "<svg "):
        is_xml = text.lstrip()[:5].lower() in ("<?xml", "<svg ")
        return Kind("XML" if is_xml else "HTML", "text", "", "xml" if is_xml else "html")
    return Kind("text", "text", _text_detail(text, whole=excerpt.is_whole), "txt")


def _text_detail(text: str, *, whole: bool) -> str:
    """Return a short text itself, or how many lines it has."""
    if whole and len(text) <= QUOTED_MAX and text.isprintable():
        return f'"{text}"'
    lines = text.count("\n") + (not text.endswith("\n"))
    return f"{lines} lines" if whole and lines > 1 else ""


def _json_detail(text: str, *, whole: bool) -> str | None:
    """Return what a JSON value holds, in words; None: it is none."""
    if not whole:
        return "" if re.match(r'\s*(\{\s*"|\[\s*[\[{"\d-])', text) else None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return f"{'object' if isinstance(value, dict) else 'list'} of {len(value)}"


# --- messages and numbers -----------------------------------------------------------------


def _of_datum(excerpt: Excerpt) -> Kind | None:
    datum = find_datum(excerpt)
    if datum is None:
        return None
    label = f"label {datum.label}" if datum.label is not None else ""
    if datum.is_encoded and datum.data is not None:
        start, stop = datum.data
        data = Excerpt(excerpt.head[start:stop], stop - start)
        return Kind("Datum", "image", label, "datum", inner=guess(data, DEPTH_MAX))
    shape = "x".join(map(str, datum.shape))
    floats = "float32 " if datum.data is None else ""
    size = (datum.width, datum.height) if datum.height > 1 and datum.width > 1 else None
    detail = ", ".join(filter(None, (f"{floats}{shape}", label)))
    return Kind("Datum", "image" if size else "array", detail, "datum", size)


def _of_msgpack(excerpt: Excerpt) -> Kind | None:
    found = find_msgpack(excerpt)
    return None if found is None else Kind("msgpack", "objects", found, "msgpack")


def _of_protobuf(excerpt: Excerpt) -> Kind | None:
    numbers = find_protobuf(excerpt)
    if numbers is None:
        return None
    displayed = ", ".join(map(str, numbers[:8])) + ", ..." * (len(numbers) > 8)
    return Kind("protobuf", "objects", f"field{'s' * (len(numbers) > 1)} {displayed}", "pb")


def _of_numbers(excerpt: Excerpt) -> Kind | None:
    found = guess_numbers(excerpt.head, excerpt.length)
    return None if found is None else Kind(f"{found[0]}?", "array", f"x {found[1]:,}", "raw")


_FINDERS: tuple[Callable[[Excerpt], Kind | None], ...] = (
    _of_magic,
    _of_npy,
    _of_zip,
    _of_safetensors,
    _of_pickle,
    _of_text,
    _of_datum,
    _of_msgpack,
    _of_numbers,
    _of_protobuf,
)
