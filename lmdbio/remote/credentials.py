"""Headers with the credentials for the server of a URL."""

from __future__ import annotations

import netrc
import os
from pathlib import Path

from lmdbio.remote.connection import basic
from lmdbio.remote.url import Target

__all__ = ["HEADERS", "own_headers"]

#: Environment variable: headers for the server of a URL, one a line ("Authorization: Bearer x").
HEADERS = "LMDBIO_HTTP_HEADERS"


def own_headers(target: Target) -> dict[str, str]:
    """Return the headers with the credentials for the server of a URL.

    Raises:
        ValueError: the variable of the environment has no headers.
    """
    headers = {}
    for line in os.environ.get(HEADERS, "").splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"{HEADERS} must have lines such as 'Authorization: Bearer x'")
        headers[name.strip()] = value.strip()
    if target.user is not None:
        headers["Authorization"] = basic(target.user, target.password or "")
    elif not any(name.lower() == "authorization" for name in headers):
        known = _from_netrc(target.origin.host)
        if known is not None:
            headers["Authorization"] = basic(*known)
    return headers


def _from_netrc(host: str) -> tuple[str, str] | None:
    """Return user and password of a host, as ~/.netrc has them, or the file that $NETRC names."""
    named = os.environ.get("NETRC")
    try:
        file = Path(named) if named else Path("~/.netrc").expanduser()
        if not file.is_file():
            return None
        found = netrc.netrc(str(file)).hosts.get(host)
    except (OSError, RuntimeError, netrc.NetrcParseError):
        return None
    return None if found is None else (found[0], found[2] or "")
