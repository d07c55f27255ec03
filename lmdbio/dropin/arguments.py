"""arguments: what py-lmdb takes for a key, a value and a number, and what it refuses."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

__all__ = ["LmdbKeywords", "as_bytes", "as_get_key"]

#: Keywords of ``lmdb.open`` that must not be negative.
_NUMBERS = ("map_size", "mode", "max_readers", "max_dbs", "max_spare_txns")


class LmdbKeywords(NamedTuple):
    """The keywords of ``lmdb.open`` but ``path`` and ``readonly``, as the caller gave them."""

    map_size: int
    subdir: bool
    metasync: bool
    sync: bool
    map_async: bool
    mode: int
    create: bool
    readahead: bool
    writemap: bool
    meminit: bool
    max_readers: int
    max_dbs: int
    max_spare_txns: int
    lock: bool
    lib_version: int | None

    def check_numbers(self) -> None:
        """Refuse negative numbers as py-lmdb does.

        Raises:
            OverflowError: a number is negative.
            TypeError: it is no integer.
        """
        for name in _NUMBERS:
            if operator.index(getattr(self, name)) < 0:
                raise OverflowError("Integer argument must be >= 0")


def as_bytes(value: Any) -> bytes:
    """Return a key or value as py-lmdb takes it: bytes, or an object with a buffer of them.

    Raises:
        TypeError: ``value`` is a str, or has no buffer.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        raise TypeError("Won't implicitly convert Unicode to bytes; use .encode()")
    try:
        return bytes(memoryview(value))
    except TypeError:
        name = type(value).__name__
        raise TypeError(f"a bytes-like object is required, not '{name}'") from None


def as_get_key(key: Any) -> bytes:
    """Return the key of a ``get`` (``as_bytes``).

    Raises:
        TypeError: there is none, or it is no key.
    """
    if key is None:
        raise TypeError("key must be given.")
    return as_bytes(key)
