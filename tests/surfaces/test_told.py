"""Nothing goes another way in silence: the logger hears of it, with the file and the reason.

Goal: each step that the reading can do without, once it fails or is refused, is told once, at its
level, and the bytes are right all the same. Method: make each fail as the system would, read, and
look at the records of the logger "lmdbio".
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio import _core, share
from lmdbio.convert import database_walk
from lmdbio.convert.convert import convert
from lmdbio.errors import IncompatibleError, ProvenanceError
from lmdbio.machine import calibration, storage, tuned_folder
from lmdbio.machine.choice import choose
from lmdbio.provenance import Section, paths
from lmdbio.reading import direct_path, engines
from lmdbio.reading.direct_path import BATCH_BYTES_MIN, DirectPath
from lmdbio.reading.file_cache import FileCache
from lmdbio.system import log, reader_slots
from lmdbio.system.publish import Draft
from tests.support import databases

COUNT = 300
Told = Callable[[], list[tuple[str, str]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, databases.records(COUNT, lambda i: 3000))
    env.close()
    return folder


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """Level and text of all that was told."""
    monkeypatch.setattr(log, "_logged", set())
    with caplog.at_level(logging.INFO, "lmdbio"):
        yield lambda: [
            (record.levelname, record.getMessage())
            for record in caplog.records
            if record.name == "lmdbio"
        ]


def only(told: list[tuple[str, str]], pattern: str) -> str:
    """Return the level of the one text that says this."""
    (level,) = [level for level, text in told if re.search(pattern, text)]
    return level


def read_all(path: Path, **keywords: Any) -> None:
    with lmdbio.open(str(path), readonly=True, **keywords) as env, env.begin() as txn:
        assert len(list(txn.cursor())) == COUNT


# --- reader slots


def test_a_file_that_py_lmdb_has_open(path: Path, told: Told) -> None:
    with lmdb.open(str(path)):
        for _ in range(3):
            read_all(path)
    assert only(told(), rf"^{path}: no reader slot .* has it open in py-lmdb itself") == "INFO"


@pytest.mark.parametrize(
    ("code", "why"),
    [(errno.EROFS, "no lock file can be had"), (errno.ENOMEM, "finds no address space")],
)
def test_no_lock_file(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, code: int, why: str
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        error = lmdb.Error("refused")
        error.code = code  # type: ignore[attr-defined]
        raise error

    monkeypatch.setattr(lmdb, "open", refuse)
    read_all(path)
    assert only(told(), rf"^{path}: no reader slot .*{why}") == "INFO"


def test_a_file_that_has_outgrown_its_mapping(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise lmdb.MapResizedError("grown")

    monkeypatch.setattr(reader_slots.Slots, "begin", refuse)
    read_all(path)
    assert only(told(), rf"^{path}: no reader slot .*has outgrown") == "INFO"


def test_without_lock_nothing_is_asked_for_and_nothing_told(path: Path, told: Told) -> None:
    with lmdb.open(str(path)):
        read_all(path, lock=False)
    assert not [text for _, text in told() if "reader slot" in text]


# --- the provenance file


def test_no_provenance_file(path: Path, told: Told) -> None:
    lmdbio.Records(path).close()
    assert only(told(), "has no provenance file .* the tree is walked instead") == "INFO"


@pytest.mark.filterwarnings("ignore:.*the tree is walked instead")
def test_a_stale_provenance_file(path: Path, told: Told) -> None:
    convert(path)
    with lmdb.open(str(path)) as env, env.begin(write=True) as txn:
        txn.put(b"new", b"value")
    for _ in range(2):
        lmdbio.Records(path).close()
    assert only(told(), r"data\.mdb\.prov: does not describe this state of .*txnid") == "WARNING"


@pytest.mark.parametrize("locate", ["auto", "provenance"])
def test_a_damaged_block(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, locate: Any
) -> None:
    convert(path, form="runs")
    with lmdbio.Records(path, locate=locate) as records:

        def fail(*_: Any) -> Any:
            raise ProvenanceError("data.mdb.prov: block 0 is damaged")

        monkeypatch.setattr(Section, "extents", fail)
        for _ in range(2):
            assert len(records.read(range(COUNT))) == COUNT
    then = "the tree is walked instead" if locate == "auto" else "records are found block by block"
    assert only(told(), f"block 0 is damaged; {then}") == "WARNING"


def test_a_folder_that_may_not_be_searched(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setenv(paths.PROVENANCE_DIR, str(path.parent))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", refuse)
        paths.find_sidecar(path / "data.mdb")
    assert only(told(), rf"^{path.parent}/env-\w+\.prov: is taken for .*Permission") == "INFO"


def test_a_deep_check_that_is_not_remembered(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file, no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    convert(path)
    lmdbio.Records(path, check="deep").close()
    assert only(told(), f"made again at the next open.*{tmp_path}/cache") == "INFO"


# --- engines, and the page cache


def test_an_engine_that_this_file_system_has_not(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = _core.Engine.again

    def refuse(self: _core.Engine, kind: str, depth: int) -> _core.Engine:
        if kind == "direct":
            raise IncompatibleError(f"{self.path}: the file system has no O_DIRECT")
        return again(self, kind, depth)

    monkeypatch.setattr(_core.Engine, "again", refuse)
    far = storage.Storage(file_system="some", direct=True)
    with _core.Engine(path / "data.mdb") as pages:
        choice = choose("stream", far)
        assert choice.engine == "direct"
        with engines.open_engine(pages, choice) as engine:
            assert engine.kind == "pread"
    assert only(told(), r"data\.mdb: the file system has no O_DIRECT; .*instead") == "INFO"


def test_advice_that_the_kernel_refuses(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    lmdbio.Records(path).close()
    assert only(told(), r"data\.mdb: the kernel goes on to read ahead") == "INFO"


def fail(kind: type[Exception]) -> Callable[..., Any]:
    def failing(*_: Any, **__: Any) -> Any:
        raise kind("is used up")

    return failing


@pytest.mark.parametrize(
    ("name", "does", "why"),
    [
        ("cached_bytes", lambda self: None, "the kernel does not say"),
        ("cached_bytes", lambda self: self.size(), "more than 1/8 of it is there"),
        ("again", fail(MemoryError), "is used up"),
    ],
)
def test_reads_past_the_page_cache_that_do_not_begin(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, name: str, does: Any, why: str
) -> None:
    with _core.Engine(path / "data.mdb") as engine:
        if name == "again":
            monkeypatch.setattr(_core.Engine, "cached_bytes", lambda self: 0)
        monkeypatch.setattr(_core.Engine, name, does)
        way = DirectPath(engine, engine.size(), depth=8, wanted=True)
        for _ in range(2):
            assert way.engine() is None
    assert only(told(), rf"data\.mdb: large reads go through the page cache: .*{why}") == "INFO"


@pytest.mark.parametrize(
    ("seconds", "why"),
    [(1e6, "the disk gives less than 512 MiB"), (1e-9, "it has been read once")],
)
def test_reads_past_the_page_cache_that_are_given_up(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, seconds: float, why: str
) -> None:
    monkeypatch.setattr(_core.Engine, "cached_bytes", lambda self: 0)
    size = direct_path.RATE_BYTES
    with _core.Engine(path / "data.mdb") as engine:
        way = DirectPath(engine, 2 * size, depth=8, wanted=True)
        if way.engine(BATCH_BYTES_MIN) is None:
            pytest.skip("this file system has no O_DIRECT")
        for number in range(3):
            way.record(size, (number * seconds, (number + 1) * seconds))
        assert way.engine() is None
    assert only(told(), rf"through the page cache: {why}") == "INFO"


def test_nothing_is_told_where_nothing_was_to_pass(path: Path, told: Told) -> None:
    with _core.Engine(path / "data.mdb") as engine:
        way = DirectPath(engine, 1000, depth=8, wanted=False)
        way.record(1000, (0.0, 1.0))
    assert told() == []


@pytest.mark.parametrize(
    ("bytes_max", "why"), [(0, "the memory budget has no room"), (1 << 30, None)]
)
def test_copies_out_of_a_mapping(path: Path, told: Told, bytes_max: int, why: str | None) -> None:
    with _core.Engine(path / "data.mdb") as engine:
        if _core.inspect_at(engine.fd).magic != 0xEF53 and why is None:
            pytest.skip("what is told of other file systems is not asked here")
        engine.map_cached(bytes_max)
    assert bool(told()) == (why is not None)
    if why is not None:
        assert only(told(), rf"data\.mdb: what is cached is read by calls.*{why}") == "INFO"


@pytest.mark.parametrize(("wanted", "level"), [(None, "INFO"), (True, "WARNING")])
def test_a_file_that_cannot_be_brought_to_memory(
    path: Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    off_disk: None,
    wanted: bool | None,
    level: str,
) -> None:
    with _core.Engine(path / "data.mdb") as engine:
        cache = FileCache(engine, engine.size(), memory_bytes_max=1 << 30, wanted=wanted)
        monkeypatch.setattr(_core.Engine, "again", fail(MemoryError))
        cache.credit(engine.size(), anew=True)
        assert not cache.complete()
    assert only(told(), r"data\.mdb: records are read one by one: .*is used up") == level


def test_readahead_that_an_engine_has_not(path: Path, told: Told) -> None:
    with _core.Engine(path / "data.mdb") as pages:
        try:
            pages.again("direct", 1).close()
        except IncompatibleError:
            pytest.skip("this file system has no O_DIRECT")
    with lmdbio.Records(path, engine="direct", readahead=True) as records:
        assert len(records.read(range(COUNT))) == COUNT
    assert (
        only(told(), 'readahead=True brings nothing to memory with engine="direct"') == "WARNING"
    )


# --- the machine


@pytest.mark.filterwarnings("ignore:.*no calibration that can be used")
def test_a_calibration_that_cannot_be_used(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with _core.Engine(path / "data.mdb") as engine:
        looked = storage.inspect(engine, cached=False, thorough=True)
    file = calibration.file_of(calibration.identity(looked))
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    for _ in range(3):
        read_all(path, lock=False)
    assert only(told(), f"^{file}: no calibration that can be used") == "WARNING"


def test_a_cache_folder_that_cannot_be_looked_into(
    path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_folder, "folder", fail(OSError))
    read_all(path, lock=False)
    assert only(told(), "lmdbio tune may have measured is not looked for") == "INFO"


def test_a_thread_that_does_not_start(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_walk._thread, "start_new_thread", fail(RuntimeError))
    done: list[int] = []
    with database_walk.Background() as beside:
        beside.begin(lambda: done.append(1))
    assert done == [1]
    assert only(told(), "work is not done in a thread beside") == "INFO"


def test_a_file_system_without_links(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with Draft(tmp_path / "goal") as draft:
        draft.publish()
    assert (tmp_path / "goal").exists()
    assert only(told(), f"^{tmp_path}/goal: is renamed to") == "INFO"


def test_free_shared_memory_that_is_not_known(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "statvfs", refuse)
    assert share.shm_free() is None
    assert only(told(), "windows are made without a look") == "INFO"


def test_reading_that_goes_as_it_should_costs_nothing_that_was_asked_for(
    path: Path, told: Told
) -> None:
    convert(path)
    read_all(path)
    with lmdbio.Records(path) as records:
        assert len(records.read(range(COUNT))) == COUNT
    assert [text for level, text in told() if level == "WARNING"] == []
