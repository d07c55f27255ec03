"""Samples of a database are as many, and the same, as `info` says.

Goal: the number that `info` tells is the number that is read, and what it calls refused is
refused; samples are as many as the program's own reader takes; no key that belongs to no sample
becomes one unless `info` and the log name it.

Method: numbered keys with gaps, with numbers of samples that are too small, too large, or of an
odd kind, with other keys beside them; by hand, and drawn at random.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings, strategies as st

import lmdbio
from lmdbio.cli import cli, file_facts
from lmdbio.layouts.numbered import number_in
from tests.support import long_run
from tests.support.programs import write_names, write_ocp, write_textzoom

VALUE = b"value"
PLAIN, PADDED = b"%d", b"%06d"


def write(path: Path, numbers: Iterable[int], shape: bytes = PLAIN, **beside: bytes) -> Path:
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for number in numbers:
            txn.put(shape % number, VALUE)
        for key, value in beside.items():
            txn.put(key.encode(), value)
    return path


def told(path: Path) -> dict[str, Any]:
    """Return the facts that info tells of the main database."""
    done = CliRunner().invoke(cli, ["info", str(path), "--json"], catch_exceptions=False)
    main: dict[str, Any] = json.loads(done.output)["databases"][0]
    return main


def line(path: Path) -> str:
    text = CliRunner().invoke(cli, ["info", str(path)], catch_exceptions=False).output
    return next(one for one in text.splitlines() if one.startswith("  layout"))


def keys(path: Path, **words: Any) -> list[bytes]:
    with lmdbio.Records(path, **words) as records:
        return [records.key(i) for i in range(len(records))]


@settings(max_examples=long_run.cases(150), deadline=None)
@example(numbers=[0, 1], shape=b"image-%09d", beside={"num-samples": b"1"})
@given(
    numbers=st.sets(st.integers(0, 14), min_size=1).map(sorted),
    shape=st.sampled_from([PLAIN, PADDED, b"image-%09d"]),
    beside=st.dictionaries(
        st.sampled_from(
            ["length", "num_examples", "num-samples", "__keys__", "__len__", "classes"]
        ),
        st.one_of(
            st.integers(0, 16).map(pickle.dumps),
            st.integers(0, 16).map(lambda number: str(number).encode()),
            st.just(b"odd"),
        ),
        max_size=3,
    ),
)
def test_info_promises_what_reading_does(
    tmp_path_factory: pytest.TempPathFactory,
    numbers: list[int],
    shape: bytes,
    beside: dict[str, bytes],
) -> None:
    path = write(tmp_path_factory.mktemp("promise") / "db", numbers, shape, **beside)
    facts = told(path)
    layout = facts["layout"]
    if layout is None:
        assert len(keys(path, layout="auto")) == len(numbers) + len(beside)
        assert set(beside) <= set(facts["odd_keys"])
    elif layout["refused"] is not None:
        for name in ("auto", layout["name"]):
            with pytest.raises(lmdbio.IncompatibleError) as caught:
                lmdbio.Records(path, layout=name)
            assert layout["refused"] in str(caught.value)
        assert layout["refused"] in line(path)
    else:
        assert layout["all_keys_seen"]
        found = keys(path, layout="auto")
        assert len(found) == layout["samples"] and f"{len(found)} samples" in line(path)
        assert not set(found) & {key.encode() for key in beside}
        first = 1 if layout["name"] == "ocr" else numbers[0]
        assert found == [shape % (first + i) for i in range(len(found))]


@pytest.mark.parametrize(("layout", "key"), [("ocp", "length"), ("tape", "num_examples")])
def test_samples_are_as_many_as_the_program_takes(tmp_path: Path, layout: str, key: str) -> None:
    for count in (0, 1, 34, 37):
        path = write(tmp_path / f"{count}", range(37), **{key: pickle.dumps(count)})
        for name in ("auto", layout):
            assert keys(path, layout=name) == [b"%d" % i for i in range(count)]
        assert told(path)["layout"]["samples"] == count


def test_what_lies_beyond_the_number_may_have_gaps(tmp_path: Path) -> None:
    path = write(tmp_path / "db", [*range(12), 15, 19], length=pickle.dumps(11))
    assert len(keys(path, layout="ocp")) == 11
    path = write(tmp_path / "gap", [*range(9), *range(10, 15)], length=pickle.dumps(11))
    with pytest.raises(lmdbio.IncompatibleError, match="no key b'9', though there is b'10'"):
        lmdbio.Records(path, layout="ocp")


def test_images_beyond_num_samples_are_none(tmp_path: Path) -> None:
    write_textzoom(tmp_path / "db", 9)
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 26) as env, env.begin(write=True) as txn:
        txn.put(b"num-samples", b"7")
    found = keys(tmp_path / "db", layout="auto")
    assert found[-1] == (b"image_hr-000000007", b"image_lr-000000007", b"label-000000007")
    assert len(found) == told(tmp_path / "db")["layout"]["samples"] == 7


NUMBERS = (0, 7, 300, 10**6, 10**12)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((pickle.dumps(n, protocol), n) for n in NUMBERS for protocol in range(6)),
        *((pickle.dumps(kind(77), 4), 77) for kind in (np.int64, np.int32, np.uint64, np.uint32)),
        (b"12\n", 12),
        (b" 0012 ", 12),
        (pickle.dumps(-1), None),
        (pickle.dumps(10**30), None),
        (pickle.dumps(3.0), None),
        (pickle.dumps([3]), None),
        (pickle.dumps((3, 4)), None),
        (pickle.dumps("3"), None),
        (pickle.dumps(np.float64(3)), None),
        (pickle.dumps(np.arange(3)), None),
        (b"cos\nsystem\n(S'true'\ntR.", None),
        (pickle.dumps(3)[:-1], None),
        (b"9" * 40, None),
        (b"", None),
        (b"\x80\x04" + b"K\x01" * 4000 + b".", None),
        (None, None),
    ],
)  # fmt: skip
def test_a_number_is_read_from_text_and_from_pickles(value: bytes | None, number: Any) -> None:
    assert number_in(value) == number


@pytest.mark.parametrize("shape", [PLAIN, PADDED])
@pytest.mark.parametrize("first", [0, 1])
def test_other_keys_beside_numbers_are_left_out(tmp_path: Path, shape: bytes, first: int) -> None:
    beside = {"!note": b"", "classes": b"", "num_classes": b"", "vocab": b""}
    path = write(tmp_path / "db", range(first, first + 250), shape, **beside)
    wanted = [shape % i for i in range(first, first + 250)]
    assert keys(path, layout="auto") == keys(path, layout="numbers") == wanted
    layout = told(path)["layout"]
    assert (layout["name"], layout["metadata"]) == ("numbers", sorted(beside))
    assert all(key in line(path) for key in beside)


def test_numbers_with_zeros_alone_need_no_layout(tmp_path: Path) -> None:
    path = write(tmp_path / "db", [*range(9), 12], PADDED)
    assert told(path)["layout"] is None
    assert len(keys(path, layout="auto")) == 10


@pytest.mark.parametrize("key", ["__keys__", "length", "keys", "classes", "num_examples"])
def test_keys_beside_names_are_named(
    tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_names(tmp_path / "db", 60)
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 26) as env, env.begin(write=True) as txn:
        txn.put(key.encode(), VALUE)
    assert told(tmp_path / "db")["odd_keys"] == [key]
    assert f"perhaps no samples: {key}" in line(tmp_path / "db")
    with caplog.at_level(logging.INFO, "lmdbio"):
        assert len(keys(tmp_path / "db", layout="auto")) == 61
    assert any(f"and so are {key}; skip=" in message for message in caplog.messages)
    caplog.clear()
    with caplog.at_level(logging.INFO, "lmdbio"):
        assert len(keys(tmp_path / "db", layout="auto", skip=[key])) == 60
    assert not any("no layout" in message for message in caplog.messages)


def test_a_key_that_a_terminal_would_obey_is_shown_safely(tmp_path: Path) -> None:
    path = write(tmp_path / "db", range(30), **{"\x1b[31mred": b""})
    assert "\x1b" not in line(path) and "\\x1b[31mred" in line(path)


def test_large_databases_are_told_by_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_facts, "LAYOUT_LEAVES_MAX", 3)
    write_ocp(tmp_path / "db", 900)
    layout = told(tmp_path / "db")["layout"]
    assert (layout["samples"], layout["all_keys_seen"]) == (900, False)
    assert "900 samples by its first and last keys; length" in line(tmp_path / "db")


def test_a_main_database_of_named_ones_has_no_samples(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 26, max_dbs=4) as env:
        for name in (b"a", b"b"):
            env.open_db(name)
    assert "none: it holds named databases alone" in line(tmp_path / "db")
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 26, max_dbs=4) as env:
        with env.begin(write=True) as txn:
            for key in ("cat", "dog", "emu"):
                txn.put(key.encode(), VALUE)
    assert "perhaps no samples: a, b" in line(tmp_path / "db")
    assert len(keys(tmp_path / "db", layout="auto")) == 5


def test_a_set_names_the_files_that_are_refused(tmp_path: Path) -> None:
    write_ocp(tmp_path / "0.lmdb", 5)
    write(tmp_path / "1.lmdb", [0, 1, 3], length=pickle.dumps(4))
    text = CliRunner().invoke(cli, ["info", *map(str, sorted(tmp_path.iterdir()))]).output
    assert "ocp, refused (1)" in text and 'ocp, read by layout="ocp" (1)' in text


def test_a_set_names_keys_that_are_perhaps_no_samples(tmp_path: Path) -> None:
    for name in ("0.lmdb", "1.lmdb"):
        write(tmp_path / name, range(9), b"img-%d.png", __keys__=b"")
    text = CliRunner().invoke(cli, ["info", *map(str, sorted(tmp_path.iterdir()))]).output
    assert "none that is known, perhaps no samples: __keys__" in text
