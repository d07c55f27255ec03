"""Keys as text lead back to their keys, and have forms.

Method: every key there can be, by hypothesis; a table of texts; lists of keys as programs write
them.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings, strategies as st

from lmdbio.inside.keytext import parse_key, show_key, similar_keys
from lmdbio.inside.summary import describe_keys, key_forms
from tests.support import long_run

KEYS = st.one_of(st.binary(max_size=60), st.text(max_size=40).map(lambda t: t.encode("utf-8")))


@given(KEYS)
@settings(max_examples=long_run.cases(400))
def test_a_key_as_text_is_printable_and_leads_back(key: bytes) -> None:
    shown = show_key(key)
    assert shown.isprintable() and shown
    assert parse_key(shown) == key


@given(first=KEYS, second=KEYS)
def test_no_two_keys_have_one_text(first: bytes, second: bytes) -> None:
    assert (show_key(first) == show_key(second)) == (first == second)


@given(number=st.integers(0, 2**64 - 1))
def test_integers_are_shown_as_such(number: int) -> None:
    key = struct.pack("<Q", number)
    assert show_key(key, integers=True) == str(number)
    assert parse_key(str(number), integer_bytes=8) == key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("00000007", b"00000007"),
        ("0x00ff", b"\0\xff"),
        ("0x", b""),
        ("0xZZ", b"0xZZ"),
        ("0x123", b"0x123"),
        (r"a\n\x00\\", b"a\n\0\\"),
        ("Straße", "Straße".encode()),
    ],
)
def test_texts_stand_for_keys(text: str, key: bytes) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize("text", ["\\", r"a\q", r"\x1", r"end\\\ "])
def test_an_escape_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no escape"):
        parse_key(text)


def test_a_number_too_large_for_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="no key of 4 bytes"):
        parse_key(str(1 << 32), integer_bytes=4)


@pytest.mark.parametrize(
    ("key", "examples", "meant"),
    [
        (b"7", [b"00000000"], b"00000007"),
        (b"image-7", [b"image-000000001"], b"image-000000007"),
        (b"0000012", [b"000000000001.jpg"], b"000000000012.jpg"),
        (b"000012", [b"0", b"1"], b"12"),
    ],
)
def test_a_key_that_somebody_may_have_meant_is_among_the_similar(
    key: bytes, examples: list[bytes], meant: bytes
) -> None:
    found = list(similar_keys(key, examples))
    assert meant in found and key not in found and len(found) == len(set(found))


@pytest.mark.parametrize(
    ("keys", "described"),
    [
        ([b"%08d" % i for i in range(30)], "%08d"),
        ([b"%d" % i for i in range(30)], "%d"),
        ([b"image-%09d" % i for i in range(20)] + [b"label-%09d" % i for i in range(20)],
         "image-%09d (50%), label-%09d (50%)"),
        ([b"a/v2/%04d.png" % i for i in range(10)], "a/v2/%04d.png"),
        ([struct.pack(">I", i) for i in range(20)], "32-bit numbers"),
        ([b"cat", b"dog", b"owl", b"emu", b"fox", b"yak", b"gnu", b"pig"], "different texts"),
        ([], ""),
    ],
)  # fmt: skip
def test_keys_have_forms(keys: list[bytes], described: str) -> None:
    forms = key_forms(keys)
    assert (describe_keys(forms) if forms else "") == described


@given(st.lists(KEYS, max_size=30))
def test_any_keys_have_forms(keys: list[bytes]) -> None:
    forms = key_forms(keys)
    assert all(form.isprintable() and count > 0 for form, count in forms)
    assert bool(forms) == bool(keys)
