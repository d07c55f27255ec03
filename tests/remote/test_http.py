"""HttpFile gives the bytes of one state, whatever the server does.

Method: a server in this process that fails by plan.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

from lmdbio.remote import open_url
from lmdbio.remote.connection import Pool
from lmdbio.remote.http import HttpFile
from lmdbio.remote.retry import AbandonedError, Deadline, RetryPolicy
from lmdbio.remote.url import Target
from tests.remote.fault_plans import POLICY, try_plan
from tests.support.range_server import Asked, Fault, RangeServer

CONTENT = random.Random(3).randbytes(300_000)
PATH = "/data.mdb"


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer({PATH: CONTENT}) as server:
        yield server


def read(file: HttpFile, offset: int, length: int) -> bytes:
    into = bytearray(length)
    file.read_into(offset, memoryview(into))
    return bytes(into)


def once(fault: Fault, number: int = 1) -> Callable[[Asked], Fault | None]:
    """The request of this number fails."""
    return lambda asked: fault if asked.number == number else None


def test_one_request_opens_a_file_and_brings_its_head(server: RangeServer) -> None:
    file = HttpFile(server.url(PATH), POLICY)
    assert (file.size, file.validator) == (len(CONTENT), server.etag(PATH))
    assert read(file, 0, 60_000) == CONTENT[:60_000]
    assert len(server.asked) == 1


def test_each_range_is_asked_for_in_the_state_that_was_opened(server: RangeServer) -> None:
    file = HttpFile(server.url(PATH), POLICY)
    assert read(file, 100_000, 5_000) == CONTENT[100_000:105_000]
    asked = server.asked[-1]
    assert (asked.first, asked.last) == (100_000, 104_999)
    assert asked.headers["if-match"] == server.etag(PATH)
    assert asked.headers["accept-encoding"] == "identity"


def test_connections_are_kept(server: RangeServer) -> None:
    file = HttpFile(server.url(PATH), POLICY)
    with ThreadPoolExecutor(4) as threads:
        offsets = [70_000 + 1_000 * number for number in range(100)]
        assert all(threads.map(lambda at: read(file, at, 10) == CONTENT[at : at + 10], offsets))
    assert len({asked.port for asked in server.asked}) <= 5


def test_a_connection_that_the_server_has_closed_costs_no_attempt(server: RangeServer) -> None:
    file = HttpFile(server.url(PATH), replace(POLICY, attempts=1))
    ports = {server.asked[0].port}
    # As a server does after a while: it takes the request, and closes.
    server.plan = lambda asked: Fault(refuse=True) if asked.port in ports else None
    assert read(file, 100_000, 10) == CONTENT[100_000:100_010]


def test_an_answer_that_only_says_what_will_come_is_passed_over(server: RangeServer) -> None:
    server.plan = lambda _: Fault(early=True)
    file = HttpFile(server.url(PATH), replace(POLICY, attempts=1))
    assert read(file, 100_000, 10) == CONTENT[100_000:100_010]


def test_files_share_connections_and_the_last_one_takes_them_along(server: RangeServer) -> None:
    server.files["/other"] = CONTENT[::-1]
    first = HttpFile(server.url(PATH), POLICY)
    second = HttpFile(server.url("/other"), POLICY)
    assert read(second, 100_000, 10) == CONTENT[::-1][100_000:100_010]
    assert len({asked.port for asked in server.asked}) == 1
    assert first.pool is second.pool
    first.close()
    with pytest.raises(ValueError, match="is closed"):
        read(first, 100_000, 10)
    pool = Pool()
    origin = Target.of(server.url(PATH)).origin
    connection = pool.take(origin)
    assert not connection.is_open and connection.port == server.port
    connection.begin(Deadline(POLICY, "name", "nothing"))
    connection.connect()
    pool.give(connection, is_whole=True)
    assert pool.take(origin) is connection and connection.is_open
    pool.give(connection, is_whole=True)
    del pool
    gc.collect()
    assert not connection.is_open


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=503),
        Fault(status=429, headers={"Retry-After": "0.05"}),
        Fault(status=500),
        Fault(refuse=True),
        Fault(cut=1_000),
        Fault(cut=1_000, reset=True),
        Fault(stall_s=30),
        Fault(cut=2_000, stall_s=30),
        Fault(headers={"Content-Length": None, "Connection": "close"}, cut=17),
    ],
)
def test_what_passes_is_tried_again(server: RangeServer, fault: Fault) -> None:
    file = HttpFile(server.url(PATH), POLICY)
    server.plan = once(fault)
    assert read(file, 100_000, 50_000) == CONTENT[100_000:150_000]
    assert len(server.asked) == 3


def test_a_body_that_is_cut_goes_on_where_it_ended(server: RangeServer) -> None:
    file = HttpFile(server.url(PATH), replace(POLICY, attempts=2))
    server.plan = lambda asked: Fault(cut=10_000) if asked.number else None
    assert read(file, 100_000, 95_000) == CONTENT[100_000:195_000]
    assert [asked.first for asked in server.asked[1:]] == list(range(100_000, 195_000, 10_000))


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (Fault(headers={"ETag": '"other"'}), lmdb.Error, "changed while it was read"),
        (Fault(status=412), lmdb.Error, "changed while it was read"),
        (Fault(whole=True), OSError, "the whole file"),
        (Fault(headers={"Content-Range": "bytes 0-9/300000"}), OSError, "not bytes"),
        (Fault(status=404), FileNotFoundError, "status 404"),
        (Fault(status=404), FileNotFoundError, r"a folder means the data\.mdb in it"),
        (Fault(whole=True, headers={"Content-Type": "text/html"}), IsADirectoryError, "a page"),
        (Fault(status=403), PermissionError, "status 403"),
        (Fault(status=401), PermissionError, "credentials missing or wrong"),
        (Fault(status=302), OSError, "redirect without a Location"),
        (Fault(status=302, headers={"Location": "ftp://x/y"}), OSError, "redirect to ftp://x/y"),
        (Fault(status=302, headers={"Location": PATH}), OSError, "more than 10 redirects"),
    ],
)
def test_what_does_not_pass_is_told_at_once(
    server: RangeServer, fault: Fault, kind: type[Exception], reason: str
) -> None:
    file = HttpFile(server.url(PATH), POLICY)
    server.plan = lambda asked: fault
    with pytest.raises(kind, match=reason) as raised:
        read(file, 100_000, 10)
    assert server.url(PATH) in str(raised.value)
    assert len(server.asked) <= 12


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (Fault(status=503), OSError, "status 503.*4 attempts"),
        (
            Fault(status=429, headers={"Retry-After": "3600"}),
            OSError,
            "Retry-After of 3,600 s is too long",
        ),
        (Fault(stall_s=30), TimeoutError, "sends nothing for 0.3 s"),
        (Fault(refuse=True), OSError, "attempts"),
        (Fault(cut=0), OSError, "body ends after 0 of 10"),
    ],
)
def test_attempts_end(
    server: RangeServer, fault: Fault, kind: type[Exception], reason: str
) -> None:
    file = HttpFile(server.url(PATH), POLICY)
    server.plan = lambda asked: fault
    with pytest.raises(kind, match=reason):
        read(file, 100_000, 10)


def test_a_body_that_drips_ends_by_the_time_of_all_attempts(server: RangeServer) -> None:
    file = HttpFile(server.url(PATH), replace(POLICY, total_s=0.8))
    server.plan = lambda asked: Fault(cut=100, delay_s=0.05)
    begun = time.monotonic()
    # It is over while it waits for an answer, or between two attempts.
    over = r"not received within 0\.8 s|limit of 0\.8 s is reached"
    with pytest.raises(OSError, match=over):
        read(file, 100_000, 90_000)
    assert time.monotonic() - begun < 3


def test_an_answer_whose_head_drips_ends_by_the_same_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 206 Partial Content\r\nX-Drip: ")
                while not ended.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        begun = time.monotonic()
        try:
            with pytest.raises(TimeoutError, match=r"not received within 0\.8 s"):
                url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
                HttpFile(url, replace(POLICY, total_s=0.8))
            assert time.monotonic() - begun < 4
        finally:
            ended.set()
            thread.join()


def test_the_file_may_be_smaller_than_the_first_request(server: RangeServer) -> None:
    server.files["/small"] = b"abc"
    file = HttpFile(server.url("/small"), POLICY)
    assert file.size == 3 and read(file, 1, 2) == b"bc"


@pytest.mark.parametrize("fault", [Fault(cut=9), Fault(cut=0), Fault(status=503)])
def test_opening_is_tried_again_as_well(server: RangeServer, fault: Fault) -> None:
    server.files["/small"] = CONTENT[:300]
    for path, length in ((PATH, 60_000), ("/small", 300)):
        server.plan = once(fault, len(server.asked))
        file = HttpFile(server.url(path), POLICY)
        assert read(file, 0, length) == CONTENT[:length]


def test_a_server_that_tells_nothing_of_its_state_is_watched_by_the_metas(
    server: RangeServer,
) -> None:
    server.etags[PATH] = ""
    server.plan = lambda asked: Fault(headers={"Last-Modified": None})
    file = HttpFile(server.url(PATH), POLICY)
    assert (file.validator, file.keeps_state) == ("", False)
    server.plan = None
    dated = HttpFile(server.url(PATH), POLICY)
    assert (dated.validator, dated.keeps_state) == (f"Last-Modified {server.modified}", False)
    server.etags[PATH] = 'W/"weak"'
    weak = HttpFile(server.url(PATH), POLICY)
    assert (weak.validator, weak.keeps_state) == ('W/"weak"', False)
    assert read(weak, 100_000, 10) == CONTENT[100_000:100_010]
    assert "if-match" not in server.asked[-1].headers
    server.etags[PATH] = 'W/"other"'
    with pytest.raises(lmdb.Error, match="changed while it was read"):
        read(weak, 100_000, 10)
    server.etags[PATH] = ""
    server.plan = lambda asked: Fault(headers={"Last-Modified": None})
    server.files[PATH] = bytearray(len(CONTENT))
    assert read(file, 0, 100) == bytes(100)  # not out of memory


# --- where a server leads, and for whom ---------------------------------------------------


def test_a_redirection_is_followed_once_and_anew_when_it_has_expired(server: RangeServer) -> None:
    expired = False

    def plan(asked: Asked) -> Fault | None:
        if asked.path == "/resolve":
            return Fault(status=302, headers={"Location": f"{PATH}?sig={asked.number}"})
        return Fault(status=403) if expired and "sig=0" in asked.path else None

    server.plan = plan
    file = HttpFile(server.url("/resolve"), POLICY)
    for _ in range(3):
        assert read(file, 100_000, 10) == CONTENT[100_000:100_010]
    assert [asked.path for asked in server.asked].count("/resolve") == 1
    expired = True
    assert read(file, 100_000, 10) == CONTENT[100_000:100_010]
    assert [asked.path for asked in server.asked].count("/resolve") == 2


def test_what_is_not_where_a_server_has_just_led_to_is_not_asked_for_again(
    server: RangeServer,
) -> None:
    server.plan = lambda asked: (
        Fault(status=301, headers={"Location": "/none"}) if asked.path == "/moved" else None
    )
    with pytest.raises(FileNotFoundError):
        HttpFile(server.url("/moved"), POLICY)
    assert [asked.path for asked in server.asked] == ["/moved", "/none"]


def test_a_server_that_led_astray_for_a_while_is_asked_anew(server: RangeServer) -> None:
    closed = False

    def plan(asked: Asked) -> Fault | None:
        if closed and asked.path == PATH:
            return Fault(status=302, headers={"Location": "/closed"})
        return Fault(status=200, body=b"tomorrow") if asked.path == "/closed" else None

    server.plan = plan
    file = HttpFile(server.url(PATH), POLICY)
    closed = True
    with pytest.raises(OSError, match="the whole file"):
        read(file, 100_000, 10)
    closed = False
    assert read(file, 100_000, 10) == CONTENT[100_000:100_010]


@pytest.mark.parametrize("location", ["http://[::1/x", "http://h:port/", "http:///x"])
def test_what_leads_to_no_url_is_an_error_of_the_file(server: RangeServer, location: str) -> None:
    server.plan = lambda asked: Fault(status=302, headers={"Location": location})
    with pytest.raises(OSError, match="redirect"):
        HttpFile(server.url(PATH), POLICY)


def test_headers_that_differ_count_all_of_them(server: RangeServer) -> None:
    server.plan = lambda asked: Fault(
        headers={"Content-Encoding": "gzip", "content-encoding": "identity"}
    )
    with pytest.raises(OSError, match="unexpected Content-Encoding"):
        HttpFile(server.url(PATH), POLICY)


def test_many_threads_find_out_anew_where_it_lies(server: RangeServer) -> None:
    newest = 0

    def plan(asked: Asked) -> Fault | None:
        if asked.path == "/resolve":
            return Fault(status=302, headers={"Location": f"{PATH}?sig={newest}"})
        return Fault(status=403) if f"sig={newest}" not in asked.path else None

    server.plan = plan
    file = HttpFile(server.url("/resolve"), POLICY)
    with ThreadPoolExecutor(8) as threads:
        for number in range(1, 6):
            newest = number
            offsets = range(70_000, 70_800, 20)
            assert all(
                threads.map(lambda at: read(file, at, 10) == CONTENT[at : at + 10], offsets)
            )


def test_who_asks_is_told_to_the_server_of_the_url_alone(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMDBIO_HTTP_HEADERS", "Authorization: Bearer x\nX-More: y")
    with RangeServer({}) as first:
        to = server.url(PATH)
        first.plan = lambda asked: Fault(status=307, headers={"Location": to})
        file = HttpFile(first.url("/to"), POLICY)
        assert read(file, 100_000, 10) == CONTENT[100_000:100_010]
    assert first.asked[0].headers["authorization"] == "Bearer x"
    assert first.asked[0].headers["x-more"] == "y"
    assert all("authorization" not in asked.headers for asked in server.asked)


def test_a_user_in_the_url_or_in_netrc_is_shown(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url(PATH).replace("http://", "http://me:wo%20rd@")
    file = HttpFile(url, POLICY)
    assert server.asked[-1].headers["authorization"] == "Basic bWU6d28gcmQ="
    assert "wo" not in file.name and file.url == url
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login you password word\n")
    monkeypatch.setenv("NETRC", str(netrc))
    HttpFile(server.url(PATH), POLICY)
    assert server.asked[-1].headers["authorization"] == "Basic eW91OndvcmQ="


@pytest.mark.parametrize("text", ["Authorization", ": x", "x\ny: z"])
def test_headers_that_are_none_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMDBIO_HTTP_HEADERS", text)
    with pytest.raises(ValueError, match="LMDBIO_HTTP_HEADERS"):
        HttpFile("http://127.0.0.1:1/x", POLICY)


def test_a_proxy_of_the_environment_is_asked(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:word@127.0.0.1:{server.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    server.files["http://far.example/data.mdb"] = CONTENT
    file = HttpFile("http://far.example/data.mdb", POLICY)
    assert read(file, 100_000, 10) == CONTENT[100_000:100_010]
    assert server.asked[-1].headers["proxy-authorization"] == "Basic bWU6d29yZA=="
    assert server.asked[-1].headers["host"] == "far.example"


# --- TLS ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(file), "-out", f"{file}.crt"),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl makes no certificate: {error}")
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


def test_https_is_read_where_the_certificate_is_trusted_alone(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with RangeServer({PATH: CONTENT}, context=context) as server:
        with pytest.raises(PermissionError, match="certificate is not trusted"):
            HttpFile(server.url(PATH), POLICY)
        monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
        file = HttpFile(server.url(PATH), POLICY)
        assert read(file, 100_000, 90_000) == CONTENT[100_000:190_000]
        server.plan = lambda asked: Fault(status=302, headers={"Location": "http://127.0.0.1/"})
        with pytest.raises(PermissionError, match="redirect from https to"):
            read(file, 100_000, 10)


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError), source:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _serve_tunnels(listening: socket.socket, asked: list[bytes]) -> None:
    """Answer CONNECT, as a proxy does, until the socket is closed."""
    with contextlib.suppress(OSError):
        while True:
            client, _ = listening.accept()
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            asked.append(head)
            host, _, port = head.split()[1].decode().partition(":")
            server = socket.create_connection((host, int(port)))
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            for pair in ((client, server), (server, client)):
                threading.Thread(target=_carry, args=pair, daemon=True).start()


def test_https_goes_through_a_proxy_as_a_tunnel(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    monkeypatch.delenv("no_proxy", raising=False)
    heads: list[bytes] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        RangeServer({PATH: CONTENT}, context=context) as server,
    ):
        threading.Thread(target=_serve_tunnels, args=(listening, heads), daemon=True).start()
        proxy = f"http://me:word@127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", proxy)
        file = HttpFile(server.url(PATH), POLICY)
        assert read(file, 100_000, 90_000) == CONTENT[100_000:190_000]
        file.close()
        assert len(heads) == 1
        assert heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} ".encode())
        assert b"Proxy-Authorization: Basic bWU6d29yZA==" in heads[0]
        assert all("proxy-authorization" not in asked.headers for asked in server.asked)


# --- ends ---------------------------------------------------------------------------------


def test_a_host_that_is_not_there_is_told(server: RangeServer) -> None:
    with pytest.raises(OSError, match=r"host not found|no address") as raised:
        HttpFile("http://nowhere.invalid/data.mdb", POLICY)
    assert raised.value.errno == errno.EHOSTUNREACH
    port = server.port
    server.close()
    begun = time.monotonic()
    with pytest.raises(ConnectionRefusedError, match=r"no server listens.* \(3 attempts\)"):
        HttpFile(f"http://127.0.0.1:{port}{PATH}")  # by the usual policy
    assert time.monotonic() - begun < 2


def test_a_server_without_tls_is_told_at_once(server: RangeServer) -> None:
    with pytest.raises(OSError, match="speaks no TLS: http://") as raised:
        HttpFile(server.url(PATH).replace("http:", "https:"))
    assert raised.value.errno == errno.EPROTO


@pytest.mark.parametrize(
    ("scheme", "reason"), [("http", "no connection within"), ("https", "no TLS connection within")]
)
def test_a_server_that_takes_no_connection_is_given_up(scheme: str, reason: str) -> None:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3 if scheme == "http" else 0):  # fill the queue of those to be accepted
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        url = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/"
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=f"{reason} 0.5 s"):
            HttpFile(url, replace(POLICY, attempts=1))
        assert 0.4 < time.monotonic() - begun < 4


def test_a_read_that_nobody_waits_for_ends(server: RangeServer) -> None:
    file = HttpFile(server.url(PATH), replace(POLICY, stall_s=60, total_s=60))
    server.plan = lambda asked: Fault(stall_s=60)
    given_up = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        into = memoryview(bytearray(10))
        under_way = threads.submit(file.read_into, 100_000, into, given_up.is_set)
        while len(server.asked) < 2:
            time.sleep(0.01)
        given_up.set()
        assert isinstance(under_way.exception(timeout=10), AbandonedError)


def test_a_child_reads_by_connections_of_its_own(server: RangeServer) -> None:
    file = HttpFile(server.url(PATH), POLICY)
    assert read(file, 100_000, 10) == CONTENT[100_000:100_010]
    ports = {asked.port for asked in server.asked}
    child = os.fork()
    if child == 0:
        os._exit(0 if read(file, 100_000, 10) == CONTENT[100_000:100_010] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert server.asked[-1].port not in ports
    assert read(file, 120_000, 10) == CONTENT[120_000:120_010]
    assert server.asked[-1].port in ports


@pytest.mark.more
def test_a_child_begins_while_threads_of_its_parent_read(server: RangeServer) -> None:
    file = HttpFile(server.url(PATH), POLICY)
    ended = threading.Event()

    def go_on() -> None:
        while not ended.is_set():
            assert read(file, 100_000, 50_000) == CONTENT[100_000:150_000]

    server.plan = lambda asked: Fault(cut=20_000, stall_s=0.01) if asked.number % 2 else None
    with ThreadPoolExecutor(4) as threads:
        under_way = [threads.submit(go_on) for _ in range(4)]
        try:
            for _ in range(40):
                child = os.fork()
                if child == 0:
                    signal.alarm(20)  # where it would wait for a lock that nobody gives back
                    os._exit(0 if read(file, 200_000, 10) == CONTENT[200_000:200_010] else 1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            ended.set()
        for one in under_way:
            one.result()


def test_the_environment_says_how_long_a_silence_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RetryPolicy.from_env() == RetryPolicy()
    monkeypatch.setenv("LMDBIO_REMOTE_TIMEOUT_S", "2.5")
    found = RetryPolicy.from_env()
    assert (found.connect_s, found.stall_s, found.total_s) == (2.5, 2.5, 25)
    for text in ("0", "-1", "x", "nan", "inf"):
        monkeypatch.setenv("LMDBIO_REMOTE_TIMEOUT_S", text)
        with pytest.raises(ValueError, match="LMDBIO_REMOTE_TIMEOUT_S"):
            RetryPolicy.from_env()


@pytest.mark.parametrize("url", ["foo://x/data.mdb", "sftp+x://y/z"])
def test_an_unknown_scheme_is_told_with_what_to_install(url: str) -> None:
    with pytest.raises(ValueError, match="fsspec"):
        open_url(url)


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_under_any_plan_of_faults_there_are_right_bytes_or_an_error(first: int) -> None:
    for seed in range(first, first + 10):
        try_plan(seed)
