"""Answers of servers are judged by what they say of themselves. Method: tables, no server."""

from __future__ import annotations

import errno
import time
from email.utils import formatdate
from typing import Any

import lmdb
import pytest

from lmdbio.remote.answer import FileState, judge_range, refuse_status, retry_after

KNOWN = FileState(1000, '"e"', "Fri, 27 Nov 2026 09:00:00 GMT")
OTHER_DATE = "Fri, 27 Nov 2026 10:00:00 GMT"


def told(content_range: str | None = "bytes 10-19/1000", **more: str) -> dict[str, str]:
    headers = {"etag": '"e"', "last_modified": KNOWN.modified, **more}
    if content_range is not None:
        headers["content_range"] = content_range
    return {name.replace("_", "-"): value for name, value in headers.items() if value}


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (206, told()),
        (206, told(content_length="10")),
        (200, told()),  # as rclone's server for S3 says it
        (206, told(last_modified=OTHER_DATE)),  # the ETag decides
        (206, told(content_encoding="identity")),
        (206, told("Bytes 10-19/1000")),
    ],
)
def test_the_right_bytes_are_taken(status: int, headers: dict[str, str]) -> None:
    assert judge_range(status, headers, 10, 19, KNOWN)[1] == 19


@pytest.mark.parametrize(
    "headers",
    [
        told(etag='"f"'),
        told(etag=""),  # reads rely on a strong one
        told(etag="", last_modified=OTHER_DATE),
        told(etag="", last_modified=""),
        told("bytes 10-19/1001"),
        told("bytes 10-19/999", etag=""),
    ],
)
def test_another_state_is_a_change(headers: dict[str, str]) -> None:
    with pytest.raises(lmdb.Error, match="changed while it was read"):
        judge_range(206, headers, 10, 19, KNOWN)


@pytest.mark.parametrize(
    ("status", "headers", "reason"),
    [
        (206, told("bytes 11-19/1000"), "not bytes 10-19"),
        (206, told("bytes 10-18/1000"), "not bytes 10-19"),
        (206, told("bytes 0-999/1000"), "not bytes 10-19"),
        (206, told("bytes 10-19/*"), "not bytes 10-19"),
        (206, told("10-19/1000"), "not bytes 10-19"),
        (206, told(None), "without Content-Range"),
        (200, told(None), "the whole file"),
        (206, told(content_encoding="gzip"), "Content-Encoding gzip"),
        (206, told(transfer_encoding="gzip, chunked"), "Transfer-Encoding gzip"),
        (206, told("bytes 10-19/" + "9" * 19), "not bytes 10-19"),
        (206, told("bytes 10-19/" + "9" * 5000), "not bytes 10-19"),
        (206, told(content_length="9"), "Content-Length is 9 for"),
        (416, told("bytes */1000"), "status 416 for bytes 10-19"),
        (416, told(None), "status 416 with"),
    ],
)
def test_what_answers_another_question_is_refused(
    status: int, headers: dict[str, str], reason: str
) -> None:
    with pytest.raises(OSError, match=reason):
        judge_range(status, headers, 10, 19, KNOWN)


def test_a_file_that_is_opened_may_end_before_the_first_request_does() -> None:
    state, last = judge_range(206, told("bytes 0-99/100"), 0, 999, None)
    assert (state.size, last) == (100, 99)
    with pytest.raises(OSError, match="not bytes"):
        judge_range(206, told("bytes 0-98/100"), 0, 999, None)
    empty, last = judge_range(416, told("bytes */0"), 0, 999, None)
    assert (empty.size, last) == (0, -1)


def test_a_state_is_known_by_its_etag_else_by_its_date() -> None:
    assert KNOWN.validator == '"e"' and KNOWN.is_strong
    assert not FileState(1, 'W/"e"', "").is_strong
    assert FileState(1, "", "then").validator == "Last-Modified then"
    assert FileState(1, "", "").validator == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("0", 0), ("17", 17), ("-3", None), ("soon", None), ("1e9", None)],
)
def test_a_server_asks_to_wait(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}) == seconds
    assert retry_after({}) is None


def test_a_server_asks_to_wait_until_a_date() -> None:
    later = retry_after({"retry-after": formatdate(time.time() + 100, usegmt=True)})
    assert later is not None and 90 < later <= 100
    assert retry_after({"retry-after": formatdate(0, usegmt=True)}) == 0


@pytest.mark.parametrize(
    ("status", "number"),
    [(401, errno.EACCES), (403, errno.EACCES), (404, errno.ENOENT), (410, errno.ENOENT)],
)
def test_a_status_is_an_error_that_a_file_may_have(status: int, number: Any) -> None:
    assert refuse_status(status, "")[0] == number
    assert refuse_status(404, "", "/set/train.mdb")[1] == "HTTP status 404"
    assert refuse_status(404, "", "/set/data.mdb")[1].endswith("of another file write the name")
    assert refuse_status(404, "", "/set")[1].endswith("the URL of a folder ends in a slash")
    assert refuse_status(418, "I am a teapot") == (
        errno.EIO,
        "HTTP status 418 (I am a teapot)",
    )
