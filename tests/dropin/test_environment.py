"""``lmdbio.open`` beside writers, other openers, forks and damage.

Goal: what comparing two packages on a sound, quiet file cannot show (dropin/test_differential.py
does that). Method: writers are py-lmdb in a child process, or in this one; damage is made byte
by byte in copies of small databases; every refusal must be of the ``lmdb.Error`` family or an
``OSError``, and a hang or a signal fails the run.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import lmdb
import pytest

from lmdbio.dropin import environment as lmdbio_env
from lmdbio.system import reader_slots
from tests.support import databases

every_format = pytest.mark.parametrize("version", databases.FORMATS)


def test_environments_and_transactions_print_what_they_are_of(path: Path) -> None:
    env = lmdbio_env.open(str(path), readonly=True)
    assert repr(env) == f"<Environment of {str(path)!r}: 300 entries, readonly>"
    txn = env.begin()
    assert repr(txn) == f"<Transaction on state {txn.id()} of {str(path)!r}>"
    txn.abort()
    assert repr(txn) == "<Transaction: ended>"
    data = next(path.glob("data.mdb"))
    os.truncate(data, 100)
    assert repr(env).startswith(f"<Environment of {str(path)!r}: ")
    env.close()
    assert repr(env) == f"<Environment of {str(path)!r}: closed, or not readable>"


def records(count: int, tag: bytes = b"") -> list[tuple[bytes, bytes]]:
    return [(b"%08d" % i, tag + databases.value(i, 3000 if i % 2 else 60)) for i in range(count)]


@pytest.fixture(params=databases.FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An environment of 300 records."""
    folder = tmp_path / "env"
    with databases.open_writable(folder, request.param) as env:
        databases.write(env, records(300))
    return folder


WRITER = """
import sys, lmdb
env = lmdb.open(sys.argv[1], map_size=1 << 28, max_dbs=8)
for turn in range(int(sys.argv[2])):
    with env.begin(write=True) as txn:
        for i in range(300):
            txn.put(b"%08d" % i, (b"turn %d " % turn) * 300)
"""


def commit(path: Path, turns: int) -> None:
    """A writer in another process overwrites every record ``turns`` times."""
    subprocess.run([sys.executable, "-c", WRITER, str(path), str(turns)], check=True, timeout=60)


# --- opening -----------------------------------------------------------------------------


def test_a_writable_open_is_py_lmdbs_own(tmp_path):
    with lmdbio_env.open(str(tmp_path / "new"), map_size=1 << 20) as env:
        assert isinstance(env, lmdb.Environment)
        with env.begin(write=True) as txn:
            assert txn.put(b"a", b"b")


def test_every_keyword_of_lmdb_open_is_taken(path):
    keywords: dict[str, Any] = {
        "map_size": 1 << 26,
        "subdir": True,
        "metasync": False,
        "sync": False,
        "map_async": True,
        "mode": 0o644,
        "create": False,
        "readahead": False,
        "writemap": True,
        "meminit": False,
        "max_readers": 7,
        "max_dbs": 3,
        "max_spare_txns": 2,
        "lock": False,
    }
    with lmdbio_env.open(str(path), readonly=True, **keywords) as ours:
        flags, info = ours.flags(), ours.info()
    with lmdb.open(str(path), readonly=True, **keywords) as theirs:
        assert flags == theirs.flags()
        assert info["map_size"] == theirs.info()["map_size"]
    with lmdbio_env.open(str(path), 1 << 26, True, True) as env:
        assert isinstance(env, lmdbio_env.Environment)


@every_format
def test_lib_version_must_fit_the_file(tmp_path, version):
    folder = tmp_path / "env"
    databases.open_writable(folder, version).close()
    right, wrong = (0, 1) if version == 1 else (1, 0)
    lmdbio_env.open(str(folder), readonly=True, lock=False, lib_version=right).close()
    with pytest.raises(lmdb.InvalidError):
        lmdbio_env.open(str(folder), readonly=True, lock=False, lib_version=wrong)
    with pytest.raises(lmdb.Error):
        lmdbio_env.open(str(folder), readonly=True, lock=False, lib_version=9)


def test_a_missing_file_raises_as_in_py_lmdb(tmp_path):
    for subdir in (True, False):
        with pytest.raises(lmdb.Error) as raised:
            lmdbio_env.open(str(tmp_path / "none"), readonly=True, subdir=subdir)
        assert raised.value.code == 2
        assert str(tmp_path / "none") in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_file_may_be_opened_many_times_in_one_process(path):
    envs = [lmdbio_env.open(str(path), readonly=True) for _ in range(3)]
    txns = [env.begin() for env in envs]
    assert {txn.get(b"00000007") for txn in txns} == {records(8)[7][1]}
    envs[0].close()
    assert txns[1].get(b"00000008") == records(9)[8][1]
    for env in envs:
        env.close()
    lmdb.open(str(path), readonly=True).close()


def test_single_file_environments_open(tmp_path):
    file = tmp_path / "single.lmdb"
    with lmdb.open(str(file), subdir=False) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    for lock in (True, False):
        with lmdbio_env.open(str(file), subdir=False, readonly=True, lock=lock) as env:
            assert env.begin().get(b"a") == b"b"


@pytest.mark.parametrize("kind", ["pread", "direct", "mmap"])
def test_every_engine_gives_the_same_records(path, kind):
    try:
        env = lmdbio_env.open(str(path), readonly=True, lock=False, engine=kind)
    except lmdb.Error as error:
        if kind != "direct":
            raise
        pytest.skip(f"no O_DIRECT here: {error}")
    with env, env.begin() as txn:
        assert list(txn.cursor()) == records(300)
        assert [txn.get(key) for key, _ in records(300)] == [data for _, data in records(300)]


@every_format
@pytest.mark.parametrize("advised", [False, True])
@pytest.mark.parametrize("block_bytes_max", [1, 5000, 1 << 20])
def test_blocks_of_any_size_give_the_same_records(tmp_path, version, advised, block_bytes_max):
    case = next(c for c in databases.CASES if c.name == "mixed")
    folder = databases.build(case, tmp_path, version)
    for kind in ("pread", "mmap"):
        with lmdbio_env.open(
            str(folder), readonly=True, lock=False, block_bytes_max=block_bytes_max, engine=kind
        ) as env:
            env._file.advised = advised
            with env.begin() as txn:
                assert list(txn.cursor()) == databases.content(folder)


def test_keys_alone_read_no_values(tmp_path):
    folder = tmp_path / "env"
    with databases.open_writable(folder, 1) as env:
        databases.write(env, [(b"%08d" % i, bytes(100_000)) for i in range(200)])
    with lmdbio_env.open(str(folder), readonly=True, lock=False) as env, env.begin() as txn:
        before = env._file.engine.counts().bytes
        assert len(list(txn.cursor().iternext(values=False))) == 200
        assert env._file.engine.counts().bytes - before < 100_000
        cursor = txn.cursor()
        while cursor.next():
            cursor.key()
        assert env._file.engine.counts().bytes - before < 200_000


def test_a_short_look_reads_little(tmp_path):
    folder = tmp_path / "env"
    with databases.open_writable(folder, 1) as env:
        databases.write(env, [(b"%08d" % i, bytes(3000)) for i in range(5000)])
    with lmdbio_env.open(str(folder), readonly=True, lock=False) as env, env.begin() as txn:
        before = env._file.engine.counts().bytes
        for number, _ in enumerate(txn.cursor()):
            if number == 20:
                break
        assert env._file.engine.counts().bytes - before < 400_000


# --- snapshots ---------------------------------------------------------------------------


def test_a_locked_snapshot_survives_many_commits(path):
    with lmdbio_env.open(str(path), readonly=True) as env:
        old = env.begin()
        commit(path, 6)
        assert list(old.cursor()) == records(300)
        with env.begin() as new:
            assert new.id() == old.id() + 6
            assert new.get(b"00000005") == b"turn 5 " * 300
        assert old.get(b"00000005") == records(6)[5][1]
        old.abort()


def test_a_locked_iteration_goes_on_beside_a_writer(path):
    with lmdbio_env.open(str(path), readonly=True) as env, env.begin() as txn:
        iterator = iter(txn.cursor())
        seen = [next(iterator) for _ in range(40)]
        commit(path, 5)
        assert seen + list(iterator) == records(300)


def test_without_locks_an_overwritten_snapshot_is_refused(path):
    with lmdbio_env.open(str(path), readonly=True, lock=False) as env:
        old = env.begin()
        assert old.get(b"00000005") == records(6)[5][1]
        iterator = iter(old.cursor())
        next(iterator)
        commit(path, 5)
        for call in (
            lambda: old.get(b"00000200"),
            lambda: list(iterator),
            lambda: old.cursor().last(),
            lambda: list(old.cursor()),
        ):
            with pytest.raises(lmdb.Error, match="no longer protected"):
                call()
        with env.begin() as new:
            assert new.get(b"00000200") == b"turn 4 " * 300


def test_without_locks_one_commit_does_no_harm(path):
    with lmdbio_env.open(str(path), readonly=True, lock=False) as env:
        old = env.begin()
        commit(path, 1)
        assert list(old.cursor()) == records(300)
        assert env.begin().get(b"00000001") == b"turn 0 " * 300


def test_a_process_that_has_the_file_open_in_py_lmdb_reads_unprotected(path):
    with lmdb.open(str(path), map_size=1 << 28) as theirs:
        with lmdbio_env.open(str(path), readonly=True) as env:
            old = env.begin()
            assert old.get(b"00000005") == records(6)[5][1]
            for turn in range(4):
                with theirs.begin(write=True) as txn:
                    txn.put(b"00000005", b"%d" % turn)
            assert env.begin().get(b"00000005") == b"3"
            with pytest.raises(lmdb.Error, match="no longer protected"):
                old.cursor().last()


def test_reader_slots_are_counted_and_freed(path):
    (path / "lock.mdb").unlink()  # or its size would say how many there are
    with lmdbio_env.open(str(path), readonly=True, max_readers=3) as env:
        txns = [env.begin() for _ in range(3)]
        with pytest.raises(lmdb.ReadersFullError):
            env.begin()
        assert str(os.getpid()) in env.readers()
        txns.pop().abort()
        env.begin().abort()
        txns.clear()
        gc.collect()
        assert env.readers() == "(no active readers)\n"
        assert env.max_readers() == 3
    assert not reader_slots._shared


def test_an_environment_that_is_forgotten_frees_its_slots(path):
    env = lmdbio_env.open(str(path), readonly=True)
    txn = env.begin()
    del env
    assert txn.get(b"00000001") == records(2)[1][1]
    del txn
    gc.collect()
    assert not reader_slots._shared


def test_without_write_permission_it_reads_without_a_lock_file(path, monkeypatch):
    (path / "lock.mdb").unlink()

    def refuse(*_: Any, **__: Any) -> Any:
        error = lmdb.ReadonlyError("denied")
        error.code = 13
        raise error

    monkeypatch.setattr(lmdb, "open", refuse)
    with lmdbio_env.open(str(path), readonly=True) as env:
        assert list(env.begin().cursor()) == records(300)
        assert env.readers() == "(no reader locks)\n"
    assert not (path / "lock.mdb").exists()


READS = """
import sys, lmdbio, os
# Of Python, all is loaded before this is somebody else, who may not see where it lies.
lmdbio.open(sys.argv[3], readonly=True).close()
lmdbio.Records(sys.argv[3]).close()
if sys.argv[2] == "nobody" and os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
with lmdbio.open(sys.argv[1], readonly=True) as env, env.begin() as txn:
    found = [bytes(data) for _, data in txn.cursor()]
    assert env.readers() == "(no reader locks)\\n", env.readers()
with lmdbio.Records(sys.argv[1]) as records:
    assert list(records) == found
print(len(found), *sorted(os.listdir(sys.argv[1])))
"""


@pytest.mark.parametrize("lock_file", [True, False])
@pytest.mark.parametrize("how", ["nobody", "mount"])
def test_what_cannot_be_written_to_is_read_without_an_option(path, lock_file, how):
    """A folder that belongs to others, and a file system that is mounted read-only."""
    if not lock_file:
        (path / "lock.mdb").unlink()
    names = sorted(one.name for one in path.iterdir())
    with tempfile.TemporaryDirectory() as folder:
        there = shutil.copytree(path, Path(folder) / "env")
        Path(folder).chmod(0o755)
        for one in (*there.iterdir(), there):
            one.chmod(one.stat().st_mode & ~0o222 | 0o444)
        command = [sys.executable, "-c", READS, str(there), how, str(path)]
        if how == "mount":
            mounted = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
            command = ["unshare", "-rm", "sh", "-c", mounted, str(there), *command]
            tried = subprocess.run(["unshare", "-rm", "true"], capture_output=True, text=True)
            if tried.returncode:
                pytest.skip(f"no mounts of its own for a test: {tried.stderr.strip()}")
        told = subprocess.run(command, capture_output=True, text=True, timeout=60)
        there.chmod(0o755)
    assert told.stdout.split() == ["300", *names], told.stderr


def test_lock_false_makes_no_lock_file(path):
    (path / "lock.mdb").unlink()
    with lmdbio_env.open(str(path), readonly=True, lock=False) as env:
        assert list(env.begin().cursor()) == records(300)
    assert not (path / "lock.mdb").exists()


# --- processes and threads ---------------------------------------------------------------


def in_child(work: Any) -> None:
    """Runs ``work`` in a forked child; its failure is ours."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0


@pytest.mark.parametrize("lock", [True, False])
def test_what_a_fork_inherits_goes_on_working(path, lock):
    env = lmdbio_env.open(str(path), readonly=True, lock=lock)
    txn = env.begin()
    iterator = iter(txn.cursor())
    seen = [next(iterator) for _ in range(25)]

    def work() -> None:
        assert txn.get(b"00000100") == records(101)[100][1]
        assert seen + list(iterator) == records(300)
        with env.begin() as own:
            assert list(own.cursor()) == records(300)
        txn.abort()
        env.close()

    in_child(work)
    if lock:
        assert str(os.getpid()) in env.readers()
        commit(path, 4)
    assert seen + list(iterator) == records(300)
    env.close()


def test_threads_share_a_transaction_and_a_cursor(path):
    expected = dict(records(300))
    failures: list[BaseException] = []
    with lmdbio_env.open(str(path), readonly=True, cache_bytes=1) as env, env.begin() as txn:
        shared = txn.cursor()

        def work(seed: int) -> None:
            draw = random.Random(seed)
            try:
                for _ in range(150):
                    key = b"%08d" % draw.randrange(300)
                    assert txn.get(key) == expected[key]
                    shared.set_key(key)
                    shared.next()
                    shared.item()
                assert list(txn.cursor()) == records(300)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not failures


@pytest.mark.parametrize("block_bytes_max", [4000, 1 << 20])
def test_threads_that_share_an_iterator_or_end_it_do_not_crash(path, block_bytes_max):
    expected = dict(records(300))
    for turn in range(15):
        env = lmdbio_env.open(
            str(path), readonly=True, cache_bytes=1, block_bytes_max=block_bytes_max
        )
        txn = env.begin()
        iterator = iter(txn.cursor())
        wrong: list[Any] = []
        seen: list[bytes] = []

        def work(
            iterator: Any = iterator, wrong: list[Any] = wrong, seen: list[bytes] = seen
        ) -> None:
            try:
                for key, data in iterator:
                    seen.append(key)
                    if expected[key] != data:
                        wrong.append(key)
            except lmdb.Error:
                pass  # ended in mid-iteration
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        if turn % 3 == 1:
            txn.abort()
        elif turn % 3 == 2:
            env.close()
        for thread in threads:
            thread.join(60)
        assert not wrong
        if turn % 3 == 0:
            assert sorted(seen) == sorted(expected)
        env.close()


def test_an_environment_can_be_pickled(path):
    with lmdbio_env.open(str(path), readonly=True, max_dbs=3, map_size=1 << 25) as env:
        with pickle.loads(pickle.dumps(env)) as copy:
            assert (copy.path(), copy.flags(), copy.info()) == (
                env.path(),
                env.flags(),
                env.info(),
            )
            assert list(copy.begin().cursor()) == records(300)


def test_buffers_stay_readable(path):
    with lmdbio_env.open(str(path), readonly=True) as env:
        with env.begin(buffers=True) as txn:
            views = [data for _, data in txn.cursor()]
            assert all(view.readonly and view.format == "B" for view in views)
        assert [bytes(view) for view in views] == [data for _, data in records(300)]


# --- damage ------------------------------------------------------------------------------


def read_everything(folder: Path) -> int:
    """Reads a database in every way; the number of records."""
    with lmdbio_env.open(str(folder), readonly=True, lock=False, max_dbs=8) as env:
        names = [None, *env.dbs()]
        total = 0
        for name in names:
            db = None if name is None else env.open_db(name, create=False)
            with env.begin(db=db) as txn:
                found = list(txn.cursor())
                total += len(found)
                txn.cursor().last()
                for key in txn.cursor().iterprev(values=False):
                    txn.get(key)
        return total


@every_format
@pytest.mark.parametrize("name", ["mixed", "deep", "named", "duplicates"])
def test_truncated_files_are_refused(tmp_path, version, name):
    case = next(c for c in databases.CASES if c.name == name)
    folder = databases.build(case, tmp_path, version)
    content = (folder / "data.mdb").read_bytes()
    draw = random.Random(f"{name}{version}")
    lengths = [0, 1, 15, 100, 4095, 4096, 8191, 8192, 8193]
    lengths += [draw.randrange(8192, len(content)) for _ in range(10)]
    for length in lengths:
        (folder / "data.mdb").write_bytes(content[:length])
        try:
            read_everything(folder)
        except (lmdb.Error, OSError) as error:
            assert "data.mdb" in str(error), error


@every_format
@pytest.mark.parametrize("name", ["mixed", "deep", "named", "duplicates", "deleted"])
def test_flipped_bytes_never_crash_or_hang(tmp_path, version, name):
    case = next(c for c in databases.CASES if c.name == name)
    folder = databases.build(case, tmp_path, version)
    content = (folder / "data.mdb").read_bytes()
    draw = random.Random(f"flip{name}{version}")
    pages = range(0, len(content), 4096)
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(draw.randrange(1, 6)):
            at = draw.choice(pages) + draw.randrange(0, 200)
            if at < len(damaged):
                damaged[at] = draw.choice((0, 1, 2, 4, 16, 0x7F, 0xFF, draw.randrange(256)))
        databases.overwrite(folder / "data.mdb", damaged)
        try:
            read_everything(folder)
        except (lmdb.Error, OSError) as error:
            assert str(error)


def test_a_file_cut_under_an_open_environment_is_an_error_not_a_signal(path):
    with lmdbio_env.open(str(path), readonly=True, lock=False, cache_bytes=1) as env:
        txn = env.begin()
        os.truncate(path / "data.mdb", 8192)
        with pytest.raises((lmdb.Error, OSError)):
            list(txn.cursor())


def test_what_is_no_database_is_refused_by_name(tmp_path):
    for name, content in (("junk", b"hello" * 5000), ("zeros", bytes(20_000)), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        for lock in (True, False):
            with pytest.raises(lmdb.Error, match=name):
                lmdbio_env.open(str(tmp_path / name), subdir=False, readonly=True, lock=lock)
        assert not (tmp_path / f"{name}-lock").exists()
    shutil.rmtree(tmp_path / "folder", ignore_errors=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(lmdb.Error):
        lmdbio_env.open(str(tmp_path / "folder"), subdir=False, readonly=True)
