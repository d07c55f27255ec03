"""Goal: a cache says what it takes, in bytes, and nonsense is refused by name.

Method: tables of good and bad values.
"""

from __future__ import annotations

from typing import Any

import pytest

from lmdbio.placement.base import HOME
from lmdbio.placement.cache import Cache


def test_amounts_are_bytes_or_words() -> None:
    assert Cache("8G").memory == 8 << 30 == Cache(8 << 30).memory
    cache = Cache(disk="/local", disk_bytes="100G")
    assert (cache.memory, cache.disk_bytes, cache.placement) == (0, 100 << 30, "home")


def test_words_are_parsed() -> None:
    words = "memory=8G, disk=/local,disk_bytes=1T,placement=home,warm=preload"
    assert Cache.parse(words) == Cache("8G", "/local", "1T", "home", "preload")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("", "NAME=VALUE"),
        ("memory", "NAME=VALUE"),
        ("memory=1G,memory=2G", "at most once"),
        ("speed=3", "speed"),
        ("memory=lots", "memory must be"),
        ("memory=0", "memory, a disk"),
        ("disk_bytes=3G", "needs disk"),
        ("memory=1G,placement=else", "placement must be one of home"),
        ("memory=1G,placement=copies", "no placement=copies any more: write placement=home"),
        ("memory=1G,placement=next", "no placement=next any more: write placement=home"),
        ("memory=1G,placement=window", "no placement=window any more: write an order by windows"),
        ("memory=1G,warm=later", "warm must be one of demand"),
        ("memory=1G,disk=/local,placement=mixed", "in memory alone"),
        ("memory=1G,placement=first,warm=window", "needs placement=home, not first"),
    ],
)
def test_nonsense_is_refused(words: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Cache.parse(words)


def test_numbers_that_make_no_sense_are_refused() -> None:
    for wrong in (-1, True):
        with pytest.raises(ValueError, match="memory must be"):
            Cache(wrong)


@pytest.mark.parametrize("name", ["placement", "warm"])
@pytest.mark.parametrize(("given", "kind"), [(["home"], "list"), (HOME, "Placement"), (1, "int")])
def test_what_is_no_word_is_refused(name: str, given: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one of .*, not {kind}$"):
        Cache(5, **{name: given})
