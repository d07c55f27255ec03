"""Converting databases.

Goal: the extents of a converted database give py-lmdb's values, for any history of the database;
a sidecar is as small as promised, made from branch and leaf pages alone, and appears whole or
not at all; whatever can't be converted is refused with its reason.
Method: databases made by py-lmdb in both data formats; simulated layouts of 500,000 records;
children killed at every system call that matters and at random moments.
"""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import pytest

from lmdbio import _core
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import Error, IncompatibleError, InvalidError, ProvenanceError
from lmdbio.locate.open import open_record_index
from lmdbio.provenance import (
    Provenance,
    data_file,
    find_sidecar,
    freshness,
    sidecar_file,
)
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.writer import Writer
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.publish import Draft

FORMATS = [0, 1]  # py-lmdb's lib_version: LMDB 0.9 and 1.0


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LMDBIO_PROVENANCE_DIR", raising=False)


def open_new(path: Path, lib_version: int = 0, **options: object) -> lmdb.Environment:
    options = {"map_size": 1 << 28, "sync": False, "max_dbs": 8, **options}
    return lmdb.open(str(path), lib_version=lib_version, **options)


def values_of(path: Path, name: bytes | None = None) -> list[bytes]:
    subdir = path.is_dir()
    with lmdb.open(str(path), subdir=subdir, readonly=True, lock=False, max_dbs=8) as env:
        db = env.open_db(name, create=False) if name else None
        with env.begin(db=db) as transaction:
            return [value for _, value in transaction.cursor()]


def values_by_sidecar(path: Path, sidecar: Path, name: bytes | None = None) -> list[bytes]:
    content = data_file(path).read_bytes()
    with Provenance.open(sidecar) as opened, _core.Engine(data_file(path)) as engine:
        opened.attach(LeafReader(engine, opened.facts.layout))
        extents = opened.section(name).extents().tolist()
    return [content[offset : offset + length] for offset, length in extents]


def put_all(env: lmdb.Environment, items, every: int = 100, db=None) -> None:
    transaction = env.begin(write=True, db=db)
    for i, (key, value) in enumerate(items):
        transaction.put(key, value)
        if i % every == every - 1:
            transaction.commit()
            transaction = env.begin(write=True, db=db)
    transaction.commit()


def record(i: int, size: int, rng: random.Random) -> tuple[bytes, bytes]:
    return b"%08d_name.jpg" % i, rng.randbytes(size)


THRESHOLDS = [0, 1, 2, 100, *range(1980, 2050), 4071, 4072, 4079, 4080, 4081, 8176, 8177, 40000]


def make_inline(env, rng):
    put_all(env, (record(i, rng.randrange(0, 300), rng) for i in range(3000)))


def make_fixed(env, rng):
    put_all(env, (record(i, 3085, rng) for i in range(2000)))


def make_thresholds(env, rng):
    put_all(env, (record(i, size, rng) for i, size in enumerate(THRESHOLDS * 3)), every=17)


def make_random_order(env, rng):
    order = rng.sample(range(2000), 2000)
    put_all(env, (record(i, rng.choice([20, 3000, 9000]), rng) for i in order))


def make_changed(env, rng):
    make_thresholds(env, rng)
    for _ in range(15):
        with env.begin(write=True) as transaction:
            for _ in range(20):
                key, value = record(rng.randrange(250), rng.choice(THRESHOLDS), rng)
                transaction.put(key, value)
                transaction.delete(record(rng.randrange(250), 0, rng)[0])


def make_deep(env, rng):
    put_all(env, ((b"%0500d" % i, rng.randbytes(rng.choice([9, 2500]))) for i in range(900)))


def make_one(env, rng):
    put_all(env, [(b"k", rng.randbytes(5000))])


def make_empty(env, rng):
    pass


def make_emptied(env, rng):
    make_inline(env, rng)
    with env.begin(write=True) as transaction:
        transaction.drop(env.open_db(None, txn=transaction), delete=False)


MAKERS: list[Callable[..., None]] = [
    make_inline,
    make_fixed,
    make_thresholds,
    make_random_order,
    make_changed,
    make_deep,
    make_one,
    make_empty,
    make_emptied,
]


@pytest.mark.parametrize("lib_version", FORMATS)
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__[5:])
def test_the_sidecar_gives_the_values_that_py_lmdb_gives(make, lib_version, tmp_path):
    path = tmp_path / "db"
    with open_new(path, lib_version) as env:
        make(env, random.Random(42))
    report = convert(path)
    values = values_of(path)
    assert report.sidecar == path / "data.mdb.prov"
    assert report.sidecar_bytes == report.sidecar.stat().st_size
    assert (report.records, report.record_bytes) == (len(values), sum(map(len, values)))
    assert values_by_sidecar(path, report.sidecar) == values
    verified = verify(path)
    assert (verified.sidecar_records, verified.sidecar) == (len(values), report.sidecar)


@pytest.mark.parametrize("lib_version", FORMATS)
def test_a_compacted_copy_has_few_runs(lib_version, tmp_path):
    path, compact = tmp_path / "db", tmp_path / "compact"
    compact.mkdir()
    with open_new(path, lib_version) as env:
        make_random_order(env, random.Random(3))
        env.copy(str(compact), compact=True)
    assert convert(compact).runs < convert(path).runs
    assert values_by_sidecar(compact, compact / "data.mdb.prov") == values_of(path)


@pytest.mark.parametrize("lib_version", FORMATS)
def test_named_databases_each_have_their_section(lib_version, tmp_path):
    path, rng = tmp_path / "db", random.Random(1)
    names = [b"train", b"val", b"empty"]
    with open_new(path, lib_version) as env:
        for name, count in zip(names, (900, 40, 0), strict=True):
            items = (record(i, rng.choice([30, 4000]), rng) for i in range(count))
            put_all(env, items, db=env.open_db(name))
    report = convert(path)
    assert set(report.databases) == set(names)
    for name in names:
        assert values_by_sidecar(path, report.sidecar, name) == values_of(path, name)
    only = convert(path, databases=["val", None])
    assert only.databases == (b"val", None)
    assert values_by_sidecar(path, only.sidecar, None) == values_of(path)
    assert len(values_of(path)) == 3
    everything = convert(path, databases="all")
    assert set(everything.databases) == set(names)
    assert verify(path).sidecar_records == 940


def test_the_main_database_is_converted_when_it_holds_records_too(tmp_path):
    path, rng = tmp_path / "db", random.Random(1)
    with open_new(path) as env:
        put_all(env, (record(i, 3000, rng) for i in range(300)), db=env.open_db(b"named"))
        put_all(env, (record(i, 500, rng) for i in range(200)))
    assert convert(path).databases == (None,)
    assert values_by_sidecar(path, path / "data.mdb.prov") == values_of(path)
    assert convert(path, databases="all").databases == (None, b"named")
    assert values_by_sidecar(path, path / "data.mdb.prov", b"named") == values_of(path, b"named")


def test_only_branch_and_leaf_pages_are_read(tmp_path):
    path = tmp_path / "db"
    with open_new(path) as env:
        put_all(env, (record(i, 3085, random.Random(i)) for i in range(20_000)), every=1000)
        stat = env.stat()
    pages = stat["branch_pages"] + stat["leaf_pages"]
    report = convert(path)
    assert report.pages_read == pages
    # The rest is looks at both meta pages: two before, lest a commit tear them, and one after.
    assert report.bytes_read == (pages + 3 * 2) * stat["psize"]
    # And that is small for a real database, too.
    assert report.sidecar_bytes < 500
    assert (report.replayed, report.blocks_runs, report.blocks_explicit) == (1, 0, 0)


def write_simulated(tmp_path: Path, extents: _core.Extents, layout: _core.Layout) -> int:
    db = _core.Database(0, 0, 4, 99, 9999, len(extents), len(extents), 77)
    meta = _core.Meta(layout, db, db, 1 << 40, layout.page_limit - 1, 501, 0)
    path = tmp_path / "x.prov"
    with Draft(path) as draft:
        writer = Writer(draft, layout)
        writer.begin(None, db)
        for start in range(0, len(extents), 10_000):
            writer.add(extents[start : start + 10_000])
        writer.end()
        stamp = time.time_ns()
        hints = FileIdentity(stamp, stamp + 1, 66, 12345, os.urandom(16))
        size = writer.finish(meta, hints, os.urandom(32))
        draft.publish(True)
    with Provenance.open(path) as opened:
        assert opened.section().extents().tobytes() == extents.tobytes()
    assert size == path.stat().st_size
    return size


def simulated_pages(pages: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """First pages as LMDB gives them out: a leaf splits off every 107 records, and each commit
    (1,000 puts) gives back a dozen pages that the next but one uses for its leaves."""
    count = len(pages)
    gaps = np.zeros(count, np.int64)
    gaps[107::107] = 1
    commits = np.arange(1000, count, 1000)
    gaps[commits] += rng.choice([0, 1, 2, 8, 9], len(commits), p=[0.1, 0.3, 0.3, 0.2, 0.1])
    return np.cumsum(pages) - pages + np.cumsum(gaps) + 12


def test_half_a_million_records_of_one_size_take_two_kilobytes(tmp_path):
    extents = np.empty(500_000, _core.EXTENT)
    extents["length"] = 3085
    first = simulated_pages(np.ones(len(extents), np.int64), np.random.default_rng(9))
    extents["offset"] = first * 4096 + 16
    layout = _core.Layout(1, 4096, 16, 0, int(first[-1]) + 10)
    assert write_simulated(tmp_path, extents, layout) <= 2048


@pytest.mark.parametrize(("mean", "spread"), [(3_500, 800), (9_000, 4_000), (110_000, 50_000)])
def test_records_of_jpeg_sizes_take_a_thousandth_of_the_data(mean, spread, tmp_path):
    rng = np.random.default_rng(10)
    extents = np.empty(200_000, _core.EXTENT)
    lengths = np.clip(rng.normal(mean, spread, len(extents)), 2100, None).astype(np.int64)
    pages = (lengths + 16 + 4095) // 4096
    extents["length"] = lengths
    extents["offset"] = simulated_pages(pages, rng) * 4096 + 16
    layout = _core.Layout(1, 4096, 16, 0, int(extents["offset"][-1]) // 4096 + 100)
    assert write_simulated(tmp_path, extents, layout) <= lengths.sum() / 1000


def test_real_records_of_jpeg_sizes_take_a_thousandth_of_the_data(tmp_path):
    path, rng = tmp_path / "db", random.Random(4)
    with open_new(path) as env:
        sizes = (max(600, int(rng.gauss(4000, 1200))) for _ in range(8000))
        put_all(env, (record(i, size, rng) for i, size in enumerate(sizes)), every=1000)
    report = convert(path)
    assert report.sidecar_bytes <= report.record_bytes / 1000


def test_progress_counts_pages_then_records(tmp_path):
    path = tmp_path / "db"
    with open_new(path) as env:
        make_fixed(env, random.Random(0))
    seen: dict[str, list[tuple[int, int]]] = {}

    def note(done, total, stage):
        seen.setdefault(stage, []).append((done, total))

    report = convert(path, progress=note)
    assert list(seen) == ["walk", "compare"]
    assert seen["walk"][-1] == (report.pages_read, report.pages_read)
    assert seen["compare"][-1] == (2000, 2000)


# --- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize("lib_version", FORMATS)
def test_databases_with_and_without_duplicates_share_a_file(lib_version, tmp_path):
    path = tmp_path / "db"
    with open_new(path, lib_version) as env:
        dup = env.open_db(b"dup", dupsort=True)
        plain = env.open_db(b"plain")
        with env.begin(write=True) as transaction:
            for i in range(3000):
                transaction.put(b"%d" % (i % 3), b"%d" % i, db=dup)
                transaction.put(b"%d" % i, b"%d" % i, db=plain)
    for databases, count in ((None, 6000), ("all", 6000), (["dup"], 3000), (["plain"], 3000)):
        assert convert(path, databases=databases).records == count
        report = verify(path)
        assert report.duplicates == (b"dup",) and report.sidecar_records == count


def test_unknown_names_are_refused(tmp_path):
    path = tmp_path / "db"
    with open_new(path) as env:
        make_inline(env, random.Random(0))
    with pytest.raises(LookupError, match="nope"):
        convert(path, databases=["nope"])
    with pytest.raises(IncompatibleError):
        convert(path, databases=[b"%08d_name.jpg" % 7])
    with pytest.raises(TypeError, match="sequence"):
        convert(path, databases="train")
    assert not (path / "data.mdb.prov").exists()


def test_what_is_no_database_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such LMDB environment"):
        convert(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match=r"no data\.mdb"):
        convert(tmp_path)
    text = tmp_path / "text"
    text.write_text("hello" * 9999)
    with pytest.raises(InvalidError, match="text"):
        convert(text)
    assert [p.name for p in tmp_path.iterdir()] == ["text"]


# --- where it is written -----------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.mdb"
    with open_new(path, subdir=False, lock=False) as env:
        make_thresholds(env, random.Random(0))
    return path


def test_the_sidecar_lies_where_it_is_asked_for(small, tmp_path, monkeypatch):
    assert convert(small).sidecar == tmp_path / "small.mdb.prov"
    assert convert(small, output=tmp_path / "x.prov").sidecar == tmp_path / "x.prov"
    folder = tmp_path / "folder"
    folder.mkdir()
    inside = convert(small, output=folder).sidecar
    assert inside.parent == folder and inside == sidecar_file(small, folder)
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(tmp_path / "new" / "shared"))
    shared = convert(small).sidecar
    assert shared.parent == tmp_path / "new" / "shared"
    assert shared == sidecar_file(small) and shared.exists()
    assert sidecar_file(small, "given") == Path("given")


def test_shared_folders_keep_data_sets_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(tmp_path))
    files = [Path(f"/d/{name}/data.mdb") for name in ("a", "b")] + [Path("/e/a/data.mdb")]
    assert len({sidecar_file(file) for file in files}) == 3
    assert sidecar_file(files[0]).name.startswith("a-")
    monkeypatch.chdir("/")
    assert sidecar_file("d/a/data.mdb") == sidecar_file(files[0])


def test_one_in_the_shared_folder_goes_before_one_beside_the_data(small, tmp_path, monkeypatch):
    beside = convert(small).sidecar
    assert find_sidecar(small) == beside
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(tmp_path / "shared"))
    assert find_sidecar(small) == beside
    assert verify(small).sidecar == beside
    with open_record_index(small, locate="provenance") as source:
        assert source.locate == "provenance"
    shared = convert(small).sidecar
    assert shared != beside and beside.exists()
    assert find_sidecar(small) == shared
    assert verify(small).sidecar == shared
    # Damage there is told, and no reason to look on.
    shared.write_bytes(b"damaged")
    with pytest.raises(ProvenanceError, match=re.escape(str(shared))):
        open_record_index(small, locate="provenance")
    shared.unlink()
    assert find_sidecar(small) == beside
    beside.unlink()
    assert find_sidecar(small) == shared
    assert verify(small).sidecar is None
    with pytest.raises(ProvenanceError, match=re.escape(str(shared))):
        open_record_index(small, locate="provenance")


def test_a_place_that_was_named_is_the_only_one(small, tmp_path):
    convert(small)
    assert find_sidecar(small, tmp_path / "other.prov") == tmp_path / "other.prov"
    with pytest.raises(FileNotFoundError):
        verify(small, tmp_path / "other.prov")


def test_a_shared_folder_that_cannot_be_searched_hides_nothing(small, tmp_path, monkeypatch):
    beside = convert(small).sidecar
    shared = tmp_path / "shared"
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(shared))
    exists = Path.exists

    def refuse(self, **options):
        if self.parent == shared:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return exists(self, **options)

    monkeypatch.setattr(Path, "exists", refuse)
    assert find_sidecar(small) == beside


def test_only_a_provenance_file_is_overwritten(small, tmp_path):
    before = small.read_bytes()
    with pytest.raises(FileExistsError, match="database itself"):
        convert(small, output=small)
    other = tmp_path / "notes.txt"
    other.write_text("dear diary")
    with pytest.raises(FileExistsError, match="no provenance file"):
        convert(small, output=other)
    assert other.read_text() == "dear diary" and small.read_bytes() == before
    sidecar = convert(small).sidecar
    with pytest.raises(FileExistsError):
        convert(small, overwrite=False)
    inode = sidecar.stat().st_ino
    convert(small)
    assert sidecar.stat().st_ino != inode
    sidecar.unlink()
    convert(small, overwrite=False)
    assert values_by_sidecar(small, sidecar) == values_of(small)


def test_a_rival_that_finishes_first_is_not_overwritten_unasked(small, tmp_path):
    rival = tmp_path / "small.mdb.prov"

    def come_first(done, total, stage):
        if stage == "compare":
            rival.write_bytes(b"first")

    with pytest.raises(FileExistsError):
        convert(small, overwrite=False, progress=come_first)
    assert rival.read_bytes() == b"first"


@pytest.mark.parametrize("way", ["output", "environment"])
def test_a_folder_that_cannot_be_written_names_the_ways_out(way, small, monkeypatch):
    folder = "/proc/self"  # not even root makes files here
    if way == "environment":
        monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", folder)
    with pytest.raises(OSError, match=r"--output or LMDBIO_PROVENANCE_DIR"):
        convert(small, output=folder if way == "output" else None)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_read_only_folder_is_a_permission_error(small, tmp_path):
    tmp_path.chmod(0o755)
    for folder in list(tmp_path.parents)[:3]:
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        with pytest.raises(PermissionError, match=r"--output or LMDBIO_PROVENANCE_DIR"):
            convert(small)
    finally:
        os.seteuid(0)


# --- writers and accidents ---------------------------------------------------------------


def test_a_commit_during_the_walk_starts_it_again(tmp_path):
    path, rng = tmp_path / "db", random.Random(0)
    with open_new(path) as env:
        make_fixed(env, rng)
        commits = []

        def commit_once(done, total, stage):
            if stage == "walk" and not commits:
                put_all(env, [(b"new", b"x" * 5000)])
                commits.append(done)

        report = convert(path, progress=commit_once)
    assert report.attempts == 2 and report.records == 2001
    assert values_by_sidecar(path, report.sidecar) == values_of(path)
    with _core.Engine(path / "data.mdb") as engine, Provenance.open(report.sidecar) as opened:
        freshness.check(engine, _core.read_meta(engine), opened)


def test_a_writer_that_never_rests_is_reported(tmp_path):
    path = tmp_path / "db"
    with open_new(path) as env:
        make_fixed(env, random.Random(0))
        with pytest.raises(Error, match="when its writer rests"):
            convert(path, progress=lambda *_: put_all(env, [(b"new", os.urandom(5000))]))
    assert sorted(p.name for p in path.iterdir()) == ["data.mdb", "lock.mdb"]


def test_a_sidecar_that_does_not_read_back_is_not_published(small, monkeypatch):
    original = Draft.write

    def flip(self, content, offset):
        if offset == 64:
            content = content[:-1] + bytes([content[-1] ^ 1])
        original(self, content, offset)

    monkeypatch.setattr(Draft, "write", flip)
    with pytest.raises(Error):
        convert(small)
    monkeypatch.setattr(Draft, "write", original)
    mark = _core.mark_extents
    monkeypatch.setattr(
        _core, "mark_extents", lambda some, before=0: mark(some, before) ^ len(some)
    )
    assert convert(small).records  # the same on both sides
    small.with_name("small.mdb.prov").unlink()
    marks = iter(range(1, 10**6))
    monkeypatch.setattr(_core, "mark_extents", lambda some, before=0: next(marks))
    with pytest.raises(Error, match="does not read back"):
        convert(small)
    assert [p.name for p in small.parent.iterdir()] == ["small.mdb"]


def test_marks_tell_lists_apart():
    rng = np.random.default_rng(1)
    extents = np.empty(3000, _core.EXTENT)
    extents["offset"], extents["length"] = rng.integers(0, 1 << 40, (2, 3000))
    whole = _core.mark_extents(extents)
    assert whole == _core.mark_extents(extents[1000:], _core.mark_extents(extents[:1000]))
    seen = {whole}
    for at in range(3000):
        for field in ("offset", "length"):
            other = extents.copy()
            other[field][at] ^= np.uint64(1) << np.uint64(at % 64)
            seen.add(_core.mark_extents(other))
    for cut in (0, 1, 2999):
        seen.add(_core.mark_extents(extents[:cut]))
    swapped = extents.copy()
    swapped[[5, 6]] = extents[[6, 5]]
    seen.add(_core.mark_extents(swapped))
    assert len(seen) == 1 + 6000 + 3 + 1


def test_a_full_disk_leaves_nothing_behind(small, monkeypatch):
    def full(fd, content, offset):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        convert(small)
    assert [p.name for p in small.parent.iterdir()] == ["small.mdb"]


def test_an_interrupt_leaves_nothing_behind(small):
    def interrupt(done, total, stage):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(small, progress=interrupt)
    assert [p.name for p in small.parent.iterdir()] == ["small.mdb"]


def in_child(work: Callable[[], None]) -> int:
    """Runs ``work`` in a forked child and returns its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def check_after_kill(small: Path, values: list[bytes]) -> bool:
    """Nothing, or a good sidecar; True for the latter."""
    sidecar = Path(f"{small}.prov")
    if not sidecar.exists():
        return False
    assert values_by_sidecar(small, sidecar) == values
    with _core.Engine(small) as engine, Provenance.open(sidecar) as opened:
        freshness.check(engine, _core.read_meta(engine), opened, "always")
    return True


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if p.name.endswith(".tmp")]


@pytest.mark.parametrize("before", [False, True], ids=["new", "replaced"])
def test_killed_at_any_call_it_leaves_nothing_or_a_good_sidecar(before, small, monkeypatch):
    values = values_of(small)
    sidecar = Path(f"{small}.prov")
    calls = ["open", "pwrite", "ftruncate", "fsync", "close", "unlink", "replace", "rename"]
    outcomes, survived = [], False
    for nth in range(1, 60):
        sidecar.unlink(missing_ok=True)
        if before:
            convert(small)

        def work(nth=nth):
            left = [nth]
            for name in calls:
                original = getattr(os, name)

                def counted(*args, _original=original, **kwargs):
                    left[0] -= 1
                    if left[0] == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return _original(*args, **kwargs)

                setattr(os, name, counted)
            convert(small)

        child = in_child(work)
        status = os.waitpid(child, 0)[1]
        outcomes.append(check_after_kill(small, values))
        if before:
            assert outcomes[-1]
        if not os.WIFSIGNALED(status):
            survived = True
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert survived and len(outcomes) > 8
    assert outcomes[-1] and (before or not outcomes[0])
    convert(small)
    assert leftovers(small.parent) == []


@pytest.mark.more
def test_killed_at_random_moments_it_leaves_nothing_or_a_good_sidecar(tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    small = tmp_path / "small.mdb"
    with open_new(small, subdir=False, lock=False) as env:
        make_inline(env, rng)
    values, sidecar = values_of(small), Path(f"{small}.prov")

    def work():
        while True:
            convert(small)

    found = 0
    for _ in range(40):
        sidecar.unlink(missing_ok=True)
        child = in_child(work)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found += check_after_kill(small, values)
    print("good sidecars", found)
    convert(small)
    assert leftovers(tmp_path) == []


def test_the_draft_of_a_living_run_is_left_alone(small, tmp_path):
    target = tmp_path / "small.mdb.prov"
    with Draft(target) as living:
        convert(small)
        assert leftovers(tmp_path) == [living.path.name]
    assert leftovers(tmp_path) == []
