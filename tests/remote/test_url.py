"""URLs are taken apart, and told to people without secrets. Method: tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmdbio.provenance import find_data, find_sidecar, sidecar_file
from lmdbio.remote import is_url
from lmdbio.remote.url import Target, lasting, redacted, server_of, with_suffix


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("https://h/x", True),
        ("s3://b/k", True),
        ("abfs+x://b/k", True),
        ("/a/b", False),
        ("a://b", False),
        ("https:/h/x", False),
        ("./https://h", False),
        (b"https://h/x", False),
        (Path("https://h/x"), False),
    ],
)
def test_a_url_is_told_from_a_path(name: str, found: bool) -> None:
    assert is_url(name) is found


def test_what_is_secret_in_a_url_is_not_told() -> None:
    told = redacted("https://me:word@h:8/a/b.mdb?X-Amz-Signature=5#top")
    assert told == "https://h:8/a/b.mdb?..."
    assert server_of("https://me:word@H:8/a") == "h:8"
    assert redacted("https://me:wo/rd@h/a") == redacted("https://me:wo#rd@h/a") == "https://..."


@pytest.mark.parametrize(
    ("url", "beside"),
    [
        ("https://h/a/data.mdb", "https://h/a/data.mdb.prov"),
        ("https://h/data.mdb?sig=1", "https://h/data.mdb.prov?sig=1"),
        ("s3://b/k/data.mdb", "s3://b/k/data.mdb.prov"),
    ],
)
def test_the_provenance_file_lies_beside_the_url(url: str, beside: str) -> None:
    assert with_suffix(url, ".prov") == beside
    assert find_sidecar(url) == beside


def test_a_target_is_a_server_and_what_it_is_asked_for() -> None:
    found = Target.of("https://me:w%40rd@h.org/a b/ä.mdb?q=%20x y")
    assert found.path == "/a%20b/%C3%A4.mdb?q=%20x%20y"
    assert found.origin == ("https", "h.org", 443)
    assert (found.user, found.password) == ("me", "w@rd")
    assert Target.of("http://[::1]:81/").origin.authority == "[::1]:81"
    assert Target.of("http://bücher.example/").origin.host == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://h/x", "https://", "http://h:port/x", "http://[::1/x", "http://h o/x"),
        *("http://me:secret@h:99999/x", "http:///x?sig=secret", f"http://me:secret@{'a' * 70}.b/"),
    ],
)
def test_what_is_no_url_of_http_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no URL") as refused:
        Target.of(url)
    assert "secret" not in str(refused.value)


def test_a_port_that_is_told_is_taken() -> None:
    assert Target.of("http://h:0/").origin.port == 0


def test_the_data_of_a_folder_is_inside_of_it(tmp_path: Path) -> None:
    assert find_data("s3://b/set/") == "s3://b/set/data.mdb"
    assert find_data("s3://b/set/x.mdb") == "s3://b/set/x.mdb"
    (tmp_path / "data.mdb").touch()
    assert find_data(f"file://{tmp_path}") == tmp_path / "data.mdb"


def test_a_shared_folder_holds_one_provenance_file_for_all_signatures_of_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PermissionError, match="LMDBIO_PROVENANCE_DIR"):
        sidecar_file("https://h/set/data.mdb")
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(tmp_path))
    one = sidecar_file("https://h/set/data.mdb?sig=1&X-Amz-Expires=3")
    assert one == sidecar_file("https://me:w@h/set/data.mdb?sig=2")
    assert sidecar_file("https://h/get?id=1&sig=5") != sidecar_file("https://h/get?id=2&sig=5")
    azure = "https://h/get?id=1&sv=2024&se=2026-{}&sp=r&sig={}"
    assert sidecar_file(azure.format("01", "a")) == sidecar_file(azure.format("02", "b"))
    assert sidecar_file("https://h/get?se=1") != sidecar_file("https://h/get?se=2")
    assert one.name.startswith("set-") and one != sidecar_file("https://h/other/data.mdb")
    # One beside the data is found, unless the folder has one of its own.
    assert find_sidecar("https://h/set/data.mdb") == "https://h/set/data.mdb.prov"
    sidecar_file("https://h/set/data.mdb").touch()
    assert find_sidecar("https://h/set/data.mdb") == one


@pytest.mark.parametrize(
    "secret",
    [
        "X-Amz-Signature=1",
        "x-goog-date=1",
        "AWSAccessKeyId=1",
        "Signature=1",
        "Expires=1",
        "access_token=1",
        "Key-Pair-Id=1",
        "Policy=1",
        "security-token=1",
        "se=1&sp=r&sig=1",
    ],
)
def test_a_signature_is_no_part_of_what_lasts_of_a_url(secret: str) -> None:
    assert lasting(f"https://host/x.mdb?v=2&{secret}") == "https://host/x.mdb?v=2"


@pytest.mark.parametrize("asked", ["design=3", "tokens=4", "expiring=1", "sp=2", "key=5"])
def test_what_names_a_file_lasts(asked: str) -> None:
    assert lasting(f"https://host/x.mdb?{asked}") == f"https://host/x.mdb?{asked}"
