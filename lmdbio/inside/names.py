r"""names: file names for keys. Pure.

    train/cat_1, a JPEG     ->  train%2Fcat_1.jpg
    image-7.jpg, a JPEG     ->  image-7.jpg
    b"\x00\x07", text        ->  0x0007.txt

A name is one part of a path: it has no slash, no blank at its ends, does not begin with a dot or a
hyphen, and is short enough for any file system. No two records get one name.
"""

from __future__ import annotations

import hashlib

from lmdbio.inside.keytext import show_key

__all__ = ["NAME_BYTES_MAX", "Names"]

#: File systems take 255 bytes; a draft's or a program's own ending needs some.
NAME_BYTES_MAX = 200
STEM_BYTES = 150
_PLAIN = frozenset("._-+=,@")
#: Endings that mean the same, by the one that is given.
_SAME = {"jpg": (".jpg", ".jpeg"), "tif": (".tif", ".tiff"), "txt": (".txt", ".text", ".csv")}


class Names:
    """Gives each record a file name of its own.

    Args:
        integers: keys of this database are numbers of 4 or 8 bytes.
    """

    def __init__(self, *, integers: bool = False) -> None:
        self._integers = integers
        self._given: set[int] = set()
        self._last: tuple[bytes, int] = b"", 0

    def name(self, key: bytes, extension: str) -> str:
        """Return the name for the next record, whose value is of a kind with this extension."""
        stem = self._stem(key)
        ending = f".{extension}"
        for same in _SAME.get(extension, (ending,)):
            if stem.lower().endswith(same) and len(stem) > len(same):
                stem, ending = stem[: -len(same)], stem[-len(same) :]
                break
        # The values of one key follow one another: their numbers go on.
        turn = self._last[1] + 1 if key == self._last[0] else 1
        while True:
            found = f"{stem}~{turn}{ending}" if turn > 1 else f"{stem}{ending}"
            mark = _mark(found.encode())
            if mark not in self._given:
                break
            turn += 1
        self._given.add(mark)
        self._last = key, turn
        return found

    def _stem(self, key: bytes) -> str:
        displayed = show_key(key, integers=self._integers)
        is_text = not (self._integers or displayed.startswith("0x"))
        text = key.decode("utf-8", "surrogateescape") if is_text else displayed
        stem = "".join(_escaped(character, at == 0) for at, character in enumerate(text))
        if len(stem.encode()) <= STEM_BYTES:
            return stem
        short = stem.encode()[: STEM_BYTES - 17].decode("utf-8", "ignore")
        return f"{short}~{_mark(key):016x}"


def _escaped(character: str, first: bool) -> str:
    if character.isalnum() or (character in _PLAIN and not (first and character in ".-")):
        return character
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))


def _mark(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
