"""``Writer``: a data set that appears whole, in order, with its provenance file, or not at all.

Goal: all that was put is there, byte for byte; nothing that was not ended is taken for a set; each
mistake has an error that names it. Method: sets written in many ways are read by py-lmdb and by
``Records``; real processes are killed, run out of room, and compete.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio.convert.verify import verify
from lmdbio.errors import BadValsizeError, Error
from lmdbio.ingest import growing
from lmdbio.provenance import find_sidecar
from lmdbio.provenance.freshness import is_described
from tests.cli.test_cli import call
from tests.support import databases

INGEST = Path(growing.__file__).parent


def content(path: Path, db: bytes | None = None) -> list[tuple[bytes, bytes]]:
    """Return what py-lmdb finds, and see that a provenance file describes it."""
    verify(path)
    assert is_described(path / "data.mdb", find_sidecar(path / "data.mdb"))
    assert names(path) == ["data.mdb", "data.mdb.prov"]
    with lmdb.open(str(path), readonly=True, lock=False, max_dbs=1) as env:
        with env.begin(db=env.open_db(db) if db else None) as txn:
            return list(txn.cursor())


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def some(count: int, length: int = 3000) -> list[tuple[bytes, bytes]]:
    return [(b"%08d" % i, databases.value(i, length + i % 100)) for i in range(count)]


# --- put -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 100, 3000])
@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_records_in_any_order_make_a_set_in_order(tmp_path: Path, order: str, length: int) -> None:
    records = some(2000, length)
    given = records[:: -1 if order == "descending" else 1]
    if order == "random":
        random.Random(4).shuffle(given)
    with lmdbio.Writer(tmp_path / "set", batch_bytes_max=100_000) as writer:
        for number, record in enumerate(given):
            assert len(writer) == number
            writer.put(*record)
    assert content(tmp_path / "set") == records
    assert names(tmp_path) == ["set"]
    told = " ".join(call("info", tmp_path / "set").output.split())
    assert "records lie in the order of their keys" in told


def test_the_map_grows_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "MAP_BYTES", 1 << 16)
    records = some(3000)
    with lmdbio.Writer(tmp_path / "set", batch_bytes_max=1 << 20) as writer:
        for record in records:
            writer.put(*record)
    assert content(tmp_path / "set") == records


def test_a_named_database_and_buffers(tmp_path: Path) -> None:
    with lmdbio.Writer(tmp_path / "set", db="train") as writer:
        writer.put(bytearray(b"b"), memoryview(b"2"))
        writer.put(b"a", b"1")
    assert content(tmp_path / "set", b"train") == [(b"a", b"1"), (b"b", b"2")]
    assert list(lmdbio.Records(tmp_path / "set", db="train")) == [b"1", b"2"]


def test_an_empty_set_and_an_empty_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    lmdbio.Writer(tmp_path / "set").close()
    assert content(tmp_path / "set") == []


def test_without_a_provenance_file(tmp_path: Path) -> None:
    with lmdbio.Writer(tmp_path / "set", provenance=False) as writer:
        writer.put(b"a", b"1")
    assert names(tmp_path / "set") == ["data.mdb"]


# --- add -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [100, 3000])
def test_samples_with_labels_are_pairs(tmp_path: Path, length: int) -> None:
    labels: list[Any] = [7, "cat", b"\xff\x00", np.int64(0)] * 500
    values = [databases.value(i, length) for i in range(len(labels))]
    with lmdbio.Writer(tmp_path / "set", batch_bytes_max=50_000) as writer:
        writer.put(b"classes", b'["a"]')
        for value, label in zip(values, labels, strict=True):
            writer.add(value, label)
        assert len(writer) == len(labels)
    records = lmdbio.Records(tmp_path / "set", layout="auto")
    assert records.layout == "ocr"
    texts = [b"7", b"cat", b"\xff\x00", b"0"] * 500
    assert list(records) == list(zip(values, texts, strict=True))
    found = dict(content(tmp_path / "set"))
    assert found[b"classes"] == b'["a"]' and found[b"num-samples"] == b"2000"
    with lmdb.open(str(tmp_path / "set"), readonly=True, lock=False) as env:
        stat = env.stat()
    if length < 2000:  # leaves hold the values, and are full
        used = sum(16 + len(key) + len(value) for key, value in found.items())
        assert used / (stat["leaf_pages"] * 4096) > 0.85
    told = " ".join(call("info", tmp_path / "set").output.split())
    assert "records lie in the order of their keys" in told


def test_many_samples_are_added_as_each_is(tmp_path: Path) -> None:
    with lmdbio.Writer(tmp_path / "set") as writer:
        writer.put(b"classes", b"[]")
        with pytest.raises(TypeError, match="a value must be bytes"):
            writer.add(3)
        with pytest.raises(ValueError, match=r"tuples, \(value,\) or \(value, label\)"):
            writer.add_many([b"ab"])
        assert writer.samples == 0 and len(writer) == 1
        writer.add_many([(b"1", 7), (b"2", "cat"), (b"3", np.int64(1))])
        assert writer.samples == len(writer) == 3
    pairs = [(b"1", b"7"), (b"2", b"cat"), (b"3", b"1")]
    assert list(lmdbio.Records(tmp_path / "set", layout="auto")) == pairs


def test_samples_without_labels_are_records_in_their_order(tmp_path: Path) -> None:
    values = [databases.value(i, 500) for i in range(300)]
    with lmdbio.Writer(tmp_path / "set") as writer:
        for value in values:
            writer.add(value)
    assert list(lmdbio.Records(tmp_path / "set", layout="auto")) == values
    assert lmdbio.Records(tmp_path / "set").key(299) == b"000000299"


# --- refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_a_key_that_is_put_twice_is_named(tmp_path: Path, batch_bytes: int) -> None:
    with pytest.raises(lmdb.KeyExistsError, match=r"set: key b'00000007' is put twice"):
        with lmdbio.Writer(tmp_path / "set", batch_bytes_max=batch_bytes) as writer:
            for record in [*some(20), (b"00000007", b"again")]:
                writer.put(*record)
    assert not names(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "kind", "text"),
    [
        (b"", b"", BadValsizeError, "has 0 bytes"),
        (b"k" * 512, b"", BadValsizeError, "has 512 bytes"),
        ("text", b"", TypeError, "a key must be bytes"),
        (b"k", 5, TypeError, "a value must be bytes"),
        (b"k", np.float32(1), TypeError, "a value must be bytes"),
    ],
)
def test_bad_records_are_named(
    tmp_path: Path, key: Any, value: Any, kind: type[Exception], text: str
) -> None:
    with lmdbio.Writer(tmp_path / "set") as writer:
        with pytest.raises(kind, match=text):
            writer.put(key, value)
        writer.put(b"good", b"1")
    assert content(tmp_path / "set") == [(b"good", b"1")]


def test_all_samples_have_a_label_or_none_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"set: sample 1 has no label"):
        with lmdbio.Writer(tmp_path / "set") as writer:
            writer.add(b"1", 1)
            writer.add(b"2")
    assert not names(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "file", "link", "no parent", "part", "mount"])
def test_what_is_there_is_left_alone(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "set"
    if kind == "folder":
        target.mkdir()
        (target / "mine").write_text("mine")
    elif kind == "file":
        target.write_text("mine")
    elif kind == "link":
        target.symlink_to(tmp_path / "nowhere")
    elif kind == "part":
        (tmp_path / "set.part").mkdir()
        (tmp_path / "set.part/mine").write_text("mine")
    elif kind == "mount":
        target.mkdir()
        monkeypatch.setattr(Path, "is_mount", lambda path: path == target)
    else:
        target = tmp_path / "no" / "set"
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=r"exists already|no such folder|has mine"):
        lmdbio.Writer(target)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_set_that_came_to_exist_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="came to exist meanwhile"):
        with lmdbio.Writer(tmp_path / "set") as writer:
            writer.put(b"a", b"1")
            (tmp_path / "set").mkdir()
            (tmp_path / "set" / "mine").write_text("mine")
    assert [path.name for path in tmp_path.rglob("*")] == ["set", "mine"]


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        with lmdbio.Writer(tmp_path / "set", batch_bytes_max=1) as writer:
            writer.put(b"a", b"1")
            writer.put(b"b", b"1")
            assert names(tmp_path) == ["set.part"]
            raise KeyError
    assert not names(tmp_path)
    with pytest.raises(Error, match="closed"):
        writer.put(b"c", b"1")


def test_two_writers_do_not_write_one_set(tmp_path: Path) -> None:
    with lmdbio.Writer(tmp_path / "set") as writer:
        writer.put(b"a", b"1")
        with pytest.raises(BlockingIOError, match="another process writes it"):
            lmdbio.Writer(tmp_path / "set")
    assert content(tmp_path / "set") == [(b"a", b"1")]


def test_a_forked_child_ends_without_the_set(tmp_path: Path) -> None:
    with lmdbio.Writer(tmp_path / "set") as writer:
        writer.put(b"a", b"1")
        child = os.fork()
        if not child:
            status = 1
            try:
                with pytest.raises(Error, match="another process"):
                    writer.put(b"b", b"2")
                writer.close()
                writer.__exit__(KeyError, KeyError(), None)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        writer.put(b"c", b"3")
    assert content(tmp_path / "set") == [(b"a", b"1"), (b"c", b"3")]


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_no_room_is_said_with_the_path(tmp_path: Path) -> None:
    code = """if True:
        import resource, sys, lmdbio
        resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20,) * 2)
        with lmdbio.Writer(sys.argv[1], batch_bytes_max=1 << 20) as writer:
            for number in range(10_000):
                writer.add(bytes(10_000))
    """
    done = run(code, tmp_path / "set")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"OSError: [Errno {errno.EFBIG}] cannot write the data set here: File")
    assert last.endswith(f"'{tmp_path}/set'")
    assert not names(tmp_path)


def test_a_set_that_lost_a_transaction_is_not_published(tmp_path: Path) -> None:
    code = """if True:
        import contextlib, os, resource, sys, lmdbio
        soft = 1 << 20
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, 8 << 20))
        with lmdbio.Writer(sys.argv[1], batch_bytes_max=100_000) as writer:
            caught, data = 0, sys.argv[1] + ".part/data.mdb"
            for number in range(200):
                try:
                    writer.add(bytes(10_000))
                except OSError:
                    caught += 1
                    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20,) * 2)
            print(caught > 1, os.path.getsize(data) <= soft)
    """
    done = run(code, tmp_path / "set")
    assert done.stdout == "True True\n" and "cannot write the data set" in done.stderr
    assert not names(tmp_path)


class CtrlC:
    """Ctrl-C before the nth line that the writer runs in the ``with`` block; at the first: 0."""

    def __init__(self, lines: int) -> None:
        self.left, self.is_struck = lines, False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if Path(frame.f_code.co_filename).parent != INGEST:
            return None
        if event == "line" and not self.is_struck:
            self.left -= 1
            if self.left < 0:
                self.is_struck = True
                raise KeyboardInterrupt
        return self

    def __enter__(self) -> None:
        sys.settrace(self)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


@pytest.mark.more
def test_ctrl_c_at_any_line_loses_nothing_and_puts_nothing_twice(tmp_path: Path) -> None:
    wanted = [(b"%09d" % number, b"%d" % number) for number in range(3)]
    for line in itertools.count():
        ctrl_c, target = CtrlC(line), tmp_path / "set"
        with lmdbio.Writer(target, batch_bytes_max=1) as writer:
            while len(writer) < len(wanted):
                try:
                    with ctrl_c:
                        writer.add(wanted[len(writer)][1])
                except KeyboardInterrupt:
                    pass
        assert content(target) == wanted, line
        shutil.rmtree(target)
        if not ctrl_c.is_struck:
            break
    assert line > 60


def test_ctrl_c_before_a_transaction_has_its_thread_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with lmdbio.Writer(tmp_path / "set", batch_bytes_max=1) as writer:
        writer.put(b"a", b"1")
        monkeypatch.setattr(writer._environment._thread, "submit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.put(b"b", b"2")
        monkeypatch.undo()
        writer.put(b"c", b"3")
    assert content(tmp_path / "set") == [(b"a", b"1"), (b"c", b"3")]


def test_a_folder_that_no_writer_made_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "set.part"
    with lmdbio.Writer(other, provenance=False) as writer:
        writer.put(b"a", b"1")
    before = [(path.name, path.read_bytes()) for path in other.iterdir()]
    for resume in (None, {"source": "v1"}):
        with pytest.raises(FileExistsError, match=r"has data.mdb, which no writer .*set.part'"):
            lmdbio.Writer(tmp_path / "set", resume=resume)
        (other / "writing.json").write_text("[1]")
        with pytest.raises(FileExistsError, match=r"which no writer has put there"):
            lmdbio.Writer(tmp_path / "set", resume=resume)
        (other / "writing.json").unlink()
    assert [(path.name, path.read_bytes()) for path in other.iterdir()] == before


# --- continued -------------------------------------------------------------------------------

CONTINUED = """if True:
    import os, signal, sys, lmdbio
    path, stop, pairs = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "pairs"
    with lmdbio.Writer(path, resume={"source": "v1"}, batch_bytes_max=50_000) as writer:
        writer.put(b"classes", b"[]")
        for number in range(writer.samples, 1000):
            if number == stop:
                os.kill(os.getpid(), signal.SIGKILL)
            writer.add(b"%d" % number * 1000, *[number] * pairs)
        writer.put(b"z", b"")
        if stop == 1000:
            writer._flush()
            writer._environment.wait()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.more
@pytest.mark.parametrize("kind", ["pairs", "values"])
def test_a_killed_writer_is_continued_by_the_same_program(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "set"
    for stop in (0, 100, 101, 700, 999, 1000, 1000):
        assert run(CONTINUED, target, stop, kind).returncode == -signal.SIGKILL
        assert not target.exists()
        with pytest.raises((OSError, Error)):
            lmdbio.Records(target)
    done = run(CONTINUED, target, -1, kind)
    assert done.returncode == 0, done.stderr
    values = [b"%d" % number * 1000 for number in range(1000)]
    if kind == "pairs":
        labels = [b"%d" % number for number in range(1000)]
        assert list(lmdbio.Records(target, layout="auto")) == [*zip(values, labels, strict=True)]
    assert [v for k, v in content(target) if b"image" in k or k.isdigit()] == values


def test_puts_in_any_order_are_continued_and_sorted(tmp_path: Path) -> None:
    records = some(1000)
    given = records[::-1]
    for stop in (300, 700, 1000):
        try:
            resume = {"source": "v1"}
            with lmdbio.Writer(tmp_path / "set", resume=resume, batch_bytes_max=100_000) as writer:
                for record in given[len(writer) :]:
                    if len(writer) == stop < 1000:
                        raise KeyError
                    writer.put(*record)
        except KeyError:
            note = json.loads((tmp_path / "set.part/writing.json").read_text())
            assert note == {"facts": resume, "columns": 0, "is_sorted": False}
    assert content(tmp_path / "set") == records


def test_other_facts_are_refused_by_name(tmp_path: Path) -> None:
    target = tmp_path / "set"
    assert run(CONTINUED, target, 500, "pairs").returncode == -signal.SIGKILL
    for resume, text in (
        ({"source": "v2"}, r"source was v1, and is v2 now; remove \S+set.part to begin again"),
        ({}, "source was v1, and is gone"),
        ({"source": "v1", "more": "x"}, "more is new: x"),
        (None, "holds what was written until that was broken off"),
    ):
        with pytest.raises((Error, FileExistsError), match=text):
            lmdbio.Writer(target, resume=resume)
    assert run(CONTINUED, target, -1, "pairs").returncode == 0


def test_a_writer_killed_between_name_and_note_is_continued(tmp_path: Path) -> None:
    target = tmp_path / "set"
    assert run(CONTINUED, target, 999, "values").returncode == -signal.SIGKILL
    note = (tmp_path / "set.part/writing.json").read_text()
    assert run(CONTINUED, target, -1, "values").returncode == 0
    before = content(target)
    (target / "writing.json").write_text(note)
    assert run(CONTINUED, target, -1, "values").returncode == 0
    assert content(target) == before
    assert "exists already" in run(CONTINUED, target, -1, "values").stderr


def test_a_set_that_another_process_is_publishing_is_left_to_it(tmp_path: Path) -> None:
    target = tmp_path / "set"
    assert run(CONTINUED, target, 999, "values").returncode == -signal.SIGKILL
    (tmp_path / "set.part").rename(target)
    fd = os.open(target, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="another process writes it"):
            lmdbio.Writer(target, resume={"source": "v1"})
    finally:
        os.close(fd)
    assert names(tmp_path) == ["set"]


def test_what_a_killed_writer_left_is_replaced(tmp_path: Path) -> None:
    code = """if True:
        import os, signal, sys, lmdbio
        writer = lmdbio.Writer(sys.argv[1], batch_bytes_max=1)
        for number in range(10):
            writer.add(b"old")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run(code, tmp_path / "set").returncode == -signal.SIGKILL
    assert names(tmp_path) == ["set.part"]
    with lmdbio.Writer(tmp_path / "set") as writer:
        writer.put(b"new", b"1")
    assert content(tmp_path / "set") == [(b"new", b"1")]
