"""Shuffle: how far records are moved apart in an epoch, as a value. Pure, and without tables.

Records that lie one after the other are read together for less. A shuffle says what is kept of
that: chunks of records are permuted, and each run of ``window`` chunks is shuffled inside.

    kind           chunk         window       inner    what comes
    global         1             -            -        each record anywhere
    groups(B)      B             1            yes      groups of B in chance order, each shuffled
    windows(c, w)  c of a file   what memory  yes      w parts of the file, read in order and
                                 has room for          shuffled together, then the next w
    runs(c)        c             -            no       parts in chance order, each in its own
    mixed(h, c, w) c             as windows   yes      the first h records anywhere, evenly among
                                                       the rest, which comes in windows
    given(order)   -             -            -        a list of one's own

    place --permutation inside its window--> place --permutation of the chunks--> record

Both permutations are Feistel networks (``order``), so that any part of an epoch costs as much as
it is long, in either direction. A shorter last chunk lies anywhere among the others; one inverse
call says where.

Source: Lee et al., Asynchronous I/O Strategy for Large-Scale Deep Learning Applications, section
III-A2 (groups, shuffled inside); Zhu et al., DeepIO, sections III-B and III-C (opportunistic
order, runs).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lmdbio.system.frozen import dataclass

__all__ = ["GLOBAL", "MIXED_COUNT_MAX", "Shuffle"]

#: Of records some of which are held: products of two numbers have to fit 64 bits.
MIXED_COUNT_MAX = 2**31

_NUMBERS = re.compile(r"[0-9]{1,18}(x[0-9]{1,18})*\Z")

I64 = npt.NDArray[np.int64]

#: Where no size is given: a group takes a few large requests, and a window has so many parts of
#: the file, each of them worth a request of its own.
GROUP_BYTES, CHUNK_BYTES, WINDOW_CHUNKS = 64 << 20, 8 << 20, 32
#: Windows of an epoch that warms caches, at least: the first one is waited for; their chunks, at
#: least; and bytes of a chunk, with more chunks than that.
WARMING_WINDOWS, WARMING_CHUNKS, GRAIN_BYTES = 16, 8, 4 << 20


@dataclass(frozen=True, slots=True)
class Shuffle:
    """An order that epochs may have. Make one by ``groups``, ``windows``, ``runs`` or ``given``.

    Attributes:
        chunk: number of records that stay together, at least 1; the last chunk may have fewer.
        window: number of chunks whose records are shuffled among each other, at least 1.
        inner: whether records are shuffled inside windows; else chunks keep their order.
        order: record numbers of a ``given`` order, as the bytes of an int64 array; else None.
        held: number of records of ``mixed``, from the first on, that may come anywhere; else 0.

    Raises:
        ValueError: ``chunk`` or ``window`` is less than 1, ``held`` is negative, or ``order``
            lacks a record.
    """

    chunk: int = 1
    window: int = 1
    inner: bool = True
    order: bytes | None = None
    held: int = 0

    def __post_init__(self) -> None:
        for name, value in (("chunk", self.chunk), ("window", self.window)):
            if not 1 <= value < 2**63:
                raise ValueError(f"{name} must be at least 1 and below 2**63, not {value}")
        if self.held < 0:
            raise ValueError(f"held must not be negative ({self.held})")
        if self.order is None:
            return
        numbers = np.frombuffer(self.order, np.int64)
        if not np.array_equal(np.sort(numbers), np.arange(len(numbers))):
            raise ValueError(f"an order of {len(numbers)} records has each from 0 on once")

    @classmethod
    def named(cls, text: str, record_bytes: float | None = None, batch: int = 1) -> Shuffle:
        """The shuffle of a name, with its sizes: ``groups:SIZE``, ``windows:CHUNKxCOUNT``.

        Args:
            text: "global", "groups", "windows" or "runs", the last three with sizes in records;
                also in the singular.
            record_bytes: bytes of the file for each record, from which groups and windows without
                sizes get some. None: they have to be given.
            batch: records of an iteration: a group without a size is so many, or a multiple, so
                that each root of any number of them can read whole groups.

        Raises:
            ValueError: there is no such shuffle.
        """
        kind, colon, numbers = text.casefold().partition(":")
        given = tuple(int(part) for part in numbers.split("x")) if _NUMBERS.match(numbers) else ()
        kind = kind.removesuffix("s")
        if kind == "global" and not colon:
            return GLOBAL
        if kind == "group" and not colon and record_bytes:
            return cls.groups(max(1, round(GROUP_BYTES / record_bytes / batch)) * batch)
        if kind == "window" and not colon and record_bytes:
            return cls.windows(max(1, int(CHUNK_BYTES / record_bytes)), WINDOW_CHUNKS)
        makers: dict[tuple[str, int], Callable[..., Shuffle]]
        makers = {("group", 1): cls.groups, ("window", 2): cls.windows, ("run", 1): cls.runs}
        maker = makers.get((kind, len(given)))
        if maker is None or not all(given):
            raise ValueError(
                f"{text!r} is not global, groups:SIZE, windows:CHUNKxCOUNT or runs:LENGTH "
                "(numbers from 1 on)"
            )
        return maker(*given)

    @classmethod
    def groups(cls, size: int) -> Shuffle:
        """Groups of ``size`` records in random order, each shuffled inside."""
        return cls(size)

    @classmethod
    def windows(cls, chunk: int, window: int) -> Shuffle:
        """``window`` chunks of ``chunk`` records, from random places, shuffled together."""
        return cls(chunk, window)

    @classmethod
    def runs(cls, length: int) -> Shuffle:
        """Runs of ``length`` records in random order, each in its own."""
        return cls(length, inner=False)

    @classmethod
    def mixed(cls, held: int, chunk: int, window: int) -> Shuffle:
        """The first ``held`` records anywhere, the others in windows among them.

        For a cache that holds the first ones, and through which the others stream.
        """
        return cls(chunk, window, held=held)

    @property
    def streamed(self) -> Shuffle:
        """The shuffle of the records that are not ``held``."""
        return replace(self, held=0)

    @classmethod
    def warming(cls, count: int, record_bytes: float) -> Shuffle:
        """Windows of a small part of the file, for an epoch in which all of it is read once.

        Args:
            count: records.
            record_bytes: bytes of the file for each record.
        """
        window_bytes = min(WINDOW_CHUNKS * CHUNK_BYTES, count * record_bytes / WARMING_WINDOWS)
        # Not much less than what is read at once, or a window would bring many others' parts.
        least = min(GRAIN_BYTES, window_bytes / WARMING_CHUNKS)
        chunk = max(1, int(max(window_bytes / WINDOW_CHUNKS, least) / record_bytes))
        return cls.windows(chunk, max(1, round(window_bytes / (chunk * record_bytes))))

    @classmethod
    def given(cls, order: npt.ArrayLike) -> Shuffle:
        """Your own list, the same in each epoch.

        Args:
            order: record numbers, integers of shape (count,), each of them once.

        Raises:
            ValueError: a record is missing.
        """
        numbers = np.asarray(order)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise ValueError(f"an order is a list of integers, not {numbers.dtype}{numbers.shape}")
        return cls(order=np.ascontiguousarray(numbers, np.int64).tobytes())

    @property
    def is_grouped(self) -> bool:
        """Whether these are groups of records that meet no others."""
        return self.inner and self.chunk > 1 and self.window == 1 and not self.held

    @property
    def has_windows(self) -> bool:
        """Whether records are shuffled in windows of chunks that lie together in the file."""
        return self.inner and self.order is None and self.chunk > 1 and not self.held

    def window_records(self, count: int) -> int:
        """Records that are shuffled among each other, of ``count``."""
        if self.order is not None or self.chunk == 1:
            return count
        window = self.chunk * (self.window if self.inner else 1)
        if self.held:
            window = -(-window * count // max(1, count - self.held))
        return min(count, window)

    # --- held records among those that stream, each coming evenly: of any run of places both have
    # their proportion, to within one
    #
    #     count 7, held 3      place        0  1  2  3  4  5  6
    #                          held            0     1     2
    #                          streamed     0  1     2     3

    def apart(self, places: I64, count: int) -> tuple[npt.NDArray[np.bool_], I64]:
        """Return whether each place is a held record's, and its number among its own kind."""
        before = places * self.held // count
        is_held = (places + 1) * self.held // count > before
        return is_held, np.where(is_held, before, places - before)

    def held_places(self, numbers: I64, count: int) -> I64:
        """Return the place of each number among the held records."""
        return -((numbers + 1) * -count // self.held) - 1

    def streamed_places(self, numbers: I64, count: int) -> I64:
        """Return the place of each number among the records that are not held."""
        return numbers * count // (count - self.held)

    def given_order(self, count: int) -> I64 | None:
        """Return the records of a ``given`` order; None: it is another shuffle.

        Raises:
            ValueError: it is for another number of records.
        """
        if self.order is None:
            return None
        order = np.frombuffer(self.order, np.int64)
        if len(order) != count:
            raise ValueError(f"an order of {len(order)} records cannot be that of {count}")
        return order


#: Each record may come anywhere.
GLOBAL = Shuffle()
