"""The content of a database after each transaction: a function of nothing but the transaction.

A writer makes it so (writer.py), and a reader of a snapshot knows every key in it and every
byte of its values, without asking anybody (reading.py). Transaction 1 puts the first records; each
later one touches those of some periods, and may bring new ones and make or drop named databases. A
touch updates a record or deletes it. So

    the last touch of record i up to transaction T = T - (T + phase of i) mod (period of i)

and what that touch left depends on i and on its transaction alone. Values say whose they are,
and no two alike lie anywhere: what is torn, foreign, older or newer than it should be differs.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

#: Records at first, and at most; a new one every so many transactions.
RECORDS, RECORDS_MAX, BIRTH_EVERY = 500, 1500, 2
#: How often records are touched: some all the time, most hardly ever.
PERIODS = np.array((3, 7, 19, 53, 131, 401, 997, 2503), np.int64)
#: Sorts before all records; its value changes with every transaction.
STAMP = b"!stamp"
#: Named databases come and go: k of them, and how many transactions each comes for.
EXTRAS, EXTRA_RECORDS = 3, 40
SPANS = (40, 53, 67)
#: A prime, so that pages of one value are not alike.
PATTERN_BYTES = 31
#: Lengths, and how often out of sixteen: inside leaves, about where that ends, one page, several.
LENGTHS = (
    *(range(60, 240, 20)),  # nine of them
    1980,
    2040,
    3100,
    3100,
    9000,
    30_000,
    90_000,
)
DELETED_OF = 9  # one touch in so many deletes


def mix(i: I64 | int, g: I64 | int) -> npt.NDArray[np.uint64]:
    """Sixty-four bits that depend on both numbers (splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.asarray(i, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = x + np.asarray(g, np.uint64) * np.uint64(0xD1B54A32D192ED03)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


INDEX = np.arange(RECORDS_MAX, dtype=np.int64)
PERIOD = PERIODS[(mix(INDEX, 0) % np.uint64(len(PERIODS))).astype(np.int64)]
PHASE = (mix(INDEX, 1) >> np.uint64(33)).astype(np.int64) % PERIOD
BIRTH = np.maximum(1, (INDEX - RECORDS + 1) * BIRTH_EVERY)


@lru_cache(maxsize=4096)
def value(database: bytes, i: int, g: int) -> bytes:
    """Return what transaction ``g`` put under record ``i`` of a database."""
    length = LENGTHS[int(mix(i + 77, g)) % len(LENGTHS)]
    head = b"%s/%d/%d/%d " % (database, i, g, length)
    pattern = hashlib.blake2b(head, digest_size=PATTERN_BYTES).digest()
    return (head + pattern * (length // PATTERN_BYTES + 1))[:length]


def record_key(i: int) -> bytes:
    return b"%08d" % i


def stamp(txnid: int) -> bytes:
    return b"transaction %012d" % txnid


def last_touch(txnid: int) -> I64:
    """For each record the transaction that touched it last, 0 before it was born."""
    found = np.maximum(BIRTH, txnid - (txnid + PHASE) % PERIOD)
    return np.where(txnid >= BIRTH, found, 0)


def is_there(touched: I64) -> npt.NDArray[np.bool_]:
    """Whether the last touch left a record. A birth never deletes."""
    deleted = mix(INDEX, touched + 5) % np.uint64(DELETED_OF) == 0
    return (touched > 0) & ~(deleted & (touched > BIRTH))


@lru_cache(maxsize=64)
def state(txnid: int) -> tuple[I64, I64]:
    """The records that are there after a transaction, in key order, and their last touches."""
    touched = last_touch(txnid)
    there = np.flatnonzero(is_there(touched))
    return there, touched[there]


def expected(txnid: int, i: int) -> bytes | None:
    """The value of record ``i`` after a transaction; None: it is not there."""
    there, touched = state(txnid)
    at = int(np.searchsorted(there, i))
    if at == len(there) or there[at] != i:
        return None
    return value(b"main", i, int(touched[at]))


# --- named databases ---------------------------------------------------------------------


def extra_name(k: int) -> bytes:
    return b"extra-%d" % k


def extra_since(k: int, txnid: int) -> int:
    """The transaction that made named database ``k`` as it is after ``txnid``; 0: it is not."""
    span, phase = SPANS[k], 7 * k
    if txnid < 1:
        return 0
    epoch = (txnid + phase) // span
    return epoch * span - phase if epoch % 2 else 0


def extra_value(k: int, j: int, txnid: int) -> bytes:
    """The value of its record ``j``, of which each transaction updates one."""
    touched = max(extra_since(k, txnid), txnid - (txnid - j) % EXTRA_RECORDS)
    return value(extra_name(k), j, touched)


def extras_there(txnid: int) -> list[int]:
    return [k for k in range(EXTRAS) if extra_since(k, txnid)]


def entries(txnid: int) -> int:
    """Records of the main database: the stamp, the records, and one for each named database."""
    return 1 + len(state(txnid)[0]) + len(extras_there(txnid))
