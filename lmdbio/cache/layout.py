"""The layout of a cache file: a header, a sum for each page of the data file, and the pages.

    | header, 32 KiB | sums: CRC32C of each page, 0: not there | pages, as in the data file |

Page n of the data file lies at ``data_offset`` + 4096 n, its sum at ``HEADER_BYTES`` + 4 n. The
file is as long as all of that, and sparse: pages that it does not keep take no room. The header is
a line with a magic and a CRC32C of the rest of it, and JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.source import SourceState

__all__ = ["HEADER_BYTES", "MAGIC", "PAGE_BYTES", "SUFFIX", "Header", "read_sums"]

SUFFIX = ".lmdbio-cache"
MAGIC = b"lmdbio cache 1 "
PAGE_BYTES = _core.CHECKED_PAGE_BYTES
#: The longest path of Linux fits, each byte of it escaped.
HEADER_BYTES = 32 << 10
SUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a cache file.

    Attributes:
        source: the data file, in one state.
        first, end: pages from number ``first`` up to ``end``, which it keeps where they have sums.
    """

    source: SourceState
    first: int = 0
    end: int = 0

    @property
    def pages(self) -> int:
        """Pages of the data file, the last of which may be a part of one."""
        return -(-self.source.size // PAGE_BYTES)

    @property
    def data_offset(self) -> int:
        """Where page 0 lies in the cache file, bytes."""
        return -(-self.sum_offset(self.pages) // PAGE_BYTES) * PAGE_BYTES

    @property
    def size(self) -> int:
        """Bytes of the cache file, of which most may be holes."""
        return self.data_offset + self.pages * PAGE_BYTES

    @staticmethod
    def sum_offset(page: int) -> int:
        """Return where the sum of a page lies."""
        return HEADER_BYTES + SUM_BYTES * page

    def pack(self) -> bytes:
        """Return the header as it stands in the file."""
        text = json.dumps(asdict(self)).encode("ascii").ljust(HEADER_BYTES - len(MAGIC) - 9)
        return MAGIC + b"%08x\n" % _core.crc32c(text) + text

    @classmethod
    def parse(cls, raw: bytes) -> Header:
        """Return the header of a cache file.

        Args:
            raw: its first bytes, as many as there are, ``HEADER_BYTES`` at most.

        Raises:
            ValueError: it is none, or damaged, and why.
        """
        if not raw.startswith(MAGIC):
            raise ValueError("it is no cache file")
        line, text = raw[: len(MAGIC) + 9], raw[len(MAGIC) + 9 : HEADER_BYTES]
        if len(raw) < HEADER_BYTES or line != MAGIC + b"%08x\n" % _core.crc32c(text):
            raise ValueError("its header is damaged")
        try:
            fields = json.loads(text)
            source = SourceState(**fields.pop("source"))
            header = cls(source, **fields)
            numbers = [header.first, header.end, source.size, source.ino, source.meta]
            if not all(isinstance(number, int) for number in numbers):
                raise TypeError("a field is no number")
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"its header makes no sense: {error}") from error
        if not 0 <= header.first <= header.end <= header.pages:
            raise ValueError(f"it keeps pages {header.first} to {header.end} of {header.pages}")
        return header

    @classmethod
    def read(cls, fd: int) -> Header:
        """Return the header of a cache file that is as long as it says.

        Raises:
            ValueError: it is none, or damaged, and why.
            OSError: it cannot be read.
        """
        header, size = cls.parse(os.pread(fd, HEADER_BYTES, 0)), os.fstat(fd).st_size
        if size != header.size:
            raise ValueError(f"it has {size} bytes instead of {header.size}")
        return header


def read_sums(fd: int, first: int, end: int) -> npt.NDArray[np.uint32]:
    """Return the sums of pages in a cache file, 0 where one is not there.

    Args:
        fd: descriptor of the file.
        first, end: numbers of pages.

    Raises:
        OSError: they cannot be read.
    """
    sums = np.zeros(end - first, np.uint32)
    left, offset = sums.view(np.uint8).data, Header.sum_offset(first)
    while left and (count := os.preadv(fd, [left], offset)):
        left, offset = left[count:], offset + count
    return sums
