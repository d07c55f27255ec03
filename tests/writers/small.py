"""A small environment of named databases, which a writer commits to as fast as it can.

Like ``world``: what each database holds after a transaction is a function of the transaction. A
transaction touches few records of each, so that several commits come while one database is opened;
and there are so many databases that the main one, which names them, has branch pages.

    counted   %08d           the first is touched each time, some often, others seldom
    samples   num-samples, image-%09d, label-%09d: samples by a layout
    pairs     keys with one, three or hundreds of values
    noise     grows and shrinks, so that pages move
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

COUNTED, SAMPLES, PAIRS, NOISE = b"counted", b"samples", b"pairs", b"noise"
#: Databases that the readers open, each of which is always there.
NAMES = (COUNTED, SAMPLES, PAIRS)
#: Names beside them, of databases that stay empty.
FILLERS = [b"filler-%03d" % number for number in range(120)]
ABSENT = b"filler-none"
RECORDS, OFTEN = 400, 16
PICTURES, KEYS, NOISES = 60, 30, 40
LENGTHS = (20, 60, 100, 300, 900, 2500, 9000)


@lru_cache(maxsize=8192)
def value(name: bytes, i: int, g: int) -> bytes:
    """Return what transaction ``g`` put under record ``i`` of a database."""
    head = b"%s/%d/%d " % (name, i, g)
    pattern = hashlib.blake2b(head, digest_size=31).digest()
    length = LENGTHS[pattern[0] % len(LENGTHS)]
    return (head + pattern * (length // 31 + 1))[: max(length, len(head))]


def last(txnid: int, i: int, period: int) -> int:
    """Return the transaction that touched the i-th of ``period`` things last; 1 made them all."""
    return max(1, txnid - (txnid - i) % period)


# --- what each database holds, in the order of its keys -----------------------------------


def counted_key(i: int) -> bytes:
    return b"%08d" % i


def counted(txnid: int, i: int) -> bytes:
    if i == 0:
        return value(COUNTED, 0, txnid)
    touched = last(txnid, i, OFTEN) if i < OFTEN else last(txnid, i - OFTEN, RECORDS - OFTEN)
    return value(COUNTED, i, touched)


def transaction_of(first: bytes) -> int:
    """Return the transaction that the first of the counted records tells; 0: none."""
    name, _, rest = first.partition(b"/0/")
    number = rest.split(b" ", 1)[0]
    return int(number) if name == COUNTED and number.isdigit() else 0


def picture_key(i: int) -> bytes:
    return b"image-%09d" % (i + 1)


def label_key(i: int) -> bytes:
    return b"label-%09d" % (i + 1)


def picture(txnid: int, i: int) -> bytes:
    return value(b"image", i, last(txnid, i, PICTURES))


def label(txnid: int, i: int) -> bytes:
    return value(b"label", i, last(txnid, i, PICTURES))


def pair_key(i: int) -> bytes:
    return b"key-%04d" % i


def pair_values(txnid: int, i: int) -> list[bytes]:
    """Return the values of a key: few lie on its leaf, many in a tree of their own."""
    g = last(txnid, i, KEYS)
    return [b"%06d of %d, %d" % (n, i, g) for n in range((1, 3, 250)[g % 3])]


@lru_cache(maxsize=16)
def items(name: bytes, txnid: int) -> list[tuple[bytes, bytes]]:
    """Return all records of a database after a transaction."""
    if name == COUNTED:
        return [(counted_key(i), counted(txnid, i)) for i in range(RECORDS)]
    if name == PAIRS:
        pairs = ((pair_key(i), pair_values(txnid, i)) for i in range(KEYS))
        return [(key, one) for key, values in pairs for one in values]
    images = [(picture_key(i), picture(txnid, i)) for i in range(PICTURES)]
    labels = [(label_key(i), label(txnid, i)) for i in range(PICTURES)]
    return [*images, *labels, (b"num-samples", b"%d" % PICTURES)]


# --- the writer ---------------------------------------------------------------------------


def commit(env: Any, txnid: int) -> None:
    """Make transaction ``txnid``."""
    with env.begin(write=True) as txn:
        assert txn.id() == txnid
        names = (*NAMES, NOISE, *(FILLERS if txnid == 1 else ()))
        found = {n: env.open_db(n, txn=txn, dupsort=n == PAIRS, create=txnid == 1) for n in names}
        if txnid == 1:
            for name in NAMES:
                for key, data in items(name, 1):
                    txn.put(key, data, db=found[name])
            return
        for i in {0, txnid % OFTEN, OFTEN + txnid % (RECORDS - OFTEN)}:
            txn.put(counted_key(i), counted(txnid, i), db=found[COUNTED])
        i = txnid % PICTURES
        txn.put(picture_key(i), picture(txnid, i), db=found[SAMPLES])
        txn.put(label_key(i), label(txnid, i), db=found[SAMPLES])
        i = txnid % KEYS
        txn.delete(pair_key(i), db=found[PAIRS])
        for data in pair_values(txnid, i):
            txn.put(pair_key(i), data, db=found[PAIRS])
        noise = pair_key(txnid * 7919 % NOISES)
        txn.put(noise, value(NOISE, 0, txnid), db=found[NOISE])
        txn.delete(pair_key(txnid * 104729 % NOISES), db=found[NOISE])
