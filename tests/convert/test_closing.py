"""No provenance file is left that lies, whatever closing meets.

Goal: after ``close`` of an environment that collects, a provenance file describes the newest
state, or there is none that passes its check, or a warning says why; and all records are there.
Method: closing is disturbed in every way that was thought of: open transactions, exceptions,
forks, threads, other writers, folders that moved or can't be written to, and processes killed at
any moment.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.convert import on_close
from lmdbio.convert.convert import convert
from lmdbio.errors import Error, ProvenanceError, StaleError
from tests.support import databases
from tests.support.collecting import (
    assert_described,
    assert_kept,
    every_format,
    names_in,
    open_collecting,
    put,
    sidecar_of,
)

#: A warning is an error, except where a test expects it.
pytestmark = pytest.mark.filterwarnings("error")

LIMIT_SECONDS = 60


# --- in bad circumstances ------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_to_is_a_warning(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path, provenance="/proc/self/x.prov")  # not even for root
    put(env, 0, 50)
    with pytest.warns(UserWarning, match=r"env/data\.mdb.*/proc/self.*lmdbio convert") as caught:
        env.close()
    assert caught[0].filename == __file__
    assert env.provenance_report is None
    assert env.provenance_note == str(caught[0].message)
    assert_kept(path, 50)


def test_a_file_that_is_no_provenance_file_stays_as_it_is(tmp_path):
    path, precious = tmp_path / "env", tmp_path / "precious"
    precious.write_bytes(b"a thesis")
    env = open_collecting(path, provenance=precious)
    put(env, 0, 50)
    with pytest.warns(UserWarning, match="is no provenance file"):
        env.close()
    assert precious.read_bytes() == b"a thesis"
    assert_kept(path, 50)


def test_the_database_is_not_taken_for_its_provenance_file(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path)
    env.close()
    sidecar_of(path).unlink()
    env = open_collecting(path, provenance=path / "data.mdb")
    put(env, 0, 50)
    with pytest.warns(UserWarning, match="this is the database itself"):
        env.close()
    assert_kept(path, 50)


def test_warnings_made_errors_come_after_closing(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path, provenance="/proc/self/x.prov")
    put(env, 0, 50)
    with pytest.raises(UserWarning, match="no provenance file describes"):
        env.close()
    env.close()
    assert_kept(path, 50)  # which opens it: py-lmdb would not, twice in one process


def test_the_data_are_on_the_disk_before_a_file_describes_them(tmp_path, monkeypatch):
    synced: list[str] = []
    fsync = os.fsync

    def watched(fd: int) -> None:
        fsync(fd)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    env = open_collecting(tmp_path / "env", sync=False)
    put(env, 0, 50)
    monkeypatch.setattr(os, "fsync", watched)
    env.close()
    assert synced[0] == "data.mdb" and synced[1].startswith(".lmdbio-")


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_disk_that_fails_is_a_warning(tmp_path, monkeypatch, call):
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "env"
    env = open_collecting(path)
    put(env, 0, 50)
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), fail)
        with pytest.warns(UserWarning, match="Input/output error"):
            env.close()
    assert names_in(path) == ["data.mdb", "lock.mdb"]
    assert_kept(path, 50)


def test_an_exception_within_the_block_passes_and_what_was_committed_is_described(tmp_path):
    for error in (KeyError("mine"), SystemExit(3), KeyboardInterrupt()):
        path = tmp_path / type(error).__name__
        with pytest.raises(type(error)) as caught:
            with open_collecting(path) as env:
                put(env, 0, 50)
                txn = env.begin(write=True)
                txn.put(b"zzz", b"not committed")
                raise error
        assert caught.value is error and error.__context__ is None
        assert_described(path)
        assert_kept(path, 50)


def test_an_exception_within_the_block_is_not_replaced_by_a_warning(tmp_path):
    with pytest.raises(KeyError, match="mine"), pytest.warns(UserWarning, match="/proc/self"):
        with open_collecting(tmp_path / "env", provenance="/proc/self/x.prov") as env:
            put(env, 0, 50)
            raise KeyError("mine")


def test_an_interrupt_while_collecting_leaves_a_closed_environment(tmp_path, monkeypatch):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "env"
    env = open_collecting(path)
    put(env, 0, 50)
    monkeypatch.setattr(on_close, "convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.close()
    env.close()
    assert names_in(path) == ["data.mdb", "lock.mdb"]
    assert_kept(path, 50)


@every_format
def test_what_is_open_at_close_is_ended_and_not_described(tmp_path, version):
    path = tmp_path / "env"
    env = open_collecting(path, version)
    put(env, 0, 50)
    txn, reader = env.begin(write=True), env.begin()
    txn.put(b"zzz", b"not committed")
    cursor = txn.cursor()
    next(iter(cursor))
    env.close()
    for call in (txn.commit, cursor.item, reader.id, lambda: txn.get(b"zzz")):
        with pytest.raises(lmdb.Error):
            call()
    assert_described(path)
    assert_kept(path, 50)


def test_closing_twice_collects_once(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path)
    put(env, 0, 50)
    env.close()
    report = env.provenance_report
    sidecar_of(path).unlink()
    env.close()
    assert env.provenance_report is report and not sidecar_of(path).exists()


def test_threads_that_write_and_close_together_leave_one_good_file(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path, sync=False)
    failed: list[BaseException] = []
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            for turn in range(10):
                start = number * 100 + turn * 10
                put(env, start, start + 10)
            barrier.wait(LIMIT_SECONDS)
            env.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert failed == []
    assert_described(path)
    assert_kept(path, 400)


def test_a_database_that_was_moved_or_replaced_is_not_described(tmp_path):
    path, moved = tmp_path / "env", tmp_path / "moved"
    env = open_collecting(path)
    put(env, 0, 50)
    path.rename(moved)
    with pytest.warns(UserWarning, match="env/data.mdb.*No such file"):
        env.close()
    assert_kept(moved, 50)
    env = open_collecting(path)
    path.rename(tmp_path / "old")
    with lmdb.open(str(path)) as other:
        put(other, 0, 20)
    with pytest.warns(UserWarning, match="moved or replaced"):
        env.close()
    assert not sidecar_of(path).exists()


def test_a_damaged_database_is_closed_with_a_warning(tmp_path):
    path = tmp_path / "env"
    with lmdb.open(str(path), map_size=1 << 26) as env:
        put(env, 0, 300)
    env = open_collecting(path)
    file = path / "data.mdb"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.warns(UserWarning, match=r"data\.mdb.*lmdbio convert"):
        env.close()
    assert not sidecar_of(path).exists()


# --- other writers -------------------------------------------------------------------------


def test_a_commit_between_walk_and_name_starts_again(tmp_path, monkeypatch):
    path = tmp_path / "env"
    commits = iter(range(50, 52))

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        report = convert(*args, **kwargs)
        with contextlib.suppress(StopIteration), lmdb.open(str(path), map_size=1 << 26) as other:
            put(other, number := next(commits), number + 1)
        return report

    monkeypatch.setattr(on_close, "convert", overtaken)
    with open_collecting(path) as env:
        put(env, 0, 50)
    assert env.provenance_report.records == 52
    assert_described(path)


def test_a_writer_that_never_rests_gets_a_warning_and_keeps_its_records(tmp_path, monkeypatch):
    path = tmp_path / "env"
    commits = iter(range(50, 1000))

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        report = convert(*args, **kwargs)
        with lmdb.open(str(path), map_size=1 << 26) as other:
            put(other, number := next(commits), number + 1)
        return report

    monkeypatch.setattr(on_close, "convert", overtaken)
    env = open_collecting(path)
    put(env, 0, 50)
    with pytest.warns(UserWarning, match="convert it when its writer rests"):
        env.close()
    assert env.provenance_report is None
    with pytest.raises(StaleError):
        lmdbio.Records(path, locate="provenance")
    assert_kept(path, next(commits))


def in_child(work: Callable[[], None]) -> int:
    """Forks a child that does ``work`` and ends without cleaning up; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait(child: int) -> int:
    """The child's exit status, within the limit."""
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"child {child} did not end in {LIMIT_SECONDS} s")


def test_two_processes_that_write_and_close_leave_a_good_file(tmp_path):
    path = tmp_path / "env"
    open_collecting(path).close()

    def work(number: int) -> None:
        warnings.simplefilter("ignore")
        for turn in range(12):
            with open_collecting(path, sync=False) as env:
                start = number * 1000 + turn * 10
                put(env, start, start + 10)

    children = [in_child(partial(work, number)) for number in range(3)]
    assert [wait(child) for child in children] == [0, 0, 0]
    assert len(databases.content(path)) == 360
    with contextlib.suppress(StaleError), lmdbio.Records(path, locate="provenance") as records:
        assert list(records) == [value for _, value in databases.content(path)]
    open_collecting(path).close()  # makes up for what the last ones may have missed
    assert_described(path)


# --- ends without close --------------------------------------------------------------------


def test_a_forked_child_collects_nothing_and_the_parent_goes_on(tmp_path):
    path = tmp_path / "env"
    held = [open_collecting(path)]
    put(held[0], 0, 50)

    def close() -> None:
        held[0].close()
        held[0].close()
        assert held[0].provenance_report is None

    def let_go() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            held.clear()
            gc.collect()
        told = [str(one.message) for one in caught]  # of whatever else was garbage, too
        assert not [text for text in told if str(path) in text]  # it is the parent's to close

    for work in (close, let_go):
        assert wait(in_child(work)) == 0
    assert names_in(path) == ["data.mdb", "lock.mdb"]
    put(held[0], 50, 80)
    held[0].close()
    assert_described(path)
    assert_kept(path, 80)


def test_a_child_collects_for_what_it_opened_itself(tmp_path):
    path = tmp_path / "env"

    def work() -> None:
        with open_collecting(path) as env:
            put(env, 0, 50)

    assert wait(in_child(work)) == 0
    assert_described(path)


def test_without_close_there_is_no_file_and_a_resource_warning(tmp_path):
    path = tmp_path / "env"
    env = open_collecting(path)
    put(env, 0, 50)
    with pytest.warns(ResourceWarning, match=r"data\.mdb: was never closed"):
        del env
        gc.collect()
    assert not sidecar_of(path).exists()
    assert_kept(path, 50)


def test_transactions_outlive_an_environment_that_was_let_go(tmp_path):
    path = tmp_path / "env"
    with pytest.warns(ResourceWarning):
        txn = open_collecting(path).begin(write=True)
        gc.collect()
    txn.put(b"%08d" % 0, databases.value(0, 3000))
    txn.commit()
    del txn
    assert_kept(path, 1)


def test_an_interpreter_that_ends_first_ends_quietly(tmp_path):
    code = (
        "import sys, lmdbio\n"
        "env = lmdbio.open(sys.argv[1], provenance=True)\n"
        "with env.begin(write=True) as txn: txn.put(b'key', b'value')\n"
        "held = [env]; held.append(held)\n"
    )
    for flags in ((), ("-W", "error"), ("-X", "dev")):
        done = subprocess.run(
            [sys.executable, *flags, "-c", code, str(tmp_path / "env")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if not flags:
            assert done.stderr == ""
        if "dev" in flags:
            assert "ResourceWarning" in done.stderr and "Traceback" not in done.stderr
    assert not sidecar_of(tmp_path / "env").exists()


def test_it_can_be_neither_pickled_nor_copied(tmp_path):
    with open_collecting(tmp_path / "env") as env:
        for call in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot pickle"):
                call(env)


KILLS = 30


@pytest.mark.more
@every_format
def test_killed_at_any_moment_it_leaves_no_file_or_one_that_is_refused(tmp_path, version, request):
    """The child commits, closes and opens again without end; each time it is killed somewhere:
    every other one after it has closed once, however slow the machine is."""
    path = tmp_path / "env"
    draw = random.Random(request.node.name)

    def work(turn: int, closed: int) -> None:
        while True:
            with open_collecting(path, version, sync=False, map_size=1 << 28) as env:
                for _ in range(draw.randrange(1, 8)):
                    put(env, turn, turn + 5, 2500)
                    turn += 5
            os.write(closed, b".")

    seen = {"none": 0, "stale": 0, "good": 0}
    wanted: list[bytes] = []
    for number in range(KILLS):
        told, closed = os.pipe()
        child = in_child(partial(work, len(wanted), closed))
        os.close(closed)
        if number % 2:
            os.read(told, 1)
        time.sleep(draw.uniform(0.0, 0.04))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        os.close(told)
        if not (path / "data.mdb").exists() or (path / "data.mdb").stat().st_size < 8192:
            continue
        wanted = [value for _, value in databases.content(path)]
        try:
            with lmdbio.Records(path, locate="provenance") as records:
                assert list(records) == wanted
            seen["good"] += 1
        except StaleError:
            seen["stale"] += 1
        except ProvenanceError as error:
            assert "has no provenance file" in str(error)
            seen["none"] += 1
    print(seen)
    assert seen["stale"] >= 3, seen
    with open_collecting(path, version, map_size=1 << 28) as env:
        put(env, 10**6, 10**6 + 1)
    assert_described(path)
    # The drafts of the killed ones are swept up.
    assert names_in(path) == ["data.mdb", "data.mdb.prov", "lock.mdb"]


def test_collecting_itself_raises_what_closing_warns_of(tmp_path):
    with pytest.raises(Error):
        (tmp_path / "data.mdb").write_bytes(b"no database" * 1000)
        on_close.collect(tmp_path / "data.mdb")
    with pytest.raises(FileNotFoundError):
        on_close.collect(tmp_path / "nothing")
