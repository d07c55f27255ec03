"""Pictures are found within pickles, msgpack, protobuf and behind a header, and nothing is run.

Goal: the picture of a value is that of the image file in it, whatever the value is; one without is
called what it was called before; no bytes whatever take long, or much memory, or are loaded.
Method: values as Python, NumPy and msgpack write them; headers that lie; values that are cut,
changed, or made to be searched in vain.
"""

from __future__ import annotations

import io
import pickle
import struct
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from lmdbio.inside.embedded import find_embedded
from lmdbio.inside.excerpt import HEAD_BYTES, TAIL_BYTES, Excerpt
from lmdbio.inside.images import search_image
from lmdbio.inside.kinds import guess
from lmdbio.inside.pictures import Thumbnail, thumbnail
from lmdbio.inside.preview import preview_lines
from tests.inside import samples
from tests.inside.samples import EMBEDDED, GOOD, PHOTO, PIXELS, image
from tests.support import long_run


def excerpt_of(value: bytes) -> Excerpt:
    """Return what commands see of a value."""
    if len(value) <= HEAD_BYTES:
        return Excerpt.whole_of(value)
    return Excerpt(value[:HEAD_BYTES], len(value), value[-TAIL_BYTES:])


def picture_of(value: bytes, **more: Any) -> Thumbnail | None:
    options = {"side": 512, "pillow": False, "plain_bytes_max": len(PHOTO), **more}
    return thumbnail(value, guess(excerpt_of(value)), **options)


def decoded(content: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(content)))


@pytest.mark.parametrize(("title", "detail", "value"), EMBEDDED, ids=range(len(EMBEDDED)))
def test_the_picture_in_a_value_is_found(title: str, detail: str, value: bytes) -> None:
    kind = guess(excerpt_of(value))
    assert kind.title == title and all(part in kind.detail for part in detail.split(", "))
    assert kind.picture is not None and kind.picture.size == (37, 23)
    assert preview_lines(excerpt_of(value), kind) == []  # as of an image
    found = picture_of(value, plain_bytes_max=1 << 20)
    assert found is not None and (found.width, found.height) == (37, 23)
    expected = PIXELS if "pixels" in title else decoded(PHOTO)
    assert (decoded(found.content) == expected).all()
    assert picture_of(value, pillow=True) is not None


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_image_files_of_each_kind_are_found_in_a_pickle(kind: str) -> None:
    value = pickle.dumps({"image": image(kind), "label": 3})
    assert guess(excerpt_of(value)).picture is not None
    assert picture_of(value, pillow=True) is not None


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP"])
def test_image_files_are_found_behind_a_label_byte(kind: str) -> None:
    value = b"\x07" + image(kind)
    assert str(guess(excerpt_of(value))).startswith("binary of")
    assert picture_of(value, pillow=True) is not None


def test_a_picture_larger_than_the_excerpt_is_found_with_its_label() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (300, 300, 3), np.uint8)
    into = io.BytesIO()
    Image.fromarray(noise).save(into, "PNG")
    photo = into.getvalue()
    assert len(photo) > HEAD_BYTES
    for value in ((photo, 7), {"image": photo, "label": 7}):
        kind = guess(excerpt_of(pickle.dumps(value)))
        assert str(kind) == "pickle of PNG 300x300, protocol 4, not loaded, label 7"
    value = pickle.dumps((noise, 7), 4)
    assert guess(excerpt_of(value)).title == "pickle of pixels"
    found = picture_of(value, side=300)
    assert found is not None and (decoded(found.content) == noise).all()


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(PIXELS), PIXELS[..., :2], PIXELS[..., 0], PIXELS.astype(np.uint16),
        PIXELS.astype(np.int8), PIXELS[:1], PIXELS.ravel(), (PIXELS.transpose(2, 0, 1).copy(), 3),
    ],
)  # fmt: skip
def test_arrays_that_are_no_plain_picture_are_none(array: Any) -> None:
    for protocol in (4, 5):
        kind = guess(excerpt_of(pickle.dumps(array, protocol)))
        assert kind.name == "pickle" and kind.picture is None


@pytest.mark.parametrize(
    "value",
    [
        pickle.dumps((b"\xff\xd8\xff\xe0 no picture", 7)),
        pickle.dumps(("GIF89a is a format of images, and this is a text of it", 7)),
        pickle.dumps(b"\xff\x0a" + bytes(100)),
        # More bytes than there are; fewer.
        b"\x80\x04B" + struct.pack("<I", len(PHOTO) + 9) + PHOTO[:60] + b".",
        b"\x80\x04C\x03" + PHOTO[:3] + b".",
        b"\x80\x04\x8e" + b"\xff" * 8 + PHOTO[:60] + b".",
        b"\x01\xff\xd8\xff\xe0\xff\xff" + bytes(range(200)) + b"\x99",
        b"\x01\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x09\0\0\0\x09\x08\2\0\0\0wrong" + bytes(9),
        b"\x01RIFF\xff\xff\xff\x7fWEBPVP8 " + bytes(40),
        b"\x01GIF89a\x09\0\x09\0\0\0\0 and no more \xff",
    ],
)
def test_what_only_begins_like_a_picture_is_none(value: bytes) -> None:
    assert guess(excerpt_of(value)).picture is None


def test_nothing_that_a_value_holds_is_run() -> None:
    for protocol in range(2, 6):
        value = pickle.dumps([samples.Marked(), PHOTO], protocol)
        assert guess(excerpt_of(value)).title == "pickle of JPEG"
        assert picture_of(value, pillow=True) is not None
    assert samples.Marked.called == []


def test_values_without_a_picture_are_called_as_before() -> None:
    for name, detail, _, value in GOOD:
        kind = guess(excerpt_of(value))
        assert (kind.title, kind.detail) == (name, detail)
        assert find_embedded(excerpt_of(value[:1] + bytes(50)), "binary") is None


SIGNATURES = b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\1\1\1\1WEBPVP8 "
LARGE = 16 << 20
HOSTILE = (
    *(b"\x80\x04" + one * (LARGE // len(one)) + b"." for one in SIGNATURES),
    *(b"\x01" + one * (LARGE // len(one)) for one in SIGNATURES),
    b"\x01\xff\xd8\xff\xe0\x00\x02" + b"\xff" * LARGE,
    b"\x80\x04" + b"K\x03" * (LARGE // 2) + b".",
    b"\x80\x04" + b"C\xff" * (LARGE // 2) + b".",
    b"\x80\x04" + b"C\x06GIF89a" * (LARGE // 8) + b".",
    b"\x80\x04" + b"\x8c\x02u1C\x0cabcabcabcabcK\x02K\x02K\x03" * (LARGE // 24) + b".",
    b"\x80\x04" + b"(" * LARGE + b".",
    b"\x80\x04c" + b"a" * LARGE + b".",
    b"\x80\x04X\xff\xff\xff\xff" + b"\xc3\xbf" * (LARGE // 2) + b".",
    b"\x80\x04X" + struct.pack("<I", LARGE) + b"\xc3\xbf" * (LARGE // 2) + b".",
    b"\x92" + b"\xc6\xff\xff\xff\xff" * (LARGE // 5),
)


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_a_value_made_to_be_searched_in_vain_takes_no_time_and_no_memory(value: bytes) -> None:
    tracemalloc.start()
    begun = time.process_time()
    for excerpt in (excerpt_of(value), Excerpt.whole_of(value), Excerpt(value[:65536], None)):
        for name in ("pickle", "binary"):
            find_embedded(excerpt, name)
    seconds = time.process_time() - begun
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 5 and peak < 4 * len(value)


@given(
    value=st.sampled_from([value for *_, value in EMBEDDED]),
    changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=8),
    cut=st.integers(1, 6000),
    pillow=st.booleans(),
)
@settings(max_examples=long_run.cases(300))
def test_damage_makes_another_picture_or_none(
    value: bytes, changes: list[tuple[int, int]], cut: int, pillow: bool
) -> None:
    content = bytearray(value[:cut])
    for at, byte in changes:
        content[at % len(content)] = byte
    whole = bytes(content)
    part = Excerpt(whole[: len(whole) // 2], len(whole), whole[-9:])
    for excerpt in (Excerpt.whole_of(whole), part, Excerpt(whole, None)):
        kind = guess(excerpt)
        assert str(kind).isprintable()
        assert all(line.isprintable() for line in preview_lines(excerpt, kind))
        found = thumbnail(whole, kind, 64, pillow=pillow, plain_bytes_max=1 << 20)
        assert found is None or found.content
    assert samples.Marked.called == []


@given(st.binary(max_size=400), st.sampled_from(SIGNATURES), st.integers(0, 400))
@settings(max_examples=long_run.cases(300))
def test_a_place_that_is_found_is_one_of_a_file(value: bytes, first: bytes, at: int) -> None:
    hidden = value[:at] + first + value[at:]
    found = search_image(Excerpt.whole_of(hidden))
    assert found is None or guess(Excerpt.whole_of(hidden[found:])).picture is not None
