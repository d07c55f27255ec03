"""Pictures of values: drawn from arrays, or shrunk from image files; damage gives none.

Method: Pillow reads what was written here; arrays of each form; files that are cut or lie.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from lmdbio.inside import pictures
from lmdbio.inside.excerpt import Excerpt
from lmdbio.inside.kinds import guess
from lmdbio.inside.pictures import Thumbnail, pixels_of, thumbnail, write_png
from tests.inside import samples
from tests.inside.samples import GOOD, datum, image, npy
from tests.support import long_run


def picture_of(value: bytes, **more: Any) -> Thumbnail | None:
    options = {"side": 64, "pillow": True, **more}
    return thumbnail(value, guess(Excerpt.whole_of(value)), **options)


def decoded(content: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(content)))


@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=long_run.cases(60))
def test_png_files_are_what_pillow_reads(
    height: int, width: int, in_color: bool, seed: int
) -> None:
    shape = (height, width, 3) if in_color else (height, width)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    assert (decoded(write_png(pixels)) == pixels).all()


def test_a_datum_is_drawn_in_the_colors_it_holds() -> None:
    planes = np.zeros((3, 4, 5), np.uint8)
    planes[0] = 255  # blue comes first
    pixels = pixels_of(datum((3, 4, 5), planes.tobytes(), 1), guess_of(planes))
    assert pixels is not None and pixels.shape == (4, 5, 3)
    assert (pixels == [0, 0, 255]).all()


def guess_of(planes: Any) -> Any:
    return guess(Excerpt.whole_of(datum((3, 4, 5), planes.tobytes(), 1)))


@pytest.mark.parametrize("packed", [False, True])
def test_floats_of_a_datum_are_drawn_from_the_least_to_the_largest(packed: bool) -> None:
    value = datum((1, 2, 3), floats=[-1, 0, 1, 1, 0, -1], packed=packed)
    pixels = pixels_of(value, guess(Excerpt.whole_of(value)))
    assert pixels is not None and pixels.tolist() == [[0, 127, 255], [255, 127, 0]]


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (np.zeros((8, 9), np.uint8), (8, 9)),
        (np.zeros((8, 9, 3), np.uint8), (8, 9, 3)),
        (np.zeros((3, 8, 9), np.float32), (8, 9, 3)),
        (np.zeros((1, 8, 9), np.float64), (8, 9)),
        (np.zeros((8, 9, 4), np.uint8), (8, 9, 3)),
        (np.zeros((1, 1, 8, 9), np.int16), (8, 9)),
        (np.zeros((5, 8, 9), np.float16), (8, 9)),
        (np.asfortranarray(np.zeros((8, 9))), (8, 9)),
        (np.ones((8, 9), bool), (8, 9)),
        (np.full((8, 9), np.nan), (8, 9)),
        (np.array([[np.inf, 1.0], [-np.inf, 2.0]]), (2, 2)),
        (np.zeros((500, 900), ">i4"), (125, 225)),
        (np.zeros(9), None),
        (np.zeros((1, 9)), None),
        (np.zeros((8, 9), "c8"), None),
        (np.zeros((0, 9)), None),
        (np.zeros((2, 2, 2, 2, 2)), None),
    ],
)  # fmt: skip
def test_arrays_make_pictures_or_none(array: Any, shape: tuple[int, ...] | None) -> None:
    value = npy(array)
    pixels = pixels_of(value, guess(Excerpt.whole_of(value)))
    assert (None if pixels is None else pixels.shape) == shape


def test_an_array_that_is_shorter_than_it_says_makes_none() -> None:
    value = npy(np.zeros((8, 9)))[:-1]
    assert pixels_of(value, guess(Excerpt.whole_of(value))) is None
    huge = value.replace(b"(8, 9)", b"(8, 9999999999999999999)"[:22])
    assert pixels_of(huge, guess(Excerpt.whole_of(huge))) is None


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_image_files_are_shrunk(kind: str) -> None:
    found = picture_of(image(kind, 400, 200))
    assert found is not None and (found.width, found.height) == (64, 32)
    assert decoded(found.content).shape[:2] == (32, 64)
    assert found.uri.startswith(f"data:{found.mime};base64,")


def test_images_within_other_values_are_found() -> None:
    for value in (
        datum((0, 0, 0), image("JPEG"), 3, encoded=True),
        zlib.compress(image("PNG")),
        zlib.compress(datum((0, 0, 0), image("JPEG"), 3, encoded=True)),
    ):
        found = picture_of(value)
        assert found is not None and (found.width, found.height) == (37, 23)


def test_without_pillow_image_files_are_taken_as_they_are_up_to_a_bound() -> None:
    value = image("PNG", 300, 200)
    found = picture_of(value, pillow=False, plain_bytes_max=len(value))
    assert found is not None and found.content == value and found.width == 300
    assert picture_of(value, pillow=False, plain_bytes_max=len(value) - 1) is None
    assert picture_of(image("TIFF"), pillow=False, plain_bytes_max=1 << 20) is None
    assert picture_of(npy(np.zeros((8, 9))), pillow=False) is not None


def test_an_image_that_claims_too_many_pixels_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = image("PNG")
    header = struct.pack(">II", 60_000, 60_000)
    huge = value[:16] + header + value[24:]
    monkeypatch.setattr(pictures, "_shrunk", lambda *_: pytest.fail("was decoded"))
    assert picture_of(huge) is None


@given(
    value=st.sampled_from([good[3] for good in GOOD if good[3]]),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6),
    cut=st.integers(1, 4000),
    pillow=st.booleans(),
)
@settings(max_examples=long_run.cases(150))
def test_damage_makes_no_picture_or_another_one(
    value: bytes, changes: list[tuple[int, int]], cut: int, pillow: bool
) -> None:
    content = bytearray(value[:cut])
    for at, byte in changes:
        content[at % len(content)] = byte
    found = picture_of(bytes(content), pillow=pillow, plain_bytes_max=1 << 20)
    assert found is None or found.content
    assert samples.Marked.called == []
