"""The same calls on lmdb and on lmdbio must end alike.

Goal: results, positions and exceptions equal py-lmdb's, on every shape of database, in both
data formats, with ``buffers`` on and off.
Method: each call is made on both sides and its outcome (result, or class and code of the
exception) compared; after each move the position is compared too. Tables of calls for what is
easy to get wrong, then sequences drawn by hypothesis. Moves whose outcome py-lmdb leaves
undefined are not drawn: stepping by duplicates after a failed search (it reads past the page).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import lmdb
import pytest
from hypothesis import HealthCheck, given, settings

from lmdbio.dropin import environment as lmdbio_env
from tests.support import databases, long_run

SIDES = (lmdb.open, lmdbio_env.open)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Databases by name of the case, each written once."""
    folder = tmp_path_factory.mktemp("databases")
    made: dict[tuple[str, int], Path] = {}
    cases = {case.name: case for case in databases.CASES}

    def get(name: str, version: int) -> Path:
        if (name, version) not in made:
            made[name, version] = databases.build(cases[name], folder, version)
        return made[name, version]

    return get


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call did, in a form that can be compared across the two packages."""
    try:
        return plain(call())
    except lmdb.Error as error:
        return type(error), getattr(error, "code", None)
    except StopIteration:
        return StopIteration
    except (TypeError, ValueError, OverflowError) as error:
        return type(error)


def plain(result: Any) -> Any:
    if isinstance(result, memoryview):
        return "view", result.readonly, result.format, bytes(result)
    if isinstance(result, (tuple, list)):
        return type(result), [plain(part) for part in result]
    return result


@dataclass
class Pair:
    """One cursor on each side."""

    txns: tuple[Any, Any]
    cursors: tuple[Any, Any]

    def same(self, call: Callable[[Any], Any], what: str) -> Any:
        theirs, ours = (outcome(lambda c=c: call(c)) for c in self.cursors)
        assert ours == theirs, what
        return theirs

    def same_place(self, what: str) -> None:
        self.same(lambda c: c.key(), f"key after {what}")
        self.same(lambda c: c.value(), f"value after {what}")
        self.same(lambda c: c.item(), f"item after {what}")


class Opened:
    """Both packages on one environment, without locks, so that they do not meet."""

    def __init__(self, path: Path, **kwargs: Any) -> None:
        kwargs.setdefault("lock", False)
        self.envs = tuple(open_(str(path), readonly=True, max_dbs=8, **kwargs) for open_ in SIDES)

    def pair(self, name: bytes | None = None, buffers: bool = False) -> Pair:
        txns, cursors = [], []
        for env in self.envs:
            db = None if name is None else env.open_db(name, create=False)
            txns.append(env.begin(db=db, buffers=buffers))
            cursors.append(txns[-1].cursor())
        return Pair(tuple(txns), tuple(cursors))

    def same(self, call: Callable[[Any], Any]) -> Any:
        theirs, ours = (outcome(lambda e=e: call(e)) for e in self.envs)
        assert ours == theirs
        return theirs

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        for env in self.envs:
            env.close()


PLACES = [(case, db) for case in databases.CASES for db in (None, *case.databases)]
every_place = pytest.mark.parametrize(
    ("case", "db"), PLACES, ids=[f"{c.name}-{(d or b'main').decode()}" for c, d in PLACES]
)
every_format = pytest.mark.parametrize("version", databases.FORMATS)
both_kinds = pytest.mark.parametrize("buffers", [False, True], ids=["bytes", "buffers"])

ITERATORS = (
    "iternext",
    "iternext_dup",
    "iternext_nodup",
    "iterprev",
    "iterprev_dup",
    "iterprev_nodup",
)
MOVES = (
    "first",
    "last",
    "next",
    "prev",
    "next_nodup",
    "prev_nodup",
    "next_dup",
    "prev_dup",
    "first_dup",
    "last_dup",
)


@every_format
@both_kinds
@every_place
def test_iteration_is_equal(built, case, db, version, buffers):
    with Opened(built(case.name, version)) as opened:
        for name in ITERATORS:
            for flags in (
                {},
                {"values": False},
                {"keys": False},
                {"keys": False, "values": False},
                {"keys": True, "values": True},
            ):
                pair = opened.pair(db, buffers)
                pair.same(lambda c, n=name, f=flags: list(getattr(c, n)(**f)), f"{name} {flags}")
                pair.same_place(f"{name} {flags}")
                pair.same(lambda c: c.prev(), f"prev after {name}")
                pair.same_place(f"prev after {name}")


@every_format
@both_kinds
@every_place
def test_lookups_are_equal(built, case, db, version, buffers):
    path = built(case.name, version)
    known = [key for key, _ in databases.content(path, db)]
    draw = random.Random(f"{case.name}{db!r}{version}")
    wanted = [*draw.sample(known, min(len(known), 60)), b"\0", b"\xff" * 8, b"0" * 511]
    wanted += [key[:-1] + bytes([key[-1] ^ 1]) for key in wanted[:30]]
    if db is not None and db.startswith(b"integer"):
        wanted = [key for key in wanted if len(key) == 8]  # LMDB compares 8 bytes unasked
    with Opened(path) as opened:
        pair = opened.pair(db, buffers)
        for key in wanted:
            assert outcome(lambda k=key: pair.txns[0].get(k)) == outcome(
                lambda k=key: pair.txns[1].get(k)
            )
            for name in ("set_key", "set_range", "get"):
                pair.same(lambda c, n=name, k=key: getattr(c, n)(k), f"{name}({key!r})")
                pair.same_place(f"{name}({key!r})")
        pair.same(lambda c: c.getmulti(wanted), "getmulti")
        pair.same(lambda c: c.getmulti(wanted, values=False), "getmulti of keys")


@every_format
@every_place
def test_statistics_and_flags_are_equal(built, case, db, version):
    with Opened(built(case.name, version)) as opened:
        opened.same(lambda e: e.stat())
        opened.same(lambda e: e.flags())
        opened.same(lambda e: e.path())
        opened.same(lambda e: e.dbs())
        opened.same(lambda e: e.max_key_size())
        opened.same(lambda e: e.max_readers())
        opened.same(lambda e: e.readers())
        opened.same(lambda e: e.reader_check())
        opened.same(lambda e: e.lib_version())
        opened.same(lambda e: {k: v for k, v in e.info().items() if k != "map_addr"})
        opened.same(lambda e: e.begin().id())
        if db is not None:
            opened.same(lambda e: e.open_db(db).flags())
            opened.same(lambda e: e.begin().stat(e.open_db(db)))
            opened.same(lambda e: e.begin(db=e.open_db(db)).stat())


# --- what is easy to get wrong -----------------------------------------------------------

SEQUENCES: dict[str, tuple[str, ...]] = {
    "after last and a failed next, prev gives the last but one": ("last", "next", "prev"),
    "after first and a failed prev, next gives the second": ("first", "prev", "next"),
    "next on a fresh cursor is first": ("next", "next"),
    "prev on a fresh cursor is last": ("prev", "prev"),
    "prev after set_range past the end": ("set_range_end", "prev", "next"),
    "next after set_range past the end": ("set_range_end", "next"),
    "next_dup on a plain database is next": ("first", "next_dup", "next_dup", "prev_dup"),
    "duplicates of a fresh cursor": ("first_dup", "last_dup", "count"),
    "duplicates of a placed cursor": ("first", "last_dup", "first_dup", "count"),
    "set_range of nothing is first": ("set_range_empty", "next"),
    "an empty key": ("set_key_empty", "next"),
    "the end twice": ("last", "next", "next", "prev", "prev"),
    "the start twice": ("first", "prev", "prev", "next", "next"),
}
SPECIAL: dict[str, Callable[[Any], Any]] = {
    "set_range_end": lambda c: c.set_range(b"\xff" * 20),
    "set_range_empty": lambda c: c.set_range(b""),
    "set_key_empty": lambda c: c.set_key(b""),
}


@every_format
@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=list(SEQUENCES))
@every_place
def test_positions_after_failed_moves_are_equal(built, case, db, version, sequence):
    with Opened(built(case.name, version)) as opened:
        pair = opened.pair(db)
        for step in sequence:
            pair.same(SPECIAL.get(step, lambda c, s=step: getattr(c, s)()), step)
            pair.same_place(step)


@every_format
def test_iterators_share_the_cursor_and_revive_when_it_moves(built, version):
    with Opened(built("mixed", version)) as opened:
        pair = opened.pair()
        iterators = [c.iternext() for c in pair.cursors]
        theirs, ours = ([plain(next(i)) for _ in range(40)] for i in iterators)
        assert ours == theirs
        pair.same_place("forty steps")
        pair.same(lambda c: c.next(), "next in mid-iteration")
        assert plain(next(iterators[1])) == plain(next(iterators[0]))
        pair.same(lambda c: c.set_key(b"00000250"), "a jump in mid-iteration")
        theirs, ours = (plain(list(i)) for i in iterators)
        assert ours == theirs
        assert [outcome(lambda i=i: next(i)) for i in iterators] == [StopIteration] * 2
        pair.same(lambda c: c.set_key(b"00000290"), "a jump after the end")
        theirs, ours = (plain(list(i)) for i in iterators)
        assert ours == theirs and len(ours[1]) == 9
        for other in ("iternext", "iterprev"):
            pair.same(lambda c, o=other: next(getattr(c, o)()), f"{other} after the end")


@every_format
def test_two_iterators_on_one_cursor_interleave_alike(built, version):
    with Opened(built("inline", version)) as opened:
        pair = opened.pair()
        lists = []
        for cursor in pair.cursors:
            forward, keys = cursor.iternext(), cursor.iternext(values=False)
            seen = [next(forward) for _ in range(100)]
            seen += [next(i) for _ in range(50) for i in (forward, keys)]
            seen += [next(keys) for _ in range(100)]
            back = cursor.iterprev()
            seen += [next(back) for _ in range(100)] + [next(forward) for _ in range(20)]
            lists.append(seen)
        assert lists[0] == lists[1]


@every_format
@pytest.mark.parametrize("flags", [{}, {"values": False}, {"keys": False}])
def test_the_position_follows_a_running_iterator(built, version, flags):
    with Opened(built("overflow", version)) as opened:
        pair = opened.pair()
        for number, both in enumerate(
            zip(*(c.iternext(**flags) for c in pair.cursors), strict=True)
        ):
            assert both[0] == both[1]
            if number % 7 == 0:
                pair.same(lambda c: c.key(), "key")
            if number % 31 == 0:
                pair.same_place(str(number))


@every_format
def test_bad_arguments_raise_alike(built, version):
    with Opened(built("named", version)) as opened:
        for bad in ("text", None, 5, 1.5, [b"a"]):
            opened.same(lambda e, b=bad: e.begin().get(b))
            opened.same(lambda e, b=bad: e.begin().cursor().set_key(b))
            opened.same(lambda e, b=bad: e.begin().cursor().set_range(b))
            opened.same(lambda e, b=bad: e.begin().cursor().get(b))
        for good in (bytearray(b"00000001"), memoryview(b"x00000001")[1:]):
            assert opened.same(lambda e, g=good: e.begin().get(g))
        opened.same(lambda e: e.begin().get(b""))
        opened.same(lambda e: e.begin().get(b"missing", 7))
        opened.same(lambda e: e.begin().get(b"k" * 600))
        opened.same(lambda e: e.begin().get(b"00000001", db="text"))
        opened.same(lambda e: e.begin().cursor("text"))
        opened.same(lambda e: e.begin(db=5))
        for name in (b"missing", b"", b"00000001", b"alpha\0tail", "text", 5):
            for create in (True, False):
                opened.same(lambda e, n=name, c=create: e.open_db(n, create=c).flags())
        opened.same(lambda e: e.open_db(None, dupsort=True))
        opened.same(lambda e: e.open_db(b"alpha", dupsort=True).flags())


@every_format
def test_writing_is_refused_alike(built, version):
    calls: list[Callable[[Any], Any]] = [
        lambda e: e.sync(),
        lambda e: e.begin(write=True),
        lambda e: e.begin().put(b"a", b"b"),
        lambda e: e.begin().replace(b"a", b"b"),
        lambda e: e.begin().delete(b"00000001"),
        lambda e: e.begin().pop(b"00000001"),
        lambda e: e.begin().pop(b"missing"),
        lambda e: e.open_db(b"alpha") and e.begin().drop(e.open_db(b"alpha")),
        lambda e: e.begin().cursor().put(b"a", b"b"),
        lambda e: e.begin().cursor().replace(b"a", b"b"),
        lambda e: e.begin().cursor().putmulti([(b"a", b"b")]),
        lambda e: e.begin().cursor().putmulti([]),
        lambda e: e.begin().cursor().pop(b"00000001"),
        lambda e: e.begin().cursor().pop(b"missing"),
        lambda e: e.begin().cursor().delete(),
        lambda e: next(e.begin().cursor().iternext()) and e.begin().cursor().delete(),
    ]
    with Opened(built("named", version)) as opened:
        for call in calls:
            opened.same(call)


@every_format
def test_ended_objects_raise_alike(built, version):
    def ended(env: Any) -> list[Any]:
        txn = env.begin()
        cursor = txn.cursor()
        iterator = cursor.iternext()
        first = next(iterator)
        txn.commit()
        seen = [first]
        for call in (
            txn.commit,
            txn.abort,
            txn.abort,
            txn.id,
            txn.stat,
            txn.cursor,
            lambda: txn.get(b"a"),
            cursor.key,
            cursor.value,
            cursor.item,
            cursor.next,
            cursor.first,
            cursor.iternext,
            cursor.close,
            lambda: next(iterator),
            txn.__enter__,
        ):
            seen.append(outcome(call))
        return seen

    def shut(env: Any) -> list[Any]:
        db, txn = env.open_db(), env.begin()
        env.close()
        return [
            outcome(call)
            for call in (
                env.close,
                env.stat,
                env.info,
                env.flags,
                env.path,
                env.begin,
                env.max_key_size,
                env.max_readers,
                env.readers,
                env.reader_check,
                env.sync,
                env.dbs,
                env.open_db,
                env.lib_version,
                db.flags,
                txn.abort,
                txn.commit,
                txn.id,
            )
        ]

    with Opened(built("named", version)) as opened:
        opened.same(ended)
        opened.same(shut)


# --- drawn sequences ---------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.sampled_from(MOVES)),
    st.tuples(st.sampled_from(MOVES)),
    st.tuples(
        st.sampled_from(("set_key", "set_range", "get")),
        st.integers(0, 10**6),
        st.sampled_from((b"", b"x", None)),
    ),
    st.tuples(
        st.sampled_from(("set_key_dup", "set_range_dup")),
        st.integers(0, 10**6),
        st.sampled_from((b"", b"x", None)),
    ),
    st.tuples(st.sampled_from(("count", "next_dup", "prev_dup"))),
    st.tuples(st.sampled_from(ITERATORS), st.integers(1, 40)),
    st.tuples(st.just("resume"), st.integers(1, 40)),
    st.tuples(st.just("getmulti"), st.lists(st.integers(0, 10**6), max_size=4)),
)
#: After a search that found nothing the cursor may stand behind a page's last node, where
#: py-lmdb reads what is not there when it is asked for duplicates.
SEARCHES = ("set_key", "set_range", "get", "set_key_dup", "set_range_dup", "getmulti")
PLACING = ("first", "last")


def steps_apply(
    pair: Pair, known: list[tuple[bytes, bytes]], steps: list[Any], has_dups: bool
) -> None:
    iterators: tuple[Iterator[Any], ...] | None = None
    lost = False
    for step in steps:
        name = step[0]
        if lost and has_dups and name not in PLACING:
            continue
        if name in ("next_dup", "prev_dup", "first_dup", "last_dup", "count") and lost:
            continue
        what = f"{step} in {steps}"
        if name in MOVES or name == "count":
            result = pair.same(lambda c, n=name: getattr(c, n)(), what)
            lost = lost and name not in PLACING
        elif name in ITERATORS:
            iterators = tuple(getattr(c, name)() for c in pair.cursors)
            theirs, ours = (
                [outcome(lambda i=i: next(i)) for _ in range(step[1])] for i in iterators
            )
            assert ours == theirs, what
            result = True
        elif name == "resume":
            if iterators is None:
                continue
            theirs, ours = (
                [outcome(lambda i=i: next(i)) for _ in range(step[1])] for i in iterators
            )
            assert ours == theirs, what
            result = True
        elif name == "getmulti":
            keys = [known[i % len(known)][0] for i in step[1]] if known else [b"k"]
            result = pair.same(lambda c, k=keys: c.getmulti(k, dupdata=has_dups), what)
            lost = True
        else:
            key, data = known[step[1] % len(known)] if known else (b"k", b"v")
            key = key if step[2] is None else key[:4] + step[2] if len(key) != 8 or True else key
            arguments = (key, data) if name.endswith("_dup") else (key,)
            result = pair.same(lambda c, n=name, a=arguments: getattr(c, n)(*a), what)
            lost = not result or result is False or isinstance(result, tuple)
        del result
        pair.same_place(what)


FUZZED = [
    (case, db) for case, db in PLACES if case.name not in ("integer_keys",) and db != b"integerdup"
]


@every_format
@pytest.mark.parametrize(
    ("case", "db"), FUZZED, ids=[f"{c.name}-{(d or b'main').decode()}" for c, d in FUZZED]
)
def test_any_sequence_of_calls_ends_alike(built, case, db, version):
    path = built(case.name, version)
    known = databases.content(path, db)

    with Opened(path) as opened:

        @settings(
            max_examples=long_run.cases(40),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(steps=st.lists(STEPS, min_size=1, max_size=25), buffers=st.booleans())
        def run(steps: list[Any], buffers: bool) -> None:
            has_dups = case.duplicates and db is not None
            steps_apply(opened.pair(db, buffers), known, steps, has_dups)

        run()
