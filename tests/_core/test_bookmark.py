"""Goal: a cursor that walks records one by one finds them where a walk by levels does, and any
other process can go on from where it stands.

Method: databases of every shape, in both formats, walked both ways; bookmarks that another
cursor goes to; bookmarks that are none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from lmdbio import _core
from lmdbio.errors import CorruptedError
from lmdbio.provenance import values
from tests.support import databases


@contextmanager
def opened(path: Path, name: bytes | None) -> Iterator[tuple[_core.Extents, _core.Cursor]]:
    """Extents of all records, by levels; and a cursor that stands nowhere."""
    with _core.Engine(path / "data.mdb", "mmap") as engine:
        meta = _core.read_meta(engine)
        db = meta.main_db if name is None else _core.find_database(engine, meta, name)
        found = [part.extents for part in values.walk(engine, meta, db)]
        extents = np.concatenate([np.empty(0, _core.EXTENT), *found])
        cursor = _core.Cursor(_core.Pages(engine, meta.layout, 1 << 16), db)
        yield extents, cursor
        cursor.close()


def another(cursor: _core.Cursor, path: Path, name: bytes | None) -> _core.Cursor:
    engine = _core.Engine(path / "data.mdb", "pread")
    meta = _core.read_meta(engine)
    db = meta.main_db if name is None else _core.find_database(engine, meta, name)
    return _core.Cursor(_core.Pages(engine, meta.layout, 0), db)


@pytest.mark.parametrize("version", databases.FORMATS)
@pytest.mark.parametrize("case", databases.CASES, ids=lambda case: case.name)
def test_records_lie_where_a_walk_by_levels_finds_them(
    case: databases.Case, version: int, tmp_path: Path
) -> None:
    path = databases.build(case, tmp_path, version)
    for name in (None, *case.databases):
        with opened(path, name) as (extents, cursor):
            count = len(extents)
            walked = [np.empty(0, _core.EXTENT)]
            for step in (1, 2, 3, 7, 100, 10_000):
                walked.append(_core.walk_records(cursor, step))
            assert np.array_equal(np.concatenate(walked), extents)
            assert len(_core.walk_records(cursor, 1)) == 0, "the end is no error, and stays"
            if not count:
                continue
            # From somewhere in the middle, by another cursor.
            mine, step = another(cursor, path, name), max(1, count // 37)
            theirs = another(cursor, path, name)
            for stands in range(step, count, step):
                assert _core.skip_records(theirs, step) == step
                bookmark = _core.bookmark_of(theirs)
                _core.go_to(mine, bookmark)
                assert _core.bookmark_of(mine) == bookmark
                more = min(5, count - stands)
                found = _core.walk_records(mine, more)
                assert np.array_equal(found, extents[stands : stands + more])


def test_a_cursor_that_stands_nowhere_has_no_bookmark(tmp_path: Path) -> None:
    path = databases.build(databases.CASES[1], tmp_path, 1)
    with opened(path, None) as (_, cursor), pytest.raises(Exception, match="not positioned"):
        _core.bookmark_of(cursor)


def test_what_is_no_bookmark_is_refused_and_the_cursor_begins_anew(tmp_path: Path) -> None:
    case = next(case for case in databases.CASES if case.name == "duplicates")
    path = databases.build(case, tmp_path, 1)
    for name in (b"dup", b"dupfixed"):
        with opened(path, name) as (extents, cursor):
            seen = 0
            for stands in (1, 4, 45, 60, 900, 1100):
                cursor.move(_core.Move.FIRST)
                _core.skip_records(cursor, stands - 1)
                bookmark = bytearray(_core.bookmark_of(cursor))
                for at in range(len(bookmark)):
                    for bit in (0x01, 0x80):
                        wrong = bytearray(bookmark)
                        wrong[at] ^= bit
                        mine = another(cursor, path, name)
                        try:
                            _core.go_to(mine, bytes(wrong))
                        except CorruptedError:
                            seen += 1
                            first = _core.walk_records(mine, 1)
                            assert np.array_equal(first, extents[:1])
                        else:  # another record's
                            assert len(_core.walk_records(mine, len(extents))) < len(extents)
                for cut in range(len(bookmark)):
                    with pytest.raises(CorruptedError):
                        _core.go_to(cursor, bytes(bookmark[:cut]))
                with pytest.raises(CorruptedError):
                    _core.go_to(cursor, bytes(bookmark) + struct.pack("<QI", 2, 0))
            assert seen > 100
