"""Goal: the records of several files are one sequence that does all that one file's do.

Method: the same calls on a list of all values and on the files joined; files of several formats
and sizes, one of them empty, one twice.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import lmdbio
from lmdbio import Records
from lmdbio.convert.convert import convert
from lmdbio.records.records import open_records
from tests.support import ROOT, databases, long_run

COUNTS = (40, 0, 7, 300)


def value(file: int, i: int) -> bytes:
    return b"%d/%05d " % (file, i) * (1 + 37 * i % 900)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("joined")
    made = []
    for file, count in enumerate(COUNTS):
        path = folder / str(file)
        version = databases.FORMATS[file % len(databases.FORMATS)]
        with databases.open_writable(path, version) as env:
            databases.write(env, [(b"%08d" % i, value(file, i)) for i in range(count)])
        made.append(path)
    return [*made, made[2]]


@pytest.fixture(scope="module")
def values() -> list[bytes]:
    files = [*enumerate(COUNTS), (2, COUNTS[2])]
    return [value(file, i) for file, count in files for i in range(count)]


def test_it_is_the_sequence_of_all(paths: list[Path], values: list[bytes]) -> None:
    with Records(paths) as joined:
        assert len(joined) == len(values)
        assert list(joined) == values
        for i in (0, 39, 40, 46, 47, -1, -len(values)):
            assert joined[i] == values[i]
        for cut in (slice(0, 0), slice(30, 60), slice(46, 47), slice(None), slice(300, 2, -7),
                    slice(10, 5), slice(-3, None)):  # fmt: skip
            assert joined[cut] == values[cut], cut
        assert joined.key(45) == b"00000005"
        for bad in (len(values), -len(values) - 1):
            with pytest.raises(IndexError, match=str(len(values))):
                joined[bad]


@pytest.mark.parametrize("seed", range(5))
def test_batches_of_all_files_come_in_the_order_asked(
    paths: list[Path], values: list[bytes], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    with Records(paths) as joined:
        wanted = [draw.integers(-len(values), len(values), draw.integers(0, 90)) for _ in range(8)]
        for indices, batch in zip(wanted, joined.batches(wanted), strict=True):
            expected = [values[i] for i in indices]
            assert list(map(bytes, batch)) == expected
            assert [bytes(batch[i]) for i in range(len(batch))] == expected
            assert batch.lengths.tolist() == list(map(len, expected))
            assert batch.indices.tolist() == [i % len(values) for i in indices.tolist()]
            assert list(joined.values(indices)) == expected
        read = joined.stats().records
    assert read == 2 * sum(map(len, wanted))
    assert [bytes(view) for view in batch] == expected, "it stays valid"


def test_a_batch_is_a_sequence(paths: list[Path], values: list[bytes]) -> None:
    with Records(paths) as joined:
        batch = joined.read([0, 45, 46])
        assert bytes(batch[-1]) == values[46]
        assert len(joined.read([])) == 0
        for bad in (3, -4):
            with pytest.raises(IndexError):
                batch[bad]
        with pytest.raises(IndexError, match=str(len(values))):
            joined.read([0, len(values)])
        with pytest.raises(TypeError):
            joined.read([[1]])


def test_it_is_pickled_by_its_paths(
    paths: list[Path], values: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paths[0].parent)
    with Records([path.name for path in paths]) as joined:
        told = pickle.dumps(joined)
    monkeypatch.chdir("/")
    with pickle.loads(told) as again:
        assert list(again) == values


def test_a_child_process_reads_it(paths: list[Path], values: list[bytes]) -> None:
    with Records(paths) as joined:
        joined.read([1, 50])
        child = os.fork()
        if not child:
            os._exit(
                0 if [bytes(v) for v in joined.read([50, 1])] == [values[50], values[1]] else 1
            )
        assert os.waitpid(child, 0)[1] == 0


FORKING = """
import os, random, sys, threading
from lmdbio import Records

sets, ends = [Records(sys.argv[1:], readahead=False) for _ in range(3)], threading.Event()
count = len(sets[0])

def read():
    while not ends.is_set():
        random.choice(sets)[random.randrange(count)]

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=read) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(FORKS):
    child = os.fork()
    if not child:
        os._exit(0 if len(sets[0].read(range(count))) == count else 1)
    assert os.waitpid(child, 0)[1] == 0
ends.set()
for thread in threads:
    thread.join()
"""


def test_forks_and_threads_that_read_do_not_wait_for_one_another(paths: list[Path]) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        FORKING.replace("FORKS", str(long_run.cases(150, 40))),
        *map(str, paths),
    ]
    subprocess.run(command, check=True, timeout=60, cwd=ROOT)


def test_nothing_stays_open_when_one_cannot_be(paths: list[Path], tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Records([*paths, tmp_path / "nowhere"])
    assert (len(list(Path("/proc/self/fd").iterdir())), threading.active_count()) == before


def test_what_was_closed_says_so(paths: list[Path]) -> None:
    joined = Records(paths)
    joined.close()
    joined.close()
    for ask in (lambda: joined.read([0]), lambda: joined.key(0), lambda: joined.index_of(b"key")):
        with pytest.raises(lmdbio.Error, match="closed"):
            ask()


def test_each_record_is_of_a_file(paths: list[Path]) -> None:
    with Records(paths) as joined, Records(paths[0]) as one:
        assert joined.files == [str(path / "data.mdb") for path in paths]
        assert joined.file_of(39) == (str(paths[0] / "data.mdb"), 39)
        assert joined.file_of(40) == (str(paths[2] / "data.mdb"), 0)
        assert joined.file_of(-1) == (str(paths[2] / "data.mdb"), 6)
        assert one.file_of(-1) == (one.files[0], 39) == (one.path, 39)


def test_keys_lead_to_records_of_the_first_file_that_has_them(paths: list[Path]) -> None:
    with Records(paths) as joined:
        assert [joined.key(i) for i in (0, 46, 47)] == [b"00000000", b"00000006", b"00000000"]
        assert joined.index_of(b"00000006") == 6 and joined.index_of(b"00000100") == 147
        with pytest.raises(KeyError, match="00000400"):
            joined.index_of(b"00000400")
        assert len(joined.groups) == len(joined) and joined.groups[46] == range(46, 47)


def test_records_as_they_were_put_are_so_in_each_file(tmp_path: Path) -> None:
    made = []
    for file in range(3):
        made.append(tmp_path / f"shard{file}")
        with databases.open_writable(made[-1], 1) as env:
            databases.write(env, [(b"%d" % i, b"%d/%d" % (file, i)) for i in range(12)])
    with Records(made, order="insertion") as joined:
        assert list(joined) == [b"%d/%d" % (file, i) for file in range(3) for i in range(12)]
        assert [joined.key(i) for i in (2, 11, 14)] == [b"2", b"11", b"2"]
        assert joined.index_of(b"10") == 10
        assert joined.groups[14] == range(14, 15) or len(joined.groups) == 36
    for path in made[::2]:
        convert(path)
    with Records(made, order="insertion") as joined:
        assert joined.located_by == "scan" and joined[35] == b"2/11"
    convert(made[1])
    with Records(made, locate="provenance") as joined:
        assert joined.located_by == "provenance" and sorted(joined[:12]) == sorted(
            b"0/%d" % i for i in range(12)
        )


def test_folders_and_patterns_name_several_files(tmp_path: Path) -> None:
    names = ["s/a2.lmdb", "s/a10.lmdb", "s/b.aselmdb", "s/deep/er/data.mdb", "s/d.lmdb/data.mdb"]
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        single = path.name != "data.mdb"
        place = path if single else path.parent
        with databases.open_writable(place, 1, subdir=not single, map_size=1 << 20) as env:
            databases.write(env, [(b"key", name.encode())])
    (tmp_path / "s" / "notes.txt").write_text("no database")
    expected = [name.encode() for name in (names[0], names[1], names[2], names[4], names[3])]
    assert list(Records(tmp_path / "s")) == expected
    assert list(Records(f"{tmp_path}/s/a*.lmdb")) == expected[:2]
    assert list(Records(f"{tmp_path}/**/data.mdb")) == expected[3:]
    assert list(Records([tmp_path / "s" / "b.aselmdb", f"{tmp_path}/s/a?.lmdb"])) == [
        expected[2],
        expected[0],
    ]
    with pytest.raises(FileNotFoundError, match="nothing has such a name"):
        Records(f"{tmp_path}/s/c*.lmdb")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no data\.mdb, and holds none"):
        Records(tmp_path / "empty")


def test_links_in_a_folder_are_followed_and_none_is_left_out(tmp_path: Path) -> None:
    for name in ("elsewhere/one.lmdb", "elsewhere/folder/data.mdb", "s/two.lmdb"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        single = path.name != "data.mdb"
        with databases.open_writable(path if single else path.parent, 1, subdir=not single) as env:
            databases.write(env, [(b"key", name.encode())])
    (tmp_path / "s" / "one.lmdb").symlink_to(tmp_path / "elsewhere" / "one.lmdb")
    (tmp_path / "s" / "far").symlink_to(tmp_path / "elsewhere" / "folder")
    (tmp_path / "s" / "again").symlink_to(tmp_path / "s")
    assert sorted(Records(tmp_path / "s")) == [
        b"elsewhere/folder/data.mdb",
        b"elsewhere/one.lmdb",
        b"s/two.lmdb",
    ]
    (tmp_path / "elsewhere" / "one.lmdb").unlink()
    with pytest.raises(FileNotFoundError, match="a link to a file that is not there"):
        Records(tmp_path / "s")


@pytest.mark.parametrize(
    ("source", "error", "told"),
    [([], ValueError, "empty list"), (b"path", FileNotFoundError, "no such LMDB"),
     ([b"path"], FileNotFoundError, "no such LMDB"), (7, TypeError, "path or a list"),
     ([[]], TypeError, "path or a list")],
)  # fmt: skip
def test_other_sources_are_refused(source: object, error: type, told: str) -> None:
    with pytest.raises(error, match=told):
        Records(source)  # type: ignore[arg-type]


def test_a_provenance_file_is_of_one_file(paths: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name the folder"):
        Records(paths, provenance=tmp_path / "one.prov")


def test_a_writer_that_moves_a_file_on_is_an_error_that_names_it(tmp_path: Path) -> None:
    made = [tmp_path / name for name in "abc"]
    for path in made:
        with databases.open_writable(path, 1) as env:
            databases.write(env, [(b"%03d" % i, databases.value(i, 3000)) for i in range(60)])
    with Records(made) as joined:
        joined.read(np.arange(180))
        with databases.open_writable(made[1], 1) as env:
            for _ in range(3):
                databases.write(env, [(b"new", b"value")])
        assert joined[0] == databases.value(0, 3000) and joined[179] == databases.value(59, 3000)
        with pytest.raises(lmdbio.Error, match=r"/b/data\.mdb: was written to since"):
            joined[60]
        with pytest.raises(lmdbio.Error, match=r"/b/data\.mdb: was written to since"):
            joined.read([1, 61, 121])


def test_keys_are_those_of_the_state_that_is_read_or_an_error(tmp_path: Path) -> None:
    made = [tmp_path / f"{file}" for file in range(12)]
    for path in made:
        with databases.open_writable(path, 1) as env:
            databases.write(env, [(b"%d" % i, b"value %d" % i) for i in range(1, 6)])
    with Records(made) as joined:
        assert joined.key(5) == b"1"  # it stays open
        for path in made[1:3]:
            with databases.open_writable(path, 1) as env:
                databases.write(env, [(b"0", b"new")])
        assert (joined.key(5), joined[5], joined[10]) == (b"1", b"value 1", b"value 1")
        told = r"/2/data\.mdb: was written to since it was opened"
        with pytest.raises(lmdbio.Error, match=told):
            joined.key(10)
        with pytest.raises(lmdbio.Error, match=told):
            joined.index_of(b"nowhere")
        assert joined.index_of(b"4") == 3
        copy = tmp_path / "copy"
        copy.write_bytes((made[9] / "data.mdb").read_bytes())
        copy.replace(made[9] / "data.mdb")
        with pytest.raises(lmdbio.Error, match=r"/9/data\.mdb: another file has taken its place"):
            joined.key(46)


@pytest.mark.parametrize("is_replaced", [False, True], ids=["committed", "replaced"])
def test_keys_of_another_state_are_an_error_that_names_the_file(
    tmp_path: Path, *, is_replaced: bool
) -> None:
    for name in "ab":
        with databases.open_writable(tmp_path / name, 1) as env:
            databases.write(env, [(b"%s%d" % (name.encode(), i), b"value") for i in range(9)])
    with Records([tmp_path / "a", tmp_path / "b"]) as joined:
        changed = tmp_path / ("b.new" if is_replaced else "b")
        with databases.open_writable(changed, 1) as env:
            databases.write(env, [(b"a!", b"moves each key of its file on")])
        if is_replaced:
            (changed / "data.mdb").replace(tmp_path / "b" / "data.mdb")
        told = f"{tmp_path / 'b'}.*since it was opened"
        for ask in (
            lambda: joined.key(9),
            lambda: joined.index_of(b"b3"),
            lambda: joined.groups[9],
        ):
            with pytest.raises(lmdbio.Error, match=told):
                ask()
        assert joined.key(8) == b"a8"


def test_a_data_set_of_many_files_leaves_descriptors_to_the_program(tmp_path: Path) -> None:
    made = []
    for number in range(60):
        made.append(tmp_path / f"{number}")
        with databases.open_writable(made[-1], 1) as env:
            databases.write(env, [(b"%d" % number, b"value")])
    before = len(list(Path("/proc/self/fd").iterdir()))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 40, hard))
    try:
        with Records(made) as joined, Records(made) as other:
            for records in joined, other:
                assert records.read(range(60))[59] == b"value"
                assert records.key(30) == b"30"
            held = len(list(Path("/proc/self/fd").iterdir())) - before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert held < 40


def test_what_is_open_is_taken_as_it_is(paths: list[Path]) -> None:
    with open_records(paths[0]) as one, open_records(paths[:2], depth=2) as two:
        assert len(one) == COUNTS[0] and len(two) == sum(COUNTS[:2])
        assert open_records(one) is one and open_records(two) is two
        with pytest.raises(ValueError, match="depth"):
            open_records(one, depth=2)
