"""How the keys of a database go on, found out from all of them (csrc/keys.h)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.format import Layout
from lmdbio._core.locate import Chunk
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import Status
from lmdbio.system.frozen import dataclass

KEY_RUNS_MAX: int = lib.LIO_KEY_RUNS_MAX


class KeyForm(IntEnum):
    """How the number of a key is written."""

    LITERAL = lib.LIO_KEY_LITERAL
    DECIMAL = lib.LIO_KEY_DECIMAL
    PLAIN = lib.LIO_KEY_PLAIN
    BIG = lib.LIO_KEY_BIG
    LITTLE = lib.LIO_KEY_LITTLE


@dataclass(frozen=True, slots=True)
class KeyRun:
    """Keys that count up by one, between the same bytes.

    Attributes:
        form: form of the numbers; LITERAL: there is one key, the stem.
        first: the smallest number.
        count: number of keys, 1 or more.
        width: bytes of a number; 0 where it is as short as can be (PLAIN, in the order of its
            digits), or there is none.
        stem, tail: the bytes before and after the number.
    """

    form: KeyForm
    first: int
    count: int
    width: int
    stem: bytes
    tail: bytes = b""


class KeyFinder:
    """Follows the keys of a walk.

    Args:
        db_flags: flags of the database, which tell how keys are sorted.
    """

    def __init__(self, db_flags: int) -> None:
        cell, status = cell_of("lio_keys", "keys_close"), Status()
        status.call(lib.lio_keys_open, db_flags, cell)
        self._pointer = held(cell)

    def add(self, layout: Layout, chunk: Chunk, path: str) -> None:
        """The keys on a chunk of leaves, which follow those before."""
        leaves = chunk.given_to_c(layout)
        Status(path).call(lib.lio_keys_add, self._pointer, *leaves)

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the shortest and of the longest key so far; (0, 0): there was none."""
        shortest, longest = ffi.new("uint32_t *"), ffi.new("uint32_t *")
        lib.lio_keys_sizes(self._pointer, shortest, longest)
        return int(shortest[0]), int(longest[0])

    @property
    def may_count(self) -> bool:
        """Whether the keys so far may follow a pattern."""
        return bool(lib.lio_keys_may_count(self._pointer))

    def end(self) -> tuple[KeyRun, ...]:
        """The runs of all keys, in their order; none: they follow no pattern."""
        runs = ffi.new("lio_key_run **")
        count = int(lib.lio_keys_end(self._pointer, runs))
        return tuple(_run_of(runs[0][i]) for i in range(count))


def _run_of(run: Any) -> KeyRun:
    text = bytes(ffi.buffer(run.text, run.stem + run.tail))
    return KeyRun(
        KeyForm(run.form),
        int(run.first),
        int(run.count),
        int(run.width),
        text[: run.stem],
        text[run.stem :],
    )
