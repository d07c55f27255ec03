"""Judge the answers of HTTP servers to requests for ranges of a file. Pure.

    206, the right Content-Range, the same ETag, date and size   these are the bytes
    200 with a Content-Range                                     the same: some servers say it so
    200 without one                                              the whole file: of no use
    412, or another ETag, date or size                           the file has changed
    429, 5xx                                                     retried

Source: RFC 9110, sections 13 (conditional requests) and 14 (ranges).
"""

from __future__ import annotations

import email.utils
import errno
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lmdbio.errors import Error

__all__ = ["RETRIED", "FileState", "judge_range", "refuse_status", "retry_after"]

#: Statuses that are retried: the server, or one behind it, is busy.
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504, 509, 520, 521, 522, 523, 524, 529})
_KINDS = {
    401: errno.EACCES,
    403: errno.EACCES,
    404: errno.ENOENT,
    407: errno.EACCES,
    410: errno.ENOENT,
    451: errno.EACCES,
}
#: No file has as many bytes as 19 digits say.
_RANGE = re.compile(r"bytes\s+(\d{1,18})-(\d{1,18})/(\d{1,18})\s*\Z", re.IGNORECASE | re.ASCII)
_NO_RANGE = re.compile(r"bytes\s+\*/(\d{1,18})\s*\Z", re.IGNORECASE | re.ASCII)


#: The headers of an answer, under names in lower case.
Headers: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file on a server, as an answer tells it.

    Attributes:
        size: bytes.
        etag: entity tag as it was sent; "": none was.
        modified: the date of its last change, likewise.
    """

    size: int
    etag: str
    modified: str

    @property
    def validator(self) -> str:
        """The text that stands for the state; "": none does."""
        return self.etag or (f"Last-Modified {self.modified}" if self.modified else "")

    @property
    def is_strong(self) -> bool:
        """Whether a server can be asked for a range of just this state (``If-Match``)."""
        return bool(self.etag) and not self.etag.startswith("W/")


def retry_after(headers: Headers) -> float | None:
    """Return how many seconds a server asks to wait; None: it does not."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def refuse_status(status: int, reason: str, path: str = "") -> tuple[int, str]:
    """Return number and text of the error for a status that is none of success.

    Args:
        status, reason: status of the answer, and its words.
        path: path of the URL that the user named, which may have been that of a folder.
    """
    text = f"HTTP status {status}" + (f" ({reason})" if reason else "")
    if status in (401, 407):
        text += ": credentials missing or wrong"
    elif status == 403:
        text += ": access denied, or signature expired"
    elif status in (404, 410) and path.endswith("/data.mdb"):
        text += ": the URL of a folder means the data.mdb in it; of another file write the name"
    elif status in (404, 410) and path and "." not in path.rpartition("/")[2]:
        text += ": the URL of a folder ends in a slash"
    return _KINDS.get(status, errno.EIO), text


def judge_range(
    status: int,
    headers: Headers,
    first: int,
    last: int,
    known: FileState | None,
) -> tuple[FileState, int]:
    """Return the state that an answer with a range tells, and the last byte that it brings.

    Args:
        status: 200, 206 or 416.
        headers: headers of the answer.
        first, last: bytes that were asked for; the file has the first of them.
        known: the state that the file was opened in; None: it is being opened.

    Raises:
        Error: the file is in another state.
        OSError: it is no answer to the question.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raise OSError(errno.EIO, f"unexpected Content-Encoding {encoding}")
    coding = headers.get("transfer-encoding", "").strip().lower()
    if coding not in ("chunked", "identity", ""):  # http.client takes another one for the bytes
        raise OSError(errno.EIO, f"unexpected Transfer-Encoding {coding}")
    etag, modified = headers.get("etag", "").strip(), headers.get("last-modified", "").strip()
    content_range = headers.get("content-range", "").strip()
    if status == 416:
        return _judge_empty(
            FileState(_parse_size(content_range), etag, modified), first, last, known
        ), -1
    if not content_range:
        if status == 200 and headers.get("content-type", "").startswith("text/html"):
            raise OSError(
                errno.EISDIR,
                "the server answers with a page (text/html) of a folder, or of a login: write the "
                "URL of the data file, or of its folder with a slash at its end",
            )
        if status == 200:
            raise OSError(
                errno.EOPNOTSUPP,
                "the server answers a range request with the whole file (status 200): it does "
                "not support ranges; copy the file, or use another server",
            )
        raise OSError(errno.EIO, "answer without Content-Range")
    found = _RANGE.match(content_range)
    if found is None:
        raise OSError(errno.EIO, f"Content-Range is {content_range!r}, not bytes {first}-{last}")
    begins, ends, size = map(int, found.groups())
    state = FileState(size, etag, modified)
    refuse_change(known, state)
    if begins != first or ends != min(last, size - 1):
        raise OSError(errno.EIO, f"Content-Range is {content_range!r}, not bytes {first}-{last}")
    length = headers.get("content-length", "")
    if length and length.strip() != str(ends - begins + 1):
        raise OSError(errno.EIO, f"Content-Length is {length.strip()} for {content_range!r}")
    return state, ends


def _parse_size(content_range: str) -> int:
    found = _NO_RANGE.match(content_range)
    if found is None:
        raise OSError(errno.EIO, f"status 416 with Content-Range {content_range!r}")
    return int(found[1])


def _judge_empty(state: FileState, first: int, last: int, known: FileState | None) -> FileState:
    """Judge the answer that a file has no such bytes, which is right of an empty one alone."""
    refuse_change(known, state)
    if known is not None or state.size:
        raise OSError(errno.EIO, f"status 416 for bytes {first}-{last} of {state.size}")
    return state


def refuse_change(known: FileState | None, now: FileState) -> None:
    """Refuse a state that is not the known one.

    An answer that tells no ETag where a weak one was known is judged by its date; a strong one
    must be told again, for reads rely on it. With one the date does not count: servers of one
    site may tell other dates for the same bytes.

    Raises:
        Error: naming what differs.
    """
    if known is None:
        return
    what, then, found = "Last-Modified", known.modified, now.modified
    if known.etag and (now.etag or known.is_strong or not known.modified):
        what, then, found = "ETag", known.etag, now.etag
    if known.size != now.size:
        what, then, found = "size", str(known.size), str(now.size)
    if then != found:
        raise Error(
            f"changed while it was read ({what} {then or 'not told'} when opened, "
            f"{found or 'not told'} now); open it again"
        )
