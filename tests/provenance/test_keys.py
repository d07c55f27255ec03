"""Keys that count: from key to record and back.

Goal: a pattern is found where keys follow one and is right for every key, or there is none; keys
lead to records and back in every form of sidecar and without one; records come in the order in
which they were put where their keys tell it, and it is said why not elsewhere. Method: databases
made by py-lmdb, whose cursor is the judge.
"""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio.convert.convert import Form, convert
from lmdbio.convert.verify import verify
from lmdbio.errors import IncompatibleError
from lmdbio.locate.open import open_record_index
from lmdbio.provenance import Provenance, keys
from lmdbio.provenance.keys import KeyPattern, plain_number, plain_rank, plain_ranks, plain_sizes
from tests.support import databases

FORMS: tuple[Form | None, ...] = ("auto", "leaves", "explicit", None)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make(
    folder: Path,
    wanted: Iterable[bytes],
    *,
    version: int = 1,
    length: Callable[[int], int] = lambda number: 10,
    every: int = 1000,
    **flags: Any,
) -> list[bytes]:
    """Puts keys in this order, into a named database where that has flags; the keys in order."""
    env = databases.open_writable(folder, version, max_dbs=1)
    db = env.open_db(b"x", **flags) if flags else None
    items = list(enumerate(wanted))
    for first in range(0, len(items), every):
        with env.begin(write=True, db=db) as txn:
            for number, key in items[first : first + every]:
                assert txn.put(key, databases.value(number, length(number)))
    with env.begin(db=db) as txn:
        found = [bytes(key) for key in txn.cursor().iternext(values=False)]
    env.close()
    return found


def pattern_of(folder: Path) -> KeyPattern | None:
    convert(folder)
    with Provenance.open(folder / "data.mdb.prov") as opened:
        (section,) = opened.sections
        return section.keys


def hold(pattern: KeyPattern, found: list[bytes], others: Iterable[bytes] = ()) -> None:
    """Every key leads to its record and back; no other leads anywhere."""
    assert pattern.count == len(found)
    assert [pattern.key(i) for i in range(len(found))] == found
    assert [pattern.index(key) for key in found] == list(range(len(found)))
    known = set(found)
    for key in others:
        assert (pattern.index(key) is None) == (key not in known), key


def near(key: bytes) -> list[bytes]:
    """Keys that look much like one."""
    changed = [
        key[:i] + bytes([key[i] ^ bit]) + key[i + 1 :] for i in range(len(key)) for bit in (1, 16)
    ]
    return [b"", key + b"0", b"0" + key, key[1:], key[:-1], key + b"\0", *changed]


# --- the order of digits -----------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 12, 99, 100, 101, 110, 111, 1000, 12_345])
def test_ranks_are_those_of_sorting(first: int, count: int) -> None:
    numbers = range(first, first + count)
    by_digits = sorted(numbers, key=str)
    assert [plain_number(rank, first, count) for rank in range(count)] == by_digits
    ranks = plain_ranks(first, count)
    assert [int(rank) for rank in np.argsort(ranks)] == [number - first for number in by_digits]
    assert [plain_rank(number, first, count) for number in numbers] == ranks.tolist()


def test_ranks_of_many_are_exact() -> None:
    count = 10**18 - 1
    rng = random.Random(3)
    for number in (0, 1, 10, 9, 10**17, 10**18 - 2, *(rng.randrange(count) for _ in range(500))):
        rank = plain_rank(number, 0, count)
        assert plain_number(rank, 0, count) == number
        after = plain_rank(number * 10, 0, count) if 0 < number * 10 < count else None
        assert after is None or after == rank + 1


def test_sizes_are_those_of_keys() -> None:
    for first in (0, 1):
        run = keys.KeyRun(keys.KeyForm.PLAIN, first, 1234, 0, b"ab", b".c")
        wanted = [len(keys.format_key(run, first + i)) for i in range(1234)]
        for count in (1, 9, 10, 11, 99, 100, 101, 1234):
            assert plain_sizes(run, count).tolist() == wanted[:count]


# --- patterns ----------------------------------------------------------------------------

SHAPES: dict[str, tuple[list[bytes], dict[str, Any], str]] = {
    "eight digits": ([b"%08d" % i for i in range(5000)], {}, "{00000000..00004999}"),
    "from one on": ([b"k%05d.jpg" % i for i in range(1, 3000)], {}, "k{00001..02999}.jpg"),
    "str(i)": ([b"%d" % i for i in range(12_000)], {}, "{0..11999}"),
    "str(i) from one on": ([b"a%d.mp4" % i for i in range(1, 1200)], {}, "a{1..1199}.mp4"),
    "str(i) and others": (
        [*(b"%d" % i for i in range(3000)), b"__keys__", b"__len__"],
        {},
        "{0..2999}, '__keys__', '__len__'",
    ),
    "pictures and labels": (
        [*(b % i for i in range(1, 900) for b in (b"image-%09d", b"label-%09d")), b"num-samples"],
        {},
        "image-{000000001..000000899}, label-{000000001..000000899}, 'num-samples'",
    ),
    "gaps": (
        [b"%06d" % i for i in range(900) if i % 100],
        {},
        "{000001..000099}, {000101..000199}, {000201..000299}, {000301..000399}, "
        "{000401..000499}, {000501..000599} and 3 runs more",
    ),
    "big-endian": ([struct.pack(">I", i) for i in range(70_000)], {}, "{0..69999} in 4 bytes"),
    "stem and big-endian": (
        [b"abcd" + struct.pack(">Q", 2**40 + i) for i in range(700)],
        {},
        "abcd{1099511627776..1099511628475} in 8 bytes",
    ),
    "integer keys": (
        [struct.pack("=Q", i) for i in range(3000)],
        {"integerkey": True},
        "{0..2999} in 8 bytes, the lowest first",
    ),
    "short integer keys": (
        [struct.pack("=I", i) for i in range(5, 3000)],
        {"integerkey": True},
        "{5..2999} in 4 bytes, the lowest first",
    ),
    "reversed": (
        [struct.pack("<I", i) for i in range(3000)],
        {"reverse_key": True},
        "{0..2999} in 4 bytes, the lowest first",
    ),
    "letters": ([bytes([c]) for c in b"abcdefg"], {}, "{97..103} in 1 bytes"),
}


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_patterns_are_found(tmp_path: Path, shape: str, version: int) -> None:
    wanted, flags, told = SHAPES[shape]
    found = make(tmp_path / "env", wanted, version=version, **flags)
    pattern = pattern_of(tmp_path / "env")
    assert pattern is not None
    assert keys.describe(pattern.runs).startswith(told)
    some = random.Random(1).sample(found, min(50, len(found)))
    hold(pattern, found, [other for key in some for other in near(key)])


@pytest.mark.parametrize(
    "wanted",
    [
        [b"%d" % i for i in range(1000) if i != 57],
        [b"%d" % i for i in range(2, 1000)],
        [random.Random(i).randbytes(8) for i in range(500)],
        [b"%08d" % (3 * i) for i in range(500)],
        [b"%05d" % i for i in range(130) if i % 2],
        [b"x" * 500 + b"%d" % i for i in range(100)][::7],
        [b"0", b"1", b"10", b"11", b"12"],
        [b"alone"],
        [],
    ],
    ids=[
        "one missing",
        "from two on",
        "random",
        "threes",
        "odd",
        "sevens",
        "not up to twelve",
        "one",
        "empty",
    ],
)
def test_of_other_keys_nothing_is_said(tmp_path: Path, wanted: list[bytes]) -> None:
    make(tmp_path / "env", wanted)
    assert pattern_of(tmp_path / "env") is None


def test_whatever_is_found_is_right(tmp_path: Path) -> None:
    rng = random.Random(11)
    patterns = 0
    for case in range(250):
        wanted: set[bytes] = set()
        for _ in range(rng.choice((1, 1, 2, 3))):
            stem = rng.choice((b"", b"a", b"a1", b"9", b"image-", b"\xff", b"1.", b"0"))
            tail = rng.choice((b"", b"", b".jpg", b"z", b"\0", b"/0"))
            shape = rng.choice((b"%d", b"%d", b"%03d", b"%04d", b"%06d"))
            first, step = rng.choice((0, 0, 1, 1, 5, 95)), rng.choice((1, 1, 1, 2))
            last = first + rng.choice((1, 5, 10, 12, 101, 130)) * step
            wanted |= {stem + shape % i + tail for i in range(first, last, step)}
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            wanted.add(rng.choice((b"__len__", b"num", b"5", b"00", b"a10", b"\x01")))
        if rng.random() < 0.2:
            wanted.discard(rng.choice(sorted(wanted)))
        if not wanted:
            continue
        found = make(tmp_path / str(case), sorted(wanted))
        pattern = pattern_of(tmp_path / str(case))
        if pattern is not None:
            patterns += 1
            hold(pattern, found, [other for key in found[:40] for other in near(key)])
            order = pattern.by_number()
            assert order is None or sorted(order.tolist()) == list(range(len(found)))
    assert patterns > 100


# --- records -----------------------------------------------------------------------------


def sizes(number: int) -> int:
    return random.Random(number).choice((0, 10, 500, 3000, 9000))


def opened(path: Path, form: Form | None, **given: Any) -> lmdbio.Records:
    if form is not None:
        convert(path, form=form)
    locate: Literal["provenance", "scan"] = "scan" if form is None else "provenance"
    return lmdbio.Records(path, locate=locate, **given)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", [1, 3])
def test_keys_without_a_pattern_lead_there_too(
    tmp_path: Path, version: int, form: Form | None
) -> None:
    wanted = [random.Random(i).randbytes(5 + i % 40) for i in range(4000)]
    found = make(tmp_path / "env", wanted, version=version, length=sizes)
    recs = opened(tmp_path / "env", form)
    assert [recs.key(i) for i in range(len(recs))] == found
    assert [recs.index_of(key) for key in found] == list(range(len(recs)))
    assert recs.key(-1) == found[-1]
    known = set(found)
    for other in [other for key in found[::400] for other in near(key)] + [b"x" * 600]:
        if other not in known:
            with pytest.raises(KeyError):
                recs.index_of(other)
    for wrong in (len(recs), -len(recs) - 1):
        with pytest.raises(IndexError):
            recs.key(wrong)
    with pytest.raises(TypeError, match="a key is bytes, not str"):
        recs.index_of("key")  # type: ignore[arg-type]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(recs.key, range(0, len(recs), 3))) == found[::3]


def test_keys_are_read_in_a_child(tmp_path: Path) -> None:
    found = make(tmp_path / "env", [random.Random(i).randbytes(9) for i in range(3000)])
    recs = opened(tmp_path / "env", None)
    assert recs.key(5) == found[5]
    child = os.fork()
    if child == 0:
        good = [recs.key(i) for i in range(0, 3000, 7)] == found[::7] and recs.index_of(
            found[9]
        ) == 9
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_no_page_of_the_tree_is_read_for_a_pattern(tmp_path: Path) -> None:
    found = make(tmp_path / "env", SHAPES["str(i)"][0])
    convert(tmp_path / "env", form="explicit")
    with open_record_index(tmp_path / "env") as source:
        before = source.counts().requests
        assert all(source.index(key) == i for i, key in enumerate(found))
        assert [source.key(i) for i in range(len(found))] == found
        assert source.counts().requests == before


def test_a_key_that_moved_on_is_refused(tmp_path: Path) -> None:
    wanted = [random.Random(i).randbytes(9) for i in range(3000)]
    found = make(tmp_path / "env", wanted)
    recs = opened(tmp_path / "env", None)
    env = databases.open_writable(tmp_path / "env", 1)
    for i in range(3):
        with env.begin(write=True) as txn:
            txn.put(b"new%d" % i, b"")
    env.close()
    for call in (lambda: recs.key(7), lambda: recs.index_of(found[7])):
        with pytest.raises(lmdbio.Error, match="changed while it was read"):
            call()


# --- the order in which records were put -------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", ["eight digits", "str(i)", "str(i) and others", "gaps"])
def test_records_come_as_they_were_put(tmp_path: Path, shape: str, form: Form | None) -> None:
    wanted = SHAPES[shape][0]
    make(tmp_path / "env", wanted, length=sizes)
    values = [databases.value(i, sizes(i)) for i in range(len(wanted))]
    recs = opened(tmp_path / "env", form, order="insertion")
    some = np.random.default_rng(5).permutation(len(wanted))[:700]
    assert [bytes(value) for value in recs.read(some)] == [values[i] for i in some]
    assert [recs[int(i)] for i in some[:50]] == [values[i] for i in some[:50]]
    assert recs[10:60] == values[10:60]
    assert list(recs) == values
    assert [recs.key(int(i)) for i in some] == [wanted[i] for i in some]
    assert [recs.index_of(wanted[i]) for i in some] == some.tolist()
    count = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with lmdbio.Reader(tmp_path / "env", 32, order="insertion", iterations=20) as reader:
            for batch in reader:
                assert list(map(bytes, batch)) == values[count : count + 32]
                count += 32


def test_an_order_that_is_not_known_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "random", [random.Random(i).randbytes(8) for i in range(500)])
    make(tmp_path / "two", SHAPES["pictures and labels"][0])
    for name, why in (("random", "follow no pattern"), ("two", "do not count in one way")):
        convert(tmp_path / name)
        with pytest.raises(IncompatibleError, match=why):
            lmdbio.Records(tmp_path / name, order="insertion")
        with pytest.raises(IncompatibleError, match=why):
            lmdbio.Reader(tmp_path / name, 4, order="insertion")
    with pytest.raises(ValueError, match="order must be one of"):
        lmdbio.Records(tmp_path / "two", order="random")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="order must be one of"):
        lmdbio.Reader(tmp_path / "two", 4, order="random")  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[1, 3])
def shuffled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[bytes], list[bytes]]:
    """A database whose keys came in no order of theirs; keys and values as they came."""
    wanted = [random.Random(i).randbytes(3 + i % 40) for i in range(20_000)]
    path = tmp_path_factory.mktemp("shuffled") / "env"
    make(path, wanted, version=request.param, length=sizes)
    return path, wanted, [databases.value(i, sizes(i)) for i in range(len(wanted))]


@pytest.mark.parametrize("form", ["auto", "leaves", "explicit"])
def test_an_order_that_was_told_is_kept(
    tmp_path: Path, shuffled: tuple[Path, list[bytes], list[bytes]], form: Form
) -> None:
    path, wanted, values = shuffled
    told = tmp_path / "told.prov"
    report = convert(path, form=form, output=told, order=iter(wanted))
    plain = convert(path, form=form, output=tmp_path / "plain.prov")
    assert report.sidecar_bytes - plain.sidecar_bytes < 2.5 * len(wanted)
    recs = lmdbio.Records(path, order="insertion", provenance=told)
    assert list(recs) == values
    some = np.random.default_rng(5).permutation(len(wanted))[:300]
    assert [recs.key(int(i)) for i in some] == [wanted[i] for i in some]
    assert [recs.index_of(wanted[i]) for i in some] == some.tolist()
    assert [bytes(value) for value in recs.read(some)] == [values[i] for i in some]
    assert verify(path, told).sidecar_records == len(wanted)
    assert sorted(recs) == sorted(lmdbio.Records(path, provenance=told))


def test_an_order_that_was_told_counts_more_than_numbers(tmp_path: Path) -> None:
    wanted = [b"%d" % i for i in range(3000)]
    random.Random(2).shuffle(wanted)
    make(tmp_path / "env", wanted, length=lambda number: 2500)
    convert(tmp_path / "env", order=wanted)
    recs = lmdbio.Records(tmp_path / "env", order="insertion")
    assert [recs.key(i) for i in range(3000)] == wanted


def test_an_order_that_is_not_this_databases_is_refused(tmp_path: Path) -> None:
    wanted = [random.Random(i).randbytes(8) for i in range(500)]
    make(tmp_path / "env", wanted)
    make(tmp_path / "many", wanted, dupsort=True)
    sidecar = tmp_path / "env" / "data.mdb.prov"
    for order, why in (
        (wanted[:-1], f"has a key {wanted[-1]!r}, which the order does not name"),
        ([*wanted, b"new"], "has no key b'new', which the order names"),
        ([*wanted, b"\xff" * 9], "has no key .*, which the order names"),
        ([*wanted[:-1], b"new"], "which the order"),
        ([*wanted[:-1], wanted[0]], f"names key {wanted[0]!r} twice"),
        ([], "which the order does not name"),
    ):
        with pytest.raises(IncompatibleError, match=re.escape(why).replace("\\.\\*", ".*")):
            convert(tmp_path / "env", order=order)
    with pytest.raises(IncompatibleError, match="keys with many values"):
        convert(tmp_path / "many", order=wanted)
    env = databases.open_writable(tmp_path / "two", 1)
    for name in (b"a", b"b"):
        databases.write(env, [(b"k", b"v")], db=env.open_db(name))
    env.close()
    for databases_ in (None, "all"):
        with pytest.raises(IncompatibleError, match="an order is that of one database"):
            convert(tmp_path / "two", databases=databases_, order=[b"k"])  # type: ignore[arg-type]
    assert convert(tmp_path / "two", databases=["b"], order=[b"k"]).records == 1
    assert not sidecar.exists()


NUMBERED = [
    (9, 1, 0, b"%d", {}),
    (11, 3, 0, b"%d", {}),
    (5000, 1000, 0, b"%d", {}),
    (5000, 777, 1, b"a%d.jpg", {"version": 3}),
    (3000, 1, 1, b"%d", {}),
    (20_000, 20_000, 0, b"%d", {"version": 3}),
]


@pytest.mark.parametrize(("count", "every", "first", "shape", "given"), NUMBERED)
def test_what_was_put_by_number_is_replayed(
    tmp_path: Path, count: int, every: int, first: int, shape: bytes, given: dict[str, Any]
) -> None:
    wanted = [shape % i for i in range(first, first + count)]
    make(tmp_path / "env", wanted, length=lambda number: 2500, every=every, **given)
    report = convert(tmp_path / "env")
    assert report.replayed == 1 and report.sidecar_bytes < 300
    with (
        open_record_index(tmp_path / "env", locate="scan") as scanned,
        open_record_index(tmp_path / "env") as source,
    ):
        assert source.run(0, count).tobytes() == scanned.run(0, count).tobytes()
    assert verify(tmp_path / "env").sidecar is not None


def test_values_inside_leaves_are_not_replayed_by_number(tmp_path: Path) -> None:
    make(tmp_path / "env", [b"%d" % i for i in range(2000)])
    with pytest.raises(IncompatibleError, match="values inside leaves"):
        convert(tmp_path / "env", form="replay")


def test_other_orders_are_not_taken_for_numbers(tmp_path: Path) -> None:
    shuffled = [b"%d" % i for i in range(3000)]
    random.Random(2).shuffle(shuffled)
    make(tmp_path / "env", shuffled, length=lambda number: 2500)
    assert convert(tmp_path / "env").replayed == 0


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ({}, [b"%d" % i for i in range(2, 100)]),
        ({}, [b"%d" % i for i in range(100) if i != 1]),
        ({}, [*(b"%d" % i for i in range(100)), b"9" * 23]),
        ({"reverse_key": True}, [b"%02d" % i for i in range(100)]),
    ],
)
def test_numbers_that_do_not_tell_the_order(
    tmp_path: Path, flags: dict[str, Any], names: list[bytes]
) -> None:
    """Keys alone beside the runs that are numbers too; text that is sorted from its end."""
    with lmdb.open(str(tmp_path), map_size=1 << 24, max_dbs=1) as env:
        db = env.open_db(b"n", **flags)
        with env.begin(write=True, db=db) as txn:
            for name in names:
                txn.put(name, name)
    with pytest.raises(IncompatibleError, match="order in which its records were put"):
        lmdbio.Records(tmp_path, db=b"n", order="insertion")


def test_keys_that_are_asked_for_may_be_of_any_size(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for i in range(100):
            txn.put(b"%d" % i, b"")
    convert(tmp_path)
    with lmdbio.Records(tmp_path, locate="provenance") as records, pytest.raises(KeyError):
        records.index_of(b"9" * 5000)


@pytest.mark.parametrize("width", [18, 19, 20])
def test_numbers_of_more_digits_than_are_computed(tmp_path: Path, width: int) -> None:
    """18 fit into the 64 bits that they are computed in, whatever they are."""
    found = make(tmp_path / "env", [b"%0*d" % (width, 10**17 + i) for i in range(300)])
    pattern = pattern_of(tmp_path / "env")
    assert pattern is not None and len(pattern.runs) == (1 if width <= 18 else 30)
    assert (pattern.runs[0].form == keys.KeyForm.DECIMAL) == (width <= 18)
    with lmdbio.Records(tmp_path / "env", locate="provenance") as records:
        assert [records.index_of(key) for key in found] == list(range(300))
        for key in (b"%0*d" % (width, 10**17 + 300), b"%0*d" % (width + 1, 10**17)):
            with pytest.raises(KeyError):
                records.index_of(key)


# --- cursors -----------------------------------------------------------------------------


def assert_numbered(txn: Any, db: Any, found: list[tuple[bytes, bytes]]) -> None:
    """A cursor on each of some records knows its number, and finds it."""
    cursor, rng = txn.cursor(db), random.Random(len(found))
    many = db is not None and db.flags()["dupsort"]
    for at in {0, len(found) - 1, *rng.sample(range(len(found)), min(40, len(found)))}:
        assert cursor.set_index(at)
        assert (bytes(cursor.key()), bytes(cursor.value()), cursor.index()) == (*found[at], at)
        key, value = found[at]
        assert cursor.set_key_dup(key, value) if many else cursor.set_key(key)
        assert cursor.index() == at
    before = cursor.item()
    for none in (-1, len(found), 1 << 70):
        assert not cursor.set_index(none) and cursor.item() == before
    assert cursor.first()
    for at, item in enumerate(cursor):  # which reads ahead
        assert item == found[at] and (at % 97 or cursor.index() == at)
    with txn.cursor(db) as nowhere, pytest.raises(lmdb.Error, match="stands nowhere"):
        nowhere.index()


@pytest.mark.parametrize("converted", [True, False])
@pytest.mark.parametrize("kind", ["counting", "random", "dupsort", "dupfixed"])
def test_cursors_know_their_number(tmp_path: Path, kind: str, converted: bool) -> None:
    rng, flags = random.Random(3), {}
    if kind.startswith("dup"):
        flags = {"dupsort": True, "dupfixed": kind == "dupfixed"}
    with lmdb.open(str(tmp_path), map_size=1 << 28, max_dbs=1) as env:
        db = env.open_db(b"n", **flags)
        with env.begin(write=True, db=db) as txn:
            for i in range(3000):
                key = b"%d" % i if kind == "counting" else rng.randbytes(1 + i % 30)
                for _ in range(rng.choice((1, 1, 3, 300)) if flags and i % 20 == 0 else 1):
                    txn.put(key, rng.randbytes(8))
        with env.begin(db=db) as txn:
            found = [(bytes(key), bytes(value)) for key, value in txn.cursor()]
    if converted:
        convert(tmp_path)
    for buffers in (False, True):
        with (
            lmdbio.open(str(tmp_path), readonly=True, max_dbs=1) as env,
            env.begin(buffers=buffers) as txn,
        ):
            if buffers:
                assert txn.cursor(env.open_db(b"n")).set_index(5)
            else:
                assert_numbered(txn, env.open_db(b"n"), found)


def test_numbers_are_those_of_the_snapshot(tmp_path: Path) -> None:
    """Held by a reader slot, it outlives any number of commits."""
    rng = random.Random(9)
    keys = sorted(rng.randbytes(10) for _ in range(2000))
    with lmdb.open(str(tmp_path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for key in keys:
            txn.put(key, key)
    convert(tmp_path)
    with lmdbio.open(str(tmp_path), readonly=True) as env, env.begin() as txn:
        for _ in range(6):
            writer = (
                "import lmdb, os, sys; e = lmdb.open(sys.argv[1], map_size=1 << 26)\n"
                "with e.begin(write=True) as t:\n"
                "    for i in range(99): t.put(os.urandom(10), b'')"
            )
            subprocess.run([sys.executable, "-c", writer, str(tmp_path)], check=True)
        assert_numbered(txn, None, [(key, key) for key in keys])
        with env.begin() as later, pytest.warns(UserWarning, match="does not describe this state"):
            assert later.cursor().set_index(len(keys) + 6 * 99 - 1)
        assert_numbered(txn, None, [(key, key) for key in keys])
    with (
        lmdbio.open(str(tmp_path), readonly=True, lock=False) as env,
        env.begin() as txn,
        pytest.warns(UserWarning, match="does not describe this state"),
    ):
        assert txn.cursor().set_index(7)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_of_a_state_that_is_gone_are_refused(tmp_path: Path, seed: int) -> None:
    """Without a reader slot: counted right, or refused, but never wrong, and never as damage."""
    rng, told = random.Random(seed), 0
    keys = sorted(rng.randbytes(10) for _ in range(3000))
    writer = lmdb.open(str(tmp_path), map_size=1 << 26)
    with writer.begin(write=True) as txn:
        for key in keys:
            txn.put(key, bytes(20))
    with lmdbio.open(str(tmp_path), readonly=True, lock=False) as env:
        for _ in range(60):
            with env.begin() as txn:
                with writer.begin() as there:
                    expected = [bytes(key) for key, _ in there.cursor()]
                cursor = txn.cursor()
                assert cursor.set_key(expected[len(expected) // 2])
                for _ in range(rng.randrange(6)):
                    with writer.begin(write=True) as change:
                        for key in rng.sample(expected, 200):
                            change.delete(key)
                            change.put(rng.randbytes(10), bytes(20))
                try:
                    assert cursor.index() == len(expected) // 2
                except lmdb.Error as error:
                    assert "no longer protected" in str(error) or "changed" in str(error)
                    told += 1
    writer.close()
    assert 5 < told < 55
