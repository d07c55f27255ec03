"""File names for keys: safe, short, and one for each record.

Method: every key and any order of them, by hypothesis; a table.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from lmdbio.inside.names import NAME_BYTES_MAX, Names
from tests.support import long_run

KEYS = st.one_of(
    st.binary(max_size=511),
    st.text(max_size=80).map(lambda t: t.encode()),
    st.text(alphabet="ab./~%-1\\", max_size=8).map(lambda t: t.encode()),
)
EXTENSIONS = st.sampled_from(["jpg", "txt", "bin", "txt.gz", "json.zst"])


@given(st.lists(st.tuples(KEYS, EXTENSIONS), max_size=30))
@settings(max_examples=long_run.cases(150))
def test_names_are_safe_and_differ(records: list[tuple[bytes, str]]) -> None:
    names = Names()
    given_names = [names.name(key, extension) for key, extension in records]
    assert len(set(given_names)) == len(records)
    for name, (_, extension) in zip(given_names, records, strict=True):
        assert name and "/" not in name and "\0" not in name
        assert name[0] not in ".-" and name.isprintable() and " " not in name
        assert len(name.encode()) <= NAME_BYTES_MAX
        assert name.lower().endswith((f".{extension}", ".jpeg", ".text", ".csv"))


@pytest.mark.parametrize(
    ("key", "extension", "name"),
    [
        (b"00000007", "jpg", "00000007.jpg"),
        (b"00000007.jpg", "jpg", "00000007.jpg"),
        (b"00000007.JPEG", "jpg", "00000007.JPEG"),
        (b"00000007.png", "jpg", "00000007.png.jpg"),
        (b"train/cat 1", "png", "train%2Fcat%201.png"),
        (b"../../etc/passwd", "txt", "%2E.%2F..%2Fetc%2Fpasswd.txt"),
        (b"..", "txt", "%2E..txt"),
        (b".jpg", "jpg", "%2Ejpg.jpg"),
        (b"-rf", "bin", "%2Drf.bin"),
        (b"100%", "txt", "100%25.txt"),
        (b"\x00\x00\x00\x07", "bin", "0x00000007.bin"),
        ("Straße".encode(), "txt", "Straße.txt"),
        (b"", "bin", "0x.bin"),
    ],
)
def test_a_key_has_its_name(key: bytes, extension: str, name: str) -> None:
    assert Names().name(key, extension) == name


def test_keys_that_would_have_one_name_get_two() -> None:
    names = Names()
    assert names.name(b"a", "jpg") == "a.jpg"
    assert names.name(b"a.jpg", "jpg") == "a~2.jpg"
    assert names.name(b"tag", "txt") == "tag.txt"
    assert names.name(b"tag", "txt") == "tag~2.txt"
    assert names.name(b"tag", "txt") == "tag~3.txt"
    assert names.name(b"tag~2", "txt") == "tag%7E2.txt"


def test_a_long_key_is_cut_and_stays_its_own() -> None:
    names = Names()
    first, second = (names.name(b"x" * 300 + tail, "bin") for tail in (b"1", b"2"))
    assert first != second and first.startswith("x" * 100)


def test_integer_keys_are_numbers() -> None:
    assert Names(integers=True).name((7).to_bytes(8, "little"), "txt") == "7.txt"
