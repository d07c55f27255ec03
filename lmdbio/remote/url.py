"""Take URLs apart, and display them without what is secret in them. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

__all__ = [
    "Origin",
    "Target",
    "lasting",
    "redacted",
    "scheme_of",
    "server_of",
    "with_suffix",
]

#: Parameters of signed URLs, by their whole names, or the last word of these: "design" is none.
_SIGNED = re.compile(
    r"(x-(amz|goog|ms)-[^=]*"
    r"|([^=]*[-_.])?(signature|sig|token|expires?|expiry|expiration|credentials?|policy)"
    r"|([^=]*[-_.])?key-?(pair-?)?id|(aws|google)access(key)?id|(access|auth|sas)token)(=|\Z)",
    re.IGNORECASE,
)
#: Those of Azure, which no "sig=" is without, and which a new signature changes.
_SHARED = re.compile(r"(s[eiprstv]|spr|srt|sip|sk[a-z]+|saoid|suoid|scid)=")
#: Characters that no host has.
_NO_HOST = re.compile(r"[\x00-\x20\x7f/?#@]")
_PORTS = {"http": 80, "https": 443}
#: Of paths and queries, as they are; others are written as %XX, whose "%" stays one.
_SAFE = "%/:=&?~+!$,;'@()*[]"


def scheme_of(url: str) -> str:
    """Return a URL's scheme, such as "https"."""
    return url.partition("://")[0].lower()


def server_of(url: str) -> str:
    """Return the server, or bucket, that a URL names, with its port."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def with_suffix(url: str, suffix: str) -> str:
    """Return the URL of the file beside another one whose name is longer by ``suffix``."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path + suffix, fragment=""))


def redacted(url: str) -> str:
    """Return a URL for people: without user, password, and the query, which may be a signature."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # as of a password with "/" or "#" in it, which may be anywhere then
        return f"{scheme_of(url)}://..."
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "..." if parts.query else "", ""))


def lasting(url: str) -> str:
    """Return a URL without what changes from day to day: credentials, signatures."""
    parts = urlsplit(url)
    asked = [part for part in parts.query.split("&") if part and not _SIGNED.match(part)]
    if any(part.startswith("sig=") for part in parts.query.split("&")):
        asked = [part for part in asked if not _SHARED.match(part)]
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "&".join(asked), ""))


class Origin(NamedTuple):
    """A server.

    Attributes:
        scheme: "http" or "https".
        host: name or address of the host, without brackets.
        port: a number.
    """

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """As a ``Host`` header says it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


class Target(NamedTuple):
    """An HTTP URL, taken apart.

    Attributes:
        origin: the server.
        path: path with the query, as a request says it.
        user, password: credentials; None: it names none.
    """

    origin: Origin
    path: str
    user: str | None
    password: str | None

    @classmethod
    def of(cls, url: str) -> Target:
        """Take a URL apart.

        Raises:
            ValueError: it is no URL of HTTP.
        """
        try:
            parts = urlsplit(url)
            port, host = parts.port, (parts.hostname or "").encode("idna").decode("ascii")
        except ValueError:  # whose text may have a piece of a password
            raise ValueError(
                f"{redacted(url)} is no URL: its host or port makes no sense (in user and "
                "password, / ? # @ are written as %2F %3F %23 %40)"
            ) from None
        if parts.scheme not in _PORTS or not host or _NO_HOST.search(host):
            raise ValueError(f"{redacted(url)} is no URL of an HTTP server")
        path = quote(parts.path or "/", safe=_SAFE.replace("?", ""))
        if parts.query:
            path += "?" + quote(parts.query, safe=_SAFE)
        return cls(
            Origin(parts.scheme, host, _PORTS[parts.scheme] if port is None else port),
            path,
            None if parts.username is None else unquote(parts.username),
            None if parts.password is None else unquote(parts.password),
        )
