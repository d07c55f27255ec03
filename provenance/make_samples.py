"""Writes the samples in ``provenance/samples`` from FORMAT.md alone, without the library.

``good.json`` gives the extents that each good file holds, ``bad.json`` a part of the message with
which each bad one is refused. ``tiny.mdb`` is a small database made by py-lmdb, ``tiny.mdb.prov``
its provenance file: hints never fit a checked-out copy, so it is a sample of the deep check.

    python provenance/make_samples.py
"""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
import zlib
from pathlib import Path

import lmdb
import zstandard

SAMPLES = Path(__file__).resolve().parent / "samples"
PAGE, HEADER = 4096, 16
RUNS, EXPLICIT, LEAVES = 1, 2, 3
Extents = list[tuple[int, int]]


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def zigzag(value: int) -> bytes:
    value = (value + 2**63) % 2**64 - 2**63
    return varint(2 * value if value >= 0 else -2 * value - 1)


def pages(length: int) -> int:
    return -(-(HEADER + length) // PAGE)


def lengths(extents: Extents) -> bytes:
    smallest = min(length for _, length in extents)
    above = [length - smallest for _, length in extents]
    width = (max(above).bit_length() + 7) // 8
    planes = bytes(value >> 8 * k & 0xFF for k in range(width) for value in above)
    return varint(smallest) + bytes([width]) + planes


def runs_block(extents: Extents) -> bytes:
    counts, jumps, after = [], [], 0
    for offset, length in extents:
        page = offset // PAGE
        if counts and page == after:
            counts[-1] += 1
        else:
            counts.append(1)
            jumps.append(page - after)
        after = page + pages(length)
    packed = b"".join(map(varint, counts))
    head = lengths(extents) + varint(len(counts)) + varint(len(packed))
    return head + packed + b"".join(map(zigzag, jumps))


def residuals(extents: Extents) -> list[int]:
    out, before = [], (0, 0)
    for offset, length in extents:
        if before[0] % PAGE == HEADER:
            guess = (before[0] // PAGE + pages(before[1])) * PAGE + HEADER
        else:
            guess = before[0] - length
        out.append(offset - guess)
        before = offset, length
    return out


def explicit_block(extents: Extents) -> bytes:
    return lengths(extents) + b"".join(map(zigzag, residuals(extents)))


def leaves_block(leaves: list[tuple[int, int]]) -> bytes:
    """Of (page, records)."""
    pages = [page for page, _ in leaves]
    jumps = [
        page - after for page, after in zip(pages, [0, *(p + 1 for p in pages)], strict=False)
    ]
    counts = [records for _, records in leaves]
    return varint(len(leaves)) + b"".join([*map(zigzag, jumps), *map(varint, counts)])


def frame(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=19).compress(raw)


def record(entries: int, root: int, flags: int = 0, pad: int = 0) -> bytes:
    return struct.pack("<IHHQQQQQ", pad, flags, int(entries > 0), 0, entries > 0, 0, entries, root)


def transactions(history: bytes | None, records: int) -> int:
    """Of a database made like this; 7 where nothing is said."""
    if not history:
        return 7
    _, _, apart, _, _, every, _ = struct.unpack_from("<BBBBIQQ", history)
    return -(-records // every) + apart if every else 7


Section = tuple[bytes | None, list[tuple[int, Extents]]]  # name, blocks of (form, extents)
#: Sections with a history have one block of this form, which is not stored.
REPLAY = 0


def directory(
    sections: list[Section],
    stored: list[bytes],
    raws: list[bytes],
    history: bytes | None = None,
    keys: bytes | None = None,
    flags: int = 0,
    groups: bytes = struct.pack("<I", 0),
    order: bytes = struct.pack("<I", 0),
    **given: bytes,
) -> bytes:
    """``given`` replaces the meta page's facts and the digest (a real database's). ``history``: of
    every section, which format version 1 does not have; ``keys``: likewise, from version 3 on.
    """
    every = [extent for _, blocks in sections for _, extents in blocks for extent in extents]
    end = max((offset + length for offset, length in every), default=0)
    main = given.get("main", record(sum(len(e) for _, e in sections[0][1]), 3, flags))
    head = given.get("head", struct.pack("<III", 1, PAGE, 0))
    out = head + struct.pack("<I", len(sections))
    txnid = transactions(history, len(every))
    out += given.get("state", struct.pack("<QQ", txnid, 1000)) + struct.pack("<Q", end)
    out += given.get("free", record(0, 2**64 - 1, pad=PAGE)) + main
    out += struct.pack("<qqQQ16s", 10**18, 10**18 + 1, 66, 4711, bytes(range(16)))
    out += given.get("digest", hashlib.blake2b(b"sample", digest_size=32).digest())
    number = 0
    for name, blocks in sections:
        here = slice(number, number + len(blocks))
        counts = [len(extents) for _, extents in blocks]
        held = [form for form, _ in blocks if form != REPLAY]
        out += struct.pack("<HHI", name is not None, len(name or b""), len(held))
        out += name or b""
        out += main if name is None else record(sum(counts), 4)
        total = sum(length for _, extents in blocks for _, length in extents)
        runs = sum(residual != 0 for _, extents in blocks for residual in residuals(extents))
        out += struct.pack("<QQQ", sum(counts), total, runs)
        for column in (
            counts,
            map(len, raws[here]),
            map(len, stored[here]),
            map(zlib.crc32, stored[here]),
        ):
            out += b"".join(struct.pack("<I", value) for value in column) if held else b""
        out += bytes(held)
        if history is not None:
            out += struct.pack("<H", len(history)) + history
        if keys is not None:
            out += keys + groups + order
        number += len(held)
    return out


def seal(body: bytes, raw_directory: bytes, *, version: int = 1, features: int = 0) -> bytes:
    stored = frame(raw_directory)
    at = 64 + len(body)
    head = struct.pack("<8sIIQQ", b"LMDBIOPV", version, features, at + len(stored), at)
    head += struct.pack("<III16x", len(stored), len(raw_directory), zlib.crc32(stored))
    return head + struct.pack("<I", zlib.crc32(head)) + body + stored


def whole(
    sections: list[Section],
    *,
    version: int = 1,
    history: bytes | None = None,
    keys: bytes | None = None,
    **given: bytes,
) -> bytes:
    blocks = [block for _, blocks in sections for block in blocks if block[0] != REPLAY]
    raws = [(runs_block if form == RUNS else explicit_block)(extents) for form, extents in blocks]
    stored = [frame(raw) for raw in raws]
    raw = directory(sections, stored, raws, history, keys, **given)
    return seal(b"".join(stored), raw, version=version)


LITERAL, DECIMAL, PLAIN, BIG, LITTLE = range(5)


def key_run(
    form: int, first: int, count: int, *, width: int = 0, stem: bytes = b"", tail: bytes = b""
) -> bytes:
    head = struct.pack("<BBHHQQ", form, width, len(stem), len(tail), first, count)
    return head + stem + tail


def key_runs(*runs: bytes) -> bytes:
    return struct.pack("<H", len(runs)) + b"".join(runs)


def made(
    *,
    split: int = 0,
    append: int = 0,
    apart: int = 0,
    order: int = 0,
    key: int = 4,
    every: int,
    length: int,
) -> bytes:
    """A history, but for the checksum at its end."""
    return struct.pack("<BBBBIQQ", split, append, apart, order, key, every, length)


def sealed(history: bytes, extents: Extents) -> bytes:
    return history + struct.pack(
        "<I", zlib.crc32(b"".join(struct.pack("<QQ", *extent) for extent in extents))
    )


def stride(first: int, count: int, length: int) -> Extents:
    return [((first + i * pages(length)) * PAGE + HEADER, length) for i in range(count)]


FIXED = stride(9, 20, 3085) + stride(5, 2, 3085) + stride(31, 40, 3085)
VARYING = stride(9, 3, 5000) + stride(15, 2, 9000) + stride(100, 1, 2100)
MIXED = [(3 * PAGE + 4000, 60), (3 * PAGE + 3900, 70), *stride(7, 2, 6000), (3 * PAGE + 3800, 0)]
GOOD: dict[str, list[Section]] = {
    "empty": [(None, [])],
    "one": [(None, [(RUNS, stride(5, 1, 3085))])],
    "fixed": [(None, [(RUNS, FIXED)])],
    "varying": [(None, [(RUNS, VARYING)])],
    "mixed": [(None, [(EXPLICIT, MIXED)])],
    "blocks": [(None, [(RUNS, FIXED[:30]), (EXPLICIT, FIXED[30:]), (EXPLICIT, MIXED)])],
    "named": [(b"train", [(RUNS, FIXED)]), (b"v\xffl", [(EXPLICIT, MIXED)]), (b"none", [])],
}


# Three values of two pages each, worked out by hand. One transaction: the leaf is page 2, then the
# values as they come. Two records in the first of two: the second begins with a copy of the leaf,
# to page 7, since a reader of the first still needs page 2.
ONE = [(3 * PAGE + HEADER, 5000), (5 * PAGE + HEADER, 5000), (7 * PAGE + HEADER, 5000)]
TWO = [*ONE[:2], (8 * PAGE + HEADER, 5000)]
SECOND: dict[str, tuple[bytes, list[Section]]] = {
    "2-fixed": (b"", [(None, [(RUNS, FIXED)])]),
    "2-named": (b"", GOOD["named"]),
    "2-replay": (sealed(made(every=3, length=5000), ONE), [(None, [(REPLAY, ONE)])]),
    "2-replay-commits": (sealed(made(every=2, length=5000), TWO), [(None, [(REPLAY, TWO)])]),
    "2-replay-append": (
        sealed(made(every=2, length=5000, append=1), TWO),
        [(None, [(REPLAY, TWO)])],
    ),
}


# Eleven such values under the keys 0 to 10, put in this order in one transaction: 10 is the third.
NUMBERS = [((3 + 2 * number) * PAGE + HEADER, 5000) for number in (0, 1, 10, *range(2, 10))]
BY_NUMBER = sealed(made(order=1, key=0, every=11, length=5000), NUMBERS)
THIRD: dict[str, tuple[bytes, bytes, list[Section]]] = {
    "3-no-pattern": (b"", key_runs(), GOOD["named"]),
    "3-keys": (
        b"",
        key_runs(
            key_run(DECIMAL, 1, 50, width=9, stem=b"image-", tail=b".jpg"),
            key_run(PLAIN, 0, 11, stem=b"label-"),
            key_run(LITERAL, 0, 1, stem=b"num-samples"),
        ),
        [(None, [(RUNS, FIXED)])],
    ),
    "3-keys-of-bytes": (
        b"",
        key_runs(
            key_run(BIG, 2**32 - 31, 31, width=4, stem=b"\0"),
            key_run(LITTLE, 0, 31, width=8),
        ),
        [(None, [(RUNS, FIXED)])],
    ),
    "3-replay-numbers": (
        BY_NUMBER,
        key_runs(key_run(PLAIN, 0, 11)),
        [(None, [(REPLAY, NUMBERS)])],
    ),
}


# --- duplicates: 62 values of 30 keys -----------------------------------------------------

EACH = [1] * 10 + [2] * 15 + [4, 4, 4, 5, 5]


def counts_block(each: list[int]) -> bytes:
    smallest = min(each)
    width = (max(each) - smallest).bit_length() + 7 >> 3
    planes = bytes(n - smallest >> 8 * k & 0xFF for k in range(width) for n in each)
    return struct.pack("<QB", smallest, width) + planes


def zigzags(numbers: list[int]) -> list[int]:
    return [2 * n if n >= 0 else -2 * n - 1 for n in numbers]


def numbers_columns(packed: list[tuple[int, bytes]]) -> tuple[bytes, bytes]:
    """Of blocks of numbers: what the directory tells of them, and they themselves."""
    stored = [frame(raw) for _, raw in packed]
    columns: list[list[int]] = [
        [count for count, _ in packed],
        [len(raw) for _, raw in packed],
        [len(part) for part in stored],
        [zlib.crc32(part) for part in stored],
    ]
    told = b"".join(struct.pack("<I", value) for column in columns for value in column)
    return struct.pack("<I", len(packed)) + told, b"".join(stored)


def ordered(parts: list[list[int]]) -> bytes:
    """The 62 records of FIXED, as they were put."""
    raw = explicit_block(FIXED)
    stored = frame(raw)
    packed = []
    for part in parts:
        steps = [n - before - 1 for before, n in zip([-1, *part], part, strict=False)]
        packed.append((len(part), counts_block(zigzags(steps))))
    order, blocks = numbers_columns(packed)
    sections: list[Section] = [(None, [(EXPLICIT, FIXED)])]
    told = directory(sections, [stored], [raw], b"", key_runs(), order=order)
    return seal(stored + blocks, told, version=3)


ORDER = [n * 7 % 62 for n in range(62)]


def duplicates(
    parts: list[tuple[int, bytes]], *, flags: int = 4, keys: bytes = key_runs(), version: int = 3
) -> bytes:
    """Of (keys, their counts)."""
    raw = explicit_block(FIXED)
    stored = frame(raw)
    counts, packed = numbers_columns(parts)
    sections: list[Section] = [(None, [(EXPLICIT, FIXED)])]
    if version < 3:
        plain = directory(sections, [stored], [raw], b"", flags=flags)
        return seal(stored, plain, version=version)
    whole_directory = directory(sections, [stored], [raw], b"", keys, flags=flags, groups=counts)
    return seal(stored + packed, whole_directory, version=version)


NUMBERED = {
    "3-order": ordered([ORDER[:40], ORDER[40:]]),
    "3-duplicates": duplicates([(30, counts_block(EACH))]),
    "3-duplicates-counted": duplicates(
        [(20, counts_block(EACH[:20])), (10, counts_block(EACH[20:]))],
        keys=key_runs(key_run(DECIMAL, 0, 30, width=4)),
    ),
}


def bad_samples() -> dict[str, tuple[bytes, str]]:
    good = whole(GOOD["fixed"])
    raw = runs_block(FIXED)
    stored = frame(raw)
    plain = directory(GOOD["fixed"], [stored], [raw])
    far = directory(GOOD["fixed"], [stored], [raw], state=struct.pack("<QQ", 7, 20))
    twice = [(b"a", [(RUNS, FIXED)]), (b"a", [(RUNS, FIXED)])]
    wrong = bytearray(raw)
    wrong[5] += 1  # the first run's count; its checksum is made to fit

    def flipped(at: int) -> bytes:
        return good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :]

    def with_block(content: bytes) -> bytes:
        packed = frame(content)
        return seal(packed, directory(GOOD["fixed"], [packed], [content]))

    def with_leaves(
        content: bytes, version: int = 2, flags: int = 0, keys: bytes | None = None
    ) -> bytes:
        packed, sections = frame(content), [(None, [(LEAVES, FIXED)])]
        history = None if version == 1 else b""
        told = directory(sections, [packed], [content], history, keys, flags)
        return seal(packed, told, version=version if keys is None else 3)

    return {
        "zero-bytes": (b"", "is not a provenance file"),
        "text": (b"record,offset,length\n" * 9, "is not a provenance file"),
        "cut-preamble": (good[:40], "is cut"),
        "cut-block": (good[:100], "is cut"),
        "cut-end": (good[:-1], "is cut"),
        "longer": (good + b"\0", "bytes after its end"),
        "flipped-preamble": (flipped(20), "preamble fails its checksum"),
        "flipped-block": (flipped(70), "block 0 of the main database fails its checksum"),
        "flipped-directory": (flipped(len(good) - 9), "directory fails its checksum"),
        "future-version": (seal(stored, plain, version=4), "format version 4"),
        "old-directory": (seal(stored, plain, version=2), "directory ends too early"),
        "future-feature": (seal(stored, plain, features=4), "features"),
        "directory-cut": (seal(stored, plain[:-3]), "directory ends too early"),
        "directory-longer": (seal(stored, plain + b"\0"), "bytes left over"),
        "directory-bomb": (seal(stored, plain + bytes(2**26)), "directory lies outside"),
        "no-such-page-size": (
            whole(GOOD["fixed"], head=struct.pack("<III", 1, 5000, 0)),
            "no database that is read",
        ),
        "beyond-last-page": (seal(stored, far), "beyond the database's last page"),
        "database-twice": (whole(twice), "describes database 'a' twice"),
        "databases-too-many": (whole([(b"a", []), (b"b", [])]), "more than there can be"),
        "name-too-long": (whole([(b"n" * 512, [])]), "name that no database has"),
        "blocks-too-many": (
            seal(stored, directory([(None, [(RUNS, FIXED[:1])] * 9)], [stored] * 9, [raw] * 9)),
            "more blocks than its file has room for",
        ),
        "false-count": (whole(GOOD["fixed"], main=record(61, 3)), "has 62 records, its blocks 62"),
        "false-run": (with_block(bytes(wrong)), "another number of records"),
        "block-cut": (with_block(raw[:-1]), "runs are cut"),
        "block-longer": (with_block(raw + b"\0"), "bytes left over"),
        "unknown-form": (
            seal(stored, directory([(None, [(9, FIXED)])], [stored], [raw])),
            "unknown form 9",
        ),
        "history-longer": (
            replayed(made(every=3, length=5000) + b"\0"),
            "history of unknown length",
        ),
        "history-of-no-rule": (
            replayed(made(every=3, length=5000, split=3)),
            "history of unknown kind",
        ),
        "history-apart": (
            replayed(made(every=3, length=5000, apart=1)),
            "history of unknown kind",
        ),
        "history-without-commits": (
            replayed(made(every=0, length=5000)),
            "cannot be replayed",
        ),
        "history-without-keys": (
            replayed(made(every=3, length=5000, key=0)),
            "cannot be replayed",
        ),
        "history-of-long-keys": (
            replayed(made(every=3, length=5000, key=65_540)),
            "cannot be replayed",
        ),
        "history-of-other-transactions": (
            replayed(made(every=3, length=5000), state=struct.pack("<QQ", 7, 1000)),
            "other transactions than the database's",
        ),
        "history-of-other-commits": (replayed(made(every=2, length=5000)), "other records"),
        "history-of-other-records": (replayed(made(every=1, length=5000)), "other records"),
        "history-of-other-lengths": (replayed(made(every=3, length=4999)), "other records"),
        "leaves-in-format-1": (
            with_leaves(leaves_block([(5, 62)]), version=1),
            "names leaves, which format version 1 does not have",
        ),
        "leaves-cut": (with_leaves(leaves_block([(5, 62)])[:-1]), "leaves are cut"),
        "leaves-longer": (with_leaves(leaves_block([(5, 62)]) + b"\0"), "bytes left over"),
        "leaves-too-many": (with_leaves(varint(4097) + bytes(9000)), "leaves are cut"),
        "leaf-outside": (with_leaves(leaves_block([(1001, 62)])), "outside the file"),
        "leaf-empty": (with_leaves(leaves_block([(5, 62), (6, 0)])), "outside the file"),
        "leaves-of-others": (with_leaves(leaves_block([(5, 61)])), "another number of records"),
        "leaves-of-more": (with_leaves(leaves_block([(5, 63)])), "another number of records"),
        "history-by-numbers-in-format-2": (
            replayed(made(order=1, key=0, every=3, length=5000)),
            "history of unknown kind",
        ),
        "history-by-numbers-of-others": (
            counted(key_run(DECIMAL, 0, 11, width=2), history=BY_NUMBER),
            "history by numbers, and keys that are none",
        ),
        "history-by-other-numbers": (
            counted(key_run(PLAIN, 0, 11, stem=b"k" * 510), history=BY_NUMBER),
            "run of keys that cannot be",
        ),
        "keys-cut": (with_keys(key_runs(key_run(PLAIN, 0, 62))[:-1]), "ends too early"),
        "keys-too-many": (
            with_keys(key_runs(*[key_run(LITERAL, 0, 1, stem=b"k")] * 65)),
            "more runs of keys",
        ),
        "keys-of-others": (
            with_keys(key_runs(key_run(PLAIN, 0, 61))),
            "another number of keys than of records",
        ),
        **{
            f"keys-{name}": (with_keys(key_runs(run)), "run of keys that cannot be")
            for name, run in {
                "of-unknown-form": key_run(5, 0, 62, width=4),
                "none": key_run(PLAIN, 0, 0),
                "wrap": key_run(BIG, 2**64 - 61, 62, width=8),
                "from-two-on": key_run(PLAIN, 2, 62),
                "wide": key_run(DECIMAL, 0, 62, width=19),
                "narrow": key_run(DECIMAL, 0, 62, width=1),
                "of-no-bytes": key_run(LITTLE, 0, 62),
                "of-nine-bytes": key_run(LITTLE, 0, 62, width=9),
                "too-long": key_run(DECIMAL, 0, 62, width=9, stem=b"k" * 500, tail=b"kkk"),
                "twice": key_run(LITERAL, 0, 62, stem=b"k"),
                "empty": key_run(LITERAL, 0, 1),
                "of-two-parts": key_run(LITERAL, 0, 1, stem=b"k", tail=b"k"),
            }.items()
        },
        "duplicates-in-format-2": (duplicates([], version=2), "has duplicates, which"),
        "counts-where-there-are-none": (
            duplicates([(30, counts_block(EACH))], flags=0),
            "where each has one",
        ),
        "counts-of-no-keys": (
            duplicates([(0, counts_block(EACH))]),
            "block of numbers that is empty",
        ),
        "counts-of-many-keys": (
            duplicates([(8193, counts_block([1] * 8193))]),
            "above the format's limits",
        ),
        "counts-of-other-keys": (
            duplicates(
                [(30, counts_block(EACH))], keys=key_runs(key_run(DECIMAL, 0, 31, width=4))
            ),
            "another number of keys than of records",
        ),
        "counts-cut": (duplicates([(30, counts_block(EACH)[:-1])]), "does not hold its numbers"),
        "counts-short": (duplicates([(30, counts_block(EACH)[:5])]), "is cut"),
        "counts-of-none": (
            duplicates([(30, counts_block([0, *EACH[:28], 4]))]),
            "a key has no record",
        ),
        "counts-of-more": (
            duplicates([(30, counts_block([2, *EACH[1:]]))]),
            "another number of records",
        ),
        "counts-of-more-keys": (
            duplicates([(63, counts_block([1] * 63))]),
            "more keys than records",
        ),
        "leaves-of-duplicates": (
            with_leaves(leaves_block([(5, 62)]), flags=4, keys=key_runs()),
            "neither leaves nor a history tell",
        ),
        "order-of-others": (ordered([ORDER[:-1]]), "order of another number of records"),
        "order-twice": (ordered([[*ORDER[:-1], ORDER[0]]]), "each record once"),
        "order-beyond": (ordered([[*ORDER[:-1], 62]]), "each record once"),
        "history-and-blocks": (
            whole(
                [(None, [(RUNS, ONE)])],
                version=2,
                history=sealed(made(every=3, length=5000), ONE),
            ),
            "history and blocks",
        ),
    }


def replayed(history: bytes, **given: bytes) -> bytes:
    return whole([(None, [(REPLAY, ONE)])], version=2, history=sealed(history, ONE), **given)


def with_keys(keys: bytes) -> bytes:
    return whole(GOOD["fixed"], version=3, history=b"", keys=keys)


def counted(run: bytes, *, history: bytes) -> bytes:
    sections: list[Section] = [(None, [(REPLAY, NUMBERS)])]
    return whole(sections, version=3, history=history, keys=key_runs(run))


def tiny() -> tuple[bytes, bytes, bytes]:
    """A database of one leaf, its provenance file read off the leaf by hand, and one that names
    the leaf.
    """
    values = [b"a" * 3000, b"b" * 10, b"c" * 9000, b"", b"d" * 2038, b"e" * 2040]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tiny.mdb"
        with lmdb.open(str(file), subdir=False, map_size=1 << 20, lock=False) as env:
            with env.begin(write=True) as transaction:
                for i, value in enumerate(values):
                    transaction.put(b"%04d" % i, value)
        data = file.read_bytes()
    meta = max((data[:PAGE], data[PAGE : 2 * PAGE]), key=lambda m: m[HEADER + 128 : HEADER + 136])
    free, main = meta[HEADER + 24 : HEADER + 72], meta[HEADER + 72 : HEADER + 120]
    last, txnid = struct.unpack_from("<QQ", meta, HEADER + 120)
    (root,) = struct.unpack_from("<Q", main, 40)
    leaf = data[root * PAGE : (root + 1) * PAGE]
    extents = []
    for i in range(len(values)):
        (node,) = struct.unpack_from("<H", leaf, HEADER + 2 * i)
        size, flags, key = struct.unpack_from("<IHH", leaf, node)
        at = root * PAGE + node + 8 + key
        if flags & 1:
            at = struct.unpack_from("<Q", leaf, node + 8 + key)[0] * PAGE + HEADER
        assert data[at : at + size] == values[i]
        extents.append((at, size))

    def digest(content: bytes) -> bytes:
        return hashlib.blake2b(content, digest_size=32).digest()

    tree = digest(struct.pack("<HH", 0, 0) + main + digest(leaf))
    facts = {
        "head": struct.pack("<III", 1, PAGE, struct.unpack_from("<H", free, 4)[0]),
        "state": struct.pack("<QQ", txnid, last),
        "free": free,
        "main": main,
        "digest": digest(tree),
    }
    sidecar = whole([(None, [(EXPLICIT, extents)])], **facts)
    raw = leaves_block([(root, len(extents))])
    packed = frame(raw)
    by_leaf = directory([(None, [(LEAVES, extents)])], [packed], [raw], b"", **facts)
    return data, sidecar, seal(packed, by_leaf, version=2)


def main() -> None:
    SAMPLES.mkdir(exist_ok=True)
    for old in SAMPLES.iterdir():
        old.unlink()
    first = {name: (whole(sections), sections) for name, sections in GOOD.items()}
    second = {
        name: (whole(sections, version=2, history=history), sections)
        for name, (history, sections) in SECOND.items()
    }
    third = {
        name: (whole(sections, version=3, history=history, keys=keys), sections)
        for name, (history, keys, sections) in THIRD.items()
    }
    fourth: dict[str, tuple[bytes, list[Section]]] = {
        name: (content, [(None, [(EXPLICIT, FIXED)])]) for name, content in NUMBERED.items()
    }
    good = {}
    for name, (content, sections) in (first | second | third | fourth).items():
        (SAMPLES / f"{name}.prov").write_bytes(content)
        good[f"{name}.prov"] = [
            {
                "name": None if title is None else title.hex(),
                "extents": [extent for _, extents in blocks for extent in extents],
            }
            for title, blocks in sections
        ]
    bad = {}
    for name, (content, reason) in bad_samples().items():
        (SAMPLES / f"bad-{name}.prov").write_bytes(content)
        bad[f"bad-{name}.prov"] = reason
    data, sidecar, by_leaf = tiny()
    (SAMPLES / "tiny.mdb").write_bytes(data)
    (SAMPLES / "tiny.mdb.prov").write_bytes(sidecar)
    (SAMPLES / "2-tiny-leaves.prov").write_bytes(by_leaf)
    (SAMPLES / "good.json").write_text(json.dumps(good) + "\n", encoding="utf-8")
    (SAMPLES / "bad.json").write_text(json.dumps(bad, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
