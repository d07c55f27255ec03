"""Objects in buckets: s3, gs, az, read by obstore's knowledge of accounts.

    obstore signs a URL for the object  ->  HttpFile reads it, as any other, and has it signed anew
                                            when the signature has expired
    it cannot (no key of one's own)     ->  obstore reads

So ranges of one state alone are read, bodies that are cut go on, and a child after fork reads on:
obstore's own threads are not there after fork, which it does not notice. Credentials are those of
the environment, as obstore finds them: AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS,
AZURE_STORAGE_ACCOUNT_KEY and so on, or those of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from functools import partial
from typing import Any

from lmdbio.errors import Error, MissingExtraError
from lmdbio.remote.fetched import FetchedFile, failed
from lmdbio.remote.http import HttpFile
from lmdbio.remote.retry import RetryPolicy
from lmdbio.remote.url import redacted
from lmdbio.system.log import log

__all__ = ["open_object", "sign"]

#: Signatures last so long, unless the credentials end before; then they are made anew.
EXPIRY = timedelta(hours=6)
#: A process that signs for a forked child: the time it takes to begin and to ask for credentials.
SIGN_TIMEOUT_S = 60

#: The process in which obstore was used first, whose children must not use it.
_process: int | None = None


def open_object(url: str, policy: RetryPolicy | None = None) -> HttpFile | FetchedFile:
    """Open an object by its URL.

    Raises:
        FileNotFoundError, PermissionError, OSError: it cannot be opened.
        MissingExtraError: obstore is not installed.
    """
    policy = policy or RetryPolicy.from_env()
    try:
        sign(url)
    except (MissingExtraError, _ForkedError):
        raise
    except Exception as error:
        why = failed(redacted(url), error)
        log(f"{redacted(url)}: is read by obstore, for no URL can be signed: {why}")
        try:
            return _Stored(url, policy)
        except Exception as error:
            raise failed(redacted(url), error) from None
    return HttpFile(url, policy, sign=partial(_sign_again, url))


def _sign_again(url: str) -> str:
    """Return what ``sign`` does; its errors name the object."""
    try:
        return sign(url)
    except Exception as error:
        raise failed(redacted(url), error) from None


def sign(url: str) -> str:
    """Return an HTTP URL by which anybody may read an object for some hours.

    Raises:
        Exception: whatever obstore raises where it cannot.
    """
    if _process not in (None, os.getpid()):
        return _sign_elsewhere(url)
    obstore, store, key = _store_of(url, RetryPolicy.from_env())
    return str(obstore.sign(store, "GET", key, EXPIRY))


class _ForkedError(Error):
    """obstore cannot be used in this process."""


def _sign_elsewhere(url: str) -> str:
    """Sign in a process of its own, which nobody has forked."""
    code = "import sys; from lmdbio.remote.store import sign; print(sign(sys.argv[1]))"
    command = [sys.executable, "-c", code, url]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SIGN_TIMEOUT_S,
            env=environment,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise _ForkedError(
            f"{redacted(url)}: cannot be opened in a forked process: {''.join(reason)}"
        ) from None
    return done.stdout.strip()


def _store_of(url: str, policy: RetryPolicy) -> tuple[Any, Any, str]:
    """Return obstore, its store for the folder of an object, and the object's name there."""
    global _process
    try:
        import obstore
        from obstore.store import from_url
    except ImportError:
        scheme = url.partition(":")[0]
        raise MissingExtraError(f"{scheme}://", "obstore", "obstore", "cloud") from None
    _process = os.getpid()
    folder, _, key = url.rpartition("/")
    store = from_url(
        folder,
        client_options={
            # Options given here take the place of all that the environment says.
            "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes"),
            "connect_timeout": timedelta(seconds=policy.connect_s),
            "timeout": timedelta(seconds=policy.stall_s),
        },
        retry_config={
            "max_retries": policy.attempts - 1,
            "retry_timeout": timedelta(seconds=policy.stall_s),
        },
    )
    return obstore, store, key


class _Stored(FetchedFile):
    """An object that obstore reads."""

    def __init__(self, url: str, policy: RetryPolicy) -> None:
        self._obstore, self._store, self._key = _store_of(url, policy)
        meta = self._obstore.head(self._store, self._key)
        self._etag = str(meta.get("e_tag") or "")
        validator = self._etag or str(meta.get("version") or "")
        super().__init__(
            url,
            size=int(meta["size"]),
            validator=validator,
            keeps_state=bool(self._etag),
        )

    def fetch(self, begin: int, end: int) -> Any:
        if _process != os.getpid():
            raise _ForkedError("obstore cannot be used in a forked process: start it by spawn")
        options: dict[str, Any] = {"range": (begin, end)}
        if self._etag and not self._etag.startswith("W/"):
            options["if_match"] = self._etag
        found = self._obstore.get(self._store, self._key, options=options)
        now = str(found.meta.get("e_tag") or "")
        if now != self._etag or int(found.meta["size"]) != self.size:
            raise Error(f"changed while it was read (ETag {self._etag} when opened, {now} now)")
        return found.bytes()
