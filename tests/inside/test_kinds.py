"""The kind of a value is guessed from its first bytes, and nothing in it is run.

Goal: values of each kind are called by their name, with size, shape and label; what only begins
like one is not; and no bytes whatever make the guess raise, load a pickle, or take more than its
bound.
Method: a table of values that the libraries themselves made; those cut and changed at any place.
"""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from lmdbio.inside import arrays, kinds, packed
from lmdbio.inside.excerpt import Excerpt
from lmdbio.inside.kinds import guess
from lmdbio.inside.preview import preview_lines
from lmdbio.inside.wire import RUN_PART, find_datum, is_datum
from tests.inside import samples
from tests.inside.samples import BAD, GOOD, datum, varint
from tests.support import long_run


@pytest.mark.parametrize(
    ("name", "detail", "extension", "value"), GOOD, ids=[f"{g[0]} {g[1]}" for g in GOOD]
)
def test_a_value_is_called_by_its_kind(
    name: str, detail: str, extension: str, value: bytes
) -> None:
    kind = guess(Excerpt.whole_of(value))
    assert (kind.title, kind.detail, kind.extension) == (name, detail, extension)


@pytest.mark.parametrize("value", BAD)
def test_a_value_that_only_begins_like_one_is_not(value: bytes) -> None:
    assert guess(Excerpt.whole_of(value)).name in ("text", "binary")


def test_a_datum_larger_than_its_excerpt_has_its_label_all_the_same() -> None:
    value = datum((3, 100, 100), bytes(30_000), 1234)
    kind = guess(Excerpt(value[:500], len(value), value[-20:]))
    assert str(kind) == "Datum 3x100x100, label 1234"
    assert str(guess(Excerpt(value[:500], len(value)))) == "Datum 3x100x100"


def test_a_datum_of_more_floats_than_its_excerpt_holds_is_one() -> None:
    value = datum((4096, 1, 1), floats=[0.25] * 4096)
    assert str(guess(Excerpt.whole_of(value))) == "Datum float32 4096x1x1"
    assert guess(Excerpt(value[:1000], len(value), value[-20:])).name == "Datum"


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (datum((1, 2, 3), b"pixels", 3), True),
        (b"\x22\x03abc\x28\x05\x38\x01", True),  # encoded
        (b"\x08\x01\x35\0\0\0\0\x35\0\0\0\0", True),  # float_data
        (b"", False),
        (datum((1, 2, 3), b"pixels", 3)[:-1], False),
        (datum((1, 2, 3), b"pixels", 3) + b"\x08", False),
        (b"\xff\xd8\xff\xe0JFIF", False),
        (b"\x80\x04\x95", False),
        (b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", False),
    ],
)
def test_a_datum_is_told_by_its_fields(value: bytes, is_one: bool) -> None:
    assert is_datum(value) is is_one


@pytest.mark.parametrize("count", [1, RUN_PART, RUN_PART + 1, RUN_PART + 2, 3 * RUN_PART])
def test_single_floats_are_counted_over_parts(count: int) -> None:
    floats = b"\x35\0\0\0\0" * count
    sizes = b"\x08\x01\x10\x01\x18" + varint(count)
    for value in (sizes + floats, floats + sizes):
        found = find_datum(Excerpt.whole_of(value))
        assert found is not None and found.floats == count
    assert is_datum(b"\x28\0".join([b"\x35\0\0\0\0"] * count))


def test_all_floats_of_a_datum_are_counted_in_one_step_each_way() -> None:
    floats = [0.5 * i for i in range(300)]
    for is_packed in (False, True):
        found = find_datum(
            Excerpt.whole_of(datum((300, 1, 1), label=5, floats=floats, packed=is_packed))
        )
        assert found is not None and found.floats == 300 and len(found.runs) == 1


def test_a_text_or_a_map_that_is_cut_is_still_one() -> None:
    text = "Straße ".encode() * 100
    assert guess(Excerpt(text[:5], len(text))).name == "text"  # cut within a letter
    assert guess(Excerpt(samples.JSON[:10], len(samples.JSON))).name == "JSON"
    assert guess(Excerpt(samples.MSGPACK[:12], len(samples.MSGPACK))).name == "msgpack"


def test_a_pickle_is_named_and_never_loaded() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        value = pickle.dumps(samples.Marked(), protocol)
        kind = guess(Excerpt.whole_of(value))
        assert kind.name == "pickle"
        preview_lines(Excerpt.whole_of(value), kind)
    assert samples.Marked.called == []


@given(st.binary(max_size=300))
@settings(max_examples=long_run.cases(300))
def test_any_bytes_have_a_kind_and_a_preview(value: bytes) -> None:
    for excerpt in (
        Excerpt.whole_of(value),
        Excerpt(value, len(value) + 1000, value[:7]),
        Excerpt(value, None),
    ):
        kind = guess(excerpt)
        lines = preview_lines(excerpt, kind)
        assert all(line.isprintable() for line in lines)
        assert str(kind).isprintable() and kind.title


@given(
    value=st.sampled_from([good[3] for good in GOOD if good[3]]),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 400),
)
@settings(max_examples=long_run.cases(300))
def test_values_that_are_cut_or_changed_have_one_too(
    value: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    content = bytearray(value)
    for at, byte in changes:
        content[at % len(content)] = byte
    whole = Excerpt.whole_of(bytes(content))
    part = Excerpt(bytes(content[:cut]), len(content), bytes(content[-5:]))
    for excerpt in (whole, part):
        kind = guess(excerpt)
        assert all(line.isprintable() for line in preview_lines(excerpt, kind))


# --- what is packed -----------------------------------------------------------------------


def test_of_a_bomb_no_more_than_the_bound_is_made() -> None:
    huge = bytes(64 << 20)
    bombs = (("zlib", zlib.compress(huge)), ("zstd", zstandard.compress(huge)))
    for name, bomb in bombs:
        assert packed.find_packing(bomb) == name
        found = packed.unpack(name, bomb, 1000)
        assert found == Excerpt(bytes(1000), None)


@given(st.binary(max_size=200), st.sampled_from(sorted(packed._PACKINGS)))
@settings(max_examples=long_run.cases(300))
def test_what_no_one_has_packed_is_unpacked_as_nothing_or_a_little(tail: bytes, name: str) -> None:
    first = packed._PACKINGS[name][0][0]
    found = packed.unpack(name, first + tail, 500)
    assert found is None or len(found.head) <= 500


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (samples.lz4_frame((False, samples.LZ4_BLOCK)), samples.LZ4_TEXT),
        (samples.lz4_frame((True, b"plain")), b"plain"),
        # The second block looks back into the first one, which the flags allow.
        (samples.lz4_frame((True, b"abcd"), (False, b"\x00\x04\x00\x10!"), flags=0x40),
         b"abcdabcd!"),
        # A length of 15 + 255 + 3 literals.
        (samples.lz4_frame((False, b"\xf0\xff\x03" + b"q" * 273)), b"q" * 273),
    ],
)  # fmt: skip
def test_lz4_is_unpacked(frame: bytes, expected: bytes) -> None:
    assert packed.unpack("lz4", frame, 1000) == Excerpt(expected, len(expected))
    found = packed.unpack("lz4", frame, 3)
    assert found is not None and found.head == expected[:3]


def test_lz4_that_looks_back_too_far_is_none() -> None:
    for block in (b"\x10a\x05\x00\x10!", b"\x10a\x00\x00\x10!"):
        assert packed.unpack("lz4", samples.lz4_frame((False, block)), 100) is None
    beyond = samples.lz4_frame((True, b"abcd"), (False, b"\x00\x04\x00\x10!"))
    assert packed.unpack("lz4", beyond, 100) is None  # blocks of this frame stand for themselves


# --- arrays -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 3, 4), "<i2"), np.ones(5, ">f8"), np.asfortranarray(np.ones((3, 2))),
     np.zeros((), bool), np.zeros((0, 4), "c8")],
)  # fmt: skip
def test_a_header_of_npy_is_read(array: Any) -> None:
    header = arrays.find_npy(samples.npy(array))
    assert header is not None
    assert header.dtype == array.dtype and header.shape == array.shape
    assert header.fortran == (array.flags.f_contiguous and not array.flags.c_contiguous)
    assert samples.npy(array)[header.data :] == array.tobytes("A")


def test_a_header_of_npy_that_makes_no_sense_has_no_shape() -> None:
    for shape in (b"(3, 4\x0b 5)", b"(3 4)", b"(%s)" % (b"9," * 40), b"(%s)" % (b"9" * 30)):
        value = samples.npy(np.zeros((3, 4))).replace(b"(3, 4)", shape)
        header = arrays.find_npy(value)
        assert header is not None and header.shape is None
        assert guess(Excerpt.whole_of(value)).name == "npy"


def test_an_array_of_objects_is_named_a_pickle() -> None:
    value = samples.npy(np.array([samples.Marked()], object))
    assert "a pickle that is not loaded" in guess(Excerpt.whole_of(value)).detail
    assert samples.Marked.called == []


def test_images_as_bytes_are_not_taken_for_floats() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (40, 3072), np.uint8)
    for row in pixels:
        assert guess(Excerpt.whole_of(row.tobytes())).name == "binary"


def test_the_rooms_of_inside_open_nothing() -> None:
    for path in Path(kinds.__file__).parent.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert "import os" not in source and "open(" not in source.replace("Image.open(", "")
        assert "pickle.loads" not in source and "allow_pickle" not in source
