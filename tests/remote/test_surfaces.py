"""Every surface reads a URL as it reads the file: the same records, and nothing else.

Method: a server in this process serves the bytes of a small set; where the end of a process, a
signal or a fork is what matters, a process of its own reads from it.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
import textwrap
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio import Cache
from lmdbio.cache import find
from lmdbio.cli import cli
from lmdbio.convert import pulling
from lmdbio.convert.convert import convert
from lmdbio.convert.pulling import pull
from lmdbio.convert.verify import verify
from lmdbio.remote import open_data
from tests.support import ROOT, databases
from tests.support.range_server import Asked, Fault, RangeServer

COUNT, SERVED = 1_200, "/set/data.mdb"
LIMIT_S = 60


def value(index: int) -> bytes:
    return databases.value(index, 3_000 if index % 3 else 200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("remote") / "db"
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, value(i)) for i in range(COUNT)])
    return path


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    monkeypatch.setenv("LMDBIO_REMOTE_TIMEOUT_S", "5")
    with RangeServer({SERVED: (folder / "data.mdb").read_bytes()}) as server:
        yield server


@pytest.fixture
def url(server: RangeServer) -> str:
    return server.url(SERVED)


def alone(code: str, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    head = "import os, sys, signal, threading, time, lmdbio\n"
    environ = {**os.environ, **more, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code), *map(str, arguments)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


# --- Records ------------------------------------------------------------------------------


def test_records_of_a_url_are_those_of_the_file(url: str, server: RangeServer) -> None:
    with lmdbio.Records(url) as records:
        assert (len(records), records.choice.engine, records.located_by) == (
            COUNT,
            "remote",
            "scan",
        )
        assert records[7] == value(7) and records[-1] == value(COUNT - 1)
        assert records[5:9] == [value(i) for i in range(5, 9)]
        chosen = np.random.default_rng(0).permutation(COUNT)[:300]
        batch = records.read(chosen)
        assert [bytes(one) for one in batch] == [value(i) for i in chosen]
        assert records.key(9) == b"00000009" and records.index_of(b"00000011") == 11
        assert list(records) == [value(i) for i in range(COUNT)]
        assert records.path == records.files[0] == url
        assert records.stats().requests


def test_reads_are_joined_to_few_requests(url: str, server: RangeServer) -> None:
    with lmdbio.Records(url, readahead=False) as records:
        before = len(server.asked)
        records.read(np.arange(0, COUNT, 2))
        assert len(server.asked) - before <= 3
        assert records.stats().requests <= 3


def test_a_file_that_is_read_to_and_fro_comes_to_memory_once(
    url: str, server: RangeServer
) -> None:
    with lmdbio.Records(url, readahead=True) as records:
        for seed in range(4):
            chosen = np.random.default_rng(seed).permutation(COUNT)[:200]
            assert list(records.values(chosen)) == [value(i) for i in chosen]
        while not records._routes.file_cache.complete():
            records.read([0])
        before = len(server.asked)
        assert [bytes(one) for one in records.read([5, 900])] == [value(5), value(900)]
        assert len(server.asked) == before


def test_records_that_are_asked_for_one_by_one_come_to_memory_too(
    url: str, server: RangeServer
) -> None:
    chosen = np.random.default_rng(5).permutation(COUNT).tolist()
    with lmdbio.Records(url, readahead=True) as records:
        assert all(records[i] == value(i) for i in chosen)
        while not records._routes.file_cache.complete():
            records.read([0])
        before = len(server.asked)
        assert all(records[i] == value(i) for i in chosen)
        assert len(server.asked) == before < COUNT // 4


def test_records_of_a_url_can_be_pickled_forked_and_shared_by_threads(url: str) -> None:
    with lmdbio.Records(url, readahead=False) as records:
        with pickle.loads(pickle.dumps(records)) as copy:
            assert copy[3] == value(3)
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(records.__getitem__, range(200))) == [
                value(i) for i in range(200)
            ]
        child = os.fork()
        if child == 0:
            right = records[500] == value(500) and list(records.values([1, 700])) == [
                value(1),
                value(700),
            ]
            os._exit(0 if right else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert records[501] == value(501)


def test_a_file_that_is_replaced_gives_no_other_bytes(url: str, server: RangeServer) -> None:
    with lmdbio.Records(url, readahead=False) as records:
        server.files[SERVED] = bytes(reversed(server.files[SERVED]))
        del server.etags[SERVED]
        with pytest.raises(lmdb.Error, match="changed while it was read"):
            records.read(np.arange(COUNT))
        with pytest.raises(lmdb.Error, match="changed while it was read"):
            records[1100]


def test_a_server_without_validators_is_watched_by_the_metas(
    url: str, server: RangeServer, tmp_path: Path
) -> None:
    server.etags[SERVED] = ""
    server.plan = lambda asked: Fault(headers={"Last-Modified": None})
    with lmdbio.Records(url, readahead=False) as records:
        assert not records._source.pages.keeps_state
        assert list(records.values([1, 2])) == [value(1), value(2)]
        assert convert(url, output=tmp_path / "x.prov").records == COUNT
        with lmdbio.Reader(url, 100, iterations=3, mode="dio") as reader:
            assert [len(batch) for batch in reader] == [100] * 3
        server.files[SERVED] = bytes(8192) + server.files[SERVED][8192:]
        with pytest.raises(lmdb.Error):
            records.read([3, 900])


def test_an_error_reaches_the_caller_as_itself(url: str, server: RangeServer) -> None:
    with lmdbio.Records(url, readahead=False) as records:
        server.plan = lambda asked: Fault(status=404)
        for _ in range(2):
            with pytest.raises(FileNotFoundError, match="status 404") as raised:
                records.read(np.arange(300, COUNT))
            assert raised.value.filename == url
        server.plan = None
        assert records[1100] == value(1100), "it reads on"


def test_a_kind_of_engine_that_reads_files_is_refused(url: str) -> None:
    with pytest.raises(lmdbio.errors.IncompatibleError, match="files of this machine"):
        lmdbio.Records(url, engine="direct")
    with lmdbio.Records(url, depth=3, gap_bytes_max=0) as records:
        assert records.choice.depth == 3 and records[8] == value(8)


def test_closing_ends_what_is_under_way(url: str, server: RangeServer) -> None:
    records = lmdbio.Records(url, readahead=False)
    server.plan = lambda asked: Fault(stall_s=LIMIT_S)
    pending = records.begin(np.arange(COUNT))
    before, begun = len(server.asked), time.monotonic()
    while len(server.asked) < before + 1 and time.monotonic() < begun + 10:
        time.sleep(0.01)
    begun = time.monotonic()
    pending.close()
    records.close()
    assert time.monotonic() - begun < 4


# --- several files ------------------------------------------------------------------------

SHARDS = 12


@pytest.fixture
def shards(server: RangeServer, folder: Path, tmp_path: Path) -> list[str]:
    """URLs of the set in parts."""
    with lmdbio.Records(folder) as records:
        for part in range(SHARDS):
            path = tmp_path / f"shard{part}"
            with databases.open_writable(path, 1) as env:
                rows = range(part * COUNT // SHARDS, (part + 1) * COUNT // SHARDS)
                databases.write(env, [(b"%08d" % i, records[i]) for i in rows])
            server.files[f"/shards/{part}.mdb"] = (path / "data.mdb").read_bytes()
    return [server.url(f"/shards/{part}.mdb") for part in range(SHARDS)]


def test_several_urls_are_one_data_set(shards: list[str], server: RangeServer) -> None:
    with lmdbio.Records(shards, readahead=False) as records:
        assert len(records) == COUNT and records._source.pages.keeps_state
        assert list(records) == [value(i) for i in range(COUNT)]
        chosen = np.random.default_rng(0).permutation(COUNT)[:300]
        assert [bytes(one) for one in records.read(chosen)] == [value(i) for i in chosen]
        assert records.key(777) == b"00000777" and records.index_of(b"00000999") == 999
        with pickle.loads(pickle.dumps(records)) as copy:
            assert copy[1_100] == value(1_100)
        child = os.fork()
        if child == 0:
            os._exit(0 if records[600] == value(600) else 1)
        assert os.waitpid(child, 0)[1] == 0
        before = {asked.port for asked in server.asked}
        for index in range(0, COUNT, 25):
            assert records[index] == value(index)
        assert len({asked.port for asked in server.asked} - before) <= 2, "they are shared"


def test_one_of_several_that_is_replaced_is_named(shards: list[str], server: RangeServer) -> None:
    with lmdbio.Records(shards, readahead=False) as records:
        server.etags["/shards/7.mdb"] = '"another"'
        assert records[100] == value(100)
        with pytest.raises(lmdb.Error, match=r"shards/7\.mdb: changed while it was read"):
            records.read(np.arange(COUNT))
    server.etags["/shards/3.mdb"] = ""
    with pytest.raises(ValueError, match=r"shards/3\.mdb: its server tells no ETag"):
        lmdbio.Records(shards)
    with pytest.raises(ValueError, match="URLs and paths"):
        lmdbio.Records([shards[0], "/tmp/x.mdb"])
    with pytest.raises(FileNotFoundError, match=r"none\.mdb"):
        lmdbio.Records([*shards[:2], server.url("/none.mdb"), *shards[4:]])


def test_a_reader_and_its_cache_take_several_urls(
    shards: list[str], server: RangeServer, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    read = []
    for _ in range(2):
        words = {"cache": Cache(memory=1, disk=str(tmp_path / "disk")), "shuffle": "global"}
        seen = []
        with lmdbio.Reader(shards, 100, epochs=2, **words) as reader:  # type: ignore[arg-type]
            for batch in reader:
                for index, one in zip(batch.indices.tolist(), batch, strict=True):
                    assert bytes(one) == value(index)
                seen += batch.indices.tolist()
                del batch
            read.append(reader.stats().read_bytes)
        assert sorted(seen) == sorted(2 * list(range(COUNT)))
    assert read[0] > 0 and read[1] == 0


# --- the provenance file ------------------------------------------------------------------


def test_one_that_was_made_of_the_url_is_good_as_long_as_its_etag_is(
    url: str, server: RangeServer, tmp_path: Path
) -> None:
    report = convert(url, output=tmp_path / "x.prov")
    assert report.records == COUNT
    before = len(server.asked)
    with lmdbio.Records(url, locate="provenance", provenance=tmp_path / "x.prov") as records:
        assert records[700] == value(700)
    assert len(server.asked) == before + 2, "the head, and the record"
    server.etags[SERVED] = '"the same bytes, put there again"'
    with lmdbio.Records(url, locate="provenance", provenance=tmp_path / "x.prov") as records:
        assert records[700] == value(700)
    assert len(server.asked) > before + 10, "the trees were hashed"


def test_one_that_was_put_beside_the_data_is_checked_once(
    url: str, server: RangeServer, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    convert(folder, output=tmp_path / "local.prov")
    server.files[f"{SERVED}.prov"] = (tmp_path / "local.prov").read_bytes()
    counts = []
    for _ in range(2):
        before = len(server.asked)
        with lmdbio.Records(url) as records:
            assert records.located_by == "provenance"
        counts.append(len(server.asked) - before)
    assert counts[0] > 10 and counts[1] == 2


def test_a_foreign_or_forbidden_one_is_passed_over(
    url: str, server: RangeServer, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with databases.open_writable(other, 1) as env:
        databases.write(env, [(b"%08d" % i, b"x") for i in range(COUNT)])
    convert(other, output=tmp_path / "other.prov")
    server.files[f"{SERVED}.prov"] = (tmp_path / "other.prov").read_bytes()
    with pytest.warns(UserWarning, match="does not describe"):
        lmdbio.Records(url).close()
    server.plan = lambda asked: Fault(status=403) if asked.path.endswith(".prov") else None
    lmdbio.Records(url).close()  # as of a bucket whose names may not be listed: no warning
    with pytest.raises(lmdbio.errors.ProvenanceError, match="lmdbio convert makes one"):
        lmdbio.Records(url, locate="provenance")


@pytest.mark.parametrize(
    "fault",
    [Fault(status=200, body=b"<html>", headers={"Content-Range": None}), Fault(status=400)],
)
def test_a_page_for_people_in_its_place_is_passed_over(
    url: str, server: RangeServer, fault: Fault, tmp_path: Path
) -> None:
    server.plan = lambda asked: fault if asked.path.endswith(".prov") else None
    with pytest.warns(UserWarning, match="cannot be read"), lmdbio.Records(url) as records:
        assert records[5] == value(5)
    assert pull(url, tmp_path / "x.mdb").sidecar is None


def test_a_copy_takes_the_place_of_a_file_and_its_provenance(
    url: str, server: RangeServer, tmp_path: Path
) -> None:
    target = tmp_path / "x.mdb"
    assert pull(url, target).sidecar is None
    convert(target)
    assert pull(url, target, overwrite=True).sidecar is None
    assert [path.name for path in tmp_path.iterdir()] == ["x.mdb"]


def test_one_may_have_a_url_of_its_own(url: str, server: RangeServer, tmp_path: Path) -> None:
    convert(url, output=tmp_path / "x.prov")
    server.files["/elsewhere.prov"] = (tmp_path / "x.prov").read_bytes()
    with lmdbio.Records(url, provenance=server.url("/elsewhere.prov")) as records:
        assert records.located_by == "provenance" and records[4] == value(4)
    assert verify(url, server.url("/elsewhere.prov")).sidecar_records == COUNT


def test_it_is_not_written_where_the_data_is(url: str) -> None:
    with pytest.raises(PermissionError, match="--output"):
        convert(url)


# --- lmdbio.open --------------------------------------------------------------------------


def test_an_environment_of_a_url_reads_as_that_of_the_folder(url: str, folder: Path) -> None:
    with (
        lmdbio.open(url, readonly=True) as there,
        lmdb.open(str(folder), readonly=True, lock=False) as here,
        there.begin() as mine,
        here.begin() as theirs,
    ):
        assert mine.stat() == theirs.stat()
        assert list(mine.cursor()) == list(theirs.cursor())
        assert mine.get(b"00000700", default=b"?") == value(700)
        assert mine.cursor().set_range(b"000003")
        assert there.info()["last_txnid"] == here.info()["last_txnid"]


def test_transactions_on_a_url_look_at_no_meta_page_again(url: str, server: RangeServer) -> None:
    with lmdbio.open(url, readonly=True) as env:
        with env.begin() as txn:
            assert txn.get(b"00000003") == value(3)
        before = len(server.asked)
        for _ in range(50):
            with env.begin() as txn:
                assert txn.get(b"00000003") == value(3)
        assert len(server.asked) - before <= 50, "the value alone"


def test_an_environment_of_a_url_is_pickled_and_forked(url: str) -> None:
    with lmdbio.open(url, readonly=True) as env:
        with pickle.loads(pickle.dumps(env)) as copy, copy.begin() as txn:
            assert txn.get(b"00000001") == value(1)
        child = os.fork()
        if child == 0:
            with env.begin() as txn:
                os._exit(0 if txn.get(b"00000800") == value(800) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_what_an_environment_of_a_url_cannot_do_is_told(
    url: str, server: RangeServer, tmp_path: Path
) -> None:
    with pytest.raises(lmdb.ReadonlyError, match="readonly=True"):
        lmdbio.open(url)
    with lmdbio.open(url, readonly=True) as env:
        with pytest.raises(lmdb.Error, match="lmdbio pull"):
            env.copy(str(tmp_path))
        with pytest.raises(lmdb.ReadonlyError):
            env.begin(write=True)
    with pytest.raises(lmdb.Error, match="status 404"):
        lmdbio.open(server.url("/none"), readonly=True)


# --- Reader and Loader --------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "dio", "coal", "stag", "lmm", "lmm-dm", "lmdb"])
def test_a_reader_gives_the_same_in_every_mode(
    url: str, server: RangeServer, tmp_path: Path, mode: str
) -> None:
    convert(url, output=tmp_path / "x.prov")
    server.files[f"{SERVED}.prov"] = (tmp_path / "x.prov").read_bytes()
    with lmdbio.Reader(url, batch_size=100, iterations=15, mode=mode) as reader:
        for number, batch in enumerate(reader):
            wanted = [(100 * number + i) % COUNT for i in range(100)]
            assert batch.indices.tolist() == wanted
            assert [bytes(one) for one in batch] == [value(i) for i in wanted]
            del batch
        assert reader.mode.engine == "remote"


def test_a_reader_shuffles_and_keeps_a_part_in_memory(url: str, server: RangeServer) -> None:
    words = {"shuffle": "global", "seed": 3, "epochs": 3, "cache": Cache(memory="64M")}
    seen = []
    with lmdbio.Reader(url, batch_size=100, **words) as reader:  # type: ignore[arg-type]
        for batch in reader:
            for index, one in zip(batch.indices.tolist(), batch, strict=True):
                assert bytes(one) == value(index)
            seen += batch.indices.tolist()
            del batch
        stats = reader.stats()
    assert sorted(seen) == sorted(3 * list(range(COUNT)))
    assert stats.read_bytes < 2 * len(server.files[SERVED])


def test_a_reader_that_is_refused_by_the_server_says_so(url: str, server: RangeServer) -> None:
    with lmdbio.Reader(url, batch_size=400, epochs=50) as reader:
        next(reader)
        server.plan = lambda asked: Fault(status=403)
        with pytest.raises(PermissionError, match="status 403"):
            for _ in range(100):
                next(reader)


def _disk_epochs(url: str, disk: Path) -> tuple[int, int]:
    """Read two epochs with a cache on a disk; bytes of the file, and damaged pages."""
    words = {"shuffle": "global", "epochs": 2, "cache": Cache(memory=1, disk=str(disk))}
    with lmdbio.Reader(url, batch_size=100, **words) as reader:  # type: ignore[arg-type]
        for batch in reader:
            for index, one in zip(batch.indices.tolist(), batch, strict=True):
                assert bytes(one) == value(index)
            del batch
        stats = reader.stats()
        return stats.read_bytes, stats.damaged_pages


def test_a_cache_on_a_disk_serves_the_next_job_as_long_as_the_state_is_the_same(
    url: str, server: RangeServer, tmp_path: Path
) -> None:
    first, _ = _disk_epochs(url, tmp_path)
    second, damaged = _disk_epochs(url, tmp_path)
    assert first > 0 and second == 0 and not damaged
    (entry,) = find(tmp_path)
    assert (entry.source, entry.state) == (url, "current")
    server.etags[SERVED] = '"another state"'
    third, _ = _disk_epochs(url, tmp_path)
    assert third == first


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (["/get?id=1"], ["/get?id=2"]),
        (["/first.mdb", "/a.mdb"], ["/first.mdb", "/b.mdb"]),
    ],
)
def test_a_cache_on_a_disk_tells_urls_apart_whose_etags_are_alike(
    server: RangeServer, tmp_path: Path, one: list[str], two: list[str]
) -> None:
    """As those of nginx and Apache, of size and time: files of one size come in one second."""
    content = server.files[SERVED]
    other = content.replace(value(700), value(700)[::-1])
    assert other != content and len(other) == len(content)
    for path in ("/get", "/first.mdb", "/a.mdb", "/b.mdb"):
        server.files[path], server.etags[path] = content, '"size-time"'

    def epoch(paths: list[str]) -> bytes:
        urls = [server.url(path).replace("//", "//me:secret@") for path in paths]
        source = urls if len(urls) > 1 else urls[0]
        with lmdbio.Reader(source, 100, epochs=1, cache=Cache(memory=1, disk=str(tmp_path))) as it:
            assert "secret" not in repr(it)
            values = [bytes(one) for batch in it for one in batch]
        return values[700 - COUNT]

    assert epoch(one) == value(700)
    server.files["/get"] = server.files["/b.mdb"] = other
    assert epoch(two) == value(700)[::-1]
    assert not [path for path in tmp_path.iterdir() if b"secret" in path.read_bytes()]


def test_a_loader_reads_a_url_with_threads_and_keeps_it_on_a_disk(
    url: str, server: RangeServer, tmp_path: Path
) -> None:
    torch = pytest.importorskip("lmdbio.torch", reason="torch is not installed")

    def epoch() -> int:
        before = sum((a.last or 0) - (a.first or 0) + 1 for a in server.asked)
        words: dict[str, Any] = {"shuffle": True, "cache": f"memory=1,disk={tmp_path}"}
        with torch.Loader(url, 50, transform=len, collate_fn=sum, **words) as loader:
            total = sum(loader) + sum(loader)
        assert total == 2 * sum(len(value(i)) for i in range(COUNT))
        return sum((a.last or 0) - (a.first or 0) + 1 for a in server.asked) - before

    first = epoch()
    assert epoch() < first // 4


# --- ends ---------------------------------------------------------------------------------


def test_a_process_ends_while_requests_are_under_way(url: str, server: RangeServer) -> None:
    before = len(server.asked)
    server.plan = lambda asked: Fault(stall_s=LIMIT_S) if asked.headers.get("x-now") else None
    done = alone(
        """
        records = lmdbio.Records(sys.argv[1], readahead=False)
        from lmdbio.remote import http
        records._source.pages.remote_file._headers["X-Now"] = "1"
        pending = records.begin(range(len(records)))
        print("begun", flush=True)
        begun = time.monotonic()
        import atexit
        atexit.register(lambda: print("end", flush=True))
        """,
        url,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "begun\nend\n", "")
    assert len(server.asked) > before


@pytest.mark.parametrize("where", ["ticket", "direct"])
def test_ctrl_c_ends_a_wait(url: str, server: RangeServer, where: str) -> None:
    server.plan = lambda asked: Fault(stall_s=LIMIT_S) if asked.headers.get("x-now") else None
    done = alone(
        """
        records = lmdbio.Records(sys.argv[1], readahead=False)
        records._source.pages.remote_file._headers["X-Now"] = "1"
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        try:
            records.read(range(300, 1200)) if sys.argv[2] == "ticket" else records[1100]
        except KeyboardInterrupt:
            print(time.monotonic() - begun < 4)
        """,
        url,
        where,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing_read_and_end(url: str, method: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys, lmdbio

            def read(records):
                pending = records.begin(range(600))
                return len(records[700])

            if __name__ == "__main__":
                records = lmdbio.Records(sys.argv[1], readahead=False)
                records[3]
                with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
                    print(pool.map(read, [records] * 4))
            """
        )
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, str(program), url, method],
        env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{[len(value(700))] * 4}\n"), done.stderr


def test_an_engine_that_dies_lets_go_of_its_file(url: str) -> None:
    engine = open_data(url)
    engine.read(100_000, 10)
    file = weakref.ref(engine.remote_file)
    engine.close()
    del engine
    assert file() is None


# --- pull, and the commands ---------------------------------------------------------------


def test_pull_copies_verifies_and_brings_the_provenance_file(
    url: str, server: RangeServer, tmp_path: Path
) -> None:
    convert(url, output=tmp_path / "x.prov")
    server.files[f"{SERVED}.prov"] = (tmp_path / "x.prov").read_bytes()
    report = pull(url, tmp_path / "copy" / "x.mdb")
    assert report.target.read_bytes() == server.files[SERVED]
    assert (report.records, report.resumed_bytes) == (COUNT, 0)
    with lmdbio.Records(report.target, locate="provenance") as records:
        assert records[77] == value(77)
    assert sorted(path.name for path in report.target.parent.iterdir()) == ["x.mdb", "x.mdb.prov"]
    with pytest.raises(FileExistsError):
        pull(url, report.target)
    pull(url, report.target, overwrite=True)


def test_pull_goes_on_where_it_was_broken_off(
    url: str, server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PIECE_BYTES", 64 << 10)
    monkeypatch.setattr(pulling, "DEPTH", 2)
    monkeypatch.setattr(pulling, "NOTE_SECONDS", 0)
    limit = len(server.files[SERVED]) // 2

    def plan(asked: Asked) -> Fault | None:
        return Fault(status=403) if (asked.first or 0) > limit else None

    server.plan = plan
    goal = tmp_path / "x.mdb"
    with pytest.raises(PermissionError):
        pull(url, goal)
    assert not goal.exists() and (tmp_path / "x.mdb.part").exists()
    server.plan = None
    before = len(server.asked)
    report = pull(url, goal)
    assert limit - (256 << 10) < report.resumed_bytes <= limit + (64 << 10)
    assert len(server.asked) - before < 2 + (limit + (256 << 10)) // (64 << 10)
    assert goal.read_bytes() == server.files[SERVED]
    assert [path.name for path in tmp_path.iterdir()] == ["x.mdb"]


def test_pull_takes_no_part_of_another_state(
    url: str, server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PIECE_BYTES", 64 << 10)
    monkeypatch.setattr(pulling, "NOTE_SECONDS", 0)
    server.plan = lambda asked: Fault(status=403) if (asked.first or 0) > 900_000 else None
    with pytest.raises(PermissionError):
        pull(url, tmp_path / "x.mdb")
    server.plan = None
    server.etags[SERVED] = '"another"'
    assert pull(url, tmp_path / "x.mdb").resumed_bytes == 0


def test_pull_mixes_no_states_that_the_server_does_not_tell_apart(
    url: str, server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PIECE_BYTES", 64 << 10)
    server.etags[SERVED] = ""
    content = server.files[SERVED]

    def plan(asked: Asked) -> None:
        if (asked.first or 0) > len(content) // 2:  # as a commit does: other metas, all else
            server.files[SERVED] = content[4096:8192] + content[:4096] + content[8192:]

    server.plan = plan
    with pytest.raises(lmdb.Error, match="changed while it was copied"):
        pull(url, tmp_path / "x.mdb")
    assert not list(tmp_path.iterdir())


def test_pull_leaves_nothing_of_what_is_no_database(server: RangeServer, tmp_path: Path) -> None:
    server.files["/page.html"] = b"<html>" * 1000
    with pytest.raises(lmdb.InvalidError):
        pull(server.url("/page.html"), tmp_path / "x.mdb")
    assert not list(tmp_path.iterdir())


def test_pull_publishes_nothing_that_is_damaged(
    url: str, server: RangeServer, tmp_path: Path
) -> None:
    content = bytearray(server.files[SERVED])
    content[3 * 4096 : 4 * 4096] = bytes(4096)
    server.files[SERVED] = bytes(content)
    with pytest.raises(lmdb.Error):
        pull(url, tmp_path / "x.mdb")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="no URL"):
        pull(str(tmp_path), tmp_path / "x.mdb")


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_the_commands_take_a_url(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = json.loads(run("info", url, "--json")[1])
    assert told["data"] == url and told["storage"]["remote"]
    assert told["sidecar"]["status"] == "absent" and told["sidecar"]["path"] == f"{url}.prov"
    assert "elsewhere: 127.0.0.1" in run("info", url)[1]
    sidecar = tmp_path / "x.prov"
    assert run("convert", url, "--output", sidecar)[0] == 0
    assert (
        json.loads(run("info", url, "--provenance", sidecar, "--json")[1])["sidecar"]["status"]
        == "good"
    )
    assert "is up to date" in run("convert", url, "--output", sidecar, "--update")[1]
    assert "sound" in run("verify", url, "--provenance", sidecar)[1]
    assert run("plan", url, "--count", 100)[0] == 0
    assert run("pull", url, tmp_path / "x.mdb")[0] == 0
    assert run("tune", url, "--seconds", 0.5)[0] == 0
    tuned = json.loads(run("info", url, "--json")[1])
    assert tuned["tuned"] is not None
    assert "forgotten" in run("tune", url, "--forget")[1]


def test_commands_that_look_inside_take_a_url(url: str, tmp_path: Path) -> None:
    assert "00000002" in run("ls", url, "--limit", 3, "--json")[1]
    assert "00000000" in run("head", url)[1]
    assert run("get", url, "00000001", "--output", tmp_path / "one")[0] == 0
    assert (tmp_path / "one").read_bytes() == value(1)
    assert run("export", url, "--tar", tmp_path / "some.tar", "--limit", 5)[0] == 0
    assert run("gallery", url, "--output", tmp_path / "page.html")[0] == 0


@pytest.mark.parametrize("words", [("bench",), ("simulate",), ("compact", "copy")])
def test_commands_that_need_a_file_say_so(url: str, words: tuple[str, ...]) -> None:
    status, told = run(words[0], url, *words[1:])
    assert status == 2 and "lmdbio pull" in " ".join(told.split())


def test_secrets_of_a_url_are_in_no_message(
    url: str, server: RangeServer, caplog: pytest.LogCaptureFixture
) -> None:
    signed = url.replace("http://", "http://me:word@") + "?X-Amz-Signature=secret"
    caplog.set_level(logging.INFO, "lmdbio")
    with lmdbio.Records(signed, readahead=False) as records:
        assert records[9] == value(9)
        told = [repr(records), records.path, *caplog.messages]
        server.plan = lambda asked: Fault(status=403)
        with pytest.raises(PermissionError) as raised:
            records[1100]
        told += [str(raised.value), repr(raised.value)]
    with pytest.raises(PermissionError) as refused:
        lmdbio.Records(signed)
    with pytest.raises(lmdb.Error) as opened:
        lmdbio.open(signed, readonly=True)
    with pytest.raises(lmdb.Error) as written:
        lmdbio.open(signed)
    told += [str(error.value) for error in (refused, opened, written)]
    assert not [text for text in told if "secret" in text or "word" in text]


@pytest.mark.parametrize(
    "words", [("info",), ("info", "--json"), ("verify",), ("verify", "--json")]
)
def test_secrets_of_a_url_are_in_no_output(url: str, words: tuple[str, ...]) -> None:
    signed = url.replace("http://", "http://me:secret@") + "?X-Amz-Signature=secret"
    status, told = run(words[0], signed, *words[1:])
    assert status == 0 and "/set/data.mdb?..." in told and "secret" not in told
