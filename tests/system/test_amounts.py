"""Goal: amounts of bytes are understood as people write them, and nonsense is refused by name.

Method: tables of good and bad words.
"""

from __future__ import annotations

import pytest

from lmdbio.system.amounts import parse_bytes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "value"),
    [("4096", 4096), ("1k", 1024), ("2G", 2 * GIB), ("1.5 GiB", 3 * GIB // 2), ("3MB", 3 * 2**20)],
)
def test_amounts_of_bytes_are_understood(text: str, value: int) -> None:
    assert parse_bytes(text, "it") == value


@pytest.mark.parametrize("text", ["", "0", "-1", "lots", "G", "1e400G", "nanG", "12X"])
def test_nonsense_amounts_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="LMDBIO_MEMORY_BYTES"):
        parse_bytes(text, "LMDBIO_MEMORY_BYTES")
