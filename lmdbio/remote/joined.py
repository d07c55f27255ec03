"""JoinedFile: several files elsewhere, read as one.

    offset -> the part that has it -> a range of that file;   bytes between two parts are zeros

Invariant: each part fails to be read in any but the state in which it was opened.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence

from lmdbio.remote.fetched import FetchedFile
from lmdbio.remote.http import HttpFile
from lmdbio.remote.retry import never

__all__ = ["JoinedFile"]


class JoinedFile:
    """Several files elsewhere as one, open.

    Attributes:
        url, name, size, validator, keeps_state: attributes of ``_core.RemoteFile``; the first
            one's URL.

    Args:
        files: files in order.
        bases: offset of each file's first byte in the whole, bytes.
        sizes: bytes of each that count.

    Raises:
        ValueError: the server of one tells no state that reads are held against.
    """

    def __init__(
        self,
        files: Sequence[HttpFile | FetchedFile],
        bases: Sequence[int],
        sizes: Sequence[int],
    ) -> None:
        for file in files:
            if not file.keeps_state:
                raise ValueError(
                    f"{file.name}: its server tells no ETag that holds it in one state, so it is "
                    "not read with others as one: copy them (lmdbio pull)"
                )
            if isinstance(file, HttpFile):
                file.forget_head()
        self._files, self._bases, self._sizes = list(files), list(bases), list(sizes)
        more = len(files) - 1
        self.url = files[0].url
        self.name = f"{files[0].name} and {more} more" if more else files[0].name
        self.size = self._bases[-1] + self._sizes[-1]
        states = [(file.validator, file.size) for file in files]
        self.validator = hashlib.blake2b(repr(states).encode(), digest_size=16).hexdigest()
        self.keeps_state = True

    def read_into(
        self, offset: int, into: memoryview, is_given_up: Callable[[], bool] = never
    ) -> int:
        """Fill memory with bytes of the files; see ``_core.RemoteFile``."""
        requests = at = 0
        while at < len(into):
            number = bisect_right(self._bases, offset + at) - 1
            inside = offset + at - self._bases[number]
            end = self._bases[number + 1] if number + 1 < len(self._bases) else self.size
            length = min(len(into) - at, end - offset - at)
            there = max(0, min(length, self._sizes[number] - inside))
            if there:
                part = into[at : at + there]
                requests += self._files[number].read_into(inside, part, is_given_up)
            into[at + there : at + length] = bytes(length - there)
            at += length
        return requests

    def close(self) -> None:
        """End the connections that are kept. May be called twice."""
        for file in self._files:
            file.close()
