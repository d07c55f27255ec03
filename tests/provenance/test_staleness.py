"""A provenance file whose data file is changed, exchanged, copied or put back.

Goal: whatever happens to the file, whichever form the provenance file has, however it is checked
and by whatever it is read: right bytes, or a refusal that says why; ``lmdbio info`` says it
before. Never other bytes. Method: one database for each data format and form, and the nastiest
others that there are to it (same meta pages, same size, records elsewhere), put in its place in
every way, with the times of the file set back where a program can.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from lmdbio.errors import Error, StaleError
from lmdbio.provenance import Provenance, freshness
from lmdbio.system import file_identity
from lmdbio.system.file_identity import FileIdentity
from tests.support import databases

FORMS = ("replay", "runs", "leaves", "explicit")
CHECKS = ("fast", "deep", "always")
COUNT, COMMIT_EVERY = 240, 60
#: Within one number of pages, so that two of them can be swapped and nothing else moves.
LENGTHS = {
    "replay": lambda i: 3000,
    "runs": lambda i: 2600 + 7 * (i % 60),
    "leaves": lambda i: 2600 + 7 * (i % 60) if i % 3 else 40 + i % 60,
    "explicit": lambda i: 2600 + 7 * (i % 60) if i % 3 else 40 + i % 60,
}
SWAPPED = 4, 5  # both in overflow pages, of different lengths, in one transaction


def value(tag: str, i: int, length: int) -> bytes:
    head = b"%s %d " % (tag.encode(), i)
    return (head + databases.value((tag, i), length))[:length]


@dataclass(frozen=True, slots=True)
class World:
    """A database and what is in it.

    Attributes:
        folder: of the environment.
        values: in key order.
        numbers: of the records, which are their keys; None: from 0 on.
    """

    folder: Path
    values: list[bytes]
    numbers: list[int] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data.mdb"

    @property
    def sidecar(self) -> Path:
        return self.folder / "data.mdb.prov"


def make(
    folder: Path, version: int, form: str, tag: str, *, swapped: bool = False, longer: int = 0
) -> World:
    """A database of ``COUNT`` records, each so many bytes ``longer`` than usual; ``swapped``: two
    of them lie in each other's place.

    Where lengths vary, two of these are swapped; else two are put in the other order. Either way
    meta pages and size are those of the database that is not swapped.
    """
    lengths, order = [LENGTHS[form](i) + longer for i in range(COUNT)], list(range(COUNT))
    one, other = SWAPPED
    if swapped and form != "replay":
        lengths[one], lengths[other] = lengths[other], lengths[one]
    elif swapped:
        order[one], order[other] = order[other], order[one]
    values = [value(tag, i, length) for i, length in enumerate(lengths)]
    with databases.open_writable(folder, version) as env:
        items = ((b"%08d" % i, values[i]) for i in order)
        databases.write(env, items, commit_every=COMMIT_EVERY)
    return World(folder, values)


def commit(world: World, version: int, changes: dict[int, bytes | None]) -> World:
    """The database after one more transaction: None deletes."""
    now: dict[int, bytes] = dict(enumerate(world.values))
    with databases.open_writable(world.folder, version) as env, env.begin(write=True) as txn:
        for i, content in changes.items():
            if content is None:
                txn.delete(b"%08d" % i)
                del now[i]
            else:
                txn.put(b"%08d" % i, content)
                now[i] = content
    return World(world.folder, [now[i] for i in sorted(now)], sorted(now))


@dataclass(frozen=True, slots=True)
class Pair:
    """A database that was converted, and its double: same meta pages, two records elsewhere."""

    version: int
    form: str
    world: World
    double: World

    def copied(self, folder: Path) -> Pair:
        """The same two below another folder, of which the first is converted there."""
        worlds = []
        for name, world in (("a", self.world), ("b", self.double)):
            (folder / name).mkdir(parents=True)
            shutil.copyfile(world.data, folder / name / "data.mdb")
            worlds.append(World(folder / name, world.values))
        convert(worlds[0].folder, form=self.form)  # type: ignore[arg-type]
        return Pair(self.version, self.form, worlds[0], worlds[1])


@pytest.fixture(
    scope="module",
    params=[(v, f) for v in databases.FORMATS for f in FORMS],
    ids="v{0[0]} {0[1]}".format,
)
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    version, form = request.param
    folder = tmp_path_factory.mktemp("worlds")
    world = make(folder / "a", version, form, "world")
    double = make(folder / "b", version, form, "double", swapped=True)
    with _core.Engine(world.data) as a, _core.Engine(double.data) as b:
        assert _core.meta_bytes(a, _core.read_meta(a).layout)
        assert _core.read_meta(a) == _core.read_meta(b)
        assert a.size() == b.size()
    return Pair(version, form, world, double)


@pytest.fixture
def pair(original: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # no machine stops here
    return original.copied(tmp_path / "pair")


# --- what happens to a file ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """The fate that is expected of it.

    Attributes:
        world: what is there to be read, and where.
        refused: what the refusal says; "": the provenance file is used.
        hashed: the meta pages do not tell: pages are hashed, whatever the check.
        sidecar: None: beside the data.
    """

    world: World
    refused: str = ""
    hashed: bool = True
    sidecar: Path | None = None


DIGEST = "digest of the branch and leaf pages: [0-9a-f]{64} now, [0-9a-f]{64} when converted"


def set_back(data: Path, status: os.stat_result) -> None:
    """All times of a file that can be set."""
    os.utime(data, ns=(status.st_atime_ns, status.st_mtime_ns))


def in_place(source: Path, target: Path) -> None:
    """Writes over a file that stays the same file."""
    with source.open("rb") as content, target.open("r+b") as file:
        file.truncate(0)
        shutil.copyfileobj(content, file)


def by_rename(source: Path, target: Path) -> None:
    shutil.copyfile(source, target.with_name("new"))
    target.with_name("new").replace(target)


def made_again(source: Path, target: Path) -> None:
    """Removes a file and makes it again: with luck under the same inode."""
    target.unlink()
    shutil.copyfile(source, target)


WAYS = (in_place, by_rename, made_again)


def untouched(pair: Pair) -> Outcome:
    return Outcome(pair.world, hashed=False)


def touched(pair: Pair) -> Outcome:
    os.utime(pair.world.data)
    return Outcome(pair.world)


def touched_and_set_back(pair: Pair) -> Outcome:
    status = pair.world.data.stat()
    os.utime(pair.world.data)
    set_back(pair.world.data, status)
    return Outcome(pair.world)


def _copy(pair: Pair, copy: Callable[[Path, Path], Any]) -> Outcome:
    folder = pair.world.folder.parent / "copy"
    folder.mkdir()
    copy(pair.world.data, folder / "data.mdb")
    shutil.copyfile(pair.world.sidecar, folder / "data.mdb.prov")
    return Outcome(World(folder, pair.world.values))


def copied(pair: Pair) -> Outcome:
    return _copy(pair, shutil.copyfile)


def copied_with_times(pair: Pair) -> Outcome:
    return _copy(pair, shutil.copy2)


def copied_as_rsync_does(pair: Pair) -> Outcome:
    def copy(source: Path, target: Path) -> None:
        hidden = target.with_name(".data.mdb.x7Gq2")
        shutil.copyfile(source, hidden)
        set_back(hidden, source.stat())
        hidden.replace(target)

    return _copy(pair, copy)


def _exchanged(pair: Pair, way: Callable[[Path, Path], None]) -> Outcome:
    status = pair.world.data.stat()
    way(pair.double.data, pair.world.data)
    set_back(pair.world.data, status)
    assert pair.world.data.stat().st_size == status.st_size
    return Outcome(World(pair.world.folder, pair.double.values), DIGEST)


def exchanged_in_place(pair: Pair) -> Outcome:
    return _exchanged(pair, in_place)


def exchanged_by_rename(pair: Pair) -> Outcome:
    return _exchanged(pair, by_rename)


def exchanged_when_made_again(pair: Pair) -> Outcome:
    return _exchanged(pair, made_again)


def sidecar_of_the_double(pair: Pair) -> Outcome:
    """The file is as it was; the provenance file is not its own."""
    return Outcome(pair.double, DIGEST, sidecar=pair.world.sidecar)


def _rolled_back(pair: Pair, way: Callable[[Path, Path], None]) -> Outcome:
    """An older copy is put back, and the provenance file is of what came after it."""
    older = pair.world.folder.parent / "older.mdb"
    shutil.copy2(pair.world.data, older)
    commit(pair.world, pair.version, {7: value("later", 7, len(pair.world.values[7]))})
    _convert_any(pair)
    way(older, pair.world.data)
    set_back(pair.world.data, older.stat())
    return Outcome(pair.world, r"txnid: \d+ now, \d+ when converted", hashed=False)


def _convert_any(pair: Pair) -> None:
    """A history that is none any more has no replay."""
    convert(pair.world.folder, form="auto" if pair.form == "replay" else pair.form)  # type: ignore[arg-type]


def rolled_back_in_place(pair: Pair) -> Outcome:
    return _rolled_back(pair, in_place)


def rolled_back_by_rename(pair: Pair) -> Outcome:
    return _rolled_back(pair, by_rename)


def rolled_back_to_as_many_commits(pair: Pair) -> Outcome:
    """Put back, and committed to otherwise: the number of the transaction is the same again."""
    older = pair.world.folder.parent / "older.mdb"
    shutil.copy2(pair.world.data, older)
    one, other = SWAPPED
    lengths = len(pair.world.values[one]), len(pair.world.values[other])
    commit(pair.world, pair.version, {one: value("x", one, lengths[0]), other: b"y" * lengths[1]})
    _convert_any(pair)
    in_place(older, pair.world.data)
    now = commit(pair.world, pair.version, {20: b"z" * 2999, 21: None})
    return Outcome(now, "main database |free database |last page: ", hashed=False)


def appended(pair: Pair) -> Outcome:
    now = commit(pair.world, pair.version, {COUNT: b"a tail" * 500, COUNT + 1: b"short"})
    return Outcome(now, r"txnid: (\d+) now, \d+ when converted", hashed=False)


def updated_in_one_length(pair: Pair) -> Outcome:
    i = SWAPPED[0]
    now = commit(pair.world, pair.version, {i: value("new", i, len(pair.world.values[i]))})
    return Outcome(now, r"txnid: \d+ now, \d+ when converted", hashed=False)


def deleted_and_compacted(pair: Pair) -> Outcome:
    now = commit(pair.world, pair.version, dict.fromkeys(range(0, COUNT, 5)))
    folder = pair.world.folder.parent / "compact"
    folder.mkdir()
    more = {"lib_version": 1} if pair.version == 3 else {}
    with lmdb.open(str(now.folder), readonly=True, lock=False, **more) as env:
        env.copy(str(folder), compact=True)
    by_rename(folder / "data.mdb", now.data)
    return Outcome(now, "when converted", hashed=False)


def of_another_database(pair: Pair) -> Outcome:
    folder = pair.world.folder.parent / "other"
    now = make(folder, pair.version, pair.form, "other")
    now = commit(now, pair.version, {3: b"nothing like it"})
    return Outcome(now, "when converted", hashed=False, sidecar=pair.world.sidecar)


CASES = (
    untouched,
    touched,
    touched_and_set_back,
    copied,
    copied_with_times,
    copied_as_rsync_does,
    exchanged_in_place,
    exchanged_by_rename,
    exchanged_when_made_again,
    sidecar_of_the_double,
    rolled_back_in_place,
    rolled_back_by_rename,
    rolled_back_to_as_many_commits,
    appended,
    updated_in_one_length,
    deleted_and_compacted,
    of_another_database,
)


# --- what is read of it --------------------------------------------------------------------


def by_records(world: World, **options: Any) -> None:
    """Keys and back, single ones, slices, a batch in disorder: all right."""
    with lmdbio.Records(world.folder, **options) as records:
        assert len(records) == len(world.values)
        for i in (0, 7, 100, len(world.values) - 1):
            key = b"%08d" % (i if world.numbers is None else world.numbers[i])
            assert (records.key(i), records.index_of(key)) == (key, i)
        assert [records[i] for i in SWAPPED] == [world.values[i] for i in SWAPPED]
        assert records[:] == world.values
        order = random.Random(3).sample(range(len(world.values)), 100)
        batch = records.read(np.array(order))
        assert [bytes(view) for view in batch] == [world.values[i] for i in order]


def by_reader(world: World, **options: Any) -> None:
    """One time round."""
    locate = options.pop("locate", "auto")
    mode: Any = "LMM-DIO-PROV-COAL" if locate == "provenance" else "auto"
    size = 60
    rounds = -(-len(world.values) // size)
    found = []
    with lmdbio.Reader(world.folder, size, iterations=rounds, mode=mode, **options) as reader:
        for batch in reader:
            found += [bytes(view) for view in batch]
    assert found[: len(world.values)] == world.values


SURFACES = (by_records, by_reader)


def info(world: World, sidecar: Path | None) -> tuple[dict[str, Any], str]:
    """Return what ``lmdbio info`` says, as JSON and as text."""
    asked = ["info", str(world.folder)]
    asked += ["--provenance", str(sidecar)] if sidecar is not None else []
    told = CliRunner().invoke(cli, [*asked, "--json"], catch_exceptions=False)
    text = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert (told.exit_code, text.exit_code) == (0, 0)
    found: dict[str, Any] = json.loads(told.stdout)["sidecar"]
    return found, text.stdout


def forget() -> None:
    shutil.rmtree(Path(os.environ["XDG_CACHE_HOME"]) / "lmdbio" / "checked", ignore_errors=True)


def judge(outcome: Outcome, checks: tuple[str, ...] = CHECKS) -> None:
    """Every check by every surface; where it is refused, also with another way to go."""
    world = outcome.world
    for check in checks:
        for read in SURFACES:
            options: dict[str, Any] = {"provenance": outcome.sidecar, "check": check}
            forget()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if outcome.refused:
                    with pytest.raises(StaleError, match=outcome.refused) as caught:
                        read(world, locate="provenance", **options)
                    told = str(caught.value)
                    assert str(world.data) in told and "data.mdb.prov" in told
                else:
                    read(world, locate="provenance", **options)
            if outcome.refused and check == checks[0]:
                with pytest.warns(UserWarning, match=outcome.refused):
                    read(world, **options)


def judge_info(outcome: Outcome) -> None:
    """``info`` says what will happen at the next open, with the reason."""
    forget()
    found, text = info(outcome.world, outcome.sidecar)
    if outcome.hashed:
        # To know more, the pages would have to be hashed: it says so, why, and what that costs.
        assert found["status"] == "unproven" and found["deep_check"]["due"]
        assert re.match("a copy, or changed: other .*ctime", found["reason"])
        assert found["deep_check"]["bytes"] > 0 and "runs at the next open" in text
    elif outcome.refused:
        assert found["status"] == "stale" and re.search(outcome.refused, found["reason"])
    else:
        assert (found["status"], found["reason"]) == ("good", "fast check")
    assert found["status"] in text and found["reason"][:30] in re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.replace("_", " "))
def test_right_bytes_or_a_refusal_that_says_why(
    case: Callable[[Pair], Outcome], pair: Pair
) -> None:
    outcome = case(pair)
    judge_info(outcome)
    judge(outcome)


@pytest.mark.parametrize(
    "case", [exchanged_by_rename, copied_with_times, untouched], ids=lambda case: case.__name__
)
def test_on_another_host_inodes_say_nothing_and_nothing_wrong_is_read(
    case: Callable[[Pair], Outcome], pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_identity, "_host", lambda: b"another machine!")
    outcome = case(pair)
    judge_info(outcome)
    judge(outcome)


def test_hints_that_lie_do_not_deceive_a_check_that_was_asked_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should even the time of change be what it was: "deep" and "always" look at the pages."""
    with Provenance.open(pair.world.sidecar) as opened:
        recorded = opened.facts.hints
    outcome = exchanged_in_place(pair)
    monkeypatch.setattr(FileIdentity, "of", classmethod(lambda cls, status: recorded))
    judge(outcome, ("deep", "always"))


def test_a_deep_check_is_remembered_for_the_copy_and_not_for_what_is_put_in_its_place(
    pair: Pair,
) -> None:
    copy = copied_with_times(pair).world
    due = []
    for _ in range(2):
        due.append(info(copy, None)[0]["status"])
        by_records(copy, locate="provenance")
    assert due == ["unproven", "good"]
    assert info(copy, None)[0]["reason"] == "remembered check"
    status = copy.data.stat()
    in_place(pair.double.data, copy.data)
    set_back(copy.data, status)
    assert info(copy, None)[0]["status"] == "unproven"
    outcome = Outcome(World(copy.folder, pair.double.values), DIGEST)
    for read in SURFACES:
        with pytest.raises(StaleError, match=DIGEST):
            read(outcome.world, locate="provenance")
        with pytest.warns(UserWarning, match=DIGEST):
            read(outcome.world)
    # A refused file is not remembered as good; the good one is, when it comes back.
    assert info(copy, None)[0]["status"] == "unproven"


def test_what_other_databases_gave_is_not_remembered_for_this_one(pair: Pair) -> None:
    """Two files, one provenance file: a check of the one says nothing of the other."""
    os.utime(pair.world.data)
    by_records(pair.world, locate="provenance")
    with pytest.raises(StaleError, match=DIGEST):
        by_records(pair.double, locate="provenance", provenance=pair.world.sidecar)


# --- while it is open ----------------------------------------------------------------------


def opened(world: World) -> Iterator[Callable[[], None]]:
    """Surfaces on an open file: each call reads something more, and right."""
    order = iter(random.Random(5).sample(range(COUNT), COUNT))

    with lmdbio.Records(world.folder, locate="provenance") as records:

        def single() -> None:
            i = next(order)
            assert records[i] == world.values[i]

        def batch() -> None:
            some = [next(order) for _ in range(5)]
            found = [bytes(view) for view in records.read(np.array(some))]
            assert found == [world.values[i] for i in some]

        def sliced() -> None:
            i = next(order)
            assert records[i : i + 3] == world.values[i : i + 3]

        for way in (single, batch, sliced):
            way()
            yield way
    with lmdbio.Reader(world.folder, 16, mode="LMM-DIO-PROV") as reader:

        def batches() -> None:
            for _ in range(4):  # those that were read ahead are right, too
                indices = (batch := next(reader)).indices.tolist()
                assert [bytes(view) for view in batch] == [world.values[i] for i in indices]

        batches()
        yield batches
    with lmdbio.open(str(world.folder), readonly=True, lock=False) as env, env.begin() as txn:

        def get() -> None:
            i = next(order)
            assert txn.get(b"%08d" % i) == world.values[i]

        get()
        yield get


GONE = r"changed while it was read|is gone: another file|is no longer protected"
#: A reader that is just reading ahead may find it empty.
OVERWRITTEN = GONE + "|the file ends too early|was cut"


@pytest.mark.parametrize("way", [by_rename, made_again], ids=lambda way: way.__name__)
def test_a_file_replaced_while_it_is_open_is_read_on(
    way: Callable[[Path, Path], None], pair: Pair
) -> None:
    kept = pair.world.folder.parent / "kept.mdb"
    os.link(pair.world.data, kept)
    for read in opened(pair.world):
        way(pair.double.data, pair.world.data)
        read()
        pair.world.data.unlink()
        shutil.copy2(kept, pair.world.data)


def test_an_older_copy_written_over_an_open_file_is_refused(pair: Pair) -> None:
    """Transactions only grow, but for this: it must not pass for the state that was opened."""
    older = pair.world.folder.parent / "older.mdb"
    shutil.copy2(pair.world.data, older)
    world = pair.world
    for turn in range(3):
        tail = {
            COUNT + turn: b"tail" * 700,
            9: value(f"turn {turn}", 9, len(pair.world.values[9])),
        }
        world = commit(world, pair.version, tail)
    newer = pair.world.folder.parent / "newer.mdb"
    shutil.copyfile(world.data, newer)
    _convert_any(pair)
    for read in opened(world):
        in_place(older, world.data)
        with pytest.raises(Error, match=OVERWRITTEN):
            while True:
                read()
        in_place(newer, world.data)


@pytest.mark.parametrize("more", [0, 1], ids=["as many commits", "one more"])
def test_another_database_written_over_an_open_one_is_refused(more: int, pair: Pair) -> None:
    """Its writer has counted as far, and that is all that both have in common."""
    kept = pair.world.folder.parent / "kept.mdb"
    shutil.copyfile(pair.world.data, kept)
    other = make(pair.world.folder.parent / "other", pair.version, pair.form, "other", longer=5000)
    if more:
        commit(other, pair.version, {9: b"anything"})
    with _core.Engine(other.data) as a, _core.Engine(kept) as b:
        assert _core.read_meta(a).txnid == _core.read_meta(b).txnid + more
    for read in opened(pair.world):
        in_place(other.data, pair.world.data)
        with pytest.raises(Error, match=OVERWRITTEN):
            while True:
                read()
        in_place(kept, pair.world.data)


def test_one_commit_is_borne_and_two_are_refused(pair: Pair) -> None:
    kept = pair.world.folder.parent / "kept.mdb"
    shutil.copyfile(pair.world.data, kept)
    for read in opened(pair.world):
        commit(pair.world, pair.version, dict.fromkeys(range(0, COUNT, 2), b"other" * 700))
        read()
        for _ in range(3):
            commit(pair.world, pair.version, dict.fromkeys(range(0, COUNT, 2), b"other" * 690))
        with pytest.raises(Error, match=GONE):
            while True:
                read()
        in_place(kept, pair.world.data)


def test_every_check_is_one_of_three(pair: Pair) -> None:
    with _core.Engine(pair.world.data) as engine, Provenance.open(pair.world.sidecar) as opened:
        with pytest.raises(ValueError, match="check must be one of fast, deep, always"):
            freshness.deep_check(engine, opened, "never")  # type: ignore[arg-type]
