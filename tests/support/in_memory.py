"""A data file in memory, whose reads fail or dawdle as a test says: a file that lies elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count

from lmdbio import _core


class InMemory:
    """The file, as ``_core.RemoteFile`` wants it.

    Args:
        content: bytes of the file.
    """

    url = name = "<memory>"
    validator, keeps_state = "", False

    def __init__(self, content: bytes) -> None:
        self._content, self.size = content, len(content)
        self.script()

    def script(self, *, fail_every: int = 0, sys_errno: int = 0, delay_us: int = 0) -> None:
        """Let every ``fail_every``-th read from now on fail, but the first, and each one wait."""
        self._fail_every, self._sys_errno, self._delay = fail_every, sys_errno, delay_us / 1e6
        self._numbers = count()

    def read_into(self, offset: int, into: memoryview, is_given_up: Callable[[], bool]) -> int:
        number = next(self._numbers)
        if self._delay:
            time.sleep(self._delay)
        if self._fail_every and number and number % self._fail_every == 0:
            raise OSError(self._sys_errno, f"cannot read: {os.strerror(self._sys_errno)}")
        into[:] = self._content[offset : offset + len(into)]
        return 1

    def close(self) -> None:
        pass


def memory_engine(
    content: bytes, depth: int = 4, *, delay_us: int = 0, kind: str = "remote"
) -> tuple[_core.Engine, InMemory]:
    """Return an engine over bytes, and its file, each of whose reads takes ``delay_us`` more."""
    file = InMemory(content)
    file.script(delay_us=delay_us)
    engine = _core.Engine.remote(file, depth)
    engine.kind = kind  # as which it passes
    return engine, file
