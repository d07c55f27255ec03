"""The calls that are timed: each a loop over one environment, as programs are written.

A bound is of the time of one call over py-lmdb's, and of the data sets whose records it names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

__all__ = ["CALLS", "LOCKED", "OPENINGS", "SMALL_BYTES", "Call", "Loop"]

#: Records of at most so many bytes are small.
SMALL_BYTES = 1024
THREADS = 4
OPENED = 200
#: Records of a short scan.
FEW = 50

Loop = Callable[[Any, Sequence[bytes]], int]


@dataclass(frozen=True, slots=True)
class Call:
    """One pattern.

    Attributes:
        words: what a program writes.
        loop: does it for keys of an environment (or, of openings, a call that opens one), and
            returns how often.
        most: bound of its time over py-lmdb's; None: reported.
        small: the bound is of small records alone.
    """

    words: str
    loop: Loop
    most: float | None = None
    small: bool = False


def begin_get(env: Any, keys: Sequence[bytes]) -> int:
    for key in keys:
        with env.begin() as txn:
            txn.get(key)
    return len(keys)


def begin_get_views(env: Any, keys: Sequence[bytes]) -> int:
    for key in keys:
        with env.begin(write=False, buffers=True) as txn:
            txn.get(key)
    return len(keys)


def get(env: Any, keys: Sequence[bytes]) -> int:
    with env.begin() as txn:
        for key in keys:
            txn.get(key)
    return len(keys)


def get_views(env: Any, keys: Sequence[bytes]) -> int:
    with env.begin(buffers=True) as txn:
        for key in keys:
            txn.get(key)
    return len(keys)


def cursor_get(env: Any, keys: Sequence[bytes]) -> int:
    with env.begin() as txn:
        cursor = txn.cursor()
        for key in keys:
            cursor.get(key)
    return len(keys)


def set_key_item(env: Any, keys: Sequence[bytes]) -> int:
    with env.begin() as txn:
        cursor = txn.cursor()
        for key in keys:
            cursor.set_key(key)
            cursor.item()
    return len(keys)


def getmulti(env: Any, keys: Sequence[bytes]) -> int:
    with env.begin() as txn:
        cursor = txn.cursor()
        for at in range(0, len(keys), 64):
            cursor.getmulti(keys[at : at + 64])
    return len(keys)


def scan(env: Any, keys: Sequence[bytes]) -> int:
    with env.begin() as txn:
        done = 0
        for _ in txn.cursor():
            done += 1
            if done == len(keys):
                break
    return done


def scan_few(env: Any, keys: Sequence[bytes]) -> int:
    with env.begin() as txn, txn.cursor() as cursor:
        for at in range(0, len(keys), FEW):
            cursor.set_range(keys[at])
            for _ in islice(cursor, FEW):
                pass
    return len(keys)


def scan_keys(env: Any, keys: Sequence[bytes]) -> int:
    with env.begin() as txn:
        done = 0
        for _ in txn.cursor().iternext(values=False):
            done += 1
            if done == len(keys):
                break
    return done


def step(env: Any, keys: Sequence[bytes]) -> int:
    with env.begin() as txn:
        cursor = txn.cursor()
        placed, done = cursor.first(), 0
        while placed and done < len(keys):
            cursor.item()
            placed = cursor.next()
            done += 1
    return done


def cursor_each(env: Any, keys: Sequence[bytes]) -> int:
    for key in keys[::4]:
        with env.begin() as txn, txn.cursor() as cursor:
            cursor.get(key)
    return len(keys[::4])


def threads(env: Any, keys: Sequence[bytes]) -> int:
    parts = [keys[at::THREADS] for at in range(THREADS)]
    running = [threading.Thread(target=begin_get, args=(env, part)) for part in parts]
    for one in running:
        one.start()
    for one in running:
        one.join()
    return len(keys)


def open_close(opened: Any, keys: Sequence[bytes]) -> int:
    del keys
    for _ in range(OPENED):
        opened().close()
    return OPENED


def open_get_close(opened: Any, keys: Sequence[bytes]) -> int:
    for key in keys[:OPENED]:
        with opened() as env, env.begin() as txn:
            txn.get(key)
    return len(keys[:OPENED])


CALLS = (
    Call("begin, get, abort for each record", begin_get, most=1.5),
    Call("the same with buffers=True", begin_get_views, most=1.5, small=True),
    Call("the same, 4 threads", threads, most=1.5),
    Call("get in one transaction", get, most=1.2),
    Call("get with buffers=True", get_views, most=1.5, small=True),
    Call("cursor.get", cursor_get, most=1.2),
    Call("cursor.set_key, item", set_key_item),
    Call("cursor.getmulti of 64", getmulti),
    Call("for key, value in cursor", scan, most=1.0),
    Call("set_range, for 50 records of cursor", scan_few),
    Call("for key in cursor.iternext(values=False)", scan_keys, most=1.2),
    Call("cursor.item, next", step),
    Call("begin, cursor, get, close, abort for each record", cursor_each, most=2.0),
)
#: With reader slots, which one package gets at a time.
LOCKED = (
    Call("lock=True: begin, get, abort for each record", begin_get, most=1.5),
    Call("lock=True: the same, 4 threads", threads, most=1.5),
    Call("lock=True: begin, cursor, get, close, abort", cursor_each, most=2.0),
)
#: These open the environment themselves.
OPENINGS = (
    Call("open, close", open_close, most=2.0),
    Call("open, begin, get, close", open_get_close),
)
