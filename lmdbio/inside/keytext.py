r"""keytext: keys as text that people can read and type, and back. Pure.

    b"00000007_cat"    <->  00000007_cat      text as it is
    b"a\nb\\"          <->  a\nb\\            control characters and backslashes escaped
    b"\x00\x00\x00\x07"  <->  0x00000007      bytes that are no text, in hexadecimal
    7 as 8 bytes       <->  7                 in a database whose keys are integers

No key has the text of another one, so a key that ``show_key`` gave leads to its record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["parse_key", "show_key", "similar_keys"]

_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}
_NAMES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_HEX = re.compile(r"0x((?:[0-9a-fA-F]{2})*)")
#: Of the characters of a key, so many may be escaped; with more it is shown in hexadecimal.
ESCAPED_SHARE = 0.25


def show_key(key: bytes, *, integers: bool = False) -> str:
    """Return a key as text of one line, without anything that a terminal would obey.

    Args:
        integers: keys of this database are numbers of 4 or 8 bytes.
    """
    if integers and len(key) in (4, 8):
        return str(int.from_bytes(key, "little"))
    text = key.decode("utf-8", "surrogateescape")
    displayed = [character if character.isprintable() else "" for character in text]
    odd = sum(not character for character in displayed)
    if not key or text.startswith("0x") or odd > ESCAPED_SHARE * len(text):
        return f"0x{key.hex()}"
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def parse_key(text: str, *, integer_bytes: int = 0) -> bytes:
    r"""Return the key that a text stands for: ``0x...``, a number, or text with escapes.

    Args:
        integer_bytes: size of the keys of a database whose keys are integers; 0: they are none.

    Raises:
        ValueError: an escape that is none, or a number that is too large for a key.
    """
    if (found := _HEX.fullmatch(text)) is not None:
        return bytes.fromhex(found[1])
    if integer_bytes and text.isascii() and text.isdecimal():
        number = int(text)
        if number >> 8 * integer_bytes:
            raise ValueError(f"{text} is no key of {integer_bytes} bytes")
        return number.to_bytes(integer_bytes, "little")
    parts, at = [], 0
    for escape in _ESCAPE.finditer(text):
        parts.append(text[at : escape.start()].encode("utf-8", "surrogateescape"))
        parts.append(_unescaped(escape[1], text))
        at = escape.end()
    parts.append(text[at:].encode("utf-8", "surrogateescape"))
    return b"".join(parts)


def _unescaped(name: str, text: str) -> bytes:
    if len(name) == 3:
        return bytes.fromhex(name[1:])
    if name not in _NAMES:
        raise ValueError(
            f"{text!r}: \\{name} is no escape (\\\\, \\n, \\t, \\r, \\0 and \\x00 to \\xff are)"
        )
    return _NAMES[name]


def similar_keys(key: bytes, examples: Sequence[bytes]) -> Iterator[bytes]:
    """Yield keys that somebody may have meant who typed one that is not there.

    The digits of a number may lack zeros before them, and what stands around it in other keys.

    Args:
        key: key that is not there.
        examples: keys that are.
    """
    numbers = re.findall(rb"\d+", key)
    if not numbers:
        return
    seen = {key}
    number = numbers[-1].lstrip(b"0") or b"0"
    for example in examples:
        for place in re.finditer(rb"\d+", example):
            for digits in (number.rjust(len(place[0]), b"0"), number):
                found = example[: place.start()] + digits + example[place.end() :]
                if found not in seen:
                    seen.add(found)
                    yield found
