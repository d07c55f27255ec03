"""Damaged databases, and such whose keys are not in the order of bytes.

Goal: whatever bytes of a database with duplicates are changed, every surface ends, by what it
found or by an exception that is documented; a cursor that read ahead stands on the record it
handed out, also where its key does not lead there. Method: pages of small databases changed at
random, headers and nodes more often than values, each tried in the same way on all surfaces; for
keys out of order py-lmdb, which moves from page to page, is the judge.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from tests.support import databases

NAME = b"many"
PAGE = 4096
SECONDS_MAX = 60  # of one surface on one database of a few pages: it hangs
SEED, TRIES = 20, 160
KINDS: dict[str, dict[str, Any]] = {
    "varying": {"dupsort": True},
    "fixed": {"dupsort": True, "dupfixed": True, "integerdup": True, "integerkey": True},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    def hang(*_: object) -> None:
        raise AssertionError("does not end")

    before = signal.signal(signal.SIGALRM, hang)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# --- damage at random --------------------------------------------------------------------


def make(folder: Path, kind: str, version: int) -> bytes:
    """Keys with one value, some on a page of their own, and a tree of them; the pages in use."""
    draw, flags = random.Random(kind), KINDS[kind]
    fixed = "dupfixed" in flags
    env = databases.open_writable(folder, version, map_size=1 << 22)
    db = env.open_db(NAME, **flags)
    for step in (1, 3):
        with env.begin(write=True, db=db) as txn:
            for number in range(0, 40, step):
                key = struct.pack("=I", number) if fixed else b"%04d" % number
                for _ in range(draw.choice((1, 1, 2, 5, 30, 400)) if step == 1 else 2):
                    integer = struct.pack("=Q", draw.getrandbits(60))
                    txn.put(key, integer if fixed else draw.randbytes(draw.randrange(1, 50)))
    used = (env.info()["last_pgno"] + 1) * PAGE
    env.close()
    return (folder / "data.mdb").read_bytes()[:used]


def damage(whole: bytes, draw: random.Random, header: int) -> bytes:
    """Changes up to four places: bits, headers, pointers to nodes, nodes, stretches, pages."""
    content, pages = bytearray(whole), len(whole) // PAGE
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        page = draw.randrange(pages) * PAGE
        kind = draw.randrange(7)
        if kind == 0:
            content[page + draw.randrange(PAGE)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            content[page + draw.randrange(header)] = draw.randrange(256)
        elif kind == 2:
            number = draw.choice((0, 16, 24, 4095, 4096, draw.randrange(65536)))
            struct.pack_into("<H", content, page + header + 2 * draw.randrange(20), number)
        elif kind in (3, 4):  # a field of a node: lengths, flags
            (pointer,) = struct.unpack_from("<H", content, page + header + 2 * draw.randrange(9))
            node = page + pointer + (header if header == 24 else 0)
            number = draw.choice((0, 0, 1, 2, 4, 6, 7, 8, 48, 65535, draw.randrange(65536)))
            if node + 8 <= page + PAGE:
                struct.pack_into("<H", content, node + 2 * draw.randrange(4), number)
        elif kind == 5:
            at, size = page + draw.randrange(PAGE - 64), draw.randrange(1, 64)
            content[at : at + size] = draw.choice((bytes(size), draw.randbytes(size)))
        else:  # another page in its place
            other = draw.randrange(pages) * PAGE
            content[page : page + PAGE] = content[other : other + PAGE]
            struct.pack_into("<Q", content, page, page // PAGE)
    return bytes(content)


def try_cursors(path: Path) -> None:
    """Every move, each by itself: one that fails leaves a cursor that others go on with."""

    def attempt(call: Callable[[], object]) -> None:
        with contextlib.suppress(lmdbio.Error, OSError):
            call()

    with (
        lmdbio.open(str(path), readonly=True, lock=False, max_dbs=2) as env,
        env.begin(db=env.open_db(NAME, create=False)) as txn,
    ):
        attempt(lambda: list(txn.cursor()))
        for number in range(3):
            draw, cursor = random.Random(number), txn.cursor()
            keys = [b"%04d" % draw.randrange(42) for _ in range(4)]
            iterator = cursor.iternext(keys=number != 1, values=True)

            def some(i: Any = iterator, d: random.Random = draw) -> list[Any]:
                return list(itertools.islice(i, d.randrange(200)))

            for call in (
                lambda c=cursor, k=keys: c.set_range(k[0]),
                lambda c=cursor: list(c.iternext_dup()),
                cursor.count,
                lambda c=cursor, k=keys: c.set_range_dup(k[1], b"\x40"),
                cursor.next_dup,
                cursor.last_dup,
                cursor.count,
                lambda c=cursor, k=keys: c.get(k[2]),
                lambda c=cursor: list(c.iterprev()),
                cursor.first,
                some,
                cursor.item,
                cursor.count,
                some,
                cursor.next_nodup,
                some,
                cursor.prev_dup,
                lambda c=cursor: list(c.iternext_nodup()),
                lambda c=cursor: list(c.iterprev_nodup()),
                lambda c=cursor, k=keys: c.getmulti(k, dupdata=True),
            ):
                attempt(call)


def try_records(path: Path) -> None:
    for locate in ("scan", "auto"):
        with lmdbio.Records(path, db=NAME, locate=locate) as records:  # type: ignore[arg-type]
            assert len(list(records)) == len(records)
            assert records.groups[0:5] and records.key(3)
            records.read([0, len(records) - 1])


SURFACES: dict[str, tuple[Callable[[Path], object], tuple[type[Exception], ...]]] = {
    "cursors": (try_cursors, (lmdbio.Error, OSError)),
    "records": (try_records, (lmdbio.Error, OSError, LookupError)),
    "verify": (verify, (lmdbio.Error, OSError)),
    "convert": (convert, (lmdbio.Error, OSError)),
}


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_ends_in_documented_errors(tmp_path: Path, kind: str, version: int) -> None:
    whole = make(tmp_path / "env", kind, version)
    sidecar = convert(tmp_path / "env").sidecar
    described = sidecar.read_bytes()
    told = dict.fromkeys(SURFACES, 0)
    for number in range(TRIES // 4):
        damaged = damage(whole, random.Random(f"{SEED}/{number}"), 16 if version == 1 else 24)
        (tmp_path / "env" / "data.mdb").write_bytes(damaged)
        sidecar.write_bytes(described)
        for name, (surface, documented) in SURFACES.items():
            signal.alarm(SECONDS_MAX)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    surface(tmp_path / "env")
                except documented as error:
                    assert not isinstance(error, IndexError), (SEED, number, name)
                    told[name] += 1
            signal.alarm(0)
    assert told["verify"] > TRIES // 40 and told["records"] > 0


# --- keys that do not lead to their records ----------------------------------------------


def keyed(folder: Path, *, dupsort: bool) -> None:
    env = databases.open_writable(folder, 1)
    content = [(b"key%04d" % i, b"v%d" % i) for i in range(300)]
    databases.write(env, content, db=env.open_db(NAME, dupsort=dupsort))
    env.close()


def opened(module: Any, folder: Path, use: Callable[[Any], Any]) -> Any:
    with (
        module.open(str(folder), readonly=True, lock=False, max_dbs=1) as env,
        env.begin(db=env.open_db(NAME, create=False)) as txn,
    ):
        return use(txn.cursor())


def settled(cursor: Any) -> list[tuple[Any, ...]]:
    """All records; of some what makes an iterator's cursor go where it stands."""
    seen = []
    for number, (key, value) in enumerate(itertools.islice(cursor, 1000)):
        if number % 7 == 0 or number > 296:
            seen.append((key, value, cursor.next(), cursor.item(), cursor.prev(), cursor.item()))
        seen.append((key, value))
    return seen


@pytest.mark.parametrize("dupsort", [False, True])
@pytest.mark.parametrize("key", [b"key0001", b"aaaaaaa", b"key9999", b"key0050"])
@pytest.mark.parametrize("number", [40, 150, 298, 299])
def test_records_out_of_order_come_as_they_lie(
    tmp_path: Path, number: int, key: bytes, dupsort: bool
) -> None:
    """As by a comparison that is a program's own; a search for the last ones led back."""
    keyed(tmp_path / "env", dupsort=dupsort)
    data = tmp_path / "env" / "data.mdb"
    whole = data.read_bytes()
    data.write_bytes(whole.replace(b"key%04d" % number, key))
    assert data.read_bytes() != whole
    for use in (lambda cursor: list(itertools.islice(cursor, 1000)), settled):
        signal.alarm(SECONDS_MAX)
        assert opened(lmdbio, tmp_path / "env", use) == opened(lmdb, tmp_path / "env", use)


@pytest.mark.parametrize("dupsort", [False, True])
def test_a_record_without_a_key_is_stood_on(tmp_path: Path, dupsort: bool) -> None:
    keyed(tmp_path / "env", dupsort=dupsort)
    data = tmp_path / "env" / "data.mdb"
    content = bytearray(data.read_bytes())
    at = content.rfind(b"key0200")
    struct.pack_into("<H", content, at - 2, 0)
    data.write_bytes(content)

    def use(cursor: Any) -> list[object]:
        found: list[object] = []
        for key, value in itertools.islice(cursor, 1000):
            found.append((key, value))
            if key == b"":
                found += [cursor.count() if dupsort else 1, cursor.item(), cursor.next()]
                found += [cursor.item(), cursor.prev()]
        return found

    assert len(opened(lmdbio, tmp_path / "env", use)) > 300
    assert opened(lmdbio, tmp_path / "env", use) == opened(lmdb, tmp_path / "env", use)
