"""The deeds that make a database, told so that any LMDB can do them (writer.c), and its content.

    story -> operations -> a file made by some LMDB
          -> contents    -> what every reader of that file has to find

Pure but for ``Story.write``, which runs a writer.
"""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

OPEN, PUT, DELETE, COMMIT = range(4)
# Flags of LMDB: of databases, and of a put.
REVERSE_KEY, DUP_SORT, INTEGER_KEY, DUP_FIXED = 0x02, 0x04, 0x08, 0x10
INTEGER_DUP, REVERSE_DUP, CREATE, APPEND = 0x20, 0x40, 0x40000, 0x20000

#: One deed: an operation, its flags, a key and a value.
Deed = tuple[int, int, bytes, bytes]
Name = bytes | None
#: The keys of a database with their values.
Contents = dict[Name, dict[bytes, list[bytes]]]


@dataclass(frozen=True, slots=True)
class Story:
    """A way to make a database, whatever the size of its pages.

    Attributes:
        name: of the story.
        tell: its deeds, given the page size in bytes.
        replays: every record is put once, as ``lmdbio.history`` knows it.
    """

    name: str
    tell: Callable[[int], Iterator[Deed]]
    replays: bool = False

    def write(self, writer: Path, file: Path, page_bytes: int) -> None:
        """Has it done by a program that was built from writer.c."""
        told = b"".join(
            struct.pack("=4I", what, flags, len(key), len(value)) + key + value
            for what, flags, key, value in self.tell(page_bytes)
        )
        done = subprocess.run([writer, file, str(page_bytes)], input=told, capture_output=True)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            raise RuntimeError(f"{writer.name}: {self.name}: {done.returncode}: {said}")

    def contents(self, page_bytes: int) -> tuple[Contents, dict[Name, int]]:
        """Return what the databases hold, in their orders, and their flags."""
        held: Contents = {}
        kinds: dict[Name, int] = {}
        name: Name = None
        for what, flags, key, value in self.tell(page_bytes):
            if what == OPEN:
                name = key or None
                held.setdefault(name, {})
                kinds.setdefault(name, flags & 0xFF)
                continue
            db, many = held.get(name, {}), kinds.get(name, 0) & DUP_SORT
            if what == PUT and many:
                values = db.setdefault(key, [])
                if value not in values:
                    values.append(value)
            elif what == PUT:
                db[key] = [value]
            elif what == DELETE and many and value:
                db[key].remove(value)
                if not db[key]:
                    del db[key]
            elif what == DELETE:
                del db[key]
        return {name: _ordered(db, kinds[name]) for name, db in held.items()}, kinds


def _ordered(db: dict[bytes, list[bytes]], flags: int) -> dict[bytes, list[bytes]]:
    def key_of(reverse: int, integer: int) -> Callable[[bytes], bytes]:
        return (lambda k: k[::-1]) if flags & (reverse | integer) else (lambda k: k)

    keys, values = key_of(REVERSE_KEY, INTEGER_KEY), key_of(REVERSE_DUP, INTEGER_DUP)
    return {key: sorted(db[key], key=values) for key in sorted(db, key=keys)}


def value(seed: object, length: int) -> bytes:
    """``length`` bytes that depend on ``seed`` and pack well."""
    return (b"%s;" % str(seed).encode() * (length // 2 + 1))[:length]


def opened(name: Name = None, flags: int = 0) -> Deed:
    return OPEN, flags | (CREATE if name else 0), name or b"", b""


COMMITTED: Deed = (COMMIT, 0, b"", b"")


def puts(
    count: int,
    length: int,
    every: int,
    *,
    name: Name = None,
    apart: bool = False,
    append: bool = False,
    key: Callable[[int], bytes] = lambda i: b"%08d" % i,
    kind: int = 0,
) -> Iterator[Deed]:
    """Every record once, a commit after each ``every``."""
    yield opened(name, kind)
    if apart:
        yield COMMITTED
    for i in range(count):
        yield PUT, APPEND if append else 0, key(i), value(i, length)
        if (i + 1) % every == 0:
            yield COMMITTED
            yield opened(name, kind)


def scattered(page: int) -> Iterator[Deed]:
    """In any order, of all sizes; then changed, and some deleted."""
    rng = random.Random(page)
    sizes = (0, 7, page // 40, page // 5, page // 2 - 40, page // 2, page, 3 * page)
    yield opened()
    order = rng.sample(range(800), 800)
    for turn, i in enumerate([*order, *rng.choices(order, k=200)]):
        yield PUT, 0, b"%08d" % i, value(turn, rng.choice(sizes))
        if turn % 90 == 89:
            yield COMMITTED
    for turn, i in enumerate(rng.sample(range(800), 300)):
        yield DELETE, 0, b"%08d" % i, b""
        if turn % 70 == 69:
            yield COMMITTED


def emptied(page: int) -> Iterator[Deed]:
    yield from puts(300, page // 10, 50)
    for i in range(300):
        yield DELETE, 0, b"%08d" % i, b""


def all_sizes(page: int) -> Iterator[Deed]:
    """Values and keys on both sides of every limit."""
    limits = (0, page // 2 - 32, page // 2, page - 24, 2 * page - 16)
    sizes = sorted(max(0, size + more) for size in limits for more in range(-6, 7))
    yield opened()
    for i, size in enumerate(sizes):
        yield PUT, 0, b"%06d" % i + b"k" * (i % min(page // 8, 400)), value(i, size)
        if i % 40 == 39:
            yield COMMITTED


def many_values(page: int, most: int) -> Iterator[Deed]:
    """Keys of one value, of some inside their node, and of a tree; of all kinds of databases."""
    rng = random.Random(page)
    for name, flags in (
        (b"varying", DUP_SORT),
        (b"fixed", DUP_SORT | DUP_FIXED),
        (b"numbers", DUP_SORT | DUP_FIXED | INTEGER_DUP | INTEGER_KEY),
        (b"backwards", DUP_SORT | REVERSE_DUP | REVERSE_KEY),
    ):
        yield opened(name, flags)
        for k, count in enumerate((1, 2, 5, most, 1, most // 8, 3)):
            key = number(k) if flags & INTEGER_KEY else b"key%02d" % k
            for i in rng.sample(range(count), count):
                some = (
                    struct.pack("=Q", i * 3) if flags & DUP_FIXED else b"%05d" % i + b"x" * (i % 9)
                )
                yield PUT, 0, key, some
            yield COMMITTED
            yield opened(name, flags)
            if count > 4:
                gone = number(6) if flags & DUP_FIXED else b"00002xx"
                yield DELETE, 0, key, gone


def backwards(page: int) -> Iterator[Deed]:
    yield opened(b"backwards", REVERSE_KEY)
    for i in range(500):
        yield PUT, 0, b"%05d" % (i * 7 % 500), value(i, i % (page // 4))


def several(page: int) -> Iterator[Deed]:
    """Databases of their own beside records of the main one."""
    for name, length in ((b"one", page // 20), (b"two", page), (b"none", 0)):
        yield from puts(200 if length else 0, length, 30, name=name)
    yield from puts(50, page // 3, 20)


def number(i: int) -> bytes:
    return struct.pack("=Q", i)


def long_number(page: int) -> Callable[[int], bytes]:
    """So long that the rules of splitting part: some 27 keys to a page, or as few as may be."""
    stem = b"k" * min(page // 32, 480)
    return lambda i: stem + b"%d" % i


#: A story that replays, in each way in which databases are made.
REPLAYED = (
    Story("overflow", lambda p: puts(1500, 3 * p // 4, 100), True),
    Story("overflow, at once", lambda p: puts(1500, 3 * p // 4, 10**9), True),
    Story("overflow, appended", lambda p: puts(1500, 3 * p // 4, 100, append=True), True),
    Story("overflow, one by one", lambda p: puts(300, 3 * p // 4, 1), True),
    Story("several pages", lambda p: puts(600, 3 * p, 70), True),
    Story("odd overflow", lambda p: puts(900, p + 1, 64), True),
    Story("inside", lambda p: puts(3000, p // 40, 100), True),
    Story("inside, appended", lambda p: puts(3000, p // 40, 100, append=True), True),
    Story("large inside", lambda p: puts(700, p // 3, 37), True),
    Story("inside, one by one", lambda p: puts(300, p // 30, 1), True),
    Story("empty", lambda p: puts(3000, 0, 500), True),
    Story("named", lambda p: puts(1200, 3 * p // 4, 100, name=b"train"), True),
    Story("named apart", lambda p: puts(1200, 3 * p // 4, 100, name=b"train", apart=True), True),
    Story("named inside", lambda p: puts(2500, p // 50, 100, name=b"train", apart=True), True),
    Story(
        "integers",
        lambda p: puts(1000, p, 100, name=b"n", key=number, kind=INTEGER_KEY),
        True,
    ),
    Story("str(i)", lambda p: puts(2500, p, 100, key=lambda i: b"%d" % i), True),
    Story("str(i), at once", lambda p: puts(2500, p, 10**9, key=lambda i: b"%d" % i), True),
    Story("str(i), long keys", lambda p: puts(1500, p, 100, key=long_number(p)), True),
    Story("str(i), long", lambda p: puts(1200, 3 * p, 50, key=lambda i: b"%d" % i), True),
)
OTHERS = (
    Story("scattered", scattered),
    Story("emptied", emptied),
    Story("all sizes", all_sizes),
    Story("many values", lambda p: many_values(p, min(4000, 6 * p // 8))),
    Story("backwards", backwards),
    Story("several", several),
)
STORIES = REPLAYED + OTHERS


@dataclass(frozen=True, slots=True)
class Sample:
    """A file in ``samples``, packed with xz.

    Attributes:
        lmdb: the version of LMDB that wrote it.
        page_bytes: size of its pages.
        story: what was done; its name is the end of the file's.
        rule: the one by which pages are split that its history has; "": it has none.
    """

    lmdb: str
    page_bytes: int
    story: Story
    rule: str = ""

    @property
    def file(self) -> str:
        return f"{self.lmdb}-{self.page_bytes}-{self.story.name}.mdb.xz"


SAMPLES = (
    Sample("0.9.7", 4096, Story("inside", lambda p: puts(250, p // 5, 37), True), "OLDEST"),
    Sample(
        "0.9.14",
        4096,
        Story("numbers", lambda p: puts(300, p, 50, key=long_number(p)), True),
        "BY_TWENTY",
    ),
    Sample("0.9.14", 4096, Story("many", lambda p: many_values(p, 700))),
    Sample(
        "0.9.31", 16384, Story("overflow", lambda p: puts(120, 3 * p // 4, 25), True), "BY_PAGE"
    ),
    Sample("0.9.36", 32768, Story("inside", lambda p: puts(400, p // 40, 90), True), "BY_PAGE"),
    Sample(
        "1.0.2",
        16384,
        Story("named", lambda p: puts(150, p // 3, 20, name=b"train", apart=True), True),
        "BY_PAGE",
    ),
    Sample("1.0.2", 65536, Story("overflow", lambda p: puts(40, 3 * p // 4, 7), True), "BY_PAGE"),
)
