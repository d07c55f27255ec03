"""An opening beside a writer finds all that is there, and sound, or says that a commit came.

Goal: no opening takes the pages of a state that is gone for damage, or says that a name is not
there; it is tried again first, a bounded number of times; without a writer both are told at once.
Method: a writer that commits right after the meta page was read, until other pages lie where that
state had its own, for the first few openings or for all; looks at the meta page are counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio import _core
from lmdbio.cli import cli
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import CorruptedError, MovedError
from lmdbio.locate import open_database
from lmdbio.locate.cursor_walk import open_cursor_walk
from lmdbio.locate.open_files import open_shared_extents, stat_files
from lmdbio.locate.view import viewing
from lmdbio.system import log
from tests.support import databases

NAME, OTHERS = b"samples", (b"first", b"second")
PICTURES = 40
#: Commits after which none of a state's pages is protected; and until one of them is free.
COMMITS, COMMITS_MAX = 3, 100
MOVED = r"was committed to while it was (opened|verified) \(\d+ times\)"


def key(column: bytes, i: int) -> bytes:
    return b"%s-%09d" % (column, i + 1)


def contents(turn: int) -> list[tuple[bytes, bytes]]:
    """The named database after so many commits, in the order of its keys."""
    images = [(key(b"image", i), databases.value((turn, i), 500)) for i in range(PICTURES)]
    labels = [(key(b"label", i), b"%d of %d" % (i, turn)) for i in range(PICTURES)]
    return [*images, *labels, (b"num-samples", b"%d" % PICTURES)]


def leaf_without_records(layout: _core.Layout, pgno: int) -> bytes:
    """A leaf page, on which no name is found."""
    header = layout.header_size
    lower, upper = (header, layout.page_size) if layout.version == 1 else (0, 4096 - header)
    return struct.pack(f"<Q{header - 16}xHHHH", pgno, 0, 2, lower, upper).ljust(4096, b"\0")


def pages_of(engine: _core.Engine, meta: _core.Meta) -> set[int]:
    """The pages of all trees of a state; there are no others in it."""
    found: set[int] = set()
    databases = [meta.free_db, meta.main_db]
    for db in databases:
        with _core.Walk(engine, meta, db) as walk:
            for chunk in walk:
                found.update(chunk.pgnos.tolist())
                if chunk.leaf and db is meta.main_db:
                    named = _core.leaf_databases(meta.layout, chunk, engine.path)
                    databases += [one for _, one in named]
    return found


class Writer:
    """Writes an environment, and whatever it likes on pages that no protected state has."""

    def __init__(self, path: Path, version: int) -> None:
        self.env, self.turn = databases.open_writable(path, version), 0
        self._read_meta = _core.read_meta
        self.commit()

    def commit(self) -> None:
        self.turn += 1
        with self.env.begin(write=True) as txn:
            for name in OTHERS:
                txn.put(b"key", b"%d" % self.turn, db=self.env.open_db(name, txn=txn))
            db = self.env.open_db(NAME, txn=txn)
            for item in contents(self.turn):
                txn.put(*item, db=db)

    def write_over(self, engine: _core.Engine, then: _core.Meta) -> None:
        """Commit, and leave nothing of the page on which a state has the names of databases."""
        for number in range(1, COMMITS_MAX):
            self.commit()
            now, pgno = self._read_meta(engine), then.main_db.root
            if number >= COMMITS and pgno not in pages_of(engine, now):
                break
        else:
            raise AssertionError(f"page {pgno} is always in use")
        # Another transaction, which was aborted, had it.
        page = leaf_without_records(then.layout, pgno) if self.turn % 2 else bytes(4096)
        with Path(engine.path).open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), page, pgno * 4096)


@pytest.fixture(params=databases.FORMATS)
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "env", request.param)
    yield writer
    writer.env.close()


@pytest.fixture
def path(writer: Writer) -> Path:
    return Path(writer.env.path())


class Looks:
    """Counts looks for the newest state, and lets the writer commit right after the first ones."""

    def __init__(self, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.moving = 0
        read_meta = _core.read_meta

        def read(engine: _core.Engine, txnid: int | None = None) -> _core.Meta:
            meta = read_meta(engine, txnid)
            self.count += 1
            if self.count <= self.moving:
                writer.write_over(engine, meta)
            return meta

        monkeypatch.setattr(_core, "read_meta", read)


@pytest.fixture
def looks(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(writer, monkeypatch)


def by_records(**options: Any) -> Callable[[Path, Writer], None]:
    def opened(path: Path, writer: Writer) -> None:
        with lmdbio.Records(path, db=NAME, **options) as records:
            assert list(records) == [value for _, value in contents(writer.turn)]

    return opened


def by_layout(path: Path, writer: Writer) -> None:
    with lmdbio.Records(path, db=NAME, layout="auto") as records:
        assert (records.layout, len(records)) == ("ocr", PICTURES)
        assert records[3] == (contents(writer.turn)[3][1], b"3 of %d" % writer.turn)


def by_skip(path: Path, writer: Writer) -> None:
    with lmdbio.Records(path, db=NAME, skip=b"image-*") as records:
        assert list(records) == [v for _, v in contents(writer.turn)[PICTURES:]]


def by_main(path: Path, writer: Writer) -> None:
    """Names alone, which are no records."""
    with pytest.raises(
        LookupError, match=r"holds only named databases \(first, samples, second\)"
    ):
        lmdbio.Records(path)


def by_walking(path: Path, writer: Writer) -> None:
    with open_cursor_walk(path, db=NAME) as found:
        assert found.count == len(contents(writer.turn))
        assert len(found.extents(np.arange(found.count, dtype=np.uint64))) == found.count


def by_walking_names(path: Path, writer: Writer) -> None:
    with pytest.raises(LookupError, match="holds only named databases"):
        open_cursor_walk(path)


def by_reader(path: Path, writer: Writer) -> None:
    with lmdbio.Reader(path, 7, db=NAME, iterations=1) as reader:
        batch = next(iter(reader))
        assert [bytes(one) for one in batch] == [v for _, v in contents(writer.turn)[:7]]
        del batch


def by_stat_files(path: Path, writer: Writer) -> None:
    found = stat_files([str(path / "data.mdb")] * 2, NAME)
    assert found.counts.tolist() == [len(contents(writer.turn))] * 2


def by_set(path: Path, writer: Writer) -> None:
    with lmdbio.Records([path, path], db=NAME) as records:
        assert list(records) == 2 * [value for _, value in contents(writer.turn)]


def by_glance(path: Path, writer: Writer) -> None:
    with viewing(path, NAME) as view:
        found = [(seen.key, b"".join(view.pieces(seen))) for seen in view.records()]
        assert found == contents(writer.turn)


def by_verify(path: Path, writer: Writer) -> None:
    assert verify(path).records >= len(contents(writer.turn))


def by_open(path: Path, writer: Writer) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False, max_dbs=9) as env:
        db = env.open_db(NAME, create=False)
        with env.begin(db=db) as txn:
            assert list(txn.cursor()) == contents(writer.turn)


def by_names(path: Path, writer: Writer) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False, max_dbs=9) as env:
        assert env.dbs() == [OTHERS[0], NAME, OTHERS[1]]


def by_command(*command: str) -> Callable[[Path, Writer], None]:
    def run(path: Path, writer: Writer) -> None:
        done = CliRunner().invoke(cli, [command[0], str(path), *command[1:]])
        if done.exception is not None:
            raise done.exception
        assert NAME.decode() in done.output
        assert "orrupt" not in done.output and "is damaged" not in done.output

    return run


OPENINGS = {
    "Records": by_records(),
    "Records scan": by_records(locate="scan"),
    "Records engine": by_records(engine="mmap"),
    "layout": by_layout,
    "skip": by_skip,
    "main": by_main,
    "walk": by_walking,
    "walk names": by_walking_names,
    "Reader": by_reader,
    "stat_files": by_stat_files,
    "set": by_set,
    "glance": by_glance,
    "verify": by_verify,
    "open": by_open,
    "names": by_names,
    "info": by_command("info", "--json"),
    "doctor": by_command("doctor", "--db", NAME.decode(), "--json"),
    "ls": by_command("ls", "--db", NAME.decode()),
}


@pytest.mark.parametrize("how", OPENINGS)
def test_an_opening_is_tried_again_where_a_writer_came_between(
    how: str, path: Path, writer: Writer, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    looks.moving = 3
    log._logged.clear()
    with caplog.at_level(logging.INFO, "lmdbio"):
        OPENINGS[how](path, writer)
    assert looks.count > 3
    assert sum("is opened again" in one.getMessage() for one in caplog.records) == 1


@pytest.mark.parametrize("how", OPENINGS)
def test_a_writer_that_never_rests_is_what_is_told(
    how: str, path: Path, writer: Writer, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_database, "TRIES_MAX", 4)
    looks.moving = 10**9
    with pytest.raises(lmdbio.Error) as caught:
        OPENINGS[how](path, writer)
    told = str(caught.value)
    assert isinstance(caught.value, MovedError), told
    assert str(path) in told and ("open it again" in told or "its writer rests" in told)
    assert "while it was " in told


def test_tries_have_an_end_in_time(
    path: Path, writer: Writer, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_database, "TRIES_MAX", 10**9)
    monkeypatch.setattr(open_database, "TRYING_SECONDS", 0.2)
    looks.moving, begun = 10**9, time.monotonic()
    with pytest.raises(lmdbio.Error, match=MOVED):
        lmdbio.Records(path, db=NAME)
    assert time.monotonic() - begun < 20
    assert looks.count > 1


def test_what_is_read_after_the_opening_is_judged_as_well(path: Path, writer: Writer) -> None:
    """By the one that has it open: there is no other state to try."""
    every = np.arange(len(contents(0)), dtype=np.uint64)
    with (
        open_cursor_walk(path, db=NAME) as walk,
        open_cursor_walk(path, db=NAME) as skipping,
        viewing(path, NAME) as view,
        lmdbio.Records(path, db=NAME) as records,
        lmdbio.open(str(path), readonly=True, lock=False, max_dbs=9) as env,
        env.begin() as txn,
    ):
        with _core.Engine(path / "data.mdb") as engine:
            meta = _core.read_meta(engine)
            pages = sorted(pages_of(engine, meta))
            for _ in range(COMMITS):
                writer.commit()
            gone = set(pages) - pages_of(engine, _core.read_meta(engine)) - {0, 1}
        with (path / "data.mdb").open("r+b", buffering=0) as file:
            for pgno in gone:
                os.pwrite(file.fileno(), bytes(4096), pgno * 4096)
        for ask in (
            lambda: walk.extents(every),
            lambda: skipping.skip(3),
            lambda: list(view.records()),
            lambda: view.at(5),
            lambda: list(view.spread([0.5])),
            view.databases if view.name is None else lambda: view.near(b"image"),
            lambda: records[3],
            lambda: records.key(3),
            lambda: records.index_of(b"none"),
            lambda: env.open_db(NAME, txn=txn, create=False),
            lambda: env.dbs(txn),
        ):
            with pytest.raises(MovedError, match=r"open it again|begin a new transaction"):
                ask()


def test_extents_of_a_state_that_is_gone_are_not_shared(path: Path, writer: Writer) -> None:
    with lmdbio.Records(path, db=NAME) as records:
        table = records._source.run(0, len(records)).copy()
    open_shared_extents(path, table, db=NAME).close()
    with writer.env.begin(write=True) as txn:
        txn.put(b"zzz", b"one more", db=writer.env.open_db(NAME, txn=txn))
    with pytest.raises(MovedError, match="was committed to while it was opened"):
        open_shared_extents(path, table, db=NAME)


# --- nobody writes: at once --------------------------------------------------------------


@contextlib.contextmanager
def one_look(looks: Looks, most: int = 1) -> Iterator[None]:
    before = looks.count
    yield
    assert looks.count - before <= most


def test_a_name_that_is_not_there_is_told_at_once(path: Path, looks: Looks) -> None:
    with one_look(looks), pytest.raises(LookupError, match="no database named 'none'"):
        lmdbio.Records(path, db="none")
    with one_look(looks), pytest.raises(LookupError, match="no database named 'none'"):
        with viewing(path, "none"):
            pass
    with one_look(looks), pytest.raises(LookupError, match="no database named 'none'"):
        open_cursor_walk(path, db="none")
    with lmdbio.open(str(path), readonly=True, lock=False, max_dbs=9) as env, one_look(looks):
        with pytest.raises(lmdb.NotFoundError):
            env.open_db(b"none", create=False)


def test_damage_is_told_at_once(path: Path, writer: Writer, looks: Looks) -> None:
    with _core.Engine(path / "data.mdb") as engine:
        meta = _core.read_meta(engine)
    with (path / "data.mdb").open("r+b") as file:
        os.pwrite(file.fileno(), b"\xff" * 64, meta.main_db.root * 4096 + 16)
    for name in (NAME, None):
        with one_look(looks), pytest.raises(CorruptedError):
            lmdbio.Records(path, db=name, locate="scan")
        with one_look(looks), pytest.raises(CorruptedError):
            list(open_cursor_walk(path, db=name).extents(np.arange(3, dtype=np.uint64)))
    with one_look(looks), pytest.raises(CorruptedError):
        verify(path)
    with lmdbio.open(str(path), readonly=True, lock=False, max_dbs=9) as env, one_look(looks):
        with pytest.raises(CorruptedError):
            env.open_db(NAME, create=False)


def test_a_provenance_file_is_passed_over_with_one_warning(
    path: Path, writer: Writer, looks: Looks
) -> None:
    """However often the opening was tried."""
    convert(path, databases=[NAME])
    looks.count, looks.moving = 0, 3
    with pytest.warns(UserWarning, match="the tree is walked instead") as told:
        lmdbio.Records(path, db=NAME).close()
    assert len(told) == 1
