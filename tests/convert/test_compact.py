"""Compacting copies: equal to their source and smaller; the source is left alone.

Method: every shape of database is copied and compared with its source through py-lmdb; others
commit to the source meanwhile. test_ends has the ends of copies, test_comparison
how they are compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio import cli
from lmdbio.convert import compacting
from lmdbio.convert.compacting import compact
from lmdbio.convert.convert import convert
from lmdbio.convert.copying import Copy
from lmdbio.convert.verify import verify
from lmdbio.errors import Error, IncompatibleError
from tests.support.compacting import everything, fragmented, left_in, meta_of, state
from tests.support.databases import (
    CASES,
    FORMATS,
    Case,
    build,
    content,
    open_writable,
    records,
    write,
)

# --- copies ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_copies_equal_their_source_and_are_converted(
    case: Case, version: int, tmp_path: Path
) -> None:
    source, target = build(case, tmp_path, version), tmp_path / "target"
    before = state(source)
    report = compact(source, target)
    assert state(source) == before
    assert everything(target) == everything(source)
    was, now = meta_of(source), meta_of(target)
    assert now.layout.version == was.layout.version == version
    assert now.layout.page_size == was.layout.page_size
    assert now.map_size == was.map_size
    assert report.sidecar == target / "data.mdb.prov"
    checked = verify(target)
    assert checked.sidecar == report.sidecar
    assert report.after.records == report.before.records
    assert report.after.record_bytes == report.before.record_bytes
    if case.name != "mixed":  # in order already, but for where leaves lie
        assert report.after.runs <= report.before.runs
    assert report.after.file_bytes <= report.before.file_bytes
    assert report.after.free_pages == 0
    assert report.after.file_bytes == report.after.used_bytes
    assert report.after.sidecar_bytes == report.sidecar.stat().st_size
    assert sorted(path.name for path in target.iterdir()) == ["data.mdb", "data.mdb.prov"]
    assert not left_in(tmp_path)


@pytest.mark.parametrize("version", FORMATS)
def test_fragments_come_together(version: int, tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source", version)
    report = compact(source, tmp_path / "target")
    assert report.before.free_pages > 0
    assert report.after.used_bytes < report.before.used_bytes
    assert report.after.runs < report.before.runs / 2
    assert content(tmp_path / "target") == content(source)


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("name", ["fragmented", "named", "mixed"])
def test_numbers_are_those_of_convert_and_of_py_lmdb(
    name: str, version: int, tmp_path: Path
) -> None:
    if name == "fragmented":
        source = fragmented(tmp_path / name, version)
    else:
        source = build(next(case for case in CASES if case.name == name), tmp_path, version)
    report = compact(source, tmp_path / "target")
    for path, sizes in ((source, report.before), (tmp_path / "target", report.after)):
        tables = convert(path, output=tmp_path / "tables.prov", databases="all", form="leaves")
        walked = verify(path, tmp_path / "tables.prov")
        assert sizes.runs == tables.runs
        assert sizes.record_bytes == tables.record_bytes
        assert sizes.records == tables.records
        pages = walked.tree_pages + walked.overflow_pages + 2
        meta = meta_of(path)
        lists = meta.free_db.overflow_pages
        assert sizes.used_bytes == (pages + lists) * meta.layout.page_size
        assert sizes.free_pages == meta.last_pgno + 1 - pages - lists


@pytest.mark.parametrize("version", FORMATS)
def test_databases_with_duplicates_are_copied_and_converted(version: int, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with open_writable(source, version) as env:
        varied = env.open_db(b"varied", dupsort=True)
        fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True)
        write(env, records(200, lambda i: i * 30), db=env.open_db(b"plain"))
        write(env, [(b"%d" % (i % 3), b"%09d" % i) for i in range(3000)], db=varied)
        write(env, [(b"%d" % (i % 99), b"%09d" % i) for i in range(990)], db=fixed)
    report = compact(source, target)
    assert everything(target) == everything(source)
    assert report.before.records == report.after.records == 4190
    assert verify(target, report.sidecar).sidecar_records == 4190


@pytest.mark.parametrize("subdir", [True, False])
@pytest.mark.parametrize("version", FORMATS)
def test_many_duplicates_of_one_size_are_put_again(
    version: int, subdir: bool, tmp_path: Path
) -> None:
    """LMDB's own copy dies of these."""
    source, target = tmp_path / "source", tmp_path / "target"
    with open_writable(source, version, subdir=subdir) as env:
        fixed = env.open_db(b"fixed", dupsort=True, dupfixed=True)
        numbers = env.open_db(
            b"numbers", dupsort=True, dupfixed=True, integerdup=True, integerkey=True
        )
        write(env, records(200, lambda i: i * 30))
        write(env, records(300, lambda i: i * 17), db=env.open_db(b"reverse", reverse_key=True))
        write(env, [(b"%d" % (i % 3), b"%09d" % i) for i in range(9000)], db=fixed)
        write(env, [(b"%08d" % (i % 3), b"%04d" % i) for i in range(9000)], db=numbers)
    seen: list[tuple[int, int]] = []
    report = compact(
        source,
        target,
        progress=lambda done, total, stage: (
            seen.append((done, total)) if stage == "copy" else None
        ),
    )
    assert everything(target) == everything(source)
    assert meta_of(target).layout.version == version
    assert meta_of(target).map_size == meta_of(source).map_size
    assert report.before.records == report.after.records
    assert report.after.file_bytes < report.before.file_bytes
    assert seen[-1] == (18_500, 18_500)
    assert target.is_dir() is subdir
    assert not left_in(tmp_path)


@pytest.mark.parametrize("version", FORMATS)
def test_single_files_stay_single_files(version: int, tmp_path: Path) -> None:
    source, target = tmp_path / "source.mdb", tmp_path / "target.mdb"
    fragmented(source, version, subdir=False)
    before = state(source)
    report = compact(source, target)
    assert state(source) == before
    assert everything(target) == everything(source)
    assert report.sidecar == tmp_path / "target.mdb.prov"
    assert verify(target).sidecar_records == report.after.records
    with lmdbio.Records(target, locate="provenance") as found:
        assert len(found) == report.after.records
    left = {"source.mdb", "source.mdb-lock", "target.mdb", "target.mdb.prov"}
    assert {path.name for path in tmp_path.iterdir()} == left


def test_the_map_size_goes_along(tmp_path: Path) -> None:
    with open_writable(tmp_path / "source", 1, map_size=123 << 20) as env:
        write(env, records(10, lambda i: i))
    compact(tmp_path / "source", tmp_path / "target")
    with lmdb.open(str(tmp_path / "target"), map_size=1, readonly=True, lock=False) as env:
        assert meta_of(tmp_path / "target").map_size == 123 << 20
        assert env.stat()["entries"] == 10


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    source, target = fragmented(tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    compact(source, target)
    assert content(target) == content(source)


def test_an_order_that_was_told_goes_along(tmp_path: Path) -> None:
    keys = [b"%08d" % (index * 7 % 100) for index in range(100)]
    with lmdb.open(str(tmp_path / "source"), map_size=1 << 24) as env:
        with env.begin(write=True) as txn:
            for key in keys:
                txn.put(key, key * 9)
    convert(tmp_path / "source", order=keys)
    compact(tmp_path / "source", tmp_path / "target")
    with lmdbio.Records(tmp_path / "target", order="insertion", locate="provenance") as records:
        assert [records.key(i) for i in range(100)] == keys


def test_an_order_of_another_state_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit between the look at the source's provenance file and the copy."""
    keys = [b"wolf", b"hen", b"fox"]
    env = lmdb.open(str(tmp_path / "source"), map_size=1 << 24)
    with env.begin(write=True) as txn:
        for key in keys:
            txn.put(key, key)
    env.close()
    convert(tmp_path / "source", order=keys)
    look = compacting._provenance_state

    def told(data: Path) -> Any:
        found = look(data)
        with lmdb.open(str(tmp_path / "source"), map_size=1 << 24) as env:
            with env.begin(write=True) as txn:
                txn.delete(b"wolf")
                txn.put(b"wolf", b"")
        return found

    monkeypatch.setattr(compacting, "_provenance_state", told)
    compact(tmp_path / "source", tmp_path / "target")
    with pytest.raises(IncompatibleError, match="is not known"):
        lmdbio.Records(tmp_path / "target", order="insertion")


def test_databases_that_are_described_stay_so(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "source"), map_size=1 << 24, max_dbs=1) as env:
        with env.begin(write=True) as txn:
            txn.put(b"beside", b"")
            for key in (b"wolf", b"hen"):
                txn.put(key, key, db=env.open_db(b"named", txn=txn))
    convert(tmp_path / "source", databases=["named"], order=[b"wolf", b"hen"])
    compact(tmp_path / "source", tmp_path / "target")
    with lmdbio.Records(tmp_path / "target", db="named", order="insertion") as records:
        assert list(records) == [b"wolf", b"hen"]


def test_without_conversion_there_is_no_provenance_file(tmp_path: Path) -> None:
    report = compact(fragmented(tmp_path / "source"), tmp_path / "target", convert=False)
    assert report.sidecar is None
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["data.mdb"]


def test_the_provenance_file_goes_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(tmp_path / "source")
    report = compact(source, tmp_path / "one", output=tmp_path / "one.prov")
    assert report.sidecar == tmp_path / "one.prov"
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(tmp_path / "sidecars"))
    report = compact(source, tmp_path / "two")
    assert report.sidecar is not None
    assert report.sidecar.parent == tmp_path / "sidecars"
    verify(tmp_path / "two", report.sidecar)


def test_an_environment_that_py_lmdb_has_open_here_is_copied(tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    with lmdb.open(str(source), map_size=1 << 28) as env:
        with env.begin() as txn:
            compact(source, tmp_path / "target")
            assert content(tmp_path / "target") == list(txn.cursor())


def test_progress_ends_at_its_total(tmp_path: Path) -> None:
    seen: dict[str, tuple[int, int]] = {}

    def note(done: int, total: int, stage: str) -> None:
        assert done >= seen.get(stage, (0, 0))[0]
        seen[stage] = done, total

    source = fragmented(tmp_path / "source")
    report = compact(source, tmp_path / "target", progress=note)
    assert list(seen)[:4] == ["look", "copy", "check", "contents"]
    assert all(done == total > 0 for done, total in seen.values())
    assert seen["copy"][1] * 4096 == report.after.file_bytes
    assert seen["contents"][1] == report.after.records


# --- the source is left alone ------------------------------------------------------------


@pytest.fixture(params=["with lock file", "without lock file"])
def read_only(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An environment that can't be written to."""
    source = fragmented(tmp_path / "source")
    if request.param == "without lock file":
        (source / "lock.mdb").unlink()
    if os.geteuid():
        source.chmod(0o555)
        yield source
        source.chmod(0o755)
        return
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for command in (
        ["mount", "--bind", source, mounted],
        ["mount", "-o", "remount,bind,ro", mounted],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            subprocess.run(["umount", mounted], capture_output=True, check=False)
            pytest.skip(f"root here may not mount: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def test_a_source_that_cannot_be_written_to_is_copied(read_only: Path, tmp_path: Path) -> None:
    before = sorted(read_only.iterdir())
    compact(read_only, tmp_path / "target")
    assert content(tmp_path / "target") == content(read_only)
    assert sorted(read_only.iterdir()) == before


def test_no_lock_file_is_made(tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    (source / "lock.mdb").unlink()
    compact(source, tmp_path / "target")
    assert [path.name for path in source.iterdir()] == ["data.mdb"]


#: After the source was looked at, before the copy is taken; and after that, before it is compared.
STAGES = ["_fill", "_check"]


def committing(monkeypatch: pytest.MonkeyPatch, source: Path, commits: int, stage: str) -> None:
    """Commits to the source before a stage."""
    original = getattr(Copy, stage)

    def late(self: Any, *arguments: Any) -> None:
        with lmdb.open(str(source), map_size=1 << 28, lock=False) as env:
            for turn in range(commits):
                with env.begin(write=True) as txn:
                    for key in (b"%08d" % i for i in range(turn, 600, 7)):
                        txn.put(key, b"new" * 1000)
        original(self, *arguments)

    monkeypatch.setattr(Copy, stage, late)


@pytest.mark.parametrize("stage", STAGES)
def test_too_many_commits_without_a_slot_are_an_error(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(tmp_path / "source")
    (source / "lock.mdb").unlink()
    committing(monkeypatch, source, 6, stage)
    with pytest.raises(Error, match="was committed to while it was copied"):
        compact(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not left_in(tmp_path)


@pytest.mark.parametrize("stage", STAGES)
def test_a_reader_slot_keeps_the_state_that_is_copied(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(tmp_path / "source")
    before = content(source)
    writer = (
        "import lmdb, sys\n"
        "with lmdb.open(sys.argv[1], map_size=1 << 28) as env:\n"
        "    for turn in range(8):\n"
        "        with env.begin(write=True) as txn:\n"
        "            for i in range(turn, 600, 7):\n"
        "                txn.put(b'%08d' % i, b'new' * 1000)\n"
    )
    original = getattr(Copy, stage)

    def late(self: Any, *arguments: Any) -> None:
        subprocess.run([sys.executable, "-c", writer, str(source)], check=True)
        original(self, *arguments)

    monkeypatch.setattr(Copy, stage, late)
    compact(source, tmp_path / "target")
    assert content(tmp_path / "target") == before
    assert content(source) != before
    with lmdb.open(str(source), map_size=1 << 28) as env:
        assert env.info()["num_readers"] <= 1  # the slot was given back
        assert env.readers().strip() == "(no active readers)"


# --- the command -------------------------------------------------------------------------


def call(*arguments: object) -> Any:
    return CliRunner().invoke(cli.cli, [str(one) for one in arguments], catch_exceptions=False)


def test_the_command_shows_what_was_before_and_after(tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    convert(source)
    done = call("compact", source, tmp_path / "target")
    assert done.exit_code == 0, done.output
    said = call("compact", source, tmp_path / "again", "--json")
    report = json.loads(said.stdout)
    rows = {line[2:17].strip(): line[17:].split() for line in done.stdout.splitlines()[1:]}
    assert str(tmp_path / "target" / "data.mdb") in done.stdout
    before, after = report["before"], report["after"]
    assert rows["runs"] == [f"{before['runs']:,}", f"{after['runs']:,}"]
    assert rows["free pages"] == [f"{before['free_pages']:,}", "0"]
    assert rows["provenance file"][0] == f"{before['sidecar_bytes']:,}"
    assert report["databases"] == [None]
    assert report["values_compared"]
    quick = call("compact", source, tmp_path / "quick", "--no-values", "--json")
    assert not json.loads(quick.stdout)["values_compared"]
    assert report["sidecar"] == str(tmp_path / "again" / "data.mdb.prov")


def single(path: Path) -> Path:
    with lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 20) as env:
        with env.begin(write=True) as txn:
            txn.put(b"key", b"value" * 100)
    return path


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("text/one.prov", "Not a directory; name another place"),
        ("text", "is no provenance file"),
        ("folder/../text", "is no provenance file"),
        ("copy.mdb", "this is the database itself"),
        ("folder/../copy.mdb", "this is the database itself"),
        ("source.mdb", "is no provenance file"),
        (None, "is no provenance file"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_copied(
    place: str | None, reason: str, tmp_path: Path
) -> None:
    source, target = single(tmp_path / "source.mdb"), tmp_path / "copy.mdb"
    (tmp_path / "text").write_text("no provenance file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "copy.mdb.prov").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=reason):
        compact(source, target, output=place and tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_is_not_there_yet_is_none_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fragmented(tmp_path / "source")
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for number, place in enumerate(("{0}/own.prov", f"{tmp_path}/{{0}}/own.prov", "link/{0}/p")):
        name = f"copy-{number}"
        made = compact(source, name, output=place.format(name))
        assert made.sidecar is not None and made.sidecar.samefile(place.format(name))
    with pytest.raises(FileExistsError, match="this is the database itself"):
        compact(source, "copy-3", output=tmp_path / "copy-3" / "data.mdb")
    for name, place in (("copy-a", "copy-a/deep/own.prov"), ("copy-b", "no/where/own.prov")):
        made = compact(source, name, output=place)
        assert made.sidecar is not None and made.sidecar.samefile(place)
    for folder, name in (("all/of/mine", "copy-3"), ("copy-4/sidecars", "copy-4")):
        monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(tmp_path / folder))
        with pytest.raises(lmdb.Error):
            compact(damaged(tmp_path), "copy-9")
        assert not (tmp_path / folder).exists()
        made = compact(source, name)
        assert made.sidecar is not None and made.sidecar.parent.samefile(folder)
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", "source/data.mdb/inside")
    with pytest.raises(NotADirectoryError, match="name another place"):
        compact(source, "copy-5")
    assert not Path("copy-5").exists()


def damaged(folder: Path) -> Path:
    path = folder / "damaged.mdb"
    path.write_bytes(bytes(9000))
    return path


def test_a_copy_that_cannot_be_converted_stands(tmp_path: Path) -> None:
    source = fragmented(tmp_path / "source")
    folder = tmp_path / "sidecars"
    folder.mkdir()

    def progress(done: int, total: int, stage: str) -> None:
        if stage == "contents" and folder.is_dir():
            folder.rmdir()
            folder.write_text("no folder any more")

    with pytest.raises(Error, match="is whole, but has no provenance file"):
        compact(source, tmp_path / "target", output=folder / "one.prov", progress=progress)
    assert content(tmp_path / "target") == content(source)
