"""Goal: a move of a cursor that a read failed can be made again, and ends as if none had failed.

Method: a memory engine fails a read of each move, made from many places, with few pages cached;
the move made again, and steps after it, are held against those of a cursor whose reads did not
fail.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lmdbio import _core
from lmdbio._core import WANT_KEY, WANT_VALUE, Move
from tests.support import databases
from tests.support.in_memory import InMemory, memory_engine

VALUE = b"%05d" + b"x" * 60
#: A move, and what it searches for.
Made = tuple[Any, ...]
MOVES: list[Made] = [
    *((move,) for name, move in vars(Move).items() if name.isupper() and move < Move.MULTIPLE),
    (Move.SET, b"001"),
    (Move.SET_RANGE, b"0005"),
    (Move.BOTH, b"001", VALUE % 300),
]
#: By moves: a fresh cursor, each place after one move, some after two.
PLACES: list[Sequence[Made]] = [
    (),
    *product(MOVES),
    *random.Random(1).sample(list(product(MOVES, MOVES)), 50),
]
AFTERWARDS: list[Made] = [(Move.CURRENT,), (Move.NEXT,), (Move.PREV,), (Move.PREV,)]


def outcome(cursor: _core.Cursor, move: Made) -> Any:
    try:
        return cursor.move(*move) and cursor.item(WANT_KEY | WANT_VALUE)
    except _core.UnplacedError:
        return _core.UnplacedError


def fails(file: InMemory, cursor: _core.Cursor, move: Made, nth: int) -> bool:
    """Make a move whose ``nth`` read fails; return whether it had so many."""
    file.script(fail_every=nth, sys_errno=errno.EIO)
    cursor.engine.read(0, 1)  # the first one never fails
    try:
        outcome(cursor, move)
    except OSError:
        return True
    finally:
        file.script()
    return False


@pytest.mark.parametrize("version", databases.FORMATS)
@pytest.mark.parametrize("counts", [(900, 900, 900), (1, 900, 2)], ids=str)
def test_a_move_that_failed_is_made_again_as_if_it_had_not(
    tmp_path: Path, version: int, counts: tuple[int, ...]
) -> None:
    env = databases.open_writable(tmp_path / "env", version)
    pairs = [(b"%03d" % key, VALUE % i) for key, count in enumerate(counts) for i in range(count)]
    databases.write(env, pairs, db=env.open_db(b"dups", dupsort=True))
    env.close()
    failed = set()
    engine, file = memory_engine((tmp_path / "env/data.mdb").read_bytes())
    with engine:
        meta = _core.read_meta(engine)
        db = _core.find_database(engine, meta, b"dups")
        for place, move, nth in product(PLACES, MOVES, (1, 2, 3)):
            cursors = [_core.Cursor(_core.Pages(engine, meta.layout, 0), db) for _ in range(2)]
            for step in place:
                assert outcome(cursors[0], step) == outcome(cursors[1], step)
            if fails(file, cursors[1], move, nth):
                failed.add(move[0])
                for step in (move, *AFTERWARDS):
                    undisturbed, again = (outcome(cursor, step) for cursor in cursors)
                    assert again == undisturbed, (place, move, nth, step)
            for cursor in cursors:
                cursor.close()
    assert failed == {move for move, *_ in MOVES} - {Move.CURRENT}, "which reads nothing"
