"""A file that is opened again is read as it is now, and asked no more than it must be.

Goal: what this process knows of a file that it opened a moment ago saves time, and hides nothing:
neither another file under that name, nor a commit, nor damage, nor a setting that has changed.
Method: the file is changed between two openings in ways that its size and times do not tell; looks
at the storage are counted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.dropin import known
from lmdbio.machine import calibration, storage
from lmdbio.machine.calibration import Calibration, Sample
from tests.support import databases

COUNT = 200


def make(folder: Path, value: bytes, *, version: int = 1) -> Path:
    """Make a database all of whose records have one value."""
    with databases.open_writable(folder, version) as env:
        databases.write(env, ((b"%04d" % i, value) for i in range(COUNT)))
    return folder / "data.mdb"


def opened(folder: Path, **keywords: Any) -> Any:
    return lmdbio.open(str(folder), readonly=True, lock=False, **keywords)


def read(folder: Path, **keywords: Any) -> bytes:
    with opened(folder, **keywords) as env, env.begin() as txn:
        found: bytes = txn.get(b"0007")
        assert [value for _, value in txn.cursor()] == [found] * COUNT
    return found


def change(folder: Path, file: Path, how: str, new: Path) -> None:
    """Put the content of ``new`` under the name of ``file``, whose times stay as they were."""
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    if how == "renamed":
        new.rename(file)
    elif how == "rewritten":
        content = new.read_bytes()
        with file.open("r+b") as there:
            there.truncate(len(content))
            there.write(content)
    elif how == "folder":
        shutil.rmtree(folder)
        new.parent.rename(folder)
    os.utime(file, ns=times)


@pytest.mark.parametrize("how", ["renamed", "rewritten", "folder"])
@pytest.mark.parametrize("engine", ["pread", "auto", "mmap"])
def test_another_file_under_the_name_is_seen(tmp_path: Path, how: str, engine: str) -> None:
    folder, other = tmp_path / "env", tmp_path / "other"
    file, new = make(folder, b"old"), make(other, b"new")
    assert read(folder, engine=engine) == b"old"
    assert file.stat().st_size == new.stat().st_size
    change(folder, file, how, new)
    assert read(folder, engine=engine) == b"new"


def test_another_file_with_the_very_same_meta_pages_is_read_as_well(tmp_path: Path) -> None:
    folder, other = tmp_path / "env", tmp_path / "other"
    file, new = make(folder, b"old"), make(other, b"new")
    assert read(folder) == b"old"
    content = new.read_bytes()
    new.write_bytes(file.read_bytes()[:8192] + content[8192:])
    assert content[:8192] == file.read_bytes()[:8192]  # which is why nothing else may be kept
    new.rename(file)
    assert read(folder) == b"new"


def test_a_file_of_the_other_format_under_the_name_is_seen(tmp_path: Path) -> None:
    file, new = make(tmp_path / "env", b"old"), make(tmp_path / "other", b"new", version=3)
    assert read(tmp_path / "env") == b"old"
    new.rename(file)
    with opened(tmp_path / "env") as env:
        assert env.lib_version()[0] == 1
        assert env._file.version == 3
    assert read(tmp_path / "env") == b"new"


def test_each_commit_is_seen_by_the_next_opening(tmp_path: Path) -> None:
    make(tmp_path, b"first")
    with lmdb.open(str(tmp_path), map_size=1 << 26) as writer:
        for number in range(30):
            times = (tmp_path / "data.mdb").stat()
            with writer.begin(write=True) as txn:
                txn.put(b"0007", b"%d" % number)
            os.utime(tmp_path / "data.mdb", ns=(times.st_atime_ns, times.st_mtime_ns))
            with opened(tmp_path) as env:
                assert env.info()["last_txnid"] == writer.info()["last_txnid"]
                with env.begin() as txn:
                    assert txn.get(b"0007") == b"%d" % number
                    assert txn.id() == writer.info()["last_txnid"]


def test_a_commit_between_opening_and_the_first_transaction_is_seen(tmp_path: Path) -> None:
    make(tmp_path, b"old")
    assert read(tmp_path) == b"old"
    with opened(tmp_path) as env:
        with lmdb.open(str(tmp_path), map_size=1 << 26) as writer, writer.begin(write=True) as txn:
            txn.put(b"0007", b"new")
        with env.begin() as txn:
            assert txn.get(b"0007") == b"new"


def cut_to_nothing(file: Path) -> None:
    os.truncate(file, 0)


def cut_in_a_meta_page(file: Path) -> None:
    os.truncate(file, 5000)


def overwritten_with_zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def with_another_magic(file: Path) -> None:
    databases.overwrite(file, file.read_bytes().replace(b"\xde\xc0\xef\xbe", b"\xde\xc0\xef\xbf"))


def with_a_broken_main_database(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for page in (0, 4096):
        content[page + 16 + 24 + 48 + 6 : page + 16 + 24 + 48 + 8] = b"\xff\xff"  # its depth
    databases.overwrite(file, content)


def gone(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        cut_to_nothing,
        cut_in_a_meta_page,
        overwritten_with_zeros,
        with_another_magic,
        with_a_broken_main_database,
        gone,
    ],
)
def test_damage_is_refused_as_in_a_file_that_was_never_opened(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    file = make(tmp_path, b"old")
    assert read(tmp_path) == b"old"
    damage(file)
    with pytest.raises(lmdb.Error) as again:
        opened(tmp_path)
    known.forget()
    with pytest.raises(lmdb.Error) as first:
        opened(tmp_path)
    assert (type(again.value), str(again.value)) == (type(first.value), str(first.value))


def test_a_variable_of_the_environment_is_followed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, b"old")

    def way() -> tuple[str, int]:
        with opened(tmp_path) as env:
            return env._file.engine.kind, env._file.engine.depth

    usual = way()
    monkeypatch.setenv("LMDBIO_ENGINE", "mmap")
    assert way() == ("mmap", usual[1])
    monkeypatch.setenv("LMDBIO_DEPTH", "3")
    assert way() == ("mmap", 3)
    monkeypatch.setenv("LMDBIO_ENGINE", "bicycle")
    with pytest.raises(ValueError, match="LMDBIO_ENGINE must be one of"):
        way()
    monkeypatch.delenv("LMDBIO_ENGINE")
    assert way() == (usual[0], 3)
    with opened(tmp_path, engine="mmap", depth=5) as env:
        assert (env._file.engine.kind, env._file.engine.depth) == ("mmap", 5)


def test_what_this_process_measures_or_forgets_is_followed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "env", b"old")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def origin() -> str:
        with opened(tmp_path / "env") as env:
            return env._file._choice.reasons["gap_bytes_max"].origin

    with opened(tmp_path / "env") as env:
        which = calibration.identity(storage.inspect(env._file.engine, thorough=True))
    assert origin() == "facts"
    samples = (
        Sample("pread", "random", 4096, 8, 1000, 1.0),
        Sample("pread", "random", 1 << 20, 8, 1000, 1.0),
    )
    calibration.store(Calibration(which, 1.0, samples))
    assert origin() == "tune"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert origin() == "facts"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert origin() == "tune"
    assert calibration.forget(which)
    assert origin() == "facts"


def test_the_storage_is_looked_at_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files of a file system are read alike, so that the second one is not looked at."""
    make(tmp_path / "env", b"old")
    make(tmp_path / "other", b"old")
    looks: list[float] = []
    look, now = storage.inspect, [1000.0]

    def counted(*args: Any, **kwargs: Any) -> storage.Storage:
        looks.append(now[0])
        return look(*args, **kwargs)

    monkeypatch.setattr(storage, "inspect", counted)
    monkeypatch.setattr(known.time, "monotonic", lambda: now[0])
    for _ in range(5):
        read(tmp_path / "env")
        read(tmp_path / "other")
    assert looks == [1000.0]
    now[0] += known.RECENT_SECONDS
    read(tmp_path / "env")
    assert looks == [1000.0, 1001.0]


def test_the_newest_state_is_parsed_once(tmp_path: Path) -> None:
    make(tmp_path, b"old")
    with opened(tmp_path) as one, opened(tmp_path) as two:
        assert one._file.newest(None)[0] is two._file.newest(None)[0]
        assert one._file.newest(None)[1] is not two._file.newest(None)[1]


def opened_files() -> list[str]:
    """The names of the files that this process has open."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(str(link.readlink()))
    return names


def test_what_is_known_is_bounded_and_keeps_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "FILES_MAX", 8)
    monkeypatch.setattr(known, "CHOICES_MAX", 4)
    make(tmp_path / "env", b"old")
    for number in range(20):
        shutil.copytree(tmp_path / "env", tmp_path / str(number))
        assert read(tmp_path / str(number), depth=1 + number) == b"old"
        assert 1 <= len(known._states) <= 8
        assert 1 <= len(known._readings) <= 4
        shutil.rmtree(tmp_path / str(number))
    assert not [file for file in opened_files() if file.startswith(str(tmp_path))]


def test_large_meta_pages_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "META_BYTES_MAX", 8191)
    make(tmp_path, b"old")
    assert read(tmp_path) == read(tmp_path) == b"old"
    assert not known._states


def test_a_child_after_fork_opens_what_its_parent_knew(tmp_path: Path) -> None:
    make(tmp_path, b"old")
    assert read(tmp_path) == b"old"
    child = os.fork()
    if child == 0:
        with lmdb.open(str(tmp_path), map_size=1 << 26) as env, env.begin(write=True) as txn:
            for i in range(COUNT):
                txn.put(b"%04d" % i, b"new")
        os._exit(0 if read(tmp_path) == b"new" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert read(tmp_path) == b"new"


def test_threads_open_and_close_while_a_writer_commits(tmp_path: Path) -> None:
    """No opening finds an older state than one that had ended before it began."""
    make(tmp_path, b"%09d" % 0)
    done, failed = threading.Event(), []
    committed, opens = [0], []

    def keep_opening() -> None:
        try:
            while not done.is_set():
                least = committed[0]
                try:
                    with opened(tmp_path) as env, env.begin() as txn:
                        found = int(txn.get(b"0007"))
                except lmdb.Error as error:  # two commits came between: there are no slots
                    assert "no longer protected" in str(error)
                else:
                    assert least <= found <= committed[0] + 1
                    opens.append(found)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=keep_opening) for _ in range(4)]
    with lmdb.open(str(tmp_path), map_size=1 << 26, sync=False) as writer:
        for thread in threads:
            thread.start()
        end = time.monotonic() + 1.0
        while time.monotonic() < end and not failed:
            with writer.begin(write=True) as txn:
                txn.put(b"0007", b"%09d" % (committed[0] + 1))
            committed[0] += 1
            time.sleep(0.01)
        done.set()
        for thread in threads:
            thread.join()
    assert not failed and committed[0] > 10 and len(set(opens)) > 5


def test_counts_are_there_after_closing_also_of_what_went_past_the_page_cache(
    tmp_path: Path,
) -> None:
    make(tmp_path, b"old")
    with opened(tmp_path) as env:
        with env.begin() as txn:
            assert len(list(txn.cursor())) == COUNT
        before = env.stats()
    assert env.stats() == before and before.page_requests > 0
    with opened(tmp_path) as env:
        assert env._file.direct_path is None  # nobody has asked for it
        with env.begin() as txn:
            txn.get(b"0007")
        assert env._file.direct_requests() == 0
    with pytest.raises(lmdb.Error):
        env._file.open_direct_path()


NAMES = (b"LMDBIO_A", b"LMDBIO_B")


def variables() -> tuple[Any, ...]:
    return tuple(map(known._environ.get, NAMES))


@pytest.mark.parametrize("usual", [False, True])
def test_a_variable_is_seen_as_it_is_now(monkeypatch: pytest.MonkeyPatch, usual: bool) -> None:
    if usual:  # a Python that has no short way to them
        monkeypatch.setattr(known, "_environ", os.environb)
    assert variables() == (None, None)
    monkeypatch.setenv("LMDBIO_A", "ä")
    os.environb[b"LMDBIO_B"] = b"\xff"
    assert variables() == ("ä".encode(), b"\xff")
    del os.environ["LMDBIO_B"]
    assert variables() == ("ä".encode(), None)


def test_the_short_way_to_variables_is_there() -> None:
    """Where it is not, each opening takes some microseconds longer: look for another one."""
    assert known._environ is not os.environb
